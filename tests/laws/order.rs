//! Rewrites programs: equations in another order, and operands of commutative operations swapped,
//! at every depth.

use crate::Rng;
use atmesh::partition::partition;
use atmesh::prelude::*;
use atmesh::program::dce::dce;
use atmesh::program::{Control, Equation, Input, Op, Program, Var};
use atmesh::propagate::propagate;
use std::collections::BTreeSet;
use std::sync::Arc;

/// Rewrites the program; prints stay in order.
pub(crate) fn otherwise(program: &Program, rng: &mut Rng) -> Program {
    written(program, rng, true)
}

/// Rewrites the program, and swaps operands only if `swap`.
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
        let mut e = left.remove(*rng.choose(&ready));
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

/// Prints the per-device program and its report.
pub(crate) fn text(program: &Program) -> Result<String> {
    let localised = partition(&propagate(&dce(program), &[])?)?;
    Ok(format!("{}\n{}", localised.program, localised.collectives))
}

/// Returns the sorted lines of a text without value numbers: computations, movements with their
/// dimensions, and source lines. The peak memory is left out: steps run in the order in which they
/// are written, and this order affects it.
pub(crate) fn unnumbered(text: &str) -> Vec<String> {
    let without = |line: &str| {
        let mut parts = line.split('%');
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |all, part| all + "%" + part.trim_start_matches(|c: char| c.is_ascii_digit()))
    };
    let mut lines: Vec<String> = text.lines().filter(|l| !l.contains("peak memory: ")).map(without).collect();
    lines.sort();
    lines
}

/// Returns the first line in which two texts differ, ignoring value numbers and the order of lines.
pub(crate) fn differs(a: &str, b: &str) -> Option<String> {
    let (a, b) = (unnumbered(a), unnumbered(b));
    let first = a.iter().zip(&b).find(|(a, b)| a != b).map(|(a, b)| format!("{a}\n{b}"));
    first.or_else(|| (a.len() != b.len()).then(|| format!("{} and {} lines", a.len(), b.len())))
}

/// Returns the collectives of the program, and the shardings of its results.
pub(crate) fn planned(program: &Program) -> Result<(atmesh::Collectives, Vec<String>)> {
    let placed = propagate(&dce(program), &[])?;
    let at = |o: &Input| match o {
        Input::Var(v) => format!("{:?}", placed.vars[v.index()].placement),
        Input::Lit(_) => String::new(),
    };
    let results = placed.outputs.iter().map(at).collect();
    Ok((partition(&placed)?.collectives, results))
}
