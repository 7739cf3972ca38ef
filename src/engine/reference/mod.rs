//! The reference engine: every sentence element by element, loop by loop. Slow, and plainly right; the oracle of tests.
//!
//! It ignores where values are placed, but for partial values: each part is computed from what its devices hold. Floats are
//! folded in float64 and rounded once, so that results differ from other engines' in the last places.

mod lines;
mod scalar;
mod seek;
mod value;

use super::{Engine, Executable, Failure, Job, RunReport};
use crate::diagnostic::{Fault, Result};
use crate::partition::{Layout, Slot, SpmdProgram, Step, Stored};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Read, Sentence, Source};
use crate::runtime::prints::Prints;
use crate::runtime::{Slab, fits};
use crate::sharding::Atoms;
use crate::show::print::{Shown, text_of};
use crate::types::{DType, Scalar};
use std::rc::Rc;
use std::sync::Arc;
use value::Value;

/// Runs programs element by element on the caller's thread.
pub(crate) struct Reference;

struct Plain(SpmdProgram);

impl Engine for Reference {
    fn compile(&self, job: Job<'_>) -> Result<Arc<dyn Executable>> {
        Ok(ready(job.spmd))
    }
}

/// A program that is ready to run.
pub(super) fn ready(program: &SpmdProgram) -> Arc<dyn Executable> {
    Arc::new(Plain(program.clone()))
}

impl Executable for Plain {
    fn call(&self, args: &mut [Slab]) -> Result<Vec<Slab>, Failure> {
        fits(held(&self.0))?;
        let args = args.iter().map(|s| Ok(Rc::new(Value::of(s)?))).collect::<Result<_, Fault>>()?;
        let parts = self.0.outs.iter().map(|s| copies(&self.0.slots[*s]));
        let made = Failure::caught(|| run(&self.0, args))?;
        let slabs = made.iter().zip(parts).map(|(v, parts)| v.to_slab(parts));
        Ok(slabs.collect::<Result<_, Fault>>()?)
    }
    fn report(&self) -> RunReport {
        RunReport { engine: "reference", workers: 1, inline: true, ..RunReport::default() }
    }
}

/// Bytes of all values of a program, which are held to its end, and of the largest program inside.
fn held(p: &SpmdProgram) -> usize {
    let one = |s: &Stored| s.shape.elements().saturating_mul(copies(s)).saturating_mul(size_of::<Scalar>());
    let inside = |step: &Step| match step {
        Step::Loop { body, .. } => held(body),
        Step::While { cond, body, .. } => held(cond).max(held(body)),
        Step::Branch { branches, .. } => branches.iter().map(held).max().unwrap_or(0),
        Step::Fetch { .. } | Step::Local { .. } | Step::Reduce { .. } | Step::Print { .. } => 0,
    };
    let own = p.slots.iter().map(one).fold(0, usize::saturating_add);
    own.saturating_add(p.steps.iter().map(inside).max().unwrap_or(0))
}

type Values = Vec<Option<Rc<Value>>>;

fn get(values: &Values, slot: Slot) -> Rc<Value> {
    values[slot].clone().expect("steps read inputs and earlier results")
}
fn all(values: &Values, slots: &[Slot]) -> Vec<Rc<Value>> {
    slots.iter().map(|s| get(values, *s)).collect()
}

fn run(program: &SpmdProgram, args: Vec<Rc<Value>>) -> Vec<Rc<Value>> {
    let mut values: Values = vec![None; program.slots.len()];
    for (slot, arg) in program.ins.iter().zip(args) {
        values[*slot] = Some(arg);
    }
    for step in &program.steps {
        let made = self::step(program, step, &values);
        for (slot, value) in made {
            values[slot] = Some(value);
        }
    }
    all(&values, &program.outs)
}

fn step(program: &SpmdProgram, step: &Step, values: &Values) -> Vec<(Slot, Rc<Value>)> {
    match step {
        Step::Fetch { .. } => Vec::new(),
        Step::Local { out, sentence, layout } => {
            let stored = &program.slots[*out];
            let folded: Vec<_> = layout[sentence.rank..].iter().map(|l| (l.clone(), &l.atoms)).collect();
            let mut made = Value::empty(stored.dtype, stored.shape.clone());
            for position in positions(stored) {
                // the part's own steps of the folded loops
                let ranges = folded.iter().zip(&sentence.extents[sentence.rank..]).map(|((l, _), n)| {
                    let own = stored.layout.partial.is_some();
                    if own { l.range(l.rank(position), *n) } else { (0, *n as i64) }
                });
                let ranges: Vec<(i64, i64)> = ranges.collect();
                let parts = stored.layout.partial.as_ref().map_or(Combine::Add, |p| p.0);
                local(program, sentence, (&ranges, parts), position, values, &mut made);
            }
            vec![(*out, Rc::new(made))]
        }
        Step::Reduce { src, out, combine } => {
            let (from, to) = (&program.slots[*src], &program.slots[*out]);
            let value = get(values, *src);
            vec![(*out, Rc::new(reduce(&value, &digits(&from.layout), to, *combine)))]
        }
        Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } => {
            let mut carries = all(values, carry);
            let (fixed, xs) = (all(values, fixed), all(values, xs));
            let mut stacks: Vec<Vec<Rc<Value>>> = vec![Vec::new(); ys.len()];
            for k in 0..*length {
                let k = if *reverse { length - 1 - k } else { k };
                let number = Rc::new(Value::scalar(DType::I32, Scalar::Int((start + k as i64).into())));
                let mut args = vec![number];
                args.extend(fixed.iter().cloned());
                args.append(&mut carries);
                args.extend(xs.iter().map(|x| Rc::new(x.slice(k))));
                carries = run(body, args);
                for (stack, y) in stacks.iter_mut().zip(carries.split_off(out.len())) {
                    stack.push(y);
                }
            }
            let stacked = stacks.into_iter().zip(ys).map(|(mut s, slot)| {
                if *reverse {
                    s.reverse();
                }
                let stored = &program.slots[*slot];
                (*slot, Rc::new(Value::stack(stored.dtype, stored.shape.clone(), copies(stored), &s)))
            });
            let stacked: Vec<_> = stacked.collect();
            out.iter().copied().zip(carries).chain(stacked).collect()
        }
        Step::While { cond, body, cond_fixed, body_fixed, carry, out } => {
            let mut carries = all(values, carry);
            let with = |fixed: &[Slot], carries: &[Rc<Value>]| {
                all(values, fixed).into_iter().chain(carries.iter().cloned()).collect::<Vec<_>>()
            };
            while run(cond, with(cond_fixed, &carries))[0].at(0).to_i128() != 0 {
                carries = run(body, with(body_fixed, &carries));
            }
            out.iter().copied().zip(carries).collect()
        }
        Step::Branch { which, branches, ins, out } => {
            let choice = get(values, *which);
            let last = branches.len() as i128 - 1;
            let number = |x: Scalar| match x {
                Scalar::Bool(b) => usize::from(!b),
                x => x.to_i128().clamp(0, last) as usize,
            };
            let args = all(values, ins);
            if choice.shape.rank() == 0 {
                return out.iter().copied().zip(run(&branches[number(choice.at(0))], args)).collect();
            }
            // devices choose for themselves: all branches, then each device's part of its own one
            let results: Vec<_> = branches.iter().map(|b| run(b, args.clone())).collect();
            let axes: Vec<Atoms> =
                program.slots[*which].layout.dims.iter().map(|d| d.atoms.clone()).collect();
            out.iter()
                .enumerate()
                .map(|(r, slot)| {
                    let stored = &program.slots[*slot];
                    // where each axis of the choice is among the result's dimensions
                    let places: Vec<usize> = axes
                        .iter()
                        .map(|a| stored.layout.dims.iter().position(|d| d.atoms == *a).unwrap_or(0))
                        .collect();
                    let mut made = Value::empty(stored.dtype, stored.shape.clone());
                    let n = stored.shape.elements();
                    for k in 0..n * copies(stored) {
                        let index = unravel(k % n, &stored.shape);
                        let at = ravel(places.iter().map(|d| index[*d]), &choice.shape);
                        made.push(results[number(choice.at(at))][r].at(k));
                    }
                    (*slot, Rc::new(made))
                })
                .collect()
        }
        Step::Print { template, values: shown, manual } => {
            let shown = shown.iter().map(|v| {
                let slab = get(values, v.slot).to_slab(copies(&program.slots[v.slot]))?;
                Ok(Shown { slab, dtype: v.dtype, hidden: v.hidden.clone() })
            });
            let prints = Prints::default();
            prints.say(text_of(template, shown.collect(), manual, program.mesh.as_ref()));
            prints.write();
            Vec::new()
        }
    }
}

fn digits(layout: &Layout) -> Atoms {
    layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default()
}
fn copies(stored: &Stored) -> usize {
    digits(&stored.layout).iter().map(|a| a.size).product()
}
/// The rank that these digits of a device position make.
fn rank(atoms: &Atoms, position: usize) -> usize {
    atoms.iter().fold(0, |r, a| r * a.size + a.digit(position))
}
/// For each part of a stored value a device position that holds it.
fn positions(stored: &Stored) -> Vec<usize> {
    part_positions(&digits(&stored.layout))
}
fn part_positions(atoms: &Atoms) -> Vec<usize> {
    let n: usize = atoms.iter().map(|a| a.size).product();
    let place = |mut r: usize| {
        atoms.iter().rev().fold(0, |p, a| {
            let digit = r % a.size;
            r /= a.size;
            p + digit * a.stride
        })
    };
    (0..n).map(place).collect()
}

fn unravel(mut k: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, n) in index.iter_mut().zip(shape).rev() {
        *i = k % n;
        k /= n;
    }
    index
}
fn ravel(index: impl Iterator<Item = usize>, shape: &[usize]) -> usize {
    index.zip(shape).fold(0, |k, (i, n)| k * n + i)
}

/// Combines parts by a balanced tree over their ranks.
fn tree(combine: Combine, dtype: DType, parts: &[Scalar]) -> Scalar {
    match parts {
        [] => scalar::neutral(combine, dtype),
        [one] => *one,
        [first, ..] if combine == Combine::Same => *first,
        many => {
            let (a, b) = many.split_at(many.len() / 2);
            scalar::combined(combine, dtype, tree(combine, dtype, a), tree(combine, dtype, b))
        }
    }
}

fn reduce(value: &Value, from: &Atoms, to: &Stored, combine: Combine) -> Value {
    let n = to.shape.elements();
    let keep = digits(&to.layout);
    let sources = part_positions(from);
    let mut made = Value::empty(to.dtype, to.shape.clone());
    for position in positions(to) {
        let own: Vec<usize> =
            (0..sources.len()).filter(|s| rank(&keep, sources[*s]) == rank(&keep, position)).collect();
        for k in 0..n {
            let parts: Vec<Scalar> = own.iter().map(|part| value.at(part * n + k)).collect();
            // (a sum begins with 0: that of −0s is 0)
            let all = tree(combine, to.dtype, &parts);
            let all = match combine {
                Combine::Same => all,
                _ => scalar::combined(combine, to.dtype, scalar::neutral(combine, to.dtype), all),
            };
            made.push(scalar::cut(all, to.dtype));
        }
    }
    made
}

/// One part of a sentence's result: the folded loops run over `ranges`, and parts are put together by `parts`.
fn local(
    program: &SpmdProgram,
    s: &Sentence,
    (ranges, parts): (&[(i64, i64)], Combine),
    position: usize,
    values: &Values,
    made: &mut Value,
) {
    let reader = Reader { program, values, position };
    if s.body.renames() {
        let part = &s.reads[0].parts[0];
        let Source::Value(slot) = part.from else { return made.fill(s.reads[0].fill) };
        let (value, base) = reader.part(slot);
        let n = value.shape.elements();
        (0..n).for_each(|k| made.push(value.at(base + k)));
        return;
    }
    if let Body::Lines(l) = &s.body {
        return lines::lines(s, l, &reader, made);
    }
    if let Body::Put { at, combine } = &s.body {
        return seek::put(s, (at, *combine), ranges, &reader, made);
    }
    let mut index = vec![0i64; s.extents.len()];
    over(&mut index, 0, s.rank, &|d| (0, s.extents[d] as i64), &mut |index| {
        let out = match &s.body {
            Body::Map(code) => eval(code, &s.reads, index, &reader),
            Body::Fold { combine, code } => {
                let mut total = scalar::neutral(*combine, s.dtype);
                let mut first = *combine == Combine::Same;
                let mut inner = index.to_vec();
                over(&mut inner, s.rank, s.extents.len(), &|d| ranges[d - s.rank], &mut |index| {
                    let x = eval(code, &s.reads, index, &reader);
                    total = match *combine {
                        Combine::Same if !std::mem::take(&mut first) => total,
                        Combine::Same => x,
                        _ => scalar::combined(*combine, s.dtype, total, x),
                    };
                });
                total
            }
            Body::Product { accumulate } => {
                let mut total = Scalar::zero(*accumulate);
                let mut inner = index.to_vec();
                over(&mut inner, s.rank, s.extents.len(), &|d| ranges[d - s.rank], &mut |index| {
                    let (a, b) = (reader.read(&s.reads[0], index), reader.read(&s.reads[1], index));
                    let ab = scalar::combined(Combine::Mul, *accumulate, a, b);
                    total = scalar::combined(Combine::Add, *accumulate, total, ab);
                });
                total
            }
            Body::Take { at } => {
                seek::take(s, at, ranges, index, &reader).unwrap_or_else(|| scalar::neutral(parts, s.dtype))
            }
            Body::Lines(_) | Body::Reshape | Body::Put { .. } => unreachable!("done above"),
        };
        made.push(scalar::cut(out, s.dtype.storage()));
    });
}

/// Calls `f` at every index of the loops `from..to`, the last one fastest.
fn over(
    index: &mut [i64],
    from: usize,
    to: usize,
    range: &dyn Fn(usize) -> (i64, i64),
    f: &mut dyn FnMut(&[i64]),
) {
    if from == to {
        return f(index);
    }
    let (lo, hi) = range(from);
    for i in lo..hi {
        index[from] = i;
        over(index, from + 1, to, range, f);
    }
}

struct Reader<'a> {
    program: &'a SpmdProgram,
    values: &'a Values,
    position: usize,
}

impl Reader<'_> {
    /// A slot's value, and where the part that the position holds begins.
    fn part(&self, slot: Slot) -> (Rc<Value>, usize) {
        let value = get(self.values, slot);
        let part = rank(&digits(&self.program.slots[slot].layout), self.position);
        let base = part * value.shape.elements();
        (value, base)
    }
    fn read(&self, read: &Read, index: &[i64]) -> Scalar {
        for part in &read.parts {
            let inside = part
                .span
                .iter()
                .zip(index)
                .all(|(s, i)| (s.lo..s.hi).contains(i) && (i - s.lo).rem_euclid(s.step) == 0);
            if !inside {
                continue;
            }
            return match part.from {
                Source::Const(x) => scalar::cut(x, read.dtype.storage()),
                Source::Value(slot) => {
                    let (value, base) = self.part(slot);
                    let at = |a: &Affine| {
                        let moved =
                            |(l, c): &(usize, i64)| c * ((index[*l] - part.span[*l].lo) / part.span[*l].step);
                        (a.at + a.terms.iter().map(moved).sum::<i64>()) as usize
                    };
                    let positions: Vec<usize> = part.map.iter().map(at).collect();
                    // what is below 0 is beyond every end as a `usize`
                    if positions.iter().zip(&value.shape[..]).any(|(p, n)| p >= n) {
                        break;
                    }
                    value.at(base + ravel(positions.into_iter(), &value.shape))
                }
            };
        }
        scalar::cut(read.fill, read.dtype.storage())
    }
}

fn eval(code: &Code, reads: &[Read], index: &[i64], reader: &Reader) -> Scalar {
    let mut made: Vec<Scalar> = Vec::with_capacity(code.insts.len());
    for inst in &code.insts {
        let args: Vec<Scalar> = inst
            .args
            .iter()
            .map(|a| match a {
                Arg::Read(r) => reader.read(&reads[*r], index),
                Arg::Inst(i) => made[*i],
                Arg::Const(x) => match *x {
                    // conditions of a choice are bools whatever `from` says
                    Scalar::Bool(b) => Scalar::Bool(b),
                    x => scalar::cut(x, inst.from.storage()),
                },
                Arg::Index(l) => Scalar::Int(index[*l].into()),
            })
            .collect();
        made.push(scalar::apply(inst.fun, inst.from, inst.dtype, &args));
    }
    *made.last().expect("code makes a value")
}
