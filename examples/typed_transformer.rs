//! A transformer block, its loss and Adam: all sizes and shardings are in Rust types.
//!
//! The batch is sharded over `Data`; heads, hidden units and the vocabulary over `Model`.
//! Activations are bfloat16, parameters and the loss float32.
#![allow(missing_docs)]

use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use atmesh::value_and_grad;

mesh! { pub struct Pod { Data: 2, Model: 2 } }
dim!(pub Batch = 4);
dim!(pub Seq = 8);
dim!(pub Vocab = 32);
dim!(pub Embed = 16);
dim!(pub Heads = 4);
dim!(pub Head = 4);
dim!(pub Hidden = 32);

#[derive(Clone, Tree)]
pub struct Params {
    pub table: T![f32; Vocab, Embed@Model],
    pub positions: T![f32; Seq, Embed],
    pub query: T![f32; Embed, Heads@Model, Head],
    pub key: T![f32; Embed, Heads@Model, Head],
    pub value: T![f32; Embed, Heads@Model, Head],
    pub out: T![f32; Heads@Model, Head, Embed],
    pub up: T![f32; Embed, Hidden@Model],
    pub down: T![f32; Hidden@Model, Embed],
    pub gain: T![f32; Embed],
    pub bias: T![f32; Embed],
    pub logits: T![f32; Embed, Vocab@Model],
}
/// The activations that dropout keeps.
pub type Kept = T![bool; Batch@Data, Seq, Embed];
/// Tokens, the tokens that follow them, and the activations that dropout keeps.
#[derive(Clone, Tree)]
pub struct Examples {
    pub tokens: T![i32; Batch@Data, Seq],
    pub next: T![i32; Batch@Data, Seq],
    pub keep: Kept,
}

// ANCHOR: model
type Hiddens<T> = T![T; Batch@Data, Seq, Embed];

/// Normalizes the last dim, in any floating-point type.
fn layer_norm<T: Float>(x: &Hiddens<T>, p: &Params) -> Hiddens<T> {
    let centered = x - x.mean(keep(D2));
    let scale = (x.var(keep(D2)) + 1e-5).rsqrt();
    centered * scale * p.gain.convert::<T>() + p.bias.convert::<T>()
}

/// Causal attention. Each device along `Model` computes its heads.
fn attend(pod: &MeshOf<Pod>, x: &Hiddens<bf16>, p: &Params) -> Hiddens<bf16> {
    let query = einsum!("bsd,dhk->bhsk", x, p.query.convert::<bf16>());
    let key = einsum!("bsd,dhk->bhsk", x, p.key.convert::<bf16>());
    let value = einsum!("bsd,dhk->bhsk", x, p.value.convert::<bf16>());
    let scores: T![bf16; Batch@Data, Heads@Model, Seq, Seq] = einsum!("bhsk,bhtk->bhst", query, key) * 0.5;
    let causal = <T![bool; Seq, Seq]>::ones(pod).tril(0);
    let weights = causal.select(&scores, -1e9).softmax(D3);
    let mixed = einsum!("bhst,bhtk->bshk", weights, value);
    // the sum over heads is an all-reduce over `Model`
    einsum!("bshk,hkd->bsd", mixed, p.out.convert::<bf16>(), P![=, _, _])
}

fn feed_forward(x: &Hiddens<bf16>, p: &Params) -> Hiddens<bf16> {
    let hidden: T![bf16; Batch@Data, Seq, Hidden@Model] = x.matmul(&p.up.convert::<bf16>()).gelu();
    hidden.matmul_to(&p.down.convert::<bf16>(), P![=, _, _])
}

/// Sets elements to zero where `keep` is false, and scales the others.
fn dropout<T: Float>(x: Hiddens<T>, keep: &Kept) -> Hiddens<T> {
    keep.select(x / 0.9, 0.0)
}

/// The mean cross entropy of the predicted tokens.
pub fn loss(pod: &MeshOf<Pod>, p: &Params, e: &Examples) -> T![f32;] {
    let embedded = p.table.take_to(&e.tokens, D0, P![=, =, _]) + &p.positions;
    let x: Hiddens<bf16> = embedded.convert();
    let x = &x + dropout(attend(pod, &layer_norm(&x, p), p), &e.keep);
    let x = &x + dropout(feed_forward(&layer_norm(&x, p), p), &e.keep);
    let last: Hiddens<f32> = layer_norm(&x, p).convert();
    let logits: T![f32; Batch@Data, Seq, Vocab@Model] = last.matmul(&p.logits);
    let next = e.next.expand_dims(D2);
    let picked = logits.log_softmax(D2).take_along_axis_to(&next, D2, P![=, =, _]);
    -picked.mean(..)
}
// ANCHOR_END: model

// ANCHOR: adam
/// One step of Adam for a parameter of any shape and sharding. Returns the parameter and both
/// moments.
fn adam<S: ElementwiseShape>(
    [p, m, v, g]: [&Typed<f32, S>; 4],
    correction: &[T![f32;]; 2],
) -> [Typed<f32, S>; 3] {
    let m = m * 0.9 + g * 0.1;
    let v = v * 0.99 + g.square() * 0.01;
    let [first, second] = correction;
    let step = &m / first.as_number() / ((&v / second.as_number()).sqrt() + 1e-8);
    [p - step * 0.01, m, v]
}

/// Calls [`adam`] for each field.
macro_rules! update {
    ($p:ident $m:ident $v:ident $g:ident $correction:ident; $($field:ident)*) => {{
        $( let $field = adam([&$p.$field, &$m.$field, &$v.$field, &$g.$field], $correction); )*
        let p = Params { $( $field: $field[0].clone() ),* };
        let m = Params { $( $field: $field[1].clone() ),* };
        let v = Params { $( $field: $field[2].clone() ),* };
        (p, m, v)
    }};
}

/// Parameters, and the mean and the mean square of their gradients.
#[derive(Clone, Tree)]
pub struct State {
    pub params: Params,
    pub mean: Params,
    pub square: Params,
    /// 0.9ⁿ and 0.99ⁿ after n steps.
    pub decay: [T![f32;]; 2],
}

/// One step of training. The gradients have the types of the parameters.
pub fn step(pod: &MeshOf<Pod>, s: &State, e: &Examples) -> (State, T![f32;], Params) {
    let (loss, g) = value_and_grad(&s.params, |p| loss(pod, &p, e));
    let decay = [&s.decay[0] * 0.9, &s.decay[1] * 0.99];
    let correction = &[1.0 - &decay[0], 1.0 - &decay[1]];
    let (p, m, v) = (&s.params, &s.mean, &s.square);
    let (params, mean, square) = update!(p m v g correction;
        table positions query key value out up down gain bias logits);
    (State { params, mean, square, decay }, loss, g)
}
// ANCHOR_END: adam

/// Parameters with random numbers, and moments of zero.
pub fn start(pod: &MeshOf<Pod>) -> State {
    let keys: [Key; 9] = Key::new(7).split();
    let params = Params {
        table: Typed::normal(pod, &keys[0]) * 0.3,
        positions: Typed::normal(pod, &keys[1]) * 0.3,
        query: Typed::normal(pod, &keys[2]) * 0.2,
        key: Typed::normal(pod, &keys[3]) * 0.2,
        value: Typed::normal(pod, &keys[4]) * 0.2,
        out: Typed::normal(pod, &keys[5]) * 0.2,
        up: Typed::normal(pod, &keys[6]) * 0.2,
        down: Typed::normal(pod, &keys[7]) * 0.2,
        gain: Typed::ones(pod),
        bias: Typed::zeros(pod),
        logits: Typed::normal(pod, &keys[8]) * 0.2,
    };
    let zeros = || tree::map(&params, |p| p.zeros_like());
    let (mean, square) = (zeros(), zeros());
    State { mean, square, params, decay: [Typed::full(pod, 1.0), Typed::full(pod, 1.0)] }
}

/// Sequences in which each token is followed by the next number.
pub fn examples(pod: &MeshOf<Pod>) -> Examples {
    let first = <T![i32; Batch@Data, Seq]>::iota(pod, D0) * 5;
    let tokens = first + <T![i32; Batch@Data, Seq]>::iota(pod, D1);
    let keep = Kept::bernoulli(pod, &Key::new(8), 0.9);
    Examples { next: &tokens + 1, tokens, keep }
}

fn main() -> Result<()> {
    let pod = Pod::mesh()?;
    let (mut state, examples) = (start(&pod), examples(&pod));
    let train = jit(|s: &State, e: &Examples| {
        let (next, loss, _) = step(&pod, s, e);
        (next, loss)
    });
    let mut losses = Vec::new();
    for _ in 0..60 {
        let (next, loss) = train.call((&state, &examples))?;
        state = next;
        losses.push(loss.item()?);
    }
    println!("loss {:.2} at first, {:.2} after 60 steps", losses[0], losses[59]);
    println!("{}", type_of(&state.params));
    assert!(losses[59] < losses[0] / 4.0);
    Ok(())
}
