//! Reductions over dims, softmax, and argmax.

use super::rules::reduce::ReduceDims;
use super::sets::{CompleteFor, Sets};
use super::shape::{DimAccess, DimNumber, Shape};
use super::{Bits, Float, Typed, op};
use crate::api::array::Dims;
use crate::core::types::Element;
use half::{bf16, f16};

/// The element type of a sum: `bool` and narrow integers are summed in 32 bits.
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

macro_rules! reductions { ($($(#[$doc:meta])* $name:ident $bound:ident $out:ty, $v:path;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name<I: ReduceDims<S>>(&self, over: I) -> Typed<$out, I::Out, V>
        where
            T: $bound,
            V: $v,
        {
            let _ = over;
            Typed::from_rule_result(self.array.$name(dims::<S, I>()))
        }
    )* }
} }
reductions! {
    /// Sums over dims: `D1`, `(D0, D1)`, `..` (all of them), or `keep(D1)` (kept with size 1).
    ///
    /// `bool` and narrow integers are summed in 32 bits.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let x = <T![f32; 4@X, 3]>::ones(&Pod::mesh()?);
    /// let rows: T![f32; 4@X] = x.sum(D1);
    /// let columns: T![f32; ~, 3] = x.sum(keep(D0));
    /// let all: T![f32;] = x.sum(..);
    /// assert_eq!((rows.to_vec()?, columns.to_vec()?, all.item()?),
    ///     (vec![3.0; 4], vec![4.0; 3], 12.0));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    sum Summed T::Sum, Sets;
    /// Multiplies the elements over dims.
    prod Summed T::Sum, CompleteFor<op::prod>;
    /// Returns the maximum over dims.
    max Element T, CompleteFor<op::max>;
    /// Returns the minimum over dims.
    min Element T, CompleteFor<op::min>;
    /// Returns the mean over dims.
    mean Float T, CompleteFor<op::mean>;
    /// Returns the population variance over dims.
    var Float T, CompleteFor<op::var>;
    /// Returns the population standard deviation over dims.
    std Float T, CompleteFor<op::std>;
    /// Computes log Σ exp over dims.
    logsumexp Float T, CompleteFor<op::logsumexp>;
    /// Returns true where any element over dims is true or non-zero.
    any Element bool, CompleteFor<op::any>;
    /// Returns true where all elements over dims are true or non-zero.
    all Element bool, CompleteFor<op::all>;
    /// Computes the bitwise AND over dims.
    bit_and Bits T, CompleteFor<op::bit_and>;
    /// Computes the bitwise OR over dims.
    bit_or Bits T, CompleteFor<op::bit_or>;
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Computes exp(x) / Σ exp(x) over dims. The type does not change.
    #[track_caller]
    pub fn softmax<I: ReduceDims<S>>(&self, over: I) -> Self
    where
        T: Float,
        V: CompleteFor<op::softmax>,
    {
        let _ = over;
        Typed::from_rule_result(self.array.softmax(dims::<S, I>()))
    }
    /// Computes the logarithm of [`Typed::softmax`].
    #[track_caller]
    pub fn log_softmax<I: ReduceDims<S>>(&self, over: I) -> Self
    where
        T: Float,
        V: CompleteFor<op::log_softmax>,
    {
        let _ = over;
        Typed::from_rule_result(self.array.log_softmax(dims::<S, I>()))
    }
    /// Returns the index of the first maximum along a dim.
    #[track_caller]
    pub fn argmax<I: DimNumber>(&self, along: I) -> Typed<i32, <S as DimAccess<I::D>>::Removed, V>
    where
        S: DimAccess<I::D>,
        V: CompleteFor<op::argmax>,
    {
        let _ = along;
        Typed::from_rule_result(self.array.argmax(I::NUMBER as i32))
    }
    /// Returns the index of the first minimum along a dim.
    #[track_caller]
    pub fn argmin<I: DimNumber>(&self, along: I) -> Typed<i32, <S as DimAccess<I::D>>::Removed, V>
    where
        S: DimAccess<I::D>,
        V: CompleteFor<op::argmin>,
    {
        let _ = along;
        Typed::from_rule_result(self.array.argmin(I::NUMBER as i32))
    }
}
