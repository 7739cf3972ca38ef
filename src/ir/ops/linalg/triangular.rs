//! Triangular linear systems.

use super::{MatrixRegion, matrix_kernel::MatrixOp, matrix_op, matrix_op_rules};
use crate::core::{ArrayType, DType, Result, Shape};
use crate::ir::program::typing::{cotangent_type, not_linear_error};
use crate::ir::program::{
    BatchedOp, Builder, Dim, ExplicitRule, Factors, JvpArgs, NamedOp, Primitive, Tangents, TransposeArgs,
    Value,
};
use std::sync::Arc;

/// The solution x of a·x = b or x·a = b, where a is triangular: `triangular_solve`.
///
/// The operands are a and b; only one triangle of a is read. The dimension of a that is summed
/// over, and the dimension of b of the same size, must be unsharded. The other dimension of a gives
/// the result its sharding.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TriangularSolve {
    /// If true, a is on the left: a·x = b.
    pub left_side: bool,
    /// If true, the lower triangle of a is read, else the upper one.
    pub lower: bool,
    /// If true, the system has aᵀ instead of a.
    pub transpose_a: bool,
    /// If true, the diagonal of a is taken as 1.
    pub unit_diagonal: bool,
}

impl Primitive for TriangularSolve {
    matrix_op_rules!(@all "triangular_solve", |prim| BatchedOp::all_batched(prim, false));
    fn params(&self) -> String {
        let TriangularSolve { left_side, lower, transpose_a, unit_diagonal } = self;
        format!(
            "left_side={left_side}, lower={lower}, transpose_a={transpose_a}, unit_diagonal={unit_diagonal}"
        )
    }
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        let TriangularSolve { left_side, lower, transpose_a, unit_diagonal } = *self;
        Some(NamedOp::TriangularSolve { left_side, lower, transpose_a, unit_diagonal })
    }
    /// Returns the solution for the right-hand side ḃ − ȧ·x.
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let by_a = match &tangents[0] {
            None => None,
            Some(t) => {
                let t = b.keep_region(t, self.region())?;
                let (t, x) = (b.unshard_matrices(&t)?, self.unshard_shared_dim(b, &outputs[0])?);
                let t = if self.transpose_a { b.matrix_transpose(&t)? } else { t };
                let moved = if self.left_side { b.matmul(&t, &x)? } else { b.matmul(&x, &t)? };
                let moved = b.neg(&moved)?;
                Some(b.fit_to_type(&moved, &operands[1].ty)?)
            }
        };
        let Some(t) = b.add_optional(by_a, tangents[1].clone())? else { return Ok(vec![None]) };
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), &[operands[0].clone(), t])?)])
    }
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, operands, types, cotangents } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let Some(a) = &operands[0] else { return Err(not_linear_error("triangular_solve")) };
        let back = TriangularSolve { transpose_a: !self.transpose_a, ..self.clone() };
        let (a, ct) = (b.unshard_matrices(a)?, self.unshard_shared_dim(b, ct)?);
        let ct = b.emit1(Arc::new(back), &[a, ct])?;
        Ok(vec![None, Some(b.reshard_to(&ct, &cotangent_type(&types[1]))?)])
    }
}

impl TriangularSolve {
    /// Returns the region of a that is read.
    fn region(&self) -> MatrixRegion {
        match (self.lower, self.unit_diagonal) {
            (true, false) => MatrixRegion::Lower,
            (true, true) => MatrixRegion::BelowDiagonal,
            (false, false) => MatrixRegion::Upper,
            (false, true) => MatrixRegion::AboveDiagonal,
        }
    }
    /// Emits `x`, of the result's shape, unsharded in the dimension whose sharding comes from a.
    fn unshard_shared_dim(&self, b: &mut Builder, x: &Value) -> Result<Value> {
        b.unshard_dims(x, &[x.ty.rank() - 2 + self.shared_dim()])
    }
}

matrix_op! { TriangularSolve, 0.15, {
        const NUM_OPERANDS: usize = 2;
        fn shared_dim(&self) -> usize {
            usize::from(!self.left_side)
        }
        fn loops(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
            let (a, b) = (&operands[0], &operands[1]);
            let batch = a.rank() - 2;
            let mut f = Factors::default();
            for size in &a.shape[..batch] {
                f.add_loop_with_rule(*size, ExplicitRule::MustMatch);
            }
            let (other, summed) = (f.add_loop(a.shape[batch]), f.add_loop(a.shape[batch]));
            f.loops[summed].need_replication = true;
            let free = f.add_loop(b.shape[batch + 1 - self.shared_dim()]);
            let pair = |first: usize, second: usize, turned: bool| {
                let (one, two) = if turned { (second, first) } else { (first, second) };
                Dim::each((0..batch).chain([one, two]))
            };
            f.operands = vec![
                pair(other, summed, self.left_side == self.transpose_a),
                pair(summed, free, !self.left_side),
            ];
            f.results = vec![pair(other, free, !self.left_side)];
            f
        }
    }: |self, x, [n, _, k]|
    vec![(Float, if self.left_side { [n, k] } else { [k, n] }.into())] => {
        let (lower, transposed, unit) = (self.lower, self.transpose_a, self.unit_diagonal);
        let how = atmesh_linalg::Triangle { lower, transposed, unit };
        vec![Floats(T::triangular_solve(&x[0], n, how, !self.left_side, &x[1], k))]
    }
}

impl Builder {
    /// Emits L⁻¹·x, or x·L⁻ᵀ if `right`.
    pub(super) fn solve_lower(&mut self, l: &Value, x: &Value, right: bool) -> Result<Value> {
        let of = TriangularSolve { left_side: !right, lower: true, transpose_a: right, unit_diagonal: false };
        self.emit1(Arc::new(of), &[l.clone(), x.clone()])
    }
    /// Emits x·U⁻¹.
    pub(super) fn solve_upper(&mut self, u: &Value, x: &Value) -> Result<Value> {
        let of = TriangularSolve { left_side: false, lower: false, transpose_a: false, unit_diagonal: false };
        self.emit1(Arc::new(of), &[u.clone(), x.clone()])
    }
    /// Emits a reshard of `x` in which matrices are unsharded.
    fn unshard_matrices(&mut self, x: &Value) -> Result<Value> {
        self.unshard_dims(x, &[x.ty.rank() - 2, x.ty.rank() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        the_other_dimension_passes: TriangularSolve { left_side: true, lower: true, transpose_a: false, unit_diagonal: false }, ["float32[2@X,2]", "float32[2,4@Y]"] => r#"
            (a: float32[2@X,2], b: float32[2,4@Y]) {
              c: float32[2@X,4@Y] = triangular_solve[left_side=true, lower=true, transpose_a=false, unit_diagonal=false] a b
              return c
            }
            tangents: (a: float32[2@X,2], b: float32[2,4@Y], c: float32[2@X,2], d: float32[2,4@Y]) {
              e: float32[2@X,4@Y] = triangular_solve[left_side=true, lower=true, transpose_a=false, unit_diagonal=false] a b
              f: int32[2@X,2] = iota[dimension=0, ty=i32[2@X,2], mesh=Mesh(X: 2, Y: 2)]
              g: int32[2@X,2] = iota[dimension=1, ty=i32[2@X,2], mesh=Mesh(X: 2, Y: 2)]
              h: bool[2@X,2] = ge f g
              i: float32[2@X,2] = select h c 0.0
              j: float32[2,2] = reshard[mesh=Mesh(X: 2, Y: 2), spec=p![_, _]] i
              k: float32[2,4@Y] = reshard[mesh=Mesh(X: 2, Y: 2), spec=p![_, "Y"]] e
              l: float32[2,4@Y] = dot_general[contracting=([1], [0]), batch=([], [])] j k
              m: float32[2,4@Y] = neg l
              n: float32[2,4@Y] = add m d
              o: float32[2@X,4@Y] = triangular_solve[left_side=true, lower=true, transpose_a=false, unit_diagonal=false] a n
              return e, o
            }
            cotangents: (a: float32[2@X,2], b: bool[2@X,2], c: float32[2,4@Y], d: float32[2@X,4@Y]) {
              e: float32[2,2] = reshard[mesh=Mesh(X: 2, Y: 2), spec=p![_, _]] a
              f: float32[2,4@Y] = reshard[mesh=Mesh(X: 2, Y: 2), spec=p![_, "Y"]] d
              g: float32[2,4@Y] = triangular_solve[left_side=true, lower=true, transpose_a=true, unit_diagonal=false] e f
              h: float32[2,4@Y] = neg g
              i: float32[2,2] = dot_general[contracting=([1], [1]), batch=([], []), out=p![_, _]] h c
              j: float32[2@X,2] = reshard[mesh=Mesh(X: 2, Y: 2), spec=p!["X", _]] i
              k: float32[2@X,2] = select b j 0.0
              return k, g
            }
        "#;
    }
}
