//! Sharded arrays give the results, gradients and types that unsharded ones suggest.

use super::numbers;
use atmesh::nn::{self, AttentionOptions, BatchStats, Rope};
use atmesh::prelude::*;

/// A function of several arrays, and the specs of its operands in each layout.
type Case<'a> = (&'a str, &'a dyn Fn(&[Array]) -> Array, Vec<Array>, Vec<Vec<Spec>>);

/// Compares values and gradients (of the first operand) in each layout, on explicit and auto axes, with
/// those of unsharded operands.
fn compare((name, f, operands, layouts): Case<'_>) {
    let loss = |args: &[Array]| {
        let y = f(args);
        let weights = Key::new(99).normal(y.shape().unwrap());
        (&y * weights).sum(..)
    };
    let run = |args: Vec<Array>| {
        let step = jit(|args: &Vec<Array>| {
            let rest = args[1..].to_vec();
            let (_, g) = value_and_grad(&args[0], |x| {
                let args: Vec<Array> = std::iter::once(x).chain(rest.iter().cloned()).collect();
                loss(&args)
            });
            (f(args), g)
        });
        step.call(&args).unwrap_or_else(|e| panic!("{name}: {e}"))
    };
    let whole = run(operands.clone());
    for axis_type in [AxisType::Explicit, AxisType::Auto] {
        let axes = [("x", 2), ("y", 2)];
        let mesh = if axis_type == AxisType::Auto { Mesh::auto(axes) } else { Mesh::new(axes) }.unwrap();
        for specs in &layouts {
            let put = operands.iter().zip(specs).map(|(a, spec)| a.put(&mesh, *spec)).collect();
            let (y, g) = run(put);
            for (what, got, want) in [("value", &y, &whole.0), ("gradient", &g, &whole.1)] {
                for (got, want) in numbers(got).iter().zip(numbers(want)) {
                    let near = (got - want).abs() <= 1e-5 * (1.0 + want.abs());
                    assert!(near, "{name} {axis_type:?} {specs:?}: {what} {got}, not {want}");
                }
            }
            if axis_type == AxisType::Explicit {
                assert_eq!(type_of(&g), type_of(operands[0].put(&mesh, specs[0])), "{name} {specs:?}");
            }
        }
    }
}

fn normal<const N: usize>(key: u64, shape: [usize; N]) -> Array {
    Key::new(key).normal(shape)
}

#[test]
fn norms_and_activations() {
    let x = || normal(0, [4, 6]);
    let affine = |a: &[Array]| nn::layer_norm(&a[0], &a[1], &a[2]);
    compare((
        "layer_norm",
        &affine,
        vec![x(), normal(1, [6]), normal(2, [6])],
        vec![
            vec![p!["x"], p![], p![]],
            vec![p![_, "x"], p!["x"], p![]],
            vec![p!["x", "y"], p!["y"], p!["y"]],
        ],
    ));
    compare((
        "rms_norm",
        &|a| nn::rms_norm(&a[0], &a[1]),
        vec![x(), normal(1, [6])],
        vec![vec![p!["x"], p![]], vec![p!["x", "y"], p![]]],
    ));
    let stats = BatchStats::new(6);
    compare((
        "batch_norm",
        &|a| nn::batch_norm(&a[0], &a[1], 0.5, &stats, true).0,
        vec![x(), normal(1, [6])],
        vec![vec![p!["x"], p![]], vec![p!["x", "y"], p!["y"]]],
    ));
    let key = Key::new(3);
    compare((
        "dropout",
        &|a| nn::dropout(&key, 0.3, &a[0]),
        vec![x()],
        vec![vec![p!["x"]], vec![p!["x", "y"]]],
    ));
    compare(("glu", &|a| nn::glu(&a[0], -1), vec![x()], vec![vec![p!["x"]]]));
}

/// Batch norm has the statistics of the whole batch.
#[test]
fn batch_norm_is_global() {
    let mesh = Mesh::new([("x", 4)]).unwrap();
    let (x, stats) = (normal(0, [8, 3]), BatchStats::new(3));
    let (_, whole) = nn::batch_norm(&x, 1.0, 0.0, &stats, true);
    let (_, split) = nn::batch_norm(&x.put(&mesh, p!["x"]), 1.0, 0.0, &stats, true);
    assert!(whole.mean.allclose(&split.mean).unwrap() && whole.var.allclose(&split.var).unwrap());
    assert_eq!(type_of(&split.mean), "float32[3]");
}

#[test]
fn attention_and_positions() {
    let operands =
        |h: usize, g: usize| vec![normal(0, [2, 4, h, 8]), normal(1, [2, 6, g, 8]), normal(2, [2, 6, g, 8])];
    let plain = |a: &[Array]| nn::dot_product_attention(&a[0], &a[1], &a[2]);
    let causal =
        |a: &[Array]| nn::dot_product_attention_with(&a[0], &a[1], &a[2], AttentionOptions::causal());
    let heads = p!["x", _, "y"];
    let all = |spec| vec![spec, spec, spec];
    compare(("attention", &plain, operands(4, 4), vec![all(p!["x"]), all(heads), all(p![_, _, ("x", "y")])]));
    let some = vec![all(p!["x"]), all(heads), vec![heads, p!["x"], p!["x"]]];
    compare(("grouped", &causal, operands(4, 2), some));
    // four shards of the queries' heads, and two heads of keys
    let wide = p![_, _, ("x", "y")];
    compare((
        "multi-query",
        &causal,
        operands(4, 1),
        vec![vec![wide, p![], p![]], vec![heads, p!["x"], p!["x"]]],
    ));
    // the keys are sharded over the sequence, or the queries are
    let keys = p![_, "y"];
    compare(("sequence", &plain, operands(4, 2), vec![vec![p![], keys, keys], vec![keys, p![], p![]]]));
    compare((
        "rope",
        &|a| nn::rope(&a[0], &Array::arange(0..4), &Rope::halves(1e4)),
        operands(4, 4)[..1].to_vec(),
        vec![vec![p!["x", "y"]], vec![heads]],
    ));
}

/// Dropped weights are those of `dropout` after the softmax, on every mesh and for grouped heads.
#[test]
fn attention_with_dropout() {
    let key = Key::new(7);
    let f = |a: &[Array]| {
        let options = AttentionOptions::causal().dropout(&key, 0.3);
        nn::dot_product_attention_with(&a[0], &a[1], &a[2], options)
    };
    let operands = |g: usize| vec![normal(0, [2, 4, 4, 8]), normal(1, [2, 6, g, 8]), normal(2, [2, 6, g, 8])];
    let by_hand = |a: &[Array]| {
        let [k, v] = [&a[1], &a[2]].map(|x| x.repeat(2, 2));
        let scores = einsum("bthk,bshk->bhts", [&a[0], &k]) / 8f64.sqrt();
        let causal = Array::tri([4, 6], 0).astype(Bool);
        let weights = nn::dropout(&key, 0.3, &causal.select(scores, -1e9).softmax(-1));
        einsum("bhts,bshk->bthk", [&weights, &v])
    };
    let (grouped, heads) = (operands(2), p!["x", _, "y"]);
    assert!(f(&grouped).allclose_with(&by_hand(&grouped), 1e-5, 1e-6).unwrap());
    compare(("dropout", &f, operands(4), vec![vec![p!["x"]; 3], vec![heads; 3]]));
    compare(("grouped dropout", &f, grouped, vec![vec![heads; 3], vec![heads, p!["x"], p!["x"]]]));
}

/// Heads that are sharded move nothing, and a batch that is sharded moves nothing.
#[test]
fn attention_moves_nothing() {
    let mesh = Mesh::new([("x", 2), ("y", 2)]).unwrap();
    let f = jit(|q: &Array, k: &Array, v: &Array| {
        grad((q, k, v), |(q, k, v)| {
            nn::dot_product_attention_with(&q, &k, &v, AttentionOptions::causal()).square().sum(..)
        })
    });
    let put = |key, heads| normal(key, [2, 4, heads, 8]).put(&mesh, p!["x", _, "y"]);
    assert_collectives!(f.lower((put(0, 4), put(1, 2), put(2, 2))).unwrap());
}

#[test]
fn losses() {
    let labels = || Array::from([[5, 0, 3, 3], [1, 2, 7, 6]]);
    let coded = |a: &[Array]| nn::softmax_cross_entropy_with_integer_labels(&a[0], &a[1].astype(I32));
    compare((
        "integer labels",
        &coded,
        vec![normal(0, [2, 4, 8]), labels()],
        vec![
            vec![p!["x"], p!["x"]],
            vec![p![_, _, "y"], p![]],
            vec![p!["x", _, "y"], p!["x"]],
            vec![p!["x", "y"], p!["x", "y"]],
            vec![p!["x"], p![]],
            vec![p![], p!["x"]],
        ],
    ));
    compare((
        "probabilities",
        &|a| nn::softmax_cross_entropy(&a[0], &a[1].softmax(-1)),
        vec![normal(0, [4, 8]), normal(1, [4, 8])],
        vec![vec![p!["x"], p!["x"]], vec![p!["x", "y"], p!["x", "y"]]],
    ));
    compare((
        "binary",
        &|a| nn::sigmoid_binary_cross_entropy(&a[0], a[1].logistic()),
        vec![normal(0, [4, 8]), normal(1, [4, 8])],
        vec![vec![p!["x", "y"], p!["x", "y"]]],
    ));
}

/// With a sharded vocabulary only numbers for each example are communicated, and no array has as many
/// booleans as there are logits.
#[test]
fn integer_labels_are_not_one_hot() {
    let mesh = Mesh::new([("y", 4)]).unwrap();
    let (x, labels) = (normal(0, [64, 4096]).put(&mesh, p![_, "y"]), Array::full(I32.array_type([64]), 7));
    let f = jit(|x: &Array, labels: &Array| {
        value_and_grad(x, |x| nn::softmax_cross_entropy_with_integer_labels(&x, labels).mean(..))
    });
    let lowered = f.lower((&x, &labels.put(&mesh, p![]))).unwrap();
    let sent = lowered.collectives().bytes();
    assert!(sent <= 4 * 64 * 4 * 4, "{sent} bytes for 64 examples\n{}", lowered.collectives());
    // a device holds a block of the logits, of the gradient, and of two values of the softmax
    let (block, memory) = (64 * 1024 * 4, lowered.memory());
    assert!(memory.peak_bytes <= 4 * block + 64 * 64, "blocks have {block} bytes\n{memory}");
    assert!(!memory.to_string().contains("bool[64,4096"), "{memory}");
}

/// Examples of a `vmap` give the results of a batch.
#[test]
fn under_vmap() {
    let (x, labels) = (normal(0, [5, 4, 6]), Array::from([5, 0, 3, 3]));
    let one = vmap(&x, |x| nn::softmax_cross_entropy_with_integer_labels(&x, &labels));
    let all = labels.broadcast_to([5, 4]);
    assert!(one.allclose(&nn::softmax_cross_entropy_with_integer_labels(&x, &all)).unwrap());
    let normed = vmap(&x, |x| nn::layer_norm(&x, 1.0, 0.0));
    assert!(normed.allclose(&nn::layer_norm(&x, 1.0, 0.0)).unwrap());
    let [q, k, v] = [0, 1, 2].map(|key| normal(key, [3, 5, 4, 8]));
    let causal =
        |q: &Array, k: &Array, v: &Array| nn::dot_product_attention_with(q, k, v, AttentionOptions::causal());
    let one = vmap((&q, &k, &v), |(q, k, v)| causal(&q, &k, &v));
    assert!(one.allclose(&causal(&q, &k, &v)).unwrap());
    let table = normal(4, [7, 3]);
    let ids = Array::from([[0, 6], [2, 2]]);
    assert!(vmap(&ids, |i| nn::embed(&table, &i)).allclose(&nn::embed(&table, &ids)).unwrap());
}

/// Inside of `shard_map` the functions see the block of a device.
#[test]
fn under_shard_map() {
    let mesh = Mesh::new([("x", 2)]).unwrap();
    let x = normal(0, [4, 6]).put(&mesh, p!["x"]);
    let labels = Array::from([5, 0, 3, 3]).put(&mesh, p!["x"]);
    let key = Key::new(1);
    let f = shard_map(&mesh, (p!["x"], p!["x"]), p!["x"], |x: &Array, labels: &Array| {
        let y = nn::dropout(&key, 0.0, &nn::layer_norm(x, 1.0, 0.0));
        nn::softmax_cross_entropy_with_integer_labels(&y, labels)
    });
    let want = nn::softmax_cross_entropy_with_integer_labels(&nn::layer_norm(&x, 1.0, 0.0), &labels);
    assert!(f.call((&x, &labels)).unwrap().allclose(&want).unwrap());
}
