//! Two evaluators of per-device programs: one as if on a single device, one device by device.

use crate::ir::program::loop_nest::{
    Access, Compute, LoopNest, Reducer, RowKernelCall, ScalarArg, ScalarCode, ScalarOp, Source,
};
use crate::ir::program::{RowInput, RowOutput, RowOutputs};
use crate::partition::access::span_steps;
use crate::partition::boxes::{Region, for_each_index, full, linear_index, loop_box, volume};
use crate::partition::program::{Slot, SpmdProgram, Step};
use crate::partition::tree_reduce;
use std::cell::RefCell;
use std::collections::BTreeSet;

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

fn combine(c: Reducer, a: f64, b: f64) -> f64 {
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
fn start(c: Reducer) -> f64 {
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
    let shape = |s: Slot| p.slots[s].shape.to_vec();
    // the elements that consumers read outside their own blocks: the minimum that must be fetched
    let touched: RefCell<BTreeSet<(Slot, usize, Vec<i64>)>> = RefCell::default();
    let mut fetched: BTreeSet<(Slot, usize, Vec<i64>)> = BTreeSet::new();
    let own =
        |stores: &DeviceStores, s: Slot| stores.iter().map(|d| d[s][0].clone()).collect::<Vec<OracleBlock>>();
    for (k, step) in p.steps.iter().enumerate() {
        match step {
            Step::Print { .. } => {}
            Step::Fetch { src, .. } => {
                let mut got: Vec<Vec<OracleBlock>> = Vec::new();
                let mut moved = 0;
                // two exchanges that the program calls may fetch the same element, one may not
                let mut by_this = BTreeSet::new();
                for dev in 0..p.devices {
                    let pieces = p.transfers(k, dev);
                    let mut senders: Vec<usize> = pieces.iter().map(|x| x.from).collect();
                    senders.sort_unstable();
                    senders.dedup();
                    assert!(!senders.contains(&dev), "nobody fetches from itself");
                    traffic.messages += senders.len() as i64;
                    let mut list = Vec::new();
                    for piece in pieces {
                        let mut data = Vec::new();
                        for_each_index(&piece.region, |i| {
                            data.push(lookup(&stores[piece.from][*src][..1], "a piece", i));
                            by_this.insert((*src, dev, i.to_vec()));
                        });
                        moved += volume(&piece.region);
                        list.push(OracleBlock { region: piece.region, data });
                    }
                    got.push(list);
                }
                traffic.elements += moved;
                assert_eq!(moved, by_this.len() as i64, "no element is fetched twice");
                fetched.extend(by_this);
                for (dev, list) in got.into_iter().enumerate() {
                    stores[dev][*src].extend(list);
                }
            }
            Step::Reduce { .. } if p.is_tree_reduction(k) => small_sums(p, k, &mut stores, traffic),
            Step::Reduce { src, out, combine: c } => {
                let mut made = Vec::new();
                let mut moved = 0;
                for dev in 0..p.devices {
                    let region = p.slots[*out].layout.region(&p.slots[*out].shape, dev);
                    let mut data = vec![start(*c); volume(&region) as usize];
                    let mut senders = Vec::new();
                    for piece in p.transfers(k, dev) {
                        for_each_index(&piece.region, |i| {
                            let x = lookup(&stores[piece.from][*src][..1], "an addend", i);
                            let o = &mut data[linear_index(i, &region)];
                            *o = combine(*c, *o, x);
                        });
                        if piece.from != dev {
                            moved += volume(&piece.region);
                            senders.push(piece.from);
                        }
                    }
                    senders.sort_unstable();
                    senders.dedup();
                    traffic.messages += senders.len() as i64;
                    made.push(OracleBlock { region, data });
                }
                traffic.elements += moved;
                made.into_iter().enumerate().for_each(|(dev, b)| stores[dev][*out] = vec![b]);
            }
            Step::Local { out, nest: s, layout } => {
                for (dev, store) in stores.iter_mut().enumerate() {
                    let loops = loop_box(layout, &s.extents, dev);
                    let what = |v: Slot| format!("step {k} on device {dev}: slot {v}");
                    let get = |v: Slot, i: &[i64]| {
                        let mine = &store[v][0].region;
                        if !i.iter().zip(mine).all(|(x, r)| r.0 <= *x && *x < r.1) {
                            touched.borrow_mut().insert((v, dev, i.to_vec()));
                        }
                        lookup(&store[v], &what(v), i)
                    };
                    let absent = p.slots[*out].layout.partial.as_ref().map_or(0.0, |p| start(p.0));
                    let data = sentence(s, (&loops, absent), &shape, &get);
                    store[*out] = vec![OracleBlock { region: loops[..s.rank].to_vec(), data }];
                }
            }
            Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } => {
                let mut now: Vec<Vec<OracleBlock>> = carry.iter().map(|s| own(&stores, *s)).collect();
                let slice = |b: &OracleBlock, at: usize| {
                    let n = b.data.len() / length;
                    OracleBlock {
                        region: b.region[1..].to_vec(),
                        data: b.data[at * n..(at + 1) * n].to_vec(),
                    }
                };
                let mut stacked: Vec<Vec<Vec<OracleBlock>>> = vec![Vec::new(); ys.len()];
                for k in 0..*length {
                    let at = if *reverse { length - 1 - k } else { k };
                    let step = OracleBlock { region: Vec::new(), data: vec![(*start + at as i64) as f64] };
                    let mut ins = vec![vec![step; p.devices]];
                    ins.extend(fixed.iter().map(|s| own(&stores, *s)));
                    ins.extend(now);
                    ins.extend(xs.iter().map(|s| own(&stores, *s).iter().map(|b| slice(b, at)).collect()));
                    let mut outs = devices(body, &ins, traffic);
                    let more = outs.split_off(carry.len());
                    more.into_iter().zip(&mut stacked).for_each(|(y, s)| s.push(y));
                    now = outs;
                }
                for (s, blocks) in out.iter().zip(now) {
                    blocks.into_iter().enumerate().for_each(|(dev, b)| stores[dev][*s] = vec![b]);
                }
                for (s, mut steps) in ys.iter().zip(stacked) {
                    if *reverse {
                        steps.reverse();
                    }
                    for dev in 0..p.devices {
                        let mut region = vec![(0, *length as i64)];
                        region.extend(steps.first().map(|b| b[dev].region.clone()).unwrap_or_default());
                        let data = steps.iter().flat_map(|b| b[dev].data.iter().copied()).collect();
                        stores[dev][*s] = vec![OracleBlock { region, data }];
                    }
                }
            }
            Step::While { cond, body, cond_fixed, body_fixed, carry, out } => {
                let mut now: Vec<Vec<OracleBlock>> = carry.iter().map(|s| own(&stores, *s)).collect();
                loop {
                    let ins = |fixed: &[Slot]| -> Vec<Vec<OracleBlock>> {
                        fixed.iter().map(|s| own(&stores, *s)).chain(now.iter().cloned()).collect()
                    };
                    let test = devices(cond, &ins(cond_fixed), traffic);
                    // a test with dimensions has one element for each device
                    let each = cond.slots[cond.outs[0]].shape.rank() > 0;
                    let agree = test[0].iter().all(|b| b.data == test[0][0].data);
                    assert!(each || agree, "devices agree to go on");
                    if test[0].iter().all(|b| b.data[0] == 0.0) {
                        break;
                    }
                    now = devices(body, &ins(body_fixed), traffic);
                }
                for (s, blocks) in out.iter().zip(now) {
                    blocks.into_iter().enumerate().for_each(|(dev, b)| stores[dev][*s] = vec![b]);
                }
            }
            Step::Branch { selector: which, branches, ins, out } => {
                let k = stores[0][*which][0].data[0];
                assert!(stores.iter().all(|d| d[*which][0].data[0] == k), "devices take one branch");
                let is_bool = p.slots[*which].dtype == crate::DType::Bool;
                let k = if is_bool {
                    usize::from(k == 0.0)
                } else {
                    (k.max(0.0) as usize).min(branches.len() - 1)
                };
                let args: Vec<Vec<OracleBlock>> = ins.iter().map(|s| own(&stores, *s)).collect();
                for (s, blocks) in out.iter().zip(devices(&branches[k], &args, traffic)) {
                    blocks.into_iter().enumerate().for_each(|(dev, b)| stores[dev][*s] = vec![b]);
                }
            }
        }
    }
    assert!(fetched == *touched.borrow(), "nothing is fetched that is not read\n{p}");
    p.outs.iter().map(|s| own(&stores, *s)).collect()
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
