//! Windows that move over an array: convolutions, and reductions of windows.
//!
//! A window is a product's or a fold's read whose positions are made of two loops, the windows' and the steps within one. Padding is
//! no value: where a position is outside of the array, nothing is read.

mod conv;
mod product;
mod reduce;

pub use conv::Conv;
pub use reduce::{ReduceWindow, WindowExtreme, WindowPick, Windows};

use super::view::shape_fault;
use crate::diagnostic::Fault;
use crate::program::At;
use crate::program::sentence::{Affine, Part, Source, Span};
use crate::program::sound::WIDE;

/// How windows are placed along a dimension: step t of window j is at `stride·j + dilation·t − low` of the array, which is taken apart first by
/// `base` where that is not 1: element q is at `base·q`, and between its elements there is nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Window {
    /// From one window to the next.
    pub stride: usize,
    /// How far the first window begins before the array; negative: within it.
    pub low: i64,
    /// How far behind the array windows may end; negative: that much is left out.
    pub high: i64,
    /// From one element of the array to the next: 1, but for arrays that are taken apart.
    pub base: usize,
    /// From one step of a window to the next.
    pub dilation: usize,
}

impl Default for Window {
    /// Windows at each place where one is all inside.
    fn default() -> Window {
        Window { stride: 1, low: 0, high: 0, base: 1, dilation: 1 }
    }
}

/// More than this is no array's size: sums of a few of them still fit.
const MOST: i128 = 1 << 40;

/// The extent of `n` elements that are this far apart.
pub(crate) fn spread(n: usize, apart: usize) -> i128 {
    if n == 0 { 0 } else { (n as i128 - 1) * apart as i128 + 1 }
}

impl Window {
    /// How many windows of `taps` steps there are along a dimension of size `n`, `d` of the operand.
    pub(crate) fn count(&self, d: usize, n: usize, taps: usize) -> Result<usize, Fault> {
        let fault = |m: String| Err(shape_fault(m).dim(0, d));
        for (what, step) in
            [("stride", self.stride), ("dilation", self.dilation), ("dilation of the array", self.base)]
        {
            if step == 0 {
                return fault(format!("the {what} along dimension {d} is 0"))
                    .map_err(|f| f.help("steps are 1 and more"));
            }
        }
        let steps = taps;
        let (n, taps) = (spread(n, self.base), spread(taps, self.dilation));
        let (low, high) = (i128::from(self.low), i128::from(self.high));
        if [n, taps, low.abs(), high.abs(), self.stride as i128].iter().any(|x| *x > MOST) {
            return fault(format!("windows along dimension {d} reach further than can be counted"))
                .map_err(|f| f.help("write smaller steps and paddings"));
        }
        let last = n + low + high - taps;
        let count = if last < 0 { 0 } else { last / self.stride as i128 + 1 };
        let reach = ((count - 1).max(0) * self.stride as i128).min(taps - 1);
        if reach > WIDE * (n + count.min(steps as i128)) {
            return fault(format!(
                "windows along dimension {d} are spread over {reach} positions, and the array's elements over {n}"
            ))
            .map_err(|f| f.help("write smaller steps and paddings"));
        }
        Ok(count as usize)
    }
    /// Where `count` windows of `taps` steps are: for each part the windows' span, the steps', and the position as a function of loop
    /// `j` (the windows) and loop `t` (the steps).
    fn lie(&self, count: usize, taps: usize, [j, t]: [usize; 2]) -> Vec<(Span, Span, Affine)> {
        let [s, e, d] = [self.stride, self.dilation, self.base].map(|n| n as i64);
        // every so manieth window begins at an element again, and so for steps
        let (windows, steps) = (d / gcd(s, d), d / gcd(e, d));
        let mut parts = Vec::new();
        for r in 0..windows.min(count as i64) {
            for u in 0..steps.min(taps as i64) {
                let at = s * r + e * u - self.low;
                if at.rem_euclid(d) != 0 {
                    continue;
                }
                let span = |lo: i64, hi: usize, step: i64| Span { lo, hi: hi as i64, step };
                let terms = [(j, s * windows / d), (t, e * steps / d)].into_iter().collect();
                let map = Affine { at: at / d, terms };
                parts.push((span(r, count, windows), span(u, taps, steps), map));
            }
        }
        parts
    }
    /// What a window's number is to a position of the array.
    fn at(&self, taps: usize) -> At {
        match self {
            Window { stride: 1, low: 0, high: 0, base: 1, .. } if taps == 1 => At::Same,
            _ => At::Affine { scale: self.stride as i64, offset: -self.low },
        }
    }
}

impl std::fmt::Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Window { stride, low, high, base, dilation } = self;
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

/// The windows of an array of `m` elements, the windows of one of `n`, in which each element of that one meets those of `taps` steps that
/// it is in, the last step first.
fn adjoint(w: &Window, n: usize, m: usize, taps: usize) -> Window {
    let low = w.dilation as i128 * (taps as i128 - 1) - i128::from(w.low);
    let high = (n as i128 - 1) * w.base as i128 + spread(taps, w.dilation) - spread(m, w.stride) - low;
    Window { stride: w.base, low: low as i64, high: high as i64, base: w.stride, dilation: w.dilation }
}

/// Whether a window has several steps, or reaches beyond the array, or finds nothing in it.
fn moving(w: &Window, taps: usize) -> bool {
    taps != 1 || w.base != 1 || w.low != 0 || w.high > 0
}

fn gcd(a: i64, b: i64) -> i64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// The parts of a read of operand 0 whose dimension `dims[w]` is read by window w, of loops `loops[w]` (the windows, the steps), and
/// the others at `map`.
fn windowed(
    windows: &[Window],
    dims: &[usize],
    loops: &[[usize; 2]],
    extents: &[usize],
    map: &[Affine],
) -> Vec<Part> {
    let mut parts = vec![Part { from: Source::Value(0), span: Span::whole(extents), map: map.to_vec() }];
    for ((w, d), [j, t]) in windows.iter().zip(dims).zip(loops) {
        let lie = w.lie(extents[*j], extents[*t], [*j, *t]);
        let with = |p: Part| {
            lie.iter().map(move |(windows, steps, map)| {
                let mut p = p.clone();
                (p.span[*j], p.span[*t], p.map[*d]) = (*windows, *steps, map.clone());
                p
            })
        };
        parts = parts.into_iter().flat_map(with).collect();
    }
    parts.retain(|p| !p.span.iter().any(Span::is_empty));
    parts
}
