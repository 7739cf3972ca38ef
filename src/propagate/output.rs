//! Results that are asked for in another placement are returned as copies.

use crate::ops::sharding::Copy;
use crate::program::{Equation, Input, Op, Phase, Placement, Program, Var, VarInfo};
use std::sync::Arc;

/// Adds a copy of each result that is not placed as asked.
pub(super) fn settle(program: &mut Program, wanted: &[Option<Placement>]) {
    for (k, wanted) in wanted.iter().enumerate().take(program.outputs.len()) {
        let (Some(wanted), Input::Var(var)) = (wanted, program.outputs[k]) else { continue };
        if program.vars[var.index()].placement.as_ref() == Some(wanted) {
            continue;
        }
        let made_by = |e: &&Equation| e.outputs.contains(&var);
        let maker = program.equations.iter().find(made_by);
        let (place, phase) = (maker.and_then(|e| e.place), maker.map_or(Phase::Forward, |e| e.phase));
        let ty = program.ty(var).clone();
        let copy = Var(program.vars.len() as u32);
        program.vars.push(VarInfo { ty, placement: Some(wanted.clone()) });
        program.equations.push(Equation {
            op: Op::Prim(Arc::new(Copy)),
            inputs: vec![Input::Var(var)],
            outputs: vec![copy],
            place,
            phase,
            name: None,
        });
        program.outputs[k] = Input::Var(copy);
    }
}
