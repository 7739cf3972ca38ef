//! One solution of each exercise.
use super::{Answers, Result};
use atmesh::prelude::*;

fn column_sums(x: &Array) -> Result<Array> {
    Ok(x.sum_to(0, p!["X"]))
}

fn normalized(x: &Array) -> Result<Array> {
    Ok(x / x.square().sum(Dims::keep(1)).sqrt())
}

/// Columns, then rows: the dimension that the first product leaves sharded is contracted by the
/// second. Slicing a replicated array needs no communication.
fn two_layers(x: &Array, up: &Array, down: &Array) -> Result<Array> {
    let (up, down) = (up.reshard(p![_, "X"]), down.reshard(p!["X", _]));
    Ok(x.dot(up).relu().dot_to(down, p![]))
}

fn gram(x: &Array) -> Result<Array> {
    Ok(x.t().dot_to(x, p!["X", _]))
}

fn turned(x: &Array) -> Result<Array> {
    Ok(x.reshard(p![_, "X"]))
}

fn late_sum(a: &Array, b: &Array) -> Result<Array> {
    let parts = p![_, _; U: "X"];
    Ok((a.dot_to(b, parts) + a.dot_to(2.0 * b, parts)).reshard(p![]))
}

fn smoothed(x: &Array) -> Result<Array> {
    Ok((x.roll(1, 0) + x + x.roll(-1, 0)) / 3.0)
}

fn own_mean(x: &Array) -> Result<Array> {
    let ty = x.ty()?;
    let mesh = ty.mesh.as_ref().expect("it is on a mesh");
    shard_map(mesh, p!["X"], p!["X"], |x: &Array| x - x.mean(..).pmean("X")).call(x)
}

fn step(w: &Array, x: &Array) -> Result<Array> {
    Ok(w - 0.1 * grad(w, |w| x.dot(w).square().sum(..)))
}

fn power(m: &Array, v: &Array) -> Result<Array> {
    Ok(fori_loop(0..10, v, |_, v| {
        let v = m.dot(v.reshard(p![]));
        &v / v.square().sum(..).sqrt()
    }))
}

pub(super) const ANSWERS: Answers =
    Answers { column_sums, normalized, two_layers, gram, turned, late_sum, smoothed, own_mean, step, power };
