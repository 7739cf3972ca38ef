//! A plain evaluation of per-device programs, as if all values were in one memory.

use crate::ir::program::{
    Access, Compute, LoopNest, Reducer, RowInput, RowKernelCall, RowOutput, RowOutputs, ScalarArg,
    ScalarCode, ScalarOp, Source,
};
use crate::partition::access::span_steps;
use crate::partition::boxes::{Region, for_each_index, full, linear_index, volume};
use crate::partition::program::{Slot, SpmdProgram, Step};

/// Evaluates scalar code.
/// Keys and integers are exact below 2^53.
fn run(code: &ScalarCode, index: &[i64], reads: &[f64]) -> f64 {
    let mut made: Vec<f64> = Vec::new();
    for i in &code.insts {
        let arg = |k: usize| match i.args[k] {
            ScalarArg::Access(r) => reads[r],
            ScalarArg::Inst(r) => made[r],
            ScalarArg::Const(c) => c.to_f64(),
            ScalarArg::Index(l) => index[l] as f64,
        };
        let truth = |b: bool| f64::from(u8::from(b));
        made.push(match i.op {
            ScalarOp::Copy | ScalarOp::Convert => arg(0),
            ScalarOp::Neg => -arg(0),
            ScalarOp::Add => arg(0) + arg(1),
            ScalarOp::Sub => arg(0) - arg(1),
            ScalarOp::Mul => arg(0) * arg(1),
            ScalarOp::Max => arg(0).max(arg(1)),
            ScalarOp::Eq => truth(arg(0) == arg(1)),
            ScalarOp::Lt => truth(arg(0) < arg(1)),
            ScalarOp::Le => truth(arg(0) <= arg(1)),
            ScalarOp::Select => {
                if arg(0) != 0.0 {
                    arg(1)
                } else {
                    arg(2)
                }
            }
            other => panic!("the oracle does not know {other:?}"),
        });
    }
    *made.last().expect("code makes a value")
}

pub(super) fn combine(c: Reducer, a: f64, b: f64) -> f64 {
    match c {
        Reducer::Add => a + b,
        Reducer::Mul => a * b,
        Reducer::Max => a.max(b),
        Reducer::Min => a.min(b),
        Reducer::And => f64::from(u8::from(a != 0.0 && b != 0.0)),
        Reducer::Or => f64::from(u8::from(a != 0.0 || b != 0.0)),
        Reducer::AssumeEqual => b,
    }
}
pub(super) fn start(c: Reducer) -> f64 {
    match c {
        Reducer::Add | Reducer::Or | Reducer::AssumeEqual => 0.0,
        Reducer::Mul | Reducer::And => 1.0,
        Reducer::Max => f64::NEG_INFINITY,
        Reducer::Min => f64::INFINITY,
    }
}

fn read(
    r: &Access,
    index: &[i64],
    shapes: &dyn Fn(Slot) -> Vec<usize>,
    get: &dyn Fn(Slot, &[i64]) -> f64,
) -> f64 {
    for p in &r.pieces {
        let ks: Option<Vec<i64>> = (p.ranges.iter().zip(index))
            .map(|(s, i)| {
                let k = span_steps(s, (*i, i + 1));
                (k.0 < k.1).then_some(k.0)
            })
            .collect();
        let Some(ks) = ks else { continue };
        return match p.source {
            Source::Const(c) => c.to_f64(),
            Source::Value(v) => {
                let at = |m: &crate::ir::program::loop_nest::AffineExpr| {
                    m.constant + m.terms.iter().map(|t| t.1 * ks[t.0]).sum::<i64>()
                };
                let at: Vec<i64> = p.map.iter().map(at).collect();
                if at.iter().zip(shapes(v)).any(|(p, n)| !(0..n as i64).contains(p)) {
                    break;
                }
                get(v, &at)
            }
        };
    }
    r.fill.to_f64()
}

/// Evaluates a loop nest over a box of its loops, and returns the elements of the result's box.
///
/// `absent` is used for gathered elements whose index is outside the box.
pub(super) fn sentence(
    s: &LoopNest,
    (loops, absent): (&Region, f64),
    shapes: &dyn Fn(Slot) -> Vec<usize>,
    get: &dyn Fn(Slot, &[i64]) -> f64,
) -> Vec<f64> {
    let b = loops[..s.rank].to_vec();
    if let Compute::RowKernel(l) = &s.compute {
        return lines(s, l, loops, shapes, get);
    }
    let init = match s.compute {
        Compute::Reduce { reducer: combine, .. } => start(combine),
        Compute::Gather { .. } => absent,
        _ => 0.0,
    };
    let mut out = vec![init; volume(&b) as usize];
    if let Compute::Scatter { .. } = s.compute {
        for_each_index(&b, |i| {
            let all: Vec<i64> = (0..s.extents.len()).map(|l| i.get(l).copied().unwrap_or(0)).collect();
            out[linear_index(i, &b)] = read(&s.accesses[0], &all, shapes, get);
        });
    }
    for_each_index(loops, |i| {
        let k = linear_index(&i[..s.rank], &b);
        let value = |r: usize| read(&s.accesses[r], i, shapes, get);
        // whether this is the selected index of each dynamically indexed loop, and whether it is in
        // bounds
        let here = || {
            s.compute.dynamic_indices().iter().fold((true, true), |(here, there), b| {
                let (step, is) = b.resolve(value(b.operand) as i64, b.window.map_or(0, |w| i[w]));
                (here && i[b.loop_id] == step, there && is)
            })
        };
        match &s.compute {
            Compute::Map(code) => {
                out[k] = run(code, i, &(0..s.accesses.len()).map(value).collect::<Vec<_>>())
            }
            Compute::Reduce { reducer: c, code } => {
                let x = run(code, i, &(0..s.accesses.len()).map(value).collect::<Vec<_>>());
                out[k] = combine(*c, out[k], x);
            }
            Compute::Contract { .. } => out[k] += value(0) * value(1),
            Compute::RowKernel(_) => unreachable!("done above"),
            Compute::Gather { .. } => {
                let x = value(0);
                if let (true, there) = here() {
                    out[k] = if there { x } else { s.accesses[0].fill.to_f64() };
                }
            }
            Compute::Scatter { reducer: c, .. } => {
                let x = value(1);
                if here() == (true, true) {
                    out[k] = c.map_or(x, |c| combine(c, out[k], x));
                }
            }
            Compute::Reshape => {
                let Source::Value(v) = s.accesses[0].pieces[0].source else { panic!("a reshape of a value") };
                let shape = shapes(v);
                let mut l = linear_index(i, &full(&s.extents)) as i64;
                let mut at = vec![0; shape.len()];
                for d in (0..shape.len()).rev() {
                    at[d] = l % shape[d] as i64;
                    l /= shape[d] as i64;
                }
                out[k] = get(v, &at);
            }
        }
    });
    out
}

/// Evaluates a row kernel row by row, in `float32`.
fn lines(
    s: &LoopNest,
    l: &RowKernelCall,
    loops: &Region,
    shapes: &dyn Fn(Slot) -> Vec<usize>,
    get: &dyn Fn(Slot, &[i64]) -> f64,
) -> Vec<f64> {
    let b = loops[..s.rank].to_vec();
    let inside = full(&s.extents[s.rank..]);
    assert_eq!(loops[s.rank..], inside[..], "lines are whole");
    let mut out = vec![0.0; volume(&b) as usize];
    let along: Vec<usize> = l.row_loops.iter().map(|k| s.extents[*k]).collect();
    for_each_index(&b, |i| {
        let mut ins = vec![Vec::new(); s.accesses.len()];
        for_each_index(&inside, |j| {
            let index = [i, j].concat();
            ins.iter_mut().zip(&s.accesses).for_each(|(x, r)| x.push(read(r, &index, shapes, get) as f32));
        });
        let ins: Vec<RowInput> = ins.iter().map(|x| RowInput::from_slice(&s.extents[s.rank..], x)).collect();
        let mut y = vec![0f32; along.iter().product()];
        let asked = (0..l.result_index).map(|_| None).chain([Some(RowOutput::from_slice(&along, &mut y))]);
        l.kernel.run(&ins, &mut RowOutputs::new(asked));
        let at: Vec<i64> = l.row_loops.iter().map(|k| i[*k]).collect();
        out[linear_index(i, &b)] = y[linear_index(&at, &full(&along))].into();
    });
    out
}

/// Evaluates a program as if on one device.
/// Arguments, results and intermediate values are full, never partial.
pub(super) fn plain(p: &SpmdProgram, args: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let mut vals: Vec<Vec<f64>> = vec![Vec::new(); p.slots.len()];
    for (s, a) in p.ins.iter().zip(args) {
        vals[*s] = a.clone();
    }
    let shape = |s: Slot| p.slots[s].shape.to_vec();
    for step in &p.steps {
        match step {
            Step::Fetch { .. } | Step::Print { .. } => {}
            Step::Reduce { src, out, .. } => vals[*out] = vals[*src].clone(),
            Step::Local { out, nest: s, .. } => {
                let get = |v: Slot, i: &[i64]| vals[v][linear_index(i, &full(&p.slots[v].shape))];
                vals[*out] = sentence(s, (&full(&s.extents), 0.0), &shape, &get);
            }
            Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } => {
                let mut now: Vec<Vec<f64>> = carry.iter().map(|s| vals[*s].clone()).collect();
                let mut stacked: Vec<Vec<f64>> =
                    ys.iter().map(|s| vec![0.0; p.slots[*s].shape.num_elements()]).collect();
                for k in 0..*length {
                    let at = if *reverse { length - 1 - k } else { k };
                    let mut ins = vec![vec![(*start + at as i64) as f64]];
                    ins.extend(fixed.iter().map(|s| vals[*s].clone()));
                    ins.extend(now);
                    for x in xs {
                        let n = vals[*x].len() / length;
                        ins.push(vals[*x][at * n..(at + 1) * n].to_vec());
                    }
                    let mut outs = plain(body, &ins);
                    for (y, s) in outs.split_off(carry.len()).into_iter().zip(&mut stacked) {
                        s[at * y.len()..(at + 1) * y.len()].copy_from_slice(&y);
                    }
                    now = outs;
                }
                for (s, v) in out.iter().zip(now).chain(ys.iter().zip(stacked)) {
                    vals[*s] = v;
                }
            }
            Step::While { cond, body, cond_fixed, body_fixed, carry, out } => {
                let mut now: Vec<Vec<f64>> = carry.iter().map(|s| vals[*s].clone()).collect();
                loop {
                    let ins = |fixed: &[Slot]| {
                        fixed.iter().map(|s| vals[*s].clone()).chain(now.clone()).collect::<Vec<_>>()
                    };
                    if plain(cond, &ins(cond_fixed))[0].iter().all(|x| *x == 0.0) {
                        break;
                    }
                    now = plain(body, &ins(body_fixed));
                }
                out.iter().zip(now).for_each(|(s, v)| vals[*s] = v);
            }
            Step::Branch { selector: which, branches, ins, out } => {
                let k = vals[*which][0];
                let is_bool = p.slots[*which].dtype == crate::DType::Bool;
                let k = if is_bool {
                    usize::from(k == 0.0)
                } else {
                    (k.max(0.0) as usize).min(branches.len() - 1)
                };
                let outs = plain(&branches[k], &ins.iter().map(|s| vals[*s].clone()).collect::<Vec<_>>());
                out.iter().zip(outs).for_each(|(s, v)| vals[*s] = v);
            }
        }
    }
    p.outs.iter().map(|s| vals[*s].clone()).collect()
}
