//! Values of the reference engine: a list of numbers.

use super::scalar;
use crate::diagnostic::Fault;
use crate::runtime::{Slab, listed};
use crate::types::{DType, Number, Scalar, Shape, with_dtype};
use std::fmt;

/// A stored value: its parts one after the other, each row-major.
pub(super) struct Value {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    data: Vec<Scalar>,
}

impl Value {
    /// A value to push elements to.
    pub(super) fn empty(dtype: DType, shape: Shape) -> Value {
        Value { dtype, shape, data: Vec::new() }
    }
    /// One number.
    pub(super) fn scalar(dtype: DType, x: Scalar) -> Value {
        Value { dtype, shape: Shape::scalar(), data: vec![x] }
    }
    /// What a slab holds.
    pub(super) fn of(slab: &Slab) -> Result<Value, Fault> {
        slab.dense()?;
        let n = slab.shape().elements() * slab.copies();
        let data = with_dtype!(slab.dtype(), T => listed(slab.elements::<T>().iter().map(|x| x.scalar()), n));
        Ok(Value { dtype: slab.dtype(), shape: slab.shape().clone(), data: data? })
    }
    /// As a slab of so many parts.
    pub(super) fn to_slab(&self, copies: usize) -> Result<Slab, Fault> {
        with_dtype!(self.dtype, T => self.slab_of::<T>(copies))
    }
    fn slab_of<T: Number>(&self, copies: usize) -> Result<Slab, Fault> {
        let data: Vec<T> = listed(self.data.iter().map(|x| T::of_scalar(*x)), self.data.len())?;
        // a partial value is one buffer of them all
        let flat = Slab::from_elements(Shape::from([data.len()]), &data)?;
        Ok(Slab::new(T::DTYPE, self.shape.clone(), copies, flat.dense()?.clone()))
    }
    /// The element at this place, parts one after the other.
    pub(super) fn at(&self, k: usize) -> Scalar {
        self.data[k]
    }
    /// One more element.
    pub(super) fn push(&mut self, x: Scalar) {
        self.data.push(x);
    }
    /// One part of the same number everywhere.
    pub(super) fn fill(&mut self, x: Scalar) {
        let x = scalar::cut(x, self.dtype);
        self.data.extend(std::iter::repeat_n(x, self.shape.elements()));
    }
    /// Slice `k` along the leading dimension, of each part.
    pub(super) fn slice(&self, k: usize) -> Value {
        let shape: Shape = self.shape[1..].into();
        let n = shape.elements();
        let parts = self.data.chunks((n * self.shape[0]).max(1));
        let data = parts.flat_map(|p| p[k * n..(k + 1) * n].iter().copied()).collect();
        Value { dtype: self.dtype, shape, data }
    }
    /// Values along a new leading dimension, part by part.
    pub(super) fn stack(dtype: DType, shape: Shape, copies: usize, slices: &[std::rc::Rc<Value>]) -> Value {
        let mut data = Vec::new();
        for part in 0..copies {
            for s in slices {
                let n = s.shape.elements();
                data.extend_from_slice(&s.data[part * n..(part + 1) * n]);
            }
        }
        Value { dtype, shape, data }
    }
}

/// `[1, 2]`: flat, since only tests print by this engine.
impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([x], 0) = (self.data.as_slice(), self.shape.rank()) {
            return write!(f, "{x}");
        }
        let all: Vec<_> = self.data.iter().map(|x| x.to_string()).collect();
        write!(f, "[{}]", all.join(", "))
    }
}
