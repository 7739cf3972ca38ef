//! Partitions a whole program: lowers it, then runs the pass pipeline.

use crate::core::Result;
use crate::ir::program::{EquationContext, Op, Program};
use crate::partition::assign::pipeline::{Partitioned, run_pipeline};
use crate::partition::lower::equations::{LoweredValue, Lowering};
use crate::partition::lower::loop_sums;
use crate::partition::{cost::compute::TransferPrices, draft::Draft, program::StepOrigin};

/// Partitions a program for no machine in particular.
/// Every variable must be placed.
pub fn partition(program: &Program) -> Result<Partitioned> {
    let done = partition_for(program, TransferPrices::default())?;
    done.collectives.with_peak(&done.program, &[]);
    Ok(done)
}

/// Partitions a program for a machine with this cost of a byte.
/// Every variable must be placed.
pub(crate) fn partition_for(program: &Program, per_byte: TransferPrices) -> Result<Partitioned> {
    let deferred = loop_sums::defer_loop_sums(program);
    let program = deferred.as_ref().unwrap_or(program);
    let draft = Draft::new(num_devices(program), program.mesh.clone(), per_byte);
    let context = EquationContext::default();
    let origin = StepOrigin { op: "return".into(), ..StepOrigin::default() };
    let mut lower = Lowering { draft, manual: None, context, origin, checkpoint: 0, num_checkpoints: 0 };
    let mut vals = Vec::new();
    for var in &program.inputs {
        let info = &program.vars[var.index()];
        let layout = lower.layout_of(info, &[]);
        let slot = lower.draft.add_slot(info.ty.dtype, info.ty.shape.clone(), layout);
        lower.draft.ins.push(slot);
        vals.push(LoweredValue::Slot(slot, Vec::new()));
    }
    let outs = lower.run(program, vals)?;
    lower.draft.outs = outs.iter().map(|v| lower.as_slot(v)).collect();
    Ok(run_pipeline(lower.draft)?.partitioned)
}

/// Returns the number of devices of a program.
/// It is the size of its mesh, or more if its placements imply more.
fn num_devices(program: &Program) -> usize {
    let mut n = program.mesh.as_ref().map_or(1, |m| m.size());
    for p in program.vars.iter().filter_map(|v| v.placement.as_ref()) {
        n = p.dims.iter().flatten().chain(&p.partial).map(|a| a.stride * a.size).fold(n, usize::max);
    }
    for e in &program.equations {
        if let Op::Control(c) = &e.op {
            n = c.bodies().iter().map(|b| num_devices(b)).fold(n, usize::max);
        }
    }
    n
}
