//! Complex numbers and Fourier transforms: the same bits on every mesh and engine, conversion to
//! and from the host, and errors.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{Complex, EngineKind, ErrorKind, sort_by_keys};

type C = Complex<f32>;

fn numbers(shape: &[usize], dtype: DType) -> Array {
    let n: usize = shape.iter().product();
    let part = |seed: usize| {
        let x: Vec<f64> = (0..n).map(|i| ((i * 37 + seed * 11) % 29) as f64 / 7.0 - 2.0).collect();
        Array::from(x).reshape(shape)
    };
    part(1).complex(part(5)).astype(dtype)
}

fn bits(x: &Array) -> Vec<u64> {
    match x.ty().unwrap_or_else(|e| panic!("{e}")).dtype {
        d if d.is_complex() => [bits(&x.real()), bits(&x.imag())].concat(),
        Bool => x.to_vec::<bool>().unwrap().into_iter().map(u64::from).collect(),
        _ => x.astype(F64).to_vec::<f64>().unwrap().into_iter().map(f64::to_bits).collect(),
    }
}

fn near(a: &Array, b: &Array, tolerance: f64) -> bool {
    a.allclose_with(b, tolerance, tolerance).unwrap_or_else(|e| panic!("{e}"))
}

/// Returns the shardings of a matrix on a mesh of two axes.
fn specs() -> [Spec; 6] {
    [p![], p!["X"], p![_, "X"], p!["X", "Y"], p!["Y", "X"], p![_, ["X", "Y"]]]
}

/// Asserts that `f` gives the same bits eagerly and on every mesh and engine, and close results on
/// the reference engine, or equal ones if `exact` (nothing is summed).
fn everywhere(what: &str, exact: bool, f: fn(&Array) -> Array) {
    for dtype in [C64, C128] {
        let x = numbers(&[8, 12], dtype);
        let wanted = f(&x);
        let want = bits(&wanted);
        for mesh in [Mesh::new([("X", 2), ("Y", 2)]).unwrap(), Mesh::auto([("X", 2), ("Y", 2)]).unwrap()] {
            for spec in specs() {
                let x = x.put(&mesh, spec);
                if f(&x).ty().is_err() {
                    continue;
                }
                let mut kept = Vec::new();
                for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
                    let y = jit(f).engine(engine).call(&x).unwrap_or_else(|e| panic!("{what} {spec}: {e}"));
                    assert!(near(&y, &wanted, 1e-4), "{what} {spec} {engine:?}");
                    if engine != EngineKind::Reference {
                        kept.push(bits(&y));
                    }
                }
                assert_eq!(kept[0], kept[1], "{what} {spec}");
                assert!(!exact || kept[0] == want, "{what} {spec}");
            }
        }
    }
}

#[test]
fn arithmetic_is_the_same_everywhere() {
    everywhere("sums and products", true, |x| x * x + x.conj() * 2.0 - 1.0 / x);
    everywhere("functions", true, |x| x.exp() + x.sin() - x.cos() * x.tanh() + x.sqrt().log());
    everywhere("powers", true, |x| x.pow(x) + x.powi(3) + x.rsqrt() + x.sign());
    everywhere("parts", true, |x| x.real() * x.imag() + x.abs() + x.angle());
    everywhere("choices", true, |x| x.real().gt(0.0).select(x, 0.0).maximum(x.conj()).minimum(x * 2.0));
    everywhere("comparisons", true, |x| x.eq(x.conj()));
    everywhere("moves", true, |x| x.transpose([1, 0]).reshape([4, 24]).roll(3, 1));
}

#[test]
fn sums_are_the_same_on_engines() {
    everywhere("sum", false, |x| x.sum(1));
    everywhere("mean", false, |x| x.mean(0));
    everywhere("variance", false, |x| x.var(..));
    everywhere("product", false, |x| x.t().dot(x));
    everywhere("a vector", false, |x| x.dot(x.sum(0)));
    everywhere("powers", false, |x| (x * 0.3).prod(1));
    everywhere("running", false, |x| x.cumsum(1) + (x * 0.3).cumprod(1));
}

#[test]
fn transforms_are_the_same_everywhere() {
    everywhere("fft", true, |x| x.fft(1));
    everywhere("fft along rows", true, |x| x.fft(0));
    everywhere("ifft of both", true, |x| x.ifftn(2));
    everywhere("irfft", true, |x| x.irfft(1, 22));
    everywhere("irfft of both", true, |x| x.irfftn(2, 23));
    everywhere("rfft", true, |x| x.imag().rfft(1));
    everywhere("rfft of both", true, |x| x.real().rfftn(2));
    everywhere("a filter", true, |x| (x.fft(1) * 0.5).ifft(1).real());
}

#[test]
fn large_transforms_have_the_same_bits_in_any_batch() -> Result<()> {
    let transforms: [fn(&Array) -> Array; 4] =
        [|x| x.fftn(2), |x| x.ifftn(2), |x| x.real().rfftn(2), |x| x.irfftn(2, 510)];
    let x = numbers(&[1, 256, 256], C64);
    // one image is transformed dimension by dimension, each of several in one step
    let several = x.broadcast_to([3, 256, 256]);
    for (k, f) in transforms.into_iter().enumerate() {
        let want = bits(&f(&several).slice(ix![2]));
        for engine in [EngineKind::Lockstep, EngineKind::Threads] {
            assert_eq!(bits(&jit(f).engine(engine).call(&x)?), want, "transform {k}, {engine:?}");
        }
    }
    assert_eq!(bits(&x.fftn(2)), bits(&x.fft(2).fft(1)));
    Ok(())
}

#[test]
fn transforms_are_those_of_the_definition() {
    let x = numbers(&[2, 5], C128);
    let terms = Array::arange(0..5).astype(F64);
    let angles = terms.outer(&terms) * (-std::f64::consts::TAU / 5.0);
    let matrix = angles.zeros_like().complex(&angles).exp();
    assert!(near(&x.fft(1), &x.dot(&matrix), 1e-12));
    assert!(near(&x.ifft(1).fft(1), &x, 1e-12));
    let shifted = x.fft(1).fftshift(1);
    assert!(near(&shifted.ifftshift(1), &x.fft(1), 0.0));
}

#[test]
fn numbers_come_in_and_out() {
    let z = [Complex::new(1.5f32, -2.0), Complex::new(0.0, 0.25)];
    let x = Array::from(z);
    assert_eq!((type_of(&x).to_string(), x.to_vec::<C>().unwrap()), ("complex64[2]".into(), z.to_vec()));
    assert_eq!(x.to_string(), "[1.5-2.j   0. +0.25j]");
    assert_eq!(Array::from(Complex::new(1.0f64, -0.5)).to_string(), "(1.0-0.5j)");
    assert_eq!(x.ty().unwrap().short_text(), "c64[2]");
    assert_eq!((&x + Complex::new(0.0f32, 1.0)).to_vec::<C>().unwrap()[1], Complex::new(0.0, 1.25));
    assert_eq!(x.astype(C128).astype(C64).to_vec::<C>().unwrap(), z);
    assert_eq!(
        Array::full(C128.array_type([2]), Complex::new(1.0f64, 2.0)).imag().to_vec::<f64>().unwrap(),
        [2.0; 2]
    );
    assert_eq!(Array::zeros(C64.array_type([2])).to_vec::<C>().unwrap(), [C::ZERO; 2]);
    let path = std::env::temp_dir().join(format!("atmesh-complex-{}.npy", std::process::id()));
    for x in [x.clone(), numbers(&[2, 3], C128)] {
        x.save_npy(&path).unwrap();
        assert_eq!(bits(&Array::load_npy(&path).unwrap()), bits(&x));
    }
    std::fs::remove_file(path).unwrap();
    assert!(x.allclose(&x).unwrap() && !x.allclose(&x.conj()).unwrap());
    assert_eq!(x.vdot(&x).item::<C>().unwrap(), Complex::new(6.3125, 0.0));
}

#[test]
fn device_code_and_indices_take_them() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let x = numbers(&[4, 3], C64);
    let f = shard_map(&mesh, p!["X"], p![], |x: &Array| x.psum("X"));
    let half = |k: i64| x.slice(ix![k * 2..k * 2 + 2]);
    assert_eq!(bits(&f.call(&x).unwrap()), bits(&(half(0) + half(1))));
    let sum = |dev: &Device, x: atmesh::nd::ArrayView1<C>| dev.psum_scalar(x.sum(), "X");
    let sum = spmd(&mesh, p!["X"], p![], sum).call(&x.slice(ix![Ellipsis, 0])).unwrap();
    assert!(near(&sum, &x.slice(ix![Ellipsis, 0]).sum(..), 1e-6));
    let ids = Array::from([3, 0, 3]);
    for x in [x.clone(), x.astype(C128)] {
        for x in [x.clone(), x.put(&mesh, p![])] {
            assert_eq!(bits(&x.take(&ids, 0).slice(ix![1])), bits(&x.slice(ix![0])));
            let more = x.at(ix![&ids]).add(x.take(&ids, 0));
            assert!(near(&more.slice(ix![3]), &(x.slice(ix![3]) * 3.0), 1e-6));
            let put = x.at(ix![1..3, 1]).set(Complex::new(7.0f32, 1.0));
            assert_eq!(put.slice(ix![2, 1]).imag().astype(F32).item::<f32>().unwrap(), 1.0);
        }
    }
    let looped = fori_loop(0..3, &x, |_, x| &x * Complex::new(0.0f32, 1.0));
    assert!(near(&looped, &(&x * Complex::new(0.0f32, -1.0)), 1e-6));
}

#[test]
fn derivatives_are_by_real_arguments() {
    let (x, y) = (Array::from([0.5, -1.0, 2.0]), Array::from([1.5, 0.25, -0.75]));
    type Loss = fn(&Array) -> Array;
    let losses: [(&str, Loss); 8] = [
        ("a modulus", |z| z.abs().sum(..)),
        ("an angle", |z| z.angle().sum(..)),
        ("a sign", |z| (z.sign() * Complex::new(1.0f64, 0.5)).real().sum(..)),
        ("functions", |z| (z.exp() * z.sin() / z.sqrt() + z.log() * z.cos() - z.tanh()).imag().sum(..)),
        ("powers", |z| (z.pow(z) + z.powi(3) + z.pow(0.5)).real().sum(..)),
        ("transforms", |z| z.fft(0).abs().square().sum(..) + z.ifft(0).imag().sin().sum(..)),
        ("a product", |z| z.vdot(z * 2.0).real() + z.prod(..).imag()),
        ("running", |z| z.cumsum(0).abs().sum(..) + z.cumprod(0).imag().sum(..)),
    ];
    for (what, loss) in losses {
        let (gx, gy) = grad((&x, &y), |(x, y)| loss(&x.complex(&y)));
        for k in 0..3 {
            let at = |re: f64, im: f64| {
                let step = Array::eye([3, 3], 0).astype(F64).slice(ix![k as i64]);
                let z = (&x + &step * re).complex(&y + &step * im);
                loss(&z).item::<f64>().unwrap()
            };
            let h = 1e-6;
            let by_x = (at(h, 0.0) - at(-h, 0.0)) / (2.0 * h);
            let by_y = (at(0.0, h) - at(0.0, -h)) / (2.0 * h);
            let got = |g: &Array| g.to_vec::<f64>().unwrap_or_else(|e| panic!("{what}: {e}"))[k];
            assert!((got(&gx) - by_x).abs() < 1e-6 * (1.0 + by_x.abs()), "{what} by x: {} {by_x}", got(&gx));
            assert!((got(&gy) - by_y).abs() < 1e-6 * (1.0 + by_y.abs()), "{what} by y: {} {by_y}", got(&gy));
        }
    }
    // A batch of transforms.
    let many = vmap(Array::ones([4, 3]), |x| x.rfft(0).irfft(0, 3));
    assert!(near(&many, &Array::ones([4, 3]), 1e-6));
}

/// Complex numbers are sorted by real part, then by imaginary part, with NaN last; the sort is
/// stable. It has a derivative, and works with any sharding.
#[test]
fn complex_numbers_are_sorted_as_numpy_sorts_them() -> Result<()> {
    let c = |re: f64, im: f64| Complex::new(re, im);
    let nan = f64::NAN;
    let line = [
        c(2.0, 1.0),
        c(nan, 0.0),
        c(2.0, -1.0),
        c(2.0, nan),
        c(-0.0, 3.0),
        c(0.0, 2.0),
        c(nan, -1.0),
        c(2.0, -1.0),
    ];
    let order = [5, 4, 2, 7, 0, 3, 6, 1];
    let z = Array::from(line.to_vec());
    assert_eq!(z.argsort(0).to_vec::<i32>()?, order);
    let bits = |z: &[Complex<f64>]| z.iter().map(|z| [z.re.to_bits(), z.im.to_bits()]).collect::<Vec<_>>();
    let want: Vec<_> = order.iter().map(|k| line[*k as usize]).collect();
    let bits_of = |z: &Array| Ok::<_, atmesh::Error>(bits(&z.to_vec::<Complex<f64>>()?));
    assert_eq!(bits_of(&z.sort(0))?, bits(&want));
    let places = Array::arange(0..8);
    let both = sort_by_keys([&z, &places], 1, 0);
    assert_eq!((bits_of(&both[0])?, both[1].to_vec::<i32>()?), (bits(&want), order.to_vec()));
    // A complex operand is permuted together with the keys.
    assert_eq!(bits_of(&sort_by_keys([&places, &z], 1, 0)[1])?, bits(&line));
    let mesh = Mesh::new([("X", 2)])?;
    let rows = stack([&z, &z.flip(0)], 0);
    let on = rows.put(&mesh, p!["X"]);
    assert_eq!(bits_of(&on.sort(1))?, bits_of(&rows.sort(1))?);
    let e = rows.put(&mesh, p![_, "X"]).argsort(1).ty().unwrap_err();
    assert!(e.kind() == ErrorKind::Sharding && e.unquoted().contains(".reshard(p![_, _])"), "{e}");
    assert!(z.sort(1).ty().is_err() && z.argsort(-2).ty().is_err());
    let g = grad(Array::from([3.0, 1.0, 3.0]), |re| {
        let z = re.complex(Array::from([1.0, 0.0, -1.0]));
        (z.sort(0).real() * Array::from([1.0, 10.0, 100.0])).sum(..)
    });
    assert_eq!(g.to_vec::<f64>()?, [100.0, 1.0, 10.0]);
    Ok(())
}

/// The index of an extreme complex number: ordered by real part, then by imaginary part; the first
/// NaN, in either part, wins. The result does not depend on the sharding.
#[test]
fn the_place_of_an_extreme_complex_number_is_numpys() -> Result<()> {
    let c = |re: f64, im: f64| Complex::new(re, im);
    let inf = f64::INFINITY;
    let rows = [
        ([c(2.0, 1.0), c(2.0, 3.0), c(-1.0, 9.0), c(2.0, 3.0)], 1, 2),
        ([c(-0.0, 1.0), c(0.0, 0.0), c(-0.0, -1.0), c(0.0, 1.0)], 0, 2),
        ([c(1.0, -inf), c(1.0, -inf), c(0.0, inf), c(1.0, -inf)], 0, 2),
        ([c(9.0, 0.0), c(1.0, f64::NAN), c(f64::NAN, 0.0), c(10.0, 0.0)], 1, 1),
        ([c(-inf, inf), c(-inf, -inf), c(-inf, 0.0), c(-inf, inf)], 0, 1),
        ([c(inf, 0.0), c(3.0, 0.0), c(inf, 1.0), c(-4.0, f64::NAN)], 3, 3),
    ];
    let most: Vec<i32> = rows.iter().map(|r| r.1).collect();
    let least: Vec<i32> = rows.iter().map(|r| r.2).collect();
    let z = Array::from(rows.iter().flat_map(|r| r.0).collect::<Vec<_>>()).reshape([6, 4]);
    let found =
        |z: &Array, d: i32| Ok::<_, atmesh::Error>([z.argmax(d).to_vec::<i32>()?, z.argmin(d).to_vec()?]);
    let want = [most, least];
    assert_eq!(found(&z, 1)?, want);
    assert_eq!(found(&z.t(), 0)?, want);
    let (mesh, auto) = (Mesh::new([("X", 2)])?, Mesh::auto([("X", 4)])?);
    for spec in [p!["X", _], p![_, "X"]] {
        assert_eq!(found(&z.put(&mesh, spec), 1)?, want, "{spec}");
        assert_eq!(found(&z.put(&auto, spec), 1)?, want, "{spec}");
    }
    assert_eq!(vmap(&z, |row| row.argmax(0)).to_vec::<i32>()?, want[0]);
    Ok(())
}

#[test]
fn what_has_no_meaning_is_rejected_by_name() {
    let z = numbers(&[4], C64);
    let real = Array::ones([4]);
    let cases: [(&str, Array, ErrorKind, &str); 14] = [
        ("top_k", z.top_k(2, 0).0, ErrorKind::Dtype, ".real()"),
        ("floor", z.floor(), ErrorKind::Dtype, ".real()"),
        ("rem", &z % &z, ErrorKind::Dtype, ".abs()"),
        ("lt", z.lt(&z), ErrorKind::Dtype, ".real()"),
        ("max", z.max(..), ErrorKind::Dtype, ".abs()"),
        ("cummax", z.cummax(0), ErrorKind::Dtype, ".abs()"),
        ("astype", z.astype(F32), ErrorKind::Dtype, ".real()"),
        ("imag", real.imag(), ErrorKind::Dtype, ".astype(C64)"),
        ("add", &real + &z, ErrorKind::Dtype, ".astype(C64)"),
        ("number", &real + Complex::new(0.0f32, 1.0), ErrorKind::Dtype, ".astype(C64)"),
        ("complex", real.astype(F16).complex(0.0), ErrorKind::Dtype, ".astype(F32)"),
        ("rfft", z.rfft(0), ErrorKind::Dtype, ".real()"),
        ("irfft", z.irfft(0, 9), ErrorKind::Shape, "pad"),
        ("grad", grad(&z, |z| z.abs().sum(..)), ErrorKind::Dtype, "float"),
    ];
    for (what, made, kind, help) in cases {
        let Err(e) = made.ty() else { panic!("{what} is accepted") };
        assert!(e.kind() == kind && e.unquoted().contains(help), "{what}: {e}");
    }
}

/// The first element of a real transform, and the middle one for even sizes, have an imaginary part
/// of exactly zero.
#[test]
fn what_is_real_of_a_real_transform_is_exactly_real() {
    for n in [2, 4, 6, 10, 64, 100] {
        let x = Array::from((0..n).map(|i| ((i * 37 + 5) % 23) as f64 / 7.0).collect::<Vec<_>>());
        let ends = x.rfft(0).imag().to_vec::<f64>().unwrap();
        assert_eq!((ends[0], ends[n / 2]), (0.0, 0.0), "{n}");
    }
}

/// A transform along a dimension before the last one moves it to the end; its errors name the
/// dimension that the user gave, and what they propose is accepted.
#[test]
fn errors_of_transforms_name_the_dimension_of_the_user() -> Result<()> {
    let x = Array::ones([4, 8]).put(&Mesh::new([("X", 2)])?, p!["X"]);
    let Err(e) = x.rfft(0).ty() else { panic!("3 elements are cut in halves") };
    let text = e.unquoted();
    assert!(text.contains("dimension 0 of the result has size 3"), "{text}");
    assert!(text.contains(".reshard(p![_, _])"), "{text}");
    assert_eq!(x.reshard(p![_, _]).rfft(0).shape()?, [3, 8]);
    Ok(())
}
