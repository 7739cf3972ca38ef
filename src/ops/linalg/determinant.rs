//! Determinants.

use super::line::{Kind, Made, Matrix};
use super::of_matrices;
use crate::diagnostic::Result;
use crate::ops::elementwise::Binary;
use crate::program::{Forward, Primitive, Tangents};
use crate::types::{DType, Shape};
use atmesh_linalg::Real;

/// `det`: determinants.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Det;

/// `slogdet`: the determinants' signs and the logarithms of their moduli: 0 and −∞ of singular matrices.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slogdet;

/// `cofactors`: the derivatives of determinants by the elements; of singular matrices too.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cofactors;

impl Primitive for Det {
    of_matrices!("det");
    fn params(&self) -> String {
        String::new()
    }
    fn jvp(&self, Forward { b, operands, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let slopes = b.of(Cofactors, &operands[0])?;
        Ok(vec![Some(b.inner(&slopes, t)?)])
    }
}

impl Primitive for Slogdet {
    of_matrices!("slogdet");
    fn params(&self) -> String {
        String::new()
    }
    /// The trace of a⁻¹ ȧ; the sign does not move.
    fn jvp(&self, Forward { b, operands, tangents, .. }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 2]) };
        let inverse = b.of(super::Inv, &operands[0])?;
        let slopes = b.turned(&inverse)?;
        Ok(vec![None, Some(b.inner(&slopes, t)?)])
    }
}

impl Primitive for Cofactors {
    of_matrices!("cofactors");
    fn params(&self) -> String {
        String::new()
    }
    /// (C · the sum of C·ȧ − C ȧᵀ C) / det; NaN where the determinant is next to nothing beside what it is made of.
    fn jvp(&self, Forward { b, operands, tangents, outputs }: Forward<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let (a, c) = (&operands[0], &outputs[0]);
        let det = b.of(Det, a)?;
        let (all, cofactors, square) = (b.inner(a, a)?, b.inner(c, c)?, b.square(&det)?);
        let least = b.mul(&all, &cofactors)?;
        let epsilon = if a.ty.dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let least = b.times(&least, (100.0 * epsilon).powi(2))?;
        let (there, nan) = (b.binary(Binary::Gt, &square, &least)?, b.number(&det.ty, f64::NAN)?);
        let det = b.select(&there, &det, &nan)?;
        let rank = c.ty.rank();
        let both = [rank - 2, rank - 1];
        let (sum, det) = (b.inner(c, t)?, b.expand_dims(&det, &both)?);
        let sum = b.expand_dims(&sum, &both)?;
        let turned = b.turned(t)?;
        let (scaled, moved) = (b.mul(c, &sum)?, b.matmul(c, &turned)?);
        let moved = b.matmul(&moved, c)?;
        let moved = b.sub(&scaled, &moved)?;
        Ok(vec![Some(b.div(&moved, &det)?)])
    }
}

impl Matrix for Det {
    fn made(&self, _: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, Shape::scalar())]
    }
    fn rate(&self) -> f64 {
        0.2
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, ..]: [usize; 3]) -> Vec<Made<T>> {
        vec![Made::Floats(vec![T::det(&x[0], n)])]
    }
}

impl Matrix for Slogdet {
    fn made(&self, _: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, Shape::scalar()); 2]
    }
    fn rate(&self) -> f64 {
        0.2
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, ..]: [usize; 3]) -> Vec<Made<T>> {
        let (sign, log) = T::slogdet(&x[0], n);
        vec![Made::Floats(vec![sign]), Made::Floats(vec![log])]
    }
}

impl Matrix for Cofactors {
    fn made(&self, [n, ..]: [usize; 3]) -> Vec<(Kind, Shape)> {
        vec![(Kind::Float, [n, n].into())]
    }
    fn rate(&self) -> f64 {
        5.0
    }
    fn compute<T: Real>(&self, x: &[Vec<T>], [n, ..]: [usize; 3]) -> Vec<Made<T>> {
        vec![Made::Floats(T::cofactors(&x[0], n))]
    }
}
