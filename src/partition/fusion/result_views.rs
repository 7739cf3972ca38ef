//! Results that are blocks of an argument in another order, such as all-gathers and permutations.

use super::plan::{FusionPlan, FusionRoot};
use crate::ir::program::loop_nest::{ScalarOp, Source};
use crate::partition::Slot;
use crate::partition::buffers::index::MAX_LOOPS;
use crate::partition::buffers::{AccessBox, ElementwiseOp};
use std::collections::HashMap;
use std::sync::Arc;

/// The minimum size of a block, in bytes.
const MIN_BLOCK_BYTES: usize = 1024;
/// The minimum size of a block, in bytes, if the result has several blocks per device.
const MIN_RUN_BYTES: usize = 4096;
/// The maximum number of blocks, if the result has several blocks per device.
const MAX_RUNS: usize = 4096;

/// The memory of a result.
#[derive(Clone, Debug)]
pub(crate) enum ResultPlan {
    /// A fresh buffer, by number.
    Fresh(usize),
    /// A donated argument, as an index into `donated`.
    Donated(usize),
    /// The buffer of an argument, by number.
    Argument(usize),
    /// Blocks of an argument: their size and the offset of each, in bytes.
    View { arg: usize, block: usize, blocks: Arc<[usize]> },
}

/// Returns the results that are arguments or blocks of one, and the groups that need not run.
pub(crate) fn choose_views(g: &FusionPlan<'_, '_>, devices: usize) -> (Vec<Option<ResultPlan>>, Vec<usize>) {
    let arguments: HashMap<Slot, usize> = g.program.ins.iter().enumerate().map(|(i, s)| (*s, i)).collect();
    let mut skip = Vec::new();
    let outs = g.program.outs.iter().map(|o| {
        let root = g.program.alias_root(*o);
        if let Some(i) = arguments.get(&root) {
            return Some(ResultPlan::Argument(*i));
        }
        let (view, group) = result_view(g, root, devices)?;
        skip.push(group);
        Some(view)
    });
    (outs.collect(), skip)
}

/// Returns a result as blocks of one argument, and the group that would copy it.
/// There is one block per device, or up to one per pair of devices, as `all_to_all` needs.
fn result_view(g: &FusionPlan<'_, '_>, o: Slot, devices: usize) -> Option<(ResultPlan, usize)> {
    let flow = g.program;
    let d = g.defs[o]?;
    let [m] = &g.groups[d.group].members[..] else { return None };
    if g.groups[d.group].root != FusionRoot::Elementwise || flow.uses[o].readers > 0 {
        return None;
    }
    let map: &ElementwiseOp<'_> = g.elementwise_op(m.op);
    let ([read], [inst]) = (&map.reads[..], &map.code.insts[..]) else { return None };
    let v = &flow.values[o];
    let elements = v.shape.num_elements();
    if inst.op != ScalarOp::Copy || v.num_partials > 1 || elements == 0 || read.boxes.is_empty() {
        return None;
    }
    let Source::Value(s) = read.boxes[0].source else { return None };
    let arg = flow.alias_root(s);
    let i = flow.ins.iter().position(|x| *x == arg)?;
    let from = &flow.values[arg];
    if from.dtype != v.dtype
        || from.num_partials > 1
        || read.boxes.iter().any(|p| p.source != Source::Value(s))
    {
        return None;
    }
    // dimensions from j on are contiguous in every box
    let (mut j, mut run) = (map.num_loops, 1);
    while j > 0 {
        let e = map.ext[j - 1];
        let dense =
            |p: &AccessBox| p.lo[j - 1] <= 0 && p.hi[j - 1] >= e && (e == 1 || p.strides[j - 1] == run);
        if !read.boxes.iter().all(dense) {
            break;
        }
        run *= e;
        j -= 1;
    }
    let count: i64 = map.ext[..j].iter().product();
    let block = run as usize * v.dtype.size();
    let small = elements * 4 < from.shape.num_elements();
    let (count, devices) = (count as usize, devices.max(1));
    let few = count <= devices && block >= MIN_BLOCK_BYTES;
    let runs = count <= MAX_RUNS.min(devices * devices) && block >= MIN_RUN_BYTES;
    if small || !(few || runs) {
        return None;
    }
    let mut blocks = Vec::with_capacity(count);
    for k in 0..count as i64 {
        let (mut x, mut r) = ([0; MAX_LOOPS], k);
        for d in (0..j).rev() {
            x[d] = r % map.ext[d];
            r /= map.ext[d];
        }
        let p = read.boxes.iter().find(|p| (0..j).all(|d| p.lo[d] <= x[d] && x[d] < p.hi[d]))?;
        let at = p.offset + (0..j).map(|d| x[d] * p.strides[d]).sum::<i64>();
        blocks.push(at as usize * v.dtype.size());
    }
    Some((ResultPlan::View { arg: i, block, blocks: blocks.into() }, d.group))
}
