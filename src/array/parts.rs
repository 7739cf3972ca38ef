//! Parts of arrays, read and replaced: `slice` and `at`.

use super::index::{Index, Part, Side, Start};
use super::indexing::Mode;
use super::local::{apart, asked};
use super::operand::{self, Operand, Term};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault, Spot};
use crate::mesh::Axes;
use crate::ops::elementwise::Binary;
use crate::program::sentence::Combine;
use crate::program::{Call, Literal};
use crate::sharding::Spec;
use crate::trace::{Arg, apply1, carried, poison};
use crate::types::{ArrayType, DType, Shape};

/// # Slices and updates
impl Array {
    /// A part of the array.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::arange(0..6).reshape([2, 3]);
    /// assert_eq!(x.slice(ix![1]).to_vec::<i32>()?, [3, 4, 5]);
    /// assert_eq!(x.slice(ix![.., -1]).to_vec::<i32>()?, [2, 5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("dynamic_slice", "take", "getitem"))]
    #[track_caller]
    pub fn slice(&self, index: Index) -> Array {
        self.slice_at(&index, (None, None), Call::here("slice"))
    }
    fn slice_at(&self, index: &Index, (mode, out): (Option<Mode>, Option<Spec>), call: Call<'_>) -> Array {
        if let Some(error) = carried(std::iter::once(self).chain(index.arrays())) {
            return poison(error);
        }
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match index.several(ty, mode == Some(Mode::Fill)) {
            Ok(None) => {}
            Err(fault) => return self.refuse(fault, call),
            Ok(Some((part, several))) => {
                if let Some(fault) = apart(ty, &part, index) {
                    return self.refuse(fault, call);
                }
                let twin = || format!("x.at({}).to({{}}).get()", index.written(None));
                let call = call.twin_by(&twin);
                return several.get(&self.taken(&part, None, call), &part.dropped, (mode, out), call);
            }
        }
        let part = match index.resolve(ty) {
            Ok(part) => part,
            Err(fault) => return self.refuse(fault, call),
        };
        if let (None, Some(fault)) = (out, apart(ty, &part, index)) {
            return self.refuse(fault, call);
        }
        self.told(call, |call| {
            let taken = self.taken(&part, out.and_then(|out| part.boxed(ty, out)), call);
            let dropped = taken.without(&part.dropped, call);
            let result = if part.new.is_empty() { dropped } else { dropped.new_dims(&part.new, call) };
            match (out, result.type_ref()) {
                (Some(spec), Ok(ty)) if ty.spec != spec.padded(ty.rank()) => result.reshard_at(spec, call),
                _ => result,
            }
        })
    }
    /// The part, of the array's rank; sharded as `out` says.
    fn taken(&self, part: &Part, out: Option<Spec>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if part.is_whole(&ty.shape) && part.backwards().is_empty() {
            return self.clone();
        }
        // where nothing moves for it, what is known is taken first: what is looked for is in less then
        let near = |d: usize| part.moves() && ty.spec.dim(d).is_empty();
        let x = self.known(part, near, None, call).at_places(part, call);
        let x = x.known(part, |d| !near(d), out, call);
        let back = part.backwards();
        if back.is_empty() { x } else { apply1(prims::rev(&back), &[x.into()], call) }
    }
    /// The array with these of its dimensions cut to what is known of a part.
    fn known(&self, part: &Part, of: impl Fn(usize) -> bool, out: Option<Spec>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let side = |(d, side): (usize, &Side)| match of(d) && side.moving().is_none() {
            true => side.bounds(),
            false => (0, ty.shape[d], 1),
        };
        let bounds: Vec<_> = part.dims.iter().enumerate().map(side).collect();
        if bounds.iter().zip(ty.shape.iter()).all(|(b, n)| *b == (0, *n, 1)) {
            return self.clone();
        }
        apply1(prims::slice_to(&bounds, out), &[self.into()], call)
    }
    /// The numbers of a part that are known at run time only, with their dimensions. Negative ones count from the end.
    fn places(&self, part: &Part, call: Call<'_>) -> Vec<(usize, Array)> {
        let Ok(ty) = self.type_ref() else { return Vec::new() };
        let moving = part.dims.iter().enumerate().filter_map(|(d, side)| Some((d, side.moving()?)));
        moving.map(|(d, i)| (d, i.counted_from_0(ty.shape[d], call))).collect()
    }
    /// The numbers with those that are negative counted from the end of a dimension of size n.
    pub(super) fn counted_from_0(&self, n: usize, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.dtype.is_unsigned() {
            return self.clone();
        }
        // sizes are beyond the narrowest
        let i = if ty.dtype == DType::I64 { self.clone() } else { self.astype_at(DType::I32, call) };
        let below = i.with(Binary::Lt, 0, call);
        below.select_at(i.with(Binary::Add, n, call).term(), i.term(), call)
    }
    /// The array with the dimensions of a part that are known at run time only cut to it, the others whole.
    fn at_places(&self, part: &Part, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let places = self.places(part, call);
        if places.is_empty() {
            return self.clone();
        }
        let (dims, starts): (Vec<usize>, Vec<Array>) = places.into_iter().unzip();
        let len = |d: usize| if dims.contains(&d) { part.dims[d].len } else { ty.shape[d] };
        let sizes: Shape = (0..ty.rank()).map(len).collect();
        // every device looks for what is in its part of a dimension
        let split = dims.iter().any(|d| !ty.spec.dim(*d).is_empty());
        let spec = dims.iter().fold(ty.spec, |spec, d| spec.with_dim(*d, &Axes::none()));
        let out = asked(ty, spec).filter(|_| split);
        let args: Vec<Arg> = std::iter::once(self).chain(&starts).map(Into::into).collect();
        apply1(prims::dynamic_slice(sizes, dims, out), &args, call)
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
    #[doc(alias("dynamic_update_slice", "scatter"))]
    pub fn at(&self, index: Index) -> At {
        At { array: self.clone(), index, mode: None, out: None }
    }
}

/// A part of an array, to read or to replace. The array itself does not change.
#[must_use = "`at` does nothing until it is read or replaced"]
#[derive(Clone, Debug)]
pub struct At {
    array: Array,
    index: Index,
    mode: Option<Mode>,
    out: Option<Spec>,
}

// `x.at(i).add(v)` is no sum of two things of a kind: the trait's meaning is another
#[expect(clippy::should_implement_trait, reason = "the reference's names")]
impl At {
    /// The sharding of the result, where the rules leave it open or do not reach it: of a part of a sharded dimension what is taken moves to
    /// where it is to be, and no more.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p![]);
    /// assert_eq!(type_of(x.at(ix![..2]).to(p!["X"]).get()), "int32[2@X]");
    /// let x = x.put(&mesh, p!["X"]);
    /// assert_eq!(x.at(ix![1..]).to(p![_]).get().to_vec::<i32>()?, [1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn to(self, out: Spec) -> At {
        At { out: Some(out), ..self }
    }
    /// What becomes of indices beyond what is there. Where it is not said, they mean the nearest element, but updates at arrays of
    /// indices are dropped.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::Mode;
    /// let (x, ids) = (Array::from([1.0, 2.0]), Array::from([0, 5]));
    /// assert_eq!(x.at(ix![&ids]).get().to_vec::<f64>()?, [1.0, 2.0]);
    /// assert_eq!(x.at(ix![&ids]).add(1.0).to_vec::<f64>()?, [2.0, 2.0]);
    /// assert_eq!(x.at(ix![&ids]).mode(Mode::Clip).add(1.0).to_vec::<f64>()?, [2.0, 3.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn mode(self, mode: Mode) -> At {
        At { mode: Some(mode), ..self }
    }
    /// The part.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![1..3]).get().to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn get(self) -> Array {
        self.array.slice_at(&self.index, (self.mode, self.out), Call::here("at.get"))
    }
    /// The array with the part replaced; `value` broadcasts to it.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![..;2]).set(9).to_vec::<i32>()?, [9, 1, 9, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn set(self, value: impl Operand) -> Array {
        self.update(None, value.term(), Call::here("at.set"))
    }
    /// The array with `value` added to the part.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![1..3]).add(10).to_vec::<i32>()?, [0, 11, 12, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn add(self, value: impl Operand) -> Array {
        self.update(Some(Binary::Add), value.term(), Call::here("at.add"))
    }
    /// The array with the part multiplied by `value`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![2..]).mul(-1).to_vec::<i32>()?, [0, 1, -2, -3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn mul(self, value: impl Operand) -> Array {
        self.update(Some(Binary::Mul), value.term(), Call::here("at.mul"))
    }
    /// The array with the smaller of the part and `value`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![1..]).min(2).to_vec::<i32>()?, [0, 1, 2, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn min(self, value: impl Operand) -> Array {
        self.update(Some(Binary::Min), value.term(), Call::here("at.min"))
    }
    /// The array with the greater of the part and `value`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![1..]).max(2).to_vec::<i32>()?, [0, 2, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn max(self, value: impl Operand) -> Array {
        self.update(Some(Binary::Max), value.term(), Call::here("at.max"))
    }

    fn update(self, fun: Option<Binary>, value: Term, call: Call<'_>) -> Array {
        let x = &self.array;
        let new = if let Term::Array(v) = &value { Some(v) } else { None };
        if let Some(error) = carried(std::iter::once(x).chain(self.index.arrays()).chain(new)) {
            return poison(error);
        }
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let several = match self.index.several(ty, self.mode == Some(Mode::Fill)) {
            Ok(several) => several,
            Err(fault) => return x.refuse(fault, call),
        };
        let resolved = match &several {
            Some(_) => None,
            None => Some(self.index.resolve(ty)),
        };
        let part = match resolved {
            Some(Err(fault)) => return x.refuse(fault, call),
            Some(Ok(part)) => Some(part),
            None => None,
        };
        let args = match operand::args(&[x.into(), value], call) {
            Ok(args) => args,
            Err(refused) => return refused,
        };
        // the new value, of the shape that the user sees, then of the box
        let value = match &args[1] {
            Arg::Array(v) => v.clone(),
            Arg::Lit(l) => Array::full(l.dtype.of([]), l.value),
        };
        if let Some((part, several)) = several {
            let verb = call.op.trim_start_matches("at.");
            let twin = || format!("x.at({}).to({{}}).{verb}(…)", self.index.written(None));
            let call = call.twin_by(&twin);
            let shown = [x.into(), Term::from(&value)];
            if let Some(fault) = apart(ty, &part, &self.index) {
                return operand::refuse(fault, &shown, call);
            }
            let combine = fun.map(combined);
            let old = x.taken(&part, None, call);
            return x.told(call, |call| {
                let new = several.put(&old, (&value, &part.dropped), (combine, self.mode), self.out, call);
                x.put_box(&part, &new, call)
            });
        }
        let Some(part) = part else { return x.clone() };
        let shown: Shape = part.shown().into();
        if let Ok(v) = value.type_ref()
            && let Err(fault) = fits(ty, &part, &shown, v, fun.is_none()).and_then(|()| same_sets(ty, v, fun))
        {
            return operand::refuse(fault, &[x.into(), Term::from(&value)], call);
        }
        let parted = part.parted(ty);
        if let (Arg::Lit(l), false) = (&args[1], parted.is_empty() || part.moves()) {
            let result = x.changed_locally(&part, fun, Term::Number(l.value), call);
            return self.placed(result, call);
        }
        let value = value.spread(&shown, None, call).without(&part.new, call);
        let value = if part.dropped.is_empty() { value } else { value.new_dims(&part.dropped, call) };
        let value = value.beside(ty, call);
        let back = part.backwards();
        let value = if back.is_empty() { value } else { apply1(prims::rev(&back), &[value.into()], call) };
        let on_all = |vt: &ArrayType| parted.iter().any(|d| vt.spec.dim(*d).is_empty());
        if !part.moves() && value.type_ref().is_ok_and(on_all) {
            let result = x.changed_locally(&part, fun, value.term(), call);
            return self.placed(result, call);
        }
        let value = match fun {
            None => value,
            Some(fun) if part.moves() && !part.has_steps() => {
                return self.placed(x.combined_at(&part, &value, combined(fun), call), call);
            }
            Some(fun) => {
                let dims = part.dims.iter().map(Side::forwards).collect();
                let old = x.taken(&Part { dims, dropped: Vec::new(), new: Vec::new() }, None, call);
                Array::binary(fun, old.term(), value.term(), call)
            }
        };
        let result = x.put_box(&part, &value, call);
        self.placed(result, call)
    }
    /// The result, sharded as was asked for.
    fn placed(&self, result: Array, call: Call<'_>) -> Array {
        match self.out {
            Some(spec) => result.reshard_at(spec, call),
            None => result,
        }
    }
}

/// How an update is combined with what is there.
fn combined(fun: Binary) -> Combine {
    match fun {
        Binary::Mul => Combine::Mul,
        Binary::Max => Combine::Max,
        Binary::Min => Combine::Min,
        _ => Combine::Add,
    }
}

/// Refuses a new value that does not broadcast to the part's shape, or, where it is set as it is, that is split otherwise than the array.
fn fits(ty: &ArrayType, part: &Part, shown: &Shape, value: &ArrayType, set: bool) -> Result<(), Fault> {
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
    if part.is_whole(&ty.shape) || value.mesh.is_none() || value.mesh != ty.mesh {
        return Ok(());
    }
    // what is combined with the part, or chosen beside it, may be unsharded where that is sharded; and the other way round, where the
    // result is not put back into the array
    let joins = !set || part.moves();
    // an unsharded value of a sharded dimension: each device has what it changes
    let parted = if part.moves() { Vec::new() } else { part.parted(ty) };
    let put = part.dims.iter().zip(ty.shape.iter()).any(|(s, n)| s.moving().is_none() && s.len != *n);
    let apart = |d: usize, e: usize| {
        let (of, with) = (ty.spec.dim(d), value.spec.dim(e));
        let local = with.is_empty() && parted.contains(&d);
        of != with && !local && !(joins && (with.is_empty() || of.is_empty() && !put))
    };
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
            && apart(d, e)
        {
            return Err(super::refusals::split_alike((0, ty, d), (1, value, e)));
        }
    }
    Ok(())
}

/// Refuses a new value that is not unreduced and reduced over the same axes as the array; a number is reduced over any. `fun` combines
/// the value with what is there.
fn same_sets(x: &ArrayType, value: &ArrayType, fun: Option<Binary>) -> Result<(), Fault> {
    let refuse = |message: String| Err(Fault::new(ErrorKind::Sharding, message).mark(0, Spot::Sets));
    let types = [x, value];
    let summed = |k: usize| {
        let spec = types[k].spec.padded(types[k].rank()).unreduced(Axes::none());
        format!("sum operand {k} first: `.reshard({spec})`")
    };
    let resharded = |spec: Spec| format!("reshard operand 1: `.reshard({})`", spec.padded(value.rank()));
    let [u, of] = types.map(|ty| ty.spec.unreduced_axes());
    if !u.is_empty() && !matches!(fun, None | Some(Binary::Add)) {
        let why = "its parts are known, and not the sums that this is about";
        return refuse(format!("operand 0, {x}, is unreduced over {u}: {why}"))
            .map_err(|f| f.help(summed(0)));
    }
    if !u.same_set(of) {
        let k = usize::from(u.is_empty());
        let (ty, axes) = (types[k], [u, of][k]);
        let other = 1 - k;
        let message = format!(
            "operand {k}, {ty}, is unreduced over {axes}, but operand {other}, {}, is not",
            types[other]
        );
        let parts = value.spec.only(|a| !u.contains(a)).unreduced(u);
        return refuse(message).map_err(|f| {
            let f = if k == 0 && value.mesh.is_some() { f.help(resharded(parts)) } else { f };
            f.help(summed(k)).mark(1, Spot::Sets)
        });
    }
    let [r, of] = types.map(|ty| ty.spec.reduced_axes());
    if value.mesh.is_some() && !r.same_set(of) {
        let k = usize::from(r.is_empty());
        let (ty, axes, other) = (types[k], [r, of][k], types[1 - k]);
        let message =
            format!("operand {k}, {ty}, is reduced over {axes}, but operand {}, {other}, is not", 1 - k);
        let to = value.spec.only(|a| !r.contains(a)).reduced(r);
        return refuse(message).map_err(|f| f.help(resharded(to)).mark(1, Spot::Sets));
    }
    Ok(())
}

impl Array {
    /// A value that is placed nowhere in particular, placed like the array of this type but for dimensions of which it is a part.
    fn beside(self, ty: &ArrayType, call: Call<'_>) -> Array {
        let (Ok(v), Some(mesh)) = (self.type_ref(), &ty.mesh) else { return self };
        let reduced = ty.spec.reduced_axes();
        if v.mesh.is_some() || reduced.is_empty() && ty.spec.dims().iter().all(|a| a.is_empty()) {
            return self;
        }
        let entry = |d: usize| match v.shape[d] != ty.shape[d] {
            true => Axes::none(),
            false => Axes::from(ty.spec.dim(d)),
        };
        let spec = Spec::of((0..ty.rank()).map(entry).collect()).reduced(reduced);
        self.put_at(mesh, spec, call)
    }
    /// The array with `value` (of the box's shape, in forward order) combined with the box, of which some numbers are known at run time only.
    fn combined_at(&self, part: &Part, value: &Array, combine: Combine, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if value.type_ref().is_err() {
            return value.clone();
        }
        if part.lens().elements() == 0 {
            return self.clone();
        }
        let mut args: Vec<Arg> = vec![self.into(), value.into()];
        let mut dims = Vec::new();
        for (d, side) in part.dims.iter().enumerate() {
            let start = match &side.start {
                Start::Moving(i) => Arg::from(i.counted_from_0(ty.shape[d], call)),
                Start::At(_) if side.len == ty.shape[d] => continue,
                Start::At(i) => Arg::from(Literal { dtype: DType::I64, value: (*i).into() }),
            };
            dims.push(d);
            args.push(start);
        }
        apply1(prims::dynamic_update_slice(dims, Some(combine), asked(ty, ty.spec)), &args, call)
    }
    /// The array with `value` (of the box's shape, in forward order) in place of the box.
    fn put_box(&self, part: &Part, value: &Array, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if value.type_ref().is_err() {
            return value.clone();
        }
        if part.lens().elements() == 0 {
            return self.clone();
        }
        if part.moves() {
            // what is replaced of the part, in the part
            let inner = |s: &Side| if s.moving().is_some() { Side::whole(s.len) } else { s.forwards() };
            let dims = part.dims.iter().map(inner).collect();
            let inner = Part { dims, dropped: Vec::new(), new: Vec::new() };
            let still = |(s, n): (&Side, &usize)| s.moving().is_some() || s.len == *n && s.step == 1;
            let value = match part.dims.iter().zip(ty.shape.iter()).all(still) {
                true => value.clone(),
                false => self.at_places(part, call).put_box(&inner, value, call),
            };
            let (dims, starts): (Vec<usize>, Vec<Array>) = self.places(part, call).into_iter().unzip();
            let out = asked(ty, ty.spec);
            let args: Vec<Arg> = [self, &value].into_iter().chain(&starts).map(Into::into).collect();
            return apply1(prims::dynamic_update_slice(dims, None, out), &args, call);
        }
        if part.is_whole(&ty.shape) {
            return value.clone();
        }
        if !part.has_steps() {
            let start: Vec<usize> = part.bounds().iter().map(|b| b.0).collect();
            return apply1(prims::update_slice(&start), &[self.into(), value.into()], call);
        }
        // with steps: the value spread out, and where it is
        let widths = part.widths(&ty.shape);
        let spread = apply1(prims::pad(&widths, self.zero()), &[value.into()], call);
        let mask = apply1(prims::pad(&widths, false.into()), &[value.trues(call).into()], call);
        mask.select_at(spread.term(), self.term(), call)
    }
}
