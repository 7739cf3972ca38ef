//! Functions of complex numbers at zeros, infinities, NaNs and overflows, on every engine.

use atmesh::EngineKind;
use atmesh::prelude::*;

/// Returns the function of this name.
fn function(name: &str) -> fn(&Array) -> Array {
    match name {
        "exp" => |x| x.exp(),
        "log" => |x| x.log(),
        "sqrt" => |x| x.sqrt(),
        "sin" => |x| x.sin(),
        "cos" => |x| x.cos(),
        "tan" => |x| x.tan(),
        "sinh" => |x| x.sinh(),
        "cosh" => |x| x.cosh(),
        "tanh" => |x| x.tanh(),
        "reciprocal" => |x| 1.0 / x,
        _ => panic!("the table has a function {name}, which the test does not know"),
    }
}

/// Returns true if a part of a result is as in the table. A `~` marks a sign that is unspecified.
fn is_as_listed(got: f64, listed: &str) -> bool {
    let want: f64 = listed.trim_start_matches('~').parse().expect("the table has numbers");
    if want.is_nan() || want.is_infinite() || want == 0.0 {
        let sign = listed.starts_with('~') || got.is_sign_negative() == want.is_sign_negative();
        return want.is_nan() && got.is_nan() || got.abs() == want.abs() && sign;
    }
    (got - want).abs() <= 1e-8 * want.abs()
}

#[test]
fn functions_follow_annex_g_of_the_c_standard() -> Result<()> {
    let rows: Vec<Vec<&str>> = include_str!("complex_special.txt")
        .lines()
        .filter(|l| !l.starts_with('#'))
        .map(|l| l.split(' ').collect())
        .collect();
    let mut wrong = Vec::new();
    for table in rows.chunk_by(|a, b| a[0] == b[0]) {
        let part = |k: usize| {
            let numbers = table.iter().map(|r| r[k].parse::<f64>().expect("the table has numbers"));
            Array::from(numbers.collect::<Vec<f64>>())
        };
        let z = part(1).complex(part(2));
        for engine in [Lockstep, Threads, EngineKind::Reference] {
            let y = jit(function(table[0][0])).engine(engine).call(&z)?;
            let (re, im) = (y.real().to_vec::<f64>()?, y.imag().to_vec::<f64>()?);
            for (k, r) in table.iter().enumerate() {
                if !is_as_listed(re[k], r[3]) || !is_as_listed(im[k], r[4]) {
                    let text = format!("{} {} {}, not {} {}", r[1..3].join(" "), re[k], im[k], r[3], r[4]);
                    wrong.push(format!("{engine}: {} of {text}", r[0]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// A number of modulus 0 or ∞ has a sign where its direction is known.
#[test]
fn signs_powers_and_quotients_of_infinite_numbers() -> Result<()> {
    let inf = f64::INFINITY;
    let one = |re: f64, im: f64| Array::from(re).complex(Array::from(im));
    let read = |y: Array| Ok::<_, atmesh::Error>([y.real().item::<f64>()?, y.imag().item::<f64>()?]);
    for engine in [Lockstep, Threads, EngineKind::Reference] {
        let of =
            |f: fn(&Array, &Array) -> Array, x: &Array, y: &Array| read(jit(f).engine(engine).call((x, y))?);
        let sign = |x: Array| of(|x, _| x.sign(), &x, &x);
        assert_eq!(sign(one(0.0, 0.0))?, [0.0, 0.0]);
        assert_eq!(sign(one(-inf, 3.0))?, [-1.0, 0.0]);
        assert_eq!(sign(one(3.0, inf))?, [0.0, 1.0]);
        assert!(sign(one(inf, inf))?[0].is_nan() && sign(one(inf, f64::NAN))?[0].is_nan());
        let quotient = |x: Array, y: Array| of(|x, y| x / y, &x, &y);
        assert_eq!(quotient(one(3.0, -2.0), one(inf, f64::NAN))?.map(f64::abs), [0.0; 2]);
        assert_eq!(quotient(one(inf, 1.0), one(0.5, 0.0))?[0], inf);
        assert_eq!(quotient(one(6e307, 6e307), one(3e307, 3e307))?, [2.0, 0.0]);
        assert_eq!(quotient(one(1.0, 0.0), one(0.0, 0.0))?[0], inf);
        let power = |x: Array, y: Array| of(|x, y| x.pow(y), &x, &y);
        assert_eq!(power(one(f64::NAN, inf), one(0.0, 0.0))?, [1.0, 0.0]);
        assert_eq!(power(one(inf, 0.0), one(2.0, 0.0))?, [inf, 0.0]);
        assert_eq!(power(one(0.0, 0.0), one(2.0, 1.0))?, [0.0, 0.0]);
    }
    Ok(())
}

/// Gathers of split complex numbers combine devices by the maximum, whose neutral element has two
/// parts.
#[test]
fn gathers_of_split_complex_numbers() -> Result<()> {
    let re = Array::arange(0.0..24.0f32).reshape([24, 1]);
    let x = (-&re - 1.0).complex(&re * -10.0 - 1.0);
    let i = Array::from([1, 8, 14, 23]);
    let read = |y: &Array| Ok::<_, atmesh::Error>([y.real().to_vec::<f32>()?, y.imag().to_vec::<f32>()?]);
    let want = read(&x.take(&i, 0))?;
    for n in [2, 3, 4, 8] {
        let (auto, explicit) = (Mesh::auto([("X", n)])?, Mesh::new([("X", n)])?);
        for engine in [Lockstep, Threads, EngineKind::Reference] {
            let y = jit(|x: &Array| x.take(&i, 0)).engine(engine).call(x.put(&auto, p!["X", _]))?;
            assert_eq!(read(&y)?, want, "{n} devices, {engine}");
            let y =
                jit(|x: &Array| x.take_to(&i, 0, p![])).engine(engine).call(x.put(&explicit, p!["X", _]))?;
            assert_eq!(read(&y)?, want, "{n} devices, explicit, {engine}");
        }
    }
    Ok(())
}
