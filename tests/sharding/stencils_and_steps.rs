//! Stencils, and a training step of two layers under each strategy: the exact bytes that are
//! exchanged.

use atmesh::prelude::*;
use atmesh::{CollectiveKind, Collectives};

/// Returns the kind, the bytes of the busiest device, and the messages of each collective.
fn entries(c: &Collectives) -> Vec<(CollectiveKind, u64, u64)> {
    c.iter().map(|c| (c.kind, c.bytes_per_device, c.messages)).collect()
}

#[test]
fn five_points_exchange_four_edges_and_nine_points_corners_too() -> Result<()> {
    let mesh = Mesh::auto([("x", 4), ("y", 2)])?;
    let u = Key::new(0).normal([64, 64]);
    let five = |u: &Array| u.roll(1, 0) + u.roll(-1, 0) + u.roll(1, 1) + u.roll(-1, 1) - 4.0 * u;
    let nine = |u: &Array| {
        let p = u.pad(0.0, [(1, 1, 0), (1, 1, 0)]);
        let at = |i: i64, j: i64| p.slice(ix![i..i + 64, j..j + 64]);
        at(0, 0) + at(0, 1) + at(0, 2) + at(1, 0) + at(1, 1) + at(1, 2) + at(2, 0) + at(2, 1) + at(2, 2)
    };
    let placed = u.put(&mesh, p!["x", "y"]);
    // A neighbour on each side along x, and along y one that is on both sides: 24 messages, where 4
    // permutes by 8 devices are 32.
    assert_eq!(
        entries(jit(five).lower(&placed)?.collectives()),
        [(CollectiveKind::Halo, 2 * (128 + 64), 24)]
    );
    // Two full edges, one of the other dimension, and two corners (4 permutes, the second pair with
    // the corners, are 2·128 + 2·72 = 400): 2·6 + 8 + 2·6 messages.
    assert_eq!(
        entries(jit(nine).lower(&placed)?.collectives()),
        [(CollectiveKind::Halo, 2 * (128 + 4) + 64, 32)]
    );
    assert!(jit(five).call(&placed)?.allclose_with(&five(&u), 1e-5, 1e-5)?);
    assert!(jit(nine).call(&placed)?.allclose_with(&nine(&u), 1e-5, 1e-5)?);
    Ok(())
}

/// The gradient of nine weighted neighbours is the same at once and compiled.
#[test]
fn nine_weighted_points_have_a_gradient_at_once() -> Result<()> {
    let (u, kernel) = (Key::new(1).normal([8, 8]), Key::new(2).normal([3, 3]));
    let f = |u: &Array, k: &Array| {
        let p = u.pad(0.0, [(1, 1, 0), (1, 1, 0)]);
        let mut s = Array::zeros([8, 8]);
        for i in 0..3i64 {
            for j in 0..3i64 {
                s += p.slice(ix![i..i + 8, j..j + 8]) * k.slice(ix![i, j]);
            }
        }
        (s * Key::new(3).normal([8, 8])).sum(..)
    };
    let slope = |u: &Array, k: &Array| grad((u, k), |(u, k): (Array, Array)| f(&u, &k));
    let ((u1, k1), (u2, k2)) = (slope(&u, &kernel), jit(slope).call((&u, &kernel))?);
    assert!(u1.allclose_with(&u2, 1e-5, 1e-5)? && k1.allclose_with(&k2, 1e-5, 1e-5)?);
    Ok(())
}

#[test]
fn heat_in_place_exchanges_one_element_with_each_neighbour() -> Result<()> {
    for n in [2, 4, 8] {
        let mesh = Mesh::auto([("x", n as usize)])?;
        let x = Key::new(0).uniform([102]).put(&mesh, p!["x"]);
        let run = |x: &Array| {
            fori_loop(0..100, x, |_, x: Array| {
                let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
                x.at(ix![1..-1]).set(inner)
            })
        };
        // The first and the last device have one neighbour.
        let (both, one) =
            ((CollectiveKind::Halo, 4 * 2.min(n - 1), 2 * (n - 1)), (CollectiveKind::Halo, 4, n - 1));
        let forward = jit(run).lower(&x)?;
        assert_eq!(entries(forward.collectives()), [both], "{n}: {}", forward.collectives());
        let slope = jit(|x: &Array| grad(x, |x| run(&x).square().sum(..))).lower(&x)?;
        assert_eq!(entries(slope.collectives()), [both, one, one], "{n}: {}", slope.collectives());
        assert!(slope.collectives().iter().all(|c| c.count == 100));
    }
    Ok(())
}

/// A strategy of §4.8 of the auto mode's specification: the shardings of data and of the four
/// parameters, the bytes by formula, and the collectives for batches of 64, 128 and 1024.
struct Strategy {
    name: &'static str,
    grid: bool,
    data: Spec,
    parameters: [Spec; 4],
    /// Returns the strategy's bytes for a batch size: those of parameters and loss, and those of
    /// the batch's rows.
    bytes: fn(u64) -> u64,
    moved: [(u64, Vec<(CollectiveKind, u64)>); 3],
}

/// Returns the strategies for two layers, 32 → 128 → 32: the weights are 16384 bytes each, the
/// biases 512 and 128.
fn strategies() -> [Strategy; 5] {
    use CollectiveKind::{AllGather, AllReduce, AllToAll, ReduceScatter};
    // A scalar is summed by a tree of 8: the busiest device receives three elements.
    let loss = (AllReduce, 12);
    // An all-reduce on 8 devices counts 7/8 of its bytes twice.
    let [w, b1, b2] = [28672, 896, 224];
    // Each device's gradients are summed over all devices: b2, W2, b1, W1.
    let slopes = || vec![loss, (AllReduce, b2), (AllReduce, w), (AllReduce, b1), (AllReduce, w)];
    // The product's result (bytes of a device's rows) is scattered over y, from which its gradient
    // is gathered; a device has half of b1 and of the weights.
    let data_and_tensor = |rows: u64| {
        vec![
            (ReduceScatter, rows / 2),
            loss,
            (AllReduce, 2 * 64 * 3 / 4),
            (AllGather, rows / 2),
            (AllReduce, 2 * 8192 * 3 / 4),
            (AllReduce, 2 * 256 * 3 / 4),
            (AllReduce, 2 * 8192 * 3 / 4),
            // b2, whose gradient was summed for halves.
            (AllGather, 64),
        ]
    };
    // W1 and W2 are gathered once each, by 4 devices (§4.8 of the reference gathers W2 forward and
    // backward), and their gradients are scattered.
    let both = |rows: u64| {
        vec![
            (AllGather, 8192 * 3 / 4),
            (AllGather, 8192 * 3 / 4),
            (ReduceScatter, rows / 2),
            (AllGather, 64),
            loss,
            (ReduceScatter, 64),
            (AllGather, rows / 2),
            (ReduceScatter, 8192 * 3 / 4),
            (AllReduce, 2 * 256 * 3 / 4),
            (ReduceScatter, 8192 * 3 / 4),
            (AllGather, 16),
        ]
    };
    // For few rows, those of W1's operand are gathered, hidden units and outputs are exchanged, and
    // weights stay in place.
    let few = |rows: u64| {
        vec![
            (AllGather, rows * 7 / 8),
            (AllToAll, 1792),
            (ReduceScatter, rows * 7 / 8),
            (AllGather, 112),
            loss,
            (AllGather, rows * 7 / 8),
            (AllToAll, 1792),
        ]
    };
    [
        Strategy {
            name: "data",
            grid: false,
            data: p!["x"],
            parameters: [p![], p![], p![], p![]],
            bytes: |_| 58464 + 12,
            moved: [
                // For 64 rows it is cheaper to gather them (8192 bytes), to compute the hidden
                // units in columns on each device, and to gather the new parameters than to sum
                // gradients: 47052 bytes instead of 58476.
                (
                    64,
                    vec![
                        (AllGather, 7168),
                        (AllToAll, 3584),
                        loss,
                        (AllGather, 7168),
                        (AllGather, 14336),
                        (AllGather, 448),
                        (AllGather, 14336),
                    ],
                ),
                (128, slopes()),
                (1024, slopes()),
            ],
        },
        Strategy {
            name: "fully sharded",
            grid: false,
            data: p!["x"],
            parameters: [p!["x"]; 4],
            bytes: |_| 58464 + 12,
            moved: [
                // Rows of 8192 and of 16384 bytes are cheaper than gathered weights and scattered
                // gradients.
                (64, few(8192)),
                (128, few(16384)),
                (
                    1024,
                    vec![
                        (AllGather, w / 2),
                        (AllGather, b1 / 2),
                        (AllGather, w / 2),
                        (AllGather, b2 / 2),
                        loss,
                        (ReduceScatter, b2 / 2),
                        (ReduceScatter, w / 2),
                        (ReduceScatter, b1 / 2),
                        (ReduceScatter, w / 2),
                    ],
                ),
            ],
        },
        Strategy {
            name: "tensor",
            grid: false,
            data: p![],
            parameters: [p![_, "x"], p!["x"], p!["x"], p![]],
            bytes: |b| 2 * b * 128 * 7 / 8,
            moved: [
                (64, vec![(AllReduce, 14336)]),
                (128, vec![(AllReduce, 28672)]),
                // For many rows, each device computes some with all of W2: hidden units are
                // exchanged, and outputs gathered, 186368 bytes instead of 229376.
                (1024, vec![(AllGather, 14336), (AllToAll, 57344), (AllGather, 114688)]),
            ],
        },
        Strategy {
            name: "data and tensor",
            grid: true,
            data: p!["x"],
            parameters: [p![_, "y"], p!["y"], p!["y"], p![]],
            bytes: |b| 25152 + 12 + b / 4 * 128,
            moved: [64, 128, 1024].map(|b| (b, data_and_tensor(b / 4 * 128))),
        },
        Strategy {
            name: "both, sharded",
            grid: true,
            data: p!["x"],
            parameters: [p!["x", "y"], p!["y"], p!["y", "x"], p!["x"]],
            bytes: |b| 25152 + 12 + b / 4 * 128,
            moved: [64, 128, 1024].map(|b| (b, both(b / 4 * 128))),
        },
    ]
}

/// Computes a step on a mesh, from the data and the four parameters: the new parameters and the
/// loss.
fn step(a: &[Array], mesh: &Mesh, parameters: [Spec; 4]) -> Vec<Array> {
    let (x, y) = (a[0].clone(), a[1].clone());
    let (loss, g) = value_and_grad(a[2..].to_vec(), |p: Vec<Array>| {
        let e = (x.dot(&p[0]) + &p[1]).maximum(0.0).dot(&p[2]) + &p[3] - &y;
        e.square().mean(..)
    });
    let new = (a[2..].iter().zip(&g).zip(parameters)).map(|((p, g), s)| (p - 0.1 * g).constrain_on(mesh, s));
    new.chain([loss]).collect()
}

/// The kinds and bytes of all collectives, in order, never exceed those of the strategy.
#[test]
fn a_step_of_two_layers_moves_what_its_strategy_asks_or_less() -> Result<()> {
    let line = Mesh::auto([("x", 8)])?;
    let grid = Mesh::auto([("x", 4), ("y", 2)])?;
    let (d, h) = (32, 128);
    for s in strategies() {
        let mesh = if s.grid { &grid } else { &line };
        for (b, moved) in s.moved {
            let put = |(shape, spec): (Vec<usize>, Spec)| Array::ones(shape).put(mesh, spec);
            let rows = vec![b as usize, d];
            let shapes = [rows.clone(), rows, vec![d, h], vec![h], vec![h, d], vec![d]];
            let specs = [s.data, s.data].into_iter().chain(s.parameters);
            let args: Vec<Array> = shapes.into_iter().zip(specs).map(put).collect();
            let lowered = jit(|a: &Vec<Array>| step(a, mesh, s.parameters)).lower(&args)?;
            let c = lowered.collectives();
            let now: Vec<(CollectiveKind, u64)> = c.iter().map(|c| (c.kind, c.bytes_per_device)).collect();
            assert_eq!(now, moved, "{}, {b}\n{c}", s.name);
            assert!(c.iter().all(|c| c.count == 1), "{}, {b}\n{c}", s.name);
            let strategy = (s.bytes)(b);
            assert!(c.bytes() <= strategy, "{}, {b}: the strategy has {strategy}\n{c}", s.name);
        }
    }
    Ok(())
}
