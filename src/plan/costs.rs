//! What the kernels of a per-device program do: operations, and bytes of memory, on the busiest device.

use crate::elements::DType;
use crate::partition::{DimLayout, Slot, SpmdProgram};
use crate::program::sentence::{Body, Code, Fun, Part, Sentence, Source};
use crate::sorted;
use std::collections::{BTreeMap, HashSet};

/// What a kernel does on one device.
#[derive(Clone, Debug, Default)]
pub(super) struct Work {
    /// Operations of products, by the element type of their operands.
    pub(super) products: Vec<(DType, f64)>,
    /// All other operations.
    pub(super) elementwise: f64,
    /// Bytes that it reads and writes.
    pub(super) bytes: f64,
    /// What it reads: stored values, and the steps that are part of it.
    pub(super) reads: Vec<Slot>,
    pub(super) steps: Vec<usize>,
}

/// A function such as `exp` counts as so many operations.
const FUNCTION: f64 = 10.0;

/// The largest number of indices that a device has of each loop.
fn box_of(extents: &[usize], layout: &[DimLayout]) -> Vec<f64> {
    let one = |(n, l): (&usize, &DimLayout)| {
        let ranks = [0, 1.min(l.ways() - 1), l.ways() - 1];
        ranks.map(|r| l.range(r, *n)).iter().map(|(a, b)| b - a).max().unwrap_or(0) as f64
    };
    extents.iter().zip(layout).map(one).collect()
}

/// Bytes of a device's block of a stored value.
fn block(p: &SpmdProgram, s: Slot) -> f64 {
    p.slots[s].block_bytes() as f64
}

/// The work of the kernel that ends in step `k`, with all that is computed where it is read. What a kernel of several results has `done` for one of them
/// it has for all.
pub(super) fn work(
    p: &SpmdProgram,
    makers: &[Option<usize>],
    stored: &[bool],
    k: usize,
    done: &mut HashSet<usize>,
) -> Work {
    let mut work = Work::default();
    // of each value the bytes of all reads together, and what is in memory of it at most: what two read is read once
    let mut read: BTreeMap<Slot, (f64, f64)> = BTreeMap::new();
    let mut ahead = vec![k];
    while let Some(k) = ahead.pop() {
        work.steps.push(k);
        if !done.insert(k) {
            continue;
        }
        let Some(l) = p.steps[k].local() else { continue };
        let sizes = box_of(&l.sentence.extents, l.layout);
        operations(&mut work, l.sentence, &sizes);
        if stored[l.out] && !l.sentence.body.renames() {
            work.bytes += written(p, l.out, l.sentence, &sizes);
        }
        for (n, r) in l.sentence.reads.iter().enumerate() {
            if puts(&l.sentence.body) && n == 0 || l.sentence.body.renames() {
                // what is written over is there already
                work.reads.extend(r.sources());
                continue;
            }
            for part in &r.parts {
                let Source::Value(s) = part.from else { continue };
                if stored[s] {
                    let size = p.slots[s].dtype.size() as f64;
                    let bytes = elements(l.sentence, part, &sizes) * size;
                    let (sum, most) = read.entry(s).or_insert((0.0, block(p, s)));
                    (*sum, *most) = (*sum + bytes, most.max(bytes.min(all(p, s))));
                } else if let Some(maker) = makers[s] {
                    ahead.push(maker);
                }
            }
        }
    }
    work.bytes += read.values().map(|(sum, most)| sum.min(*most)).sum::<f64>();
    work.reads.extend(read.keys());
    sorted::sort(&mut work.steps);
    sorted::sort(&mut work.reads);
    work.reads.dedup();
    work
}

/// Bytes of all of a value: what a device can read of it at most, with what it fetched.
fn all(p: &SpmdProgram, s: Slot) -> f64 {
    let stored = &p.slots[s];
    stored.shape.iter().fold(stored.dtype.size() as f64, |n, d| n * *d as f64)
}

/// Whether it writes over some of what was there.
fn puts(body: &Body) -> bool {
    !body.bound().is_empty() && !body.finds()
}

/// Bytes that a sentence writes: of a put those it changes.
fn written(p: &SpmdProgram, out: Slot, sentence: &Sentence, sizes: &[f64]) -> f64 {
    if !puts(&sentence.body) {
        return block(p, out);
    }
    let parts = sentence.reads.get(1).into_iter().flat_map(|r| &r.parts);
    let changed: f64 = parts.map(|part| elements(sentence, part, sizes)).sum();
    (changed * sentence.dtype.size() as f64).min(block(p, out))
}

/// How many elements a part reads: one for each index of the loops that its map names.
fn elements(sentence: &Sentence, part: &Part, sizes: &[f64]) -> f64 {
    // loops that numbers bind have one step
    let bound = |i: usize| i >= sentence.rank && sentence.body.finds();
    let named = |i: usize| part.map.iter().any(|a| a.terms.iter().any(|t| t.0 == i));
    let loops = sizes.iter().enumerate().zip(&part.span);
    let read = loops.filter(|((i, _), _)| named(*i) && !bound(*i));
    read.fold(1.0, |n, ((_, size), span)| n * size.min(span.len() as f64))
}

/// The operations of a sentence over a box of its loops.
fn operations(work: &mut Work, sentence: &Sentence, sizes: &[f64]) {
    let volume: f64 = sizes.iter().product();
    let result: f64 = sizes[..sentence.rank].iter().product();
    match &sentence.body {
        Body::Map(code) => work.elementwise += volume * of(code),
        Body::Fold { code, .. } => work.elementwise += volume * (of(code) + 1.0),
        Body::Product { .. } => {
            let dtype = sentence.reads.first().map_or(sentence.dtype, |r| r.dtype);
            let each = if dtype.is_complex() { 8.0 } else { 2.0 };
            match work.products.iter_mut().find(|p| p.0 == dtype) {
                Some(p) => p.1 += each * volume,
                None => work.products.push((dtype, each * volume)),
            }
        }
        // a sort or a transform does some operations for each level of a tree over its line
        Body::Lines(_) => {
            let along: f64 = sizes[sentence.rank..].iter().product();
            work.elementwise += result.max(volume) * along.max(2.0).log2();
        }
        Body::Put { .. } | Body::Take { .. } | Body::Reshape => {}
    }
}

/// The operations of elementwise code at one index.
fn of(code: &Code) -> f64 {
    let one = |fun: Fun| match fun {
        Fun::Copy | Fun::Convert | Fun::Bitcast | Fun::Real | Fun::Imag | Fun::Complex => 0.0,
        Fun::Exp
        | Fun::Exp2
        | Fun::Expm1
        | Fun::Log
        | Fun::Log1p
        | Fun::Sin
        | Fun::Cos
        | Fun::Tan
        | Fun::Asin
        | Fun::Acos => FUNCTION,
        Fun::Atan
        | Fun::Sinh
        | Fun::Cosh
        | Fun::Tanh
        | Fun::Asinh
        | Fun::Acosh
        | Fun::Atanh
        | Fun::Cbrt
        | Fun::Logistic => FUNCTION,
        Fun::Erf | Fun::ErfInv | Fun::Pow | Fun::Atan2 | Fun::Threefry => FUNCTION,
        _ => 1.0,
    };
    code.insts.iter().map(|i| one(i.fun)).sum()
}
