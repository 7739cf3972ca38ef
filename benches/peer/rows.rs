//! Rows that are reduced and used again: softmax, layernorm, their gradients, attention.

use super::{Options, time};
use atmesh::prelude::*;

fn norm(x: &Array) -> Array {
    let c = x - x.mean(Dims::keep(1));
    &c * (c.square().mean(Dims::keep(1)) + 1e-5).rsqrt()
}

fn attention(q: &Array, k: &Array, v: &Array) -> Array {
    einsum("hqk,hkd->hqd", [&(einsum("hqd,hkd->hqk", [q, k]) * 0.125).softmax(2), v])
}

/// Softmax, layernorm and their gradients of 4096 rows of 1024 numbers; attention of 16 heads, 512 places and 64 features.
pub(super) fn rows(o: &Options) -> Result<()> {
    let [a, b, c] = Key::new(7).split();
    let (x, y) = (a.normal([4096, 1024]), b.normal([4096, 1024]));
    let one = |name: &str, f: &dyn Fn(&Array) -> Array| {
        let f = jit(f).engine(o.engine);
        time(o, name, "f32[4096,1024]", || f.call(&x).map(drop))
    };
    one("rows/softmax", &|x| x.softmax(1))?;
    one("rows/log_softmax", &|x| x.log_softmax(1))?;
    one("rows/logsumexp", &|x| x.logsumexp(1))?;
    one("rows/layernorm", &norm)?;
    let two = |name: &str, f: &dyn Fn(&Array) -> Array| {
        let f = jit(|x: &Array, y: &Array| grad(x, |x| (f(&x) * y).sum(..))).engine(o.engine);
        time(o, name, "f32[4096,1024]", || f.call((&x, &y)).map(drop))
    };
    two("rows/softmax_grad", &|x| x.softmax(1))?;
    two("rows/layernorm_grad", &norm)?;
    let (q, k, v) = (a.normal([16, 512, 64]), b.normal([16, 512, 64]), c.normal([16, 512, 64]));
    let f = jit(attention).engine(o.engine);
    time(o, "rows/attention", "16 heads, 512 x 64", || f.call((&q, &k, &v)).map(drop))
}
