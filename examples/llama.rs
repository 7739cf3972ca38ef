//! A Llama in Hugging Face's layout: loaded onto a mesh, and decoded with a sharded cache.
//! `llama [FOLDER]` takes another model than the tiny one of the tests.
use atmesh::nn::{self, AttentionOptions, NormOptions, Rope};
use atmesh::tree::{LoadOptions, load_safetensors_with};
use atmesh::{Error, prelude::*};
use std::path::Path;

// ANCHOR: model
// The paths of the fields are the names of the tensors: `model.layers.0.mlp.up_proj.weight`.
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
pub(crate) struct Llama<T = Array> {
    model: Decoder<T>,
    lm_head: Weight<T>,
}
// ANCHOR_END: model

/// The sizes of a model, with the names of Hugging Face's `config.json`.
pub(crate) struct Config {
    hidden_size: usize,
    num_attention_heads: usize,
    num_key_value_heads: usize,
    intermediate_size: usize,
    num_hidden_layers: usize,
    pub(crate) vocab_size: usize,
    rms_norm_eps: f64,
    rope_theta: f64,
    tie_word_embeddings: bool,
}

impl Config {
    pub(crate) fn read(folder: &Path) -> Result<Config> {
        let text = std::fs::read_to_string(folder.join("config.json")).map_err(Error::other)?;
        let config: serde_json::Value = serde_json::from_str(&text).map_err(Error::other)?;
        let number = |name: &str| {
            config[name].as_f64().ok_or_else(|| Error::other(format!("config.json has no number `{name}`")))
        };
        let size = |name: &str| Ok::<usize, Error>(number(name)? as usize);
        Ok(Config {
            hidden_size: size("hidden_size")?,
            num_attention_heads: size("num_attention_heads")?,
            num_key_value_heads: size("num_key_value_heads")?,
            intermediate_size: size("intermediate_size")?,
            num_hidden_layers: size("num_hidden_layers")?,
            vocab_size: size("vocab_size")?,
            rms_norm_eps: number("rms_norm_eps")?,
            rope_theta: number("rope_theta")?,
            tie_word_embeddings: config["tie_word_embeddings"].as_bool().unwrap_or(false),
        })
    }
    fn head_size(&self) -> usize {
        self.hidden_size / self.num_attention_heads
    }
}

// ANCHOR: load
/// Returns the types of the weights, `[outputs, inputs]`, with dimensions in names of the model.
fn types(c: &Config, mesh: &Mesh) -> Llama<ArrayType> {
    let weight = |shape: [usize; 2], dims| Weight { weight: F32.array_type(shape).on(mesh, dims) };
    let scale = || Weight { weight: F32.array_type([c.hidden_size]).on(mesh, p!["embed"]) };
    let (d, f, vocab) = (c.hidden_size, c.intermediate_size, c.vocab_size);
    let keys = c.num_key_value_heads * c.head_size();
    let layer = |_| Layer {
        input_layernorm: scale(),
        self_attn: Attention {
            q_proj: weight([d, d], p!["heads", "embed"]),
            k_proj: weight([keys, d], p!["heads", "embed"]),
            v_proj: weight([keys, d], p!["heads", "embed"]),
            o_proj: weight([d, d], p!["embed", "heads"]),
        },
        post_attention_layernorm: scale(),
        mlp: Mlp {
            gate_proj: weight([f, d], p!["mlp", "embed"]),
            up_proj: weight([f, d], p!["mlp", "embed"]),
            down_proj: weight([d, f], p!["embed", "mlp"]),
        },
    };
    let table = || weight([vocab, d], p!["vocab", "embed"]);
    let layers = (0..c.num_hidden_layers).map(layer).collect();
    Llama { model: Decoder { embed_tokens: table(), layers, norm: scale() }, lm_head: table() }
}

/// Loads a model onto a mesh: each array is read, converted to float32, and placed.
pub(crate) fn load(folder: &Path, c: &Config, mesh: &Mesh) -> Result<Llama> {
    let options = LoadOptions::default().cast();
    let tied = c.tie_word_embeddings;
    let options = if tied { options.copy("model.embed_tokens.*", "lm_head.*") } else { options };
    load_safetensors_with(types(c, mesh), folder, options)
}
// ANCHOR_END: load

// ANCHOR: forward
/// The keys and values of the tokens so far, for each layer: `[batch, positions, heads, features]`.
#[derive(Clone, Tree)]
pub(crate) struct Cache<T = Array> {
    keys: Vec<T>,
    values: Vec<T>,
    /// The number of tokens so far.
    filled: T,
}

pub(crate) fn empty_cache(c: &Config, mesh: &Mesh, [batch, positions]: [usize; 2]) -> Cache {
    let shape = [batch, positions, c.num_key_value_heads, c.head_size()];
    let zeros = || Array::zeros(F32.array_type(shape).on(mesh, p!["batch", _, "heads", _]));
    let layers = || Vec::from_iter((0..c.num_hidden_layers).map(|_| zeros()));
    Cache { keys: layers(), values: layers(), filled: Array::from(0).put(mesh, p![]) }
}

/// Computes the logits of tokens `[batch, t]`, which follow those of the cache.
pub(crate) fn forward(m: &Llama, c: &Config, cache: &Cache, ids: &Array) -> Result<(Array, Cache)> {
    let [b, t] = ids.shape()?[..] else { return Err(Error::other("ids are [batch, t]")) };
    let (mut cache, residual) = (cache.clone(), p!["batch", _, "embed"]);
    let at = &cache.filled + Array::arange(0..t as i32);
    let (rope, causal) = (Rope::halves(c.rope_theta), AttentionOptions::causal().query_offset(&cache.filled));
    let norm = |x: &Array, w: &Weight| {
        nn::rms_norm_with(x, &w.weight, NormOptions::default().epsilon(c.rms_norm_eps))
    };
    let linear = |x: &Array, w: &Weight| einsum("bti,oi->bto", [x, &w.weight]);
    let heads = |x: &Array, w: &Weight, n: usize| linear(x, w).reshape([b, t, n, c.head_size()]);
    let mut x = nn::embed(&m.model.embed_tokens.weight, ids);
    for (i, layer) in m.model.layers.iter().enumerate() {
        let (h, w) = (norm(&x, &layer.input_layernorm), &layer.self_attn);
        let q = nn::rope(&heads(&h, &w.q_proj, c.num_attention_heads), &at, &rope);
        let k = nn::rope(&heads(&h, &w.k_proj, c.num_key_value_heads), &at, &rope);
        let v = heads(&h, &w.v_proj, c.num_key_value_heads);
        cache.keys[i] = cache.keys[i].at(ix![.., &at]).set(k);
        cache.values[i] = cache.values[i].at(ix![.., &at]).set(v);
        let y = nn::dot_product_attention_with(&q, &cache.keys[i], &cache.values[i], causal.clone());
        let y = y.reshape([b, t, c.hidden_size]);
        x += einsum_to("bti,oi->bto", [&y, &w.o_proj.weight], residual);
        let (h, w) = (norm(&x, &layer.post_attention_layernorm), &layer.mlp);
        let y = linear(&h, &w.gate_proj).silu() * linear(&h, &w.up_proj);
        x += einsum_to("bti,oi->bto", [&y, &w.down_proj.weight], residual);
    }
    cache.filled = &cache.filled + t as i32;
    Ok((linear(&norm(&x, &m.model.norm), &m.lm_head), cache))
}
// ANCHOR_END: forward

// ANCHOR: decode
/// How a token is chosen from logits `[batch, vocab]`.
#[derive(Clone, Copy)]
pub(crate) enum Sampling {
    /// The most probable token.
    Greedy,
    /// A draw among the `k` most probable tokens, of logits that are divided by the temperature.
    TopK { k: usize, temperature: f64 },
}

impl Sampling {
    fn choose(self, logits: &Array, key: &Key) -> Array {
        let logits = logits.reshard(p!["batch", _]);
        match self {
            Sampling::Greedy => logits.argmax(-1),
            Sampling::TopK { k, temperature } => {
                let (best, ids) = logits.top_k(k, -1);
                let drawn = key.categorical(&(best / temperature), -1);
                ids.take_along_axis(&drawn.expand_dims(-1), -1).squeeze(-1)
            }
        }
    }
}

/// Returns `n` tokens that follow the prompts, as `[n, batch]`.
pub(crate) fn decode(
    m: &Llama,
    c: &Config,
    cache: &Cache,
    prompts: &Array,
    n: i32,
    sampling: Sampling,
) -> Result<Array> {
    let key = Key::new(1);
    let (logits, cache) = forward(m, c, cache, prompts)?;
    let first = sampling.choose(&logits.slice(ix![.., -1]), &key);
    let (_, tokens) = scan((first, cache), Array::arange(1..n + 1), |(id, cache), i| {
        let (logits, cache) = forward(m, c, &cache, &id.expand_dims(1))?;
        let next = sampling.choose(&logits.slice(ix![.., 0]), &key.fold_in(i));
        Ok(((next, cache), id))
    });
    Ok(tokens)
}
// ANCHOR_END: decode

/// Returns a mesh that shards batch, heads, hidden units and vocabulary.
pub(crate) fn layout(data: usize, model: usize) -> Result<Mesh> {
    Mesh::new([("data", data), ("model", model)])?
        .with_logical_axes([("batch", "data"), ("heads", "model"), ("mlp", "model"), ("vocab", "model")])?
        .with_logical_axes([("embed", ())])
}

fn main() -> Result<()> {
    let tiny = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/safetensors/hf/llama").to_string();
    let folder = std::env::args().nth(1).unwrap_or(tiny);
    let c = Config::read(folder.as_ref())?;
    let prompts = Key::new(0).randint([4, 6], 0..c.vocab_size as i64);
    let mut all = Vec::new();
    for mesh in [layout(2, 4)?, layout(1, 1)?] {
        let model = load(folder.as_ref(), &c, &mesh)?;
        let (prompts, cache) = (prompts.put(&mesh, p!["batch"]), empty_cache(&c, &mesh, [4, 32]));
        if mesh.devices().len() > 1 {
            println!("{mesh}\n{}", tree::summary(&model.model.layers[0])?);
            println!("cache: {}", type_of(&cache.keys[0]));
            let one = prompts.slice(ix![.., ..1]);
            let step = jit(|m: &Llama, cache: &Cache, ids: &Array| forward(m, &c, cache, ids));
            println!("one token:\n{}", step.lower((&model, &cache, &one))?.collectives());
        }
        for sampling in [Sampling::Greedy, Sampling::TopK { k: 8, temperature: 0.7 }] {
            let decode = jit(|m: &Llama, cache: &Cache, ids: &Array| decode(m, &c, cache, ids, 16, sampling));
            all.push(decode.call((&model, &cache, &prompts))?.t().to_vec::<i32>()?);
        }
    }
    let [greedy, drawn, same @ ..] = &all[..] else { unreachable!("four decodings") };
    for (name, tokens) in [("greedy", greedy), ("top 8, temperature 0.7", drawn)] {
        println!("{name}:");
        tokens.chunks(16).for_each(|row| println!("    {row:?}"));
    }
    println!("the same tokens on one device: {}", same[0] == *greedy && same[1] == *drawn);
    Ok(())
}
