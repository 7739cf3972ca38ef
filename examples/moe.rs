//! A mixture of experts: each token goes to one of eight experts, two of which each of four devices
//! has. Tokens travel to their expert and back by two all-to-alls.
use atmesh::nn;
use atmesh::optim::{self, OptState};
use atmesh::prelude::*;

const EXPERTS: usize = 8;
const DEVICES: usize = 4;
const TOKENS: usize = 512;
const WIDTH: usize = 32;
/// The number of places for tokens that each expert has on each device.
const CAPACITY: usize = 48;
const VOCABULARY: usize = 128;
/// The number of characters from which the next one is predicted.
const CONTEXT: usize = 4;

// ANCHOR: experts
#[derive(Clone, Tree)]
struct Experts<T = Array> {
    router: T,
    up: T,
    down: T,
}

/// Returns the expert of each token, and the weight of its result.
fn route(m: &Experts, x: &Array) -> (Array, Array) {
    let (weight, expert) = x.dot(&m.router).softmax(-1).top_k(1, -1);
    (expert.squeeze(-1), weight)
}

/// The layer on one device: tokens are sorted by expert, and each expert's are a group of rows.
fn sorted_by_expert(m: &Experts, x: &Array) -> Result<Array> {
    let (expert, weight) = route(m, x);
    let order = expert.argsort(0);
    let sizes = expert.bincount(EXPERTS);
    let y = x.take(&order, 0).ragged_dot(&m.up, &sizes).gelu().ragged_dot(&m.down, &sizes);
    Ok(y.take(&order.argsort(0), 0) * weight)
}
// ANCHOR_END: experts

// ANCHOR: exchange
/// The layer on many devices: the code of one, which has some tokens and some experts.
fn exchanged(m: &Experts, x: &Array) -> Array {
    let (expert, weight) = route(m, x);
    // the place of a token is the number of earlier tokens of its expert
    let hot = expert.one_hot(EXPERTS);
    let place = ((hot.cumsum(0) - 1.0) * &hot).sum(-1).astype(I32);
    // a token without a place is dropped, and its result is 0
    let weight = place.expand_dims(1).lt(CAPACITY as i32).select(weight, 0.0);
    let buffer = Array::zeros([EXPERTS, CAPACITY, WIDTH]).pvary("expert");
    let sent = buffer.at(ix![&expert, &place]).set(x);
    let here = sent.all_to_all("expert", AllToAll::split(0).concat(1)); // two experts, all tokens
    let h = einsum("etd,edh->eth", [&here, &m.up]).gelu();
    let y = einsum("eth,ehd->etd", [&h, &m.down]);
    let back = y.all_to_all("expert", AllToAll::split(1).concat(0)); // all experts, own tokens
    back.at(ix![&expert, &place]).get() * weight
}
// ANCHOR_END: exchange

#[derive(Clone, Tree)]
struct Model<T = Array> {
    embedding: T,
    experts: Experts<T>,
    head: T,
}

type Layer<'a> = &'a dyn Fn(&Experts, &Array) -> Result<Array>;

/// Returns the loss of the model with this layer of experts.
fn loss(m: &Model, (text, next): &(Array, Array), layer: Layer<'_>) -> Result<Array> {
    let x = nn::embed(&m.embedding, text).reshape([TOKENS, WIDTH]);
    let x = &x + layer(&m.experts, &nn::rms_norm(&x, 1.0))?;
    Ok(nn::softmax_cross_entropy_with_integer_labels(&x.dot(&m.head), next).mean(..))
}

/// Returns characters and the one after them, at random positions of a text.
fn batch(step: i64) -> (Array, Array) {
    let text = include_str!("../LICENSE-APACHE").split_whitespace().collect::<Vec<_>>().join(" ");
    let end = (text.len() - CONTEXT) as i64;
    let text = Array::from(text.bytes().map(i32::from).collect::<Vec<_>>());
    let at = Key::new(1).fold_in(step).randint(I32.array_type([TOKENS]), 0..end);
    let windows = at.expand_dims(1) + Array::arange(0..CONTEXT as i32);
    (text.take(&windows, 0), text.take(&(at + CONTEXT as i32), 0))
}

fn main() -> Result<()> {
    let init = |i, shape: [usize; 3]| Key::new(i).normal(shape) * 0.1;
    let experts = Experts {
        router: init(0, [1, WIDTH, EXPERTS]).squeeze(0),
        up: init(1, [EXPERTS, WIDTH, 2 * WIDTH]),
        down: init(2, [EXPERTS, 2 * WIDTH, WIDTH]),
    };
    let embedding = init(3, [1, VOCABULARY, WIDTH / CONTEXT]).squeeze(0);
    let model = Model { embedding, experts, head: init(4, [1, WIDTH, VOCABULARY]).squeeze(0) };

    // ANCHOR: train
    let mesh = Mesh::new([("expert", DEVICES)])?;
    let by_expert = || Experts { router: p![], up: p!["expert"], down: p!["expert"] };
    let layer = shard_map(&mesh, (by_expert(), p!["expert"]), p!["expert"], exchanged);
    let optimizer = optim::adam(1e-2);
    let step = jit(|m: &Model, state: &OptState, batch: &(Array, Array)| {
        let (value, grads) = value_and_grad(m, |m| loss(&m, batch, &|m, x| layer.call((m, x))));
        let (m, state) = optimizer.step(m, &grads, state);
        (value, m, state)
    });
    // ANCHOR_END: train
    let shardings = Model { embedding: p![], experts: by_expert(), head: p![] };
    let put = |i| tree::put(&batch(i), &mesh, (p!["expert"], p!["expert"]));
    let mut m = tree::put(&model, &mesh, shardings);
    let mut state = optimizer.init(&m)?;
    println!("{}", step.lower((&m, &state, &put(0)))?.collectives());
    let on_one = loss(&model, &batch(0), &sorted_by_expert)?;
    println!("loss on one device: {:.4}", on_one.item::<f32>()?);
    for i in 0..10 {
        let (value, new_m, new_state) = step.call((&m, &state, &put(i)))?;
        println!("step {i}: loss {:.4}", value.item::<f32>()?);
        (m, state) = (new_m, new_state);
    }
    Ok(())
}
