//! The primitives without operands: `full` and `iota`.
//!
//! Their parameters include the type of the result, with its mesh and sharding.

use super::structural::no_derivative;
use crate::core::{
    ArrayType, Axes, AxisType, DType, Fault, Mesh, Result, Scalar, Shape, Spec,
    sharding::check_unreduced_dtype,
};
use crate::ir::program::{
    BatchedOp, Builder, Dim, Factors, JvpArgs, Linearity, LoopNest, Primitive, ScalarArg, ScalarCode,
    ScalarOp, Tangents, TransposeArgs, TypedOperand, Value, VmapArgs, typing,
};
use std::sync::Arc;

/// The creation of an array of a given type, filled with one value: `full{value}`.
///
/// A key is filled with a 64-bit integer, whose low half is the first word of the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Full {
    /// The type of the result.
    pub ty: ArrayType,
    /// The value of all elements.
    pub value: Scalar,
}

/// The creation of an array with each element's index along one dimension: `iota{dimension}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Iota {
    /// The type of the result.
    pub ty: ArrayType,
    /// The dimension along which elements are counted.
    pub dimension: usize,
}

/// Checks and normalizes the requested type of a new value.
///
/// `zero` is true if the value is zero. Only zeros may be unreduced, since each device creates a
/// partial value.
pub(super) fn created_type(ty: &ArrayType, zero: bool) -> Result<ArrayType, Fault> {
    let spec = match &ty.mesh {
        Some(mesh) => {
            // unreduced and reduced sets over manual axes are part of types inside the body; manual
            // axes never split dimensions
            let manual = |a| mesh.axis_type(a) == Some(AxisType::Manual);
            let split = ty.spec.dims().iter().flat_map(Axes::iter).any(manual);
            let checked = if split { ty.spec } else { ty.spec.filter_axes(|a| !manual(a)) };
            typing::check_out_sharding(mesh, checked, &ty.shape)?;
            check_unreduced_dtype(ty.spec, ty.dtype)?;
            ty.spec.padded(ty.rank()).in_order(mesh)
        }
        None if ty.spec.is_replicated() && ty.spec.dims().len() <= ty.rank() => ty.spec.padded(ty.rank()),
        None => {
            return Err(fault!(Mesh, "{} is asked for, but no mesh is given", ty.spec)
                .help("give the mesh: `F32.array_type([…]).on(&mesh, p![…])`"));
        }
    };
    if !zero && !spec.unreduced_axes().is_empty() {
        let fault = fault!(
            Sharding,
            "{ty} is asked for, and each partial value would be the full value: only zeros are created unreduced"
        );
        return Err(fault.help(format!("make it, then `.reshard({spec})`")));
    }
    Ok(ArrayType { spec, ..ty.clone() })
}

/// Formats a type as a parameter of a primitive, with its mesh if it is on one.
pub(super) fn format_type(ty: &ArrayType) -> String {
    let mesh = ty.mesh.as_ref().map(Mesh::to_string).map(|m| format!(", mesh={m}")).unwrap_or_default();
    format!("ty={}{mesh}", ty.short_text())
}

/// Returns factors with one loop for each dimension of the result and no operands.
pub(super) fn result_factors(shape: &[usize]) -> Factors {
    Factors { results: vec![Dim::each(0..shape.len())], ..Factors::from_sizes(shape) }
}

/// Defines the rules that are the same for all primitives that create values of a given type.
macro_rules! created_common {
    () => {
        fn factors(&self, _: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
            result_factors(&results[0].1)
        }
        fn out_sharding(&self) -> Option<Spec> {
            self.ty.mesh.as_ref().map(|_| self.ty.spec)
        }
        fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
            BatchedOp::new(Arc::new(self.clone()))
        }
    };
}

impl Primitive for Full {
    described!(self, "full", Linearity::Nullary, format!("value={}, {}", self.value, format_type(&self.ty)));
    fn shapes(&self, _: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let fits = match (self.value, self.ty.dtype) {
            (Scalar::Bool(_), d) => d == DType::Bool,
            (Scalar::Float(_), d) => d.is_inexact(),
            (Scalar::Complex(..), d) => d.is_complex(),
            (Scalar::Int(_), d) => d != DType::Bool,
        };
        if !fits {
            return Err(fault!(Dtype, "{} is no {}", self.value, self.ty.dtype));
        }
        Ok(vec![(self.ty.dtype, self.ty.shape.clone())])
    }
    created_common!();
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        self.shapes(operands)?;
        Ok(vec![created_type(&self.ty, self.value.is_zero())?])
    }
    fn jvp(&self, _: JvpArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Ok(Vec::new())
    }
    fn loop_nests(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let d = results[0].dtype.storage();
        let value = match (self.value, d.is_inexact()) {
            (Scalar::Int(i), true) => Scalar::Float(i as f64),
            (v, _) => v,
        };
        let code = ScalarCode::single(ScalarOp::Copy, d, d, &[ScalarArg::Const(value)]);
        vec![nullary_loop_nest(&results[0], code)]
    }
}

/// Returns an elementwise loop nest without accesses.
fn nullary_loop_nest(ty: &ArrayType, code: ScalarCode) -> LoopNest {
    LoopNest::map(ty.shape.to_vec(), ty.dtype.storage(), Vec::new(), code)
}

impl Primitive for Iota {
    described!(
        self,
        "iota",
        Linearity::Nullary,
        format!("dimension={}, {}", self.dimension, format_type(&self.ty))
    );
    fn shapes(&self, _: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        if self.dimension >= self.ty.rank() {
            return Err(fault!(Shape, "there is no dimension {} in {}", self.dimension, self.ty)
                .help("name a dimension of the result"));
        }
        if !self.ty.dtype.is_number() || self.ty.dtype.is_complex() {
            return Err(fault!(Dtype, "positions are numbers, not {}", self.ty.dtype)
                .help("count in `I32` and convert: `.astype(…)`"));
        }
        Ok(vec![(self.ty.dtype, self.ty.shape.clone())])
    }
    created_common!();
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        self.shapes(operands)?;
        Ok(vec![created_type(&self.ty, false)?])
    }
    no_derivative!("iota");
    fn loop_nests(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let d = results[0].dtype;
        let code = ScalarCode::single(ScalarOp::Convert, DType::I64, d, &[ScalarArg::Index(self.dimension)]);
        vec![nullary_loop_nest(&results[0], code)]
    }
}

impl Builder {
    /// Emits an array of exactly this type, filled with one value.
    pub fn full(&mut self, ty: &ArrayType, value: impl Into<Scalar>) -> Result<Value> {
        self.emit1(Arc::new(Full { ty: ty.clone(), value: value.into() }), &[])
    }
    /// Emits zeros of exactly this type.
    pub fn zeros(&mut self, ty: &ArrayType) -> Result<Value> {
        self.full(ty, Scalar::zero(ty.dtype))
    }
    /// Emits the index of each element along one dimension.
    pub fn iota(&mut self, ty: &ArrayType, dimension: usize) -> Result<Value> {
        self.emit1(Arc::new(Iota { ty: ty.clone(), dimension }), &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        full_of_a_number: Full { ty: DType::F32.array_type([4, 2]), value: Scalar::Float(0.5) }, [] => "
            () {
              a: float32[4,2] = full[value=0.5, ty=f32[4,2]]
              return a
            }
        ";
        iota_counts: Iota { ty: DType::I32.array_type([2, 4]), dimension: 1 }, [] => "
            () {
              a: int32[2,4] = iota[dimension=1, ty=i32[2,4]]
              return a
            }
        ";
        iota_along_no_dimension_is_rejected: Iota { ty: DType::I32.array_type([2, 4]), dimension: 2 }, [] => "
            error: there is no dimension 2 in int32[2,4]
            name a dimension of the result
        ";
    }
}
