//! Expressions of one cell: value numbering, constants, and linear terms joined into one instruction.
//!
//! An instruction computes what its operations compute one by one, each rounded: how many of them one kernel takes changes no bit. So
//! products and sums are joined, but never into a fused multiply-add, and only where each step is exact or rounded as it was.

use super::index::Ix;
use crate::program::sentence::{Combine, Fun};
use crate::types::{DType, Scalar};
use std::collections::HashMap;

/// The slot of operands that are positions: its base pointer is 0, so that the address is the number.
pub(crate) const POSITION: u32 = u32::MAX;

/// A place in memory: byte `off + Σ index · st` of a slot.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Mem {
    /// Which slot, or [`POSITION`].
    pub(crate) slot: u32,
    /// Bytes of an element; 1 for positions.
    pub(crate) size: u8,
    /// Byte at index 0.
    pub(crate) off: i64,
    /// Bytes a step of each dimension of the space.
    pub(crate) st: Ix,
}

/// What an instruction does; each product and each sum is rounded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Do {
    /// A function of the language.
    Fun(Fun),
    /// `k0·a + k1`.
    Lin1,
    /// `k0·a + k1·b`.
    Lin2,
    /// `(k0·a + k1·b) + k2·c`.
    Lin3,
    /// `a·b + c`.
    MulAdd,
}

/// A value of a cell; numbers by their bits, so that 0 is not −0.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Node {
    /// The same bits everywhere.
    Const(u128),
    /// In memory.
    Mem(Mem),
    /// The positions that `Mem` addresses, as int64.
    Position(Mem),
    /// Computed.
    Op { what: Do, from: DType, n: u8, args: [u32; 3], k: [u64; 3] },
}

/// The values of a cell, each once.
#[derive(Default, Debug)]
pub(crate) struct Expr {
    /// In an order in which operands come first.
    pub(crate) nodes: Vec<(Node, DType)>,
    /// Where each is, once there are more than a few.
    found: HashMap<(Node, DType), usize>,
}

/// The neutral element of addition: x + −0 is x, also where x is −0.
const NIL: f64 = -0.0;
/// Up to this many values a look through all of them is quicker than a hash.
const FEW: usize = 32;

impl Expr {
    /// Begins anew.
    pub(crate) fn clear(&mut self) {
        self.nodes.clear();
        self.found.clear();
    }
    fn add(&mut self, node: Node, dtype: DType) -> usize {
        let (next, new) = (self.nodes.len(), (node, dtype));
        let old = match next {
            ..FEW => self.nodes.iter().position(|n| *n == new),
            _ => {
                let first = self.found.len();
                self.found.extend(self.nodes.iter().copied().zip(0..).skip(first));
                self.found.get(&new).copied()
            }
        };
        old.unwrap_or_else(|| {
            self.nodes.push(new);
            next
        })
    }
    /// A constant.
    pub(crate) fn constant(&mut self, dtype: DType, x: Scalar) -> usize {
        self.add(Node::Const(bits(dtype, x)), dtype)
    }
    /// An element in memory.
    pub(crate) fn memory(&mut self, dtype: DType, m: Mem) -> usize {
        self.add(Node::Mem(m), dtype)
    }
    /// A position.
    pub(crate) fn position(&mut self, m: Mem) -> usize {
        self.add(Node::Position(m), DType::I64)
    }
    fn op(&mut self, what: Do, from: DType, dtype: DType, args: &[usize], k: &[f64]) -> usize {
        let (mut a, mut c) = ([args[0] as u32; 3], [0; 3]);
        for (x, y) in a.iter_mut().zip(args) {
            *x = *y as u32;
        }
        for (x, y) in c.iter_mut().zip(k) {
            *x = y.to_bits();
        }
        self.add(Node::Op { what, from, n: args.len() as u8, args: a, k: c }, dtype)
    }
    fn number(&self, x: usize) -> Option<f64> {
        match self.nodes[x] {
            (Node::Const(b), DType::F32) => Some(f64::from(f32::from_bits(b as u32))),
            (Node::Const(b), DType::F64) => Some(f64::from_bits(b as u64)),
            _ => None,
        }
    }
    fn float(&mut self, dtype: DType, x: f64) -> usize {
        self.constant(dtype, Scalar::Float(x))
    }
    /// x·m + c, where one of the two steps changes nothing: m is 1, or c is −0.
    fn lin(&mut self, d: DType, x: usize, m: f64, c: f64) -> usize {
        match self.number(x) {
            Some(v) if d == DType::F32 => self.float(d, f64::from(v as f32 * m as f32 + c as f32)),
            Some(v) => self.float(d, v * m + c),
            None if m == 1.0 && c.to_bits() == NIL.to_bits() => x,
            None => match (self.scaled(x), m == 1.0) {
                (Some((a, k)), true) => self.op(Do::Lin1, d, d, &[a], &[k, c]),
                _ => self.op(Do::Lin1, d, d, &[x], &[m, c]),
            },
        }
    }
    /// The value and the factor of which this is the product.
    fn scaled(&self, x: usize) -> Option<(usize, f64)> {
        match self.nodes[x].0 {
            Node::Op { what: Do::Lin1, args, k: [k, c, _], .. } if c == NIL.to_bits() => {
                Some((args[0] as usize, f64::from_bits(k)))
            }
            _ => None,
        }
    }
    /// The operands and factors of a sum of two products.
    fn pair(&self, x: usize) -> Option<([usize; 2], [f64; 2])> {
        match self.nodes[x].0 {
            Node::Op { what: Do::Lin2, args: [a, b, _], k: [p, q, _], .. } => {
                Some(([a as usize, b as usize], [f64::from_bits(p), f64::from_bits(q)]))
            }
            _ => None,
        }
    }
    /// The operands of a product of two values.
    fn product(&self, x: usize) -> Option<[usize; 2]> {
        match self.nodes[x].0 {
            Node::Op { what: Do::Fun(Fun::Mul), args: [a, b, _], .. } => Some([a as usize, b as usize]),
            _ => None,
        }
    }
    /// x + s·y, where s is 1 or −1.
    fn sum(&mut self, d: DType, x: usize, y: usize, s: f64) -> usize {
        if let Some(c) = self.number(y) {
            return self.lin(d, x, 1.0, s * c);
        }
        if let Some(c) = self.number(x) {
            return self.lin(d, y, s, c);
        }
        let (p, q) = (self.scaled(x), self.scaled(y));
        let ((a, k), (b, m)) = (p.unwrap_or((x, 1.0)), q.unwrap_or((y, 1.0)));
        if let Some(([u, v], [f, g])) = self.pair(x) {
            return self.op(Do::Lin3, d, d, &[u, v, b], &[f, g, s * m]);
        }
        // (not of a difference: u − v and v − u are both 0)
        if let (Some(([u, v], [f, g])), true) = (self.pair(y), s == 1.0) {
            return self.op(Do::Lin3, d, d, &[u, v, a], &[f, g, k]);
        }
        if let (Some([u, v]), None, true) = (self.product(x), q, s == 1.0) {
            return self.op(Do::MulAdd, d, d, &[u, v, y], &[]);
        }
        if let (None, Some([u, v]), true) = (p, self.product(y), s == 1.0) {
            return self.op(Do::MulAdd, d, d, &[u, v, x], &[]);
        }
        self.op(Do::Lin2, d, d, &[a, b], &[k, s * m])
    }
    /// A function of values; `from` is the element type of its operands.
    pub(crate) fn fun(&mut self, fun: Fun, from: DType, dtype: DType, a: &[usize]) -> usize {
        let linear = matches!(from, DType::F32 | DType::F64);
        match fun {
            Fun::Copy => a[0],
            Fun::Convert if from == dtype => a[0],
            Fun::Bitcast if from == dtype => a[0],
            Fun::Add if linear => self.sum(dtype, a[0], a[1], 1.0),
            Fun::Sub if linear => self.sum(dtype, a[0], a[1], -1.0),
            Fun::Neg if linear => self.lin(dtype, a[0], -1.0, NIL),
            Fun::Mul if linear => match (self.number(a[0]), self.number(a[1])) {
                (Some(c), _) => self.lin(dtype, a[1], c, NIL),
                (_, Some(c)) => self.lin(dtype, a[0], c, NIL),
                _ => self.op(Do::Fun(fun), from, dtype, a, &[]),
            },
            // exact for powers of two only
            Fun::Div if linear && self.number(a[1]).is_some_and(exact_inverse) => {
                let c = self.number(a[1]).unwrap_or(1.0);
                self.lin(dtype, a[0], 1.0 / c, NIL)
            }
            _ => self.op(Do::Fun(fun), from, dtype, a, &[]),
        }
    }
}

/// Whether multiplying by 1/x is dividing by x.
fn exact_inverse(x: f64) -> bool {
    let e = (x.to_bits() >> 52 & 0x7ff) as i64 - 1023;
    x.to_bits() << 12 == 0 && (-100..100).contains(&e)
}

/// The bits of a number as an element of this type: of 16 bytes the first 8 are the low ones.
pub(crate) fn bits(dtype: DType, x: Scalar) -> u128 {
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

/// Nanoseconds an element, roughly, of an instruction on vectors.
pub(crate) fn weight(what: Do, from: DType, dtype: DType) -> f64 {
    let wide = from.size().max(dtype.size()) as f64 / 4.0;
    let slow = match what {
        Do::Fun(f) => match f {
            Fun::Add | Fun::Sub | Fun::Neg | Fun::Conj | Fun::Real | Fun::Imag | Fun::Complex => 0.025,
            Fun::Mul | Fun::Abs if from.is_complex() => 0.1,
            Fun::Div | Fun::Sign if from.is_complex() => 2.0,
            Fun::Exp | Fun::Log | Fun::Sqrt | Fun::Sin | Fun::Cos if from.is_complex() => 15.0,
            Fun::Sin | Fun::Cos => 0.35,
            Fun::Exp | Fun::Exp2 | Fun::Expm1 | Fun::Tanh | Fun::Logistic | Fun::Erf => 0.25,
            Fun::Log | Fun::Log1p => 0.5,
            Fun::Div | Fun::Sqrt | Fun::Rsqrt if dtype.is_float() => 0.1,
            Fun::Div | Fun::Rem => 1.5,
            Fun::Threefry => 2.5,
            Fun::Tan
            | Fun::Asin
            | Fun::Acos
            | Fun::Atan
            | Fun::Sinh
            | Fun::Cosh
            | Fun::Asinh
            | Fun::Acosh => 6.0,
            Fun::Atanh | Fun::Cbrt | Fun::ErfInv | Fun::Pow | Fun::Atan2 | Fun::NextAfter => 8.0,
            _ => 0.025,
        },
        _ => 0.025,
    };
    slow * wide.max(0.25)
}

/// Nanoseconds an element of a fold.
pub(crate) fn fold_weight(combine: Combine, dtype: DType) -> f64 {
    let slow = if matches!(combine, Combine::Max | Combine::Min) { 0.05 } else { 0.02 };
    slow * (dtype.size() as f64 / 4.0).max(0.25)
}
