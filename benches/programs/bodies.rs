//! 4096 bodies that attract one another: 2 steps, with all pairs as an array `[n, n, 3]`.

use super::{Options, norm};
use atmesh::prelude::*;
use std::hint::black_box;

const N: usize = 4096;
const STEPS: i32 = 2;
const DT: f64 = 1e-3;
const SOFTENING: f64 = 1e-2;

/// Returns the accelerations of the bodies at `x` by those at `y` with masses `m`.
fn pull(x: &Array, y: &Array, m: &Array) -> Array {
    let d = y.expand_dims(0) - x.expand_dims(1);
    let r2 = d.square().sum(2) + SOFTENING;
    let w = m / (&r2 * r2.sqrt());
    einsum("nk,nkd->nd", [&w, &d])
}

/// Returns the velocities after all steps. `all` gathers the positions or masses of all bodies.
fn advance(x: &Array, v: &Array, m: &Array, all: impl Fn(&Array) -> Array) -> Array {
    let m = all(m);
    fori_loop(0..STEPS, (x, v), |_, (x, v): (Array, Array)| {
        let v = v + DT * pull(&x, &all(&x), &m);
        (x + DT * &v, v)
    })
    .1
}

pub(crate) fn bodies(o: &Options) -> Result<()> {
    let [a, b, c] = Key::new(6).split();
    let (x, v) = (a.normal([N, 3]).ready()?, (0.1 * b.normal([N, 3])).ready()?);
    let m = (c.uniform([N]) / N as f32).ready()?;
    let run = jit(|x: &Array, v: &Array, m: &Array| advance(x, v, m, Array::clone));
    o.program("bodies/one", &run, (&x, &v, &m), Array::clone)?;
    let on = |mesh: &Mesh| [&x, &v, &m].map(|x| x.put(mesh, p!["X"]));
    let [xs, vs, ms] = on(&Mesh::auto([("X", 8)])?);
    o.program("bodies/auto", &run, (&xs, &vs, &ms), Array::clone)?;
    let run = jit(|x: &Array, v: &Array, m: &Array| advance(x, v, m, |x| x.reshard(p![])));
    let [xs, vs, ms] = on(&Mesh::new([("X", 8)])?);
    o.program("bodies/explicit", &run, (&xs, &vs, &ms), Array::clone)?;
    plain(o, &x.to_vec()?, &v.to_vec()?, &m.to_vec()?)
}

/// Times the same steps as plain loops on one core.
fn plain(o: &Options, x: &[f32], v: &[f32], m: &[f32]) -> Result<()> {
    let run = || {
        let (mut x, mut v) = (x.to_vec(), v.to_vec());
        for _ in 0..STEPS {
            for i in 0..N {
                let mut sum = [0f32; 3];
                for j in 0..N {
                    let d: [f32; 3] = std::array::from_fn(|k| x[3 * j + k] - x[3 * i + k]);
                    let r2 = d[0] * d[0] + d[1] * d[1] + d[2] * d[2] + SOFTENING as f32;
                    let w = m[j] / (r2 * r2.sqrt());
                    sum.iter_mut().zip(d).for_each(|(sum, d)| *sum += w * d);
                }
                v[3 * i..3 * i + 3].iter_mut().zip(sum).for_each(|(v, a)| *v += DT as f32 * a);
            }
            x.iter_mut().zip(&v).for_each(|(x, v)| *x += DT as f32 * v);
        }
        v
    };
    o.time("bodies/one_plain", norm(&Array::from(run()))?, || {
        black_box(run());
        Ok(())
    })
}
