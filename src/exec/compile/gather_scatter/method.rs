//! The implementations of gathers and scatters, and the choice among them.

use super::{GatherScatterKernel, LoopBox, batched::BatchedRows};
use crate::core::DType;
use crate::ir::program::Reducer;
use crate::kernels::AddSorted;

/// The implementation of a gather or a scatter.
#[derive(Clone, Debug)]
pub(super) enum RowMethod {
    /// Copies or combines the only row.
    SingleRow,
    /// Copies or combines a batch of rows at a time.
    Batched(BatchedRows),
    /// Sorts the updates by row, then adds all updates of a row at once.
    SortedAdd(BatchedRows, AddSorted),
    /// Goes through the queries one by one.
    General,
}

impl RowMethod {
    /// Chooses the implementation, and returns it with the reason.
    pub(super) fn choose(
        k: &GatherScatterKernel,
        dtype: DType,
        combine: Option<Reducer>,
    ) -> (RowMethod, &'static str) {
        if k.indices.iter().any(|m| m.window.is_some()) {
            return (RowMethod::General, "query by query: an index starts a window");
        }
        if !k.is_scatter() && k.partials.iter().any(|p| !p.boxes.is_empty()) {
            return (RowMethod::General, "query by query: each partial has a part of the source");
        }
        if !k.has_contiguous_rows() {
            return (RowMethod::General, "query by query: rows are not contiguous");
        }
        if k.num_query_loops == 0 {
            return (RowMethod::SingleRow, "a single row");
        }
        let Some(rows) = BatchedRows::choose(k, dtype, combine) else {
            return (RowMethod::General, "query by query: no kernel combines rows of this type");
        };
        match k.choose_sorted_add(&rows, dtype, combine) {
            Some(add) => (RowMethod::SortedAdd(rows, add), "sorted updates: the result exceeds the caches"),
            None => (RowMethod::Batched(rows), "batches of contiguous rows"),
        }
    }
}

impl GatherScatterKernel {
    /// Returns true if rows have at most one loop, along which both sides are contiguous.
    fn has_contiguous_rows(&self) -> bool {
        let (q, size) = (self.num_query_loops, self.element_bytes as i64);
        match self.num_loops - q {
            0 => true,
            1 => self.src_strides[q] == size && self.dst_strides[q] == size,
            _ => false,
        }
    }
    /// Returns the kernels of batches, if the operation can run in batches.
    pub(super) fn batched(&self) -> Option<&BatchedRows> {
        match &self.method {
            RowMethod::Batched(rows) | RowMethod::SortedAdd(rows, _) => Some(rows),
            _ => None,
        }
    }
    /// Returns the kernel that adds sorted updates, if sorting pays.
    pub(super) fn sorted_add(&self) -> Option<AddSorted> {
        match &self.method {
            RowMethod::SortedAdd(_, add) => Some(*add),
            _ => None,
        }
    }
    /// Returns the size of a row, in bytes, if there is one query loop.
    fn single_query_row_bytes(&self) -> i64 {
        (if self.num_loops > 1 { self.ext[1] } else { 1 }) * self.element_bytes as i64
    }
    /// Returns the number of rows of a gather, if it can compute any range of them.
    ///
    /// Each row must be selected by indices, one row per query, in the order of the queries.
    pub(crate) fn num_gather_rows(&self) -> Option<i64> {
        let alone = matches!(&self.partials[..], [p] if p.out_offset == 0) && self.batched().is_some();
        let fits = !self.is_scatter() && self.num_query_loops == 1 && alone;
        (fits && self.dst_strides[0] == self.single_query_row_bytes()).then_some(self.ext[0])
    }
    /// Returns the number of updates of a scatter, if it can apply any range of them in order.
    ///
    /// Each update must be one row. Always `None` in WebAssembly.
    pub(crate) fn num_batched_updates(&self) -> Option<i64> {
        (self.batched().is_some() && self.has_row_updates()).then_some(self.ext[0])
    }
    /// Returns true if each update of a scatter is one row of a single list.
    pub(super) fn has_row_updates(&self) -> bool {
        let is_full = |(lo, hi): &LoopBox| {
            lo[..self.num_loops].iter().all(|x| *x == 0) && hi[..self.num_loops] == self.ext[..self.num_loops]
        };
        let [p] = &self.partials[..] else { return false };
        let alone =
            p.out_offset == 0 && p.operand_offsets[1] == 0 && matches!(&p.boxes[..], [b] if is_full(b));
        let fits = self.is_scatter() && self.num_query_loops == 1 && alone;
        fits && self.src_offset == 0 && self.src_strides[0] == self.single_query_row_bytes()
    }
}
