//! Predicts row fusion: which rows, such as attention scores, stay in cache.
//!
//! A matrix product computes rows, reductions and elementwise steps use them, and a final product
//! may read the result. The lock-step and threads engines run these kernels one after another on a
//! batch of rows, so that the rows between them are never all in memory.

use crate::ir::program::loop_nest::{AccessPiece, Compute, Source, StridedRange};
use crate::partition::fusion::policy::{MAX_BATCH_BYTES, MIN_BATCH_ROWS, MIN_ROWS, rows_dominate};
use crate::partition::program::{LocalStep, Slot, SpmdProgram};
use std::collections::{BTreeSet, HashMap};

/// The maximum size of a row, in bytes.
const MAX_SCORE_ROW_BYTES: i64 = MAX_BATCH_BYTES / MIN_BATCH_ROWS;

/// The maximum distance, in steps, between the product and a step of its chain.
const MAX_CHAIN_DEPTH: u32 = 40;

/// Clears `stored` for rows that stay in cache.
///
/// `readers` lists the steps that read each value; `wanted` marks values that other devices or the
/// caller read.
pub(super) fn drop_cached_rows(
    p: &SpmdProgram,
    readers: &[Vec<usize>],
    wanted: &[bool],
    stored: &mut [bool],
) {
    let order = DataflowOrder::new(p, readers);
    for (k, step) in p.steps.iter().enumerate() {
        let Some(l) = step.local().filter(|l| l.nest.compute.contracts() && !wanted[l.out]) else {
            continue;
        };
        let Some((rows, row)) =
            row_count_and_length(p, l.out).filter(|(_, row)| rows_dominate(*row, reduced_extent(&l)))
        else {
            continue;
        };
        if rows < MIN_ROWS || row * p.slots[l.out].dtype.size() as i64 > MAX_SCORE_ROW_BYTES {
            continue;
        }
        let Some(c) = RowChain::after_product(&order, k, l.out) else { continue };
        let inside = |s: &Slot| !wanted[*s] && readers[*s].iter().all(|k| c.steps.contains(k));
        if inside(&l.out) {
            c.row_values.iter().filter(|s| inside(s)).for_each(|s| stored[*s] = false);
        }
    }
}

/// The dataflow between the steps of a program.
struct DataflowOrder<'p> {
    p: &'p SpmdProgram,
    readers: &'p [Vec<usize>],
    /// The step that computes each value.
    producer: Vec<Option<usize>>,
    /// The length of the longest chain of dependencies that leads to each value.
    depth: Vec<u32>,
}

impl<'p> DataflowOrder<'p> {
    fn new(p: &'p SpmdProgram, readers: &'p [Vec<usize>]) -> DataflowOrder<'p> {
        let (mut producer, mut depth) = (vec![None; p.slots.len()], vec![0; p.slots.len()]);
        for (k, step) in p.steps.iter().enumerate() {
            let at = 1 + step.inputs().iter().map(|s| depth[*s]).max().unwrap_or(0);
            step.outputs().iter().for_each(|s| (producer[*s], depth[*s]) = (Some(k), at));
        }
        DataflowOrder { p, readers, producer, depth }
    }
    /// Returns true if value `s` depends on value `of`.
    fn depends_on(&self, s: Slot, of: Slot, seen: &mut HashMap<Slot, bool>) -> bool {
        if self.depth[s] <= self.depth[of] {
            return false;
        }
        if let Some(known) = seen.get(&s) {
            return *known;
        }
        let inputs = self.producer[s].map(|k| self.p.steps[k].inputs()).unwrap_or_default();
        let found = inputs.iter().any(|i| *i == of || self.depends_on(*i, of, seen));
        seen.insert(s, found);
        found
    }
}

/// Returns the number of rows of a value on a device and their length, `None` below two dimensions.
fn row_count_and_length(p: &SpmdProgram, s: Slot) -> Option<(i64, i64)> {
    let (row, outer) = p.slots[s].layout.dims.split_last()?;
    (!outer.is_empty()).then(|| (outer.iter().map(|d| d.block).product(), row.block))
}

/// Returns the number of iterations of the reduction loops on a device.
fn reduced_extent(l: &LocalStep<'_>) -> i64 {
    l.layout[l.nest.rank..].iter().map(|d| d.block).product()
}

/// The steps that run on the rows of a product's result.
struct RowChain {
    steps: Vec<usize>,
    /// The values that consist of rows, or of one element per row.
    row_values: Vec<Slot>,
}

impl RowChain {
    /// Returns the chain that follows a product, `None` if no reduction reads its rows.
    fn after_product(order: &DataflowOrder<'_>, first: usize, scores: Slot) -> Option<RowChain> {
        let (p, from) = (order.p, order.depth[scores]);
        let mut c = RowChain { steps: vec![first], row_values: vec![scores] };
        let (mut folds, outer) = (false, p.slots[scores].layout.dims.len() - 1);
        let mut seen = HashMap::new();
        // visit steps in order of depth, so that the steps of the chain that they read come first
        let mut open = BTreeSet::new();
        let next = |open: &mut BTreeSet<(u32, usize)>, s: Slot| {
            let depth = |k: usize| p.steps[k].outputs().iter().map(|s| order.depth[*s]).max();
            open.extend(order.readers[s].iter().filter_map(|k| Some((depth(*k)?, *k))));
        };
        next(&mut open, scores);
        while let Some((depth, k)) = open.pop_first() {
            let late = |s: &Slot| !c.row_values.contains(s) && order.depends_on(*s, scores, &mut seen);
            if depth > from + MAX_CHAIN_DEPTH || p.steps[k].inputs().iter().any(late) {
                continue;
            }
            let Some(role) = p.steps[k].local().and_then(|l| c.role(p, &l, outer)) else { continue };
            c.steps.push(k);
            if let RowChainRole::RowWise { fold } = role {
                folds |= fold;
                for s in p.steps[k].outputs() {
                    c.row_values.push(s);
                    next(&mut open, s);
                }
            }
        }
        folds.then_some(c)
    }
    /// Returns the role of a step in the chain.
    /// `outer` is the number of dimensions that index rows.
    fn role(&self, p: &SpmdProgram, l: &LocalStep<'_>, outer: usize) -> Option<RowChainRole> {
        let s = l.nest;
        let own =
            |part: &&AccessPiece| matches!(part.source, Source::Value(v) if self.row_values.contains(&v));
        let mut pieces = s.accesses.iter().flat_map(|r| &r.pieces).filter(own);
        let spans = StridedRange::full_box(&s.extents);
        let is_full = |part: &AccessPiece, d: usize| part.ranges[d] == spans[d];
        match s.compute {
            Compute::Map(_) | Compute::Reduce { .. } => {
                let rows = |part: &AccessPiece| {
                    let mut numbered = part.map.iter().enumerate().take(outer);
                    numbered.all(|(d, m)| super::is_loop_index((d, m)) && is_full(part, d))
                };
                let fold = matches!(s.compute, Compute::Reduce { .. });
                (s.rank >= outer && pieces.all(rows)).then_some(RowChainRole::RowWise { fold })
            }
            Compute::Contract { .. } => {
                let part = pieces.next().filter(|_| pieces.next().is_none())?;
                let Source::Value(v) = part.source else { return None };
                let (_, row) = row_count_and_length(p, v)?;
                let mut seen = Vec::new();
                for m in &part.map[..outer.min(part.map.len())] {
                    let [(d, 1)] = m.terms[..] else { return None };
                    if m.constant != 0 || d >= s.rank || !is_full(part, d) || seen.contains(&d) {
                        return None;
                    }
                    seen.push(d);
                }
                let own = |d: &usize| !part.map.iter().any(|m| m.terms.iter().any(|t| t.0 == *d));
                let columns = (0..s.rank).filter(own).map(|d| l.layout[d].block).product();
                rows_dominate(row, columns).then_some(RowChainRole::FinalProduct)
            }
            Compute::RowKernel(_) | Compute::Gather { .. } | Compute::Scatter { .. } | Compute::Reshape => {
                None
            }
        }
    }
}

/// The role of a step in a chain.
enum RowChainRole {
    /// Computes a row from each row, or, if it is a reduction, one element.
    RowWise { fold: bool },
    /// A matrix product that reads the rows.
    /// It is the last step.
    FinalProduct,
}
