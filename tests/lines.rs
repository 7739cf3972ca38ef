//! Functions of whole lines: the same bits wherever lines lie, and what they cost to bring together.

use atmesh::prelude::*;
use atmesh::{EngineKind, ErrorKind, Kind, Spec};

const ENGINES: [EngineKind; 3] = [EngineKind::Reference, EngineKind::Lockstep, EngineKind::Threads];

/// The bits of all elements; every NaN is one.
fn bits(x: &Array) -> Vec<u64> {
    if !x.ty().unwrap().dtype.is_float() {
        return x.astype(I64).to_vec::<i64>().unwrap().into_iter().map(|x| x as u64).collect();
    }
    let bits = |x: f64| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() };
    x.astype(F64).to_vec::<f64>().unwrap().into_iter().map(bits).collect()
}

/// Numbers of a type, some of them equal, zeros of both signs and NaN among floats.
fn numbers(dtype: DType, shape: &[usize]) -> Array {
    let n: usize = shape.iter().product();
    let x: Vec<f64> = (0..n).map(|i| ((i * 37 + 11) % 23) as f64 / 4.0 - 2.0).collect();
    let special = |(i, x): (usize, f64)| match i % 13 {
        4 => -0.0,
        9 => 0.0,
        12 if i % 5 == 0 => f64::NAN,
        _ => x,
    };
    let x = match dtype {
        d if d.is_float() => x.into_iter().enumerate().map(special).collect(),
        _ => x.into_iter().map(|x| (4.0 * x).abs()).collect::<Vec<f64>>(),
    };
    let x = Array::from(x);
    if dtype == Bool { x.gt(2.0).reshape(shape) } else { x.astype(dtype).reshape(shape) }
}

/// The results of `f` at once and on each mesh, however the operand lies, on each engine: the same bits, and of the reference engine.
fn everywhere(x: &Array, what: &str, f: impl Fn(&Array) -> Vec<Array> + Clone + 'static) {
    let wanted: Vec<Vec<u64>> = f(x).iter().map(bits).collect();
    let rank = x.shape().unwrap().len();
    for n in [1, 2, 4, 5, 8] {
        let mesh = Mesh::auto([("X", n), ("Y", 2)]).unwrap();
        for spec in layouts(rank) {
            let y = x.put(&mesh, spec);
            if y.ty().is_err() {
                continue;
            }
            for engine in ENGINES {
                let g = f.clone();
                let got = jit(move |x: &Array| g(x)).engine(engine).call(&y);
                let got = got.unwrap_or_else(|e| panic!("{what} on {n}, {spec}, {engine}: {e}"));
                let got: Vec<Vec<u64>> = got.iter().map(bits).collect();
                assert_eq!(got, wanted, "{what} of {x} on {n} devices, {spec}, {engine}");
            }
        }
    }
}

fn layouts(rank: usize) -> Vec<Spec> {
    match rank {
        1 => vec![p![], p!["X"]],
        _ => vec![p![], p!["X"], p![_, "X"], p!["X", "Y"], p!["Y", "X"], p![("X", "Y")]],
    }
}

#[test]
fn running_results_are_the_same_bits_wherever_lines_lie() {
    for dtype in [F32, F64, BF16, F16, I8, I32, U64, Bool] {
        for shape in [&[40][..], &[8, 20], &[40, 8], &[0, 8], &[8, 0], &[2, 1]] {
            let x = numbers(dtype, shape);
            for d in 0..shape.len() as i32 {
                everywhere(&x, "extremes", move |x| vec![x.cummax(d), x.cummin_from_end(d)]);
                if dtype != Bool {
                    everywhere(&x, "sums", move |x| vec![x.cumsum(d), x.cumprod(d), x.cumsum_from_end(d)]);
                    everywhere(&x, "recurrence", move |x| vec![x.recurrence(&(x * x), d)]);
                }
            }
        }
    }
}

#[test]
fn a_long_line_is_the_same_bits_in_any_company() {
    let x = Key::new(7).normal([3, (1 << 16) + 77]);
    let wanted = bits(&x.cumsum(1));
    let columns = jit(|x: &Array| x.transpose([1, 0]).cumsum(0).transpose([1, 0]));
    assert_eq!(bits(&columns.call(&x).unwrap()), wanted);
    let rows: Vec<u64> = x.unstack(0).iter().flat_map(|x| bits(&x.cumsum(0))).collect();
    assert_eq!(rows, wanted);
    for engine in [EngineKind::Reference, EngineKind::Threads] {
        let y = jit(|x: &Array| x.cumsum(1)).engine(engine).call(&x).unwrap();
        assert_eq!(bits(&y), wanted, "{engine}");
    }
}

#[test]
fn results_of_examples_are_those_of_each() {
    let x = numbers(F32, &[5, 4, 6]);
    for d in [0, 1] {
        let f = move |x: &Array| x.cumsum(d) + x.cummin(d) * x.cumprod_from_end(d);
        let each: Vec<u64> = x.unstack(0).iter().flat_map(|x| bits(&f(x))).collect();
        assert_eq!(bits(&vmap(&x, move |x| f(&x))), each);
    }
}

#[test]
fn derivatives_are_exact_at_zeros_and_ties() {
    let x = Array::from([3.0, 0.0, 2.0, 0.0, 5.0]);
    // d/dx of Σ wᵢ·yᵢ: of products by the product rule
    let w = [1.0, 10.0, 100.0, 1000.0, 10000.0];
    let g = grad(&x, |x| (x.cumprod(0) * Array::from(w)).sum(..)).to_vec::<f64>().unwrap();
    assert_eq!(g, [1.0, 3.0 * 10.0 + 6.0 * 100.0, 0.0, 0.0, 0.0]);
    let x = Array::from([1.0, 4.0, 4.0, 2.0, 7.0]);
    let g = grad(&x, |x| (x.cummax(0) * Array::from(w)).sum(..)).to_vec::<f64>().unwrap();
    assert_eq!(g, [1.0, 1110.0, 0.0, 0.0, 10000.0], "of equal elements the first");
    // twice
    let h = grad(&x, |x| (grad(&x, |x: Array| x.cumprod(0).sum(..)) * Array::from(w)).sum(..));
    assert!(h.to_vec::<f64>().unwrap().iter().all(|h| h.is_finite() && *h != 0.0));
}

#[test]
fn lines_that_are_split_move_to_where_they_are_whole() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let x = numbers(F32, &[64, 128]);
    let moves = |spec: Spec, f: fn(&Array) -> Array| -> Result<Vec<(Kind, usize)>> {
        let lowered = jit(f).lower(&x.put(&mesh, spec))?;
        Ok(lowered.collectives().iter().map(|c| (c.kind, c.total_bytes as usize)).collect())
    };
    let f = |x: &Array| x.cummax(1).constrain(p![_, "X"]);
    // each device keeps an eighth of an eighth
    let one = (Kind::AllToAll, 4 * 64 * 128 * 7 / 8);
    assert_eq!(moves(p![_, "X"], f)?, [one, one]);
    assert_eq!(moves(p!["X"], |x| x.cummax(1))?, []);
    Ok(())
}

#[test]
fn bad_operands_are_refused_with_words() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::ones([4, 8]).put(&mesh, p![_, "X"]);
    let e = x.cumsum(1).ty().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Sharding);
    let text = e.to_string();
    assert!(text.contains("cumsum") && text.contains(".reshard(p![_, _])"), "{text}");
    assert_eq!(type_of(x.reshard(p![_, _]).cumsum(1)), "float32[4,8]");
    assert_eq!(Array::from(1.0).cumsum(0).ty().unwrap_err().kind(), ErrorKind::Shape);
    assert_eq!(Array::from([true]).cumsum(0).ty().unwrap_err().kind(), ErrorKind::Dtype);
    assert_eq!(x.cumsum(2).ty().unwrap_err().kind(), ErrorKind::Shape);
    let e = x.recurrence(&Array::ones([8]), 0).ty().unwrap_err();
    assert!(e.to_string().contains("one shape"), "{e}");
    Ok(())
}
