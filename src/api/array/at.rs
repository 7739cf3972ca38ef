//! Reads and updates parts of arrays: `slice` and `at`.
//!
//! A slice with static bounds becomes a `slice` primitive. Dynamic starts become `dynamic_slice`,
//! and index arrays of several elements become a gather. Updates return a new array: they become
//! `update_slice`, `dynamic_update_slice`, a scatter, or a select by a mask.

use super::index_expr::{DimSlice, Index, ResolvedIndex, SliceStart};
use super::local_update::{explicit_out, uneven_slice_error};
use super::operand::{self, Operand, Term};
use super::{Array, prims, take::IndexMode};
use crate::api::trace::{ArrayOrLiteral, apply1, carried_errors, poison};
use crate::core::{ArrayType, Axes, DType, ErrorKind, Fault, Shape, Spec, TypePart};
use crate::ir::ops::elementwise::Binary;
use crate::ir::program::{CallSite, Literal, Reducer};

/// # Slices and updates
impl Array {
    /// Returns the part of the array that `index` selects; see [`ix!`](crate::ix).
    ///
    /// It is an error if the selected length of a sharded dimension is not divisible by its number
    /// of shards; then state the result's sharding: `x.at(index).out_sharding(spec).get()`.
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
        self.slice_at(&index, (None, None), CallSite::here("slice"))
    }
    /// Implements [`Array::slice`] and [`IndexUpdate::get`].
    fn slice_at(
        &self,
        index: &Index,
        (mode, out): (Option<IndexMode>, Option<Spec>),
        call: CallSite<'_>,
    ) -> Array {
        self.with_resolved_out(out, call, |out| self.slice_over(index, (mode, out), call))
    }
    /// Slices; the sharding of the result is given in mesh axes.
    fn slice_over(
        &self,
        index: &Index,
        (mode, out): (Option<IndexMode>, Option<Spec>),
        call: CallSite<'_>,
    ) -> Array {
        if let Some(error) = carried_errors(std::iter::once(self).chain(index.arrays())) {
            return poison(error);
        }
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match index.resolve_advanced(ty, mode == Some(IndexMode::Fill)) {
            Ok(None) => {}
            Err(fault) => return self.reject(fault, call),
            Ok(Some((part, several))) => {
                if let Some(fault) = uneven_slice_error(ty, &part, index) {
                    return self.reject(fault, call);
                }
                let explicit_form = || format!("x.at({}).out_sharding({{}}).get()", index.source_text(None));
                let call = call.with_explicit_form_fn(&explicit_form);
                return several.get(
                    &self.slice_resolved(&part, None, call),
                    &part.dropped,
                    (mode, out),
                    call,
                );
            }
        }
        let part = ok_or_return!(index.resolve(ty), |fault| self.reject(fault, call));
        if let (None, Some(fault)) = (out, uneven_slice_error(ty, &part, index)) {
            return self.reject(fault, call);
        }
        self.with_call_site(call, |call| {
            let taken = self.slice_resolved(&part, out.and_then(|out| part.box_sharding(ty, out)), call);
            let dropped = taken.squeeze_at(&part.dropped, call);
            let result =
                if part.new_axes.is_empty() { dropped } else { dropped.expand_dims_at(&part.new_axes, call) };
            match (out, result.type_ref()) {
                (Some(spec), Ok(ty)) if ty.spec != spec.padded(ty.rank()) => result.reshard_at(spec, call),
                _ => result,
            }
        })
    }
    /// Slices with a resolved index; the result has the array's rank and the sharding `out`.
    fn slice_resolved(&self, part: &ResolvedIndex, out: Option<Spec>, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if part.is_full(&ty.shape) && part.reversed_dims().is_empty() {
            return self.clone();
        }
        // apply static bounds first, along unsharded dimensions, to shrink the operand of the
        // dynamic slice
        let near = |d: usize| part.is_dynamic() && ty.spec.dim(d).is_empty();
        let x = self.slice_static(part, near, None, call).slice_dynamic(part, call);
        let x = x.slice_static(part, |d| !near(d), out, call);
        let back = part.reversed_dims();
        if back.is_empty() { x } else { apply1(prims::rev(&back), &[x.into()], call) }
    }
    /// Applies the static slices of the dimensions that `of` accepts.
    fn slice_static(
        &self,
        part: &ResolvedIndex,
        of: impl Fn(usize) -> bool,
        out: Option<Spec>,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let side = |(d, side): (usize, &DimSlice)| {
            if of(d) && side.dynamic_start().is_none() { side.bounds() } else { (0, ty.shape[d], 1) }
        };
        let bounds: Vec<_> = part.dims.iter().enumerate().map(side).collect();
        if bounds.iter().zip(ty.shape.iter()).all(|(b, n)| *b == (0, *n, 1)) {
            return self.clone();
        }
        apply1(prims::slice_to(&bounds, out), &[self.into()], call)
    }
    /// Returns the dimensions with dynamic starts, and these starts as non-negative indices.
    fn dynamic_starts(&self, part: &ResolvedIndex, call: CallSite<'_>) -> Vec<(usize, Array)> {
        let Ok(ty) = self.type_ref() else { return Vec::new() };
        let moving = part.dims.iter().enumerate().filter_map(|(d, side)| Some((d, side.dynamic_start()?)));
        moving.map(|(d, i)| (d, i.resolve_negative(ty.shape[d], call))).collect()
    }
    /// Resolves negative indices for a dimension of size `n`, elementwise.
    pub(super) fn resolve_negative(&self, n: usize, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if ty.dtype.is_unsigned() {
            return self.clone();
        }
        // the size may exceed the narrowest integer types
        let i = if ty.dtype == DType::I64 { self.clone() } else { self.astype_at(DType::I32, call) };
        let below = i.binary_with(Binary::Lt, 0, call);
        below.select_at(i.binary_with(Binary::Add, n, call).term(), i.term(), call)
    }
    /// Applies the slices with dynamic starts; other dimensions stay full.
    fn slice_dynamic(&self, part: &ResolvedIndex, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let places = self.dynamic_starts(part, call);
        if places.is_empty() {
            return self.clone();
        }
        let (dims, starts): (Vec<usize>, Vec<Array>) = places.into_iter().unzip();
        let len = |d: usize| if dims.contains(&d) { part.dims[d].len } else { ty.shape[d] };
        let sizes: Shape = (0..ty.rank()).map(len).collect();
        // every device looks up the indices that fall into its block
        let split = dims.iter().any(|d| !ty.spec.dim(*d).is_empty());
        let spec = dims.iter().fold(ty.spec, |spec, d| spec.with_dim(*d, &Axes::none()));
        let out = explicit_out(ty, spec).filter(|_| split);
        let args: Vec<ArrayOrLiteral> = std::iter::once(self).chain(&starts).map(Into::into).collect();
        apply1(prims::dynamic_slice(sizes, dims, out), &args, call)
    }
    /// Selects part of the array to read or update; see [`ix!`](crate::ix).
    ///
    /// `x.at(ix![1..-1]).set(y)` returns a copy of `x` with that part replaced; `x` itself does not
    /// change.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::zeros(I32.array_type([4]));
    /// assert_eq!(x.at(ix![1..-1]).set(7).to_vec::<i32>()?, [0, 7, 7, 0]);
    /// assert_eq!(x.at(ix![-1]).add(2).to_vec::<i32>()?, [0, 0, 0, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("dynamic_update_slice", "scatter"))]
    pub fn at(&self, index: Index) -> IndexUpdate {
        IndexUpdate { array: self.clone(), index, mode: None, out: None }
    }
}

/// Part of an array that is to be read or updated, returned by [`Array::at`].
///
/// Updates return a new array; the original does not change.
#[must_use = "`at` does nothing until it is read or replaced"]
#[derive(Clone, Debug)]
pub struct IndexUpdate {
    /// The array that is read or updated.
    array: Array,
    /// The selected part.
    index: Index,
    /// How out-of-bounds indices are treated; `None` means the operation's default.
    mode: Option<IndexMode>,
    /// The result's sharding; `None` if it follows from the operands.
    out: Option<Spec>,
}

// `x.at(i).add(v)` is not an addition of two values of one type, so the operator traits do not
// apply.
#[expect(clippy::should_implement_trait, reason = "the reference's names")]
impl IndexUpdate {
    setters! {
        /// Sets the result's sharding, if the operands do not determine it.
        ///
        /// It is needed to read part of a sharded dimension if the length of that part is not
        /// divisible by the number of shards. Only the elements that are read move.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let mesh = Mesh::new([("X", 2)])?;
        /// let x = Array::arange(0..4).put(&mesh, p![]);
        /// assert_eq!(type_of(x.at(ix![..2]).out_sharding(p!["X"]).get()), "int32[2@X]");
        /// let x = x.put(&mesh, p!["X"]);
        /// assert_eq!(x.at(ix![1..]).out_sharding(p![_]).get().to_vec::<i32>()?, [1, 2, 3]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn out_sharding(out: Spec) = out: Some(out);
        /// Sets how out-of-bounds indices are treated.
        ///
        /// By default indices are clamped to the nearest valid index, except that updates at
        /// out-of-bounds positions of index arrays are dropped.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// use atmesh::IndexMode;
        /// let (x, ids) = (Array::from([1.0, 2.0]), Array::from([0, 5]));
        /// assert_eq!(x.at(ix![&ids]).get().to_vec::<f64>()?, [1.0, 2.0]);
        /// assert_eq!(x.at(ix![&ids]).add(1.0).to_vec::<f64>()?, [2.0, 2.0]);
        /// assert_eq!(x.at(ix![&ids]).mode(IndexMode::Clip).add(1.0).to_vec::<f64>()?, [2.0, 3.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn mode(mode: IndexMode) = mode: Some(mode);
    }
    /// Reads the part.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![1..3]).get().to_vec::<i32>()?, [1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn get(self) -> Array {
        self.array.slice_at(&self.index, (self.mode, self.out), CallSite::here("at.get"))
    }
    /// Returns the array with the part replaced by `value`, which broadcasts to the part's shape.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![..;2]).set(9).to_vec::<i32>()?, [9, 1, 9, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn set(self, value: impl Operand) -> Array {
        self.update(None, value.term(), CallSite::here("at.set"))
    }
    /// Returns the array with `value` added to the part.
    ///
    /// Values at repeated indices accumulate.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![1..3]).add(10).to_vec::<i32>()?, [0, 11, 12, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn add(self, value: impl Operand) -> Array {
        self.update(Some(Binary::Add), value.term(), CallSite::here("at.add"))
    }
    /// Returns the array with the part multiplied by `value`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![2..]).mul(-1).to_vec::<i32>()?, [0, 1, -2, -3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn mul(self, value: impl Operand) -> Array {
        self.update(Some(Binary::Mul), value.term(), CallSite::here("at.mul"))
    }
    /// Returns the array with the part replaced by its elementwise minimum with `value`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![1..]).min(2).to_vec::<i32>()?, [0, 1, 2, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn min(self, value: impl Operand) -> Array {
        self.update(Some(Binary::Min), value.term(), CallSite::here("at.min"))
    }
    /// Returns the array with the part replaced by its elementwise maximum with `value`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).at(ix![1..]).max(2).to_vec::<i32>()?, [0, 2, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn max(self, value: impl Operand) -> Array {
        self.update(Some(Binary::Max), value.term(), CallSite::here("at.max"))
    }

    /// Implements the updates; `fun` combines old and new values, `None` replaces.
    fn update(self, fun: Option<Binary>, value: Term, call: CallSite<'_>) -> Array {
        let (x, out) = (self.array.clone(), self.out);
        x.with_resolved_out(out, call, |out| IndexUpdate { out, ..self }.update_over(fun, value, call))
    }
    /// Updates; the sharding of the result is given in mesh axes.
    fn update_over(self, fun: Option<Binary>, value: Term, call: CallSite<'_>) -> Array {
        let x = &self.array;
        let new = if let Term::Array(v) = &value { Some(v) } else { None };
        if let Some(error) = carried_errors(std::iter::once(x).chain(self.index.arrays()).chain(new)) {
            return poison(error);
        }
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let several = self.index.resolve_advanced(ty, self.mode == Some(IndexMode::Fill));
        let several = ok_or_return!(several, |fault| x.reject(fault, call));
        let resolved = match &several {
            Some(_) => None,
            None => Some(self.index.resolve(ty)),
        };
        let part = match resolved {
            Some(Err(fault)) => return x.reject(fault, call),
            Some(Ok(part)) => Some(part),
            None => None,
        };
        let args = ok_or_return!(operand::resolve_args(&[x.into(), value], call));
        // broadcast the new value to the result shape that the user sees, then give it the box's
        // rank
        let value = match &args[1] {
            ArrayOrLiteral::Array(v) => v.clone(),
            ArrayOrLiteral::Lit(l) => Array::full(l.dtype.array_type([]), l.value),
        };
        if let Some((part, several)) = several {
            let verb = call.op.trim_start_matches("at.");
            let explicit_form =
                || format!("x.at({}).out_sharding({{}}).{verb}(…)", self.index.source_text(None));
            let call = call.with_explicit_form_fn(&explicit_form);
            let shown = [x.into(), Term::from(&value)];
            if let Some(fault) = uneven_slice_error(ty, &part, &self.index) {
                return operand::reject(fault, &shown, call);
            }
            let combine = fun.map(update_reducer);
            let old = x.slice_resolved(&part, None, call);
            return x.with_call_site(call, |call| {
                let new = several.put(&old, (&value, &part.dropped), (combine, self.mode), self.out, call);
                x.set_box(&part, &new, call)
            });
        }
        let Some(part) = part else { return x.clone() };
        let shown: Shape = part.result_shape().into();
        if let Ok(v) = value.type_ref()
            && let Err(fault) = check_update(ty, &part, &shown, v, fun.is_none())
                .and_then(|()| check_reduction_axes(ty, v, fun))
        {
            return operand::reject(fault, &[x.into(), Term::from(&value)], call);
        }
        let parted = part.partial_sharded_dims(ty);
        if let (ArrayOrLiteral::Lit(l), false) = (&args[1], parted.is_empty() || part.is_dynamic()) {
            let result = x.update_locally(&part, fun, Term::Number(l.value), call);
            return self.reshard_result(result, call);
        }
        let value = value.broadcast_like(&shown, None, call).squeeze_at(&part.new_axes, call);
        let value = if part.dropped.is_empty() { value } else { value.expand_dims_at(&part.dropped, call) };
        let value = value.place_like(ty, call);
        let back = part.reversed_dims();
        let value = if back.is_empty() { value } else { apply1(prims::rev(&back), &[value.into()], call) };
        let on_all = |vt: &ArrayType| parted.iter().any(|d| vt.spec.dim(*d).is_empty());
        if !part.is_dynamic() && value.type_ref().is_ok_and(on_all) {
            let result = x.update_locally(&part, fun, value.term(), call);
            return self.reshard_result(result, call);
        }
        let value = match fun {
            None => value,
            Some(fun) if part.is_dynamic() && !part.has_steps() => {
                return self.reshard_result(x.combine_box(&part, &value, update_reducer(fun), call), call);
            }
            Some(fun) => {
                let dims = part.dims.iter().map(DimSlice::ascending).collect();
                let old = x.slice_resolved(
                    &ResolvedIndex { dims, dropped: Vec::new(), new_axes: Vec::new() },
                    None,
                    call,
                );
                Array::binary(fun, old.term(), value.term(), call)
            }
        };
        let result = x.set_box(&part, &value, call);
        self.reshard_result(result, call)
    }
    /// Reshards the result as requested.
    fn reshard_result(&self, result: Array, call: CallSite<'_>) -> Array {
        let Some(spec) = self.out else { return result };
        result.reshard_at(spec, call)
    }
}

/// Returns the reducer that combines an update with the existing element.
fn update_reducer(fun: Binary) -> Reducer {
    match fun {
        Binary::Mul => Reducer::Mul,
        Binary::Max => Reducer::Max,
        Binary::Min => Reducer::Min,
        _ => Reducer::Add,
    }
}

/// Checks that a new value broadcasts to the part, and that its sharding matches the array's.
///
/// `set` is true if the value replaces the part instead of being combined with it.
fn check_update(
    ty: &ArrayType,
    part: &ResolvedIndex,
    shown: &Shape,
    value: &ArrayType,
    set: bool,
) -> Result<(), Fault> {
    let lead = shown.rank().checked_sub(value.rank());
    let misfit = (0..value.rank()).find(|d| {
        let n = value.shape[*d];
        lead.is_none_or(|lead| n != 1 && n != shown[lead + d])
    });
    if let Some(d) = misfit {
        let message = format!("a value of shape {} does not fit into a part of shape {shown}", value.shape);
        let fault = Fault::new(ErrorKind::Shape, message)
            .help(format!("give a value of shape {shown}, or one that broadcasts to it"));
        return Err(if lead.is_some() { fault.highlight_dim(1, d) } else { fault });
    }
    if part.is_full(&ty.shape) || value.mesh.is_none() || value.mesh != ty.mesh {
        return Ok(());
    }
    // A value that is combined with the part, or selected by a mask, may be unsharded where the
    // part is sharded; the reverse is allowed if the result is not written back into the array.
    let joins = !set || part.is_dynamic();
    // an unsharded value for part of a sharded dimension: each device already has the elements that
    // it writes
    let parted = if part.is_dynamic() { Vec::new() } else { part.partial_sharded_dims(ty) };
    let put = part.dims.iter().zip(ty.shape.iter()).any(|(s, n)| s.dynamic_start().is_none() && s.len != *n);
    let apart = |d: usize, e: usize| {
        let (of, with) = (ty.spec.dim(d), value.spec.dim(e));
        let local = with.is_empty() && parted.contains(&d);
        of != with && !local && !(joins && (with.is_empty() || of.is_empty() && !put))
    };
    // the array's dimension for each dimension of the value
    let mut from: Vec<Option<usize>> =
        (0..ty.rank()).filter(|d| !part.dropped.contains(d)).map(Some).collect();
    for at in &part.new_axes {
        from.insert(*at, None);
    }
    let lead = lead.unwrap_or_default();
    for (e, d) in from.iter().skip(lead).enumerate() {
        if let Some(d) = *d
            && value.shape[e] == shown[lead + e]
            && apart(d, e)
        {
            return Err(super::errors::sharding_mismatch((0, ty, d), (1, value, e)));
        }
    }
    Ok(())
}

/// Checks that a new value is unreduced and reduced over the same axes as the array.
///
/// Scalar literals count as reduced over all axes. `fun` combines the value with the existing
/// elements.
fn check_reduction_axes(x: &ArrayType, value: &ArrayType, fun: Option<Binary>) -> Result<(), Fault> {
    let reject = |message: String| Err(Fault::new(ErrorKind::Sharding, message).highlight(0, TypePart::Sets));
    let types = [x, value];
    let summed = |k: usize| {
        let spec = types[k].spec.padded(types[k].rank()).unreduced(Axes::none());
        format!("sum operand {k} first: `.reshard({spec})`")
    };
    let resharded = |spec: Spec| format!("reshard operand 1: `.reshard({})`", spec.padded(value.rank()));
    let [u, of] = types.map(|ty| ty.spec.unreduced_axes());
    if !u.is_empty() && !matches!(fun, None | Some(Binary::Add)) {
        let why = "its partial values are known, not the sums that this update needs";
        return reject(format!("operand 0, {x}, is unreduced over {u}: {why}"))
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
        let parts = value.spec.filter_axes(|a| !u.contains(a)).unreduced(u);
        return reject(message).map_err(|f| {
            let f = if k == 0 && value.mesh.is_some() { f.help(resharded(parts)) } else { f };
            f.help(summed(k)).highlight(1, TypePart::Sets)
        });
    }
    // next to a varying value, a reduced one becomes varying
    let reduced = |ty: &ArrayType, other: &ArrayType| ty.spec.reduced_axes().without(&other.varying);
    let (r, of) = (reduced(x, value), reduced(value, x));
    if value.mesh.is_some() && !r.same_set(&of) {
        let k = usize::from(r.is_empty());
        let (ty, axes, other) = (types[k], [&r, &of][k], types[1 - k]);
        let message =
            format!("operand {k}, {ty}, is reduced over {axes}, but operand {}, {other}, is not", 1 - k);
        let to = value.spec.filter_axes(|a| !r.contains(a)).reduced(&r);
        return reject(message).map_err(|f| f.help(resharded(to)).highlight(1, TypePart::Sets));
    }
    Ok(())
}

impl Array {
    /// Places a value that is on no mesh like the array of type `ty`.
    ///
    /// Dimensions in which the value has fewer elements than the array stay unsharded.
    fn place_like(self, ty: &ArrayType, call: CallSite<'_>) -> Array {
        let (Ok(v), Some(mesh)) = (self.type_ref(), &ty.mesh) else { return self };
        let reduced = ty.spec.reduced_axes();
        if v.mesh.is_some() || reduced.is_empty() && ty.spec.dims().iter().all(|a| a.is_empty()) {
            return self;
        }
        let entry =
            |d: usize| if v.shape[d] != ty.shape[d] { Axes::none() } else { Axes::from(ty.spec.dim(d)) };
        let spec = Spec::from_dims((0..ty.rank()).map(entry).collect()).reduced(reduced);
        self.put_at(mesh, spec, call)
    }
    /// Combines the indexed box with `value`, for indices with dynamic starts.
    ///
    /// `value` has the box's shape, in ascending order.
    fn combine_box(
        &self,
        part: &ResolvedIndex,
        value: &Array,
        combine: Reducer,
        call: CallSite<'_>,
    ) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if value.type_ref().is_err() {
            return value.clone();
        }
        if part.lens().num_elements() == 0 {
            return self.clone();
        }
        let mut args: Vec<ArrayOrLiteral> = vec![self.into(), value.into()];
        let mut dims = Vec::new();
        for (d, side) in part.dims.iter().enumerate() {
            let start = match &side.start {
                SliceStart::Dynamic(i) => ArrayOrLiteral::from(i.resolve_negative(ty.shape[d], call)),
                SliceStart::Static(_) if side.len == ty.shape[d] => continue,
                SliceStart::Static(i) => {
                    ArrayOrLiteral::from(Literal { dtype: DType::I64, value: (*i).into() })
                }
            };
            dims.push(d);
            args.push(start);
        }
        apply1(prims::dynamic_update_slice(dims, Some(combine), explicit_out(ty, ty.spec)), &args, call)
    }
    /// Replaces the indexed box by `value`, which has the box's shape, in ascending order.
    fn set_box(&self, part: &ResolvedIndex, value: &Array, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if value.type_ref().is_err() {
            return value.clone();
        }
        if part.lens().num_elements() == 0 {
            return self.clone();
        }
        if part.is_dynamic() {
            // first replace inside the dynamically sliced box, then write the box back
            let inner = |s: &DimSlice| {
                if s.dynamic_start().is_some() { DimSlice::full(s.len) } else { s.ascending() }
            };
            let dims = part.dims.iter().map(inner).collect();
            let inner = ResolvedIndex { dims, dropped: Vec::new(), new_axes: Vec::new() };
            let still =
                |(s, n): (&DimSlice, &usize)| s.dynamic_start().is_some() || s.len == *n && s.step == 1;
            let value = match part.dims.iter().zip(ty.shape.iter()).all(still) {
                true => value.clone(),
                false => self.slice_dynamic(part, call).set_box(&inner, value, call),
            };
            let (dims, starts): (Vec<usize>, Vec<Array>) =
                self.dynamic_starts(part, call).into_iter().unzip();
            let out = explicit_out(ty, ty.spec);
            let args: Vec<ArrayOrLiteral> =
                [self, &value].into_iter().chain(&starts).map(Into::into).collect();
            return apply1(prims::dynamic_update_slice(dims, None, out), &args, call);
        }
        if part.is_full(&ty.shape) {
            return value.clone();
        }
        if !part.has_steps() {
            let start: Vec<usize> = part.bounds().iter().map(|b| b.0).collect();
            return apply1(prims::update_slice(&start), &[self.into(), value.into()], call);
        }
        // with steps: pad the value to the array's shape, and select by a mask of its positions
        let widths = part.pad_widths(&ty.shape);
        let spread = apply1(prims::pad(&widths, self.zero()), &[value.into()], call);
        let mask = apply1(prims::pad(&widths, false.into()), &[value.full_true(call).into()], call);
        mask.select_at(spread.term(), self.term(), call)
    }
}
