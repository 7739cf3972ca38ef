//! Candidate splits of loops, taken from the sub-axes of operands and results.

use crate::core::sharding::sub_axes::{canonicalize, distribute, truncate_to_free};
use crate::core::{SubAxes, util::small_sort};
use crate::ir::program::{Compute, LoopNest, RowKernelCall, Source};
use crate::partition::draft::Draft;
use crate::partition::layout::{DimLayout, Layout};

/// Combines one option per loop into a layout.
/// Reduction loops take sub-axes first.
pub(super) fn combined_layout(
    s: &LoopNest,
    own: &Layout,
    options: &[Vec<SubAxes>],
    pick: &[usize],
) -> Vec<DimLayout> {
    let mut used = SubAxes::new();
    let mut loops: Vec<DimLayout> = Vec::new();
    for l in (0..s.extents.len()).rev() {
        let sub_axes = truncate_to_free(&options[l][pick[l]], &used);
        used.extend(sub_axes.iter().copied());
        loops.push(loop_layout(s, own, l, sub_axes));
    }
    loops.reverse();
    loops
}

/// Returns the layout of a loop split over these sub-axes.
/// It has the block offset of the result if that has the same split.
pub(super) fn loop_layout(s: &LoopNest, own: &Layout, l: usize, sub_axes: SubAxes) -> DimLayout {
    let framed = l < s.rank && sub_axes == own.dims[l].sub_axes;
    if framed { own.dims[l].clone() } else { DimLayout::new(s.extents[l], sub_axes) }
}

/// Returns the distinct lists of sub-axes that split operands along a loop, sorted.
pub(super) fn operand_splits(d: &Draft, s: &LoopNest, l: usize) -> Vec<SubAxes> {
    let mut list = Vec::new();
    for p in s.accesses.iter().flat_map(|r| &r.pieces) {
        let Source::Value(src) = p.source else { continue };
        for (dim, m) in p.map.iter().enumerate() {
            let held = &d.slots[src].layout.dims[dim];
            if held.sub_axes.is_empty() {
                continue;
            }
            match m.terms[..] {
                [(k, _)] if k == l => list.push(held.sub_axes.clone()),
                // several loops run along one dimension: the loops with larger strides take its
                // sub-axes first
                _ if m.terms.iter().any(|t| t.0 == l) => {
                    let mut terms = m.terms.to_vec();
                    small_sort::sort_by_key(&mut terms, |t| std::cmp::Reverse(t.1.abs()));
                    let (each, _) = distribute(&held.sub_axes, terms.iter().map(|t| s.extents[t.0]));
                    let own = terms.iter().zip(each).find(|(t, here)| t.0 == l && !here.is_empty());
                    list.extend(own.map(|(_, here)| canonicalize(here)));
                }
                _ => {}
            }
        }
    }
    small_sort::sort(&mut list);
    list.dedup();
    list
}

/// Returns the candidate splits of a loop, starting with the default one.
pub(super) fn split_options(d: &Draft, s: &LoopNest, own: &Layout, l: usize) -> Vec<SubAxes> {
    let result = (l < s.rank).then(|| own.dims[l].sub_axes.clone());
    let others = match &s.compute {
        // a scatter runs where its result is stored: updates are gathered there, or, if they
        // are combined, each device scatters its own into a partial result
        Compute::Scatter { .. } if l < s.rank => Vec::new(),
        Compute::Scatter { reducer: None, .. } => Vec::new(),
        Compute::RowKernel(row_kernel) => row_kernel_options(d, s, row_kernel, own, l),
        _ => operand_splits(d, s, l),
    };
    let mut unique: Vec<SubAxes> = Vec::new();
    for a in result.into_iter().chain(others).chain([SubAxes::new()]) {
        if !unique.contains(&a) {
            unique.push(a);
        }
    }
    unique
}

/// Returns the candidate splits of a row kernel's loop, other than that of the result.
///
/// The loop along the row is not split. The sub-axes that split rows in storage may split the
/// loops over rows instead.
fn row_kernel_options(
    d: &Draft,
    s: &LoopNest,
    row_kernel: &RowKernelCall,
    own: &Layout,
    l: usize,
) -> Vec<SubAxes> {
    if l >= s.rank || row_kernel.row_loops.contains(&l) {
        return Vec::new();
    }
    let mut list = operand_splits(d, s, l);
    let before: Vec<SubAxes> = list.iter().cloned().chain([own.dims[l].sub_axes.clone()]).collect();
    let operands = (s.rank..s.extents.len()).flat_map(|k| operand_splits(d, s, k));
    let mut along: Vec<SubAxes> =
        operands.chain(row_kernel.row_loops.iter().map(|k| own.dims[*k].sub_axes.clone())).collect();
    along.retain(|a| !a.is_empty());
    small_sort::sort(&mut along);
    along.dedup();
    for (b, a) in before.iter().flat_map(|b| along.iter().map(move |a| (b, a))) {
        let more: SubAxes = b.iter().copied().chain(truncate_to_free(a, b)).collect();
        list.push(canonicalize(more));
    }
    list
}
