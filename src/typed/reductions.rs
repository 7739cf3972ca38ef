//! Reductions, and what is made of them.

use super::rules::reduce::ReduceDims;
use super::sets::{Made, Sets};
use super::shape::{At, DimNumber, Shape};
use super::{Bits, Float, Typed};
use crate::array::Dims;
use crate::types::Element;
use half::{bf16, f16};

/// The element type of sums: `bool` and narrow integers are summed in 32 bits.
#[diagnostic::on_unimplemented(
    message = "elements of type `{Self}` cannot be summed",
    label = "expected numbers or `bool`"
)]
pub trait Summed: Element {
    /// The element type of the sum.
    type Sum: Element;
}
macro_rules! summed { ($($t:ident $sum:ident),*) => { $( impl Summed for $t { type Sum = $sum; } )* } }
summed!(f16 f16, bf16 bf16, f32 f32, f64 f64, i8 i32, i16 i32, i32 i32, i64 i64, u8 u32, u16 u32, u32 u32, u64 u64, bool i32);

fn dims<S: Shape, I: ReduceDims<S>>() -> Dims {
    let dims = Dims::from(I::numbers(S::DIMS.len()));
    if I::KEEP { Dims::keep(dims) } else { dims }
}

macro_rules! reductions { ($($(#[$doc:meta])* $name:ident $bound:ident $out:ty, $v:ident;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<I: ReduceDims<S>>(&self, over: I) -> Typed<$out, I::Out, V>
        where
            T: $bound,
            V: $v,
        {
            let _ = over;
            Typed::of(self.array.$name(dims::<S, I>()))
        }
    )* }
} }
reductions! {
    /// The sum over dims: `D1`, `(D0, D1)`, `..` (all of them), `keep(D1)` (with size 1). `bool` and narrow integers are summed in 32 bits.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 3]>::ones(&Pod::mesh()?);
    /// let rows: T![f32; 4@X] = x.sum(D1);
    /// let columns: T![f32; ~, 3] = x.sum(keep(D0));
    /// let all: T![f32;] = x.sum(..);
    /// assert_eq!((rows.to_vec()?, columns.to_vec()?, all.item()?), (vec![3.0; 4], vec![4.0; 3], 12.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    sum Summed T::Sum, Sets;
    /// The product over dims.
    prod Summed T::Sum, Made;
    /// The greatest element over dims.
    max Element T, Made;
    /// The least element over dims.
    min Element T, Made;
    /// The mean over dims.
    mean Float T, Made;
    /// The variance (of the population) over dims.
    var Float T, Made;
    /// The standard deviation (of the population) over dims.
    std Float T, Made;
    /// log Σ exp over dims.
    logsumexp Float T, Made;
    /// Whether any element is true, or other than 0.
    any Element bool, Made;
    /// Whether all elements are true, or other than 0.
    all Element bool, Made;
    /// The bits that all elements have.
    bit_and Bits T, Made;
    /// The bits that some element has.
    bit_or Bits T, Made;
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// exp(x) / Σ exp(x) over dims; the type stays.
    #[track_caller]
    pub fn softmax<I: ReduceDims<S>>(&self, over: I) -> Self
    where
        T: Float,
        V: Made,
    {
        let _ = over;
        Typed::of(self.array.softmax(dims::<S, I>()))
    }
    /// The logarithm of [`Typed::softmax`].
    #[track_caller]
    pub fn log_softmax<I: ReduceDims<S>>(&self, over: I) -> Self
    where
        T: Float,
        V: Made,
    {
        let _ = over;
        Typed::of(self.array.log_softmax(dims::<S, I>()))
    }
    /// The index of the first greatest element along a dim.
    #[track_caller]
    pub fn argmax<I: DimNumber>(&self, along: I) -> Typed<i32, <S as At<I::D>>::Without, V>
    where
        S: At<I::D>,
        V: Made,
    {
        let _ = along;
        Typed::of(self.array.argmax(I::NUMBER as i32))
    }
    /// The index of the first least element along a dim.
    #[track_caller]
    pub fn argmin<I: DimNumber>(&self, along: I) -> Typed<i32, <S as At<I::D>>::Without, V>
    where
        S: At<I::D>,
        V: Made,
    {
        let _ = along;
        Typed::of(self.array.argmin(I::NUMBER as i32))
    }
}
