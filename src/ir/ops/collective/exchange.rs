//! Collectives that move blocks between devices: `all_to_all`, `ppermute` and `pbroadcast`.
//!
//! All are linear. The transpose of `all_to_all` swaps its dimensions, that of `ppermute` reverses
//! its pairs, and that of `pbroadcast` leaves the sum of the cotangents on the source.

use super::{
    CollectiveGroup, Preduce, VaryingState, collective_common, dim_after_split, passthrough_factors,
    transpose_rule,
};
use crate::core::{ArrayType, DType, Fault, Result, Shape};
use crate::ir::program::{
    BatchedOp, Factors, Linearity, LoopNest, ManualCollective, Prim, Primitive, Reducer, Tangents,
    TransposeArgs, TypedOperand, VmapArgs,
};
use crate::ir::{ops::dim_check::format_list, ops::structural::linear_jvp};
use std::sync::Arc;

/// The collective that splits one dimension and concatenates received blocks: `all_to_all`.
///
/// Device `i` receives block `i` of every device.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllToAllPrim {
    /// The participating devices.
    pub group: CollectiveGroup,
    /// The dimension that is split.
    pub split_dim: usize,
    /// The dimension of the result along which the received blocks are concatenated.
    pub concat_dim: usize,
    /// If true, blocks are split and concatenated along existing dimensions.
    /// If false, `split_dim` must have the size of the device group and is removed, and
    /// `concat_dim` is a new dimension of that size.
    pub tiled: bool,
}

/// The collective that sends blocks from source to target devices: `ppermute`.
///
/// Devices that receive no block get zeros.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ppermute {
    /// The participating devices.
    pub group: CollectiveGroup,
    /// The pairs (source, target) of device indices within the group.
    pub pairs: Vec<(usize, usize)>,
}

/// The collective that copies the block of one device to all: `pbroadcast`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pbroadcast {
    /// The participating devices.
    pub group: CollectiveGroup,
    /// The index, within the group, of the device whose block is copied.
    pub source: usize,
}

impl Primitive for AllToAllPrim {
    collective_common!("all_to_all");
    fn params(&self) -> String {
        let (split, concat) = (self.split_dim, self.concat_dim);
        format!("{}, split={split}, concat={concat}, tiled={}", self.group.format_axes(), self.tiled)
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.group.check_operand(self.name(), operands)?;
        self.group.check_equal_groups(self.name())?;
        self.group.check_may_vary(self.name(), x)?;
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.group.split_dim(&mut shape, &mut dims, self.split_dim, self.tiled)?;
        self.group.concat_dim(&mut shape, &mut dims, self.concat_dim, self.tiled)?;
        Ok(vec![self.group.result_type(x, shape, dims, VaryingState::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passthrough_factors(&operands[0], &results[0].1, &|d| {
            let d = dim_after_split(d, self.split_dim, self.tiled)?;
            match self.tiled {
                true => Some(d).filter(|d| *d != self.concat_dim),
                false => Some(if d < self.concat_dim { d } else { d + 1 }),
            }
        })
    }
    linear_jvp!();
    transpose_rule!(|self, _types| {
        let (split, concat) = (self.concat_dim, self.split_dim);
        Some(Arc::new(AllToAllPrim { split_dim: split, concat_dim: concat, ..self.clone() }))
    });
    fn collective(&self) -> Option<ManualCollective> {
        let AllToAllPrim { split_dim: split, concat_dim: concat, tiled, .. } = *self;
        let CollectiveGroup { axes, groups, .. } = self.group.clone();
        Some(ManualCollective::AllToAll { axes, groups, split, concat, tiled })
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        let (split, concat) = (self.split_dim + 1, self.concat_dim + 1);
        BatchedOp::new(Arc::new(AllToAllPrim { split_dim: split, concat_dim: concat, ..self.clone() }))
    }
}

impl Primitive for Ppermute {
    collective_common!("ppermute");
    fn params(&self) -> String {
        let pairs: Vec<_> = self.pairs.iter().map(|(s, t)| format!("{s}->{t}")).collect();
        format!("{}, pairs={}", self.group.format_axes(), format_list(&pairs))
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.group.check_operand(self.name(), operands)?;
        for (i, &(source, target)) in self.pairs.iter().enumerate() {
            for device in [source, target] {
                self.group.check_device(device)?;
            }
            let twice = |what, p| {
                Err(fault!(Mesh, "device {p} is a {what} twice")
                    .help("each device sends once and receives once at most"))
            };
            if self.pairs[..i].iter().any(|p| p.0 == source) {
                return twice("source", source);
            }
            if self.pairs[..i].iter().any(|p| p.1 == target) {
                return twice("target", target);
            }
        }
        self.group.check_may_vary(self.name(), x)?;
        Ok(vec![self.group.same_shape_type(x, VaryingState::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passthrough_factors(&operands[0], &results[0].1, &Some)
    }
    linear_jvp!();
    transpose_rule!(|self, _types| {
        let pairs = self.pairs.iter().map(|&(s, t)| (t, s)).collect();
        Some(Arc::new(Ppermute { pairs, group: self.group.clone() }))
    });
    fn collective(&self) -> Option<ManualCollective> {
        Some(ManualCollective::Permute { axes: self.group.axes.clone(), pairs: self.pairs.clone() })
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(self.clone()))
    }
}

impl Primitive for Pbroadcast {
    collective_common!("pbroadcast");
    fn params(&self) -> String {
        format!("{}, source={}", self.group.format_axes(), self.source)
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.group.check_operand(self.name(), operands)?;
        self.group.check_device(self.source)?;
        self.group.check_may_vary(self.name(), x)?;
        Ok(vec![self.group.same_shape_type(x, VaryingState::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passthrough_factors(&operands[0], &results[0].1, &Some)
    }
    linear_jvp!();
    fn transpose(&self, TransposeArgs { builder: b, cotangents, .. }: TransposeArgs<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        let group = self.group.clone();
        let sum = Arc::new(Preduce { group: group.clone(), reducer: Reducer::Add });
        let sum = b.emit1(sum, std::slice::from_ref(ct))?;
        // a permutation leaves the sum on the source, and zeros on the other devices
        let pairs = vec![(self.source, self.source)];
        Ok(vec![Some(b.emit1(Arc::new(Ppermute { group, pairs }), &[sum])?)])
    }
    fn collective(&self) -> Option<ManualCollective> {
        Some(ManualCollective::Broadcast { axes: self.group.axes.clone(), source: self.source })
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::example_group;
    use crate::ir::ops::test_util::check_prim;

    check_prim! {
        all_to_all_and_back: AllToAllPrim { group: example_group(), split_dim: 0, concat_dim: 1, tiled: true }, ["float32[4,2]{V:X}"] of Manual => "
            (a: float32[4,2]{V:X}) {
              b: float32[2,4]{V:X} = all_to_all[axes=X, split=0, concat=1, tiled=true] a
              return b
            }
            tangents: (a: float32[4,2]{V:X}, b: float32[4,2]{V:X}) {
              c: float32[2,4]{V:X} = all_to_all[axes=X, split=0, concat=1, tiled=true] a
              d: float32[2,4]{V:X} = all_to_all[axes=X, split=0, concat=1, tiled=true] b
              return c, d
            }
            cotangents: (a: float32[2,4]{V:X}) {
              b: float32[4,2]{V:X} = all_to_all[axes=X, split=1, concat=0, tiled=true] a
              return b
            }
        ";
        ppermute_turns_round: Ppermute { group: example_group(), pairs: vec![(0, 1)] }, ["float32[4]{V:X}"] of Manual => "
            (a: float32[4]{V:X}) {
              b: float32[4]{V:X} = ppermute[axes=X, pairs=[0->1]] a
              return b
            }
            tangents: (a: float32[4]{V:X}, b: float32[4]{V:X}) {
              c: float32[4]{V:X} = ppermute[axes=X, pairs=[0->1]] a
              d: float32[4]{V:X} = ppermute[axes=X, pairs=[0->1]] b
              return c, d
            }
            cotangents: (a: float32[4]{V:X}) {
              b: float32[4]{V:X} = ppermute[axes=X, pairs=[1->0]] a
              return b
            }
        ";
        pbroadcast_sums_back_to_its_source: Pbroadcast { group: example_group(), source: 1 }, ["float32[4]{V:X}"] of Manual => "
            (a: float32[4]{V:X}) {
              b: float32[4]{V:X} = pbroadcast[axes=X, source=1] a
              return b
            }
            tangents: (a: float32[4]{V:X}, b: float32[4]{V:X}) {
              c: float32[4]{V:X} = pbroadcast[axes=X, source=1] a
              d: float32[4]{V:X} = pbroadcast[axes=X, source=1] b
              return c, d
            }
            cotangents: (a: float32[4]{V:X}) {
              b: float32[4] = psum[axes=X] a
              c: float32[4]{V:X} = ppermute[axes=X, pairs=[1->1]] b
              return c
            }
        ";
        pbroadcast_of_no_device_is_rejected: Pbroadcast { group: example_group(), source: 2 }, ["float32[4]{V:X}"] of Manual => "
            error: there is no device 2 along X, which has 2
            they are counted along the axes, from 0 to 1
        ";
        ppermute_to_one_twice_is_rejected: Ppermute { group: example_group(), pairs: vec![(0, 1), (1, 1)] }, ["float32[4]{V:X}"] of Manual => "
            error: device 1 is a target twice
            each device sends once and receives once at most
        ";
    }
}
