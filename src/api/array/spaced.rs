//! Vectors of evenly spaced numbers, and of powers with evenly spaced exponents.

use super::Array;
use super::creation::{check_requested_sharding, check_vector, from_data, reject_type};
use crate::core::{ArrayType, Fault, Result, Scalar, ScalarElement, Shape, types::with_dtype};
use crate::exec::runtime::ArrayData;
use crate::ir::program::CallSite;
use crate::kernels::buffer::try_vec_with_capacity;
use std::ops::Range;

/// # Evenly spaced numbers
impl Array {
    /// Returns `num` evenly spaced float32 values from `start` to `stop`.
    ///
    /// The last value is `stop` if `endpoint` is true; otherwise `stop` is excluded.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::linspace(0.0, 1.0, 5, true).to_vec::<f32>()?,
    ///     [0.0, 0.25, 0.5, 0.75, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace(start: f64, stop: f64, num: usize, endpoint: bool) -> Array {
        Array::spaced_at([num].into(), start..stop, endpoint, &|x| x, CallSite::here("linspace"))
    }
    /// Returns evenly spaced values from `start` to `stop` as a vector of the given type.
    ///
    /// The type must have rank 1, and determines the length, the element type and the sharding.
    /// Integers are rounded down. `endpoint` is as in [`Array::linspace`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::linspace_of(F64.array_type([4]).on(&mesh, p!["X"]), 0.0, 1.0, false);
    /// assert_eq!((type_of(&x).to_string(), x.to_vec::<f64>()?),
    ///     ("float64[4@X]".into(), vec![0.0, 0.25, 0.5, 0.75]));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn linspace_of(ty: impl Into<ArrayType>, start: f64, stop: f64, endpoint: bool) -> Array {
        Array::spaced_at(ty.into(), start..stop, endpoint, &|x| x, CallSite::here("linspace_of"))
    }
    /// Returns `num` float32 powers of 10, with exponents evenly spaced from `start` to `stop`.
    ///
    /// `endpoint` is as in [`Array::linspace`].
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::logspace(-1.0, 1.0, 3, true).to_vec::<f32>()?, [0.1, 1.0, 10.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "geomspace")]
    #[track_caller]
    pub fn logspace(start: f64, stop: f64, num: usize, endpoint: bool) -> Array {
        let power = |x| 10f64.powf(x);
        Array::spaced_at([num].into(), start..stop, endpoint, &power, CallSite::here("logspace"))
    }
    /// Returns powers of 10 with evenly spaced exponents, as a vector of the given type.
    ///
    /// The type must have rank 1, and determines the length, the element type and the sharding.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::logspace_of(F64.array_type([3]), 0.0, 2.0, true);
    /// assert_eq!(x.to_vec::<f64>()?, [1.0, 10.0, 100.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn logspace_of(ty: impl Into<ArrayType>, start: f64, stop: f64, endpoint: bool) -> Array {
        let power = |x| 10f64.powf(x);
        Array::spaced_at(ty.into(), start..stop, endpoint, &power, CallSite::here("logspace_of"))
    }
    /// Returns a function of evenly spaced numbers, as a vector of a type.
    fn spaced_at(
        ty: ArrayType,
        Range { start, end: stop }: Range<f64>,
        endpoint: bool,
        function: &dyn Fn(f64) -> f64,
        call: CallSite<'_>,
    ) -> Array {
        if let Err(poisoned) = check_vector(&ty, call) {
            return poisoned;
        }
        let sharding =
            ok_or_return!(check_requested_sharding(&ty, true), |fault| reject_type(fault, &ty, call));
        let num = ty.shape[0];
        let steps = if endpoint { num.saturating_sub(1) } else { num };
        let at = |i: usize| {
            let t = if steps == 0 { 0.0 } else { i as f64 / steps as f64 };
            let x = function(start * (1.0 - t) + stop * t);
            Scalar::Float(if ty.dtype.is_inexact() { x } else { x.floor() })
        };
        let slab = with_dtype!(ty.dtype, T => elements_at::<T>(&ty.shape, &at));
        let slab = ok_or_return!(slab, |fault| reject_type(fault, &ty, call));
        from_data(slab, ty.dtype, &ty.shape, sharding, call)
    }
}

/// Creates the data of a vector of a shape from the function of its elements.
fn elements_at<T: ScalarElement>(shape: &Shape, at: &dyn Fn(usize) -> Scalar) -> Result<ArrayData, Fault> {
    let mut elements = try_vec_with_capacity(shape[0])?;
    for i in 0..shape[0] {
        elements.push(T::from_scalar(at(i)));
    }
    ArrayData::from_elements(shape.clone(), &elements)
}
