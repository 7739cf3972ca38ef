//! How numbers say where, for gather and scatter: XLA's parameters.

use super::{Beyond, Bound, Read, integers, read};
use crate::diagnostic::Fault;
use crate::ops::view::{check_dims, list, shape_fault};
use crate::program::{Batch, Operand, behind};
use crate::types::{ArrayType, Scalar};

/// How the numbers of an array say where in another one windows are. The last dimension of the array of numbers holds index vectors, one for
/// each window: the place where it begins. "Windows" is what has both the array's other dimensions and the numbers': what is gathered, or
/// what is scattered.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Places {
    /// For each number of an index vector, which dimension of the array it speaks of.
    pub of: Vec<usize>,
    /// Dimensions of the array of which a window has one element: windows have no dimension for them.
    pub collapsed: Vec<usize>,
    /// Dimensions of the array that run with dimensions of the array of numbers: (of the array, of the numbers).
    pub batching: Vec<(usize, usize)>,
    /// The dimensions of the windows along the others of the array, in order. The rest are those of the numbers, in order.
    pub windows: Vec<usize>,
    /// What becomes of windows that do not fit.
    pub beyond: Beyond,
}

/// What a dimension of the array is to the windows.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Of {
    /// One element is in a window.
    One,
    /// It runs along this dimension of the windows.
    Window(usize),
    /// It runs with the numbers, along this dimension of the windows.
    Batch(usize),
}

/// Windows of no dimensions at index vectors of none; those that do not fit are nothing.
impl Default for Places {
    fn default() -> Places {
        let (of, collapsed, batching, windows) = Default::default();
        Places { of, collapsed, batching, windows, beyond: Beyond::Nothing }
    }
}

impl Places {
    /// Rows at each number, of dimension `axis`, where numbers have so many dimensions: they take its place.
    pub fn rows(rank: usize, axis: usize, numbers: usize, beyond: Beyond) -> Places {
        let windows = (0..axis).chain(axis + numbers..rank - 1 + numbers).collect();
        Places { of: vec![axis], collapsed: vec![axis], batching: Vec::new(), windows, beyond }
    }
    pub(super) fn text(&self) -> String {
        let mut text = format!(
            "of={}, collapsed={}, windows={}",
            list(&self.of),
            list(&self.collapsed),
            list(&self.windows)
        );
        if !self.batching.is_empty() {
            let pairs: Vec<String> = self.batching.iter().map(|(d, b)| format!("{d}:{b}")).collect();
            text += &format!(", batching=[{}]", pairs.join(","));
        }
        let beyond = match self.beyond {
            Beyond::Clip => ", clip",
            Beyond::Nothing => "",
        };
        text + beyond
    }
    /// What each dimension of an array of this rank is.
    pub(super) fn roles(&self, rank: usize) -> Vec<Of> {
        let mut windows = self.windows.iter();
        let queries = self.queries(rank);
        let role = |d: usize| match self.batching.iter().find(|p| p.0 == d) {
            Some((_, b)) => Of::Batch(queries[*b]),
            None if self.collapsed.contains(&d) => Of::One,
            None => windows.next().map_or(Of::One, |w| Of::Window(*w)),
        };
        (0..rank).map(role).collect()
    }
    /// The windows' dimension of each dimension of the numbers. (There are more than enough.)
    pub(super) fn queries(&self, rank: usize) -> Vec<usize> {
        let most = self.windows.len() + self.batching.len() + rank + 64;
        (0..most).filter(|d| !self.windows.contains(d)).collect()
    }
    /// Refuses parameters that do not fit an array and numbers; `sizes` are those of a window in each dimension of the array.
    pub(super) fn check(&self, name: &str, x: &ArrayType, i: &Operand, sizes: &[usize]) -> Result<(), Fault> {
        integers(std::slice::from_ref(i), 0)?;
        let numbers = &i.ty;
        let Some((vector, rest)) = numbers.shape.split_last() else {
            return Err(shape_fault(format!("the numbers of {name} have no dimension for index vectors"))
                .help("add it: `.expand_dims(-1)`"));
        };
        if *vector != self.of.len() {
            let message = format!(
                "{name} has {} numbers for each place, and speaks of {} dimensions",
                vector,
                self.of.len()
            );
            return Err(shape_fault(message));
        }
        let batching: Vec<usize> = self.batching.iter().map(|p| p.0).collect();
        for (what, dims, rank) in [
            ("indexed dimension", &self.of, x.rank()),
            ("collapsed dimension", &self.collapsed, x.rank()),
            ("batching dimension", &batching, x.rank()),
            ("batching dimension of the numbers", &self.batching.iter().map(|p| p.1).collect(), rest.len()),
            ("window dimension", &self.windows, rest.len() + self.windows.len()),
        ] {
            check_dims(what, dims, rank)?;
        }
        let used = self.collapsed.iter().chain(&self.of).find(|d| batching.contains(d));
        if let Some(d) = used {
            return Err(shape_fault(format!(
                "dimension {d} runs with the numbers, and is indexed or collapsed too"
            )));
        }
        if self.windows.len() + self.collapsed.len() + batching.len() != x.rank() {
            return Err(shape_fault(format!(
                "windows have {} dimensions, but the array has {} that are not collapsed and do not run with the numbers",
                self.windows.len(),
                x.rank().saturating_sub(self.collapsed.len() + batching.len())
            )));
        }
        if self.windows.windows(2).any(|w| w[0] >= w[1]) {
            return Err(shape_fault("the window dimensions are not in ascending order"));
        }
        for (d, b) in &self.batching {
            if x.shape[*d] != rest[*b] {
                let message = format!("dimension {d} of size {} runs with {} numbers", x.shape[*d], rest[*b]);
                return Err(shape_fault(message).dim(0, *d));
            }
        }
        let some = !numbers.shape[..rest.len()].contains(&0) && !sizes.contains(&0);
        for (d, (n, size)) in x.shape.iter().zip(sizes).enumerate() {
            let one = self.collapsed.contains(&d) || batching.contains(&d);
            if one && *size != 1 {
                return Err(shape_fault(format!("a window has {size} of dimension {d}, and must have one")));
            }
            if size > n && some && !(self.of.contains(&d) && self.beyond == Beyond::Nothing) {
                let fault = match n {
                    0 => shape_fault(format!("dimension {d} is empty: no index is in its range")),
                    _ => shape_fault(format!("a window has {size} of dimension {d}, which has size {n}")),
                };
                return Err(fault.dim(0, d));
            }
        }
        Ok(())
    }
    /// Which number says where a window begins in dimension d of size n, if it may begin elsewhere than at 0.
    pub(super) fn number(&self, d: usize, n: usize, size: usize) -> Option<usize> {
        let j = self.of.iter().position(|o| *o == d)?;
        (size != n || self.beyond == Beyond::Nothing).then_some(j)
    }
    /// The bound of loop `index` of size n, by read `by`, for windows of this size along a loop.
    pub(super) fn bound(&self, index: usize, by: usize, n: usize, window: Option<(usize, usize)>) -> Bound {
        let most = (n as i64 - window.map_or(1, |w| w.1) as i64).max(-1);
        Bound { index, by, most, beyond: self.beyond, window: window.map(|w| w.0) }
    }
    /// The read of number j of the index vectors of operand k, whose other dimensions run over these loops.
    pub(super) fn read(k: usize, j: usize, i: &ArrayType, extents: &[usize], loops: &[usize]) -> Read {
        let mut r = read(k, i.dtype, extents, loops.iter().copied().chain([0]));
        for p in &mut r.parts {
            if let Some(last) = p.map.last_mut() {
                *last = crate::program::sentence::Affine::constant(j as i64);
            }
        }
        Read { fill: Scalar::Int(0), ..r }
    }
    /// The same on all examples: the array and the windows have one more dimension, the numbers too if they are `mapped`.
    pub(super) fn on_examples(&self, _: &Batch<'_>, array: bool, numbers: bool) -> Places {
        let up = |d: usize| d + usize::from(array);
        let mut batching: Vec<(usize, usize)> =
            self.batching.iter().map(|(d, b)| (up(*d), b + usize::from(numbers))).collect();
        if array && numbers {
            batching.insert(0, (0, 0));
        }
        let own = (array && !numbers).then_some(0);
        Places {
            of: self.of.iter().map(|d| up(*d)).collect(),
            collapsed: self.collapsed.iter().map(|d| up(*d)).collect(),
            batching,
            windows: own.into_iter().chain(behind(&self.windows)).collect(),
            beyond: self.beyond,
        }
    }
}
