//! Short trailing dimensions that run as one long row.
//!
//! A tile program runs row by row, which costs about 100 ns for each row, so rows of a few elements
//! are slow. Here, a row is several indices of one dimension and all indices of the dimensions
//! inside it. Operands that are contiguous there stay so, and operands that do not change stay row
//! scalars. Each other operand is read at computed positions ([`SpreadSteps`]): once, if it is the
//! same in each row, otherwise for each row.

use super::values::MemAccess;
use crate::exec::compile::index::MAX_LOOPS;
use crate::kernels::SpreadSteps;
use smallvec::SmallVec;

/// The stride of an operand that is read at computed positions. No contiguous operand has it.
const SPREAD_STRIDE: i64 = -(1 << 40) - 1;
/// The minimum number of elements of a space that is worth other code.
pub(crate) const MIN_FLAT_ELEMENTS: i64 = 2048;
/// The number of elements from which a row is long.
pub(crate) const LONG_ROW: i64 = 64;

/// The dimensions that make a row, in the order of a request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FlatRows {
    /// The outermost dimension of a row.
    pub(crate) dim: usize,
    /// The number of its indices in a row.
    pub(crate) chunk: i64,
    /// The number of its indices from one row to the next: `chunk`, or 1 if rows may start
    /// anywhere.
    pub(crate) step: i64,
    /// The number of elements of the dimensions inside it.
    pub(crate) inner: i64,
}

impl FlatRows {
    /// Returns the longest rows of at most `limit` elements; `None` if the space is too small.
    ///
    /// `outer` dimensions stay outside of a row.
    pub(crate) fn choose(ext: &[i64], outer: usize, limit: i64) -> Option<FlatRows> {
        let (mut first, mut inner) = (ext.len(), 1);
        while first > outer && inner * ext[first - 1] <= limit / 2 {
            first -= 1;
            inner *= ext[first];
        }
        let dim = first.checked_sub(1)?;
        let many = ext[dim];
        let most = (limit / inner).min(many);
        if first == ext.len() || most < 2 {
            return None;
        }
        // rows of whole cache lines, if there are many, otherwise rows of equal lengths
        let lines = (1..=16).find(|q| q * inner % 16 == 0).filter(|q| *q <= most && many >= 4 * most);
        let parts = (many + most - 1) / most;
        let chunk = lines.map_or((many + parts - 1) / parts, |q| most / q * q);
        Some(FlatRows { dim, chunk, step: chunk, inner })
    }
    /// Returns the number of elements of a row.
    pub(crate) fn row_len(&self) -> i64 {
        self.chunk * self.inner
    }
    /// Returns an access over rows instead of the dimensions of the request, and the positions of
    /// its elements unless they are equally spaced. Returns `None` if they are too irregular.
    pub(super) fn access(&self, m: &MemAccess, ext: &[i64]) -> Option<(MemAccess, Option<SpreadSteps>)> {
        let (d, size) = (self.dim, i64::from(m.element_bytes));
        let mut levels: SmallVec<[(i64, i64); 4]> = SmallVec::new();
        for (n, stride) in
            std::iter::once(self.chunk).chain(ext[d + 1..].iter().copied()).zip(&m.strides[d..])
        {
            match levels.last_mut() {
                _ if n == 1 => {}
                Some(l) if l.1 == n * stride => *l = (l.0 * n, *stride),
                _ => levels.push((n, *stride)),
            }
        }
        let mut flat = *m;
        flat.strides = [0; MAX_LOOPS];
        flat.strides[..d].copy_from_slice(&m.strides[..d]);
        flat.strides[d] = m.strides[d] * self.step;
        let to = |x: i64| i32::try_from(x / size).ok().filter(|_| x % size == 0);
        let small = |(n, stride): &(i64, i64)| (n * stride / size).abs() < 1 << 29;
        match levels[..] {
            [] => return Some((flat, None)),
            [(_, stride)] => {
                flat.strides[d + 1] = stride;
                return Some((flat, None));
            }
            _ if levels.len() > 4 || !levels.iter().all(small) => return None,
            _ => {}
        }
        let mut spread = SpreadSteps { sizes: [1; 3], steps: [0; 4] };
        let first = 4 - levels.len();
        spread.steps[0] = to(levels[0].1)?;
        for (k, (n, stride)) in levels.iter().enumerate().skip(1) {
            spread.sizes[first + k - 1] = *n as u32;
            spread.steps[first + k] = to(*stride)?;
        }
        flat.strides[d + 1] = SPREAD_STRIDE;
        Some((flat, Some(spread)))
    }
}
