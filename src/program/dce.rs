//! Removes what no result needs: equations, results of nested programs, carries that only feed themselves.
//!
//! Equations that print stay, and so do those whose nested programs print.

use super::{Control, Equation, Input, Loop, Op, Parts, Program, ShardMapping, Var, VarInfo};
use std::collections::HashMap;
use std::sync::Arc;

/// The program without what its results do not need. Its inputs stay.
pub fn dce(program: &Program) -> Program {
    keep(program, &vec![true; program.outputs.len()])
}

/// The program with these of its results only, without what they do not need. Its inputs stay.
pub fn keep(program: &Program, wanted: &[bool]) -> Program {
    Kept::default().keep(program, wanted)
}

/// What is left of nested programs, by which of their results are wanted: a loop asks until what it carries is settled, and in a loop
/// of loops each step of that would ask again all the way down.
#[derive(Default)]
struct Kept(HashMap<(*const Program, Vec<bool>), Left>);
/// What is left of a nested program, and which of its inputs it reads.
type Left = (Arc<Program>, Arc<Vec<bool>>);

impl Kept {
    /// A nested program with these of its results, and which of its inputs it reads then.
    fn body(&mut self, body: &Arc<Program>, wanted: &[bool]) -> Left {
        let key = (Arc::as_ptr(body), wanted.to_vec());
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        let left = self.keep(body, wanted);
        let reads = Arc::new(used(&left));
        let left = (Arc::new(left), reads);
        self.0.insert(key, left.clone());
        left
    }

    fn keep(&mut self, program: &Program, wanted: &[bool]) -> Program {
        let outputs: Vec<Input> = chosen(&program.outputs, wanted);
        let mut live = vec![false; program.vars.len()];
        mark(&mut live, &outputs);
        let mut equations = Vec::new();
        for e in program.equations.iter().rev() {
            let wanted: Vec<bool> = e.outputs.iter().map(|v| live[v.index()]).collect();
            if !wanted.contains(&true) && !has_effect(e) {
                continue;
            }
            let e = match &e.op {
                Op::Prim(_) => e.clone(),
                Op::Control(c) => self.control(e, c, &wanted),
            };
            mark(&mut live, &e.inputs);
            equations.push(e);
        }
        equations.reverse();
        renumbered(program, equations, outputs)
    }

    /// An equation with nested programs, for those of its results that are wanted.
    fn control(&mut self, e: &Equation, c: &Control, wanted: &[bool]) -> Equation {
        let with = |c: Control, inputs: Vec<Input>, wanted: &[bool]| Equation {
            op: Op::Control(c),
            inputs,
            outputs: chosen(&e.outputs, wanted),
            place: e.place,
            phase: e.phase,
            name: e.name.clone(),
        };
        // a nested program with the wanted results, and which of the equation's inputs it reads
        let mut cut = |body: &Arc<Program>| {
            let (body, used) = self.body(body, wanted);
            (Arc::new(without_inputs(&body, &used)), used)
        };
        match c {
            Control::Jit { body, keep } => {
                let (body, used) = cut(body);
                with(Control::Jit { body, keep: keep.clone() }, chosen(&e.inputs, &used), wanted)
            }
            Control::Modes { body, out_specs } => {
                let (body, used) = cut(body);
                let out_specs = chosen(out_specs, wanted);
                with(Control::Modes { body, out_specs }, chosen(&e.inputs, &used), wanted)
            }
            Control::ShardMap(m) => {
                let (body, used) = cut(&m.body);
                let mapping = ShardMapping {
                    body,
                    in_specs: chosen(&m.in_specs, &used),
                    out_specs: chosen(&m.out_specs, wanted),
                    ..m.clone()
                };
                with(Control::ShardMap(mapping), chosen(&e.inputs, &used), wanted)
            }
            Control::Cond { branches } => {
                let kept: Vec<_> = branches.iter().map(|b| self.body(b, wanted)).collect();
                let mut any = vec![false; e.inputs.len() - 1];
                for (_, used) in &kept {
                    any.iter_mut().zip(used.iter()).for_each(|(any, used)| *any |= used);
                }
                let branches = kept.iter().map(|(b, _)| Arc::new(without_inputs(b, &any))).collect();
                let inputs = e.inputs[..1].iter().copied().chain(chosen(&e.inputs[1..], &any)).collect();
                with(Control::Cond { branches }, inputs, wanted)
            }
            Control::Loop(l) => {
                let (last, stacked) = wanted.split_at(l.carry);
                // the body that makes these carries and what is stacked, and what it reads
                let mut making = |carries: &[bool]| {
                    let (body, used) = self.body(&l.body, &[carries, stacked].concat());
                    let (_, reads) = l.step_parts(&used);
                    (body, reads)
                };
                let carries = live_carries(last, |needed| making(needed).1.carry);
                let (body, reads) = making(&carries);
                let reads = Parts { carry: carries.clone(), ..reads };
                let count = |flags: &[bool]| flags.iter().filter(|f| **f).count();
                let new = Loop {
                    fixed: count(&reads.fixed),
                    carry: count(&carries),
                    body: Arc::new(without_inputs(&body, &reads.clone().step(true))),
                    ..l.clone()
                };
                with(Control::Loop(new), chosen(&e.inputs, &reads.join()), &[&carries, stacked].concat())
            }
            Control::While { cond, body, cond_fixed, body_fixed } => {
                let count = wanted.len();
                let of_cond = used(cond)[*cond_fixed..].to_vec();
                let first: Vec<bool> = wanted.iter().zip(of_cond).map(|(a, b)| *a || b).collect();
                let carries =
                    live_carries(&first, |needed| self.body(body, needed).1[*body_fixed..].to_vec());
                let cond_ins: Vec<bool> =
                    vec![true; *cond_fixed].into_iter().chain(carries.iter().copied()).collect();
                let (kept, body_ins) = self.body(body, &carries);
                let mut body_ins = body_ins.to_vec();
                body_ins[*body_fixed..].copy_from_slice(&carries);
                let fixed = body_ins[..*body_fixed].iter().filter(|f| **f).count();
                let mut ins = vec![true; *cond_fixed];
                ins.extend_from_slice(&body_ins);
                debug_assert_eq!(ins.len(), cond_fixed + body_fixed + count);
                let new = Control::While {
                    cond: Arc::new(without_inputs(cond, &cond_ins)),
                    body: Arc::new(without_inputs(&kept, &body_ins)),
                    cond_fixed: *cond_fixed,
                    body_fixed: fixed,
                };
                with(new, chosen(&e.inputs, &ins), &carries)
            }
            Control::Print { .. } => e.clone(),
        }
    }
}

/// Which inputs the program reads or returns.
pub fn used(program: &Program) -> Vec<bool> {
    let mut live = vec![false; program.vars.len()];
    program.equations.iter().for_each(|e| mark(&mut live, &e.inputs));
    mark(&mut live, &program.outputs);
    program.inputs.iter().map(|v| live[v.index()]).collect()
}

/// The items that are wanted.
pub fn chosen<T: Clone>(items: &[T], wanted: &[bool]) -> Vec<T> {
    items.iter().zip(wanted).filter(|(_, w)| **w).map(|(x, _)| x.clone()).collect()
}

fn mark(live: &mut [bool], inputs: &[Input]) {
    for i in inputs {
        if let Input::Var(v) = i {
            live[v.index()] = true;
        }
    }
}

/// Whether the equation does something beside its results.
pub(crate) fn has_effect(e: &Equation) -> bool {
    match &e.op {
        Op::Prim(_) => false,
        Op::Control(c) if c.has_effect() => true,
        Op::Control(c) => c.bodies().iter().any(|b| b.equations.iter().any(has_effect)),
    }
}

/// The same equations with variables numbered as they are bound.
fn renumbered(program: &Program, mut equations: Vec<Equation>, mut outputs: Vec<Input>) -> Program {
    let mut names: Vec<Option<Var>> = vec![None; program.vars.len()];
    let mut vars: Vec<VarInfo> = Vec::new();
    let mut bind = |v: Var, names: &mut Vec<Option<Var>>| {
        let new = Var(vars.len() as u32);
        vars.push(program.vars[v.index()].clone());
        names[v.index()] = Some(new);
        new
    };
    let read = |i: &mut Input, names: &[Option<Var>]| {
        if let Input::Var(v) = i {
            *v = names[v.index()].expect("equations read earlier results only");
        }
    };
    let inputs = program.inputs.iter().map(|v| bind(*v, &mut names)).collect();
    for e in &mut equations {
        e.inputs.iter_mut().for_each(|i| read(i, &names));
        e.outputs.iter_mut().for_each(|v| *v = bind(*v, &mut names));
    }
    outputs.iter_mut().for_each(|o| read(o, &names));
    Program { vars, inputs, equations, outputs, mesh: program.mesh.clone() }
}

/// The program without the inputs that are not wanted; nothing may read them.
fn without_inputs(program: &Program, wanted: &[bool]) -> Program {
    let inputs = chosen(&program.inputs, wanted);
    let (equations, outputs) = (program.equations.clone(), program.outputs.clone());
    renumbered(&Program { inputs, ..program.clone() }, equations, outputs)
}

/// The carries that are needed, from those whose last value is wanted and what the body reads for the needed ones.
fn live_carries(wanted: &[bool], mut reads: impl FnMut(&[bool]) -> Vec<bool>) -> Vec<bool> {
    let mut needed = wanted.to_vec();
    loop {
        let more: Vec<bool> = needed.iter().zip(reads(&needed)).map(|(n, r)| *n || r).collect();
        if more == needed {
            return needed;
        }
        needed = more;
    }
}
