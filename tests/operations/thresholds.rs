//! Kernels of every element type around the sizes at which they change their code path.
//!
//! The sizes are read from the constants in `src/kernels`, so the tests follow when one changes,
//! and each new constant must be listed here. The values are small integers: results are exact in
//! every type and in any order. `tests/operations/element_types.rs` has reductions, windows and segments.

use crate::soak::part;
use atmesh::EngineKind;
use atmesh::prelude::*;
use std::path::{Path, PathBuf};

/// How a constant is tested.
enum Tested {
    /// By these tests, at this size and its neighbours.
    At(&'static str),
    /// Not: the reason.
    Exempt(&'static str),
}
use Tested::{At, Exempt};

/// The limits in `src/kernels`: file, constant, how it is tested.
const LIMITS: &[(&str, &str, Tested)] = &[
    ("gemm.rs", "MAX_UNPACKED_MACS", At("products")),
    ("gemm/few_rows.rs", "MAX_ROWS", At("products_with_few_rows")),
    ("gemm/few_rows.rs", "MIN_COLUMNS", At("products_with_few_rows")),
    ("gemm/few_rows.rs", "MIN_ROW_STRIDE", At("products_with_few_rows")),
    ("gemm/gemv.rs", "MAX_IN_ORDER_TERMS", At("products")),
    ("gemm/gemv.rs", "MAX_SHORT_TERMS", At("products")),
    ("gemm/gemv.rs", "MAX_STRIP_BYTES", Exempt("it divides work, and sizes of one row are tested")),
    ("gemm/packed.rs", "MIN_SIZE", At("products")),
    ("gemm/small_k.rs", "MAX_RESULT_ELEMENTS", At("products")),
    ("gemm/small_k.rs", "MAX_TERMS", At("products")),
    ("gather.rs", "MAX_BATCH_ROWS", At("gathers_and_scatters")),
    ("int.rs", "MAX_SCALAR_DIVISIONS", Exempt("a test of the kernel has slices on both sides")),
    ("index_filter.rs", "MAX_PICKED_ROWS", At("gathers_and_scatters")),
    ("row/fft/butterfly.rs", "MAX_PRIME", At("transforms")),
    ("row/fft/plan.rs", "MAX_FLAT_GRID_ELEMENTS", At("transforms")),
    ("row/fft/plan.rs", "MIN_GRID_ELEMENTS", At("transforms")),
    ("row/fft/transform.rs", "MAX_UNFILLED_BYTES", Exempt("tests of the kernel have lengths on both sides")),
    ("row/fft/lanes.rs", "MAX_LANES", Exempt("the size of a buffer of registers")),
    ("row/prefix_sum/simd.rs", "MIN_STREAMING_BYTES", At("long_prefix_sums")),
    ("row/radix_sort.rs", "MIN_ELEMENTS_PER_DIGIT", At("sorts")),
    ("row/top_k.rs", "MIN_ELEMENTS_PER_RESULT", At("largest_elements")),
    ("weighted_sum.rs", "MAX_TERMS", At("weighted_sums")),
    ("weighted_sum.rs", "MIN_TERMS", At("weighted_sums")),
    ("pairwise_sum.rs", "MAX_LEVELS", Exempt("more than the levels of the largest array")),
    ("buffer.rs", "MAX_BUFFER_BYTES", Exempt("larger than any memory; `bad_input` exceeds it")),
    ("buffer.rs", "MIN_CLASS_BYTES", Exempt("the pool of buffers: it decides no kernel")),
    ("buffer.rs", "MIN_POOL_BYTES", Exempt("the pool of buffers: it decides no kernel")),
    ("buffer/thread_cache.rs", "MAX_BLOCKS_PER_CLASS", Exempt("the pool of buffers: it decides no kernel")),
    ("buffer/thread_cache.rs", "MAX_CACHED_BYTES", Exempt("the pool of buffers: it decides no kernel")),
];

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kernels")
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the names and values of the constants that begin with `MIN_` or `MAX_`.
fn limits_of(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.lines().filter_map(|line| {
        let (_, rest) = line.split_once("const ")?;
        let (name, rest) = rest.split_once(": ")?;
        let (_, value) = rest.split_once(" = ")?;
        (name.starts_with("MIN_") || name.starts_with("MAX_")).then(|| (name, value.trim_end_matches(';')))
    })
}

/// Returns the value of a listed constant.
fn limit(file: &str, name: &str) -> usize {
    assert!(LIMITS.iter().any(|l| (l.0, l.1) == (file, name)), "{name} of {file} is not listed");
    let text = read(&folder().join(file));
    let value = limits_of(&text).find(|l| l.0 == name).unwrap_or_else(|| panic!("{file} has no {name}")).1;
    let number =
        |digits: &str| -> usize { digits.parse().unwrap_or_else(|e| panic!("{name} = {value}: {e}")) };
    match value.split_once(" << ") {
        Some((mantissa, bits)) => number(mantissa) << number(bits),
        None => number(value),
    }
}

/// Returns the size and its neighbours.
fn around(n: usize) -> [usize; 3] {
    [n - 1, n, n + 1]
}

#[test]
fn every_limit_of_a_kernel_is_listed() {
    let mut folders = vec![folder()];
    let mut found = Vec::new();
    while let Some(path) = folders.pop() {
        for entry in std::fs::read_dir(&path).expect("the folder can be read") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let file = path.strip_prefix(folder()).expect("it is in the folder").display().to_string();
            found.extend(limits_of(&read(&path)).map(|(name, _)| (file.clone(), name.to_string())));
        }
    }
    let own = read(Path::new(file!()));
    for (file, name, tested) in LIMITS {
        assert!(found.iter().any(|f| (f.0.as_str(), f.1.as_str()) == (*file, *name)), "{file} has no {name}");
        match tested {
            At(test) => {
                let body =
                    own.split_once(&format!("\nfn {test}() ")).unwrap_or_else(|| panic!("no {test}")).1;
                let body = body.split("\n}\n").next().unwrap_or_default();
                let call = format!("limit(\"{file}\", \"{name}\")");
                assert!(body.contains(&call), "the test {test} has no {call}");
            }
            Exempt(reason) => assert!(!reason.is_empty()),
        }
    }
    for (file, name) in found {
        assert!(
            LIMITS.iter().any(|l| (l.0, l.1) == (file.as_str(), name.as_str())),
            "{name} of src/kernels/{file} is not tested: list it in tests/operations/thresholds.rs"
        );
    }
}

/// An element as (real part, imaginary part).
type Value = (i64, i64);

fn types() -> impl Iterator<Item = DType> {
    part(DType::all().filter(|d| *d != DType::Key && *d != DType::Bool), 5)
}

/// Returns −1, 0 or 1 without a pattern; 0, 1 or 2 for unsigned integers.
fn value(d: DType, k: usize) -> Value {
    let hash = |k: usize| (k as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let least = if matches!(d, U8 | U16 | U32 | U64) { 0 } else { -1 };
    let at = |k: usize| (hash(k) % 3) as i64 + least;
    (at(k), if d.is_complex() { at(k + (1 << 20)) } else { 0 })
}

fn values(d: DType, n: usize, seed: usize) -> Vec<Value> {
    (0..n).map(|k| value(d, k + seed)).collect()
}

fn array(d: DType, values: &[Value]) -> Array {
    let part = |f: fn(&Value) -> i64| Array::from(values.iter().map(f).collect::<Vec<i64>>());
    match d.is_complex() {
        true => part(|v| v.0).astype(F64).complex(part(|v| v.1).astype(F64)).astype(d),
        false => part(|v| v.0).astype(d),
    }
}

/// Asserts that the elements of `f(x, y)` are `wanted`, modulo the width of integers: eagerly, on
/// both engines and with several devices.
#[track_caller]
fn check(what: &str, d: DType, args: (&Array, &Array), wanted: &[Value], f: fn(&Array, &Array) -> Array) {
    let (x, y) = args;
    let eager = f(x, y);
    let ty = eager.ty().unwrap_or_else(|e| panic!("{what} of {d}: {e}"));
    let wanted = array(ty.dtype, wanted).reshape(&ty.shape);
    let same = |how: &str, y: Array| {
        let dtype = y.ty().unwrap_or_else(|e| panic!("{what} of {d}, {how}: {e}")).dtype;
        assert_eq!(dtype, ty.dtype, "{what} of {d}, {how}");
        let differ = y.ne(&wanted).sum(..).item::<i32>().unwrap_or_else(|e| panic!("{what}, {how}: {e}"));
        assert_eq!(differ, 0, "{what} of {d}, {how}: elements differ");
    };
    same("eager", eager);
    for engine in [EngineKind::Lockstep, EngineKind::Threads] {
        let run = |x: &Array, y: &Array| jit(f).engine(engine).call((x, y)).unwrap_or_else(|e| panic!("{e}"));
        same(&format!("{engine}"), run(x, y));
        let mesh = Mesh::auto([("X", 2)]).unwrap();
        same(&format!("{engine}, two devices"), run(&x.put(&mesh, p!["X"]), &y.put(&mesh, p![])));
    }
}

fn product(d: DType, [m, k, n]: [usize; 3]) {
    let (a, b) = (values(d, m * k, 0), values(d, k * n, 7919));
    let mut wanted = vec![(0, 0); m * n];
    for (at, sum) in wanted.iter_mut().enumerate() {
        for l in 0..k {
            let (x, y) = (a[at / n * k + l], b[l * n + at % n]);
            sum.0 += x.0 * y.0 - x.1 * y.1;
            sum.1 += x.0 * y.1 + x.1 * y.0;
        }
    }
    let (x, y) = (array(d, &a).reshape([m, k]), array(d, &b).reshape([k, n]));
    check(&format!("{m}×{k} by {k}×{n}"), d, (&x, &y), &wanted, |x, y| x.dot(y));
}

#[test]
fn products() {
    let terms = [
        limit("gemm/small_k.rs", "MAX_TERMS"),
        limit("gemm/gemv.rs", "MAX_IN_ORDER_TERMS"),
        limit("gemm/gemv.rs", "MAX_SHORT_TERMS"),
        512, // the terms of a panel
    ];
    let unpacked = limit("gemm.rs", "MAX_UNPACKED_MACS");
    let results = limit("gemm/small_k.rs", "MAX_RESULT_ELEMENTS");
    for d in types() {
        for k in terms.into_iter().flat_map(around) {
            for [m, n] in [[1, 5], [18, 1], [5, 17]] {
                product(d, [m, k, n]);
            }
        }
        for n in around(unpacked / 64) {
            product(d, [8, 8, n]);
        }
        for n in around(results / 4) {
            product(d, [4, 3, n]);
        }
        for m in around(limit("gemm/packed.rs", "MIN_SIZE")) {
            product(d, [m, 300, 18]);
            product(d, [18, m, 100]);
        }
    }
}

#[test]
fn products_with_few_rows() {
    let columns = limit("gemm/few_rows.rs", "MIN_COLUMNS");
    let stride = limit("gemm/few_rows.rs", "MIN_ROW_STRIDE");
    let w = array(F32, &values(F32, 17 * 2 * stride, 7919)).reshape([17, 2 * stride]);
    for m in around(limit("gemm/few_rows.rs", "MAX_ROWS")) {
        for n in around(stride) {
            product(F32, [m, 17, n]);
        }
        let x = array(F32, &values(F32, m * 17, 0)).reshape([m, 17]);
        // (a part of the columns keeps the stride of all)
        for n in around(columns) {
            let part = jit(|(x, w): (Array, Array)| x.dot(w.slice(ix![.., 0..n]))).call((&x, &w)).unwrap();
            let all = x.dot(&w).slice(ix![.., 0..n]);
            assert_eq!(part.to_vec::<f32>().unwrap(), all.to_vec::<f32>().unwrap(), "{m}×17 by 17×{n}");
        }
    }
}

/// Tests that the first of equal extremes is found, or the first NaN, along rows and columns that
/// are contiguous, reversed or every second one.
#[test]
fn first_extremes() {
    for d in types().filter(|d| !d.is_complex()) {
        for [m, n] in [[1, 1], [3, 70], [70, 3], [9, 513], [513, 17]] {
            let nan = |k: usize| d.is_float() && k % 61 == 60 && (k / n) % 4 < 2;
            let mut x = values(d, m * n, m);
            x.iter_mut().enumerate().filter(|x| nan(x.0)).for_each(|x| x.1.0 = 9);
            // (the reciprocal of 0 is infinite, and the difference of infinities is NaN)
            let zeros: Vec<Value> = (0..m * n).map(|k| (i64::from(!nan(k)), 0)).collect();
            let nans = if d.is_float() {
                let y = 1.0 / array(d, &zeros);
                &y - &y
            } else {
                array(d, &vec![(0, 0); m * n])
            };
            let x_nan = (array(d, &x) + nans).reshape([m, n]);
            let first = |order: &dyn Fn(Value) -> i64, line: &mut dyn Iterator<Item = usize>| {
                let keys: Vec<i64> = line.map(|k| if nan(k) { 99 } else { order(x[k]) }).collect();
                let most = keys.iter().max().expect("a line has elements");
                (keys.iter().position(|k| k == most).expect("it is there") as i64, 0)
            };
            for (sign, what) in [(1, "argmax"), (-1, "argmin")] {
                let order = |v: Value| sign * v.0;
                let rows = (0..m).map(|i| first(&order, &mut (0..n).map(|j| i * n + j))).collect();
                let columns = (0..n).map(|j| first(&order, &mut (0..m).map(|i| i * n + j))).collect();
                let back = (0..m).map(|i| first(&order, &mut (0..n).rev().map(|j| i * n + j))).collect();
                let half = (0..m).map(|i| first(&order, &mut (0..n).step_by(2).map(|j| i * n + j))).collect();
                let all: [Vec<Value>; 4] = [rows, columns, back, half];
                let calls: [fn(&Array, &Array) -> Array; 8] = [
                    |x, _| x.argmax(1),
                    |x, _| x.argmax(0),
                    |x, _| x.flip(1).argmax(1),
                    |x, _| x.slice(ix![.., ..;2]).argmax(1),
                    |x, _| x.argmin(1),
                    |x, _| x.argmin(0),
                    |x, _| x.flip(1).argmin(1),
                    |x, _| x.slice(ix![.., ..;2]).argmin(1),
                ];
                for (wanted, f) in all.iter().zip(&calls[if sign == 1 { 0 } else { 4 }..]) {
                    check(&format!("{what} of {m}×{n}"), d, (&x_nan, &x_nan), wanted, *f);
                }
            }
        }
    }
}

/// Tests operands that are read across their rows, in blocks of 64 rows and 512 columns at most.
#[test]
fn transposes() {
    for d in types() {
        for [m, n] in [[15, 40], [16, 16], [40, 15], [514, 65], [258, 130]] {
            let (a, b) = (values(d, m * n, 0), values(d, m * n, 7919));
            let pairs = b.iter().enumerate().map(|(k, y)| (a[k % m * n + k / m], y));
            let wanted: Vec<Value> = pairs.map(|(x, y)| (x.0 + y.0, x.1 + y.1)).collect();
            let (x, y) = (array(d, &a).reshape([m, n]), array(d, &b).reshape([n, m]));
            check(&format!("transposed {m}×{n}"), d, (&x, &y), &wanted, |x, y| x.t() + y);
        }
    }
}

#[test]
fn sorts() {
    let per_digit = limit("row/radix_sort.rs", "MIN_ELEMENTS_PER_DIGIT");
    for d in types().filter(|d| !d.is_complex()) {
        for n in [1, 2, 4, 8].into_iter().flat_map(|digits| around(per_digit * digits)) {
            let list = values(d, n, n);
            let mut sorted = list.clone();
            sorted.sort();
            let x = array(d, &list);
            check(&format!("sort of {n}"), d, (&x, &x), &sorted, |x, _| x.sort(0));
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by_key(|k| list[*k]);
            let order: Vec<Value> = order.into_iter().map(|k| (k as i64, 0)).collect();
            check(&format!("argsort of {n}"), d, (&x, &x), &order, |x, _| x.argsort(0));
        }
    }
}

#[test]
fn largest_elements() {
    let per_result = limit("row/top_k.rs", "MIN_ELEMENTS_PER_RESULT");
    for d in types().filter(|d| !d.is_complex()) {
        for n in around(per_result * 3) {
            let list = values(d, n, 3);
            let mut order: Vec<usize> = (0..n).collect();
            order.sort_by_key(|k| (std::cmp::Reverse(list[*k]), *k));
            let x = array(d, &list);
            let best: Vec<Value> = order[..3].iter().map(|k| list[*k]).collect();
            check(&format!("top 3 of {n}"), d, (&x, &x), &best, |x, _| x.top_k(3, 0).0);
            let at: Vec<Value> = order[..3].iter().map(|k| (*k as i64, 0)).collect();
            check(&format!("indices of the top 3 of {n}"), d, (&x, &x), &at, |x, _| x.top_k(3, 0).1);
        }
    }
}

/// A transform followed by its inverse, and the transform of a constant.
#[test]
fn transforms() {
    let grid = limit("row/fft/plan.rs", "MIN_GRID_ELEMENTS");
    let flat = limit("row/fft/plan.rs", "MAX_FLAT_GRID_ELEMENTS");
    let prime = limit("row/fft/butterfly.rs", "MAX_PRIME");
    let more = [grid / 2, 2 * grid, 67, 4 * 67, 4 * flat, 1 << 16];
    let sizes = || [grid, flat, prime].into_iter().flat_map(around).chain(more);
    let cases = [C64, C128].into_iter().flat_map(|d| sizes().map(move |n| (d, n)));
    for (d, n) in part(cases, 5) {
        let x = array(d, &values(d, n, 1));
        // rounding of the transforms is far below 1/4
        let rounded = |x: &Array, _: &Array| {
            let y = x.fft(0).ifft(0);
            y.real().round().complex(y.imag().round())
        };
        check(&format!("fft and ifft of {n}"), d, (&x, &x), &values(d, n, 1), rounded);
        let ones = array(d, &vec![(1, 0); n]);
        let mut wanted = vec![(0, 0); n];
        wanted[0] = (n as i64, 0);
        let transformed = |x: &Array, _: &Array| {
            let y = x.fft(0);
            y.real().round().complex(y.imag().round())
        };
        check(&format!("fft of {n} ones"), d, (&ones, &ones), &wanted, transformed);
    }
}

#[test]
fn gathers_and_scatters() {
    let rows = [limit("gather.rs", "MAX_BATCH_ROWS"), limit("index_filter.rs", "MAX_PICKED_ROWS")];
    for d in types() {
        // one element, less than a cache line, and more
        for width in [1, 3, 80] {
            for n in rows.into_iter().flat_map(around) {
                let (size, ids) = (n + 2, (0..n).map(|k| 5 * k % (n - 3)).collect::<Vec<_>>());
                let (table, updates) = (values(d, size * width, 2), values(d, n * width, 11));
                let index = Array::from(ids.iter().map(|k| *k as i32).collect::<Vec<_>>());
                let x = array(d, &table).reshape([size, width]);
                let taken: Vec<Value> =
                    ids.iter().flat_map(|k| table[k * width..(k + 1) * width].to_vec()).collect();
                let what = format!("{n} rows of {width}");
                check(&what, d, (&x, &index), &taken, |x, i| x.take(i, 0));
                let mut sums = table.clone();
                for (k, row) in ids.iter().zip(updates.chunks(width)) {
                    for (sum, y) in sums[k * width..].iter_mut().zip(row) {
                        *sum = (sum.0 + y.0, sum.1 + y.1);
                    }
                }
                let both = concat([&x, &array(d, &updates).reshape([n, width])], 0);
                check(&format!("sums at {what}"), d, (&both, &index), &sums, |both, i| {
                    let n = i.dim_size(0) as i64;
                    both.slice(ix![..-n]).at(ix![i]).add(both.slice(ix![-n..]))
                });
            }
        }
    }
}

#[test]
fn weighted_sums() {
    let terms =
        [limit("weighted_sum.rs", "MIN_TERMS"), limit("weighted_sum.rs", "MAX_TERMS")].map(around).concat();
    let n = 513; // more than one tile
    for d in types() {
        let list = values(d, n + 16, 5);
        let x = array(d, &list);
        for t in &terms {
            let sum_at = |k: usize| {
                let each = (0..*t).map(|j| (j as i64 + 1, list[k + j]));
                each.fold((0, 0), |sum, (w, v)| (sum.0 + w * v.0, sum.1 + w * v.1))
            };
            let wanted: Vec<Value> = (0..n).map(sum_at).collect();
            let count = Array::from(vec![0u8; *t]);
            check(&format!("{t} terms of {n}"), d, (&x, &count), &wanted, |x, count| {
                let n = x.dim_size(0) as i64 - 16;
                let term = |j: i64| x.slice(ix![j..j + n]) * (j + 1);
                (1..count.dim_size(0) as i64).fold(term(0), |sum, j| sum + term(j))
            });
        }
    }
}

/// Differences of prefix sums are the elements. Blocks end at 65,536 elements, and long rows of
/// float32 are streamed past the cache.
#[test]
fn long_prefix_sums() {
    let streamed = limit("row/prefix_sum/simd.rs", "MIN_STREAMING_BYTES") / F32.size();
    for d in types().filter(|d| !d.is_complex()) {
        let sizes = if d == F32 { vec![1 << 16, streamed] } else { vec![1 << 16] };
        for n in sizes.into_iter().flat_map(around) {
            // +1 and −1 in turns, in runs: the sums stay small
            let x = (Array::arange(0..n as i32) / 7 % 2 * 2 - 1).astype(d);
            let sums = x.cumsum(0);
            let dtype = sums.ty().unwrap().dtype;
            let first = sums.slice(ix![0]).eq(x.slice(ix![0]));
            let steps = (sums.slice(ix![1..]) - sums.slice(ix![..-1])).eq(x.slice(ix![1..]).astype(dtype));
            let right = first.item::<bool>().unwrap() && steps.all(..).item::<bool>().unwrap();
            assert!(right, "prefix sums of {n} {d}");
        }
    }
}
