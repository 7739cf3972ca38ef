//! The non-linear shallow-water model of mpi4jax's demo (github.com/dionhaefner/shallow-water).

use super::Options;
use atmesh::prelude::*;
use std::f64::consts::PI;

const DX: f64 = 5e3;
const GRAVITY: f64 = 9.81;
const DEPTH: f64 = 100.0;
const CORIOLIS: f64 = 2e-4;
const BETA: f64 = 2e-11;
const VISCOSITY: f64 = 1e-3 * CORIOLIS * DX * DX;
/// The weights of the new and of the old tendency (Adams-Bashforth).
const WEIGHTS: (f64, f64) = (1.6, -0.6);

#[derive(Clone, Debug, Tree)]
struct State {
    h: Array,
    u: Array,
    v: Array,
    dh: Array,
    du: Array,
    dv: Array,
}

/// A grid on which values are; those at `V` are zero at the northern wall.
#[derive(Clone, Copy, PartialEq)]
enum Grid {
    H,
    U,
    V,
}

/// What differs between slices (auto axes) and shifts (explicit axes).
struct Method<'a> {
    /// Returns the inside of an array, moved by rows and columns.
    inside: &'a dyn Fn(&Array, i64, i64) -> Array,
    /// Writes the inside of an array.
    write: &'a dyn Fn(&Array, &Array) -> Array,
    /// Copies the first and the last row of the inside to the rows at the edges.
    extend: &'a dyn Fn(&Array) -> Array,
    /// Sets the values on the walls: periodic in x, and zero velocity through the northern wall.
    walls: &'a dyn Fn(&Array, Grid) -> Array,
    /// The time of a step.
    dt: f64,
}

impl Method<'_> {
    /// Returns the divergence of a flux at the inside.
    fn divergence(&self, east: &Array, north: &Array) -> Array {
        let at = self.inside;
        (at(east, 0, 0) - at(east, 0, -1)) / DX + (at(north, 0, 0) - at(north, -1, 0)) / DX
    }

    fn step(&self, s: &State, coriolis: &Array, first: bool) -> State {
        let (at, put) = (self.inside, self.write);
        let c = |a: &Array| at(a, 0, 0);
        let State { h, u, v, dh, du, dv } = s;
        let hc = (self.walls)(&(self.extend)(h), Grid::H);
        let zero = u.zeros_like();
        let east = (self.walls)(&put(&zero, &(0.5 * (c(&hc) + at(&hc, 0, 1)) * c(u))), Grid::U);
        let north = (self.walls)(&put(&zero, &(0.5 * (c(&hc) + at(&hc, 1, 0)) * c(v))), Grid::V);
        let dh_new = put(dh, &-self.divergence(&east, &north));
        let q = c(coriolis) + ((at(v, 0, 1) - c(v)) / DX - (at(u, 1, 0) - c(u)) / DX);
        let q = q * (1.0 / (0.25 * (c(&hc) + at(&hc, 0, 1) + at(&hc, 1, 0) + at(&hc, 1, 1))));
        let q = (self.walls)(&put(&zero, &q), Grid::H);
        let du_new = -GRAVITY * (at(h, 0, 1) - c(h)) / DX
            + 0.5
                * (c(&q) * 0.5 * (c(&north) + at(&north, 0, 1))
                    + at(&q, -1, 0) * 0.5 * (at(&north, -1, 0) + at(&north, -1, 1)));
        let dv_new = -GRAVITY * (at(h, 1, 0) - c(h)) / DX
            - 0.5
                * (c(&q) * 0.5 * (c(&east) + at(&east, 1, 0))
                    + at(&q, 0, -1) * 0.5 * (at(&east, 0, -1) + at(&east, 1, -1)));
        let along = |u: &Array, before: Array| 0.5 * (c(u).square() + before.square());
        let energy = 0.5 * (along(u, at(u, 0, -1)) + along(v, at(v, -1, 0)));
        let energy = (self.walls)(&put(&zero, &energy), Grid::H);
        let du_new = put(du, &(du_new - (at(&energy, 0, 1) - c(&energy)) / DX));
        let dv_new = put(dv, &(dv_new - (at(&energy, 1, 0) - c(&energy)) / DX));
        let ahead = |x: &Array, new: &Array, old: &Array| {
            let (a, b) = WEIGHTS;
            let change = if first { self.dt * c(new) } else { self.dt * (a * c(new) + b * c(old)) };
            put(x, &(c(x) + change))
        };
        let h = (self.walls)(&ahead(h, &dh_new, dh), Grid::H);
        let u = (self.walls)(&ahead(u, &du_new, du), Grid::U);
        let v = (self.walls)(&ahead(v, &dv_new, dv), Grid::V);
        let u = self.friction(&u, &u, (&east, &north));
        let v = self.friction(&v, &u, (&east, &north));
        State { h, u, v, dh: dh_new, du: du_new, dv: dv_new }
    }

    /// Adds friction to the velocity `w`, as the demo computes it.
    fn friction(&self, w: &Array, u: &Array, (east, north): (&Array, &Array)) -> Array {
        let (at, put) = (self.inside, self.write);
        let slope = |moved: Array| VISCOSITY * (moved - at(u, 0, 0)) / DX;
        let east = (self.walls)(&put(east, &slope(at(w, 0, 1))), Grid::U);
        let north = (self.walls)(&put(north, &slope(at(w, 1, 0))), Grid::V);
        put(w, &(at(w, 0, 0) + self.dt * self.divergence(&east, &north)))
    }

    fn run(&self, s: &State, coriolis: &Array, steps: i32) -> State {
        let s = self.step(s, coriolis, true);
        fori_loop(0..steps - 1, &s, |_, s| self.step(&s, coriolis, false))
    }
}

/// Returns the initial state and the Coriolis parameter of each point.
fn start(ny: usize, nx: usize) -> (State, Array) {
    let along = |n: usize| (Array::arange(0..n as i32).astype(F64) - 1.0) * DX;
    let (x, y) = (along(nx).expand_dims(0), along(ny).expand_dims(1));
    let (lx, ly) = ((nx as f64 - 3.0) * DX, (ny as f64 - 3.0) * DX);
    let coriolis = CORIOLIS + &y * BETA + 0.0 * &x;
    let u = 10.0 * (-(&y - 0.5 * ly).square() / (0.02 * lx).powi(2)).exp() + 0.0 * &x;
    let u = u.astype(F32);
    let balance = (-DX * u.astype(F64) * &coriolis / GRAVITY).cumsum(0);
    let waves = 0.2 * (&x / lx * 10.0 * PI).sin() * (&y / ly * 8.0 * PI).cos();
    let h = (DEPTH + &balance - balance.mean(..) + waves).astype(F32);
    let z = h.zeros_like();
    let s = State { h, v: z.clone(), u, dh: z.clone(), du: z.clone(), dv: z };
    (s, coriolis.astype(F32))
}

/// Times a grid, on one device, and on a mesh that divides both of its dimensions.
pub(crate) fn shallow_water(o: &Options, name: &str, (ny, nx): (usize, usize), steps: i32) -> Result<()> {
    let dt = 0.125 * DX / (GRAVITY * DEPTH).sqrt();
    let inside = |a: &Array, y: i64, x: i64| {
        let part = |k: i64, n: usize| 1 + k as i32..(n as i64 - 1 + k) as i32;
        a.slice(ix![part(y, ny), part(x, nx)])
    };
    let write = |a: &Array, b: &Array| a.at(ix![1..-1, 1..-1]).set(b);
    let extend = |h: &Array| h.at(ix![0]).set(h.slice(ix![1])).at(ix![-1]).set(h.slice(ix![-2]));
    let walls = |x: &Array, grid: Grid| {
        let x = x.at(ix![.., -1]).set(x.slice(ix![.., 1]));
        let x = x.at(ix![.., 0]).set(x.slice(ix![.., -2]));
        if grid == Grid::V { x.at(ix![-2]).set(0.0) } else { x }
    };
    let slices = Method { inside: &inside, write: &write, extend: &extend, walls: &walls, dt };
    let (s, coriolis) = start(ny, nx);
    let s = State { h: walls(&s.h, Grid::H), u: walls(&s.u, Grid::U), v: walls(&s.v, Grid::V), ..s };
    let part = |s: &State| s.u.clone();
    let f = jit(|s: &State, coriolis: &Array| slices.run(s, coriolis, steps));
    o.program(&format!("{name}/one"), &f, (&s, &coriolis), part)?;
    let on = |mesh: &Mesh| (tree::put(&s, mesh, p!["y", "x"]), coriolis.put(mesh, p!["y", "x"]));
    let (s, c) = on(&Mesh::auto([("y", 2), ("x", 2)])?);
    o.program(&format!("{name}/auto"), &f, (&s, &c), part)?;
    // On explicit axes sizes stay: arrays are shifted, and a mask selects the inside.
    let mesh = Mesh::new([("y", 2), ("x", 2)])?;
    let (s, c) = on(&mesh);
    let mask = Array::zeros(Bool.array_type([ny, nx])).at(ix![1..-1, 1..-1]).set(true);
    let mask = mask.put(&mesh, p!["y", "x"]).ready()?;
    let inside = |a: &Array, y: i64, x: i64| {
        let a = if y == 0 { a.clone() } else { a.shift(-y, 0, 0.0) };
        if x == 0 { a } else { a.shift(-x, 1, 0.0) }
    };
    let write = |a: &Array, b: &Array| mask.select(b, a);
    let row = |k: i64| Array::arange(0..ny as i32).eq(k).expand_dims(1).put(&mesh, p!["y", _]).ready();
    let column = |k: i64| Array::arange(0..nx as i32).eq(k).expand_dims(0).put(&mesh, p![_, "x"]).ready();
    let (south, north, wall) = (row(0)?, row(ny as i64 - 1)?, row(ny as i64 - 2)?);
    let (west, east) = (column(0)?, column(nx as i64 - 1)?);
    let read_row = |a: &Array, k: i64| a.at(ix![k]).out_sharding(p!["x"]).get().expand_dims(0);
    let read_column = |a: &Array, k: i64| a.at(ix![.., k]).out_sharding(p!["y"]).get().expand_dims(1);
    let extend = |h: &Array| south.select(read_row(h, 1), north.select(read_row(h, -2), h));
    let walls = |x: &Array, grid: Grid| {
        let x = west.select(read_column(x, -2), east.select(read_column(x, 1), x));
        if grid == Grid::V { wall.select(0.0, x) } else { x }
    };
    let shifts = Method { inside: &inside, write: &write, extend: &extend, walls: &walls, dt };
    let f = jit(|s: &State, coriolis: &Array| shifts.run(s, coriolis, steps));
    o.program(&format!("{name}/explicit"), &f, (&s, &c), part)
}
