//! Finds weighted sums of many values; each such sum becomes one instruction.
//!
//! Without this pass, every two or three terms need a separate instruction. A sum that is only read
//! by another sum becomes the first terms of that sum. The order of additions does not change, and
//! each step is rounded as before, so no bit changes.

use super::values::{ExprGraph, ExprNode, InstrOp};
use crate::kernels::{FEWEST_TERMS, MAX_TERMS};
use smallvec::SmallVec;

/// A weighted sum: `sum·(k0·x0 + k1·x1 + …) + k·x`.
/// The last term is added to the scaled sum of the others.
#[derive(Clone, Debug)]
pub(crate) struct WeightedTerms {
    /// The terms, as (node, factor).
    pub(crate) terms: SmallVec<[(u32, f64); MAX_TERMS]>,
    /// The factor of the sum of all terms but the last.
    pub(crate) sum_factor: f64,
    /// The node that was the sum of all terms but the last one or two.
    absorbed_sum: Option<usize>,
}

impl WeightedTerms {
    /// Adds a term; `None` if the sum has the maximum number of terms, or is already scaled.
    fn with_term(&self, x: u32, k: f64, sum: f64, inner: Option<usize>) -> Option<WeightedTerms> {
        if self.sum_factor != 1.0 || self.terms.len() == MAX_TERMS {
            return None;
        }
        let mut terms = self.terms.clone();
        terms.push((x, k));
        Some(WeightedTerms { terms, sum_factor: sum, absorbed_sum: inner })
    }
}

/// Returns the weighted sum at each node, if any, and true for nodes that another sum absorbs.
/// `uses` has the number of uses of each node.
pub(crate) fn find_weighted_sums(expr: &ExprGraph, uses: &[u32]) -> (Vec<Option<WeightedTerms>>, Vec<bool>) {
    let n = expr.nodes.len();
    let mut found: Vec<Option<WeightedTerms>> = vec![None; n];
    for i in (0..n).filter(|i| uses[*i] > 0) {
        let ExprNode::Instr { op: what, args: [a, b, c], k, .. } = expr.nodes[i].0 else { continue };
        let [p, q, r] = k.map(f64::from_bits);
        let onto = |x: u32, p: f64, y: u32, q: f64| {
            let x = x as usize;
            let inner = found[x].as_ref().filter(|_| uses[x] == 1)?;
            inner.with_term(y, q, p, Some(x))
        };
        let pair = || {
            let terms = SmallVec::from_slice(&[(a, p), (b, q)]);
            onto(a, p, b, q).or_else(|| onto(b, q, a, p)).unwrap_or(WeightedTerms {
                terms,
                sum_factor: 1.0,
                absorbed_sum: None,
            })
        };
        found[i] = match what {
            InstrOp::Lin2 => Some(pair()),
            InstrOp::Lin3 => {
                let two = pair();
                two.with_term(c, r, 1.0, two.absorbed_sum).or_else(|| {
                    let terms = SmallVec::from_slice(&[(a, p), (b, q), (c, r)]);
                    Some(WeightedTerms { terms, sum_factor: 1.0, absorbed_sum: None })
                })
            }
            InstrOp::Scalar(_) | InstrOp::Lin1 | InstrOp::MulAdd => None,
        };
    }
    let mut gone = vec![false; n];
    for i in (0..n).rev() {
        let long = found[i].as_ref().is_some_and(|l| l.terms.len() >= FEWEST_TERMS);
        if let Some(inner) = found[i].as_ref().and_then(|l| l.absorbed_sum).filter(|_| long || gone[i]) {
            gone[inner] = true;
        }
        if !long || gone[i] {
            found[i] = None;
        }
    }
    (found, gone)
}
