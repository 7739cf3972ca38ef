//! Solves a propagation system.
//!
//! Equations are applied, one priority level after another, until no dimension is split further.

use super::rule::{Directions, NUM_PRIORITY_LEVELS, PropagationRule};
use super::sub_axes::{agree, free_major_part, is_prefix, major_part, minor_part, push_minor};
use crate::core::sharding::sub_axes::{canonicalize, num_shards};
use crate::core::{SubAxes, SubAxis, types::gcd, util::small_sort};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// The index of a value within one propagation.
///
/// Variables of different programs that must be placed alike share a value, such as a loop's carry
/// inside and outside.
pub(super) type ValueId = usize;

/// The state of a value: sub-axes are appended to its dimensions, never removed.
#[derive(Clone, Debug, Default)]
pub(super) struct PropagatedValue {
    /// The size of each dimension.
    /// Inside manual axes, that of one device's block.
    pub(super) shape: Vec<usize>,
    /// The sub-axes that split each dimension.
    pub(super) dims: Vec<SubAxes>,
    /// For each dimension, true if its sub-axes are final.
    pub(super) closed: Vec<bool>,
    /// For each dimension, true if its size must be divisible by the number of shards, because
    /// explicit axes split it too.
    pub(super) must_divide: Vec<bool>,
    /// The sub-axes that no dimension may use.
    /// They belong to manual axes, or to explicit axes that the type does not name.
    pub(super) blocked: Vec<SubAxis>,
    /// The sub-axes of manual axes that cut each dimension at the boundary of a `shard_map`.
    /// They precede those in `dims`, and are ignored inside. `None` for other values.
    pub(super) cut: Option<Vec<SubAxes>>,
}

/// An equation, or an edge of dataflow, in the system.
#[derive(Clone, Debug)]
pub(super) struct FactorEquation {
    pub(super) rule: PropagationRule,
    /// The values of the operands, then of the results.
    /// `None` for literals.
    pub(super) values: Vec<Option<ValueId>>,
    /// The operand or result that is seen from inside the manual axes: without its `cut`.
    pub(super) inside: Option<usize>,
}

impl PropagatedValue {
    /// Returns the sub-axes of a dimension, seen from inside or outside the manual axes.
    pub(super) fn dim(&self, d: usize, inside: bool) -> SubAxes {
        match &self.cut {
            Some(cut) if !inside => canonicalize(cut[d].iter().chain(&self.dims[d]).copied()),
            _ => self.dims[d].clone(),
        }
    }
    /// Extends the sub-axes of a dimension, and returns true if that changed it.
    /// It has no effect if `to` is not an extension, or if another dimension uses its sub-axes.
    fn extend_dim(&mut self, d: usize, inside: bool, mut to: SubAxes) -> bool {
        if let Some(cut) = self.cut.as_ref().filter(|_| !inside) {
            let Some(rest) = strip_prefix(&cut[d], &to) else { return false };
            to = rest;
        }
        let mut others =
            self.dims.iter().enumerate().filter(|(o, _)| *o != d).flat_map(|(_, sub_axes)| sub_axes);
        let longer = to != self.dims[d]
            && is_prefix(&self.dims[d], &to)
            && !others.any(|o| to.iter().any(|a| a.overlaps(*o)));
        if longer {
            self.dims[d] = to;
        }
        longer
    }
    /// Returns the number that the shard count of a dimension must divide.
    /// `None` if any number is allowed.
    fn max_shards(&self, d: usize, inside: bool) -> Option<usize> {
        let cut = self.cut.as_ref().map(|cut| num_shards(&cut[d]));
        if !self.must_divide[d] && cut.is_none_or(|n| n == 1) {
            return None;
        }
        Some(self.shape[d] * if inside { 1 } else { cut.unwrap_or(1) })
    }
}

/// Returns the rest of `list` after the prefix `head`, `None` if `head` is not a prefix.
fn strip_prefix(head: &[SubAxis], list: &[SubAxis]) -> Option<SubAxes> {
    if !is_prefix(head, list) {
        return None;
    }
    let Some(last) = head.len().checked_sub(1) else { return Some(list.into()) };
    let part = minor_part(list[last], head[last].size);
    Some(canonicalize([part].into_iter().chain(list[head.len()..].iter().copied())))
}

/// The sub-axes that one tensor has for one loop.
#[derive(Clone, Default)]
struct LoopSharding {
    /// The sub-axes.
    sub_axes: SubAxes,
    /// True if they are final.
    closed: bool,
    /// The number that their product must divide, `None` if any number is allowed.
    max_shards: Option<usize>,
    /// The sub-axes of the dimension that cannot be attributed to a loop.
    overflow: SubAxes,
}

/// The sharding of each loop of a rule in one tensor.
/// `None` for loops that the tensor does not have.
type Projection = Vec<Option<LoopSharding>>;

/// Splits the sub-axes of a tensor's dimensions over the loops along them.
fn project(rule: &PropagationRule, tensor: usize, value: &PropagatedValue, inside: bool) -> Projection {
    let mut held = vec![None; rule.loops.len()];
    for (d, loops) in rule.tensors[tensor].iter().enumerate() {
        let mut rest: VecDeque<SubAxis> = value.dim(d, inside).into_iter().collect();
        let (mut closed, mut room_of_dim) = (value.closed[d], value.max_shards(d, inside));
        for (i, &l) in loops.iter().enumerate() {
            let mut h = LoopSharding { closed, ..LoopSharding::default() };
            if i + 1 == loops.len() {
                h.sub_axes = rest.drain(..).collect();
                h.max_shards = room_of_dim;
            } else {
                let mut remaining = rule.loops[l].size;
                while let Some(head) = rest.front_mut() {
                    let g = gcd(remaining, head.size);
                    if g == 1 {
                        break;
                    }
                    h.sub_axes.push(major_part(*head, g));
                    remaining /= g;
                    if g == head.size {
                        rest.pop_front();
                    } else {
                        *head = minor_part(*head, g);
                    }
                }
                if remaining > 1 && !rest.is_empty() {
                    h.overflow = rest.drain(..).collect();
                    closed = true;
                }
                h.max_shards = Some(rule.loops[l].size);
                room_of_dim = room_of_dim.map(|n| n / rule.loops[l].size.max(1));
            }
            held[l] = Some(h);
        }
    }
    held
}

/// Returns the sub-axes of a dimension, given those of its loops.
/// A loop that is not fully split ends it, as the rest would be strided.
fn unproject(rule: &PropagationRule, loops: &[usize], held: &Projection) -> SubAxes {
    let mut dim = SubAxes::new();
    for &l in loops {
        let Some(h) = &held[l] else { break };
        h.sub_axes.iter().chain(&h.overflow).for_each(|a| push_minor(&mut dim, *a));
        if !h.overflow.is_empty() || num_shards(&h.sub_axes) < rule.loops[l].size {
            break;
        }
    }
    dim
}

/// The priority of a proposal: those from larger tensors come first, then those with more shards.
type ProposalWeight = (Reverse<u128>, Reverse<usize>);

/// A proposal to split a dimension of a value.
///
/// Proposals for one value are applied in order of priority, then leading dimensions first, then
/// major sub-axes first.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Proposal {
    value: ValueId,
    weight: ProposalWeight,
    dim: usize,
    sub_axes: Reverse<SubAxes>,
    inside: bool,
}

/// The values and equations of one propagation.
#[derive(Debug, Default)]
pub(super) struct System {
    pub(super) values: Vec<PropagatedValue>,
    pub(super) equations: Vec<FactorEquation>,
}

impl System {
    /// Applies all equations until nothing changes.
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
        for level in 0..NUM_PRIORITY_LEVELS {
            // the equations due at each depth, in this pass and the next
            let mut due: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
            depth.iter().enumerate().for_each(|(e, d)| due.entry(*d).or_default().push(e));
            while !due.is_empty() {
                let mut later: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
                while let Some((at, mut speak)) = due.pop_first() {
                    small_sort::sort(&mut speak);
                    speak.dedup();
                    for v in self.apply_proposals(&speak, level, &single) {
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

    /// Returns, for each equation, its longest distance from the inputs.
    ///
    /// The order of propagation thus depends on the dataflow and not on the order of equations.
    fn depths(&self) -> Vec<usize> {
        let mut made = vec![0; self.values.len()];
        let of = |e: &FactorEquation| {
            let (operands, results) = e.values.split_at(e.rule.operands);
            let depth = operands.iter().flatten().map(|v| made[*v]).max().unwrap_or(0);
            results.iter().flatten().for_each(|v| made[*v] = made[*v].max(depth + 1));
            depth
        };
        self.equations.iter().map(of).collect()
    }

    /// Applies equations of one depth, and returns the values that changed.
    /// All see the same state, so that their order does not matter.
    fn apply_proposals(&mut self, speak: &[usize], level: usize, single: &[bool]) -> Vec<ValueId> {
        let mut asked: Vec<Proposal> = Vec::new();
        speak.iter().for_each(|e| self.propose(*e, level, single[*e], &mut asked));
        small_sort::sort(&mut asked);
        let mut changed: Vec<ValueId> = Vec::new();
        for Proposal { value, dim, inside, sub_axes: Reverse(to), .. } in asked {
            if self.values[value].extend_dim(dim, inside, to) && changed.last() != Some(&value) {
                changed.push(value);
            }
        }
        changed
    }

    /// Collects the proposals of one equation.
    fn propose(&self, e: usize, level: usize, single: bool, asked: &mut Vec<Proposal>) {
        let FactorEquation { rule, values, inside } = &self.equations[e];
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
            let mut heard: Vec<Option<ProposalWeight>> = vec![None; rule.loops.len()];
            for (l, say, agreed) in &agreements {
                let direction = directions[*l];
                if !(if t >= operands { direction.forward } else { direction.backward }) {
                    continue;
                }
                let Some(own) = of(&held, t, *l) else { continue };
                let Some(mut new) = compatible_prefix(agreed, &own, *l, &held[t], rule, t, &self.values[v])
                else {
                    continue;
                };
                if rule.is_elementwise() && t < operands {
                    // an operand is not split over sub-axes that the result does not have
                    for r in (operands..values.len()).filter_map(|r| of(&held, r, *l)) {
                        if r.sub_axes != new && is_prefix(&r.sub_axes, &new) {
                            new = r.sub_axes;
                        }
                    }
                }
                if own.sub_axes != new && is_prefix(&own.sub_axes, &new) {
                    held[t][*l] = Some(LoopSharding { sub_axes: new, ..own });
                    heard[*l] = Some(*say);
                }
            }
            for (dim, loops) in rule.tensors[t].iter().enumerate() {
                let Some(say) = loops.iter().filter_map(|l| heard[*l]).min() else { continue };
                let to = unproject(rule, loops, &held[t]);
                asked.push(Proposal {
                    value: v,
                    weight: say,
                    dim,
                    inside: *inside == Some(t),
                    sub_axes: Reverse(to),
                });
            }
        }
    }
}

/// Returns the sub-axes on which the tensors of each loop agree, those of the largest tensor first.
fn agreements(
    rule: &PropagationRule,
    directions: &[Directions],
    held: &[Projection],
) -> Vec<(usize, ProposalWeight, SubAxes)> {
    let (operands, all) = (rule.operands, held.len());
    let weight: Vec<u128> = (held.iter())
        .map(|h| {
            let sizes = h.iter().zip(&rule.loops).filter(|(h, _)| h.is_some()).map(|(_, l)| l.size as u128);
            sizes.fold(1, u128::saturating_mul)
        })
        .collect();
    let mut order = Vec::new();
    for (l, direction) in directions.iter().enumerate().filter(|(_, d)| d.any()) {
        let (mut agreed, mut open) = (SubAxes::new(), true);
        let mut fold = |tensors: std::ops::Range<usize>, may: bool| {
            for h in held[tensors].iter().filter_map(|h| h.get(l)?.as_ref()) {
                agree(&mut agreed, &h.sub_axes, may, &mut open);
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
        let has_it = |t: &usize| {
            held[*t].get(l).and_then(Option::as_ref).is_some_and(|h| is_prefix(&agreed, &h.sub_axes))
        };
        let Some(speaker) = (0..all).filter(has_it).min_by_key(|t| (Reverse(weight[*t]), *t)) else {
            continue;
        };
        // operands of elementwise equations are interchangeable: do not order them
        let alike = rule.is_elementwise();
        let say = (Reverse(weight[speaker]), Reverse(if alike { num_shards(&agreed) } else { 0 }));
        order.push(((say, if alike { 0 } else { speaker }, l), agreed));
    }
    small_sort::sort_by_key(&mut order, |o| o.0);
    order.into_iter().map(|((say, _, l), agreed)| (l, say, agreed)).collect()
}

/// Returns the longest prefix of the agreed sub-axes of a loop that a tensor can have.
fn compatible_prefix(
    agreed: &[SubAxis],
    own: &LoopSharding,
    l: usize,
    held: &Projection,
    rule: &PropagationRule,
    tensor: usize,
    value: &PropagatedValue,
) -> Option<SubAxes> {
    if own.closed || !own.overflow.is_empty() {
        return None;
    }
    let others = held.iter().enumerate().filter(|(other, _)| *other != l).filter_map(|(_, h)| h.as_ref());
    let mut taken: Vec<SubAxis> =
        others.flat_map(|h| h.sub_axes.iter().chain(&h.overflow)).copied().collect();
    taken.extend(&value.blocked);
    // dimensions that run along no loop use sub-axes too
    let silent = value.dims.iter().zip(&rule.tensors[tensor]).filter(|(_, loops)| loops.is_empty());
    taken.extend(silent.flat_map(|(sub_axes, _)| sub_axes));
    let (mut new, mut remaining) = (SubAxes::new(), own.max_shards);
    for &a in agreed {
        let Some(mut b) = free_major_part(a, &taken) else { break };
        if let Some(remaining) = &mut remaining {
            let size = gcd(*remaining, b.size);
            if size == 1 {
                break;
            }
            b = major_part(b, size);
            *remaining /= size;
        }
        new.push(b);
        if b != a {
            break;
        }
    }
    Some(new)
}
