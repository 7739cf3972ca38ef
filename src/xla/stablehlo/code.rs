//! Elementwise code: each scalar instruction becomes one StableHLO operation or a few.

use super::narrow::narrowed;
use super::writer::{Ssa, Writer, names, types};
use super::{FaultResult, syntax::tensor, unsupported};
use crate::core::{DType, Scalar, StableHloForm};
use crate::ir::program::{LoopNest, ScalarArg, ScalarCode, ScalarInst, ScalarOp};

impl Writer {
    /// Writes scalar code over all loops of a loop nest, and returns its value.
    pub(super) fn code(&mut self, code: &ScalarCode, s: &LoopNest, operands: &[Ssa]) -> FaultResult<Ssa> {
        let loops: Vec<usize> = (0..s.extents.len()).collect();
        let reads = s.accesses.iter().map(|r| self.read(r, &s.extents, &loops, operands));
        let reads = reads.collect::<FaultResult<Vec<_>>>()?;
        self.insts(code, &s.extents, &reads)
    }
    fn insts(&mut self, code: &ScalarCode, shape: &[usize], reads: &[Ssa]) -> FaultResult<Ssa> {
        let mut made: Vec<Ssa> = Vec::new();
        for inst in &narrowed(code) {
            let mut args = Vec::new();
            for (k, arg) in inst.args.iter().enumerate() {
                args.push(match arg {
                    ScalarArg::Access(r) => reads[*r].clone(),
                    ScalarArg::Inst(i) => made[*i].clone(),
                    ScalarArg::Const(c) => {
                        let d = if inst.op == ScalarOp::Select && k == 0 {
                            DType::Bool
                        } else {
                            inst.operand_dtype
                        };
                        self.constant(d, *c, shape)
                    }
                    ScalarArg::Index(l) => self.iota(*l, DType::I64, shape),
                });
            }
            made.push(self.inst(inst, &args)?);
        }
        made.pop().or_else(|| reads.last().cloned()).ok_or_else(|| unsupported("code without instructions"))
    }
    /// Writes one scalar instruction.
    fn inst(&mut self, inst: &ScalarInst, args: &[Ssa]) -> FaultResult<Ssa> {
        let (x, shape) = (&args[0], &args[0].shape[..]);
        let (from, dtype) = (x.dtype, inst.dtype.storage());
        let typed =
            |w: &mut Self, op: &str| w.typed(&format!("stablehlo.{op} {}", x.name), &[x], dtype, shape);
        Ok(match (inst.op, inst.op.info().stablehlo) {
            (ScalarOp::Abs, _) if from.is_complex() => typed(self, "abs"),
            (ScalarOp::Abs, _) if !from.is_signed() && !from.is_float() => x.clone(),
            (ScalarOp::Sign, _) if from.is_unsigned() => {
                let one = self.int(from, 1, shape);
                self.elementwise("minimum", &[x, &one])
            }
            (ScalarOp::Max, _) if from.is_complex() => self.complex_extreme("GT", x, &args[1]),
            (ScalarOp::Min, _) if from.is_complex() => self.complex_extreme("LT", x, &args[1]),
            (_, StableHloForm::Operation(op)) => self.elementwise(op, &args.iter().collect::<Vec<_>>()),
            (_, StableHloForm::Conversion(op)) => typed(self, op),
            (_, StableHloForm::Compare(direction)) => self.compare(direction, x, &args[1]),
            (_, StableHloForm::Chlo(op)) => {
                let text = format!("\"chlo.{op}\"({}) : ({}) -> {}", names(args), types(args), x.ty());
                self.op(text, dtype, shape)
            }
            (_, StableHloForm::Composed | StableHloForm::Missing) => self.composed(inst, args)?,
        })
    }
    /// Writes a scalar instruction that is several StableHLO operations, or has special types.
    fn composed(&mut self, inst: &ScalarInst, args: &[Ssa]) -> FaultResult<Ssa> {
        let (x, shape) = (&args[0], &args[0].shape[..]);
        let (from, dtype) = (x.dtype, inst.dtype.storage());
        Ok(match inst.op {
            ScalarOp::Copy => x.clone(),
            ScalarOp::Convert => self.converted(x, dtype),
            ScalarOp::Bitcast if from == dtype => x.clone(),
            ScalarOp::Bitcast => {
                self.typed(&format!("stablehlo.bitcast_convert {}", x.name), &[x], dtype, shape)
            }
            ScalarOp::Select => self.select(x, &args[1], &args[2]),
            ScalarOp::Complex => {
                let text = format!("stablehlo.complex {}", names(args));
                self.op(format!("{text} : {}", tensor(dtype, shape)), dtype, shape)
            }
            ScalarOp::Conj => {
                let part = from.real();
                let re = self.typed(&format!("stablehlo.real {}", x.name), &[x], part, shape);
                let im = self.typed(&format!("stablehlo.imag {}", x.name), &[x], part, shape);
                let im = self.elementwise("negate", &[&im]);
                let text = format!("stablehlo.complex {} : {}", names([&re, &im]), x.ty());
                self.op(text, dtype, shape)
            }
            ScalarOp::Exp2 => {
                let two = self.constant(from, Scalar::Float(std::f64::consts::LN_2), shape);
                let scaled = self.elementwise("multiply", &[x, &two]);
                self.elementwise("exponential", &[&scaled])
            }
            // sin πx = ±sin πb for x up to whole turns, and sin πb = sin π(±1 − b)
            ScalarOp::Sinpi => {
                let b = self.whole_turns_removed(x);
                let half = self.constant(from, Scalar::Float(0.5), shape);
                let (size, end) = (self.elementwise("abs", &[&b]), self.elementwise("sign", &[&b]));
                let rest = self.elementwise("subtract", &[&end, &b]);
                let is_far = self.compare("GT", &size, &half);
                let near = self.select(&is_far, &rest, &b);
                let (sine, sign) = (self.sine_of_half_turns(&near), self.elementwise("sign", &[x]));
                self.elementwise("multiply", &[&sine, &sign])
            }
            // cos πx = sin π(½ − |b|), for x up to whole turns
            ScalarOp::Cospi => {
                let b = self.whole_turns_removed(x);
                let (half, size) =
                    (self.constant(from, Scalar::Float(0.5), shape), self.elementwise("abs", &[&b]));
                let rest = self.elementwise("subtract", &[&half, &size]);
                self.sine_of_half_turns(&rest)
            }
            ScalarOp::FlushSubnormals if from.is_float() => self.flushed(x),
            ScalarOp::Threefry => self.threefry(x, &args[1]),
            op => return Err(unsupported(format!("{op:?} of {from} has no StableHLO"))),
        })
    }
    /// Writes |x| minus the nearest even integer, which is between −1 and 1.
    fn whole_turns_removed(&mut self, x: &Ssa) -> Ssa {
        let [half, two] = [0.5, 2.0].map(|c| self.constant(x.dtype, Scalar::Float(c), &x.shape));
        let size = self.elementwise("abs", &[x]);
        let turns = self.elementwise("multiply", &[&size, &half]);
        let turns = self.elementwise("add", &[&turns, &half]);
        let turns = self.elementwise("floor", &[&turns]);
        let even = self.elementwise("multiply", &[&turns, &two]);
        self.elementwise("subtract", &[&size, &even])
    }
    /// Writes sin πx.
    fn sine_of_half_turns(&mut self, x: &Ssa) -> Ssa {
        let pi = self.constant(x.dtype, Scalar::Float(std::f64::consts::PI), &x.shape);
        let angle = self.elementwise("multiply", &[x, &pi]);
        self.elementwise("sine", &[&angle])
    }
    /// Writes the floats `x` with zeros of their signs instead of subnormal numbers.
    fn flushed(&mut self, x: &Ssa) -> Ssa {
        let least = match x.dtype {
            DType::F16 => return x.clone(),
            DType::F64 => f64::MIN_POSITIVE,
            _ => f32::MIN_POSITIVE.into(),
        };
        let least = self.constant(x.dtype, Scalar::Float(least), &x.shape);
        let zero = self.constant(x.dtype, Scalar::zero(x.dtype), &x.shape);
        let (size, zero) = (self.elementwise("abs", &[x]), self.elementwise("multiply", &[x, &zero]));
        let small = self.compare("LT", &size, &least);
        self.select(&small, &zero, x)
    }
    /// Writes the maximum (`GT`) or minimum (`LT`) of complex numbers. StableHLO does not order
    /// them. They are ordered by their real parts, then by their imaginary parts; NaN wins.
    fn complex_extreme(&mut self, how: &str, a: &Ssa, b: &Ssa) -> Ssa {
        let part = |w: &mut Self, name: &str, x: &Ssa| {
            w.typed(&format!("stablehlo.{name} {}", x.name), &[x], x.dtype.real(), &x.shape)
        };
        let [a_re, a_im, b_re, b_im] =
            [("real", a), ("imag", a), ("real", b), ("imag", b)].map(|(name, x)| part(self, name, x));
        let is_nan = |w: &mut Self, re: &Ssa, im: &Ssa| {
            let (re, im) = (w.compare("NE", re, re), w.compare("NE", im, im));
            w.elementwise("or", &[&re, &im])
        };
        let (a_nan, b_nan) = (is_nan(self, &a_re, &a_im), is_nan(self, &b_re, &b_im));
        let (first, tie) = (self.compare(how, &a_re, &b_re), self.compare("EQ", &a_re, &b_re));
        let second = self.compare(how, &a_im, &b_im);
        let second = self.elementwise("and", &[&tie, &second]);
        let wins = self.elementwise("or", &[&first, &second]);
        let b_number = self.elementwise("not", &[&b_nan]);
        let wins = self.elementwise("and", &[&wins, &b_number]);
        let takes_a = self.elementwise("or", &[&a_nan, &wins]);
        self.select(&takes_a, a, b)
    }
    /// Converts elements to another type.
    /// Conversion to bool is `!= 0`, and conversion of a complex number to a real type takes its
    /// real part.
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

    /// Writes the Threefry hash of each pair of elements, in 32-bit words.
    fn threefry(&mut self, key: &Ssa, counter: &Ssa) -> Ssa {
        const ROTATIONS: [[i64; 4]; 2] = [[13, 15, 26, 6], [17, 29, 16, 24]];
        let shape = key.shape.clone();
        let (k1, k0) = self.split_words(key);
        let (c0, c1) = self.split_words(counter);
        let mixed = self.elementwise("xor", &[&k0, &k1]);
        let magic = self.int(DType::U32, 0x1BD1_1BDA, &shape);
        let third = self.elementwise("xor", &[&mixed, &magic]);
        let keys = [k0, k1, third];
        let (mut x, mut y) =
            (self.elementwise("add", &[&c0, &keys[0]]), self.elementwise("add", &[&c1, &keys[1]]));
        for group in 0..5 {
            for r in ROTATIONS[group % 2] {
                x = self.elementwise("add", &[&x, &y]);
                let (left, right) = (self.int(DType::U32, r, &shape), self.int(DType::U32, 32 - r, &shape));
                let up = self.elementwise("shift_left", &[&y, &left]);
                let down = self.elementwise("shift_right_logical", &[&y, &right]);
                let turned = self.elementwise("or", &[&up, &down]);
                y = self.elementwise("xor", &[&turned, &x]);
            }
            x = self.elementwise("add", &[&x, &keys[(group + 1) % 3]]);
            y = self.elementwise("add", &[&y, &keys[(group + 2) % 3]]);
            let n = self.int(DType::U32, group as i64 + 1, &shape);
            y = self.elementwise("add", &[&y, &n]);
        }
        self.join_words(&y, &x)
    }
    /// Returns the high and the low 32-bit word of each ui64.
    pub(super) fn split_words(&mut self, x: &Ssa) -> (Ssa, Ssa) {
        let n = self.int(DType::U64, 32, &x.shape);
        let up = self.elementwise("shift_right_logical", &[x, &n]);
        (self.convert(&up, DType::U32), self.convert(x, DType::U32))
    }
    /// Joins high and low 32-bit words to ui64.
    pub(super) fn join_words(&mut self, high: &Ssa, low: &Ssa) -> Ssa {
        let (high, low) = (self.convert(high, DType::U64), self.convert(low, DType::U64));
        let n = self.int(DType::U64, 32, &low.shape);
        let up = self.elementwise("shift_left", &[&high, &n]);
        self.elementwise("or", &[&low, &up])
    }
}
