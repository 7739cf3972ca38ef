//! Parts of arrays, read and replaced: `slice` and `at`.

use super::index::{Box, Index, Side};
use super::operand::{self, Operand, Term};
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault, Place};
use crate::ops::elementwise::Binary;
use crate::ops::reduce::Reduction;
use crate::sharding::Spec;
use crate::trace::{Arg, apply1, carried, poison, told};
use crate::types::{ArrayType, DType, Shape};
use std::panic::Location;

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
    #[track_caller]
    pub fn slice(&self, index: Index) -> Array {
        self.slice_at("slice", &index, None, Location::caller())
    }
    #[track_caller]
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
    #[track_caller]
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
    #[track_caller]
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
    #[track_caller]
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
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p![]);
    /// assert_eq!(type_of(x.at(ix![..2]).to(p!["X"]).get()), "int32[2@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn to(self, out: Spec) -> At {
        At { out: Some(out), ..self }
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
        self.array.slice_at("at.get", &self.index, self.out, Location::caller())
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
        self.update("at.set", None, value.term(), Location::caller())
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
        self.update("at.add", Some(Binary::Add), value.term(), Location::caller())
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
        self.update("at.mul", Some(Binary::Mul), value.term(), Location::caller())
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
        self.update("at.min", Some(Binary::Min), value.term(), Location::caller())
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
        self.update("at.max", Some(Binary::Max), value.term(), Location::caller())
    }

    #[track_caller]
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
            return Err(super::refusals::split_alike((0, ty, d), (1, value, e)));
        }
    }
    Ok(())
}

impl Array {
    /// The array with `value` (of the box's shape, in forward order) in place of the box.
    #[track_caller]
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
        let mask = value.trues(place).pad(false, widths);
        mask.select(&spread, self)
    }
}
