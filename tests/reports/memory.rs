//! Peak memory of devices: by class, by parameter, with donated arguments; compared with sums by
//! hand.

use crate::error_checks::Unquoted as _;
use atmesh::plan::{Link, Machine};
use atmesh::prelude::*;
use atmesh::{
    Args as _, CheckpointPolicy, CollectiveKind, Memory, MemoryClass, Phase, Tree, checkpoint_with,
};

const F: u64 = 4;

/// Asserts that the entries add up to the peak, the largest first.
fn adds_up(m: &Memory) -> &Memory {
    let sum: u64 = MemoryClass::ALL.iter().map(|c| m.bytes(*c)).sum();
    assert_eq!(sum, m.peak_bytes, "{m}");
    assert!(m.entries.is_sorted_by(|a, b| a.bytes >= b.bytes), "{m}");
    m
}

#[derive(Tree, Clone)]
struct Adam {
    w: Array,
    mean: Array,
    square: Array,
}

fn update(a: Adam, g: &Array) -> Adam {
    let mean = 0.9 * &a.mean + 0.1 * g;
    let square = 0.99 * &a.square + 0.01 * g.square();
    let w = &a.w - 0.1 * &mean / (square.sqrt() + 1e-8);
    Adam { w, mean, square }
}

#[test]
fn an_optimizer_that_gets_its_memory_needs_it_once() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let ty = || F32.array_type([64, 16]).on(&mesh, p!["X"]).into_tree();
    let block = 64 * 16 / 8 * F;
    let state = || Adam { w: ty(), mean: ty(), square: ty() };
    let step = |a: Adam, g: &Array| update(a, g);
    let kept = jit(step).lower((state(), ty()))?;
    // Three old ones, the gradient, and three new ones: intermediate values are fused away.
    assert_eq!(adds_up(&kept.memory()).peak_bytes, 7 * block, "{}", kept.memory());
    assert_eq!(kept.collectives().peak_bytes(), 7 * block);
    let given = jit(step).donate(0).lower((state(), ty()))?;
    let m = given.memory();
    // Each new value is in the memory of the old one.
    assert_eq!(adds_up(&m).peak_bytes, 4 * block, "{m}\n{given}");
    assert_eq!(given.collectives().peak_bytes(), 4 * block);
    assert_eq!((m.under("0"), m.under("1")), (3 * block, block), "{m}");
    // The engines of this crate use as much.
    let mesh = Mesh::new([("X", 8)])?;
    let ty = || Array::ones([64, 16]).put(&mesh, p!["X"]);
    let state = || Adam { w: ty(), mean: ty(), square: ty() };
    for (f, blocks) in [(jit(step), 7), (jit(step).donate(0), 4)] {
        let report = f.lower((state(), ty()))?.compile()?.report();
        assert_eq!(report.peak_bytes() as u64, 8 * blocks * block, "{report}");
    }
    Ok(())
}

#[test]
fn arguments_are_told_by_path() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 4)])?;
    let bias = Array::ones([16]);
    let f = jit(|layers: Vec<(Array, Array)>, x: &Array| {
        let y = layers.iter().fold(x.clone(), |x, (w, b)| (x.dot(w) + b).tanh());
        y + &bias
    });
    let (w, b) = (|| F32.array_type([16, 16]).into_tree(), || F32.array_type([16]).into_tree());
    let x = F32.array_type([32, 16]).on(&mesh, p!["X"]).into_tree();
    let m = f.lower((vec![(w(), b()), (w(), b())], x))?.memory();
    adds_up(&m);
    assert_eq!(m.under("0"), 2 * (256 + 16) * F, "{m}");
    assert_eq!(m.under("0.1"), (256 + 16) * F, "{m}");
    assert_eq!((m.under("0.1.0"), m.under("1")), (256 * F, 8 * 16 * F), "{m}");
    // The path `0.1` is not a prefix of `0.10`, and `0.1.0` not one of any other path.
    assert_eq!(m.under("0.1.00") + m.under("captured"), 0, "{m}");
    assert_eq!(m.under("captured 0"), 16 * F, "{m}");
    assert!(m.to_string().contains("argument 0.0.0: f32[16,16]"), "{m}");
    Ok(())
}

#[test]
fn what_a_loop_reads_of_outside_is_held_once() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 4)])?;
    let (w, x) = (F32.array_type([256, 256]), F32.array_type([4, 256]).on(&mesh, p!["X"]));
    let f = jit(|w: &Array, x: &Array| fori_loop(0..10, x, |_, x: Array| x.dot(w).tanh()));
    let m = f.lower((w, x))?.memory();
    let (weights, row) = (256 * 256 * F, 256 * F);
    adds_up(&m);
    assert_eq!(m.bytes(MemoryClass::Argument), weights + row, "{m}");
    // Rows only: the carry before, inside and after an iteration.
    assert!(m.peak_bytes < weights + 8 * row, "{m}");
    assert_eq!(m.op, "tanh", "the step inside of the loop is named: {m}");
    Ok(())
}

#[test]
fn a_value_is_held_while_it_is_read_by_another_name() -> Result<()> {
    let n = 1 << 10;
    let f = jit(|x: &Array| {
        let y = x.sin();
        let flat = y.reshape([n * 2]);
        // `y` is needed again after the two other values that are computed in between.
        let z = x.cos().sort(0);
        let z = z.sort(1).sum(..);
        flat.sort(0) + z
    });
    let m = f.lower(F32.array_type([n, 2]))?.memory();
    adds_up(&m);
    let each = (n * 2) as u64 * F;
    // x, the result, y, and a value before and after a sort.
    assert_eq!(m.peak_bytes / each, 5, "{m}");
    Ok(())
}

#[test]
fn all_that_is_held_adds_up_to_the_peak() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 4), ("model", 2)])?;
    let w = || F32.array_type([3, 32, 32]).on(&mesh, p![_, "data", "model"]).into_tree();
    let x = || F32.array_type([16, 32]).on(&mesh, p!["data", _]).into_tree();
    let loss = |w: &Array, x: &Array| {
        let (y, _) = scan(x, w, |x: Array, w: Array| {
            let y = x.dot_to(w.reshard(p![_, "model"]), p!["data", "model"]).tanh();
            (y.reshard(p!["data", _]), ())
        });
        y.square().sum(..)
    };
    let step = |w: Array, x: &Array| &w - 0.1 * grad(&w, |w| loss(&w, x));
    let kept = jit(step).lower((w(), x()))?.memory();
    adds_up(&kept);
    assert!(kept.bytes(MemoryClass::Communication) > 0, "{kept}");
    let given = jit(step).donate(0).lower((w(), x()))?.memory();
    adds_up(&given);
    assert!(given.peak_bytes <= kept.peak_bytes, "{given}{kept}");
    Ok(())
}

/// Layers in a loop, each in a checkpoint with one of the policies: the gradient is the same; saved
/// values count as held, and the others are recomputed and gathered again.
#[test]
fn checkpoints_hold_what_they_keep() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let [a, b] = Key::new(11).split();
    let (x, ws) = (a.normal([64, 32]), b.normal([6, 32, 32]) * 0.2);
    let gradient = |keep: CheckpointPolicy| {
        move |x: &Array, ws: &Array| {
            grad(ws, |ws| {
                let layer = |h: Array, w: Array| {
                    let step = |(h, w): (Array, Array)| {
                        let scores = h.dot(w.reshard(p![; R: "X"])).checkpoint_name("scores");
                        scores.tanh().sin() + h
                    };
                    (checkpoint_with((h, w), keep.clone(), step), ())
                };
                scan(x, &ws, layer).0.square().sum(..)
            })
        }
    };
    let plain =
        jit(gradient(CheckpointPolicy::SaveAll)).call((&x, &ws.put(&Mesh::new([("X", 1)])?, p![])))?;
    let (x, ws) = (x.put(&mesh, p!["X"]), ws.put(&mesh, p![_, "X"]));
    let mut held = Vec::new();
    for keep in [
        CheckpointPolicy::SaveAll,
        CheckpointPolicy::SaveAllButGathers,
        CheckpointPolicy::named(["scores"]),
        CheckpointPolicy::SaveNothing,
    ] {
        let f = jit(gradient(keep.clone()));
        let lowered = f.lower((&x, &ws))?;
        let all = lowered.collectives();
        let gathers: Vec<Phase> =
            all.iter().filter(|c| c.kind == CollectiveKind::AllGather).map(|c| c.phase).collect();
        // Only one policy saves the gathered weights.
        let twice = keep != CheckpointPolicy::SaveAll;
        assert_eq!(gathers.contains(&Phase::Recomputed), twice, "{keep:?}\n{all}");
        held.push(lowered.memory().peak_bytes);
        let got = f.call((&x, &ws))?;
        assert!(got.allclose_with(&plain, 1e-5, 1e-5)?, "{keep:?}: {got}\n{plain}");
        let products = |phase| {
            let machine = Machine::new("counts").links(Link::switch(1.0));
            let plan = lowered.plan(&machine)?;
            let of = plan.entries().iter().filter(|i| i.phase == phase && !i.matmul_flops.is_empty());
            Ok::<u64, atmesh::Error>(of.map(|i| i.count).sum())
        };
        // The product for the scores is recomputed if nothing is saved.
        let again = if keep == CheckpointPolicy::SaveNothing { 6 } else { 0 };
        assert_eq!(
            products(Phase::Recomputed)?,
            again,
            "{keep:?}\n{}",
            lowered.plan(&Machine::new("counts").links(Link::switch(1.0)))?
        );
    }
    assert!(held.windows(2).all(|w| w[0] > w[1]), "each keeps less than the one before: {held:?}");
    Ok(())
}

#[test]
fn a_name_that_nothing_has_is_rejected() -> Result<()> {
    let typo = |x: Array| {
        checkpoint_with(x, CheckpointPolicy::named(["score"]), |x: Array| {
            x.sin().checkpoint_name("scores").exp()
        })
    };
    let error = grad(Array::from(1.0f32), typo).ty().expect_err("nothing is named so").unquoted();
    assert!(
        error.contains("the policy saves values named \"score\"") && error.contains("its names are scores"),
        "{error}"
    );
    Ok(())
}

/// Elementwise operations that are fused hold their inputs and outputs only, as in the engines. A
/// value with another consumer is held. Results are held from the start.
#[test]
fn elementwise_values_in_between_are_in_no_memory() -> Result<()> {
    let n = 1 << 10;
    let each = n as u64 * F;
    let peak = |f: fn(&Array, &Array) -> Array| -> Result<u64> {
        let m = jit(f).lower((F32.array_type([n]), F32.array_type([n])))?.memory();
        Ok(adds_up(&m).peak_bytes / each)
    };
    assert_eq!(peak(|x, y| ((x + y).sin() * 2.0).exp() - 1.0)?, 3, "x, y, the result");
    type Program = fn(&Array, &Array) -> Array;
    let same: [(&str, Program, u64); 8] = [
        ("one after the other", |x, y| ((x + y).sin() * 2.0).exp() - 1.0, 3),
        (
            "read twice by what is computed with it",
            |x, y| {
                let z = (x + y).sin();
                &z * z.cos()
            },
            3,
        ),
        ("by a sum alone", |x, y| (x * y).tanh().sum(..), 2),
        (
            "by a sum and by what waits for the sum",
            |x, y| {
                let z = (x * y).tanh();
                &z - z.sum(..)
            },
            4,
        ),
        (
            "the two places of a carry, one of which is the result's",
            |x, y| fori_loop(0..9, x, |_, x| (x * y).sin()),
            4,
        ),
        (
            "the copy of a carry in which a loop writes elements, which is the result",
            |x, y| fori_loop(0..9, x, |i, x| x.at(ix![&i]).set(y.slice(ix![&i]))),
            3,
        ),
        ("by a sort", |x, y| (x + y).sin().sort(0).exp(), 5),
        (
            "four sorts, whose operands and results are held at once",
            |x, y| {
                let z = x.sort(0) + y.sort(0);
                let next = (x * y).sort(0) * (x - y).sort(0);
                z * next
            },
            9,
        ),
    ];
    for (what, f, held) in same {
        assert_eq!(peak(f)?, held, "{what}");
        // The engine allocates the same amount.
        let allocated = jit(f).lower((F32.array_type([n]), F32.array_type([n])))?.compile()?.report();
        assert_eq!(allocated.peak_bytes() as u64 / each, held, "{what}: {allocated}");
    }
    Ok(())
}

/// The scores of attention, their softmax and the product that reads it run in batches of rows, so
/// that no `[S, S]` array is in memory; if the program returns the weights, or sums over queries,
/// there is one.
#[test]
fn scores_of_attention_are_in_no_memory() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let [h, s, d] = [4, 128, 16];
    let (value, scores) = ((h * s * d) as u64 / 2 * F, (h * s * s) as u64 / 2 * F);
    let [q, k, v] = Key::new(0).split().map(|k| k.normal([h, s, d]).put(&mesh, p!["X"]));
    let weights = |q: &Array, k: &Array| (einsum("hqd,hkd->hqk", [q, k]) * 0.25).softmax(-1);
    let result = |w: &Array, v: &Array| einsum("hqk,hkd->hqd", [w, v]);
    let alone = jit(|q: &Array, k: &Array, v: &Array| result(&weights(q, k), v)).lower((&q, &k, &v))?;
    let memory = alone.memory();
    assert_eq!(adds_up(&memory).peak_bytes, 4 * value, "{memory}\n{alone}");
    let report = alone.compile()?.report();
    assert_eq!(report.peak_bytes() as u64, 2 * 4 * value, "{report}");

    let kept = |q: &Array, k: &Array, v: &Array| {
        let w = weights(q, k);
        (result(&w, v), w)
    };
    let over = |q: &Array, k: &Array, v: &Array| {
        let w = weights(q, k);
        result(&(&w / w.sum(Dims::keep(1))), v)
    };
    for peak in [
        jit(kept).lower((&q, &k, &v))?.memory().peak_bytes,
        jit(over).lower((&q, &k, &v))?.memory().peak_bytes,
    ] {
        assert!(peak >= 4 * value + scores, "{peak}");
    }
    Ok(())
}
