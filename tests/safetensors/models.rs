//! Models in the layout of Hugging Face's libraries: a Llama of two bfloat16 files, and a GPT-2
//! with one layer for queries, keys and values. `hf/make.py` made the files and the logits.

use atmesh::prelude::*;
use atmesh::tree::{LoadOptions, load_safetensors_with};

/// The folder of the files.
fn folder(model: &str) -> String {
    format!("{}/tests/safetensors/hf/{model}", env!("CARGO_MANIFEST_DIR"))
}
/// The meshes: one device, 2 × 4 devices, and 8 devices that share the batch.
fn meshes() -> [Mesh; 3] {
    [(1, 1), (2, 4), (8, 1)].map(|(data, model)| Mesh::new([("data", data), ("model", model)]).unwrap())
}
/// Compares the logits of a model with those of the script.
fn check(model: &str, mesh: &Mesh, logits: impl Fn(&Array) -> Result<Array>) -> Result<()> {
    let ids = Array::load_npy(folder(model) + "/ids.npy")?.put(mesh, p!["data"]);
    let wanted = Array::load_npy(folder(model) + "/logits.npy")?;
    let difference = (logits(&ids)?.reshard(p![]) - wanted.put(mesh, p![])).abs().max(..).item::<f32>()?;
    assert!(difference <= 1e-5, "{model} on {mesh}: the logits differ by {difference}");
    Ok(())
}
/// Scaled products of queries `[b, t, g, r, k]` with keys `[b, s, g, k]`, causal.
fn attention(q: &Array, k: &Array, v: &Array, tokens: usize, size: usize) -> Array {
    let scores = einsum("btgrk,bsgk->bgrts", [q, k]) / (size as f64).sqrt();
    let weights = Array::tri([tokens, tokens], 0).astype(Bool).select(scores, -1e30).softmax(-1);
    einsum("bgrts,bsgk->btgrk", [&weights, v])
}

#[derive(Clone, Tree)]
struct Weight<T = Array> {
    weight: T,
}
#[derive(Clone, Tree)]
struct Attention<T = Array> {
    q_proj: Weight<T>,
    k_proj: Weight<T>,
    v_proj: Weight<T>,
    o_proj: Weight<T>,
}
#[derive(Clone, Tree)]
struct Mlp<T = Array> {
    gate_proj: Weight<T>,
    up_proj: Weight<T>,
    down_proj: Weight<T>,
}
#[derive(Clone, Tree)]
struct Layer<T = Array> {
    input_layernorm: Weight<T>,
    self_attn: Attention<T>,
    post_attention_layernorm: Weight<T>,
    mlp: Mlp<T>,
}
#[derive(Clone, Tree)]
struct Decoder<T = Array> {
    embed_tokens: Weight<T>,
    layers: Vec<Layer<T>>,
    norm: Weight<T>,
}
#[derive(Clone, Tree)]
struct Llama<T = Array> {
    model: Decoder<T>,
    lm_head: Weight<T>,
}

const D: usize = 32;
const TOKENS: usize = 6;
const BATCH: usize = 8;

/// Types of the weights: those of layers are sharded over `model`.
fn llama_types(mesh: &Mesh) -> Llama<ArrayType> {
    let w = |shape: [usize; 2], spec: Spec| Weight { weight: F32.array_type(shape).on(mesh, spec) };
    let scale = || Weight { weight: F32.array_type([D]).on(mesh, p![]) };
    let (rows, columns) = (p!["model"], p![_, "model"]);
    let layer = |_| Layer {
        input_layernorm: scale(),
        self_attn: Attention {
            q_proj: w([32, D], rows),
            k_proj: w([16, D], rows),
            v_proj: w([16, D], rows),
            o_proj: w([D, 32], columns),
        },
        post_attention_layernorm: scale(),
        mlp: Mlp { gate_proj: w([48, D], rows), up_proj: w([48, D], rows), down_proj: w([D, 48], columns) },
    };
    let model =
        Decoder { embed_tokens: w([64, D], p![]), layers: (0..2).map(layer).collect(), norm: scale() };
    Llama { model, lm_head: w([64, D], rows) }
}
fn rms_norm(x: &Array, scale: &Array) -> Array {
    x * (x.square().mean(Dims::keep(-1)) + 1e-5).rsqrt() * scale
}
/// Rotates the halves of the last dimension by the position along dimension 1.
fn rope(x: &Array, k: usize, rank: usize) -> Array {
    let inverse = (Array::arange(0.0..k as f32 / 2.0) * (-2.0 * 10000f64.ln() / k as f64)).exp();
    let angle = Array::arange(0.0..TOKENS as f32).outer(&inverse);
    let angle = concat([&angle, &angle], 1).expand_dims((1..rank - 2).collect::<Vec<usize>>());
    let halves = x.split([k / 2, k / 2], -1);
    x * angle.cos() + concat([&-&halves[1], &halves[0]], -1) * angle.sin()
}
fn llama(m: &Llama, ids: &Array) -> Array {
    let (rest, k) = (p!["data"], 4);
    let mut x = m.model.embed_tokens.weight.take_to(ids, 0, rest);
    for layer in &m.model.layers {
        let h = rms_norm(&x, &layer.input_layernorm.weight);
        let linear = |w: &Weight| einsum("btd,ed->bte", [&h, &w.weight]);
        let q = rope(&linear(&layer.self_attn.q_proj).reshape([BATCH, TOKENS, 4, 2, k]), k, 5);
        let keys = rope(&linear(&layer.self_attn.k_proj).reshape([BATCH, TOKENS, 4, k]), k, 4);
        let v = linear(&layer.self_attn.v_proj).reshape([BATCH, TOKENS, 4, k]);
        let out = attention(&q, &keys, &v, TOKENS, k).reshape([BATCH, TOKENS, 32]);
        x = &x + einsum_to("bte,de->btd", [&out, &layer.self_attn.o_proj.weight], rest);
        let h = rms_norm(&x, &layer.post_attention_layernorm.weight);
        let linear = |w: &Weight| einsum("btd,ed->bte", [&h, &w.weight]);
        let gate = linear(&layer.mlp.gate_proj);
        let y = &gate * gate.logistic() * linear(&layer.mlp.up_proj);
        x = &x + einsum_to("bte,de->btd", [&y, &layer.mlp.down_proj.weight], rest);
    }
    einsum("btd,vd->btv", [&rms_norm(&x, &m.model.norm.weight), &m.lm_head.weight])
}

/// bfloat16 files load into float32 weights, onto any mesh.
#[test]
fn a_llama_of_two_files_has_its_logits_on_all_meshes() -> Result<()> {
    for mesh in meshes() {
        let types = llama_types(&mesh);
        let model = load_safetensors_with(types, folder("llama"), LoadOptions::default().cast())?;
        check("llama", &mesh, |ids| jit(llama).call((&model, ids)))?;
    }
    Ok(())
}

#[derive(Clone, Tree)]
struct Linear<T = Array> {
    weight: T,
    bias: T,
}
#[derive(Clone, Tree)]
struct SplitAttention<T = Array> {
    q: Linear<T>,
    k: Linear<T>,
    v: Linear<T>,
    c_proj: Linear<T>,
}
#[derive(Clone, Tree)]
struct FeedForward<T = Array> {
    c_fc: Linear<T>,
    c_proj: Linear<T>,
}
#[derive(Clone, Tree)]
struct Block<T = Array> {
    ln_1: Linear<T>,
    attn: SplitAttention<T>,
    ln_2: Linear<T>,
    mlp: FeedForward<T>,
}
#[derive(Clone, Tree)]
struct Gpt2<T = Array> {
    wte: Weight<T>,
    wpe: Weight<T>,
    h: Vec<Block<T>>,
    ln_f: Linear<T>,
}

/// Types of the weights; those of queries, keys and values are `[outputs, inputs]`.
fn gpt2_types(mesh: &Mesh) -> Gpt2<ArrayType> {
    let linear = |shape: [usize; 2], bias: usize, spec: Spec, bias_spec: Spec| Linear {
        weight: F32.array_type(shape).on(mesh, spec),
        bias: F32.array_type([bias]).on(mesh, bias_spec),
    };
    let norm =
        || Linear { weight: F32.array_type([D]).on(mesh, p![]), bias: F32.array_type([D]).on(mesh, p![]) };
    let table = |rows: usize| Weight { weight: F32.array_type([rows, D]).on(mesh, p![]) };
    let heads = || linear([D, D], D, p!["model"], p!["model"]);
    let block = |_| Block {
        ln_1: norm(),
        attn: SplitAttention {
            q: heads(),
            k: heads(),
            v: heads(),
            c_proj: linear([D, D], D, p!["model"], p![]),
        },
        ln_2: norm(),
        mlp: FeedForward {
            c_fc: linear([D, 4 * D], 4 * D, p![_, "model"], p!["model"]),
            c_proj: linear([4 * D, D], D, p!["model"], p![]),
        },
    };
    Gpt2 { wte: table(64), wpe: table(16), h: (0..2).map(block).collect(), ln_f: norm() }
}
fn layer_norm(x: &Array, l: &Linear) -> Array {
    let centered = x - x.mean(Dims::keep(-1));
    &centered * (centered.square().mean(Dims::keep(-1)) + 1e-5).rsqrt() * &l.weight + &l.bias
}
fn gpt2(m: &Gpt2, ids: &Array) -> Array {
    let rest = p!["data"];
    let mut x = m.wte.weight.take_to(ids, 0, rest) + m.wpe.weight.slice(ix![..TOKENS as i64]);
    for block in &m.h {
        let h = layer_norm(&x, &block.ln_1);
        let heads =
            |l: &Linear| (einsum("btd,ed->bte", [&h, &l.weight]) + &l.bias).reshape([BATCH, TOKENS, 4, 8]);
        let [q, k, v] = [&block.attn.q, &block.attn.k, &block.attn.v].map(heads);
        let out = attention(&q.expand_dims(3), &k, &v, TOKENS, 8).reshape([BATCH, TOKENS, D]);
        x = &x + einsum_to("bte,ed->btd", [&out, &block.attn.c_proj.weight], rest) + &block.attn.c_proj.bias;
        let h = layer_norm(&x, &block.ln_2);
        let h = (einsum("btd,de->bte", [&h, &block.mlp.c_fc.weight]) + &block.mlp.c_fc.bias).gelu();
        x = &x + einsum_to("bte,ed->btd", [&h, &block.mlp.c_proj.weight], rest) + &block.mlp.c_proj.bias;
    }
    einsum("btd,vd->btv", [&layer_norm(&x, &m.ln_f), &m.wte.weight])
}

/// The layer of queries, keys and values is split and transposed while it is loaded.
#[test]
fn a_gpt2_has_its_logits_on_all_meshes() -> Result<()> {
    for mesh in meshes() {
        // ANCHOR: gpt2
        let options = LoadOptions::default()
            .split("*.c_attn.*", -1, ["*.q.*", "*.k.*", "*.v.*"])
            .transpose("*.attn.q.weight")
            .transpose("*.attn.k.weight")
            .transpose("*.attn.v.weight")
            .ignore("*.attn.bias");
        let model = load_safetensors_with(gpt2_types(&mesh), folder("gpt2"), options)?;
        // ANCHOR_END: gpt2
        check("gpt2", &mesh, |ids| jit(gpt2).call((&model, ids)))?;
    }
    Ok(())
}
