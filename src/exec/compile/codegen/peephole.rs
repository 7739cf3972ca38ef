//! Fuses a linear combination of a row and a row scalar with its only reader.
//!
//! A *row scalar* is one element that is used for a full row: the maximum in `exp(x − max)`, for
//! example. The linear combination is `k0·row + k1·scalar`, often a difference; its reader is a
//! product or an exponential. The fused instruction performs both operations, and rounds as the two
//! separate ones do, so no bit changes.

use super::values::{ExprGraph, ExprNode, InstrOp};
use super::weighted_sum::WeightedTerms;
use crate::core::DType;
use crate::ir::program::ScalarOp;
use crate::kernels::{self, BroadcastOp};

/// A sum of two products, fused with the operation that reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FusedPair {
    /// The operation.
    pub(crate) fun: BroadcastOp,
    /// The operands, of which the first `num_args` are read.
    pub(crate) args: [u32; 3],
    /// The number of operands.
    pub(crate) num_args: u8,
    /// The constants, as bits.
    pub(crate) consts: [u64; 3],
    /// The operands that are row scalars, as a bit mask.
    pub(crate) broadcast_mask: u8,
}

/// Returns the pair of each node that absorbs its operand, and marks that operand in `gone`.
///
/// `uses` has the number of uses of each node, and `last` is the innermost dimension. A node of
/// `sums` is not absorbed, because it may have absorbed its own operands.
pub(crate) fn find_pairs(
    expr: &ExprGraph,
    uses: &[u32],
    last: usize,
    sums: &[Option<WeightedTerms>],
    gone: &mut [bool],
) -> Vec<Option<FusedPair>> {
    let one = |x: u32| matches!(expr.nodes[x as usize].0, ExprNode::Mem(m) if m.strides[last] == 0);
    // a sum whose second operand is a row scalar, and whose first is not
    let sum = |x: u32| match expr.nodes[x as usize] {
        (ExprNode::Instr { op: InstrOp::Lin2, args: [a, b, _], k, .. }, DType::F32)
            if uses[x as usize] == 1 && sums[x as usize].is_none() =>
        {
            match (one(a), one(b)) {
                (false, true) => Some(([a, b], k)),
                (true, false) => Some(([b, a], [k[1], k[0], k[2]])),
                _ => None,
            }
        }
        _ => None,
    };
    let mut found = vec![None; expr.nodes.len()];
    for i in (0..expr.nodes.len()).filter(|i| uses[*i] > 0) {
        let (ExprNode::Instr { op: InstrOp::Scalar(fun), args: [x, y, _], .. }, false) =
            (expr.nodes[i].0, gone[i])
        else {
            continue;
        };
        let (x, of) = match fun {
            ScalarOp::Exp => (x, Some((BroadcastOp::ExpLin, None))),
            ScalarOp::Mul if sum(x).is_some() => (x, Some((BroadcastOp::LinMul, Some(y)))),
            ScalarOp::Mul => (y, Some((BroadcastOp::LinMul, Some(x)))),
            _ => (x, None),
        };
        let (Some((fun, other)), Some(([a, b], k)), false) = (of, sum(x), gone[x as usize]) else { continue };
        let same = 2 | if other.is_some_and(one) { 4 } else { 0 };
        if kernels::broadcast_kernel(fun, same, DType::F32, false).is_some() {
            gone[x as usize] = true;
            let n = if other.is_some() { 3 } else { 2 };
            found[i] = Some(FusedPair {
                fun,
                args: [a, b, other.unwrap_or(a)],
                num_args: n,
                consts: k,
                broadcast_mask: same,
            });
        }
    }
    found
}
