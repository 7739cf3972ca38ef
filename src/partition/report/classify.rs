//! Classifies exchanges as collectives by comparing the sub-axes of held and needed blocks.
//!
//! Collectives that the user called keep the kind the user gave them.

use crate::core::{Axes, Axis, Mesh, SubAxes, SubAxis, sharding::sub_axes::touched_axes};
use crate::ir::program::Phase;
use crate::partition::collective::{Collective, CollectiveKind, CollectiveRole, Collectives};
use crate::partition::cost::cache::{self, CostCache};
use crate::partition::cost::consumer::{Consumer, FetchQuery};
use crate::partition::cost::exchange::{ConsumerExchange, consumer_exchange, is_halo};
use crate::partition::draft::{FusedView, StepInfo, UserExchange};
use crate::partition::program::{FetchRequest, LocalStep, Slot, SpmdProgram, Step, StepOrigin, StoredValue};
use crate::partition::report::sampling::{
    Receipt, ReceiveSample, ReceiveSampler, fetch_sample, received_elements,
};
use crate::partition::{
    boxes::volume, cost::projection::Projections, cost::transfer::TransferCost, memory::StepMemory,
};

/// Lists the collectives of a program and its nested programs.
pub(crate) fn list_collectives(
    p: &SpmdProgram,
    notes: &[StepInfo],
    vias: &[Option<FusedView>],
    halves: &[(Slot, Slot)],
    prices: &CostCache,
) -> Collectives {
    let mut makers = vec![None; p.slots.len()];
    for (k, l) in p.steps.iter().enumerate().filter_map(|(k, s)| Some((k, s.local()?))).rev() {
        makers[l.out] = Some(k);
    }
    let namer = Classifier {
        p,
        infos: notes,
        fused_views: vias,
        two_step_reductions: halves,
        costs: prices,
        producers: makers,
        sampler: ReceiveSampler::new(p),
        projections: Projections::new(
            p.steps.iter().enumerate().filter_map(|(k, s)| Some((k, s.loop_nest()?))),
        ),
    };
    let mut list: Vec<Collective> = Vec::new();
    // the first halves of all-reduces, by the value between the halves
    let mut open: Vec<(Slot, usize)> = Vec::new();
    let mut inside = Vec::new();
    for (k, step) in p.steps.iter().enumerate() {
        for (n, (c, times)) in notes[k].nested_collectives.iter().enumerate() {
            list.extend(c.list.iter().map(|c| {
                let path = [&[(k, n)], &c.path[..]].concat();
                Collective { count: c.count.saturating_mul(*times), path, ..c.clone() }
            }));
        }
        inside.push(notes[k].nested_collectives.iter().map(|(c, _)| c.memory.clone()).collect());
        // local and control steps move nothing themselves; nested collectives were added above
        if let Some((src, requests)) = step.fetches() {
            let Some(c) = namer.fetch_collective(k, src, requests) else { continue };
            match open.iter().find(|o| o.0 == src) {
                Some((_, first)) => list[*first].add_second_half(&c),
                None => list.push(c),
            }
        } else if let Some((src, out, combine)) = step.reduction() {
            let Some(mut c) = namer.reduce_collective(k, src, out, combine) else { continue };
            let together = p.combined_reductions(k);
            if together.is_empty() && p.is_tree_reduction(k) {
                // the collective is reported with the first step of its exchange
                continue;
            }
            namer.merge_exchange(&together, &mut c);
            if halves.iter().any(|h| h.0 == out) {
                open.push((out, list.len()));
            }
            list.push(c);
        }
    }
    let (fetched, exact) = namer.fetched_bytes();
    let memory = StepMemory::new(fetched, inside, exact);
    Collectives { list, memory, ..Collectives::default() }
}

/// The data from which collectives are classified.
pub(super) struct Classifier<'a> {
    /// The program.
    pub(super) p: &'a SpmdProgram,
    /// The metadata of each step.
    pub(super) infos: &'a [StepInfo],
    /// The fused views, by slot.
    fused_views: &'a [Option<FusedView>],
    /// The two halves of all-reduces, as (intermediate value, result).
    pub(super) two_step_reductions: &'a [(Slot, Slot)],
    /// The cache of costs.
    pub(super) costs: &'a CostCache,
    /// The local step that computes each value.
    pub(super) producers: Vec<Option<usize>>,
    /// The sampler of messages.
    pub(super) sampler: ReceiveSampler<'a>,
    /// The accesses of many values.
    projections: Projections,
}

/// Creates the report entry of step `k`.
/// `size` is the size of an element in bytes.
pub(super) fn new_collective(
    k: usize,
    named: (CollectiveKind, Axes),
    c: &TransferCost,
    size: u64,
    seen: &ReceiveSample,
    why: &StepOrigin,
    reason: String,
) -> Collective {
    Collective {
        kind: named.0,
        axes: named.1,
        bytes_per_device: (c.max as u64).saturating_mul(size),
        total_bytes: (c.total as u64).saturating_mul(size),
        exact: c.exact,
        messages: seen.messages,
        messages_exact: seen.messages_exact,
        count: 1,
        per_iteration: false,
        op: why.op.clone(),
        location: why.location,
        scope: why.scope.clone(),
        phase: why.phase,
        requested: false,
        reason,
        role: CollectiveRole::Reduction,
        for_consumer: None,
        hoisted_from: None,
        path: vec![(k, 0)],
    }
}

/// Returns the reason of a collective that the user called, or that a derivative adds for it.
pub(super) fn call_text(origin: &StepOrigin, axes: &Axes) -> String {
    let caller = if origin.phase == Phase::Backward { "the backward pass" } else { "the program" };
    format!("{caller} calls {} over {axes}", origin.op)
}

/// The kind of an exchange, with its sub-axes and reason.
struct Classification {
    kind: CollectiveKind,
    sub_axes: SubAxes,
    reason: String,
}

impl Classifier<'_> {
    pub(super) fn mesh(&self) -> Option<&Mesh> {
        self.p.mesh.as_ref()
    }

    /// Returns the distinct consumers of a fetch and its cost.
    fn fetch_cost(&self, src: Slot, needs: &[FetchRequest]) -> (Vec<Consumer<'_>>, TransferCost) {
        let readers = cache::distinct_consumers(src, needs.iter().filter_map(|n| self.consumer(src, n)));
        let cost = self.costs.transfer_cost(&self.fetch_query(src, &readers));
        (readers, cost)
    }
    fn fetch_query<'r>(&'r self, src: Slot, readers: &'r [Consumer<'r>]) -> FetchQuery<'r> {
        FetchQuery {
            devices: self.p.devices,
            slot: src,
            stored: &self.p.slots[src],
            consumers: readers,
            num_partials: 1,
        }
    }

    /// Returns the report entry of a fetch, `None` if it moves nothing.
    fn fetch_collective(&self, k: usize, src: Slot, needs: &[FetchRequest]) -> Option<Collective> {
        let p = self.p;
        let stored = &p.slots[src];
        let (readers, c) = self.fetch_cost(src, needs);
        if c.total == 0 {
            return None;
        }
        let mut key = Vec::new();
        cache::write_fetch(&mut key, &self.fetch_query(src, &readers));
        let query = self.fetch_query(src, &readers);
        let seen = self.sampler.lookup(key, || fetch_sample(&query));
        let first = needs.first()?.consumer_step;
        let mut why = p.origins[first].clone();
        let size = stored.dtype.size() as u64;
        let called = self.user_exchange(src, needs);
        let asked = called.is_some() || self.infos[first].constrained || self.infos[first].requested;
        let (kind, mut axes, reason) = match called {
            Some(UserExchange { kind, axes, origin, .. }) => {
                why = origin.clone();
                (kind, axes.clone(), call_text(origin, axes))
            }
            None => {
                let name = self.classify(&query, &seen, c.total, first);
                (name.kind, touched_axes_of(self.mesh(), &name.sub_axes), name.reason)
            }
        };
        if seen.messages_exact {
            axes.extend_unique(&self.crossed_axes(seen.receipts(&query)));
        }
        let (sake, before) = (self.infos[first].for_consumer.clone(), self.infos[first].hoisted_from.clone());
        let part = match p.steps[first].loop_nest() {
            Some(s) if s.copied_operand().is_some() => CollectiveRole::Result,
            Some(_) | None => CollectiveRole::Operand(needs.first()?.access),
        };
        let collective = new_collective(k, (kind, axes), &c, size, &seen, &why, reason);
        Some(Collective {
            requested: asked,
            role: part,
            for_consumer: sake,
            hoisted_from: before,
            ..collective
        })
    }

    /// Returns the mesh axes along which the devices receive.
    ///
    /// Blocks of uneven sizes are not nested, so messages may cross axes that no sub-axis of the
    /// exchange names.
    pub(super) fn crossed_axes(&self, receipts: &[Receipt]) -> Axes {
        touched_axes_of(self.mesh(), &differing_axes(self.mesh(), receipts))
    }

    fn consumer(&self, src: Slot, n: &FetchRequest) -> Option<Consumer<'_>> {
        let LocalStep { nest: loop_nest, layout, .. } = self.p.steps[n.consumer_step].local()?;
        Some(self.projections.consumer(n.consumer_step, (loop_nest, n.access), src, layout))
    }

    /// Returns the user's exchange that makes a consumer need the value, if any.
    fn user_exchange(&self, src: Slot, needs: &[FetchRequest]) -> Option<UserExchange<'_>> {
        needs.iter().find_map(|n| {
            let (k, info) = (n.consumer_step, &self.infos[n.consumer_step]);
            let own = (&info.user_collective, self.p.steps[k].local()?.out, &self.p.origins[k]);
            let views = info.fused_views.iter().filter(|v| v.0 == n.access).map(|v| v.1);
            UserExchange::find(own, views, self.fused_views, src)
        })
    }

    /// Classifies what these consumers need together.
    fn classify(&self, query: &FetchQuery, seen: &ReceiveSample, total: i64, first: usize) -> Classification {
        let FetchQuery { slot: src, stored, consumers: readers, .. } = *query;
        let (op, note) = (&self.p.origins[first].op, &self.infos[first]);
        let copies = || self.p.steps[first].loop_nest().is_some_and(|s| s.copied_operand().is_some());
        let asks = note.constrained || note.requested && copies();
        // messages may be along fewer axes than those over which blocks differ
        let moved = |along: SubAxes| -> SubAxes {
            if along.len() < 2 || !seen.messages_exact {
                return along;
            }
            let differing = differing_axes(self.mesh(), seen.receipts(query));
            along.into_iter().filter(|a| differing.iter().any(|b| a.overlaps(*b))).collect()
        };
        let mut names: Vec<Classification> = Vec::new();
        for r in readers {
            let Some(name) = classify_consumer(src, stored, r, self.mesh(), &moved, (op, asks)) else {
                continue;
            };
            // a consumer that needs everything that the others need determines the kind
            let alone = readers.len() == 1 || self.costs.total(&self.fetch_query(src, &[*r])).0 == total;
            if alone {
                return name;
            }
            names.push(name);
        }
        if names.len() == readers.len()
            && names.windows(2).all(|w| w[0].kind == w[1].kind && w[0].sub_axes == w[1].sub_axes)
            && let Some(name) = names.pop()
        {
            return name;
        }
        let looked = seen.receipts(query);
        let sub_axis_list = differing_axes(self.mesh(), looked);
        let axes = touched_axes_of(self.mesh(), &sub_axis_list);
        let is_full = |r: &Receipt| {
            let block = |from| volume(&stored.layout.region(&stored.shape, from));
            r.senders.first().is_none_or(|from| received_elements(query, r.device) == block(*from))
        };
        if seen.max_senders <= 1 && looked.iter().all(is_full) {
            let reason = format!("{op} reads blocks of other devices along {axes}");
            return Classification { kind: CollectiveKind::Permute, sub_axes: sub_axis_list, reason };
        }
        if readers.iter().all(|r| is_halo(src, stored, r)) {
            let reason = format!("{op} reads beyond the edges of blocks along {axes}");
            return Classification { kind: CollectiveKind::Halo, sub_axes: sub_axis_list, reason };
        }
        let most = seen.max_senders;
        let reason = format!("{op} reads regions of other devices along {axes}: from up to {most} of them");
        Classification { kind: CollectiveKind::Exchange, sub_axes: sub_axis_list, reason }
    }

    /// Returns the bytes that each step fetches on the busiest device, and whether all are exact.
    fn fetched_bytes(&self) -> (Vec<u64>, bool) {
        let mut exact = true;
        let brings = |step: &Step| {
            let Some((src, needs)) = step.fetches() else { return 0 };
            let (_, c) = self.fetch_cost(src, needs);
            exact &= c.exact;
            (c.max as u64).saturating_mul(self.p.slots[src].dtype.size() as u64)
        };
        (self.p.steps.iter().map(brings).collect(), exact)
    }
}

/// Classifies what one consumer needs by sub-axes alone.
/// `None` if they do not determine it. `moved` returns the sub-axes along which messages are sent.
fn classify_consumer(
    src: Slot,
    stored: &StoredValue,
    r: &Consumer,
    mesh: Option<&Mesh>,
    moved: &dyn Fn(SubAxes) -> SubAxes,
    (op, asks_for): (&str, bool),
) -> Option<Classification> {
    let ConsumerExchange { kind, sub_axes, gone, new } = consumer_exchange(src, stored, r)?;
    let sub_axes = match kind {
        CollectiveKind::Permute | CollectiveKind::Exchange => moved(sub_axes),
        _ => sub_axes,
    };
    let named = |a: &SubAxes| touched_axes_of(mesh, a);
    let asks = |what: String| {
        if asks_for {
            format!("{op} asks for the value {what}")
        } else {
            format!("{op} reads the value {what}")
        }
    };
    let reason = match kind {
        CollectiveKind::AllGather => {
            asks(format!("unsharded along dimension {}, which is sharded over {}", gone.1, named(&gone.0)))
        }
        CollectiveKind::AllToAll => asks(format!(
            "sharded over {} along dimension {}, but it is along dimension {}",
            named(&sub_axes),
            new.1,
            gone.1
        )),
        CollectiveKind::Permute => {
            asks(format!("in other blocks of the same size, along {}", named(&sub_axes)))
        }
        CollectiveKind::AllReduce
        | CollectiveKind::ReduceScatter
        | CollectiveKind::Halo
        | CollectiveKind::Exchange => {
            asks(format!("sharded over {}, but it is sharded over {}", named(&new.0), named(&gone.0)))
        }
    };
    Some(Classification { kind, sub_axes, reason })
}

/// Returns the axes along which senders and receivers differ.
fn differing_axes(mesh: Option<&Mesh>, looked: &[Receipt]) -> SubAxes {
    let Some(mesh) = mesh else { return SubAxes::new() };
    let axis = |a: Axis| SubAxis { stride: mesh.stride_of(a), size: mesh.extent(a) };
    let differs = |a: &SubAxis| {
        looked.iter().any(|r| r.senders.iter().any(|from| a.index_of(*from) != a.index_of(r.device)))
    };
    mesh.axis_names().iter().map(|a| axis(*a)).filter(|a| a.size > 1 && differs(a)).collect()
}

/// Returns the mesh axes that sub-axes belong to.
pub(super) fn touched_axes_of(mesh: Option<&Mesh>, sub_axes: &[SubAxis]) -> Axes {
    mesh.map_or_else(Axes::none, |mesh| touched_axes(mesh, sub_axes))
}
