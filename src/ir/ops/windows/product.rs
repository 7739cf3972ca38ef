//! The derivative of products over windows.

use super::{ReduceWindow, Window, Windows};
use crate::core::Result;
use crate::ir::ops::reduce::{PrimalAndTangent, Reduction};
use crate::ir::program::{Builder, Value};
use std::sync::Arc;

impl Windows {
    /// Returns windows of one step: step `step` of the windows along dimension `d`.
    fn single_step(&self, d: usize, step: usize) -> Windows {
        let rank = self.sizes.len();
        let (taps, mut windows) = (vec![1; rank], vec![Window::default(); rank]);
        let (w, last) = (self.dims[d], self.sizes[d] - 1);
        let [before, after] = [step, last - step].map(|steps| (steps * w.window_dilation) as i64);
        windows[d] = Window {
            padding_low: w.padding_low - before,
            padding_high: w.padding_high - after,
            window_dilation: 1,
            ..w
        };
        Windows { sizes: taps, dims: windows }
    }
}

impl ReduceWindow {
    /// Emits the tangent of the product over each window.
    ///
    /// Values are multiplied in pairs with their tangents, one dimension and one step at a time, so
    /// zeros need no special case.
    pub(super) fn product_tangent(&self, b: &mut Builder, x: &Value, t: &Value) -> Result<Value> {
        let (taps, windows) = (&self.windows.sizes, &self.windows.dims);
        let any = |d: &usize| taps[*d] > 1 || windows[*d] != Window::default();
        let dims: Vec<usize> = (0..taps.len()).filter(any).collect();
        let mut pair = (x.clone(), t.clone());
        for (k, d) in dims.iter().enumerate() {
            let out = self.out_sharding.filter(|_| k + 1 == dims.len());
            let mut product: Option<PrimalAndTangent> = None;
            for step in 0..taps[*d] {
                let over = self.windows.single_step(*d, step);
                let take = |b: &mut Builder, kind, v: &Value| {
                    let over = over.clone();
                    b.emit1(
                        Arc::new(ReduceWindow { kind, windows: over, out_sharding: out }),
                        std::slice::from_ref(v),
                    )
                };
                // a position outside of the array has the factor 1, whose tangent is 0
                let next = (take(b, Reduction::Prod, &pair.0)?, take(b, Reduction::Sum, &pair.1)?);
                product = Some(match product {
                    Some(product) => b.mul_with_tangent(&product, &next)?,
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
    use crate::ir::ops::test_util::check_prim;

    /// Returns windows of three rows with stride 2 and a padding of one row at both ends.
    fn product() -> ReduceWindow {
        let over = Window { stride: 2, padding_low: 1, padding_high: 1, ..Window::default() };
        let over = Windows { sizes: vec![3, 1], dims: vec![over, Window::default()] };
        ReduceWindow { kind: Reduction::Prod, windows: over, out_sharding: None }
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
