//! Every pair of shardings: resharding keeps the values, and no device receives a byte that it
//! already holds. Partial values are summed with as few bytes as possible if their blocks stay the
//! same.
//!
//! `RESHARDS=all cargo test --test sharding reshards::` runs all pairs and adds matrices and rank 3 on three axes, and takes
//! minutes.

use crate::soak::runs_all;
use atmesh::prelude::*;
use atmesh::{Axes, type_of};

/// A sharding: the axes that shard each dimension, and the axes over which the value is partial.
#[derive(Clone, Debug, PartialEq)]
struct Layout {
    dims: Vec<Vec<&'static str>>,
    parts: Vec<&'static str>,
}

/// A mesh given by its axes, with the coordinates of its devices.
struct Grid(Vec<(&'static str, usize)>);

impl Grid {
    fn new(sizes: &[usize]) -> Grid {
        Grid(["X", "Y", "Z"].into_iter().zip(sizes.iter().copied()).collect())
    }
    fn devices(&self) -> usize {
        self.0.iter().map(|a| a.1).product()
    }
    fn size(&self, axis: &str) -> usize {
        self.0.iter().find(|a| a.0 == axis).unwrap().1
    }
    fn coordinate(&self, device: usize, axis: &str) -> usize {
        let k = self.0.iter().position(|a| a.0 == axis).unwrap();
        let minor: usize = self.0[k + 1..].iter().map(|a| a.1).product();
        device / minor % self.0[k].1
    }
    /// Returns every sharding of arrays of this rank: each axis shards a dimension, in any order
    /// among its axes, or none, or makes the value partial.
    fn shardings(&self, rank: usize) -> Vec<Layout> {
        let mut all = vec![Layout { dims: vec![Vec::new(); rank], parts: Vec::new() }];
        for (axis, _) in &self.0 {
            for layout in all.clone() {
                for d in 0..rank {
                    for at in 0..=layout.dims[d].len() {
                        let mut more = layout.clone();
                        more.dims[d].insert(at, *axis);
                        all.push(more);
                    }
                }
                let mut more = layout.clone();
                more.parts.push(*axis);
                all.push(more);
            }
        }
        all
    }
    /// Returns true if a device's block holds the element, computed independently of the library.
    fn holds(&self, layout: &Layout, device: usize, element: &[usize], sizes: &[usize]) -> bool {
        layout.dims.iter().enumerate().all(|(d, axes)| {
            let mut block = (0, 1);
            for axis in axes {
                let n = self.size(axis);
                block = (block.0 * n + self.coordinate(device, axis), block.1 * n);
            }
            element[d] * block.1 / sizes[d] == block.0
        })
    }
    /// Returns how often an element must be sent between devices: a device receives the elements
    /// that it needs and does not hold. If the source is partial, and the target is not, each set
    /// of devices that holds all partial values sums them on one device, which sends the sum to the
    /// others that need it. If the target is partial, one partial value has the element: the one
    /// with the minimum cost.
    fn moves(&self, from: &Layout, to: &Layout, element: &[usize], sizes: &[usize]) -> usize {
        let made: Vec<&str> = to.parts.iter().copied().filter(|a| !from.parts.contains(a)).collect();
        let mut by_part: Vec<(Vec<usize>, Vec<bool>)> = Vec::new();
        for d in 0..self.devices() {
            let part: Vec<usize> = made.iter().map(|a| self.coordinate(d, a)).collect();
            let k = by_part.iter().position(|p| p.0 == part).unwrap_or_else(|| {
                by_part.push((part, vec![false; self.devices()]));
                by_part.len() - 1
            });
            by_part[k].1[d] = self.holds(to, d, element, sizes);
        }
        by_part.iter().map(|p| self.moves_to(from, to, element, sizes, &p.1)).min().unwrap()
    }
    /// Returns the same count for the given destination devices.
    fn moves_to(
        &self,
        from: &Layout,
        to: &Layout,
        element: &[usize],
        sizes: &[usize],
        want: &[bool],
    ) -> usize {
        let gone: Vec<&str> = from.parts.iter().copied().filter(|a| !to.parts.contains(a)).collect();
        let ways: usize = gone.iter().map(|a| self.size(a)).product();
        let wants = |device: &usize| want[*device];
        let has = |device: &usize| self.holds(from, *device, element, sizes);
        let devices = 0..self.devices();
        if ways == 1 {
            return devices.filter(|d| wants(d) && !has(d)).count();
        }
        // The devices that differ only along the axes over which the value is partial.
        let group = |device: usize| -> Vec<usize> {
            let others = self.0.iter().filter(|a| !gone.contains(&a.0));
            others.map(|a| self.coordinate(device, a.0)).collect()
        };
        let mut groups: Vec<Vec<usize>> = Vec::new();
        for d in devices {
            match groups.iter_mut().find(|g| group(g[0]) == group(d)) {
                Some(g) => g.push(d),
                None => groups.push(vec![d]),
            }
        }
        // Devices without a partial value receive the sum from others.
        let of = |g: &Vec<usize>| {
            let wanted = g.iter().filter(|d| wants(d)).count();
            if wanted == 0 {
                0
            } else if has(&g[0]) {
                ways - 1 + wanted - 1
            } else {
                wanted
            }
        };
        let moves: usize = groups.iter().map(of).sum();
        // Some device must compute the sum.
        let made = groups.iter().any(|g| has(&g[0]) && g.iter().any(&wants));
        let wanted = groups.iter().any(|g| g.iter().any(&wants));
        moves + if wanted && !made { ways - 1 } else { 0 }
    }
}

/// Returns true if blocks become partial values without communication: the axes are minor in a
/// dimension, or shard nothing.
fn in_place(from: &Layout, to: &Layout) -> bool {
    from.dims.iter().zip(&to.dims).all(|(had, has)| {
        had.strip_prefix(&has[..]).is_some_and(|gone| gone.iter().all(|a| to.parts.contains(a)))
    })
}

fn axes(names: &[&'static str]) -> Axes {
    names.iter().map(|a| Axis::from(*a)).collect()
}
fn spec_of(layout: &Layout) -> Spec {
    Spec::from_dims(layout.dims.iter().map(|d| axes(d)).collect()).unreduced(axes(&layout.parts))
}

/// Tests resharding between all pairs of shardings.
fn every_pair(grid: &[usize], sizes: &[usize], run: &[EngineKind]) -> Result<()> {
    pairs(grid, sizes, run, |_| true)
}

/// Tests resharding between all pairs of these shardings.
fn pairs(grid: &[usize], sizes: &[usize], run: &[EngineKind], these: fn(&Layout) -> bool) -> Result<()> {
    let grid = Grid::new(grid);
    let mesh = Mesh::new(grid.0.iter().copied())?;
    let n: usize = sizes.iter().product();
    let whole = Array::arange(0..n as i32).reshape(sizes);
    let values = whole.to_vec::<i32>()?;
    let place = |mut k: usize| -> Vec<usize> {
        let mut index: Vec<usize> = sizes.iter().rev().map(|n| (k % n, k /= n).0).collect();
        index.reverse();
        index
    };
    let elements: Vec<Vec<usize>> = (0..n).map(place).collect();
    let all: Vec<Layout> = grid.shardings(sizes.len()).into_iter().filter(these).collect();
    let mut wrong = Vec::new();
    let runs_each = runs_all() || std::env::var_os("RESHARDS").is_some();
    for (i, from) in all.iter().enumerate() {
        let x = whole.put(&mesh, spec_of(from));
        assert_eq!(x.to_vec::<i32>()?, values);
        for (k, to) in all.iter().enumerate() {
            // without a soak, the bytes of a third of the pairs are counted, and a ninth of them run
            if !runs_each && (i + k) % 3 != 0 {
                continue;
            }
            let spec = spec_of(to);
            // True if the device's partial value has the element: the one of its block, or the
            // first.
            let splits = |a: &&str| from.dims.iter().flatten().any(|b| *b == *a);
            let first = |d: usize| to.parts.iter().filter(|a| !splits(a)).all(|a| grid.coordinate(d, a) == 0);
            let mine = |d: usize, e: &[usize]| first(d) && grid.holds(from, d, e, sizes);
            let lowered = jit(|x: &Array| x.reshard(spec)).lower(&x)?;
            let moves = |e: &Vec<usize>| grid.moves(from, to, e, sizes);
            let needed = 4 * elements.iter().map(moves).sum::<usize>() as u64;
            let moved = lowered.collectives().total_bytes();
            // A change of the partial values or of the blocks may go by way of the full value.
            let least = match (from.parts.is_empty(), to.parts.is_empty()) {
                (true, true) => true,
                (true, false) => in_place(from, to),
                _ => from.dims == to.dims && to.parts.iter().all(|a| from.parts.contains(a)),
            };
            if moved < needed || least && moved != needed {
                wrong.push(format!("{from:?} to {to:?} moves {moved} bytes, {needed} are needed"));
            }
            let run = if runs_each || (i + k) % 9 == 0 { run } else { &[] };
            for engine in run {
                let y = jit(|x: &Array| x.reshard(spec)).engine(*engine).call(&x)?;
                assert_eq!(y.to_vec::<i32>()?, values, "{from:?} to {to:?} on {engine}");
                assert_eq!(type_of(&y), type_of(whole.put(&mesh, spec)));
                for (device, shard) in y.shards()?.iter().enumerate() {
                    let held =
                        || elements.iter().zip(&values).filter(|(e, _)| grid.holds(to, device, e, sizes));
                    let want: Vec<i32> = held().map(|(_, v)| *v).collect();
                    let got = shard.data.to_vec::<i32>()?;
                    // A device holds one of the partial values; their sum was compared above. A
                    // value that becomes partial in place has its old block, and zeros elsewhere.
                    let had = |(e, v): (&Vec<usize>, &i32)| if mine(device, e) { *v } else { 0 };
                    let same = if to.parts.is_empty() {
                        got == want
                    } else if from.parts.is_empty() && in_place(from, to) {
                        got == held().map(had).collect::<Vec<_>>()
                    } else {
                        got.len() == want.len()
                    };
                    assert!(same, "{from:?} to {to:?} on {engine}: device {device} holds {got:?}");
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} pairs on {:?}:\n{}", wrong.len(), grid.0, wrong.join("\n"));
    Ok(())
}

const BOTH: [EngineKind; 2] = [EngineKind::Lockstep, EngineKind::Threads];

#[test]
fn one_axis() -> Result<()> {
    for n in 1..=8 {
        every_pair(&[n], &[2 * n], &BOTH)?;
        every_pair(&[n], &[n, 2 * n], &BOTH)?;
        every_pair(&[n], &[n, n, 2 * n], &BOTH)?;
    }
    Ok(())
}

#[test]
fn two_axes_of_a_vector() -> Result<()> {
    for grid in [[2, 2], [2, 3], [3, 2], [2, 4], [4, 2], [1, 8], [7, 1]] {
        every_pair(&grid, &[2 * grid[0] * grid[1]], &BOTH)?;
    }
    Ok(())
}

#[test]
fn two_by_two() -> Result<()> {
    every_pair(&[2, 2], &[4, 8], &BOTH)
}

#[test]
fn two_by_four() -> Result<()> {
    every_pair(&[2, 4], &[8, 8], &BOTH)
}

#[test]
fn four_by_two() -> Result<()> {
    every_pair(&[4, 2], &[8, 16], &BOTH[..1])
}

/// Blocks whose boundaries differ: thirds against halves.
#[test]
fn two_by_three() -> Result<()> {
    every_pair(&[2, 3], &[6, 12], &BOTH[..1])?;
    every_pair(&[3, 2], &[6, 6], &BOTH[..1])
}

/// An axis of one device can be used in every way, and moves nothing.
#[test]
fn axes_of_one_device() -> Result<()> {
    every_pair(&[1, 5], &[5, 5], &BOTH[..1])?;
    every_pair(&[3, 1], &[3, 6], &BOTH[..1])?;
    every_pair(&[2, 1, 2], &[8], &BOTH[..1])
}

#[test]
fn two_by_two_by_two() -> Result<()> {
    every_pair(&[2, 2, 2], &[16], &BOTH)?;
    pairs(&[2, 2, 2], &[8, 8], &BOTH[..1], |layout| layout.parts.is_empty())
}

#[test]
fn rank_three() -> Result<()> {
    every_pair(&[2, 2], &[4, 4, 4], &BOTH[..1])
}

/// Tests that take too long by default: `RESHARDS=all`.
#[test]
fn all_the_others() -> Result<()> {
    if std::env::var("RESHARDS").is_err() {
        return Ok(());
    }
    every_pair(&[2, 2, 2], &[8, 8], &BOTH)?;
    every_pair(&[2, 3], &[6, 6, 6], &BOTH)?;
    every_pair(&[4, 2], &[8, 8, 8], &BOTH[..1])?;
    every_pair(&[2, 2, 2], &[8, 8, 8], &BOTH[..1])
}

/// Tests partial and reduced values: the value is the same after every reshard.
#[test]
fn sets_too() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let mut all = Vec::new();
    for layout in Grid::new(&[2, 2]).shardings(2).into_iter().filter(|layout| layout.parts.is_empty()) {
        let free: Vec<&str> =
            ["X", "Y"].into_iter().filter(|a| !layout.dims.iter().flatten().any(|b| b == a)).collect();
        // Each axis that shards nothing is in neither set, unreduced, or reduced.
        for k in 0..3_usize.pow(free.len() as u32) {
            let of = |set: usize| -> Axes {
                let choice = |i: usize| k / 3_usize.pow(i as u32) % 3;
                (0..free.len()).filter(|i| choice(*i) == set).map(|i| Axis::from(free[i])).collect()
            };
            all.push(spec_of(&layout).unreduced(of(1)).reduced(of(2)));
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
            assert_eq!(y.ty()?, F32.array_type([4, 8]).on(&mesh, *to), "{from} to {to}");
            assert_eq!(y.to_vec::<f32>()?, values, "{from} to {to}");
        }
    }
    Ok(())
}

/// Between sharded and unreduced nothing moves, in both directions: a sharded value becomes
/// unreduced, and the cotangent of that, which is reduced, becomes sharded; a reduced value becomes
/// sharded, and the cotangent of that becomes unreduced.
#[test]
fn a_block_becomes_a_partial_value_in_place() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let numbers = [1.0_f32, -2.5, f32::INFINITY, 4.0, f32::NAN, 6.0, 1e-40, 8.0];
    let split = Array::from(numbers).put(&mesh, p!["X"]);

    let made = jit(|x: &Array| x.reshard(p![_; U: "X"]));
    assert_collectives!(made.lower(&split)?);
    let y = made.call(&split)?;
    assert_eq!(type_of(&y), "float32[8]{U:X}");
    let held: Vec<Vec<f32>> = y.shards()?.iter().map(|s| s.data.to_vec()).collect::<Result<_>>()?;
    let bits = |x: &[f32]| x.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for (device, held) in held.iter().enumerate() {
        let mut want = [0.0; 8];
        let own = device / 2 * 4..device / 2 * 4 + 4;
        want[own.clone()].copy_from_slice(&numbers[own]);
        assert_eq!(bits(held), bits(&want), "device {device}");
    }
    assert_eq!(bits(&y.to_vec::<f32>()?), bits(&numbers));

    // Its cotangent is reduced, and each device takes its block.
    let whole = Array::arange(0.0..8.0f32).put(&mesh, p![_; R: "X"]);
    let back = jit(|x: &Array| grad(x, |x| (x.reshard(p![_; U: "X"]) * &whole).reshard(p![]).sum(..)));
    assert_collectives!(back.lower(&split)?);
    let g = back.call(&split)?;
    assert_eq!((type_of(&g).to_string(), g.to_vec()?), ("float32[8@X]".into(), whole.to_vec::<f32>()?));

    // Reduced to sharded, and back.
    let weight = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);
    let cut = jit(|x: &Array| x.reshard(p!["X"]));
    assert_collectives!(cut.lower(&whole)?);
    let back = jit(|x: &Array| grad(x, |x| (x.reshard(p!["X"]) * &weight).sum(..)));
    assert_collectives!(back.lower(&whole)?);
    let g = back.call(&whole)?;
    assert_eq!((type_of(&g).to_string(), g.to_vec()?), ("float32[8]{U:X}".into(), weight.to_vec::<f32>()?));
    Ok(())
}

/// The per-device program has the same size for any number of devices.
#[test]
fn a_block_becomes_a_part_on_any_mesh() -> Result<()> {
    let steps = |n: usize| -> Result<usize> {
        let mesh = Mesh::without_devices([("X", n), ("Y", 2)])?;
        let x = F32.array_type([n * 4, 6]).on(&mesh, p![("X", "Y"), _]);
        let lowered = jit(|x: &Array| x.reshard(p!["X", _; U: "Y"])).lower(x)?;
        assert_collectives!(lowered);
        Ok(lowered.spmd().to_string().replace(&(n * 4).to_string(), "n").len())
    };
    assert!(steps(32_768)? <= steps(4)? + 16);
    Ok(())
}
