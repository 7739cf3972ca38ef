//! Fourier transforms.

use super::dims::dim;
use super::{Array, prims};
use crate::diagnostic::{ErrorKind, Fault};
use crate::ops::lines::{Fft, Transform};
use crate::program::Call;
use crate::trace::apply1;
use crate::types::{DType, Shape};
use std::sync::Arc;

/// # Fourier transforms
impl Array {
    /// The discrete Fourier transform along a dimension, Σ x(j)·e^(−2πi·jk/n): complex64 of complex64 and of float32, complex128 of
    /// complex128 and float64. A sharded dimension stays so, and is brought together for it.
    ///
    /// A line has the same bits whatever comes with it and on every processor. Derivatives are by real arguments.
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
        let call = Call::here("fft");
        self.complex_at(call).transformed(Transform::Forward, d, None, call)
    }
    /// The inverse of [`fft`](Array::fft): with + in the exponent, and divided by n.
    #[track_caller]
    pub fn ifft(&self, d: i32) -> Array {
        let call = Call::here("ifft");
        self.complex_at(call).transformed(Transform::Inverse, d, None, call)
    }
    /// The transform of float32 or float64 along a dimension: of n numbers the first n/2 + 1, the others are their conjugates. Where the
    /// dimension is sharded, its axes divide these too.
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
    #[track_caller]
    pub fn rfft(&self, d: i32) -> Array {
        self.transformed(Transform::Real, d, None, Call::here("rfft"))
    }
    /// The inverse of [`rfft`](Array::rfft): n real numbers of n/2 + 1 complex ones, divided by n. The imaginary parts of the first, and for even n
    /// of the last one, do not count.
    #[track_caller]
    pub fn irfft(&self, d: i32, n: usize) -> Array {
        self.transformed(Transform::InverseReal, d, Some(n), Call::here("irfft"))
    }
    /// The transform over the last `dims` dimensions, 1 to 3, as [`fft`](Array::fft) along each of them.
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
        let call = Call::here("fftn");
        self.complex_at(call).over_last(Transform::Forward, dims, None, call)
    }
    /// The inverse of [`fftn`](Array::fftn).
    #[doc(alias = "ifft2")]
    #[track_caller]
    pub fn ifftn(&self, dims: usize) -> Array {
        let call = Call::here("ifftn");
        self.complex_at(call).over_last(Transform::Inverse, dims, None, call)
    }
    /// [`rfft`](Array::rfft) along the last dimension, then [`fft`](Array::fft) along those before it, `dims` in all.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1.0f32, 2.0, 3.0], [4.0, 5.0, 7.0]]);
    /// assert_eq!(type_of(x.rfftn(2)), "complex64[2,2]");
    /// assert!(x.rfftn(2).irfftn(2, 3).allclose(&x)?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "rfft2")]
    #[track_caller]
    pub fn rfftn(&self, dims: usize) -> Array {
        self.over_last(Transform::Real, dims, None, Call::here("rfftn"))
    }
    /// The inverse of [`rfftn`](Array::rfftn): `n` real numbers along the last dimension.
    #[doc(alias = "irfft2")]
    #[track_caller]
    pub fn irfftn(&self, dims: usize, n: usize) -> Array {
        self.over_last(Transform::InverseReal, dims, Some(n), Call::here("irfftn"))
    }
    /// The frequencies of [`fft`](Array::fft)'s n numbers, in cycles a unit of what samples are `step` apart in: float32.
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
        (0..n).map(|k| (at(k) / (n as f64 * step)) as f32).collect()
    }
    /// The frequencies of [`rfft`](Array::rfft)'s n/2 + 1 numbers, as [`fftfreq`](Array::fftfreq).
    #[track_caller]
    pub fn rfftfreq(n: usize, step: f64) -> Array {
        (0..n / 2 + 1).map(|k| (k as f64 / (n as f64 * step)) as f32).collect()
    }
    /// Frequency 0 moved from the first place along a dimension to the middle.
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
        self.roll(self.size_along(d) as i64 / 2, d)
    }
    /// The inverse of [`fftshift`](Array::fftshift).
    #[track_caller]
    pub fn ifftshift(&self, d: i32) -> Array {
        self.roll(-(self.size_along(d) as i64 / 2), d)
    }
    /// The size of a dimension; 0 where there is none.
    fn size_along(&self, d: i32) -> usize {
        self.type_ref().ok().and_then(|ty| Some(ty.shape[dim(d.into(), ty.rank()).ok()?])).unwrap_or(0)
    }
    /// Real numbers as complex ones.
    fn complex_at(&self, call: Call<'_>) -> Array {
        match self.type_ref() {
            Ok(ty) if ty.dtype == DType::F64 => self.astype_at(DType::C128, call),
            Ok(ty) if ty.dtype == DType::F32 => self.astype_at(DType::C64, call),
            _ => self.clone(),
        }
    }
    fn transformed(&self, kind: Transform, d: i32, n: Option<usize>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        let axis = match dim(d.into(), ty.rank()) {
            Ok(axis) => axis,
            Err(fault) => return self.refuse(fault, call),
        };
        if axis + 1 == ty.rank() {
            return self.over_last(kind, 1, n, call);
        }
        // with that dimension last
        let mut order: Vec<usize> = (0..ty.rank()).filter(|d| *d != axis).collect();
        order.push(axis);
        let back: Vec<usize> = (0..ty.rank()).filter_map(|d| order.iter().position(|o| *o == d)).collect();
        self.told(call, |call| {
            let turned = apply1(prims::transpose(&order), &[self.into()], call);
            let made = turned.over_last(kind, 1, n, call);
            apply1(prims::transpose(&back), &[(&made).into()], call)
        })
    }
    /// Over so many last dimensions, with this length of the real side of the last one if it is not the operand's.
    fn over_last(&self, kind: Transform, dims: usize, n: Option<usize>, call: Call<'_>) -> Array {
        let Ok(ty) = self.type_ref() else { return self.clone() };
        if dims > ty.rank() {
            let text = format!("{} is over {dims} dimensions, and {ty} has {}", call.op, ty.rank());
            let fault = Fault::new(ErrorKind::Shape, text).help("give at most as many as it has");
            return self.refuse(fault, call);
        }
        let mut lengths = Shape::from(&ty.shape[ty.rank() - dims..]);
        if let (Some(n), Some(last)) = (n, lengths.sizes_mut().last_mut()) {
            *last = n;
        }
        apply1(Arc::new(Fft { kind, lengths }), &[self.into()], call)
    }
}
