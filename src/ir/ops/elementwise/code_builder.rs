//! A builder for scalar code of several instructions.
//!
//! It is for elementwise functions that are not a single scalar instruction, such as `gelu`.

use crate::core::{DType, Scalar};
use crate::ir::program::{ScalarArg, ScalarCode, ScalarOp};

/// Scalar code under construction.
///
/// 16-bit floats are computed in float32 and rounded once, at the end.
pub(super) struct CodeBuilder {
    /// The instructions so far.
    code: ScalarCode,
    /// The element type of operands and result.
    storage_dtype: DType,
    /// The element type of the computation.
    compute_dtype: DType,
    /// The first operand.
    pub(super) x: ScalarArg,
}

impl CodeBuilder {
    /// Starts the code of a function whose operands have this element type.
    pub(super) fn new(dtype: DType) -> CodeBuilder {
        let mut f = CodeBuilder {
            code: ScalarCode { insts: Vec::new() },
            storage_dtype: dtype,
            compute_dtype: dtype,
            x: ScalarArg::Access(0),
        };
        if matches!(dtype, DType::F16 | DType::BF16) {
            f.compute_dtype = DType::F32;
        }
        f.x = f.operand(0);
        f
    }
    /// Returns operand `k`, converted to the element type of the computation.
    pub(super) fn operand(&mut self, k: usize) -> ScalarArg {
        if self.storage_dtype == self.compute_dtype {
            ScalarArg::Access(k)
        } else {
            self.code.push(ScalarOp::Convert, self.storage_dtype, self.compute_dtype, &[ScalarArg::Access(k)])
        }
    }
    /// Returns a constant.
    pub(super) fn constant(&self, x: f64) -> ScalarArg {
        ScalarArg::Const(if self.compute_dtype.is_inexact() {
            Scalar::Float(x)
        } else {
            Scalar::Int(x as i128)
        })
    }
    /// Adds an instruction with one operand.
    pub(super) fn unary(&mut self, fun: ScalarOp, a: ScalarArg) -> ScalarArg {
        self.code.push(fun, self.compute_dtype, self.compute_dtype, &[a])
    }
    /// Adds an instruction with two operands.
    pub(super) fn binary(&mut self, fun: ScalarOp, a: ScalarArg, b: ScalarArg) -> ScalarArg {
        self.code.push(fun, self.compute_dtype, self.compute_dtype, &[a, b])
    }
    /// Returns `x` where `a` and `b` are equal, else `y`.
    pub(super) fn select_equal(&mut self, [a, b]: [ScalarArg; 2], x: ScalarArg, y: ScalarArg) -> ScalarArg {
        let equal = self.code.push(ScalarOp::Eq, self.compute_dtype, DType::Bool, &[a, b]);
        self.code.push(ScalarOp::Select, self.compute_dtype, self.compute_dtype, &[equal, x, y])
    }
    /// Returns `x` raised to the power `n`, by repeated squaring.
    pub(super) fn power(&mut self, mut n: u32) -> ScalarArg {
        let (mut base, mut value) = (self.x, None);
        while n > 0 {
            if n & 1 == 1 {
                value = Some(value.map_or(base, |v| self.binary(ScalarOp::Mul, v, base)));
            }
            n >>= 1;
            if n > 0 {
                base = self.binary(ScalarOp::Mul, base, base);
            }
        }
        value.unwrap_or(self.constant(1.0))
    }
    /// Returns the real or imaginary part of the complex operand; `fun` says which.
    pub(super) fn complex_part(&mut self, fun: ScalarOp) -> ScalarArg {
        self.code.push(fun, self.compute_dtype, self.compute_dtype.real(), &[self.x])
    }
    /// Finishes the code with a function of the two real `parts` as its result.
    pub(super) fn finish_complex_parts(mut self, fun: ScalarOp, parts: [ScalarArg; 2]) -> ScalarCode {
        self.code.push(fun, self.compute_dtype.real(), self.compute_dtype.real(), &parts);
        self.code
    }
    /// Finishes the code with `value` as its result.
    pub(super) fn finish(mut self, value: ScalarArg) -> ScalarCode {
        if self.storage_dtype != self.compute_dtype {
            self.code.push(ScalarOp::Convert, self.compute_dtype, self.storage_dtype, &[value]);
        } else if !matches!(value, ScalarArg::Inst(i) if i + 1 == self.code.insts.len()) {
            self.code.push(ScalarOp::Copy, self.compute_dtype, self.compute_dtype, &[value]);
        }
        self.code
    }
}
