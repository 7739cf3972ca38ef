//! Fixed-size index vectors.

use crate::diagnostic::Result;
use crate::types;

/// Most loops of a sentence, and dimensions of a stored value.
pub(crate) const MAX: usize = types::MOST_INDICES;
/// One number for each loop.
pub(crate) type Ix = [i64; MAX];
/// No loop.
pub(crate) const NONE: u8 = u8::MAX;

/// Refuses more loops than an index has.
pub(crate) fn fits(n: usize) -> Result<()> {
    if n <= MAX {
        return Ok(());
    }
    Err(types::too_many(n).into())
}

/// The sizes of these dimensions, as loops.
pub(crate) fn extents(shape: &[usize]) -> Ix {
    let mut ext = [1; MAX];
    for (e, n) in ext.iter_mut().zip(shape) {
        *e = *n as i64;
    }
    ext
}

/// Row-major strides.
pub(crate) fn row_major(shape: &[usize]) -> Ix {
    let (mut s, mut a) = ([0; MAX], 1i64);
    for d in (0..shape.len()).rev() {
        s[d] = a;
        a = a.saturating_mul(shape[d] as i64);
    }
    s
}
