//! The expression graph of a cell: value numbering, constant folding, and joined linear terms.
//!
//! A joined instruction performs its operations one after another and rounds after each, so joining
//! changes no bit. Products and sums are joined only where each step is exact or rounded as before,
//! and never into a fused multiply-add.

use crate::core::{DType, Scalar};
use crate::exec::compile::index::LoopVec;
use crate::ir::program::{Reducer, ScalarOp};
use crate::kernels::SpreadSteps;
use std::collections::HashMap;

/// The slot of operands that are loop positions.
/// Its base pointer is null, so that the address is the position.
pub(crate) const POSITION_SLOT: u32 = u32::MAX;

/// A strided memory access: the element at byte `offset + Σ index · strides` of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct MemAccess {
    /// The slot, or [`POSITION_SLOT`].
    pub(crate) slot: u32,
    /// The size of an element, in bytes; 1 for positions.
    pub(crate) element_bytes: u8,
    /// The offset at index 0, in bytes.
    pub(crate) offset: i64,
    /// The bytes from one index of each dimension of the space to the next.
    pub(crate) strides: LoopVec,
}

/// A slot that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct SlotAccess {
    /// The slot.
    pub(crate) slot: u32,
    /// True if the kernel writes it.
    pub(crate) is_written: bool,
}

impl SlotAccess {
    /// Returns a read of a slot.
    pub(crate) fn read(slot: u32) -> SlotAccess {
        SlotAccess { slot, is_written: false }
    }
    /// Returns a write of a slot.
    pub(crate) fn write(slot: u32) -> SlotAccess {
        SlotAccess { slot, is_written: true }
    }
}

/// The operation of an instruction; each product and each sum is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum InstrOp {
    /// A scalar operation of the loop-nest language.
    Scalar(ScalarOp),
    /// `k0·a + k1`.
    Lin1,
    /// `k0·a + k1·b`.
    Lin2,
    /// `(k0·a + k1·b) + k2·c`.
    Lin3,
    /// `a·b + c`.
    MulAdd,
}

/// A value of a cell. Constants are compared by their bits, so that 0 and −0 differ.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum ExprNode {
    /// A constant, as bits.
    Const(u128),
    /// An element in memory.
    Mem(MemAccess),
    /// An element in memory, at computed positions in each row.
    Spread(MemAccess, SpreadSteps),
    /// The loop position that an access computes, as int64.
    Position(MemAccess),
    /// Loop positions that are the same in each row, from this one on, as int64.
    SpreadPosition(i32, SpreadSteps),
    /// The result of an instruction.
    Instr { op: InstrOp, from: DType, n: u8, args: [u32; 3], k: [u64; 3] },
}

/// The expression graph of a cell; each distinct value is one node.
#[derive(Default, Debug)]
pub(crate) struct ExprGraph {
    /// The nodes; operands come before the nodes that use them.
    pub(crate) nodes: Vec<(ExprNode, DType)>,
    /// The index of each node, once there are more than a few nodes.
    index: HashMap<(ExprNode, DType), usize>,
}

/// The neutral element of addition: x + −0 is x, also if x is −0.
const NEG_ZERO: f64 = -0.0;
/// The number of nodes up to which a linear search is faster than hashing.
const MAX_SCANNED_NODES: usize = 32;

impl ExprGraph {
    /// Removes all nodes.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.index.clear();
    }
    /// Returns the index of a node, which is added if it is new.
    fn intern(&mut self, node: ExprNode, dtype: DType) -> usize {
        let (next, new) = (self.nodes.len(), (node, dtype));
        let old = match next {
            ..MAX_SCANNED_NODES => self.nodes.iter().position(|n| *n == new),
            _ => {
                let first = self.index.len();
                self.index.extend(self.nodes.iter().copied().zip(0..).skip(first));
                self.index.get(&new).copied()
            }
        };
        old.unwrap_or_else(|| {
            self.nodes.push(new);
            next
        })
    }
    /// Returns the node of a constant.
    pub(crate) fn constant(&mut self, dtype: DType, x: Scalar) -> usize {
        self.intern(ExprNode::Const(scalar_bits(dtype, x)), dtype)
    }
    /// Returns the node of an element in memory.
    pub(crate) fn load(&mut self, dtype: DType, m: MemAccess) -> usize {
        self.intern(ExprNode::Mem(m), dtype)
    }
    /// Returns the node of an element at computed positions in each row.
    pub(crate) fn spread(&mut self, dtype: DType, m: MemAccess, steps: SpreadSteps) -> usize {
        self.intern(ExprNode::Spread(m, steps), dtype)
    }
    /// Returns the node of loop positions that are the same in each row.
    pub(crate) fn spread_position(&mut self, first: i32, steps: SpreadSteps) -> usize {
        self.intern(ExprNode::SpreadPosition(first, steps), DType::I64)
    }
    /// Returns the node of a loop position.
    pub(crate) fn position(&mut self, m: MemAccess) -> usize {
        self.intern(ExprNode::Position(m), DType::I64)
    }
    /// Returns the node of an instruction with up to three operands and constants.
    fn instr(&mut self, what: InstrOp, from: DType, dtype: DType, args: &[usize], k: &[f64]) -> usize {
        let (mut a, mut c) = ([args[0] as u32; 3], [0; 3]);
        for (x, y) in a.iter_mut().zip(args) {
            *x = *y as u32;
        }
        for (x, y) in c.iter_mut().zip(k) {
            *x = y.to_bits();
        }
        self.intern(ExprNode::Instr { op: what, from, n: args.len() as u8, args: a, k: c }, dtype)
    }
    /// Returns the value of a float constant.
    fn constant_value(&self, x: usize) -> Option<f64> {
        match self.nodes[x] {
            (ExprNode::Const(b), DType::F32) => Some(f64::from(f32::from_bits(b as u32))),
            (ExprNode::Const(b), DType::F64) => Some(f64::from_bits(b as u64)),
            _ => None,
        }
    }
    /// Returns the node of a float constant.
    fn float_constant(&mut self, dtype: DType, x: f64) -> usize {
        self.constant(dtype, Scalar::Float(x))
    }
    /// Returns x·m + c, where one of the two steps changes nothing: m is 1, or c is −0.
    fn linear(&mut self, d: DType, x: usize, m: f64, c: f64) -> usize {
        let folded = self.constant_value(x).map(|v| match d {
            DType::F32 => f64::from(v as f32 * m as f32 + c as f32),
            _ => v * m + c,
        });
        match folded.filter(|y| !may_flush(d, *y)) {
            Some(y) => self.float_constant(d, y),
            None if m == 1.0 && c.to_bits() == NEG_ZERO.to_bits() => x,
            None => match (self.as_scaled(x), m == 1.0) {
                (Some((a, k)), true) => self.instr(InstrOp::Lin1, d, d, &[a], &[k, c]),
                _ => self.instr(InstrOp::Lin1, d, d, &[x], &[m, c]),
            },
        }
    }
    /// Returns a and k if the node is `k·a`.
    fn as_scaled(&self, x: usize) -> Option<(usize, f64)> {
        match self.nodes[x].0 {
            ExprNode::Instr { op: InstrOp::Lin1, args, k: [k, c, _], .. } if c == NEG_ZERO.to_bits() => {
                Some((args[0] as usize, f64::from_bits(k)))
            }
            _ => None,
        }
    }
    /// Returns the operands and factors if the node is a sum of two products.
    fn as_linear2(&self, x: usize) -> Option<([usize; 2], [f64; 2])> {
        match self.nodes[x].0 {
            ExprNode::Instr { op: InstrOp::Lin2, args: [a, b, _], k: [p, q, _], .. } => {
                Some(([a as usize, b as usize], [f64::from_bits(p), f64::from_bits(q)]))
            }
            _ => None,
        }
    }
    /// Returns two operands in memory and their factors, if all that is computed is the square of
    /// their sum.
    pub(crate) fn as_square_of_sum(&self) -> Option<([MemAccess; 2], [f64; 2])> {
        let product = self.nodes.len().checked_sub(1)?;
        let [x, y] = self.as_product(product).filter(|_| product == 3)?;
        let ([a, b], factors) = self.as_linear2(x).filter(|_| x == y)?;
        match (self.nodes[a].0, self.nodes[b].0) {
            (ExprNode::Mem(a), ExprNode::Mem(b)) => Some(([a, b], factors)),
            _ => None,
        }
    }
    /// Returns the factors if the node is a product of two values.
    fn as_product(&self, x: usize) -> Option<[usize; 2]> {
        match self.nodes[x].0 {
            ExprNode::Instr { op: InstrOp::Scalar(ScalarOp::Mul), args: [a, b, _], .. } => {
                Some([a as usize, b as usize])
            }
            _ => None,
        }
    }
    /// Returns x + s·y, where s is 1 or −1.
    fn add_scaled(&mut self, d: DType, x: usize, y: usize, s: f64) -> usize {
        if let Some(c) = self.constant_value(y) {
            return self.linear(d, x, 1.0, s * c);
        }
        if let Some(c) = self.constant_value(x) {
            return self.linear(d, y, s, c);
        }
        let (p, q) = (self.as_scaled(x), self.as_scaled(y));
        let ((a, k), (b, m)) = (p.unwrap_or((x, 1.0)), q.unwrap_or((y, 1.0)));
        if let Some(([u, v], [f, g])) = self.as_linear2(x) {
            return self.instr(InstrOp::Lin3, d, d, &[u, v, b], &[f, g, s * m]);
        }
        // (not for a difference: −(u − v) is −0 where v − u is 0)
        if let (Some(([u, v], [f, g])), true) = (self.as_linear2(y), s == 1.0) {
            return self.instr(InstrOp::Lin3, d, d, &[u, v, a], &[f, g, k]);
        }
        if let (Some([u, v]), None, true) = (self.as_product(x), q, s == 1.0) {
            return self.instr(InstrOp::MulAdd, d, d, &[u, v, y], &[]);
        }
        if let (None, Some([u, v]), true) = (p, self.as_product(y), s == 1.0) {
            return self.instr(InstrOp::MulAdd, d, d, &[u, v, x], &[]);
        }
        self.instr(InstrOp::Lin2, d, d, &[a, b], &[k, s * m])
    }
    /// Returns the node of a scalar operation; `from` is the element type of its operands.
    pub(crate) fn apply(&mut self, fun: ScalarOp, from: DType, dtype: DType, a: &[usize]) -> usize {
        let linear = matches!(from, DType::F32 | DType::F64);
        match fun {
            ScalarOp::Copy => a[0],
            ScalarOp::Convert if from == dtype => a[0],
            ScalarOp::Bitcast if from == dtype => a[0],
            ScalarOp::Add if linear => self.add_scaled(dtype, a[0], a[1], 1.0),
            ScalarOp::Sub if linear => self.add_scaled(dtype, a[0], a[1], -1.0),
            ScalarOp::Neg if linear => self.linear(dtype, a[0], -1.0, NEG_ZERO),
            ScalarOp::Mul if linear => match (self.constant_value(a[0]), self.constant_value(a[1])) {
                (Some(c), _) => self.linear(dtype, a[1], c, NEG_ZERO),
                (_, Some(c)) => self.linear(dtype, a[0], c, NEG_ZERO),
                _ => self.instr(InstrOp::Scalar(fun), from, dtype, a, &[]),
            },
            // only a division by a power of two is exact as a product
            ScalarOp::Div if linear && self.constant_value(a[1]).is_some_and(has_exact_inverse) => {
                let c = self.constant_value(a[1]).unwrap_or(1.0);
                self.linear(dtype, a[0], 1.0 / c, NEG_ZERO)
            }
            _ => self.instr(InstrOp::Scalar(fun), from, dtype, a, &[]),
        }
    }
}

/// Returns true if a result depends on whether the program flushes subnormal numbers.
///
/// It is then computed when the program runs. (A result that was rounded to the smallest normal
/// number may have been subnormal before.)
fn may_flush(dtype: DType, x: f64) -> bool {
    let least = if dtype == DType::F32 { f32::MIN_POSITIVE.into() } else { f64::MIN_POSITIVE };
    x != 0.0 && x.abs() <= least
}

/// Returns true if multiplying by 1/x equals dividing by x, because x is a power of two.
fn has_exact_inverse(x: f64) -> bool {
    let e = (x.to_bits() >> 52 & 0x7ff) as i64 - 1023;
    x.to_bits() << 12 == 0 && (-100..100).contains(&e)
}

/// Returns the bits of a scalar as an element of this type.
/// The low half of a 16-byte element is its first 8 bytes.
pub(crate) fn scalar_bits(dtype: DType, x: Scalar) -> u128 {
    let two = |low: u64, high: u64| u128::from(low) | u128::from(high) << 64;
    u128::from(match dtype {
        DType::Bool => u64::from(match x {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
            Scalar::Complex(re, im) => re != 0.0 || im != 0.0,
        }),
        DType::F16 => u64::from(x.to_f16().to_bits()),
        DType::BF16 => u64::from(x.to_bf16().to_bits()),
        DType::F32 => u64::from(x.to_f32().to_bits()),
        DType::F64 => x.to_f64().to_bits(),
        DType::I8 | DType::U8 => x.to_i128() as u8 as u64,
        DType::I16 | DType::U16 => x.to_i128() as u16 as u64,
        DType::I32 | DType::U32 => x.to_i128() as u32 as u64,
        DType::I64 | DType::U64 | DType::Key => x.to_i128() as u64,
        DType::C64 => {
            let (x, mut bytes) = (x.to_c64(), [0; 8]);
            bytes[..4].copy_from_slice(&x.re.to_ne_bytes());
            bytes[4..].copy_from_slice(&x.im.to_ne_bytes());
            u64::from_ne_bytes(bytes)
        }
        DType::C128 => return two(x.to_c128().re.to_bits(), x.to_c128().im.to_bits()),
    })
}

/// Returns the approximate cost of an instruction on vectors, in nanoseconds per element.
pub(crate) fn instr_ns_per_element(what: InstrOp, from: DType, dtype: DType) -> f64 {
    let wide = from.size().max(dtype.size()) as f64 / 4.0;
    let slow = match what {
        InstrOp::Scalar(f) => f.info().ns_per_element(from, dtype),
        InstrOp::Lin1 | InstrOp::Lin2 | InstrOp::Lin3 | InstrOp::MulAdd => 0.025,
    };
    slow * wide.max(0.25)
}

/// Returns the approximate cost of a reduction, in nanoseconds per element.
pub(crate) fn reduction_ns_per_element(combine: Reducer, dtype: DType) -> f64 {
    let slow = if matches!(combine, Reducer::Max | Reducer::Min) { 0.05 } else { 0.02 };
    slow * (dtype.size() as f64 / 4.0).max(0.25)
}
