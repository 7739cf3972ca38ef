//! Blocks joined and taken apart: all_gather, psum_scatter, own_part.

use super::{Along, State, after_cut, collective_common, passing, transposed_by, vma};
use crate::diagnostic::{Fault, Result};
use crate::ops::elementwise::Takes;
use crate::ops::moves::linear_jvp;
use crate::program::sentence::Sentence;
use crate::program::{Batch, Batched};
use crate::program::{Collective, Factors, Linearity, Operand, Prim, Primitive, Priority, Tangents};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// What a gathered value is to the types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gathered {
    /// It counts as varying, although all have the same.
    Varying,
    /// It is the same on all devices.
    Invarying,
    /// It is the same, and its cotangent is unreduced.
    Reduced,
}

/// The blocks of all devices joined.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllGather {
    /// Among whom.
    pub along: Along,
    /// Along which dimension of the result.
    pub dim: usize,
    /// Joined along a dimension that is there, or stacked along a new one.
    pub tiled: bool,
    /// What the result is to the types.
    pub to: Gathered,
}

/// The sum over devices, of which each keeps its part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PsumScatter {
    /// Among whom.
    pub along: Along,
    /// Which dimension is cut.
    pub dim: usize,
    /// Cut into blocks, or along a dimension of the axes' size, which goes.
    pub tiled: bool,
}

/// The device's own part of a value that is the same on all: the transpose of a gather to invarying.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OwnPart {
    /// Among whom.
    pub along: Along,
    /// Which dimension is cut.
    pub dim: usize,
    /// Cut into blocks, or along a dimension of the axes' size, which goes.
    pub tiled: bool,
}

impl Primitive for AllGather {
    collective_common!("all_gather");
    fn params(&self) -> String {
        let to = match self.to {
            Gathered::Varying => "",
            Gathered::Invarying => ", to=invarying",
            Gathered::Reduced => ", to=reduced",
        };
        format!("{}, dim={}, tiled={}{to}", self.along.print(), self.dim, self.tiled)
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        self.along.may_vary(self.name(), x)?;
        if self.to == Gathered::Reduced
            && self.along.checked
            && let Some(axis) = self.along.axes.iter().find(|a| !x.varying.contains(*a))
        {
            return Err(vma(format!(
                "all_gather to reduced takes varying values, but the operand does not vary over {axis}"
            ))
            .help(format!("cast it first: `x.pcast({:?}, Cast::Varying)`", axis.name())));
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.along.join(&mut shape, &mut dims, self.dim, self.tiled)?;
        let state = match self.to {
            Gathered::Varying => State::Varying,
            Gathered::Invarying => State::Invarying,
            Gathered::Reduced => State::Reduced,
        };
        Ok(vec![self.along.result(x, shape, dims, state)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let at = |d: usize| if self.tiled || d < self.dim { d } else { d + 1 };
        passing(&operands[0], &results[0].1, |d| Some(at(d)).filter(|_| !(self.tiled && d == self.dim)))
    }
    linear_jvp!();
    transposed_by!(|self, _types| {
        let (along, dim, tiled) = (self.along.clone(), self.dim, self.tiled);
        Some(if self.to == Gathered::Invarying && along.checked {
            Arc::new(OwnPart { along, dim, tiled })
        } else {
            Arc::new(PsumScatter { along, dim, tiled })
        })
    });
    fn collective(&self) -> Option<Collective> {
        let (axes, dim, tiled) = (self.along.axes.clone(), self.dim, self.tiled);
        Some(Collective::AllGather { axes, dim, tiled })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(AllGather { dim: self.dim + 1, ..self.clone() }))
    }
}

impl Primitive for PsumScatter {
    collective_common!("psum_scatter");
    fn params(&self) -> String {
        format!("{}, dim={}, tiled={}", self.along.print(), self.dim, self.tiled)
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        if self.along.state(self.name(), x)? == State::Reduced {
            self.along.may_vary(self.name(), x)?;
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.along.cut(&mut shape, &mut dims, self.dim, self.tiled)?;
        Takes::Number.check(operands, 0)?;
        Ok(vec![self.along.result(x, shape, dims, State::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, |d| after_cut(d, self.dim, self.tiled))
    }
    linear_jvp!();
    transposed_by!(|self, types| {
        let to = match self.along.state(self.name(), &types[0])? {
            State::Unreduced => Gathered::Reduced,
            _ => Gathered::Varying,
        };
        let (along, dim, tiled) = (self.along.clone(), self.dim, self.tiled);
        Some(Arc::new(AllGather { along, dim, tiled, to }))
    });
    fn collective(&self) -> Option<Collective> {
        let (axes, dim, tiled) = (self.along.axes.clone(), self.dim, self.tiled);
        Some(Collective::ReduceScatter { axes, dim, tiled })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(PsumScatter { dim: self.dim + 1, ..self.clone() }))
    }
}

impl Primitive for OwnPart {
    collective_common!("own_part");
    fn params(&self) -> String {
        format!("{}, dim={}, tiled={}", self.along.print(), self.dim, self.tiled)
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        let state = self.along.state(self.name(), x)?;
        if self.along.checked && state != State::Invarying && !self.along.axes.is_empty() {
            return Err(vma(format!(
                "own_part takes a value that is the same on all devices, but the operand is {} over {}",
                state.name(),
                self.along.axes
            )));
        }
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.along.cut(&mut shape, &mut dims, self.dim, self.tiled)?;
        Ok(vec![self.along.result(x, shape, dims, State::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, |d| after_cut(d, self.dim, self.tiled))
    }
    linear_jvp!();
    transposed_by!(|self, _types| {
        let (along, dim, tiled) = (self.along.clone(), self.dim, self.tiled);
        Some(Arc::new(AllGather { along, dim, tiled, to: Gathered::Invarying }))
    });
    fn collective(&self) -> Option<Collective> {
        let (axes, dim, tiled) = (self.along.axes.clone(), self.dim, self.tiled);
        Some(Collective::OwnPart { axes, dim, tiled })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(OwnPart { dim: self.dim + 1, ..self.clone() }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::along;
    use crate::ops::check::check_prim;

    check_prim! {
        all_gather_joins_blocks: AllGather { along: along(), dim: 0, tiled: true, to: Gathered::Varying }, ["float32[4]{V:X}"] of Manual => "
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
        psum_scatter_cuts_sums: PsumScatter { along: along(), dim: 0, tiled: true }, ["float32[4]{V:X}"] of Manual => "
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
        psum_scatter_of_three_is_refused: PsumScatter { along: along(), dim: 0, tiled: true }, ["float32[3]{V:X}"] of Manual => "
            refused: dimension 0 of size 3 is not divisible into 2 equal parts
            the size must be a multiple of 2, the number of devices along X
        ";
    }
}
