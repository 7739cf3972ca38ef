//! Indices as `ix!` writes them, and the part of an array that one means.

use super::indexing::Several;
use super::operand::Term;
use super::{Array, dims};
use crate::diagnostic::{ErrorKind, Fault, counted};
use crate::types::{ArrayType, DType, Shape};
use std::ops::{Range, RangeFull};

/// A part of an array, written by [`crate::ix!`].
#[derive(Clone, Debug)]
pub struct Index {
    picks: Vec<Pick>,
}

/// What an index takes of one dimension.
#[derive(Clone)]
pub struct Pick(Kind);

#[derive(Clone)]
enum Kind {
    At(i64),
    Range {
        start: Option<i64>,
        stop: Option<i64>,
        step: i64,
    },
    New,
    Rest,
    Array(Array),
    /// So many elements from there on.
    Window(Array, usize),
}

impl std::fmt::Debug for Pick {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.0 {
            Kind::At(i) => write!(f, "{i}"),
            Kind::Range { start, stop, step } => {
                let text = |x: &Option<i64>| x.map_or_else(String::new, |x| x.to_string());
                write!(f, "{}..{}", text(start), text(stop))?;
                if *step == 1 { Ok(()) } else { write!(f, ";{step}") }
            }
            Kind::New => write!(f, "NewAxis"),
            Kind::Rest => write!(f, "Rest"),
            Kind::Array(a) => write!(f, "{}", Term::Array(a.clone()).describe()),
            Kind::Window(_, n) => write!(f, "&i..; {n}"),
        }
    }
}

impl Index {
    /// These picks, one a dimension.
    pub fn new<const N: usize>(picks: [Pick; N]) -> Index {
        Index { picks: picks.into() }
    }
}
impl From<Vec<Pick>> for Index {
    fn from(picks: Vec<Pick>) -> Index {
        Index { picks }
    }
}
impl Pick {
    /// `start..stop;step`: negative ends count from the end, a negative step runs backwards.
    pub fn range(start: Option<i64>, stop: Option<i64>, step: Option<i64>) -> Pick {
        Pick(Kind::Range { start, stop, step: step.unwrap_or(1) })
    }
    /// `&start..; size`: so many elements from a position on that is known at run time.
    pub fn window(start: &Array, size: usize) -> Pick {
        Pick(Kind::Window(start.clone(), size))
    }
    /// `start..=last;step`.
    pub fn through(start: Option<i64>, last: i64, step: Option<i64>) -> Pick {
        // behind -1 is the end, before 0 (backwards) the beginning
        let step = step.unwrap_or(1);
        let past = if step > 0 { -1 } else { 0 };
        let stop = (last != past).then(|| last.saturating_add(step.signum()));
        Pick(Kind::Range { start, stop, step })
    }
}
/// A new dimension of size 1.
#[derive(Clone, Copy, Debug)]
pub struct NewAxis;
/// The dimensions that are not written.
#[derive(Clone, Copy, Debug)]
pub struct Rest;

macro_rules! picks { ($($t:ty: $x:pat => $kind:expr;)*) => {$(
    impl From<$t> for Pick {
        fn from($x: $t) -> Pick {
            Pick($kind)
        }
    }
)*} }
picks! {
    i32: i => Kind::At(i.into());
    i64: i => Kind::At(i);
    usize: i => Kind::At(dims::signed(i));
    &Array: a => Kind::Array(a.clone());
    Array: a => Kind::Array(a);
    NewAxis: _ => Kind::New;
    Rest: _ => Kind::Rest;
    RangeFull: _ => Kind::Range { start: None, stop: None, step: 1 };
    Range<i32>: r => Kind::Range { start: Some(r.start.into()), stop: Some(r.end.into()), step: 1 };
    Range<usize>: r => Kind::Range { start: Some(dims::signed(r.start)), stop: Some(dims::signed(r.end)), step: 1 };
}

/// A part of an array: `ix![1..-1, .., 0, ..;2, &rows]`. Ranges with negative ends (they count from the end) and steps behind `;`,
/// numbers (which drop the dimension), arrays of indices, windows `&start..; size` from a position on that is known at run time only,
/// [`NewAxis`], [`Rest`]. Dimensions that are not written are taken whole.
///
/// It takes ranges apart itself, since as an expression `1..-1` is an error to clippy.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::arange(0..12).reshape([3, 4]);
/// assert_eq!(x.slice(ix![1..-1, ..;2]).to_vec::<i32>()?, [4, 6]);
/// assert_eq!(x.slice(ix![-1, 1..=2]).to_vec::<i32>()?, [9, 10]);
/// assert_eq!(x.slice(ix![0, ..;-1]).to_vec::<i32>()?, [3, 2, 1, 0]);
/// let i = Array::from(1);
/// assert_eq!(x.slice(ix![&i, &i..; 2]).to_vec::<i32>()?, [5, 6]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[macro_export]
macro_rules! ix {
    (@ [$($o:tt)*] [$($s:tt)*] ..= $($t:tt)*) => { $crate::ix!(@to through [$($o)*] [$($s)*] [] $($t)*) };
    (@ [$($o:tt)*] [$($s:tt)*] .. $($t:tt)*) => { $crate::ix!(@to range [$($o)*] [$($s)*] [] $($t)*) };
    (@ [$($o:tt)*] [$($s:tt)+] , $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::Pick::from($($s)+),] [] $($t)*)
    };
    (@ [$($o:tt)*] [$($s:tt)+]) => { $crate::array::Index::new([$($o)* $crate::array::Pick::from($($s)+)]) };
    (@ [$($o:tt)*] []) => { $crate::array::Index::new([$($o)*]) };
    (@ $o:tt [$($s:tt)*] $t:tt $($r:tt)*) => { $crate::ix!(@ $o [$($s)* $t] $($r)*) };
    (@to $k:ident $o:tt $s:tt $e:tt , $($t:tt)*) => { $crate::ix!(@end $k $o $s $e [] $($t)*) };
    (@to $k:ident $o:tt $s:tt $e:tt ; $step:expr, $($t:tt)*) => { $crate::ix!(@end $k $o $s $e [$step] $($t)*) };
    (@to $k:ident $o:tt $s:tt $e:tt ; $step:expr) => { $crate::ix!(@end $k $o $s $e [$step]) };
    (@to $k:ident $o:tt $s:tt $e:tt) => { $crate::ix!(@end $k $o $s $e []) };
    (@to $k:ident $o:tt $s:tt [$($e:tt)*] $t:tt $($r:tt)*) => { $crate::ix!(@to $k $o $s [$($e)* $t] $($r)*) };
    (@end through [$($o:tt)*] $s:tt [$($e:tt)+] $p:tt $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::Pick::through($crate::ix!(@opt $s), ($($e)+) as i64, $crate::ix!(@opt $p)),] [] $($t)*)
    };
    (@end range [$($o:tt)*] [&$($s:tt)+] [] [$n:expr] $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::Pick::window(&$($s)+, $n),] [] $($t)*)
    };
    (@end range [$($o:tt)*] $s:tt $e:tt $p:tt $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::Pick::range($crate::ix!(@opt $s), $crate::ix!(@opt $e), $crate::ix!(@opt $p)),] [] $($t)*)
    };
    (@opt []) => { None };
    (@opt [$($e:tt)+]) => { Some(($($e)+) as i64) };
    ($($t:tt)*) => { $crate::ix!(@ [] [] $($t)*) };
}

/// The part of an array that an index means.
pub(super) struct Part {
    /// What is taken of each dimension of the array.
    pub(super) dims: Vec<Side>,
    /// Dimensions that are dropped.
    pub(super) dropped: Vec<usize>,
    /// The positions of new dimensions in the result, ascending.
    pub(super) new: Vec<usize>,
}
/// Of one dimension: from where, how many, every which (positive), and whether backwards.
#[derive(Clone)]
pub(super) struct Side {
    pub(super) start: Start,
    pub(super) len: usize,
    pub(super) step: usize,
    pub(super) backwards: bool,
}
/// Where a side begins.
#[derive(Clone)]
pub(super) enum Start {
    At(usize),
    /// Known at run time only: an integer scalar.
    Moving(Array),
}

impl Side {
    /// All of a dimension.
    pub(super) fn whole(n: usize) -> Side {
        Side { start: Start::At(0), len: n, step: 1, backwards: false }
    }
    /// The index, where it is known at run time only.
    pub(super) fn moving(&self) -> Option<&Array> {
        if let Start::Moving(i) = &self.start { Some(i) } else { None }
    }
    /// Start, limit and step; of a moving one, in what is left of the dimension.
    pub(super) fn bounds(&self) -> (usize, usize, usize) {
        let start = if let Start::At(start) = self.start { start } else { 0 };
        (start, if self.len == 0 { start } else { start + (self.len - 1) * self.step + 1 }, self.step)
    }
    /// The same in ascending order.
    pub(super) fn forwards(&self) -> Side {
        Side { backwards: false, ..self.clone() }
    }
}

impl Index {
    /// The positions that are arrays.
    pub(super) fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.picks.iter().filter_map(|p| match &p.0 {
            Kind::Array(a) | Kind::Window(a, _) => Some(a),
            Kind::At(_) | Kind::Range { .. } | Kind::New | Kind::Rest => None,
        })
    }
    /// As written, with `&i` in place of its only array, or with this in place of the entry for dimension `d`.
    pub(super) fn written(&self, instead: Option<(usize, &str)>) -> String {
        let mut d = 0;
        let mut picks = Vec::with_capacity(self.picks.len());
        for pick in &self.picks {
            picks.push(match (&pick.0, instead) {
                (_, Some((at, text))) if at == d && !matches!(pick.0, Kind::New | Kind::Rest) => text.into(),
                (Kind::Array(_), _) => "&i".into(),
                _ => format!("{pick:?}"),
            });
            // behind `Rest` dimensions are not counted: the entry is written as it was
            d += match pick.0 {
                Kind::New => 0,
                Kind::Rest => usize::MAX / 2,
                _ => 1,
            };
        }
        format!("ix![{}]", picks.join(", "))
    }
    /// Where entries are arrays of several elements (or of one, if `scalars`): the part of the other dimensions, and the indices.
    pub(super) fn several(&self, ty: &ArrayType, scalars: bool) -> Result<Option<(Part, Several)>, Fault> {
        let rank = |a: &Array| a.type_ref().map_or(0, |t| t.rank());
        let many = self.picks.iter().any(|p| matches!(&p.0, Kind::Array(a) if scalars || rank(a) > 0));
        if !many {
            return Ok(None);
        }
        let shape = |m: &str| Fault::new(ErrorKind::Shape, m.to_string());
        if self.picks.iter().any(|p| matches!(p.0, Kind::New)) {
            let fault = shape("an index has arrays and a new dimension: where it comes is open");
            return Err(fault.help("add it afterwards: `.expand_dims(…)`"));
        }
        if self.picks.iter().any(|p| matches!(p.0, Kind::Window(..))) {
            let fault = shape("an index has arrays of several elements and a window");
            return Err(fault.help("take the window first: `x.slice(ix![…])`, then the elements"));
        }
        let still = |p: &Pick| match p.0 {
            Kind::Array(_) => Pick(Kind::Range { start: None, stop: None, step: 1 }),
            _ => p.clone(),
        };
        let part = Index { picks: self.picks.iter().map(still).collect() }.resolve(ty)?;
        let written = self.picks.iter().filter(|p| !matches!(p.0, Kind::Rest)).count();
        let (mut d, mut numbers) = (0, Vec::new());
        for pick in &self.picks {
            match &pick.0 {
                Kind::Rest => {
                    d += ty.rank() - written;
                    continue;
                }
                Kind::Array(a) => numbers.push((d, a.clone())),
                _ => {}
            }
            d += 1;
        }
        let mut together: Vec<usize> = Vec::new();
        for (_, a) in &numbers {
            let Ok(of) = a.type_ref() else { return Err(shape("the index carries an error")) };
            if !of.dtype.is_integer() {
                let fault = Fault::new(ErrorKind::Dtype, format!("indices are integers, not {}", of.dtype));
                return Err(match of.dtype {
                    DType::Bool => fault
                        .help("to choose elements by a mask: `mask.select(&x, 0)`")
                        .help("to replace those where it holds: `mask.select(&new, &x)`"),
                    _ => fault.help("convert it: `.astype(I32)`"),
                });
            }
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
        // where other dimensions are between them, theirs come first
        let apart = (first..last).any(|d| !indexed(&d) && !part.dropped.contains(&d));
        let at = if apart { 0 } else { first };
        Ok(Some((part, Several { numbers, shape: together.into(), at })))
    }
    pub(super) fn resolve(&self, ty: &ArrayType) -> Result<Part, Fault> {
        let shape = |m: String| Fault::new(ErrorKind::Shape, m);
        let written = self.picks.iter().filter(|p| !matches!(p.0, Kind::New | Kind::Rest)).count();
        let rests = self.picks.iter().filter(|p| matches!(p.0, Kind::Rest)).count();
        if written > ty.rank() {
            return Err(shape(format!(
                "the index speaks of {}, but the array has {}",
                counted(written, "dimension"),
                ty.rank()
            ))
            .help("give one entry for each dimension at most; those left out are taken whole"));
        }
        if rests > 1 {
            return Err(shape("the index has two `Rest`: which dimensions each means is open".into())
                .help("write `..` for dimensions that are taken whole, `Rest` once"));
        }
        let mut found = Part { dims: Vec::new(), dropped: Vec::new(), new: Vec::new() };
        let mut at = 0; // in the result
        let rest = Pick(Kind::Rest);
        let end = if rests == 0 { Some(&rest) } else { None };
        for pick in self.picks.iter().chain(end) {
            let d = found.dims.len();
            match &pick.0 {
                Kind::New => {
                    found.new.push(at);
                    at += 1;
                }
                Kind::Rest => {
                    for d in d..d + ty.rank() - written {
                        found.dims.push(Side::whole(ty.shape[d]));
                        at += 1;
                    }
                }
                Kind::At(i) => {
                    let n = ty.shape[d] as i64;
                    let position = if *i < 0 { i + n } else { *i };
                    if !(0..n).contains(&position) {
                        return Err(shape(format!(
                            "index {i} is out of range for dimension {d} of size {n}"
                        ))
                        .help(match n {
                            0 => "the dimension is empty".to_string(),
                            _ => format!("indices are 0 to {}, or -{n} to -1 from the end", n - 1),
                        })
                        .dim(0, d));
                    }
                    let start = Start::At(position as usize);
                    found.dims.push(Side { start, len: 1, step: 1, backwards: false });
                    found.dropped.push(d);
                }
                Kind::Range { start, stop, step } => {
                    if *step == 0 {
                        return Err(shape(format!("the range of dimension {d} has step 0"))
                            .help("steps are at least 1; negative ones go backwards")
                            .dim(0, d));
                    }
                    found.dims.push(side(*start, *stop, *step, ty.shape[d]));
                    at += 1;
                }
                Kind::Array(a) | Kind::Window(a, _) => {
                    // an index that carries an error was told before this
                    let Ok(index) = a.type_ref() else {
                        return Err(shape("the index carries an error".into()));
                    };
                    if !index.dtype.is_integer() {
                        let message = format!("indices are integers, not {}", index.dtype);
                        let fault = Fault::new(ErrorKind::Dtype, message);
                        return Err(match index.dtype {
                            DType::Bool => fault
                                .help("to choose elements by a mask: `mask.select(&x, 0)`")
                                .help("to replace those where it holds: `mask.select(&new, &x)`"),
                            _ => fault.help("convert it: `.astype(I32)`"),
                        });
                    }
                    if let Kind::Window(_, size) = pick.0 {
                        let n = ty.shape[d];
                        if index.rank() > 0 {
                            let message = format!(
                                "a window begins at a scalar, not at an array of shape {}",
                                index.shape
                            );
                            return Err(shape(message).help("take a window for each: `vmap`"));
                        }
                        if size > n {
                            let message =
                                format!("a window of {size} does not fit into dimension {d} of size {n}");
                            return Err(shape(message).help(format!("take at most {n}")).dim(0, d));
                        }
                        let start = if size == n { Start::At(0) } else { Start::Moving(a.clone()) };
                        found.dims.push(Side { start, len: size, step: 1, backwards: false });
                        at += 1;
                        continue;
                    }
                    if index.rank() > 0 {
                        return Err(shape("an index of several elements is no position".into()));
                    }
                    if ty.shape[d] == 0 {
                        let fault = shape(format!("dimension {d} is empty: no index is in its range"));
                        return Err(fault.dim(0, d));
                    }
                    let start = Start::Moving(a.clone());
                    found.dims.push(Side { start, len: 1, step: 1, backwards: false });
                    found.dropped.push(d);
                }
            }
        }
        Ok(found)
    }
}

/// What a range takes of a dimension of size n: ends beyond it are cut, as in numpy.
fn side(start: Option<i64>, stop: Option<i64>, step: i64, n: usize) -> Side {
    let size = n as i64;
    // a step beyond the dimension is one to its end
    let step = step.clamp(-size.max(1), size.max(1));
    let place = |x: i64, low: i64, high: i64| (if x < 0 { x + size } else { x }).clamp(low, high);
    if step > 0 {
        let start = start.map_or(0, |s| place(s, 0, size));
        let stop = stop.map_or(size, |s| place(s, 0, size));
        let len = (stop - start + step - 1).max(0) / step;
        let start = Start::At(start as usize);
        return Side { start, len: len as usize, step: step as usize, backwards: false };
    }
    let start = start.map_or(size - 1, |s| place(s, -1, size - 1));
    let stop = stop.map_or(-1, |s| place(s, -1, size - 1));
    let len = (start - stop - step - 1).max(0) / -step;
    let first = if len == 0 { 0 } else { start + (len - 1) * step };
    let start = Start::At(first as usize);
    Side { start, len: len as usize, step: step.unsigned_abs() as usize, backwards: true }
}

impl Part {
    /// For each dimension start, limit and step of a slice.
    pub(super) fn bounds(&self) -> Vec<(usize, usize, usize)> {
        self.dims.iter().map(Side::bounds).collect()
    }
    pub(super) fn lens(&self) -> Shape {
        self.dims.iter().map(|s| s.len).collect()
    }
    pub(super) fn backwards(&self) -> Vec<usize> {
        (0..self.dims.len()).filter(|d| self.dims[*d].backwards).collect()
    }
    pub(super) fn moves(&self) -> bool {
        self.dims.iter().any(|s| s.moving().is_some())
    }
    pub(super) fn is_whole(&self, shape: &[usize]) -> bool {
        !self.moves() && self.dims.iter().zip(shape).all(|(s, n)| s.len == *n && s.step == 1)
    }
    pub(super) fn has_steps(&self) -> bool {
        self.dims.iter().any(|s| s.step != 1)
    }
    /// The shape of the part as the user sees it.
    pub(super) fn shown(&self) -> Vec<usize> {
        let mut shape: Vec<usize> =
            (0..self.dims.len()).filter(|d| !self.dropped.contains(d)).map(|d| self.dims[d].len).collect();
        for at in &self.new {
            shape.insert(*at, 1);
        }
        shape
    }
}
