//! Slices and updates of part of a sharded dimension.
//!
//! A value that is the same on all devices can update part of a sharded dimension without
//! communication: each device updates the positions it holds. A read needs a stated result sharding
//! if the length of the part is not divisible by the number of shards; this module builds that
//! error and its suggestions.

use super::index_expr::{Index, ResolvedIndex, SliceStart};
use super::operand::{Operand, Term};
use super::{Array, prims};
use crate::api::trace::apply1;
use crate::core::{ArrayType, Axes, AxisType, DType, ErrorKind, Fault, Spec};
use crate::ir::{ops::elementwise::Binary, program::CallSite};

/// Restricts a spec to explicit axes; `None` if the array's mesh has no explicit axes.
pub(super) fn explicit_out(ty: &ArrayType, spec: Spec) -> Option<Spec> {
    let mesh = ty.mesh.as_ref().filter(|m| m.axis_types().contains(&AxisType::Explicit))?;
    Some(spec.filter_axes(|a| mesh.axis_type(a) == Some(AxisType::Explicit)))
}

impl ResolvedIndex {
    /// Returns the sharded dimensions of which the index takes some positions, known statically.
    pub(super) fn partial_sharded_dims(&self, ty: &ArrayType) -> Vec<usize> {
        let parted = |d: &usize| {
            let side = &self.dims[*d];
            side.dynamic_start().is_none() && side.len != ty.shape[*d] && !ty.spec.dim(*d).is_empty()
        };
        (0..ty.rank()).filter(parted).collect()
    }
    /// Returns the padding (low, high, interior) that would restore the array's shape.
    pub(super) fn pad_widths(&self, shape: &[usize]) -> Vec<(i64, i64, usize)> {
        let bounds = self.bounds().into_iter().zip(shape);
        bounds.map(|((start, end, step), n)| (start as i64, *n as i64 - end as i64, step - 1)).collect()
    }
    /// Returns the sharding of the sliced box, given the sharding `out` of the user's result.
    ///
    /// The box has the array's rank. Returns `None` if `out` has too many entries, or if the mesh
    /// has no explicit axes.
    pub(super) fn box_sharding(&self, ty: &ArrayType, out: Spec) -> Option<Spec> {
        let rank = self.dims.len();
        let mut kept = (0..rank).filter(|d| !self.dropped.contains(d));
        let mut dims = vec![Axes::none(); rank];
        let shown = rank - self.dropped.len() + self.new_axes.len();
        for at in (0..shown).filter(|at| !self.new_axes.contains(at)) {
            dims[kept.next()?] = Axes::from(out.dim(at));
        }
        let own = ty.spec.unreduced_axes();
        (out.dims().len() <= shown)
            .then(|| Spec::from_dims(dims).unreduced(own).reduced(ty.spec.reduced_axes()))
            .and_then(|spec| explicit_out(ty, spec))
    }
    /// Returns the sharding of the result that moves the least data.
    ///
    /// It is the array's sharding, except that a dimension is unsharded if its selected length is
    /// not divisible by the number of shards.
    fn cheapest_sharding(&self, ty: &ArrayType) -> Spec {
        let entry = |d: usize| match self.dims[d].len.is_multiple_of(num_shards(ty, d)) {
            true => Axes::from(ty.spec.dim(d)),
            false => Axes::none(),
        };
        let mut dims: Vec<Axes> = (0..ty.rank()).filter(|d| !self.dropped.contains(d)).map(entry).collect();
        for at in &self.new_axes {
            dims.insert(*at, Axes::none());
        }
        Spec::from_dims(dims).unreduced(ty.spec.unreduced_axes()).reduced(ty.spec.reduced_axes())
    }
}

/// Returns the number of shards of dimension `d`.
fn num_shards(ty: &ArrayType, d: usize) -> usize {
    ty.mesh.iter().flat_map(|mesh| ty.spec.dim(d).iter().map(|a| mesh.extent(*a))).product()
}

/// Returns an error if the index takes a part of a sharded dimension that cannot be divided evenly.
///
/// Such a part is not divisible among the devices, so the caller must state the result's sharding.
/// The suggestions include `shift` for stencils.
pub(super) fn uneven_slice_error(ty: &ArrayType, part: &ResolvedIndex, index: &Index) -> Option<Fault> {
    let d = part
        .partial_sharded_dims(ty)
        .into_iter()
        .find(|d| !part.dims[*d].len.is_multiple_of(num_shards(ty, *d)))?;
    let (side, axes) = (&part.dims[d], Axes::from(ty.spec.dim(d)));
    let (start, _, step) = side.bounds();
    let dropped = part.dropped.contains(&d);
    let message = match dropped {
        true => format!("dimension {d} is sharded over {axes}: not every device has position {start}"),
        false => format!(
            "dimension {d} is sharded over {axes}, and the part, of size {}, is not divisible into {} equal parts",
            side.len,
            num_shards(ty, d)
        ),
    };
    let mut fault = Fault::new(ErrorKind::Sharding, message).highlight_dim(0, d);
    if index.arrays().count() < 2 {
        let (index, out) = (index.source_text(None), part.cheapest_sharding(ty));
        fault = fault
            .help(format!("give the sharding of the part, and only the part moves: `x.at({index}).out_sharding({out}).get()`"));
    }
    // an index that takes more than half of each dimension is probably a stencil
    let stencil = |d: usize| {
        let (side, n) = (&part.dims[d], ty.shape[d]);
        matches!(side.start, SliceStart::Static(_)) && side.step == 1 && side.len * 2 > n && !side.reversed
    };
    if dropped || step > 1 || !(0..ty.rank()).all(stencil) {
        return Some(fault);
    }
    let zero = if ty.dtype == DType::Bool { "false" } else { "0" };
    // the offset of the part from a centred one of the same size, for each dimension
    let offset = |d: usize| (ty.shape[d] - part.dims[d].len) as i64 / 2 - part.dims[d].bounds().0 as i64;
    let shifts: String = (0..ty.rank())
        .filter(|d| offset(*d) != 0)
        .map(|d| format!(".shift({}, {d}, {zero})", offset(d)))
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
    /// Updates the indexed part on each device, without moving the array.
    ///
    /// The new value is unsharded along some sharded dimension of the part, so that every device
    /// has what it writes. If it is sharded along another partially indexed dimension, it moves to
    /// the devices that hold the updated positions. `value` is a number, or an array of the box's
    /// shape in ascending order.
    pub(super) fn update_locally(
        &self,
        part: &ResolvedIndex,
        fun: Option<Binary>,
        value: Term,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if part.lens().num_elements() == 0 {
            return self.clone();
        }
        let (widths, parted) = (part.pad_widths(&ty.shape), part.partial_sharded_dims(ty));
        let spread = |x: &Array, fill, like: &ArrayType| {
            // keep the value's sharding, except in partially indexed dimensions: those take the
            // array's
            let entries = (0..ty.rank()).map(|d| {
                if parted.contains(&d) { Axes::from(ty.spec.dim(d)) } else { Axes::from(like.spec.dim(d)) }
            });
            let sets = like.spec.filter_axes(|_| false).unreduced(like.spec.unreduced_axes());
            let out = sets.reduced(like.spec.reduced_axes()).with_dims(entries.collect());
            apply1(prims::pad_to(&widths, fill, explicit_out(ty, out)), &[x.into()], call)
        };
        let of = (0..ty.rank())
            .map(|d| if parted.contains(&d) { Axes::none() } else { Axes::from(ty.spec.dim(d)) });
        let plain = ArrayType { dtype: DType::Bool, ..super::creation::fresh_type(ty) };
        let of = ArrayType { shape: part.lens(), spec: Spec::from_dims(of.collect()), ..plain };
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
