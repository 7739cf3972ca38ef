//! Dead code elimination over a program and its nested programs.
//!
//! Elimination removes equations and results of nested programs that nothing reads, and loop
//! carries that only their own next values read. Equations that print stay, and so do equations
//! whose nested programs print.

use super::{Control, Equation, Input, Loop, LoopOperands, Op, Program, ShardMapping, Var, VarInfo};
use std::collections::HashMap;
use std::sync::Arc;

/// Returns the program without equations on which no result depends.
/// Its inputs stay.
pub fn dce(program: &Program) -> Program {
    retain_outputs(program, &vec![true; program.outputs.len()])
}

/// Returns the program with only the results in `wanted`, and without unneeded equations.
/// Its inputs stay.
pub fn retain_outputs(program: &Program, wanted: &[bool]) -> Program {
    DceCache::default().prune(program, wanted)
}

/// A cache of pruned nested programs, by program and wanted results.
///
/// A loop is pruned repeatedly until its set of live carries no longer changes. Without the cache,
/// nested loops would repeat this at every level, in exponential time.
#[derive(Default)]
struct DceCache(HashMap<(*const Program, Vec<bool>), PrunedBody>);
/// A pruned nested program, and for each of its inputs whether it is read.
type PrunedBody = (Arc<Program>, Arc<Vec<bool>>);

impl DceCache {
    /// Prunes a nested program to the wanted results.
    fn prune_body(&mut self, body: &Arc<Program>, wanted: &[bool]) -> PrunedBody {
        let key = (Arc::as_ptr(body), wanted.to_vec());
        if let Some(known) = self.0.get(&key) {
            return known.clone();
        }
        let left = self.prune(body, wanted);
        let reads = Arc::new(used_inputs(&left));
        let left = (Arc::new(left), reads);
        self.0.insert(key, left.clone());
        left
    }

    fn prune(&mut self, program: &Program, requested: &[bool]) -> Program {
        let outputs: Vec<Input> = select(&program.outputs, requested);
        let mut live = vec![false; program.vars.len()];
        mark(&mut live, &outputs);
        let mut equations = Vec::new();
        for e in program.equations.iter().rev() {
            let requested: Vec<bool> = e.outputs.iter().map(|v| live[v.index()]).collect();
            if !requested.contains(&true) && !has_effect(e) {
                continue;
            }
            let e = match &e.op {
                Op::Prim(_) => e.clone(),
                Op::Control(c) => self.prune_control(e, c, &requested),
            };
            mark(&mut live, &e.inputs);
            equations.push(e);
        }
        equations.reverse();
        renumbered(program, equations, outputs)
    }

    /// Prunes an equation with nested programs to the wanted results.
    fn prune_control(&mut self, e: &Equation, c: &Control, wanted: &[bool]) -> Equation {
        // prunes a nested program to the wanted results, and returns which of the equation's inputs
        // it reads
        let mut cut = |body: &Arc<Program>| {
            let (body, used) = self.prune_body(body, wanted);
            (pruned_inputs(body, &used), used)
        };
        match c {
            Control::Jit { body, policy, recomputes } => {
                let (body, used) = cut(body);
                let control = Control::Jit { body, policy: policy.clone(), recomputes: *recomputes };
                with_control(e, control, select(&e.inputs, &used), wanted)
            }
            Control::AxisModes { body, out_specs } => {
                let (body, used) = cut(body);
                let out_specs = select(out_specs, wanted);
                with_control(e, Control::AxisModes { body, out_specs }, select(&e.inputs, &used), wanted)
            }
            Control::ShardMap(m) => {
                let (body, used) = cut(&m.body);
                let mapping = ShardMapping {
                    body,
                    in_specs: select(&m.in_specs, &used),
                    out_specs: select(&m.out_specs, wanted),
                    ..m.clone()
                };
                with_control(e, Control::ShardMap(mapping), select(&e.inputs, &used), wanted)
            }
            Control::Cond { branches } => {
                let kept: Vec<_> = branches.iter().map(|b| self.prune_body(b, wanted)).collect();
                let mut any = vec![false; e.inputs.len() - 1];
                for (_, used) in &kept {
                    any.iter_mut().zip(used.iter()).for_each(|(any, used)| *any |= used);
                }
                let branches = kept.iter().map(|(b, _)| pruned_inputs(b.clone(), &any)).collect();
                let inputs = e.inputs[..1].iter().copied().chain(select(&e.inputs[1..], &any)).collect();
                with_control(e, Control::Cond { branches }, inputs, wanted)
            }
            Control::Loop(l) => self.prune_loop(e, l, wanted),
            Control::While { cond, body, cond_fixed, body_fixed } => {
                self.prune_while(e, (cond, *cond_fixed), (body, *body_fixed), wanted)
            }
            // the programs of a rule have the same arguments and results as the function
            Control::Custom(_) | Control::Print { .. } => e.clone(),
        }
    }

    /// Prunes a loop with a known trip count.
    fn prune_loop(&mut self, e: &Equation, l: &Loop, wanted: &[bool]) -> Equation {
        let (last, stacked) = wanted.split_at(l.carry);
        // the body that computes these carries and the stacked results, and the inputs that it
        // reads
        let mut making = |carries: &[bool]| {
            let (body, used) = self.prune_body(&l.body, &[carries, stacked].concat());
            let (_, reads) = l.split_body_inputs(&used);
            (body, reads)
        };
        let carries = live_carries(last, |needed| making(needed).1.carry);
        let (body, reads) = making(&carries);
        let reads = LoopOperands { carry: carries.clone(), ..reads };
        let count = |flags: &[bool]| flags.iter().filter(|f| **f).count();
        let new = Loop {
            fixed: count(&reads.fixed),
            carry: count(&carries),
            body: pruned_inputs(body, &reads.clone().into_body_inputs(true)),
            ..l.clone()
        };
        let inputs = select(&e.inputs, &reads.into_vec());
        with_control(e, Control::Loop(new), inputs, &[&carries, stacked].concat())
    }

    /// Prunes a loop that runs while a condition holds.
    /// The condition and the body are given with the numbers of their fixed inputs.
    fn prune_while(
        &mut self,
        e: &Equation,
        (cond, cond_fixed): (&Arc<Program>, usize),
        (body, body_fixed): (&Arc<Program>, usize),
        wanted: &[bool],
    ) -> Equation {
        let of_cond = used_inputs(cond)[cond_fixed..].to_vec();
        let first: Vec<bool> = wanted.iter().zip(of_cond).map(|(a, b)| *a || b).collect();
        let carries = live_carries(&first, |needed| self.prune_body(body, needed).1[body_fixed..].to_vec());
        let cond_ins: Vec<bool> = vec![true; cond_fixed].into_iter().chain(carries.iter().copied()).collect();
        let (kept, body_ins) = self.prune_body(body, &carries);
        let mut body_ins = body_ins.to_vec();
        body_ins[body_fixed..].copy_from_slice(&carries);
        let fixed = body_ins[..body_fixed].iter().filter(|f| **f).count();
        let mut ins = vec![true; cond_fixed];
        ins.extend_from_slice(&body_ins);
        debug_assert_eq!(ins.len(), cond_fixed + body_fixed + wanted.len());
        let new = Control::While {
            cond: Arc::new(without_inputs(cond, &cond_ins)),
            body: pruned_inputs(kept, &body_ins),
            cond_fixed,
            body_fixed: fixed,
        };
        with_control(e, new, select(&e.inputs, &ins), &carries)
    }
}

/// Returns the equation with another operation and other inputs, and only the wanted results.
fn with_control(e: &Equation, control: Control, inputs: Vec<Input>, wanted: &[bool]) -> Equation {
    Equation {
        op: Op::Control(control),
        inputs,
        outputs: select(&e.outputs, wanted),
        location: e.location,
        phase: e.phase,
        scope: e.scope.clone(),
        name: e.name.clone(),
    }
}

/// Returns a flag for each input that is true if the program reads or returns it.
pub fn used_inputs(program: &Program) -> Vec<bool> {
    let mut live = vec![false; program.vars.len()];
    program.equations.iter().for_each(|e| mark(&mut live, &e.inputs));
    mark(&mut live, &program.outputs);
    program.inputs.iter().map(|v| live[v.index()]).collect()
}

/// Returns the items whose flag in `wanted` is set.
pub fn select<T: Clone>(items: &[T], wanted: &[bool]) -> Vec<T> {
    items.iter().zip(wanted).filter(|(_, w)| **w).map(|(x, _)| x.clone()).collect()
}

fn mark(live: &mut [bool], inputs: &[Input]) {
    for i in inputs {
        if let Input::Var(v) = i {
            live[v.index()] = true;
        }
    }
}

/// Returns true if the equation has a side effect.
pub(crate) fn has_effect(e: &Equation) -> bool {
    match &e.op {
        Op::Prim(_) => false,
        Op::Control(c) if c.has_effect() => true,
        Op::Control(c) => c.bodies().iter().any(|b| b.equations.iter().any(has_effect)),
    }
}

/// Returns a program of these equations, with variables renumbered in the order of definition.
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

/// Returns a pruned program without the unwanted inputs, which must be unused.
/// It is the same program if all inputs are wanted.
fn pruned_inputs(program: Arc<Program>, requested: &[bool]) -> Arc<Program> {
    if requested.contains(&false) { Arc::new(without_inputs(&program, requested)) } else { program }
}

/// Returns the program without the unwanted inputs, which must be unused.
fn without_inputs(program: &Program, requested: &[bool]) -> Program {
    let inputs = select(&program.inputs, requested);
    let (equations, outputs) = (program.equations.clone(), program.outputs.clone());
    renumbered(&Program { inputs, ..program.clone() }, equations, outputs)
}

/// Returns the live carries.
/// A carry is live if its last value is wanted, or if the body reads it to compute a live carry.
fn live_carries(requested: &[bool], mut reads: impl FnMut(&[bool]) -> Vec<bool>) -> Vec<bool> {
    let mut needed = requested.to_vec();
    loop {
        let more: Vec<bool> = needed.iter().zip(reads(&needed)).map(|(n, r)| *n || r).collect();
        if more == needed {
            return needed;
        }
        needed = more;
    }
}
