//! Jacobians and Hessians, by `vmap` over a basis, and products with a Hessian.

use super::control::tree_of;
use super::derivative::{loss_and_cotangents, reject_integers, run_jvp, run_vjp};
use super::vmap::{VmapOptions, run_vmap};
use crate::api::array::Array;
use crate::api::trace::{in_call, poison};
use crate::api::tree::{
    Args, CallArgs, Cotangents, JacobianResult, Jacobians, Loss, Output, Retype, collect,
};
use crate::core::{ArrayType, Axes, DType, Result, Spec};
use crate::ir::program::{CallSite, typing::cotangent_type};

/// The tree of the Jacobians with respect to each array of a tree.
type JacobianTree<A> = <A as Retype<Jacobians>>::Out;

/// Returns the Jacobian of `f` at a point, by reverse mode: one pullback for each result element.
///
/// `f` returns one array. The dimensions of the Jacobian are those of the result, then those of the
/// point. If the point is a tree, the Jacobians are a tree like it, with one for each array.
/// Reverse mode is the faster one if the result has fewer elements than the point; otherwise use
/// [`jacfwd`].
///
/// The dimensions of the result are unsharded, those of the point are sharded as the point is.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1.0f32, 2.0, 3.0]);
/// let j = jacrev(&x, |x| stack([x.sum(..), x.prod(..)], 0));
/// assert_eq!(j.to_vec::<f32>()?, [1.0, 1.0, 1.0, 6.0, 3.0, 2.0]);
///
/// let (by_x, by_a) = jacrev((&x, Array::from(2.0f32)), |(x, a)| x * a);
/// assert_eq!((by_x.shape()?, by_a.shape()?), (vec![3, 3].into(), vec![3].into()));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn jacrev<A, R>(point: A, f: impl Fn(A::Owned) -> R) -> JacobianTree<A::Owned>
where
    A: Args<Owned: Retype<Jacobians>>,
    R: Output<Tree: JacobianResult>,
{
    let f = |x| f(x).into_result().map(JacobianResult::into_array);
    by_reverse(&point.into_tree(), &f, CallSite::here("jacrev"))
}

/// Returns the Jacobian of `f` at a point. It is [`jacrev`] by its other name.
///
/// ```
/// use atmesh::{jacobian, prelude::*};
/// let j = jacobian(Array::from([1.0f32, 2.0]), |x| x.square());
/// assert_eq!(j.to_vec::<f32>()?, [2.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn jacobian<A, R>(point: A, f: impl Fn(A::Owned) -> R) -> JacobianTree<A::Owned>
where
    A: Args<Owned: Retype<Jacobians>>,
    R: Output<Tree: JacobianResult>,
{
    let f = |x| f(x).into_result().map(JacobianResult::into_array);
    by_reverse(&point.into_tree(), &f, CallSite::here("jacobian"))
}

/// Returns the Jacobian of `f` at a point, by forward mode: one tangent for each element of the
/// point.
///
/// Arguments and result are those of [`jacrev`]. The dimensions of the result are sharded as the
/// result is, those of the point are unsharded.
///
/// ```
/// use atmesh::prelude::*;
/// let j = jacfwd(Array::from([1.0f32, 2.0]), |x| x.square());
/// assert_eq!(j.to_vec::<f32>()?, [2.0, 0.0, 0.0, 4.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn jacfwd<A, R>(point: A, f: impl Fn(A::Owned) -> R) -> JacobianTree<A::Owned>
where
    A: Args<Owned: Retype<Jacobians>>,
    R: Output<Tree: JacobianResult>,
{
    let f = |x| f(x).into_result().map(JacobianResult::into_array);
    by_forward(&point.into_tree(), &f, CallSite::here("jacfwd"))
}

/// Returns the Hessian of a scalar function at a point: the matrix of its second derivatives.
///
/// Its dimensions are those of the point, twice. It is the forward-mode Jacobian of the gradient.
/// For the product of a Hessian and a vector, [`hvp`] does not need the matrix.
///
/// ```
/// use atmesh::prelude::*;
/// let h = hessian(Array::from([1.0f32, 2.0]), |x| (x.prod(..) * 3.0));
/// assert_eq!(h.to_vec::<f32>()?, [0.0, 3.0, 3.0, 0.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn hessian<R: Output<Tree: Loss>>(point: impl CallArgs<Array>, f: impl Fn(Array) -> R) -> Array {
    let call = CallSite::here("hessian");
    let gradient = |x: Array| {
        let (_, mut g) = loss_and_cotangents(&x, &|x| f(x).into_result(), call)?;
        Ok(g.swap_remove(0))
    };
    by_forward(&point.into_tree(), &gradient, call)
}

/// Returns the product of the Hessian of a scalar function at a point and a vector.
///
/// The point is a tree, and the vector a tree like it. The product is the directional derivative of
/// the gradient, and takes about as long as two gradients.
///
/// ```
/// use atmesh::{hvp, prelude::*};
/// let (x, v) = (Array::from([1.0f32, 2.0]), Array::from([1.0f32, 0.0]));
/// let product = hvp(&x, &v, |x| x.prod(..) * 3.0);
/// assert_eq!(product.to_vec::<f32>()?, [0.0, 3.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "hessian_vector_product")]
#[track_caller]
pub fn hvp<A, R>(
    point: A,
    vector: impl CallArgs<A::Owned>,
    f: impl Fn(A::Owned) -> R,
) -> <A::Owned as Retype<Cotangents>>::Out
where
    A: Args<Owned: Retype<Cotangents>>,
    R: Output<Tree: Loss>,
{
    let call = CallSite::here("hvp");
    let (at, vector) = (point.into_tree(), vector.into_tree());
    let gradient = |x| Ok(loss_and_cotangents(&x, &|x| f(x).into_result(), call)?.1);
    let product = run_jvp(&at, &vector, &gradient, call);
    retyped(&at, product.map(|(_, product)| product))
}

/// Builds the counterpart of a tree from its leaves, or from leaves that carry the error.
fn retyped<F, A: Retype<F>>(like: &A, leaves: Result<Vec<Array>>) -> A::Out {
    match leaves {
        Ok(leaves) => {
            let mut leaves = leaves.into_iter();
            like.retype(&mut || leaves.next().expect("one for each leaf"))
        }
        Err(e) => {
            let wrong = poison(e);
            like.retype(&mut || wrong.clone())
        }
    }
}

/// Returns the Jacobians by reverse mode.
fn by_reverse<A: Retype<Jacobians>>(
    at: &A,
    f: &dyn Fn(A) -> Result<Array>,
    call: CallSite<'_>,
) -> JacobianTree<A> {
    let run = || {
        let (y, pullback) = run_vjp(at, f, call)?;
        let to = y.ty()?;
        let pull = |ct: Array| pullback.pull(&ct, None, call);
        let rows = run_vmap(&VmapOptions::default(), &basis(&cotangent_type(&to)), &pull, call)?;
        let points = collect(at);
        let shaped = rows.into_iter().zip(&points).map(|(rows, leaf)| {
            let leaf = leaf.ty()?;
            Ok(rows.reshape(to.shape.iter().chain(leaf.shape.iter()).copied().collect::<Vec<_>>()))
        });
        shaped.collect()
    };
    retyped(at, in_call(call.location, run))
}

/// Returns the Jacobians by forward mode: each is that of a function of one array.
fn by_forward<A: Retype<Jacobians>>(
    at: &A,
    f: &dyn Fn(A) -> Result<Array>,
    call: CallSite<'_>,
) -> JacobianTree<A> {
    let leaves = collect(at);
    let of_leaf = |k: usize| -> Result<Array> {
        let only = |x: Array| {
            let mut all = leaves.clone();
            all[k] = x;
            f(tree_of(at, all))
        };
        let from = leaves[k].ty()?;
        let push = |t: Array| Ok(run_jvp(&leaves[k], &t, &only, call)?.1);
        let columns = run_vmap(&VmapOptions::default(), &basis(&from), &push, call)?;
        let ty = columns.ty()?;
        let shape: Vec<usize> = ty.shape[1..].iter().chain(from.shape.iter()).copied().collect();
        Ok(columns.moveaxis(0, -1).reshape(shape))
    };
    let run = || {
        reject_integers(at, call)?;
        (0..leaves.len()).map(of_leaf).collect()
    };
    retyped(at, in_call(call.location, run))
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
