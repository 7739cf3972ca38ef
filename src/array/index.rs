//! Parts of arrays: `ix!`, `slice` and `at`.

use super::operand::{self, Operand, Term};
use super::{Array, dims, prims};
use crate::diagnostic::{ErrorKind, Fault, Place};
use crate::ops::elementwise::Binary;
use crate::ops::reduce::Reduction;
use crate::sharding::Spec;
use crate::trace::{Arg, apply1, carried, poison, told};
use crate::types::{ArrayType, DType, Shape};
use std::ops::{Range, RangeFull};
use std::panic::Location;

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
    Range { start: Option<i64>, stop: Option<i64>, step: i64 },
    New,
    Rest,
    Array(Array),
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
    /// `start..=last;step`.
    pub fn through(start: Option<i64>, last: i64, step: Option<i64>) -> Pick {
        // behind -1 lies the end, before 0 (backwards) the beginning
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
/// numbers (which drop the dimension), arrays of indices, [`NewAxis`], [`Rest`]. Dimensions that are not written are taken whole.
///
/// It takes ranges apart itself, since as an expression `1..-1` is an error to clippy.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::arange(0..12).reshape([3, 4]);
/// assert_eq!(x.slice(ix![1..-1, ..;2]).to_vec::<i32>()?, [4, 6]);
/// assert_eq!(x.slice(ix![-1, 1..=2]).to_vec::<i32>()?, [9, 10]);
/// assert_eq!(x.slice(ix![0, ..;-1]).to_vec::<i32>()?, [3, 2, 1, 0]);
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
    (@end range [$($o:tt)*] $s:tt $e:tt $p:tt $($t:tt)*) => {
        $crate::ix!(@ [$($o)* $crate::array::Pick::range($crate::ix!(@opt $s), $crate::ix!(@opt $e), $crate::ix!(@opt $p)),] [] $($t)*)
    };
    (@opt []) => { None };
    (@opt [$($e:tt)+]) => { Some(($($e)+) as i64) };
    ($($t:tt)*) => { $crate::ix!(@ [] [] $($t)*) };
}

/// The part of an array that an index means.
struct Box {
    /// Of each dimension of the array: from where, how many, every which (positive), and whether backwards.
    dims: Vec<Side>,
    /// A start known at run time only, in place of `start`: a scalar of int32, in range after clamping.
    moving: Vec<Option<Array>>,
    /// Dimensions that are dropped.
    dropped: Vec<usize>,
    /// Where new dimensions stand in the result, ascending.
    new: Vec<usize>,
}
#[derive(Clone, Copy)]
struct Side {
    start: usize,
    len: usize,
    step: usize,
    backwards: bool,
}

impl Index {
    /// The positions that are arrays.
    fn arrays(&self) -> impl Iterator<Item = &Array> {
        self.picks.iter().filter_map(|p| if let Kind::Array(a) = &p.0 { Some(a) } else { None })
    }
    fn resolve(&self, ty: &ArrayType) -> Result<Box, Fault> {
        let shape = |m: String| Fault::new(ErrorKind::Shape, m);
        let written = self.picks.iter().filter(|p| !matches!(p.0, Kind::New | Kind::Rest)).count();
        let rests = self.picks.iter().filter(|p| matches!(p.0, Kind::Rest)).count();
        if written > ty.rank() {
            return Err(shape(format!(
                "the index speaks of {written} dimensions, but the array has {}",
                ty.rank()
            ))
            .help("give one entry for each dimension at most; those left out are taken whole"));
        }
        if rests > 1 {
            return Err(shape("the index has two `Rest`: which dimensions each means is open".into())
                .help("write `..` for dimensions that are taken whole, `Rest` once"));
        }
        let mut found =
            Box { dims: Vec::new(), moving: vec![None; ty.rank()], dropped: Vec::new(), new: Vec::new() };
        let mut at = 0; // in the result
        let whole = |n: usize| Side { start: 0, len: n, step: 1, backwards: false };
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
                        found.dims.push(whole(ty.shape[d]));
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
                    found.dims.push(Side { start: position as usize, len: 1, step: 1, backwards: false });
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
                Kind::Array(a) => {
                    // an index that carries an error was told before this
                    let Ok(index) = a.type_ref() else {
                        return Err(shape("the index carries an error".into()));
                    };
                    if !index.dtype.is_integer() {
                        return Err(Fault::new(
                            ErrorKind::Dtype,
                            format!("indices are integers, not {}", index.dtype),
                        )
                        .help("convert it: `.astype(I32)`"));
                    }
                    if index.rank() > 0 {
                        return Err(Fault::new(
                            ErrorKind::Other,
                            format!("indexing by an array of rank {} is not built yet", index.rank()),
                        )
                        .help("take parts one by one by scalars: `x.slice(ix![&i])`, and `stack` them"));
                    }
                    found.dims.push(Side { start: 0, len: 1, step: 1, backwards: false });
                    found.moving[d] = Some(a.clone());
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
        return Side { start: start as usize, len: len as usize, step: step as usize, backwards: false };
    }
    let start = start.map_or(size - 1, |s| place(s, -1, size - 1));
    let stop = stop.map_or(-1, |s| place(s, -1, size - 1));
    let len = (start - stop - step - 1).max(0) / -step;
    let first = if len == 0 { 0 } else { start + (len - 1) * step };
    Side { start: first as usize, len: len as usize, step: step.unsigned_abs() as usize, backwards: true }
}

impl Box {
    /// For each dimension start, limit and step of a slice.
    fn bounds(&self) -> Vec<(usize, usize, usize)> {
        let limit = |s: &Side| if s.len == 0 { s.start } else { s.start + (s.len - 1) * s.step + 1 };
        self.dims.iter().map(|s| (s.start, limit(s), s.step)).collect()
    }
    fn lens(&self) -> Shape {
        self.dims.iter().map(|s| s.len).collect()
    }
    fn backwards(&self) -> Vec<usize> {
        (0..self.dims.len()).filter(|d| self.dims[*d].backwards).collect()
    }
    fn moves(&self) -> bool {
        self.moving.iter().any(Option::is_some)
    }
    fn is_whole(&self, shape: &[usize]) -> bool {
        !self.moves() && self.dims.iter().zip(shape).all(|(s, n)| s.len == *n && s.step == 1)
    }
    fn has_steps(&self) -> bool {
        self.dims.iter().any(|s| s.step != 1)
    }
    /// The shape of the part as the user sees it.
    fn shown(&self) -> Vec<usize> {
        let mut shape: Vec<usize> =
            (0..self.dims.len()).filter(|d| !self.dropped.contains(d)).map(|d| self.dims[d].len).collect();
        for at in &self.new {
            shape.insert(*at, 1);
        }
        shape
    }
}

impl Array {
    /// A part of the array.
    #[track_caller]
    pub fn slice(&self, index: Index) -> Array {
        self.slice_at("slice", &index, None, Location::caller())
    }
    fn slice_at(&self, op: &'static str, index: &Index, out: Option<Spec>, place: Place) -> Array {
        let _told = told(op);
        if let Some(error) = carried(std::iter::once(self).chain(index.arrays())) {
            return poison(error);
        }
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let part = match index.resolve(ty) {
            Ok(part) => part,
            Err(fault) => return self.refuse(op, fault, place),
        };
        let taken = self.take_box(&part, place);
        let dropped = taken.without(&part.dropped, place);
        let result = if part.new.is_empty() { dropped } else { dropped.new_dims(&part.new, place) };
        match out {
            Some(spec) => result.reshard_at(spec, place),
            None => result,
        }
    }
    /// The box of all dimensions.
    fn take_box(&self, part: &Box, place: Place) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if part.is_whole(&ty.shape) && part.backwards().is_empty() {
            return self.clone();
        }
        let mut x = self.clone();
        for (d, i) in part.moving.iter().enumerate() {
            if let Some(i) = i {
                x = x.at_place(d, i, place);
            }
        }
        let Ok(ty) = x.type_ref() else { return x };
        if !part.dims.iter().zip(ty.shape.iter()).all(|(s, n)| s.len == *n) {
            x = apply1(prims::slice(&part.bounds()), &[x.into()], place);
        }
        let back = part.backwards();
        if back.is_empty() { x } else { apply1(prims::rev(&back), &[x.into()], place) }
    }
    /// Where dimension `d` has the position that the scalar `i` says: a mask of size 1 elsewhere. Negative positions count from the
    /// end, then they are cut to what is there.
    fn mask_at(&self, d: usize, i: &Array, place: Place) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let n = ty.shape[d];
        let i = i.astype(DType::I32);
        let i = i.lt(0).select(&i + n, &i).maximum(0).minimum(n.saturating_sub(1));
        let mut sizes = vec![1; ty.rank()];
        sizes[d] = n;
        apply1(prims::iota(DType::I32.of(sizes), d), &[], place).eq(i)
    }
    /// The slice of size 1 at a position of dimension `d` that is known at run time only.
    fn at_place(&self, d: usize, i: &Array, place: Place) -> Array {
        let kept = self.mask_at(d, i, place).select(self, self.zero_beside());
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let kind = if ty.dtype == DType::Bool { Reduction::Or } else { Reduction::Sum };
        apply1(prims::reduce(kind, &[d], None), &[kept.into()], place).new_dims(&[d], place)
    }
    /// A part of the array, to read or to replace: `x.at(ix![1..-1]).set(y)` is x with that part replaced; x itself stays.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::zeros(I32.of([4]));
    /// assert_eq!(x.at(ix![1..-1]).set(7).to_vec::<i32>()?, [0, 7, 7, 0]);
    /// assert_eq!(x.at(ix![-1]).add(2).to_vec::<i32>()?, [0, 0, 0, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn at(&self, index: Index) -> At {
        At { array: self.clone(), index, out: None }
    }
}

/// A part of an array, to read or to replace. The array itself does not change.
#[must_use = "`at` does nothing until it is read or replaced"]
#[derive(Clone, Debug)]
pub struct At {
    array: Array,
    index: Index,
    out: Option<Spec>,
}

// `x.at(i).add(v)` is no sum of two things of a kind: the trait's meaning is another
#[expect(clippy::should_implement_trait, reason = "the reference's names")]
impl At {
    /// The sharding of the result, where the rules leave it open.
    pub fn to(self, out: Spec) -> At {
        At { out: Some(out), ..self }
    }
    /// The part.
    #[track_caller]
    pub fn get(self) -> Array {
        self.array.slice_at("at.get", &self.index, self.out, Location::caller())
    }
    /// The array with the part replaced; `value` broadcasts to it.
    #[track_caller]
    pub fn set(self, value: impl Operand) -> Array {
        self.update("at.set", None, value.term(), Location::caller())
    }
    /// The array with `value` added to the part.
    #[track_caller]
    pub fn add(self, value: impl Operand) -> Array {
        self.update("at.add", Some(Binary::Add), value.term(), Location::caller())
    }
    /// The array with the part multiplied by `value`.
    #[track_caller]
    pub fn mul(self, value: impl Operand) -> Array {
        self.update("at.mul", Some(Binary::Mul), value.term(), Location::caller())
    }
    /// The array with the smaller of the part and `value`.
    #[track_caller]
    pub fn min(self, value: impl Operand) -> Array {
        self.update("at.min", Some(Binary::Min), value.term(), Location::caller())
    }
    /// The array with the greater of the part and `value`.
    #[track_caller]
    pub fn max(self, value: impl Operand) -> Array {
        self.update("at.max", Some(Binary::Max), value.term(), Location::caller())
    }

    fn update(self, op: &'static str, fun: Option<Binary>, value: Term, place: Place) -> Array {
        let _told = told(op);
        let x = &self.array;
        let new = if let Term::Array(v) = &value { Some(v) } else { None };
        if let Some(error) = carried(std::iter::once(x).chain(self.index.arrays()).chain(new)) {
            return poison(error);
        }
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let part = match self.index.resolve(ty) {
            Ok(part) => part,
            Err(fault) => return x.refuse(op, fault, place),
        };
        let args = match operand::args(op, &[x.into(), value], place) {
            Ok(args) => args,
            Err(refused) => return refused,
        };
        // the new value, of the shape that the user sees, then of the box
        let value = match &args[1] {
            Arg::Array(v) => v.clone(),
            Arg::Lit(l) => Array::full(l.dtype.of([]), l.value),
        };
        let shown: Shape = part.shown().into();
        if let Ok(v) = value.type_ref()
            && let Err(fault) = fits(ty, &part, &shown, v, fun.is_none())
        {
            return operand::refuse(fault, op, &[x.into(), Term::from(&value)], place);
        }
        let value = value.spread(&shown, None, place).without(&part.new, place);
        let value = if part.dropped.is_empty() { value } else { value.new_dims(&part.dropped, place) };
        let back = part.backwards();
        let value = if back.is_empty() { value } else { apply1(prims::rev(&back), &[value.into()], place) };
        let value = match fun {
            None => value,
            Some(fun) => {
                let forwards = Box {
                    dims: part.dims.iter().map(|s| Side { backwards: false, ..*s }).collect(),
                    moving: part.moving.clone(),
                    dropped: Vec::new(),
                    new: Vec::new(),
                };
                let old = x.take_box(&forwards, place);
                Array::binary(fun, old.term(), value.term(), place)
            }
        };
        let result = x.put_box(&part, &value, place);
        match self.out {
            Some(spec) => result.reshard_at(spec, place),
            None => result,
        }
    }
}

/// Refuses a new value that does not broadcast to the part's shape, or, where it is set as it is, that is split otherwise than the array.
fn fits(ty: &ArrayType, part: &Box, shown: &Shape, value: &ArrayType, set: bool) -> Result<(), Fault> {
    let lead = shown.rank().checked_sub(value.rank());
    let misfit = (0..value.rank()).find(|d| {
        let n = value.shape[*d];
        lead.is_none_or(|lead| n != 1 && n != shown[lead + d])
    });
    if let Some(d) = misfit {
        let message = format!("a value of shape {} does not fit into a part of shape {shown}", value.shape);
        let fault = Fault::new(ErrorKind::Shape, message)
            .help(format!("give a value of shape {shown}, or one that broadcasts to it"));
        return Err(if lead.is_some() { fault.dim(1, d) } else { fault });
    }
    if !set || part.is_whole(&ty.shape) || part.moves() || value.mesh.is_none() || value.mesh != ty.mesh {
        return Ok(());
    }
    // the array's dimension of each dimension of the value
    let mut from: Vec<Option<usize>> =
        (0..ty.rank()).filter(|d| !part.dropped.contains(d)).map(Some).collect();
    for at in &part.new {
        from.insert(*at, None);
    }
    let lead = lead.unwrap_or_default();
    for (e, d) in from.iter().skip(lead).enumerate() {
        if let Some(d) = *d
            && value.shape[e] == shown[lead + e]
            && ty.spec.dim(d) != value.spec.dim(e)
        {
            return Err(super::products::split_alike((0, ty, d), (1, value, e)));
        }
    }
    Ok(())
}

impl Array {
    /// The array with `value` (of the box's shape, in forward order) in place of the box.
    fn put_box(&self, part: &Box, value: &Array, place: Place) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if value.type_ref().is_err() {
            return value.clone();
        }
        if part.lens().elements() == 0 {
            return self.clone();
        }
        // a value that lies nowhere in particular lies as the array does
        let value = match (value.type_ref(), &ty.mesh) {
            (Ok(v), Some(mesh)) if v.mesh.is_none() && ty.spec.dims().iter().any(|a| !a.is_empty()) => {
                value.put_at(mesh, Spec::of(ty.spec.dims().to_vec()), place)
            }
            _ => value.clone(),
        };
        if part.moves() {
            // where all moving positions are met, the value; else what was there
            let still =
                Box { moving: vec![None; ty.rank()], dims: Vec::new(), dropped: Vec::new(), new: Vec::new() };
            let dims = part.dims.iter().zip(&part.moving).zip(ty.shape.iter());
            let whole = |n: &usize| Side { start: 0, len: *n, step: 1, backwards: false };
            let dims =
                dims.map(|((s, m), n)| if m.is_some() { whole(n) } else { Side { backwards: false, ..*s } });
            let still = Box { dims: dims.collect(), ..still };
            let old = self.take_box(&still, place);
            let masks = part.moving.iter().enumerate().filter_map(|(d, i)| Some((d, i.as_ref()?)));
            let mask = masks.map(|(d, i)| self.mask_at(d, i, place)).reduce(|a, b| a & b);
            let Some(mask) = mask else { return self.clone() };
            return self.put_box(&still, &mask.select(&value, &old), place);
        }
        if part.is_whole(&ty.shape) {
            return value;
        }
        if !part.has_steps() {
            let start: Vec<usize> = part.dims.iter().map(|s| s.start).collect();
            return apply1(prims::update_slice(&start), &[self.into(), value.into()], place);
        }
        // with steps: the value spread out, and where it lies
        let widths: Vec<(i64, i64, usize)> = (part.dims.iter().zip(ty.shape.iter()))
            .map(|(s, n)| {
                let end = if s.len == 0 { s.start } else { s.start + (s.len - 1) * s.step + 1 };
                (s.start as i64, *n as i64 - end as i64, s.step - 1)
            })
            .collect();
        let spread = value.pad(self.zero(), widths.clone());
        let mask = Array::full(DType::Bool.of(part.lens()), true).pad(false, widths);
        mask.select(&spread, self)
    }
}
