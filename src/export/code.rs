//! Elementwise code: each instruction is an operation or a few.

use super::text::tensor;
use super::writer::{Ssa, Writer, names, types};
use super::{Out, unsupported};
use crate::program::sentence::{Arg, Code, Fun, Inst, Sentence};
use crate::types::{DType, Scalar};

impl Writer {
    /// Code over all loops, of operands in the text.
    pub(super) fn code(&mut self, code: &Code, s: &Sentence, operands: &[Ssa]) -> Out<Ssa> {
        let loops: Vec<usize> = (0..s.extents.len()).collect();
        let reads = s.reads.iter().map(|r| self.read(r, &s.extents, &loops, operands));
        let reads = reads.collect::<Out<Vec<_>>>()?;
        self.insts(code, &s.extents, &reads)
    }
    fn insts(&mut self, code: &Code, shape: &[usize], reads: &[Ssa]) -> Out<Ssa> {
        let mut made: Vec<Ssa> = Vec::new();
        for inst in &code.insts {
            let mut args = Vec::new();
            for (k, arg) in inst.args.iter().enumerate() {
                args.push(match arg {
                    Arg::Read(r) => reads[*r].clone(),
                    Arg::Inst(i) => made[*i].clone(),
                    Arg::Const(c) => {
                        let d = if inst.fun == Fun::Select && k == 0 { DType::Bool } else { inst.from };
                        self.constant(d, *c, shape)
                    }
                    Arg::Index(l) => self.iota(*l, DType::I64, shape),
                });
            }
            made.push(self.inst(inst, &args)?);
        }
        made.pop().or_else(|| reads.last().cloned()).ok_or_else(|| unsupported("code without instructions"))
    }
    /// One instruction.
    fn inst(&mut self, inst: &Inst, args: &[Ssa]) -> Out<Ssa> {
        let (x, shape) = (&args[0], &args[0].shape[..]);
        let (from, dtype) = (x.dtype, inst.dtype.storage());
        Ok(match inst.fun {
            Fun::Copy => x.clone(),
            Fun::Convert => self.converted(x, dtype),
            Fun::Bitcast => match from == dtype {
                true => x.clone(),
                false => self.typed(&format!("stablehlo.bitcast_convert {}", x.name), &[x], dtype, shape),
            },
            Fun::IsFinite => self.typed(&format!("stablehlo.is_finite {}", x.name), &[x], dtype, shape),
            Fun::Eq | Fun::Ne | Fun::Lt | Fun::Le | Fun::Gt | Fun::Ge => {
                self.compare(&format!("{:?}", inst.fun).to_uppercase(), x, &args[1])
            }
            Fun::Select => self.select(x, &args[1], &args[2]),
            Fun::Abs if from.is_complex() => {
                self.typed(&format!("stablehlo.abs {}", x.name), &[x], dtype, shape)
            }
            Fun::Abs if !from.is_signed() && !from.is_float() => x.clone(),
            Fun::Sign if from.is_unsigned() => {
                let one = self.int(from, 1, shape);
                self.same("minimum", &[x, &one])
            }
            Fun::Real | Fun::Imag => {
                let op = if inst.fun == Fun::Real { "real" } else { "imag" };
                self.typed(&format!("stablehlo.{op} {}", x.name), &[x], dtype, shape)
            }
            Fun::Complex => {
                let text = format!("stablehlo.complex {}", names(args));
                self.op(format!("{text} : {}", tensor(dtype, shape)), dtype, shape)
            }
            Fun::Conj => {
                let part = from.real();
                let re = self.typed(&format!("stablehlo.real {}", x.name), &[x], part, shape);
                let im = self.typed(&format!("stablehlo.imag {}", x.name), &[x], part, shape);
                let im = self.same("negate", &[&im]);
                let text = format!("stablehlo.complex {} : {}", names([&re, &im]), x.ty());
                self.op(text, dtype, shape)
            }
            Fun::Exp2 => {
                let two = self.constant(from, Scalar::Float(std::f64::consts::LN_2), shape);
                let scaled = self.same("multiply", &[x, &two]);
                self.same("exponential", &[&scaled])
            }
            Fun::Max | Fun::Min if from.is_complex() => {
                return Err(unsupported("an order of complex numbers has no StableHLO"));
            }
            Fun::Threefry => self.threefry(x, &args[1]),
            fun => match (stablehlo(fun), chlo(fun)) {
                (Some(op), _) => self.same(op, &args.iter().collect::<Vec<_>>()),
                (None, Some(op)) => {
                    let text = format!("\"chlo.{op}\"({}) : ({}) -> {}", names(args), types(args), x.ty());
                    self.op(text, dtype, shape)
                }
                (None, None) => return Err(unsupported(format!("{fun:?} has no StableHLO"))),
            },
        })
    }
    /// As another element type: to bool is `!= 0`, of a complex number the real part.
    fn converted(&mut self, x: &Ssa, to: DType) -> Ssa {
        if to == DType::Bool && x.dtype != DType::Bool {
            let zero = self.constant(x.dtype, Scalar::zero(x.dtype), &x.shape);
            return self.compare("NE", x, &zero);
        }
        if x.dtype.is_complex() && !to.is_complex() {
            let re = self.typed(&format!("stablehlo.real {}", x.name), &[x], x.dtype.real(), &x.shape);
            return self.convert(&re, to);
        }
        self.convert(x, to)
    }

    /// The hash of each pair of elements, in words of 32 bits.
    fn threefry(&mut self, key: &Ssa, counter: &Ssa) -> Ssa {
        const ROTATIONS: [[i64; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
        let shape = key.shape.clone();
        let (k1, k0) = self.halves(key);
        let (c0, c1) = self.halves(counter);
        let mixed = self.same("xor", &[&k0, &k1]);
        let magic = self.int(DType::U32, 0x1BD1_1BDA, &shape);
        let third = self.same("xor", &[&mixed, &magic]);
        let keys = [k0, k1, third];
        let (mut x, mut y) = (self.same("add", &[&c0, &keys[0]]), self.same("add", &[&c1, &keys[1]]));
        for group in 0..5 {
            for r in ROTATIONS[group % 2] {
                x = self.same("add", &[&x, &y]);
                let (left, right) = (self.int(DType::U32, r, &shape), self.int(DType::U32, 32 - r, &shape));
                let up = self.same("shift_left", &[&y, &left]);
                let down = self.same("shift_right_logical", &[&y, &right]);
                let turned = self.same("or", &[&up, &down]);
                y = self.same("xor", &[&turned, &x]);
            }
            x = self.same("add", &[&x, &keys[(group + 1) % 3]]);
            y = self.same("add", &[&y, &keys[(group + 2) % 3]]);
            let n = self.int(DType::U32, group as i64 + 1, &shape);
            y = self.same("add", &[&y, &n]);
        }
        self.joined(&y, &x)
    }
    /// The high and the low word of each ui64.
    pub(super) fn halves(&mut self, x: &Ssa) -> (Ssa, Ssa) {
        let n = self.int(DType::U64, 32, &x.shape);
        let up = self.same("shift_right_logical", &[x, &n]);
        (self.convert(&up, DType::U32), self.convert(x, DType::U32))
    }
    /// Each ui64 of a high and a low word.
    pub(super) fn joined(&mut self, high: &Ssa, low: &Ssa) -> Ssa {
        let (high, low) = (self.convert(high, DType::U64), self.convert(low, DType::U64));
        let n = self.int(DType::U64, 32, &low.shape);
        let up = self.same("shift_left", &[&high, &n]);
        self.same("or", &[&low, &up])
    }
}

/// The operation of the same name and meaning.
fn stablehlo(fun: Fun) -> Option<&'static str> {
    Some(match fun {
        Fun::Neg => "negate",
        Fun::Sign => "sign",
        Fun::Abs => "abs",
        Fun::Floor => "floor",
        Fun::Ceil => "ceil",
        Fun::Round => "round_nearest_afz",
        Fun::Exp => "exponential",
        Fun::Expm1 => "exponential_minus_one",
        Fun::Log => "log",
        Fun::Log1p => "log_plus_one",
        Fun::Sin => "sine",
        Fun::Cos => "cosine",
        Fun::Tan => "tan",
        Fun::Tanh => "tanh",
        Fun::Sqrt => "sqrt",
        Fun::Rsqrt => "rsqrt",
        Fun::Cbrt => "cbrt",
        Fun::Logistic => "logistic",
        Fun::Not => "not",
        Fun::Add => "add",
        Fun::Sub => "subtract",
        Fun::Mul => "multiply",
        Fun::Div => "divide",
        Fun::Rem => "remainder",
        Fun::Max => "maximum",
        Fun::Min => "minimum",
        Fun::Pow => "power",
        Fun::Atan2 => "atan2",
        Fun::And => "and",
        Fun::Or => "or",
        Fun::Xor => "xor",
        Fun::ShiftLeft => "shift_left",
        Fun::ShiftRightLogical => "shift_right_logical",
        Fun::ShiftRightArithmetic => "shift_right_arithmetic",
        _ => return None,
    })
}

/// Its operation in CHLO, a dialect that XLA expands.
fn chlo(fun: Fun) -> Option<&'static str> {
    Some(match fun {
        Fun::Asin => "asin",
        Fun::Acos => "acos",
        Fun::Atan => "atan",
        Fun::Sinh => "sinh",
        Fun::Cosh => "cosh",
        Fun::Asinh => "asinh",
        Fun::Acosh => "acosh",
        Fun::Atanh => "atanh",
        Fun::Erf => "erf",
        Fun::ErfInv => "erf_inv",
        Fun::NextAfter => "next_after",
        _ => return None,
    })
}
