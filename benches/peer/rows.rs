//! Times row-wise kernels: softmax, layernorm, their gradients, attention, and a transformer's
//! training step.

use super::Options;
use atmesh::prelude::*;

fn norm(x: &Array) -> Array {
    let c = x - x.mean(Dims::keep(-1));
    &c * (c.square().mean(Dims::keep(-1)) + 1e-5).rsqrt()
}

fn attention(q: &Array, k: &Array, v: &Array) -> Array {
    einsum("hqk,hkd->hqd", [&(einsum("hqd,hkd->hqk", [q, k]) * 0.125).softmax(2), v])
}

/// Times softmax, layernorm and their gradients on 4096 rows of 1024 elements, and attention with
/// 16 heads, 512 positions and 64 features.
pub(super) fn rows(o: &Options) -> Result<()> {
    let [a, b, c] = Key::new(7).split();
    let (x, y) = (a.normal([4096, 1024]), b.normal([4096, 1024]));
    let one = |name: &str, f: &dyn Fn(&Array) -> Array| {
        let f = jit(f).engine(o.engine);
        calls!(o, name, "f32[4096,1024]", f, &x)
    };
    one("rows/softmax", &|x| x.softmax(1))?;
    one("rows/log_softmax", &|x| x.log_softmax(1))?;
    one("rows/logsumexp", &|x| x.logsumexp(1))?;
    one("rows/layernorm", &norm)?;
    let two = |name: &str, f: &dyn Fn(&Array) -> Array| {
        let f = jit(|x: &Array, y: &Array| grad(x, |x| (f(&x) * y).sum(..))).engine(o.engine);
        calls!(o, name, "f32[4096,1024]", f, (&x, &y))
    };
    two("rows/softmax_grad", &|x| x.softmax(1))?;
    two("rows/layernorm_grad", &norm)?;
    let (q, k, v) = (a.normal([16, 512, 64]), b.normal([16, 512, 64]), c.normal([16, 512, 64]));
    let f = jit(attention).engine(o.engine);
    calls!(o, "rows/attention", "16 heads, 512 x 64", f, (&q, &k, &v))?;
    let f = jit(|q: &Array, k: &Array, v: &Array| {
        grad((q, k, v), |(q, k, v): (Array, Array, Array)| attention(&q, &k, &v).square().sum(..))
    });
    let f = f.engine(o.engine);
    calls!(o, "rows/attention_grad", "16 heads, 512 x 64", f, (&q, &k, &v))?;
    transformer(o)
}

/// Times a training step of four layers: 16 sequences of 128 positions, 128 features in 4 heads.
fn transformer(o: &Options) -> Result<()> {
    let (layers, b, s, d, h) = (4, 16, 128, 128, 4);
    let layer = move |x: &Array, w: &[Array]| {
        let y = norm(x);
        let [q, k, v] = [0, 1, 2].map(|i| y.matmul(&w[i]).reshape([b, s, h, d / h]));
        let a = (einsum("bshk,bthk->bhst", [&q, &k]) / ((d / h) as f64).sqrt()).softmax(3);
        let x = x + einsum("bhst,bthk->bshk", [&a, &v]).reshape([b, s, d]).matmul(&w[3]);
        &x + norm(&x).matmul(&w[4]).relu().matmul(&w[5])
    };
    let keys = Key::new(3).split_vec(2 + 6 * layers);
    let (x, y) = (keys[0].normal([b, s, d]), keys[1].normal([b, s, d]));
    let sizes = [(d, d), (d, d), (d, d), (d, d), (d, 4 * d), (4 * d, d)];
    let w = keys[2..].iter().zip(sizes.iter().cycle());
    let w: Vec<Array> = w.map(|(key, (n, m))| key.normal([*n, *m]) * 0.05).collect();
    let step = jit(move |w: &Vec<Array>, x: &Array, y: &Array| {
        let g =
            grad(w, |w: Vec<Array>| (w.chunks(6).fold(x.clone(), |x, w| layer(&x, w)) - y).square().mean(..));
        w.iter().zip(&g).map(|(w, g)| w - 0.01 * g).collect::<Vec<Array>>()
    });
    let step = step.engine(o.engine);
    calls!(o, "rows/transformer", "a training step of 4 layers", step, (&w, &x, &y))
}
