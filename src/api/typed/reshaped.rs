//! Sizes of reshaped arrays: those that the types leave open come from the operand.

use super::rules::reshape_dims::{Factored, ReshapesTo, UnshardedShape};
use super::shape::{D, DimAccess, DimInfo, DimNumber, DimType, Insert, Shape, TDim};
use super::shapes::{DimAt, ReplaceDim};
use super::{Typed, convert, convert::spec, rules::slice::MergeDim, sets::Sets, size::Size};
use crate::api::array::Array;
use crate::core::{Element, ErrorKind, Fault};
use crate::ir::program::CallSite;
use atmesh_typed::sealed::Sealed;
use std::any::TypeId;

/// Returns the size with this name in an array of shape `S`, whose sizes are `shape`.
fn size_by_name<S: Shape>(shape: &[usize], name: Option<TypeId>) -> Option<usize> {
    let named = S::DIMS.iter().position(|from| from.name.is_some() && from.name == name);
    shape.get(named?).copied()
}
fn product(sizes: impl IntoIterator<Item = usize>) -> Option<usize> {
    sizes.into_iter().try_fold(1, usize::checked_mul)
}

/// Returns the sizes of an array of shape `S`, whose sizes are `shape`, after a reshape to the
/// shape `R`. `None` if `R` has several sizes that `S` does not determine.
///
/// Sizes without a known value come from the operand, by their names. A single other one is the
/// rest, and several `?` are those of the operand, in order.
fn reshaped_sizes<S: Shape, R: Shape>(shape: &[usize]) -> Option<Vec<usize>> {
    let by_name = |to: &DimInfo| to.size.or_else(|| size_by_name::<S>(shape, to.name));
    let mut sizes: Vec<Option<usize>> = R::DIMS.iter().map(by_name).collect();
    let missing: Vec<usize> = (0..sizes.len()).filter(|d| sizes[*d].is_none()).collect();
    match missing.as_slice() {
        [] => {}
        [one] => {
            let known = product(sizes.iter().flatten().copied())?;
            sizes[*one] = Some(product(shape.iter().copied())?.checked_div(known).unwrap_or(0));
        }
        several => {
            let open = |info: &DimInfo| info.size.is_none() && info.name.is_none();
            let from = S::DIMS.iter().zip(shape).filter(|(info, _)| open(info)).map(|(_, n)| *n);
            if several.iter().any(|d| !open(&R::DIMS[*d])) || from.clone().count() != several.len() {
                return None;
            }
            several.iter().zip(from).for_each(|(d, n)| sizes[*d] = Some(n));
        }
    }
    sizes.into_iter().collect()
}

/// Reshapes an unsharded array to the shape `R`.
#[track_caller]
pub(super) fn reshape<T: Element, S: Shape, R: Shape, V: Sets>(array: &Array) -> Array {
    let call = CallSite::here("reshape");
    let Ok(shape) = array.shape() else { return array.clone() };
    match reshaped_sizes::<S, R>(&shape) {
        Some(sizes) => array.reshape(sizes),
        None => {
            let (from, to) = (convert::text::<T, S, V>(), convert::text::<T, R, V>());
            let fault = fault!(Shape, "several sizes of {to} are not known from those of {from}");
            array.reject(fault.help("state the result: `x.then::<T![..]>(|x| x.reshape(..))?`"), call)
        }
    }
}

/// Splits dim `at` of an array of shape `S` into factors of the sizes `A` and `B`; the result has
/// the shape `R`.
#[track_caller]
pub(super) fn split_dim<S: Shape, R: Shape, V: Sets, A: Size, B: Size>(array: &Array, at: usize) -> Array {
    let call = CallSite::here("split_dim");
    let Ok(shape) = array.shape() else { return array.clone() };
    let n = shape[at];
    let (a, b) = (<TDim<A> as DimType>::INFO, <TDim<B> as DimType>::INFO);
    let size = |info: &DimInfo| info.size.or_else(|| size_by_name::<S>(&shape, info.name));
    let (a_size, b_size) = match (size(&a), size(&b)) {
        (None, Some(b)) => (n.checked_div(b).unwrap_or(0), b),
        (Some(a), None) => (a, n.checked_div(a).unwrap_or(0)),
        (Some(a), Some(b)) => (a, b),
        (None, None) => {
            let message = format!("the sizes {a} and {b} are not known from dimension {at} of size {n}");
            let fault = Fault::new(ErrorKind::Shape, message).highlight_dim(0, at);
            return array
                .reject(fault.help("state the result: `x.then::<T![..]>(|x| x.reshape_to(..))?`"), call);
        }
    };
    let mut sizes = shape.to_vec();
    sizes.splice(at..=at, [a_size, b_size]);
    array.reshape_to(sizes, spec::<R, V>())
}

/// Merges dim `at` of an array and the next one; the result has the shape `R`.
#[track_caller]
pub(super) fn merge_dims<R: Shape, V: Sets>(array: &Array, at: usize) -> Array {
    let Ok(shape) = array.shape() else { return array.clone() };
    let mut sizes = shape.to_vec();
    sizes.splice(at..=at + 1, [shape[at].saturating_mul(shape[at + 1])]);
    array.reshape_to(sizes, spec::<R, V>())
}

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    /// Reshapes an unsharded array to a shape with the same number of elements.
    ///
    /// The shape is a type parameter: `x.reshape::<S![2, 8]>()`. The product of its sizes is that
    /// of the operand's sizes, or the call does not compile. Sizes that are known only at run time
    /// keep their order. With a size `?` the numbers of elements are compared at run time.
    ///
    /// A generic function has a bound with both shapes,
    /// [`ReshapesTo`](super::rules::reshape_dims::ReshapesTo).
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// dim!(Batch);
    /// fn images<B: Size>(x: &T![f32; B, 784]) -> T![f32; B, 28, 28]
    /// where
    ///     S![B, 784]: ReshapesTo<S![B, 28, 28]>,
    /// {
    ///     x.reshape()
    /// }
    /// let x = <T![f32; 10, 784]>::ones(&Pod::mesh()?);
    /// let y: T![f32; 10, 28, 28] = images(&x);
    /// // the size of `Batch` comes from the operand
    /// let batch = y.untyped().typed::<T![f32; Batch, 28, 28]>()?;
    /// let flat: T![f32; 784, Batch] = batch.reshape();
    /// assert_eq!(flat.as_untyped().shape()?, [784, 10]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// ```compile_fail
    /// # use atmesh::typed::prelude::*;
    /// # dim!(Batch);
    /// fn wrong(x: &T![f32; Batch, 6]) -> T![f32; Batch, 7] {
    ///     // reshape: arrays of these shapes have different numbers of elements
    ///     x.reshape()
    /// }
    /// ```
    #[track_caller]
    #[rustfmt::skip] // rustc shows the next line where a call has arguments
    pub fn reshape<R: UnshardedShape>(&self) -> Typed<T, R, V> // a type: x.reshape::<S![4, 32]>()
    where
        S: UnshardedShape + ReshapesTo<R>,
    {
        Typed::from_rule_result(reshape::<T, S, R, V>(&self.array))
    }
    forward! {
        /// Splits a dim into two factors, of which the first keeps the sharding.
        ///
        /// For example: `x.split_dim::<N![32], N![128], _>(D1)`. The sizes are numbers, or names
        /// made by `dim!`; a generic function has the bound [`ProductIs`](super::size::ProductIs).
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// dim!(Embed = 12);
        /// let x = <T![f32; 4, Embed@X]>::ones(&Pod::mesh()?);
        /// let heads: T![f32; 4, 2@X, 6] = x.split_dim::<N![2], N![6], _>(D1);
        /// let back: T![f32; 4, 12@X] = heads.merge_dims(D1);
        /// # let _ = back;
        ///
        /// // heads of a width of `H` times `K`
        /// fn split<D: ProductIs<H, K>, H: Size, K: Size>(x: &T![f32; 4, D]) -> T![f32; 4, H, K] {
        ///     x.split_dim::<H, K, _>(D1)
        /// }
        /// let wide: T![f32; 4, 3, 4] = split(&back.reshard(P![_, _]));
        /// # let _ = wide;
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn split_dim[A: Size, B: Size, I: DimNumber](&self, at: I) -> Typed<T, SplitDim<S, I::D, A, B>, V>
        where [
            S: DimAccess<I::D, Dim: Factored<A, B>>,
            ReplaceDim<S, I::D, <DimAt<S, I::D> as Factored<A, B>>::Minor>:
                Insert<I::D, <DimAt<S, I::D> as Factored<A, B>>::Major>,
        ]
            = split_dim::<S, SplitDim<S, I::D, A, B>, V, A, B>(&self.array, I::NUMBER);
        /// Merges dim `at` and the next one.
        ///
        /// If the next dim is sharded, dim `at` must be sharded too, over other axes. The size of
        /// the merged dim is the product of both: a number, or a
        /// [`SizeProduct`](super::size::SizeProduct) that prints as `Batch*Seq`.
        ///
        /// ```
        /// use atmesh::typed::{prelude::*, size::SizeProduct};
        /// mesh! { struct Pod { X: 2 } }
        /// dim!(Batch);
        /// dim!(Seq);
        /// let x = <T![f32; 4@X, 3, 5]>::ones(&Pod::mesh()?).untyped();
        /// let tokens = x.typed::<T![f32; Batch@X, Seq, 5]>()?.merge_dims(D0);
        /// let tokens: T![f32; SizeProduct<Batch, Seq>@X, 5] = tokens;
        /// type Merged = T![f32; SizeProduct<Batch, Seq>@X, 5];
        /// assert_eq!(Merged::type_text(), "float32[Batch*Seq@X,5]");
        /// assert_eq!(tokens.to_vec()?.len(), 60);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn merge_dims[I: DimNumber + NextDim](&self, at: I) -> Typed<T, MergeDims<S, I>, V>
        where [
            S: DimAccess<I::D> + DimAccess<I::Next>,
            DimAt<S, I::D>: MergeDim<DimAt<S, I::Next>>,
            RemoveDim<S, I::Next>: DimAccess<I::D>,
            MergeDims<S, I>: Shape,
        ]
            = merge_dims::<MergeDims<S, I>, V>(&self.array, I::NUMBER);
    }
}
/// The shape with dim `I` split into `A` and `B`.
pub type SplitDim<S, I, A, B> = <ReplaceDim<S, I, <DimAt<S, I> as Factored<A, B>>::Minor> as Insert<
    I,
    <DimAt<S, I> as Factored<A, B>>::Major,
>>::Out;
type RemoveDim<S, I> = <S as DimAccess<I>>::Removed;
/// The shape with dim `I` and the next one merged.
pub type MergeDims<S, I> = ReplaceDim<
    RemoveDim<S, <I as NextDim>::Next>,
    <I as DimNumber>::D,
    <DimAt<S, <I as DimNumber>::D> as MergeDim<DimAt<S, <I as NextDim>::Next>>>::Out,
>;
/// A dim number that has a successor.
pub trait NextDim: Sealed {
    /// The successor.
    type Next;
}
macro_rules! next { ($($i:literal $j:literal)*) => { $( impl NextDim for D<$i> { type Next = D<$j>; } )* } }
next!(0 1 1 2 2 3 3 4 4 5 5 6 6 7);
