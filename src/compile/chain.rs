//! Sums of many scaled values, found among the expressions of a cell: one instruction in place of one for every two or three terms.
//!
//! A sum that one other sum alone reads becomes its first terms. The order of additions is the expressions', and each step is rounded as
//! it was, so no bit depends on this.

use super::expr::{Do, Expr, Node};
use crate::runtime::kernels::{FEWEST_TERMS, TERMS};
use smallvec::SmallVec;

/// `sum·(k0·x0 + k1·x1 + …) + k·x`, the last term added to the scaled sum of the others.
#[derive(Clone, Debug)]
pub(super) struct Links {
    /// Each term: which value, and its factor.
    pub(super) terms: SmallVec<[(u32, f64); TERMS]>,
    /// The factor of the sum of all terms but the last.
    pub(super) sum: f64,
    /// The value that was the sum of all terms but the last one or two.
    inner: Option<usize>,
}

impl Links {
    fn and(&self, x: u32, k: f64, sum: f64, inner: Option<usize>) -> Option<Links> {
        if self.sum != 1.0 || self.terms.len() == TERMS {
            return None;
        }
        let mut terms = self.terms.clone();
        terms.push((x, k));
        Some(Links { terms, sum, inner })
    }
}

/// What values that are long sums are made of, and which values are no more than terms of one of them. `uses`: how often each is read.
pub(super) fn chains(expr: &Expr, uses: &[u32]) -> (Vec<Option<Links>>, Vec<bool>) {
    let n = expr.nodes.len();
    let mut found: Vec<Option<Links>> = vec![None; n];
    for i in (0..n).filter(|i| uses[*i] > 0) {
        let Node::Op { what, args: [a, b, c], k, .. } = expr.nodes[i].0 else { continue };
        let [p, q, r] = k.map(f64::from_bits);
        let onto = |x: u32, p: f64, y: u32, q: f64| {
            let x = x as usize;
            let inner = found[x].as_ref().filter(|_| uses[x] == 1)?;
            inner.and(y, q, p, Some(x))
        };
        let pair = || {
            let terms = SmallVec::from_slice(&[(a, p), (b, q)]);
            onto(a, p, b, q).or_else(|| onto(b, q, a, p)).unwrap_or(Links { terms, sum: 1.0, inner: None })
        };
        found[i] = match what {
            Do::Lin2 => Some(pair()),
            Do::Lin3 => {
                let two = pair();
                two.and(c, r, 1.0, two.inner).or_else(|| {
                    let terms = SmallVec::from_slice(&[(a, p), (b, q), (c, r)]);
                    Some(Links { terms, sum: 1.0, inner: None })
                })
            }
            Do::Fun(_) | Do::Lin1 | Do::MulAdd => None,
        };
    }
    let mut gone = vec![false; n];
    for i in (0..n).rev() {
        let long = found[i].as_ref().is_some_and(|l| l.terms.len() >= FEWEST_TERMS);
        if let Some(inner) = found[i].as_ref().and_then(|l| l.inner).filter(|_| long || gone[i]) {
            gone[inner] = true;
        }
        if !long || gone[i] {
            found[i] = None;
        }
    }
    (found, gone)
}
