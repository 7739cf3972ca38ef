//! Rules of linear algebra: stacks of matrices, whose last two dims every device holds whole.

use super::{reshape_dims::UnshardedShape, slice::SameType};
use crate::sealed::Sealed;
use crate::shape::{DimType, Shape, TDim};
use crate::size::{AddSize, DivideBy, IntoSize, IntoTypenum, Num, Prime, Size, TypenumOf};
use typenum::{Min, Minimum};

/// The shape of (stacks of) matrices with unsharded rows and columns.
#[diagnostic::on_unimplemented(
    message = "linear algebra: `{Self}` is not the shape of matrices that each device holds whole",
    label = "the last two dims are rows and columns, both unsharded; up to four dims before them, in any sharding",
    note = "`reshard` it first, with `_` for the last two dims: `.reshard(P![=, _, _])`"
)]
pub trait Matrices: Shape {
    /// The number of rows.
    type Rows: Size;
    /// The number of columns.
    type Columns: Size;
    /// The dims before the last two.
    type Batch: Shape;
    /// The shape with vectors of `K` elements in place of the matrices.
    type Vectors<K: Size>: Shape;
    /// The shape with matrices of `R` rows and `C` columns.
    type Resized<R: Size, C: Size>: Shape;
}
rule_traits! {
    /// The shape of (stacks of) square matrices with unsharded rows and columns.
    message = "linear algebra: `{Self}` is not the shape of square matrices that each device holds whole",
    label = "the last two dims have one size and are unsharded; up to four dims before them, in any sharding",
    note = "`reshard` it first, with `_` for the last two dims: `.reshard(P![=, _, _])`",
    pub trait SquareMatrices: Matrices {}
    /// The shape of (stacks of) unsharded square matrices.
    message = "matrix_power: `{Self}` is not the shape of unsharded square matrices",
    label = "the last two dims have one size, and no dim is sharded",
    note = "`reshard` it first, with `_` for every dim, or state the result: `x.then::<T![..]>(|x| x.matrix_power(..))`",
    pub trait UnshardedMatrices: SquareMatrices {
        hidden [S: SquareMatrices + UnshardedShape] S: UnshardedMatrices;
    }
    /// The shape of (stacks of) matrices of any sharding.
    message = "`{Self}` has fewer than two dims",
    label = "the last two dims are the rows and columns of matrices; up to four dims before them",
    pub trait LastTwoDims: Shape => Batch: Shape, "The dims before the last two." {}
    /// The shape of (stacks of) square matrices of any sharding, whose diagonals are vectors.
    message = "diagonal: `{Self}` is not the shape of square matrices",
    label = "the last two dims have one size",
    note = "or state the result: `x.then::<T![..]>(|x| x.diagonal(..))`",
    pub trait Diagonals: Shape => Out: Shape, "The shape of the diagonals, sharded like the columns." {}
    /// The shape of the right side of linear systems with matrices of shape `S`.
    message = "solve: a right side of shape `{Self}` does not fit matrices of shape `{S}`",
    label = "expected one row for each row of the matrices, unsharded, and the same dims before; or one vector for one matrix",
    pub trait SolveRhs<S>: Shape => Out: Shape, "The shape of the solutions." {}
}
macro_rules! matrices { ($([$($l:ident)*])*) => { $(
    impl<$($l: DimType,)* R: Size, C: Size> Matrices for ($($l,)* TDim<R>, TDim<C>) {
        type Rows = R;
        type Columns = C;
        type Batch = ($($l,)*);
        type Vectors<K: Size> = ($($l,)* TDim<K>,);
        type Resized<Q: Size, D: Size> = ($($l,)* TDim<Q>, TDim<D>);
    }
    impl<$($l: DimType,)* Z: Size> SquareMatrices for ($($l,)* TDim<Z>, TDim<Z>) {}
    impl<$($l: DimType,)* R: DimType, C: DimType> LastTwoDims for ($($l,)* R, C) { type Batch = ($($l,)*); }
    impl<$($l: DimType,)* Z: Size, A: crate::axis::Shard, B: crate::axis::Shard> Diagonals for ($($l,)* TDim<Z, A>, TDim<Z, B>) {
        type Out = ($($l,)* TDim<Z, B>,);
    }
    impl<$($l: DimType,)* R: Size, C: Size, K: Size> SolveRhs<($($l,)* TDim<R>, TDim<C>)> for ($($l,)* TDim<R>, TDim<K>) {
        type Out = ($($l,)* TDim<C>, TDim<K>);
    }
)* } }
matrices!([] [A1] [A1 A2] [A1 A2 A3] [A1 A2 A3 A4]);
rules! { Out: [R: Size, C: Size] (TDim<R>,): SolveRhs<(TDim<R>, TDim<C>)> = (TDim<C>,); }

rule_traits! {
    /// A size whose minimum with `B` is known at compile time.
    message = "the minimum of the sizes `{Self}` and `{B}` is not known when compiling",
    label = "expected two numbers",
    pub trait MinSize<B>: Size => Out: Size, "The minimum." {
        hidden [A: Size + IntoTypenum, B: IntoTypenum] A: MinSize<B>
            where [TypenumOf<A>: Min<TypenumOf<B>>, Minimum<TypenumOf<A>, TypenumOf<B>>: IntoSize]
            = <Minimum<TypenumOf<A>, TypenumOf<B>> as IntoSize>::Size;
    }
}

/// Selects square factors in a factorization: `a.qr(FullMatrices)`.
#[derive(Clone, Copy, Debug)]
pub struct FullMatrices;
/// Selects factors with min(M, N) columns or rows, for M×N matrices: `a.qr(ThinMatrices)`.
#[derive(Clone, Copy, Debug)]
pub struct ThinMatrices;
/// The inner sizes of the factors of matrices of shape `S`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how large the factors of `{S}` are",
    label = "expected `FullMatrices` or `ThinMatrices`, and matrices whose sizes are numbers"
)]
pub trait FactorSizes<S>: Sealed {
    /// The columns of the left factor, and the rows of `r`.
    type Left: Size;
    /// The rows of the right factor.
    type Right: Size;
    /// The number of singular values.
    type Values: Size;
    /// True for [`FullMatrices`].
    const FULL: bool;
}
#[diagnostic::do_not_recommend]
impl<S: Matrices<Rows: MinSize<S::Columns>>> FactorSizes<S> for FullMatrices {
    type Left = S::Rows;
    type Right = S::Columns;
    type Values = <S::Rows as MinSize<S::Columns>>::Out;
    const FULL: bool = true;
}
#[diagnostic::do_not_recommend]
impl<S: Matrices<Rows: MinSize<S::Columns>>> FactorSizes<S> for ThinMatrices {
    type Left = <S::Rows as MinSize<S::Columns>>::Out;
    type Right = <S::Rows as MinSize<S::Columns>>::Out;
    type Values = <S::Rows as MinSize<S::Columns>>::Out;
    const FULL: bool = false;
}

rule_traits! {
    /// A number of samples of a real Fourier transform, with ⌊n / 2⌋ + 1 results.
    message = "rfft: the number of results for `{Self}` samples is not known when compiling",
    label = "expected a dim whose size is a number",
    note = "or state the result: `x.then::<T![..]>(|x| x.rfft(..))`",
    pub trait RealSamples: Size => Frequencies: Size, "The number of results." {
        hidden [Z: DivideBy<(Prime<2>, ())>] Z: RealSamples
            where [Z: Size, Z::Quotient: AddSize<Num<1>>] = <Z::Quotient as AddSize<Num<1>>>::Out;
    }
    /// The number of results of a real Fourier transform of `K` samples.
    message = "irfft: `{Self}` inputs do not give `{K}` samples",
    label = "n samples have n / 2 + 1 results, rounded down",
    pub trait FrequenciesOf<K>: Size {
        hidden [F: Size, K: RealSamples<Frequencies: SameType<F>>] F: FrequenciesOf<K>;
    }
}
