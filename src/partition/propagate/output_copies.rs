//! Copies results that were requested in a placement that they do not have.

use crate::ir::ops::sharding::Copy;
use crate::ir::program::{Equation, EquationContext, Input, Op, Placement, Program, Var, VarInfo};
use std::sync::Arc;

/// Adds a copy of each result that is not placed as requested.
pub(super) fn add_copies(program: &mut Program, requested: &[Option<Placement>]) {
    for (k, requested) in requested.iter().enumerate().take(program.outputs.len()) {
        let (Some(requested), Input::Var(var)) = (requested, program.outputs[k]) else { continue };
        if program.vars[var.index()].placement.as_ref() == Some(requested) {
            continue;
        }
        let made_by = |e: &&Equation| e.outputs.contains(&var);
        let maker = program.equations.iter().find(made_by);
        let context = maker.map(|e| EquationContext::default().of(e)).unwrap_or_default();
        let ty = program.ty(var).clone();
        let copy = Var(program.vars.len() as u32);
        program.vars.push(VarInfo { ty, placement: Some(requested.clone()) });
        program.equations.push(Equation {
            op: Op::Prim(Arc::new(Copy)),
            inputs: vec![Input::Var(var)],
            outputs: vec![copy],
            location: context.location,
            phase: context.phase,
            scope: context.scope,
            name: None,
        });
        program.outputs[k] = Input::Var(copy);
    }
}
