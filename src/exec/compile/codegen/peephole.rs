//! Fuses a linear combination of a row and a row scalar with its only reader, and the operations
//! by which `argmax` finds the indices of extremes.
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

/// An operation, fused with those that compute some of its operands.
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
        if let Some((pair, absorbed)) = extreme_index(expr, uses, last, i) {
            absorbed.into_iter().for_each(|x| gone[x as usize] = true);
            found[i] = Some(pair);
            continue;
        }
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

/// Matches the node `select(x == best or x != x, index, end)`, where the index is a loop position
/// as int32 and the end is a constant. Returns the fused operation, and the nodes that it absorbs.
fn extreme_index(expr: &ExprGraph, uses: &[u32], last: usize, i: usize) -> Option<(FusedPair, [u32; 5])> {
    let instr = |x: u32, op: ScalarOp| match expr.nodes[x as usize] {
        (ExprNode::Instr { op: InstrOp::Scalar(o), args, .. }, dtype) if o == op => Some((args, dtype)),
        _ => None,
    };
    let ([mask, index, end], DType::I32) = instr(i as u32, ScalarOp::Select)? else { return None };
    let ([equal, nan, _], _) = instr(mask, ScalarOp::Or)?;
    let (([x, best, _], _), ([y, z, _], _)) = (instr(equal, ScalarOp::Eq)?, instr(nan, ScalarOp::Ne)?);
    let ([position, ..], _) = instr(index, ScalarOp::Convert)?;
    let dtype = expr.nodes[x as usize].1;
    let absorbed = [mask, equal, nan, index, position];
    let (ExprNode::Position(m), ExprNode::Const(end)) =
        (expr.nodes[position as usize].0, expr.nodes[end as usize].0)
    else {
        return None;
    };
    let one = matches!(expr.nodes[best as usize].0, ExprNode::Mem(m) if m.strides[last] == 0);
    let broadcast_mask = if one { 2 } else { 0 };
    let fits = (x, x) == (y, z)
        && absorbed.iter().all(|x| uses[*x as usize] == 1)
        && kernels::broadcast_kernel(BroadcastOp::ExtremeIndex, broadcast_mask, dtype, false).is_some();
    let consts = [f64::from(end as i32), m.strides[last] as f64, f64::from(broadcast_mask)].map(f64::to_bits);
    let args = [x, best, position];
    fits.then_some((
        FusedPair { fun: BroadcastOp::ExtremeIndex, args, num_args: 3, consts, broadcast_mask },
        absorbed,
    ))
}
