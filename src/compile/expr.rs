//! Expressions of one cell: value numbering, constants, and linear terms joined into one instruction.
//!
//! Whether a product and a sum become one fused multiply-add is decided here and nowhere else, so that all engines round alike.

use super::index::Ix;
use crate::program::sentence::{Combine, Fun};
use crate::types::{DType, Scalar};

/// The slot of operands that are positions: its base pointer is 0, so that the address is the number.
pub(crate) const POSITION: u32 = u32::MAX;

/// A place in memory: byte `off + Σ index · st` of a slot.
#[derive(Clone, Copy, PartialEq, Debug)]
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

/// What an instruction does.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Do {
    /// A function of the language.
    Fun(Fun),
    /// `k0·a + k1`.
    Lin1,
    /// `k0·a + k1·b`.
    Lin2,
    /// `k0·a + k1·b + k2·c`.
    Lin3,
    /// `a·b + c`.
    MulAdd,
}

/// A value of a cell.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) enum Node {
    /// The same bits everywhere.
    Const(u64),
    /// In memory.
    Mem(Mem),
    /// The positions that `Mem` addresses, as int64.
    Position(Mem),
    /// Computed.
    Op { what: Do, from: DType, n: u8, args: [u32; 3], k: [f64; 3] },
}

/// The values of a cell, each once.
#[derive(Default, Debug)]
pub(crate) struct Expr {
    /// In an order in which operands come first.
    pub(crate) nodes: Vec<(Node, DType)>,
}

/// The neutral element of addition: x + −0 is x, also where x is −0.
const NIL: f64 = -0.0;

impl Expr {
    fn add(&mut self, node: Node, dtype: DType) -> usize {
        self.nodes.iter().position(|n| n.1 == dtype && n.0 == node).unwrap_or_else(|| {
            self.nodes.push((node, dtype));
            self.nodes.len() - 1
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
        let (mut a, mut c) = ([args[0] as u32; 3], [0.0; 3]);
        for (x, y) in a.iter_mut().zip(args) {
            *x = *y as u32;
        }
        c[..k.len()].copy_from_slice(k);
        self.add(Node::Op { what, from, n: args.len() as u8, args: a, k: c }, dtype)
    }
    fn number(&self, x: usize) -> Option<f64> {
        match self.nodes[x] {
            (Node::Const(b), DType::F32) => Some(f64::from(f32::from_bits(b as u32))),
            (Node::Const(b), DType::F64) => Some(f64::from_bits(b)),
            _ => None,
        }
    }
    fn float(&mut self, dtype: DType, x: f64) -> usize {
        self.constant(dtype, Scalar::Float(x))
    }
    /// x·m + c.
    fn lin(&mut self, d: DType, x: usize, m: f64, c: f64) -> usize {
        match self.number(x) {
            Some(v) if d == DType::F32 => self.float(d, f64::from((v as f32).mul_add(m as f32, c as f32))),
            Some(v) => self.float(d, v.mul_add(m, c)),
            None if m == 1.0 && c == 0.0 && c.is_sign_negative() => x,
            None => match self.nodes[x].0 {
                // (k·a) + c
                Node::Op { what: Do::Lin1, args, k, .. } if m == 1.0 && k[1].to_bits() == NIL.to_bits() => {
                    self.op(Do::Lin1, d, d, &[args[0] as usize], &[k[0], c])
                }
                _ => self.op(Do::Lin1, d, d, &[x], &[m, c]),
            },
        }
    }
    /// x + s·y.
    fn sum(&mut self, d: DType, x: usize, y: usize, s: f64) -> usize {
        let (nx, ny) = (self.nodes[x].0, self.nodes[y].0);
        if let Some(c) = self.number(y) {
            return self.lin(d, x, 1.0, s * c);
        }
        if let Some(c) = self.number(x) {
            return self.lin(d, y, s, c);
        }
        let term = |n: &Node, id: usize| match n {
            Node::Op { what: Do::Lin1, args, k, .. } if k[1].to_bits() == NIL.to_bits() => {
                (args[0] as usize, k[0])
            }
            _ => (id, 1.0),
        };
        match (nx, ny) {
            (Node::Op { what: Do::Lin2, args, k, .. }, n) => {
                let (b, m) = term(&n, y);
                self.op(Do::Lin3, d, d, &[args[0] as usize, args[1] as usize, b], &[k[0], k[1], s * m])
            }
            (n, Node::Op { what: Do::Lin2, args, k, .. }) => {
                let (b, m) = term(&n, x);
                self.op(Do::Lin3, d, d, &[args[0] as usize, args[1] as usize, b], &[s * k[0], s * k[1], m])
            }
            (Node::Op { what: Do::Fun(Fun::Mul), args, .. }, n)
                if s == 1.0 && !matches!(n, Node::Op { what: Do::Lin1, .. }) =>
            {
                self.op(Do::MulAdd, d, d, &[args[0] as usize, args[1] as usize, y], &[])
            }
            (n, Node::Op { what: Do::Fun(Fun::Mul), args, .. })
                if s == 1.0 && !matches!(n, Node::Op { what: Do::Lin1, .. }) =>
            {
                self.op(Do::MulAdd, d, d, &[args[0] as usize, args[1] as usize, x], &[])
            }
            (n, o) => {
                let ((a, p), (b, q)) = (term(&n, x), term(&o, y));
                self.op(Do::Lin2, d, d, &[a, b], &[p, s * q])
            }
        }
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

/// The bits of a number as an element of this type.
pub(crate) fn bits(dtype: DType, x: Scalar) -> u64 {
    match dtype {
        DType::Bool => u64::from(match x {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::Float(f) => f != 0.0,
        }),
        DType::F16 => u64::from(x.to_f16().to_bits()),
        DType::BF16 => u64::from(x.to_bf16().to_bits()),
        DType::F32 => u64::from((x.to_f64() as f32).to_bits()),
        DType::F64 => x.to_f64().to_bits(),
        DType::I8 | DType::U8 => x.to_i128() as u8 as u64,
        DType::I16 | DType::U16 => x.to_i128() as u16 as u64,
        DType::I32 | DType::U32 => x.to_i128() as u32 as u64,
        DType::I64 | DType::U64 | DType::Key => x.to_i128() as u64,
    }
}

/// Nanoseconds an element, roughly, of an instruction on vectors.
pub(crate) fn weight(what: Do, from: DType, dtype: DType) -> f64 {
    let wide = from.size().max(dtype.size()) as f64 / 4.0;
    let slow = match what {
        Do::Fun(f) => match f {
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
