//! The dimension numbers of products.

/// The dimension numbers of a product: contracting and batch dimensions of both operands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Contraction {
    /// The contracting dimensions, as pairs `(lhs, rhs)`; the product sums over them.
    pub contracting: Vec<(usize, usize)>,
    /// The batch dimensions, as pairs `(lhs, rhs)`. They come first in the result.
    pub batch: Vec<(usize, usize)>,
}
