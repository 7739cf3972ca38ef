//! Products of matrices and einsum.

use super::rules::contract::{DotRhs, DotToRhs, MatmulOf, MatmulRhs, MatmulToOf, MatmulToRhs};
use super::rules::einsum::{EinsumRhs, EinsumToRhs};
use super::rules::respec::ProductSets;
use super::sets::{ProductOf, ProductRhs, Sets};
use super::shape::{Letters, Shape};
use super::{Number, SameElem, Typed, TypedArray, door};
use crate::array::{einsum, einsum_to};

/// What a product of a `Typed<T, S, V>` and an `R` gives.
pub type Product<T, S, V, R> =
    Typed<T, MatmulOf<S, <R as TypedArray>::Shape>, ProductOf<V, <R as TypedArray>::Sets>>;

impl<T: Number, S: Shape, V: Sets> Typed<T, S, V> {
    /// The product of (stacks of) matrices; as [`Array::matmul`](crate::Array::matmul).
    ///
    /// Where both contracted dims are sharded, the result's sharding is open: [`Typed::matmul_to`] takes it.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let pod = Pod::mesh()?;
    /// let y: T![f32; 8@X, 4@Y] = <T![f32; 8@X, 16]>::ones(&pod).matmul(&<T![f32; 16, 4@Y]>::ones(&pod));
    /// # let _ = y;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul<R: TypedArray<Elem: SameElem<T>>>(&self, b: &R) -> Product<T, S, V, R>
    where
        R::Shape: MatmulRhs<S>,
        R::Sets: ProductRhs<V>,
    {
        Typed::of(self.array.matmul(b.as_untyped()))
    }
    /// The product of arrays of rank 1 or 2; as [`Array::dot`](crate::Array::dot).
    #[track_caller]
    pub fn dot<R: TypedArray<Elem: SameElem<T>>>(&self, b: &R) -> Product<T, S, V, R>
    where
        R::Shape: DotRhs<S>,
        R::Sets: ProductRhs<V>,
    {
        Typed::of(self.array.dot(b.as_untyped()))
    }
    /// [`Typed::matmul`], sharded (or left unreduced) as `out` says.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2, Y: 4 } }
    /// let pod = Pod::mesh()?;
    /// let (x, w) = (<T![f32; 8, 16@X]>::ones(&pod), <T![f32; 16@X, 4]>::ones(&pod));
    /// let y: T![f32; 8@X, 4] = x.matmul_to(&w, P![X, _]); // a reduce-scatter
    /// let z: T![f32; 8, 4; U: X] = x.matmul_to(&w, P![_, _; U: X]); // the sum is not made yet
    /// let z: T![f32; 8, 4] = z.reshard(P![_, _]);
    /// # let _ = (y, z);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn matmul_to<R: TypedArray<Elem: SameElem<T>>, P>(
        &self,
        b: &R,
        out: P,
    ) -> Typed<T, MatmulToOf<S, R::Shape, P>, <P as ProductSets<S, R::Shape, ProductOf<V, R::Sets>>>::Out>
    where
        R::Shape: MatmulToRhs<S, P>,
        R::Sets: ProductRhs<V>,
        P: ProductSets<S, R::Shape, ProductOf<V, R::Sets>>,
    {
        let _ = out;
        let spec = door::spec::<MatmulToOf<S, R::Shape, P>, P::Out>();
        Typed::of(self.array.matmul_to(b.as_untyped(), spec))
    }
    /// [`Typed::dot`], sharded (or left unreduced) as `out` says.
    #[track_caller]
    pub fn dot_to<R: TypedArray<Elem: SameElem<T>>, P>(
        &self,
        b: &R,
        out: P,
    ) -> Typed<T, MatmulToOf<S, R::Shape, P>, <P as ProductSets<S, R::Shape, ProductOf<V, R::Sets>>>::Out>
    where
        R::Shape: DotToRhs<S, P>,
        R::Sets: ProductRhs<V>,
        P: ProductSets<S, R::Shape, ProductOf<V, R::Sets>>,
    {
        let _ = out;
        let spec = door::spec::<MatmulToOf<S, R::Shape, P>, P::Out>();
        Typed::of(self.array.dot_to(b.as_untyped(), spec))
    }
    /// What [`einsum!`](crate::typed::einsum) calls.
    #[doc(hidden)]
    #[track_caller]
    pub fn einsum_by<O, C, R: TypedArray<Elem: SameElem<T>>>(
        &self,
        subscripts: &str,
        b: &R,
    ) -> Typed<T, <R::Shape as EinsumRhs<S, O, C>>::Out, ProductOf<V, R::Sets>>
    where
        R::Shape: EinsumRhs<S, O, C>,
        R::Sets: ProductRhs<V>,
    {
        Typed::of(einsum(subscripts, [&self.array, b.as_untyped()]))
    }
    /// What [`einsum!`](crate::typed::einsum) with a spec calls.
    #[doc(hidden)]
    #[track_caller]
    pub fn einsum_to_by<O, C, R: TypedArray<Elem: SameElem<T>>, P>(
        &self,
        subscripts: &str,
        b: &R,
        out: P,
    ) -> Typed<T, <R::Shape as EinsumToRhs<S, O, C, P>>::Out, ProductOf<V, R::Sets>>
    where
        R::Shape: EinsumToRhs<S, O, C, P>,
        R::Sets: ProductRhs<V>,
    {
        let _ = out;
        let spec = door::spec::<<R::Shape as EinsumToRhs<S, O, C, P>>::Out, ()>();
        Typed::of(einsum_to(subscripts, [&self.array, b.as_untyped()], spec))
    }
    /// Has `N` dims: what [`einsum!`](crate::typed::einsum) asks of an operand.
    #[doc(hidden)]
    pub fn with_letters<N>(&self) -> &Self
    where
        S: Letters<N>,
    {
        self
    }
}
