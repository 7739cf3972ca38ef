//! The derivative of products of windows.

use super::{ReduceWindow, Window, Windows};
use crate::diagnostic::Result;
use crate::ops::reduce::{Pair, Reduction};
use crate::program::{Builder, Value};
use std::sync::Arc;

impl Windows {
    /// Of the windows along one dimension this step alone: as many.
    fn one_step(&self, d: usize, step: usize) -> Windows {
        let rank = self.taps.len();
        let (taps, mut windows) = (vec![1; rank], vec![Window::default(); rank]);
        let (w, last) = (self.windows[d], self.taps[d] - 1);
        let [before, behind] = [step, last - step].map(|steps| (steps * w.dilation) as i64);
        windows[d] = Window { low: w.low - before, high: w.high - behind, dilation: 1, ..w };
        Windows { taps, windows }
    }
}

impl ReduceWindow {
    /// The tangent of the product of each window: products of pairs of a value and its tangent, one dimension after the other and step by
    /// step, so that zeros are nothing special.
    pub(super) fn product_tangent(&self, b: &mut Builder, x: &Value, t: &Value) -> Result<Value> {
        let (taps, windows) = (&self.over.taps, &self.over.windows);
        let any = |d: &usize| taps[*d] > 1 || windows[*d] != Window::default();
        let dims: Vec<usize> = (0..taps.len()).filter(any).collect();
        let mut pair = (x.clone(), t.clone());
        for (k, d) in dims.iter().enumerate() {
            let out = self.out.filter(|_| k + 1 == dims.len());
            let mut product: Option<Pair> = None;
            for step in 0..taps[*d] {
                let over = self.over.one_step(*d, step);
                let take = |b: &mut Builder, kind, v: &Value| {
                    let over = over.clone();
                    b.emit1(Arc::new(ReduceWindow { kind, over, out }), std::slice::from_ref(v))
                };
                // beyond the array there is no factor: 1, which does not change
                let next = (take(b, Reduction::Prod, &pair.0)?, take(b, Reduction::Sum, &pair.1)?);
                product = Some(match product {
                    Some(product) => b.pair_product(&product, &next)?,
                    None => next,
                });
            }
            pair = product.expect("a window has a step");
        }
        Ok(pair.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    /// Windows of three rows, two apart, one row beyond the array at both ends.
    fn product() -> ReduceWindow {
        let over = Window { stride: 2, low: 1, high: 1, ..Window::default() };
        let over = Windows { taps: vec![3, 1], windows: vec![over, Window::default()] };
        ReduceWindow { kind: Reduction::Prod, over, out: None }
    }

    check_prim! {
        products_of_windows: product(), ["float32[4@X,2]"] => r#"
            (a: float32[4@X,2]) {
              b: float32[2@X,2] = reduce_window_prod[window=[3,1], (0: stride 2, pad 1 1)] a
              return b
            }
            tangents: (a: float32[4@X,2], b: float32[4@X,2]) {
              c: float32[2@X,2] = reduce_window_prod[window=[3,1], (0: stride 2, pad 1 1)] a
              d: float32[2@X,2] = reduce_window_prod[window=[1,1], (0: stride 2, pad 1 -1)] a
              e: float32[2@X,2] = reduce_window_sum[window=[1,1], (0: stride 2, pad 1 -1)] b
              f: float32[2@X,2] = reduce_window_prod[window=[1,1], (0: stride 2, pad 0 0)] a
              g: float32[2@X,2] = reduce_window_sum[window=[1,1], (0: stride 2, pad 0 0)] b
              h: float32[2@X,2] = mul e f
              i: float32[2@X,2] = mul d g
              j: float32[2@X,2] = mul d f
              k: float32[2@X,2] = add h i
              l: float32[2@X,2] = reduce_window_prod[window=[1,1], (0: stride 2, pad -1 1)] a
              m: float32[2@X,2] = reduce_window_sum[window=[1,1], (0: stride 2, pad -1 1)] b
              n: float32[2@X,2] = mul k l
              o: float32[2@X,2] = mul j m
              p: float32[2@X,2] = add n o
              return c, p
            }
            cotangents: (a: float32[2@X,2], b: float32[2@X,2], c: float32[2@X,2], d: float32[2@X,2], e: float32[2@X,2]) {
              f: float32[2@X,2] = mul e c
              g: float32[2@X,2] = mul e d
              h: float32[4@X,2] = reduce_window_sum[window=[1,1], (0: stride 1, pad 1 0, base 2)] f
              i: float32[2@X,2] = mul g a
              j: float32[2@X,2] = mul g b
              k: float32[4@X,2] = reduce_window_sum[window=[1,1], (0: stride 1, pad 0 1, base 2)] i
              l: float32[4@X,2] = add h k
              m: float32[4@X,2] = reduce_window_sum[window=[1,1], (0: stride 1, pad -1 2, base 2)] j
              n: float32[4@X,2] = add l m
              return n
            }
        "#;
    }
}
