//! Padding with the array's own elements: repeated, mirrored or periodic.
//!
//! A side of a dimension is padded with slices of the dimension, reversed or repeated, which are
//! concatenated.

use super::{Array, concat::concat_at, errors, prims};
use crate::api::trace::apply1;
use crate::core::{ArrayType, ErrorKind, Fault, diagnostic::pluralize};
use crate::ir::program::CallSite;

/// The elements that [`Array::pad_with`] adds at the ends of a dimension.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1, 2, 3]);
/// assert_eq!(x.pad_with([(0, 2)], PadMode::Reflect).to_vec::<i32>()?, [1, 2, 3, 2, 1]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum PadMode {
    /// The element at the end, repeated: `a b c | c c`.
    Edge,
    /// The elements from the other end: `a b c | a b`.
    Wrap,
    /// The elements mirrored at the last one, which is not repeated: `a b c | b a`.
    Reflect,
    /// The elements mirrored after the last one: `a b c | c b`.
    Symmetric,
}

/// Consecutive elements of a dimension, in ascending or descending order.
struct ElementRun {
    start: usize,
    limit: usize,
    reversed: bool,
}

/// The maximum number of times that padding repeats a dimension.
const MAX_REPETITIONS: usize = 1024;

impl PadMode {
    /// Returns the runs after the end of a dimension of size `n`, for `width` elements.
    ///
    /// Padding before the start is the same for the reversed dimension.
    fn runs(self, n: usize, width: usize) -> Vec<ElementRun> {
        // Reflection leaves out the element at which it mirrors, at both ends of a period.
        let (skipped, period) = match self {
            PadMode::Reflect if n > 1 => (1, n - 1),
            _ => (0, n),
        };
        let (mut runs, mut left, mut descending) = (Vec::new(), width, self != PadMode::Wrap);
        while left > 0 {
            let len = left.min(period);
            runs.push(match descending {
                true => ElementRun { start: n - skipped - len, limit: n - skipped, reversed: true },
                false => ElementRun { start: skipped, limit: skipped + len, reversed: false },
            });
            left -= len;
            descending = self != PadMode::Wrap && !descending;
        }
        runs
    }
}

/// # Padding with elements of the array
impl Array {
    /// Pads with elements of the array: `widths` has (low, high) padding for each dimension.
    ///
    /// A dimension that is padded must be unsharded. [`pad`](Array::pad) pads with a value.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1, 2, 3]);
    /// assert_eq!(x.pad_with([(2, 1)], PadMode::Edge).to_vec::<i32>()?, [1, 1, 1, 2, 3, 3]);
    /// assert_eq!(x.pad_with([(2, 1)], PadMode::Wrap).to_vec::<i32>()?, [2, 3, 1, 2, 3, 1]);
    /// assert_eq!(x.pad_with([(2, 1)], PadMode::Reflect).to_vec::<i32>()?, [3, 2, 1, 2, 3, 2]);
    /// assert_eq!(x.pad_with([(2, 1)], PadMode::Symmetric).to_vec::<i32>()?, [2, 1, 1, 2, 3, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("pad", "edge", "wrap", "reflect", "symmetric", "replicate", "circular"))]
    #[track_caller]
    pub fn pad_with(&self, widths: impl IntoIterator<Item = (usize, usize)>, mode: PadMode) -> Array {
        let (widths, call): (Vec<_>, _) = (widths.into_iter().collect(), CallSite::here("pad_with"));
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if let Err(fault) = check_widths(ty, &widths, mode) {
            return self.reject(fault, call);
        }
        self.with_call_site(call, |call| {
            widths.iter().enumerate().fold(self.clone(), |x, (d, width)| x.pad_dim(d, *width, mode, call))
        })
    }
    /// Pads dimension `d`, whose widths were checked.
    fn pad_dim(&self, d: usize, (low, high): (usize, usize), mode: PadMode, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let n = ty.shape[d];
        if (low, high) == (0, 0) {
            return self.clone();
        }
        if mode == PadMode::Edge {
            let repeated = |start: usize, count: usize| {
                let mut shape = ty.shape.clone();
                shape.sizes_mut()[d] = count;
                self.slice_dim(d, start, start + 1, call).broadcast_like(&shape, None, call)
            };
            let mut parts = vec![self.clone()];
            if low > 0 {
                parts.insert(0, repeated(0, low));
            }
            if high > 0 {
                parts.push(repeated(n - 1, high));
            }
            return concat_at(&parts, d, call);
        }
        let piece = |run: &ElementRun| {
            let piece = self.slice_dim(d, run.start, run.limit, call);
            if run.reversed { apply1(prims::rev(&[d]), &[piece.into()], call) } else { piece }
        };
        // the start is the end of the reversed dimension
        let mirrored = |run: ElementRun| {
            piece(&ElementRun { start: n - run.limit, limit: n - run.start, reversed: run.reversed })
        };
        let mut parts: Vec<Array> = mode.runs(n, low).into_iter().map(mirrored).collect();
        parts.reverse();
        parts.push(self.clone());
        parts.extend(mode.runs(n, high).iter().map(piece));
        concat_at(&parts, d, call)
    }
}

/// Checks that each dimension has widths, and can be padded by them.
fn check_widths(ty: &ArrayType, widths: &[(usize, usize)], mode: PadMode) -> Result<(), Fault> {
    let shape = |message: String| Fault::new(ErrorKind::Shape, message);
    if ty.rank() != widths.len() {
        let (given, rank) = (pluralize(widths.len(), "dimension"), ty.rank());
        let fault = shape(format!("there are widths for {given}, but the array has {rank}"));
        return Err(fault.help("give (before, after) for each dimension"));
    }
    for (d, (low, high)) in widths.iter().enumerate().filter(|(_, w)| **w != (0, 0)) {
        let n = ty.shape[d];
        if n == 0 {
            let fault = shape(format!("dimension {d} is empty: it has no elements to pad with"));
            return Err(fault.help("pad with a value: `x.pad(0, …)`").highlight_dim(0, d));
        }
        if !ty.spec.dim(d).is_empty() {
            return Err(errors::sharded_dim(ty, d, " and cannot be padded with its own elements"));
        }
        if mode != PadMode::Edge && (*low).max(*high) / n >= MAX_REPETITIONS {
            let message = format!("the padding repeats dimension {d}, of size {n}, {MAX_REPETITIONS} times");
            return Err(shape(message).help("repeat the array: `x.tile([…])`").highlight_dim(0, d));
        }
    }
    Ok(())
}
