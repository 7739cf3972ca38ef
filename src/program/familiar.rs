//! What some operations are in words that other array languages have too.

use super::sentence::Combine;
use smallvec::SmallVec;

/// An operation in words that other array languages have too, where a sentence says it less well or not at all: whole lines, matrices,
/// convolutions. Programs that are written for another system are written in these.
#[derive(Clone, Debug, PartialEq)]
pub enum Familiar {
    /// All operands in the order of the first ones along a dimension; NaN comes last, equal ones stay in order.
    Sort {
        /// Along which dimension.
        axis: usize,
        /// How many operands decide.
        keys: usize,
        /// Whether the result is where the elements come from, int32, not the elements.
        places: bool,
    },
    /// The greatest elements along a dimension, and where they are; NaN is greater than all, of equal ones the first comes first.
    Best {
        /// Along which dimension.
        axis: usize,
        /// How many.
        k: usize,
    },
    /// Each element combined with all before it.
    Running {
        /// Along which dimension.
        axis: usize,
        /// Whether from the end.
        reverse: bool,
        /// How; nothing: the logarithm of the sum of exponentials.
        combine: Option<Combine>,
    },
    /// hᵢ = aᵢ·hᵢ₋₁ + bᵢ of a and b.
    Recurrence {
        /// Along which dimension.
        axis: usize,
        /// Whether from the end.
        reverse: bool,
    },
    /// A Fourier transform over the last dimensions.
    Fourier {
        /// Which one.
        kind: Fourier,
        /// Sizes of the real side in the last dimension, of both in the others.
        lengths: SmallVec<[usize; 3]>,
    },
    /// The lower triangle l of a = l·lᵀ.
    Cholesky,
    /// x of a·x = b or x·a = b, where a is triangular.
    TriangularSolve {
        /// Whether a is on the left.
        left_side: bool,
        /// Whether a's lower triangle is read.
        lower: bool,
        /// Whether aᵀ takes the place of a.
        transpose_a: bool,
        /// Whether a's diagonal is taken as 1.
        unit_diagonal: bool,
    },
    /// A convolution of one group; the filter is not turned round.
    Convolution {
        /// What each dimension of the array is.
        array: Vec<Of>,
        /// What each dimension of the filter is.
        filter: Vec<Of>,
        /// What each dimension of the result is.
        result: Vec<Of>,
        /// For each spatial dimension: stride, padding before and behind, from one element of the array to the next, from one of the
        /// filter to the next.
        windows: Vec<[i64; 5]>,
    },
}

/// Fourier transforms, by what goes in and what comes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fourier {
    /// Complex to complex.
    Forward,
    /// Complex to complex, back.
    Inverse,
    /// Real to complex.
    Real,
    /// Complex to real.
    InverseReal,
}

/// What a dimension of a convolution is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Of {
    /// Examples; of the filter, its features that come out.
    Outer,
    /// Features; of the filter, those that go in.
    Feature,
    /// Windows move over it, or it is a window's.
    Spatial(usize),
}
