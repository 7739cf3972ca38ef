//! Collectives that concatenate or split blocks.
//!
//! They are `all_gather`, `psum_scatter`, and `own_part`. The transpose of `all_gather` is
//! `psum_scatter`, or `own_part` if the gathered value is typed as invarying.

use super::{
    CollectiveGroup, VaryingState, collective_common, dim_after_split, passthrough_factors, transpose_rule,
    varying_fault,
};
use crate::core::{ArrayType, DType, Fault, Result, Shape};
use crate::ir::program::{
    BatchedOp, Factors, Linearity, LoopNest, ManualCollective, Prim, Primitive, Tangents, TypedOperand,
    VmapArgs,
};
use crate::ir::{ops::elementwise::DTypeClass, ops::structural::linear_jvp};
use std::sync::Arc;

/// The varying state of an `all_gather` result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AllGatherTo {
    /// The result is typed as varying, although it is equal on all devices.
    Varying,
    /// The result is equal on all devices.
    Invarying,
    /// The result is equal on all devices, and its cotangent is unreduced.
    Reduced,
}

/// The collective that concatenates the blocks of all devices, on every device: `all_gather`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllGather {
    /// The participating devices.
    pub group: CollectiveGroup,
    /// The dimension of the result along which blocks are concatenated.
    pub dim: usize,
    /// If true, blocks are concatenated along an existing dimension, else stacked along a new one.
    pub tiled: bool,
    /// The varying state of the result.
    pub to: AllGatherTo,
}

/// The collective that sums over devices, and leaves one shard of the sum on each: `psum_scatter`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PsumScatter {
    /// The participating devices.
    pub group: CollectiveGroup,
    /// The dimension that is split.
    pub dim: usize,
    /// If true, `dim` is split into blocks.
    /// If false, `dim` must have the size of the device group, and is removed.
    pub tiled: bool,
}

/// The primitive that keeps one shard on each device of a value that is equal on all: `own_part`.
///
/// This is the transpose of an `all_gather` to invarying; no data is communicated.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnPart {
    /// The participating devices.
    pub group: CollectiveGroup,
    /// The dimension that is split.
    pub dim: usize,
    /// If true, `dim` is split into blocks.
    /// If false, `dim` must have the size of the device group, and is removed.
    pub tiled: bool,
}

/// Defines the rules of a primitive that is linear and whose devices communicate along `dim`. With
/// `split`, the result has a part of the dimension.
macro_rules! along_dim {
    ($collective:ident $(, $groups:ident)?; split) => {
        fn params(&self) -> String {
            format!("{}, dim={}, tiled={}", self.group.format_axes(), self.dim, self.tiled)
        }
        fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
            passthrough_factors(&operands[0], &results[0].1, &|d| dim_after_split(d, self.dim, self.tiled))
        }
        along_dim!($collective $(, $groups)?);
    };
    ($collective:ident $(, $groups:ident)?) => {
        linear_jvp!();
        fn collective(&self) -> Option<ManualCollective> {
            let (axes, dim, tiled) = (self.group.axes.clone(), self.dim, self.tiled);
            $(let $groups = self.group.groups.clone();)?
            Some(ManualCollective::$collective { axes, dim, tiled $(, $groups)? })
        }
        fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
            BatchedOp::new(Arc::new(Self { dim: self.dim + 1, ..self.clone() }))
        }
    };
}

impl Primitive for AllGather {
    collective_common!("all_gather");
    fn params(&self) -> String {
        let to = match self.to {
            AllGatherTo::Varying => "",
            AllGatherTo::Invarying => ", to=invarying",
            AllGatherTo::Reduced => ", to=reduced",
        };
        format!("{}, dim={}, tiled={}{to}", self.group.format_axes(), self.dim, self.tiled)
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.group.check_operand(self.name(), operands)?;
        self.group.check_equal_groups(self.name())?;
        self.group.check_may_vary(self.name(), x)?;
        if self.to != AllGatherTo::Varying && self.group.groups.is_some() {
            return Err(varying_fault("the values that groups gather differ, so the result varies")
                .help("leave out `.invarying()` or `.reduced()`"));
        }
        if self.to == AllGatherTo::Reduced
            && self.group.checked
            && let Some(axis) = self.group.axes.iter().find(|a| !x.varying.contains(*a))
        {
            return Err(varying_fault(format!(
                "all_gather to reduced takes varying values, but the operand does not vary over {axis}"
            ))
            .help(format!("cast it first: `x.pcast({:?}, PcastTo::Varying)`", axis.name())));
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.group.concat_dim(&mut shape, &mut dims, self.dim, self.tiled)?;
        let state = match self.to {
            AllGatherTo::Varying => VaryingState::Varying,
            AllGatherTo::Invarying => VaryingState::Invarying,
            AllGatherTo::Reduced => VaryingState::Reduced,
        };
        Ok(vec![self.group.result_type(x, shape, dims, state)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let at = |d: usize| if self.tiled || d < self.dim { d } else { d + 1 };
        passthrough_factors(&operands[0], &results[0].1, &|d| {
            Some(at(d)).filter(|_| !(self.tiled && d == self.dim))
        })
    }
    transpose_rule!(|self, _types| {
        let (along, dim, tiled) = (self.group.clone(), self.dim, self.tiled);
        Some(if self.to == AllGatherTo::Invarying && along.checked {
            Arc::new(OwnPart { group: along, dim, tiled })
        } else {
            Arc::new(PsumScatter { group: along, dim, tiled })
        })
    });
    along_dim!(AllGather, groups);
}

impl Primitive for PsumScatter {
    collective_common!("psum_scatter");
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.group.check_operand(self.name(), operands)?;
        self.group.check_equal_groups(self.name())?;
        let state = self.group.common_state(self.name(), x)?;
        if state == VaryingState::Reduced || self.group.groups.is_some() {
            self.group.check_may_vary(self.name(), x)?;
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.group.split_dim(&mut shape, &mut dims, self.dim, self.tiled)?;
        DTypeClass::Number.check(operands, 0)?;
        Ok(vec![self.group.result_type(x, shape, dims, VaryingState::Varying)?])
    }
    transpose_rule!(|self, types| {
        let to = match self.group.common_state(self.name(), &types[0])? {
            VaryingState::Unreduced => AllGatherTo::Reduced,
            _ => AllGatherTo::Varying,
        };
        let (along, dim, tiled) = (self.group.clone(), self.dim, self.tiled);
        Some(Arc::new(AllGather { group: along, dim, tiled, to }))
    });
    along_dim!(ReduceScatter, groups; split);
}

impl Primitive for OwnPart {
    collective_common!("own_part");
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.group.check_operand(self.name(), operands)?;
        let state = self.group.common_state(self.name(), x)?;
        if self.group.checked && state != VaryingState::Invarying && !self.group.axes.is_empty() {
            return Err(varying_fault(format!(
                "own_part takes a value that is the same on all devices, but the operand is {} over {}",
                state.name(),
                self.group.axes
            )));
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.group.split_dim(&mut shape, &mut dims, self.dim, self.tiled)?;
        Ok(vec![self.group.result_type(x, shape, dims, VaryingState::Varying)?])
    }
    transpose_rule!(|self, _types| {
        let (along, dim, tiled) = (self.group.clone(), self.dim, self.tiled);
        Some(Arc::new(AllGather { group: along, dim, tiled, to: AllGatherTo::Invarying }))
    });
    along_dim!(KeepShard; split);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::example_group;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        all_gather_joins_blocks: AllGather { group: example_group(), dim: 0, tiled: true, to: AllGatherTo::Varying }, ["float32[4]{V:X}"] of Manual => "
            (a: float32[4]{V:X}) {
              b: float32[8]{V:X} = all_gather[axes=X, dim=0, tiled=true] a
              return b
            }
            tangents: (a: float32[4]{V:X}, b: float32[4]{V:X}) {
              c: float32[8]{V:X} = all_gather[axes=X, dim=0, tiled=true] a
              d: float32[8]{V:X} = all_gather[axes=X, dim=0, tiled=true] b
              return c, d
            }
            cotangents: (a: float32[8]{V:X}) {
              b: float32[4]{V:X} = psum_scatter[axes=X, dim=0, tiled=true] a
              return b
            }
        ";
        psum_scatter_cuts_sums: PsumScatter { group: example_group(), dim: 0, tiled: true }, ["float32[4]{V:X}"] of Manual => "
            (a: float32[4]{V:X}) {
              b: float32[2]{V:X} = psum_scatter[axes=X, dim=0, tiled=true] a
              return b
            }
            tangents: (a: float32[4]{V:X}, b: float32[4]{V:X}) {
              c: float32[2]{V:X} = psum_scatter[axes=X, dim=0, tiled=true] a
              d: float32[2]{V:X} = psum_scatter[axes=X, dim=0, tiled=true] b
              return c, d
            }
            cotangents: (a: float32[2]{V:X}) {
              b: float32[4]{V:X} = all_gather[axes=X, dim=0, tiled=true] a
              return b
            }
        ";
        psum_scatter_of_three_is_rejected: PsumScatter { group: example_group(), dim: 0, tiled: true }, ["float32[3]{V:X}"] of Manual => "
            error: dimension 0 of size 3 is not divisible into 2 equal parts
            the size must be a multiple of 2, the number of devices along X
        ";
    }
}
