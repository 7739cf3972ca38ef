//! A decoder transformer's loss, its gradient and a step of Adam, with the same operations as in
//! `xla.py`: RMSNorm, grouped-query attention, SwiGLU, one-hot embedding, and cross entropy over a
//! sharded vocabulary. Weights are sharded over fsdp and tensor, the batch over data and fsdp.

use atmesh::einsum_to;
use atmesh::prelude::*;

#[derive(Clone, Debug, Tree)]
pub(crate) struct Layer<T = Array> {
    n1: T,
    wq: T,
    wk: T,
    wv: T,
    wo: T,
    n2: T,
    wg: T,
    wu: T,
    wd: T,
}
#[derive(Clone, Debug, Tree)]
pub(crate) struct Model<T = Array> {
    emb: T,
    /// One entry with all layers stacked, or one entry per layer.
    layers: Vec<Layer<T>>,
    norm: T,
    head: T,
}
#[derive(Clone, Debug, Tree)]
pub(crate) struct State<T = Array> {
    pub(crate) model: Model<T>,
    m: Model<T>,
    v: Model<T>,
    t: T,
}

/// The sizes of the model, and how the program is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    /// If true, shardings are part of the types; else activations are constrained, and the rest is
    /// propagated.
    pub(crate) explicit: bool,
    pub(crate) scan: bool,
    pub(crate) remat: bool,
    pub(crate) layers: usize,
    pub(crate) d: usize,
    pub(crate) f: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) words: usize,
    pub(crate) batch: usize,
    pub(crate) sequence: usize,
    pub(crate) dtype: DType,
}

/// Returns the sharding of the batch.
fn batch() -> Spec {
    p![("data", "fsdp")]
}

impl Config {
    /// Returns the sizes of the full model: 418 billion parameters.
    pub(crate) fn full() -> Config {
        Config {
            explicit: true,
            scan: true,
            remat: true,
            layers: 126,
            d: 16384,
            f: 53248,
            heads: 128,
            key_heads: 32,
            words: 128256,
            batch: 2048,
            sequence: 8192,
            dtype: BF16,
        }
    }
    fn head(&self) -> usize {
        self.d / self.heads
    }
    /// Gathers a weight over fsdp for a layer; its gradient stays unreduced to the end.
    #[track_caller]
    fn whole(&self, w: &Array, spec: Spec) -> Array {
        let w = w.astype(self.dtype);
        if self.explicit { w.reshard(spec.reduced(("data", "fsdp"))) } else { w }
    }
    #[track_caller]
    fn product<const N: usize>(&self, letters: &str, x: [&Array; N]) -> Array {
        if self.explicit { einsum_to(letters, x, batch()) } else { einsum(letters, x) }
    }
    #[track_caller]
    fn held(&self, x: Array) -> Array {
        if self.explicit { x } else { x.constrain(batch()) }
    }
    fn normed(&self, x: &Array, scale: &Array) -> Array {
        let y = x.astype(F32);
        let y = &y * (y.square().mean(Dims::keep(-1)) + 1e-5).rsqrt();
        let scale = if self.explicit { scale.reshard(p![; R: ("data", "fsdp")]) } else { scale.clone() };
        let y = (y * scale).astype(self.dtype);
        // The cotangents of several products are added before they are summed over devices.
        if self.explicit { y.reshard(p![("data", "fsdp"); R: "tensor"]) } else { y }
    }
    fn attention(&self, q: &Array, k: &Array, v: &Array) -> Array {
        let a = einsum("bshgk,bthk->bhgst", [q, k]) / (self.head() as f64).sqrt();
        let mask = Array::ones(Bool.array_type([self.sequence, self.sequence])).tril(0);
        let a = mask.select(&a, -1e9).softmax(-1);
        einsum("bhgst,bthk->bshgk", [&a, v])
    }
    fn block(&self, w: &Layer, x: &Array) -> Array {
        let columns = p![_, "tensor"];
        let h = self.normed(x, &w.n1);
        let q = einsum("bsd,dhgk->bshgk", [&h, &self.whole(&w.wq, columns)]);
        let k = einsum("bsd,dhk->bshk", [&h, &self.whole(&w.wk, columns)]);
        let v = einsum("bsd,dhk->bshk", [&h, &self.whole(&w.wv, columns)]);
        let o = self.attention(&q, &k, &v);
        let x = self.held(x + self.product("bshgk,hgkd->bsd", [&o, &self.whole(&w.wo, p!["tensor"])]));
        let h = self.normed(&x, &w.n2);
        let g = einsum("bsd,df->bsf", [&h, &self.whole(&w.wg, columns)]);
        let u = einsum("bsd,df->bsf", [&h, &self.whole(&w.wu, columns)]);
        let y = (&g * g.logistic()) * u;
        self.held(x + self.product("bsf,fd->bsd", [&y, &self.whole(&w.wd, p!["tensor"])]))
    }
    fn layer(&self, w: Layer, x: &Array) -> Array {
        if self.remat {
            checkpoint((w, x), |(w, x): (Layer, Array)| self.block(&w, &x))
        } else {
            self.block(&w, x)
        }
    }
    pub(crate) fn loss(&self, w: &Model, ids: &Array, labels: &Array) -> Array {
        let hot = |ids: &Array| match self.explicit {
            true => ids.one_hot_to(self.words, p![("data", "fsdp"), _, "tensor"]),
            false => ids.one_hot(self.words),
        };
        let embedding = self.whole(&w.emb, p!["tensor"]);
        let mut x = self.held(self.product("bsv,vd->bsd", [&hot(ids).astype(self.dtype), &embedding]));
        if self.scan {
            x = scan(&x, &w.layers[0], |x, w: Layer| (self.layer(w, &x), ())).0;
        } else {
            for w in &w.layers {
                x = self.layer(w.clone(), &x);
            }
        }
        let h = self.normed(&x, &w.norm);
        let logits = einsum("bsd,dv->bsv", [&h, &self.whole(&w.head, p![_, "tensor"])]).astype(F32);
        (logits.logsumexp(-1) - (hot(labels) * &logits).sum(-1)).mean(..)
    }
    pub(crate) fn step(&self, s: &State, ids: &Array, labels: &Array) -> (Array, State) {
        let (loss, g) = value_and_grad(&s.model, |w: Model| self.loss(&w, ids, labels));
        let t = &s.t + 1.0;
        let m = tree::map2(&s.m, &g, |m, g| 0.9 * m + 0.1 * g);
        let v = tree::map2(&s.v, &g, |v, g| 0.999 * v + 0.001 * g.square());
        let (c1, c2) = (1.0 - Array::from(0.9f32).pow(&t), 1.0 - Array::from(0.999f32).pow(&t));
        let by = tree::map2(&m, &v, |m, v| 0.0001 * (m / &c1) / ((v / &c2).sqrt() + 1e-8));
        let model = tree::map2(&s.model, &by, |w, by| w - by);
        (loss, State { model, m, v, t })
    }

    /// Applies `of` to the shape and spec of each weight.
    pub(crate) fn weights<T: Clone>(&self, of: impl Fn(&[usize], Spec) -> T) -> Model<T> {
        let (d, f, kv, k, g) = (self.d, self.f, self.key_heads, self.head(), self.heads / self.key_heads);
        let each = |shape: &[usize], one: Spec, stacked: Spec| match self.scan {
            true => of(&[&[self.layers], shape].concat(), stacked),
            false => of(shape, one),
        };
        let (columns, of_all) = (p!["fsdp", "tensor"], p![_, "fsdp", "tensor"]);
        let layer = Layer {
            n1: each(&[d], p![], p![]),
            wq: each(&[d, kv, g, k], columns, of_all),
            wk: each(&[d, kv, k], columns, of_all),
            wv: each(&[d, kv, k], columns, of_all),
            wo: each(&[kv, g, k, d], p!["tensor", _, _, "fsdp"], p![_, "tensor", _, _, "fsdp"]),
            n2: each(&[d], p![], p![]),
            wg: each(&[d, f], columns, of_all),
            wu: each(&[d, f], columns, of_all),
            wd: each(&[f, d], p!["tensor", "fsdp"], p![_, "tensor", "fsdp"]),
        };
        Model {
            emb: of(&[self.words, d], p!["tensor", "fsdp"]),
            layers: vec![layer; if self.scan { 1 } else { self.layers }],
            norm: of(&[d], p![]),
            head: of(&[d, self.words], columns),
        }
    }
    pub(crate) fn mesh(&self, [data, fsdp, tensor]: [usize; 3]) -> Result<Mesh> {
        let mesh = Mesh::without_devices([("data", data), ("fsdp", fsdp), ("tensor", tensor)])?;
        if self.explicit { Ok(mesh) } else { mesh.with_auto(["data", "fsdp", "tensor"]) }
    }
    pub(crate) fn model(&self, mesh: &Mesh) -> Model<ArrayType> {
        self.weights(|shape, spec| F32.array_type(shape).on(mesh, spec))
    }
    pub(crate) fn ids(&self, mesh: &Mesh) -> ArrayType {
        I32.array_type([self.batch, self.sequence]).on(mesh, batch())
    }
    pub(crate) fn state(&self, mesh: &Mesh) -> State<ArrayType> {
        let model = || self.model(mesh);
        State { model: model(), m: model(), v: model(), t: F32.array_type([]).on(mesh, p![]) }
    }
    /// Returns the shardings of the results, which auto mode needs: those of the weights.
    pub(crate) fn specs(&self) -> Model<Spec> {
        self.weights(|_, spec| spec)
    }
    pub(crate) fn state_specs(&self) -> State<Spec> {
        State { model: self.specs(), m: self.specs(), v: self.specs(), t: p![] }
    }
}
