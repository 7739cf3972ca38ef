//! The dimension numbers of gather and scatter, with the parameters of XLA.

use super::{Access, DynamicIndex, OutOfBounds, access, check_integer_indices};
use crate::core::{ArrayType, Fault, Scalar};
use crate::ir::ops::dim_check::{check_dims, format_list, shape_fault};
use crate::ir::program::{TypedOperand, VmapArgs, shifted_dims};

/// The dimension numbers of a gather or scatter (XLA's `GatherDimensionNumbers`).
///
/// The last dimension of the index operand holds index vectors. There is one for each window, and
/// it is the start of the window. The windows are the result of a gather, or the update of a
/// scatter. Their dimensions are those within a window (offset dimensions), and the other
/// dimensions of the index operand (batch dimensions).
///
/// ```
/// use atmesh::prelude::*;
/// let (x, at) = (Array::arange(0..6).reshape([3, 2]), Array::from([[2], [0]]));
/// // each index is that of a row, and a window is one row
/// let dims = GatherDims {
///     start_index_map: vec![0],
///     collapsed_dims: vec![0],
///     offset_dims: vec![1],
///     ..GatherDims::default()
/// };
/// assert_eq!(x.gather(&at, &dims, [1, 2]).to_vec::<i32>()?, [4, 5, 0, 1]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[doc(alias = "GatherDimensionNumbers")]
pub struct GatherDims {
    /// For each component of an index vector, the dimension of the array that it indexes.
    pub start_index_map: Vec<usize>,
    /// The array dimensions in which a window has size 1, and which the windows drop.
    pub collapsed_dims: Vec<usize>,
    /// The pairs (array dimension, index dimension) that are iterated together.
    pub batching_dims: Vec<(usize, usize)>,
    /// The dimensions of the windows that are offset dimensions, in the order of the array.
    /// The other dimensions of the windows are batch dimensions, in the order of the indices.
    pub offset_dims: Vec<usize>,
    /// The treatment of windows that are out of bounds.
    pub mode: OutOfBounds,
}

/// The role of an array dimension in a gather or scatter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum DimRole {
    /// A window has size 1 in this dimension, which the windows drop.
    Collapsed,
    /// The dimension corresponds to this offset dimension of the windows.
    Offset(usize),
    /// The dimension is iterated together with this batch dimension of the windows.
    Batch(usize),
}

/// Returns dimension numbers without dimensions, where out-of-bounds windows are dropped.
impl Default for GatherDims {
    fn default() -> GatherDims {
        let (of, collapsed, batching, windows) = Default::default();
        GatherDims {
            start_index_map: of,
            collapsed_dims: collapsed,
            batching_dims: batching,
            offset_dims: windows,
            mode: OutOfBounds::Drop,
        }
    }
}

impl GatherDims {
    /// Returns the dimension numbers for full slices at indices into dimension `axis`.
    ///
    /// `rank` is the rank of the array. The batch dimensions of the indices replace `axis`.
    pub fn rows(rank: usize, axis: usize, num_batch_dims: usize, mode: OutOfBounds) -> GatherDims {
        let offset_dims = (0..axis).chain(axis + num_batch_dims..rank - 1 + num_batch_dims).collect();
        GatherDims {
            start_index_map: vec![axis],
            collapsed_dims: vec![axis],
            batching_dims: Vec::new(),
            offset_dims,
            mode,
        }
    }
    /// Formats the dimension numbers as parameters.
    pub(super) fn format_params(&self) -> String {
        let mut text = format!(
            "start_index_map={}, collapsed_dims={}, offset_dims={}",
            format_list(&self.start_index_map),
            format_list(&self.collapsed_dims),
            format_list(&self.offset_dims)
        );
        if !self.batching_dims.is_empty() {
            let pairs: Vec<String> = self.batching_dims.iter().map(|(d, b)| format!("{d}:{b}")).collect();
            text += &format!(", batching_dims=[{}]", pairs.join(","));
        }
        let mode = match self.mode {
            OutOfBounds::Clip => ", clip",
            OutOfBounds::Drop => "",
        };
        text + mode
    }
    /// Returns the role of each dimension of an array of this rank.
    pub(super) fn dim_roles(&self, rank: usize) -> Vec<DimRole> {
        let mut windows = self.offset_dims.iter();
        let queries = self.batch_dims(self.batching_dims.iter().map(|p| p.1 + 1).max().unwrap_or(0));
        let role = |d: usize| match self.batching_dims.iter().find(|p| p.0 == d) {
            Some((_, b)) => DimRole::Batch(queries[*b]),
            None if self.collapsed_dims.contains(&d) => DimRole::Collapsed,
            None => windows.next().map_or(DimRole::Collapsed, |w| DimRole::Offset(*w)),
        };
        (0..rank).map(role).collect()
    }
    /// Returns the first `count` batch dimensions of the windows.
    pub(super) fn batch_dims(&self, count: usize) -> Vec<usize> {
        (0..).filter(|d| !self.offset_dims.contains(d)).take(count).collect()
    }
    /// Returns an error if these dimension numbers do not fit the array and the indices.
    ///
    /// `sizes` are the sizes of a window in each dimension of the array.
    pub(super) fn check(
        &self,
        name: &str,
        x: &ArrayType,
        i: &TypedOperand,
        sizes: &[usize],
    ) -> Result<(), Fault> {
        check_integer_indices(std::slice::from_ref(i), 0)?;
        let numbers = &i.ty;
        let Some((vector, rest)) = numbers.shape.split_last() else {
            return Err(fault!(Shape, "the indices of {name} have no dimension for index vectors")
                .help("add it: `.expand_dims(-1)`"));
        };
        if *vector != self.start_index_map.len() {
            let message = format!(
                "{name} has index vectors of size {}, but indexes {} dimensions",
                vector,
                self.start_index_map.len()
            );
            return Err(shape_fault(message));
        }
        let batching: Vec<usize> = self.batching_dims.iter().map(|p| p.0).collect();
        for (what, dims, rank) in [
            ("indexed dimension", &self.start_index_map, x.rank()),
            ("collapsed dimension", &self.collapsed_dims, x.rank()),
            ("batching dimension", &batching, x.rank()),
            (
                "batching dimension of the indices",
                &self.batching_dims.iter().map(|p| p.1).collect(),
                rest.len(),
            ),
            ("window dimension", &self.offset_dims, rest.len() + self.offset_dims.len()),
        ] {
            check_dims(what, dims, rank)?;
        }
        let used = self.collapsed_dims.iter().chain(&self.start_index_map).find(|d| batching.contains(d));
        if let Some(d) = used {
            return Err(shape_fault(format!(
                "dimension {d} is a batching dimension, and is indexed or collapsed too"
            )));
        }
        if self.offset_dims.len() + self.collapsed_dims.len() + batching.len() != x.rank() {
            return Err(shape_fault(format!(
                "windows have {} dimensions, but the array has {} that are neither collapsed nor batching dimensions",
                self.offset_dims.len(),
                x.rank().saturating_sub(self.collapsed_dims.len() + batching.len())
            )));
        }
        if self.offset_dims.windows(2).any(|w| w[0] >= w[1]) {
            return Err(fault!(Shape, "the window dimensions are not in ascending order"));
        }
        for (d, b) in &self.batching_dims {
            if x.shape[*d] != rest[*b] {
                let message = format!(
                    "batching dimension {d} has size {}, but the indices have {}",
                    x.shape[*d], rest[*b]
                );
                return Err(shape_fault(message).highlight_dim(0, *d));
            }
        }
        let some = !numbers.shape[..rest.len()].contains(&0) && !sizes.contains(&0);
        for (d, (n, size)) in x.shape.iter().zip(sizes).enumerate() {
            let one = self.collapsed_dims.contains(&d) || batching.contains(&d);
            if one && *size != 1 {
                return Err(fault!(Shape, "a window has {size} of dimension {d}, and must have one"));
            }
            if size > n && some && !(self.start_index_map.contains(&d) && self.mode == OutOfBounds::Drop) {
                let fault = match n {
                    0 => fault!(Shape, "dimension {d} is empty: no index is in its range"),
                    _ => fault!(Shape, "a window has {size} of dimension {d}, which has size {n}"),
                };
                return Err(fault.highlight_dim(0, d));
            }
        }
        Ok(())
    }
    /// Returns the component of an index vector that gives the window's start in dimension `d`.
    ///
    /// Returns `None` if the window always starts at 0.
    pub(super) fn index_component(&self, d: usize, n: usize, size: usize) -> Option<usize> {
        let j = self.start_index_map.iter().position(|o| *o == d)?;
        (size != n || self.mode == OutOfBounds::Drop).then_some(j)
    }
    /// Returns the dynamic index of loop `index`, which has size `n`, for the access that reads it.
    ///
    /// `window` is the loop within a window, and its size.
    pub(super) fn dynamic_index(
        &self,
        index: usize,
        operand: usize,
        n: usize,
        window: Option<(usize, usize)>,
    ) -> DynamicIndex {
        let most = (n as i64 - window.map_or(1, |w| w.1) as i64).max(-1);
        DynamicIndex {
            loop_id: index,
            operand,
            max_start: most,
            mode: self.mode,
            window: window.map(|w| w.0),
        }
    }
    /// Returns the access to component `j` of the index vectors in operand `k`.
    ///
    /// `loops` are the loops of the other dimensions of the index operand.
    pub(super) fn index_access(
        k: usize,
        j: usize,
        i: &ArrayType,
        extents: &[usize],
        loops: &[usize],
    ) -> Access {
        let mut r = access(k, i.dtype, extents, loops.iter().copied().chain([0]));
        for p in &mut r.pieces {
            if let Some(last) = p.map.last_mut() {
                *last = crate::ir::program::loop_nest::AffineExpr::constant(j as i64);
            }
        }
        Access { fill: Scalar::Int(0), ..r }
    }
    /// Returns the dimension numbers for a batch of examples.
    ///
    /// The flags are true if the array, or the indices, are batched. The windows are always
    /// batched.
    pub(super) fn with_batch_dim(
        &self,
        _: &VmapArgs<'_>,
        array_batched: bool,
        indices_batched: bool,
    ) -> GatherDims {
        let up = |d: usize| d + usize::from(array_batched);
        let mut batching: Vec<(usize, usize)> =
            self.batching_dims.iter().map(|(d, b)| (up(*d), b + usize::from(indices_batched))).collect();
        if array_batched && indices_batched {
            batching.insert(0, (0, 0));
        }
        let own = (array_batched && !indices_batched).then_some(0);
        GatherDims {
            start_index_map: self.start_index_map.iter().map(|d| up(*d)).collect(),
            collapsed_dims: self.collapsed_dims.iter().map(|d| up(*d)).collect(),
            batching_dims: batching,
            offset_dims: own.into_iter().chain(shifted_dims(&self.offset_dims)).collect(),
            mode: self.mode,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of batch dimensions is that of the indices, of any rank.
    #[test]
    fn batch_dims_of_many_indices() {
        let dims =
            GatherDims { batching_dims: vec![(0, 199)], offset_dims: vec![1], ..GatherDims::default() };
        assert_eq!(dims.batch_dims(200).last(), Some(&200));
        assert_eq!(dims.dim_roles(2), [DimRole::Batch(200), DimRole::Offset(1)]);
    }
}
