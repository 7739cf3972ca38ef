//! Complex numbers: made of parts, and taken apart.

use super::Array;
use super::operand::Operand;
use crate::diagnostic::{Place, Result};
use crate::ops::elementwise::{Binary, Unary};
use crate::program::Call;
use crate::types::DType;

/// # Complex numbers
impl Array {
    /// The complex numbers self + i·`im`, of float32 (complex64) or float64 (complex128).
    ///
    /// ```
    /// use atmesh::Complex;
    /// use atmesh::prelude::*;
    /// let z = Array::from([1.0f32, 2.0]).complex(Array::from([0.5f32, -1.0]));
    /// assert_eq!(z.to_vec::<Complex<f32>>()?, [Complex::new(1.0, 0.5), Complex::new(2.0, -1.0)]);
    /// assert_eq!((&z * z.conj()).to_string(), "[1.25+0.j 5.  +0.j]");
    /// assert_eq!((&z * Complex::new(0.0, 1.0)).real().to_vec::<f32>()?, [-0.5, 1.0]);
    ///
    /// // derivatives are by the parts, which are real
    /// let g = grad(Array::from([3.0f32]), |re| re.complex(4.0).abs().sum(..));
    /// assert_eq!(g.to_vec::<f32>()?, [0.6]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn complex(&self, im: impl Operand) -> Array {
        Array::binary(Binary::Complex, self.term(), im.term(), Call::here("complex"))
    }
    /// The real part of complex numbers: float32 of complex64, float64 of complex128.
    ///
    /// ```
    /// use atmesh::Complex;
    /// use atmesh::prelude::*;
    /// let z = Array::from([Complex::new(3.0f32, -4.0)]);
    /// assert_eq!((type_of(&z).to_string(), z.real().to_vec::<f32>()?), ("complex64[1]".into(), vec![3.0]));
    /// assert_eq!((z.imag().item::<f32>()?, z.abs().item::<f32>()?), (-4.0, 5.0));
    /// assert!(z.imag().imag().ty().is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn real(&self) -> Array {
        self.unary(Unary::Real, Call::here("real"))
    }
    /// The imaginary part of complex numbers, as [`real`](Array::real).
    #[track_caller]
    pub fn imag(&self) -> Array {
        self.unary(Unary::Imag, Call::here("imag"))
    }
    /// The angle of complex numbers, from −π to π: a float.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let z = Array::from(0.0f32).complex(2.0);
    /// assert_eq!(z.angle().item::<f32>()?, std::f32::consts::FRAC_PI_2);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn angle(&self) -> Array {
        self.unary(Unary::Angle, Call::here("angle"))
    }
    /// The complex conjugate; of other numbers themselves.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let z = Array::from([1.0f32]).complex(2.0);
    /// assert_eq!(z.conj().imag().to_vec::<f32>()?, [-2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn conj(&self) -> Array {
        self.conj_at(Call::here("conj"))
    }
    pub(super) fn conj_at(&self, call: Call<'_>) -> Array {
        match self.type_ref() {
            Ok(ty) if ty.dtype.is_number() && !ty.dtype.is_complex() => self.clone(),
            _ => self.unary(Unary::Conj, call),
        }
    }
    /// [`Array::allclose_by`] of complex numbers, where |…| is the modulus.
    pub(super) fn allclose_complex(
        &self,
        other: &Array,
        [relative, absolute]: [f64; 2],
        place: Place,
    ) -> Result<bool> {
        let call = Call::new("allclose", place);
        let plain = |x: &Array| -> Result<Array> {
            let x = x.astype_at(DType::C128, call);
            Ok(Array::concrete(x.numbers("allclose", place)?, DType::C128.of(&x.ty()?.shape), None))
        };
        let (a, b) = (plain(self)?, plain(other)?);
        let off = a.with(Binary::Sub, &b, call).unary(Unary::Abs, call);
        let same = a.with(Binary::Eq, &b, call);
        let most =
            b.unary(Unary::Abs, call).with(Binary::Mul, relative, call).with(Binary::Add, absolute, call);
        let close = off.with(Binary::Le, &most, call).with(Binary::Or, &same, call);
        Ok(close.to_vec::<bool>()?.into_iter().all(|x| x))
    }
}
