//! Convolutions and reductions over sliding windows.
//!
//! The operand is read at positions that depend on two loops: one over the windows, and one over
//! the steps within a window. Padding is not a value: positions outside of the array are not read.

mod conv;
mod product;
mod reduce;

pub use conv::Conv;
pub use reduce::{ReduceWindow, WindowExtreme, WindowPick, Windows};
pub(crate) use reduce::{extreme_code, picked_step};

use super::dim_check::shape_fault;
use crate::core::{Fault, dtype::gcd};
use crate::ir::program::{AccessPiece, AffineExpr, DimMap, MAX_WINDOW_COPY_RATIO, Source, StridedRange};

/// The parameters of windows along one dimension (XLA's `WindowDimension`).
///
/// Step t of window j reads position `stride·j + window_dilation·t − padding_low`. Element q of the
/// array is at position `base_dilation·q`; there are no elements at other positions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// The distance between the starts of neighbouring windows, at least 1.
    pub stride: usize,
    /// The number of positions that the first window starts before the array.
    /// If negative, elements at the start of the array are left out.
    pub padding_low: i64,
    /// The number of positions that windows may extend past the end of the array.
    /// If negative, elements at the end of the array are left out.
    pub padding_high: i64,
    /// The distance between neighbouring elements of the array, at least 1.
    pub base_dilation: usize,
    /// The distance between neighbouring steps of a window, at least 1.
    pub window_dilation: usize,
}

impl Default for Window {
    /// Returns windows with stride 1 that are all inside the array.
    fn default() -> Window {
        Window { stride: 1, padding_low: 0, padding_high: 0, base_dilation: 1, window_dilation: 1 }
    }
}

/// The maximum extent of a dimension, in elements.
///
/// Sums of a few extents do not overflow.
const MAX_EXTENT_ELEMENTS: i128 = 1 << 40;

/// Returns the extent of `n` elements whose distance is `apart` positions.
pub(crate) fn dilated_size(n: usize, distance: usize) -> i128 {
    if n == 0 { 0 } else { (n as i128 - 1) * distance as i128 + 1 }
}

impl Window {
    /// Returns the number of windows with `taps` steps along dimension `d`, which has size `n`.
    pub(crate) fn num_windows(&self, d: usize, n: usize, taps: usize) -> Result<usize, Fault> {
        let fault = |m: String| Err(shape_fault(m).highlight_dim(0, d));
        for (what, step) in [
            ("stride", self.stride),
            ("dilation", self.window_dilation),
            ("dilation of the array", self.base_dilation),
        ] {
            if step == 0 {
                return fault(format!("the {what} along dimension {d} is 0"))
                    .map_err(|f| f.help("steps are 1 and more"));
            }
        }
        let steps = taps;
        let (n, taps) = (dilated_size(n, self.base_dilation), dilated_size(taps, self.window_dilation));
        let (low, high) = (i128::from(self.padding_low), i128::from(self.padding_high));
        if [n, taps, low.abs(), high.abs(), self.stride as i128].iter().any(|x| *x > MAX_EXTENT_ELEMENTS) {
            return fault(format!("windows along dimension {d} reach further than can be counted"))
                .map_err(|f| f.help("write smaller steps and paddings"));
        }
        let last = n + low + high - taps;
        let count = if last < 0 { 0 } else { last / self.stride as i128 + 1 };
        let reach = ((count - 1).max(0) * self.stride as i128).min(taps - 1);
        if reach > MAX_WINDOW_COPY_RATIO * (n + count.min(steps as i128)) {
            return fault(format!(
                "windows along dimension {d} are spread over {reach} positions, and the array's elements over {n}"
            ))
            .map_err(|f| f.help("write smaller steps and paddings"));
        }
        Ok(count as usize)
    }
    /// Returns the loop ranges and positions of `count` windows with `taps` steps.
    ///
    /// Each entry has the range of loop `j` (the windows), the range of loop `t` (the steps), and
    /// the position as a function of both.
    fn access_ranges(
        &self,
        count: usize,
        taps: usize,
        [j, t]: [usize; 2],
    ) -> Vec<(StridedRange, StridedRange, AffineExpr)> {
        let [s, e, d] = [self.stride, self.window_dilation, self.base_dilation].map(|n| n as i64);
        // with base dilation, the windows that start at an element repeat with the period
        // `windows`, and the steps repeat with the period `steps`
        let (windows, steps) = (d / gcd(s, d), d / gcd(e, d));
        let mut pieces = Vec::new();
        for r in 0..windows.min(count as i64) {
            for u in 0..steps.min(taps as i64) {
                let at = s * r + e * u - self.padding_low;
                if at.rem_euclid(d) != 0 {
                    continue;
                }
                let span = |lo: i64, hi: usize, step: i64| StridedRange { lo, hi: hi as i64, step };
                let terms = [(j, s * windows / d), (t, e * steps / d)].into_iter().collect();
                let map = AffineExpr { constant: at / d, terms };
                pieces.push((span(r, count, windows), span(u, taps, steps), map));
            }
        }
        pieces
    }
    /// Returns how the index of a window maps to a position of the array.
    fn dim_map(&self, taps: usize) -> DimMap {
        match self {
            Window { stride: 1, padding_low: 0, padding_high: 0, base_dilation: 1, .. } if taps == 1 => {
                DimMap::Identity
            }
            _ => DimMap::Affine { scale: self.stride as i64, offset: -self.padding_low },
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Window {
            stride,
            padding_low: low,
            padding_high: high,
            base_dilation: base,
            window_dilation: dilation,
        } = self;
        write!(f, "stride {stride}, pad {low} {high}")?;
        if *dilation != 1 {
            write!(f, ", dilation {dilation}")?;
        }
        if *base != 1 {
            write!(f, ", base {base}")?;
        }
        Ok(())
    }
}

/// Returns the windows of the transposed access, from windows `w` with `taps` steps.
///
/// `w` places `m` windows over `n` elements. The result places `n` windows over `m` elements: for
/// each element, it covers those of the `m` windows that contain the element, with the last step
/// first.
fn transposed_window(w: &Window, n: usize, m: usize, taps: usize) -> Window {
    let low = w.window_dilation as i128 * (taps as i128 - 1) - i128::from(w.padding_low);
    let high = (n as i128 - 1) * w.base_dilation as i128 + dilated_size(taps, w.window_dilation)
        - dilated_size(m, w.stride)
        - low;
    Window {
        stride: w.base_dilation,
        padding_low: low as i64,
        padding_high: high as i64,
        base_dilation: w.stride,
        window_dilation: w.window_dilation,
    }
}

/// Returns true if windows have several steps, extend outside of the array, or may be empty.
fn needs_step_loop(w: &Window, taps: usize) -> bool {
    taps != 1 || w.base_dilation != 1 || w.padding_low != 0 || w.padding_high > 0
}

/// Returns the pieces of an access to operand 0 through windows.
///
/// Dimension `dims[w]` is read through window `w` with the loops `loops[w]` (windows, steps), and
/// the other dimensions at `map`.
fn windowed_access(
    windows: &[Window],
    dims: &[usize],
    loops: &[[usize; 2]],
    extents: &[usize],
    map: &[AffineExpr],
) -> Vec<AccessPiece> {
    let mut pieces = vec![AccessPiece {
        source: Source::Value(0),
        ranges: StridedRange::full_box(extents),
        map: map.to_vec(),
    }];
    for ((w, d), [j, t]) in windows.iter().zip(dims).zip(loops) {
        let lie = w.access_ranges(extents[*j], extents[*t], [*j, *t]);
        let with = |p: AccessPiece| {
            lie.iter().map(move |(windows, steps, map)| {
                let mut p = p.clone();
                (p.ranges[*j], p.ranges[*t], p.map[*d]) = (*windows, *steps, map.clone());
                p
            })
        };
        pieces = pieces.into_iter().flat_map(with).collect();
    }
    pieces.retain(|p| !p.ranges.iter().any(StridedRange::is_empty));
    pieces
}
