//! The fixed point: levels of priority, and steps on single equations that only ever lengthen what dimensions have.

use super::pieces::{agree, clear_of, is_prefix, major_part, minor_part, push};
use super::rule::{Directions, LEVELS, Rule};
use crate::sharding::atoms::{canonical, ways};
use crate::sharding::{Atom, Atoms};
use crate::sorted;
use crate::types::gcd;
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// A value's number within one propagation. Variables of different programs that are one value (a loop's carry, inside and
/// outside) share it.
pub(super) type ValueId = usize;

/// What is known of a value: digits are appended to its dimensions, never taken away.
#[derive(Clone, Debug, Default)]
pub(super) struct Value {
    /// The sizes of the dimensions: inside manual axes, of one device's block.
    pub(super) shape: Vec<usize>,
    /// The digits that split each dimension.
    pub(super) dims: Vec<Atoms>,
    /// Dimensions that stay as they are.
    pub(super) closed: Vec<bool>,
    /// Dimensions that must divide, as they are split over explicit axes too.
    pub(super) divides: Vec<bool>,
    /// Digits that no dimension may take: explicit axes that its type does not name, and manual ones.
    pub(super) blocked: Vec<Atom>,
    /// At the border of manual axes: how each dimension is cut over them, before `dims`. It has no say inside.
    pub(super) cut: Option<Vec<Atoms>>,
}

/// An equation, or an edge of data flow: its operands' values, then its results' (none for numbers).
#[derive(Clone, Debug)]
pub(super) struct Equation {
    pub(super) rule: Rule,
    pub(super) values: Vec<Option<ValueId>>,
    /// The tensor that is seen from inside the manual axes: without its `cut`.
    pub(super) inside: Option<usize>,
}

impl Value {
    /// The digits of a dimension, from inside the manual axes or from outside.
    pub(super) fn dim(&self, d: usize, inside: bool) -> Atoms {
        match &self.cut {
            Some(cut) if !inside => canonical(cut[d].iter().chain(&self.dims[d]).copied()),
            _ => self.dims[d].clone(),
        }
    }
    /// Sets it, if that lengthens it and no other dimension uses these digits (a value may appear twice in an equation).
    fn lengthen(&mut self, d: usize, inside: bool, mut to: Atoms) -> bool {
        if let Some(cut) = self.cut.as_ref().filter(|_| !inside) {
            let Some(rest) = behind(&cut[d], &to) else { return false };
            to = rest;
        }
        let mut others = self.dims.iter().enumerate().filter(|(o, _)| *o != d).flat_map(|(_, digits)| digits);
        let longer = to != self.dims[d]
            && is_prefix(&self.dims[d], &to)
            && !others.any(|o| to.iter().any(|a| a.clashes(*o)));
        if longer {
            self.dims[d] = to;
        }
        longer
    }
    /// How many ways a dimension may be split, where it must divide.
    fn room(&self, d: usize, inside: bool) -> Option<usize> {
        let cut = self.cut.as_ref().map(|cut| ways(&cut[d]));
        if !self.divides[d] && cut.is_none_or(|n| n == 1) {
            return None;
        }
        Some(self.shape[d] * if inside { 1 } else { cut.unwrap_or(1) })
    }
}

/// What follows `head` in a list that begins with it.
fn behind(head: &[Atom], list: &[Atom]) -> Option<Atoms> {
    if !is_prefix(head, list) {
        return None;
    }
    let Some(last) = head.len().checked_sub(1) else { return Some(list.into()) };
    let part = minor_part(list[last], head[last].size);
    Some(canonical([part].into_iter().chain(list[head.len()..].iter().copied())))
}

/// The digits that one tensor has for one loop.
#[derive(Clone, Default)]
struct Held {
    axes: Atoms,
    closed: bool,
    /// How many ways its digits may make, where not any number.
    room: Option<usize>,
    /// Digits of the dimension that its loops cannot express.
    overflow: Atoms,
}

/// What one tensor has for each loop of a rule.
type Projection = Vec<Option<Held>>;

fn project(rule: &Rule, tensor: usize, value: &Value, inside: bool) -> Projection {
    let mut held = vec![None; rule.loops.len()];
    for (d, loops) in rule.tensors[tensor].iter().enumerate() {
        let mut rest: VecDeque<Atom> = value.dim(d, inside).into_iter().collect();
        let (mut closed, mut room_of_dim) = (value.closed[d], value.room(d, inside));
        for (i, &l) in loops.iter().enumerate() {
            let mut h = Held { closed, ..Held::default() };
            if i + 1 == loops.len() {
                h.axes = rest.drain(..).collect();
                h.room = room_of_dim;
            } else {
                let mut room = rule.loops[l].size;
                while let Some(head) = rest.front_mut() {
                    let g = gcd(room, head.size);
                    if g == 1 {
                        break;
                    }
                    h.axes.push(major_part(*head, g));
                    room /= g;
                    if g == head.size {
                        rest.pop_front();
                    } else {
                        *head = minor_part(*head, g);
                    }
                }
                if room > 1 && !rest.is_empty() {
                    h.overflow = rest.drain(..).collect();
                    closed = true;
                }
                h.room = Some(rule.loops[l].size);
                room_of_dim = room_of_dim.map(|n| n / rule.loops[l].size.max(1));
            }
            held[l] = Some(h);
        }
    }
    held
}

/// A dimension's digits from those of its loops: behind a loop that is not full a split would be strided, so it ends there.
fn unproject(rule: &Rule, loops: &[usize], held: &Projection) -> Atoms {
    let mut dim = Atoms::new();
    for &l in loops {
        let Some(h) = &held[l] else { break };
        h.axes.iter().chain(&h.overflow).for_each(|a| push(&mut dim, *a));
        if !h.overflow.is_empty() || ways(&h.axes) < rule.loops[l].size {
            break;
        }
    }
    dim
}

/// How much a wish weighs: the heaviest tensor's wish first, then more ways.
type Say = (Reverse<u128>, Reverse<usize>);

/// What an equation asks of a value: that a dimension is split so. Of what is asked of one value in a round, the weightiest comes
/// first, then the leading dimension, then the major digit.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Proposal {
    value: ValueId,
    say: Say,
    dim: usize,
    to: Reverse<Atoms>,
    inside: bool,
}

/// The values and equations of one propagation.
#[derive(Debug, Default)]
pub(super) struct System {
    pub(super) values: Vec<Value>,
    pub(super) equations: Vec<Equation>,
}

impl System {
    /// Appends digits until nothing changes.
    pub(super) fn solve(&mut self) {
        let mut uses = vec![Vec::new(); self.values.len()];
        let mut reads = vec![0; self.values.len()];
        for (e, equation) in self.equations.iter().enumerate() {
            for (t, v) in equation.values.iter().enumerate() {
                let Some(v) = *v else { continue };
                reads[v] += usize::from(t < equation.rule.operands);
                if uses[v].last() != Some(&e) {
                    uses[v].push(e);
                }
            }
        }
        let single: Vec<bool> = (self.equations.iter())
            .map(|e| {
                let mut operands = e.values[..e.rule.operands].iter().flatten();
                operands.all(|v| reads[*v] == 1 || self.values[*v].shape.is_empty())
            })
            .collect();
        let depth = self.depths();
        for level in 0..LEVELS {
            // the equations due at each depth, in this pass and in the next
            let mut due: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            depth.iter().enumerate().for_each(|(e, d)| due.entry(*d).or_default().push(e));
            while !due.is_empty() {
                let mut later: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
                while let Some((at, mut speak)) = due.pop_first() {
                    sorted::sort(&mut speak);
                    speak.dedup();
                    for v in self.round(&speak, level, &single) {
                        for &e in &uses[v] {
                            let pass = if depth[e] > at { &mut due } else { &mut later };
                            pass.entry(depth[e]).or_default().push(e);
                        }
                    }
                }
                due = later;
            }
        }
    }

    /// How many equations are at most between each one and what comes from outside: what comes first is decided by who reads whom,
    /// and not by the order of lines.
    fn depths(&self) -> Vec<usize> {
        let mut made = vec![0; self.values.len()];
        let of = |e: &Equation| {
            let (operands, results) = e.values.split_at(e.rule.operands);
            let depth = operands.iter().flatten().map(|v| made[*v]).max().unwrap_or(0);
            results.iter().flatten().for_each(|v| made[*v] = made[*v].max(depth + 1));
            depth
        };
        self.equations.iter().map(of).collect()
    }

    /// Equations of one depth ask on one state, whichever comes first; tells which values changed.
    fn round(&mut self, speak: &[usize], level: usize, single: &[bool]) -> Vec<ValueId> {
        let mut asked: Vec<Proposal> = Vec::new();
        speak.iter().for_each(|e| self.propose(*e, level, single[*e], &mut asked));
        sorted::sort(&mut asked);
        let mut changed: Vec<ValueId> = Vec::new();
        for Proposal { value, dim, inside, to: Reverse(to), .. } in asked {
            if self.values[value].lengthen(dim, inside, to) && changed.last() != Some(&value) {
                changed.push(value);
            }
        }
        changed
    }

    /// What one equation asks of its values.
    fn propose(&self, e: usize, level: usize, single: bool, asked: &mut Vec<Proposal>) {
        let Equation { rule, values, inside } = &self.equations[e];
        let split = |v: &ValueId| {
            let v = &self.values[*v];
            v.dims.iter().any(|d| !d.is_empty()) || v.cut.is_some()
        };
        let directions: Vec<_> = (0..rule.loops.len()).map(|l| rule.directions(l, level, single)).collect();
        if directions.iter().all(|d| !d.any()) || !values.iter().flatten().any(split) {
            return;
        }
        let operands = rule.operands;
        let mut held: Vec<Projection> = (values.iter().enumerate())
            .map(|(t, v)| v.map_or(Vec::new(), |v| project(rule, t, &self.values[v], *inside == Some(t))))
            .collect();
        let of = |held: &[Projection], t: usize, l: usize| held[t].get(l).and_then(Option::as_ref).cloned();
        let agreements = agreements(rule, &directions, &held);
        for t in (operands..values.len()).chain(0..operands) {
            let Some(v) = values[t] else { continue };
            let mut heard: Vec<Option<Say>> = vec![None; rule.loops.len()];
            for (l, say, agreed) in &agreements {
                let direction = directions[*l];
                if !(if t >= operands { direction.forward } else { direction.backward }) {
                    continue;
                }
                let Some(own) = of(&held, t, *l) else { continue };
                let Some(mut new) = fits(agreed, &own, *l, &held[t], rule, t, &self.values[v]) else {
                    continue;
                };
                if rule.is_elementwise() && t < operands {
                    // an operand never gets ahead of a result sideways
                    for r in (operands..values.len()).filter_map(|r| of(&held, r, *l)) {
                        if r.axes != new && is_prefix(&r.axes, &new) {
                            new = r.axes;
                        }
                    }
                }
                if own.axes != new && is_prefix(&own.axes, &new) {
                    held[t][*l] = Some(Held { axes: new, ..own });
                    heard[*l] = Some(*say);
                }
            }
            for (dim, loops) in rule.tensors[t].iter().enumerate() {
                let Some(say) = loops.iter().filter_map(|l| heard[*l]).min() else { continue };
                let to = unproject(rule, loops, &held[t]);
                asked.push(Proposal { value: v, say, dim, inside: *inside == Some(t), to: Reverse(to) });
            }
        }
    }
}

/// On what the holders of each loop agree, the loops first for which the heaviest tensor speaks that has it all.
fn agreements(rule: &Rule, directions: &[Directions], held: &[Projection]) -> Vec<(usize, Say, Atoms)> {
    let (operands, all) = (rule.operands, held.len());
    let weight: Vec<u128> = (held.iter())
        .map(|h| {
            let sizes = h.iter().zip(&rule.loops).filter(|(h, _)| h.is_some()).map(|(_, l)| l.size as u128);
            sizes.fold(1, u128::saturating_mul)
        })
        .collect();
    let mut order = Vec::new();
    for (l, direction) in directions.iter().enumerate().filter(|(_, d)| d.any()) {
        let (mut agreed, mut open) = (Atoms::new(), true);
        let mut fold = |tensors: std::ops::Range<usize>, may: bool| {
            for h in held[tensors].iter().filter_map(|h| h.get(l)?.as_ref()) {
                agree(&mut agreed, &h.axes, may, &mut open);
            }
        };
        if direction.forward {
            fold(0..operands, true);
            fold(operands..all, direction.backward);
        } else {
            fold(operands..all, true);
            fold(0..operands, false);
        }
        if agreed.is_empty() {
            continue;
        }
        let has_it =
            |t: &usize| held[*t].get(l).and_then(Option::as_ref).is_some_and(|h| is_prefix(&agreed, &h.axes));
        let Some(speaker) = (0..all).filter(has_it).min_by_key(|t| (Reverse(weight[*t]), *t)) else {
            continue;
        };
        // of operands that are read alike none comes first
        let alike = rule.is_elementwise();
        let say = (Reverse(weight[speaker]), Reverse(if alike { ways(&agreed) } else { 0 }));
        order.push(((say, if alike { 0 } else { speaker }, l), agreed));
    }
    sorted::sort_by_key(&mut order, |o| o.0);
    order.into_iter().map(|((say, _, l), agreed)| (l, say, agreed)).collect()
}

/// As much of what is agreed for a loop as this tensor can take.
fn fits(
    agreed: &[Atom],
    own: &Held,
    l: usize,
    held: &Projection,
    rule: &Rule,
    tensor: usize,
    value: &Value,
) -> Option<Atoms> {
    if own.closed || !own.overflow.is_empty() {
        return None;
    }
    let others = held.iter().enumerate().filter(|(other, _)| *other != l).filter_map(|(_, h)| h.as_ref());
    let mut taken: Vec<Atom> = others.flat_map(|h| h.axes.iter().chain(&h.overflow)).copied().collect();
    taken.extend(&value.blocked);
    // dimensions that carry no loop have digits too
    let silent = value.dims.iter().zip(&rule.tensors[tensor]).filter(|(_, loops)| loops.is_empty());
    taken.extend(silent.flat_map(|(digits, _)| digits));
    let (mut new, mut room) = (Atoms::new(), own.room);
    for &a in agreed {
        let Some(mut b) = clear_of(a, &taken) else { break };
        if let Some(room) = &mut room {
            let size = gcd(*room, b.size);
            if size == 1 {
                break;
            }
            b = major_part(b, size);
            *room /= size;
        }
        new.push(b);
        if b != a {
            break;
        }
    }
    Some(new)
}
