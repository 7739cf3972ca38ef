//! Reads and updates at index arrays, one-hot vectors, and triangles of matrices.

use super::convert::spec;
use super::rules::reshard::Spec;
use super::rules::take::{
    AlignRhs, AlignToRhs, AtRhs, DiagonalShape, DimsSpec, IndicesOf, TakeOf, TakeRhs, UpdateOf,
};
use super::sets::{CompleteFor, JoinOf, JoinRhs, Sets};
use super::shape::{DimAccess, DimNumber, Push, Shape, TDim};
use super::size::{KnownSize, value_of};
use super::{Integer, JoinsElem, RightOperand, Typed, TypedArray, equal_sizes, op};
use crate::api::array::{Array, DimIndex, IndexUpdate};
use crate::core::Element;
use std::marker::PhantomData;

/// The result of `take_to`: the elements of shape `S` at indices `R` along dim `I`, sharded as `P`
/// says.
pub type TakeToResult<T, S, V, R, I, P> =
    Typed<T, <P as Spec<TakeOf<S, <R as TypedArray>::Shape, I>>>::Out, JoinOf<V, <R as TypedArray>::Sets>>;
type AlignToOf<S, R, I> = <<R as TypedArray>::Shape as AlignToRhs<S, I>>::Out;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Takes the elements at indices along an unsharded dim.
        ///
        /// The indices have any shape. In the result, their dims are where the dim was: `[V, D@X]`
        /// at indices `[B, S]` along dim 0 are `[B, S, D@X]`. Indices are unsharded too; for
        /// others, and for a sharded dim, [`Typed::take_to`] states the sharding of the result.
        ///
        /// Negative indices count from the end. Out-of-bounds indices read a [fill
        /// value](crate::IndexMode::Fill).
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let pod = Pod::mesh()?;
        /// let table = <T![f32; 10, 4@X]>::iota(&pod, D0);
        /// let rows: T![f32; 3, 4@X] = table.take(&<T![i32; 3]>::full(&pod, 7), D0);
        /// assert_eq!(rows.to_vec()?, [7.0; 12]);
        /// let row: T![f32; 4@X] = table.take(&<T![i32;]>::full(&pod, -1), D0);
        /// assert_eq!(row.to_vec()?, [9.0; 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take[R: TypedArray<Elem: Integer>, I: DimNumber](&self, indices: &R, along: I)
            -> Typed<T, TakeOf<S, R::Shape, I::D>, JoinOf<V, R::Sets>>
        where [S: DimAccess<I::D>, R::Shape: TakeRhs<S, I::D>, R::Sets: JoinRhs<V>]
            = self.array.take(indices.as_untyped(), I::NUMBER as i32);
        /// Takes the elements at indices along a dim, with the result sharded as `out` says.
        ///
        /// The spec has an entry for each dim of the result; `=` keeps the sharding that the dim
        /// has in the array or in the indices. If the dim is sharded, each device looks up the
        /// elements that it holds, and the results are combined.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { Data: 2, Model: 2 } }
        /// let pod = Pod::mesh()?;
        /// let table = <T![f32; 10, 4@Model]>::iota(&pod, D0);
        /// let tokens = <T![i32; 4@Data, 3]>::full(&pod, 7);
        /// let embedded: T![f32; 4@Data, 3, 4@Model] = table.take_to(&tokens, D0, P![=, =, =]);
        /// assert_eq!(embedded.to_vec()?, [7.0; 48]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take_to[R: TypedArray<Elem: Integer>, I: DimNumber, P](&self, indices: &R, along: I, out: P)
            -> TakeToResult<T, S, V, R, I::D, P>
        where [
            S: DimAccess<I::D>,
            R::Shape: IndicesOf<S, I::D>,
            R::Sets: JoinRhs<V>,
            P: Spec<TakeOf<S, R::Shape, I::D>> + DimsSpec,
        ]
            = self.array.take_to(indices.as_untyped(), I::NUMBER as i32, out),
                with out = spec::<P::Out, JoinOf<V, R::Sets>>();
        /// Takes one element along a dim for each position in the other dims.
        ///
        /// Indices and array have the same other dims, or a `~` in one of them. The dim and that of
        /// the indices are unsharded; otherwise [`Typed::take_along_axis_to`] states the sharding.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let pod = Pod::mesh()?;
        /// let logits = <T![f32; 4@X, 10]>::iota(&pod, D1);
        /// let labels = <T![i32; 4@X]>::iota(&pod, D0);
        /// let picked: T![f32; 4@X, ~] = logits.take_along_axis(&labels.expand_dims(D1), D1);
        /// assert_eq!(picked.to_vec()?, [0.0, 1.0, 2.0, 3.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take_along_axis[R: TypedArray<Elem: Integer>, I: DimNumber](&self, indices: &R, along: I)
            -> Typed<T, <R::Shape as AlignRhs<S, I::D>>::Out, JoinOf<V, R::Sets>>
        where [S: DimAccess<I::D>, R::Shape: AlignRhs<S, I::D>, R::Sets: JoinRhs<V>]
            = equal_sizes::aligned::<S, R::Shape>("take_along_axis", x, ids, I::NUMBER)
                => x.take_along_axis(ids, I::NUMBER as i32),
                with (x, ids) = (&self.array, indices.as_untyped());
        /// Computes [`Typed::take_along_axis`] with the result sharded as `out` says.
        ///
        /// An entry `=` keeps the sharding of the array's dim, or that of the indices along the
        /// dim.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2, Y: 5 } }
        /// let pod = Pod::mesh()?;
        /// let logits = <T![f32; 4@X, 10@Y]>::iota(&pod, D1);
        /// let labels = <T![i32; 4@X, ~]>::full(&pod, 7);
        /// let picked: T![f32; 4@X, ~] = logits.take_along_axis_to(&labels, D1, P![=, _]);
        /// assert_eq!(picked.to_vec()?, [7.0; 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn take_along_axis_to[R: TypedArray<Elem: Integer>, I: DimNumber, P]
            (&self, indices: &R, along: I, out: P)
            -> Typed<T, <P as Spec<AlignToOf<S, R, I::D>>>::Out, JoinOf<V, R::Sets>>
        where [
            S: DimAccess<I::D>,
            R::Shape: AlignToRhs<S, I::D>,
            R::Sets: JoinRhs<V>,
            P: Spec<AlignToOf<S, R, I::D>> + DimsSpec,
        ]
            = equal_sizes::aligned::<S, R::Shape>("take_along_axis_to", x, ids, I::NUMBER)
                => x.take_along_axis_to(ids, I::NUMBER as i32, spec::<P::Out, JoinOf<V, R::Sets>>()),
                with (x, ids) = (&self.array, indices.as_untyped());
    }
    /// Selects the elements at indices along an unsharded dim, to read or update them.
    ///
    /// The indices are unsharded, and the part has the shape of [`Typed::take`]; a single index may
    /// be along a sharded dim. New values are an array that broadcasts to this shape, or a number.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let pod = Pod::mesh()?;
    /// let counts = <T![i32; 3, 2@X]>::zeros(&pod);
    /// let ids = <T![i32; 4]>::full(&pod, 1);
    /// let counts: T![i32; 3, 2@X] = counts.at(&ids, D0).add(1);
    /// assert_eq!(counts.to_vec()?, [0, 0, 4, 4, 0, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn at<R: TypedArray<Elem: Integer>, I: DimNumber>(
        &self,
        indices: &R,
        along: I,
    ) -> TypedPart<T, S, V, R, I::D>
    where
        S: DimAccess<I::D>,
        R::Shape: AtRhs<S, I::D>,
        R::Sets: JoinRhs<V>,
        V: CompleteFor<op::at>,
    {
        let _ = along;
        let pick = |d| if d == I::NUMBER { DimIndex::from(indices.as_untyped()) } else { DimIndex::from(..) };
        let part = self.array.at((0..S::DIMS.len()).map(pick).collect::<Vec<_>>().into());
        TypedPart {
            part,
            indices: indices.as_untyped().clone(),
            array: self.array.clone(),
            marker: PhantomData,
        }
    }
    forward! {
        /// Encodes integers as one-hot float32 vectors along a new last dim of size `K`.
        ///
        /// Integers outside of `0..K` give vectors of zeros. `.convert::<bf16>()` gives another
        /// element type.
        pub fn one_hot[K: KnownSize](&self) -> Typed<f32, <S as Push<TDim<K>>>::Out, V>
        where [T: Integer, S: Push<TDim<K>>, V: CompleteFor<op::one_hot>]
            = self.array.one_hot(const { value_of::<K>() });
        /// Computes [`Typed::one_hot`] with the result sharded as `out` says, without moving data.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2, Y: 2 } }
        /// let labels = <T![i32; 4@X]>::iota(&Pod::mesh()?, D0);
        /// let hot: T![f32; 4@X, 8@Y] = labels.one_hot_to::<N![8], _>(P![=, Y]);
        /// assert_eq!(hot.sum(D1).to_vec()?, [1.0; 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn one_hot_to[K: KnownSize, P](&self, out: P)
            -> Typed<f32, <P as Spec<<S as Push<TDim<K>>>::Out>>::Out, V>
        where [
            T: Integer,
            S: Push<TDim<K>>,
            V: CompleteFor<op::one_hot_to>,
            P: Spec<<S as Push<TDim<K>>>::Out> + DimsSpec,
        ]
            = self.array.one_hot_to(const { value_of::<K>() }, spec::<P::Out, V>());
        /// Sets the elements above the `k`-th diagonal of the last two dims to zero.
        ///
        /// All dims keep their sharding. The lower triangle of `true` is a causal mask:
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let causal = <T![bool; 4@X, 4]>::ones(&Pod::mesh()?).tril(0);
        /// let rows = causal.to_vec()?;
        /// assert_eq!(rows[..8], [true, false, false, false, true, true, false, false]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn tril(&self, k: i64) -> Self
        where [S: DiagonalShape, V: CompleteFor<op::tril>]
            = self.array.tril(k);
        /// Sets the elements below the `k`-th diagonal of the last two dims to zero.
        ///
        /// All dims keep their sharding.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let x = <T![f32; 2@X, 2]>::ones(&Pod::mesh()?);
        /// assert_eq!(x.triu(1).to_vec()?, [0.0, 1.0, 0.0, 0.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn triu(&self, k: i64) -> Self
        where [S: DiagonalShape, V: CompleteFor<op::triu>]
            = self.array.triu(k);
    }
}

/// The elements of a `Typed<T, S, V>` at indices `R` along dim `I`, returned by [`Typed::at`].
///
/// Updates return a new array; the original does not change.
#[must_use = "`at` does nothing until the part is read or updated"]
pub struct TypedPart<T, S, V, R, I> {
    part: IndexUpdate,
    array: Array,
    indices: Array,
    marker: PhantomData<fn() -> (T, S, V, R, I)>,
}
/// The result of an update by `U` at indices `R` of an array with the sets `V`.
pub type UpdateResult<T, S, V, R, U> =
    Typed<T, S, JoinOf<JoinOf<V, <R as TypedArray>::Sets>, <U as RightOperand>::Sets>>;

macro_rules! updates { ($($(#[$doc:meta])* $name:ident;)*) => {
    // `x.at(&ids, D0).add(&u)` does not add two values of one type, so the operators do not apply
    #[expect(clippy::should_implement_trait, reason = "the names of the untyped methods")]
    impl<T: Element, S: Shape, V: Sets, R: TypedArray, I: DimNumber> TypedPart<T, S, V, R, I>
    where
        R::Shape: IndicesOf<S, I>,
        R::Sets: JoinRhs<V>,
    {
        /// Reads the part. Out-of-bounds indices are clamped, unlike in [`Typed::take`].
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2 } }
        /// let pod = Pod::mesh()?;
        /// let x = <T![i32; 3, 2@X]>::iota(&pod, D0);
        /// assert_eq!(x.at(&<T![i32; 1]>::full(&pod, 7), D0).get().to_vec()?, [2, 2]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[track_caller]
        pub fn get(self) -> Typed<T, TakeOf<S, R::Shape, I>, JoinOf<V, R::Sets>>
        where
            R::Shape: TakeRhs<S, I>,
        {
            Typed::from_rule_result(self.part.get())
        }
        $(
            $(#[$doc])*
            #[track_caller]
            pub fn $name<U: RightOperand<Kind: JoinsElem<T, U::Elem>>>(self, values: U) -> UpdateResult<T, S, V, R, U>
            where
                U::Shape: UpdateOf<TakeOf<S, R::Shape, I>>,
                U::Sets: JoinRhs<JoinOf<V, R::Sets>>,
            {
                let values = values.right_term();
                let of = (&self.array, &self.indices, I::NUMBER);
                match equal_sizes::update::<S, R::Shape, U>(concat!("at.", stringify!($name)), of, &values) {
                    Ok(()) => Typed::from_rule_result(self.part.$name(values)),
                    Err(unequal) => Typed::from_rule_result(unequal),
                }
            }
        )*
    }
} }
updates! {
    /// Returns the array with the part replaced. Where indices repeat, the last value stays.
    set;
    /// Returns the array with values added to the part. Where indices repeat, all are added.
    add;
    /// Returns the array with the part multiplied by values.
    mul;
    /// Returns the array with the part replaced by its elementwise minimum with values.
    min;
    /// Returns the array with the part replaced by its elementwise maximum with values.
    max;
}
