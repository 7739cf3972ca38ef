//! Tests random drafts with all kinds of loop nests, on 1 to 8 devices.
//!
//! Dimensions are mostly uneven.
//!
//! `DRAFTS=300..5000 cargo test --lib random_programs` runs other seeds.

use super::{VERIFY, oracle::check, plain::plain};
use crate::DType::{F32, I32};
use crate::core::{DType, Precision, Scalar, Shape, SubAxes, SubAxis, sharding::sub_axes::num_shards};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, DynamicIndex, LoopNest, OutOfBounds, Reducer, RowInput,
    RowKernel, RowKernelCall, RowOutputs, ScalarArg, ScalarCode, ScalarOp, Source, StridedRange,
};
use crate::partition::draft::{Draft, copy_nest, map_nest, reshape_nest};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, Step, StepOrigin};
use crate::partition::{assign::pipeline, cost::compute::TransferPrices};
use ndarray::Axis;
use std::cell::Cell;
use std::sync::Arc;

/// A small random number generator (xorshift).
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

/// Returns the sub-axes of a random mesh of this many devices: axes, and parts of them.
fn digits(r: &mut Random, devices: usize) -> Vec<SubAxis> {
    let mut left = devices;
    let mut sub_axes = Vec::new();
    while left > 1 {
        let sizes: Vec<usize> = (2..=left).filter(|n| left.is_multiple_of(*n)).collect();
        let size = sizes[r.below(sizes.len())];
        left /= size;
        sub_axes.push(SubAxis { stride: left, size });
    }
    sub_axes
}

/// Returns a random layout: each sub-axis splits one dimension, or none.
fn layout(r: &mut Random, shape: &[usize], devices: usize) -> Layout {
    let mut dims: Vec<SubAxes> = vec![SubAxes::new(); shape.len()];
    let mut sub_axes = digits(r, devices);
    while !sub_axes.is_empty() {
        let a = sub_axes.remove(r.below(sub_axes.len()));
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

/// Returns an access of one piece that covers all loops, with this index map.
pub(super) fn part(slot: Slot, extents: &[usize], map: Vec<AffineExpr>) -> Access {
    let span = StridedRange::full_box(extents);
    Access {
        dtype: F32,
        pieces: vec![AccessPiece { source: Source::Value(slot), ranges: span, map }],
        fill: Scalar::Float(0.0),
    }
}

/// Returns a random structural operation on a value.
fn view(r: &mut Random, slot: Slot, shape: &[usize]) -> LoopNest {
    let rank = shape.len();
    let d = r.below(rank);
    let n = shape[d] as i64;
    let (mut map, mut to) = (AffineExpr::identity(rank), shape.to_vec());
    match r.below(7) {
        0 => {
            // slice with a stride
            let step = 1 + r.below(3) as i64;
            let from = r.below(shape[d]) as i64;
            to[d] = ((n - from + step - 1) / step) as usize;
            map[d] = AffineExpr::linear(from, d, step);
            map_nest(part(slot, &to, map), &to)
        }
        1 => {
            map[d] = AffineExpr::linear(n - 1, d, -1);
            map_nest(part(slot, &to, map), &to)
        }
        2 => {
            // pad, sometimes between elements too
            let (low, inner) = (r.below(4) as i64, if r.below(3) == 0 { 1 } else { 0 });
            let high = r.below(3) as i64;
            let size = low + (n - 1) * (1 + inner) + 1 + high;
            to[d] = size as usize;
            let mut read = part(slot, &to, map);
            read.pieces[0].ranges[d] =
                StridedRange { lo: low, hi: low + (n - 1) * (1 + inner) + 1, step: 1 + inner };
            read.fill = Scalar::Float(r.below(2) as f64);
            map_nest(read, &to)
        }
        3 => {
            // roll
            let m = r.below(shape[d]) as i64;
            let mut read = part(slot, &to, map);
            let mut second = read.pieces[0].clone();
            read.pieces[0].ranges[d] = StridedRange { lo: m, hi: n, step: 1 };
            second.ranges[d] = StridedRange { lo: 0, hi: m, step: 1 };
            second.map[d] = AffineExpr::linear(n - m, d, 1);
            read.pieces.push(second);
            read.pieces.retain(|p| !p.ranges[d].is_empty());
            map_nest(read, &to)
        }
        4 => {
            // transpose
            let k = r.below(rank);
            to.swap(d, k);
            map.swap(d, k);
            map_nest(part(slot, &to, map), &to)
        }
        5 => {
            // broadcast along a new leading dimension
            to.insert(0, 1 + r.below(5));
            let map = (0..rank).map(|d| AffineExpr::linear(0, d + 1, 1)).collect();
            map_nest(part(slot, &to, map), &to)
        }
        _ => {
            // concatenate with itself
            let mut read = part(slot, &to, map);
            to[d] *= 2;
            let mut second = read.pieces[0].clone();
            second.ranges[d] = StridedRange { lo: n, hi: 2 * n, step: 1 };
            read.pieces.push(second);
            map_nest(read, &to)
        }
    }
}

pub(super) fn binary(r: &mut Random, a: Slot, b: Slot, shape: &[usize]) -> LoopNest {
    let fun = [ScalarOp::Add, ScalarOp::Mul, ScalarOp::Max, ScalarOp::Sub][r.below(4)];
    let reads = vec![
        part(a, shape, AffineExpr::identity(shape.len())),
        part(b, shape, AffineExpr::identity(shape.len())),
    ];
    let code = ScalarCode::single(fun, F32, F32, &[ScalarArg::Access(0), ScalarArg::Access(1)]);
    LoopNest {
        extents: shape.to_vec(),
        rank: shape.len(),
        dtype: F32,
        accesses: reads,
        compute: Compute::Map(code),
    }
}

/// Returns the loop nest of x·0.5 + index of the first loop.
pub(super) fn unary(slot: Slot, shape: &[usize]) -> LoopNest {
    let mut code = ScalarCode { insts: Vec::new() };
    let twice =
        code.push(ScalarOp::Mul, F32, F32, &[ScalarArg::Access(0), ScalarArg::Const(Scalar::Float(0.5))]);
    if !shape.is_empty() {
        code.push(ScalarOp::Add, F32, F32, &[twice, ScalarArg::Index(0)]);
    }
    let reads = vec![part(slot, shape, AffineExpr::identity(shape.len()))];
    LoopNest {
        extents: shape.to_vec(),
        rank: shape.len(),
        dtype: F32,
        accesses: reads,
        compute: Compute::Map(code),
    }
}

/// Returns a reduction over a random dimension.
fn fold(r: &mut Random, slot: Slot, shape: &[usize]) -> LoopNest {
    let d = r.below(shape.len());
    let mut extents = shape.to_vec();
    let n = extents.remove(d);
    extents.push(n);
    let last = extents.len() - 1;
    let map = (0..shape.len())
        .map(|e| AffineExpr::linear(0, if e == d { last } else { e - usize::from(e > d) }, 1))
        .collect();
    let combine = [Reducer::Add, Reducer::Max][r.below(2)];
    let reads = vec![part(slot, &extents, map)];
    LoopNest {
        extents,
        rank: last,
        dtype: F32,
        accesses: reads,
        compute: Compute::Reduce { reducer: combine, code: ScalarCode::copy(F32) },
    }
}

/// Returns a sum over the taps of a window along a random dimension.
/// The operand is sometimes padded with a constant, or cropped. `None` if no window fits.
fn window(r: &mut Random, slot: Slot, shape: &[usize]) -> Option<LoopNest> {
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
    let mut map = AffineExpr::identity(shape.len());
    map[d] = AffineExpr::linear(-low, d, stride as i64);
    map[d].terms.push((shape.len(), dilation as i64));
    let mut reads = vec![part(slot, &extents, map)];
    reads[0].fill = Scalar::Float(r.below(2) as f64);
    let body = Compute::Reduce { reducer: Reducer::Add, code: ScalarCode::copy(F32) };
    Some(LoopNest { extents, rank: shape.len(), dtype: F32, accesses: reads, compute: body })
}

/// A row kernel with two results: the running maximum, and the reversed row.
#[derive(Debug)]
struct ToyRowKernel;

impl RowKernel for ToyRowKernel {
    fn key(&self) -> String {
        "toy".into()
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        Ok(vec![operands[0].clone(); 2])
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
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

/// Returns one result of the row kernel along a random dimension.
fn lines(r: &mut Random, slot: Slot, shape: &[usize]) -> LoopNest {
    let d = r.below(shape.len());
    let rank = shape.len();
    let mut extents = shape.to_vec();
    extents.push(shape[d]);
    let map = (0..rank).map(|e| AffineExpr::linear(0, if e == d { rank } else { e }, 1)).collect();
    let reads = vec![part(slot, &extents, map)];
    let along = std::iter::once(d).collect();
    let body = Compute::RowKernel(RowKernelCall {
        kernel: Arc::new(ToyRowKernel),
        result_index: r.below(2),
        row_loops: along,
    });
    LoopNest { extents, rank, dtype: F32, accesses: reads, compute: body }
}

/// Returns the contraction of the last dimension of one operand with the first of the other.
pub(super) fn product(a: Slot, x: &[usize], b: Slot, y: &[usize]) -> LoopNest {
    // x[m.., k], y[k, n..]
    let (m, n) = (x.len() - 1, y.len() - 1);
    let mut extents = x[..m].to_vec();
    extents.extend(&y[1..]);
    extents.push(y[0]);
    let k = extents.len() - 1;
    let left = (0..m).map(|d| AffineExpr::linear(0, d, 1)).chain([AffineExpr::linear(0, k, 1)]).collect();
    let right = std::iter::once(AffineExpr::linear(0, k, 1))
        .chain((0..n).map(|d| AffineExpr::linear(0, m + d, 1)))
        .collect();
    let reads = vec![part(a, &extents, left), part(b, &extents, right)];
    LoopNest {
        rank: k,
        dtype: F32,
        accesses: reads,
        compute: Compute::Contract { accum_dtype: F32, precision: Precision::Highest },
        extents,
    }
}

/// Adds random indices over these loops of a nest, and returns their access.
/// Some of the indices are out of bounds.
fn number(r: &mut Random, d: &mut Draft, devices: usize, extents: &[usize], loops: &[usize]) -> Access {
    let shape: Vec<usize> = loops.iter().map(|l| extents[*l]).collect();
    let l = layout(r, &shape, devices);
    let slot = d.add_slot(I32, Shape::from(&shape[..]), l);
    d.ins.push(slot);
    let map = loops.iter().map(|l| AffineExpr::linear(0, *l, 1)).collect();
    Access { dtype: I32, fill: Scalar::Int(0), ..part(slot, extents, map) }
}

/// Returns a gather along some dimensions: windows of some, single elements of the others.
fn take(r: &mut Random, d: &mut Draft, devices: usize, slot: Slot, shape: &[usize]) -> LoopNest {
    let queries = r.below(3);
    let bound: Vec<usize> = (0..shape.len()).filter(|_| r.flip()).collect();
    let mut extents: Vec<usize> = (0..queries).map(|_| 1 + r.below(4)).collect();
    let (mut map, mut at) = (vec![AffineExpr::constant(0); shape.len()], Vec::new());
    for (dim, n) in shape.iter().enumerate() {
        if !bound.contains(&dim) {
            map[dim] = AffineExpr::linear(0, extents.len(), 1);
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
        map[*dim] = AffineExpr::linear(0, index, 1);
        extents.push(shape[*dim]);
        let most = (shape[*dim] - window.map_or(1, |w| extents[w])) as i64;
        let beyond = [OutOfBounds::Clip, OutOfBounds::Drop][r.below(2)];
        at.push(DynamicIndex {
            loop_id: index,
            operand: 1 + at.len(),
            max_start: most,
            mode: beyond,
            window,
        });
    }
    let mut read = part(slot, &extents, map);
    read.fill = Scalar::Float(r.below(3) as f64);
    let mut reads = vec![read];
    for _ in &at {
        let loops: Vec<usize> = (0..queries).filter(|_| r.below(4) > 0).collect();
        reads.push(number(r, d, devices, &extents, &loops));
    }
    LoopNest { extents, rank, dtype: F32, accesses: reads, compute: Compute::Gather { indices: at } }
}

/// Returns a scatter of random updates into a value or a constant.
fn put(r: &mut Random, d: &mut Draft, devices: usize, slot: Slot, shape: &[usize]) -> LoopNest {
    let rank = shape.len();
    let queries = r.below(3);
    let mut extents = shape.to_vec();
    extents.extend((0..queries).map(|_| 1 + r.below(4)));
    // updates run over queries, windows, and the dimensions without indices
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
        let beyond = [OutOfBounds::Clip, OutOfBounds::Drop][r.below(2)];
        at.push(DynamicIndex {
            loop_id: index,
            operand: 2 + at.len(),
            max_start: most,
            mode: beyond,
            window,
        });
    }
    let sizes: Vec<usize> = over.iter().map(|l| extents[*l]).collect();
    let l = layout(r, &sizes, devices);
    let new = d.add_slot(F32, Shape::from(&sizes[..]), l);
    d.ins.push(new);
    let mut was = part(slot, &extents, AffineExpr::identity(rank));
    if r.below(3) == 0 {
        was = Access { pieces: Vec::new(), fill: Scalar::Float(r.below(2) as f64), ..was };
    }
    let mut reads =
        vec![was, part(new, &extents, over.iter().map(|l| AffineExpr::linear(0, *l, 1)).collect())];
    for _ in &at {
        let loops: Vec<usize> = (rank..rank + queries).filter(|_| r.below(4) > 0).collect();
        reads.push(number(r, d, devices, &extents, &loops));
    }
    let combine = [None, Some(Reducer::Add), Some(Reducer::Max)][r.below(3)];
    LoopNest {
        extents,
        rank,
        dtype: F32,
        accesses: reads,
        compute: Compute::Scatter { indices: at, reducer: combine },
    }
}

/// Returns a reduction of copies of a value that are declared equal.
/// There is one copy for each rank over some random sub-axes.
fn same(
    r: &mut Random,
    d: &mut Draft,
    devices: usize,
    (slot, why): (Slot, &StepOrigin),
    shape: &[usize],
) -> LoopNest {
    let rank = shape.len();
    let sub_axes: SubAxes = digits(r, devices).into_iter().filter(|_| r.flip()).collect();
    let n = num_shards(&sub_axes);
    let copies = [&[n], shape].concat();
    let map = (0..rank).map(|d| AffineExpr::linear(0, d + 1, 1)).collect();
    // each device stores its own copy, which no consumer reads through
    let own = |l: &DimLayout| l.sub_axes.iter().all(|a| sub_axes.iter().all(|b| !a.overlaps(*b)));
    let held = d.slots[slot].layout.dims.iter().zip(shape);
    let dims = held.map(|(l, n)| if own(l) { l.clone() } else { DimLayout::new(*n, []) });
    let dims = std::iter::once(DimLayout::new(n, sub_axes.clone())).chain(dims.collect::<Vec<_>>()).collect();
    let all = d.add_local(map_nest(part(slot, &copies, map), &copies), Layout { dims, partial: None }, why);
    d.steps.last_mut().expect("just pushed").info.constrained = true;
    let extents = [shape, &[n]].concat();
    let map = std::iter::once(rank).chain(0..rank).map(|l| AffineExpr::linear(0, l, 1)).collect();
    let reads = vec![part(all, &extents, map)];
    let body = Compute::Reduce { reducer: Reducer::AssumeEqual, code: ScalarCode::copy(F32) };
    LoopNest { extents, rank, dtype: F32, accesses: reads, compute: body }
}

/// Returns a random step that reads `a`, and perhaps `b`; `None` if the drawn one does not fit.
fn step(
    r: &mut Random,
    d: &mut Draft,
    devices: usize,
    (a, shape): (Slot, &[usize]),
    (b, other): (Slot, &[usize]),
    why: &StepOrigin,
) -> Option<LoopNest> {
    Some(match r.below(13) {
        0..3 => view(r, a, shape),
        3 if other == shape => binary(r, a, b, shape),
        3 | 4 => unary(a, shape),
        5 => fold(r, a, shape),
        6 => window(r, a, shape)?,
        7 if !other.is_empty() && shape.last() == other.first() => product(a, shape, b, other),
        7 => copy_nest(a, F32, shape),
        8 => lines(r, a, shape),
        9 => take(r, d, devices, a, shape),
        10 => put(r, d, devices, a, shape),
        11 => same(r, d, devices, (a, why), shape),
        _ => {
            let n: usize = shape.iter().product();
            let f: Vec<usize> = (1..=n).filter(|k| n.is_multiple_of(*k)).collect();
            let k = f[r.below(f.len())];
            reshape_nest(a, F32, shape, &[k, n / k])
        }
    })
}

/// Returns a random draft of some steps, for a machine with a random cost of a byte.
fn program(r: &mut Random, devices: usize) -> Draft {
    let work = [0.0, 1.0, 32.0, 32.0, 500.0, 1e9][r.below(6)];
    let mut d = Draft::new(devices, None, TransferPrices::new(work));
    let why = StepOrigin { op: "test".into(), ..StepOrigin::default() };
    for _ in 0..1 + r.below(2) {
        let rank = 1 + r.below(2);
        let shape = sizes(r, rank);
        let l = layout(r, &shape, devices);
        let s = d.add_slot(F32, Shape::from(shape), l);
        d.ins.push(s);
    }
    let steps = 2 + r.below(6);
    while d.steps.len() < steps {
        let a = r.below(d.slots.len());
        let shape = d.slots[a].shape.to_vec();
        let b = if r.below(5) == 0 { a } else { r.below(d.slots.len()) };
        // a partial value is read only by the step after it, because the other steps may not be
        // linear
        let parted = [a, b].iter().any(|s| d.slots[*s].layout.partial.is_some());
        let numbers = [a, b].iter().any(|s| d.slots[*s].dtype != F32);
        if parted || numbers || shape.iter().product::<usize>() > 400 || shape.is_empty() {
            continue;
        }
        let other = d.slots[b].shape.to_vec();
        let Some(s) = step(r, &mut d, devices, (a, &shape), (b, &other), &why) else { continue };
        // often use the operand's layout, if the ranks are equal
        let to = s.extents[..s.rank].to_vec();
        let mut l = layout(r, &to, devices);
        if r.flip() && to.len() == shape.len() {
            let own = &d.slots[a].layout.dims;
            l.dims =
                own.iter().zip(&to).map(|(l, n)| DimLayout::new(*n, l.sub_axes.iter().copied())).collect();
        }
        if s.extents.len() > s.rank
            && r.below(4) == 0
            && !matches!(
                s.compute,
                Compute::Reduce { reducer: Reducer::Max | Reducer::AssumeEqual, .. }
                    | Compute::Scatter { reducer: Some(Reducer::Max), .. }
                    | Compute::RowKernel(_)
            )
        {
            // a result that stays partial and is reduced by the next step
            let free: SubAxes = digits(r, devices)
                .into_iter()
                .filter(|a| l.dims.iter().all(|x| x.sub_axes.iter().all(|b| !a.overlaps(*b))))
                .take(1)
                .collect();
            if !free.is_empty() {
                let partials = Layout { partial: Some((Reducer::Add, free)), ..l.clone() };
                let out = d.add_local(s, partials, &why);
                d.add_local(copy_nest(out, F32, &to), l, &why);
                d.last_step().expect("just pushed").info.constrained = r.flip();
                continue;
            }
        }
        d.add_local(s, l, &why);
        if r.below(6) == 0 {
            d.steps.last_mut().expect("just pushed").info.constrained = true;
        }
    }
    let made: Vec<Slot> =
        d.steps.iter().map(|i| if let Step::Local { out, .. } = i.step { out } else { 0 }).collect();
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
        steps: d.steps.clone(),
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
        _ => (0, 40u64),
    };
    let same = Cell::new(0);
    for seed in first..end {
        let mut r = Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        let devices = [1, 2, 3, 4, 6, 8][r.below(6)];
        let d = program(&mut r, devices);
        let args: Vec<Vec<f64>> = d
            .ins
            .iter()
            .map(|s| (0..d.slots[*s].shape.num_elements()).map(|_| r.below(17) as f64 - 8.0).collect())
            .collect();
        let expected = plain(&cloned(&d).finish().0, &args);
        let text = format!("{d:#?}");
        // a row kernel may run any code, so drafts are not known to be unwind-safe
        let run = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            VERIFY.set(true);
            let plan = pipeline::run_pipeline(d).expect("a plan").partitioned;
            let p = plan.program;
            let (traffic, collectives) = (check(&p, &expected, &args), plan.collectives);
            let sent =
                p.steps.iter().filter(|s| matches!(s, Step::Reduce { combine: Reducer::AssumeEqual, .. }));
            same.set(same.get() + sent.count());
            if collectives.iter().all(|c| c.messages_exact) {
                let messages: u64 = collectives.iter().map(|c| c.messages).sum();
                assert_eq!(traffic.messages as u64, messages, "{collectives}\n{p}");
            }
            crate::exec::engine::lockstep::tests::assert_results(&p, &args, &expected);
        }));
        assert!(run.is_ok(), "seed {seed}, {devices} devices\n{text}");
    }
    assert!(same.get() > (end - first) as usize / 100, "{} values of the same parts", same.get());
}
