//! Passes 5 to 9: aliases, levels, buffers, and each group bound to memory as a node.

use super::control::{self, Nested};
use super::puts::Puts;
use super::reuse::{self, Reuse};
use super::rows::{self, Bound};
use super::view::view;
use super::{
    Compiled, Gift, Kernel, Level, Memory, Node, OutPlan, PackCopy, PackFrom, PackKernel, Plan, PrintKernel,
    PrintValue, What,
};
use crate::compile::arena::{self, At, Spare, Want};
use crate::compile::cells::{self, Ask};
use crate::compile::flow::{Flow, Item, PackPart};
use crate::compile::fold::{self, FoldKernel};
use crate::compile::group::{self, Groups, Head};
use crate::compile::index::{Ix, row_major};
use crate::compile::lines::{self, LinesKernel};
use crate::compile::{build, expr, product, seek};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Axes;
use crate::partition::{Printed, Slot, SpmdProgram};
use crate::program::sentence::{Combine, Source};
use crate::runtime::workers;
use std::collections::HashSet;
use std::sync::Arc;

/// Compiles a program. The memory of inputs that are `donated` may be written to.
pub(crate) fn compile(p: &SpmdProgram, donated: &[bool]) -> Result<Compiled> {
    let flow = build::build(p, &|_, shape| row_major(shape))?;
    if !countable(&flow) {
        return Err(uncountable(p));
    }
    let mut planner = Planner { places: Vec::new(), levels: 0 };
    planner.places.resize(flow.values.len(), Memory::Nowhere);
    for (i, s) in flow.ins.iter().enumerate() {
        planner.places[*s] = Memory::Arg(i);
    }
    let mut groups = group::group(&flow);
    let (outs, skip) = planner.views(&groups, p.devices);
    let reuse = reuse::donated(&mut groups, donated, &outs);
    for (s, gift) in &reuse.lie {
        planner.places[*s] = Memory::Given(*gift, 0);
    }
    let (mut outs, fresh) = planner.outs(&flow, outs);
    let (mut plan, arena) = planner.plan(&mut groups, 0, false, &skip, &reuse)?;
    plan.cost = plan.levels.iter().flat_map(|l| &l.nodes).map(|n| n.cost).sum();
    let gifts = planner.used(&reuse.gifts, &mut outs);
    let Planner { places, levels } = planner;
    Ok(Compiled { plan, places, arena, outs, fresh, gifts, levels })
}

/// What a plan is made with.
pub(super) struct Planner {
    /// Where each slot is.
    pub(super) places: Vec<Memory>,
    /// Levels so far.
    levels: usize,
}

/// Whose room in the arena.
#[derive(Clone, Copy)]
enum Room {
    /// A slot's.
    Slot(usize),
    /// All of a nested program's, by item.
    Item(usize),
}

pub(super) fn bytes(flow: &Flow<'_>, s: Slot) -> usize {
    let v = &flow.values[s];
    v.shape.elements().saturating_mul(v.dtype.size())
}

/// Whether the bytes of all values together can be counted, so that sums of some of them need no care.
fn countable(flow: &Flow<'_>) -> bool {
    fn all(flow: &Flow<'_>) -> u128 {
        let nested = flow.items.iter().flat_map(Item::flows).map(all);
        // carries have room twice
        nested.chain((0..flow.values.len()).map(|s| 2 * bytes(flow, s) as u128)).sum()
    }
    all(flow) <= 1 << 62
}

/// The refusal of a program whose values are not countable: it is told of the operation that makes the largest one.
fn uncountable(p: &SpmdProgram) -> Error {
    let what =
        "the values of the program are of more bytes together than can be counted; the largest is made here";
    let error = Error::from(Fault::new(ErrorKind::Shape, what));
    let bytes = |s: Slot| p.slots[s].shape.elements() as u128 * p.slots[s].dtype.size() as u128;
    let made = p.steps.iter().zip(&p.whys).filter_map(|(step, why)| {
        let most = step.outputs().into_iter().map(bytes).max()?;
        Some((most, why, why.place?))
    });
    match made.max_by_key(|m| m.0) {
        Some((_, why, place)) => error.located(&why.op, place),
        None => error,
    }
}

impl Planner {
    /// A slot beside the program's.
    pub(super) fn room(&mut self, place: Memory) -> u32 {
        self.places.push(place);
        (self.places.len() - 1) as u32
    }
    /// The results that are arguments, or blocks of one, and the groups that need not run.
    fn views(&self, g: &Groups<'_, '_>, devices: usize) -> (Vec<Option<OutPlan>>, Vec<usize>) {
        let mut skip = Vec::new();
        let outs = g.flow.outs.iter().map(|o| {
            let root = g.flow.root(*o);
            if let Memory::Arg(i) = self.places[root] {
                return Some(OutPlan::Arg(i));
            }
            let (view, group) = view(g, root, devices)?;
            skip.push(group);
            Some(view)
        });
        (outs.collect(), skip)
    }
    /// What all results are, and the bytes of those in fresh buffers.
    fn outs(&mut self, flow: &Flow<'_>, known: Vec<Option<OutPlan>>) -> (Vec<OutPlan>, Vec<usize>) {
        let mut fresh = Vec::new();
        let outs = flow.outs.iter().zip(known).map(|(o, known)| {
            let root = flow.root(*o);
            known.unwrap_or_else(|| match self.places[root] {
                Memory::Given(gift, _) => OutPlan::Given(gift),
                Memory::Out(i) => OutPlan::Fresh(i),
                _ => {
                    self.places[root] = Memory::Out(fresh.len());
                    fresh.push(bytes(flow, root));
                    OutPlan::Fresh(fresh.len() - 1)
                }
            })
        });
        (outs.collect(), fresh)
    }
    /// The gifts in which something is stored, numbered anew.
    fn used(&mut self, gifts: &[Gift], outs: &mut [OutPlan]) -> Vec<Gift> {
        let (mut used, mut number) = (Vec::new(), vec![None; gifts.len()]);
        let places = self.places.iter_mut().filter_map(|p| match p {
            Memory::Given(gift, _) => Some(gift),
            _ => None,
        });
        let outs = outs.iter_mut().filter_map(|o| match o {
            OutPlan::Given(gift) => Some(gift),
            _ => None,
        });
        for gift in places.chain(outs) {
            *gift = *number[*gift].get_or_insert_with(|| {
                used.push(gifts[*gift]);
                used.len() - 1
            });
        }
        used
    }

    /// The plan of a flow whose slots begin at `base`, and the bytes of its part of the arena (offsets are from its begin).
    pub(super) fn plan(
        &mut self,
        g: &mut Groups<'_, '_>,
        base: usize,
        in_loop: bool,
        skip: &[usize],
        reuse: &Reuse,
    ) -> Result<(Plan, usize)> {
        let flow = g.flow;
        // nested programs come first: their slots follow, their arenas are rooms of this one
        let mut nested: Vec<Option<Nested>> = Vec::with_capacity(flow.items.len());
        for k in 0..flow.items.len() {
            nested.push(self.control(flow, k, base, reuse)?);
        }
        self.around(g, base, in_loop, skip, reuse, nested)
    }

    /// The plan around the nested programs. It has many variables: a stack of nested programs is a stack of `plan`s, which has few.
    #[inline(never)]
    fn around(
        &mut self,
        g: &mut Groups<'_, '_>,
        base: usize,
        in_loop: bool,
        skip: &[usize],
        reuse: &Reuse,
        mut nested: Vec<Option<Nested>>,
    ) -> Result<(Plan, usize)> {
        let flow = g.flow;
        let n = g.list.len();
        let same: Vec<Option<Slot>> = (0..n).map(|k| epilogue(g, k, &reuse.over[k])).collect();
        let mut folds: Vec<Option<(Arc<FoldKernel>, Option<u32>)>> = vec![None; n];
        for (k, group) in g.list.iter().enumerate() {
            if let Head::Fold(_) = group.head {
                let f = Arc::new(fold::bind(g, k, base as u32, in_loop)?);
                let spans = f.staged().then(|| self.room(Memory::Nowhere));
                folds[k] = Some((f, spans));
            }
        }
        let mut maps: Vec<Option<Node>> = Vec::with_capacity(n);
        for (k, group) in g.list.iter().enumerate() {
            let runs = group.head == Head::Elementwise && !group.absorbed && !skip.contains(&k);
            let node = || elementwise(g, k, base as u32, in_loop, &reuse.over[k]);
            maps.push(runs.then(node).transpose()?);
        }
        // carries move from step to step, so that loops have none
        let chains = match in_loop {
            true => Vec::new(),
            false => Bound {
                maps: &maps,
                folds: &folds,
                takes: &rows::takes(g, base as u32, &reuse.puts),
                puts: &rows::puts(g, base as u32, &reuse.puts, workers::team().workers() as i64),
                same: &same,
                product: &|g, k| product::bind(g, k, base as u32, same[k], &reuse.over[k]).ok(),
                base,
                places: &self.places,
            }
            .chains(g, |k| skip.contains(&k) || !reuse.over[k].is_empty()),
        };
        let mut whole: Vec<Option<(Arc<LinesKernel>, Option<u32>)>> = vec![None; flow.items.len()];
        for (item, whole) in flow.items.iter().zip(&mut whole) {
            if let Item::Lines(l) = item {
                let k = Arc::new(lines::bind(flow, l, base as u32, workers::team().workers() as i64));
                let room = k.ends().map(|_| self.room(Memory::Nowhere));
                *whole = Some((k, room));
            }
        }
        let top = g.list.iter().map(|g| g.level).max().unwrap_or(0);
        let mut wants = self.wants(g, base, &same, skip, &reuse.puts);
        let strips: HashSet<usize> = chains.iter().flat_map(|c| &c.strips).map(|(s, _)| base + s).collect();
        wants.retain(|w| !matches!(w.what, Room::Slot(s) if strips.contains(&s)));
        for (k, n) in nested.iter().enumerate() {
            if let Some(n) = n {
                let level = g.level_at(k);
                wants.push(Want { from: level, to: level, size: n.bytes, what: Room::Item(k) });
            }
        }
        for (group, fold) in g.list.iter().zip(&folds) {
            if let Some((f, Some(spans))) = fold {
                let (level, what) = (group.level, Room::Slot(*spans as usize));
                wants.push(Want { from: level, to: level, size: f.temp(), what });
            }
        }
        for (k, lines) in whole.iter().enumerate() {
            if let Some((l, Some(room))) = lines {
                let (level, what) = (g.level_at(k), Room::Slot(*room as usize));
                wants.push(Want { from: level, to: level, size: l.temp(), what });
            }
        }
        let spare: Vec<Spare> = reuse.spare.iter().map(|s| s.1).collect();
        let mut rooms: Vec<Option<Memory>> = vec![None; flow.items.len()];
        let arena = arena::plan(&spare, wants, |what, at| {
            let place = match at {
                At::Arena(at) => Memory::Arena(at),
                At::Spare(k, at) => Memory::Given(reuse.spare[k].0, at),
            };
            match what {
                Room::Slot(s) => self.places[s] = place,
                Room::Item(k) => {
                    rooms[k] = Some(place);
                    if let Some(n) = &nested[k] {
                        self.slide(n.slots.clone(), place);
                    }
                }
            }
        });
        #[cfg(debug_assertions)]
        super::check::apart(super::check::lives(g, &self.places[base..], &nested, &rooms, &reuse.puts));
        let mut levels: Vec<[Vec<Node>; 2]> = (0..top).map(|_| [Vec::new(), Vec::new()]).collect();
        let chained = rows::places(&chains);
        let mut parts: Vec<Vec<Option<Node>>> = chains.iter().map(|c| vec![None; c.groups.len()]).collect();
        for (k, group) in g.list.iter().enumerate() {
            if group.absorbed || skip.contains(&k) {
                continue;
            }
            let list = &mut levels[group.level as usize - 1];
            match group.head {
                Head::Elementwise => list[0].extend(maps[k].take()),
                Head::Product(item) => {
                    let p = product::bind(g, k, base as u32, same[k], &reuse.over[k])?;
                    let what = describe(flow, "product", &[g.fold(item).out], group.members.len());
                    let (chunks, cost) = (p.chunks(), p.cost);
                    list[0].push(Node { kernel: Kernel::Product(Box::new(p)), chunks, cost, what });
                }
                Head::Fold(item) => {
                    let Some((f, spans)) = folds[k].take() else { continue };
                    let out = g.fold(item);
                    let what = describe(flow, over(out.combine()), &[out.out], group.members.len());
                    if let Some(spans) = spans {
                        let kernel = Kernel::FoldEnd(f.clone(), spans);
                        let what = What { name: "results of spans", ..what.clone() };
                        list[1].push(Node { kernel, chunks: f.ends(), cost: 0.5, what });
                    }
                    let (chunks, cost) = (f.chunks(), f.cost);
                    list[0].push(Node { kernel: Kernel::Fold(f, spans), chunks, cost, what });
                }
                Head::Whole(item) => match (nested[item].take(), whole[item].take()) {
                    (_, Some((l, room))) => {
                        let what = describe(flow, "lines", &flow.items[item].results(), 0);
                        let (chunks, cost) = (l.chunks, l.cost);
                        if let (Some(room), Some(chunks)) = (room, l.ends()) {
                            let (kernel, cost) = (Kernel::LinesEnd(l.clone(), room), l.end_cost());
                            let what = What { name: "lines of runs", ..what.clone() };
                            list[1].push(Node { kernel, chunks, cost, what });
                        }
                        list[0].push(Node { kernel: Kernel::Lines(l, room), chunks, cost, what });
                    }
                    (Some(n), _) => {
                        let (cost, name) = control::cost(&n.kernel);
                        let what = describe(flow, name, &flow.items[item].results(), 0);
                        list[0].push(Node { kernel: n.kernel, chunks: 1, cost, what });
                    }
                    (None, None) => {
                        let over = !reuse.over[k].is_empty();
                        if let Some(node) =
                            self.single(flow, &flow.items[item], base as u32, over, &reuse.puts)
                        {
                            list[0].push(node);
                        }
                    }
                },
            }
            if let Some((c, at)) = chained.get(&k) {
                parts[*c][*at] = list[0].pop();
            }
        }
        for (chain, parts) in chains.iter().zip(parts) {
            let level = g.list[chain.groups[0]].level as usize - 1;
            levels[level][0].push(chain.node(parts.into_iter().flatten().collect(), base));
        }
        let mut plan = Plan { levels: Vec::new(), cost: 0.0, in_loop };
        for nodes in levels.into_iter().flatten() {
            let (control, plain): (Vec<Node>, Vec<Node>) =
                nodes.into_iter().partition(|n| n.kernel.control());
            for nodes in
                std::iter::once(plain).chain(control.into_iter().map(|n| vec![n])).filter(|n| !n.is_empty())
            {
                plan.cost += nodes.iter().map(|n| n.cost).sum::<f64>();
                let chunks = nodes.iter().map(|n| n.chunks).sum();
                plan.levels.push(Level { id: self.levels, nodes, chunks });
                self.levels += 1;
            }
        }
        Ok((plan, arena))
    }

    /// The values that want room in the arena: what is stored and has no other place.
    fn wants(
        &self,
        g: &Groups<'_, '_>,
        base: usize,
        same: &[Option<Slot>],
        skip: &[usize],
        puts: &Puts,
    ) -> Vec<Want<Room>> {
        let flow = g.flow;
        let mut last = vec![0u32; flow.values.len()];
        for (k, item) in flow.items.iter().enumerate() {
            let level = g.level_at(k);
            for s in item.sources() {
                let root = flow.root(s);
                last[root] = last[root].max(level);
            }
        }
        let mut wants = Vec::new();
        for (s, last) in last.iter().enumerate() {
            let Some(d) = g.def[s] else { continue };
            let elsewhere = flow.root(s) != s || puts.last(s) != s;
            if self.places[base + s] != Memory::Nowhere || elsewhere || skip.contains(&d.group) {
                continue;
            }
            let head =
                matches!(g.list[d.group].head, Head::Product(k) if k == d.item) && same[d.group].is_none();
            if g.stored[s] || head {
                let begun = g.def[puts.first(s)].map_or(d.group, |d| d.group);
                let from = g.list[begun].level;
                let what = Room::Slot(base + s);
                wants.push(Want { from, to: (*last).max(from), size: bytes(flow, s), what });
            }
        }
        wants
    }

    /// A node for an item that runs by itself; `over`: over what it reads.
    fn single(&self, flow: &Flow<'_>, item: &Item<'_>, base: u32, over: bool, puts: &Puts) -> Option<Node> {
        let slot = |s: Slot| flow.root(s) as u32 + base;
        match item {
            Item::Seek(s) => {
                let over = over || s.over(flow).is_some_and(|was| puts.over(was, s.out));
                let place = |s: Slot| puts.last(flow.root(s)) as u32 + base;
                let k = seek::bind(flow, s, &place, over, workers::team().workers() as i64);
                let name = match s.put {
                    None => "take",
                    Some(_) if over => "put",
                    Some(_) => "copy and put",
                };
                let what = describe(flow, name, &[s.out], 0);
                let (chunks, cost) = (k.chunks, k.cost);
                Some(Node { kernel: Kernel::Seek(Box::new(k)), chunks, cost, what })
            }
            Item::Pack { out, fill, parts } => {
                let v = &flow.values[*out];
                let size = v.dtype.size() as i64;
                // (of a part that covers nothing positions may be anything)
                let scale =
                    |(o, st): &(i64, Ix)| (o.saturating_mul(size), st.map(|s| s.saturating_mul(size)));
                let part = |p: &PackPart| PackCopy {
                    from: match p.from {
                        Source::Value(s) => PackFrom::Slot(slot(s)),
                        Source::Const(c) => PackFrom::Bits(expr::bits(v.dtype, c)),
                    },
                    ext: p.ext,
                    src: scale(&p.src),
                    dst: scale(&p.dst),
                };
                let elements = v.shape.elements();
                let k = PackKernel {
                    out: slot(*out),
                    elements,
                    size: size as usize,
                    fill: expr::bits(v.dtype, *fill),
                    parts: parts.iter().map(part).collect(),
                };
                let what = describe(flow, "gather by steps", &[*out], 0);
                let cost = elements as f64 * 1e-3;
                Some(Node { kernel: Kernel::Pack(Box::new(k)), chunks: 1, cost, what })
            }
            Item::Print { template, values, manual, mesh } => {
                let value = |(s, printed): &(Slot, &Printed)| {
                    let v = &flow.values[*s];
                    PrintValue {
                        slot: slot(*s),
                        dtype: printed.dtype,
                        shape: v.shape.clone(),
                        hidden: printed.hidden.clone(),
                    }
                };
                let values = values.iter().map(value).collect();
                let k = PrintKernel {
                    template: template.to_string(),
                    values,
                    manual: Axes::clone(manual),
                    mesh: mesh.cloned(),
                };
                let what = describe(flow, "print", &[], 0);
                Some(Node { kernel: Kernel::Print(Box::new(k)), chunks: 1, cost: 10.0, what })
            }
            _ => None,
        }
    }
}

/// Where the product of a group is if nobody needs the product itself: where its epilogue stores, but not over what that reads.
fn epilogue(g: &Groups<'_, '_>, group: usize, over: &[(Slot, Slot)]) -> Option<Slot> {
    let Head::Product(p) = g.list[group].head else { return None };
    let (flow, out) = (g.flow, g.fold(p).out);
    if g.stored[out] {
        return None;
    }
    let size = |s: Slot| flow.values[s].dtype.size();
    let fits = |o: &Slot| g.stored[*o] && size(*o) == size(out) && over.iter().all(|x| x.0 != *o);
    g.list[group].members.iter().map(|m| g.map(m.item).out).find(fits)
}

/// What a fold is called.
fn over(combine: Combine) -> &'static str {
    match combine {
        Combine::Add => "sum",
        Combine::Mul => "product over",
        Combine::Max => "max",
        Combine::Min => "min",
        Combine::And => "all",
        Combine::Or => "any",
        Combine::Same => "one",
    }
}

fn describe(flow: &Flow<'_>, name: &'static str, makes: &[Slot], maps: usize) -> What {
    let one = |s: &Slot| (*s, flow.values[*s].dtype, flow.values[*s].shape.clone());
    let step = makes.iter().find_map(|s| flow.values[*s].step).map(|(why, combines)| (why.clone(), combines));
    What { name, makes: makes.iter().map(one).collect(), maps, step }
}

/// An elementwise group as a node.
fn elementwise(
    g: &Groups<'_, '_>,
    group: usize,
    base: u32,
    in_loop: bool,
    over: &[(Slot, Slot)],
) -> Result<Node> {
    let (lo, hi, n) = cells::space(g, group);
    let order: Vec<usize> = (0..n).filter(|d| hi[*d] - lo[*d] != 1).collect();
    let outs: Vec<Slot> =
        g.list[group].members.iter().map(|m| g.map(m.item).out).filter(|o| g.stored[*o]).collect();
    let large = |o: &Slot| bytes(g.flow, *o) >= 16 << 20;
    let stream = !in_loop
        && over.is_empty()
        && outs.len() == 1
        && outs.iter().all(large)
        && g.flow.outs.iter().any(|o| g.flow.root(*o) == outs[0]);
    let ask = Ask { order: &order, stream, same: None, over, base };
    let mut t = cells::tiles(g, group, &ask)?;
    t.collapse();
    let size = t.elements();
    let (mut operands, mut calls) = (1, 0.0);
    for b in &t.bands {
        let rows: i64 = (0..t.rank - 1).map(|d| b.hi[d] - b.lo[d]).product();
        for s in &b.segs {
            operands = operands.max(s.mems.iter().map(|m| m.size as usize).sum());
            let tiles = (s.hi - s.lo + t.tile - 1) / t.tile;
            calls += rows as f64 * (tiles as f64 * (s.code.len() + 2) as f64 + s.row.len() as f64);
        }
    }
    let cost = (size as f64 * t.weight + 3.0 * calls).max(size as f64 * operands as f64 / 60.0) / 1000.0;
    let workers = workers::team().workers() as i64;
    let want = match in_loop {
        true if cost < 3.0 => 1,
        true if cost < 1000.0 => workers,
        true => 16 * workers,
        false => ((cost / 20.0) as i64).clamp(1, 512),
    };
    let split = match t.ext[0] >= want.min(8) {
        true => 0,
        false => (0..t.rank).max_by_key(|d| t.ext[*d]).unwrap_or(0),
    };
    let quantum = if split == t.rank - 1 { 512 } else { 1 };
    let step = ((t.ext[split] + want - 1) / want).max(1);
    let step = (step + quantum - 1) / quantum * quantum;
    let chunks = ((t.ext[split] + step - 1) / step).max(1);
    let name = if stream { "tiles past the caches" } else { "tiles" };
    let members = &g.list[group].members;
    let mut what = describe(g.flow, name, &outs, members.len());
    if what.step.is_none() {
        let made = members.iter().find_map(|m| g.flow.values[g.map(m.item).out].step);
        what.step = made.map(|(why, combines)| (why.clone(), combines));
    }
    Ok(Node { kernel: Kernel::Tiles { tiles: Box::new(t), split, step }, chunks, cost, what })
}
