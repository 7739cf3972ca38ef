//! The indices that `ix!` builds, and their resolution against an array's shape.
//!
//! An [`Index`] has one entry per dimension: a position, a range, a window, an index array, a new
//! axis or an ellipsis. Resolving it against an array gives a start, a length and a step for each
//! dimension; entries that are index arrays of several elements are split off as an advanced index.

use super::take::{AdvancedIndex, check_integers};
use super::{Array, dims, operand::Term};
use crate::core::{ArrayType, ErrorKind, Fault, Shape, diagnostic::pluralize};
use std::ops::{Range, RangeFull};

/// An index into an array, written with [`crate::ix!`].
#[derive(Clone, Debug)]
pub struct Index {
    /// The entries, in order.
    entries: Vec<DimIndex>,
}

/// The entry of an [`Index`] for one dimension.
#[derive(Clone)]
pub struct DimIndex(DimIndexKind);

/// The kinds of index entries.
#[derive(Clone)]
enum DimIndexKind {
    /// A static position; negative positions count from the end. The dimension is dropped.
    Position(i64),
    /// A range of positions; negative ends count from the end. `None` is the end of the dimension.
    Range {
        /// The first position.
        start: Option<i64>,
        /// The position after the last, which is excluded.
        stop: Option<i64>,
        /// The distance between positions; a negative step reverses the order.
        step: i64,
    },
    /// A new dimension of size 1.
    NewAxis,
    /// All dimensions that no other entry names.
    Ellipsis,
    /// An array of integer indices.
    Array(Array),
    /// A window of this size that starts at a position known at run time, an integer scalar.
    Window(Array, usize),
}

impl std::fmt::Debug for DimIndex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            DimIndexKind::Position(i) => write!(f, "{i}"),
            DimIndexKind::Range { start, stop, step } => {
                let text = |x: &Option<i64>| x.map_or_else(String::new, |x| x.to_string());
                write!(f, "{}..{}", text(start), text(stop))?;
                if *step == 1 { Ok(()) } else { write!(f, ";{step}") }
            }
            DimIndexKind::NewAxis => write!(f, "NewAxis"),
            DimIndexKind::Ellipsis => write!(f, "Ellipsis"),
            DimIndexKind::Array(a) => write!(f, "{}", Term::Array(a.clone()).describe()),
            DimIndexKind::Window(_, n) => write!(f, "&i..; {n}"),
        }
    }
}

impl Index {
    /// Creates an index from entries, one per dimension.
    pub fn new<const N: usize>(picks: [DimIndex; N]) -> Index {
        Index { entries: picks.into() }
    }
}
conversions! { Index: [] Vec<DimIndex> => |picks| Index { entries: picks }; }
impl DimIndex {
    /// Creates the index entry `start..stop;step`; a bound that is `None` is the end of the
    /// dimension.
    ///
    /// Negative ends count from the end, and a negative step reverses the order.
    pub fn range(start: Option<i64>, stop: Option<i64>, step: Option<i64>) -> DimIndex {
        DimIndex(DimIndexKind::Range { start, stop, step: step.unwrap_or(1) })
    }
    /// Creates the entry `&start..; size`: `size` elements from a position known at run time.
    pub fn window(start: &Array, size: usize) -> DimIndex {
        DimIndex(DimIndexKind::Window(start.clone(), size))
    }
    /// Creates the entry `start..=last;step`.
    pub fn range_inclusive(start: Option<i64>, last: i64, step: Option<i64>) -> DimIndex {
        // after position -1 comes the end (`None`); before position 0, going backwards, the start
        let step = step.unwrap_or(1);
        let past = if step > 0 { -1 } else { 0 };
        let stop = (last != past).then(|| last.saturating_add(step.signum()));
        DimIndex(DimIndexKind::Range { start, stop, step })
    }
}
/// An index entry that inserts a new dimension of size 1 (NumPy's `newaxis`).
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::from([1, 2]);
/// assert_eq!(x.slice(ix![NewAxis, ..]).shape()?, [1, 2]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;
/// An index entry that stands for all dimensions not named by other entries (NumPy's `...`).
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::arange(0..8).reshape([2, 2, 2]);
/// // the last dimension at index 1, and all others
/// assert_eq!(x.slice(ix![Ellipsis, 1]).to_vec::<i32>()?, [1, 3, 5, 7]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Ellipsis;

macro_rules! picks { ($($t:ty: $x:pat => $kind:expr;)*) => {$(
    impl From<$t> for DimIndex {
        fn from($x: $t) -> DimIndex {
            DimIndex($kind)
        }
    }
)*} }
picks! {
    i32: i => DimIndexKind::Position(i.into());
    i64: i => DimIndexKind::Position(i);
    usize: i => DimIndexKind::Position(dims::saturating_i64(i));
    &Array: a => DimIndexKind::Array(a.clone());
    Array: a => DimIndexKind::Array(a);
    NewAxis: _ => DimIndexKind::NewAxis;
    Ellipsis: _ => DimIndexKind::Ellipsis;
    RangeFull: _ => DimIndexKind::Range { start: None, stop: None, step: 1 };
    Range<i32>: r => DimIndexKind::Range { start: Some(r.start.into()), stop: Some(r.end.into()), step: 1 };
    Range<usize>: r => DimIndexKind::Range { start: Some(dims::saturating_i64(r.start)), stop: Some(dims::saturating_i64(r.end)), step: 1 };
}

/// An index resolved against an array's shape.
pub(super) struct ResolvedIndex {
    /// The slice of each dimension of the array.
    pub(super) dims: Vec<DimSlice>,
    /// The dimensions that are dropped because a position was given.
    pub(super) dropped: Vec<usize>,
    /// The positions of new dimensions in the result, ascending.
    pub(super) new_axes: Vec<usize>,
}
/// The slice of one dimension: start, length, positive step and direction.
#[derive(Clone)]
pub(super) struct DimSlice {
    /// The smallest position.
    pub(super) start: SliceStart,
    /// The number of positions.
    pub(super) len: usize,
    /// The distance between positions, at least 1.
    pub(super) step: usize,
    /// True if the positions are taken in descending order.
    pub(super) reversed: bool,
}
/// The start of a [`DimSlice`].
#[derive(Clone)]
pub(super) enum SliceStart {
    /// A position known when the program is built.
    Static(usize),
    /// A position known at run time: an integer scalar, possibly negative.
    Dynamic(Array),
}

impl DimSlice {
    /// Returns the slice of a full dimension of size `n`.
    pub(super) fn full(n: usize) -> DimSlice {
        DimSlice { start: SliceStart::Static(0), len: n, step: 1, reversed: false }
    }
    /// Returns the start if it is known only at run time.
    pub(super) fn dynamic_start(&self) -> Option<&Array> {
        if let SliceStart::Dynamic(i) = &self.start { Some(i) } else { None }
    }
    /// Returns start, limit and step.
    ///
    /// For a dynamic start these refer to the window that `dynamic_slice` returns.
    pub(super) fn bounds(&self) -> (usize, usize, usize) {
        let start = if let SliceStart::Static(start) = self.start { start } else { 0 };
        (start, if self.len == 0 { start } else { start + (self.len - 1) * self.step + 1 }, self.step)
    }
    /// Returns the slice with its positions in ascending order.
    pub(super) fn ascending(&self) -> DimSlice {
        DimSlice { reversed: false, ..self.clone() }
    }
}

impl Index {
    /// Returns the index arrays and dynamic starts.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.entries.iter().filter_map(|p| match &p.0 {
            DimIndexKind::Array(a) | DimIndexKind::Window(a, _) => Some(a),
            DimIndexKind::Position(_)
            | DimIndexKind::Range { .. }
            | DimIndexKind::NewAxis
            | DimIndexKind::Ellipsis => None,
        })
    }
    /// Prints the index as source text, with index arrays written as `&i`.
    ///
    /// `instead` replaces the entry of a dimension by another text.
    pub(super) fn source_text(&self, instead: Option<(usize, &str)>) -> String {
        let mut d = 0;
        let mut picks = Vec::with_capacity(self.entries.len());
        for pick in &self.entries {
            picks.push(match (&pick.0, instead) {
                (_, Some((at, text)))
                    if at == d && !matches!(pick.0, DimIndexKind::NewAxis | DimIndexKind::Ellipsis) =>
                {
                    text.into()
                }
                (DimIndexKind::Array(_), _) => "&i".into(),
                _ => format!("{pick:?}"),
            });
            // dimensions after an ellipsis are not counted: their entries stay as written
            d += match pick.0 {
                DimIndexKind::NewAxis => 0,
                DimIndexKind::Ellipsis => usize::MAX / 2,
                _ => 1,
            };
        }
        format!("ix![{}]", picks.join(", "))
    }
    /// Splits off the index arrays of several elements (or all index arrays, if `scalars`).
    ///
    /// Returns the basic index of the other dimensions and the advanced index; `None` if there are
    /// no such arrays.
    pub(super) fn resolve_advanced(
        &self,
        ty: &ArrayType,
        scalars: bool,
    ) -> Result<Option<(ResolvedIndex, AdvancedIndex)>, Fault> {
        let rank = |a: &Array| a.type_ref().map_or(0, |t| t.rank());
        let many =
            self.entries.iter().any(|p| matches!(&p.0, DimIndexKind::Array(a) if scalars || rank(a) > 0));
        if !many {
            return Ok(None);
        }
        let shape = |m: &str| Fault::new(ErrorKind::Shape, m.to_string());
        if self.entries.iter().any(|p| matches!(p.0, DimIndexKind::NewAxis)) {
            let fault = shape(
                "an index has arrays and a new dimension: the position of the new dimension is ambiguous",
            );
            return Err(fault.help("add it afterwards: `.expand_dims(…)`"));
        }
        if self.entries.iter().any(|p| matches!(p.0, DimIndexKind::Window(..))) {
            let fault = shape("an index has arrays of several elements and a window");
            return Err(fault.help("take the window first: `x.slice(ix![…])`, then the elements"));
        }
        let still = |p: &DimIndex| match p.0 {
            DimIndexKind::Array(_) => DimIndex(DimIndexKind::Range { start: None, stop: None, step: 1 }),
            _ => p.clone(),
        };
        let part = Index { entries: self.entries.iter().map(still).collect() }.resolve(ty)?;
        let written = self.entries.iter().filter(|p| !matches!(p.0, DimIndexKind::Ellipsis)).count();
        let (mut d, mut numbers) = (0, Vec::new());
        for pick in &self.entries {
            match &pick.0 {
                DimIndexKind::Ellipsis => {
                    d += ty.rank() - written;
                    continue;
                }
                DimIndexKind::Array(a) => numbers.push((d, a.clone())),
                _ => {}
            }
            d += 1;
        }
        let mut together: Vec<usize> = Vec::new();
        for (_, a) in &numbers {
            let of = index_type(a)?;
            let lead = of.rank().saturating_sub(together.len());
            together.splice(0..0, std::iter::repeat_n(1, lead));
            let at = together.len() - of.rank();
            for (n, m) in together[at..].iter_mut().zip(of.shape.iter()) {
                if *n != *m && *n != 1 && *m != 1 {
                    let fault = shape("the arrays of an index have shapes that do not broadcast together");
                    return Err(fault.help("give them one shape, or sizes of 1: `.expand_dims(…)`"));
                }
                *n = if *n == 1 { *m } else { *n };
            }
        }
        let indexed = |d: &usize| numbers.iter().any(|n| n.0 == *d);
        let (first, last) = (numbers[0].0, numbers[numbers.len() - 1].0);
        // if other dimensions separate the indexed ones, the indices' dimensions come first
        let apart = (first..last).any(|d| !indexed(&d) && !part.dropped.contains(&d));
        let at = if apart { 0 } else { first };
        Ok(Some((part, AdvancedIndex { indices: numbers, shape: together.into(), first_dim: at })))
    }
    /// Returns the number of dimensions that have an entry, which must be at most the rank.
    fn check_entries(&self, rank: usize) -> Result<usize, Fault> {
        let written = self
            .entries
            .iter()
            .filter(|p| !matches!(p.0, DimIndexKind::NewAxis | DimIndexKind::Ellipsis))
            .count();
        let rests = self.entries.iter().filter(|p| matches!(p.0, DimIndexKind::Ellipsis)).count();
        if written > rank {
            let given = pluralize(written, "dimension");
            return Err(fault!(Shape, "the index has entries for {given}, but the array has {rank}")
                .help("give one entry for each dimension at most; those left out are taken in full"));
        }
        if rests > 1 {
            let message =
                "the index has two `Ellipsis` entries: which dimensions each stands for is ambiguous";
            return Err(Fault::new(ErrorKind::Shape, message)
                .help("write `..` for dimensions that are taken in full, and `Ellipsis` once"));
        }
        Ok(written)
    }
    /// Resolves the index against an array type.
    ///
    /// Out-of-range positions, zero steps, non-integer index arrays and too many entries are
    /// errors.
    pub(super) fn resolve(&self, ty: &ArrayType) -> Result<ResolvedIndex, Fault> {
        let written = self.check_entries(ty.rank())?;
        let rests = self.entries.iter().any(|p| matches!(p.0, DimIndexKind::Ellipsis));
        let mut found = ResolvedIndex { dims: Vec::new(), dropped: Vec::new(), new_axes: Vec::new() };
        let mut at = 0; // dimension of the result
        let rest = DimIndex(DimIndexKind::Ellipsis);
        let end = (!rests).then_some(&rest);
        for pick in self.entries.iter().chain(end) {
            let d = found.dims.len();
            match &pick.0 {
                DimIndexKind::NewAxis => {
                    found.new_axes.push(at);
                    at += 1;
                }
                DimIndexKind::Ellipsis => {
                    for d in d..d + ty.rank() - written {
                        found.dims.push(DimSlice::full(ty.shape[d]));
                        at += 1;
                    }
                }
                DimIndexKind::Position(i) => {
                    let start = SliceStart::Static(resolve_position(*i, d, ty.shape[d])?);
                    found.dims.push(DimSlice { start, len: 1, step: 1, reversed: false });
                    found.dropped.push(d);
                }
                DimIndexKind::Range { start, stop, step } => {
                    if *step == 0 {
                        return Err(fault!(Shape, "the range of dimension {d} has step 0")
                            .help("use a step of at least 1, or a negative step to reverse the order")
                            .highlight_dim(0, d));
                    }
                    found.dims.push(resolve_range(*start, *stop, *step, ty.shape[d]));
                    at += 1;
                }
                DimIndexKind::Window(a, size) => {
                    found.dims.push(window_slice(a, *size, d, ty.shape[d])?);
                    at += 1;
                }
                DimIndexKind::Array(a) => {
                    if index_type(a)?.rank() > 0 {
                        return Err(fault!(Shape, "an index of several elements is not a single position"));
                    }
                    if ty.shape[d] == 0 {
                        return Err(fault!(Shape, "dimension {d} is empty: no index is in its range")
                            .highlight_dim(0, d));
                    }
                    let start = SliceStart::Dynamic(a.clone());
                    found.dims.push(DimSlice { start, len: 1, step: 1, reversed: false });
                    found.dropped.push(d);
                }
            }
        }
        Ok(found)
    }
}

/// Returns the position of index `i`, which counts from the end if it is negative.
fn resolve_position(i: i64, d: usize, n: usize) -> Result<usize, Fault> {
    let n = n as i64;
    let position = if i < 0 { i + n } else { i };
    if (0..n).contains(&position) {
        return Ok(position as usize);
    }
    Err(fault!(Shape, "index {i} is out of range for dimension {d} of size {n}")
        .help(match n {
            0 => "the dimension is empty".to_string(),
            _ => format!("indices are 0 to {}, or -{n} to -1 from the end", n - 1),
        })
        .highlight_dim(0, d))
}

/// Returns the type of an index array, which must have integer elements.
fn index_type(a: &Array) -> Result<&ArrayType, Fault> {
    check_integers(a)?;
    // an error in an index array is already reported
    a.type_ref().map_err(|_| fault!(Shape, "the index carries an error"))
}

/// Returns the window of `size` elements of dimension `d` that starts at a scalar index.
fn window_slice(a: &Array, size: usize, d: usize, n: usize) -> Result<DimSlice, Fault> {
    let index = index_type(a)?;
    if index.rank() > 0 {
        let message = format!("a window starts at a scalar index, not at an array of shape {}", index.shape);
        return Err(Fault::new(ErrorKind::Shape, message).help("take a window for each: `vmap`"));
    }
    if size > n {
        return Err(fault!(Shape, "a window of {size} does not fit into dimension {d} of size {n}")
            .help(format!("take at most {n}"))
            .highlight_dim(0, d));
    }
    let start = if size == n { SliceStart::Static(0) } else { SliceStart::Dynamic(a.clone()) };
    Ok(DimSlice { start, len: size, step: 1, reversed: false })
}

/// Resolves a range for a dimension of size `n`; out-of-range ends are clipped, as in NumPy.
fn resolve_range(start: Option<i64>, stop: Option<i64>, step: i64, n: usize) -> DimSlice {
    let size = n as i64;
    // a step larger than the dimension has the same effect as one of its size
    let step = step.clamp(-size.max(1), size.max(1));
    let place = |x: i64, low: i64, high: i64| (if x < 0 { x + size } else { x }).clamp(low, high);
    if step > 0 {
        let start = start.map_or(0, |s| place(s, 0, size));
        let stop = stop.map_or(size, |s| place(s, 0, size));
        let len = (stop - start + step - 1).max(0) / step;
        let start = SliceStart::Static(start as usize);
        return DimSlice { start, len: len as usize, step: step as usize, reversed: false };
    }
    let start = start.map_or(size - 1, |s| place(s, -1, size - 1));
    let stop = stop.map_or(-1, |s| place(s, -1, size - 1));
    let len = (start - stop - step - 1).max(0) / -step;
    let first = if len == 0 { 0 } else { start + (len - 1) * step };
    let start = SliceStart::Static(first as usize);
    DimSlice { start, len: len as usize, step: step.unsigned_abs() as usize, reversed: true }
}

impl ResolvedIndex {
    /// Returns start, limit and step for each dimension.
    pub(super) fn bounds(&self) -> Vec<(usize, usize, usize)> {
        self.dims.iter().map(DimSlice::bounds).collect()
    }
    /// Returns the number of positions for each dimension.
    pub(super) fn lens(&self) -> Shape {
        self.dims.iter().map(|s| s.len).collect()
    }
    /// Returns the dimensions whose order is reversed.
    pub(super) fn reversed_dims(&self) -> Vec<usize> {
        (0..self.dims.len()).filter(|d| self.dims[*d].reversed).collect()
    }
    /// Returns true if some start is known only at run time.
    pub(super) fn is_dynamic(&self) -> bool {
        self.dims.iter().any(|s| s.dynamic_start().is_some())
    }
    /// Returns true if every element is taken, in either direction.
    pub(super) fn is_full(&self, shape: &[usize]) -> bool {
        !self.is_dynamic() && self.dims.iter().zip(shape).all(|(s, n)| s.len == *n && s.step == 1)
    }
    /// Returns true if some dimension has a step other than 1.
    pub(super) fn has_steps(&self) -> bool {
        self.dims.iter().any(|s| s.step != 1)
    }
    /// Returns the shape of the result, without dropped dimensions and with new ones.
    pub(super) fn result_shape(&self) -> Vec<usize> {
        let mut shape: Vec<usize> =
            (0..self.dims.len()).filter(|d| !self.dropped.contains(d)).map(|d| self.dims[d].len).collect();
        for at in &self.new_axes {
            shape.insert(*at, 1);
        }
        shape
    }
}
