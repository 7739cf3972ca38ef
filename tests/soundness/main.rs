//! Partial values: a well-typed program computes the same as it does with full values.
//!
//! The partial values of an unreduced array all differ, so a program that reads one of them instead
//! of their sum is detected.

mod branches;
#[path = "../error_checks/mod.rs"]
mod error_checks;
mod gradients;
mod manual;
mod primitives;
mod programs;
mod states;

use atmesh::prelude::*;
use atmesh::{Axes, axes};

axes!(pub(crate) X, pub(crate) Y);

pub(crate) fn mesh() -> Mesh {
    Mesh::new([("X", 2), ("Y", 2)]).unwrap()
}

/// Returns the k-th of some numbers that are sums of few powers of two, so that sums of them are
/// exact in any order.
fn number(k: usize) -> f64 {
    ((k * 37 + 11) % 61) as f64 / 16.0 - 1.75
}

/// Returns an array of one shape and element type.
pub(crate) fn numbers(shape: &[usize], dtype: DType, seed: usize) -> Array {
    let n: usize = shape.iter().product();
    let flat = Array::from((0..n).map(|i| number(i * 7 + seed * 13)).collect::<Vec<f64>>());
    let flat = match dtype {
        Bool => flat.gt(0.0),
        d if d.is_complex() => flat.complex(&flat * 0.5).astype(d),
        d if d.is_float() => flat.astype(d),
        d => (flat * 16.0).astype(I64).astype(d),
    };
    flat.reshape(shape)
}

/// Returns a value with this sharding, whose partial values all differ if it is unreduced, and the
/// full value without a mesh.
pub(crate) fn placed_pair(
    mesh: &Mesh,
    shape: &[usize],
    dtype: DType,
    spec: Spec,
    seed: usize,
) -> Result<(Array, Array)> {
    let sharding = Sharding::new(mesh, spec, shape)?;
    let u = spec.unreduced_axes();
    let parts: usize = u.iter().map(|a| mesh.axis_size(a).unwrap()).product();
    let pieces: Vec<Array> = (0..parts).map(|k| numbers(shape, dtype, seed + 5 * k)).collect();
    let whole = pieces.iter().skip(1).fold(pieces[0].clone(), |a, b| a + b);
    let local = (0..mesh.size()).map(|device| {
        let c = mesh.coordinates(device);
        let rank = |axes: &[Axis]| {
            axes.iter().fold(0, |r, a| r * mesh.axis_size(*a).unwrap() + c[mesh.find(*a).unwrap()])
        };
        let mut x = pieces[rank(u.as_slice())].clone();
        for (d, n) in shape.iter().enumerate() {
            let ways: usize = spec.dim(d).iter().map(|a| mesh.axis_size(*a).unwrap()).product();
            x = x.split(vec![n / ways; ways], d as i32).swap_remove(rank(spec.dim(d)));
        }
        x
    });
    let pieces: Vec<Array> = local.collect();
    Ok((Array::from_shards(shape, &sharding, pieces)?, whole))
}

pub(crate) fn read(x: &Array) -> Result<Vec<f64>> {
    let whole = x.ty()?.spec.unreduced(Axes::none());
    let x = to(x, whole);
    match x.ty()?.dtype.is_complex() {
        true => Ok([read(&x.real())?, read(&x.imag())?].concat()),
        false => x.astype(F64).to_vec::<f64>(),
    }
}

pub(crate) fn near(a: &[f64], b: &[f64], dtype: DType) -> bool {
    let tol = match dtype {
        F16 | BF16 => 4e-2,
        F64 => 1e-12,
        _ if dtype.is_inexact() => 1e-5,
        _ => 0.0,
    };
    a.len() == b.len()
        && a.iter()
            .zip(b)
            .all(|(a, b)| a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= tol * (1.0 + b.abs()))
}

/// Reshards the value; returns it unchanged if it has no mesh.
pub(crate) fn to(x: &Array, spec: Spec) -> Array {
    match x.sharding() {
        Ok(Some(_)) => x.reshard(spec),
        _ => x.clone(),
    }
}
