//! A character-level transformer, trained on the text of the book, and resumed on another mesh:
//! `char_gpt [STEPS]`. With `--log` it prints the time of each stage, and of each step.
mod training;
use atmesh::nn::softmax_cross_entropy_with_integer_labels as cross_entropy;
use atmesh::nn::{self, AttentionOptions, NormOptions, init};
use atmesh::optim::{self, Adam, OptState, WeightDecay};
use atmesh::prelude::*;

const STEPS: u64 = 300;
const T: usize = 64;
const D: usize = 64;
const HEADS: usize = 4;
const LAYERS: usize = 2;

#[derive(Clone, Tree)]
struct Block<W = Array> {
    norms: [[W; 2]; 2],
    qkv: W,
    out: W,
    up: [W; 2],
    down: [W; 2],
}
#[derive(Clone, Tree)]
pub(crate) struct Gpt<W = Array> {
    words: W,
    places: W,
    blocks: Vec<Block<W>>,
    norm: [W; 2],
}

/// Makes each parameter by its shape, its dimensions in names of the model, and its scale.
fn gpt<W>(vocab: usize, mut w: impl FnMut(&[usize], Spec, f64) -> W) -> Gpt<W> {
    let (k, f, small) = (D / HEADS, 4 * D, 0.02 / (2.0 * LAYERS as f64).sqrt());
    Gpt {
        words: w(&[vocab, D], p!["vocab", "embed"], 0.02),
        places: w(&[T, D], p![_, "embed"], 0.02),
        blocks: Vec::from([(); LAYERS].map(|()| Block {
            norms: [(); 2].map(|()| [1.0, 0.0].map(|x| w(&[D], p!["embed"], x))),
            qkv: w(&[D, 3, HEADS, k], p!["embed", _, "heads", _], 0.02),
            out: w(&[HEADS, k, D], p!["heads", _, "embed"], small),
            up: [w(&[D, f], p!["embed", "mlp"], 0.02), w(&[f], p!["mlp"], 0.0)],
            down: [w(&[f, D], p!["mlp", "embed"], small), w(&[D], p!["embed"], 0.0)],
        })),
        norm: [1.0, 0.0].map(|x| w(&[D], p!["embed"], x)),
    }
}
fn dims() -> Gpt<Spec> {
    gpt(0, |_, dims, _| dims)
}
fn random_gpt(key: &Key, vocab: usize) -> Gpt {
    let [a, b, c] = key.split();
    let mut keys = [vec![a, b], c.split_vec(LAYERS).iter().flat_map(|c| c.split_vec(4)).collect()].concat();
    gpt(vocab, |shape, _, scale| match shape {
        [n] => Array::full([*n], scale),
        _ => init::normal(&keys.remove(0), shape, scale),
    })
}
fn norm(x: &Array, [scale, bias]: &[Array; 2]) -> Array {
    nn::layer_norm_with(x, scale, bias, NormOptions::default().epsilon(1e-5))
}
fn block(x: &Array, w: &Block, key: &Key, rate: f64) -> Array {
    let [a, b, c] = key.split();
    let qkv = einsum("btd,dchk->cbthk", [&norm(x, &w.norms[0]), &w.qkv]);
    let [q, k, v] = [0, 1, 2].map(|i| qkv.slice(ix![i]));
    let y = nn::dot_product_attention_with(&q, &k, &v, AttentionOptions::causal().dropout(&a, rate));
    let x = x + nn::dropout(&b, rate, &einsum_to("bthk,hkd->btd", [&y, &w.out], p!["batch", _, "embed"]));
    let y = einsum("btd,df->btf", [&norm(&x, &w.norms[1]), &w.up[0]]) + &w.up[1];
    let y = einsum_to("btf,fd->btd", [&y.gelu(), &w.down[0]], p!["batch", _, "embed"]) + &w.down[1];
    x + nn::dropout(&c, rate, &y)
}
fn logits(m: &Gpt, ids: &Array, key: &Key, rate: f64) -> Array {
    let (m, keys) = (tree::to_compute(m, dims()), key.split_vec(LAYERS + 1));
    let x = nn::dropout(&keys[LAYERS], rate, &(nn::embed(&m.words, ids) + &m.places));
    let x = m.blocks.iter().zip(&keys).fold(x, |x, (w, key)| block(&x, w, key, rate));
    einsum("btd,vd->btv", [&norm(&x, &m.norm), &m.words])
}
/// Trains up to a step, from the newest saved one on. Returns the model and the losses.
pub(crate) fn train(folder: &std::path::Path, mesh: &Mesh, steps: u64) -> Result<(Gpt, Vec<(u64, f32)>)> {
    let rate = optim::warmup_cosine_decay_schedule(0.0, 3e-3, 30, STEPS, 3e-4);
    let decay = WeightDecay::new(0.1).mask(|_, ty| ty.rank() >= 2);
    let opt = optim::clip_by_global_norm(1.0).then(optim::adamw_with(rate, Adam::default().b2(0.99), decay));
    let step = jit(|m: &Gpt, state: &OptState, ids: &Array, next: &Array| {
        let key = Key::new(1).fold_in(&state.count);
        let (loss, g) = value_and_grad(m, |m| cross_entropy(&logits(&m, ids, &key, 0.1), next).mean(..));
        let (m, state) = opt.step(m, &g, state);
        (m, state, loss)
    });
    let (step, text) = (step.donate([0, 1]), training::Text::read()?);
    let model = tree::put_stored(&random_gpt(&Key::new(0), text.chars.len()), mesh, dims());
    let (state, mut saves) = (opt.init(&model)?, tree::Checkpoints::new(folder)?.every(5).keep(2));
    let found = saves.restore((&model, &state))?.map(|found| (found.step, found.tree));
    let (first, (mut model, mut state)) = found.unwrap_or((0, (model, state)));
    let mut progress = training::Progress::new(first..steps)?;
    for (i, [ids, next]) in (first..steps).zip(text.batches(first..steps, [16, T], mesh)) {
        let loss;
        (model, state, loss) = step.call((model, state, ids, next))?;
        progress.add(i, &loss)?;
        saves.save(i + 1, (&model, &state))?; // every 5 steps
    }
    saves.wait()?;
    Ok((model, progress.losses))
}

/// Returns a mesh over which the batch is sharded.
pub(crate) fn layout<const N: usize>(axes: [(&'static str, usize); N]) -> Result<Mesh> {
    let mesh = Mesh::new(axes)?.with_logical_axes(["embed", "heads", "mlp", "vocab"].map(|n| (n, ())))?;
    mesh.with_logical_axes([("batch", mesh.axis_names())])
}
/// Draws `n` characters that follow rows of characters.
fn sample(m: &Gpt, rows: &Array, n: u64) -> Array {
    let draw = |rows: Array, i: Array| {
        let key = Key::new(2).fold_in(i);
        let next = key.categorical(&(logits(m, &rows, &key, 0.0).slice(ix![.., -1]) / 0.8), -1);
        (concat([&rows.slice(ix![.., 1..]), &next.expand_dims(1)], 1), next)
    };
    scan(rows, Array::arange(0..n as i32), draw).1
}

fn main() -> Result<()> {
    let steps = training::steps_argument().unwrap_or(STEPS);
    let folder = std::env::temp_dir().join(format!("char_gpt-{}", std::process::id()));
    let (text, line, grid) = (training::Text::read()?, layout([("x", 8)])?, layout([("x", 2), ("y", 4)])?);
    let (_, losses) = train(&folder, &line, steps - 5)?;
    let (model, rest) = train(&folder, &grid, steps)?; // goes on with the same bits
    training::report("char_gpt", &[losses, rest].concat())?;
    let [rows, _] = text.batch(0, [8, T], &grid);
    let drawn = jit(|m: &Gpt, rows: &Array| sample(m, rows, steps)).call((&model, &rows))?;
    println!("{}", text.decode(&concat([&rows, &drawn.t()], 1).reshard(p![]).slice(ix![0]))?);
    std::fs::remove_dir_all(folder).map_err(atmesh::Error::other)
}
