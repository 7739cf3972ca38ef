//! A row's elements less one of its numbers, and the product or the exponential that alone reads that: one instruction.
//!
//! It computes what the two compute, each step rounded as it was, so no bit depends on this.

use super::expr::{Do, Expr, Node};
use crate::program::sentence::Fun;
use crate::runtime::kernels::{self, Along};
use crate::types::DType;

/// A sum of two products and what reads it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pair {
    pub(super) fun: Along,
    /// What is read, and of how many the function is.
    pub(super) args: [u32; 3],
    pub(super) n: u8,
    pub(super) k: [u64; 3],
    /// Which of them are one element, as bits.
    pub(super) same: u8,
}

/// The pairs of a cell, at the second of the two; the first is `gone`. `uses`: how often each value is read; `last`: the innermost dimension.
pub(super) fn pairs(expr: &Expr, uses: &[u32], last: usize, gone: &mut [bool]) -> Vec<Option<Pair>> {
    let one = |x: u32| matches!(expr.nodes[x as usize].0, Node::Mem(m) if m.st[last] == 0);
    // a sum of which the second operand is one element, and the first is not
    let sum = |x: u32| match expr.nodes[x as usize] {
        (Node::Op { what: Do::Lin2, args: [a, b, _], k, .. }, DType::F32) if uses[x as usize] == 1 => {
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
        let (Node::Op { what: Do::Fun(fun), args: [x, y, _], .. }, false) = (expr.nodes[i].0, gone[i]) else {
            continue;
        };
        let (x, of) = match fun {
            Fun::Exp => (x, Some((Along::ExpLin, None))),
            Fun::Mul if sum(x).is_some() => (x, Some((Along::LinMul, Some(y)))),
            Fun::Mul => (y, Some((Along::LinMul, Some(x)))),
            _ => (x, None),
        };
        let (Some((fun, other)), Some(([a, b], k)), false) = (of, sum(x), gone[x as usize]) else { continue };
        let same = 2 | if other.is_some_and(one) { 4 } else { 0 };
        if kernels::along_one(fun, same, DType::F32, false).is_some() {
            gone[x as usize] = true;
            let n = if other.is_some() { 3 } else { 2 };
            found[i] = Some(Pair { fun, args: [a, b, other.unwrap_or(a)], n, k, same });
        }
    }
    found
}
