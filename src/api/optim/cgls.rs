//! Linear least squares by conjugate gradients, of matrices that are known by their products.

use super::solution::{Leaves, add_scaled, inner, subtract};
use crate::api::array::Array;
use crate::api::transform::while_loop;
use crate::core::DType;

/// A matrix, known by its products with vectors.
pub(super) struct LinearMap<'a> {
    /// The product with a vector.
    pub(super) apply: &'a dyn Fn(&Leaves) -> Leaves,
    /// The product of the transpose with a vector.
    pub(super) transpose: &'a dyn Fn(&Leaves) -> Leaves,
    /// The element type of scalars.
    pub(super) dtype: DType,
    /// The maximum number of products with the matrix.
    pub(super) max_products: u32,
}

/// The state of the iteration.
#[derive(Clone, Debug, atmesh_derive::Tree)]
struct CglsState {
    solution: Leaves,
    /// The target minus the product of the matrix and the solution.
    left: Leaves,
    direction: Leaves,
    /// The sum of squares of the gradient.
    squares: Array,
    products: Array,
}

impl LinearMap<'_> {
    /// Returns the vector for which the sum of squares of the product minus `target`, plus
    /// `damping` times the sum of squares of the vector, is least.
    pub(super) fn solve(&self, target: &Leaves, damping: &Array) -> Leaves {
        let gradient = (self.transpose)(target);
        let squares = inner(&gradient, &gradient, self.dtype);
        let enough = &squares * if self.dtype == DType::F64 { 1e-28 } else { 1e-13 };
        let init = CglsState {
            solution: zeros_like(&gradient),
            left: target.clone(),
            direction: gradient,
            products: squares.zeros_like().astype(DType::I32),
            squares,
        };
        let max = i64::from(self.max_products);
        let done = while_loop(
            init,
            |s| s.squares.gt(&enough) & s.products.lt(max),
            |s: CglsState| self.iterate(s, damping),
        );
        done.solution
    }
    fn iterate(&self, s: CglsState, damping: &Array) -> CglsState {
        let along = (self.apply)(&s.direction);
        let penalty = damping * inner(&s.direction, &s.direction, self.dtype);
        let alpha = &s.squares / (inner(&along, &along, self.dtype) + penalty);
        let alpha = alpha.is_finite().select(&alpha, 0.0);
        let solution = add_scaled(&s.solution, &alpha, &s.direction);
        let left = subtract(&s.left, &add_scaled(&zeros_like(&along), &alpha, &along));
        let gradient = add_scaled(&(self.transpose)(&left), &-damping, &solution);
        let squares = inner(&gradient, &gradient, self.dtype);
        let direction = add_scaled(&gradient, &(&squares / &s.squares), &s.direction);
        CglsState { solution, left, direction, squares, products: s.products + 1 }
    }
}

/// Returns the default of `max_products` for this many unknowns: enough for rounding errors, and
/// bounded for large problems.
pub(super) fn default_products(unknowns: &[Array]) -> u32 {
    let elements = |a: &Array| a.type_ref().map_or(0, |ty| ty.shape.num_elements());
    let n: usize = unknowns.iter().map(elements).sum();
    (2 * n).clamp(4, 200) as u32
}

fn zeros_like(a: &[Array]) -> Leaves {
    a.iter().map(|a| a.zeros_like()).collect()
}
