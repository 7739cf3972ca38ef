//! One transformer, written once, under seven layouts with explicit and with auto axes.
//!
//! The model names its own dimensions, and no axis of a mesh. Four steps have the same losses under
//! each layout. The collectives are in `tests/golden/training/layouts.txt`, which
//! `scripts/bless training` writes.

use atmesh::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

const EMBED: usize = 64;
const HEADS: usize = 8;
const MLP: usize = 256;
const LAYERS: usize = 2;
const SEQ: usize = 32;
const BATCH: usize = 16;
const VOCAB: usize = 96;

#[derive(Clone, Tree)]
struct Block<W = Array> {
    ln1: W,
    qkv: W,
    out: W,
    ln2: W,
    up: W,
    down: W,
}

#[derive(Clone, Tree)]
struct Transformer<W = Array> {
    words: W,
    blocks: Vec<Block<W>>,
    norm: W,
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

fn dims() -> Transformer<Spec> {
    Transformer { words: p!["vocab", "embed"], blocks: vec![block_dims(); LAYERS], norm: p![_] }
}

fn init() -> Transformer {
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
        blocks: (1..=LAYERS).map(block).collect(),
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
    let residual = p!["batch", "seq", "embed"];
    let w = tree::to_compute(w, block_dims());
    let h = whole(rms_norm(x, &w.ln1));
    let qkv = einsum("btd,dchk->cbhtk", [&h, &w.qkv]);
    let [q, k, v] = [0, 1, 2].map(|i| qkv.slice(ix![i]));
    let scores = einsum("bhtk,bhsk->bhts", [&q, &k]) / ((EMBED / HEADS) as f64).sqrt();
    let causal = Array::ones([SEQ, SEQ]).tril(0).astype(Bool);
    let weights = causal.select(scores, -1e9).softmax(-1);
    let heads = einsum("bhts,bhsk->bthk", [&weights, &v]);
    let x = x + einsum_to("bthk,hkd->btd", [&heads, &w.out], residual);
    let h = whole(rms_norm(&x, &w.ln2));
    let h = einsum("btd,df->btf", [&h, &w.up]).gelu();
    &x + einsum_to("btf,fd->btd", [&h, &w.down], residual)
}

fn loss(m: &Transformer, ids: &Array, next: &Array) -> Array {
    let words = m.words.to_compute(p!["vocab", "embed"]);
    let table = m.words.reshard(p!["vocab", "embed"]);
    let mut x = table.take_to(ids, 0, p!["batch", "seq", "embed"]);
    for w in &m.blocks {
        x = block(&x, w);
    }
    let h = rms_norm(&x, &m.norm);
    let logits = einsum("btd,vd->btv", [&h, &words]);
    let right = logits.take_along_axis(&next.expand_dims(-1), -1).squeeze(-1);
    (logits.logsumexp(-1) - right).mean(..)
}

/// One step of gradient descent: returns the loss and the new parameters.
fn step(m: &Transformer, ids: &Array, next: &Array) -> (Array, Transformer) {
    let (loss, g) = value_and_grad(m, |m| loss(&m, ids, next));
    (loss, tree::map2(m, &g, |w, g| w - 0.3 * g))
}

/// Returns the layouts: a name, and a mesh with the axes of each dimension of the model.
fn layouts(explicit: bool) -> Result<Vec<(&'static str, Mesh)>> {
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

/// What one layout does: the losses of four steps, the collectives of a step, and sizes in bytes.
struct Outcome {
    losses: Vec<f32>,
    collectives: BTreeMap<String, (u64, u64)>,
    bytes: u64,
    stored: usize,
}

fn run(mesh: &Mesh) -> Result<Outcome> {
    let mut m = tree::put_stored(&init(), mesh, dims());
    let tokens = Key::new(5).randint([BATCH, SEQ + 1], 0..VOCAB as i64);
    let ids = tokens.slice(ix![.., ..-1]).put(mesh, p!["batch", "seq"]);
    let next = tokens.slice(ix![.., 1..]).put(mesh, p!["batch", "seq"]);
    let shard_bytes = |w: &Array| -> Result<usize> {
        let sharding = w.sharding()?.expect("a stored parameter is on a mesh");
        Ok(sharding.shard_shape(&w.shape()?)?.iter().product::<usize>() * 4)
    };
    let stored = tree::leaves(&m).iter().map(shard_bytes).sum::<Result<usize>>()?;
    let step = jit(step);
    let lowered = step.lower((&m, &ids, &next))?;
    let mut collectives: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for c in lowered.collectives().iter() {
        let entry = collectives.entry(format!("{} {}", c.kind, c.axes)).or_default();
        entry.0 += c.count;
        entry.1 += c.bytes_per_device * c.count;
    }
    let mut losses = Vec::new();
    for _ in 0..4 {
        let (loss, next_m) = step.call((&m, &ids, &next))?;
        losses.push(loss.item::<f32>()?);
        m = next_m;
    }
    Ok(Outcome { losses, collectives, bytes: lowered.collectives().bytes(), stored })
}

#[test]
fn one_model_under_seven_layouts_and_two_modes() -> Result<()> {
    let mut text = String::new();
    let mut all: Vec<(String, Outcome)> = Vec::new();
    for explicit in [true, false] {
        for (name, mesh) in layouts(explicit)? {
            let mode = if explicit { "explicit" } else { "auto" };
            let outcome = run(&mesh)?;
            let (bytes, stored) = (outcome.bytes, outcome.stored);
            writeln!(text, "{name}, {mode}: {bytes} bytes, parameters of a device: {stored} bytes").unwrap();
            writeln!(text, "    {mesh}").unwrap();
            for (kind, (times, bytes)) in &outcome.collectives {
                writeln!(text, "    {times} x {kind}: {bytes} bytes").unwrap();
            }
            all.push((format!("{name}, {mode}"), outcome));
        }
    }
    let first = all[0].1.losses.clone();
    for (name, outcome) in &all {
        for (a, b) in outcome.losses.iter().zip(&first) {
            assert!((a - b).abs() < 1e-6, "{name}: {:?} instead of {first:?}", outcome.losses);
        }
    }
    compare_with_golden("layouts", &text);
    for mode in ["explicit", "auto"] {
        let of = |name: &str| &all.iter().find(|(n, _)| *n == format!("{name}, {mode}")).unwrap().1;
        let times = |name: &str, kind: &str| {
            let of = of(name).collectives.iter().filter(|(k, _)| k.starts_with(kind));
            of.map(|(_, (times, _))| times).sum::<u64>()
        };
        assert!(times("dp", "all_reduce") <= 16);
        assert_eq!(of("dp").collectives.len(), 1);
        assert!(of("tp").bytes <= 1_577_016);
        // three times for the state of an optimizer with two moments, and its count
        assert_eq!(3 * of("fsdp").stored + 4, 160_516);
    }
    Ok(())
}

/// Compares with the golden text; `ATMESH_BLESS=1` writes it again.
pub(crate) fn compare_with_golden(name: &str, text: &str) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/training");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("ATMESH_BLESS").is_some() {
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{} differs from:\n{text}", path.display());
}
