//! The sum over the rows of a report is what the devices send, by device, axis and kind, for
//! programs of all three modes and their derivatives; and rows have lines of the program.

use crate::blocks::{Blocks, slope};
use crate::count::differences;
use crate::programs::{Program, Written};
use crate::{Rng, quiet_law};
use atmesh::prelude::*;
use atmesh::{Error, Lowered};

/// Returns the differences of a lowered program, or the error.
fn checked<I: Tree, O: Tree>(
    what: &str,
    program: &dyn std::fmt::Debug,
    l: Result<Lowered<I, O>>,
) -> Vec<String> {
    let wrong = match l {
        Ok(l) => differences(l.spmd(), l.collectives()),
        Err(e) => vec![format!("{e}")],
    };
    if wrong.is_empty() { wrong } else { vec![format!("{what}: {}\n  {program:?}", wrong.join("\n  "))] }
}

/// Checks a program on global arrays; `auto` says which of the axes are auto.
fn of_arrays(rng: &mut Rng, auto: &dyn Fn(usize) -> bool) -> Vec<String> {
    let mut p = Program::new(rng);
    let mesh = p.mesh(["X", "Y", "Z"], auto);
    let xs = p.placed(&p.numbers(0), &mesh);
    if let Err(e) = p.accept(&xs, &mesh) {
        return vec![format!("what is replicated is accepted: {e}\n  {p:?}")];
    }
    let run = |xs: &Vec<Array>| p.run(xs, Some(&mesh), Written::default());
    let mut wrong = checked("forward", &p, jit(run).lower(&xs));
    let slope = |xs: &Vec<Array>| {
        grad(xs, |xs: Vec<Array>| {
            let ys = p.run(&xs, Some(&mesh), Written::default())?;
            Ok::<_, Error>(ys.iter().fold(Array::from(0f32), |sum, y| sum + y.square().sum(..)))
        })
    };
    // some programs have no derivative
    if let Ok(l) = jit(slope).lower(&xs) {
        wrong.extend(checked("backward", &p, Ok(l)));
    }
    wrong
}

/// Checks per-device code.
fn of_blocks(rng: &mut Rng) -> Vec<String> {
    let code = Blocks::new(rng);
    let xs = code.arguments();
    let mut wrong = checked("forward", &code, code.region().lower(&xs));
    if let Ok(l) = jit(|xs: &Vec<Array>| slope(&code, xs)).lower(&xs) {
        wrong.extend(checked("backward", &code, Ok(l)));
    }
    wrong
}

fn laws(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    match seed % 4 {
        0 => of_arrays(&mut rng, &|_| false),
        1 => of_arrays(&mut rng, &|_| true),
        2 => of_arrays(&mut rng, &|k| k == 0),
        _ => of_blocks(&mut rng),
    }
}

#[test]
fn reports_are_what_is_sent() {
    quiet_law("exchanges::reports_are_what_is_sent", 60, laws);
}
