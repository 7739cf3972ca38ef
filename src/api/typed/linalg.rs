//! Linear algebra: stacks of matrices, whose last two dims every device holds whole.

use super::rules::matrices::{FactorSizes, Matrices, MinSize, SolveRhs, SquareMatrices, UnshardedMatrices};
use super::sets::{CompleteFor, JoinOf, JoinRhs, Sets};
use super::{Float, SameElem, Typed, TypedArray, op, shape::Shape};
use crate::core::Element;

macro_rules! functions { ($($(#[$doc:meta])* $name:ident $($argument:ident: $t:ty)?, $shapes:ident => $out:ty;)*) => {
    impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> { $(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(&self $(, $argument: $t)?) -> $out
        where
            T: Float,
            S: $shapes,
            V: CompleteFor<op::$name>,
        {
            Typed::from_rule_result(self.array.$name($($argument)?))
        }
    )* }
} }
functions! {
    /// Returns the lower Cholesky factors of square matrices. The type does not change.
    ///
    /// As for all linear algebra methods, the last two dims are unsharded; the dims before may be
    /// sharded in any way.
    ///
    /// ```
    /// use atmesh::typed::prelude::*;
    /// mesh! { struct Pod { X: 2 } }
    /// let pod = Pod::mesh()?;
    /// let twos = <T![f64; 4@X, 3]>::full(&pod, 2.0).expand_dims(D2).repeat::<N![3], _>(D2);
    /// let a: T![f64; 4@X, 3, 3] = twos.maximum(&twos);
    /// let (w, v): (T![f64; 4@X, 3], T![f64; 4@X, 3, 3]) = a.eigh();
    /// let d: T![f64; 4@X] = a.det();
    /// assert!((w.to_vec()?[2] - 6.0).abs() < 1e-12 && d.to_vec()?[0].abs() < 1e-12);
    /// # let _ = v;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    cholesky, SquareMatrices => Self;
    /// Returns the upper Cholesky factors of square matrices. The type does not change.
    cholesky_upper, SquareMatrices => Self;
    /// Returns the inverses of square matrices. The type does not change.
    inv, SquareMatrices => Self;
    /// Computes the matrix exponential of square matrices. The type does not change.
    expm, SquareMatrices => Self;
    /// Returns the determinants of square matrices, whose dims are removed.
    det, SquareMatrices => Typed<T, S::Batch, V>;
    /// Returns the eigenvalues of symmetric matrices: `[.., N, N]` gives `[.., N]`.
    eigvalsh, SquareMatrices => Typed<T, S::Vectors<S::Rows>, V>;
    /// Returns the pseudoinverses: `[.., M, N]` gives `[.., N, M]`.
    pinv tolerance: Option<f64>, Matrices => Typed<T, S::Resized<S::Columns, S::Rows>, V>;
    /// Returns the ranks of matrices, whose dims are removed.
    matrix_rank tolerance: Option<f64>, Matrices => Typed<i32, S::Batch, V>;
}
impl<T: Element, S: Shape, V: Sets> Typed<T, S, V> {
    forward! {
        /// Raises unsharded square matrices to an integer power. The type does not change.
        pub fn matrix_power(&self, n: i64) -> Self
        where [T: Float, S: UnshardedMatrices, V: CompleteFor<op::matrix_power>]
            = self.array.matrix_power(n);
        /// Returns the signs and the logarithms of the absolute values of determinants.
        pub fn slogdet(&self) -> (Typed<T, S::Batch, V>, Typed<T, S::Batch, V>)
        where [T: Float, S: SquareMatrices, V: CompleteFor<op::slogdet>]
            = self.array.slogdet();
        /// Returns the LU factorization with partial pivoting: `(lu, pivots, permutation)`.
        ///
        /// For matrices `[.., M, N]` the pivots are `[.., min(M, N)]` and the permutation `[..,
        /// M]`.
        pub fn lu(&self) -> (
            Self,
            Typed<i32, S::Vectors<<S::Rows as MinSize<S::Columns>>::Out>, V>,
            Typed<i32, S::Vectors<S::Rows>, V>,
        )
        where [T: Float, S: Matrices<Rows: MinSize<S::Columns>>, V: CompleteFor<op::lu>]
            = self.array.lu();
        /// Returns the QR factorization: `a.qr(ThinMatrices)` of `[.., M, N]` gives `[.., M, K]`
        /// and `[.., K, N]` with K = min(M, N); `a.qr(FullMatrices)` gives `[.., M, M]` and `[..,
        /// M, N]`.
        ///
        /// ```
        /// use atmesh::typed::prelude::*;
        /// use atmesh::typed::rules::matrices::{FullMatrices, ThinMatrices};
        /// mesh! { struct Pod { X: 2 } }
        /// let a = <T![f64; 4@X, 3, 2]>::iota(&Pod::mesh()?, D1);
        /// let (q, r): (T![f64; 4@X, 3, 2], T![f64; 4@X, 2, 2]) = a.qr(ThinMatrices);
        /// assert!(q.matmul(&r).allclose(&a)?);
        /// let (u, s, v) = a.svd(FullMatrices);
        /// let _: (T![f64; 4@X, 3, 3], T![f64; 4@X, 2], T![f64; 4@X, 2, 2]) = (u, s, v);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn qr[F: FactorSizes<S>](&self, factors: F)
            -> (Typed<T, S::Resized<S::Rows, F::Left>, V>, Typed<T, S::Resized<F::Left, S::Columns>, V>)
        where [T: Float, S: Matrices, V: CompleteFor<op::qr>]
            = self.array.qr(F::FULL);
        /// Returns the eigenvalues and eigenvectors of symmetric matrices.
        ///
        /// For matrices `[.., N, N]` they are `[.., N]` and `[.., N, N]`.
        pub fn eigh(&self) -> (Typed<T, S::Vectors<S::Rows>, V>, Self)
        where [T: Float, S: SquareMatrices, V: CompleteFor<op::eigh>]
            = self.array.eigh();
        /// Returns the singular value decomposition `(u, s, vᵀ)`, with sizes like those of
        /// [`Typed::qr`].
        pub fn svd[F: FactorSizes<S>](&self, factors: F) -> (
            Typed<T, S::Resized<S::Rows, F::Left>, V>,
            Typed<T, S::Vectors<F::Values>, V>,
            Typed<T, S::Resized<F::Right, S::Columns>, V>,
        )
        where [T: Float, S: Matrices, V: CompleteFor<op::svd>]
            = self.array.svd(F::FULL);
        /// Returns the singular values: `[.., M, N]` gives `[.., min(M, N)]`.
        pub fn svdvals(&self) -> Typed<T, S::Vectors<<S::Rows as MinSize<S::Columns>>::Out>, V>
        where [T: Float, S: Matrices<Rows: MinSize<S::Columns>>, V: CompleteFor<op::svdvals>]
            = self.array.svdvals();
        /// Solves a·x = b for x, where this array is a, square matrices `[.., N, N]`.
        ///
        /// b is `[.., N, K]`, with the same dims before, or a vector `[N]` for one matrix. The
        /// result has the type of b.
        pub fn solve[R: TypedArray<Elem: SameElem<T>>](&self, b: &R)
            -> Typed<T, <R::Shape as SolveRhs<S>>::Out, JoinOf<V, R::Sets>>
        where [T: Float, S: SquareMatrices, R::Shape: SolveRhs<S>, R::Sets: JoinRhs<V>]
            = self.array.solve(b.as_untyped());
        /// Returns the least-squares solution x of a·x = b, where this array is a, `[.., M, N]`.
        ///
        /// b is `[.., M, K]`, with the same dims before, or a vector `[M]` for one matrix. The
        /// result is `[.., N, K]` or `[N]`.
        pub fn lstsq[R: TypedArray<Elem: SameElem<T>>](&self, b: &R, tolerance: Option<f64>)
            -> Typed<T, <R::Shape as SolveRhs<S>>::Out, JoinOf<V, R::Sets>>
        where [T: Float, S: Matrices, R::Shape: SolveRhs<S>, R::Sets: JoinRhs<V>]
            = self.array.lstsq(b.as_untyped(), tolerance);
    }
}
