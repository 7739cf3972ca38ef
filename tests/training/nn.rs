//! Functions of `atmesh::nn` against JAX, flax and optax, and sharded against unsharded.
//!
//! `nn/oracle.py` wrote the numbers of `nn/oracle.txt`.

mod errors;
mod lookups;
mod samplers;
mod sharded;

use crate::error_checks::Unquoted as _;
use atmesh::nn::{self, AttentionOptions, BatchStats, Rope, init};
use atmesh::prelude::*;
use std::collections::HashMap;
use std::sync::LazyLock;

/// The numbers of JAX, by name.
static ORACLE: LazyLock<HashMap<&str, Vec<f64>>> = LazyLock::new(|| {
    let line = |line: &'static str| {
        let mut words = line.split(' ');
        let name = words.next().expect("a line has a name");
        (name, words.map(|w| w.parse().expect("a number")).collect())
    };
    include_str!("nn/oracle.txt").lines().map(line).collect()
});

fn numbers(x: &Array) -> Vec<f64> {
    x.astype(F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{e}"))
}

/// Asserts that an array has JAX's elements, up to `tolerance` of the largest one.
#[track_caller]
fn agrees_within(name: &str, x: &Array, tolerance: f64) {
    let want = ORACLE.get(name).unwrap_or_else(|| panic!("the oracle has no {name}"));
    let got = numbers(x);
    assert_eq!(got.len(), want.len(), "{name}");
    let largest = want.iter().filter(|w| w.is_finite()).fold(1e-3, |m, w| f64::max(m, w.abs()));
    for (k, (got, want)) in got.iter().zip(want).enumerate() {
        let near = (got - want).abs() <= tolerance * largest || got.is_nan() && want.is_nan();
        assert!(near, "{name}: element {k} is {got}, and {want} in JAX");
    }
}
#[track_caller]
fn agrees(name: &str, x: &Array) {
    agrees_within(name, x, 3e-6);
}

/// Asserts that a function has JAX's values, and that its gradient has.
#[track_caller]
fn both(name: &str, x: &Array, f: impl Fn(&Array) -> Array) {
    let y = f(x);
    agrees(name, &y);
    let weights = Key::new(99).normal(y.shape().unwrap());
    agrees(&format!("{name}'"), &grad(x, |x| (f(&x) * &weights).sum(..)));
    // what a jitted function computes is what it computes eagerly
    let compiled = jit(|x: &Array| f(x)).call(x).unwrap();
    agrees(name, &compiled);
}

fn normal<const N: usize>(key: u64, shape: [usize; N]) -> Array {
    Key::new(key).normal(shape)
}

#[test]
fn norms() {
    let (x, scale, bias) = (normal(0, [4, 6]), normal(2, [6]), normal(3, [6]));
    both("layer_norm", &x, |x| nn::layer_norm(x, &scale, &bias));
    both("rms_norm", &x, |x| nn::rms_norm(x, &scale));
    both("group_norm", &normal(4, [2, 5, 6]), |x| nn::group_norm(x, 3, 1.0, 0.0));
    let stats = BatchStats { mean: normal(5, [6]), var: normal(6, [6]).exp() };
    both("batch_norm", &x, |x| nn::batch_norm(x, &scale, &bias, &stats, true).0);
    both("batch_norm.eval", &x, |x| nn::batch_norm(x, &scale, &bias, &stats, false).0);
    let (_, new) = nn::batch_norm(&x, &scale, &bias, &stats, true);
    agrees("batch_norm.mean", &new.mean);
    agrees("batch_norm.var", &new.var);
}

#[test]
fn norms_of_16_bit_floats_are_computed_in_float32() {
    // the sum of squares is beyond float16
    let x = Array::full(F16.array_type([4096]), 10.0);
    let y = nn::rms_norm(&x, Array::full(F16.array_type([1]), 2.0));
    assert_eq!(type_of(&y), "float16[4096]");
    assert_eq!(y.astype(F32).max(..).item::<f32>().unwrap(), 2.0);
}

#[test]
fn dropout() {
    let x = normal(0, [4, 6]);
    both("dropout", &x, |x| nn::dropout(&Key::new(7), 0.3, x));
    assert_eq!(numbers(&nn::dropout(&Key::new(7), 1.0, &x)), [0.0; 24]);
    assert_eq!(numbers(&nn::dropout(&Key::new(7), 0.0, &x)), numbers(&x));
}

#[test]
fn activations() {
    let x = normal(0, [4, 6]) * 3.0;
    let at = |name: &str, f: &dyn Fn(&Array) -> Array| {
        // JAX's numbers are those of 3 x, with the derivative in 3 x
        both(name, &x, f);
    };
    at("elu", &|x| nn::elu(x, 1.5));
    at("selu", &nn::selu);
    at("celu", &|x| nn::celu(x, 1.5));
    at("leaky_relu", &|x| nn::leaky_relu(x, 0.1));
    at("relu6", &nn::relu6);
    at("hard_sigmoid", &nn::hard_sigmoid);
    at("hard_silu", &nn::hard_silu);
    at("hard_tanh", &nn::hard_tanh);
    at("log_sigmoid", &nn::log_sigmoid);
    at("soft_sign", &nn::soft_sign);
    at("mish", &nn::mish);
    at("squareplus", &|x| nn::squareplus(x, 4.0));
    at("glu", &|x| nn::glu(x, -1));
}

#[test]
fn losses() {
    let (x, w) = (normal(0, [4, 6]), normal(1, [4, 6]));
    let labels = Array::from([5, 0, 3, 3]);
    both("sce_int", &x, |x| nn::softmax_cross_entropy_with_integer_labels(x, &labels));
    // a negative label counts from the end, and one that is out of range gives NaN
    let odd = Array::from([6, -1, -7, 2]);
    let loss = nn::softmax_cross_entropy_with_integer_labels(&x, &odd);
    agrees("sce_int.out", &loss);
    assert!(numbers(&loss)[0].is_nan() && numbers(&loss)[2].is_nan());
    both("sce", &x, |x| nn::softmax_cross_entropy(x, &w.softmax(-1)));
    both("bce", &x, |x| nn::sigmoid_binary_cross_entropy(x, w.logistic()));
    both("huber", &x, |x| nn::huber_loss(x, &w, 0.7));
    both("l2", &x, |x| nn::l2_loss(x, &w));
    let coded = nn::sigmoid_binary_cross_entropy(&x, Array::from([true]));
    assert!(coded.allclose(&nn::sigmoid_binary_cross_entropy(&x, 1)).unwrap());
}

#[test]
fn attention() {
    let (q, k, v) = (normal(10, [2, 5, 4, 8]), normal(11, [2, 5, 2, 8]), normal(12, [2, 5, 2, 8]));
    let (k4, v4) = (normal(13, [2, 5, 4, 8]), normal(14, [2, 5, 4, 8]));
    let seen = Key::new(15).bernoulli([2, 4, 5, 5], 0.6) | Array::eye(Bool.array_type([5, 5]), 0);
    let attend = |q: &Array, k: &Array, o: AttentionOptions| nn::dot_product_attention_with(q, k, &v, o);
    both("attention", &q, |q| nn::dot_product_attention(q, &k4, &v4));
    both("attention.causal", &q, |q| attend(q, &k, AttentionOptions::causal()));
    both("attention.causal.k", &k, |k| attend(&q, k, AttentionOptions::causal()));
    let all = AttentionOptions::default().mask(&seen).bias(&normal(16, [1, 4, 5, 5])).scale(0.5);
    both("attention.mask", &q, |q| attend(q, &k, all.clone()));
    let (keys, queries) = (Array::from([3, 5]), Array::from([4, 5]));
    let lengths = AttentionOptions::default().key_value_seq_lengths(&keys).query_seq_lengths(&queries);
    both("attention.lengths", &q, |q| attend(q, &k, lengths.clone()));
    let window = AttentionOptions::default().local_window_size(1, 2);
    both("attention.window", &q, |q| attend(q, &k, window.clone()));
    let [one_q, one_k, one_v] = [&q, &k, &v].map(|x| x.slice(ix![0]));
    both("attention.unbatched", &one_q, |q| {
        nn::dot_product_attention_with(q, &one_k, &one_v, AttentionOptions::causal())
    });
}

/// A cache that is filled step by step gives the results of a whole sequence, also in one program.
#[test]
fn attention_with_a_cache() {
    let [q, k, v] = [10, 11, 12].map(|key| normal(key, [2, 6, 4, 8]));
    let whole = nn::dot_product_attention_with(&q, &k, &v, AttentionOptions::causal());
    let step = jit(|q: &Array, k: &Array, v: &Array, at: &Array| {
        let options = AttentionOptions::default().key_value_seq_lengths(at + 1);
        nn::dot_product_attention_with(q, k, v, options)
    });
    for t in 0..6 {
        let one = q.slice(ix![.., t..t + 1]);
        let y = step.call((&one, &k, &v, Array::from(t))).unwrap();
        assert!(y.allclose_with(&whole.slice(ix![.., t..t + 1]), 1e-5, 1e-6).unwrap(), "step {t}");
    }
    // two sequences at different positions
    let rows = Array::from([1, 3]);
    let one = q.take_along_axis(&rows.reshape([2, 1, 1, 1]), 1);
    let options = AttentionOptions::causal().query_offset(&rows);
    let y = nn::dot_product_attention_with(&one, &k, &v, options);
    let want = whole.take_along_axis(&rows.reshape([2, 1, 1, 1]), 1);
    assert!(y.allclose_with(&want, 1e-5, 1e-6).unwrap());
}

#[test]
fn rotary_embeddings() {
    let q = normal(10, [2, 5, 4, 8]);
    let at = Array::arange(3..8);
    both("rope.halves", &q, |q| nn::rope(q, &at, &Rope::halves(1e4)));
    both("rope.interleaved", &q, |q| nn::rope(q, &at, &Rope::interleaved(1e4)));
    // positions of each sequence, and a scalar for one query
    let each = Array::from([[3, 4, 5, 6, 7], [3, 4, 5, 6, 7]]);
    agrees("rope.halves", &nn::rope(&q, &each, &Rope::halves(1e4)));
    let one = nn::rope(&q.slice(ix![.., 2..3]), &Array::from(5), &Rope::halves(1e4));
    let all = nn::rope(&q, &at, &Rope::halves(1e4));
    assert!(one.allclose(&all.slice(ix![.., 2..3])).unwrap());
}

#[test]
fn initializers() {
    let key = Key::new(20);
    let within = |name: &str, x: Array| agrees_within(&format!("init.{name}"), &x, 1e-6);
    within("lecun_normal", init::lecun_normal(&key, [3, 4]));
    within("lecun_uniform", init::lecun_uniform(&key, [3, 4]));
    within("he_normal", init::he_normal(&key, [3, 4]));
    within("he_uniform", init::he_uniform(&key, [3, 4]));
    within("glorot_normal", init::glorot_normal(&key, [3, 4]));
    within("glorot_uniform", init::glorot_uniform(&key, [3, 4]));
    within("normal", init::normal(&key, [3, 4], 0.02));
    within("uniform", init::uniform(&key, [3, 4], 0.5));
    within("truncated_normal", init::truncated_normal(&key, [3, 4], 0.1, -2.0, 2.0));
    within("conv", init::he_normal(&key, [3, 3, 2, 4]));
    let heads = init::VarianceScaling::new(1.0, init::FanMode::Average, init::Distribution::Uniform);
    within("heads", init::variance_scaling(&key, [4, 2, 3], heads.in_dims([0]).out_dims([1, 2])));
    within("orthogonal", init::orthogonal(&key, [2, 2, 3], 2.0));
    within("orthogonal.wide", init::orthogonal(&key, [2, 5], 1.0));
}

/// Parameters that are created sharded have the elements of unsharded ones.
#[test]
fn sharded_initializers() {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let on = F32.array_type([4, 8]).on(&mesh, p!["x", "y"]);
    let key = Key::new(20);
    for (sharded, whole) in [
        (init::lecun_normal(&key, on.clone()), init::lecun_normal(&key, [4, 8])),
        (init::glorot_uniform(&key, on.clone()), init::glorot_uniform(&key, [4, 8])),
        (init::orthogonal(&key, on.clone(), 1.0), init::orthogonal(&key, [4, 8], 1.0)),
    ] {
        assert_eq!(type_of(&sharded), "float32[4@x,8@y]");
        assert_eq!(numbers(&sharded), numbers(&whole));
    }
}

#[test]
fn policies_cast_floats_only() {
    let policy: nn::Policy = "params=float32,compute=bf16,output=float32".parse().unwrap();
    assert_eq!(policy, nn::Policy::new(F32, BF16, F32));
    let tree = (Array::ones([2]), Array::from([1, 2]), Key::new(0));
    let (x, i, k) = policy.cast_to_compute(&tree);
    assert_eq!(type_of((&x, &i, k.array())), "(bfloat16[2], int32[2], key<fry>[])");
    let wrong = "params=float32,compute=half".parse::<nn::Policy>().unwrap_err().unquoted();
    assert!(wrong.contains("\"half\"") && wrong.contains("compute=bfloat16"), "{wrong}");
}
