//! Estimates the work of a kernel: operations and bytes of memory on the busiest device.

use crate::core::{DType, util::small_sort};
use crate::ir::program::{AccessPiece, Compute, LoopNest, ScalarCode, Source};
use crate::partition::{DimLayout, Slot, SpmdProgram};
use std::collections::{BTreeMap, HashSet};

/// The work of one kernel on one device.
#[derive(Clone, Debug, Default)]
pub(super) struct KernelWork {
    /// The floating-point operations of contractions, by the element type of their operands.
    pub(super) matmul_flops: Vec<(DType, f64)>,
    /// The number of all other operations.
    pub(super) other_flops: f64,
    /// The number of bytes read and written.
    pub(super) bytes: f64,
    /// The stored values that the kernel reads, and the steps that are part of it.
    pub(super) reads: Vec<Slot>,
    pub(super) steps: Vec<usize>,
}

/// Returns the maximum number of indices of each loop that a device has.
fn box_sizes(extents: &[usize], layout: &[DimLayout]) -> Vec<f64> {
    extents.iter().zip(layout).map(|(n, l)| l.max_block(*n) as f64).collect()
}

/// Returns the size in bytes of a device's block of a stored value.
fn block_bytes(p: &SpmdProgram, s: Slot) -> f64 {
    p.slots[s].block_bytes() as f64
}

/// Returns the work of the kernel that ends in step `k`, including the steps fused into it.
/// A step that computes several results counts once: steps in `done` add no work.
pub(super) fn work(
    p: &SpmdProgram,
    makers: &[Option<usize>],
    stored: &[bool],
    k: usize,
    done: &mut HashSet<usize>,
) -> KernelWork {
    let mut work = KernelWork::default();
    // for each value, the bytes of all reads and the number of its bytes in memory: the kernel
    // reads each byte only once
    let mut read: BTreeMap<Slot, (f64, f64)> = BTreeMap::new();
    let mut ahead = vec![k];
    while let Some(k) = ahead.pop() {
        work.steps.push(k);
        if !done.insert(k) {
            continue;
        }
        let Some(l) = p.steps[k].local() else { continue };
        let sizes = box_sizes(&l.nest.extents, l.layout);
        add_flops(&mut work, l.nest, &sizes);
        if stored[l.out] && !l.nest.compute.is_alias() {
            work.bytes += written_bytes(p, l.out, l.nest, &sizes);
        }
        for (n, r) in l.nest.accesses.iter().enumerate() {
            if is_scatter(&l.nest.compute) && n == 0 || l.nest.compute.is_alias() {
                // the value that is overwritten is in memory already
                work.reads.extend(r.sources());
                continue;
            }
            for part in &r.pieces {
                let Source::Value(s) = part.source else { continue };
                if stored[s] {
                    let size = p.slots[s].dtype.size() as f64;
                    let bytes = elements_read(l.nest, part, &sizes) * size;
                    let (sum, most) = read.entry(s).or_insert((0.0, block_bytes(p, s)));
                    (*sum, *most) = (*sum + bytes, most.max(bytes.min(full_bytes(p, s))));
                } else if let Some(maker) = makers[s] {
                    ahead.push(maker);
                }
            }
        }
    }
    work.bytes += read.values().map(|(sum, most)| sum.min(*most)).sum::<f64>();
    work.reads.extend(read.keys());
    small_sort::sort(&mut work.steps);
    small_sort::sort(&mut work.reads);
    work.reads.dedup();
    work
}

/// Returns the size in bytes of a full value.
/// This is the maximum that a device can read of it, including the transfers from other devices.
fn full_bytes(p: &SpmdProgram, s: Slot) -> f64 {
    let stored = &p.slots[s];
    stored.shape.iter().fold(stored.dtype.size() as f64, |n, d| n * *d as f64)
}

/// Returns true if the loop nest overwrites some elements of its first operand (a scatter).
fn is_scatter(body: &Compute) -> bool {
    !body.dynamic_indices().is_empty() && !body.has_single_owner()
}

/// Returns the number of bytes that a loop nest writes; for a scatter, those of the updates.
fn written_bytes(p: &SpmdProgram, out: Slot, nest: &LoopNest, sizes: &[f64]) -> f64 {
    if !is_scatter(&nest.compute) {
        return block_bytes(p, out);
    }
    let pieces = nest.accesses.get(1).into_iter().flat_map(|r| &r.pieces);
    let changed: f64 = pieces.map(|part| elements_read(nest, part, sizes)).sum();
    (changed * nest.dtype.size() as f64).min(block_bytes(p, out))
}

/// Returns the number of elements that a piece of an access reads.
/// This is one for each index of the loops that occur in its map.
fn elements_read(nest: &LoopNest, part: &AccessPiece, sizes: &[f64]) -> f64 {
    // a loop with a dynamic index has a single step
    let bound = |i: usize| i >= nest.rank && nest.compute.has_single_owner();
    let named = |i: usize| part.map.iter().any(|a| a.terms.iter().any(|t| t.0 == i));
    let loops = sizes.iter().enumerate().zip(&part.ranges);
    let read = loops.filter(|((i, _), _)| named(*i) && !bound(*i));
    read.fold(1.0, |n, ((_, size), span)| n * size.min(span.len() as f64))
}

/// Adds the operations of a loop nest over a box of its loops.
fn add_flops(work: &mut KernelWork, nest: &LoopNest, sizes: &[f64]) {
    let volume: f64 = sizes.iter().product();
    let result: f64 = sizes[..nest.rank].iter().product();
    match &nest.compute {
        Compute::Map(code) => work.other_flops += volume * flops_per_index(code),
        Compute::Reduce { code, .. } => work.other_flops += volume * (flops_per_index(code) + 1.0),
        Compute::Contract { .. } => {
            let dtype = nest.accesses.first().map_or(nest.dtype, |r| r.dtype);
            let each = if dtype.is_complex() { 8.0 } else { 2.0 };
            match work.matmul_flops.iter_mut().find(|p| p.0 == dtype) {
                Some(p) => p.1 += each * volume,
                None => work.matmul_flops.push((dtype, each * volume)),
            }
        }
        // a sort or an FFT does a few operations per element for each level of a tree over the row
        Compute::RowKernel(_) => {
            let along: f64 = sizes[nest.rank..].iter().product();
            work.other_flops += result.max(volume) * along.max(2.0).log2();
        }
        Compute::Scatter { .. } | Compute::Gather { .. } | Compute::Reshape => {}
    }
}

/// Returns the number of operations of elementwise code per index.
fn flops_per_index(code: &ScalarCode) -> f64 {
    code.insts.iter().map(|i| i.op.info().flops).sum()
}
