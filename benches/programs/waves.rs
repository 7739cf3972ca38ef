//! Maxwell's equations in two dimensions, and a wave on a membrane, by finite differences: 50 steps
//! of a pulse on 1024 × 1024 points. Most values are subnormal, which both sides flush to zero.

use super::Options;
use atmesh::array::Index;
use atmesh::prelude::*;

const N: usize = 1024;
const STEPS: i32 = 50;

type Fields = (Array, Array, Array);

fn pulse() -> Result<Array> {
    let x = Array::linspace(-8.0, 8.0, N, true);
    (-(x.square().expand_dims(1) + x.square())).exp().ready()
}

/// Returns `value` at the indices of a range along y, and 0 elsewhere: a column that broadcasts.
fn rows(range: Index, value: f32, mesh: &Mesh) -> Result<Array> {
    Array::zeros([N]).at(range).set(value).expand_dims(1).put(mesh, p!["y", _]).ready()
}

/// Returns `value` at the indices of a range along x, and 0 elsewhere: a row that broadcasts.
fn columns(range: Index, value: f32, mesh: &Mesh) -> Result<Array> {
    Array::zeros([N]).at(range).set(value).expand_dims(0).put(mesh, p![_, "x"]).ready()
}

/// Advances the fields by slices.
fn maxwell((ez, hx, hy): Fields) -> Fields {
    let hx = hx.at(ix![.., ..-1]).add(-0.5 * (ez.slice(ix![.., 1..]) - ez.slice(ix![.., ..-1])));
    let hy = hy.at(ix![..-1]).add(0.5 * (ez.slice(ix![1..]) - ez.slice(ix![..-1])));
    let curl = hy.slice(ix![1..-1, 1..-1]) - hy.slice(ix![..-2, 1..-1]) - hx.slice(ix![1..-1, 1..-1]);
    let curl = curl + hx.slice(ix![1..-1, ..-2]);
    (ez.at(ix![1..-1, 1..-1]).add(0.5 * curl), hx, hy)
}

/// Masks of one dimension, by which the changes of the fields are multiplied: 0 on the walls, where
/// fields do not change, and the factor of the step elsewhere. `down` is for `hy`, `right` for `hx`,
/// and `inside` has the rows and the columns for `ez`.
struct Walls {
    down: Array,
    right: Array,
    inside: [Array; 2],
}

/// Advances the fields by shifts, which keep sizes.
fn maxwell_shifts((ez, hx, hy): Fields, w: &Walls) -> Fields {
    let hx = &hx - &w.right * (ez.shift(-1, 1, 0.0) - &ez);
    let hy = &hy + &w.down * (ez.shift(-1, 0, 0.0) - &ez);
    let curl = &hy - hy.shift(1, 0, 0.0) - &hx + hx.shift(1, 1, 0.0);
    (ez + &w.inside[0] * (&w.inside[1] * curl), hx, hy)
}

pub(crate) fn fdtd(o: &Options) -> Result<()> {
    let ez = pulse()?;
    let z = ez.zeros_like();
    let s: Fields = (ez, z.clone(), z);
    let first = |s: &Fields| s.0.clone();
    let f = jit(|s: &Fields| fori_loop(0..STEPS, s, |_, s| maxwell(s))).flush_subnormals(true);
    o.program("fdtd/one", &f, &s, first)?;
    let a = tree::put(&s, &Mesh::auto([("y", 2), ("x", 4)])?, p!["y", "x"]);
    o.program("fdtd/auto", &f, &a, first)?;
    let mesh = Mesh::new([("y", 2), ("x", 4)])?;
    let e = tree::put(&s, &mesh, p!["y", "x"]);
    let walls = Walls {
        down: rows(ix![..-1], 0.5, &mesh)?,
        right: columns(ix![..-1], 0.5, &mesh)?,
        inside: [rows(ix![1..-1], 0.5, &mesh)?, columns(ix![1..-1], 1.0, &mesh)?],
    };
    let f = jit(|s: &Fields| fori_loop(0..STEPS, s, |_, s| maxwell_shifts(s, &walls)));
    o.program("fdtd/explicit", &f.flush_subnormals(true), &e, first)
}

/// Advances a membrane whose edges are held, by slices.
fn membrane(u: &Array, old: &Array) -> Array {
    let mid = u.slice(ix![1..-1, 1..-1]);
    let around = u.slice(ix![..-2, 1..-1]) + u.slice(ix![2.., 1..-1]);
    let around = around + u.slice(ix![1..-1, ..-2]) + u.slice(ix![1..-1, 2..]);
    let next = 2.0 * &mid - old.slice(ix![1..-1, 1..-1]) + 0.25 * (around - 4.0 * &mid);
    u.at(ix![1..-1, 1..-1]).set(next)
}

/// Advances a membrane by shifts, which keep sizes; `inside` is true where it is not held.
fn membrane_shifts(u: &Array, old: &Array, inside: &Array) -> Array {
    let around = u.shift(1, 0, 0.0) + u.shift(-1, 0, 0.0) + u.shift(1, 1, 0.0) + u.shift(-1, 1, 0.0);
    inside.select(2.0 * u - old + 0.25 * (around - 4.0 * u), u)
}

pub(crate) fn wave(o: &Options) -> Result<()> {
    let u = pulse()?;
    let f = jit(|u: &Array| fori_loop(0..STEPS, (u, u), |_, (u, old)| (membrane(&u, &old), u)).0);
    let f = f.flush_subnormals(true);
    o.program("wave/one", &f, &u, Array::clone)?;
    o.program("wave/auto", &f, &u.put(&Mesh::auto([("y", 2), ("x", 4)])?, p!["y", "x"]), Array::clone)?;
    let mesh = Mesh::new([("y", 2), ("x", 4)])?;
    let inside = rows(ix![1..-1], 1.0, &mesh)? * columns(ix![1..-1], 1.0, &mesh)?;
    let inside = inside.gt(0.0).ready()?;
    let f =
        jit(|u: &Array| fori_loop(0..STEPS, (u, u), |_, (u, old)| (membrane_shifts(&u, &old, &inside), u)).0);
    o.program("wave/explicit", &f.flush_subnormals(true), &u.put(&mesh, p!["y", "x"]), Array::clone)
}
