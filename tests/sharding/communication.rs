//! Communication of programs: kinds, bytes and counts of collectives that must not grow.

use crate::soak::part;
use atmesh::prelude::*;
use atmesh::{Args, Axes, CollectiveKind, Collectives, einsum_to};

/// Computes one step of the heat equation; the ends stay fixed.
fn step(u: &Array) -> Array {
    let (a, b, c) = (u.slice(ix![2..]), u.slice(ix![1..-1]), u.slice(ix![..-2]));
    let middle = &b + &((&(&a - &(&b * 2.0)) + &c) * 0.1);
    concat([u.slice(ix![..1]), middle, u.slice(ix![-1..])], 0)
}

#[test]
fn heat_exchanges_one_element_with_each_neighbour() -> Result<()> {
    for (n, messages) in [(1, 0), (2, 2), (4, 6), (8, 14)] {
        let mesh = Mesh::auto([("X", n)])?;
        let u = Array::ones([102]).put(&mesh, p!["X"]);
        let run = jit(|u: &Array| fori_loop(0..10, u, |_, u: Array| step(&u))).lower(&u)?;
        let slope = jit(|u: &Array| {
            grad(u, |u: Array| {
                let v = step(&u);
                (&v * &v).sum(..)
            })
        })
        .lower(&u)?;
        let all = |c: &Collectives| {
            c.iter().map(|c| (c.kind, c.messages, c.total_bytes, c.count)).collect::<Vec<_>>()
        };
        let once = |times| (CollectiveKind::Halo, messages, 4 * messages, times);
        if n == 1 {
            assert!(run.collectives().is_empty() && slope.collectives().is_empty());
        } else {
            assert_eq!(all(run.collectives()), [once(10)]);
            // The value is needed once in the forward pass, its cotangent once in the backward
            // pass.
            assert_eq!(all(slope.collectives()), [once(1), once(1)]);
        }
    }
    Ok(())
}

#[test]
fn the_gradient_of_a_loop_exchanges_what_its_steps_do() -> Result<()> {
    let mesh = Mesh::auto([("x", 8)])?;
    let x = Key::new(0).uniform([102]).put(&mesh, p!["x"]);
    // The ends stay fixed, updated in place.
    let simulate = |x: &Array| {
        fori_loop(0..100, x, |_, x| {
            let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
            x.at(ix![1..-1]).set(inner)
        })
    };
    let energy = |x: &Array| simulate(x).square().sum(..);
    let slope = jit(|x: &Array| grad(x, |x| energy(&x)));
    let lowered = slope.lower(&x)?;
    let halos: Vec<_> =
        (lowered.collectives().iter()).map(|c| (c.kind, c.messages, c.total_bytes, c.count)).collect();
    // Forward, both edges of the value are sent; backward, one edge of each of two cotangents: 14
    // messages of 4 bytes per step in both cases.
    let want = [
        (CollectiveKind::Halo, 14, 56, 100),
        (CollectiveKind::Halo, 7, 28, 100),
        (CollectiveKind::Halo, 7, 28, 100),
    ];
    assert_eq!(halos, want, "{}", lowered.collectives());
    // The result is the gradient: its product with a direction equals the finite difference.
    let (value, along) = (energy(&x), Key::new(1).normal([102]).put(&mesh, p!["x"]));
    let (small, sum) = (1e-2, (slope.call(&x)? * &along).sum(..));
    let difference = (energy(&(&x + small * &along)) - energy(&(&x - small * &along))) / (2.0 * small);
    let (got, want) = (sum.item::<f32>()?, difference.item::<f32>()?);
    assert!((got - want).abs() < 1e-2 * value.item::<f32>()?.abs(), "{got} against {want}");
    Ok(())
}

#[test]
fn reshards_move_the_least() -> Result<()> {
    use CollectiveKind::{AllGather, AllToAll, Exchange, Permute};
    let mesh = |k: usize| -> Result<Mesh> {
        match k {
            8 => Mesh::new([("x", 8)]),
            42 => Mesh::new([("x", 4), ("y", 2)]),
            222 => Mesh::new([("x", 2), ("y", 2), ("z", 2)]),
            _ => Mesh::new([("x", 2), ("y", 3)]),
        }
    };
    let (square, cube, small, odd) = (vec![64, 64], vec![16, 16, 16], vec![16, 8, 8], vec![12, 12]);
    let rows = [
        (8, &square, p!["x", _], p![_, "x"], Some(AllToAll), 1792),
        (42, &square, p!["x", "y"], p!["y", "x"], Some(Exchange), 2048),
        (42, &square, p!["x", _], p!["y", _], Some(AllGather), 8192),
        (42, &square, p![("x", "y"), _], p!["x", _], Some(AllGather), 2048),
        (42, &square, p![("x", "y"), _], p!["x", "y"], Some(AllToAll), 1024),
        (42, &square, p!["x", "y"], p![("x", "y"), _], Some(AllToAll), 1024),
        (42, &square, p![("x", "y"), _], p![("y", "x"), _], Some(Permute), 2048),
        (42, &square, p![("x", "y"), _], p![_, ("x", "y")], Some(AllToAll), 1792),
        (42, &square, p![_, _], p!["x", "y"], None, 0),
        (42, &square, p!["x", "y"], p![_, _], Some(AllGather), 14336),
        (42, &square, p!["x", _], p![_, "y"], Some(AllGather), 6144),
        (42, &square, p!["y", _], p![_, "x"], Some(AllGather), 2048),
        (222, &cube, p!["x", "y", _], p![_, "x", "y"], Some(Exchange), 4096),
        (222, &cube, p!["x", "y", "z"], p!["z", "x", "y"], Some(Permute), 2048),
        (42, &square, p!["x", "y"], p!["y", _], Some(Exchange), 8192),
        (222, &square, p![("x", "y"), "z"], p!["z", ("y", "x")], Some(Exchange), 2048),
        (222, &square, p![("x", "y", "z"), _], p!["y", "x"], Some(Exchange), 4096),
        (222, &cube, p!["y", _, "x"], p![_, ("x", "y"), _], Some(Exchange), 3072),
        (23, &odd, p!["x", _], p!["y", _], Some(AllGather), 192),
        (23, &odd, p!["x", "y"], p!["y", "x"], Some(Exchange), 96),
        (42, &cube, p!["y", _, "x"], p![_, ("x", "y"), _], Some(Exchange), 1792),
        (222, &small, p![_, ("x", "y"), _], p!["x", _, ("y", "z")], Some(Exchange), 384),
        (222, &square, p!["x", _], p![_, ("x", "y")], Some(Exchange), 2048),
        (222, &square, p![("x", "y"), _], p!["z", _], Some(AllGather), 8192),
    ];
    for (k, (on, shape, from, to, kind, bytes)) in rows.into_iter().enumerate() {
        let x = Array::ones(shape.clone()).put(&mesh(on)?, from);
        let lowered = jit(|x: &Array| x.reshard(to)).lower(&x)?;
        let c = lowered.collectives();
        assert_eq!(c.bytes(), bytes, "row {}: {c}", k + 1);
        assert_eq!(c.iter().map(|c| c.kind).collect::<Vec<_>>(), Vec::from_iter(kind), "row {}: {c}", k + 1);
    }
    Ok(())
}

/// Returns the loss of a layer, and the gradients of its two weights.
fn mlp(x: &Array, a: &Array, b: &Array) -> (Array, Array) {
    grad((a, b), |(a, b): (Array, Array)| {
        let h = x.dot(&a).maximum(0.0);
        let y = h.dot(&b);
        (&y * &y).sum(..)
    })
}

#[test]
fn layers_communicate_what_their_shardings_ask() -> Result<()> {
    let mesh = Mesh::auto([("d", 8)])?;
    let at = |shape: [usize; 2], spec: Spec| Array::ones(shape).put(&mesh, spec);
    let (x, whole, split) = (at([256, 64], p!["d"]), at([64, 64], p![]), at([64, 64], p!["d"]));
    let weight = 64 * 64 * 4;
    // Data parallel: gradients are summed over devices, and nothing else moves.
    let lowered = jit(mlp).lower((&x, &whole, &whole))?;
    assert_collectives!(lowered, AllReduce("d") x 2);
    assert_eq!(lowered.collectives().bytes(), 2 * (2 * weight * 7 / 8), "{}", lowered.collectives());
    // Sharded weights: each is gathered once, for the forward and backward pass together.
    let lowered = jit(mlp).lower((&x, &split, &split))?;
    assert_eq!(lowered.collectives().count(CollectiveKind::AllGather, "d"), 2, "{}", lowered.collectives());
    Ok(())
}

#[test]
fn a_weight_that_many_layers_read_is_gathered_once() -> Result<()> {
    let mesh = Mesh::auto([("d", 8)])?;
    let (x, w) = (Array::ones([128, 16]).put(&mesh, p!["d"]), Array::ones([16, 16]).put(&mesh, p!["d"]));
    let layers = |x: &Array, w: &Array| (0..20).fold(x.clone(), |x, _| x.dot(w) * 2.0);
    let lowered = jit(layers).lower((&x, &w))?;
    assert_collectives!(lowered, AllGather("d") x 1);
    assert_eq!(lowered.collectives().bytes(), 16 * 16 * 4 * 7 / 8);
    let text = lowered.collectives().to_string();
    assert!(text.contains("all_gather") && text.contains("tests/sharding/communication.rs"), "{text}");
    Ok(())
}

#[test]
#[should_panic(expected = "all_reduce over d: expected none, found 1")]
fn an_assertion_lists_what_there_is() {
    let mesh = Mesh::new([("d", 2)]).expect("a mesh");
    let x = Array::ones([4]).put(&mesh, p!["d"]);
    let lowered = jit(|x: &Array| x.sum(..)).lower(&x).expect("lowered");
    assert_collectives!(lowered);
}

/// The sizes of the axes are coprime, and the axes are not in mesh order: the partial values of the
/// sum are indexed in mesh order.
#[test]
fn a_sum_over_axes_of_two_and_three_is_one_all_reduce() -> Result<()> {
    for axes in [[("A", 3), ("B", 2)], [("A", 2), ("B", 3)]] {
        let mesh = Mesh::auto(axes)?;
        for spec in [p![("B", "A")], p![("A", "B")]] {
            let x = Array::arange(0..12).put(&mesh, spec);
            let sum = jit(|x: &Array| x.sum(..));
            assert_collectives!(sum.lower(&x)?, AllReduce(["A", "B"]) x 1);
            assert_eq!(sum.call(&x)?.item::<i32>()?, 66);
        }
    }
    Ok(())
}

/// With many devices, only some of them are sampled for message counts: these are marked as
/// estimates. Bytes are exact.
#[test]
fn figures_of_many_devices_are_marked_as_estimates() -> Result<()> {
    for (n, marks) in [(8, false), (4096, true)] {
        let mesh = Mesh::without_devices([("X", n)])?;
        let x = F32.array_type([1 << 16]).on(&mesh, p!["X"]).into_tree();
        let lowered = jit(|x: &Array| x.reshard(p![])).lower(&x)?;
        let c = lowered.collectives();
        let all = c.iter().next().expect("an all-gather");
        assert_eq!(
            (c.len(), all.kind, all.exact, all.messages_exact),
            (1, CollectiveKind::AllGather, true, !marks)
        );
        // Each device sends its block to each other device.
        let others = n as u64 - 1;
        assert_eq!((all.messages, all.total_bytes), (n as u64 * others, (4 * others) << 16));
        let text = c.to_string();
        assert_eq!(text.contains(&format!("≈{}", all.messages)), marks, "{text}");
        assert_eq!(text.matches('≈').count(), usize::from(marks), "{text}");
    }
    Ok(())
}

/// Sums of fewer elements than devices use a tree: two messages for each device but one, and few
/// for the busiest device. Sums with the same dependencies are combined into one exchange, wherever
/// they are written.
#[test]
fn few_numbers_are_summed_by_a_tree_and_those_that_are_ready_together() -> Result<()> {
    let entries = |c: &Collectives| -> Vec<_> {
        c.iter().map(|c| (c.kind, c.bytes_per_device, c.total_bytes, c.messages)).collect()
    };
    for (n, busiest) in [(3u64, 2), (6, 3), (8, 3), (128, 7), (4096, 12)] {
        let mesh = Mesh::without_devices([("X", n as usize)])?;
        let x = F32.array_type([12288]).on(&mesh, p!["X"]).into_tree();
        let one = jit(|x: &Array| x.sum(..)).lower(&x)?;
        let all = 8 * (n - 1);
        assert_eq!(entries(one.collectives()), [(CollectiveKind::AllReduce, 4 * busiest, all, 2 * (n - 1))]);
        // The same in per-device code.
        let manual =
            jit(|x: &Array| shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..).psum("X")).call(x));
        assert_eq!(entries(manual.lower(&x)?.collectives()), entries(one.collectives()), "{n} devices");
    }
    let mesh = Mesh::auto([("x", 4), ("y", 2)])?;
    let x = Key::new(0).uniform([64, 64]).put(&mesh, p!["x", "y"]);
    // Three sums are combined, followed by one that depends on one of them.
    let f = |x: &Array| {
        let (sum, most) = (x.sum(..), x.max(..));
        let spread = (x - &sum).square().sum(..);
        let least = x.min(..);
        (sum, most, spread, least)
    };
    let g = |x: &Array| {
        let least = x.min(..);
        let sum = x.sum(..);
        let spread = (x - &sum).square().sum(..);
        (sum, x.max(..), spread, least)
    };
    let (lowered, other) = (jit(f).lower(&x)?, jit(g).lower(&x)?);
    let want = [(CollectiveKind::AllReduce, 24, 3 * 56), (CollectiveKind::AllReduce, 12, 56)];
    for c in [lowered.collectives(), other.collectives()] {
        let list: Vec<_> = entries(c).into_iter().map(|c| (c.0, c.1, c.2)).collect();
        assert_eq!(list, want, "{c}");
        assert!(c.to_string().contains("in one exchange with"), "{c}");
    }
    let (a, b) = (jit(f).call(&x)?, f(&x.reshard(p![])));
    for (a, b) in [(&a.0, &b.0), (&a.1, &b.1), (&a.2, &b.2), (&a.3, &b.3)] {
        let (a, b) = (a.item::<f32>()?, b.item::<f32>()?);
        assert!((a - b).abs() <= 1e-4 * b.abs(), "{a} for {b}");
    }
    Ok(())
}

/// The gradient of a value that several products read needs one all-reduce: the partial gradients
/// are added first. This also holds after transposes, for differences, and for a gated layer.
#[test]
fn sums_in_parts_that_are_added_are_one_all_reduce() -> Result<()> {
    let mesh = Mesh::auto([("x", 8)])?;
    let of = |k: u64, n: usize, m: usize| Key::new(k).uniform([n, m]);
    type Loss = fn(&Array, &[Array]) -> Array;
    let three: Loss = |x, w| w.iter().map(|w| x.dot(w).tanh().square().sum(..)).reduce(|a, b| a + b).unwrap();
    let turned: Loss =
        |x, w| (x.dot(w[0].t()).tanh() - x.dot(w[1].t()).tanh() * x.dot(w[2].t()).sin()).square().sum(..);
    let gated: Loss = |x, w| (x.dot(&w[0]).logistic() * x.dot(&w[1])).dot(&w[2]).square().sum(..);
    // Each case needs an all-reduce of [8, 64], and a second one if the result is a product's.
    let once = (CollectiveKind::AllReduce, 2 * 8 * 64 * 4 / 8 * 7);
    // A loss, the shardings of the weights, whether they are transposed, and the expected
    // collectives.
    type Case = (Loss, [Spec; 3], bool, Vec<(CollectiveKind, u64)>);
    let cases: [Case; 3] = [
        (three, [p![_, "x"]; 3], false, vec![once]),
        (turned, [p!["x"]; 3], true, vec![once]),
        (gated, [p![_, "x"], p![_, "x"], p!["x"]], false, vec![once, once]),
    ];
    for (loss, specs, turned, want) in cases {
        let x = of(0, 8, 64) / 64.0;
        let shape = |k: usize| if turned || k == 2 && want.len() == 2 { (512, 64) } else { (64, 512) };
        let w: Vec<Array> = (0..3).map(|k| of(1 + k as u64, shape(k).0, shape(k).1)).collect();
        let split: Vec<Array> = w.iter().zip(specs).map(|(w, s)| w.put(&mesh, s)).collect();
        let slope = jit(|x: &Array, w: &Vec<Array>| grad(x, |x| loss(&x, w)));
        let lowered = slope.lower((&x.put(&mesh, p![]), &split))?;
        let c = lowered.collectives();
        assert_eq!(kinds(c), want, "{c}");
        let (got, exact) = (slope.call((&x.put(&mesh, p![]), &split))?, grad(&x, |x| loss(&x, &w)));
        assert!(got.allclose_with(&exact, 1e-4, 1e-4)?, "{got}\n{exact}");
    }
    Ok(())
}

/// A decoder layer with sharded heads and hidden features: two all-reduces forward, one of them
/// again in recomputation, and two backward, where a separate all-reduce for each of queries, keys
/// and values, and for gate and up, would be possible.
#[test]
fn a_decoders_layer_has_five_all_reduces() -> Result<()> {
    let mesh = Mesh::auto([("tensor", 8)])?;
    let (tokens, d, heads, size, hidden) = (16, 64, 8, 8, 256);
    let norm = |x: &Array| x * (x.square().mean(Dims::keep(-1)) + 1e-5).rsqrt();
    let layer = |x: &Array, w: &[Array]| {
        let h = norm(x);
        let [q, k, v] = [0, 1, 2].map(|k| einsum("td,dhk->thk", [&h, &w[k]]));
        let scores = (einsum("thk,shk->hts", [&q, &k]) * 0.3).softmax(-1);
        let x = x + einsum("thk,hkd->td", [&einsum("hts,shk->thk", [&scores, &v]), &w[3]]);
        let h = norm(&x);
        let (gate, up) = (h.dot(&w[4]), h.dot(&w[5]));
        x + (gate.logistic() * gate * up).dot(&w[6])
    };
    let of = |key: u64, shape: &[usize]| Key::new(key).normal(shape.to_vec()) * 0.1;
    let shapes: [(&[usize], Spec); 7] = [
        (&[d, heads, size], p![_, "tensor"]),
        (&[d, heads, size], p![_, "tensor"]),
        (&[d, heads, size], p![_, "tensor"]),
        (&[heads, size, d], p!["tensor"]),
        (&[d, hidden], p![_, "tensor"]),
        (&[d, hidden], p![_, "tensor"]),
        (&[hidden, d], p!["tensor"]),
    ];
    let x = of(0, &[tokens, d]);
    let w: Vec<Array> = shapes.iter().enumerate().map(|(k, (shape, _))| of(k as u64 + 1, shape)).collect();
    let split: Vec<Array> = w.iter().zip(shapes).map(|(w, (_, spec))| w.put(&mesh, spec)).collect();
    let loss = |x: &Array, w: &[Array]| {
        checkpoint((x, &w.to_vec()), |(x, w): (Array, Vec<Array>)| layer(&x, &w).constrain(p![]))
            .square()
            .sum(..)
    };
    let plain = |x: &Array, w: &[Array]| layer(x, w).square().sum(..);
    let slope = jit(|x: &Array, w: &Vec<Array>| grad((x, w), |(x, w): (Array, Vec<Array>)| loss(&x, &w)));
    let args = (&x.put(&mesh, p![]), &split);
    let lowered = slope.lower(args)?;
    let all = (CollectiveKind::AllReduce, (2 * tokens * d * 4 / 8 * 7) as u64);
    let c = lowered.collectives();
    assert_eq!(kinds(c), [all; 5], "{c}");
    let (got, want) = (slope.call(args)?, grad((&x, &w), |(x, w): (Array, Vec<Array>)| plain(&x, &w)));
    assert!(got.0.allclose_with(&want.0, 1e-3, 1e-4)?, "{}\n{}", got.0, want.0);
    Ok(())
}

/// Computes a step of diffusion with varying coefficients: those at the faces follow from those at
/// the points, and do not change between steps.
fn diffused(u: &Array, k: &Array) -> Array {
    let face = 2.0 / (1.0 / k + 1.0 / k.roll(-1, 0));
    u + 0.1 * (&face * (u.roll(-1, 0) - u) - face.roll(1, 0) * (u - u.roll(1, 0)))
}

/// Returns the number of fetches in each loop body.
fn fetched_inside(p: &atmesh::partition::SpmdProgram) -> Vec<usize> {
    use atmesh::partition::Step;
    let fetches = |p: &atmesh::partition::SpmdProgram| {
        p.steps.iter().filter(|s| matches!(s, Step::Fetch { .. } | Step::Reduce { .. })).count()
    };
    let inside = |s: &Step| match s {
        Step::Loop { body, .. } | Step::While { body, .. } => Some(fetches(body)),
        _ => None,
    };
    p.steps.iter().filter_map(inside).collect()
}

#[test]
fn what_is_the_same_at_each_step_of_a_loop_is_communicated_once() -> Result<()> {
    let mesh = Mesh::auto([("x", 8)])?;
    let (u, k) = (Key::new(0).uniform([256]), 1.0 + Key::new(1).uniform([256]));
    let (at, kt) = (u.put(&mesh, p!["x"]), k.put(&mesh, p!["x"]));
    let counted = |u: &Array, k: &Array| fori_loop(0..10, u, |_, u: Array| diffused(&u, k));
    let whiled =
        |u: &Array, k: &Array| while_loop((u, 0i32), |(_, n)| n.lt(10), |(u, n)| (diffused(&u, k), n + 1)).0;
    let scanned = |u: &Array, k: &Array| scan(u, &Array::arange(0..10), |u, _| (diffused(&u, k), ())).0;
    // A scalar that needs an all-reduce is loop-invariant, too.
    let scaled = |u: &Array, k: &Array| fori_loop(0..10, u, |_, u: Array| u / k.sum(..));
    type Run = Box<dyn Fn(&Array, &Array) -> Array>;
    let loops: [(Run, usize); 4] =
        [(Box::new(counted), 1), (Box::new(whiled), 1), (Box::new(scanned), 1), (Box::new(scaled), 0)];
    for (f, inside) in loops {
        let run = jit(|u: &Array, k: &Array| f(u, k));
        let lowered = run.lower((&at, &kt))?;
        assert_eq!(fetched_inside(lowered.spmd()), [inside], "{}", lowered.collectives());
        let (got, want) = (run.call((&at, &kt))?, f(&u, &k));
        assert!(got.allclose(&want)?, "{got}\n{want}");
    }
    Ok(())
}

/// Returns the collectives in a canonical order.
fn kinds(c: &Collectives) -> Vec<(CollectiveKind, u64)> {
    let mut list: Vec<(CollectiveKind, u64)> = c.iter().map(|c| (c.kind, c.bytes_per_device)).collect();
    list.sort_by_key(|(kind, bytes)| (kind.to_string(), *bytes));
    list
}

/// A value that one operation gathers is available to all others, in whichever order they are
/// written.
#[test]
fn the_order_of_independent_lines_decides_nothing() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([16, 8]).put(&mesh, p![_, "X"]);
    let gathered_first = jit(|x: &Array| {
        let all = x.reshard(p![]);
        (x.sum(1), all)
    });
    let summed_first = jit(|x: &Array| {
        let sums = x.sum(1);
        (sums, x.reshard(p![]))
    });
    for f in [gathered_first.lower(&x)?, summed_first.lower(&x)?] {
        assert_eq!(kinds(f.collectives()), [(CollectiveKind::AllGather, 384)], "{}", f.collectives());
    }
    let mesh = Mesh::auto([("Y", 2), ("Z", 2)])?;
    let (a, b) = (Array::ones([8]).put(&mesh, p!["Y"]), Array::ones([8]).put(&mesh, p!["Z"]));
    let one = jit(|a: &Array, b: &Array| {
        let r = a.roll(3, 0);
        let s = b + &r;
        (s, &r - a)
    });
    let two = jit(|a: &Array, b: &Array| {
        let r = a.roll(3, 0);
        let d = &r - a;
        (b + &r, d)
    });
    let (one, two) =
        ((one.call((&a, &b))?, one.lower((&a, &b))?), (two.call((&a, &b))?, two.lower((&a, &b))?));
    let spec = |x: &Array| x.sharding().map(|s| s.map(|s| s.spec));
    assert_eq!((spec(&one.0.0)?, spec(&one.0.1)?), (spec(&two.0.0)?, spec(&two.0.1)?));
    assert_eq!(kinds(one.1.collectives()), kinds(two.1.collectives()));
    Ok(())
}

/// If two operands suggest different shardings, their order in the call does not decide.
#[test]
fn the_order_of_operands_decides_nothing() -> Result<()> {
    let mesh = Mesh::auto([("X", 2), ("Y", 4)])?;
    let axes = [p![_, _], p!["X", _], p!["Y", _], p![("X", "Y"), _], p![("Y", "X"), _], p!["X", "Y"]];
    let turned = axes.iter().map(|s| Spec::from_dims(s.padded(2).dims().iter().rev().cloned().collect()));
    let specs: Vec<Spec> = axes.into_iter().chain(turned).collect();
    type Both = fn(&Array, &Array) -> (Array, Array);
    let pairs: [[Both; 2]; 3] = [
        [|x, y| (x + y, (x + y).sum(0)), |x, y| (y + x, (y + x).sum(0))],
        [|x, y| (x * y, (x * y.t()).max(1)), |x, y| (y * x, (y.t() * x).max(1))],
        [|x, y| (x.maximum(y), x.minimum(y.roll(1, 0))), |x, y| (y.maximum(x), y.roll(1, 0).minimum(x))],
    ];
    for (from, to) in part(specs.iter().flat_map(|a| specs.iter().map(move |b| (*a, *b))), 13) {
        let (x, y) = (Array::ones([8, 8]).put(&mesh, from), Array::ones([8, 8]).put(&mesh, to));
        for (k, pair) in pairs.iter().enumerate() {
            let entries = |f: &Both| -> Result<_> {
                let lowered = jit(*f).lower((&x, &y))?;
                let kinds = kinds(lowered.collectives());
                let (a, b) = lowered.compile()?.call((&x, &y))?;
                let spec = |x: &Array| x.sharding().map(|s| s.map(|s| s.spec));
                Ok((kinds, spec(&a)?, spec(&b)?))
            };
            assert_eq!(entries(&pair[0])?, entries(&pair[1])?, "pair {k} of {from} and {to}");
        }
    }
    Ok(())
}

/// Computes a 3 × 3 convolution with unchanged spatial sizes, of images with channels last.
fn same_conv(x: &Array, w: &Array) -> Array {
    use atmesh::{ConvOptions, Padding};
    x.conv_with(w, ConvOptions::default().layout("NHWC", "HWIO", "NHWC").padding(Padding::Same))
}

#[test]
fn a_convolution_exchanges_one_halo_with_its_corners() -> Result<()> {
    let w = Array::ones([3, 3, 4, 4]);
    // Blocks of 8 × 4 need one edge of each neighbour, and corners; blocks of 2 rows need one row
    // from each side.
    for (axes, spec, bytes) in [
        ([("X", 2), ("Y", 2)], p![_, "X", "Y", _], 544),
        ([("X", 2), ("Y", 4)], p![_, "X", "Y", _], 2 * (2 * 8 + 4 + 2) * 4 * 4),
        ([("X", 8), ("Y", 1)], p![_, "X", "Y", _], 2 * 2 * 16 * 4 * 4),
        ([("X", 2), ("Y", 4)], p!["X", _, _, _], 0),
    ] {
        for mesh in [Mesh::new(axes)?, Mesh::auto(axes)?] {
            let x = Array::ones([2, 16, 16, 4]).put(&mesh, spec);
            let lowered = jit(same_conv).lower((&x, &w))?;
            let found: Vec<_> = lowered.collectives().iter().map(|c| (c.kind, c.bytes_per_device)).collect();
            let want = if bytes == 0 { vec![] } else { vec![(CollectiveKind::Halo, bytes)] };
            assert_eq!(found, want, "{}", lowered.collectives());
        }
    }
    Ok(())
}

#[test]
fn the_filters_gradient_is_summed_once_and_the_images_gradient_has_the_same_halo() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Key::new(0).normal([2, 16, 16, 4]).put(&mesh, p![_, "X", _, _]);
    let w = Key::new(1).normal([3, 3, 4, 4]);
    let slopes =
        jit(|x: &Array, w: &Array| grad((x, w), |(x, w): (Array, Array)| same_conv(&x, &w).square().sum(..)));
    let lowered = slopes.lower((&x, &w))?;
    let mut found: Vec<_> = lowered.collectives().iter().map(|c| (c.kind, c.bytes_per_device)).collect();
    found.sort_by_key(|c| c.1);
    let edge = 2 * 2 * 16 * 4 * 4;
    // The array elements fetched in the forward pass are reused for the filter's gradient.
    assert_eq!(
        found.iter().filter(|c| c.0 == CollectiveKind::Halo).collect::<Vec<_>>(),
        [&(CollectiveKind::Halo, edge); 2],
        "{lowered}"
    );
    assert_eq!(found.iter().filter(|c| c.0 == CollectiveKind::AllReduce).count(), 1, "{lowered}");
    assert_eq!(found.len(), 3, "{lowered}");
    Ok(())
}

/// Returns the kinds and bytes of a lookup in a table with sharded rows.
fn looked_up(rows: usize, ids: usize) -> Result<Vec<(CollectiveKind, u64)>> {
    let mesh = Mesh::auto([("X", 8)])?;
    let table = Array::ones([rows, 64]).put(&mesh, p!["X"]);
    let ids = Array::arange(0..ids as i32);
    let f = jit(|table: &Array, ids: &Array| table.take(ids, 0)).lower((&table, &ids))?;
    Ok(f.collectives().iter().map(|c| (c.kind, c.bytes_per_device)).collect())
}

#[test]
fn a_lookup_moves_its_result_or_a_small_table() -> Result<()> {
    // Each device looks up its own rows, and the results are combined.
    let result = 16 * 64 * 4;
    let moved = looked_up(1 << 14, 16)?;
    assert!(matches!(moved[..], [(CollectiveKind::AllReduce, bytes)] if bytes <= 2 * result), "{moved:?}");
    // A table that is smaller than the result is gathered.
    let table = 16 * 64 * 4;
    let moved = looked_up(16, 1 << 12)?;
    assert!(matches!(moved[..], [(CollectiveKind::AllGather, bytes)] if bytes < table), "{moved:?}");
    Ok(())
}

#[test]
fn a_row_is_replaced_where_it_is_stored() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let cache = Array::zeros([64, 16]);
    let (row, i) = (Array::ones([16]), Array::from(5));
    for spec in [p!["X"], p![_, "X"]] {
        let f = jit(|c: &Array, row: &Array, i: &Array| c.at(ix![i]).set(row));
        let lowered = f.lower((&cache.put(&mesh, spec), &row, &i))?;
        assert!(lowered.collectives().is_empty(), "{spec}: {}", lowered.collectives());
        let f = jit(|c: &Array, rows: &Array, i: &Array| c.at(ix![i]).add(rows));
        let ids = Array::from([5, 7, 5]);
        let lowered = f.lower((&cache.put(&mesh, spec), &Array::ones([3, 16]), &ids))?;
        assert!(lowered.collectives().is_empty(), "{spec}: {}", lowered.collectives());
    }
    Ok(())
}

#[test]
fn rows_of_examples_are_added_in_parts() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let (rows, ids) = (Array::ones([1 << 12, 16]).put(&mesh, p!["X"]), Array::arange(0..1 << 12) % 8);
    let ids = ids.put(&mesh, p!["X"]);
    let f = jit(|rows: &Array, ids: &Array| rows.segment_sum(ids, 8));
    let lowered = f.lower((&rows, &ids))?;
    let kinds: Vec<CollectiveKind> = lowered.collectives().iter().map(|c| c.kind).collect();
    assert_eq!(kinds, [CollectiveKind::AllReduce], "{}", lowered.collectives());
    assert!(f.call((&rows, &ids))?.to_vec::<f32>()?.iter().all(|x| *x == 512.0));
    Ok(())
}

/// A sum over all devices moves 2·V·(n − 1)/n bytes per device, like a ring, whatever the
/// divisibility of its dimensions.
#[test]
fn sums_over_all_devices_move_what_a_ring_does() -> Result<()> {
    let shapes: [&[usize]; 8] = [
        &[4, 4096],
        &[4096, 4],
        &[3, 4, 4096],
        &[112, 64],
        &[32, 32, 3],
        &[32, 16, 48],
        &[1, 1, 4096],
        &[6, 10, 4096],
    ];
    for n in [2usize, 8, 128, 1024] {
        let meshes = [vec![("X", n)], vec![("X", 2), ("Y", n / 2)], vec![("Y", n / 2), ("X", 2)]];
        for (axes, shape) in meshes.into_iter().flat_map(|m| shapes.map(|s| (m.clone(), s))) {
            let mesh = Mesh::without_devices(axes.clone())?;
            // Each device has its own full partial value.
            let split: Axes = axes.iter().map(|a| a.0.into()).collect();
            let global: Vec<usize> = std::iter::once(n).chain(shape.iter().copied()).collect();
            let x = F32.array_type(&global[..]).on(&mesh, p![&split]).into_tree();
            let lowered = jit(|x: &Array| {
                shard_map(&mesh, p![&split], p![], |x: &Array| x.squeeze(0).psum(&split)).call(x)
            })
            .lower(&x)?;
            let list: Vec<_> = lowered.collectives().iter().map(|c| (c.kind, c.bytes_per_device)).collect();
            let volume = 4 * shape.iter().product::<usize>() as u64;
            let ring = 2 * volume / n as u64 * (n as u64 - 1);
            assert_eq!(list, [(CollectiveKind::AllReduce, ring)], "{shape:?} over {axes:?}");
        }
    }
    Ok(())
}

/// The gradient of a data-parallel program over many devices has one partial value per device: no
/// figure of it overflows. A gradient that is divisible by the devices only if its dimensions are
/// combined does not cost more.
#[test]
fn sums_of_very_many_parts_are_planned() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 65536)])?;
    let of = |n: usize| F32.array_type([65536, n]).on(&mesh, p!["X"]).into_tree();
    let f = jit(|x: &Array, y: &Array| einsum_to("bh,bd->hd", [x, y], p![]));
    for (rows, columns) in [(65536, 65536), (7168, 256)] {
        let lowered = f.lower((&of(rows), &of(columns)))?;
        let list: Vec<_> = lowered.collectives().iter().map(|c| (c.kind, c.bytes_per_device)).collect();
        let each = (rows * columns / 65536 * 4) as u64;
        assert_eq!(list, [(CollectiveKind::AllReduce, 2 * 65535 * each)]);
    }
    Ok(())
}
