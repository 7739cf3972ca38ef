//! Results that are blocks of an argument in another order: what gathers, or permutes, whole blocks of devices.

use super::OutPlan;
use crate::compile::flow::{Map, Piece};
use crate::compile::group::{Groups, Head};
use crate::compile::index::MAX;
use crate::partition::Slot;
use crate::program::sentence::{Fun, Source};

/// Fewest bytes of a block.
const BLOCK: usize = 1024;
/// Fewest bytes of a block where a device's part of the result is in several.
const RUN: usize = 4096;
/// Most blocks of such a result.
const RUNS: usize = 4096;

/// A result that is whole blocks of one argument, for each device one, or as many as there are devices (what `all_to_all` gives it),
/// and the group that would have copied it.
pub(super) fn view(g: &Groups<'_, '_>, o: Slot, devices: usize) -> Option<(OutPlan, usize)> {
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
        let dense = |p: &Piece| p.lo[j - 1] <= 0 && p.hi[j - 1] >= e && (e == 1 || p.st[j - 1] == run);
        if !read.pieces.iter().all(dense) {
            break;
        }
        run *= e;
        j -= 1;
    }
    let count: i64 = map.ext[..j].iter().product();
    let block = run as usize * v.dtype.size();
    let small = elements * 4 < from.shape.elements();
    let (count, devices) = (count as usize, devices.max(1));
    let few = count <= devices && block >= BLOCK;
    let runs = count <= RUNS.min(devices * devices) && block >= RUN;
    if small || !(few || runs) {
        return None;
    }
    let mut blocks = Vec::with_capacity(count);
    for k in 0..count as i64 {
        let (mut x, mut r) = ([0; MAX], k);
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
