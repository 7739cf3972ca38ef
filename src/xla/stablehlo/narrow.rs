//! Removes conversions to float32 from scalar code on 16-bit floats.
//!
//! Loop nests compute in float32 and round the result, so `x * x` of bfloat16 values is a
//! conversion, a product and a conversion. XLA's own bfloat16 product returns the same value and
//! leaves the choice of instructions to XLA.

use crate::core::DType;
use crate::ir::program::{ScalarArg, ScalarCode, ScalarInst, ScalarOp};

/// Returns code with the same result and fewer conversions.
pub(super) fn narrowed(code: &ScalarCode) -> Vec<ScalarInst> {
    let mut insts: Vec<ScalarInst> = Vec::with_capacity(code.insts.len());
    for inst in &code.insts {
        let narrow = narrow_inst(inst, &insts);
        insts.push(narrow.unwrap_or_else(|| inst.clone()));
    }
    without_unused(insts)
}

/// Returns the 16-bit form of a conversion whose operand is computed from 16-bit values.
fn narrow_inst(inst: &ScalarInst, before: &[ScalarInst]) -> Option<ScalarInst> {
    let dtype = inst.dtype;
    if inst.op != ScalarOp::Convert || !matches!(dtype, DType::BF16 | DType::F16) {
        return None;
    }
    if let Some(x) = widened(&inst.args[0], dtype, before) {
        return Some(ScalarInst {
            op: ScalarOp::Copy,
            operand_dtype: dtype,
            dtype,
            args: [x].into_iter().collect(),
        });
    }
    let ScalarArg::Inst(k) = inst.args[0] else { return None };
    let wide = &before[k];
    // float32 has more than twice the bits of both types, so rounding twice is rounding once
    let rounds_once = matches!(
        wide.op,
        ScalarOp::Add | ScalarOp::Sub | ScalarOp::Mul | ScalarOp::Div | ScalarOp::Max | ScalarOp::Min
    );
    let args = wide.args.iter().map(|arg| widened(arg, dtype, before)).collect::<Option<_>>()?;
    rounds_once.then_some(ScalarInst { op: wide.op, operand_dtype: dtype, dtype, args })
}

/// Returns the value of type `narrow` that an operand is the float32 form of.
fn widened(arg: &ScalarArg, narrow: DType, before: &[ScalarInst]) -> Option<ScalarArg> {
    let ScalarArg::Inst(k) = arg else { return None };
    let inst = &before[*k];
    let widens = inst.op == ScalarOp::Convert && inst.operand_dtype == narrow && inst.dtype == DType::F32;
    widens.then(|| inst.args[0])
}

/// Removes the instructions that the last one does not depend on.
fn without_unused(insts: Vec<ScalarInst>) -> Vec<ScalarInst> {
    let mut used = vec![false; insts.len()];
    for (k, inst) in insts.iter().enumerate().rev() {
        used[k] |= k + 1 == insts.len();
        for arg in &inst.args {
            if let (ScalarArg::Inst(i), true) = (arg, used[k]) {
                used[*i] = true;
            }
        }
    }
    let mut kept: Vec<ScalarInst> = Vec::new();
    let mut places = vec![0; insts.len()];
    for (k, mut inst) in insts.into_iter().enumerate().filter(|(k, _)| used[*k]) {
        for arg in &mut inst.args {
            if let ScalarArg::Inst(i) = arg {
                *i = places[*i];
            }
        }
        places[k] = kept.len();
        kept.push(inst);
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inst(op: ScalarOp, operand_dtype: DType, dtype: DType, args: &[ScalarArg]) -> ScalarInst {
        ScalarInst { op, operand_dtype, dtype, args: args.iter().copied().collect() }
    }

    fn ops(insts: Vec<ScalarInst>) -> Vec<(ScalarOp, DType)> {
        narrowed(&ScalarCode { insts }).iter().map(|i| (i.op, i.dtype)).collect()
    }

    #[test]
    fn a_product_of_widened_values_is_a_narrow_product() {
        use DType::{BF16, F16, F32};
        use ScalarArg::{Access, Inst};
        let square = |narrow| {
            vec![
                inst(ScalarOp::Convert, narrow, F32, &[Access(0)]),
                inst(ScalarOp::Mul, F32, F32, &[Inst(0), Inst(0)]),
                inst(ScalarOp::Convert, F32, narrow, &[Inst(1)]),
            ]
        };
        for narrow in [BF16, F16] {
            assert_eq!(ops(square(narrow)), [(ScalarOp::Mul, narrow)]);
        }
        // the exponential of float32 is rounded once, and that of bfloat16 twice
        let mut exponential = square(BF16);
        exponential[1] = inst(ScalarOp::Exp, F32, F32, &[Inst(0)]);
        assert_eq!(ops(exponential.clone()), exponential.iter().map(|i| (i.op, i.dtype)).collect::<Vec<_>>());
        // a float32 operand has more digits than the narrow type
        let mut mixed = square(BF16);
        mixed[1].args[1] = Access(1);
        assert_eq!(ops(mixed).len(), 3);
        // the float16 value of a bfloat16 one is rounded
        let mut other = square(BF16);
        other[2] = inst(ScalarOp::Convert, F32, F16, &[Inst(1)]);
        assert_eq!(ops(other).len(), 3);
    }

    #[test]
    fn a_value_that_is_widened_and_rounded_is_itself() {
        let code = vec![
            inst(ScalarOp::Convert, DType::BF16, DType::F32, &[ScalarArg::Access(0)]),
            inst(ScalarOp::Convert, DType::F32, DType::BF16, &[ScalarArg::Inst(0)]),
        ];
        assert_eq!(ops(code), [(ScalarOp::Copy, DType::BF16)]);
    }
}
