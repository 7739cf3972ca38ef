//! Tests per-device code: collectives, loops and branches, executed device by device.

use super::{oracle::check, plain::plain};
use crate::api::array::{AllToAll, Array, CollectiveDim, Permutation};
use crate::api::shard_map::shard_map;
use crate::api::transform::{Lowered, cond, fori_loop, while_loop};
use crate::core::Mesh;
use crate::partition::collective::CollectiveKind;
use crate::partition::program::{SpmdProgram, Step};
use crate::{Result, axis_index, p};

/// Runs a lowered program on the oracle and device by device, and returns its result.
fn run<I: crate::Tree, O: crate::Tree>(lowered: &Lowered<I, O>, args: &[Vec<f64>]) -> Vec<f64> {
    let p: &SpmdProgram = lowered.spmd();
    let expected = plain(p, args);
    let traffic = check(p, &expected, args);
    let c = lowered.collectives();
    let loops = p.steps.iter().any(|s| matches!(s, Step::While { .. } | Step::Loop { .. }));
    if !loops {
        assert_eq!(traffic.elements as u64 * 4, c.total_bytes(), "{c}\n{p}");
        let messages: u64 = c.iter().map(|c| c.messages).sum();
        assert!(c.iter().any(|c| !c.messages_exact) || messages == traffic.messages as u64, "{c}\n{p}");
    }
    expected.into_iter().next().expect("one result")
}

fn counted(n: usize) -> Vec<f64> {
    (0..n).map(|i| i as f64).collect()
}

#[test]
fn collectives_are_what_they_say() -> Result<()> {
    let mesh = Mesh::new([("x", 8)])?;
    let a = Array::arange(0.0..128.0f32).put(&mesh, p!["x"]);
    let args = [counted(128)];
    let block = |d: usize, i: usize| (16 * d + i) as f64;

    let l = shard_map(&mesh, p!["x"], p![], |x: &Array| x.psum("x")).lower(&a)?;
    l.collectives().assert(&[(CollectiveKind::AllReduce, "x".into(), 1)]);
    assert_eq!(l.collectives().bytes(), 112);
    let sums: Vec<f64> = (0..16).map(|i| (0..8).map(|d| block(d, i)).sum()).collect();
    assert_eq!(run(&l, &args), sums);
    // a single reduction reads the argument itself
    let locals = l.spmd().steps.iter().filter(|s| {
        matches!(s, Step::Local { nest, .. }
            if matches!(nest.compute, crate::ir::program::loop_nest::Compute::Reduce { .. }))
    });
    assert_eq!(locals.count(), 1);

    let l = shard_map(&mesh, p!["x"], p!["x"], |x: &Array| x.psum_scatter("x", CollectiveDim::tiled(0)))
        .lower(&a)?;
    l.collectives().assert(&[(CollectiveKind::ReduceScatter, "x".into(), 1)]);
    assert_eq!(l.collectives().bytes(), 56);
    assert_eq!(run(&l, &args), sums);

    let l =
        shard_map(&mesh, p!["x"], p![], |x: &Array| x.all_gather("x", CollectiveDim::tiled(0).invarying()))
            .lower(&a)?;
    l.collectives().assert(&[(CollectiveKind::AllGather, "x".into(), 1)]);
    assert_eq!(l.collectives().bytes(), 448);
    assert_eq!(run(&l, &args), counted(128));

    let l =
        shard_map(&mesh, p!["x"], p![], |x: &Array| x.all_gather("x", CollectiveDim::stacked(1).invarying()))
            .lower(&a)?;
    let expected: Vec<f64> = (0..16).flat_map(|i| (0..8).map(move |d| block(d, i))).collect();
    assert_eq!(run(&l, &args), expected);

    let l =
        shard_map(&mesh, p!["x"], p!["x"], |x: &Array| x.ppermute("x", Permutation::ring(1))).lower(&a)?;
    l.collectives().assert(&[(CollectiveKind::Permute, "x".into(), 1)]);
    assert_eq!(l.collectives().bytes(), 64);
    let expected: Vec<f64> = (0..8).flat_map(|d| (0..16).map(move |i| block((d + 7) % 8, i))).collect();
    assert_eq!(run(&l, &args), expected);

    // the result has a consumer here; devices that receive nothing have zeros
    let l = shard_map(&mesh, p!["x"], p!["x"], |x: &Array| x.ppermute("x", Permutation::shift(1)) * 2.0)
        .lower(&a)?;
    l.collectives().assert(&[(CollectiveKind::Permute, "x".into(), 1)]);
    let moved = |d: usize, i| if d == 0 { 0.0 } else { 2.0 * block(d - 1, i) };
    let expected: Vec<f64> = (0..8).flat_map(|d| (0..16).map(move |i| moved(d, i))).collect();
    assert_eq!(run(&l, &args), expected);

    let l = shard_map(&mesh, p!["x"], p!["x"], |x: &Array| x.all_to_all("x", AllToAll::split(0).concat(0)))
        .lower(&a)?;
    l.collectives().assert(&[(CollectiveKind::AllToAll, "x".into(), 1)]);
    assert_eq!(l.collectives().bytes(), 56);
    let expected: Vec<f64> = (0..8).flat_map(|d| (0..16).map(move |i| block(i / 2, 2 * d + i % 2))).collect();
    assert_eq!(run(&l, &args), expected);
    Ok(())
}

#[test]
fn blocks_of_other_dimensions_and_axes() -> Result<()> {
    let mesh = Mesh::new([("x", 2), ("y", 2)])?;
    let a = Array::arange(0.0..32.0f32).reshape([4, 8]).put(&mesh, p!["x", "y"]);
    let args = [counted(32)];
    // sums over both axes, first together, then along one axis only
    let l = shard_map(&mesh, p!["x", "y"], p![], |x: &Array| x.psum(("x", "y"))).lower(&a)?;
    let at = |i: usize, j: usize| (8 * i + j) as f64;
    let sum = |i, j| at(i, j) + at(i + 2, j) + at(i, j + 4) + at(i + 2, j + 4);
    let expected: Vec<f64> = (0..2).flat_map(|i| (0..4).map(move |j| sum(i, j))).collect();
    assert_eq!(run(&l, &args), expected);
    let l = shard_map(&mesh, p!["x", "y"], p!["x"], |x: &Array| x.psum("y")).lower(&a)?;
    let expected: Vec<f64> = (0..4).flat_map(|i| (0..4).map(move |j| at(i, j) + at(i, j + 4))).collect();
    assert_eq!(run(&l, &args), expected);
    // blocks are joined as they were cut, whichever axes cut the dimensions
    for (spec, from) in [(p![_, ("x", "y")], p![_, ("x", "y")]), (p![("y", "x")], p![("y", "x"), _])] {
        let b = Array::arange(0.0..32.0f32).reshape([4, 8]).put(&mesh, from);
        let l = shard_map(&mesh, spec, spec, |x: &Array| x + 1.0).lower(&b)?;
        assert!(l.collectives().is_empty());
        assert_eq!(run(&l, &args), (0..32).map(|i| i as f64 + 1.0).collect::<Vec<_>>());
    }
    // device indices along two axes
    let l = shard_map(&mesh, p!["x", "y"], p!["x", "y"], |x: &Array| {
        x * 0.0 + axis_index(("y", "x")).astype(crate::DType::F32)
    })
    .lower(&a)?;
    let expected: Vec<f64> = (0..4).flat_map(|i| (0..8).map(move |j| (2 * (j / 4) + i / 2) as f64)).collect();
    assert_eq!(run(&l, &args), expected);
    Ok(())
}

#[test]
fn control_flow_inside() -> Result<()> {
    let mesh = Mesh::new([("x", 4)])?;
    let a = Array::arange(0.0..8.0f32).put(&mesh, p!["x"]);
    let args = [counted(8)];
    // a ring of sums: each iteration passes the block on
    let l = shard_map(&mesh, p!["x"], p!["x"], |x: &Array| {
        fori_loop(0..3, x, |_, x: Array| &x + &x.ppermute("x", Permutation::ring(1)))
    })
    .lower(&a)?;
    let mut expected = counted(8);
    for _ in 0..3 {
        expected = (0..8).map(|i| expected[i] + expected[(i + 6) % 8]).collect();
    }
    assert_eq!(run(&l, &args), expected);
    // each device continues until the sum of its block is large
    let l = shard_map(&mesh, p!["x"], p!["x"], |x: &Array| {
        while_loop(x, |x: &Array| x.sum(..).lt(20.0), |x: Array| x + 3.0)
    })
    .unchecked()
    .lower(&a)?;
    let grown = |d: usize| {
        let (mut a, mut b) = (2.0 * d as f64, 2.0 * d as f64 + 1.0);
        while a + b < 20.0 {
            (a, b) = (a + 3.0, b + 3.0);
        }
        [a, b]
    };
    assert_eq!(run(&l, &args), (0..4).flat_map(grown).collect::<Vec<_>>());
    // each device takes the branch that its block selects
    let l = shard_map(&mesh, p!["x"], p!["x"], |x: &Array| cond(x.sum(..).lt(6.0), || x * 10.0, || x - 1.0))
        .lower(&a)?;
    let taken = |d: usize| {
        let (a, b) = (2.0 * d as f64, 2.0 * d as f64 + 1.0);
        if a + b < 6.0 { [a * 10.0, b * 10.0] } else { [a - 1.0, b - 1.0] }
    };
    assert_eq!(run(&l, &args), (0..4).flat_map(taken).collect::<Vec<_>>());
    Ok(())
}

/// Tests a sum by exchanges that is declared equal on all devices: each device uses its own result.
#[test]
fn declared_equal_values_are_used_locally() -> Result<()> {
    let mesh = Mesh::new([("x", 4), ("y", 2)])?;
    let a = Array::arange(0.0..32.0f32).reshape([4, 8]).put(&mesh, p!["x", "y"]);
    let doubled = |x: &Array| {
        (0..2).fold(x.clone(), |x, k| {
            &x + x.ppermute("x", (0..4).map(|i| (i, i ^ (1 << k))).collect::<Vec<_>>())
        })
    };
    let sum: Vec<f64> = (0..8).map(|j| (0..4).map(|i| (8 * i + j) as f64).sum()).collect();
    let whole = || shard_map(&mesh, p!["x", "y"], p![_, "y"], doubled).unchecked();
    let (f, g, h) = (whole(), whole(), whole());
    let rows = |x: &Array| Ok::<Array, crate::Error>(g.call(x)?.broadcast_to([4, 8]) + x);
    let lowered = [
        (f.lower(&a)?, sum.clone()),
        (crate::jit(rows).lower(&a)?, (0..32).map(|k| sum[k % 8] + k as f64).collect()),
        (
            crate::jit(|x: &Array| {
                Ok::<Array, crate::Error>(h.call(x)?.reshape([8]).reshard(p![("y", "x")]))
            })
            .lower(&a)?,
            sum,
        ),
    ];
    for (l, expected) in lowered {
        assert_eq!(run(&l, &[counted(32)]), expected, "{}", l.spmd());
        assert_eq!(l.collectives().bytes(), 2 * 4 * 4, "{}\n{}", l.collectives(), l.spmd());
        l.plan(&crate::partition::plan::Machine::h100().links(crate::partition::plan::Link::NVLINK_4))?;
    }
    Ok(())
}

#[test]
fn loop_invariant_gathers_are_hoisted() -> Result<()> {
    let mesh = Mesh::new([("x", 8)])?;
    let w = Array::ones([16, 16]).put(&mesh, p!["x"]);
    let v = Array::ones([64, 16]).put(&mesh, p!["x"]);
    let l = crate::jit(|v: &Array, w: &Array| fori_loop(0..5, v, |_, v: Array| v.dot(w.reshard(p![]))))
        .lower((&v, &w))?;
    l.collectives().assert(&[(CollectiveKind::AllGather, "x".into(), 1)]);
    assert_eq!(l.collectives().bytes(), 896, "{}", l.collectives());
    Ok(())
}

#[test]
fn loop_invariant_values_are_hoisted() -> Result<()> {
    // coefficients at cell faces, whose neighbours each iteration reads; checked on separate
    // memories and with uneven blocks
    for (devices, n) in [(2, 12), (4, 24), (8, 24), (4, 21), (8, 21)] {
        let mesh = Mesh::auto([("x", devices)])?;
        let of = |from: usize| Array::arange(from as f32..(from + n) as f32).put(&mesh, p!["x"]);
        let l = crate::jit(|u: &Array, k: &Array| {
            fori_loop(0..3, u, |_, u: Array| {
                let face = k + 2.0 * k.roll(-1, 0);
                &u + &face * u.roll(-1, 0) - face.roll(1, 0) * u.roll(1, 0)
            })
        })
        .lower((&of(0), &of(5)))?;
        let inside = l.spmd().steps.iter().filter_map(|s| match s {
            Step::Loop { body, .. } => Some(body.steps.iter().filter(|s| s.fetches().is_some()).count()),
            _ => None,
        });
        assert_eq!(inside.collect::<Vec<_>>(), [1], "{devices} devices, {n}\n{}", l.spmd());
        let (mut u, k) = (counted(n), counted(n).iter().map(|x| x + 5.0).collect::<Vec<f64>>());
        let args = [u.clone(), k.clone()];
        let face: Vec<f64> = (0..n).map(|i| k[i] + 2.0 * k[(i + 1) % n]).collect();
        for _ in 0..3 {
            let at = |i: usize| u[i] + face[i] * u[(i + 1) % n] - face[(i + n - 1) % n] * u[(i + n - 1) % n];
            u = (0..n).map(at).collect();
        }
        assert_eq!(run(&l, &args), u);
    }
    Ok(())
}
