//! Complex elements and Fourier transforms.

use super::operands::{JoinResult, JoinsElem, RightOperand};
use super::rules::broadcast::ZipRhs;
use super::rules::matrices::{FrequenciesOf, RealSamples};
use super::rules::reshape_dims::UnshardedDim;
use super::sets::{CompleteFor, JoinRhs, Sets};
use super::shape::{DimAccess, DimNumber, DimType, Shape, TDim};
use super::shapes::{DimAt, ReplaceDim};
use super::size::KnownSize;
use super::{Float, Typed, equal_sizes, op};
use crate::core::Element;
use half::{bf16, f16};
use num_complex::Complex;

/// The complex type and the type of the parts that belong to an element type.
///
/// It is a total function; [`ComplexPart`], [`ComplexElement`] and [`Transformed`] say for which
/// types it is used.
pub trait Parts: Element {
    /// The complex element type.
    type Complex: Element;
    /// The element type of real and imaginary parts.
    type Part: Element;
}
macro_rules! parts { ($($t:ty: $part:ty;)*) => { $(
    impl Parts for $t {
        type Complex = Complex<$part>;
        type Part = $part;
    }
)* } }
parts! {
    bool: f32; i8: f32; i16: f32; i32: f32; i64: f64; u8: f32; u16: f32; u32: f32; u64: f64; f16: f32; bf16: f32;
    f32: f32; f64: f64; Complex<f32>: f32; Complex<f64>: f64;
}
/// Floating-point element types with complex numbers: `f32` and `f64`.
#[diagnostic::on_unimplemented(
    message = "there are no complex numbers with parts of type `{Self}`",
    label = "expected `f32` or `f64`",
    note = "convert the array first: `.convert::<f32>()`"
)]
pub trait ComplexPart: Float + Parts {}
impl ComplexPart for f32 {}
impl ComplexPart for f64 {}
/// Complex element types.
#[diagnostic::on_unimplemented(
    message = "this operation is not defined for elements of type `{Self}`",
    label = "expected complex numbers",
    note = "make them of real and imaginary parts first: `re.complex(&im)`"
)]
pub trait ComplexElement: Parts {}
impl ComplexElement for Complex<f32> {}
impl ComplexElement for Complex<f64> {}
/// Element types of the operands of Fourier transforms: floats and complex numbers.
#[diagnostic::on_unimplemented(
    message = "elements of type `{Self}` have no Fourier transform",
    label = "expected `f32`, `f64`, or complex numbers",
    note = "convert the array first: `.convert::<f32>()`"
)]
pub trait Transformed: Parts {}
impl Transformed for f32 {}
impl Transformed for f64 {}
impl Transformed for Complex<f32> {}
impl Transformed for Complex<f64> {}

/// The shape `S` with the frequencies of real samples along dim `I`.
type Spectrum<S, I> = ReplaceDim<S, I, TDim<<<DimAt<S, I> as DimType>::Size as RealSamples>::Frequencies>>;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Returns the real parts. Shape and sharding do not change.
        pub fn real(&self) -> Typed<T::Part, S, V>
        where [T: ComplexElement, V: CompleteFor<op::real>] = self.array.real();
        /// Returns the imaginary parts. Shape and sharding do not change.
        pub fn imag(&self) -> Typed<T::Part, S, V>
        where [T: ComplexElement, V: CompleteFor<op::imag>] = self.array.imag();
        /// Returns the angles in radians, from −π to π. Shape and sharding do not change.
        pub fn angle(&self) -> Typed<T::Part, S, V>
        where [T: ComplexElement, V: CompleteFor<op::angle>] = self.array.angle();
        /// Returns the complex conjugates. The type does not change.
        pub fn conj(&self) -> Typed<T, S, V>
        where [T: ComplexElement, V: CompleteFor<op::conj>] = self.array.conj();
        /// Combines real parts (self) and imaginary parts into complex numbers.
        ///
        /// Dims pair up as in `a + b`.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// use atmesh::Complex;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![f32; 4@X]>::ones(&Pod::mesh()?);
        /// let z: T![Complex<f32>; 4@X] = x.complex(&(&x * 2.0)).conj();
        /// let im: T![f32; 4@X] = z.imag();
        /// assert_eq!(im.to_vec()?, [-2.0; 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn complex[B: RightOperand<Kind: JoinsElem<T, B::Elem>>](&self, im: B)
            -> JoinResult<T::Complex, S, V, B>
        where [T: ComplexPart, B::Shape: ZipRhs<S>, B::Sets: JoinRhs<V>]
            = equal_sizes::right::<S, B>("complex", &self.array, &im) => self.array.complex(im),
                with im = im.right_term();
        /// Computes the discrete Fourier transform along a dim.
        ///
        /// Shape and sharding do not change; the elements of the result are complex.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// use atmesh::Complex;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![f32; 4@X, 8]>::ones(&Pod::mesh()?);
        /// let all: T![Complex<f32>; 4@X, 8] = x.fft(D1);
        /// let half: T![Complex<f32>; 4@X, 5] = x.rfft(D1);
        /// let back: T![f32; 4@X, 8] = half.irfft::<N![8], _>(D1);
        /// assert!(back.allclose(&x)? && all.ifft(D1).real().allclose(&x)?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn fft[I: DimNumber](&self, along: I) -> Typed<T::Complex, S, V>
        where [T: Transformed, S: DimAccess<I::D>, V: CompleteFor<op::fft>]
            = self.array.fft(I::NUMBER as i32);
        /// Computes the inverse of [`Typed::fft`]. Shape and sharding do not change.
        pub fn ifft[I: DimNumber](&self, along: I) -> Typed<T::Complex, S, V>
        where [T: Transformed, S: DimAccess<I::D>, V: CompleteFor<op::ifft>]
            = self.array.ifft(I::NUMBER as i32);
        /// Computes the Fourier transform over the last `dims` dims, from 1 to 3.
        ///
        /// Shape and sharding do not change.
        pub fn fftn(&self, dims: usize) -> Typed<T::Complex, S, V>
        where [T: Transformed, V: CompleteFor<op::fftn>] = self.array.fftn(dims);
        /// Computes the inverse of [`Typed::fftn`]. Shape and sharding do not change.
        pub fn ifftn(&self, dims: usize) -> Typed<T::Complex, S, V>
        where [T: Transformed, V: CompleteFor<op::ifftn>] = self.array.ifftn(dims);
        /// Moves frequency 0 from the start of a dim to its middle. The type does not change.
        pub fn fftshift[I: DimNumber](&self, along: I) -> Self
        where [S: DimAccess<I::D>, V: CompleteFor<op::fftshift>] = self.array.fftshift(I::NUMBER as i32);
        /// Computes the inverse of [`Typed::fftshift`]. The type does not change.
        pub fn ifftshift[I: DimNumber](&self, along: I) -> Self
        where [S: DimAccess<I::D>, V: CompleteFor<op::ifftshift>] = self.array.ifftshift(I::NUMBER as i32);
        /// Computes the Fourier transform of real elements along an unsharded dim.
        ///
        /// The dim of `n` samples becomes one of n/2 + 1 results.
        pub fn rfft[I: DimNumber](&self, along: I) -> Typed<T::Complex, Spectrum<S, I::D>, V>
        where [
            T: ComplexPart,
            S: DimAccess<I::D, Dim: UnshardedDim>,
            <DimAt<S, I::D> as DimType>::Size: RealSamples,
            Spectrum<S, I::D>: Shape,
            V: CompleteFor<op::rfft>,
        ]
            = self.array.rfft(I::NUMBER as i32);
        /// Computes the inverse of [`Typed::rfft`] along an unsharded dim, with `K` real results.
        ///
        /// `K` is twice the number of inputs less one or two.
        pub fn irfft[K: KnownSize + RealSamples, I: DimNumber](&self, along: I)
            -> Typed<T::Part, ReplaceDim<S, I::D, TDim<K>>, V>
        where [
            T: ComplexElement,
            S: DimAccess<I::D, Dim: UnshardedDim>,
            <DimAt<S, I::D> as DimType>::Size: FrequenciesOf<K>,
            ReplaceDim<S, I::D, TDim<K>>: Shape,
            V: CompleteFor<op::irfft>,
        ]
            = self.array.irfft(I::NUMBER as i32, K::VALUE.unwrap_or(0));
    }
}
