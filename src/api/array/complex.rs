//! Builds complex arrays from real and imaginary parts, and extracts these parts.
//!
//! complex64 has float32 parts, complex128 has float64 parts. Derivatives are taken with respect to
//! real arrays: a differentiated function builds its complex values with [`Array::complex`].

use super::{Array, operand::Operand};
use crate::core::{DType, Result, SourceLocation};
use crate::ir::ops::elementwise::{Binary, Unary};
use crate::ir::program::CallSite;

/// # Complex numbers
impl Array {
    /// Combines real parts (`self`) and imaginary parts (`im`) into complex numbers.
    ///
    /// float32 gives complex64, float64 gives complex128. Shapes broadcast.
    ///
    /// ```
    /// use atmesh::Complex;
    /// use atmesh::prelude::*;
    /// let z = Array::from([1.0f32, 2.0]).complex(Array::from([0.5f32, -1.0]));
    /// assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(1.0, 0.5), Complex::new(2.0, -1.0)]);
    /// assert_eq!((&z * z.conj()).to_string(), "[1.25+0.j 5.  +0.j]");
    /// assert_eq!((&z * Complex::new(0.0, 1.0)).real().to_vec::<f32>()?, [-0.5, 1.0]);
    ///
    /// // derivatives are taken with respect to real arrays
    /// let g = grad(Array::from([3.0f32]), |re| re.complex(4.0).abs().sum(..));
    /// assert_eq!(g.to_vec::<f32>()?, [0.6]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn complex(&self, im: impl Operand) -> Array {
        Array::binary(Binary::Complex, self.term(), im.term(), CallSite::here("complex"))
    }
    forward! {
        /// Returns the real part: float32 for complex64, float64 for complex128.
        ///
        /// ```
        /// use atmesh::Complex;
        /// use atmesh::prelude::*;
        /// let z = Array::from([Complex::new(3.0f32, -4.0)]);
        /// assert_eq!((type_of(&z).to_string(), z.real().to_vec::<f32>()?),
        ///     ("complex64[1]".into(), vec![3.0]));
        /// assert_eq!((z.imag().item::<f32>()?, z.abs().item::<f32>()?), (-4.0, 5.0));
        /// assert!(z.imag().imag().ty().is_err());
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn real() = unary(Unary::Real);
        /// Returns the imaginary part: float32 for complex64, float64 for complex128.
        pub fn imag() = unary(Unary::Imag);
        /// Returns the argument (phase angle) of complex numbers, in radians from −π to π.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let z = Array::from(0.0f32).complex(2.0);
        /// assert_eq!(z.angle().item::<f32>()?, std::f32::consts::FRAC_PI_2);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn angle() = unary(Unary::Angle);
        /// Returns the complex conjugate; real arrays are returned unchanged.
        ///
        /// ```
        /// use atmesh::prelude::*;
        /// let z = Array::from([1.0f32]).complex(2.0);
        /// assert_eq!(z.conj().imag().to_vec::<f32>()?, [-2.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn conj() = conj_at();
    }
    /// Applies [`Array::conj`] for the given call.
    pub(super) fn conj_at(&self, call: CallSite<'_>) -> Array {
        match self.type_ref() {
            Ok(ty) if ty.dtype.is_number() && !ty.dtype.is_complex() => self.clone(),
            _ => self.unary(Unary::Conj, call),
        }
    }
    /// Implements [`Array::allclose_with`] for complex arrays, comparing moduli.
    pub(super) fn allclose_complex(
        &self,
        other: &Array,
        [relative, absolute]: [f64; 2],
        location: SourceLocation,
    ) -> Result<bool> {
        let call = CallSite::new("allclose", location);
        let plain = |x: &Array| -> Result<Array> {
            let x = x.astype_at(DType::C128, call);
            Ok(Array::concrete(
                x.host_data("allclose", location)?,
                DType::C128.array_type(&x.ty()?.shape),
                None,
            ))
        };
        let (a, b) = (plain(self)?, plain(other)?);
        let off = a.binary_with(Binary::Sub, &b, call).unary(Unary::Abs, call);
        let same = a.binary_with(Binary::Eq, &b, call);
        let size = b.unary(Unary::Abs, call);
        let most = size.binary_with(Binary::Mul, relative, call).binary_with(Binary::Add, absolute, call);
        let near = off.binary_with(Binary::Le, &most, call);
        let near = near.binary_with(Binary::And, size.unary(Unary::IsFinite, call), call);
        let close = near.binary_with(Binary::Or, &same, call);
        Ok(close.to_vec::<bool>()?.into_iter().all(|x| x))
    }
}
