//! A whole program: lowered, then planned.

use crate::diagnostic::Result;
use crate::partition::draft::Draft;
use crate::partition::lay::plan::{Localised, plan};
use crate::partition::lower::equations::{Lower, Val};
use crate::partition::price::work::PerByte;
use crate::partition::program::Why;
use crate::program::{Op, Phase, Program};

/// Localises a program in which every variable is placed, for no machine in particular.
pub fn localise(program: &Program) -> Result<Localised> {
    localise_for(program, PerByte::default())
}

/// The same where a byte costs so much.
pub(crate) fn localise_for(program: &Program, per_byte: PerByte) -> Result<Localised> {
    let draft = Draft::new(devices(program), program.mesh.clone(), per_byte);
    let mut lower = Lower { draft, manual: None, phase: Phase::Forward };
    let mut vals = Vec::new();
    for var in &program.inputs {
        let info = &program.vars[var.index()];
        let layout = lower.layout(info, &[]);
        let slot = lower.draft.slot(info.ty.dtype, info.ty.shape.clone(), layout);
        lower.draft.ins.push(slot);
        vals.push(Val::Slot(slot, Vec::new()));
    }
    let outs = lower.run(program, vals)?;
    let why = Why { op: "return".into(), ..Why::default() };
    lower.draft.outs = outs.iter().map(|v| lower.as_slot(v, &why)).collect();
    Ok(plan(lower.draft)?.localised)
}

/// How many devices a program runs on: its mesh's, or as many as its placements speak of.
fn devices(program: &Program) -> usize {
    let mut n = program.mesh.as_ref().map_or(1, |m| m.size());
    for p in program.vars.iter().filter_map(|v| v.placement.as_ref()) {
        n = p.dims.iter().flatten().chain(&p.partial).map(|a| a.stride * a.size).fold(n, usize::max);
    }
    for e in &program.equations {
        if let Op::Control(c) = &e.op {
            n = c.bodies().iter().map(|b| devices(b)).fold(n, usize::max);
        }
    }
    n
}
