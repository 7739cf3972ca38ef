//! Solutions of triangular systems.

use super::line::{Kind, Made, Matrix};
use super::{Part, of_matrices};
use crate::diagnostic::Result;
use crate::ops::build::{cotangent_type, not_linear};
use crate::program::factors::{Dim, Factors, Join};
use crate::program::{Back, Batched, Builder, Familiar, Forward, Primitive, Tangents, Value};
use crate::types::{ArrayType, DType, Shape};
use atmesh_linalg::{Real, Triangle};
use std::sync::Arc;

/// `triangular_solve` of a and b: x of a·x = b, or x·a = b. Of a only the triangle is read.
///
/// The dimension of a that is summed over, and that of b which has its size, are whole; the result's has the sharding of a's other one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TriangularSolve {
    /// Whether a is on the left: a·x = b.
    pub left_side: bool,
    /// Whether a's lower triangle is read, else its upper one.
    pub lower: bool,
    /// Whether aᵀ takes the place of a.
    pub transpose_a: bool,
    /// Whether a's diagonal is taken as 1.
    pub unit_diagonal: bool,
}

impl Primitive for TriangularSolve {
    of_matrices!(@all "triangular_solve", |prim| Batched::alike(prim, false));
    fn params(&self) -> String {
        let TriangularSolve { left_side, lower, transpose_a, unit_diagonal } = self;
        format!(
            "left_side={left_side}, lower={lower}, transpose_a={transpose_a}, unit_diagonal={unit_diagonal}"
        )
    }
    fn familiar(&self, _: &[ArrayType]) -> Option<Familiar> {
        let TriangularSolve { left_side, lower, transpose_a, unit_diagonal } = *self;
        Some(Familiar::TriangularSolve { left_side, lower, transpose_a, unit_diagonal })
    }
    /// The solution for ḃ − ȧ·x.
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let by_a = match &tangents[0] {
            None => None,
            Some(t) => {
                let t = b.part(t, self.part())?;
                let (t, x) = (b.whole_matrices(&t)?, self.whole_in_shared(b, &outputs[0])?);
                let t = if self.transpose_a { b.turned(&t)? } else { t };
                let moved = if self.left_side { b.matmul(&t, &x)? } else { b.matmul(&x, &t)? };
                let moved = b.neg(&moved)?;
                Some(b.fit(&moved, &operands[1].ty)?)
            }
        };
        let Some(t) = b.sum_of(by_a, tangents[1].clone())? else { return Ok(vec![None]) };
        Ok(vec![Some(b.emit1(Arc::new(self.clone()), &[operands[0].clone(), t])?)])
    }
    fn transpose(&self, Back { b, operands, types, cotangents }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None, None]) };
        let Some(a) = &operands[0] else { return Err(not_linear("triangular_solve")) };
        let back = TriangularSolve { transpose_a: !self.transpose_a, ..self.clone() };
        let (a, ct) = (b.whole_matrices(a)?, self.whole_in_shared(b, ct)?);
        let ct = b.emit1(Arc::new(back), &[a, ct])?;
        Ok(vec![None, Some(b.reshard_to(&ct, &cotangent_type(&types[1]))?)])
    }
}

impl TriangularSolve {
    /// The elements of a that are read.
    fn part(&self) -> Part {
        match (self.lower, self.unit_diagonal) {
            (true, false) => Part::Lower,
            (true, true) => Part::BelowDiagonal,
            (false, false) => Part::Upper,
            (false, true) => Part::AboveDiagonal,
        }
    }
    /// A value of the result's shape, unsharded in the dimension that a's other one gives it.
    fn whole_in_shared(&self, b: &mut Builder, x: &Value) -> Result<Value> {
        b.unsplit(x, &[x.ty.rank() - 2 + self.shared()])
    }
}

impl Matrix for TriangularSolve {
    fn operands(&self) -> usize {
        2
    }
    fn shared(&self) -> usize {
        usize::from(!self.left_side)
    }
    fn made(&self, [n, _, k]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, if self.left_side { [n, k] } else { [k, n] }.into())]
    }
    fn rate(&self) -> f64 {
        0.15
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, _, k]: [usize; 3]) -> Vec<Made<T>> {
        let how = Triangle { lower: self.lower, transposed: self.transpose_a, unit: self.unit_diagonal };
        vec![Made::Floats(T::triangular_solve(&x[0], n, how, !self.left_side, &x[1], k))]
    }
    fn loops(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let (a, b) = (&operands[0], &operands[1]);
        let batch = a.rank() - 2;
        let mut f = Factors::default();
        for size in &a.shape[..batch] {
            f.add_joined(*size, Join::Equal);
        }
        let (other, summed) = (f.add(a.shape[batch]), f.add(a.shape[batch]));
        f.loops[summed].whole = true;
        let free = f.add(b.shape[batch + 1 - self.shared()]);
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
}

impl Builder {
    /// L⁻¹·x; with `right` x·L⁻ᵀ.
    pub(super) fn by_lower(&mut self, l: &Value, x: &Value, right: bool) -> Result<Value> {
        let of = TriangularSolve { left_side: !right, lower: true, transpose_a: right, unit_diagonal: false };
        self.emit1(Arc::new(of), &[l.clone(), x.clone()])
    }
    /// x·U⁻¹
    pub(super) fn by_upper(&mut self, u: &Value, x: &Value) -> Result<Value> {
        let of = TriangularSolve { left_side: false, lower: false, transpose_a: false, unit_diagonal: false };
        self.emit1(Arc::new(of), &[u.clone(), x.clone()])
    }
    /// Unsharded along the dimensions of matrices.
    fn whole_matrices(&mut self, x: &Value) -> Result<Value> {
        self.unsplit(x, &[x.ty.rank() - 2, x.ty.rank() - 1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

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
