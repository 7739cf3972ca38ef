//! Contractions that sum nothing, such as `einsum("ni,nj->nij")`, which are computed element by
//! element: values, and the same bits on every engine and mesh.

use atmesh::prelude::*;
use atmesh::{DotOptions, einsum_with};

const ENGINES: [EngineKind; 3] = [EngineKind::Reference, EngineKind::Lockstep, EngineKind::Threads];

/// Returns numbers with zeros of both signs, infinities, NaN, and factors of products that
/// underflow, overflow and are rounded.
fn special(shape: [usize; 2], from: usize, dtype: DType) -> Array {
    let few = [0.0, -0.0, 1.1, -2.3, f32::INFINITY, f32::NAN, 1e-30, -1e-30, 3e38, f32::NEG_INFINITY, -7.0];
    let values: Vec<f32> =
        (0..shape[0] * shape[1]).map(|k| few[(k * 7 + k / 5 + from) % few.len()]).collect();
    Array::from(values).reshape(shape).astype(dtype).ready().unwrap()
}

/// Returns the parts of all elements as float64, which has a bit pattern for each of them.
fn bits(x: &Array) -> Vec<u64> {
    let parts = if x.dtype().unwrap().is_complex() { vec![x.real(), x.imag()] } else { vec![x.clone()] };
    let wide = parts.iter().flat_map(|x| x.astype(F64).to_vec::<f64>().unwrap());
    // the payloads of NaN are unspecified
    wide.map(|x| if x.is_nan() { f64::NAN } else { x }.to_bits()).collect()
}

type Pair = fn(&Array, &Array) -> Array;

#[test]
fn elements_are_products_with_the_same_bits_on_every_engine_and_mesh() {
    // The third one contracts a dimension of size 1.
    let einsums: [(&str, Pair); 5] = [
        ("ni,nj->nij", |x, y| einsum("ni,nj->nij", [x, y])),
        ("ni,nj->jni", |x, y| einsum("ni,nj->jni", [x, y])),
        ("nik,nkj->nij", |x, y| einsum("nik,nkj->nij", [x.expand_dims(2), y.expand_dims(1)])),
        ("ni,ni->in", |x, y| einsum("ni,ni->in", [x, &y.slice(ix![.., 1..4])])),
        ("i,j->ij", |x, y| einsum("i,j->ij", [x.slice(ix![.., 1]), y.slice(ix![.., 2])])),
    ];
    for dtype in [F32, F64, BF16, F16] {
        let (x, y) = (special([8, 3], 0, dtype), special([8, 5], 4, dtype));
        for (name, f) in einsums {
            let want = bits(&jit(f).engine(EngineKind::Reference).call((&x, &y)).unwrap());
            for engine in ENGINES {
                let g = jit(f).engine(engine);
                assert_eq!(bits(&g.call((&x, &y)).unwrap()), want, "{name} {dtype} {engine:?}");
                if name == "i,j->ij" {
                    continue; // (two dimensions cannot be sharded over one axis)
                }
                for mesh in [Mesh::new([("X", 4)]).unwrap(), Mesh::auto([("X", 4)]).unwrap()] {
                    let args = (x.put(&mesh, p!["X"]), y.put(&mesh, p!["X"]));
                    assert_eq!(bits(&g.call(&args).unwrap()), want, "{name} {dtype} {engine:?} {mesh}");
                }
                let (mesh, spec) = (Mesh::new([("X", 4)]).unwrap(), p!["X"]);
                if name.ends_with("->nij") {
                    let args = (x.put(&mesh, spec), y.put(&mesh, spec));
                    let g = jit(shard_map(&mesh, (spec, spec), spec, f)).engine(engine);
                    assert_eq!(bits(&g.call(&args).unwrap()), want, "{name} {dtype} {engine:?} manual");
                }
            }
        }
    }
}

#[test]
fn a_product_is_added_to_zero_and_rounded_once() {
    let (x, y) = (special([8, 3], 0, F32), special([8, 5], 4, F32));
    let (p, q) = (x.to_vec::<f32>().unwrap(), y.to_vec::<f32>().unwrap());
    let product = |k: usize| p[k / 5].mul_add(q[k / 15 * 5 + k % 5], 0.0);
    let want = bits(&Array::from((0..8 * 3 * 5).map(product).collect::<Vec<f32>>()));
    assert!(want.contains(&0) && want.contains(&(-0f64).to_bits()), "zeros of both signs");
    for engine in ENGINES {
        let z = jit(|x: &Array, y: &Array| einsum("ni,nj->nij", [x, y])).engine(engine).call((&x, &y));
        assert_eq!(bits(&z.unwrap()), want, "{engine:?}");
    }
}

#[test]
fn elements_of_other_types() {
    let (x, y) = (Array::from([[100i32, -2, 3]]), Array::from([[4i32, 5]]));
    let want = [400.0, 500.0, -8.0, -10.0, 12.0, 15.0];
    for engine in ENGINES {
        let outer = |dtype: DType, options: DotOptions| {
            let f = move |x: &Array, y: &Array| einsum_with("ni,nj->nij", [x, y], options);
            jit(f).engine(engine).call((x.astype(dtype), y.astype(dtype))).unwrap()
        };
        for dtype in [I16, I32, I64, BF16, F16, F32, F64, C64, C128] {
            let z = outer(dtype, DotOptions::default());
            assert_eq!(z.dtype().unwrap(), dtype);
            assert_eq!(z.astype(C128).real().to_vec::<f64>().unwrap(), want, "{dtype} {engine:?}");
        }
        // Products wrap, unless they are accumulated in a wider type.
        let wrapped = outer(I8, DotOptions::default()).to_vec::<i8>().unwrap();
        assert_eq!(wrapped, [-112, -12, -8, -10, 12, 15], "{engine:?}");
        for (dtype, to) in [(I8, I32), (I8, F32), (BF16, F32), (F32, F64)] {
            let z = outer(dtype, DotOptions::default().accum_dtype(to));
            assert_eq!(z.dtype().unwrap(), to);
            assert_eq!(z.astype(F64).to_vec::<f64>().unwrap(), want, "{dtype} to {to} {engine:?}");
        }
    }
}

#[test]
fn subnormal_factors_and_products_are_flushed() {
    let small =
        [f32::MIN_POSITIVE / 4.0, -f32::MIN_POSITIVE / 2.0, f32::MIN_POSITIVE, -1e-20, 1e-30, 2.0, -0.5];
    let x = Array::from([small]);
    let f = |x: &Array| einsum("ni,nj->nij", [x, x]);
    let run = |engine| bits(&jit(f).flush_subnormals(true).engine(engine).call(&x).unwrap());
    let want = run(EngineKind::Reference);
    for engine in ENGINES {
        assert_eq!(run(engine), want, "{engine:?}");
    }
}

#[test]
fn gradients_pass_through_outer_products() {
    let (x, y) = (Array::from([1f32, 2.0]), Array::from([3f32, 5.0, 7.0]));
    let loss = |(x, y): (Array, Array)| einsum("i,j->ij", [&x, &y]).square().sum(..);
    let (dx, dy) = jit(move |x: &Array, y: &Array| grad((x, y), loss)).call((&x, &y)).unwrap();
    assert_eq!(dx.to_vec::<f32>().unwrap(), [166.0, 332.0]);
    assert_eq!(dy.to_vec::<f32>().unwrap(), [30.0, 50.0, 70.0]);
}

#[test]
fn they_are_no_matmuls_in_reports_but_in_stablehlo() {
    let f = jit(|x: &Array, y: &Array| einsum("ni,nj->nij", [x, y]).tanh());
    let args = || (F32.array_type([64, 3]), F32.array_type([64, 5]));
    let report = f.lower(args()).unwrap().compile().unwrap().report().listing;
    assert!(!report.contains("product") && report.lines().count() == 1, "{report}");
    let text = f.trace(args()).unwrap().to_stablehlo().unwrap().text().to_string();
    assert!(text.contains("stablehlo.dot_general"), "{text}");
}
