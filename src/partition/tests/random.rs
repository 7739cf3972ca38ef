//! Random drafts: everything that a sentence can say, on meshes of 1 to 8 devices, dimensions mostly uneven.
//!
//! `DRAFTS=300..5000 cargo test --lib random_programs` tries others.

use super::VERIFY;
use super::oracle::{check, plain};
use crate::DType::{F32, I32};
use crate::partition::draft::{Draft, copy, mapped, reshape};
use crate::partition::lay::plan;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::work::PerByte;
use crate::partition::program::{Slot, Step, Why};
use crate::program::sentence::{
    Affine, Arg, Beyond, Body, Bound, Code, Combine, Fun, Lines, Part, Read, Sentence, Source, Span,
};
use crate::program::{In, Line, Outs};
use crate::sharding::atoms::{Atom, Atoms, ways};
use crate::types::{DType, Scalar, Shape};
use ndarray::Axis;
use std::cell::Cell;
use std::sync::Arc;

/// A small generator of random numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as usize % n.max(1)
    }
    fn flip(&mut self) -> bool {
        self.below(2) == 0
    }
}

/// The digits of a random mesh of this many devices: axes, and pieces of them.
fn digits(r: &mut Random, devices: usize) -> Vec<Atom> {
    let mut left = devices;
    let mut atoms = Vec::new();
    while left > 1 {
        let sizes: Vec<usize> = (2..=left).filter(|n| left.is_multiple_of(*n)).collect();
        let size = sizes[r.below(sizes.len())];
        left /= size;
        atoms.push(Atom { stride: left, size });
    }
    atoms
}

/// A random layout: each digit on some dimension, or nowhere.
fn layout(r: &mut Random, shape: &[usize], devices: usize) -> Layout {
    let mut dims: Vec<Atoms> = vec![Atoms::new(); shape.len()];
    let mut atoms = digits(r, devices);
    while !atoms.is_empty() {
        let a = atoms.remove(r.below(atoms.len()));
        let k = r.below(shape.len() + 1);
        if let Some(d) = dims.get_mut(k) {
            d.push(a);
        }
    }
    Layout { dims: shape.iter().zip(dims).map(|(n, a)| DimLayout::new(*n, a)).collect(), partial: None }
}

fn sizes(r: &mut Random, rank: usize) -> Vec<usize> {
    (0..rank).map(|_| 1 + r.below(9)).collect()
}

/// One part over all loops with these positions.
pub(super) fn part(slot: Slot, extents: &[usize], map: Vec<Affine>) -> Read {
    let span = Span::whole(extents);
    Read { dtype: F32, parts: vec![Part { from: Source::Value(slot), span, map }], fill: Scalar::Float(0.0) }
}

/// A random structural operation on a value.
fn view(r: &mut Random, slot: Slot, shape: &[usize]) -> Sentence {
    let rank = shape.len();
    let d = r.below(rank);
    let n = shape[d] as i64;
    let (mut map, mut to) = (Affine::identity(rank), shape.to_vec());
    match r.below(7) {
        0 => {
            // slice with a step
            let step = 1 + r.below(3) as i64;
            let from = r.below(shape[d]) as i64;
            to[d] = ((n - from + step - 1) / step) as usize;
            map[d] = Affine::of(from, d, step);
            mapped(part(slot, &to, map), &to)
        }
        1 => {
            map[d] = Affine::of(n - 1, d, -1);
            mapped(part(slot, &to, map), &to)
        }
        2 => {
            // pad, sometimes inside too
            let (low, inner) = (r.below(4) as i64, if r.below(3) == 0 { 1 } else { 0 });
            let high = r.below(3) as i64;
            let size = low + (n - 1) * (1 + inner) + 1 + high;
            to[d] = size as usize;
            let mut read = part(slot, &to, map);
            read.parts[0].span[d] = Span { lo: low, hi: low + (n - 1) * (1 + inner) + 1, step: 1 + inner };
            read.fill = Scalar::Float(r.below(2) as f64);
            mapped(read, &to)
        }
        3 => {
            // roll
            let m = r.below(shape[d]) as i64;
            let mut read = part(slot, &to, map);
            let mut second = read.parts[0].clone();
            read.parts[0].span[d] = Span { lo: m, hi: n, step: 1 };
            second.span[d] = Span { lo: 0, hi: m, step: 1 };
            second.map[d] = Affine::of(n - m, d, 1);
            read.parts.push(second);
            read.parts.retain(|p| !p.span[d].is_empty());
            mapped(read, &to)
        }
        4 => {
            // transpose
            let k = r.below(rank);
            to.swap(d, k);
            map.swap(d, k);
            mapped(part(slot, &to, map), &to)
        }
        5 => {
            // broadcast along a new dimension in front
            to.insert(0, 1 + r.below(5));
            let map = (0..rank).map(|d| Affine::of(0, d + 1, 1)).collect();
            mapped(part(slot, &to, map), &to)
        }
        _ => {
            // concatenated with itself
            let mut read = part(slot, &to, map);
            to[d] *= 2;
            let mut second = read.parts[0].clone();
            second.span[d] = Span { lo: n, hi: 2 * n, step: 1 };
            read.parts.push(second);
            mapped(read, &to)
        }
    }
}

pub(super) fn binary(r: &mut Random, a: Slot, b: Slot, shape: &[usize]) -> Sentence {
    let fun = [Fun::Add, Fun::Mul, Fun::Max, Fun::Sub][r.below(4)];
    let reads =
        vec![part(a, shape, Affine::identity(shape.len())), part(b, shape, Affine::identity(shape.len()))];
    let code = Code::one(fun, F32, F32, &[Arg::Read(0), Arg::Read(1)]);
    Sentence { extents: shape.to_vec(), rank: shape.len(), dtype: F32, reads, body: Body::Map(code) }
}

/// x·2 + index of the first loop.
pub(super) fn unary(slot: Slot, shape: &[usize]) -> Sentence {
    let mut code = Code { insts: Vec::new() };
    let twice = code.push(Fun::Mul, F32, F32, &[Arg::Read(0), Arg::Const(Scalar::Float(0.5))]);
    if !shape.is_empty() {
        code.push(Fun::Add, F32, F32, &[twice, Arg::Index(0)]);
    }
    let reads = vec![part(slot, shape, Affine::identity(shape.len()))];
    Sentence { extents: shape.to_vec(), rank: shape.len(), dtype: F32, reads, body: Body::Map(code) }
}

/// A fold over one dimension.
fn fold(r: &mut Random, slot: Slot, shape: &[usize]) -> Sentence {
    let d = r.below(shape.len());
    let mut extents = shape.to_vec();
    let n = extents.remove(d);
    extents.push(n);
    let last = extents.len() - 1;
    let map = (0..shape.len())
        .map(|e| Affine::of(0, if e == d { last } else { e - usize::from(e > d) }, 1))
        .collect();
    let combine = [Combine::Add, Combine::Max][r.below(2)];
    let reads = vec![part(slot, &extents, map)];
    Sentence { extents, rank: last, dtype: F32, reads, body: Body::Fold { combine, code: Code::copy(F32) } }
}

/// Σ over taps of a window along a dimension, sometimes padded with a number or cut.
fn window(r: &mut Random, slot: Slot, shape: &[usize]) -> Option<Sentence> {
    let d = r.below(shape.len());
    let (taps, stride, dilation) = (1 + r.below(3), 1 + r.below(2), 1 + r.below(2));
    let width = dilation * (taps - 1) + 1;
    let around = [r.below(7) as i64 - 2, r.below(7) as i64 - 2];
    let (low, high) = if r.flip() { (around[0], around[1]) } else { (0, 0) };
    let padded = usize::try_from(shape[d] as i64 + low + high).ok()?;
    let n = (padded + stride).checked_sub(width)? / stride;
    if n == 0 {
        return None;
    }
    let mut extents = shape.to_vec();
    extents[d] = n;
    extents.push(taps);
    let mut map = Affine::identity(shape.len());
    map[d] = Affine::of(-low, d, stride as i64);
    map[d].terms.push((shape.len(), dilation as i64));
    let mut reads = vec![part(slot, &extents, map)];
    reads[0].fill = Scalar::Float(r.below(2) as f64);
    let body = Body::Fold { combine: Combine::Add, code: Code::copy(F32) };
    Some(Sentence { extents, rank: shape.len(), dtype: F32, reads, body })
}

/// The greatest number so far, and the line from its end.
#[derive(Debug)]
struct Toy;

impl Line for Toy {
    fn key(&self) -> String {
        "toy".into()
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        Ok(vec![operands[0].clone(); 2])
    }
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
        let x = ins[0].view::<f32>();
        let along = Axis(x.ndim() - 1);
        let (mut most, mut turned) = (outs.take(0), outs.take(1));
        if let Some(most) = &mut most {
            for (x, mut y) in x.lanes(along).into_iter().zip(most.view::<f32>().lanes_mut(along)) {
                let mut so_far = f32::NEG_INFINITY;
                x.iter().zip(&mut y).for_each(|(x, y)| {
                    so_far = so_far.max(*x);
                    *y = so_far;
                });
            }
        }
        if let Some(turned) = &mut turned {
            for (x, mut y) in x.lanes(along).into_iter().zip(turned.view::<f32>().lanes_mut(along)) {
                x.iter().rev().zip(&mut y).for_each(|(x, y)| *y = *x);
            }
        }
    }
    fn cost(&self, elements: usize) -> f64 {
        elements as f64
    }
}

/// A result of the toy along a dimension.
fn lines(r: &mut Random, slot: Slot, shape: &[usize]) -> Sentence {
    let d = r.below(shape.len());
    let rank = shape.len();
    let mut extents = shape.to_vec();
    extents.push(shape[d]);
    let map = (0..rank).map(|e| Affine::of(0, if e == d { rank } else { e }, 1)).collect();
    let reads = vec![part(slot, &extents, map)];
    let along = std::iter::once(d).collect();
    let body = Body::Lines(Lines { of: Arc::new(Toy), result: r.below(2), along });
    Sentence { extents, rank, dtype: F32, reads, body }
}

/// The product of the first by the last dimension.
pub(super) fn product(a: Slot, x: &[usize], b: Slot, y: &[usize]) -> Sentence {
    // x[m.., k], y[k, n..]
    let (m, n) = (x.len() - 1, y.len() - 1);
    let mut extents = x[..m].to_vec();
    extents.extend(&y[1..]);
    extents.push(y[0]);
    let k = extents.len() - 1;
    let left = (0..m).map(|d| Affine::of(0, d, 1)).chain([Affine::of(0, k, 1)]).collect();
    let right = std::iter::once(Affine::of(0, k, 1)).chain((0..n).map(|d| Affine::of(0, m + d, 1))).collect();
    let reads = vec![part(a, &extents, left), part(b, &extents, right)];
    Sentence { rank: k, dtype: F32, reads, body: Body::Product { accumulate: F32 }, extents }
}

/// Numbers that say where: at these loops of a sentence, some of them beyond what is there.
fn number(r: &mut Random, d: &mut Draft, devices: usize, extents: &[usize], loops: &[usize]) -> Read {
    let shape: Vec<usize> = loops.iter().map(|l| extents[*l]).collect();
    let l = layout(r, &shape, devices);
    let slot = d.slot(I32, Shape::from(&shape[..]), l);
    d.ins.push(slot);
    let map = loops.iter().map(|l| Affine::of(0, *l, 1)).collect();
    Read { dtype: I32, fill: Scalar::Int(0), ..part(slot, extents, map) }
}

/// Some dimensions taken at numbers: windows of one, elements of the others.
fn take(r: &mut Random, d: &mut Draft, devices: usize, slot: Slot, shape: &[usize]) -> Sentence {
    let queries = r.below(3);
    let bound: Vec<usize> = (0..shape.len()).filter(|_| r.flip()).collect();
    let mut extents: Vec<usize> = (0..queries).map(|_| 1 + r.below(4)).collect();
    let (mut map, mut at) = (vec![Affine::constant(0); shape.len()], Vec::new());
    for (dim, n) in shape.iter().enumerate() {
        if !bound.contains(&dim) {
            map[dim] = Affine::of(0, extents.len(), 1);
            extents.push(*n);
        }
    }
    let windows: Vec<Option<usize>> = bound
        .iter()
        .map(|dim| {
            let window = r.flip().then_some(extents.len());
            extents.extend(window.map(|_| 1 + r.below(shape[*dim])));
            window
        })
        .collect();
    let rank = extents.len();
    for (dim, window) in bound.iter().zip(windows) {
        let index = extents.len();
        map[*dim] = Affine::of(0, index, 1);
        extents.push(shape[*dim]);
        let most = (shape[*dim] - window.map_or(1, |w| extents[w])) as i64;
        let beyond = [Beyond::Clip, Beyond::Nothing][r.below(2)];
        at.push(Bound { index, by: 1 + at.len(), most, beyond, window });
    }
    let mut read = part(slot, &extents, map);
    read.fill = Scalar::Float(r.below(3) as f64);
    let mut reads = vec![read];
    for _ in &at {
        let loops: Vec<usize> = (0..queries).filter(|_| r.below(4) > 0).collect();
        reads.push(number(r, d, devices, &extents, &loops));
    }
    Sentence { extents, rank, dtype: F32, reads, body: Body::Take { at } }
}

/// A value, or a number, with updates put in it at numbers.
fn put(r: &mut Random, d: &mut Draft, devices: usize, slot: Slot, shape: &[usize]) -> Sentence {
    let rank = shape.len();
    let queries = r.below(3);
    let mut extents = shape.to_vec();
    extents.extend((0..queries).map(|_| 1 + r.below(4)));
    // what is put runs over the queries, the windows, and what no number binds
    let mut over: Vec<usize> = (rank..rank + queries).collect();
    let mut at = Vec::new();
    for (index, n) in shape.iter().enumerate() {
        if r.flip() {
            over.push(index);
            continue;
        }
        let window = r.flip().then_some(extents.len());
        extents.extend(window.map(|_| 1 + r.below(*n)));
        over.extend(window);
        let most = (n - window.map_or(1, |w| extents[w])) as i64;
        let beyond = [Beyond::Clip, Beyond::Nothing][r.below(2)];
        at.push(Bound { index, by: 2 + at.len(), most, beyond, window });
    }
    let sizes: Vec<usize> = over.iter().map(|l| extents[*l]).collect();
    let l = layout(r, &sizes, devices);
    let new = d.slot(F32, Shape::from(&sizes[..]), l);
    d.ins.push(new);
    let mut was = part(slot, &extents, Affine::identity(rank));
    if r.below(3) == 0 {
        was = Read { parts: Vec::new(), fill: Scalar::Float(r.below(2) as f64), ..was };
    }
    let mut reads = vec![was, part(new, &extents, over.iter().map(|l| Affine::of(0, *l, 1)).collect())];
    for _ in &at {
        let loops: Vec<usize> = (rank..rank + queries).filter(|_| r.below(4) > 0).collect();
        reads.push(number(r, d, devices, &extents, &loops));
    }
    let combine = [None, Some(Combine::Add), Some(Combine::Max)][r.below(3)];
    Sentence { extents, rank, dtype: F32, reads, body: Body::Put { at, combine } }
}

/// Of copies of a value, one for each of some digits' devices, one: all are promised to be the same.
fn same(
    r: &mut Random,
    d: &mut Draft,
    devices: usize,
    (slot, why): (Slot, &Why),
    shape: &[usize],
) -> Sentence {
    let rank = shape.len();
    let digits: Atoms = digits(r, devices).into_iter().filter(|_| r.flip()).collect();
    let n = ways(&digits);
    let copies = [&[n], shape].concat();
    let map = (0..rank).map(|d| Affine::of(0, d + 1, 1)).collect();
    // each device has its own, which no reader reads through
    let own = |l: &DimLayout| l.atoms.iter().all(|a| digits.iter().all(|b| !a.clashes(*b)));
    let held = d.slots[slot].layout.dims.iter().zip(shape);
    let dims = held.map(|(l, n)| if own(l) { l.clone() } else { DimLayout::new(*n, []) });
    let dims = std::iter::once(DimLayout::new(n, digits.clone())).chain(dims.collect::<Vec<_>>()).collect();
    let all = d.local(mapped(part(slot, &copies, map), &copies), Layout { dims, partial: None }, why);
    d.items.last_mut().expect("just pushed").pinned = true;
    let extents = [shape, &[n]].concat();
    let map = std::iter::once(rank).chain(0..rank).map(|l| Affine::of(0, l, 1)).collect();
    let reads = vec![part(all, &extents, map)];
    let body = Body::Fold { combine: Combine::Same, code: Code::copy(F32) };
    Sentence { extents, rank, dtype: F32, reads, body }
}

/// A random draft of some steps, for a machine on which a byte costs nothing, much, or something.
fn program(r: &mut Random, devices: usize) -> Draft {
    let work = [0.0, 1.0, 32.0, 32.0, 500.0, 1e9][r.below(6)];
    let mut d = Draft::new(devices, None, PerByte::new(work));
    let why = Why { op: "test".into(), ..Why::default() };
    for _ in 0..1 + r.below(2) {
        let rank = 1 + r.below(2);
        let shape = sizes(r, rank);
        let l = layout(r, &shape, devices);
        let s = d.slot(F32, Shape::from(shape), l);
        d.ins.push(s);
    }
    let steps = 2 + r.below(6);
    while d.items.len() < steps {
        let a = r.below(d.slots.len());
        let shape = d.slots[a].shape.to_vec();
        let b = if r.below(5) == 0 { a } else { r.below(d.slots.len()) };
        // a partial value is read by the step after it alone, as nobody promises the others to be linear
        let parted = [a, b].iter().any(|s| d.slots[*s].layout.partial.is_some());
        let numbers = [a, b].iter().any(|s| d.slots[*s].dtype != F32);
        if parted || numbers || shape.iter().product::<usize>() > 400 || shape.is_empty() {
            continue;
        }
        let other = d.slots[b].shape.to_vec();
        let s = match r.below(13) {
            0..3 => view(r, a, &shape),
            3 if other == shape => binary(r, a, b, &shape),
            3 | 4 => unary(a, &shape),
            5 => fold(r, a, &shape),
            6 => match window(r, a, &shape) {
                Some(s) => s,
                None => continue,
            },
            7 if !other.is_empty() && shape.last() == other.first() => product(a, &shape, b, &other),
            7 => copy(a, F32, &shape),
            8 => lines(r, a, &shape),
            9 => take(r, &mut d, devices, a, &shape),
            10 => put(r, &mut d, devices, a, &shape),
            11 => same(r, &mut d, devices, (a, &why), &shape),
            _ => {
                let n: usize = shape.iter().product();
                let f: Vec<usize> = (1..=n).filter(|k| n.is_multiple_of(*k)).collect();
                let k = f[r.below(f.len())];
                reshape(a, F32, &shape, &[k, n / k])
            }
        };
        // mostly as the operand is laid out, where it has the same shape
        let to = s.extents[..s.rank].to_vec();
        let mut l = layout(r, &to, devices);
        if r.flip() && to.len() == shape.len() {
            let own = &d.slots[a].layout.dims;
            l.dims = own.iter().zip(&to).map(|(l, n)| DimLayout::new(*n, l.atoms.iter().copied())).collect();
        }
        if s.extents.len() > s.rank
            && r.below(4) == 0
            && !matches!(
                s.body,
                Body::Fold { combine: Combine::Max | Combine::Same, .. }
                    | Body::Put { combine: Some(Combine::Max), .. }
                    | Body::Lines(_)
            )
        {
            // a result that stays partial, reduced by the next step
            let free: Atoms = digits(r, devices)
                .into_iter()
                .filter(|a| l.dims.iter().all(|x| x.atoms.iter().all(|b| !a.clashes(*b))))
                .take(1)
                .collect();
            if !free.is_empty() {
                let parts = Layout { partial: Some((Combine::Add, free)), ..l.clone() };
                let out = d.local(s, parts, &why);
                d.local(copy(out, F32, &to), l, &why);
                d.last().expect("just pushed").pinned = r.flip();
                continue;
            }
        }
        d.local(s, l, &why);
        if r.below(6) == 0 {
            d.items.last_mut().expect("just pushed").pinned = true;
        }
    }
    let made: Vec<Slot> =
        d.items.iter().map(|i| if let Step::Local { out, .. } = i.step { out } else { 0 }).collect();
    d.outs.push(*made.last().expect("steps"));
    for s in made {
        if r.below(4) == 0 && !d.outs.contains(&s) {
            d.outs.push(s);
        }
    }
    d
}

fn cloned(d: &Draft) -> Draft {
    Draft {
        devices: d.devices,
        mesh: None,
        slots: d.slots.clone(),
        items: d.items.clone(),
        ins: d.ins.clone(),
        outs: d.outs.clone(),
        ..Draft::default()
    }
}

#[test]
fn random_programs_agree_with_the_plain_evaluation() {
    VERIFY.set(true);
    let asked = std::env::var("DRAFTS").ok();
    let asked = asked.as_deref().and_then(|s| s.split_once("..")).map(|(a, b)| (a.parse(), b.parse()));
    let (first, end) = match asked {
        Some((Ok(first), Ok(end))) => (first, end),
        _ => (0, 300u64),
    };
    let same = Cell::new(0);
    for seed in first..end {
        let mut r = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let devices = [1, 2, 3, 4, 6, 8][r.below(6)];
        let d = program(&mut r, devices);
        let args: Vec<Vec<f64>> = d
            .ins
            .iter()
            .map(|s| (0..d.slots[*s].shape.elements()).map(|_| r.below(17) as f64 - 8.0).collect())
            .collect();
        let wanted = plain(&cloned(&d).finish().0, &args);
        let text = format!("{d:#?}");
        // (a function of lines is any code: drafts are not known to be fit for this)
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            VERIFY.set(true);
            let plan = plan::plan(d).expect("a plan").localised;
            let p = plan.program;
            let (traffic, told) = (check(&p, &wanted, &args), plan.collectives);
            let sent = p.steps.iter().filter(|s| matches!(s, Step::Reduce { combine: Combine::Same, .. }));
            same.set(same.get() + sent.count());
            if told.iter().all(|c| c.counted) {
                let messages: u64 = told.iter().map(|c| c.messages).sum();
                assert_eq!(traffic.messages as u64, messages, "{told}\n{p}");
            }
            crate::engine::lockstep::tests::agrees(&p, &args, &wanted);
        }));
        assert!(run.is_ok(), "seed {seed}, {devices} devices\n{text}");
    }
    assert!(same.get() > (end - first) as usize / 100, "{} values of the same parts", same.get());
}
