//! A training step of two layers with the five strategies of §4.8 of the auto mode's specification:
//! the bytes that each moves, compared with formulas.

use super::{Axes, GRID, LINE, V};
use atmesh::prelude::*;
use atmesh::{CollectiveKind, Collectives};

const D: usize = 32;
const H: usize = 128;
/// The bytes of the weights, and of both biases.
const W: usize = D * H * 4;
const B1: usize = H * 4;
const B2: usize = D * 4;

/// Returns the loss and the new parameters.
fn step(a: &V) -> V {
    let [x, y, w, b, v, c] = [0, 1, 2, 3, 4, 5].map(|k| a[k].clone());
    let loss = |p: V| (x.dot(&p[0]) + &p[1]).relu().dot(&p[2]) + &p[3] - &y;
    let parameters = vec![w, b, v, c];
    let (value, slopes) = value_and_grad(parameters.clone(), |p: V| loss(p).square().mean(..));
    let new = parameters.iter().zip(&slopes).map(|(p, s)| p - 0.1 * s);
    std::iter::once(value).chain(new).collect()
}

/// Returns the collectives of a step on a mesh, with these shardings of data and parameters;
/// parameters keep their sharding.
fn moved(mesh: Axes, batch: usize, data: Spec, parameters: [Spec; 4]) -> Result<Collectives> {
    let mesh = Mesh::auto(mesh.iter().copied())?;
    let shapes = [vec![D, H], vec![H], vec![H, D], vec![D]];
    let specs = [data, data].into_iter().chain(parameters);
    let shapes = [vec![batch, D], vec![batch, D]].into_iter().chain(shapes);
    let args: V = shapes.zip(specs).map(|(n, s)| Array::ones(n).put(&mesh, s)).collect();
    let results: Vec<Spec> = std::iter::once(p![]).chain(parameters).collect();
    let held = |y: V| -> V { y.iter().zip(&results).map(|(y, s)| y.constrain_on(&mesh, *s)).collect() };
    Ok(jit(|a: &V| held(step(a))).lower(&args)?.collectives().clone())
}

/// Returns the bytes by kind, without those of the loss, a scalar; the last entry is the sum of all
/// other kinds.
fn by_kind(all: &Collectives) -> [usize; 4] {
    let mut bytes = [0; 4];
    for c in all.iter().filter(|c| c.bytes_per_device > 12) {
        let k = [CollectiveKind::AllReduce, CollectiveKind::AllGather, CollectiveKind::ReduceScatter]
            .iter()
            .position(|k| *k == c.kind);
        bytes[k.unwrap_or(3)] += (c.bytes_per_device * c.count) as usize;
    }
    bytes
}

/// Returns the bytes that a device receives when `bytes` bytes are gathered or scattered over n
/// devices; an all-reduce needs twice as many.
fn ring(bytes: usize, n: usize) -> usize {
    bytes * (n - 1) / n
}

#[test]
fn a_step_of_two_layers_moves_what_the_formulas_say() -> Result<()> {
    for batch in [16, 64, 1024, 8192] {
        let rows = p!["x"];
        let all = W + B1 + W + B2;
        // For few rows, fewer bytes are moved in another way (weights stay in place, or each device
        // computes all rows), and also for many rows if sums are scattered or products exchanged.
        let says = |what: &str, exact: bool, report: Collectives, want: [usize; 4]| {
            let own = by_kind(&report);
            assert!(
                own.iter().sum::<usize>() <= want.iter().sum(),
                "{what}, batch {batch}, {want:?}\n{report}"
            );
            assert!(own == want || !exact, "{what}, batch {batch}, {want:?}\n{report}");
        };
        let whole = [p![], p![], p![], p![]];
        says("data", batch > 64, moved(LINE, batch, rows, whole)?, [2 * ring(all, 8), 0, 0, 0]);
        let split = [p!["x"], p!["x"], p!["x"], p!["x"]];
        says(
            "fully sharded",
            batch > 64,
            moved(LINE, batch, rows, split)?,
            [0, ring(all, 8), ring(all, 8), 0],
        );
        let columns = [p![_, "x"], p!["x"], p!["x"], p![]];
        let sums = batch * D * 4;
        says("tensor", batch == 64, moved(LINE, batch, p![], columns)?, [2 * ring(sums, 8), 0, 0, 0]);
        let columns = [p![_, "y"], p!["y"], p!["y"], p![]];
        let half = W / 2 + B1 / 2 + W / 2 + B2;
        let (sums, slopes) = (2 * ring(sums / 4, 2), 2 * ring(half, 4));
        says("data and tensor", false, moved(GRID, batch, rows, columns)?, [sums + slopes, 0, 0, 0]);
        let both = [p!["x", "y"], p!["y"], p!["y", "x"], p!["x"]];
        let (weights, bias) = (ring(W / 2 + W / 2 + B2, 4), 2 * ring(B1 / 2, 4));
        says("both, sharded", false, moved(GRID, batch, rows, both)?, [sums + bias, weights, weights, 0]);
    }
    Ok(())
}
