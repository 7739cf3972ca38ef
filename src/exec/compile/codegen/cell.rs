//! The cells for which instructions are emitted (see `segments`), and what their nodes become.

use super::peephole::{FusedPair, find_pairs};
use super::values::{ExprGraph, ExprNode, MemAccess};
use super::weighted_sum::{WeightedTerms, find_weighted_sums};

/// A slot that shares memory with an operand, so that it is written after all reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeferredStore {
    /// The slot that is written.
    pub(crate) slot: u32,
    /// The slot that it overwrites, index by index; `None` if operand and result are in one slot.
    pub(crate) overwrites: Option<u32>,
}

/// A cell for which instructions are emitted.
pub(super) struct CellCode<'a> {
    /// The expressions.
    pub(super) expr: &'a ExprGraph,
    /// The roots, each of which is stored at its access or left in `result`.
    pub(super) roots: &'a [(usize, Option<MemAccess>)],
    /// The innermost dimension.
    pub(super) last: usize,
    /// The slots that are written after all reads.
    pub(super) deferred: &'a [DeferredStore],
    /// True if results are stored past the caches.
    pub(super) stream: bool,
}

impl CellCode<'_> {
    /// Returns true if the store is deferred.
    pub(super) fn is_late(&self, m: &MemAccess) -> bool {
        self.deferred.iter().any(|l| l.slot == m.slot)
    }
    /// Returns true if a deferred store may overwrite the operand.
    pub(super) fn may_overwrite(&self, m: &MemAccess) -> bool {
        self.deferred.iter().any(|l| l.slot == m.slot || l.overwrites == Some(m.slot))
    }
    /// Returns true if the value of node `i` is all that the cell computes, and is not stored.
    pub(super) fn is_only_result(&self, i: usize) -> bool {
        self.roots == [(i, None)]
    }
}

/// The instructions that the nodes of a cell become.
pub(super) struct NodePlan {
    /// The number of uses of each node that have not been emitted yet.
    pub(super) uses: Vec<u32>,
    /// The weighted sum at each node, if any.
    pub(super) sums: Vec<Option<WeightedTerms>>,
    /// The fused pair at each node, if any.
    pub(super) pairs: Vec<Option<FusedPair>>,
    /// True for nodes that another node absorbs.
    pub(super) absorbed: Vec<bool>,
}

impl NodePlan {
    /// Counts the uses of the nodes, and decides which nodes are fused.
    pub(super) fn new(cell: &CellCode<'_>) -> NodePlan {
        let expr = cell.expr;
        let mut uses = vec![0u32; expr.nodes.len()];
        for r in cell.roots {
            uses[r.0] += 1;
        }
        for i in (0..uses.len()).rev() {
            if let (ExprNode::Instr { n, args, .. }, true) = (&expr.nodes[i].0, uses[i] > 0) {
                for a in &args[..*n as usize] {
                    uses[*a as usize] += 1;
                }
            }
        }
        let (sums, mut absorbed) = find_weighted_sums(expr, &uses);
        let pairs = find_pairs(expr, &uses, cell.last, &sums, &mut absorbed);
        NodePlan { uses, sums, pairs, absorbed }
    }
}

/// The place where the value of a node is computed.
#[derive(Clone, Copy)]
pub(super) struct NodeTarget {
    /// The access at which the node is stored, unless the store is deferred.
    pub(super) store: Option<MemAccess>,
    /// The same access, if the node has no other use.
    pub(super) direct: Option<MemAccess>,
}
