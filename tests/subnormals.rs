//! Subnormal numbers, flushed and not flushed: the engines give the same bits.

mod error_checks;

use atmesh::array::Term;
use atmesh::diagnostic::Fault;
use atmesh::prelude::*;
use atmesh::program::loop_nest::{Access, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp};
use atmesh::program::{
    BatchedOp, Dim, Factors, JvpArgs, Linearity, Primitive, Tangents, TransposeArgs, TypedOperand, VmapArgs,
};
use atmesh::{Complex, ErrorKind, Shape, default_flush_subnormals, set_default_flush_subnormals};
use error_checks::Unquoted as _;
use std::sync::Arc;

const ENGINES: [EngineKind; 3] = [Lockstep, Threads, EngineKind::Reference];

/// Returns the parts of all elements as float64, which has a bit pattern for each of them.
fn bits(x: &Array) -> Result<Vec<u64>> {
    let parts = if x.dtype()?.is_complex() { vec![x.real(), x.imag()] } else { vec![x.clone()] };
    let mut all = Vec::new();
    for part in parts {
        let wide = part.astype(F64).to_vec::<f64>()?;
        // the payloads of NaN are unspecified
        all.extend(wide.iter().map(|x| if x.is_nan() { f64::NAN } else { *x }.to_bits()));
    }
    Ok(all)
}

/// Returns true if a number of this type is subnormal and would be flushed.
fn is_subnormal(x: f64, dtype: DType) -> bool {
    match dtype.real() {
        F64 => x.is_subnormal(),
        F32 | BF16 => x != 0.0 && x.abs() < f64::from(f32::MIN_POSITIVE),
        _ => false,
    }
}

fn has_subnormals(x: &Array) -> Result<bool> {
    let dtype = x.dtype()?;
    Ok(bits(x)?.iter().any(|b| is_subnormal(f64::from_bits(*b), dtype)))
}

// ---- Maxwell's equations -------------------------------------------------------------------------

type Fields = (Array, Array, Array);

/// One step of the fields `ez`, `hx` and `hy` between conducting walls, by slices.
fn maxwell_slices((ez, hx, hy): Fields) -> Fields {
    let hx = hx.at(ix![.., ..-1]).add(-0.5 * (ez.slice(ix![.., 1..]) - ez.slice(ix![.., ..-1])));
    let hy = hy.at(ix![..-1]).add(0.5 * (ez.slice(ix![1..]) - ez.slice(ix![..-1])));
    let curl = hy.slice(ix![1..-1, 1..-1]) - hy.slice(ix![..-2, 1..-1]) - hx.slice(ix![1..-1, 1..-1])
        + hx.slice(ix![1..-1, ..-2]);
    (ez.at(ix![1..-1, 1..-1]).add(0.5 * curl), hx, hy)
}

/// The same step by shifts, which keep the size, with walls by masks.
fn maxwell_shifts((ez, hx, hy): Fields, [inside, right, down]: &[Array; 3]) -> Fields {
    let hx = &hx - 0.5 * right * (ez.shift(-1, 1, 0.0) - &ez);
    let hy = &hy + 0.5 * down * (ez.shift(-1, 0, 0.0) - &ez);
    let curl = &hy - hy.shift(1, 0, 0.0) - &hx + hx.shift(1, 1, 0.0);
    (ez + 0.5 * inside * curl, hx, hy)
}

/// A pulse in the middle of n × n points, whose edges are subnormal.
fn pulse(n: usize) -> Fields {
    let y = Array::linspace(-9.7, 9.7, n, true).expand_dims(1);
    let x = Array::linspace(-9.7, 9.7, n, true).expand_dims(0);
    let ez = (-(y.square() + x.square())).exp();
    let none = ez.zeros_like();
    (ez, none.clone(), none)
}

#[test]
fn maxwell_has_equal_bits_on_all_engines() -> Result<()> {
    const N: usize = 24;
    let all =
        |(ez, hx, hy): Fields| -> Result<Vec<u64>> { Ok([bits(&ez)?, bits(&hx)?, bits(&hy)?].concat()) };
    let s = pulse(N);
    let mesh = Mesh::new([("y", 2), ("x", 2)])?;
    let auto = tree::put(&s, &Mesh::auto([("y", 2), ("x", 2)])?, p!["y", "x"]);
    let explicit = tree::put(&s, &mesh, p!["y", "x"]);
    let ones = |i: atmesh::array::Index| Array::zeros([N, N]).at(i).set(1.0).put(&mesh, p!["y", "x"]);
    let masks = [ones(ix![1..-1, 1..-1]), ones(ix![.., ..-1]), ones(ix![..-1])];
    let mut seen = Vec::new();
    for flush in [false, true] {
        let slices = |engine| {
            jit(|s: &Fields| fori_loop(0..20, s, |_, s| maxwell_slices(s)))
                .engine(engine)
                .flush_subnormals(flush)
        };
        let shifts = |engine| {
            jit(|s: &Fields| fori_loop(0..20, s, |_, s| maxwell_shifts(s, &masks)))
                .engine(engine)
                .flush_subnormals(flush)
        };
        let want = slices(Lockstep).call(&s)?;
        assert_eq!([has_subnormals(&want.0)?, has_subnormals(&want.1)?], [!flush; 2]);
        let (want, on_mesh) = (all(want)?, all(shifts(Lockstep).call(&explicit)?)?);
        for engine in ENGINES {
            assert_eq!(all(slices(engine).call(&s)?)?, want, "{engine}, flushed: {flush}");
            assert_eq!(all(slices(engine).call(&auto)?)?, want, "{engine} on auto axes, flushed: {flush}");
            let explicit = all(shifts(engine).call(&explicit)?)?;
            assert_eq!(explicit, on_mesh, "{engine} on explicit axes, flushed: {flush}");
        }
        seen.push(want);
    }
    assert_ne!(seen[0], seen[1]);
    Ok(())
}

// ---- every instruction ---------------------------------------------------------------------------

/// One instruction, or the reduction of the results of `Copy`, as a primitive.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct OneInstruction {
    op: ScalarOp,
    to: DType,
    reducer: Option<Reducer>,
}

impl Primitive for OneInstruction {
    fn name(&self) -> &'static str {
        "one_instruction"
    }
    fn params(&self) -> String {
        format!("{:?} {} {:?}", self.op, self.to, self.reducer)
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let shape = operands[0].ty.shape.clone();
        Ok(vec![(self.to, if self.reducer.is_some() { Shape::scalar() } else { shape })])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let dims = Dim::each(0..1);
        Factors {
            operands: vec![dims.clone(); operands.len()],
            results: vec![if self.reducer.is_some() { Vec::new() } else { dims }],
            ..Factors::from_sizes(&operands[0].shape)
        }
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    fn jvp(&self, _: JvpArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(&self, at: TransposeArgs<'_>) -> Result<Tangents> {
        Ok(vec![None; at.operands.len()])
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::broadcasting(Arc::new(self.clone()))
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let from = operands.last().expect("it has operands").dtype;
        let args: Vec<_> = (0..operands.len()).map(ScalarArg::Access).collect();
        let code = ScalarCode::single(self.op, from, self.to, &args);
        let shape = &operands[0].shape;
        vec![LoopNest {
            extents: shape.to_vec(),
            rank: results[0].rank(),
            dtype: self.to,
            accesses: (operands.iter().enumerate())
                .map(|(k, x)| Access::from_loops(k, x.dtype, shape, &[Some(0)]))
                .collect(),
            compute: match self.reducer {
                Some(reducer) => Compute::Reduce { reducer, code },
                None => Compute::Map(code),
            },
        }]
    }
}

/// Numbers of float64 that become normal, subnormal or something in between in each type.
fn numbers(dtype: DType) -> Vec<f64> {
    let least = if dtype.real() == F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE.into() };
    let mut all = vec![0.0, 1.0, 0.3, 1.5, 2.75, 1e3, 87.5, 3e-5, 1e-30, f64::INFINITY, f64::NAN];
    // next to the smallest normal number, as results of products, too
    let next = if dtype.real() == F64 { f64::EPSILON } else { f32::EPSILON.into() };
    all.extend([1.0, 1.0 + next, 2.0, 0.999, 0.5, 0.25, 1e-3, next].map(|x| x * least));
    all.extend([1.0 - next / 2.0, 1.0 + next, 1.0 - 2.0 * next, least.sqrt(), 1.3 * least.sqrt()]);
    all.extend([1e-4, 6e-5, 3e-8, 6e-8]);
    all.extend(all.clone().into_iter().map(|x| -x));
    all
}

fn array(numbers: &[f64], dtype: DType) -> Array {
    match dtype {
        C64 | C128 => {
            let n = numbers.len();
            let other = |k: usize| numbers[(k * 7 + 3) % n];
            let all = (0..n).map(|k| Complex::new(numbers[k], other(k))).collect::<Vec<_>>();
            Array::from(all).astype(dtype)
        }
        _ => Array::from(numbers.to_vec()).astype(dtype),
    }
}

/// Returns all pairs of numbers of a type.
fn pairs(dtype: DType) -> [Array; 2] {
    let all = numbers(dtype);
    let pairs = || all.iter().flat_map(|a| all.iter().map(move |b| (*a, *b)));
    let (a, b): (Vec<f64>, Vec<f64>) = pairs().unzip();
    [array(&a, dtype), array(&b, dtype)]
}

/// Functions whose results are rounded once, so that all engines have the same bits.
fn is_exact(op: ScalarOp, from: DType) -> bool {
    let parts = matches!(op, ScalarOp::Mul | ScalarOp::Div | ScalarOp::Sqrt | ScalarOp::Abs | ScalarOp::Sign);
    op.info().max_ulps == [0.5; 2] && !(from.is_complex() && parts)
}

/// Returns true if part `k` of a result has the same bits as the oracle's, or is near if it is not
/// `exact`: relative to the modulus of a complex number, of which each step may flush.
fn agree(got: &[u64], want: &[u64], k: usize, exact: bool, dtype: DType) -> bool {
    let (a, b) = (f64::from_bits(got[k]), f64::from_bits(want[k]));
    let other =
        if dtype.is_complex() { f64::from_bits(want[(k + want.len() / 2) % want.len()]) } else { 0.0 };
    let size = b.abs().max(other.abs());
    // (the last bits of float16 and bfloat16)
    let (near, least) = match dtype.real() {
        F64 => (1e-13, f64::MIN_POSITIVE),
        F32 => (2e-5, f32::MIN_POSITIVE.into()),
        _ => (2e-2, f32::MIN_POSITIVE.into()),
    };
    got[k] == want[k] || !exact && ((a - b).abs() <= near * size + 4.0 * least || a == b)
}

/// Returns the results of an instruction on every engine, or `None` if the types have none.
fn on_each_engine(one: &OneInstruction, operands: &[Array], flush: bool) -> Option<Vec<Array>> {
    let run = |operands: &Vec<Array>| {
        let terms: Vec<Term> = operands.iter().map(Term::from).collect();
        Array::apply(Arc::new(one.clone()), &terms).swap_remove(0)
    };
    let operands = operands.to_vec();
    let mut all = Vec::new();
    for engine in ENGINES {
        match jit(run).engine(engine).flush_subnormals(flush).call(&operands) {
            Ok(y) => all.push(y),
            Err(e) if e.unquoted().contains("there is no") => return None,
            Err(e) => panic!("{one:?} on {engine}: {e}"),
        }
    }
    Some(all)
}

fn check_instruction(one: &OneInstruction, operands: &[Array], wrong: &mut Vec<String>) -> bool {
    let from = operands[0].dtype().expect("it has a type");
    let exact = is_exact(one.op, from);
    // the reference engine has no more bits of complex128, and few of the inverse error function
    let has_oracle = exact || from != C128 && one.op != ScalarOp::ErfInv;
    for flush in [false, true] {
        let Some(made) = on_each_engine(one, operands, flush) else { return false };
        let read = |x: &Array| bits(x).expect("it is read");
        let [lockstep, threads, reference] = [read(&made[0]), read(&made[1]), read(&made[2])];
        let say = |what: &str, k: usize| {
            let at: Vec<_> = operands.iter().map(|x| f64::from_bits(read(x)[k % read(x).len()])).collect();
            let [a, b, c] = [&lockstep, &threads, &reference].map(|x| f64::from_bits(x[k]));
            format!("{what}, flushed: {flush}: {one:?} of {from} {at:?} is {a:e}, {b:e}, {c:e}")
        };
        for k in 0..lockstep.len() {
            if lockstep[k] != threads[k] {
                wrong.push(say("lockstep and threads", k));
            } else if has_oracle && !agree(&lockstep, &reference, k, exact, one.to) {
                wrong.push(say("lockstep and reference", k));
            } else if flush && is_subnormal(f64::from_bits(lockstep[k]), one.to) {
                wrong.push(say("a subnormal result", k));
            }
        }
    }
    true
}

/// Each instruction, on pairs of normal, subnormal and special numbers of each type.
#[test]
fn every_instruction_agrees() {
    let mut wrong = Vec::new();
    let mut count = 0;
    let types = [F32, F64, BF16, F16, C64, C128];
    for from in types {
        let one = [array(&numbers(from), from)];
        let two = pairs(from);
        let mut check = |op, to, operands: &[Array]| {
            let one = OneInstruction { op, to, reducer: None };
            count += usize::from(check_instruction(&one, operands, &mut wrong));
        };
        for op in ScalarOp::ALL {
            let arity = op.info().arity;
            let operands = if arity == 1 { &one[..] } else { &two[..] };
            if let (1 | 2, Some(to)) = (arity, op.info().result.for_operand(from)) {
                check(*op, to, operands);
            }
        }
        for to in types.into_iter().chain([I32, Bool]) {
            check(ScalarOp::Convert, to, &one);
        }
        let [a, b] = &two;
        check(ScalarOp::Select, from, &[a.ne(a.zeros_like()), a.clone(), b.clone()]);
    }
    let bits = Array::from((0..=u32::MAX).step_by(1 << 21).collect::<Vec<_>>());
    for (from, to) in [(U32, F32), (U64, F64), (U16, BF16), (U16, F16), (U64, C64), (F32, U32)] {
        let x = match from {
            U64 => bits.astype(U64) * (1u64 << 32) + bits.astype(U64),
            U16 => Array::arange(0..65535).astype(U16),
            F32 => array(&numbers(F32), F32),
            _ => bits.clone(),
        };
        let one = OneInstruction { op: ScalarOp::Bitcast, to, reducer: None };
        assert!(check_instruction(&one, &[x], &mut wrong), "{from} to {to}");
        count += 1;
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong[..wrong.len().min(30)].join("\n"));
    assert!(count > 200, "{count}");
}

/// Each reducer, of one and of many elements.
#[test]
fn every_reducer_agrees() {
    let mut wrong = Vec::new();
    for dtype in [F32, F64, BF16, F16, C64, C128] {
        let small: Vec<f64> = numbers(dtype).into_iter().filter(|x| x.abs() < 1e-30).collect();
        let least = if dtype.real() == F64 { 1e-310 } else { 1e-40 };
        for reducer in [Reducer::Add, Reducer::Mul, Reducer::Max, Reducer::Min] {
            if !reducer.supports(dtype) {
                continue;
            }
            let one = OneInstruction { op: ScalarOp::Copy, to: dtype, reducer: Some(reducer) };
            for n in [1, 2, 7, 300, 5000] {
                let all: Vec<f64> = (0..n).map(|k| small[k * 5 % small.len()]).collect();
                let mut many = vec![all, vec![least; n], vec![-least; n]];
                if n == 1 {
                    many.extend(small.iter().map(|x| vec![*x]));
                }
                for x in many {
                    check_reduction(&one, &array(&x, dtype), &mut wrong);
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong[..wrong.len().min(30)].join("\n"));
}

fn check_reduction(one: &OneInstruction, x: &Array, wrong: &mut Vec<String>) {
    let dtype = one.to;
    let made = on_each_engine(one, std::slice::from_ref(x), true).expect("reducers are defined");
    let read = |x: &Array| bits(x).expect("it is read");
    let [lockstep, threads, reference] = [read(&made[0]), read(&made[1]), read(&made[2])];
    let few = x.shape().is_ok_and(|s| s[0] == 1) || matches!(one.reducer, Some(Reducer::Max | Reducer::Min));
    for k in 0..lockstep.len() {
        let [a, b, c] = [lockstep[k], threads[k], reference[k]].map(f64::from_bits);
        // each of the elements adds up to the smallest normal number to the difference
        let least = if dtype.real() == F64 { f64::MIN_POSITIVE } else { f32::MIN_POSITIVE.into() };
        let near = (a - c).abs() <= 5000.0 * least + 1e-2 * c.abs();
        let agrees = lockstep[k] == threads[k] && if few { lockstep[k] == reference[k] } else { near };
        if !agrees || is_subnormal(a, dtype) {
            wrong.push(format!("{one:?} of {:?}: {a:e}, {b:e}, {c:e}", x.shape()));
        }
    }
}

// ---- programs ------------------------------------------------------------------------------------

/// Runs a function of two arrays on all engines and without and with a mesh; returns its result.
fn flushed(x: &[Array; 2], f: impl Fn(&Array, &Array) -> Array) -> Result<Vec<u64>> {
    let mesh = Mesh::auto([("x", 2)])?;
    let on_mesh = x.clone().map(|x| x.put(&mesh, p!["x"]));
    let run = |x: &[Array; 2], engine| {
        let f = jit(|a: &Array, b: &Array| f(a, b)).engine(engine).flush_subnormals(true);
        f.call((&x[0], &x[1]))
    };
    let want = run(x, Lockstep)?;
    assert!(!has_subnormals(&want)?);
    let want = bits(&want)?;
    for engine in ENGINES {
        for (what, x) in [("", x), (" on a mesh", &on_mesh)] {
            let got = bits(&run(x, engine)?)?;
            let k = got.iter().zip(&want).position(|(a, b)| a != b);
            assert!(
                k.is_none(),
                "{engine}{what}: {k:?} is {:x}, not {:x}",
                got[k.unwrap()],
                want[k.unwrap()]
            );
        }
    }
    Ok(want)
}

/// Operations that move or compare elements, identities that compilers simplify, constants, and
/// kernels of whole rows.
#[test]
fn no_operation_keeps_subnormal_numbers() -> Result<()> {
    let values: Vec<f32> = (0..64).map(|k| f32::from_bits(k as u32 * 419_430) * [1.0, -1.0][k % 2]).collect();
    let x = [Array::from(values.clone()), Array::from(values.iter().rev().copied().collect::<Vec<_>>())];
    let id = Array::from((0..64).map(|k| k * 7 % 64).collect::<Vec<_>>());
    flushed(&x, |a, _| a.clone())?;
    flushed(&x, |a, _| a * 1.0)?;
    flushed(&x, |a, _| a * a.ones_like())?;
    flushed(&x, |a, _| a / 1.0 - 0.0)?;
    flushed(&x, |a, _| a + -0.0)?;
    flushed(&x, |a, _| -a)?;
    flushed(&x, |a, b| a.abs().maximum(b).minimum(1.0))?;
    flushed(&x, |a, b| concat([a, b], 0).roll(3, 0).flip(0).reshape([2, 64]).t())?;
    flushed(&x, |a, b| a.take(&id, 0) + b.take(&id, 0) * 1e-30)?;
    flushed(&x, |a, b| a.at(ix![&id]).max(b))?;
    flushed(&x, |a, b| a.at(ix![&id]).set(b))?;
    flushed(&x, |a, b| a.gt(0.0).select(a, b))?;
    flushed(&x, |a, _| a.sort(0))?;
    flushed(&x, |a, _| a.cummax(0))?;
    flushed(&x, |a, _| a.zeros_like() + 1e-40)?;
    flushed(&x, |a, _| (a.zeros_like() + 1e-20) * 1e-20)?;
    flushed(&x, |a, _| Array::full([64], 1e-40f32) + a.zeros_like())?;
    flushed(&x, |a, b| a.astype(F64).astype(F32) + b.astype(BF16).astype(F32))?;
    flushed(&x, |a, b| cond(a.sum(..).gt(0.0), || a * 0.5, || b * 0.25))?;
    flushed(&x, |a, b| while_loop(a, |a| a.max(..).gt(1e-30), |a| a * b))?;
    // (whether the sum of one product that underflows is 0 or -0 depends on the processor)
    flushed(&x, |a, b| a.reshape([64, 1]).dot(b.reshape([1, 64])).abs())?;
    let zeros = flushed(&x, |a, _| a.ne(0.0).astype(F32) * a.abs().lt(1e-38).astype(F32))?;
    assert!(zeros.iter().all(|x| *x == 0), "a subnormal number differs from 0");
    Ok(())
}

/// The captured arrays and the donated arguments of a function are arguments of its program.
#[test]
fn captures_and_donations_are_flushed() -> Result<()> {
    let small = Array::from(vec![1e-40f32; 8]);
    let f = jit(|x: &Array| x + &small).flush_subnormals(true).donate(0);
    let x = Array::from(vec![1e-39f32; 8]);
    assert_eq!(f.call(&x)?.to_vec::<f32>()?, [0.0; 8]);
    assert_eq!(small.to_vec::<f32>()?, [1e-40; 8]);
    // the setting of the outer function applies to the inner one
    let inner = jit(|x: &Array| x * 1e-20).flush_subnormals(false);
    let outer = jit(|x: &Array| inner.call(x)).flush_subnormals(true);
    assert_eq!(outer.call(Array::from(vec![1e-20f32; 2]))?.to_vec::<f32>()?, [0.0; 2]);
    Ok(())
}

/// A kernel of the user computes with subnormal numbers; the program flushes its results.
#[test]
fn custom_operations_compute_with_subnormal_numbers() -> Result<()> {
    let is_kept = custom_op("is_kept", "i->i", |ins, outs| {
        let (x, mut y) = (ins[0].view::<f32>(), outs[0].view::<f32>());
        y.zip_mut_with(&x, |y, x| *y = if *x * 0.5 > 0.0 { 1.0 } else { 0.0 });
    });
    let x = Array::from(vec![f32::MIN_POSITIVE; 100_000]);
    for engine in ENGINES {
        let f = jit(|x: &Array| is_kept.call(&(x * 1.0)) + x * 0.5).engine(engine).flush_subnormals(true);
        let x = if engine == EngineKind::Reference { x.slice(ix![..100]) } else { x.clone() };
        assert!(f.call(&x)?.to_vec::<f32>()?.iter().all(|y| *y == 1.0), "{engine}");
        // and so does this thread
        assert!(std::hint::black_box(f32::MIN_POSITIVE) * std::hint::black_box(0.5) > 0.0);
    }
    Ok(())
}

/// After an error in a kernel, the thread computes with subnormal numbers, and the next call works.
#[test]
fn errors_restore_the_mode() -> Result<()> {
    let fails = custom_op("fails", "i->i", |ins, _| assert!(ins.is_empty(), "on purpose"));
    for n in [4, 300_000] {
        let x = Array::from(vec![f32::MIN_POSITIVE; n]);
        let f = jit(|x: &Array| fails.call(x) + x).flush_subnormals(true);
        assert!(f.call(&x).is_err());
        let half = |flush| jit(|x: &Array| x * 0.5).flush_subnormals(flush).call(&x);
        assert!(half(false)?.to_vec::<f32>()?.iter().all(|y| *y > 0.0));
        assert!(half(true)?.to_vec::<f32>()?.iter().all(|y| *y == 0.0));
        assert!(half(false)?.to_vec::<f32>()?.iter().all(|y| *y > 0.0));
    }
    Ok(())
}

/// The process-wide default, in a process of its own.
#[test]
fn the_default_applies_to_operations_and_functions() -> Result<()> {
    if std::env::var_os("ATMESH_SUBNORMALS_CHILD").is_none() {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["the_default_applies_to_operations_and_functions", "--exact"]);
        let out = child.env("ATMESH_SUBNORMALS_CHILD", "1").output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
        return Ok(());
    }
    let x = Array::from([f32::MIN_POSITIVE, 1.0]);
    let half = |f: &Array| (f * 0.5).to_vec::<f32>().map(|y| y[0] == 0.0);
    let before = jit(|x: &Array| x * 0.5);
    let is_zero =
        |f: &atmesh::Jit<'_, Array, Array>| f.call(&x).and_then(|y| y.to_vec::<f32>()).map(|y| y[0] == 0.0);
    assert!(!default_flush_subnormals() && !half(&x)? && !is_zero(&before)?);
    set_default_flush_subnormals(true);
    assert!(default_flush_subnormals() && half(&x)?);
    // a function that was called before keeps its setting
    assert!(!is_zero(&before)?);
    assert!(is_zero(&jit(|x: &Array| x * 0.5))?);
    assert!(!is_zero(&jit(|x: &Array| x * 0.5).flush_subnormals(false))?);
    assert!(!half(&x.slice(ix![1..]))?);
    set_default_flush_subnormals(false);
    assert!(!half(&x)? && !is_zero(&jit(|x: &Array| x * 0.5))?);
    assert!(is_zero(&jit(|x: &Array| x * 0.5).flush_subnormals(true))?);
    Ok(())
}

#[test]
fn xla_has_no_switch() {
    let f = jit(|x: &Array| x * 0.5).engine(EngineKind::Xla).flush_subnormals(true);
    let error = f.call(Array::from([1.0f32])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.unquoted().contains("flush_subnormals(false)"), "{error}");
}

/// The same on processors with fewer vector instructions.
#[test]
fn every_level_agrees() {
    if std::env::var_os("ATMESH_CPU").is_some() {
        return;
    }
    for level in ["base", "avx2", "avx512"] {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["agrees", "maxwell", "no_operation", "--skip", "every_level"]);
        let out = child.env("ATMESH_CPU", level).output().unwrap();
        let text = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
        let is_missing = text.contains("this processor has no instruction set");
        assert!(out.status.success() || is_missing, "{level}: {text}");
    }
}
