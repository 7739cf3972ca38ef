//! Values of the reference engine: a list of numbers.

use super::scalar;
use crate::runtime::Slab;
use crate::types::{DType, Element, Scalar, Shape};
use half::{bf16, f16};
use std::fmt;

/// A stored value: its parts one after the other, each row-major.
pub(super) struct Value {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    data: Vec<Scalar>,
}

fn from_elements<T: Element>(slab: &Slab, f: impl Fn(T) -> Scalar) -> Vec<Scalar> {
    slab.elements::<T>().iter().map(|x| f(*x)).collect()
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
    pub(super) fn of(slab: &Slab) -> Value {
        let data = match slab.dtype() {
            DType::Bool => from_elements::<bool>(slab, Scalar::Bool),
            DType::I8 => from_elements::<i8>(slab, Scalar::from),
            DType::I16 => from_elements::<i16>(slab, Scalar::from),
            DType::I32 => from_elements::<i32>(slab, Scalar::from),
            DType::I64 => from_elements::<i64>(slab, Scalar::from),
            DType::U8 => from_elements::<u8>(slab, Scalar::from),
            DType::U16 => from_elements::<u16>(slab, Scalar::from),
            DType::U32 => from_elements::<u32>(slab, Scalar::from),
            DType::U64 | DType::Key => from_elements::<u64>(slab, Scalar::from),
            DType::F16 => from_elements::<f16>(slab, |x| Scalar::Float(x.to_f64())),
            DType::BF16 => from_elements::<bf16>(slab, |x| Scalar::Float(x.to_f64())),
            DType::F32 => from_elements::<f32>(slab, Scalar::from),
            DType::F64 => from_elements::<f64>(slab, Scalar::from),
        };
        Value { dtype: slab.dtype(), shape: slab.shape().clone(), data }
    }
    /// As a slab of so many parts.
    pub(super) fn to_slab(&self, copies: usize) -> Slab {
        match self.dtype {
            DType::Bool => self.slab_of(copies, |x| x.to_i128() != 0),
            DType::I8 => self.slab_of(copies, |x| x.to_i128() as i8),
            DType::I16 => self.slab_of(copies, |x| x.to_i128() as i16),
            DType::I32 => self.slab_of(copies, |x| x.to_i128() as i32),
            DType::I64 => self.slab_of(copies, |x| x.to_i128() as i64),
            DType::U8 => self.slab_of(copies, |x| x.to_i128() as u8),
            DType::U16 => self.slab_of(copies, |x| x.to_i128() as u16),
            DType::U32 => self.slab_of(copies, |x| x.to_i128() as u32),
            DType::U64 | DType::Key => self.slab_of(copies, |x| x.to_i128() as u64),
            DType::F16 => self.slab_of(copies, |x| x.to_f16()),
            DType::BF16 => self.slab_of(copies, |x| x.to_bf16()),
            DType::F32 => self.slab_of(copies, |x| x.to_f64() as f32),
            DType::F64 => self.slab_of(copies, Scalar::to_f64),
        }
    }
    fn slab_of<T: Element>(&self, copies: usize, f: impl Fn(Scalar) -> T) -> Slab {
        let data: Vec<T> = self.data.iter().map(|x| f(*x)).collect();
        // a partial value is one buffer of them all
        let flat = Slab::from_elements(Shape::from([data.len()]), &data);
        Slab::new(T::DTYPE, self.shape.clone(), copies, flat.dense().clone())
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
