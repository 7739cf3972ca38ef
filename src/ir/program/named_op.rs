//! Named operations, for which StableHLO has an operation or needs only a few.

use super::loop_nest::Reducer;
use crate::core::Precision;
use smallvec::SmallVec;

/// An operation that other array languages have as a single operation.
///
/// The StableHLO export uses it if loop nests express the operation badly or not at all, as for
/// operations on complete rows, matrices and convolutions. (MLIR calls these named ops, in contrast
/// to `linalg.generic`.)
#[derive(Clone, Debug, PartialEq)]
pub enum NamedOp {
    /// A sort of all operands together, by the leading ones, along a dimension.
    /// The sort is stable, and NaN comes last.
    Sort {
        /// The dimension that is sorted.
        axis: usize,
        /// The number of leading operands that are sort keys.
        num_keys: usize,
        /// True if the result is the permutation (int32 indices) instead of the sorted elements.
        indices: bool,
    },
    /// The k largest elements along a dimension and their indices.
    /// NaN counts as the largest; ties go to the lower index.
    TopK {
        /// The dimension.
        axis: usize,
        /// The number of elements.
        k: usize,
    },
    /// A cumulative reduction: each element combined with all elements before it.
    Cumulative {
        /// The dimension.
        axis: usize,
        /// True to run from the end to the start.
        reverse: bool,
        /// The operation; `None` is the logarithm of the sum of exponentials.
        reducer: Option<Reducer>,
    },
    /// The linear recurrence hᵢ = aᵢ·hᵢ₋₁ + bᵢ of operands a and b.
    Recurrence {
        /// The dimension.
        axis: usize,
        /// True to run from the end to the start.
        reverse: bool,
    },
    /// A Fourier transform over the last dimensions.
    Fourier {
        /// The type of transform.
        kind: FftType,
        /// The transform lengths, one per dimension.
        /// For the last dimension, it is the length of the real side.
        lengths: SmallVec<[usize; 3]>,
    },
    /// The Cholesky factorization: the lower triangular l with l·lᵀ = (a + aᵀ)/2.
    Cholesky,
    /// The solution x of a·x = b or x·a = b, where a is triangular.
    TriangularSolve {
        /// True for a·x = b, false for x·a = b.
        left_side: bool,
        /// True if the lower triangle of a is used, false for the upper one.
        lower: bool,
        /// True to use aᵀ instead of a.
        transpose_a: bool,
        /// True if the diagonal of a is taken as 1.
        unit_diagonal: bool,
    },
    /// A product of rows with the matrices of their groups, or the sums over the rows of groups.
    RaggedDot {
        /// True if the result has a matrix for each group, false if it has a row for each row.
        per_group: bool,
        /// The number of batch dimensions, which come first.
        num_batch_dims: usize,
        /// The number of dimensions of the rows.
        num_row_dims: usize,
        /// The precision of float32 products on XLA's accelerators.
        precision: Precision,
    },
    /// A convolution with one group; the filter is not reversed.
    Convolution {
        /// The role of each dimension of the array.
        array: Vec<ConvDim>,
        /// The role of each dimension of the filter.
        filter: Vec<ConvDim>,
        /// The role of each dimension of the result.
        result: Vec<ConvDim>,
        /// The window of each spatial dimension, as five numbers.
        /// They are the stride, padding before, padding after, array dilation and filter dilation.
        windows: Vec<[i64; 5]>,
        /// The precision of float32 products on XLA's accelerators.
        precision: Precision,
    },
}

/// The type of a Fourier transform, by input and output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FftType {
    /// Complex to complex, forward.
    Forward,
    /// Complex to complex, inverse.
    Inverse,
    /// Real to complex.
    Real,
    /// Complex to real.
    InverseReal,
}

/// The role of a dimension of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ConvDim {
    /// The batch dimension; in the filter, the output feature dimension.
    BatchOrOutFeature,
    /// The feature dimension; in the filter, the input feature dimension.
    Feature,
    /// The spatial dimension with this index, along which windows move.
    /// In the filter, the dimension runs over the elements of one window.
    Spatial(usize),
}
