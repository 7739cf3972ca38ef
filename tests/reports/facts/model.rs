//! A training step of a decoder transformer: checkpointed layers in a scan, Adam, float32 weights
//! with bfloat16 copies, sharded over `data` and `tensor`.

use atmesh::plan::{Machine, Plan};
use atmesh::prelude::*;
use atmesh::{Axes, einsum_to};

/// The sizes of the model, and how it is sharded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Decoder {
    pub(crate) layers: usize,
    pub(crate) width: usize,
    pub(crate) hidden: usize,
    pub(crate) heads: usize,
    pub(crate) key_heads: usize,
    pub(crate) words: usize,
    /// The sequences of a step.
    pub(crate) batch: usize,
    pub(crate) length: usize,
    /// True if the feed-forward layer has a gate.
    pub(crate) gated: bool,
    /// True if weights are sharded over `data` too, and gathered where they are used.
    pub(crate) fsdp: bool,
    /// True if the values between layers are sharded over `tensor`, along the sequence.
    pub(crate) sequence: bool,
    /// True if the backward pass gathers each weight again, after the layer is recomputed.
    pub(crate) regathers: bool,
    /// True if the mesh axes are auto: the values between layers are constrained, and the partitioner
    /// chooses what is gathered.
    pub(crate) auto: bool,
    /// The number of parts of the batch, whose gradients are accumulated.
    pub(crate) parts: usize,
}

/// The weights of all layers, stacked.
#[derive(Clone, Tree)]
struct Layers<T = Array> {
    norm: T,
    q: T,
    k: T,
    v: T,
    o: T,
    norm2: T,
    up: Vec<T>,
    down: T,
}
#[derive(Clone, Tree)]
struct Model<T = Array> {
    words: T,
    layers: Layers<T>,
    norm: T,
    head: T,
}
/// The weights, and the two moments of Adam.
#[derive(Clone, Tree)]
struct State<T = Array> {
    model: Model<T>,
    m: Model<T>,
    v: Model<T>,
}

impl Decoder {
    /// Returns the sharding of activations between two products.
    fn rest(&self) -> Spec {
        if self.sequence { p!["data", "tensor"] } else { p!["data"] }
    }
    /// Returns the axes over which the gradient of a norm's scale is summed.
    fn all_axes(&self) -> Axes {
        if self.sequence { ("data", "tensor").into() } else { "data".into() }
    }
    /// Returns a bfloat16 copy of a weight, gathered over `data` if it is sharded over it.
    #[track_caller]
    fn gathered(&self, w: &Array, spec: Spec) -> Array {
        let w = w.astype(BF16);
        if self.fsdp && !self.auto { w.reshard(spec.reduced("data")) } else { w }
    }
    /// Returns the product of activations and a weight.
    fn product(&self, dims: &str, x: &Array, w: &Array, spec: Spec, to: Option<Spec>) -> Array {
        let product = |(x, w): (Array, Array)| {
            let w = self.gathered(&w, spec);
            match to {
                Some(to) if self.auto => einsum(dims, [&x, &w]).constrain(to),
                Some(to) => einsum_to(dims, [&x, &w], to),
                None => einsum(dims, [&x, &w]),
            }
        };
        if self.regathers { checkpoint((x, w), product) } else { product((x.clone(), w.clone())) }
    }
    fn normed(&self, x: &Array, scale: &Array) -> Array {
        let y = x.astype(F32);
        let y = &y * (y.square().mean(Dims::keep(-1)) + 1e-5).rsqrt();
        let scale = if self.auto { scale.clone() } else { scale.reshard(p![].reduced(self.all_axes())) };
        let y = einsum("bsd,d->bsd", [&y, &scale]).astype(BF16);
        // the gradients of all products that read it are summed over `tensor` together
        if self.auto { y } else { y.reshard(p!["data"; R: "tensor"]) }
    }
    fn attention(&self, q: &Array, k: &Array, v: &Array) -> Array {
        let scale = 1.0 / ((self.width / self.heads) as f64).sqrt();
        let scores = einsum("bshgk,bthk->bhgst", [q, k]).astype(F32) * scale;
        einsum("bhgst,bthk->bshgk", [&scores.softmax(-1).astype(BF16), v])
    }
    fn layer(&self, w: &Layers, x: &Array) -> Array {
        let (columns, rows) = (p![_, "tensor"], p!["tensor"]);
        let h = self.normed(x, &w.norm);
        let q = self.product("bsd,dhgk->bshgk", &h, &w.q, columns, None);
        let k = self.product("bsd,dhk->bshk", &h, &w.k, columns, None);
        let v = self.product("bsd,dhk->bshk", &h, &w.v, columns, None);
        let o = self.attention(&q, &k, &v);
        let x = x + self.product("bshgk,hgkd->bsd", &o, &w.o, rows, Some(self.rest()));
        let h = self.normed(&x, &w.norm2);
        let up = |w: &Array| self.product("bsd,df->bsf", &h, w, columns, None);
        let y = match &w.up[..] {
            [gate, w] => {
                let gate = up(gate);
                (&gate * gate.logistic()) * up(w)
            }
            all => up(&all[0]).gelu(),
        };
        x + self.product("bsf,fd->bsd", &y, &w.down, rows, Some(self.rest()))
    }
    fn loss(&self, w: &Model, words: &Array, next: &Array) -> Array {
        let hot = |ids: &Array| match self.auto {
            true => ids.one_hot(self.words),
            false => ids.one_hot_to(self.words, p!["data", _, "tensor"]),
        };
        let words = hot(words).astype(BF16);
        let x = self.product("bsv,vd->bsd", &words, &w.words, p!["tensor"], Some(self.rest()));
        let layer =
            |x: Array, w: Layers| (checkpoint((w, x), |(w, x): (Layers, Array)| self.layer(&w, &x)), ());
        let x = scan(x, &w.layers, layer).0;
        let h = self.normed(&x, &w.norm);
        let scores = einsum("bsd,dv->bsv", [&h, &self.gathered(&w.head, p![_, "tensor"])]).astype(F32);
        (scores.logsumexp(-1) - (hot(next) * &scores).sum(-1)).mean(..)
    }
    /// Returns the gradient of the loss, summed over all parts of the batch.
    fn gradient(&self, w: &Model, words: &Array, next: &Array) -> Model {
        // gradients stay unreduced over `data` until the end
        let held = match self.fsdp || self.auto {
            true => w.clone(),
            false => self.each(w, |w, spec| w.reshard(spec.reduced("data"))),
        };
        if self.parts == 1 {
            return grad(held, |w: Model| self.loss(&w, words, next));
        }
        let one = |sum: Model, (words, next): (Array, Array)| {
            let g = grad(held.clone(), |w: Model| self.loss(&w, &words, &next));
            (tree::map2(&sum, &g, |a, b| a + b), ())
        };
        let zero = self.each(w, |w, spec| (w * 0.0).reshard(spec.unreduced("data")));
        scan(zero, (words.clone(), next.clone()), one).0
    }
    fn step(&self, s: &State, words: &Array, next: &Array) -> State {
        let g = self.gradient(&s.model, words, next);
        let g = self.each(&g, |g, spec| if self.auto { g.constrain(spec) } else { g.reshard(spec) });
        let m = tree::map2(&s.m, &g, |m, g| 0.9 * m + 0.1 * g);
        let v = tree::map2(&s.v, &g, |v, g| 0.95 * v + 0.05 * g.square());
        let by = tree::map2(&m, &v, |m, v| 1e-4 * m / (v.sqrt() + 1e-8));
        State { model: tree::map2(&s.model, &by, |w, by| w - by), m, v }
    }

    /// Returns the shapes and shardings of all weights.
    fn shapes(&self) -> Model<(Vec<usize>, Spec)> {
        let Decoder { layers: n, width: d, hidden: f, words, .. } = *self;
        let (kv, g, k) = (self.key_heads, self.heads / self.key_heads, d / self.heads);
        let (columns, rows4, rows2, head, first) = match self.fsdp {
            true => (
                p![_, "data", "tensor"],
                p![_, "tensor", _, _, "data"],
                p![_, "tensor", "data"],
                p!["data", "tensor"],
                p!["tensor", "data"],
            ),
            false => (p![_, _, "tensor"], p![_, "tensor"], p![_, "tensor"], p![_, "tensor"], p!["tensor"]),
        };
        let up = (vec![n, d, f], columns);
        Model {
            words: (vec![words, d], first),
            layers: Layers {
                norm: (vec![n, d], p![]),
                q: (vec![n, d, kv, g, k], columns),
                k: (vec![n, d, kv, k], columns),
                v: (vec![n, d, kv, k], columns),
                o: (vec![n, kv, g, k, d], rows4),
                norm2: (vec![n, d], p![]),
                up: if self.gated { vec![up.clone(), up] } else { vec![up] },
                down: (vec![n, f, d], rows2),
            },
            norm: (vec![d], p![]),
            head: (vec![d, words], head),
        }
    }
    /// Applies a function to each weight and its sharding.
    fn each(&self, w: &Model, mut f: impl FnMut(&Array, Spec) -> Array) -> Model {
        let mut specs = Vec::new();
        self.shapes().map(&mut |(_, spec)| specs.push(spec));
        let mut specs = specs.into_iter();
        w.clone().map(&mut |w| specs.next().map_or_else(|| w.clone(), |spec| f(&w, spec)))
    }

    /// Returns the plan of a step on a mesh of these sizes.
    pub(crate) fn plan(&self, data: usize, tensor: usize, machine: &Machine) -> Result<Plan> {
        let mesh = Mesh::without_devices([("data", data), ("tensor", tensor)])?;
        let mesh = if self.auto { mesh.with_auto(["data", "tensor"])? } else { mesh };
        let model = self.shapes().map(&mut |(shape, spec)| F32.array_type(shape).on(&mesh, spec));
        let state = State { m: model.clone(), v: model.clone(), model };
        let ids = match self.parts {
            1 => I32.array_type([self.batch, self.length]).on(&mesh, p!["data"]),
            n => I32.array_type([n, self.batch / n, self.length]).on(&mesh, p![_, "data"]),
        };
        let step = jit(|s: &State, words: &Array, next: &Array| self.step(s, words, next));
        step.cost_model(machine, BF16).donate([0]).lower((state, ids.clone(), ids))?.plan(machine)
    }

    /// Returns the operations of a step with recomputation, by the formula of Narayanan et al.
    pub(crate) fn operations(&self) -> f64 {
        let [b, s, n, h, v] =
            [self.batch, self.length, self.layers, self.width, self.words].map(|x| x as f64);
        96.0 * b * s * n * h * h * (1.0 + s / (6.0 * h) + v / (16.0 * n * h))
    }
}

impl<T> Layers<T> {
    fn map<U>(self, f: &mut impl FnMut(T) -> U) -> Layers<U> {
        let up = self.up.into_iter().map(&mut *f).collect();
        let (norm, q, k, v) = (f(self.norm), f(self.q), f(self.k), f(self.v));
        Layers { norm, q, k, v, o: f(self.o), norm2: f(self.norm2), up, down: f(self.down) }
    }
}
impl<T> Model<T> {
    fn map<U>(self, f: &mut impl FnMut(T) -> U) -> Model<U> {
        let layers = self.layers.map(f);
        Model { words: f(self.words), layers, norm: f(self.norm), head: f(self.head) }
    }
}
