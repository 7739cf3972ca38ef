//! Tensor and sequence parallelism: the backward pass moves the bytes of Megatron's layout, as the
//! program is written. Partial cotangents of one value are added before they are reduced.

use CollectiveKind::{AllGather, AllReduce, ReduceScatter};
use atmesh::prelude::*;
use atmesh::{CollectiveKind, Collectives, Phase, checkpoint};

#[derive(Clone, Debug, Tree)]
struct Block<T = Array> {
    norm1: T,
    wq: T,
    wk: T,
    wv: T,
    wo: T,
    norm2: T,
    w1: T,
    w2: T,
    w3: T,
}

#[derive(Clone, Debug, Tree)]
struct Model<T = Array> {
    tokens: T,
    blocks: Vec<Block<T>>,
    norm: T,
    output: T,
}

const V: usize = 256;
const D: usize = 64;
const H: usize = 8;
const F: usize = 128;
const L: usize = 2;
const B: usize = 4;
const T: usize = 32;

/// The shardings of activations: between layers, and where products read them.
#[derive(Clone, Copy)]
struct Layout {
    outside: Spec,
    inside: Spec,
}

fn rms_norm(x: &Array, scale: &Array) -> Array {
    x / (x.square().mean(Dims::keep(-1)) + 1e-5).sqrt() * scale
}

fn attention(b: &Block, x: &Array, to: Layout) -> Array {
    let heads = |w: &Array| x.matmul(w).reshape([B, T, H, D / H]);
    let (q, k, v) = (heads(&b.wq), heads(&b.wk), heads(&b.wv));
    let scores = einsum("bqhd,bkhd->bhqk", [&q, &k]) / (D as f64 / H as f64).sqrt();
    let mask = Array::tri(Bool.array_type([T, T]), 0);
    let p = mask.select(&scores, scores.full_like(-1e30)).softmax(-1);
    let y = einsum("bhqk,bkhd->bqhd", [&p, &v]).reshape([B, T, D]);
    y.matmul_to(&b.wo, to.outside)
}

fn feed_forward(b: &Block, x: &Array, to: Layout) -> Array {
    (x.matmul(&b.w1).silu() * x.matmul(&b.w3)).matmul_to(&b.w2, to.outside)
}

fn loss(m: &Model, ids: &Array, labels: &Array, to: Layout) -> Array {
    let mut h = m.tokens.take_to(ids, 0, to.outside);
    for b in &m.blocks {
        h = &h + attention(b, &rms_norm(&h, &b.norm1).reshard(to.inside), to);
        h = &h + feed_forward(b, &rms_norm(&h, &b.norm2).reshard(to.inside), to);
    }
    let y = rms_norm(&h, &m.norm).reshard(to.inside).matmul(&m.output);
    let spec = y.sharding().ok().flatten().map_or(p![], |s| s.spec);
    let right = labels.one_hot_to(V, spec);
    (y.logsumexp(-1) - (&y * right).sum(-1)).mean(..)
}

fn model() -> Model {
    let mut keys = Key::new(0).split_vec(2 + 7 * L).into_iter();
    let mut w = |a: usize, b: usize| keys.next().expect("a key").normal([a, b]) / (a as f32).sqrt();
    let (tokens, output) = (w(V, D), w(D, V));
    let mut block = || Block {
        norm1: Array::ones([D]),
        wq: w(D, D),
        wk: w(D, D),
        wv: w(D, D),
        wo: w(D, D),
        norm2: Array::ones([D]),
        w1: w(D, F),
        w2: w(F, D),
        w3: w(D, F),
    };
    Model { tokens, blocks: (0..L).map(|_| block()).collect(), norm: Array::ones([D]), output }
}

fn specs() -> Model<Spec> {
    let (c, r) = (p![_, "tp"], p!["tp", _]);
    let one = Block { norm1: p![], wq: c, wk: c, wv: c, wo: r, norm2: p![], w1: c, w2: r, w3: c };
    Model { tokens: r, blocks: vec![one; L], norm: p![], output: c }
}

/// Returns the kinds, counts and bytes of the collectives over exactly this axis.
fn over(all: &Collectives, axis: &str, phase: Phase) -> Vec<(CollectiveKind, u64, u64)> {
    let mut found: Vec<(CollectiveKind, u64, u64)> = Vec::new();
    for c in
        all.iter().filter(|c| c.axes.to_string() == axis && c.phase == phase && c.bytes_per_device > 1000)
    {
        match found.iter_mut().find(|f| f.0 == c.kind) {
            Some(f) => (f.1, f.2) = (f.1 + c.count, f.2 + c.count * c.bytes_per_device),
            None => found.push((c.kind, c.count, c.count * c.bytes_per_device)),
        }
    }
    found.sort_by_key(|f| f.0.name());
    found
}

/// PyTorch's tutorial on tensor parallelism, in sequence parallel, on dp 2 x tp 4: 5 reduce-scatters
/// and 5 all-gathers of 12,288 bytes in the backward pass, with and without `R`.
#[test]
fn sequence_parallelism_moves_what_megatron_moves() -> Result<()> {
    let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
    let model = model();
    let [a, b] = Key::new(9).split();
    let (ids, labels) = (a.randint([B, T], 0..V as i64), b.randint([B, T], 0..V as i64));
    let alone = Mesh::new([("tp", 1)])?;
    let to = Layout { outside: p![], inside: p![] };
    let (m, i, l) = (tree::put(&model, &alone, p![]), ids.put(&alone, p![]), labels.put(&alone, p![]));
    let plain = jit(|m: &Model, i: &Array, l: &Array| grad(m, |m| loss(&m, i, l, to))).call((&m, &i, &l))?;
    let m = tree::put(&model, &mesh, specs());
    let (i, l) = (ids.put(&mesh, p!["dp"]), labels.put(&mesh, p!["dp"]));
    for inside in [p!["dp", _, _], p!["dp", _, _; R: "tp"]] {
        let to = Layout { outside: p!["dp", "tp", _], inside };
        let gradient = |m: &Model, i: &Array, l: &Array| grad(m, |m| loss(&m, i, l, to));
        let f = jit(gradient);
        let lowered = f.lower((&m, &i, &l))?;
        let back = over(lowered.collectives(), "tp", Phase::Backward);
        assert_eq!(back, [(AllGather, 5, 61440), (ReduceScatter, 5, 61440)], "{}", lowered.collectives());
        let g = f.call((&m, &i, &l))?;
        for ((x, y), eager) in
            tree::leaves(&g).into_iter().zip(tree::leaves(&plain)).zip(tree::leaves(&gradient(&m, &i, &l)))
        {
            assert!(x.allclose_with(&y, 1e-4, 1e-4)?, "{x}\n{y}");
            assert_eq!(x.to_vec::<f32>()?, eager.to_vec::<f32>()?, "eager and jit differ");
        }
    }
    Ok(())
}

/// A pair of products that read one value, with a residual: one all-reduce in the backward pass, in
/// every form of the program.
#[test]
fn cotangents_of_one_value_are_added_before_they_are_reduced() -> Result<()> {
    let mesh = Mesh::new([("dp", 2), ("tp", 4)])?;
    let keys = Key::new(3).split_vec(4);
    let values: Vec<Array> = keys.iter().map(|k| k.normal([64, 64]) * 0.1).collect();
    let pair = |h: &Array, w1: &Array, w3: &Array, w2: &Array, to: Spec| {
        (h.dot(w1).silu() * h.dot(w3)).dot_to(w2, to)
    };
    let shardings = [p!["dp", _], p![_, "tp"], p![_, "tp"], p!["tp", _]];
    let of = |mesh: &Mesh, specs: [Spec; 4]| {
        let mut put = values.iter().zip(specs).map(|(v, s)| v.put(mesh, s));
        std::array::from_fn::<Array, 4, _>(|_| put.next().expect("four"))
    };
    for form in 0..4 {
        let gradient = |x: &Array, w1: &Array, w3: &Array, w2: &Array, to: Spec| {
            grad(x, |x| {
                let h = x.square();
                let y = match form {
                    0 => pair(&h, w1, w3, w2, to),
                    1 => jit(|h: &Array| pair(h, w1, w3, w2, to)).call(&h)?,
                    2 => checkpoint(&h, |h: Array| pair(&h, w1, w3, w2, to)),
                    _ => fori_loop(0..2, &h, |_, h: Array| pair(&h, w1, w3, w2, to)),
                };
                Ok::<Array, atmesh::Error>((x + y).square().sum(..))
            })
        };
        let [x, w1, w3, w2] = of(&mesh, shardings);
        let f = jit(|x: &Array, w1: &Array, w3: &Array, w2: &Array| gradient(x, w1, w3, w2, p!["dp", _]));
        let lowered = f.lower((&x, &w1, &w3, &w2))?;
        let back = over(lowered.collectives(), "tp", Phase::Backward);
        let times = if form == 3 { 2 } else { 1 };
        assert_eq!(back, [(AllReduce, times, times * 12288)], "form {form}\n{}", lowered.collectives());
        let [x1, a1, a3, a2] = of(&Mesh::new([("tp", 1)])?, [p![]; 4]);
        let plain = gradient(&x1, &a1, &a3, &a2, p![]);
        let got = f.call((&x, &w1, &w3, &w2))?;
        assert!(got.allclose_with(&plain, 1e-4, 1e-4)?, "form {form}: {got}\n{plain}");
        let eager = gradient(&x, &w1, &w3, &w2, p!["dp", _]);
        assert_eq!(got.to_vec::<f32>()?, eager.to_vec::<f32>()?, "form {form}");
    }
    Ok(())
}

/// A weight that a loop reads in each iteration: its gradient is reduced once, after the loop.
#[test]
fn the_gradient_of_a_recurrent_weight_is_reduced_once() -> Result<()> {
    let mesh = Mesh::new([("dp", 4)])?;
    let [a, b] = Key::new(5).split();
    let (x, w) = (a.normal([256, 16]), b.normal([16, 16]) * 0.2);
    for looped in [true, false] {
        let gradient = |x: &Array, w: &Array| {
            grad(w, |w: Array| {
                let step = |h: Array| (h.dot(&w) + x).tanh();
                let h = match looped {
                    true => fori_loop(0..6, x, |_, h: Array| step(h)),
                    false => (0..6).fold(x.clone(), |h, _| step(h)),
                };
                h.square().sum(..)
            })
        };
        let (xs, ws) = (x.put(&mesh, p!["dp"]), w.put(&mesh, p![]));
        let lowered = jit(gradient).lower((&xs, &ws))?;
        let count: u64 = lowered.collectives().iter().map(|c| c.count).sum();
        assert_eq!(count, 1, "{}", lowered.collectives());
        let got = jit(gradient).call((&xs, &ws))?;
        assert!(got.allclose_with(&gradient(&x, &w), 1e-3, 1e-3)?);
        assert_eq!(got.to_vec::<f32>()?, gradient(&xs, &ws).to_vec::<f32>()?);
    }
    Ok(())
}

/// Second derivatives go through the partial sums, too.
#[test]
fn second_derivatives_are_those_of_one_device() -> Result<()> {
    let mesh = Mesh::new([("dp", 2), ("tp", 2)])?;
    let keys = Key::new(7).split_vec(3);
    let values: Vec<Array> = keys.iter().map(|k| k.normal([8, 8]) * 0.3).collect();
    let twice = |x: &Array, w1: &Array, w3: &Array| {
        grad(x, |x: Array| {
            let g = grad(&x, |x: Array| {
                let h = x.sin();
                (h.dot(w1).tanh() * h.dot(w3)).square().sum(..)
            });
            g.square().sum(..)
        })
    };
    let plain = twice(&values[0], &values[1], &values[2]);
    let put = |k: usize, s| values[k].put(&mesh, s);
    let (x, w1, w3) = (put(0, p!["dp", _]), put(1, p![_, "tp"]), put(2, p![_, "tp"]));
    let got = jit(twice).call((&x, &w1, &w3))?;
    assert!(got.allclose_with(&plain, 1e-3, 1e-3)?, "{got}\n{plain}");
    Ok(())
}

/// `explain` tries a reduced value where the cotangents of several products meet after a view.
#[test]
fn explain_tries_reduced_values() -> Result<()> {
    let mesh = Mesh::without_devices([("dp", 2), ("tp", 4)])?;
    let x = || F32.array_type([8, 64, 64]).on(&mesh, p!["dp", "tp", _]);
    let w = || F32.array_type([8, 8, 64]).on(&mesh, p![_, _, "tp"]);
    let f = jit(|x: &Array, a: &Array, b: &Array| {
        grad(x, |x: Array| {
            let h = x.reshard(p!["dp", _, _]);
            let h = h.reshape([8, 64, 8, 8]);
            let of = |w: &Array| einsum("bshd,hdf->bsf", [&h, w]);
            (of(a).tanh() * of(b)).square().sum(..)
        })
    });
    let lowered = f.lower((x(), w(), w()))?;
    let sum = lowered.collectives().iter().position(|c| c.kind == AllReduce && c.bytes_per_device > 1000);
    let why = f.explain((x(), w(), w()), sum.expect("an all-reduce"))?;
    let best = why.suggestions.first().expect("a suggestion");
    assert!(best.edit.contains("R: \"tp\""), "{why}");
    assert!(best.bytes < lowered.collectives().bytes(), "{why}");
    Ok(())
}
