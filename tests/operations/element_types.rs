//! Every element type at the sizes where kernels change their code path.
//!
//! Reductions of 262,144 elements and more run in two stages, scans and sorts of long rows in
//! blocks. The values are small integers, so that results are exact in every type and in any order.

use crate::soak::{part, runs_all};
use atmesh::EngineKind;
use atmesh::prelude::*;

/// Each size is tested together with its two neighbours.
const SIZES: [usize; 3] = [1 << 9, 1 << 14, 1 << 18];

/// An element as (real part, imaginary part).
type Value = (i64, i64);

/// Some of the element types, among them always the one with the largest elements.
fn types() -> impl Iterator<Item = DType> {
    part(DType::all().filter(|d| !matches!(d, DType::Key | DType::Bool | C128)), 5).chain([C128])
}

fn is_unsigned(d: DType) -> bool {
    matches!(d, U8 | U16 | U32 | U64)
}

/// Small numbers whose partial sums stay below 256, so that bfloat16 holds them.
fn small(d: DType, k: usize) -> i64 {
    let x = [1, 0, -1, 0, 1, -1, 0][k % 7] + i64::from(k % 16384 == 5) * 2;
    if is_unsigned(d) { x.abs() } else { x }
}

fn value(d: DType, k: usize) -> Value {
    (small(d, k), if d.is_complex() { small(d, 3 * k + 1) } else { 0 })
}

/// Numbers whose products never round: units, and odd numbers for unsigned integers.
fn factor(d: DType, k: usize) -> Value {
    match d {
        d if is_unsigned(d) => (1 + 2 * (k % 3) as i64, 0),
        d if d.is_complex() => [(1, 0), (0, 1), (-1, 0), (0, -1)][(k * k + k / 3) % 4],
        _ => (1 - 2 * ((k / 3) % 2) as i64, 0),
    }
}

fn array(d: DType, values: &[Value]) -> Array {
    let part = |f: fn(&Value) -> i64| Array::from(values.iter().map(f).collect::<Vec<i64>>());
    match d.is_complex() {
        true => part(|v| v.0).astype(F64).complex(part(|v| v.1).astype(F64)).astype(d),
        false => part(|v| v.0).astype(d),
    }
}

/// Reduces an exact result to the range of the type.
fn wrap(d: DType, v: Value) -> Value {
    let x = v.0;
    let re = match d {
        I8 => x as i8 as i64,
        I16 => x as i16 as i64,
        I32 => x as i32 as i64,
        U8 => x as u8 as i64,
        U16 => x as u16 as i64,
        U32 => x as u32 as i64,
        _ => x,
    };
    (re, v.1)
}

fn read(y: &Array) -> Vec<Value> {
    let ty = y.ty().unwrap_or_else(|e| panic!("{e}"));
    let list = |y: Array| y.astype(I64).to_vec::<i64>().unwrap_or_else(|e| panic!("{e}"));
    if !ty.dtype.is_complex() {
        return list(y.clone()).into_iter().map(|v| (v, 0)).collect();
    }
    list(y.real()).into_iter().zip(list(y.imag())).collect::<Vec<_>>()
}

fn add(a: Value, b: Value) -> Value {
    (a.0.wrapping_add(b.0), a.1.wrapping_add(b.1))
}

fn mul(a: Value, b: Value) -> Value {
    let m = i64::wrapping_mul;
    (m(a.0, b.0).wrapping_sub(m(a.1, b.1)), m(a.0, b.1).wrapping_add(m(a.1, b.0)))
}

/// Runs `f` eagerly and on both engines, whole and, where the size allows it, on four devices.
#[track_caller]
fn check(what: &str, d: DType, x: &Array, want: &[Value], f: fn(&Array) -> Array) {
    let eager = f(x);
    // sums of narrow integers are wider
    let dtype = eager.ty().unwrap_or_else(|e| panic!("{e}")).dtype;
    let want: Vec<Value> = want.iter().map(|v| wrap(dtype, *v)).collect();
    let same = |how: &str, y: &Array| {
        assert_eq!(y.dtype().unwrap_or_else(|e| panic!("{e}")), dtype, "{what} of {d}, {how}");
        let y = read(y);
        assert_eq!(y.len(), want.len(), "{what} of {d}, {how}");
        if let Some(k) = (0..y.len()).find(|k| y[*k] != want[*k]) {
            panic!("{what} of {d}, {how}: element {k} is {:?}, not {:?}", y[k], want[k]);
        }
    };
    same("eager", &eager);
    for engine in [EngineKind::Lockstep, EngineKind::Threads] {
        let run = |x: &Array| jit(f).engine(engine).call(x).unwrap_or_else(|e| panic!("{e}"));
        same(&format!("{engine}"), &run(x));
        let mesh = Mesh::auto([("X", 4)]).unwrap();
        same(&format!("{engine}, four devices"), &run(&x.put(&mesh, p!["X"])));
    }
}

/// Returns the sizes that run with an element type: of the three largest ones, each type has
/// another one, or all in a soak.
fn sizes(d: DType) -> impl Iterator<Item = usize> {
    let own = types().position(|t| t == d).unwrap_or(0) % 3;
    let all = SIZES.into_iter().flat_map(|n| [n - 1, n, n + 1]).enumerate();
    all.filter(move |(k, _)| runs_all() || *k < 6 || k % 3 == own).map(|(_, n)| n)
}

/// Sums and products of all elements, of few long rows, and of columns.
#[test]
fn reductions() {
    for d in types() {
        for n in sizes(d) {
            let values: Vec<Value> = (0..n).map(|k| value(d, k)).collect();
            let factors: Vec<Value> = (0..n).map(|k| factor(d, k)).collect();
            let total = values.iter().copied().fold((0, 0), add);
            check(&format!("sum of {n}"), d, &array(d, &values), &[total], |x| x.sum(..));
            let product = factors.iter().copied().fold((1, 0), mul);
            check(&format!("product of {n}"), d, &array(d, &factors), &[product], |x| x.prod(..));
        }
    }
}

#[test]
fn reductions_of_rows_and_columns() {
    for d in types() {
        for n in SIZES {
            let values: Vec<Value> = (0..4 * n).map(|k| value(d, k)).collect();
            let x = array(d, &values);
            let rows: Vec<Value> = values.chunks(n).map(|r| r.iter().copied().fold((0, 0), add)).collect();
            check(&format!("sums of 4 rows of {n}"), d, &x.reshape([4, n]), &rows, |x| x.sum(1));
            let column = |c: usize| values[c..].iter().step_by(4).copied().fold((0, 0), add);
            let columns: Vec<Value> = (0..4).map(column).collect();
            check(&format!("sums of 4 columns of {n}"), d, &x.reshape([n, 4]), &columns, |x| x.sum(0));
        }
    }
}

#[test]
fn extremes_and_sorts() {
    for d in types().filter(|d| !d.is_complex()) {
        for n in sizes(d) {
            let mut values: Vec<Value> = (0..n).map(|k| value(d, k)).collect();
            let x = array(d, &values);
            values.sort();
            check(&format!("maximum of {n}"), d, &x, &values[n - 1..], |x| x.max(..));
            check(&format!("minimum of {n}"), d, &x, &values[..1], |x| x.min(..));
            check(&format!("sort of {n}"), d, &x, &values, |x| x.sort(0));
        }
    }
}

#[test]
fn prefix_sums_and_inner_products() {
    for d in types() {
        for n in sizes(d) {
            let values: Vec<Value> = (0..n).map(|k| value(d, k)).collect();
            let x = array(d, &values);
            let sums = values.iter().scan((0, 0), |s, v| {
                *s = add(*s, *v);
                Some(*s)
            });
            check(&format!("prefix sums of {n}"), d, &x, &sums.collect::<Vec<_>>(), |x| x.cumsum(0));
            let product = values.iter().map(|v| mul(*v, *v)).fold((0, 0), add);
            // squares of the other types add up to more than 16 bits hold exactly
            if !matches!(d, F16 | BF16) {
                check(&format!("inner product of {n}"), d, &x, &[product], |x| x.dot(x));
            }
        }
    }
}

/// Windows, segments and scans along a dimension, around the sizes of tiles and of blocks.
#[test]
fn windows_segments_and_scans() {
    fn ids(x: &Array) -> Array {
        let n = x.shape().unwrap_or_else(|e| panic!("{e}"))[0] as i32;
        Array::arange(0..n) * 7 % 5
    }
    for d in types() {
        for n in sizes(d).filter(|n| *n < 1 << 17) {
            let values: Vec<Value> = (0..n).map(|k| value(d, k)).collect();
            let factors: Vec<Value> = (0..n).map(|k| factor(d, k)).collect();
            let (x, y) = (array(d, &values), array(d, &factors));
            let windows: Vec<Value> =
                values.windows(3).map(|w| w.iter().copied().fold((0, 0), add)).collect();
            check(&format!("windows of {n}"), d, &x, &windows, |x| x.window_sum([3]));
            let products: Vec<Value> =
                factors.windows(5).map(|w| w.iter().copied().fold((1, 0), mul)).collect();
            check(&format!("products of windows of {n}"), d, &y, &products, |x| x.window_prod([5]));
            let (mut sums, mut products) = (vec![(0, 0); 5], vec![(1, 0); 5]);
            for k in 0..n {
                let id = 7 * k % 5;
                (sums[id], products[id]) = (add(sums[id], values[k]), mul(products[id], factors[k]));
            }
            check(&format!("segments of {n}"), d, &x, &sums, |x| x.segment_sum(&ids(x), 5));
            check(&format!("products of segments of {n}"), d, &y, &products, |x| x.segment_prod(&ids(x), 5));
            let scan = factors.iter().scan((1, 0), |p, v| {
                *p = mul(*p, *v);
                Some(*p)
            });
            check(&format!("prefix products of {n}"), d, &y, &scan.collect::<Vec<_>>(), |x| x.cumprod(0));
            let reversed: Vec<Value> = values.iter().rev().copied().collect();
            check(&format!("gather of {n}"), d, &x, &reversed, |x| {
                let n = x.shape().unwrap_or_else(|e| panic!("{e}"))[0] as i32;
                x.take(&(n - 1 - Array::arange(0..n)), 0)
            });
        }
    }
}

#[test]
fn bools() {
    for n in sizes(Bool) {
        for k in [0, n / 2, n - 1] {
            let x = Array::arange(0..n as i32).eq(k as i32);
            assert!(x.any(..).item::<bool>().unwrap(), "any of {n}");
            assert!(!(!&x).all(..).item::<bool>().unwrap(), "all of {n}");
            assert!((!&x).any(..).item::<bool>().unwrap() && !x.all(..).item::<bool>().unwrap(), "{n}");
        }
    }
}
