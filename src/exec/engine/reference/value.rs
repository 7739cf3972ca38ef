//! The values of the reference engine: lists of scalars.

use super::scalar;
use crate::core::{DType, Fault, Scalar, ScalarElement, Shape, types::with_dtype};
use crate::exec::runtime::{ArrayData, try_collect};
use std::fmt;

/// A stored value: its partial values one after another, each in row-major order.
pub(super) struct ReferenceValue {
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    data: Vec<Scalar>,
}

impl ReferenceValue {
    /// Returns a value without elements, to which elements are pushed.
    pub(super) fn empty(dtype: DType, shape: Shape) -> ReferenceValue {
        ReferenceValue { dtype, shape, data: Vec::new() }
    }
    /// Returns a scalar value.
    pub(super) fn scalar(dtype: DType, x: Scalar) -> ReferenceValue {
        ReferenceValue { dtype, shape: Shape::scalar(), data: vec![x] }
    }
    /// Copies the elements of an array.
    pub(super) fn from_array_data(slab: &ArrayData) -> Result<ReferenceValue, Fault> {
        slab.contiguous()?;
        let n = slab.shape().num_elements() * slab.num_partials();
        let data = with_dtype!(slab.dtype(), T => try_collect(slab.elements::<T>().iter().map(|x| x.to_scalar()), n));
        Ok(ReferenceValue { dtype: slab.dtype(), shape: slab.shape().clone(), data: data? })
    }
    /// Converts the value to an array with this number of partial values.
    pub(super) fn to_array_data(&self, copies: usize) -> Result<ArrayData, Fault> {
        with_dtype!(self.dtype, T => self.typed_array_data::<T>(copies))
    }
    fn typed_array_data<T: ScalarElement>(&self, copies: usize) -> Result<ArrayData, Fault> {
        let data: Vec<T> = try_collect(self.data.iter().map(|x| T::from_scalar(*x)), self.data.len())?;
        // the array has one buffer for all partial values
        let flat = ArrayData::from_elements(Shape::from([data.len()]), &data)?;
        Ok(ArrayData::new(T::DTYPE, self.shape.clone(), copies, flat.contiguous()?.clone()))
    }
    /// Returns the element at a linear index, which counts through all partial values.
    pub(super) fn element(&self, k: usize) -> Scalar {
        self.data[k]
    }
    /// Appends an element.
    pub(super) fn push(&mut self, x: Scalar) {
        self.data.push(x);
    }
    /// Appends a partial value whose elements are all `x`.
    pub(super) fn fill(&mut self, x: Scalar) {
        let x = scalar::round_to_dtype(x, self.dtype);
        self.data.extend(std::iter::repeat_n(x, self.shape.num_elements()));
    }
    /// Returns the value, with zeros of their signs instead of subnormal numbers if it `flushes`.
    pub(super) fn flushed_if(mut self, flushes: bool) -> ReferenceValue {
        if flushes {
            self.data.iter_mut().for_each(|x| *x = scalar::flush_subnormals(*x, self.dtype));
        }
        self
    }
    /// Returns slice `k` along the leading dimension of each partial value.
    pub(super) fn slice(&self, k: usize) -> ReferenceValue {
        let shape: Shape = self.shape[1..].into();
        let n = shape.num_elements();
        let pieces = self.data.chunks((n * self.shape[0]).max(1));
        let data = pieces.flat_map(|p| p[k * n..(k + 1) * n].iter().copied()).collect();
        ReferenceValue { dtype: self.dtype, shape, data }
    }
    /// Stacks values along a new leading dimension, separately for each partial value.
    pub(super) fn stack(
        dtype: DType,
        shape: Shape,
        copies: usize,
        slices: &[std::rc::Rc<ReferenceValue>],
    ) -> ReferenceValue {
        let mut data = Vec::new();
        for part in 0..copies {
            for s in slices {
                let n = s.shape.num_elements();
                data.extend_from_slice(&s.data[part * n..(part + 1) * n]);
            }
        }
        ReferenceValue { dtype, shape, data }
    }
}

/// Formats the elements as a flat list such as `[1, 2]`, since only tests print with this engine.
impl fmt::Display for ReferenceValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let ([x], 0) = (self.data.as_slice(), self.shape.rank()) {
            return write!(f, "{x}");
        }
        let all: Vec<_> = self.data.iter().map(|x| x.to_string()).collect();
        write!(f, "[{}]", all.join(", "))
    }
}
