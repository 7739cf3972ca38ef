//! Fixed-size vectors with one entry per loop.

use crate::core::diagnostic::Result;
use crate::core::types;

/// The maximum number of loops of a loop nest, and of dimensions of a stored value.
pub(crate) const MAX_LOOPS: usize = types::MAX_INDICES;
/// One number per loop: an index, a size or a stride.
pub(crate) type LoopVec = [i64; MAX_LOOPS];
/// Marks a dimension that follows no loop.
pub(crate) const NO_LOOP: u8 = u8::MAX;

/// Returns an error if there are more than [`MAX_LOOPS`] loops.
pub(crate) fn check_num_loops(n: usize) -> Result<()> {
    if n <= MAX_LOOPS {
        return Ok(());
    }
    Err(types::too_many_indices(n).into())
}

/// Returns these sizes as loop sizes; unused loops have size 1.
pub(crate) fn extents(shape: &[usize]) -> LoopVec {
    let mut ext = [1; MAX_LOOPS];
    for (e, n) in ext.iter_mut().zip(shape) {
        *e = *n as i64;
    }
    ext
}

/// Returns the row-major strides of a shape, in elements.
pub(crate) fn row_major_strides(shape: &[usize]) -> LoopVec {
    let (mut s, mut a) = ([0; MAX_LOOPS], 1i64);
    for d in (0..shape.len()).rev() {
        s[d] = a;
        a = a.saturating_mul(shape[d] as i64);
    }
    s
}
