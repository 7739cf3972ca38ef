//! An evaluator of per-device programs that runs device by device, on separate memories.

use super::plain::{combine, sentence, start};
use crate::ir::program::Reducer;
use crate::partition::boxes::{Region, for_each_index, full, linear_index, loop_box, volume};
use crate::partition::program::{LocalStep, Slot, SpmdProgram, Step};
use crate::partition::tree_reduce;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// A box of a value, with its elements.
#[derive(Clone, Debug)]
pub(super) struct OracleBlock {
    region: Region,
    data: Vec<f64>,
}

/// The blocks of each value that each device has: its own block first, then the blocks fetched.
type DeviceStores = Vec<Vec<Vec<OracleBlock>>>;

/// The elements and messages received by all devices together.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) elements: i64,
    pub(super) messages: i64,
}

fn lookup(blocks: &[OracleBlock], what: &str, i: &[i64]) -> f64 {
    let holds = |b: &&OracleBlock| i.iter().zip(&b.region).all(|(x, r)| r.0 <= *x && *x < r.1);
    let b = blocks.iter().find(holds).unwrap_or_else(|| panic!("{what}, index {i:?}, is not here"));
    b.data[linear_index(i, &b.region)]
}

/// Splits a full value into the devices' blocks.
/// The first partial value gets all of it, the others zeros.
pub(super) fn scatter(p: &SpmdProgram, slot: Slot, full_values: &[f64]) -> Vec<OracleBlock> {
    let stored = &p.slots[slot];
    let all = full(&stored.shape);
    (0..p.devices)
        .map(|dev| {
            let region = stored.layout.region(&stored.shape, dev);
            let partials = stored.layout.partial.as_ref();
            let first = partials.is_none_or(|(_, sub_axes)| sub_axes.iter().all(|a| a.index_of(dev) == 0));
            let mut data = Vec::new();
            for_each_index(&region, |i| {
                data.push(if first { full_values[linear_index(i, &all)] } else { 0.0 })
            });
            OracleBlock { region, data }
        })
        .collect()
}

/// Joins the devices' blocks.
/// Replicas must be equal.
pub(super) fn gather(p: &SpmdProgram, slot: Slot, blocks: &[OracleBlock]) -> Vec<f64> {
    let stored = &p.slots[slot];
    let all = full(&stored.shape);
    let sub_axis_list = stored.layout.partial.as_ref().map(|x| x.1.clone()).unwrap_or_default();
    let partial_layout = crate::partition::DimLayout { sub_axes: sub_axis_list, block: 1, origin: 0 };
    let mut out: Vec<Vec<Option<f64>>> =
        vec![vec![None; stored.shape.num_elements()]; partial_layout.num_shards()];
    for (dev, b) in blocks.iter().enumerate() {
        assert_eq!(b.region, stored.layout.region(&stored.shape, dev), "a block lies where its layout says");
        for_each_index(&b.region, |i| {
            let o = &mut out[partial_layout.rank(dev)][linear_index(i, &all)];
            let x = b.data[linear_index(i, &b.region)];
            assert!(o.is_none_or(|y| y == x || (x - y).abs() < 1e-9), "replicas agree");
            *o = Some(x);
        });
    }
    let sum = |k: usize| out.iter().map(|part| part[k].expect("every element is held")).sum();
    (0..stored.shape.num_elements()).map(sum).collect()
}

/// Executes the tree reductions of one exchange, message by message.
fn small_sums(p: &SpmdProgram, first: usize, stores: &mut DeviceStores, traffic: &mut Traffic) {
    let together = p.combined_reductions(first);
    let reduces = || {
        together.iter().map(|k| match &p.steps[*k] {
            Step::Reduce { src, out, combine } => (*src, *out, *combine),
            other => panic!("{other:?} is no sum"),
        })
    };
    // for each device, all elements of the exchange with their reducers
    let mut has: Vec<Vec<(Reducer, f64)>> = Vec::new();
    for store in stores.iter() {
        has.push(reduces().flat_map(|(src, _, c)| store[src][0].data.iter().map(move |x| (c, *x))).collect());
    }
    let Some((src, out, _)) = reduces().next() else { return };
    let partials = p.reduced_sub_axes(src, out);
    let mut received = vec![0i64; p.devices];
    for set in (0..p.devices).filter(|dev| partials.rank(*dev) == 0) {
        let rounds = p.rounds(first, set);
        for (n, messages) in rounds.iter().enumerate() {
            let before: Vec<Vec<(Reducer, f64)>> = has.clone();
            let mut pairs = BTreeSet::new();
            for l in messages {
                let (from, to) =
                    (partials.nearest_position(set, l.from), partials.nearest_position(set, l.to));
                let (c, x) = before[from][l.element];
                let own = &mut has[to][l.element].1;
                *own = if n < rounds.len() / 2 { combine(c, *own, x) } else { x };
                pairs.insert((from, to));
                traffic.elements += 1;
                received[to] += 1;
            }
            traffic.messages += pairs.len() as i64;
        }
    }
    let (route, _) =
        tree_reduce::tree_reduction(&p.slots[src], &p.slots[out].layout).expect("it is a small sum");
    let most = has.iter().map(Vec::len).max().unwrap_or(0) as i64;
    assert_eq!(
        received.into_iter().max(),
        Some(route.max_received(most).max(0)),
        "the busiest device is told"
    );
    for (dev, all) in has.into_iter().enumerate() {
        let mut all = all.into_iter().map(|x| x.1);
        for (_, out, _) in reduces() {
            let region = p.slots[out].layout.region(&p.slots[out].shape, dev);
            let data = all.by_ref().take(volume(&region) as usize).collect();
            stores[dev][out] = vec![OracleBlock { region, data }];
        }
    }
}

/// Runs a program device by device, in lockstep.
pub(super) fn devices(
    p: &SpmdProgram,
    args: &[Vec<OracleBlock>],
    traffic: &mut Traffic,
) -> Vec<Vec<OracleBlock>> {
    let mut stores: DeviceStores = vec![vec![Vec::new(); p.slots.len()]; p.devices];
    for (slot, blocks) in p.ins.iter().zip(args) {
        for (dev, b) in blocks.iter().enumerate() {
            stores[dev][*slot] = vec![b.clone()];
        }
    }
    let mut run = OracleRun { p, stores, touched: RefCell::default(), fetched: BTreeSet::new(), traffic };
    (0..p.steps.len()).for_each(|k| run.step(k));
    assert!(run.fetched == *run.touched.borrow(), "nothing is fetched that is not read\n{p}");
    p.outs.iter().map(|s| run.own(*s)).collect()
}

/// The index of an element: the value, the device, the position.
type ElementId = (Slot, usize, Vec<i64>);

/// A program that runs device by device.
struct OracleRun<'a> {
    p: &'a SpmdProgram,
    stores: DeviceStores,
    /// The elements that consumers read outside their own blocks: the minimum that must be fetched.
    touched: RefCell<BTreeSet<ElementId>>,
    fetched: BTreeSet<ElementId>,
    traffic: &'a mut Traffic,
}

impl OracleRun<'_> {
    /// Returns the block of a value that each device holds.
    fn own(&self, s: Slot) -> Vec<OracleBlock> {
        self.stores.iter().map(|d| d[s][0].clone()).collect()
    }
    fn own_all(&self, slots: &[Slot]) -> Vec<Vec<OracleBlock>> {
        slots.iter().map(|s| self.own(*s)).collect()
    }
    fn set(&mut self, slot: Slot, blocks: impl IntoIterator<Item = OracleBlock>) {
        blocks.into_iter().zip(&mut self.stores).for_each(|(b, store)| store[slot] = vec![b]);
    }
    fn set_all(&mut self, slots: &[Slot], values: Vec<Vec<OracleBlock>>) {
        slots.iter().zip(values).for_each(|(s, blocks)| self.set(*s, blocks));
    }
    fn step(&mut self, k: usize) {
        match &self.p.steps[k] {
            Step::Print { .. } => {}
            Step::Fetch { src, .. } => self.fetch(k, *src),
            Step::Reduce { .. } if self.p.is_tree_reduction(k) => {
                small_sums(self.p, k, &mut self.stores, self.traffic);
            }
            Step::Reduce { src, out, combine: c } => self.reduce(k, *src, *out, *c),
            Step::Local { .. } => self.local(k),
            step @ Step::Loop { .. } => self.run_loop(step),
            step @ Step::While { .. } => self.run_while(step),
            step @ Step::Branch { .. } => self.branch(step),
        }
    }
    fn fetch(&mut self, k: usize, src: Slot) {
        let mut got: Vec<Vec<OracleBlock>> = Vec::new();
        let mut moved = 0;
        // two exchanges that the program calls may fetch the same element, one may not
        let mut by_this = BTreeSet::new();
        for dev in 0..self.p.devices {
            let pieces = self.p.transfers(k, dev);
            let mut senders: Vec<usize> = pieces.iter().map(|x| x.from).collect();
            senders.sort_unstable();
            senders.dedup();
            assert!(!senders.contains(&dev), "nobody fetches from itself");
            self.traffic.messages += senders.len() as i64;
            let mut list = Vec::new();
            for piece in pieces {
                let mut data = Vec::new();
                for_each_index(&piece.region, |i| {
                    data.push(lookup(&self.stores[piece.from][src][..1], "a piece", i));
                    by_this.insert((src, dev, i.to_vec()));
                });
                moved += volume(&piece.region);
                list.push(OracleBlock { region: piece.region, data });
            }
            got.push(list);
        }
        self.traffic.elements += moved;
        assert_eq!(moved, by_this.len() as i64, "no element is fetched twice");
        self.fetched.extend(by_this);
        for (dev, list) in got.into_iter().enumerate() {
            self.stores[dev][src].extend(list);
        }
    }
    fn reduce(&mut self, k: usize, src: Slot, out: Slot, c: Reducer) {
        let mut made = Vec::new();
        let mut moved = 0;
        for dev in 0..self.p.devices {
            let region = self.p.slots[out].layout.region(&self.p.slots[out].shape, dev);
            let mut data = vec![start(c); volume(&region) as usize];
            let mut senders = Vec::new();
            for piece in self.p.transfers(k, dev) {
                for_each_index(&piece.region, |i| {
                    let x = lookup(&self.stores[piece.from][src][..1], "an addend", i);
                    let o = &mut data[linear_index(i, &region)];
                    *o = combine(c, *o, x);
                });
                if piece.from != dev {
                    moved += volume(&piece.region);
                    senders.push(piece.from);
                }
            }
            senders.sort_unstable();
            senders.dedup();
            self.traffic.messages += senders.len() as i64;
            made.push(OracleBlock { region, data });
        }
        self.traffic.elements += moved;
        self.set(out, made);
    }
    fn local(&mut self, k: usize) {
        let Some(LocalStep { out, nest: s, layout }) = self.p.steps[k].local() else { return };
        let (p, touched) = (self.p, &self.touched);
        let shape = |s: Slot| p.slots[s].shape.to_vec();
        for (dev, store) in self.stores.iter_mut().enumerate() {
            let loops = loop_box(layout, &s.extents, dev);
            let what = |v: Slot| format!("step {k} on device {dev}: slot {v}");
            let get = |v: Slot, i: &[i64]| {
                let mine = &store[v][0].region;
                if !i.iter().zip(mine).all(|(x, r)| r.0 <= *x && *x < r.1) {
                    touched.borrow_mut().insert((v, dev, i.to_vec()));
                }
                lookup(&store[v], &what(v), i)
            };
            let absent = p.slots[out].layout.partial.as_ref().map_or(0.0, |p| start(p.0));
            let data = sentence(s, (&loops, absent), &shape, &get);
            store[out] = vec![OracleBlock { region: loops[..s.rank].to_vec(), data }];
        }
    }
    fn run_loop(&mut self, step: &Step) {
        let Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } = step else { return };
        let mut now = self.own_all(carry);
        let slice = |b: &OracleBlock, at: usize| {
            let n = b.data.len() / length;
            OracleBlock { region: b.region[1..].to_vec(), data: b.data[at * n..(at + 1) * n].to_vec() }
        };
        let mut stacked: Vec<Vec<Vec<OracleBlock>>> = vec![Vec::new(); ys.len()];
        for k in 0..*length {
            let at = if *reverse { length - 1 - k } else { k };
            let step = OracleBlock { region: Vec::new(), data: vec![(*start + at as i64) as f64] };
            let mut ins = vec![vec![step; self.p.devices]];
            ins.extend(self.own_all(fixed));
            ins.extend(now);
            ins.extend(xs.iter().map(|s| self.own(*s).iter().map(|b| slice(b, at)).collect()));
            let mut outs = devices(body, &ins, self.traffic);
            let more = outs.split_off(carry.len());
            more.into_iter().zip(&mut stacked).for_each(|(y, s)| s.push(y));
            now = outs;
        }
        self.set_all(out, now);
        for (s, mut steps) in ys.iter().zip(stacked) {
            if *reverse {
                steps.reverse();
            }
            for dev in 0..self.p.devices {
                let mut region = vec![(0, *length as i64)];
                region.extend(steps.first().map(|b| b[dev].region.clone()).unwrap_or_default());
                let data = steps.iter().flat_map(|b| b[dev].data.iter().copied()).collect();
                self.stores[dev][*s] = vec![OracleBlock { region, data }];
            }
        }
    }
    fn run_while(&mut self, step: &Step) {
        let Step::While { cond, body, cond_fixed, body_fixed, carry, out } = step else { return };
        let mut now = self.own_all(carry);
        loop {
            let test = devices(cond, &[self.own_all(cond_fixed), now.clone()].concat(), self.traffic);
            // a test with dimensions has one element for each device
            let each = cond.slots[cond.outs[0]].shape.rank() > 0;
            let agree = test[0].iter().all(|b| b.data == test[0][0].data);
            assert!(each || agree, "devices agree to go on");
            if test[0].iter().all(|b| b.data[0] == 0.0) {
                break;
            }
            now = devices(body, &[self.own_all(body_fixed), now].concat(), self.traffic);
        }
        self.set_all(out, now);
    }
    fn branch(&mut self, step: &Step) {
        let Step::Branch { selector: which, branches, ins, out } = step else { return };
        let k = self.stores[0][*which][0].data[0];
        assert!(self.stores.iter().all(|d| d[*which][0].data[0] == k), "devices take one branch");
        let is_bool = self.p.slots[*which].dtype == crate::DType::Bool;
        let k = if is_bool { usize::from(k == 0.0) } else { (k.max(0.0) as usize).min(branches.len() - 1) };
        let args = self.own_all(ins);
        let made = devices(&branches[k], &args, self.traffic);
        self.set_all(out, made);
    }
}

/// Runs a program device by device, checks its results, and returns the traffic.
pub(super) fn check(p: &SpmdProgram, wanted: &[Vec<f64>], args: &[Vec<f64>]) -> Traffic {
    let mut traffic = Traffic::default();
    let cut: Vec<Vec<OracleBlock>> = p.ins.iter().zip(args).map(|(s, a)| scatter(p, *s, a)).collect();
    let outs = devices(p, &cut, &mut traffic);
    for (k, ((slot, blocks), wanted)) in p.outs.iter().zip(&outs).zip(wanted).enumerate() {
        let got = gather(p, *slot, blocks);
        assert_eq!(got.len(), wanted.len());
        for (x, y) in got.iter().zip(wanted) {
            assert!((x - y).abs() <= 1e-9 * x.abs().max(1.0), "result {k}: {got:?} for {wanted:?}\n{p:?}");
        }
    }
    traffic
}
