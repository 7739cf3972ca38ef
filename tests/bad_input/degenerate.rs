//! Operations on arrays with sizes 0 and 1, on mesh axes of size 1, with extreme arguments: eager,
//! under `jit` and exported to StableHLO.

use super::{Call, IntoList, panic_of};
use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::stablehlo::Options;
use atmesh::{IndexMode, IndexOptions, Spec};

#[path = "../export/checker.rs"]
mod checker;

type A<'a> = &'a Array;

macro_rules! calls { ($($call:expr),+ $(,)?) => {
    vec![$((
        stringify!($call).to_string(),
        Box::new(|x: A<'_>, y: A<'_>| {
            #[allow(clippy::redundant_closure_call)]
            let made = $call(x, y);
            made.into_list()
        }) as Box<dyn Fn(&Array, &Array) -> Vec<Array>>,
    )),+]
} }

fn clipped() -> IndexOptions {
    IndexOptions::default().mode(IndexMode::Clip)
}
/// Returns the indices 0, 1, 0, … or, for an array of rank 0, the index 0.
fn indices(x: &Array) -> Array {
    x.astype(I32).abs().clamp(0, 1)
}

/// Returns all operations, with arguments that are valid for some arrays.
fn operations() -> Vec<Call> {
    let mut all = shape_operations();
    all.extend(index_operations());
    all.extend(number_operations());
    all
}

fn shape_operations() -> Vec<Call> {
    calls![
        |x: A, _| x.reshape([2]),
        |x: A, _| x.ravel(),
        |x: A, _| x.expand_dims(0),
        |x: A, _| x.squeeze(0),
        |x: A, _| x.t(),
        |x: A, _| x.swapaxes(0, -1),
        |x: A, _| x.moveaxis(0, -1),
        |x: A, _| x.flip(0),
        |x: A, _| x.flip(..),
        |x: A, _| x.roll(1, 0),
        |x: A, _| x.roll(-3, -1),
        |x: A, _| x.shift(1, 0, 0),
        |x: A, _| x.repeat(2, 0),
        |x: A, _| x.repeat(0, 0),
        |x: A, _| x.tile([2]),
        |x: A, _| x.pad(0, [(1, 2, 1)]),
        |x: A, _| x.pad(0, [(-1, 0, 0), (1, -1, 0)]),
        |x: A, _| x.tril(0),
        |x: A, _| x.triu(1),
        |x: A, _| x.diagonal(0),
        |x: A, _| x.trace(0),
        |x: A, _| x.diag(-1),
        |x: A, _| x.unstack(0),
        |x: A, _| x.split([1, 1], 0),
        |x: A, y: A| concat([x, y], 0),
        |x: A, y: A| concat([x, x, y], -1),
        |x: A, y: A| stack([x, y], 0),
        |x: A, _| x.broadcast_to([2, 1, 3]),
        |x: A, _| x.broadcast_in_dim([1, 0, 1], [0]),
        |x: A, _| x.diff(1, 0),
        |x: A, y: A| meshgrid([x, y], atmesh::array::GridIndexing::Ij),
        |x: A, _| x.slice(ix![0]),
        |x: A, _| x.slice(ix![0..0]),
        |x: A, _| x.slice(ix![..; -1]),
        |x: A, _| x.slice(ix![1..; 2]),
        |x: A, y: A| x.dot(y),
        |x: A, y: A| x.matmul(y),
        |x: A, y: A| x.outer(y),
        |x: A, y: A| x.kron(y),
        |x: A, y: A| x.vdot(y),
        |x: A, y: A| x.tensordot(y, 1),
        |x: A, y: A| einsum("i,j->ij", [x, y]),
        |x: A, y: A| einsum("...,...->...", [x, y]),
        |x: A, _| einsum("ii->i", [x]),
        |x: A, _| vmap(x, |x| x.sum(..)),
        |x: A, y: A| scan(y, x, |c, x| (&c + &x, x)),
        |x: A, _| x.max_pool([1]),
        |x: A, _| x.avg_pool([2]),
    ]
}

fn index_operations() -> Vec<Call> {
    calls![
        |x: A, y: A| x.take(&indices(y), 0),
        |x: A, y: A| x.take_with(&indices(y), 0, clipped()),
        |x: A, y: A| x.take_with(&indices(y), -1, clipped()),
        |x: A, y: A| x.take_along_axis(&indices(y), 0),
        |x: A, y: A| x.slice(ix![&indices(y)]),
        |x: A, y: A| x.at(ix![&indices(y)]).set(1),
        |x: A, y: A| x.at(ix![&indices(y)]).add(2),
        |x: A, y: A| x.at(ix![&indices(y)]).mode(IndexMode::Clip).set(1),
        |x: A, y: A| x.at(ix![&indices(y)]).mode(IndexMode::Clip).add(2),
        |x: A, y: A| x.at(ix![&indices(y)]).mode(IndexMode::Clip).max(2),
        |x: A, y: A| x.slice(ix![0..1]).at(ix![&indices(y)]).mode(IndexMode::Clip).add(1),
        |x: A, y: A| x.slice(ix![0..1]).at(ix![&indices(y)]).mode(IndexMode::Clip).set(3),
        |x: A, y: A| x.at(ix![0..1]).set(y),
        |x: A, y: A| x.slice(ix![&indices(y).sum(..)..; 1]),
        |x: A, y: A| x.at(ix![&indices(y).sum(..)..; 1]).set(x.slice(ix![0..1])),
        |x: A, y: A| grad(x, |x| x.take(&indices(y), 0).square().sum(..)),
        |x: A, y: A| grad(x, |x| x.take_with(&indices(y), 0, clipped()).square().sum(..)),
        |x: A, y: A| grad(x, |x| x.at(ix![&indices(y)]).mode(IndexMode::Clip).mul(2).square().sum(..)),
        |x: A, y: A| x.segment_sum(&indices(y), 2),
        |x: A, y: A| x.ragged_dot(y.expand_dims(0), indices(x).ravel().slice(ix![..1])),
        |x: A, y: A| x.ragged_dot(y, indices(x)),
        |x: A, y: A| x.segment_max(&indices(y), 1),
        |x: A, _| indices(x).bincount(1),
        |x: A, _| indices(x).one_hot(1),
        |x: A, _| x.flatnonzero(1),
        |x: A, _| x.unique(2),
        |x: A, y: A| x.isin(y),
        |x: A, y: A| x.searchsorted(y, false),
        |x: A, y: A| x.interp(y, y),
        |x: A, _| x.histogram(2, 0.0..1.0),
        |x: A, _| x.argmax(0),
        |x: A, _| x.sort(0),
        |x: A, _| x.argsort(-1),
        |x: A, _| x.top_k(1, 0),
        |x: A, _| x.median(0),
        |x: A, _| x.quantile(0.5, -1),
    ]
}

fn number_operations() -> Vec<Call> {
    calls![
        |x: A, y: A| x + y,
        |x: A, y: A| x / y,
        |x: A, y: A| x % y,
        |x: A, y: A| x.pow(y),
        |x: A, y: A| x.lt(y).select(x, y),
        |x: A, _| x.exp(),
        |x: A, _| x.log(),
        |x: A, _| x.powi(i32::MIN),
        |x: A, _| x.clamp(i64::MIN, i64::MAX),
        |x: A, _| x.sum(..),
        |x: A, _| x.prod(0),
        |x: A, _| x.mean(0),
        |x: A, _| x.max(0),
        |x: A, _| x.min(..),
        |x: A, _| x.any(0),
        |x: A, _| x.std(-1),
        |x: A, _| x.norm(..),
        |x: A, _| x.nanmean(0),
        |x: A, _| x.count_nonzero(..),
        |x: A, y: A| x.average(y, 0),
        |x: A, _| x.cov(),
        |x: A, _| x.softmax(-1),
        |x: A, _| x.logsumexp(0),
        |x: A, _| x.cumsum(0),
        |x: A, _| x.cummax(-1),
        |x: A, _| x.cumlogsumexp(0),
        |x: A, y: A| x.recurrence(y, 0),
        |x: A, _| x.fft(0),
        |x: A, _| x.fftn(1),
        |x: A, _| x.rfft(-1),
        |x: A, _| x.irfft(-1, 0),
        |x: A, _| x.irfft(-1, 1),
        |x: A, _| x.fftshift(0),
        |x: A, _| x.det(),
        |x: A, _| x.inv(),
        |x: A, _| x.cholesky(),
        |x: A, _| x.qr(true),
        |x: A, _| x.lu(),
        |x: A, _| x.svdvals(),
        |x: A, _| x.eigh(),
        |x: A, _| x.slogdet(),
        |x: A, _| x.pinv(None),
        |x: A, y: A| x.solve(y),
        |x: A, y: A| x.lstsq(y, None),
        |x: A, _| x.matrix_power(3),
        |x: A, _| grad(x, |x| x.sin().sum(..)),
        |x: A, _| grad(x, |x| x.cumsum(0).max(..)),
    ]
}

/// Returns operations whose arguments are far beyond what any array can have.
pub(crate) fn extreme_calls() -> Vec<Call> {
    let mut all: Vec<Call> = Vec::new();
    macro_rules! each { ($n:ident in $list:expr; $($call:expr),+ $(,)?) => {$(
        for $n in $list {
            all.push((format!("{} for {:?}", stringify!($call), $n), Box::new(move |x, y| {
                let _ = y;
                #[allow(clippy::redundant_closure_call)]
                let made = $call(x, y);
                made.into_list()
            })));
        }
    )+} }
    each!(n in [0, 1 << 50, usize::MAX / 2, usize::MAX];
        |_: A, _: A| Array::fftfreq(n, 1.0), |_: A, _: A| Array::rfftfreq(n, 0.0),
        |x: A, _: A| x.irfft(0, n), |x: A, _: A| x.fftn(n), |x: A, _: A| x.repeat(n, 0),
        |x: A, _: A| x.bincount(n), |x: A, y: A| x.segment_sum(y, n), |x: A, y: A| x.segment_min(y, n),
        |x: A, _: A| x.flatnonzero(n), |x: A, _: A| x.unique(n), |x: A, _: A| x.top_k(n, 0),
        |x: A, _: A| x.histogram(n, 0.0..1.0), |x: A, _: A| x.max_pool([n]), |x: A, _: A| x.avg_pool([n, n]),
        |x: A, _: A| x.tensordot(x, n), |x: A, _: A| x.slice(ix![&indices(x)..; n]),
        |_: A, _: A| Array::linspace(0.0, 1.0, n, true),
    );
    each!(n in [i64::MIN, -(1 << 40), 1 << 40, i64::MAX];
        |x: A, _: A| x.shift(n, 0, 0), |x: A, _: A| x.trace(n), |x: A, _: A| x.diag(n), |x: A, _: A| x.diagonal(n),
        |x: A, _: A| x.take(&(x.astype(I64) * n), 0), |x: A, _: A| x.at(ix![&(x.astype(I64) * n)]).add(1),
        |x: A, _: A| x.take_with(&(x.astype(I64) * n), 0, clipped()), |x: A, _: A| x.bit_and(n),
    );
    each!(q in [f64::NAN, f64::INFINITY, -1.0, f64::MAX, 5e-324];
        |x: A, _: A| x.quantile(q, 0), |x: A, _: A| x.histogram(2, -q..q), |x: A, _: A| x.pinv(Some(q)),
        |x: A, _: A| x * q, |x: A, _: A| x.pow(q), |_: A, _: A| Array::fftfreq(3, q),
        |_: A, _: A| Array::linspace(q, -q, 3, true), |x: A, _: A| x.clamp(q, -q),
    );
    all
}

/// Returns arrays of every small shape and of three element types: on no mesh, and sharded in every
/// dimension that an axis divides, over explicit and auto axes of sizes 1 and 2.
fn operands() -> Vec<Array> {
    let shapes: [&[usize]; 9] = [&[], &[0], &[1], &[2], &[1, 1], &[2, 1], &[1, 3], &[0, 2], &[1, 2, 1]];
    let meshes = [
        Mesh::new([("X", 1), ("Y", 2)]).unwrap(),
        Mesh::new([("X", 2), ("Y", 1)]).unwrap(),
        Mesh::auto([("X", 1), ("Y", 2)]).unwrap(),
    ];
    let specs: [Spec; 4] = [p!["X"], p!["Y"], p!["X", "Y"], p![_, "X"]];
    let mut all = Vec::new();
    for shape in shapes {
        for dtype in [F32, I32, Bool] {
            let n: usize = shape.iter().product();
            let x = Array::from((0..n).map(|k| (k % 3) as f32 - 1.0).collect::<Vec<_>>());
            let x = x.reshape(shape).astype(dtype);
            let put = meshes.iter().flat_map(|mesh| specs.iter().map(|spec| x.put(mesh, *spec)));
            all.extend(put.filter(|x| x.ty().is_ok()));
            all.push(x);
        }
    }
    all
}

/// Every operation on such arrays gives an `Err` or a value. `jit` gives the same value, and the
/// exported text is consistent.
///
/// `DEGENERATE` is the number of pairs of operands of each operation, and `DEGENERATE_SEED` the
/// first one.
#[test]
fn operations_on_sizes_0_and_1() {
    let number =
        |name: &str, default: usize| std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default);
    let (pairs, seed) = (number("DEGENERATE", 3), number("DEGENERATE_SEED", 1));
    let operands = operands();
    let mut state = seed as u64;
    let mut draw = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        &operands[(state >> 33) as usize % operands.len()]
    };
    let (mut accepted, mut failed) = (0, Vec::new());
    for (what, call) in operations() {
        for _ in 0..pairs {
            let (x, y) = (draw(), draw());
            let name = format!("{what} on {}, {}", type_of(x), type_of(y));
            let run = || {
                let texts = |all: &[Array]| all.iter().map(ToString::to_string).collect::<Vec<_>>();
                let eager = call(x, y);
                let traced = jit(|x: &Array, y: &Array| call(x, y)).trace((x, y));
                if eager.iter().any(|a| a.ty().is_err()) {
                    assert!(traced.is_err(), "an error at once, but not in a trace");
                    return false;
                }
                let traced = traced.unwrap();
                if let Ok(module) = traced.to_stablehlo_with(Options::default()) {
                    checker::check(module.text()).unwrap_or_else(|why| panic!("{why}\n{module}"));
                }
                let compiled = traced.lower().unwrap().compile().unwrap();
                let made: Vec<Array> = compiled.call((x, y)).unwrap();
                assert_eq!(texts(&eager), texts(&made), "under `jit`");
                true
            };
            let mut ok = false;
            if let Some(panic) = panic_of(|| ok = run()) {
                failed.push(format!("{name}: {panic}"));
            }
            accepted += usize::from(ok);
        }
    }
    assert!(failed.is_empty(), "{} failed (seed {seed}):\n{}", failed.len(), failed.join("\n"));
    assert!(accepted > pairs * 20, "only {accepted} are accepted");
}

/// The programs in which this was found.
#[test]
fn clipped_updates_of_a_single_row_are_exported() -> Result<()> {
    let (x, ids) = (Array::ones([5, 3]), Array::from([0, 0, 1, 0, 1]));
    let f = |x: &Array| {
        let row = x.slice(ix![0..1]);
        let sums = row.at(ix![&ids]).mode(IndexMode::Clip).add(1);
        let last = row.at(ix![&ids]).mode(IndexMode::Clip).set(Array::arange(0.0..15.0f32).reshape([5, 3]));
        let loss = |w: Array| w.take_with(&ids, 0, clipped()).square().sum(..);
        vec![sums, last, grad(&row, loss)]
    };
    let module = jit(f).trace(&x)?.to_stablehlo_with(Options::default())?;
    assert_eq!(checker::check(module.text()), Ok(()));
    let made = jit(f).call(&x)?;
    assert_eq!(made[0].to_vec::<f32>()?, [6.0; 3]);
    assert_eq!(made[1].to_vec::<f32>()?, [12.0, 13.0, 14.0]);
    assert_eq!(made[2].to_vec::<f32>()?, [10.0; 3]);
    Ok(())
}

/// An error about an operand with more dimensions than the user's.
#[test]
fn isin_on_an_axis_of_size_1_is_an_error_with_helps() -> Result<()> {
    for (n, sizes) in [(1, [2, 1]), (1, [2, 2]), (1, [1, 1]), (2, [4, 2])] {
        let mesh = Mesh::new([("Y", n)])?;
        let [x, values] = sizes.map(|n| Array::ones([n]).put(&mesh, p!["Y"]));
        let text = x.isin(&values).ty().unwrap_err().unquoted();
        assert!(text.contains("isin") && text.contains("reshard operand"), "{text}");
        assert_eq!(x.isin(values.reshard(p![_])).ty()?.to_string(), format!("bool[{}@Y]", sizes[0]));
    }
    Ok(())
}

/// Sizes are checked before memory is allocated.
#[test]
fn frequencies_that_do_not_fit_are_errors() -> Result<()> {
    for n in [1 << 40, 1 << 50, usize::MAX] {
        for x in [Array::fftfreq(n, 1.0), Array::rfftfreq(n, 1.0)] {
            let error = x.ty().expect_err("it does not fit");
            assert!(error.unquoted().contains("fftfreq"), "{error}");
        }
    }
    assert_eq!(Array::fftfreq(0, 1.0).shape()?, [0]);
    assert_eq!(Array::rfftfreq(0, 1.0).shape()?, [1]);
    Ok(())
}

/// Lists of dimensions of every integer type.
#[test]
fn lists_of_dimensions_may_be_negative() -> Result<()> {
    let x = Array::ones([2, 3, 4]);
    let (narrow, wide, plain): (Vec<i32>, Vec<i64>, Vec<usize>) = (vec![-1, 0], vec![-1, 0], vec![2, 0]);
    for y in [x.sum(&narrow[..]), x.sum(&wide[..]), x.sum(&plain[..]), x.sum(narrow), x.sum(wide)] {
        assert_eq!(y.shape()?, [3]);
    }
    assert_eq!(x.sum([-1i64, 0]).shape()?, [3]);
    Ok(())
}
