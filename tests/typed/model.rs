//! A typed transformer and the same untyped program give the same bits: loss, gradients and
//! parameters after steps of Adam.
// the typed program is the example
#[allow(dead_code, unreachable_pub)]
#[path = "../../examples/typed_transformer.rs"]
mod typed_transformer;

use atmesh::prelude::*;
use atmesh::typed::TypedMesh as _;
use atmesh::{EngineKind, einsum, einsum_to, value_and_grad};
use typed_transformer as typed;

#[derive(Clone, Tree)]
struct Params {
    table: Array,
    positions: Array,
    query: Array,
    key: Array,
    value: Array,
    out: Array,
    up: Array,
    down: Array,
    gain: Array,
    bias: Array,
    logits: Array,
}
#[derive(Clone, Tree)]
struct Examples {
    tokens: Array,
    next: Array,
    keep: Array,
}
#[derive(Clone, Tree)]
struct State {
    params: Params,
    mean: Params,
    square: Params,
    decay: [Array; 2],
}

/// Returns the untyped parameters.
fn params(p: &typed::Params) -> Params {
    let [table, positions, query, key, value, out, up, down, gain, bias, logits] =
        tree::leaves(p).try_into().unwrap();
    Params { table, positions, query, key, value, out, up, down, gain, bias, logits }
}
fn state(s: &typed::State) -> State {
    let decay = tree::leaves(&s.decay).try_into().unwrap();
    State { params: params(&s.params), mean: params(&s.mean), square: params(&s.square), decay }
}

fn layer_norm(x: &Array, p: &Params) -> Array {
    let dtype = x.ty().unwrap().dtype;
    let centered = x - x.mean(Dims::keep(2));
    let scale = (x.var(Dims::keep(2)) + 1e-5).rsqrt();
    centered * scale * p.gain.astype(dtype) + p.bias.astype(dtype)
}
fn attend(pod: &Mesh, x: &Array, p: &Params) -> Array {
    let [query, key, value] =
        [&p.query, &p.key, &p.value].map(|w| einsum("bsd,dhk->bhsk", [x, &w.astype(BF16)]));
    let scores = einsum("bhsk,bhtk->bhst", [&query, &key]) * 0.5;
    let causal = Array::ones(Bool.array_type([8, 8]).on(pod, p![])).tril(0);
    let weights = causal.select(&scores, -1e9).softmax(3);
    let mixed = einsum("bhst,bhtk->bshk", [&weights, &value]);
    einsum_to("bshk,hkd->bsd", [&mixed, &p.out.astype(BF16)], p!["Data"])
}
fn dropout(x: Array, keep: &Array) -> Array {
    keep.select(x / 0.9, 0.0)
}
fn loss(pod: &Mesh, p: &Params, e: &Examples) -> Array {
    let x = (p.table.take_to(&e.tokens, 0, p!["Data"]) + &p.positions).astype(BF16);
    let x = &x + dropout(attend(pod, &layer_norm(&x, p), p), &e.keep);
    let hidden = layer_norm(&x, p).matmul(p.up.astype(BF16)).gelu();
    let x = &x + dropout(hidden.matmul_to(p.down.astype(BF16), p!["Data"]), &e.keep);
    let logits = layer_norm(&x, p).astype(F32).matmul(&p.logits);
    let next = e.next.expand_dims(2);
    -logits.log_softmax(2).take_along_axis_to(&next, 2, p!["Data"]).mean(..)
}
fn step(pod: &Mesh, s: &State, e: &Examples) -> (State, Array, Params) {
    let (loss, g) = value_and_grad(&s.params, |p| loss(pod, &p, e));
    let decay = [&s.decay[0] * 0.9, &s.decay[1] * 0.99];
    let [first, second] = [1.0 - &decay[0], 1.0 - &decay[1]];
    let mean = tree::map2(&s.mean, &g, |m, g| m * 0.9 + g * 0.1);
    let square = tree::map2(&s.square, &g, |v, g| v * 0.99 + g.square() * 0.01);
    let steps = tree::map2(&mean, &square, |m, v| m / &first / ((v / &second).sqrt() + 1e-8));
    let params = tree::map2(&s.params, &steps, |p, step| p - step * 0.01);
    (State { params, mean, square, decay }, loss, g)
}

/// Returns types and bits of all arrays of a tree.
fn bits<T: Tree>(tree: &T) -> Vec<(String, Vec<u32>)> {
    let bits = |x: &Array| x.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
    tree::leaves(tree).iter().map(|x| (type_of(x).to_string(), bits(x))).collect()
}

#[test]
fn typed_and_untyped_transformers_agree_in_every_bit() {
    let pod = typed::Pod::mesh().unwrap();
    let examples = typed::examples(&pod);
    let [tokens, next, keep] = tree::leaves(&examples).try_into().unwrap();
    let untyped_examples = Examples { tokens, next, keep };
    let mut results = Vec::new();
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let typed_step = jit(|s: &typed::State, e: &typed::Examples| typed::step(&pod, s, e)).engine(engine);
        let untyped_step = jit(|s: &State, e: &Examples| step(&pod, s, e)).engine(engine);
        let mut s = typed::start(&pod);
        let mut u = state(&s);
        for n in 0..3 {
            let a = typed_step.call((&s, &examples)).unwrap();
            let b = untyped_step.call((&u, &untyped_examples)).unwrap();
            let (x, y) = (bits(&a), bits(&b));
            assert!(x.iter().flat_map(|x| &x.1).all(|bits| f32::from_bits(*bits).is_finite()));
            for (k, (x, y)) in x.iter().zip(&y).enumerate() {
                assert_eq!(x, y, "array {k} of step {n} on {engine:?}");
            }
            assert_eq!(x.len(), y.len());
            results.push(x);
            (s, u) = (a.0, b.0);
        }
    }
    let (lockstep, rest) = results.split_at(3);
    assert!(lockstep == &rest[..3], "lockstep and threads");
}
