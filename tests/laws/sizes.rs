//! Sizes near the limits of `usize` and `i64`: operations are rejected or typed correctly, and
//! nothing panics or allocates.

use crate::error_checks::Unquoted as _;
use crate::error_checks::flaw;
use crate::{Rng, law};
use atmesh::Axes;
use atmesh::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns a size of any magnitude; few of them are ordinary.
fn size(rng: &mut Rng) -> usize {
    let power = 1usize << rng.below(64);
    match rng.below(5) {
        0 => power.wrapping_sub(1),
        1 => power.wrapping_add(1),
        2 => *rng.choose(&[0, 1, 2, 3, 8, usize::MAX, i64::MAX as usize, i64::MAX as usize + 1]),
        _ => power,
    }
}

/// Applies an operation to an array without data.
fn step(x: &Array, mesh: &Mesh, rng: &mut Rng) -> Array {
    let rank = x.shape().map_or(0, |s| s.len());
    let d = rng.below(rank) as i32;
    match rng.below(14) {
        0 => x.broadcast_to([&[size(rng)], &x.shape().map(|s| s.to_vec()).unwrap_or_default()[..]].concat()),
        1 => x.reshape([size(rng), size(rng)]),
        2 => x.ravel(),
        3 => x.tile(vec![size(rng); rank]),
        4 => {
            let (low, high, inside) = (size(rng) as i64, size(rng) as i64, size(rng) % (1 << 60));
            x.pad(0, (0..rank).map(|k| if k as i32 == d { (low, high, inside) } else { (0, 0, 0) }))
        }
        5 => concat([x, x], d),
        6 => stack([x, x, x], 0),
        7 => x.t(),
        8 => x.sum(d),
        9 => x.matmul(x.t()),
        10 => x + x.flip(d),
        11 => x.reshard(Spec::replicated(rank).unreduced(Axes::none())),
        12 => x.roll(size(rng) as i64, d),
        _ => {
            let spec = Spec::from_dims(vec![Axes::from("X")]);
            let body =
                |x: &Array| -> Result<Array> { Ok(x.pvary("X").all_gather("X", CollectiveDim::tiled(0))) };
            shard_map(mesh, spec, spec, body).call(x).unwrap_or_else(|_| x.clone())
        }
    }
}

#[test]
fn sizes_near_the_limits_are_rejected_or_right() {
    law(300, |seed| {
        let mut rng = Rng::new(seed);
        let mesh = Mesh::new([("X", *rng.choose(&[2, 16])), ("Y", 2)]).expect("two axes make a mesh");
        let shape: Vec<usize> = (0..1 + rng.below(3)).map(|_| size(&mut rng)).collect();
        let dtype = *rng.choose(&[F32, F64, U8, Bool]);
        let first = match rng.below(4) {
            0 => dtype.array_type(&shape[..]),
            1 => dtype.array_type(&shape[..]).on(&mesh, Spec::replicated(shape.len())),
            2 => dtype.array_type(&shape[..]).on(&mesh, Spec::replicated(shape.len()).unreduced("X")),
            _ => dtype.array_type(&shape[..]).on(&mesh, Spec::from_dims(vec![Axes::from("X")])),
        };
        // In a trace, data is needed only for execution.
        let steps = rng.below(5);
        let program = |_: &Array| -> Array {
            let mut rng = rng.clone();
            (0..steps).fold(Array::zeros(first.clone()), |x, _| step(&x, &mesh, &mut rng))
        };
        let small = &Array::ones([2]);
        let lowered = match jit(program).on(&mesh).lower(small) {
            Err(e) => return flaw(&e).into_iter().collect(),
            Ok(lowered) => lowered,
        };
        let ty = lowered.program().output_types()[0].clone();
        let bytes = ty.shape.iter().map(|n| *n as u128).product::<u128>() * ty.dtype.size() as u128;
        let mut wrong = Vec::new();
        if bytes > 1 << 60 {
            wrong.push(format!("{ty} is of {bytes} bytes"));
        }
        let _ = lowered.to_string();
        // Exceeds the machine's memory, so that it is rejected; smaller ones run.
        if bytes > 1 << 50 {
            match jit(program).on(&mesh).call(small) {
                Ok(_) => wrong.push(format!("{ty} was made")),
                Err(e) => wrong.extend(flaw(&e)),
            }
        }
        wrong
    });
}

/// Partial values of 2^64 bytes in total, which overflows a `usize`.
#[test]
fn parts_are_counted() {
    let mesh = Mesh::new([("X", 16)]).unwrap();
    let zeros = |_: &Array| Array::zeros(F32.array_type([1 << 29, 1 << 29]).on(&mesh, p![_, _; U: "X"]));
    let run = || jit(zeros).on(&mesh).call(&Array::ones([2]));
    let error =
        catch_unwind(AssertUnwindSafe(run)).expect("no panic").expect_err("it is rejected").unquoted();
    let all = ["in 16 partial values has more bytes than can be counted", "full", "sizes.rs:"];
    assert!(all.iter().all(|part| error.contains(part)), "{error}");
}
