//! Pass 0, for programs that flush subnormal numbers: adds the instructions that flush explicitly.
//!
//! Such a program computes as if each subnormal number among its arguments, its constants and the
//! results of its operations were a zero of the same sign. Kernels run in a mode of the processor
//! in which sums, products, quotients and square roots flush (`kernels::flush_mode`). The rest is
//! made explicit here, by [`ScalarOp::FlushSubnormals`], whose kernel computes with integers:
//!
//! - arguments, since an operation that only moves or compares elements need not flush them;
//! - constants, at once;
//! - results of functions that are not one instruction of the processor, such as `exp` and
//!   conversions, because their steps flush or not as they are implemented;
//! - results of row kernels, which run without the mode, because they may be the user's code.
//!
//! So no value of the program is ever subnormal, and it does not matter which instructions move,
//! select, negate or compare values. Numbers of float16 are not flushed: they are computed as
//! float32, in which they are normal. Those of bfloat16 have the exponents of float32 and are
//! flushed.

use crate::core::{DType, Scalar, SubnormalResults};
use crate::ir::program::{
    Access, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarInst, ScalarOp, Source,
};
use crate::partition::{Slot, SpmdProgram, Step};

/// Returns the program with explicit flushes, to be run in the flush mode.
///
/// It has no [`Step::Fetch`], because steps are counted anew.
pub(crate) fn flush_subnormals(p: &SpmdProgram) -> SpmdProgram {
    let mut p = p.clone();
    flush_results(&mut p);
    let mut begin = SpmdProgram::default();
    for k in 0..p.ins.len() {
        let slot = p.ins[k];
        if has_subnormals(p.slots[slot].dtype) && !is_only_contracted(&p, slot) {
            let given = add_like(&mut p, slot);
            p.ins.iter_mut().filter(|s| **s == slot).for_each(|s| *s = given);
            begin.steps.push(flush_step(&p, given, slot));
            begin.origins.push(Default::default());
        }
    }
    p.steps.splice(0..0, begin.steps);
    p.origins.splice(0..0, begin.origins);
    p
}

/// Returns true if numbers of this type are flushed.
fn has_subnormals(dtype: DType) -> bool {
    dtype.is_inexact() && dtype != DType::F16
}

/// Returns true if a value is read by contractions only, whose products flush their operands.
fn is_only_contracted(p: &SpmdProgram, slot: Slot) -> bool {
    let contracts = |s: &Step| s.loop_nest().is_some_and(|nest| nest.compute.contracts());
    !p.outs.contains(&slot) && p.steps.iter().all(|s| contracts(s) || !s.inputs().contains(&slot))
}

/// Adds a stored value of the type and layout of another one.
fn add_like(p: &mut SpmdProgram, slot: Slot) -> Slot {
    p.slots.push(p.slots[slot].clone());
    p.slots.len() - 1
}

/// Returns the step that stores value `from`, flushed, as value `to`, which has the same layout.
fn flush_step(p: &SpmdProgram, from: Slot, to: Slot) -> Step {
    let value = &p.slots[to];
    let (dtype, shape) = (value.dtype, value.shape.to_vec());
    let loops: Vec<_> = (0..shape.len()).map(Some).collect();
    let code = ScalarCode::single(ScalarOp::FlushSubnormals, dtype, dtype, &[ScalarArg::Access(0)]);
    let accesses = vec![Access::from_loops(from, dtype, &shape, &loops)];
    let nest = LoopNest::map(shape, dtype, accesses, code);
    Step::Local { out: to, nest, layout: value.layout.dims.clone() }
}

/// Flushes the constants and the results of all operations, also in nested programs.
fn flush_results(p: &mut SpmdProgram) {
    let origins = std::mem::take(&mut p.origins).into_iter().map(Some).chain(std::iter::repeat(None));
    for (mut step, origin) in std::mem::take(&mut p.steps).into_iter().zip(origins) {
        let origin = origin.unwrap_or_default();
        let mut flush = None;
        match &mut step {
            Step::Fetch { .. } => continue,
            Step::Local { out, nest, .. } => {
                nest.accesses.iter_mut().for_each(flush_constants);
                match &mut nest.compute {
                    Compute::Map(code) => flush_code(code),
                    Compute::Reduce { reducer, code } => {
                        flush_code(code);
                        // a sum starts with 0, so each element is an operand of an addition, which
                        // flushes it
                        if *reducer == Reducer::Add {
                            drop_last_flush(code);
                        }
                    }
                    Compute::RowKernel(_) if has_subnormals(p.slots[*out].dtype) => {
                        let to = std::mem::replace(out, p.slots.len());
                        let from = add_like(p, to);
                        flush = Some(flush_step(p, from, to));
                    }
                    Compute::RowKernel(_)
                    | Compute::Contract { .. }
                    | Compute::Gather { .. }
                    | Compute::Scatter { .. }
                    | Compute::Reshape => {}
                }
            }
            control => control.nested_programs_mut().into_iter().for_each(flush_results),
        }
        for step in std::iter::once(step).chain(flush) {
            p.steps.push(step);
            p.origins.push(origin.clone());
        }
    }
}

/// Flushes the constants that an access reads.
fn flush_constants(access: &mut Access) {
    access.fill = flushed(access.fill, access.dtype);
    for piece in &mut access.pieces {
        if let Source::Const(x) = &mut piece.source {
            *x = flushed(*x, access.dtype);
        }
    }
}

/// Flushes the constants of scalar code, and the results that may be subnormal.
fn flush_code(code: &mut ScalarCode) {
    let mut flushes = ScalarCode { insts: Vec::with_capacity(code.insts.len()) };
    let mut results: Vec<ScalarArg> = Vec::with_capacity(code.insts.len());
    for mut inst in code.insts.drain(..) {
        for arg in &mut inst.args {
            *arg = match *arg {
                ScalarArg::Inst(k) => results[k],
                ScalarArg::Const(x) => ScalarArg::Const(flushed(x, inst.operand_dtype)),
                other => other,
            };
        }
        let (makes, dtype) = (may_be_subnormal(&inst), inst.dtype);
        flushes.insts.push(inst);
        let result = ScalarArg::Inst(flushes.insts.len() - 1);
        results.push(match makes {
            true => flushes.push(ScalarOp::FlushSubnormals, dtype, dtype, &[result]),
            false => result,
        });
    }
    *code = flushes;
}

/// Removes the last instruction if it flushes the result of the one before.
fn drop_last_flush(code: &mut ScalarCode) {
    let before = code.insts.len().checked_sub(2).map(ScalarArg::Inst);
    if code
        .insts
        .last()
        .is_some_and(|i| i.op == ScalarOp::FlushSubnormals && i.args.first() == before.as_ref())
    {
        code.insts.pop();
    }
}

/// Returns a constant of an element type, with zeros of their signs instead of subnormal numbers.
fn flushed(x: Scalar, dtype: DType) -> Scalar {
    let part = |x: f64| {
        let is_subnormal = match dtype.real() {
            DType::F64 => x.is_subnormal(),
            DType::F32 => (x as f32).is_subnormal(),
            DType::BF16 => Scalar::Float(x).to_bf16().to_f32().is_subnormal(),
            _ => false,
        };
        if is_subnormal { 0f64.copysign(x) } else { x }
    };
    match x {
        Scalar::Float(x) => Scalar::Float(part(x)),
        Scalar::Complex(re, im) => Scalar::Complex(part(re), part(im)),
        x => x,
    }
}

/// Returns true if an instruction may have a subnormal result in the flush mode, although none of
/// its operands is subnormal.
fn may_be_subnormal(inst: &ScalarInst) -> bool {
    if !has_subnormals(inst.dtype.storage()) {
        return false;
    }
    match inst.op.info().subnormals {
        SubnormalResults::Never => false,
        SubnormalResults::IfComplex => inst.operand_dtype.is_complex(),
        // the conversion of an integer is a whole number
        SubnormalResults::IfConverted => inst.operand_dtype.is_inexact() && inst.operand_dtype != inst.dtype,
        SubnormalResults::Possible => true,
    }
}
