//! Arithmetic on whole trees: zeros, inner products, norms, conversions and selections.

use super::{Path, Tree, collect, map, map2, mismatch};
use crate::api::array::Array;
use crate::api::trace::{in_call, poison};
use crate::core::DType;
use crate::ir::program::CallSite;
use std::panic::Location;

/// Returns a tree of zeros with the types and shardings of this tree.
///
/// ```
/// use atmesh::prelude::*;
/// let zeros = tree::zeros_like(&(Array::ones([2]), Array::from(7)));
/// assert_eq!(type_of(&zeros), "(float32[2], int32[])");
/// assert_eq!(zeros.1.item::<i32>()?, 0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
#[doc(alias("tree_zeros_like"))]
pub fn zeros_like<T: Tree>(tree: &T) -> T {
    map(tree, |a| a.zeros_like())
}

/// Converts each float of the tree to the element type `dtype`, which is a float.
///
/// Integers, booleans, complex numbers and keys stay as they are.
///
/// ```
/// use atmesh::prelude::*;
/// let half = tree::cast(&(Array::ones([2]), Array::from(7)), BF16);
/// assert_eq!(type_of(&half), "(bfloat16[2], int32[])");
/// ```
///
/// # Errors
/// If `dtype` is not a float, each float of the result carries the error.
#[track_caller]
#[doc(alias("tree_cast", "cast_floating"))]
pub fn cast<T: Tree>(tree: &T, dtype: DType) -> T {
    let call = CallSite::here("tree::cast");
    let fault = (!dtype.is_float()).then(|| {
        fault!(Dtype, "the floats of a tree are converted to floats, but {dtype} is not a float")
            .help("convert each array: `tree::map(&tree, |x| x.astype(..))`")
    });
    let wrong = fault.map(|fault| poison(call.error(fault, Vec::new)));
    map(tree, |a| match (&wrong, a.type_ref()) {
        (Some(wrong), Ok(ty)) if ty.dtype.is_float() => wrong.clone(),
        (None, Ok(ty)) if ty.dtype.is_float() => a.astype(dtype),
        _ => a.clone(),
    })
}

/// Returns the tree `a` where the condition holds, and `b` elsewhere, array by array.
///
/// The condition is a boolean scalar, or a boolean array of the shape of every array. If the
/// structures of the trees differ, every array of the result carries the error.
///
/// ```
/// use atmesh::prelude::*;
/// let (old, new) = (vec![Array::from(1.0f32)], vec![Array::from(f32::NAN)]);
/// let finite = new[0].is_finite();
/// assert_eq!(tree::select(&finite, &new, &old)[0].item::<f32>()?, 1.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
#[doc(alias("tree_where"))]
pub fn select<T: Tree>(condition: &Array, a: &T, b: &T) -> T {
    map2(a, b, |a, b| condition.select(a, b))
}

/// Returns the inner product of two trees: the sum of the products of all their elements.
///
/// Complex elements of `a` are conjugated. Products of bfloat16 and float16 arrays are added in
/// float32, so that the result is float32. The result for trees without arrays is zero.
///
/// ```
/// use atmesh::prelude::*;
/// let t = (Array::from([1.0f32, 2.0]), Array::from(3.0f32));
/// assert_eq!(tree::vdot(&t, &t).item::<f32>()?, 14.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// # Errors
/// If the structures or the element types differ, the result carries the error.
#[track_caller]
#[doc(alias("tree_vdot"))]
pub fn vdot<T: Tree>(a: &T, b: &T) -> Array {
    let call = CallSite::here("tree::vdot");
    if let Some(how) = a.differs(b, &mut Path::named()) {
        return poison(mismatch("the two trees", &how, call));
    }
    in_call(call.location, || vdot_of(&collect(a), &collect(b)))
}

/// Returns the Euclidean norm of all elements of the tree.
///
/// This is optax's `global_norm`: the square root of the sum of all squares. Squares of integers,
/// booleans and 16-bit floats are added in float32. The norm of a tree without arrays is zero.
///
/// ```
/// use atmesh::prelude::*;
/// let t = (Array::from([2.0f32, 2.0]), Array::from(1.0f32));
/// assert_eq!(tree::norm(&t).item::<f32>()?, 3.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
#[doc(alias("global_norm", "tree_norm", "tree_l2_norm"))]
pub fn norm<T: Tree>(tree: &T) -> Array {
    in_call(Location::caller(), || {
        let leaves: Vec<Array> = collect(tree).iter().map(widened).collect();
        sum(leaves.iter().map(|a| a.abs().square().sum(..))).sqrt()
    })
}

/// Returns the sum of the inner products of corresponding arrays.
pub(crate) fn vdot_of(a: &[Array], b: &[Array]) -> Array {
    sum(a.iter().zip(b).map(|(a, b)| (conjugated(&widened(a)) * widened(b)).sum(..)))
}

fn conjugated(a: &Array) -> Array {
    if a.type_ref().is_ok_and(|ty| ty.dtype.is_complex()) { a.conj() } else { a.clone() }
}

/// Converts integers, booleans and 16-bit floats to float32, in which their sums are computed.
pub(crate) fn widened(a: &Array) -> Array {
    match a.type_ref() {
        Ok(ty) if ty.dtype != DType::F64 && !ty.dtype.is_complex() && ty.dtype != DType::Key => {
            a.astype(DType::F32)
        }
        _ => a.clone(),
    }
}

/// Adds scalars. Of float32 and float64 scalars the sum is float64.
fn sum(all: impl Iterator<Item = Array>) -> Array {
    let float64 = |a: &Array| a.type_ref().is_ok_and(|ty| ty.dtype == DType::F64);
    let add = |a: Array, b: Array| match (float64(&a), float64(&b)) {
        (true, false) => a + b.astype(DType::F64),
        (false, true) => a.astype(DType::F64) + b,
        _ => a + b,
    };
    all.reduce(add).unwrap_or_else(|| Array::from(0.0f32))
}
