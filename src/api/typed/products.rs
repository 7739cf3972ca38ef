//! Matrix products and einsum.

use super::rules::dot::{DotRhs, DotToRhs, MatmulOf, MatmulRhs, MatmulToOf, MatmulToRhs};
use super::rules::einsum::{EinsumRhs, EinsumSets, EinsumToRhs};
use super::sets::{ProductOf, ProductRhs, Sets};
use super::shape::{Letters, Shape};
use super::{Number, SameElem, Typed, TypedArray, convert, equal_sizes, rules::reshard::ProductSets};
use crate::api::array::{einsum, einsum_to};
use crate::core::Element;

/// The result of a matrix product of a `Typed<T, S, V>` and an `R`.
pub type Product<T, S, V, R> =
    Typed<T, MatmulOf<S, <R as TypedArray>::Shape>, ProductOf<V, <R as TypedArray>::Sets>>;
/// The sets of a product whose sharding a spec `P` states.
type SumSets<P, S, V, R> =
    <P as ProductSets<S, <R as TypedArray>::Shape, ProductOf<V, <R as TypedArray>::Sets>>>::Out;
/// The shape of an einsum whose sharding a spec `P` states.
type EinsumToOf<S, R, O, C, P> = <<R as TypedArray>::Shape as EinsumToRhs<S, O, C, P>>::Out;

impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Multiplies (stacks of) matrices, like [`Array::matmul`](crate::Array::matmul).
        ///
        /// If both contracted dims are sharded, the result sharding is ambiguous: use
        /// [`Typed::matmul_to`].
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2, Y: 4 } }
        /// let pod = Pod::mesh()?;
        /// let y: T![f32; 8@X, 4@Y] =
        ///     <T![f32; 8@X, 16]>::ones(&pod).matmul(&<T![f32; 16, 4@Y]>::ones(&pod));
        /// # let _ = y;
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn matmul[R: TypedArray<Elem: SameElem<T>>](&self, b: &R) -> Product<T, S, V, R>
        where [T: Number, R::Shape: MatmulRhs<S>, R::Sets: ProductRhs<V>]
            = equal_sizes::matmul::<S, R::Shape>("matmul", &self.array, b) => self.array.matmul(b),
                with b = b.as_untyped();
        /// Multiplies arrays of rank 1 or 2, like [`Array::dot`](crate::Array::dot).
        pub fn dot[R: TypedArray<Elem: SameElem<T>>](&self, b: &R) -> Product<T, S, V, R>
        where [T: Number, R::Shape: DotRhs<S>, R::Sets: ProductRhs<V>]
            = equal_sizes::matmul::<S, R::Shape>("dot", &self.array, b) => self.array.dot(b),
                with b = b.as_untyped();
        /// Runs [`Typed::matmul`] with result sharding `out`, which may be unreduced.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// mesh! { struct Pod { X: 2, Y: 4 } }
        /// let pod = Pod::mesh()?;
        /// let (x, w) = (<T![f32; 8, 16@X]>::ones(&pod), <T![f32; 16@X, 4]>::ones(&pod));
        /// let y: T![f32; 8@X, 4] = x.matmul_to(&w, P![X, _]); // a reduce-scatter
        /// let z: T![f32; 8, 4; U: X] = x.matmul_to(&w, P![_, _; U: X]); // the sum is deferred
        /// let z: T![f32; 8, 4] = z.reshard(P![_, _]);
        /// # let _ = (y, z);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn matmul_to[R: TypedArray<Elem: SameElem<T>>, P](&self, b: &R, out: P)
            -> Typed<T, MatmulToOf<S, R::Shape, P>, SumSets<P, S, V, R>>
        where [
            T: Number,
            R::Shape: MatmulToRhs<S, P>,
            R::Sets: ProductRhs<V>,
            P: ProductSets<S, R::Shape, ProductOf<V, R::Sets>>,
        ]
            = equal_sizes::matmul::<S, R::Shape>("matmul_to", &self.array, b) => self.array.matmul_to(b, out),
                with (b, out) = (b.as_untyped(), convert::spec::<MatmulToOf<S, R::Shape, P>, P::Out>());
        /// Runs [`Typed::dot`] with result sharding `out`, which may be unreduced.
        pub fn dot_to[R: TypedArray<Elem: SameElem<T>>, P](&self, b: &R, out: P)
            -> Typed<T, MatmulToOf<S, R::Shape, P>, SumSets<P, S, V, R>>
        where [
            T: Number,
            R::Shape: DotToRhs<S, P>,
            R::Sets: ProductRhs<V>,
            P: ProductSets<S, R::Shape, ProductOf<V, R::Sets>>,
        ]
            = equal_sizes::matmul::<S, R::Shape>("dot_to", &self.array, b) => self.array.dot_to(b, out),
                with (b, out) = (b.as_untyped(), convert::spec::<MatmulToOf<S, R::Shape, P>, P::Out>());
        /// Implements [`einsum!`](crate::api::typed::einsum).
        #[doc(hidden)]
        pub fn einsum_by[O, C, R: TypedArray<Elem: SameElem<T>>](&self, subscripts: &str, b: &R)
            -> Typed<T, <R::Shape as EinsumRhs<S, O, C>>::Out, ProductOf<V, R::Sets>>
        where [T: Number, R::Shape: EinsumRhs<S, O, C>, R::Sets: ProductRhs<V>]
            = equal_sizes::einsum::<S, R::Shape>("einsum", subscripts, &self.array, b)
                => einsum(subscripts, [&self.array, b]), with b = b.as_untyped();
        /// Implements [`einsum!`](crate::api::typed::einsum) with a spec.
        #[doc(hidden)]
        pub fn einsum_to_by[O, C, R: TypedArray<Elem: SameElem<T>>, P](&self, subscripts: &str, b: &R, out: P)
            -> Typed<T, EinsumToOf<S, R, O, C, P>, <P as EinsumSets<S, R::Shape, C, ProductOf<V, R::Sets>>>::Out>
        where [
            T: Number,
            R::Shape: EinsumToRhs<S, O, C, P>,
            R::Sets: ProductRhs<V>,
            P: EinsumSets<S, R::Shape, C, ProductOf<V, R::Sets>>,
        ]
            = equal_sizes::einsum::<S, R::Shape>("einsum_to", subscripts, &self.array, b)
                => einsum_to(subscripts, [&self.array, b], out),
                with (b, out) = (b.as_untyped(), convert::spec::<EinsumToOf<S, R, O, C, P>, P::Out>());
        /// Returns this array, and compiles only if it has `N` dims (`D<2>` for two).
        ///
        /// [`einsum!`](crate::api::typed::einsum) calls it on every operand.
        #[doc(hidden)]
        pub fn with_letters[N](&self) -> Typed<T, S::Same, V>
        where [S: Letters<N>]
            = self.array.clone();
    }
}
