//! The vocabulary of all stages: axes, meshes, element types, shardings, array types and errors.
//!
//! Other groups of folders import types from here, not from the folder that defines them.

pub(crate) mod axes;
pub mod diagnostic;
pub(crate) mod dtype;
pub mod mesh;
pub(crate) mod scalar_op;
pub mod sharding;
pub mod types;
pub(crate) mod util;

pub(crate) use diagnostic::{
    Cursor, Diagnostic, Error, ErrorKind, Fault, LineLabels, PrintedStage, Result, SourceLocation, TypePart,
};
pub(crate) use mesh::{Axes, Axis, AxisType, DeviceId, MAX_DEVICES, Mesh};
pub(crate) use scalar_op::{Reducer, ResultDType, ScalarOp, StableHloForm, SubnormalResults};
pub(crate) use sharding::{Block, Sharding, Spec, SubAxes, SubAxis};
pub(crate) use types::{ArrayType, DType, Element, MAX_INDICES, Precision, Scalar, ScalarElement, Shape};
