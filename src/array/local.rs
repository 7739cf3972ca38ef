//! Parts of sharded dimensions: updates for which nothing moves, and what is written in place of a part that the types do not reach.

use super::index::{Index, Part, Start};
use super::operand::{Operand, Term};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::{Axes, AxisType};
use crate::ops::elementwise::Binary;
use crate::program::Call;
use crate::sharding::Spec;
use crate::trace::apply1;
use crate::types::{ArrayType, DType};

/// What may be asked of this spec of an array: what it says of explicit axes, if there are any.
pub(super) fn asked(ty: &ArrayType, spec: Spec) -> Option<Spec> {
    let mesh = ty.mesh.as_ref().filter(|m| m.axis_types().contains(&AxisType::Explicit))?;
    Some(spec.only(|a| mesh.axis_type(a) == Some(AxisType::Explicit)))
}

impl Part {
    /// The sharded dimensions of an array of this type of which it takes some positions, which are known.
    pub(super) fn parted(&self, ty: &ArrayType) -> Vec<usize> {
        let parted = |d: &usize| {
            let side = &self.dims[*d];
            side.moving().is_none() && side.len != ty.shape[*d] && !ty.spec.dim(*d).is_empty()
        };
        (0..ty.rank()).filter(parted).collect()
    }
    /// How many positions of the array's dimensions are before it, behind it, and between two that it takes.
    pub(super) fn widths(&self, shape: &[usize]) -> Vec<(i64, i64, usize)> {
        let bounds = self.bounds().into_iter().zip(shape);
        bounds.map(|((start, end, step), n)| (start as i64, *n as i64 - end as i64, step - 1)).collect()
    }
    /// The sharding of the box, of the array's rank, whose part as the user sees it is sharded as `out` says.
    pub(super) fn boxed(&self, ty: &ArrayType, out: Spec) -> Option<Spec> {
        let rank = self.dims.len();
        let mut kept = (0..rank).filter(|d| !self.dropped.contains(d));
        let mut dims = vec![Axes::none(); rank];
        let shown = rank - self.dropped.len() + self.new.len();
        for at in (0..shown).filter(|at| !self.new.contains(at)) {
            dims[kept.next()?] = Axes::from(out.dim(at));
        }
        let own = ty.spec.unreduced_axes();
        (out.dims().len() <= shown)
            .then(|| Spec::of(dims).unreduced(own).reduced(ty.spec.reduced_axes()))
            .and_then(|spec| asked(ty, spec))
    }
    /// How the part is sharded where least moves: as the array, but for the dimensions of which it takes some positions that the devices do not divide.
    fn reached(&self, ty: &ArrayType) -> Spec {
        let entry = |d: usize| match self.dims[d].len.is_multiple_of(ways(ty, d)) {
            true => Axes::from(ty.spec.dim(d)),
            false => Axes::none(),
        };
        let mut dims: Vec<Axes> = (0..ty.rank()).filter(|d| !self.dropped.contains(d)).map(entry).collect();
        for at in &self.new {
            dims.insert(*at, Axes::none());
        }
        Spec::of(dims).unreduced(ty.spec.unreduced_axes()).reduced(ty.spec.reduced_axes())
    }
}

/// In how many parts a dimension is.
fn ways(ty: &ArrayType, d: usize) -> usize {
    ty.mesh.iter().flat_map(|mesh| ty.spec.dim(d).iter().map(|a| mesh.extent(*a))).product()
}

/// Refuses a part of a dimension that is sharded, where the part is not divisible among the devices: who asks for it says where it is
/// to be.
pub(super) fn apart(ty: &ArrayType, part: &Part, index: &Index) -> Option<Fault> {
    let d = part.parted(ty).into_iter().find(|d| !part.dims[*d].len.is_multiple_of(ways(ty, *d)))?;
    let (side, axes) = (&part.dims[d], Axes::from(ty.spec.dim(d)));
    let (start, _, step) = side.bounds();
    let dropped = part.dropped.contains(&d);
    let message = match dropped {
        true => format!("dimension {d} is sharded over {axes}: not every device has position {start}"),
        false => format!(
            "dimension {d} is sharded over {axes}, and the part, of size {}, is not divisible into {} equal parts",
            side.len,
            ways(ty, d)
        ),
    };
    let mut fault = Fault::new(ErrorKind::Sharding, message).dim(0, d);
    if index.arrays().count() < 2 {
        let (index, out) = (index.written(None), part.reached(ty));
        fault = fault
            .help(format!("say where the part is to be: only it moves: `x.at({index}).to({out}).get()`"));
    }
    // most of a dimension is what stencils read
    let stencil = |d: usize| {
        let (side, n) = (&part.dims[d], ty.shape[d]);
        matches!(side.start, Start::At(_)) && side.step == 1 && side.len * 2 > n && !side.backwards
    };
    if dropped || step > 1 || !(0..ty.rank()).all(stencil) {
        return Some(fault);
    }
    let zero = if ty.dtype == DType::Bool { "false" } else { "0" };
    // how far the part is from the middle one of its size, in each dimension
    let beside = |d: usize| (ty.shape[d] - part.dims[d].len) as i64 / 2 - part.dims[d].bounds().0 as i64;
    let shifts: String = (0..ty.rank())
        .filter(|d| beside(*d) != 0)
        .map(|d| format!(".shift({}, {d}, {zero})", beside(d)))
        .collect();
    let neighbours = match shifts.is_empty() {
        true => format!(
            "this part is `x` itself then, and its neighbours `x.shift(1, {d}, {zero})`, `x.shift(-1, {d}, {zero})`"
        ),
        false => format!("`x{shifts}`"),
    };
    Some(fault.help(format!("or, for a stencil, keep the size and read neighbours: {neighbours}")))
}

impl Array {
    /// The array with the part changed, where the new value is the same on all devices of one of its sharded dimensions: each device
    /// changes what it has of the part. Nothing moves, but of a value that is sharded along another of them. `value` is a number, or an
    /// array of the box's shape in ascending order.
    pub(super) fn changed_locally(
        &self,
        part: &Part,
        fun: Option<Binary>,
        value: Term,
        call: Call<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if part.lens().elements() == 0 {
            return self.clone();
        }
        let (widths, parted) = (part.widths(&ty.shape), part.parted(ty));
        let spread = |x: &Array, fill, like: &ArrayType| {
            // as it is, but in the dimensions of which the part has some positions as the array is
            let entries = (0..ty.rank()).map(|d| match parted.contains(&d) {
                true => Axes::from(ty.spec.dim(d)),
                false => Axes::from(like.spec.dim(d)),
            });
            let sets = like.spec.only(|_| false).unreduced(like.spec.unreduced_axes());
            let out = sets.reduced(like.spec.reduced_axes()).with_dims(entries.collect());
            apply1(prims::pad_to(&widths, fill, asked(ty, out)), &[x.into()], call)
        };
        let of = (0..ty.rank()).map(|d| match parted.contains(&d) {
            true => Axes::none(),
            false => Axes::from(ty.spec.dim(d)),
        });
        let plain = ArrayType { dtype: DType::Bool, ..super::creation::plain(ty) };
        let of = ArrayType { shape: part.lens(), spec: Spec::of(of.collect()), ..plain };
        let inside = apply1(prims::full(of.clone(), true.into()), &[], call);
        let mask = spread(&inside, false.into(), &of);
        let value = match value {
            Term::Array(v) => match v.type_ref() {
                Ok(vt) => spread(&v, self.zero(), vt).term(),
                Err(_) => return v,
            },
            number => number,
        };
        let new = match fun {
            None => value,
            Some(fun) => Array::binary(fun, self.term(), value, call).term(),
        };
        mask.select_at(new, self.term(), call)
    }
}
