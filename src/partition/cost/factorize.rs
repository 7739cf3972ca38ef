//! Factorises index spaces so that held and needed blocks are boxes of sub-axes.

use crate::core::sharding::sub_axes::{distribute, num_shards};
use crate::core::{SubAxes, util::small_sort};
use crate::ir::program::{Source, StridedRange};
use crate::partition::program::{Slot, StoredValue};
use crate::partition::{cost::consumer::Consumer, layout::DimLayout, reshape_boxes::common_refinement};
use std::collections::BTreeSet;

/// A factor of an index space in which held and needed blocks are boxes.
pub(crate) struct IndexFactor {
    /// The size of the factor.
    pub(crate) size: i64,
    /// The dimension of the stored value that it is a factor of.
    pub(crate) dim: usize,
    /// The sub-axes that split the held blocks.
    pub(crate) held: SubAxes,
    /// The sub-axes that split the needed blocks.
    pub(crate) wanted: SubAxes,
}

impl IndexFactor {
    /// Returns the sub-axes that split the held and the needed blocks.
    pub(crate) fn sub_axes_mut(&mut self) -> [&mut SubAxes; 2] {
        [&mut self.held, &mut self.wanted]
    }
}

/// Returns the factors of an access that reads all of a value.
/// If `evenly`, both layouts must have equal blocks.
pub(crate) fn factorize(
    slot: Slot,
    stored: &StoredValue,
    r: &Consumer,
    evenly: bool,
) -> Option<Vec<IndexFactor>> {
    let even = |l: &DimLayout, n: usize| {
        l.origin == 0 && n.is_multiple_of(l.num_shards()) && l.block as usize * l.num_shards() == n
    };
    let s = r.nest;
    let all = stored.layout.dims.iter().zip(&stored.shape[..]).chain(r.layout.iter().zip(&s.extents));
    if evenly && !all.into_iter().all(|(l, n)| even(l, *n)) {
        return None;
    }
    let held: Vec<&SubAxes> = stored.layout.dims.iter().map(|l| &l.sub_axes).collect();
    if !s.compute.has_affine_accesses() {
        return factorize_reshape(stored, r);
    }
    let [part] = &s.accesses[r.access].pieces[..] else { return None };
    if part.source != Source::Value(slot)
        || !part.ranges.iter().zip(&s.extents).all(|(v, n)| *v == StridedRange::full(*n))
    {
        return None;
    }
    let mut used = BTreeSet::new();
    let mut factors = Vec::new();
    for (dim, (m, n)) in part.map.iter().zip(&stored.shape[..]).enumerate() {
        if m.constant != 0 {
            return None;
        }
        let mut terms: Vec<(usize, i64)> = m.terms.iter().copied().filter(|t| s.extents[t.0] > 1).collect();
        small_sort::sort_by_key(&mut terms, |t| std::cmp::Reverse(t.1));
        let mut step = *n as i64;
        let mut sizes = Vec::new();
        for (l, c) in &terms {
            let size = s.extents[*l];
            if !used.insert(*l) || c * size as i64 != step {
                return None;
            }
            step = *c;
            sizes.push(size);
        }
        if step != 1 {
            return None;
        }
        if sizes.is_empty() {
            continue;
        }
        // a dimension along a single loop need not be divisible
        let pieces = match sizes[..] {
            [_] => vec![held[dim].clone()],
            _ => distribute_sub_axes(&[*n], &[held[dim]], &sizes)?,
        };
        for ((l, _), own) in terms.iter().zip(pieces) {
            let wanted = r.layout[*l].sub_axes.clone();
            factors.push(IndexFactor { size: s.extents[*l] as i64, dim, held: own, wanted });
        }
    }
    Some(factors)
}

/// Returns the factors of a consumer that reads a value in row-major order.
fn factorize_reshape(stored: &StoredValue, r: &Consumer) -> Option<Vec<IndexFactor>> {
    let s = r.nest;
    let held: Vec<&SubAxes> = stored.layout.dims.iter().map(|l| &l.sub_axes).collect();
    let sizes = common_refinement(&stored.shape, &s.extents)?;
    let a = distribute_sub_axes(&stored.shape, &held, &sizes)?;
    let b =
        distribute_sub_axes(&s.extents, &r.layout.iter().map(|l| &l.sub_axes).collect::<Vec<_>>(), &sizes)?;
    let mut dims = Vec::new();
    for (d, n) in stored.shape.iter().enumerate() {
        let (mut left, mut k) = (*n, dims.len());
        if left == 1 && sizes.get(k) == Some(&1) {
            dims.push(d);
        }
        while left > 1 {
            left /= sizes[k];
            dims.push(d);
            k += 1;
        }
    }
    let each = sizes.iter().zip(a).zip(b).zip(dims);
    Some(each.map(|(((n, held), wanted), dim)| IndexFactor { size: *n as i64, dim, held, wanted }).collect())
}

/// Distributes the sub-axes of each dimension over its factors, major first.
/// `None` if a block would be strided.
fn distribute_sub_axes(shape: &[usize], sub_axes: &[&SubAxes], sizes: &[usize]) -> Option<Vec<SubAxes>> {
    let mut out: Vec<SubAxes> = Vec::new();
    let mut sizes = sizes;
    for (n, sub_axes) in shape.iter().zip(sub_axes) {
        let mut left = *n;
        let mut count = usize::from(left == 1 && sizes.first() == Some(&1));
        while left > 1 {
            left /= sizes.get(count)?;
            count += 1;
        }
        let (here, others) = sizes.split_at(count);
        sizes = others;
        let (parts, rest) = distribute(sub_axes, here.iter().copied());
        // the factors within a split one are split completely
        let outer = parts.iter().rposition(|part| !part.is_empty()).unwrap_or(0);
        let complete = |(part, n): (&SubAxes, &usize)| num_shards(part) == *n;
        if !rest.is_empty() || !parts[..outer.min(parts.len())].iter().zip(here).all(complete) {
            return None;
        }
        out.extend(parts);
    }
    sizes.is_empty().then_some(out)
}
