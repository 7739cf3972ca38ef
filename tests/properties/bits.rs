//! Bitwise equality: `jit(f)` equals `f` for any engine, mesh and number of workers, and both equal
//! the reference engine where it computes exactly.

use super::{holds, mesh_of, meshes, spec_for};
use atmesh::EngineKind;
use atmesh::mesh::AxisType;
use atmesh::prelude::*;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::sample::select;
use proptest::test_runner::TestCaseError;

/// Returns the bits of all elements, with one pattern for every NaN.
pub(crate) fn bits(x: &Array) -> Result<Vec<u64>> {
    if x.ty()?.dtype.is_complex() {
        return Ok([bits(&x.real())?, bits(&x.imag())?].concat());
    }
    if !x.ty()?.dtype.is_float() {
        return Ok(x.astype(I64).to_vec::<i64>()?.into_iter().map(|x| x as u64).collect());
    }
    let numbers = x.astype(F64).to_vec::<f64>()?;
    Ok(numbers.into_iter().map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }).collect())
}

/// Returns edge cases of an element type and a few common values, cyclically from the k-th one on.
fn edges(dtype: DType, shape: &[usize], k: usize) -> Array {
    let n: usize = shape.iter().product();
    let around =
        |all: &[f64]| Array::from((0..n).map(|i| all[(i * (2 * k + 1) + k) % all.len()]).collect::<Vec<_>>());
    let flat = match dtype {
        d if d.is_float() => {
            let (least, tiny, most) = match d {
                F16 => (f64::powi(2.0, -24), f64::powi(2.0, -14), 65504.0),
                F64 => (5e-324, f64::MIN_POSITIVE, f64::MAX),
                BF16 => (f64::powi(2.0, -133), f64::powi(2.0, -126), f64::from(f32::MAX)),
                _ => (f64::powi(2.0, -149), f64::powi(2.0, -126), f64::from(f32::MAX)),
            };
            let inf = f64::INFINITY;
            let all = [
                0.0,
                -0.0,
                1.0,
                -1.0,
                0.1,
                -0.3,
                1.7,
                3.0,
                1e4,
                1.0 / 3.0,
                inf,
                -inf,
                f64::NAN,
                most,
                -most,
                least,
                -least,
                tiny,
                -tiny,
                0.5,
                2.5,
                -2.5,
                1.0009765625,
            ];
            around(&all).astype(d)
        }
        Bool => around(&[0.0, 1.0, 1.0]).ne(0.0),
        d if d.is_complex() => {
            let part = if d == DType::C64 { F32 } else { F64 };
            edges(part, &[n], k).complex(edges(part, &[n], k + 1))
        }
        d => {
            let width = 8 * d.size() as i32;
            let (low, high): (i128, i128) = match d.is_signed() {
                true => (-(1 << (width - 1)), (1 << (width - 1)) - 1),
                false => (0, (1i128 << width) - 1),
            };
            let all = [0, 1, low, high, 2, 3, high - 1, low + 1, 7, high / 2, low / 3];
            let numbers: Vec<i64> = (0..n).map(|i| all[(i * (2 * k + 1) + k) % all.len()] as i64).collect();
            Array::from(numbers).astype(d)
        }
    };
    flat.reshape(shape)
}

/// One line of a program, which computes a value from earlier ones.
#[derive(Clone, Copy, Debug)]
struct Line {
    op: Op,
    a: u8,
    b: u8,
    number: f64,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add,
    Sub,
    Mul,
    Div,
    Max,
    Min,
    Neg,
    Abs,
    Sign,
    Square,
    Sqrt,
    Floor,
    AddNumber,
    NumberSub,
    Times,
    Over,
    Choose,
    Flip,
    /// An operand is one element, which is the same along a row.
    AddScalar,
    ScalarSub,
    TimesScalar,
    /// The reference engine computes it by other steps.
    Rough(u8),
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    use Op::*;
    let linear =
        vec![Add, Sub, Mul, Neg, AddNumber, NumberSub, Times, Over, AddScalar, ScalarSub, TimesScalar];
    let other = vec![Div, Max, Min, Abs, Sign, Square, Sqrt, Floor, Choose, Flip];
    let op = prop_oneof![4 => select(linear), 2 => select(other), 1 => any::<u8>().prop_map(Rough)];
    let number = select(vec![0.0, -0.0, 1.0, -1.0, 1.7, 3.0, 0.1, -2.0, 0.5, 8.0]);
    let line =
        (op, any::<u8>(), any::<u8>(), number).prop_map(|(op, a, b, number)| Line { op, a, b, number });
    vec(line, 1..=12)
}

/// Returns all values of a program over three arrays and two scalars.
fn run(lines: &[Line], inputs: &[Array]) -> Result<Vec<Array>> {
    let (arrays, scalars) = inputs.split_at(3);
    let mut values = arrays.to_vec();
    for l in lines {
        // every other line continues the one before
        let n = values.len();
        let at = if l.a % 2 == 0 { n - 1 } else { l.a as usize / 2 % n };
        let (x, y) = (&values[at], &values[l.b as usize % n]);
        let ty = x.ty()?;
        let (float, whole) = (ty.dtype.is_float(), l.number.abs() as i32);
        let number = |f: &dyn Fn(f64) -> Array, i: &dyn Fn(i32) -> Array| {
            if float { f(l.number) } else { i(whole) }
        };
        let next = match l.op {
            Op::Add => x + y,
            Op::Sub => x - y,
            Op::Mul => x * y,
            Op::Div => x / y,
            Op::Max => x.maximum(y),
            Op::Min => x.minimum(y),
            Op::Neg => -x,
            Op::Abs if float || ty.dtype.is_signed() => x.abs(),
            Op::Sign => x.sign(),
            Op::Square => x.square(),
            Op::Sqrt if float => x.sqrt(),
            Op::Floor if float => x.floor(),
            Op::AddNumber => number(&|c| x + c, &|c| x + c),
            Op::NumberSub => number(&|c| c - x, &|c| c - x),
            Op::Times => number(&|c| x * c, &|c| x * c),
            Op::Over => number(&|c| x / c, &|c| x / c),
            Op::Choose => x.gt(y).select(y, x),
            Op::Flip if ty.rank() > 0 => x.flip(0),
            Op::AddScalar => x + &scalars[l.b as usize % 2],
            Op::ScalarSub => &scalars[l.b as usize % 2] - x,
            Op::TimesScalar => x * &scalars[l.b as usize % 2],
            Op::Rough(k) if float => match k % 6 {
                0 => x.tanh(),
                1 => x.exp(),
                2 => x.sin(),
                3 => x.log(),
                4 => x.logistic(),
                _ => x.rsqrt(),
            },
            _ => x.clone(),
        };
        values.push(next);
    }
    Ok(values.split_off(arrays.len()))
}

fn rough(lines: &[Line]) -> bool {
    lines.iter().any(|l| matches!(l.op, Op::Rough(_)))
}

#[test]
fn programs_without_sums_have_one_result() {
    let dtypes = select(vec![F32, F32, F32, F64, F64, F16, BF16, I8, I16, I32, I64, U8, U16, U32, U64]);
    let shapes = select(vec![vec![24], vec![48], vec![8, 6], vec![4, 130], vec![]]);
    let programs = (meshes(), shapes, any::<[u8; 3]>(), dtypes, lines());
    holds(120, programs, |(axes, shape, picks, dtype, lines)| {
        let wrong = |what: &str, e: atmesh::Error| TestCaseError::fail(format!("{what}: {e}"));
        let arrays = (0..3).map(|k| edges(dtype, &shape, k));
        // the scalars are finite, so that most results are
        let scalars = [3, 9].map(|k| edges(dtype, &[k + 1], 0).slice(ix![k]));
        let inputs: Vec<Array> = arrays.chain(scalars).collect();
        let all = |outs: &[Array]| outs.iter().map(bits).collect::<Result<Vec<_>>>();
        let want = run(&lines, &inputs).and_then(|o| all(&o)).map_err(|e| wrong("at once", e))?;
        let mesh = mesh_of(&axes);
        let spec = spec_for(&mesh, &shape, &picks, &[AxisType::Explicit, AxisType::Auto]);
        let place = |x: &Array| {
            x.put(&mesh, if x.ty().is_ok_and(|t| t.rank() == 0) { Spec::replicated(0) } else { spec })
        };
        let split: Vec<Array> = inputs.iter().map(place).collect();
        let mut ways = vec![("at once, sharded".to_string(), run(&lines, &split).and_then(|o| all(&o)))];
        for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
            if engine == EngineKind::Reference && rough(&lines) {
                continue;
            }
            let f = jit(|x: &Vec<Array>| run(&lines, x)).engine(engine);
            // values that are not results are computed on the way
            let last =
                jit(|x: &Vec<Array>| Ok::<_, atmesh::Error>(run(&lines, x)?.split_off(lines.len() - 1)));
            let last = last.engine(engine);
            for (how, x) in [("", &inputs), (", sharded", &split)] {
                ways.push((format!("{engine}{how}"), f.call(x).and_then(|o| all(&o))));
                ways.push((format!("{engine}{how}, the last"), last.call(x).and_then(|o| all(&o))));
            }
        }
        for (way, got) in ways {
            let got = got.map_err(|e| wrong(&way, e))?;
            for (k, (got, want)) in got.iter().zip(&want[want.len() - got.len()..]).enumerate() {
                if got != want {
                    let i = got.iter().zip(want).position(|(g, w)| g != w).unwrap_or(0);
                    return Err(TestCaseError::fail(format!(
                        "{way}: line {k}, element {i} is {:#x}, at once {:#x}",
                        got[i], want[i]
                    )));
                }
            }
        }
        Ok(())
    });
}

/// Computes one line of a row program from earlier values x and y; a row's statistics and the kind
/// select the operation.
fn of_rows(kind: u8, x: &Array, y: &Array) -> Array {
    let last = || Dims::keep(-1);
    match kind % 14 {
        0 => x - x.max(last()),
        1 => (x - x.max(last())).exp(),
        2 => (x * 0.125 - y.min(last())).exp(),
        3 => x / x.sum(last()),
        4 => (x * y).sum(last()) * y,
        5 => (x - x.mean(last())) * y.sum(last()),
        6 => y * (x - y.max(last())),
        7 => x * (x * x).mean(last()).rsqrt(),
        8 => x.sum(last()) - y,
        9 => x * y.max(last()) + y.sum(last()),
        10 => x * y + x.min(last()),
        11 => x.softmax(1),
        12 => x.logsumexp(Dims::keep(-1)) + y,
        _ => x + y,
    }
}

/// Rows that are reduced and used again: eagerly as separate operations, in `jit` as one program,
/// and in a loop without row fusion.
#[test]
fn rows_that_are_used_again_have_one_result() {
    let shapes = (
        select(vec![1usize, 16, 23, 40]),
        select(vec![1usize, 3, 16, 63, 64, 65, 130, 511, 512, 513, 1100, 2300]),
    );
    let dtypes = select(vec![F32, F32, F32, F64, F16]);
    let lines = vec((any::<u8>(), any::<u8>(), any::<u8>()), 1..=7);
    holds(60, (shapes, dtypes, lines, any::<bool>()), |((n, c), dtype, lines, rare)| {
        let wrong = |what: &str, e: atmesh::Error| TestCaseError::fail(format!("{what}: {e}"));
        let input = |k: usize| match rare {
            true => edges(dtype, &[n, c], k),
            false => (Array::arange(0..(n * c) as i32).astype(F32) * 0.7 + k as f32)
                .sin()
                .astype(dtype)
                .reshape([n, c]),
        };
        let made = |x: &Array, y: &Array| {
            let mut values = vec![x.clone(), y.clone()];
            for (kind, a, b) in &lines {
                let (a, b) = (*a as usize % values.len(), *b as usize % values.len());
                values.push(of_rows(*kind, &values[a], &values[b]));
            }
            values.split_off(2)
        };
        let (x, y) = (input(0), input(1));
        let all = |outs: &[Array]| outs.iter().map(bits).collect::<Result<Vec<_>>>();
        let want = all(&made(&x, &y)).map_err(|e| wrong("at once", e))?;
        let last = |x: &Array, y: &Array| made(x, y).pop().unwrap_or_else(|| x.clone());
        let mesh = Mesh::new([("rows", 2)]).map_err(|e| wrong("a mesh", e))?;
        for engine in [Lockstep, Threads] {
            let f = jit(made).engine(engine);
            let mut ways = vec![("all", f.call((&x, &y)).and_then(|o| all(&o)))];
            let one = jit(last).engine(engine);
            ways.push(("the last", one.call((&x, &y)).and_then(|o| all(&[o]))));
            if n % 2 == 0 {
                let (x, y) = (x.put(&mesh, p!["rows", _]), y.put(&mesh, p!["rows", _]));
                ways.push(("the last, rows split", one.call((&x, &y)).and_then(|o| all(&[o]))));
            }
            let step = |x: &Array, y: &Array| fori_loop(0..1, x, |_, x| last(&x, y));
            ways.push(("in a loop", jit(step).engine(engine).call((&x, &y)).and_then(|o| all(&[o]))));
            for (way, got) in ways {
                let got = got.map_err(|e| wrong(way, e))?;
                let of = want.len() - got.len();
                for (k, (got, want)) in got.iter().zip(&want[of..]).enumerate() {
                    if let Some(i) = got.iter().zip(want).position(|(g, w)| g != w) {
                        let (g, w) = (got[i], want[i]);
                        return Err(TestCaseError::fail(format!(
                            "{engine}, {way}: {k}, element {i}: {g:#x} for {w:#x}"
                        )));
                    }
                }
            }
        }
        Ok(())
    });
}

/// Conversions round once, on every path.
#[test]
fn conversions_are_those_of_the_reference() {
    for from in DType::all().filter(|d| d.is_number()) {
        // A conversion that would lose the imaginary part is an error.
        for to in DType::all().filter(|d| d.is_number() && (d.is_complex() || !from.is_complex())) {
            let x = edges(from, &[46], 1);
            let of = |engine| jit(|x: &Array| x.astype(to)).engine(engine).call(&x).unwrap();
            let (got, want) = (of(EngineKind::Lockstep), of(EngineKind::Reference));
            assert_eq!(bits(&got).unwrap(), bits(&want).unwrap(), "{from} to {to}: {x}");
        }
    }
    let x = Array::from([(1i64 << 62) + (1 << 54) + 1, -(1 << 62) - (1 << 54) - 1, (1 << 53) + 1]);
    assert_eq!(
        x.astype(BF16).astype(F64).to_vec::<f64>().unwrap()[..2],
        [4.647714815446352e18, -4.647714815446352e18]
    );
}

#[test]
fn a_value_less_itself_is_zero() {
    let x = Array::from([0.1f32, 1e8, 3.3333]);
    let f = |x: &Array| {
        let m = x * 1.7;
        &m - &m
    };
    for engine in [Lockstep, Threads] {
        for dtype in [F32, F64] {
            let zero = jit(f).engine(engine).call(x.astype(dtype)).unwrap();
            assert_eq!(zero.astype(F64).to_vec::<f64>().unwrap(), [0.0; 3]);
        }
    }
    let step = |c: &Array| {
        let m = c * 1.7;
        &m - &m + c
    };
    let again = fori_loop(0..3, &x, |_, c| step(&c));
    assert_eq!(again.to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    // A sum of three products is rounded five times.
    let f = |x: &Array| (x * 1.7 - x.flip(0) * 0.3) + x * x;
    assert_eq!(bits(&jit(f).call(&x).unwrap()).unwrap(), bits(&f(&x)).unwrap());
    // The subtracted value is itself a difference, which may be a zero of either sign.
    let g = |x: &Array| x - (x * 2.0 - x * 2.0);
    let zero = Array::from([-0.0f32, 0.0]);
    assert_eq!(bits(&jit(g).call(&zero).unwrap()).unwrap(), bits(&g(&zero)).unwrap());
}

#[test]
fn zeros_keep_their_signs() {
    let x = Array::from([-0.0f64, 0.0, 1.0]);
    let sum = jit(|x: &Array| 1.0 / (x * 2.0 + 0.0)).call(&x).unwrap();
    assert_eq!(sum.to_vec::<f64>().unwrap()[..2], [f64::INFINITY; 2]);
    let (a, b) = jit(|x: &Array| (x * 0.0, x * -0.0)).call(&x).unwrap();
    assert_eq!(bits(&a).unwrap(), [-0.0f64, 0.0, 0.0].map(f64::to_bits));
    assert_eq!(bits(&b).unwrap(), [0.0f64, -0.0, -0.0].map(f64::to_bits));
}

#[test]
fn extremes_do_not_depend_on_order() {
    for dtype in [F16, BF16, F32, F64] {
        let (zero, less) =
            (Array::from([0.0f64; 70]).astype(dtype), Array::from([-0.0f64; 70]).astype(dtype));
        let all = |x: &Array, want: f64| {
            let got = bits(x).unwrap();
            assert!(got.iter().all(|b| *b == want.to_bits()), "{dtype}: {x}");
        };
        for (a, b) in [(&zero, &less), (&less, &zero)] {
            all(&a.maximum(b), 0.0);
            all(&a.minimum(b), -0.0);
            for rows in [stack([a, b], 0), stack([a, b, b, a, b, a, b, a, a, b], 0)] {
                all(&rows.max(0), 0.0);
                all(&rows.min(0), -0.0);
                all(&rows.max(..), 0.0);
                all(&rows.t().min(1), -0.0);
            }
            all(&a.maximum(f64::NAN).isnan_or_zero(), 0.0);
        }
    }
}

trait Nan {
    /// Returns 0 for NaN, else the element itself.
    fn isnan_or_zero(&self) -> Array;
}
impl Nan for Array {
    fn isnan_or_zero(&self) -> Array {
        self.ne(self).select(self.zeros_like(), self)
    }
}
