//! Explicit typing: result types from factors, or a refusal.

use super::{Operand, Primitive};
use crate::diagnostic::Fault;
use crate::types::ArrayType;

/// The results' types: shapes first, then `out`, then the shardings by the loops, then the sets.
pub fn by_factors(prim: &(impl Primitive + ?Sized), operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
    let shapes = prim.shapes(operands)?;
    Ok(shapes.into_iter().map(|(dtype, shape)| dtype.of(shape)).collect())
}
