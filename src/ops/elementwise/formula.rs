//! Functions made of several instructions.

use crate::program::sentence::{Arg, Code, Fun};
use crate::types::{DType, Scalar};

/// Code under construction; floats of 16 bits are computed in float32 and rounded once.
pub(super) struct Formula {
    code: Code,
    narrow: DType,
    dtype: DType,
    /// The first operand.
    pub(super) x: Arg,
}

impl Formula {
    /// A function of operands of this element type.
    pub(super) fn new(dtype: DType) -> Formula {
        let mut f = Formula { code: Code { insts: Vec::new() }, narrow: dtype, dtype, x: Arg::Read(0) };
        if matches!(dtype, DType::F16 | DType::BF16) {
            f.dtype = DType::F32;
        }
        f.x = f.read(0);
        f
    }
    /// Operand k.
    pub(super) fn read(&mut self, k: usize) -> Arg {
        match self.narrow == self.dtype {
            true => Arg::Read(k),
            false => self.code.push(Fun::Convert, self.narrow, self.dtype, &[Arg::Read(k)]),
        }
    }
    pub(super) fn number(&self, x: f64) -> Arg {
        Arg::Const(if self.dtype.is_inexact() { Scalar::Float(x) } else { Scalar::Int(x as i128) })
    }
    pub(super) fn one(&mut self, fun: Fun, a: Arg) -> Arg {
        self.code.push(fun, self.dtype, self.dtype, &[a])
    }
    pub(super) fn two(&mut self, fun: Fun, a: Arg, b: Arg) -> Arg {
        self.code.push(fun, self.dtype, self.dtype, &[a, b])
    }
    /// `x` where a and b are equal, else `y`.
    pub(super) fn where_equal(&mut self, [a, b]: [Arg; 2], x: Arg, y: Arg) -> Arg {
        let equal = self.code.push(Fun::Eq, self.dtype, DType::Bool, &[a, b]);
        self.code.push(Fun::Select, self.dtype, self.dtype, &[equal, x, y])
    }
    /// x to this power, by squaring.
    pub(super) fn power(&mut self, mut n: u32) -> Arg {
        let (mut base, mut value) = (self.x, None);
        while n > 0 {
            if n & 1 == 1 {
                value = Some(value.map_or(base, |v| self.two(Fun::Mul, v, base)));
            }
            n >>= 1;
            if n > 0 {
                base = self.two(Fun::Mul, base, base);
            }
        }
        value.unwrap_or(self.number(1.0))
    }
    /// A part of the complex operand.
    pub(super) fn part(&mut self, fun: Fun) -> Arg {
        self.code.push(fun, self.dtype, self.dtype.real(), &[self.x])
    }
    /// The code whose result is this function of parts.
    pub(super) fn of_parts(mut self, fun: Fun, parts: [Arg; 2]) -> Code {
        self.code.push(fun, self.dtype.real(), self.dtype.real(), &parts);
        self.code
    }
    /// The code whose result is this value.
    pub(super) fn finish(mut self, value: Arg) -> Code {
        if self.narrow != self.dtype {
            self.code.push(Fun::Convert, self.dtype, self.narrow, &[value]);
        } else if !matches!(value, Arg::Inst(i) if i + 1 == self.code.insts.len()) {
            self.code.push(Fun::Copy, self.dtype, self.dtype, &[value]);
        }
        self.code
    }
}
