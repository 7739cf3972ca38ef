//! Creation: values that no operand gives.

use super::moves::no_derivative;
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::mesh::{Axes, AxisType, Mesh};
use crate::program::factors::{Dim, Factors, Linearity, Priority};
use crate::program::sentence::{Arg, Body, Code, Fun, Sentence};
use crate::program::{Back, Forward};
use crate::program::{Batch, Batched};
use crate::program::{Builder, Operand, Primitive, Tangents, Value, typing};
use crate::sharding::{Spec, check_parts};
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// `full{value}`: one number everywhere, of exactly the type given; a key is one number too, its low half the first word.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Full {
    /// The result's type.
    pub ty: ArrayType,
    /// The number.
    pub value: Scalar,
}

/// `iota{dimension}`: each element is its index along a dimension.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Iota {
    /// The result's type.
    pub ty: ArrayType,
    /// Along which dimension it counts.
    pub dimension: usize,
}

/// The type of what is created as the type given says: on its mesh, its spec checked. Only zeros may be unreduced.
pub(super) fn created(ty: &ArrayType, zero: bool) -> Result<ArrayType, Fault> {
    let spec = match &ty.mesh {
        Some(mesh) => {
            // sets over manual axes are the body's own; dimensions are never split over them
            let manual = |a| mesh.axis_type(a) == Some(AxisType::Manual);
            let split = ty.spec.dims().iter().flat_map(Axes::iter).any(manual);
            let checked = if split { ty.spec } else { ty.spec.only(|a| !manual(a)) };
            typing::check_out(mesh, checked, &ty.shape)?;
            check_parts(ty.spec, ty.dtype)?;
            ty.spec.padded(ty.rank()).in_order(mesh)
        }
        None if ty.spec.is_whole() && ty.spec.dims().len() <= ty.rank() => ty.spec.padded(ty.rank()),
        None => {
            return Err(Fault::new(
                ErrorKind::Mesh,
                format!("{} is asked for, but no mesh is given", ty.spec),
            )
            .help("say the mesh: `F32.of([…]).on(&mesh, p![…])`"));
        }
    };
    if !zero && !spec.unreduced_axes().is_empty() {
        let fault = Fault::new(
            ErrorKind::Sharding,
            format!(
                "{ty} is asked for, and each part would be the whole value: only zeros are made unreduced"
            ),
        );
        return Err(fault.help(format!("make it, then `.reshard({spec})`")));
    }
    Ok(ArrayType { spec, ..ty.clone() })
}

/// The type as a parameter of what is created by it: with its mesh where it is on one.
pub(super) fn print(ty: &ArrayType) -> String {
    let mesh = ty.mesh.as_ref().map(Mesh::to_string).map(|m| format!(", mesh={m}")).unwrap_or_default();
    format!("ty={}{mesh}", ty.short())
}

/// A loop a dimension of the result, in no operand.
pub(super) fn fresh(shape: &[usize]) -> Factors {
    Factors { results: vec![Dim::each(0..shape.len())], ..Factors::over(shape) }
}

/// What all that is created from a type answers alike.
macro_rules! created_common {
    () => {
        fn factors(&self, _: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
            fresh(&results[0].1)
        }
        fn linearity(&self) -> Linearity {
            Linearity::Nullary
        }
        fn priority(&self) -> Priority {
            Priority::Plain
        }
        fn out(&self) -> Option<Spec> {
            self.ty.mesh.as_ref().map(|_| self.ty.spec)
        }
        fn batched(&self, _: &Batch<'_>) -> Batched {
            Batched::of(Arc::new(self.clone()))
        }
    };
}

impl Primitive for Full {
    fn name(&self) -> &'static str {
        "full"
    }
    fn params(&self) -> String {
        format!("value={}, {}", self.value, print(&self.ty))
    }
    fn shapes(&self, _: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let fits = match (self.value, self.ty.dtype) {
            (Scalar::Bool(_), d) => d == DType::Bool,
            (Scalar::Float(_), d) => d.is_inexact(),
            (Scalar::Complex(..), d) => d.is_complex(),
            (Scalar::Int(_), d) => d != DType::Bool,
        };
        if !fits {
            return Err(Fault::new(ErrorKind::Dtype, format!("{} is no {}", self.value, self.ty.dtype)));
        }
        Ok(vec![(self.ty.dtype, self.ty.shape.clone())])
    }
    created_common!();
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        self.shapes(operands)?;
        Ok(vec![created(&self.ty, self.value.is_zero())?])
    }
    fn jvp(&self, _: Forward<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(&self, _: Back<'_>) -> Result<Tangents> {
        Ok(Vec::new())
    }
    fn sentences(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let d = results[0].dtype.storage();
        let value = match (self.value, d.is_inexact()) {
            (Scalar::Int(i), true) => Scalar::Float(i as f64),
            (v, _) => v,
        };
        let code = Code::one(Fun::Copy, d, d, &[Arg::Const(value)]);
        vec![created_sentence(&results[0], code)]
    }
}

/// A sentence without reads.
fn created_sentence(ty: &ArrayType, code: Code) -> Sentence {
    Sentence {
        extents: ty.shape.to_vec(),
        rank: ty.rank(),
        dtype: ty.dtype.storage(),
        reads: Vec::new(),
        body: Body::Map(code),
    }
}

impl Primitive for Iota {
    fn name(&self) -> &'static str {
        "iota"
    }
    fn params(&self) -> String {
        format!("dimension={}, {}", self.dimension, print(&self.ty))
    }
    fn shapes(&self, _: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        if self.dimension >= self.ty.rank() {
            return Err(Fault::new(
                ErrorKind::Shape,
                format!("there is no dimension {} in {}", self.dimension, self.ty),
            )
            .help("name a dimension of the result"));
        }
        if !self.ty.dtype.is_number() || self.ty.dtype.is_complex() {
            return Err(Fault::new(
                ErrorKind::Dtype,
                format!("positions are numbers, not {}", self.ty.dtype),
            )
            .help("count in `I32` and convert: `.astype(…)`"));
        }
        Ok(vec![(self.ty.dtype, self.ty.shape.clone())])
    }
    created_common!();
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        self.shapes(operands)?;
        Ok(vec![created(&self.ty, false)?])
    }
    no_derivative!("iota");
    fn sentences(&self, _: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let d = results[0].dtype;
        let code = Code::one(Fun::Convert, DType::I64, d, &[Arg::Index(self.dimension)]);
        vec![created_sentence(&results[0], code)]
    }
}

impl Builder {
    /// One number everywhere, of exactly this type.
    pub fn full(&mut self, ty: &ArrayType, value: impl Into<Scalar>) -> Result<Value> {
        self.emit1(Arc::new(Full { ty: ty.clone(), value: value.into() }), &[])
    }
    /// Zeros of exactly this type.
    pub fn zeros(&mut self, ty: &ArrayType) -> Result<Value> {
        self.full(ty, Scalar::zero(ty.dtype))
    }
    /// Each element's index along a dimension.
    pub fn iota(&mut self, ty: &ArrayType, dimension: usize) -> Result<Value> {
        self.emit1(Arc::new(Iota { ty: ty.clone(), dimension }), &[])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    check_prim! {
        full_of_a_number: Full { ty: DType::F32.of([4, 2]), value: Scalar::Float(0.5) }, [] => "
            () {
              a: float32[4,2] = full[value=0.5, ty=f32[4,2]]
              return a
            }
        ";
        iota_counts: Iota { ty: DType::I32.of([2, 4]), dimension: 1 }, [] => "
            () {
              a: int32[2,4] = iota[dimension=1, ty=i32[2,4]]
              return a
            }
        ";
        iota_along_no_dimension_is_refused: Iota { ty: DType::I32.of([2, 4]), dimension: 2 }, [] => "
            refused: there is no dimension 2 in int32[2,4]
            name a dimension of the result
        ";
    }
}
