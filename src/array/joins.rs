//! Arrays joined and cut: concat, stack, split, unstack.

use super::dims::dim;
use super::operand::{self, Term};
use super::{Array, prims, refusals};
use crate::diagnostic::{ErrorKind, Fault};
use crate::program::{Call, Source};
use crate::trace::{Arg, apply1, carried, poison};
use std::borrow::Borrow;

/// # Taking apart
impl Array {
    /// The slices along a dimension, without it.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let rows = Array::from([[1, 2], [3, 4]]).unstack(0);
    /// assert_eq!(rows[1].to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn unstack(&self, d: i32) -> Vec<Array> {
        let call = Call::here("unstack");
        let Ok(ty) = self.type_ref() else { return vec![self.clone()] };
        let refuse = |fault, n| vec![self.refuse(fault, call); n];
        let at = match dim(d.into(), ty.rank()) {
            Ok(at) => at,
            Err(fault) => return refuse(fault, 1),
        };
        if !ty.spec.dim(at).is_empty() {
            // as many as the dimension is long, so that the one that is asked for tells
            let fault = refusals::is_split(ty, at, ": its slices are on different devices");
            return refuse(fault, ty.shape[at].max(1));
        }
        (0..ty.shape[at]).map(|i| self.part(at, i, i + 1, call).without(&[at], call)).collect()
    }
    /// `start..limit` of one dimension.
    pub(crate) fn part(&self, d: usize, start: usize, limit: usize, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if start == 0 && limit == ty.shape[d] {
            return self.clone();
        }
        let mut bounds: Vec<(usize, usize, usize)> = ty.shape.iter().map(|n| (0, *n, 1)).collect();
        bounds[d] = (start, limit, 1);
        apply1(prims::slice(&bounds), &[self.into()], call)
    }
    /// Consecutive pieces of these sizes along a dimension.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let parts = Array::arange(0..5).split([2, 3], 0);
    /// assert_eq!(parts[1].to_vec::<i32>()?, [2, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn split(&self, sizes: impl AsRef<[usize]>, d: i32) -> Vec<Array> {
        let (sizes, call) = (sizes.as_ref(), Call::here("split"));
        let Ok(ty) = self.type_ref() else { return vec![self.clone(); sizes.len().max(1)] };
        let refuse = |fault| vec![self.refuse(fault, call); sizes.len().max(1)];
        let at = match dim(d.into(), ty.rank()) {
            Ok(at) => at,
            Err(fault) => return refuse(fault),
        };
        let total = sizes.iter().fold(0, |total: usize, n| total.saturating_add(*n));
        if total != ty.shape[at] {
            return refuse(
                Fault::new(
                    ErrorKind::Shape,
                    format!("pieces of {sizes:?} make {total}, but dimension {at} has size {}", ty.shape[at]),
                )
                .help("give sizes whose sum is that of the dimension")
                .dim(0, at),
            );
        }
        let mut start = 0;
        let piece = |n: &usize| {
            let s = start;
            start += n;
            self.part(at, s, s + n, call)
        };
        sizes.iter().map(piece).collect()
    }
}

/// Arrays one behind the other along a dimension that they have.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1, 2]);
/// assert_eq!(concat([&x, &x], 0).to_vec::<i32>()?, [1, 2, 1, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("concatenate", "hstack", "vstack"))]
#[track_caller]
pub fn concat<A: Borrow<Array>>(parts: impl IntoIterator<Item = A>, d: i32) -> Array {
    let call = Call::here("concat");
    let parts: Vec<Array> = parts.into_iter().map(|a| a.borrow().clone()).collect();
    match first_rank(&parts, call)
        .and_then(|rank| dim(d.into(), rank).map_err(|fault| operand::refuse(fault, &terms(&parts), call)))
    {
        Ok(at) => join(&parts, at, call),
        Err(refused) => refused,
    }
}

/// Arrays of one shape one behind the other along a new dimension of the result.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1, 2]);
/// assert_eq!(stack([&x, &x], 1).to_vec::<i32>()?, [1, 1, 2, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn stack<A: Borrow<Array>>(parts: impl IntoIterator<Item = A>, d: i32) -> Array {
    let call = Call::here("stack");
    let parts: Vec<Array> = parts.into_iter().map(|a| a.borrow().clone()).collect();
    if let Some(fault) = unlike(&parts) {
        return operand::refuse(fault, &terms(&parts), call);
    }
    match first_rank(&parts, call).and_then(|rank| {
        dim(d.into(), rank + 1).map_err(|fault| operand::refuse(fault, &terms(&parts), call))
    }) {
        Ok(at) => {
            let rows: Vec<Array> = parts.iter().map(|p| p.new_dims(&[at], call)).collect();
            // what is joined has one dimension more than what the user gave
            let rank = parts[0].type_ref().map_or(0, |ty| ty.rank());
            let dims: Vec<usize> = (0..=rank).map(|d| d - usize::from(d > at)).collect();
            let source = |(number, part)| {
                let ty = Array::type_ref(part).ok();
                Source { number, ty, dims: Some(&dims) }
            };
            let sources: Vec<Source<'_>> = parts.iter().enumerate().map(source).collect();
            join(&rows, at, call.on(&|| operand::described(&terms(&parts)), &sources))
        }
        Err(refused) => refused,
    }
}

fn terms(parts: &[Array]) -> Vec<Term> {
    parts.iter().map(Term::from).collect()
}
fn first_rank(parts: &[Array], call: Call<'_>) -> Result<usize, Array> {
    let Some(first) = parts.first() else {
        let fault = Fault::new(ErrorKind::Shape, "there are no arrays").help("give at least one");
        return Err(operand::refuse(fault, &[], call));
    };
    if let Some(error) = carried(parts.iter()) {
        return Err(poison(error));
    }
    Ok(first.type_ref().map_or(0, |t| t.rank()))
}
/// What keeps arrays from being stacked: shapes that differ, dimensions that are split differently.
fn unlike(parts: &[Array]) -> Option<Fault> {
    let first = parts.first()?.type_ref().ok()?;
    parts.iter().enumerate().skip(1).find_map(|(k, part)| {
        let ty = part.type_ref().ok()?;
        if ty.shape != first.shape {
            let message = format!(
                "operand {k} has shape {}, but operand 0 {}: stacked arrays have one shape",
                ty.shape, first.shape
            );
            let fault =
                Fault::new(ErrorKind::Shape, message).help("join them one behind the other: `concat`");
            let differ =
                (0..ty.rank()).find(|d| ty.rank() == first.rank() && ty.shape[*d] != first.shape[*d]);
            return Some(differ.map_or(fault.clone(), |d| fault.dim(0, d).dim(k, d)));
        }
        let apart = (0..ty.rank()).find(|d| ty.spec.dim(*d) != first.spec.dim(*d))?;
        (ty.mesh == first.mesh).then(|| refusals::split_alike((0, first, apart), (k, ty, apart)))
    })
}
/// One behind the other along dimension `at`.
pub(crate) fn join(parts: &[Array], at: usize, call: Call<'_>) -> Array {
    let args: Vec<Arg> = parts.iter().map(Arg::from).collect();
    apply1(prims::concatenate(at), &args, call)
}
