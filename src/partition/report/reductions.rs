//! Report entries of reductions.

use super::classify::{Classifier, call_text, new_collective, touched_axes_of};
use crate::core::{Axes, SubAxis, sharding::sub_axes::subtract};
use crate::ir::program::Reducer;
use crate::partition::collective::{Collective, CollectiveKind};
use crate::partition::cost::consumer::{Consumer, FetchQuery};
use crate::partition::program::{Slot, StepOrigin, StoredValue};
use crate::partition::report::sampling::{MAX_COUNTED_DEVICES, Receipt};
use crate::partition::{cost::cache, draft::copy_nest, tree_reduce};

impl Classifier<'_> {
    /// Returns the report entry of a single reduction.
    ///
    /// `None` if it moves nothing.
    pub(super) fn reduce_collective(
        &self,
        k: usize,
        src: Slot,
        out: Slot,
        combine: Reducer,
    ) -> Option<Collective> {
        let p = self.p;
        let stored = &p.slots[src];
        let copies =
            if p.slot_has_equal_partials(src) { 1 } else { p.reduced_sub_axes(src, out).num_shards() as i64 };
        let loop_nest = copy_nest(src, stored.dtype, &stored.shape);
        let reader = Consumer { nest: &loop_nest, access: 0, layout: &p.slots[out].layout.dims };
        let fetch =
            FetchQuery { devices: p.devices, slot: src, stored, consumers: &[reader], num_partials: copies };
        let small = tree_reduce::tree_cost(p.devices, stored, &p.slots[out].layout);
        let c = small.unwrap_or_else(|| self.costs.transfer_cost(&fetch));
        if c.total == 0 {
            return None;
        }
        let partials = |s: Slot| p.slots[s].layout.partial.as_ref().map(|x| x.1.clone()).unwrap_or_default();
        let stay = partials(out);
        let gone = subtract(&partials(src), &stay).unwrap_or_default();
        // use the final layout, that after the second half if this is the first half of an
        // all-reduce
        let end = self.two_step_reductions.iter().find(|h| h.0 == out).map_or(out, |h| h.1);
        let used =
            |a: &SubAxis| p.slots[end].layout.dims.iter().any(|l| l.sub_axes.iter().any(|b| a.overlaps(*b)));
        let scattered = gone.iter().any(used);
        let axes = touched_axes_of(self.mesh(), &gone);
        let finds = self
            .producer(src)
            .is_some_and(|k| p.steps[k].loop_nest().is_some_and(|s| s.compute.has_single_owner()));
        let (what, how) = describe_combination(combine, finds);
        let ending = match (combine, scattered) {
            (Reducer::AssumeEqual, _) => "where another block of it is read",
            (_, true) => "and each device keeps its block",
            (_, false) => "on all devices",
        };
        let cause = match combine {
            Reducer::AssumeEqual => self.equality_claim(src, &axes),
            _ => self.partial_cause(src, &axes, &p.origins[k]),
        };
        let kind = match (combine, scattered) {
            (Reducer::AssumeEqual, _) => CollectiveKind::Exchange,
            (_, true) => CollectiveKind::ReduceScatter,
            (_, false) => CollectiveKind::AllReduce,
        };
        let (mut kind, mut axes_named) = (kind, axes);
        axes_named.extend_unique(&self.gathered_axes(out, end));
        if let Some((asked, over)) = &self.infos[k].user_collective
            && matches!(asked, CollectiveKind::AllReduce | CollectiveKind::ReduceScatter)
        {
            (kind, axes_named) = (*asked, over.clone());
        }
        if small.is_none() && p.devices <= MAX_COUNTED_DEVICES && !is_nested(stored, &p.slots[out]) {
            axes_named.extend_unique(&self.crossed_axes(&self.receipts_of(k)));
        }
        let why = &p.origins[k];
        let size = stored.dtype.size() as u64;
        let mut key = Vec::new();
        cache::write_fetch(&mut key, &fetch);
        [src, out].iter().for_each(|s| cache::write_sub_axes(&mut key, &partials(*s)));
        let look = || match small {
            Some(_) => self.sampler.tree_sample(&[k]),
            None => self.sampler.reduce_sample(src, out),
        };
        let seen = self.sampler.lookup(key, look);
        let reason = format!("{cause}: {what} {how} {ending}");
        let asked = self.infos[k].user_collective.is_some();
        let before = self.infos[k].hoisted_from.clone();
        Some(Collective {
            requested: asked,
            hoisted_from: before,
            ..new_collective(k, (kind, axes_named), &c, size, &seen, why, reason)
        })
    }

    /// Returns from which devices each device receives in a step.
    fn receipts_of(&self, k: usize) -> Vec<Receipt> {
        let of = |device| {
            let senders = self.p.transfers(k, device).into_iter().map(|t| t.from).filter(|d| *d != device);
            Receipt { device, senders: senders.collect() }
        };
        (0..self.p.devices).map(of).collect()
    }

    /// Returns the axes along which the second half of an all-reduce gathers blocks of `out`, of
    /// which
    /// `end` has larger ones.
    fn gathered_axes(&self, out: Slot, end: Slot) -> Axes {
        let dims = |s: Slot| self.p.slots[s].layout.dims.iter().flat_map(|l| &l.sub_axes);
        let gathered: Vec<SubAxis> =
            dims(out).filter(|a| !dims(end).any(|b| a.overlaps(*b))).copied().collect();
        touched_axes_of(self.mesh(), &gathered)
    }

    /// Extends the report entry of a small reduction to all reductions in its exchange.
    pub(super) fn merge_exchange(&self, together: &[usize], c: &mut Collective) {
        let [first, others @ ..] = together else { return };
        if others.is_empty() {
            return;
        }
        let p = self.p;
        let mut elements = 0;
        c.total_bytes = 0;
        for k in together {
            let Some((src, out, _)) = p.steps[*k].reduction() else { continue };
            let (stored, to) = (&p.slots[src], &p.slots[out].layout);
            let (Some((route, more)), Some(cost)) =
                (tree_reduce::tree_reduction(stored, to), tree_reduce::tree_cost(p.devices, stored, to))
            else {
                continue;
            };
            let size = stored.dtype.size() as u64;
            elements += more;
            c.bytes_per_device = (route.max_received(elements) as u64).saturating_mul(size);
            c.total_bytes = c.total_bytes.saturating_add((cost.total as u64).saturating_mul(size));
        }
        let seen = self.sampler.tree_sample(together);
        (c.messages, c.messages_exact) = (seen.messages, seen.messages_exact);
        let mut names: Vec<String> = Vec::new();
        for why in others.iter().map(|k| &p.origins[*k]) {
            let line = why.location.filter(|place| Some(*place) != p.origins[*first].location);
            let at = line.map(|place| format!(" of line {}", place.line())).unwrap_or_default();
            let scope = why.scope.name().filter(|_| why.scope != p.origins[*first].scope);
            let within = scope.map(|s| format!(" in {s}")).unwrap_or_default();
            let name = format!("{}{at}{within}", why.op);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        c.reason = format!("{}; in one exchange with {}", c.reason, names.join(", "));
    }

    /// Returns the step that computes a value.
    fn producer(&self, v: Slot) -> Option<usize> {
        self.producers[v]
    }
    /// Explains which operation declares that all partial values are equal.
    fn equality_claim(&self, src: Slot, axes: &Axes) -> String {
        let by = self.producer(src).map_or("the program", |k| &self.p.origins[k].op);
        format!("{by} says that devices along {axes} have the same")
    }
    /// Explains why a value is partial.
    fn partial_cause(&self, src: Slot, axes: &Axes, asks: &StepOrigin) -> String {
        // a sum of partial values is partial for the same reason as its operands
        let mut src = src;
        while let Some(l) = self.producer(src).and_then(|k| self.p.steps[k].local())
            && l.nest.compute.elementwise().is_some()
            && l.nest.extents.len() == l.nest.rank
            && let Some(from) = l.nest.accesses.iter().find_map(|r| r.sources().first().copied())
            && self.p.slots[from].layout.partial == self.p.slots[src].layout.partial
        {
            src = from;
        }
        let Some(k) = self.producer(src) else { return format!("the value is unreduced over {axes}") };
        if self.infos[k].user_collective.is_some() {
            return call_text(&self.p.origins[k], axes);
        }
        let made = &self.p.origins[k];
        match self.p.steps[k].loop_nest() {
            // the step that needs the sum belongs to a different operation
            Some(nest) if nest.compute.contracts() && made.op != asks.op => {
                format!("{} contracts a dimension that is sharded over {axes}", made.op)
            }
            Some(nest) if nest.compute.contracts() => {
                format!("the contracting dimension is sharded over {axes}")
            }
            Some(nest) if nest.extents.len() > nest.rank => {
                format!("a dimension that {} runs over is sharded over {axes}", self.p.origins[k].op)
            }
            Some(_) | None => format!("the value is unreduced over {axes}"),
        }
    }
}

/// Returns true if each device's block of `out` is within its block of `src`. Then a reduction
/// sends along the axes that it reduces over only.
fn is_nested(src: &StoredValue, out: &StoredValue) -> bool {
    let mut dims = src.layout.dims.iter().zip(&out.layout.dims).zip(&src.shape[..]);
    dims.all(|((src, out), size)| {
        out.sub_axes.starts_with(&src.sub_axes) && size.is_multiple_of(out.num_shards())
    })
}

/// Says of which values a reduction consists, and what happens to them. `finds` is true if one
/// device has each element and the others have neutral ones.
fn describe_combination(combine: Reducer, finds: bool) -> (&'static str, &'static str) {
    match combine {
        _ if finds => ("the elements that each device holds are", "put together"),
        Reducer::Add => ("partial sums are", "added"),
        Reducer::Mul => ("partial products are", "multiplied"),
        Reducer::Max => ("the largest elements of the partial values are", "compared"),
        Reducer::Min => ("the smallest elements of the partial values are", "compared"),
        Reducer::And | Reducer::Or => ("partial results are", "combined"),
        Reducer::AssumeEqual => ("one of them is", "sent"),
    }
}
