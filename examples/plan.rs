//! Plans a training step of a decoder transformer with 405 billion parameters without running it:
//! which mesh is fastest, does it fit, and which line limits it?
//!
//! `cargo run --example plan` plans for 16,384 devices, `… -- 65536` for others.
//! `… -- 16384 plan` also writes `plan.html`, `plan.json` and `plan.trace.json` of the best mesh.
//!
//! Weights are sharded over `fsdp` (gathered where used) and `tensor`, the batch over `data` and
//! `fsdp`, and activations also over `tensor`. The backward pass recomputes layers.

use atmesh::plan::{Link, Machine, Plan, mesh_shapes, sweep};
use atmesh::prelude::*;
use atmesh::{Error, einsum_to};

const LAYERS: usize = 126;
const WIDTH: usize = 16384;
const HIDDEN: usize = 53248;
const HEADS: usize = 128;
const KEY_HEADS: usize = 8;
const HEAD: usize = WIDTH / HEADS;
const WORDS: usize = 128256;
const SEQUENCE: usize = 8192;
/// The sequences per step.
const BATCH: usize = 2048;
/// The keys that attention processes at a time.
const KEYS: usize = 1024;

/// The weights of all layers, stacked.
#[derive(Clone, Tree)]
struct Layers<T = Array> {
    norm: T,
    q: T,
    k: T,
    v: T,
    o: T,
    norm2: T,
    gate: T,
    up: T,
    down: T,
}
#[derive(Clone, Tree)]
struct Model<T = Array> {
    words: T,
    layers: Layers<T>,
    norm: T,
    head: T,
}
/// The weights, and the two moments that Adam keeps.
#[derive(Clone, Tree)]
struct State<T = Array> {
    model: Model<T>,
    m: Model<T>,
    v: Model<T>,
}

/// Returns the sharding of activations between two products.
fn rest() -> Spec {
    p![("data", "fsdp"), "tensor"]
}

/// Gathers a bfloat16 copy of a weight over `fsdp`; its gradient is summed once, at the end.
#[track_caller]
fn gathered(w: &Array, spec: Spec) -> Array {
    w.astype(BF16).reshard(spec.reduced(("data", "fsdp")))
}

fn normed(x: &Array, scale: &Array) -> Array {
    let y = x.astype(F32);
    let y = &y * (y.square().mean(Dims::keep(-1)) + 1e-5).rsqrt();
    let y = einsum("bsd,d->bsd", [&y, &scale.reshard(p![; R: ("data", "fsdp", "tensor")])]).astype(BF16);
    // Gathers the sequence for the next products, whose gradients are then summed together.
    y.reshard(p![("data", "fsdp"); R: "tensor"])
}

/// Computes attention over blocks of keys, with a running maximum and sum (as in FlashAttention).
fn attention(q: &Array, k: &Array, v: &Array, batch: usize) -> Array {
    let blocks =
        |x: &Array| x.reshape([batch, SEQUENCE / KEYS, KEYS, KEY_HEADS, HEAD]).transpose([1, 0, 2, 3, 4]);
    let q = einsum("bshgk->bhgsk", [q]) * (1.0 / (HEAD as f64).sqrt());
    let o = (&q * 0.0).astype(F32);
    let most = o.max(Dims::keep(-1)) - 1e9;
    let sum = o.sum(Dims::keep(-1));
    let step = |(o, most, sum): (Array, Array, Array), (k, v): (Array, Array)| {
        checkpoint((o, most, sum, k, v), |(o, most, sum, k, v): (Array, Array, Array, Array, Array)| {
            let scores = einsum("bhgsk,bthk->bhgst", [&q, &k]).astype(F32);
            let next = most.maximum(scores.max(Dims::keep(-1)));
            let (p, less) = ((scores - &next).exp(), (most - &next).exp());
            let sum = sum * &less + p.sum(Dims::keep(-1));
            let o = o * less + einsum("bhgst,bthk->bhgsk", [&p.astype(BF16), &v]).astype(F32);
            ((o, next, sum), ())
        })
    };
    let ((o, _, sum), ()) = scan((o, most, sum), (blocks(k), blocks(v)), step);
    einsum("bhgsk->bshgk", [&(o / sum).astype(BF16)])
}

fn layer(w: &Layers, x: &Array) -> Array {
    let columns = p![_, "tensor"];
    let h = normed(x, &w.norm);
    let q = einsum("bsd,dhgk->bshgk", [&h, &gathered(&w.q, columns)]);
    let k = einsum("bsd,dhk->bshk", [&h, &gathered(&w.k, columns)]);
    let v = einsum("bsd,dhk->bshk", [&h, &gathered(&w.v, columns)]);
    let o = attention(&q, &k, &v, BATCH);
    let x = x + einsum_to("bshgk,hgkd->bsd", [&o, &gathered(&w.o, p!["tensor"])], rest());
    let h = normed(&x, &w.norm2);
    let gate = einsum("bsd,df->bsf", [&h, &gathered(&w.gate, columns)]);
    let up = einsum("bsd,df->bsf", [&h, &gathered(&w.up, columns)]);
    let y = (&gate * gate.logistic()) * up;
    x + einsum_to("bsf,fd->bsd", [&y, &gathered(&w.down, p!["tensor"])], rest())
}

fn loss(w: &Model, words: &Array, next: &Array) -> Array {
    let hot = |ids: &Array| ids.one_hot_to(WORDS, p![("data", "fsdp"), _, "tensor"]);
    let x = einsum_to("bsv,vd->bsd", [&hot(words).astype(BF16), &gathered(&w.words, p!["tensor"])], rest());
    let again = |x: Array, w: Layers| (checkpoint((w, x), |(w, x): (Layers, Array)| layer(&w, &x)), ());
    let x = scan(x, &w.layers, again).0;
    let h = normed(&x, &w.norm);
    let scores = einsum("bsd,dv->bsv", [&h, &gathered(&w.head, p![_, "tensor"])]).astype(F32);
    (scores.logsumexp(-1) - (hot(next) * &scores).sum(-1)).mean(..)
}

fn step(s: &State, words: &Array, next: &Array) -> (Array, State) {
    let (loss, g) = value_and_grad(&s.model, |w: Model| loss(&w, words, next));
    let m = tree::map2(&s.m, &g, |m, g| 0.9 * m + 0.1 * g);
    let v = tree::map2(&s.v, &g, |v, g| 0.95 * v + 0.05 * g.square());
    let by = tree::map2(&m, &v, |m, v| 8e-5 * m / (v.sqrt() + 1e-8));
    let model = tree::map2(&s.model, &by, |w, by| w - by);
    (loss, State { model, m, v })
}

/// Returns the types of all weights.
fn model(mesh: &Mesh) -> Model<ArrayType> {
    let ty = |shape: &[usize], spec: Spec| F32.array_type(shape).on(mesh, spec);
    let n = LAYERS;
    let (columns, rows) = (p![_, "fsdp", "tensor"], p![_, "tensor", _, _, "fsdp"]);
    Model {
        words: ty(&[WORDS, WIDTH], p!["tensor", "fsdp"]),
        layers: Layers {
            norm: ty(&[n, WIDTH], p![]),
            q: ty(&[n, WIDTH, KEY_HEADS, HEADS / KEY_HEADS, HEAD], columns),
            k: ty(&[n, WIDTH, KEY_HEADS, HEAD], columns),
            v: ty(&[n, WIDTH, KEY_HEADS, HEAD], columns),
            o: ty(&[n, KEY_HEADS, HEADS / KEY_HEADS, HEAD, WIDTH], rows),
            norm2: ty(&[n, WIDTH], p![]),
            gate: ty(&[n, WIDTH, HIDDEN], columns),
            up: ty(&[n, WIDTH, HIDDEN], columns),
            down: ty(&[n, HIDDEN, WIDTH], p![_, "tensor", "fsdp"]),
        },
        norm: ty(&[WIDTH], p![]),
        head: ty(&[WIDTH, WORDS], p!["fsdp", "tensor"]),
    }
}

fn planned(data: usize, fsdp: usize, tensor: usize) -> Result<Plan> {
    let mesh = Mesh::without_devices([("data", data), ("fsdp", fsdp), ("tensor", tensor)])?;
    let model = model(&mesh);
    let state = State { m: model.clone(), v: model.clone(), model };
    let ids = I32.array_type([BATCH, SEQUENCE]).on(&mesh, p![("data", "fsdp")]);
    // Eight devices of a node share a switch; the other nodes are reached over the data centre's
    // network. The links of each axis follow.
    let machine = Machine::h100().nodes(8, Link::NVLINK_4.latency(3e-6), Link::switch(50e9).latency(1e-5));
    jit(step).donate([0]).lower((state, ids.clone(), ids))?.plan(&machine)
}

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let devices: usize = args.first().map_or(Ok(16384), |n| n.parse()).map_err(Error::other)?;
    // Keep `tensor` within a host of eight devices, and at least one sequence per device.
    let meshes = mesh_shapes(devices).into_iter().filter(|[data, fsdp, tensor]| {
        [1, 4, 16].contains(data) && *tensor <= 8 && BATCH.is_multiple_of(data * fsdp) && *fsdp > 1
    });
    println!("data × fsdp × tensor");
    let plans = sweep(meshes, |[data, fsdp, tensor]| planned(*data, *fsdp, *tensor));
    println!("{plans}");
    let Some((_, best)) = plans.best() else {
        println!("no way to split {BATCH} sequences over {devices} devices fits");
        return Ok(());
    };
    println!("{best}");
    if args.get(1).is_some_and(|a| a == "plan") {
        for (name, text) in [
            ("plan.html", best.to_html("")),
            ("plan.json", best.to_json()),
            ("plan.trace.json", best.to_perfetto()),
        ] {
            std::fs::write(name, text).map_err(Error::other)?;
        }
    }
    Ok(())
}
