//! Every pair of shardings of a matrix: the values stay, and no byte moves that its device already holds.

use atmesh::prelude::*;
use atmesh::{Axes, type_of};

/// All specs of a matrix over the axes: each axis splits one of the two dimensions or none, in every order.
fn specs(axes: &[&'static str]) -> Vec<[Vec<&'static str>; 2]> {
    let mut all = vec![[Vec::new(), Vec::new()]];
    for axis in axes {
        for spec in all.clone() {
            for d in 0..2 {
                for at in 0..=spec[d].len() {
                    let mut more = spec.clone();
                    more[d].insert(at, *axis);
                    all.push(more);
                }
            }
        }
    }
    all
}

/// Whether each element of a `rows` by `columns` matrix is on each device (in mesh order), worked out element by element.
fn holds(mesh: &[(&'static str, usize)], spec: &[Vec<&'static str>; 2], sizes: [usize; 2]) -> Vec<Vec<bool>> {
    let devices: usize = mesh.iter().map(|a| a.1).product();
    let coordinate = |device: usize, axis: &str| {
        let k = mesh.iter().position(|a| a.0 == axis).unwrap();
        let minor: usize = mesh[k + 1..].iter().map(|a| a.1).product();
        (device / minor % mesh[k].1, mesh[k].1)
    };
    let on = |device: usize, element: [usize; 2]| {
        (0..2).all(|d| {
            let (mut block, mut blocks) = (0, 1);
            for axis in &spec[d] {
                let (at, n) = coordinate(device, axis);
                (block, blocks) = (block * n + at, blocks * n);
            }
            element[d] * blocks / sizes[d] == block
        })
    };
    let elements: Vec<[usize; 2]> = (0..sizes[0]).flat_map(|i| (0..sizes[1]).map(move |j| [i, j])).collect();
    (0..devices).map(|device| elements.iter().map(|e| on(device, *e)).collect()).collect()
}

fn spec_of(dims: &[Vec<&'static str>; 2]) -> Spec {
    Spec::of(dims.iter().map(|d| d.iter().map(|a| Axis::from(*a)).collect::<Axes>()).collect())
}

/// From every sharding to every other one.
fn every_pair(axes: &[(&'static str, usize)], sizes: [usize; 2], run: &[EngineKind]) -> Result<()> {
    let mesh = Mesh::new(axes.iter().copied())?;
    let names: Vec<&'static str> = axes.iter().map(|a| a.0).collect();
    let n = (sizes[0] * sizes[1]) as i32;
    let whole = Array::arange(0..n).reshape(sizes);
    let values = whole.to_vec::<i32>()?;
    let specs = specs(&names);
    let held: Vec<_> = specs.iter().map(|s| holds(axes, s, sizes)).collect();
    let mut wrong = Vec::new();
    for (from, before) in specs.iter().zip(&held) {
        let x = whole.put(&mesh, spec_of(from));
        assert_eq!(x.to_vec::<i32>()?, values);
        for (to, after) in specs.iter().zip(&held) {
            let spec = spec_of(to);
            let lowered = jit(|x: &Array| x.reshard(spec)).lower(&x)?;
            let missing =
                |(b, a): (&Vec<bool>, &Vec<bool>)| b.iter().zip(a).filter(|(b, a)| **a && !**b).count();
            let needed = 4 * before.iter().zip(after).map(missing).sum::<usize>() as u64;
            let moved = lowered.collectives().total_bytes();
            if moved != needed {
                wrong.push(format!("{from:?} to {to:?} moves {moved} bytes, {needed} are needed"));
            }
            for engine in run {
                let y = jit(|x: &Array| x.reshard(spec)).engine(*engine).call(&x)?;
                assert_eq!(y.to_vec::<i32>()?, values, "{from:?} to {to:?} on {engine}");
                assert_eq!(type_of(&y), type_of(whole.put(&mesh, spec)));
                let shards = y.shards()?;
                for (shard, here) in shards.iter().zip(after) {
                    let want: Vec<i32> =
                        values.iter().zip(here).filter(|(_, here)| **here).map(|(v, _)| *v).collect();
                    assert_eq!(shard.data.to_vec::<i32>()?, want, "{from:?} to {to:?} on {engine}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} pairs:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn two_by_two() -> Result<()> {
    every_pair(&[("X", 2), ("Y", 2)], [4, 8], &[EngineKind::Lockstep, EngineKind::Threads])
}

#[test]
fn two_by_four() -> Result<()> {
    every_pair(&[("X", 2), ("Y", 4)], [8, 8], &[EngineKind::Lockstep, EngineKind::Threads])
}

#[test]
fn four_by_two() -> Result<()> {
    every_pair(&[("X", 4), ("Y", 2)], [8, 16], &[EngineKind::Lockstep])
}

#[test]
fn two_by_two_by_two() -> Result<()> {
    every_pair(&[("X", 2), ("Y", 2), ("Z", 2)], [8, 8], &[EngineKind::Lockstep])
}

/// Blocks whose edges do not meet: a third against a half.
#[test]
fn two_by_three() -> Result<()> {
    every_pair(&[("X", 2), ("Y", 3)], [6, 12], &[EngineKind::Lockstep])
}

#[test]
fn one_axis() -> Result<()> {
    for n in [1, 3, 5, 7, 8] {
        every_pair(&[("X", n)], [n, 2 * n], &[EngineKind::Lockstep, EngineKind::Threads])?;
    }
    Ok(())
}

/// The same with values in parts and reduced ones: whatever a value was, it is the same value after.
#[test]
fn sets_too() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let mut all = Vec::new();
    for dims in specs(&["X", "Y"]) {
        let free: Vec<&str> =
            ["X", "Y"].into_iter().filter(|a| !dims.iter().flatten().any(|b| b == a)).collect();
        // each axis that splits nothing: of neither set, unreduced, or reduced
        for k in 0..3_usize.pow(free.len() as u32) {
            let of = |set: usize| -> Axes {
                let digit = |i: usize| k / 3_usize.pow(i as u32) % 3;
                (0..free.len()).filter(|i| digit(*i) == set).map(|i| Axis::from(free[i])).collect()
            };
            all.push(spec_of(&dims).unreduced(of(1)).reduced(of(2)));
        }
    }
    assert_eq!(all.len(), 27);
    let whole = Array::arange(0..32).astype(F32).reshape([4, 8]);
    let values = whole.to_vec::<f32>()?;
    for from in &all {
        let x = whole.put(&mesh, *from);
        assert_eq!(x.to_vec::<f32>()?, values, "{from}");
        for to in &all {
            let y = jit(|x: &Array| x.reshard(*to)).call(&x)?;
            assert_eq!(y.ty()?, F32.of([4, 8]).on(&mesh, *to), "{from} to {to}");
            assert_eq!(y.to_vec::<f32>()?, values, "{from} to {to}");
        }
    }
    Ok(())
}
