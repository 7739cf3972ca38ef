//! One transformer, written once, and the layouts under which it runs.
//!
//! The model names its own dimensions, and no axis of a mesh. `tests/training/layouts.rs` compares
//! losses and collectives, and `tests/safetensors/layouts.rs` passes checkpoints from layout to
//! layout.

use atmesh::prelude::*;

const EMBED: usize = 64;
const HEADS: usize = 8;
const MLP: usize = 256;
const VOCAB: usize = 96;

#[derive(Clone, Tree)]
pub(crate) struct Block<W = Array> {
    pub(crate) ln1: W,
    pub(crate) qkv: W,
    pub(crate) out: W,
    pub(crate) ln2: W,
    pub(crate) up: W,
    pub(crate) down: W,
}

#[derive(Clone, Tree)]
pub(crate) struct Transformer<W = Array> {
    pub(crate) words: W,
    blocks: Vec<Block<W>>,
    pub(crate) norm: W,
}

/// Returns the dimensions of the parameters of a block.
fn block_dims() -> Block<Spec> {
    Block {
        ln1: p![_],
        qkv: p!["embed", _, "heads", _],
        out: p!["heads", _, "embed"],
        ln2: p![_],
        up: p!["embed", "mlp"],
        down: p!["mlp", "embed"],
    }
}

/// Returns the dimensions of the parameters.
pub(crate) fn dims(layers: usize) -> Transformer<Spec> {
    Transformer { words: p!["vocab", "embed"], blocks: vec![block_dims(); layers], norm: p![_] }
}

pub(crate) fn init(layers: usize) -> Transformer {
    let key = Key::new(0);
    let normal = |i: usize, shape: &[usize]| key.fold_in(i as i64).normal(F32.array_type(shape)) * 0.05;
    let block = |i: usize| Block {
        ln1: Array::ones([EMBED]),
        qkv: normal(10 * i, &[EMBED, 3, HEADS, EMBED / HEADS]),
        out: normal(10 * i + 1, &[HEADS, EMBED / HEADS, EMBED]),
        ln2: Array::ones([EMBED]),
        up: normal(10 * i + 2, &[EMBED, MLP]),
        down: normal(10 * i + 3, &[MLP, EMBED]),
    };
    Transformer {
        words: normal(1000, &[VOCAB, EMBED]),
        blocks: (1..=layers).map(block).collect(),
        norm: Array::ones([EMBED]),
    }
}

fn rms_norm(x: &Array, scale: &Array) -> Array {
    x * (x.square().mean(Dims::keep(-1)) + 1e-5).rsqrt() * scale
}

/// Gathers the sequence, which is split between blocks and whole inside of them.
fn whole(x: Array) -> Array {
    x.reshard(p!["batch", _, "embed"; R: "seq"])
}

fn block(x: &Array, w: &Block) -> Array {
    let (residual, seq) = (p!["batch", "seq", "embed"], x.shape().map_or(0, |shape| shape[1]));
    let w = tree::to_compute(w, block_dims());
    let h = whole(rms_norm(x, &w.ln1));
    let qkv = einsum("btd,dchk->cbhtk", [&h, &w.qkv]);
    let [q, k, v] = [0, 1, 2].map(|i| qkv.slice(ix![i]));
    let scores = einsum("bhtk,bhsk->bhts", [&q, &k]) / ((EMBED / HEADS) as f64).sqrt();
    let causal = Array::ones([seq, seq]).tril(0).astype(Bool);
    let weights = causal.select(scores, -1e9).softmax(-1);
    let heads = einsum("bhts,bhsk->bthk", [&weights, &v]);
    let x = x + einsum_to("bthk,hkd->btd", [&heads, &w.out], residual);
    let h = whole(rms_norm(&x, &w.ln2));
    let h = einsum("btd,df->btf", [&h, &w.up]).gelu();
    &x + einsum_to("btf,fd->btd", [&h, &w.down], residual)
}

pub(crate) fn loss(m: &Transformer, ids: &Array, next: &Array) -> Array {
    let words = m.words.to_compute(p!["vocab", "embed"]);
    let mut x = words.take_to(ids, 0, p!["batch", "seq", "embed"]);
    for w in &m.blocks {
        x = block(&x, w);
    }
    let h = rms_norm(&x, &m.norm);
    let logits = einsum("btd,vd->btv", [&h, &words]);
    let right = logits.take_along_axis(&next.expand_dims(-1), -1).squeeze(-1);
    (logits.logsumexp(-1) - right).mean(..)
}

/// Returns the layouts: a name, and a mesh with the axes of each dimension of the model.
pub(crate) fn layouts(explicit: bool) -> Result<Vec<(&'static str, Mesh)>> {
    let mesh = |axes: &[(&'static str, usize)]| {
        let axes = axes.iter().copied();
        let mesh = if explicit { Mesh::new(axes) } else { Mesh::auto(axes) };
        mesh?.with_logical_axes(["batch", "seq", "embed", "heads", "mlp", "vocab"].map(|name| (name, ())))
    };
    let (line, grid) = (mesh(&[("x", 8)])?, mesh(&[("data", 2), ("model", 4)])?);
    let tensor = [("heads", "model"), ("mlp", "model")];
    Ok(vec![
        ("replicated", line.clone()),
        ("dp", line.with_logical_axes([("batch", "x")])?),
        ("fsdp", line.with_logical_axes([("batch", "x")])?.with_storage_axes([("embed", "x")])?),
        ("tp", line.with_logical_axes([("heads", "x"), ("mlp", "x")])?),
        ("dp x tp", grid.with_logical_axes(tensor)?.with_logical_axes([("batch", "data")])?),
        (
            "dp x tp, sequence",
            grid.with_logical_axes(tensor)?.with_logical_axes([("batch", "data"), ("seq", "model")])?,
        ),
        (
            "fsdp x tp",
            grid.with_logical_axes(tensor)?
                .with_logical_axes([("batch", "data")])?
                .with_storage_axes([("embed", "data")])?,
        ),
    ])
}

/// Returns the tokens of a batch of sequences, and the tokens that follow them.
pub(crate) fn batch(mesh: &Mesh, n: usize, seq: usize) -> [Array; 2] {
    let tokens = Key::new(5).randint([n, seq + 1], 0..VOCAB as i64);
    [tokens.slice(ix![.., ..-1]), tokens.slice(ix![.., 1..])].map(|x| x.put(mesh, p!["batch", "seq"]))
}
