//! Jacobians and Hessians of functions of one array, by `vmap` over a basis.

use super::derivative::{grad, jvp, vjp};
use super::vmap::vmap;
use crate::api::array::Array;
use crate::api::tree::{CallArgs, JacobianResult, Loss, Output};
use crate::core::{ArrayType, Axes, DType, Spec};
use crate::ir::program::typing::cotangent_type;

/// Returns the Jacobian of `f` at a point, by reverse mode: one pullback for each result element.
///
/// `f` maps one array to one array. The dimensions of the Jacobian are those of the result, then
/// those of the point. Reverse mode is the faster one if the result has fewer elements than the
/// point; otherwise use [`jacfwd`].
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0, 3.0]);
/// let j = jacrev(&x, |x| stack([x.sum(..), x.prod(..)], 0));
/// assert_eq!(j.to_vec::<f32>()?, [1.0, 1.0, 1.0, 6.0, 3.0, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("jacobian"))]
#[track_caller]
pub fn jacrev<R: Output<Tree: JacobianResult>>(point: impl CallArgs<Array>, f: impl Fn(Array) -> R) -> Array {
    let point = point.into_tree();
    let (y, pullback) = vjp(&point, |x| f(x).into_result().map(JacobianResult::into_array));
    let (Ok(from), Ok(to)) = (point.type_ref(), y.type_ref()) else { return y };
    let rows = vmap(basis(&cotangent_type(to)), |cotangent: Array| pullback.call(cotangent));
    let shape: Vec<usize> = to.shape.iter().chain(from.shape.iter()).copied().collect();
    rows.reshape(shape)
}

/// Returns the Jacobian of `f` at a point, by forward mode: one tangent for each element of the
/// point.
///
/// Arguments and result are those of [`jacrev`].
///
/// ```
/// use atmesh::prelude::*;
/// let j = jacfwd(Array::from([1.0f32, 2.0]), |x| x.square());
/// assert_eq!(j.to_vec::<f32>()?, [2.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn jacfwd<R: Output<Tree: JacobianResult>>(point: impl CallArgs<Array>, f: impl Fn(Array) -> R) -> Array {
    let point = point.into_tree();
    let Ok(from) = point.type_ref() else { return point };
    let columns = vmap(basis(from), |tangent: Array| {
        jvp(&point, tangent, |x| f(x).into_result().map(JacobianResult::into_array)).1
    });
    let Ok(ty) = columns.type_ref() else { return columns };
    let shape: Vec<usize> = ty.shape[1..].iter().chain(from.shape.iter()).copied().collect();
    columns.moveaxis(0, -1).reshape(shape)
}

/// Returns the Hessian of a scalar function at a point: the matrix of its second derivatives.
///
/// Its dimensions are those of the point, twice. It is the forward-mode Jacobian of the gradient.
///
/// ```
/// use atmesh::prelude::*;
/// let h = hessian(Array::from([1.0f32, 2.0]), |x| (x.prod(..) * 3.0));
/// assert_eq!(h.to_vec::<f32>()?, [0.0, 3.0, 3.0, 0.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn hessian<R: Output<Tree: Loss>>(point: impl CallArgs<Array>, f: impl Fn(Array) -> R) -> Array {
    jacfwd(point, |x| grad(x, &f))
}

/// Returns the basis of the arrays of a type: for each element, an array that is 1 there.
///
/// The first dimension counts the elements, and is unsharded.
#[track_caller]
fn basis(ty: &ArrayType) -> Array {
    let n = ty.shape.num_elements();
    let spec = ty.spec.padded(ty.rank());
    let dims = std::iter::once(Axes::none()).chain(spec.dims().iter().cloned());
    let of = ArrayType {
        dtype: DType::I32,
        shape: std::iter::once(n).chain(ty.shape.iter().copied()).collect(),
        spec: Spec::from_dims(dims.collect::<Vec<_>>()),
        varying: Axes::none(),
        ..ty.clone()
    };
    let stride = |d: usize| ty.shape[d + 1..].iter().product::<usize>();
    let element =
        (0..ty.rank()).fold(Array::from(0), |sum, d| sum + Array::iota(of.clone(), d + 1) * stride(d));
    Array::iota(of.clone(), 0).eq(element).astype(ty.dtype)
}
