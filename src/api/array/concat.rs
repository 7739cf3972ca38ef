//! Joins and splits arrays: `concat`, `stack`, `split` and `unstack`.
//!
//! `concat` and `stack` apply the concatenation primitive, after checks that name the operand at
//! fault; `split` and `unstack` apply slices.

use super::operand::{self, Term};
use super::{Array, dims::resolve_dim, errors, prims};
use crate::api::trace::{ArrayOrLiteral, apply1, carried_errors, poison};
use crate::core::{ErrorKind, Fault};
use crate::ir::program::{CallSite, UserOperand};
use std::borrow::Borrow;

/// # Splitting
impl Array {
    /// Returns the slices along dimension `d`, with that dimension removed.
    ///
    /// The dimension must be unsharded. If this array carries an error, its size is not known, and
    /// the result is one array with the error.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let rows = Array::from([[1, 2], [3, 4]]).unstack(0);
    /// assert_eq!(rows[1].to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn unstack(&self, d: i32) -> Vec<Array> {
        let call = CallSite::here("unstack");
        let Ok(ty) = self.type_ref() else { return vec![self.clone()] };
        let reject = |fault, n| vec![self.reject(fault, call); n];
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| reject(fault, 1));
        if !ty.spec.dim(at).is_empty() {
            // return one error for each slice, so that indexing the result does not panic
            let fault = errors::sharded_dim(ty, at, ": its slices are on different devices");
            return reject(fault, ty.shape[at].max(1));
        }
        (0..ty.shape[at]).map(|i| self.slice_dim(at, i, i + 1, call).squeeze_at(&[at], call)).collect()
    }
    /// Returns the slice `start..limit` of dimension `d`.
    pub(crate) fn slice_dim(&self, d: usize, start: usize, limit: usize, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if start == 0 && limit == ty.shape[d] {
            return self.clone();
        }
        let mut bounds: Vec<(usize, usize, usize)> = ty.shape.iter().map(|n| (0, *n, 1)).collect();
        bounds[d] = (start, limit, 1);
        apply1(prims::slice(&bounds), &[self.into()], call)
    }
    /// Splits dimension `d` into consecutive pieces of these sizes, which must add up to its size.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let parts = Array::arange(0..5).split([2, 3], 0);
    /// assert_eq!(parts[1].to_vec::<i32>()?, [2, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, sizes: impl AsRef<[usize]>, d: i32) -> Vec<Array> {
        let (sizes, call) = (sizes.as_ref(), CallSite::here("split"));
        let Ok(ty) = self.type_ref() else { return vec![self.clone(); sizes.len().max(1)] };
        let reject = |fault| vec![self.reject(fault, call); sizes.len().max(1)];
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| reject(fault));
        let total = sizes.iter().fold(0, |total: usize, n| total.saturating_add(*n));
        if total != ty.shape[at] {
            return reject(
                Fault::new(
                    ErrorKind::Shape,
                    format!("pieces of {sizes:?} make {total}, but dimension {at} has size {}", ty.shape[at]),
                )
                .help("give sizes whose sum is that of the dimension")
                .highlight_dim(0, at),
            );
        }
        let mut start = 0;
        let piece = |n: &usize| {
            let s = start;
            start += n;
            self.slice_dim(at, s, s + n, call)
        };
        sizes.iter().map(piece).collect()
    }
    /// Splits dimension `d` into `count` pieces of equal size.
    ///
    /// [`split`](Array::split) takes the size of each piece instead.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let parts = Array::arange(0..6).split_equal(3, 0);
    /// assert_eq!((parts.len(), parts[1].to_vec::<i32>()?), (3, vec![2, 3]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("split", "array_split", "chunk", "vsplit", "hsplit"))]
    #[track_caller]
    pub fn split_equal(&self, count: usize, d: i32) -> Vec<Array> {
        let call = CallSite::here("split_equal");
        // the number of results follows from the type only if it is valid
        let failed = |array: Array| vec![array; count.clamp(1, MAX_ERROR_PIECES)];
        let Ok(ty) = self.type_ref() else { return failed(self.clone()) };
        let at = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| failed(self.reject(fault, call)));
        let n = ty.shape[at];
        if count == 0 || !n.is_multiple_of(count) {
            let message = format!("dimension {at} of size {n} is not divisible into {count} equal pieces");
            let fault = Fault::new(ErrorKind::Shape, message).highlight_dim(0, at);
            return failed(self.reject(fault.help("give their sizes: `x.split([…], d)`"), call));
        }
        let size = n / count;
        (0..count).map(|k| self.slice_dim(at, k * size, (k + 1) * size, call)).collect()
    }
}

/// The maximum number of results that carry an error, so that an absurd count needs no memory.
const MAX_ERROR_PIECES: usize = 4096;

/// Concatenates arrays along the existing dimension `d`.
///
/// The arrays have equal sizes in all other dimensions.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1, 2]);
/// assert_eq!(concat([&x, &x], 0).to_vec::<i32>()?, [1, 2, 1, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("concatenate", "hstack", "vstack"))]
#[track_caller]
pub fn concat<A: Borrow<Array>>(arrays: impl IntoIterator<Item = A>, d: i32) -> Array {
    let call = CallSite::here("concat");
    let parts: Vec<Array> = arrays.into_iter().map(|a| a.borrow().clone()).collect();
    match first_rank(&parts, call).and_then(|rank| {
        resolve_dim(d.into(), rank).map_err(|fault| operand::reject(fault, &terms(&parts), call))
    }) {
        Ok(at) => concat_at(&parts, at, call),
        Err(poisoned) => poisoned,
    }
}

/// Stacks arrays of equal shape along a new dimension `d` of the result.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1, 2]);
/// assert_eq!(stack([&x, &x], 1).to_vec::<i32>()?, [1, 1, 2, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn stack<A: Borrow<Array>>(arrays: impl IntoIterator<Item = A>, d: i32) -> Array {
    let call = CallSite::here("stack");
    let parts: Vec<Array> = arrays.into_iter().map(|a| a.borrow().clone()).collect();
    if let Some(fault) = stack_mismatch(&parts) {
        return operand::reject(fault, &terms(&parts), call);
    }
    match first_rank(&parts, call).and_then(|rank| {
        resolve_dim(d.into(), rank + 1).map_err(|fault| operand::reject(fault, &terms(&parts), call))
    }) {
        Ok(at) => {
            let rows: Vec<Array> = parts.iter().map(|p| p.expand_dims_at(&[at], call)).collect();
            // the concatenation's operands have one dimension more than the user's arrays
            let rank = parts[0].type_ref().map_or(0, |ty| ty.rank());
            let dims: Vec<usize> = (0..=rank).map(|d| d - usize::from(d > at)).collect();
            let source = |(number, part)| {
                let ty = Array::type_ref(part).ok();
                UserOperand { index: number, ty, dims: Some(&dims) }
            };
            let sources: Vec<UserOperand<'_>> = parts.iter().enumerate().map(source).collect();
            concat_at(&rows, at, call.with_operands(&|| operand::describe_all(&terms(&parts)), &sources))
        }
        Err(poisoned) => poisoned,
    }
}

/// Returns the arrays as operands.
fn terms(parts: &[Array]) -> Vec<Term> {
    parts.iter().map(Term::from).collect()
}
/// Returns the rank of the first array; an empty list and operands with errors are errors.
fn first_rank(parts: &[Array], call: CallSite<'_>) -> Result<usize, Array> {
    let Some(first) = parts.first() else {
        let fault = fault!(Shape, "there are no arrays").help("give at least one");
        return Err(operand::reject(fault, &[], call));
    };
    if let Some(error) = carried_errors(parts.iter()) {
        return Err(poison(error));
    }
    Ok(first.type_ref().map_or(0, |t| t.rank()))
}
/// Returns an error if the arrays cannot be stacked: their shapes or shardings differ.
fn stack_mismatch(parts: &[Array]) -> Option<Fault> {
    let first = parts.first()?.type_ref().ok()?;
    parts.iter().enumerate().skip(1).find_map(|(k, part)| {
        let ty = part.type_ref().ok()?;
        if ty.shape != first.shape {
            let message = format!(
                "operand {k} has shape {}, but operand 0 {}: stacked arrays have one shape",
                ty.shape, first.shape
            );
            let fault =
                Fault::new(ErrorKind::Shape, message).help("join them along an existing dimension: `concat`");
            let differ =
                (0..ty.rank()).find(|d| ty.rank() == first.rank() && ty.shape[*d] != first.shape[*d]);
            return Some(differ.map_or(fault.clone(), |d| fault.highlight_dim(0, d).highlight_dim(k, d)));
        }
        let apart = (0..ty.rank()).find(|d| ty.spec.dim(*d) != first.spec.dim(*d))?;
        (ty.mesh == first.mesh).then(|| errors::sharding_mismatch((0, first, apart), (k, ty, apart)))
    })
}
/// Concatenates arrays along dimension `at`.
pub(crate) fn concat_at(parts: &[Array], at: usize, call: CallSite<'_>) -> Array {
    let args: Vec<ArrayOrLiteral> = parts.iter().map(ArrayOrLiteral::from).collect();
    apply1(prims::concatenate(at), &args, call)
}
