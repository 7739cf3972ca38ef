//! The kind of an exchange, by the sub-axes of the blocks that are held and needed.

use crate::core::sharding::sub_axes::{num_shards, split_into_primes};
use crate::core::{SubAxes, SubAxis, util::small_sort};
use crate::ir::program::{AffineExpr, LoopNest, Source, StridedRange};
use crate::partition::cost::factorize::{IndexFactor, factorize};
use crate::partition::program::{Slot, StoredValue};
use crate::partition::{collective::CollectiveKind, cost::consumer::Consumer, layout::DimLayout};

/// The exchange that brings a consumer the blocks that it needs.
pub(crate) struct ConsumerExchange {
    /// The kind of the collective.
    pub(crate) kind: CollectiveKind,
    /// The sub-axes over which it runs.
    pub(crate) sub_axes: SubAxes,
    /// The sub-axes that split the held blocks and not the needed ones, and the first dimension
    /// with such sub-axes.
    pub(crate) gone: (SubAxes, usize),
    /// The sub-axes that split the needed blocks and not the held ones, and the first dimension
    /// with such sub-axes.
    pub(crate) new: (SubAxes, usize),
}

/// Returns the exchange for one consumer, by sub-axes alone.
/// `None` if they do not determine it, or if nothing is exchanged.
pub(crate) fn consumer_exchange(src: Slot, stored: &StoredValue, r: &Consumer) -> Option<ConsumerExchange> {
    let mut factors = match read_part(src, stored, r) {
        Some((part, nest)) => factorize(src, &part, &Consumer { nest: &nest, ..*r }, false)?,
        None => factorize(src, stored, r, false)?,
    };
    split_into_primes(&mut factors.iter_mut().flat_map(IndexFactor::sub_axes_mut).collect::<Vec<_>>());
    let cuts: Vec<(SubAxes, SubAxes)> = factors
        .iter()
        .map(|f| {
            let same = f.held.iter().zip(&f.wanted).take_while(|(a, b)| a == b).count();
            (f.held[same..].iter().copied().collect(), f.wanted[same..].iter().copied().collect())
        })
        .collect();
    let list = |pick: fn(&(SubAxes, SubAxes)) -> &SubAxes| -> (SubAxes, usize) {
        let dim = cuts.iter().position(|c| !pick(c).is_empty()).map_or(0, |k| factors[k].dim);
        (cuts.iter().flat_map(|c| pick(c).iter().copied()).collect(), dim)
    };
    let (gone, new) = (list(|c| &c.0), list(|c| &c.1));
    if gone.0.is_empty() {
        return None;
    }
    let both = || -> SubAxes { gone.0.iter().chain(&new.0).copied().collect() };
    let is_full = |f: &IndexFactor, c: &(SubAxes, SubAxes)| c.0.len() == f.held.len();
    let (kind, sub_axes) = if new.0.is_empty() {
        (CollectiveKind::AllGather, gone.0.clone())
    } else if let Some(over) = moved_sub_axes(&cuts) {
        (CollectiveKind::AllToAll, over)
    } else if factors.iter().all(|f| num_shards(&f.held) == num_shards(&f.wanted)) {
        // a shifted block overlaps two of the held blocks
        let shifted = stored.layout.dims.iter().chain(r.layout).any(|l| l.origin != 0);
        (if shifted { CollectiveKind::Exchange } else { CollectiveKind::Permute }, both())
    } else if new.0.iter().all(|a| factors.iter().flat_map(|f| &f.held).all(|b| !a.overlaps(*b)))
        && factors.iter().zip(&cuts).all(|(f, c)| is_full(f, c) || c.0.is_empty() || c.1.is_empty())
    {
        // the needed block is cut out locally before the gather
        (CollectiveKind::AllGather, gone.0.clone())
    } else {
        (CollectiveKind::Exchange, both())
    };
    Some(ConsumerExchange { kind, sub_axes, gone, new })
}

/// Returns the kind of the exchange for one consumer, and its sub-axes.
///
/// Where the sub-axes do not determine it, these are the sub-axes that split the value.
pub(crate) fn exchange_kind(src: Slot, stored: &StoredValue, r: &Consumer) -> (CollectiveKind, SubAxes) {
    if let Some(exchange) = consumer_exchange(src, stored, r) {
        return (exchange.kind, exchange.sub_axes);
    }
    let held = stored.layout.dims.iter().flat_map(|l| l.sub_axes.iter().copied()).collect();
    let kind = if is_halo(src, stored, r) { CollectiveKind::Halo } else { CollectiveKind::Exchange };
    (kind, held)
}

/// Returns the part of a value that a consumer reads, as a value, and the loop nest that reads it.
///
/// Only dimensions that are not split are narrowed, so the part is split as the value is. `None` if
/// the consumer reads all of these dimensions.
fn read_part(src: Slot, stored: &StoredValue, r: &Consumer) -> Option<(StoredValue, LoopNest)> {
    let (mut part, mut nest) = (stored.clone(), r.nest.clone());
    let [piece] = &mut nest.accesses[r.access].pieces[..] else { return None };
    if piece.source != Source::Value(src) || !r.nest.compute.has_affine_accesses() {
        return None;
    }
    let mut narrowed = false;
    for (d, map) in piece.map.iter_mut().enumerate() {
        let n = match map.terms[..] {
            _ if !stored.layout.dims[d].sub_axes.is_empty() => continue,
            [] => 1,
            [(l, 1)] => r.nest.extents[l],
            _ => continue,
        };
        narrowed |= n != part.shape[d];
        map.constant = 0;
        part.shape.sizes_mut()[d] = n;
    }
    narrowed.then_some((part, nest))
}

/// Returns the sub-axes that move from one dimension to another, if these are the only change.
fn moved_sub_axes(cuts: &[(SubAxes, SubAxes)]) -> Option<SubAxes> {
    let mut gone: Vec<SubAxis> = cuts.iter().flat_map(|c| c.0.iter().copied()).collect();
    let mut new: Vec<SubAxis> = cuts.iter().flat_map(|c| c.1.iter().copied()).collect();
    let over: SubAxes = gone.iter().copied().collect();
    small_sort::sort(&mut gone);
    small_sort::sort(&mut new);
    let from = cuts.iter().filter(|c| !c.0.is_empty()).count();
    let to = cuts.iter().filter(|c| !c.1.is_empty()).count();
    let apart = cuts.iter().all(|c| c.0.is_empty() || c.1.is_empty());
    (gone == new && apart && from == 1 && to == 1).then_some(over)
}

/// Returns true if a consumer needs its own blocks and elements next to them.
/// Sub-axes and slope must be the same in each split dimension.
pub(crate) fn is_halo(src: Slot, stored: &StoredValue, r: &Consumer) -> bool {
    let pieces = r.nest.accesses[r.access].pieces.iter().filter(|p| p.source == Source::Value(src));
    let along = |l: &DimLayout, m: &AffineExpr, spans: &[StridedRange]| {
        if l.sub_axes.is_empty() {
            return true;
        }
        let mut split = m.terms.iter().filter(|t| !r.layout[t.0].sub_axes.is_empty());
        let Some((k, c)) = split.next() else { return false };
        let reader = &r.layout[*k];
        split.next().is_none()
            && reader.sub_axes == l.sub_axes
            && (reader.block * c - l.block * spans[*k].step).abs() <= l.block / 2
    };
    r.nest.compute.has_affine_accesses()
        && pieces
            .into_iter()
            .all(|p| p.map.iter().zip(&stored.layout.dims).all(|(m, l)| along(l, m, &p.ranges)))
}
