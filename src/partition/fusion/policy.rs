//! The numbers of the fusion policy, each with its unit.
//!
//! The passes of the fusion stage read them here, so that no number occurs twice.

/// The maximum number of elementwise operations of a group.
pub(crate) const MAX_MEMBERS: usize = 40;
/// The maximum number of elementwise operations of a group that a reduction absorbs.
pub(crate) const MAX_ABSORBED_MEMBERS: usize = 12;
/// The maximum number of access boxes of a group.
pub(crate) const MAX_ACCESS_BOXES: usize = 96;

/// The minimum number of rows of a chain, since a task has only full rows.
pub(crate) const MIN_ROWS: i64 = 16;
/// The maximum size of a row of all values of a chain, in bytes.
pub(crate) const MAX_ROW_BYTES: i64 = 256 << 10;
/// The cache budget of a batch of rows of all values, in bytes.
pub(crate) const BATCH_CACHE_BYTES: i64 = 128 << 10;
/// The maximum depth, in groups, to which producers are pulled into a chain.
pub(crate) const MAX_PULL_DEPTH: usize = 8;

/// The maximum number of terms of an element of a matmul whose rows are fused.
/// With more terms, the memory traffic of the element is negligible.
const MAX_ROW_TERMS: i64 = 256;
/// The cache budget of a batch of rows of one value that a matmul computes or reads, in bytes.
pub(crate) const VALUE_CACHE_BYTES: i64 = 512 << 10;
/// The maximum size of a batch of rows of one value that a matmul computes or reads, in bytes.
pub(crate) const MAX_BATCH_BYTES: i64 = 1 << 20;
/// The minimum number of rows of a batch with matmuls.
/// With fewer rows, packing the operands would not pay off.
pub(crate) const MIN_BATCH_ROWS: i64 = 64;
/// The minimum number of batches with matmuls, so that several workers can share the work.
pub(crate) const MIN_BATCHES: i64 = 8;
/// The work of matmuls below which sharing among workers is not required, in microseconds.
pub(crate) const MIN_SHARED_US: f64 = 20.0;

/// Returns true if rows are so long, compared with the work per element, that memory traffic
/// matters.
///
/// `terms` is the number of terms of an element of the row, or the number of results that an
/// element contributes to.
pub(crate) fn rows_dominate(row: i64, terms: i64) -> bool {
    terms <= MAX_ROW_TERMS && 2 * terms <= row
}

/// Chooses the number of rows of a batch with matmuls, each of which has at most `bytes` bytes.
/// `rows_per_matrix` is the number of rows of one matrix.
pub(crate) fn choose_batch_rows(rows: i64, rows_per_matrix: i64, bytes: i64) -> i64 {
    let most = (VALUE_CACHE_BYTES / bytes).min(rows / (2 * MIN_BATCHES)).max(MIN_BATCH_ROWS);
    if rows_per_matrix <= most {
        return (most / rows_per_matrix * rows_per_matrix).min(rows);
    }
    let parts = (rows_per_matrix + most - 1) / most;
    let even = (parts..2 * parts).find(|p| rows_per_matrix % p == 0);
    even.map_or(most, |p| rows_per_matrix / p)
}
