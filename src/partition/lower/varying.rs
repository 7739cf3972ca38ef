//! Computes which manual axes values vary over, from the values they depend on.

use crate::core::Axis;
use crate::ir::program::{Control, CustomCall, Env, FromLiteral, Literal, ManualCollective, Op, Program};

/// Returns the axes that each result varies over, given those of the inputs.
/// Types may claim more.
pub(crate) fn varying_axes(program: &Program, ins: Vec<Vec<Axis>>) -> Vec<Vec<Axis>> {
    let mut env = Env::new(program, ins);
    for e in &program.equations {
        let operands = env.get_all(&e.inputs);
        let outs: Vec<Vec<Axis>> = match &e.op {
            Op::Prim(prim) => match prim.collective() {
                None => vec![union(operands.iter()); e.outputs.len()],
                Some(c) => (e.outputs.iter().enumerate())
                    .map(|(k, var)| {
                        let own = operands.get(k).cloned().unwrap_or_default();
                        axes_after(&c, own, |a| program.ty(*var).spec.unreduced_axes().contains(a))
                    })
                    .collect(),
            },
            Op::Control(c) => control_axes(c, operands),
        };
        env.bind(&e.outputs, outs);
    }
    env.get_all(&program.outputs)
}

/// The axes that a value varies over.
/// A literal varies over none.
impl FromLiteral for Vec<Axis> {
    fn from_literal(_: Literal) -> Self {
        Vec::new()
    }
}

fn union<'a>(lists: impl Iterator<Item = &'a Vec<Axis>>) -> Vec<Axis> {
    let mut all = Vec::new();
    for a in lists.flatten() {
        if !all.contains(a) {
            all.push(*a);
        }
    }
    all
}

/// Returns the axes that the result of a collective varies over, given those of its operand.
fn axes_after(c: &ManualCollective, mut own: Vec<Axis>, unreduced: impl Fn(Axis) -> bool) -> Vec<Axis> {
    match c {
        ManualCollective::AllReduce { axes, groups: None, .. }
        | ManualCollective::AllGather { axes, groups: None, .. } => {
            own.retain(|a| !axes.contains(*a));
        }
        ManualCollective::Pcast { axes } => own.retain(|a| !axes.contains(a) || !unreduced(*a)),
        ManualCollective::AllReduce { axes, .. }
        | ManualCollective::AllGather { axes, .. }
        | ManualCollective::ReduceScatter { axes, .. }
        | ManualCollective::KeepShard { axes, .. }
        | ManualCollective::AllToAll { axes, .. }
        | ManualCollective::Permute { axes, .. }
        | ManualCollective::Broadcast { axes, .. }
        | ManualCollective::AxisIndex { axes } => {
            let more: Vec<Axis> = axes.iter().filter(|a| !own.contains(a)).collect();
            own.extend(more);
        }
    }
    own
}

/// Returns the axes that the results of a control operation vary over.
fn control_axes(c: &Control, operands: Vec<Vec<Axis>>) -> Vec<Vec<Axis>> {
    match c {
        Control::Jit { body, .. }
        | Control::AxisModes { body, .. }
        | Control::Custom(CustomCall { body, .. }) => varying_axes(body, operands),
        Control::Print { .. } => Vec::new(),
        // values leave a nested map without its axes
        Control::ShardMap(m) => {
            let outer: Vec<Vec<Axis>> = operands.clone();
            let ins = operands.into_iter().zip(&m.in_specs).map(|(own, spec)| {
                let named: Vec<Axis> =
                    spec.dims().iter().flat_map(|d| d.iter()).filter(|a| m.axes.contains(*a)).collect();
                union([own, named].iter())
            });
            let mut outs = varying_axes(&m.body, ins.collect());
            let kept = union(outer.iter());
            outs.iter_mut().for_each(|o| o.retain(|a| kept.contains(a) && !m.axes.contains(*a)));
            outs
        }
        Control::Cond { branches } => {
            let (which, rest) = operands.split_first().expect("a cond has a selector");
            let all: Vec<_> = branches.iter().map(|b| varying_axes(b, rest.to_vec())).collect();
            let results = all.first().map_or(0, Vec::len);
            (0..results).map(|k| union(all.iter().map(|o| &o[k]).chain([which]))).collect()
        }
        Control::Loop(l) => {
            let mut given = l.split_operands(&operands);
            loop {
                let outs = varying_axes(&l.body, given.clone().into_body_inputs(Vec::new()));
                let mut grown = false;
                for (carry, o) in given.carry.iter_mut().zip(&outs) {
                    let more = union([&*carry, o].into_iter());
                    grown |= more.len() > carry.len();
                    *carry = more;
                }
                if !grown {
                    return given.carry.into_iter().chain(outs.into_iter().skip(l.carry)).collect();
                }
            }
        }
        Control::While { cond, body, cond_fixed, body_fixed } => {
            let for_cond = operands[..*cond_fixed].to_vec();
            let for_body = operands[*cond_fixed..cond_fixed + body_fixed].to_vec();
            let mut carry = operands[cond_fixed + body_fixed..].to_vec();
            loop {
                let test = varying_axes(cond, [for_cond.clone(), carry.clone()].concat());
                let outs = varying_axes(body, [for_body.clone(), carry.clone()].concat());
                let next: Vec<_> =
                    carry.iter().zip(&outs).map(|(c, o)| union([c, o].into_iter().chain(&test))).collect();
                if next.iter().zip(&carry).all(|(n, c)| n.len() == c.len()) {
                    return carry;
                }
                carry = next;
            }
        }
    }
}
