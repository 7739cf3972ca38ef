//! Programs whose equations stand in another order, and whose commutative operations have their operands swapped, at every depth.

use crate::Rng;
use atmesh::partition::localise;
use atmesh::prelude::*;
use atmesh::program::dce::dce;
use atmesh::program::{Control, Equation, Input, Op, Program, Var};
use atmesh::propagate::propagate;
use std::collections::BTreeSet;
use std::sync::Arc;

/// The program written down otherwise; what prints stays in its order.
pub(crate) fn otherwise(program: &Program, rng: &mut Rng) -> Program {
    written(program, rng, true)
}

/// The same; operands are swapped only if `swap`.
pub(crate) fn written(program: &Program, rng: &mut Rng, swap: bool) -> Program {
    let mut p = program.clone();
    let mut left = std::mem::take(&mut p.equations);
    let mut missing: BTreeSet<Var> = left.iter().flat_map(|e| e.outputs.iter().copied()).collect();
    while !left.is_empty() {
        let made = |i: &Input| !matches!(i, Input::Var(v) if missing.contains(v));
        let first = left.iter().position(prints);
        let ready: Vec<usize> = (0..left.len())
            .filter(|k| left[*k].inputs.iter().all(made) && (!prints(&left[*k]) || first == Some(*k)))
            .collect();
        let mut e = left.remove(*rng.of(&ready));
        for v in &e.outputs {
            missing.remove(v);
        }
        match &mut e.op {
            Op::Prim(prim) => {
                let commutes = matches!(prim.name(), "add" | "mul" | "max" | "min") && e.inputs.len() == 2;
                if swap && commutes && rng.once_in(2) {
                    e.inputs.swap(0, 1);
                }
            }
            Op::Control(c) => {
                c.bodies_mut().into_iter().for_each(|body| *body = Arc::new(written(body, rng, swap)))
            }
        }
        p.equations.push(e);
    }
    p
}

fn prints(e: &Equation) -> bool {
    match &e.op {
        Op::Prim(_) => false,
        Op::Control(Control::Print { .. }) => true,
        Op::Control(c) => c.bodies().into_iter().any(|b| b.equations.iter().any(prints)),
    }
}

/// What the program communicates, and where its results are placed.
pub(crate) fn planned(program: &Program) -> Result<(atmesh::Collectives, Vec<String>)> {
    let placed = propagate(&dce(program), &[])?;
    let at = |o: &Input| match o {
        Input::Var(v) => format!("{:?}", placed.vars[v.index()].placement),
        Input::Lit(_) => String::new(),
    };
    let results = placed.outputs.iter().map(at).collect();
    Ok((localise(&placed)?.collectives, results))
}
