//! Infers the entries of a spec of a result: the axes that split each of its dimensions.
//!
//! If the rules do not determine an entry, typing returns an error that lists the choices.

use super::context::{LoopDim, TypingContext};
use super::suggest::reshard_operands_help;
use crate::core::{Axes, Axis, Fault, Spec, util::small_sort};
use crate::ir::program::factors::{Dim, DimMap, ExplicitRule, FactorKind, FactorLoop, Linearity, LoopId};
use smallvec::SmallVec;

/// The label of a help that offers an output sharding to request.
const CHOICE_LABEL: &str = "say the result's sharding";

impl TypingContext<'_> {
    /// Returns the axes that split each loop.
    /// If `out` is true, only loops with the rule [`ExplicitRule::MustMatch`] are considered.
    pub(super) fn join_loops(&self, out: bool) -> Result<Vec<Axes>, Fault> {
        let asked = |l: LoopId| !out || self.factors.loops[l].explicit_rule == Some(ExplicitRule::MustMatch);
        let mut held: Vec<SmallVec<[LoopDim; 2]>> =
            self.factors.loops.iter().map(|_| SmallVec::new()).collect();
        for (operand, dims) in self.factors.operands.iter().enumerate() {
            for (dim, over) in dims.iter().enumerate().filter(|(_, d)| d.loops.iter().all(|l| asked(*l))) {
                let entry = self.operands[operand].ty.spec.dim(dim);
                let stretched = over.map == DimMap::Broadcast;
                if let [l] = over.loops[..] {
                    held[l].push(LoopDim { operand, dim, entry: Axes::from(entry), broadcast: stretched });
                    continue;
                }
                let entries = self.split_axes_over_loops(operand, dim, over)?;
                for (&l, entry) in over.loops.iter().zip(entries) {
                    held[l].push(LoopDim { operand, dim, entry, broadcast: stretched });
                }
            }
        }
        self.check_unsharded(&held)?;
        held.iter().enumerate().map(|(l, held)| self.join_loop(l, held)).collect()
    }

    /// Splits the axes of a dimension among its loops, major first.
    /// A loop takes axes until its size is used up.
    fn split_axes_over_loops(&self, operand: usize, dim: usize, over: &Dim) -> Result<Vec<Axes>, Fault> {
        let entry = self.operands[operand].ty.spec.dim(dim);
        let split = |why: String| {
            self.sharding_fault(format!(
                "{} is split into {} factors, and {why}",
                self.describe_dim(operand, dim),
                over.loops.len()
            ))
            .help(self.reshard_help(operand, dim, &Axes::none()))
            .out_sharding(CHOICE_LABEL, self.suggested_spec())
            .highlight_dim(operand, dim)
        };
        let mut axes = entry;
        let mut entries = Vec::with_capacity(over.loops.len());
        for &l in &over.loops {
            let (mut left, mut taken) = (self.factors.loops[l].size, Axes::none());
            while let (true, [axis, rest @ ..]) = (left > 1, axes) {
                let n = self.mesh.extent(*axis);
                if !left.is_multiple_of(n) {
                    return Err(split(format!("{axis} of size {n} does not divide the remaining {left}")));
                }
                (left, axes) = (left / n, rest);
                taken.push(*axis);
            }
            entries.push(taken);
        }
        match axes {
            [] => Ok(entries),
            [axis, ..] => Err(split(format!("no factor is left for {axis}"))),
        }
    }

    /// Returns the axes that split one loop, given the dimensions that run over it.
    fn join_loop(&self, l: LoopId, held: &[LoopDim]) -> Result<Axes, Fault> {
        // a loop that no operand shards is unsharded, regardless of its rule
        if held.iter().all(|h| h.entry.is_empty()) {
            return Ok(Axes::none());
        }
        let sharded: Vec<&LoopDim> = held.iter().filter(|h| !h.entry.is_empty()).collect();
        let clash = sharded.windows(2).find(|w| w[0].entry != w[1].entry);
        let role = self.factors.kind(l);
        match (self.factors.loops[l].explicit_rule, role) {
            // `check_unsharded` has returned the error, which names all such loops
            (Some(ExplicitRule::MustBeReplicated), _) | (None, FactorKind::NeedReplication) => {}
            (Some(ExplicitRule::MustMatch), _) => {
                let full: Vec<&LoopDim> =
                    held.iter().filter(|h| !(h.broadcast && h.entry.is_empty())).collect();
                if let Some(w) = full.windows(2).find(|w| w[0].entry != w[1].entry) {
                    return Err(self.mismatch(w[0], w[1], "must be sharded the same way"));
                }
            }
            (None, FactorKind::Reduction) => {
                if let Some(w) = clash {
                    return Err(self.mismatch(w[0], w[1], "must match, but are sharded differently"));
                }
                if let [a, b, ..] = sharded[..] {
                    return Err(self.ambiguous_sum(l, a, b));
                }
            }
            (Some(ExplicitRule::FirstWins | ExplicitRule::MustNotMove), _)
            | (None, FactorKind::PassThrough | FactorKind::Permutation) => {
                if let Some(w) = clash {
                    return Err(self.mismatch(w[0], w[1], "must match, but are sharded differently"));
                }
            }
        }
        let speaker = match self.factors.loops[l].explicit_rule {
            Some(ExplicitRule::FirstWins) => held.first(),
            _ => sharded.first().copied(),
        };
        Ok(speaker.map_or(Axes::none(), |h| h.entry.clone()))
    }

    /// Returns an error if dimensions that must be unsharded are sharded.
    /// It names all of them, since fixing only one would lead to the next error.
    fn check_unsharded(&self, held: &[SmallVec<[LoopDim; 2]>]) -> Result<(), Fault> {
        let unsharded = |l: LoopId| match (self.factors.loops[l].explicit_rule, self.factors.kind(l)) {
            (Some(ExplicitRule::MustBeReplicated), _) | (None, FactorKind::NeedReplication) => true,
            (Some(ExplicitRule::MustMatch | ExplicitRule::FirstWins | ExplicitRule::MustNotMove), _)
            | (None, _) => false,
        };
        let each = held.iter().enumerate().filter(|(l, _)| unsharded(*l));
        let each: Vec<(LoopId, &LoopDim)> = each
            .flat_map(|(l, held)| held.iter().filter(|h| !h.entry.is_empty()).map(move |h| (l, h)))
            .collect();
        if each.is_empty() {
            return Ok(());
        }
        let mut named: Vec<String> = each.iter().map(|(_, h)| self.describe_dim(h.operand, h.dim)).collect();
        small_sort::sort(&mut named);
        named.dedup();
        let mut helps: Vec<(usize, Spec)> = Vec::new();
        let mut fault = self.sharding_fault(format!("{} must be unsharded here", named.join(" and ")));
        for (_, h) in &each {
            let o = &self.operands[h.operand];
            let number = o.user_index(h.operand);
            let k = helps.iter().position(|m| m.0 == number).unwrap_or_else(|| {
                helps.push((number, o.user_type().spec));
                helps.len() - 1
            });
            if let Some(dim) = o.user_dim(h.dim) {
                helps[k].1 = helps[k].1.with_dim(dim, &Axes::none());
            }
            fault = fault.highlight_dim(h.operand, h.dim);
        }
        small_sort::sort_by_key(&mut helps, |m| m.0);
        let help = match (&helps[..], self.operands.len()) {
            ([(_, spec)], 1) => format!("reshard it first: `.reshard({spec})`"),
            (helps, _) => reshard_operands_help(helps),
        };
        let fault = fault.help(help);
        // if an output sharding is requested, they may be sharded
        let asked = each
            .iter()
            .any(|(l, _)| self.factors.loops[*l].explicit_rule == Some(ExplicitRule::MustBeReplicated));
        Err(if asked { fault.out_sharding(CHOICE_LABEL, self.suggested_spec()) } else { fault })
    }
    /// Returns the fault for a contraction whose operands are both sharded over the loop.
    /// It is ambiguous whether the result is summed, and how it is then sharded.
    fn ambiguous_sum(&self, l: LoopId, a: &LoopDim, b: &LoopDim) -> Fault {
        let (one, two) = (self.describe_dim(a.operand, a.dim), self.describe_dim(b.operand, b.dim));
        let axes = &a.entry;
        let mut fault = self
            .sharding_fault(format!(
                "{one} and {two} are contracted: the result could be summed over {axes}, summed and scattered, or left unreduced"
            ))
            .highlight_dim(a.operand, a.dim)
            .highlight_dim(b.operand, b.dim);
        if let Some(usual) = self.summed_entries(l) {
            fault = fault.out_sharding("all-reduced", Spec::from_dims(usual.clone()));
            let shape = &self.shapes[0].1;
            let num_shards = self.num_shards(axes);
            // prefer a dimension that is unsharded, then one that these axes can split further
            let fits = |d: &usize| shape[*d].is_multiple_of(num_shards * self.num_shards(&usual[*d]));
            let free = (0..usual.len()).find(|d| usual[*d].is_empty() && fits(d));
            let free = free.or_else(|| (0..usual.len()).find(fits));
            let used = usual.iter().flat_map(Axes::iter).any(|x| axes.contains(x));
            let (partial, even) = self.contracted_axes(Linearity::Contraction);
            let free_of_partials = usual.iter().flat_map(Axes::iter).all(|x| !partial.contains(x));
            let partials = (even && free_of_partials && self.shapes[0].0.is_number())
                .then(|| Spec::from_dims(usual.clone()).unreduced(&partial));
            if let Some(d) = free.filter(|_| !used) {
                let mut scattered = usual;
                scattered[d].extend_unique(axes);
                fault = fault.out_sharding("scattered", Spec::from_dims(scattered));
            }
            if let Some(partials) = partials {
                fault = fault.out_sharding("left unreduced, to be summed later", partials);
            }
        }
        fault
    }
    /// Returns the entries of the first result if all sums are computed.
    /// They are the entries of the loops that the result has.
    fn summed_entries(&self, sum: LoopId) -> Option<Vec<Axes>> {
        let mut seen = Axes::none();
        self.factors
            .results
            .first()?
            .iter()
            .map(|dim| {
                let mut entry = Axes::none();
                for l in dim.loops.iter().filter(|l| **l != sum) {
                    let holder = self.factors.operands.iter().enumerate().find_map(|(k, dims)| {
                        let d = dims.iter().position(|d| d.loops.contains(l))?;
                        let e = self.operands[k].ty.spec.dim(d);
                        (!e.is_empty()).then_some(e)
                    });
                    let fresh: Axes =
                        holder.unwrap_or(&[]).iter().copied().filter(|a| !seen.contains(*a)).collect();
                    entry.extend_unique(&fresh);
                    seen.extend_unique(&fresh);
                }
                Some(entry)
            })
            .collect()
    }

    /// Returns the entries of a result: the axes of its loops, concatenated.
    /// If a loop is unsharded, all loops after it must be unsharded. This also holds for a loop
    /// with the rule [`ExplicitRule::MustNotMove`] that is not split completely.
    pub(super) fn result_entries(&self, i: usize, entries: &[Axes]) -> Result<Vec<Axes>, Fault> {
        let string = |(d, dim): (usize, &Dim)| {
            if let [l] = dim.loops[..] {
                return Ok(entries[l].clone());
            }
            let (mut entry, mut gap) = (Axes::none(), false);
            for l in &dim.loops {
                if gap && !entries[*l].is_empty() {
                    return Err(self.gap_fault(d, *l));
                }
                let FactorLoop { size, explicit_rule: join, .. } = self.factors.loops[*l];
                gap |= match join {
                    Some(ExplicitRule::MustNotMove) => self.num_shards(&entries[*l]) < size,
                    _ => entries[*l].is_empty(),
                };
                entry = entry.iter().chain(entries[*l].iter()).collect();
            }
            Ok(entry)
        };
        self.factors.results[i].iter().enumerate().map(string).collect()
    }
    fn gap_fault(&self, d: usize, l: LoopId) -> Fault {
        let from = self
            .factors
            .operands
            .iter()
            .enumerate()
            .find_map(|(k, dims)| dims.iter().position(|x| x.loops.contains(&l)).map(|dim| (k, dim)));
        match from {
            Some((k, dim)) => self
                .sharding_fault(format!(
                    "{} becomes the minor part of dimension {d} of the result, whose major part is {}: its elements would move between devices",
                    self.describe_dim(k, dim),
                    if self.factors.loops[l].explicit_rule == Some(ExplicitRule::MustNotMove) {
                        "not split to the last"
                    } else {
                        "unsharded"
                    }
                ))
                .help(self.reshard_help(k, dim, &Axes::none()))
                .out_sharding(CHOICE_LABEL, self.suggested_spec())
                .highlight_dim(k, dim),
            None => self.sharding_fault(format!(
                "the minor part of dimension {d} of the result is sharded, but its major part is not"
            )),
        }
    }

    /// Returns an output sharding to suggest.
    /// Each axis splits the first result dimension that runs over the same loops and whose size it
    /// divides.
    fn suggested_spec(&self) -> Spec {
        let shape = &self.shapes[0].1;
        let mut dims = vec![Axes::none(); shape.rank()];
        let split = self.factors.operands.iter().zip(self.operands).flat_map(|(dims, o)| {
            dims.iter().enumerate().map(|(d, dim)| (&dim.loops, Axes::from(o.ty.spec.dim(d))))
        });
        let sets: Axes = self
            .operands
            .iter()
            .flat_map(|o| o.ty.spec.unreduced_axes().iter().chain(o.ty.spec.reduced_axes().iter()))
            .collect();
        for (loops, entry) in split {
            let used = |a: &Axis| sets.contains(*a) || dims.iter().any(|d| d.contains(*a));
            let entry: Axes = entry.iter().filter(|a| !used(a)).collect();
            if entry.is_empty() {
                continue;
            }
            // place all axes of a dimension on one result dimension if possible, else each axis
            // separately
            let fitting_dim = |dims: &[Axes], axes: &[Axis]| {
                (0..shape.rank()).find(|d| {
                    let with: Axes = dims[*d].iter().chain(axes.iter().copied()).collect();
                    self.factors.results[0][*d].loops.iter().any(|l| loops.contains(l))
                        && shape[*d].is_multiple_of(self.num_shards(&with))
                })
            };
            match fitting_dim(&dims, entry.as_slice()) {
                Some(d) => dims[d] = dims[d].iter().chain(entry.iter()).collect(),
                None => {
                    for axis in entry.iter() {
                        if let Some(d) = fitting_dim(&dims, &[axis]) {
                            dims[d].push(axis);
                        }
                    }
                }
            }
        }
        Spec::from_dims(dims)
    }

    /// Returns an error if an axis splits two dimensions of a result, or is in one of its sets too.
    pub(super) fn check_axes_unique(&self, spec: Spec) -> Result<(), Fault> {
        let mut seen: SmallVec<[Axis; 4]> = SmallVec::new();
        let twice = spec.all_axes().any(|a| {
            let known = seen.contains(&a);
            seen.push(a);
            known
        });
        if !twice {
            return Ok(());
        }
        let named: Vec<(Axis, String)> = (spec.dims().iter().enumerate())
            .flat_map(|(d, e)| e.iter().map(move |a| (a, format!("dimension {d}"))))
            .chain(spec.unreduced_axes().iter().map(|a| (a, "the unreduced set".to_string())))
            .chain(spec.reduced_axes().iter().map(|a| (a, "the reduced set".to_string())))
            .collect();
        for (i, (axis, place)) in named.iter().enumerate() {
            if let Some((_, before)) = named[..i].iter().find(|n| n.0 == *axis) {
                let mut fault = self.sharding_fault(format!(
                    "the result would name {axis} twice: in {before} and in {place}"
                ));
                fault.help = self.separate_axis_help(*axis);
                let no_help = fault.help.is_empty();
                for (k, o) in self.operands.iter().enumerate() {
                    for d in (0..o.ty.rank()).filter(|d| o.ty.spec.dim(*d).contains(axis)) {
                        if no_help {
                            let rest: Axes = o.ty.spec.dim(d).iter().copied().filter(|a| a != axis).collect();
                            fault = fault.help(self.reshard_help(k, d, &rest));
                        }
                        fault = fault.highlight_dim(k, d);
                    }
                }
                fault.help.dedup();
                return Err(fault);
            }
        }
        Ok(())
    }
    /// Returns an error if an inferred sharding does not divide its dimensions.
    /// This can happen for slices, pads and splits of sharded dimensions.
    pub(super) fn check_divides(&self, spec: Spec, shape: &[usize]) -> Result<(), Fault> {
        for (d, (axes, n)) in spec.dims().iter().zip(shape).enumerate() {
            let ways = self.num_shards(axes);
            if n % ways != 0 {
                let from =
                    (0..self.operands.len()).find(|k| self.operands[*k].ty.spec.dim(d) == axes.as_slice());
                // a result of a permuted operand is permuted back
                let permuted =
                    from.map(|k| &self.operands[k]).filter(|o| o.user_type().rank() == o.ty.rank());
                let place = permuted.and_then(|o| o.user_dim(d)).unwrap_or(d);
                let mut fault = self.sharding_fault(format!(
                    "dimension {place} of the result has size {n}, which {axes} does not divide into {ways} equal parts"
                ));
                if let Some(k) = from {
                    fault = fault.help(self.reshard_help(k, d, &Axes::none())).highlight_dim(k, d);
                }
                return Err(fault);
            }
        }
        Ok(())
    }
}
