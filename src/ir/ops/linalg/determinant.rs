//! Determinants, their logarithms, and cofactors.

use super::{matrix_op, matrix_op_rules};
use crate::core::{DType, Result, Shape};
use crate::ir::ops::elementwise::Binary;
use crate::ir::program::{JvpArgs, Primitive, Tangents};

/// The determinants of matrices: `det`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Det;

/// Computes the signs of determinants and the logarithms of their magnitudes: `slogdet`.
///
/// For a singular matrix these are 0 and −∞.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Slogdet;

/// Computes cofactors, the derivatives of determinants with respect to elements: `cofactors`.
///
/// The matrices may be singular.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Cofactors;

impl Primitive for Det {
    matrix_op_rules!("det");
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let slopes = b.emit_matrix_op(Cofactors, &operands[0])?;
        Ok(vec![Some(b.matrix_inner_product(&slopes, t)?)])
    }
}

impl Primitive for Slogdet {
    matrix_op_rules!("slogdet");
    /// Returns tr(a⁻¹ ȧ) as the tangent of the logarithm; the sign has no tangent.
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, .. }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None; 2]) };
        let inverse = b.emit_matrix_op(super::Inv, &operands[0])?;
        let slopes = b.matrix_transpose(&inverse)?;
        Ok(vec![None, Some(b.matrix_inner_product(&slopes, t)?)])
    }
}

impl Primitive for Cofactors {
    matrix_op_rules!("cofactors");
    /// Returns (C·⟨C, ȧ⟩ − C ȧᵀ C) / det.
    ///
    /// The result is NaN if the determinant is 0 up to the rounding error of its computation.
    fn jvp(&self, JvpArgs { builder: b, operands, tangents, outputs }: JvpArgs<'_>) -> Result<Tangents> {
        let Some(t) = &tangents[0] else { return Ok(vec![None]) };
        let (a, c) = (&operands[0], &outputs[0]);
        let det = b.emit_matrix_op(Det, a)?;
        let (all, cofactors, square) =
            (b.matrix_inner_product(a, a)?, b.matrix_inner_product(c, c)?, b.square(&det)?);
        let least = b.mul(&all, &cofactors)?;
        let epsilon = if a.ty.dtype == DType::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        let least = b.mul_scalar(&least, (100.0 * epsilon).powi(2))?;
        let (there, nan) = (b.binary(Binary::Gt, &square, &least)?, b.constant_like(&det.ty, f64::NAN)?);
        let det = b.select(&there, &det, &nan)?;
        let rank = c.ty.rank();
        let both = [rank - 2, rank - 1];
        let (sum, det) = (b.matrix_inner_product(c, t)?, b.expand_dims(&det, &both)?);
        let sum = b.expand_dims(&sum, &both)?;
        let turned = b.matrix_transpose(t)?;
        let (scaled, moved) = (b.mul(c, &sum)?, b.matmul(c, &turned)?);
        let moved = b.matmul(&moved, c)?;
        let moved = b.sub(&scaled, &moved)?;
        Ok(vec![Some(b.div(&moved, &det)?)])
    }
}

matrix_op! { Det, 0.2: |self, x, [n, ..]|
    vec![(Float, Shape::scalar())] => vec![Floats(vec![T::det(&x[0], n)])]
}

matrix_op! { Slogdet, 0.2: |self, x, [n, ..]|
    vec![(Float, Shape::scalar()); 2] => {
        let (sign, log) = T::slogdet(&x[0], n);
        vec![Floats(vec![sign]), Floats(vec![log])]
    }
}

matrix_op! { Cofactors, 5.0: |self, x, [n, ..]|
    vec![(Float, [n, n].into())] => vec![Floats(T::cofactors(&x[0], n))]
}
