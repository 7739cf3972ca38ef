//! Elements at indices: arrays of integers say which rows, or which elements, are read, replaced, or combined with others.

use super::dims::dim;
use super::operand;
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::{Axes, AxisType};
use crate::ops::indexing::{Gather, Places, Scatter, nothing};
use crate::program::sentence::{Beyond, Combine};
use crate::program::{Call, Source};
use crate::sharding::Spec;
use crate::trace::{Arg, apply1, carried, poison};
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// What becomes of indices that are beyond what is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[doc(alias("GatherScatterMode", "promise_in_bounds", "fill_or_drop"))]
pub enum Mode {
    /// They mean the nearest element that is there.
    Clip,
    /// They mean nothing: what is read there is NaN, the least signed or the greatest unsigned integer, or true; what is put there is dropped.
    Fill,
}

impl Mode {
    pub(super) fn beyond(self) -> Beyond {
        match self {
            Mode::Clip => Beyond::Clip,
            Mode::Fill => Beyond::Nothing,
        }
    }
}

/// What may be said of an operation that goes by indices: `IndexOptions::default().mode(Mode::Clip)`.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct IndexOptions {
    /// What becomes of indices beyond what is there; [`Mode::Fill`] where it is not said.
    pub mode: Option<Mode>,
    /// The sharding of the result, where the rules leave it open.
    pub out: Option<Spec>,
}

impl IndexOptions {
    /// What becomes of indices beyond what is there.
    pub fn mode(self, mode: Mode) -> IndexOptions {
        IndexOptions { mode: Some(mode), ..self }
    }
    /// The sharding of the result.
    pub fn out(self, out: Spec) -> IndexOptions {
        IndexOptions { out: Some(out), ..self }
    }
    pub(super) fn beyond(self) -> Beyond {
        self.mode.unwrap_or(Mode::Fill).beyond()
    }
}

/// What an array's places are, with the numbers as one array of index vectors.
pub(super) struct At {
    pub(super) places: Places,
    pub(super) numbers: Array,
}

/// Refuses indices that are no integers.
pub(super) fn integers(i: &Array) -> Result<(), Fault> {
    let Ok(ty) = i.type_ref() else { return Ok(()) };
    if ty.dtype.is_integer() {
        return Ok(());
    }
    let fault = Fault::new(ErrorKind::Dtype, format!("indices are integers, not {}", ty.dtype));
    Err(match ty.dtype {
        DType::Bool => fault
            .help("to choose elements by a mask: `mask.select(&x, 0)`")
            .help("to replace those where it holds: `mask.select(&new, &x)`"),
        _ => fault.help("convert it: `.astype(I32)`"),
    })
}

/// Index vectors of numbers that have one shape.
pub(super) fn vectors(numbers: &[Array], call: Call<'_>) -> Array {
    let wide = |i: &Array| i.type_ref().is_ok_and(|t| t.dtype != DType::I32);
    let alike = numbers.len() == 1 || !numbers.iter().any(wide);
    let each: Vec<Array> = numbers
        .iter()
        .map(|i| {
            let rank = i.type_ref().map_or(0, |t| t.rank());
            let i = if alike { i.clone() } else { i.astype_at(DType::I64, call) };
            i.new_dims(&[rank], call)
        })
        .collect();
    match &each[..] {
        [one] => one.clone(),
        all => {
            let rank = all[0].type_ref().map_or(1, |t| t.rank());
            apply1(prims::concatenate(rank - 1), &all.iter().map(Into::into).collect::<Vec<Arg>>(), call)
        }
    }
}

/// The spec over explicit axes, if the array is on a mesh that has some.
pub(super) fn explicit(ty: &ArrayType, spec: Spec) -> Option<Spec> {
    let mesh = ty.mesh.as_ref().filter(|m| m.axis_types().contains(&AxisType::Explicit))?;
    Some(spec.only(|a| mesh.axis_type(a) == Some(AxisType::Explicit)))
}

/// # Indexing by arrays
impl Array {
    /// The elements at indices along a dimension: the indices' dimensions take its place. Negative indices count from the end; beyond it is
    /// [nothing](Mode::Fill).
    ///
    /// The dimension and the indices are unsharded, else [`Array::take_to`] says how the result is sharded: of a table that is sharded over its rows
    /// each device looks its own up, and the results are put together.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4], [5, 6]]);
    /// let ids = Array::from([2, 0, -1]);
    /// assert_eq!(x.take(&ids, 0).to_vec::<i32>()?, [5, 6, 1, 2, 5, 6]);
    /// assert_eq!(x.take(&ids.reshape([3, 1]), 0).shape()?, [3, 1, 2]);
    /// // the gradient adds up what is taken more than once
    /// let g = grad(x.astype(F32), |x| x.take(&ids, 0).sum(..));
    /// assert_eq!(g.to_vec::<f32>()?, [1.0, 1.0, 0.0, 0.0, 2.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("gather", "embedding", "index_select"))]
    #[track_caller]
    pub fn take(&self, indices: &Array, d: i32) -> Array {
        let call = Call::here("take").twin("x.take_to(&indices, d, {})");
        self.take_at(indices, d, IndexOptions::default(), call)
    }
    /// [`Array::take`] with the result sharded so.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let table = Array::arange(0..8).reshape([4, 2]).put(&mesh, p!["X"]);
    /// let ids = Array::from([3, 0, 3]);
    /// let rows = table.take_to(&ids, 0, p![]);
    /// assert_eq!(rows.to_vec::<i32>()?, [6, 7, 0, 1, 6, 7]);
    /// assert_eq!(table.take(&ids, 0).ty().unwrap_err().kind(), atmesh::ErrorKind::Sharding);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn take_to(&self, indices: &Array, d: i32, out: Spec) -> Array {
        self.take_at(indices, d, IndexOptions::default().out(out), Call::here("take_to"))
    }
    /// [`Array::take`] with all that may be said.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::{IndexOptions, Mode};
    /// let x = Array::from([1, 2, 3]);
    /// let ids = Array::from([1, 7]);
    /// assert_eq!(x.take(&ids, 0).to_vec::<i32>()?, [2, i32::MIN]);
    /// let clipped = x.take_with(&ids, 0, IndexOptions::default().mode(Mode::Clip));
    /// assert_eq!(clipped.to_vec::<i32>()?, [2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn take_with(&self, indices: &Array, d: i32, options: IndexOptions) -> Array {
        self.take_at(indices, d, options, Call::here("take_with"))
    }
    pub(super) fn take_at(&self, indices: &Array, d: i32, options: IndexOptions, call: Call<'_>) -> Array {
        if let Some(error) = carried([self, indices].into_iter()) {
            return poison(error);
        }
        let (Ok(ty), Ok(of)) = (self.type_ref(), indices.type_ref()) else { return self.clone() };
        let axis = match integers(indices).and_then(|()| dim(d.into(), ty.rank())) {
            Ok(axis) => axis,
            Err(fault) => return operand::refuse(fault, &[self.into(), indices.into()], call),
        };
        let numbers = vectors(&[indices.counted_from_0(ty.shape[axis], call)], call);
        let at = At { places: Places::rows(ty.rank(), axis, of.rank(), options.beyond()), numbers };
        self.gathered(&at, options.out, call)
    }
    /// The element that an index says along a dimension, at each place of the other dimensions: the array and the indices have one rank, and in
    /// the other dimensions one size or 1.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[3, 1, 2], [9, 7, 8]]);
    /// let best = Array::from([[0], [2]]);
    /// assert_eq!(x.take_along_axis(&best, 1).to_vec::<i32>()?, [3, 8]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn take_along_axis(&self, indices: &Array, d: i32) -> Array {
        let call = Call::here("take_along_axis").twin("x.take_along_axis_to(&indices, d, {})");
        self.along_axis(indices, d, IndexOptions::default(), call)
    }
    /// [`Array::take_along_axis`] with the result sharded so.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..8).reshape([2, 4]).put(&mesh, p![_, "X"]);
    /// let y = x.take_along_axis_to(&Array::from([[3], [0]]), 1, p![]);
    /// assert_eq!(y.to_vec::<i32>()?, [3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn take_along_axis_to(&self, indices: &Array, d: i32, out: Spec) -> Array {
        self.along_axis(indices, d, IndexOptions::default().out(out), Call::here("take_along_axis_to"))
    }
    /// [`Array::take_along_axis`] with all that may be said.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::{IndexOptions, Mode};
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// let clip = IndexOptions::default().mode(Mode::Clip);
    /// assert_eq!(x.take_along_axis_with(&Array::from([[9], [0]]), 1, clip).to_vec::<i32>()?, [2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn take_along_axis_with(&self, indices: &Array, d: i32, options: IndexOptions) -> Array {
        self.along_axis(indices, d, options, Call::here("take_along_axis_with"))
    }
    fn along_axis(&self, indices: &Array, d: i32, options: IndexOptions, call: Call<'_>) -> Array {
        if let Some(error) = carried([self, indices].into_iter()) {
            return poison(error);
        }
        let (Ok(ty), Ok(of)) = (self.type_ref(), indices.type_ref()) else { return self.clone() };
        let refuse = |fault| operand::refuse(fault, &[self.into(), indices.into()], call);
        let axis = match integers(indices).and_then(|()| dim(d.into(), ty.rank())) {
            Ok(axis) => axis,
            Err(fault) => return refuse(fault),
        };
        let fits = |d: usize| d == axis || ty.shape[d] == of.shape[d] || ty.shape[d] == 1 || of.shape[d] == 1;
        if of.rank() != ty.rank() {
            let message = format!("the indices have {} dimensions, and the array {}", of.rank(), ty.rank());
            return refuse(
                Fault::new(ErrorKind::Shape, message).help("give them one rank: `.expand_dims(…)`"),
            );
        }
        if let Some(d) = (0..ty.rank()).find(|d| !fits(*d)) {
            let message =
                format!("dimension {d} is {} of the array and {} of the indices", ty.shape[d], of.shape[d]);
            let fault = Fault::new(ErrorKind::Shape, message).dim(0, d).dim(1, d);
            return refuse(fault.help("make them equal, or one of them 1"));
        }
        // where one of the two has size 1, the other's alone runs
        let both = |d: &usize| *d != axis && ty.shape[*d] == of.shape[*d];
        let one: Vec<usize> =
            (0..ty.rank()).filter(|d| *d != axis && !both(d) && of.shape[*d] == 1).collect();
        let numbers = indices.counted_from_0(ty.shape[axis], call).without(&one, call);
        let kept: Vec<usize> = (0..ty.rank()).filter(|d| !one.contains(d)).collect();
        let batching = kept.iter().enumerate().filter(|(_, d)| both(d)).map(|(k, d)| (*d, k)).collect();
        let of_one = |d: &usize| *d == axis || !both(d) && !one.contains(d);
        let collapsed = (0..ty.rank()).filter(of_one).collect();
        let (of, beyond) = (vec![axis], options.beyond());
        let places = Places { of, collapsed, batching, windows: one, beyond };
        let at = At { places, numbers: vectors(&[numbers], call) };
        self.gathered(&at, options.out, call)
    }
    /// The windows at these places: of dimensions that are not collapsed all, or one where they run with the numbers.
    pub(super) fn gathered(&self, at: &At, out: Option<Spec>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let one = |d: usize| at.places.collapsed.contains(&d) || at.places.batching.iter().any(|b| b.0 == d);
        let sizes = (0..ty.rank()).map(|d| if one(d) { 1 } else { ty.shape[d] }).collect();
        let fill = nothing(ty.dtype);
        let prim = Gather { at: at.places.clone(), sizes, fill, out };
        let apply = |call| apply1(Arc::new(prim), &[self.into(), (&at.numbers).into()], call);
        // one array of indices is told as the user has it, not as the vectors of one number that it becomes
        let of = at.numbers.type_ref().ok().filter(|n| at.places.of.len() == 1 && n.rank() > 0);
        let Some(of) = of.filter(|_| !call.tells_operands()) else { return apply(call) };
        let last = of.rank() - 1;
        let spec = of.spec.with_dims(of.spec.dims().iter().take(last).cloned().collect::<Vec<_>>());
        let indices = ArrayType { shape: of.shape[..last].into(), spec, ..of.clone() };
        let dims: Vec<usize> = (0..=last).collect();
        let sources = [
            Source { number: 0, ty: Some(ty), dims: None },
            Source { number: 1, ty: Some(&indices), dims: Some(&dims) },
        ];
        apply(call.on(&|| vec![ty.to_string(), indices.to_string()], &sources))
    }
    /// The array with windows put at these places, or combined.
    pub(super) fn scattered(
        &self,
        at: &At,
        u: &Array,
        combine: Option<Combine>,
        out: Option<Spec>,
        call: Call<'_>,
    ) -> Array {
        let prim = Scatter { at: at.places.clone(), combine, out };
        apply1(Arc::new(prim), &[self.into(), u.into(), (&at.numbers).into()], call)
    }
}

/// Indices of several dimensions of an array, as arrays of one shape that they are spread to.
pub(super) struct Several {
    /// For each indexed dimension its numbers.
    pub(super) numbers: Vec<(usize, Array)>,
    /// The shape of all of them.
    pub(super) shape: Shape,
    /// The dimension of the windows at which theirs begin.
    pub(super) at: usize,
}

impl Several {
    /// The dimensions of the elements there that these dimensions of the array, of size 1, are.
    fn dropped(&self, dims: &[usize], rank: usize) -> Vec<usize> {
        let indexed = |d: &usize| self.numbers.iter().any(|n| n.0 == *d);
        let rest = (0..rank).filter(|d| !indexed(d)).enumerate();
        let at = |k: usize| if k < self.at { k } else { k + self.shape.rank() };
        rest.filter(|(_, d)| dims.contains(d)).map(|(k, _)| at(k)).collect()
    }
    fn places(&self, ty: &ArrayType, beyond: Beyond, call: Call<'_>) -> At {
        let (of, numbers): (Vec<usize>, Vec<Array>) = self.numbers.iter().cloned().unzip();
        let each = of.iter().zip(&numbers);
        let numbers: Vec<Array> =
            each.map(|(d, i)| i.counted_from_0(ty.shape[*d], call).spread(&self.shape, None, call)).collect();
        let rank = ty.rank() - of.len() + self.shape.rank();
        let windows = (0..rank).filter(|w| !(self.at..self.at + self.shape.rank()).contains(w)).collect();
        let places = Places { collapsed: of.clone(), of, batching: Vec::new(), windows, beyond };
        At { places, numbers: vectors(&numbers, call) }
    }
    /// The elements of an array there, without these dimensions of it.
    pub(super) fn get(
        &self,
        x: &Array,
        dropped: &[usize],
        (mode, out): (Option<Mode>, Option<Spec>),
        call: Call<'_>,
    ) -> Array {
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let dropped = self.dropped(dropped, ty.rank());
        let (shape, _) = self.shown(ty);
        let out = out.map(|spec| {
            let mut dims = spec.padded(shape.rank() - dropped.len()).dims().to_vec();
            dropped.iter().for_each(|d| dims.insert((*d).min(dims.len()), Axes::none()));
            spec.with_dims(dims)
        });
        let places = self.places(ty, mode.unwrap_or(Mode::Clip).beyond(), call);
        x.gathered(&places, out, call).without(&dropped, call)
    }
    /// The array with a value, which broadcasts to the elements there without these dimensions, put or combined.
    pub(super) fn put(
        &self,
        x: &Array,
        (value, dropped): (&Array, &[usize]),
        (combine, mode): (Option<Combine>, Option<Mode>),
        out: Option<Spec>,
        call: Call<'_>,
    ) -> Array {
        let Ok(ty) = x.type_ref() else { return x.clone() };
        let at = self.places(ty, mode.unwrap_or(Mode::Fill).beyond(), call);
        let (shape, entries) = self.shown(ty);
        let like = ty.mesh.clone().zip(explicit(ty, Spec::of(entries))).filter(|_| out.is_none());
        let dropped = self.dropped(dropped, ty.rank());
        let kept: Shape = (0..shape.rank()).filter(|d| !dropped.contains(d)).map(|d| shape[d]).collect();
        // dimensions that both have are sharded the same way, or not at all
        if let (Some((mesh, spec)), Ok(of)) = (&like, value.type_ref()) {
            let entries: Vec<&[crate::mesh::Axis]> =
                (0..shape.rank()).filter(|d| !dropped.contains(d)).map(|d| spec.dim(d)).collect();
            let lead = kept.rank().saturating_sub(of.rank());
            let apart = (0..of.rank()).find(|e| {
                let own = of.spec.dim(*e);
                !own.is_empty() && entries.get(lead + e).is_some_and(|entry| *entry != own)
            });
            if let Some(e) = apart.filter(|_| of.mesh.as_ref() == Some(mesh)) {
                let message = format!(
                    "dimension {e} of the new value is sharded over {}, and what it is for over {}",
                    Axes::from(of.spec.dim(e)),
                    entries.get(lead + e).map_or(Axes::none(), |entry| Axes::from(*entry))
                );
                let whole = of.spec.padded(of.rank()).with_dim(e, &Axes::none());
                let fault = Fault::new(ErrorKind::Sharding, message).dim(1, e);
                let fault = fault.help(format!("reshard it: `.reshard({whole})`"));
                return operand::refuse(fault, &[x.into(), value.into()], call);
            }
        }
        let value = match dropped.is_empty() {
            true => value.clone(),
            false => value.spread(&kept, None, call).new_dims(&dropped, call),
        };
        let value = value.spread(&shape, like.as_ref(), call);
        x.scattered(&at, &value, combine, out, call)
    }
    /// The shape of the elements there, and how they are sharded where the rules say.
    pub(super) fn shown(&self, ty: &ArrayType) -> (Shape, Vec<Axes>) {
        let indexed = |d: &usize| self.numbers.iter().any(|n| n.0 == *d);
        let mut of = (0..ty.rank()).filter(|d| !indexed(d));
        let rank = ty.rank() - self.numbers.len() + self.shape.rank();
        let one = |w: usize| match w.checked_sub(self.at).filter(|k| *k < self.shape.rank()) {
            Some(k) => (self.shape[k], Axes::none()),
            None => of.next().map_or((1, Axes::none()), |d| (ty.shape[d], Axes::from(ty.spec.dim(d)))),
        };
        let (shape, entries): (Vec<usize>, Vec<Axes>) = (0..rank).map(one).unzip();
        (shape.into(), entries)
    }
}
