//! The project of the part "Training": a transformer that predicts the next character of the book.
use atmesh::nn::softmax_cross_entropy_with_integer_labels as cross_entropy;
use atmesh::nn::{self, AttentionOptions};
use atmesh::optim::{self, Adam, OptState, Optimizer, WeightDecay};
use atmesh::plan::{Link, Machine, Plan};
use atmesh::{Args, prelude::*};

// ANCHOR: parameters
#[derive(Clone, Tree)]
pub(crate) struct Gpt<W = Array> {
    pub(crate) words: W,
    pub(crate) places: W,
    pub(crate) layers: Layer<W>, // of all layers, stacked
}
#[derive(Clone, Tree)]
pub(crate) struct Layer<W = Array> {
    pub(crate) qkv: W,
    pub(crate) out: W,
    pub(crate) up: W,
    pub(crate) down: W,
}
// ANCHOR_END: parameters

// ANCHOR: sizes
#[derive(Clone, Copy)]
pub(crate) struct Sizes {
    pub(crate) layers: usize,
    pub(crate) embed: usize,
    pub(crate) heads: usize,
    pub(crate) vocab: usize,
    pub(crate) batch: usize,
    pub(crate) seq: usize,
}
/// The model that these pages train, and the one for which they print reports and plans.
pub(crate) const SMALL: Sizes = Sizes { layers: 2, embed: 32, heads: 8, vocab: 95, batch: 16, seq: 16 };
pub(crate) const LARGE: Sizes =
    Sizes { layers: 32, embed: 4096, heads: 32, vocab: 32768, batch: 128, seq: 256 };
// ANCHOR_END: sizes

// ANCHOR: gpt
/// Makes each parameter from its shape, and from the names of its dimensions.
pub(crate) fn gpt<W>(s: Sizes, mut w: impl FnMut(&[usize], Spec) -> W) -> Gpt<W> {
    let (l, d, k, f) = (s.layers, s.embed, s.embed / s.heads, 4 * s.embed);
    Gpt {
        words: w(&[s.vocab, d], p!["vocab", "embed"]),
        places: w(&[s.seq, d], p!["seq", "embed"]),
        layers: Layer {
            qkv: w(&[l, d, 3, s.heads, k], p!["layers", "embed", _, "heads", _]),
            out: w(&[l, s.heads, k, d], p!["layers", "heads", _, "embed"]),
            up: w(&[l, d, f], p!["layers", "embed", "mlp"]),
            down: w(&[l, f, d], p!["layers", "mlp", "embed"]),
        },
    }
}
// ANCHOR_END: gpt

/// Returns the names of the dimensions of one layer's parameters.
pub(crate) fn layer_dims() -> Layer<Spec> {
    Layer {
        qkv: p!["embed", _, "heads", _; R: "batch"],
        out: p!["heads", _, "embed"; R: "batch"],
        up: p!["embed", "mlp"; R: "batch"],
        down: p!["mlp", "embed"; R: "batch"],
    }
}

// ANCHOR: layer
pub(crate) fn attention(x: &Array, w: &Layer) -> Array {
    let qkv = einsum("btd,dchk->cbthk", [x, &w.qkv]).unstack(0);
    let y = nn::dot_product_attention_with(&qkv[0], &qkv[1], &qkv[2], AttentionOptions::causal());
    einsum_to("bthk,hkd->btd", [&y, &w.out], p!["batch", "seq", "embed"])
}
pub(crate) fn mlp(x: &Array, w: &Layer) -> Array {
    let h = einsum("btd,df->btf", [x, &w.up]).gelu();
    einsum_to("btf,fd->btd", [&h, &w.down], p!["batch", "seq", "embed"])
}
pub(crate) fn layer(x: &Array, w: &Layer) -> Array {
    let w = tree::to_compute(w, layer_dims());
    let x = x + attention(&normed(x), &w);
    &x + mlp(&normed(&x), &w)
}
// ANCHOR_END: layer

// ANCHOR: normed
/// Normalizes each position, and gathers the sequence if it is split.
pub(crate) fn normed(x: &Array) -> Array {
    nn::rms_norm(x, 1.0).reshard(p!["batch", _, "embed"])
}
// ANCHOR_END: normed

// ANCHOR: loss
/// Applies all layers, one after another.
pub(crate) fn run(x: &Array, layers: &Layer) -> Array {
    scan(x, layers, |x: Array, w: Layer| {
        let save = CheckpointPolicy::SaveAllButGathers;
        (checkpoint_with((&x, &w), save, |(x, w): (Array, Layer)| layer(&x, &w)), ())
    })
    .0
}
pub(crate) fn loss(m: &Gpt, ids: &Array, next: &Array) -> Array {
    loss_with(m, ids, next, run)
}
// ANCHOR_END: loss

// ANCHOR: loss_with
/// Returns the mean loss of a model whose layers are applied by a function.
pub(crate) fn loss_with(m: &Gpt, ids: &Array, next: &Array, run: impl Fn(&Array, &Layer) -> Array) -> Array {
    let words = m.words.to_compute(p!["vocab", "embed"; R: "batch"]);
    let x = nn::embed(&words, ids) + m.places.to_compute(p!["seq", "embed"; R: "batch"]);
    let x = run(&x, &m.layers);
    let logits = einsum("btd,vd->btv", [&nn::rms_norm(&x, 1.0), &words]);
    cross_entropy(&logits, next).mean(..)
}
// ANCHOR_END: loss_with

// ANCHOR: text
/// The characters of this book, as numbers.
pub(crate) struct Text {
    pub(crate) chars: Vec<char>,
    count: usize,
    ids: Array,
}
impl Text {
    pub(crate) fn read() -> Result<Text> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/data/book.txt");
        let text = std::fs::read_to_string(path).map_err(atmesh::Error::other)?;
        let chars: std::collections::BTreeSet<char> = text.chars().collect();
        let chars = Vec::from_iter(chars);
        let ids: Vec<i32> = text.chars().map(|c| chars.partition_point(|d| *d < c) as i32).collect();
        Ok(Text { chars, count: ids.len(), ids: Array::from(ids) })
    }
    /// Returns rows of characters at random places, and for each character the next one.
    pub(crate) fn batch(&self, i: usize, s: Sizes, mesh: &Mesh) -> [Array; 2] {
        let last = self.count - s.seq - 1;
        let at = Key::new(1).fold_in(i as i64).randint([s.batch, 1], 0..last as i64);
        let rows = self.ids.take(&(at + Array::arange(0..s.seq as i32 + 1)), 0);
        [rows.slice(ix![.., ..-1]), rows.slice(ix![.., 1..])].map(|x| x.put(mesh, p!["batch", "seq"]))
    }
}
// ANCHOR_END: text

// ANCHOR: unsplit
/// Gives a mesh the names of the model's dimensions, and splits none of them.
pub(crate) fn unsplit<const N: usize>(axes: [(&'static str, usize); N]) -> Result<Mesh> {
    let names = ["batch", "seq", "layers", "embed", "heads", "mlp", "vocab"];
    Mesh::new(axes)?.with_logical_axes(names.map(|name| (name, ())))
}
// ANCHOR_END: unsplit

// ANCHOR: optimizer
pub(crate) fn optimizer() -> Optimizer {
    let rate = optim::warmup_cosine_decay_schedule(0.0, 1e-2, 5, 40, 1e-3);
    let decay = WeightDecay::new(0.1).mask(|path, _| path.starts_with("layers"));
    optim::chain([optim::clip_by_global_norm(1.0), optim::adamw_with(rate, Adam::default(), decay)])
}
pub(crate) fn step(m: &Gpt, state: &OptState, ids: &Array, next: &Array) -> (Array, Gpt, OptState) {
    let (loss, g) = value_and_grad(m, |m| loss(&m, ids, next));
    let (m, state) = optimizer().step(m, &g, state);
    (loss, m, state)
}
// ANCHOR_END: optimizer

// ANCHOR: start
/// Returns random parameters on a mesh.
pub(crate) fn start(mesh: &Mesh) -> Gpt {
    let mut keys = Key::new(0).split_vec(6).into_iter();
    gpt(SMALL, |shape, dims| {
        let key = keys.next().expect("there are six parameters");
        (key.normal(shape) * 0.1).put_stored(mesh, dims)
    })
}
// ANCHOR_END: start

pub(crate) type StepFn<M = Gpt> = fn(&M, &OptState, &Array, &Array) -> (Array, M, OptState);

/// Trains the small model for some steps, and returns the losses.
pub(crate) fn train(step: StepFn, steps: usize, mesh: &Mesh) -> Result<Vec<f32>> {
    train_from(start(mesh), step, steps, mesh)
}
// ANCHOR: train
pub(crate) fn train_from<M: Tree + Args<Owned = M>>(
    mut m: M,
    step: StepFn<M>,
    steps: usize,
    mesh: &Mesh,
) -> Result<Vec<f32>> {
    let (text, mut state) = (Text::read()?, optimizer().init(&m)?);
    let step = jit(step).donate([0, 1]);
    let mut losses = Vec::new();
    for i in 0..steps {
        let [ids, next] = text.batch(i, SMALL, mesh);
        let loss;
        (loss, m, state) = step.call((m, state, ids, next))?;
        losses.push(loss.item::<f32>()?);
    }
    Ok(losses)
}
// ANCHOR_END: train

pub(crate) type Step<M = Gpt> = Lowered<(M, OptState, Array, Array), (Array, M, OptState)>;

// ANCHOR: lower
/// Compiles a step of a model for a mesh. Types take the place of arrays.
pub(crate) fn lower(step: StepFn, s: Sizes, mesh: &Mesh) -> Result<Step> {
    let m = gpt(s, |shape, dims| F32.array_type(shape).into_tree().put_stored(mesh, dims));
    lower_from(m, step, s, mesh)
}
pub(crate) fn lower_from<M: Tree + Args<Owned = M>>(
    m: M,
    step: StepFn<M>,
    s: Sizes,
    mesh: &Mesh,
) -> Result<Step<M>> {
    let state = optimizer().init(&m)?;
    let ids = I32.array_type([s.batch, s.seq]).on(mesh, p!["batch", "seq"]);
    jit(step).donate([0, 1]).lower((m, state, &ids, &ids))
}
/// Plans it for H100s that are linked by NVLink.
pub(crate) fn plan<M: Tree + Args<Owned = M>>(step: &Step<M>) -> Result<Plan> {
    step.plan(&Machine::h100().links(Link::NVLINK_4))
}
// ANCHOR_END: lower

// ANCHOR: costs
/// Prints what a device receives in each phase, without sums of a few numbers, and the plan.
pub(crate) fn print_costs<M: Tree + Args<Owned = M>>(step: &Step<M>) -> Result<()> {
    let mut rows: Vec<(String, u64, u64)> = Vec::new();
    for c in step.collectives().iter().filter(|c| c.bytes_per_device > 100_000) {
        let name = format!("{:10} {:14} {:5}", c.phase.name(), c.kind.to_string(), c.axes.to_string());
        let i = rows.iter().position(|row| row.0 == name).unwrap_or(rows.len());
        if i == rows.len() {
            rows.push((name, 0, 0));
        }
        rows[i].1 += c.count;
        rows[i].2 += c.count * c.bytes_per_device;
    }
    for (name, count, bytes) in rows {
        println!("{name} {count:4} times {:6.1} GB", bytes as f64 / 1e9);
    }
    println!("{}", summary(&plan(step)?));
    Ok(())
}
/// Returns the peak memory, and the time of a step.
pub(crate) fn summary(plan: &Plan) -> String {
    format!(
        "peak {:.0} GB, {:.0} ms, of which {:.0} ms wait for communication",
        plan.peak_bytes() as f64 / 1e9,
        1e3 * plan.seconds(),
        1e3 * plan.exposed_seconds().max(0.0),
    )
}
// ANCHOR_END: costs
