//! Programs on subnormal numbers, flushed and not flushed, have the same bits on every engine.

use crate::programs::{Program, Written};
use crate::{Rng, law};
use atmesh::prelude::*;

/// Returns the parts of an array's elements as bits of float64; all NaNs are alike.
fn bits(x: &Array) -> Result<Vec<u64>> {
    let numbers = x.astype(F64).to_vec::<f64>()?;
    Ok(numbers.iter().map(|x| if x.is_nan() { f64::NAN } else { *x }.to_bits()).collect())
}

fn is_subnormal(bits: u64, dtype: DType) -> bool {
    let x = f64::from_bits(bits).abs();
    match dtype {
        F64 => x.is_subnormal(),
        F32 | BF16 => x != 0.0 && x < f64::from(f32::MIN_POSITIVE),
        _ => false,
    }
}

/// Returns numbers of all signs near the smallest normal number, above and below; some are ordinary.
fn tiny(rng: &mut Rng, dtype: DType, shape: &[usize]) -> Array {
    let least = if dtype == F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE.into() };
    let mut number = |_| {
        let x = (rng.below(1 << 20) as f64 / f64::from(1 << 19) - 1.0) * [1.0, 4.0, 1e-3, 1e4][rng.below(4)];
        if rng.once_in(5) { x } else { x * least * f64::from(1 + rng.below(3) as u32) }
    };
    let all: Vec<f64> = (0..shape.iter().product()).map(&mut number).collect();
    Array::from(all).astype(dtype).reshape(shape)
}

/// One step of a program of operations that round at most once. Values have shape [8, 8].
fn step(kind: usize, k: usize, x: &Array, y: &Array) -> Array {
    let dtype = x.dtype().unwrap_or(F32);
    let least = if dtype == F64 { 1e-310 } else { 1e-40 };
    let rows = Array::from((0..8).map(|i| ((i * 5 + k as i32) % 8).abs()).collect::<Vec<_>>());
    match kind {
        0 => x + y,
        1 => x - y,
        2 => x * y,
        3 => x / y,
        4 => -x,
        5 => x.abs().sqrt(),
        6 => x.maximum(y),
        7 => x.minimum(y),
        8 => x.gt(0.0).select(y, x),
        9 => x.lt(y).astype(dtype) * x,
        10 => x * [1.0, 0.5, 0.7, -1.0, 3.0][k % 5],
        11 => x + [0.0, -0.0, least, -2.0 * least][k % 4],
        12 => x.astype([F64, F32, BF16][k % 3]).astype(dtype),
        13 => x.roll(k as i64 % 8, 1),
        14 => x.t(),
        15 => concat([x, y], (k % 2) as i32).slice(ix![-8.., -8..]),
        16 => x.take(&rows, 0),
        17 => x.at(ix![&rows]).max(y),
        18 => x.at(ix![1..-1]).add(y.slice(ix![1..-1])),
        19 => x.max(1).expand_dims(1) + y * 0.0,
        20 => fori_loop(0..(k % 5) as i32, x, |_, x| x * 0.5),
        21 => cond(Array::from(k as i32).gt(500), || x * y, || x - y),
        22 => x.sort((k % 2) as i32),
        23 => x.cummax((k % 2) as i32),
        24 => x * x.ones_like(),
        25 => (x.zeros_like() + 1e-25) * (y.zeros_like() + 1e-20) + x,
        _ => x.sign() * y,
    }
}

/// Operations that are rounded once have the same bits on all engines, also the reference engine,
/// on no mesh and on a mesh.
#[test]
fn flushed_operations_have_equal_bits() {
    law(60, |seed| {
        let mut rng = Rng::new(seed);
        let dtype = *rng.choose(&[F32, F32, F64, BF16]);
        // (the last bits of subnormal numbers of bfloat16 are rounded in float32 first)
        let flush = dtype == BF16 || !rng.once_in(4);
        let inputs = vec![tiny(&mut rng, dtype, &[8, 8]), tiny(&mut rng, dtype, &[8, 8])];
        let steps: Vec<[usize; 4]> = (0..3 + rng.below(8))
            .map(|n| [rng.below(27), rng.below(1000), rng.below(n + 2), rng.below(n + 2)])
            .collect();
        let run = |inputs: &Vec<Array>| {
            let mut values = inputs.clone();
            for [kind, k, a, b] in &steps {
                values.push(step(*kind, *k, &values[*a], &values[*b]));
            }
            values.split_off(2)
        };
        let read = |engine: EngineKind, inputs: &Vec<Array>| -> Result<Vec<Vec<u64>>> {
            jit(run).engine(engine).flush_subnormals(flush).call(inputs)?.iter().map(bits).collect()
        };
        let about = format!("{dtype}, flushed: {flush}, {steps:?}");
        let want = match read(Lockstep, &inputs) {
            Ok(want) => want,
            Err(e) => return vec![format!("{e} in {about}")],
        };
        let mut wrong = Vec::new();
        let kept = want.iter().position(|y| y.iter().any(|b| is_subnormal(*b, dtype)));
        if let (true, Some(line)) = (flush, kept) {
            wrong.push(format!("line {line} keeps a subnormal number in {about}"));
        }
        let mesh = Mesh::auto([("x", 2), ("y", 2)]).expect("there are devices");
        let spec = *rng.choose(&[p!["x"], p![_, "y"], p!["x", "y"], p![("y", "x")]]);
        let placed: Vec<Array> = inputs.iter().map(|x| x.put(&mesh, spec)).collect();
        for engine in [Threads, EngineKind::Reference, Lockstep] {
            for (what, inputs) in [("no mesh", &inputs), ("a mesh", &placed)] {
                match read(engine, inputs) {
                    Ok(got) => {
                        if let Some(line) = (0..want.len()).find(|k| got[*k] != want[*k]) {
                            let at = (0..64).find(|i| got[line][*i] != want[line][*i]).unwrap_or(0);
                            let [a, b] = [got[line][at], want[line][at]].map(f64::from_bits);
                            wrong.push(format!(
                                "{engine} on {what}, line {line}: {a:e}, not {b:e} in {about}"
                            ));
                        }
                    }
                    Err(e) => wrong.push(format!("{engine} on {what}: {e} in {about}")),
                }
            }
        }
        wrong
    });
}

/// All operations, also sums and functions: bits do not depend on the engine, and nothing is
/// subnormal. The reference engine is near.
#[test]
fn flushed_programs_have_equal_bits() {
    law(60, |seed| {
        let mut rng = Rng::new(seed);
        let p = Program::new(&mut rng);
        if p.lines.iter().any(|l| l.what.prints()) {
            return Vec::new();
        }
        let scale =
            [-126, -124, -130, -60, 0].map(|e: i32| 2f32.powi(e.max(-126)) * 2f32.powi(e.min(-126) + 126));
        let inputs: Vec<Array> = p.numbers(0).iter().map(|x| x * *rng.choose(&scale)).collect();
        let mesh = p.mesh(["X", "Y", "Z"], |_| true);
        let placed = p.placed(&inputs, &mesh);
        let mut wrong = Vec::new();
        for (mesh, inputs) in [(None, &inputs), (Some(&mesh), &placed)] {
            let read = |engine: EngineKind| -> Result<Vec<Vec<u64>>> {
                let run = |xs: &Vec<Array>| p.run(xs, mesh, Written::default());
                jit(run).engine(engine).flush_subnormals(true).call(inputs)?.iter().map(bits).collect()
            };
            let (want, threads, reference) =
                match (read(Lockstep), read(Threads), read(EngineKind::Reference)) {
                    (Ok(a), Ok(b), Ok(c)) => (a, b, c),
                    (a, ..) => {
                        let error = a.err().map_or("another engine fails".into(), |e| format!("{e}"));
                        wrong.push(format!("{error}\n  {p:?}"));
                        continue;
                    }
                };
            if want.iter().flatten().any(|b| is_subnormal(*b, F32)) {
                wrong.push(format!("a subnormal result\n  {p:?}"));
            }
            if threads != want {
                wrong.push(format!("threads differ\n  {p:?}"));
            }
            let size = want.iter().flatten().map(|b| f64::from_bits(*b).abs()).fold(0.0, f64::max);
            let near = |(a, b): (&u64, &u64)| {
                let [a, b] = [*a, *b].map(f64::from_bits);
                a.is_nan() || b.is_nan() || a == b || (a - b).abs() <= 1e-4 * size + 1e-34
            };
            if !want.iter().flatten().zip(reference.iter().flatten()).all(near) {
                wrong.push(format!("the reference engine differs\n  {p:?}"));
            }
        }
        wrong
    });
}
