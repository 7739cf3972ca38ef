//! Two evaluators of per-device programs: plainly, as if on one device, and device by device.

use crate::partition::program::{Slot, SpmdProgram, Step};
use crate::partition::reads::span_steps;
use crate::partition::region::{Region, each, full, linear, loop_box, volume};
use crate::partition::route;
use crate::program::sentence::{Arg, Body, Code, Combine, Fun, Lines, Read, Sentence, Source};
use crate::program::{In, Out, Outs};
use std::cell::RefCell;
use std::collections::BTreeSet;

/// What an instruction or read makes; keys and integers are exact below 2^53.
fn run(code: &Code, index: &[i64], reads: &[f64]) -> f64 {
    let mut made: Vec<f64> = Vec::new();
    for i in &code.insts {
        let arg = |k: usize| match i.args[k] {
            Arg::Read(r) => reads[r],
            Arg::Inst(r) => made[r],
            Arg::Const(c) => c.to_f64(),
            Arg::Index(l) => index[l] as f64,
        };
        let truth = |b: bool| f64::from(u8::from(b));
        made.push(match i.fun {
            Fun::Copy | Fun::Convert => arg(0),
            Fun::Neg => -arg(0),
            Fun::Add => arg(0) + arg(1),
            Fun::Sub => arg(0) - arg(1),
            Fun::Mul => arg(0) * arg(1),
            Fun::Max => arg(0).max(arg(1)),
            Fun::Eq => truth(arg(0) == arg(1)),
            Fun::Lt => truth(arg(0) < arg(1)),
            Fun::Le => truth(arg(0) <= arg(1)),
            Fun::Select => {
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

fn combine(c: Combine, a: f64, b: f64) -> f64 {
    match c {
        Combine::Add => a + b,
        Combine::Mul => a * b,
        Combine::Max => a.max(b),
        Combine::Min => a.min(b),
        Combine::And => f64::from(u8::from(a != 0.0 && b != 0.0)),
        Combine::Or => f64::from(u8::from(a != 0.0 || b != 0.0)),
        Combine::Same => b,
    }
}
fn start(c: Combine) -> f64 {
    match c {
        Combine::Add | Combine::Or | Combine::Same => 0.0,
        Combine::Mul | Combine::And => 1.0,
        Combine::Max => f64::NEG_INFINITY,
        Combine::Min => f64::INFINITY,
    }
}

fn read(
    r: &Read,
    index: &[i64],
    shapes: &dyn Fn(Slot) -> Vec<usize>,
    get: &dyn Fn(Slot, &[i64]) -> f64,
) -> f64 {
    for p in &r.parts {
        let ks: Option<Vec<i64>> = (p.span.iter().zip(index))
            .map(|(s, i)| {
                let k = span_steps(s, (*i, i + 1));
                (k.0 < k.1).then_some(k.0)
            })
            .collect();
        let Some(ks) = ks else { continue };
        return match p.from {
            Source::Const(c) => c.to_f64(),
            Source::Value(v) => {
                let at = |m: &crate::program::sentence::Affine| {
                    m.at + m.terms.iter().map(|t| t.1 * ks[t.0]).sum::<i64>()
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

/// A sentence over a box of its loops: the elements of the result's box. `absent` is what is taken where the box has not the step.
pub(super) fn sentence(
    s: &Sentence,
    (loops, absent): (&Region, f64),
    shapes: &dyn Fn(Slot) -> Vec<usize>,
    get: &dyn Fn(Slot, &[i64]) -> f64,
) -> Vec<f64> {
    let b = loops[..s.rank].to_vec();
    if let Body::Lines(l) = &s.body {
        return lines(s, l, loops, shapes, get);
    }
    let init = match s.body {
        Body::Fold { combine, .. } => start(combine),
        Body::Take { .. } => absent,
        _ => 0.0,
    };
    let mut out = vec![init; volume(&b) as usize];
    if let Body::Put { .. } = s.body {
        each(&b, |i| {
            let all: Vec<i64> = (0..s.extents.len()).map(|l| i.get(l).copied().unwrap_or(0)).collect();
            out[linear(i, &b)] = read(&s.reads[0], &all, shapes, get);
        });
    }
    each(loops, |i| {
        let k = linear(&i[..s.rank], &b);
        let value = |r: usize| read(&s.reads[r], i, shapes, get);
        // whether this is the step of each bound loop, and whether anything is there
        let here = || {
            s.body.bound().iter().fold((true, true), |(here, there), b| {
                let (step, is) = b.step(value(b.by) as i64, b.window.map_or(0, |w| i[w]));
                (here && i[b.index] == step, there && is)
            })
        };
        match &s.body {
            Body::Map(code) => out[k] = run(code, i, &(0..s.reads.len()).map(value).collect::<Vec<_>>()),
            Body::Fold { combine: c, code } => {
                let x = run(code, i, &(0..s.reads.len()).map(value).collect::<Vec<_>>());
                out[k] = combine(*c, out[k], x);
            }
            Body::Product { .. } => out[k] += value(0) * value(1),
            Body::Lines(_) => unreachable!("done above"),
            Body::Take { .. } => {
                let x = value(0);
                if let (true, there) = here() {
                    out[k] = if there { x } else { s.reads[0].fill.to_f64() };
                }
            }
            Body::Put { combine: c, .. } => {
                let x = value(1);
                if here() == (true, true) {
                    out[k] = c.map_or(x, |c| combine(c, out[k], x));
                }
            }
            Body::Reshape => {
                let Source::Value(v) = s.reads[0].parts[0].from else { panic!("a reshape of a value") };
                let shape = shapes(v);
                let mut l = linear(i, &full(&s.extents)) as i64;
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

/// Line by line: each goes through the function alone, in float32.
fn lines(
    s: &Sentence,
    l: &Lines,
    loops: &Region,
    shapes: &dyn Fn(Slot) -> Vec<usize>,
    get: &dyn Fn(Slot, &[i64]) -> f64,
) -> Vec<f64> {
    let b = loops[..s.rank].to_vec();
    let inside = full(&s.extents[s.rank..]);
    assert_eq!(loops[s.rank..], inside[..], "lines are whole");
    let mut out = vec![0.0; volume(&b) as usize];
    let along: Vec<usize> = l.along.iter().map(|k| s.extents[*k]).collect();
    each(&b, |i| {
        let mut ins = vec![Vec::new(); s.reads.len()];
        each(&inside, |j| {
            let index = [i, j].concat();
            ins.iter_mut().zip(&s.reads).for_each(|(x, r)| x.push(read(r, &index, shapes, get) as f32));
        });
        let ins: Vec<In> = ins.iter().map(|x| In::of(&s.extents[s.rank..], x)).collect();
        let mut y = vec![0f32; along.iter().product()];
        let asked = (0..l.result).map(|_| None).chain([Some(Out::of(&along, &mut y))]);
        l.of.run(&ins, &mut Outs::new(asked));
        let at: Vec<i64> = l.along.iter().map(|k| i[*k]).collect();
        out[linear(i, &b)] = y[linear(&at, &full(&along))].into();
    });
    out
}

/// A program's steps evaluated plainly: every value whole, parts already combined. Values are given and returned whole.
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
            Step::Local { out, sentence: s, .. } => {
                let get = |v: Slot, i: &[i64]| vals[v][linear(i, &full(&p.slots[v].shape))];
                vals[*out] = sentence(s, (&full(&s.extents), 0.0), &shape, &get);
            }
            Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } => {
                let mut now: Vec<Vec<f64>> = carry.iter().map(|s| vals[*s].clone()).collect();
                let mut stacked: Vec<Vec<f64>> =
                    ys.iter().map(|s| vec![0.0; p.slots[*s].shape.elements()]).collect();
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
                    if plain(cond, &ins(cond_fixed))[0][0] == 0.0 {
                        break;
                    }
                    now = plain(body, &ins(body_fixed));
                }
                out.iter().zip(now).for_each(|(s, v)| vals[*s] = v);
            }
            Step::Branch { which, branches, ins, out } => {
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
pub(super) struct Block {
    region: Region,
    data: Vec<f64>,
}

/// What each device has of each value: its own block first, then what it fetched.
type Stores = Vec<Vec<Vec<Block>>>;

/// What was received by all devices together, in elements, and in how many messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Traffic {
    pub(super) elements: i64,
    pub(super) messages: i64,
}

fn lookup(blocks: &[Block], what: &str, i: &[i64]) -> f64 {
    let holds = |b: &&Block| i.iter().zip(&b.region).all(|(x, r)| r.0 <= *x && *x < r.1);
    let b = blocks.iter().find(holds).unwrap_or_else(|| panic!("{what}, index {i:?}, is not here"));
    b.data[linear(i, &b.region)]
}

/// Cuts a whole value into the devices' blocks. A partial value is given whole to the first part.
pub(super) fn scatter(p: &SpmdProgram, slot: Slot, whole: &[f64]) -> Vec<Block> {
    let stored = &p.slots[slot];
    let all = full(&stored.shape);
    (0..p.devices)
        .map(|dev| {
            let region = stored.layout.region(&stored.shape, dev);
            let parts = stored.layout.partial.as_ref();
            let first = parts.is_none_or(|(_, atoms)| atoms.iter().all(|a| a.digit(dev) == 0));
            let mut data = Vec::new();
            each(&region, |i| data.push(if first { whole[linear(i, &all)] } else { 0.0 }));
            Block { region, data }
        })
        .collect()
}

/// Puts the devices' blocks together; replicas must agree.
pub(super) fn gather(p: &SpmdProgram, slot: Slot, blocks: &[Block]) -> Vec<f64> {
    let stored = &p.slots[slot];
    let all = full(&stored.shape);
    let atoms = stored.layout.partial.as_ref().map(|x| x.1.clone()).unwrap_or_default();
    let parts = crate::partition::DimLayout { atoms, block: 1, origin: 0 };
    let mut out: Vec<Vec<Option<f64>>> = vec![vec![None; stored.shape.elements()]; parts.ways()];
    for (dev, b) in blocks.iter().enumerate() {
        assert_eq!(b.region, stored.layout.region(&stored.shape, dev), "a block lies where its layout says");
        each(&b.region, |i| {
            let o = &mut out[parts.rank(dev)][linear(i, &all)];
            let x = b.data[linear(i, &b.region)];
            assert!(o.is_none_or(|y| y == x || (x - y).abs() < 1e-9), "replicas agree");
            *o = Some(x);
        });
    }
    let sum = |k: usize| out.iter().map(|part| part[k].expect("every element is held")).sum();
    (0..stored.shape.elements()).map(sum).collect()
}

/// Small sums by their route: the values of one exchange, each device's own elements, letter by letter.
fn small_sums(p: &SpmdProgram, first: usize, stores: &mut Stores, traffic: &mut Traffic) {
    let together = p.together(first);
    let reduces = || {
        together.iter().map(|k| match &p.steps[*k] {
            Step::Reduce { src, out, combine } => (*src, *out, *combine),
            other => panic!("{other:?} is no sum"),
        })
    };
    // of each device all elements of the exchange, with how they are combined
    let mut has: Vec<Vec<(Combine, f64)>> = Vec::new();
    for store in stores.iter() {
        has.push(reduces().flat_map(|(src, _, c)| store[src][0].data.iter().map(move |x| (c, *x))).collect());
    }
    let Some((src, out, _)) = reduces().next() else { return };
    let parts = p.parts_gone(src, out);
    let mut received = vec![0i64; p.devices];
    for set in (0..p.devices).filter(|dev| parts.rank(*dev) == 0) {
        let rounds = p.rounds(first, set);
        for (n, letters) in rounds.iter().enumerate() {
            let before: Vec<Vec<(Combine, f64)>> = has.clone();
            let mut pairs = BTreeSet::new();
            for l in letters {
                let (from, to) = (parts.place(set, l.from), parts.place(set, l.to));
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
    let (route, _) = route::small(&p.slots[src], &p.slots[out].layout).expect("it is a small sum");
    let most = has.iter().map(Vec::len).max().unwrap_or(0) as i64;
    assert_eq!(received.into_iter().max(), Some(route.busiest(most).max(0)), "the busiest device is told");
    for (dev, all) in has.into_iter().enumerate() {
        let mut all = all.into_iter().map(|x| x.1);
        for (_, out, _) in reduces() {
            let region = p.slots[out].layout.region(&p.slots[out].shape, dev);
            let data = all.by_ref().take(volume(&region) as usize).collect();
            stores[dev][out] = vec![Block { region, data }];
        }
    }
}

/// Runs a program device by device, in step.
pub(super) fn devices(p: &SpmdProgram, args: &[Vec<Block>], traffic: &mut Traffic) -> Vec<Vec<Block>> {
    let mut stores: Stores = vec![vec![Vec::new(); p.slots.len()]; p.devices];
    for (slot, blocks) in p.ins.iter().zip(args) {
        for (dev, b) in blocks.iter().enumerate() {
            stores[dev][*slot] = vec![b.clone()];
        }
    }
    let shape = |s: Slot| p.slots[s].shape.to_vec();
    // what readers touched beyond their own blocks, element by element: the least that can be fetched
    let touched: RefCell<BTreeSet<(Slot, usize, Vec<i64>)>> = RefCell::default();
    let mut fetched = 0;
    let own = |stores: &Stores, s: Slot| stores.iter().map(|d| d[s][0].clone()).collect::<Vec<Block>>();
    for (k, step) in p.steps.iter().enumerate() {
        match step {
            Step::Print { .. } => {}
            Step::Fetch { src, .. } => {
                let mut got: Vec<Vec<Block>> = Vec::new();
                let mut moved = 0;
                for dev in 0..p.devices {
                    let pieces = p.pieces(k, dev);
                    let mut senders: Vec<usize> = pieces.iter().map(|x| x.from).collect();
                    senders.sort_unstable();
                    senders.dedup();
                    assert!(!senders.contains(&dev), "nobody fetches from itself");
                    traffic.messages += senders.len() as i64;
                    let mut list = Vec::new();
                    for piece in pieces {
                        let mut data = Vec::new();
                        each(&piece.region, |i| {
                            data.push(lookup(&stores[piece.from][*src][..1], "a piece", i))
                        });
                        moved += volume(&piece.region);
                        list.push(Block { region: piece.region, data });
                    }
                    got.push(list);
                }
                traffic.elements += moved;
                fetched += moved;
                for (dev, list) in got.into_iter().enumerate() {
                    stores[dev][*src].extend(list);
                }
            }
            Step::Reduce { .. } if p.is_small(k) => small_sums(p, k, &mut stores, traffic),
            Step::Reduce { src, out, combine: c } => {
                let mut made = Vec::new();
                let mut moved = 0;
                for dev in 0..p.devices {
                    let region = p.slots[*out].layout.region(&p.slots[*out].shape, dev);
                    let mut data = vec![start(*c); volume(&region) as usize];
                    let mut senders = Vec::new();
                    for piece in p.pieces(k, dev) {
                        each(&piece.region, |i| {
                            let x = lookup(&stores[piece.from][*src][..1], "an addend", i);
                            let o = &mut data[linear(i, &region)];
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
                    made.push(Block { region, data });
                }
                traffic.elements += moved;
                made.into_iter().enumerate().for_each(|(dev, b)| stores[dev][*out] = vec![b]);
            }
            Step::Local { out, sentence: s, layout } => {
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
                    store[*out] = vec![Block { region: loops[..s.rank].to_vec(), data }];
                }
            }
            Step::Loop { body, start, length, reverse, fixed, carry, xs, out, ys } => {
                let mut now: Vec<Vec<Block>> = carry.iter().map(|s| own(&stores, *s)).collect();
                let slice = |b: &Block, at: usize| {
                    let n = b.data.len() / length;
                    Block { region: b.region[1..].to_vec(), data: b.data[at * n..(at + 1) * n].to_vec() }
                };
                let mut stacked: Vec<Vec<Vec<Block>>> = vec![Vec::new(); ys.len()];
                for k in 0..*length {
                    let at = if *reverse { length - 1 - k } else { k };
                    let step = Block { region: Vec::new(), data: vec![(*start + at as i64) as f64] };
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
                        stores[dev][*s] = vec![Block { region, data }];
                    }
                }
            }
            Step::While { cond, body, cond_fixed, body_fixed, carry, out } => {
                let mut now: Vec<Vec<Block>> = carry.iter().map(|s| own(&stores, *s)).collect();
                loop {
                    let ins = |fixed: &[Slot]| -> Vec<Vec<Block>> {
                        fixed.iter().map(|s| own(&stores, *s)).chain(now.iter().cloned()).collect()
                    };
                    let test = devices(cond, &ins(cond_fixed), traffic);
                    assert!(test[0].iter().all(|b| b.data == test[0][0].data), "devices agree to go on");
                    if test[0][0].data[0] == 0.0 {
                        break;
                    }
                    now = devices(body, &ins(body_fixed), traffic);
                }
                for (s, blocks) in out.iter().zip(now) {
                    blocks.into_iter().enumerate().for_each(|(dev, b)| stores[dev][*s] = vec![b]);
                }
            }
            Step::Branch { which, branches, ins, out } => {
                let k = stores[0][*which][0].data[0];
                assert!(stores.iter().all(|d| d[*which][0].data[0] == k), "devices take one branch");
                let is_bool = p.slots[*which].dtype == crate::DType::Bool;
                let k = if is_bool {
                    usize::from(k == 0.0)
                } else {
                    (k.max(0.0) as usize).min(branches.len() - 1)
                };
                let args: Vec<Vec<Block>> = ins.iter().map(|s| own(&stores, *s)).collect();
                for (s, blocks) in out.iter().zip(devices(&branches[k], &args, traffic)) {
                    blocks.into_iter().enumerate().for_each(|(dev, b)| stores[dev][*s] = vec![b]);
                }
            }
        }
    }
    assert_eq!(fetched, touched.borrow().len() as i64, "nothing is fetched that is not read\n{p}");
    p.outs.iter().map(|s| own(&stores, *s)).collect()
}

/// Runs a program both ways on these whole arguments: they agree. What was moved is returned.
pub(super) fn check(p: &SpmdProgram, wanted: &[Vec<f64>], args: &[Vec<f64>]) -> Traffic {
    let mut traffic = Traffic::default();
    let cut: Vec<Vec<Block>> = p.ins.iter().zip(args).map(|(s, a)| scatter(p, *s, a)).collect();
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
