use crate::fsdp::fsdp;
use crate::model::*;
use atmesh::optim::OptState;
use atmesh::{Args, prelude::*};

pub(crate) fn main() -> Result<()> {
    println!("== train");
    losses()?;
    println!("== costs");
    costs()?;
    println!("== dropped");
    dropped()?;
    println!("== error");
    error()
}

const EXPERTS: usize = 8;

// ANCHOR: parameters
/// Each wide matrix has one more dimension: the expert. `router` scores the experts of a character.
#[derive(Clone, Tree)]
struct Experts<W = Array> {
    gpt: Gpt<W>,
    router: W,
}
fn experts<W>(s: Sizes, mut w: impl FnMut(&[usize], Spec) -> W) -> Experts<W> {
    let (l, d, f) = (s.layers, s.embed, 4 * s.embed);
    let mut gpt = gpt(s, &mut w);
    gpt.layers.up = w(&[l, EXPERTS, d, f], p!["layers", "experts", _, _]);
    gpt.layers.down = w(&[l, EXPERTS, f, d], p!["layers", "experts", _, _]);
    Experts { gpt, router: w(&[l, d, EXPERTS], p!["layers", _, _]) }
}
// ANCHOR_END: parameters

// ANCHOR: layout
fn layout() -> Result<Mesh> {
    fsdp()?.with_logical_axes([("experts", "x")])
}
// ANCHOR_END: layout

// ANCHOR: route
/// Returns for each character its expert, its position among those of this expert, and its weight.
fn route(x: &Array, router: &Array, room: usize) -> (Array, Array, Array) {
    let (weight, expert) = x.dot(router).softmax(-1).top_k(1, -1);
    let hot = expert.squeeze(-1).one_hot(EXPERTS);
    let place = ((hot.cumsum(0) - 1.0) * &hot).sum(-1).astype(I32); // how many came before
    let weight = place.expand_dims(1).lt(room as i32).select(weight, 0.0); // too late: dropped
    (expert.squeeze(-1), place, weight)
}
// ANCHOR_END: route

// ANCHOR: exchange
/// The code of one device, for its characters `[n, embed]` and its experts.
fn exchange(x: &Array, router: &Array, up: &Array, down: &Array) -> Array {
    let [n, embed] = [0, 1].map(|d| x.shape().map_or(0, |shape| shape[d]));
    let room = 2 * n / EXPERTS; // each expert has room for twice its share
    let (expert, place, weight) = route(x, router, room);
    let sent = Array::zeros([EXPERTS, room, embed]).pvary("x").at(ix![&expert, &place]).set(x);
    let here = sent.all_to_all("x", AllToAll::split(0).concat(1)); // own experts, all characters
    let made = einsum("end,edf->enf", [&here, up]).gelu();
    let made = einsum("enf,efd->end", [&made, down]);
    let back = made.all_to_all("x", AllToAll::split(1).concat(0)); // all experts, own characters
    back.at(ix![&expert, &place]).get() * weight
}
// ANCHOR_END: exchange

// ANCHOR: layer
fn layer_of_experts(x: &Array, w: &Layer, router: &Array) -> Result<Array> {
    let (dims, shape) = (layer_dims(), x.shape()?);
    let gathered = Layer { qkv: w.qkv.to_compute(dims.qkv), out: w.out.to_compute(dims.out), ..w.clone() };
    let x = x + attention(&normed(x), &gathered);
    let specs = (p!["batch", _], p![], p!["experts", _, _], p!["experts", _, _]);
    let exchange = shard_map(&layout()?, specs, p!["batch", _], exchange);
    let rows = normed(&x).reshape([shape[0] * shape[1], shape[2]]);
    let made = exchange.call((&rows, router, &w.up, &w.down))?;
    Ok(&x + made.reshape(shape))
}
// ANCHOR_END: layer

fn run_experts(x: &Array, layers: &Layer, router: &Array) -> Result<Array> {
    let (x, _) = scan(x, (layers, router), |x: Array, (w, router): (Layer, Array)| {
        let save = CheckpointPolicy::SaveAllButGathers;
        let layer = |(x, w, router): (Array, Layer, Array)| layer_of_experts(&x, &w, &router);
        (checkpoint_with((&x, &w, &router), save, layer), ())
    });
    Ok(x)
}
fn step(m: &Experts, state: &OptState, ids: &Array, next: &Array) -> (Array, Experts, OptState) {
    let loss =
        |m: Experts| loss_with(&m.gpt, ids, next, |x, layers| run_experts(x, layers, &m.router).unwrap());
    let (loss, g) = value_and_grad(m, loss);
    let (m, state) = optimizer().step(m, &g, state);
    (loss, m, state)
}

// ANCHOR: train
fn losses() -> Result<()> {
    let mesh = layout()?;
    let mut keys = Key::new(0).split_vec(9).into_iter();
    let m = experts(SMALL, |shape, dims| {
        let key = keys.next().expect("there are nine");
        (key.normal(shape) * 0.1).put_stored(&mesh, dims)
    });
    for (i, loss) in train_from(m, step, 9, &mesh)?.iter().enumerate().step_by(4) {
        println!("step {i}: loss {loss:.4}");
    }
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: costs
fn costs() -> Result<()> {
    let (mesh, s) = (layout()?, Sizes { layers: 16, ..LARGE });
    print_costs(&lower(crate::model::step, s, &fsdp()?)?)?;
    let mut parameters = 0;
    experts(s, |shape, _| parameters += shape.iter().product::<usize>());
    println!("with experts: {parameters} parameters");
    let m = experts(s, |shape, dims| F32.array_type(shape).into_tree().put_stored(&mesh, dims));
    print_costs(&lower_from(m, step, s, &mesh)?)
}
// ANCHOR_END: costs

// ANCHOR: dropped
fn dropped() -> Result<()> {
    let (x, router) = (Key::new(1).normal([256, 32]), Key::new(2).normal([32, EXPERTS]));
    println!("characters of each expert: {}", route(&x, &router, 256).0.bincount(EXPERTS));
    for room in [32, 64] {
        let kept = route(&x, &router, room).2.gt(0.0).astype(I32).sum(..);
        println!("room for {room}: {} of 256 have a place", kept.item::<i32>()?);
    }
    Ok(())
}
// ANCHOR_END: dropped

// ANCHOR: error
fn error() -> Result<()> {
    let six = Array::zeros([6, 32, 128]).put_stored(&layout()?, p!["experts", _, _]);
    if let Err(e) = six.ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error
