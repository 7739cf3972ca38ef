//! Blocks from device to device: all_to_all, ppermute.

use super::{Along, State, after_cut, collective_common, passing, transposed_by};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::moves::linear_jvp;
use crate::ops::view::list;
use crate::program::sentence::Sentence;
use crate::program::{Batch, Batched};
use crate::program::{Collective, Factors, Linearity, Operand, Prim, Primitive, Priority, Tangents};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Shape};
use std::sync::Arc;

/// Part i along one dimension goes to device i, which joins what it gets along another.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AllToAll {
    /// Among whom.
    pub along: Along,
    /// Which dimension is cut.
    pub split: usize,
    /// Along which dimension of the result the parts are joined.
    pub concat: usize,
    /// Cut into blocks and joined, or dimensions of the axes' size that go and come.
    pub tiled: bool,
}

/// Blocks from device to device; zeros where none arrives.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Ppermute {
    /// Among whom.
    pub along: Along,
    /// (source, target), as positions along the axes.
    pub pairs: Vec<(usize, usize)>,
}

impl Primitive for AllToAll {
    collective_common!("all_to_all");
    fn params(&self) -> String {
        let (split, concat) = (self.split, self.concat);
        format!("{}, split={split}, concat={concat}, tiled={}", self.along.print(), self.tiled)
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        self.along.may_vary(self.name(), x)?;
        let (mut shape, mut dims) = (x.shape.clone(), x.spec.dims().to_vec());
        self.along.cut(&mut shape, &mut dims, self.split, self.tiled)?;
        self.along.join(&mut shape, &mut dims, self.concat, self.tiled)?;
        Ok(vec![self.along.result(x, shape, dims, State::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, |d| {
            let d = after_cut(d, self.split, self.tiled)?;
            match self.tiled {
                true => Some(d).filter(|d| *d != self.concat),
                false => Some(if d < self.concat { d } else { d + 1 }),
            }
        })
    }
    linear_jvp!();
    transposed_by!(|self, _types| {
        let (split, concat) = (self.concat, self.split);
        Some(Arc::new(AllToAll { split, concat, ..self.clone() }))
    });
    fn collective(&self) -> Option<Collective> {
        let AllToAll { split, concat, tiled, .. } = *self;
        Some(Collective::AllToAll { axes: self.along.axes.clone(), split, concat, tiled })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        let (split, concat) = (self.split + 1, self.concat + 1);
        Batched::of(Arc::new(AllToAll { split, concat, ..self.clone() }))
    }
}

impl Primitive for Ppermute {
    collective_common!("ppermute");
    fn params(&self) -> String {
        let pairs: Vec<_> = self.pairs.iter().map(|(s, t)| format!("{s}->{t}")).collect();
        format!("{}, pairs={}", self.along.print(), list(&pairs))
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let x = self.along.operand(self.name(), operands)?;
        let n = self.along.size();
        for (i, &(source, target)) in self.pairs.iter().enumerate() {
            if let Some(p) = [source, target].into_iter().find(|p| *p >= n) {
                let message = format!("there is no device {p} along {}, which has {n}", self.along.axes);
                return Err(Fault::new(ErrorKind::Mesh, message)
                    .help(format!("they are counted along the axes, from 0 to {}", n - 1)));
            }
            let twice = |what, p| {
                let message = format!("device {p} is a {what} twice");
                Err(Fault::new(ErrorKind::Mesh, message)
                    .help("each device sends once and receives once at most"))
            };
            if self.pairs[..i].iter().any(|p| p.0 == source) {
                return twice("source", source);
            }
            if self.pairs[..i].iter().any(|p| p.1 == target) {
                return twice("target", target);
            }
        }
        self.along.may_vary(self.name(), x)?;
        Ok(vec![self.along.same(x, State::Varying)?])
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        passing(&operands[0], &results[0].1, Some)
    }
    linear_jvp!();
    transposed_by!(|self, _types| {
        let pairs = self.pairs.iter().map(|&(s, t)| (t, s)).collect();
        Some(Arc::new(Ppermute { pairs, along: self.along.clone() }))
    });
    fn collective(&self) -> Option<Collective> {
        Some(Collective::Permute { axes: self.along.axes.clone(), pairs: self.pairs.clone() })
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.clone()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::along;
    use crate::ops::check::check_prim;

    check_prim! {
        all_to_all_and_back: AllToAll { along: along(), split: 0, concat: 1, tiled: true }, ["float32[4,2]{V:X}"] of Manual => "
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
        ppermute_turns_round: Ppermute { along: along(), pairs: vec![(0, 1)] }, ["float32[4]{V:X}"] of Manual => "
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
        ppermute_to_one_twice_is_refused: Ppermute { along: along(), pairs: vec![(0, 1), (1, 1)] }, ["float32[4]{V:X}"] of Manual => "
            refused: device 1 is a target twice
            each device sends once and receives once at most
        ";
    }
}
