//! Poisson's equation on a torus of 1024 × 1024 points, by Fourier transforms.

use super::Options;
use atmesh::prelude::*;
use std::f64::consts::TAU;

const N: usize = 1024;

/// Divides each wave by minus the square of its wave number; the constant wave becomes zero.
fn divide(waves: &Array, minus_k2: &Array) -> Array {
    minus_k2.eq(0.0).select(waves.zeros_like(), waves / minus_k2.complex(minus_k2.zeros_like()))
}

/// Returns the right side, and minus the square of each wave number.
fn problem() -> Result<(Array, Array)> {
    let x = Array::arange(0..N as i32).astype(F32) / N as f32;
    let exact = (TAU * 3.0 * &x).sin().expand_dims(1) * (TAU * 5.0 * &x).cos().expand_dims(0);
    let rhs = (-(TAU * TAU * 34.0) * exact).ready()?;
    let k = Array::fftfreq(N, 1.0 / N as f64) * TAU;
    Ok((rhs, (-(k.square().expand_dims(1) + k.square())).ready()?))
}

pub(crate) fn poisson(o: &Options) -> Result<()> {
    let (rhs, minus_k2) = problem()?;
    let solve = jit(|rhs: &Array, minus_k2: &Array| divide(&rhs.fftn(2), minus_k2).ifftn(2).real());
    o.program("poisson/one", &solve, (&rhs, &minus_k2), Array::clone)?;
    let auto = Mesh::auto([("X", 8)])?;
    let args = (rhs.put(&auto, p!["X", _]), minus_k2.put(&auto, p!["X", _]));
    o.program("poisson/auto", &solve, (&args.0, &args.1), Array::clone)?;
    // Rows are transformed while they are whole, then columns.
    let pencils = jit(|rhs: &Array, minus_k2: &Array| {
        let waves = divide(&rhs.fft(1).reshard(p![_, "X"]).fft(0), minus_k2);
        waves.ifft(0).reshard(p!["X", _]).ifft(1).real()
    });
    let mesh = Mesh::new([("X", 8)])?;
    let args = (rhs.put(&mesh, p!["X", _]), minus_k2.put(&mesh, p![_, "X"]));
    o.program("poisson/explicit", &pencils, (&args.0, &args.1), Array::clone)
}

/// Times transforms of real numbers: half of the waves determine a real result.
pub(crate) fn poisson_real(o: &Options) -> Result<()> {
    let (rhs, minus_k2) = problem()?;
    let half = jit(|rhs: &Array, minus_k2: &Array| {
        divide(&rhs.rfftn(2), &minus_k2.slice(ix![.., ..(N as i64 / 2 + 1)])).irfftn(2, N)
    });
    o.program("poisson_real/one", &half, (&rhs, &minus_k2), Array::clone)
}
