//! Passes 5 to 9 of the lock-step engine: views, aliases, levels, buffers, and each group bound to memory as a node.

use super::arena::{self, Want};
use super::build;
use super::cells::{self, Ask};
use super::expr;
use super::flow::{Carry, Flow, Item, Map, PackPart};
use super::fold::{self, FoldKernel};
use super::group::{self, Groups, Head};
use super::index::{Ix, row_major};
use super::product::{self, ProductKernel};
use super::tiles::Tiles;
use crate::diagnostic::Result;
use crate::mesh::{Axes, Mesh};
use crate::partition::{Slot, SpmdProgram};
use crate::program::sentence::{Combine, Fun, Source};
use crate::runtime::workers;
use crate::types::{DType, Shape};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Where a slot lies.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Place {
    /// Nowhere: it is never in memory.
    Nowhere,
    /// In the buffer of an argument.
    Arg(usize),
    /// In a fresh buffer.
    Out(usize),
    /// In the arena.
    Arena(usize),
    /// Where control puts it, step by step.
    Moving,
}

/// What a result is.
#[derive(Clone, Debug)]
pub(crate) enum OutPlan {
    /// A fresh buffer.
    Fresh(usize),
    /// The buffer of an argument.
    Arg(usize),
    /// Blocks of an argument: bytes of a block, and where each lies.
    View { arg: usize, block: usize, blocks: Arc<[usize]> },
}

/// A copy of strided boxes, on one thread.
#[derive(Clone, Debug)]
pub(crate) struct PackKernel {
    pub(crate) out: u32,
    pub(crate) elements: usize,
    pub(crate) size: usize,
    pub(crate) fill: u64,
    pub(crate) parts: Vec<PackCopy>,
}

/// One box: from a slot, or the same bits everywhere; offsets and steps in bytes.
#[derive(Clone, Debug)]
pub(crate) struct PackCopy {
    pub(crate) from: PackFrom,
    pub(crate) ext: Ix,
    pub(crate) src: (i64, Ix),
    pub(crate) dst: (i64, Ix),
}

/// What a box is copied from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum PackFrom {
    Slot(u32),
    Bits(u64),
}

/// A loop of known length. Slots are the whole plan's.
#[derive(Clone, Debug)]
pub(crate) struct LoopKernel {
    pub(crate) body: Plan,
    pub(crate) step: u32,
    pub(crate) start: i64,
    pub(crate) length: usize,
    pub(crate) reverse: bool,
    pub(crate) fixed: Vec<(u32, u32)>,
    pub(crate) carry: Vec<CarryKernel>,
    /// Outer slot, inner slot, bytes of a slice.
    pub(crate) xs: Vec<(u32, u32, usize)>,
    /// Inner slot, outer slot, bytes of a slice.
    pub(crate) ys: Vec<(u32, u32, usize)>,
}

/// A value that goes from step to step, and the second place that it alternates with.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CarryKernel {
    pub(crate) first: u32,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) last: u32,
    pub(crate) other: usize,
    pub(crate) bytes: usize,
}

/// A loop while a condition holds.
#[derive(Clone, Debug)]
pub(crate) struct WhileKernel {
    pub(crate) cond: Plan,
    pub(crate) body: Plan,
    pub(crate) fixed: Vec<(u32, u32)>,
    pub(crate) cond_carry: Vec<u32>,
    pub(crate) carry: Vec<CarryKernel>,
    /// The condition's result.
    pub(crate) test: u32,
}

/// One of several programs.
#[derive(Clone, Debug)]
pub(crate) struct BranchKernel {
    pub(crate) which: u32,
    pub(crate) dtype: DType,
    pub(crate) arms: Vec<Plan>,
    /// For each arm, outer and inner slots of what it reads, then of what it makes.
    pub(crate) wires: Vec<Vec<(u32, u32)>>,
}

/// What is printed.
#[derive(Clone, Debug)]
pub(crate) struct PrintKernel {
    pub(crate) template: String,
    pub(crate) values: Vec<PrintValue>,
    pub(crate) manual: Axes,
    pub(crate) mesh: Option<Mesh>,
}

/// A value that is printed.
#[derive(Clone, Debug)]
pub(crate) struct PrintValue {
    pub(crate) slot: u32,
    pub(crate) dtype: DType,
    pub(crate) shape: Shape,
    /// The manual axes of its hidden dimensions.
    pub(crate) hidden: Axes,
}

/// What a node runs.
#[derive(Clone, Debug)]
pub(crate) enum Kernel {
    Tiles {
        tiles: Box<Tiles>,
        split: usize,
        step: i64,
    },
    Product(Box<ProductKernel>),
    /// The arena holds the results of its spans from this byte on.
    Fold(Arc<FoldKernel>, usize),
    FoldEnd(Arc<FoldKernel>, usize),
    Pack(Box<PackKernel>),
    Print(Box<PrintKernel>),
    Loop(Box<LoopKernel>),
    While(Box<WhileKernel>),
    Branch(Box<BranchKernel>),
}

impl Kernel {
    /// Whether all workers enter it together.
    pub(crate) fn control(&self) -> bool {
        matches!(self, Kernel::Loop(_) | Kernel::While(_) | Kernel::Branch(_))
    }
}

/// What a node is, for the report.
#[derive(Clone, Debug)]
pub(crate) struct What {
    /// In a word or two.
    pub(crate) name: &'static str,
    /// What it makes: slot, element type, shape.
    pub(crate) makes: SmallVec<[(Slot, DType, Shape); 1]>,
    /// How many maps run in it.
    pub(crate) maps: usize,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (k, (slot, dtype, shape)) in self.makes.iter().enumerate() {
            write!(f, "{} %{slot} {}{shape}", if k == 0 { "" } else { "," }, dtype.short())?;
        }
        match self.maps {
            0 => Ok(()),
            1 => f.write_str(" with 1 map"),
            n => write!(f, " with {n} maps"),
        }
    }
}

/// One piece of work.
#[derive(Clone, Debug)]
pub(crate) struct Node {
    pub(crate) kernel: Kernel,
    /// Independent tasks.
    pub(crate) chunks: i64,
    /// Microseconds, roughly.
    pub(crate) cost: f64,
    /// For the report.
    pub(crate) what: What,
}

/// Nodes that are independent; or one node of control.
#[derive(Clone, Debug)]
pub(crate) struct Level {
    /// Its number among all levels, those of nested plans too.
    pub(crate) id: usize,
    pub(crate) nodes: Vec<Node>,
    /// Tasks of all nodes.
    pub(crate) chunks: i64,
}

/// Levels in order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Plan {
    pub(crate) levels: Vec<Level>,
    pub(crate) cost: f64,
    /// Whether it is inside a loop.
    pub(crate) in_loop: bool,
}

/// A program that is ready to run.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) plan: Plan,
    pub(crate) places: Vec<Place>,
    pub(crate) arena: usize,
    pub(crate) outs: Vec<OutPlan>,
    /// Bytes of each fresh buffer.
    pub(crate) fresh: Vec<usize>,
    /// Number of levels, nested ones too.
    pub(crate) levels: usize,
}

/// Compiles a program.
pub(crate) fn compile(p: &SpmdProgram) -> Result<Compiled> {
    let flow = build::build(p, &|_, shape| row_major(shape))?;
    let mut planner = Planner { places: Vec::new(), levels: 0 };
    planner.places.resize(flow.values.len(), Place::Nowhere);
    for (i, s) in flow.ins.iter().enumerate() {
        planner.places[*s] = Place::Arg(i);
    }
    let groups = group::group(&flow);
    let (outs, fresh, skip) = planner.outs(&groups, p.devices);
    let (plan, arena) = planner.plan(&groups, 0, false, &skip)?;
    let mut compiled = Compiled { plan, places: planner.places, arena, outs, fresh, levels: planner.levels };
    compiled.plan.cost = compiled.plan.levels.iter().flat_map(|l| &l.nodes).map(|n| n.cost).sum();
    Ok(compiled)
}

struct Planner {
    places: Vec<Place>,
    levels: usize,
}

/// A control item with its nested plans.
struct Nested {
    kernel: Kernel,
    /// Its slots.
    slots: Range<usize>,
    /// Bytes that it wants in the arena.
    bytes: usize,
}

/// Whose room in the arena.
#[derive(Clone, Copy)]
enum Room {
    Slot(Slot),
    /// Of a nested program or of a fold, by item.
    Item(usize),
}

fn bytes(flow: &Flow<'_>, s: Slot) -> usize {
    let v = &flow.values[s];
    v.shape.elements() * v.dtype.size()
}

impl Planner {
    /// What results are, and which groups need not run.
    fn outs(&mut self, g: &Groups<'_, '_>, devices: usize) -> (Vec<OutPlan>, Vec<usize>, Vec<usize>) {
        let flow = g.flow;
        let (mut outs, mut fresh, mut skip) = (Vec::new(), Vec::new(), Vec::new());
        for o in &flow.outs {
            let root = flow.root(*o);
            outs.push(match self.places[root] {
                Place::Arg(i) => OutPlan::Arg(i),
                Place::Out(i) => OutPlan::Fresh(i),
                _ => match view(g, root, devices) {
                    Some((view, group)) => {
                        skip.push(group);
                        view
                    }
                    None => {
                        self.places[root] = Place::Out(fresh.len());
                        fresh.push(bytes(flow, root));
                        OutPlan::Fresh(fresh.len() - 1)
                    }
                },
            });
        }
        (outs, fresh, skip)
    }

    /// The plan of a flow whose slots begin at `base`, and the bytes of its part of the arena (offsets are from its begin).
    fn plan(
        &mut self,
        g: &Groups<'_, '_>,
        base: usize,
        in_loop: bool,
        skip: &[usize],
    ) -> Result<(Plan, usize)> {
        let flow = g.flow;
        let n = g.list.len();
        // a product whose own result nobody needs lies where its epilogue stores
        let mut same: Vec<Option<Slot>> = vec![None; n];
        for (k, group) in g.list.iter().enumerate() {
            let Head::Product(p) = group.head else { continue };
            let out = g.fold(p).out;
            if g.stored[out] {
                continue;
            }
            let fits =
                |o: &Slot| g.stored[*o] && flow.values[*o].dtype.size() == flow.values[out].dtype.size();
            same[k] = group.members.iter().map(|m| g.map(m.item).out).find(fits);
        }
        // nested programs come first: their slots follow, their arenas are rooms of this one
        let mut nested: Vec<Option<Nested>> = Vec::with_capacity(flow.items.len());
        for item in &flow.items {
            nested.push(self.control(flow, item, base)?);
        }
        let mut kernels: Vec<Option<Arc<FoldKernel>>> = vec![None; n];
        let mut wants: Vec<Want<Room>> = Vec::new();
        let top = g.list.iter().map(|g| g.level).max().unwrap_or(0);
        let mut last = vec![0u32; flow.values.len()];
        for (k, item) in flow.items.iter().enumerate() {
            let level = match item.results().first() {
                Some(r) => g.level_of(*r),
                None => top,
            };
            for s in item.sources() {
                let root = flow.root(s);
                last[root] = last[root].max(level);
            }
            if let Some(n) = &nested[k] {
                wants.push(Want { from: level, to: level, size: n.bytes, what: Room::Item(k) });
            }
        }
        for (k, group) in g.list.iter().enumerate() {
            if let Head::Fold(item) = group.head {
                let f = Arc::new(fold::bind(g, k, base as u32, in_loop)?);
                if f.staged() {
                    wants.push(Want {
                        from: group.level,
                        to: group.level,
                        size: f.temp(),
                        what: Room::Item(item),
                    });
                }
                kernels[k] = Some(f);
            }
        }
        for (s, last) in last.iter().enumerate() {
            let Some(d) = g.def[s] else { continue };
            if self.places[base + s] != Place::Nowhere || flow.root(s) != s || skip.contains(&d.group) {
                continue;
            }
            let head =
                matches!(g.list[d.group].head, Head::Product(k) if k == d.item) && same[d.group].is_none();
            if g.stored[s] || head {
                let from = g.list[d.group].level;
                wants.push(Want { from, to: (*last).max(from), size: bytes(flow, s), what: Room::Slot(s) });
            }
        }
        let mut at = vec![0; flow.items.len()];
        let arena = arena::plan(wants, |what, offset| match what {
            Room::Slot(s) => self.places[base + s] = Place::Arena(offset),
            Room::Item(k) => at[k] = offset,
        });
        let mut levels: Vec<[Vec<Node>; 2]> = (0..top).map(|_| [Vec::new(), Vec::new()]).collect();
        for (k, group) in g.list.iter().enumerate() {
            if group.absorbed || skip.contains(&k) {
                continue;
            }
            let list = &mut levels[group.level as usize - 1];
            match group.head {
                Head::Elementwise => list[0].push(elementwise(g, k, base as u32, in_loop)?),
                Head::Product(item) => {
                    let p = product::bind(g, k, base as u32, same[k])?;
                    let what = describe(flow, "product", &[g.fold(item).out], group.members.len());
                    list[0].push(Node {
                        chunks: p.chunks(),
                        cost: p.cost,
                        kernel: Kernel::Product(Box::new(p)),
                        what,
                    });
                }
                Head::Fold(item) => {
                    let Some(f) = kernels[k].take() else { continue };
                    let out = g.fold(item);
                    let name = match out.combine() {
                        Combine::Add => "sum",
                        Combine::Mul => "product over",
                        Combine::Max => "max",
                        Combine::Min => "min",
                        Combine::And => "all",
                        Combine::Or => "any",
                    };
                    let what = describe(flow, name, &[out.out], group.members.len());
                    if f.staged() {
                        let node = Node {
                            chunks: f.ends(),
                            cost: 0.5,
                            kernel: Kernel::FoldEnd(f.clone(), at[item]),
                            what: What { name: "results of spans", ..what.clone() },
                        };
                        list[1].push(node);
                    }
                    list[0].push(Node {
                        chunks: f.chunks(),
                        cost: f.cost,
                        kernel: Kernel::Fold(f, at[item]),
                        what,
                    });
                }
                Head::Whole(item) => match nested[item].take() {
                    Some(mut n) => {
                        self.slide(n.slots.clone(), at[item]);
                        slide_kernel(&mut n.kernel, at[item]);
                        let (cost, name) = control_cost(&n.kernel);
                        let what = describe(flow, name, &flow.items[item].results(), 0);
                        list[0].push(Node { kernel: n.kernel, chunks: 1, cost, what });
                    }
                    None => {
                        if let Some(node) = self.single(flow, &flow.items[item], base as u32) {
                            list[0].push(node);
                        }
                    }
                },
            }
        }
        let mut plan = Plan { levels: Vec::new(), cost: 0.0, in_loop };
        for nodes in levels.into_iter().flatten() {
            let (control, plain): (Vec<Node>, Vec<Node>) =
                nodes.into_iter().partition(|n| n.kernel.control());
            for nodes in
                std::iter::once(plain).chain(control.into_iter().map(|n| vec![n])).filter(|n| !n.is_empty())
            {
                plan.cost += nodes.iter().map(|n| n.cost).sum::<f64>();
                plan.levels.push(Level {
                    id: self.levels,
                    chunks: nodes.iter().map(|n| n.chunks).sum(),
                    nodes,
                });
                self.levels += 1;
            }
        }
        Ok((plan, arena))
    }

    /// A control item with its nested plans.
    fn control(&mut self, flow: &Flow<'_>, item: &Item<'_>, base: usize) -> Result<Option<Nested>> {
        let outer = |s: Slot| (flow.root(s) + base) as u32;
        let carries = |list: &[Carry], at: u32, size: &mut usize| -> Vec<CarryKernel> {
            let one = |c: &Carry| {
                let bytes = bytes(flow, c.last);
                let other = *size;
                *size += bytes.next_multiple_of(64);
                let (from, to) = (c.from as u32 + at, c.to as u32 + at);
                CarryKernel { first: outer(c.first), from, to, last: outer(c.last), other, bytes }
            };
            list.iter().map(one).collect()
        };
        let begin = self.places.len();
        let (kernel, bytes) = match item {
            Item::Loop(l) => {
                let (body, at, mut size) = self.nested(&l.body)?;
                let slice = |s: Slot| bytes(flow, s) / l.length.max(1);
                let k = LoopKernel {
                    step: l.step as u32 + at,
                    start: l.start,
                    length: l.length,
                    reverse: l.reverse,
                    fixed: l.fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + at)).collect(),
                    carry: carries(&l.carry, at, &mut size),
                    xs: l.xs.iter().map(|(o, i)| (outer(*o), *i as u32 + at, slice(*o))).collect(),
                    ys: l.ys.iter().map(|(i, o)| (*i as u32 + at, outer(*o), slice(*o))).collect(),
                    body,
                };
                (Kernel::Loop(Box::new(k)), size)
            }
            Item::While(w) => {
                let (cond, c, first) = self.nested(&w.cond)?;
                let after = self.places.len();
                let (mut body, b, second) = self.nested(&w.body)?;
                // both parts of the arena side by side
                self.slide(after..self.places.len(), first);
                slide_plan(&mut body, first);
                let mut size = first + second;
                let fixed = w.cond_fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + c));
                let k = WhileKernel {
                    fixed: fixed
                        .chain(w.body_fixed.iter().map(|(o, i)| (outer(*o), *i as u32 + b)))
                        .collect(),
                    cond_carry: w.cond_carry.iter().map(|s| *s as u32 + c).collect(),
                    carry: carries(&w.carry, b, &mut size),
                    test: w.cond.outs[0] as u32 + c,
                    cond,
                    body,
                };
                self.places[k.test as usize] = Place::Arena(size);
                (Kernel::While(Box::new(k)), size + 64)
            }
            Item::Branch(b) => {
                let (mut arms, mut wires, mut size) = (Vec::new(), Vec::new(), 0);
                for arm in &b.arms {
                    let (plan, at, bytes) = self.nested(arm)?;
                    size = size.max(bytes);
                    let pairs = b.ins.iter().zip(&arm.ins).chain(b.outs.iter().zip(&arm.outs));
                    wires.push(pairs.map(|(o, i)| (outer(*o), *i as u32 + at)).collect());
                    arms.push(plan);
                }
                let k =
                    BranchKernel { which: outer(b.which), dtype: flow.values[b.which].dtype, arms, wires };
                (Kernel::Branch(Box::new(k)), size)
            }
            _ => return Ok(None),
        };
        Ok(Some(Nested { kernel, slots: begin..self.places.len(), bytes }))
    }
    /// The plan of a nested flow, its first slot, and the bytes of its arena, which begins at 0.
    fn nested(&mut self, flow: &Flow<'_>) -> Result<(Plan, u32, usize)> {
        let base = self.places.len();
        self.places.resize(base + flow.values.len(), Place::Nowhere);
        for s in flow.ins.iter().chain(&flow.outs) {
            self.places[base + s] = Place::Moving;
        }
        let (plan, arena) = self.plan(&group::group(flow), base, true, &[])?;
        Ok((plan, base as u32, arena))
    }
    /// Moves what lies in the arena.
    fn slide(&mut self, slots: Range<usize>, by: usize) {
        for p in &mut self.places[slots] {
            if let Place::Arena(at) = p {
                *at += by;
            }
        }
    }

    /// A node for an item that runs on one thread.
    fn single(&self, flow: &Flow<'_>, item: &Item<'_>, base: u32) -> Option<Node> {
        let slot = |s: Slot| flow.root(s) as u32 + base;
        match item {
            Item::Pack { out, fill, parts } => {
                let v = &flow.values[*out];
                let size = v.dtype.size() as i64;
                let scale = |(o, st): &(i64, Ix)| (o * size, st.map(|s| s * size));
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
                let value = |(s, hidden): &(Slot, Axes)| {
                    let v = &flow.values[*s];
                    PrintValue {
                        slot: slot(*s),
                        dtype: v.dtype,
                        shape: v.shape.clone(),
                        hidden: hidden.clone(),
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

/// Moves what a plan has in the arena beside its slots.
fn slide_plan(plan: &mut Plan, by: usize) {
    for n in plan.levels.iter_mut().flat_map(|l| &mut l.nodes) {
        slide_kernel(&mut n.kernel, by);
    }
}
fn slide_kernel(kernel: &mut Kernel, by: usize) {
    match kernel {
        Kernel::Fold(_, at) | Kernel::FoldEnd(_, at) => *at += by,
        Kernel::Loop(l) => {
            l.carry.iter_mut().for_each(|c| c.other += by);
            slide_plan(&mut l.body, by);
        }
        Kernel::While(w) => {
            w.carry.iter_mut().for_each(|c| c.other += by);
            slide_plan(&mut w.cond, by);
            slide_plan(&mut w.body, by);
        }
        Kernel::Branch(b) => b.arms.iter_mut().for_each(|p| slide_plan(p, by)),
        _ => {}
    }
}

fn control_cost(k: &Kernel) -> (f64, &'static str) {
    match k {
        Kernel::Loop(l) => (l.body.cost * l.length as f64 + 0.1, "loop"),
        // as if it ran some dozen steps
        Kernel::While(w) => ((w.body.cost + w.cond.cost) * 50.0, "loop while a condition holds"),
        Kernel::Branch(b) => (b.arms.iter().map(|a| a.cost).fold(0.0, f64::max), "one of several branches"),
        _ => (0.0, ""),
    }
}

fn describe(flow: &Flow<'_>, name: &'static str, makes: &[Slot], maps: usize) -> What {
    let one = |s: &Slot| (*s, flow.values[*s].dtype, flow.values[*s].shape.clone());
    What { name, makes: makes.iter().map(one).collect(), maps }
}

/// An elementwise group as a node.
fn elementwise(g: &Groups<'_, '_>, group: usize, base: u32, in_loop: bool) -> Result<Node> {
    let (lo, hi, n) = cells::space(g, group);
    let order: Vec<usize> = (0..n).filter(|d| hi[*d] - lo[*d] != 1).collect();
    let outs: Vec<Slot> =
        g.list[group].members.iter().map(|m| g.map(m.item).out).filter(|o| g.stored[*o]).collect();
    let large = |o: &Slot| bytes(g.flow, *o) >= 16 << 20;
    let stream = !in_loop
        && outs.len() == 1
        && outs.iter().all(large)
        && g.flow.outs.iter().any(|o| g.flow.root(*o) == outs[0]);
    let ask = Ask { order: &order, stream, same: None, base };
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
    let what = describe(g.flow, name, &outs, g.list[group].members.len());
    Ok(Node { kernel: Kernel::Tiles { tiles: Box::new(t), split, step }, chunks, cost, what })
}

/// Fewest bytes of a block.
const BLOCK: usize = 1024;

/// A result that is whole blocks of one argument, at most one for each device, and the group that would have copied it.
fn view(g: &Groups<'_, '_>, o: Slot, devices: usize) -> Option<(OutPlan, usize)> {
    let flow = g.flow;
    let d = g.def[o]?;
    let [m] = &g.list[d.group].members[..] else { return None };
    if g.list[d.group].head != Head::Elementwise || flow.uses[o].readers > 0 {
        return None;
    }
    let map: &Map<'_> = g.map(m.item);
    let ([read], [inst]) = (&map.reads[..], &map.code.insts[..]) else { return None };
    let v = &flow.values[o];
    let elements = v.shape.elements();
    if inst.fun != Fun::Copy || v.copies > 1 || elements == 0 || read.pieces.is_empty() {
        return None;
    }
    let Source::Value(s) = read.pieces[0].from else { return None };
    let arg = flow.root(s);
    let i = flow.ins.iter().position(|x| *x == arg)?;
    let from = &flow.values[arg];
    if from.dtype != v.dtype || from.copies > 1 || read.pieces.iter().any(|p| p.from != Source::Value(s)) {
        return None;
    }
    // dimensions from j on are contiguous in every piece
    let (mut j, mut run) = (map.n, 1);
    while j > 0 {
        let e = map.ext[j - 1];
        let dense =
            |p: &super::flow::Piece| p.lo[j - 1] <= 0 && p.hi[j - 1] >= e && (e == 1 || p.st[j - 1] == run);
        if !read.pieces.iter().all(dense) {
            break;
        }
        run *= e;
        j -= 1;
    }
    let count: i64 = map.ext[..j].iter().product();
    let block = run as usize * v.dtype.size();
    let small = elements * 4 < from.shape.elements();
    if count as usize > devices.max(1) || block < BLOCK || small {
        return None;
    }
    let mut blocks = Vec::with_capacity(count as usize);
    for k in 0..count {
        let (mut x, mut r) = ([0; super::index::MAX], k);
        for d in (0..j).rev() {
            x[d] = r % map.ext[d];
            r /= map.ext[d];
        }
        let p = read.pieces.iter().find(|p| (0..j).all(|d| p.lo[d] <= x[d] && x[d] < p.hi[d]))?;
        let at = p.off + (0..j).map(|d| x[d] * p.st[d]).sum::<i64>();
        blocks.push(at as usize * v.dtype.size());
    }
    Some((OutPlan::View { arg: i, block, blocks: blocks.into() }, d.group))
}
