//! Stencils, and a step of two layers under each strategy: what is exchanged, to the byte.

use atmesh::prelude::*;
use atmesh::{Collectives, Kind};

/// Kinds, bytes of the busiest device, and messages.
fn told(c: &Collectives) -> Vec<(Kind, u64, u64)> {
    c.iter().map(|c| (c.kind, c.bytes, c.messages)).collect()
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
    let laid = u.put(&mesh, p!["x", "y"]);
    // a neighbour on each side along x, and one that is on both along y: 24 messages, where 4 permutes by 8 devices are 32
    assert_eq!(told(jit(five).lower(&laid)?.collectives()), [(Kind::Halo, 2 * (128 + 64), 24)]);
    // two whole edges, one of the other dimension, two corners (4 permutes, the second pair with the corners, are 2·128 + 2·72 = 400):
    // 2·6 + 8 + 2·6 messages
    assert_eq!(told(jit(nine).lower(&laid)?.collectives()), [(Kind::Halo, 2 * (128 + 4) + 64, 32)]);
    assert!(jit(five).call(&laid)?.allclose_by(&five(&u), 1e-5, 1e-5)?);
    assert!(jit(nine).call(&laid)?.allclose_by(&nine(&u), 1e-5, 1e-5)?);
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
        // the first and the last device have one neighbour
        let (both, one) = ((Kind::Halo, 4 * 2.min(n - 1), 2 * (n - 1)), (Kind::Halo, 4, n - 1));
        let forward = jit(run).lower(&x)?;
        assert_eq!(told(forward.collectives()), [both], "{n}: {}", forward.collectives());
        let slope = jit(|x: &Array| grad(x, |x| run(&x).square().sum(..))).lower(&x)?;
        assert_eq!(told(slope.collectives()), [both, one, one], "{n}: {}", slope.collectives());
        assert!(slope.collectives().iter().all(|c| c.times == 100));
    }
    Ok(())
}

#[test]
fn a_step_of_two_layers_moves_what_its_strategy_asks_or_less() -> Result<()> {
    let line = Mesh::auto([("x", 8)])?;
    let grid = Mesh::auto([("x", 4), ("y", 2)])?;
    let (d, h) = (32, 128);
    // all-reduces of parameters by 8; a loss of 4 bytes, of which the busiest device receives three
    let (p, loss) = (33408, 12);
    let ring = 2 * p * 7 / 8 + loss;
    // gradients of the half of the parameters that a device has (all of b2), by 4
    let quarter = 2 * 16768 * 3 / 4 + loss;
    // over a batch of b: bytes of the strategy, and ours for batches of 64, 128 and 1024
    type Bytes = fn(u64) -> u64;
    let (whole, split): (Bytes, Bytes) = (|b| 2 * b * 32 * 4 * 7 / 8, |b| b / 4 * 32 * 4);
    let rows = [
        ("dp", &line, p!["x"], [p![], p![], p![], p![]], (ring, None), [47052, ring, ring]),
        ("fsdp", &line, p!["x"], [p!["x"]; 4], (ring, None), [25212, 46716, ring]),
        ("tp", &line, p![], [p![_, "x"], p!["x"], p!["x"], p![]], (0, Some(whole)), [14336, 28672, 186368]),
        (
            "dp tp",
            &grid,
            p!["x"],
            [p![_, "y"], p!["y"], p!["y"], p![]],
            (quarter, Some(split)),
            [2048, 4096, 32768].map(|sum| quarter - 32 + sum),
        ),
        (
            "fsdp tp",
            &grid,
            p!["x"],
            [p!["x", "y"], p!["y"], p!["y", "x"], p!["x"]],
            (quarter, Some(split)),
            [2048, 4096, 32768].map(|sum| quarter - 48 + sum),
        ),
    ];
    for (name, mesh, data, w, (fixed, sums), ours) in rows {
        for (b, ours) in [64, 128, 1024].into_iter().zip(ours) {
            let put = |shape: &[usize], s: Spec| Array::ones(shape.to_vec()).put(mesh, s);
            let args = [
                put(&[b, d], data),
                put(&[b, d], data),
                put(&[d, h], w[0]),
                put(&[h], w[1]),
                put(&[h, d], w[2]),
                put(&[d], w[3]),
            ]
            .to_vec();
            let step = |a: &Vec<Array>| -> Vec<Array> {
                let (x, y) = (a[0].clone(), a[1].clone());
                let (loss, g) = value_and_grad(a[2..].to_vec(), |p: Vec<Array>| {
                    let e = (x.dot(&p[0]) + &p[1]).maximum(0.0).dot(&p[2]) + &p[3] - &y;
                    e.square().mean(..)
                });
                let mut out: Vec<Array> = (a[2..].iter().zip(&g).zip(w))
                    .map(|((p, g), s)| (p - 0.1 * g).constrain_on(mesh, s))
                    .collect();
                out.push(loss);
                out
            };
            let lowered = jit(step).lower(&args)?;
            let c = lowered.collectives();
            let strategy = fixed + sums.map_or(0, |sums| sums(b as u64));
            assert!(ours <= strategy, "{name}, {b}: {ours} bytes, the strategy has {strategy}");
            assert_eq!(c.bytes(), ours, "{name}, {b}: the strategy has {strategy}\n{c}");
            let of = |kind| c.iter().filter(|c| c.kind == kind).map(|c| c.bytes).collect::<Vec<_>>();
            match (name, b) {
                ("dp", 128 | 1024) => assert_eq!(of(Kind::AllReduce).iter().sum::<u64>(), ring, "{c}"),
                ("fsdp", 1024) => {
                    assert_eq!(of(Kind::AllGather).iter().sum::<u64>(), p * 7 / 8, "{c}");
                    assert_eq!(of(Kind::ReduceScatter).iter().sum::<u64>(), p * 7 / 8, "{c}");
                    assert_eq!(of(Kind::AllReduce), [loss], "{c}");
                }
                ("tp", 64 | 128) => assert_eq!(of(Kind::AllReduce), [strategy], "{c}"),
                // W1 and W2 are gathered once each
                ("fsdp tp", _) => {
                    assert_eq!(of(Kind::AllGather).iter().filter(|bytes| **bytes == 6144).count(), 2, "{c}");
                }
                _ => {}
            }
        }
    }
    Ok(())
}
