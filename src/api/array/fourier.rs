//! Fourier transforms along one or several dimensions.
//!
//! The primitive transforms trailing dimensions, so other dimensions are transposed to the end and
//! back.

use super::{Array, creation::reject_type, dims::resolve_dim, prims};
use crate::api::trace::apply1;
use crate::core::{DType, ErrorKind, Fault, Shape};
use crate::exec::runtime::{ArrayData, check_available, try_collect};
use crate::ir::ops::along_axis::{Fft, FftKind};
use crate::ir::program::{CallSite, UserOperand};
use std::sync::Arc;

/// Returns the vector of `at(0)`, …, `at(n − 1)` as float32, or an error if it does not fit in
/// memory.
fn frequencies(n: usize, at: impl Fn(usize) -> f64, call: CallSite<'_>) -> Array {
    let ty = DType::F32.array_type([n]);
    let made = ty
        .check_addressable()
        .and_then(|()| check_available(ty.nbytes()))
        .and_then(|()| try_collect((0..n).map(|k| at(k) as f32), n))
        .and_then(|all| ArrayData::from_elements(ty.shape.clone(), &all));
    let slab = ok_or_return!(made, |fault| reject_type(fault, &ty, call));
    Array::concrete(slab, ty, None)
}

/// # Fourier transforms
impl Array {
    /// Computes the discrete Fourier transform along dimension `d`: Σⱼ xⱼ·e^(−2πi·jk/n).
    ///
    /// complex64 and float32 give complex64; complex128 and float64 give complex128. A sharded
    /// dimension keeps its sharding: devices exchange blocks for the transform, so that another
    /// dimension is sharded meanwhile. If there is none, they gather the rows.
    ///
    /// The result of a row is bitwise independent of the other rows, and of the processor.
    /// Derivatives are taken with respect to real arguments.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 0.0, -1.0, 0.0]);
    /// let y = x.fft(0);
    /// assert_eq!(y.to_string(), "[0.+0.j 2.+0.j 0.+0.j 2.+0.j]");
    /// assert_eq!(y.ifft(0).real().to_vec::<f32>()?, x.to_vec::<f32>()?);
    ///
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let many = Array::ones([4, 8]).put(&mesh, p!["X"]);
    /// assert_eq!(type_of(many.fft(1)), "complex64[4@X,8]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn fft(&self, d: i32) -> Array {
        let call = CallSite::here("fft");
        self.to_complex(call).transform_dim(FftKind::Forward, d, None, call)
    }
    /// Computes the inverse of [`fft`](Array::fft): +2πi in the exponent, and a factor 1/n.
    #[track_caller]
    pub fn ifft(&self, d: i32) -> Array {
        let call = CallSite::here("ifft");
        self.to_complex(call).transform_dim(FftKind::Inverse, d, None, call)
    }
    forward! {
        /// Computes the Fourier transform of real input: n/2 + 1 complex outputs.
        ///
        /// The remaining outputs of [`fft`](Array::fft) are complex conjugates of these. Elements
        /// are float32 or float64. If the dimension is sharded, its axes must divide n/2 + 1 too.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([1.0f64, 2.0, 3.0, 4.0]);
        /// let y = x.rfft(0);
        /// assert_eq!(y.to_string(), "[10.+0.j -2.+2.j -2.+0.j]");
        /// assert_eq!(y.irfft(0, 4).to_vec::<f64>()?, [1.0, 2.0, 3.0, 4.0]);
        /// let power = grad(&x, |x| x.rfft(0).abs().square().sum(..));
        /// assert_eq!(power.to_vec::<f64>()?, [12.0, 20.0, 20.0, 28.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn rfft(d: i32) = transform_dim(FftKind::Real, d, None);
        /// Computes the inverse of [`rfft`](Array::rfft): `n` real outputs from n/2 + 1 complex
        /// inputs.
        ///
        /// The imaginary parts of the first input, and for even `n` of the last, are ignored.
        pub fn irfft(d: i32, n: usize) = transform_dim(FftKind::InverseReal, d, Some(n));
        /// Computes the Fourier transform of real input over the last `dims` dimensions.
        ///
        /// This is [`rfft`](Array::rfft) along the last dimension, then [`fft`](Array::fft) along
        /// the others.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let x = Array::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 7.0]]);
        /// assert_eq!(type_of(x.rfftn(2)), "complex64[2,2]");
        /// assert!(x.rfftn(2).irfftn(2, 3).allclose(&x)?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias = "rfft2")]
        pub fn rfftn(dims: usize) = transform_last(FftKind::Real, dims, None);
        /// Computes the inverse of [`rfftn`](Array::rfftn), with `n` outputs along the last
        /// dimension.
        #[doc(alias = "irfft2")]
        pub fn irfftn(dims: usize, n: usize) = transform_last(FftKind::InverseReal, dims, Some(n));
    }
    /// Computes the Fourier transform over the last `dims` dimensions, from 1 to 3.
    ///
    /// A sharded dimension keeps its sharding, as in [`fft`](Array::fft): devices exchange blocks
    /// before and after the transform along it. In a jitted function, `.fftn(2).reshard(..)` to a
    /// sharding of the other dimension omits the second exchange.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::ones([2, 4]);
    /// assert_eq!(x.fftn(2).real().to_string(), "[[8. 0. 0. 0.]\n [0. 0. 0. 0.]]");
    /// assert!(x.fftn(2).allclose(&x.fft(0).fft(1))?);
    /// assert!(x.fftn(3).ty().is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "fft2")]
    #[track_caller]
    pub fn fftn(&self, dims: usize) -> Array {
        let call = CallSite::here("fftn");
        self.to_complex(call).transform_last(FftKind::Forward, dims, None, call)
    }
    /// Computes the inverse of [`fftn`](Array::fftn).
    #[doc(alias = "ifft2")]
    #[track_caller]
    pub fn ifftn(&self, dims: usize) -> Array {
        let call = CallSite::here("ifftn");
        self.to_complex(call).transform_last(FftKind::Inverse, dims, None, call)
    }
    /// Returns the `n` frequencies of the outputs of [`fft`](Array::fft), as float32.
    ///
    /// `step` is the spacing of samples; frequencies are in cycles per unit of this spacing.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::fftfreq(4, 0.5).to_vec::<f32>()?, [0.0, 0.5, -1.0, -0.5]);
    /// assert_eq!(Array::rfftfreq(4, 0.5).to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn fftfreq(n: usize, step: f64) -> Array {
        let at = |k: usize| if k < n.div_ceil(2) { k as f64 } else { k as f64 - n as f64 };
        frequencies(n, |k| at(k) / (n as f64 * step), CallSite::here("fftfreq"))
    }
    /// Returns the n/2 + 1 frequencies of the outputs of [`rfft`](Array::rfft), as float32.
    ///
    /// `step` is the spacing of samples, as in [`fftfreq`](Array::fftfreq).
    #[track_caller]
    pub fn rfftfreq(n: usize, step: f64) -> Array {
        frequencies(n / 2 + 1, |k| k as f64 / (n as f64 * step), CallSite::here("rfftfreq"))
    }
    /// Moves frequency 0 from the start of dimension `d` to its middle.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let shifted = Array::fftfreq(5, 0.2).fftshift(0);
    /// assert_eq!(shifted.to_vec::<f32>()?, [-2.0, -1.0, 0.0, 1.0, 2.0]);
    /// assert_eq!(shifted.ifftshift(0).to_vec::<f32>()?, [0.0, 1.0, 2.0, -2.0, -1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn fftshift(&self, d: i32) -> Array {
        self.roll(self.dim_size(d) as i64 / 2, d)
    }
    /// Computes the inverse of [`fftshift`](Array::fftshift).
    #[track_caller]
    pub fn ifftshift(&self, d: i32) -> Array {
        self.roll(-(self.dim_size(d) as i64 / 2), d)
    }
    /// Converts float32 to complex64 and float64 to complex128.
    fn to_complex(&self, call: CallSite<'_>) -> Array {
        match self.type_ref() {
            Ok(ty) if ty.dtype == DType::F64 => self.astype_at(DType::C128, call),
            Ok(ty) if ty.dtype == DType::F32 => self.astype_at(DType::C64, call),
            _ => self.clone(),
        }
    }
    /// Transforms dimension `d`; `n` is the size of the real side of an inverse real transform.
    fn transform_dim(&self, kind: FftKind, d: i32, n: Option<usize>, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let axis = ok_or_return!(resolve_dim(d.into(), ty.rank()), |fault| self.reject(fault, call));
        if axis + 1 == ty.rank() {
            return self.transform_last(kind, 1, n, call);
        }
        // transpose this dimension to the end
        let mut order: Vec<usize> = (0..ty.rank()).filter(|d| *d != axis).collect();
        order.push(axis);
        let back: Vec<usize> = (0..ty.rank()).filter_map(|d| order.iter().position(|o| *o == d)).collect();
        self.with_call_site(call, |call| {
            let turned = apply1(prims::transpose(&order), &[self.into()], call);
            // errors of the transform name the dimensions of the user's operand
            let source = [UserOperand { index: 0, ty: Some(ty), dims: Some(&order) }];
            let describe = || vec![ty.to_string()];
            let made = turned.transform_last(kind, 1, n, call.with_operands(&describe, &source));
            apply1(prims::transpose(&back), &[(&made).into()], call)
        })
    }
    /// Transforms the last `dims` dimensions.
    ///
    /// `n` is the size of the real side along the last dimension, if it is not the operand's.
    fn transform_last(&self, kind: FftKind, dims: usize, n: Option<usize>, call: CallSite<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if dims > ty.rank() {
            let text = format!("{} is over {dims} dimensions, and {ty} has {}", call.op, ty.rank());
            let fault = Fault::new(ErrorKind::Shape, text).help("give at most as many as it has");
            return self.reject(fault, call);
        }
        let mut lengths = Shape::from(&ty.shape[ty.rank() - dims..]);
        if let (Some(n), Some(last)) = (n, lengths.sizes_mut().last_mut()) {
            *last = n;
        }
        apply1(Arc::new(Fft { kind, lengths }), &[self.into()], call)
    }
}
