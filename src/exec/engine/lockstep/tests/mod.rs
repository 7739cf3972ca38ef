//! Tests of the lock-step engine: all kinds of programs are compared with the reference engine.
//!
//! Running inline, on the worker pool, and with one thread per device must give the same bits.

#[cfg(test)]
pub(crate) mod programs;

mod control;
mod gather_scatter;
mod rows;
mod scores;

use super::super::reference;
use super::*;
use crate::core::{Precision, Scalar};
use crate::exec::engine::lockstep::tests::programs::*;
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, Reducer, ScalarArg, ScalarCode, ScalarOp, Source, StridedRange,
};
use crate::partition::{Step, StoredValue};

fn inputs(p: &SpmdProgram) -> Vec<ArrayData> {
    let kind =
        |s: &StoredValue| s.layout.partial.as_ref().map_or(1, |p| p.1.iter().map(|a| a.size).product());
    p.ins
        .iter()
        .enumerate()
        .map(|(k, s)| sample_data(p.slots[*s].dtype, &p.slots[*s].shape, kind(&p.slots[*s]), k))
        .collect()
}
fn bytes(s: &ArrayData) -> &[u8] {
    // SAFETY: the buffer has `s.nbytes()` bytes
    unsafe { std::slice::from_raw_parts(s.contiguous().unwrap().as_ptr(), s.nbytes()) }
}
/// Runs a program inline, on workers, on device threads and with the reference engine.
#[track_caller]
fn check(name: &str, p: &SpmdProgram, tolerance: f64) {
    let mut args = inputs(p);
    let expected = reference::executable(p).call(&mut args).unwrap();
    let inline = LockstepExecutable::new(p, &[], Some(true)).unwrap();
    let workers = LockstepExecutable::new(p, &[], Some(false)).unwrap();
    let devices = LockstepExecutable::new(p, &[], Some(false)).unwrap().on_device_threads(p);
    for _ in 0..2 {
        let (a, b) = (inline.call(&mut args).unwrap(), workers.call(&mut args).unwrap());
        for (k, (a, c)) in a.iter().zip(devices.call(&mut args).unwrap()).enumerate() {
            assert!(bytes(a) == bytes(&c), "{name}: inline and a thread per device differ in result {k}");
        }
        assert_eq!(a.len(), expected.len());
        for (k, ((a, b), w)) in a.iter().zip(&b).zip(&expected).enumerate() {
            assert_eq!(
                (a.dtype(), a.shape(), a.num_partials()),
                (w.dtype(), w.shape(), w.num_partials()),
                "{name}"
            );
            assert!(
                bytes(a) == bytes(b),
                "{name}: inline and workers differ in result {k}\n{}",
                inline.report().listing
            );
            let (x, y) = (to_f64s(a), to_f64s(w));
            let top = y.iter().fold(0.0f64, |m, y| m.max(y.abs())).max(1e-30);
            for (i, (x, y)) in x.iter().zip(&y).enumerate() {
                let same = x == y || (x - y).abs() / top <= tolerance || x.is_nan() && y.is_nan();
                assert!(same, "{name}: result {k} element {i} is {x}, not {y}\n{}", inline.report().listing);
            }
        }
    }
}

#[test]
fn collectives() {
    for &n in if cfg!(miri) { &[64][..] } else { &[1024, 1240, 64 * 64, 8192] } {
        for kind in ["psum", "psum_scatter", "all_gather", "all_to_all", "ppermute"] {
            check(kind, &collective(kind, n), 1e-6);
        }
    }
}
/// Checks that a program that only moves blocks returns a view of its argument, not a copy.
/// This includes blocks that consist of several pieces, unless the pieces are small: then they are
/// copied.
#[test]
fn moved_blocks_are_not_copied() {
    for (kind, n, blocks) in [("ppermute", 256, 8), ("all_to_all", 8192, 64), ("all_to_all", 4096, 0)] {
        let text = LockstepExecutable::new(&collective(kind, n), &[], None).unwrap().report().listing;
        let expected = format!("{blocks} blocks of");
        assert_eq!(text.contains("not copied") && text.contains(&expected), blocks > 0, "{kind} {n}: {text}");
    }
}

/// Checks that a product whose result is read transposed is computed in that order, without a copy.
/// Gradients of products contain such transposes. Elementwise operations on the result run on the
/// tiles of the product.
#[test]
fn products_that_are_read_transposed_are_made_so() {
    let (n, rows, columns) = if cfg!(miri) { (8, 4, 8) } else { (40, 16, 24) };
    for (fun, text) in [(ScalarOp::Add, " with 1 map"), (ScalarOp::Copy, "; ")] {
        let text = format!("f32[{rows},{columns}]{text}");
        let mut m = SampleBuilder::new(F32_DTYPE);
        let (x, y) = (m.input(&[n, columns], &[8, 1]), m.input(&[n, rows], &[8, 1]));
        let w = m.input(&[rows, columns], &[1, 8]);
        let product = m.dot(x, true, y, false, [1, 1, 8]);
        let turned = m.read(product, &[rows, columns], &[(Some(1), 0), (Some(0), 0)]);
        let reads = if fun == ScalarOp::Add { vec![turned, m.read_all(w)] } else { vec![turned] };
        let out = m.map(fun, &[rows, columns], &[1, 8], reads);
        let p = m.finish(&[out]);
        check("turned", &p, 1e-5);
        let report = LockstepExecutable::new(&p, &[], None).unwrap().report().listing;
        assert!(report.contains(&text) && !report.contains("tiles"), "{report}");
    }
}

#[test]
fn elementwise_and_reductions() {
    for &n in if cfg!(miri) { &[9][..] } else { &[1, 7, 64, 100, 129] } {
        check("elementwise", &elementwise(n), 1e-6);
        for dims in [&[0][..], &[1], &[0, 1]] {
            check("reduce", &reduce(n, dims), 1e-5);
        }
    }
}
/// Checks that each step of a weighted sum of neighbours is rounded.
/// The sum has many terms, each with its factor, and some of them are scaled; a kernel may compute
/// several terms with one instruction.
#[test]
fn sums_of_many_terms() {
    let (n, most) = if cfg!(miri) { (9, 6) } else { (700, 12) };
    for (dtype, terms) in [DType::F32, DType::F64]
        .into_iter()
        .flat_map(|d| (3..most).step_by(if cfg!(miri) { 2 } else { 1 }).map(move |t| (d, t)))
    {
        for scaled in if cfg!(miri) { terms - 2..terms - 1 } else { 0..terms } {
            let mut m = SampleBuilder::new(dtype);
            let x = m.input(&[n + terms], &[1]);
            let mut code = ScalarCode { insts: Vec::new() };
            let mut one = |f: ScalarOp, a: ScalarArg, b: ScalarArg| code.push(f, dtype, dtype, &[a, b]);
            let factor = |t: usize| ScalarArg::Const(Scalar::Float([1.0, -4.0, 0.3, 1.0, 1.7][t % 5]));
            let mut sum = one(ScalarOp::Mul, ScalarArg::Access(0), factor(0));
            for t in 1..terms {
                let term = one(ScalarOp::Mul, ScalarArg::Access(t), factor(t));
                sum = match (t + scaled) % 3 {
                    0 => one(ScalarOp::Sub, sum, term),
                    1 => one(ScalarOp::Add, sum, term),
                    _ => one(ScalarOp::Add, term, sum),
                };
                if t == scaled {
                    sum = one(ScalarOp::Mul, sum, ScalarArg::Const(Scalar::Float(0.1)));
                }
            }
            let reads: Vec<Access> = (0..terms).map(|t| m.slice(x, &[t as i64], &[n])).collect();
            let y = m.local(&[n], &[1], reads, dtype, code);
            check(&format!("{terms} terms"), &m.finish(&[y]), 0.0);
        }
    }
}

#[test]
fn products() {
    for kind in ["none_contracted", "both_contracted", "same_axis", "replicated"] {
        for &n in if cfg!(miri) { &[9][..] } else { &[96, 33] } {
            check(kind, &matmul(n, kind), 1e-5);
        }
    }
}
#[test]
#[cfg_attr(miri, ignore = "too large for Miri; the small ones run the same code")]
fn models() {
    check("seed layer", &seed_layer(), 1e-6);
    check("logistic step", &logistic_step(100.0), 1e-5);
    for kind in ["dp", "tp", "dp_tp"] {
        check(kind, &mlp(kind, 32, 24, 40, 1e3), 1e-5);
    }
    check("long", &long_chain(60), 1e-4);
}
/// Returns the element types that kernels compute with; PRNG keys are stored as 64-bit integers.
fn storage_dtypes() -> impl Iterator<Item = DType> {
    DType::all().filter(|d| *d != DType::Key)
}
fn tolerance(d: DType) -> f64 {
    match d {
        DType::F16 => 2e-3,
        DType::BF16 => 1.6e-2,
        DType::F32 => 1e-5,
        DType::F64 => 1e-13,
        _ => 0.0,
    }
}
#[test]
#[cfg_attr(miri, ignore = "too large for Miri; the small ones run the same code")]
fn element_types() {
    // complex numbers have no order (see tests/operations/complex.rs)
    for d in storage_dtypes().filter(|d| !d.is_complex()) {
        let name = d.name();
        let mut m = SampleBuilder::new(d);
        let (x, y) = (m.input(&[13, 37], &[8, 1]), m.input(&[13, 37], &[8, 1]));
        let mut outs = Vec::new();
        if d != DType::Bool {
            let s = m.binary(ScalarOp::Sub, x, y);
            let p = m.binary(ScalarOp::Mul, s, x);
            outs.push(m.scale(p, 3.0, 2.0));
            for dims in [&[0][..], &[1], &[0, 1]] {
                for c in [Reducer::Add, Reducer::Max, Reducer::Min] {
                    outs.push(m.fold_over(x, dims, if dims[0] == 0 { 8 } else { 1 }, c));
                }
            }
        }
        outs.push(m.binary(ScalarOp::Max, x, y));
        let shape = [13, 37];
        let reads = vec![m.read_all(x), m.read_all(y)];
        let code =
            ScalarCode::single(ScalarOp::Lt, d, DType::Bool, &[ScalarArg::Access(0), ScalarArg::Access(1)]);
        let less = m.local(&shape, &[8, 1], reads, DType::Bool, code);
        outs.push(less);
        let reads = vec![m.read_all(less), m.read_all(x), m.read_all(y)];
        let code = ScalarCode::single(
            ScalarOp::Select,
            d,
            d,
            &[ScalarArg::Access(0), ScalarArg::Access(1), ScalarArg::Access(2)],
        );
        outs.push(m.local(&shape, &[8, 1], reads, d, code));
        for to in storage_dtypes().filter(|d| !d.is_complex()) {
            let r = m.read_all(y);
            outs.push(m.local(
                &shape,
                &[8, 1],
                vec![r],
                to,
                ScalarCode::single(ScalarOp::Convert, d, to, &[ScalarArg::Access(0)]),
            ));
        }
        check(name, &m.finish(&outs), tolerance(d));
    }
    for c in [Reducer::And, Reducer::Or] {
        let mut m = SampleBuilder::new(DType::Bool);
        let x = m.input(&[24, 6], &[8, 1]);
        let outs = [m.fold_over(x, &[0], 8, c), m.fold_over(x, &[1], 1, c), m.fold_over(x, &[0, 1], 8, c)];
        check("bools", &m.finish(&outs), 0.0);
    }
}
#[test]
#[cfg_attr(miri, ignore = "too large for Miri; the small ones run the same code")]
fn products_of_all_types() {
    for d in storage_dtypes().filter(|d| *d != DType::Bool) {
        let mut m = SampleBuilder::new(d);
        let (a, b) = (m.input(&[10, 24], &[1, 8]), m.input(&[24, 7], &[8, 1]));
        let o = m.dot(a, false, b, false, [1, 1, 8]);
        // a batch of products whose rows have two loops, with a bias added to each
        let (x, y) = (m.input(&[3, 4, 5, 6], &[1; 4]), m.input(&[6, 3, 7], &[1; 3]));
        let ext = [3, 4, 5, 7, 6];
        let some = |l: &[usize]| l.iter().map(|l| (Some(*l), 0)).collect::<Vec<_>>();
        let reads = vec![m.read(x, &ext, &some(&[0, 1, 2, 4])), m.read(y, &ext, &some(&[4, 0, 3]))];
        let p = m.fold(
            &ext,
            4,
            &[1, 1, 1, 1, 2],
            reads,
            Compute::Contract { accum_dtype: d, precision: Precision::Highest },
        );
        let bias = m.input(&[5, 7], &[1, 1]);
        let q = m.binary(ScalarOp::Add, p, bias);
        check(d.name(), &m.finish(&[o, q, p]), tolerance(d) * 8.0);
    }
    // the accumulator is wider than the operands
    let mut m = SampleBuilder::new(DType::I8);
    let (a, b) = (m.input(&[10, 24], &[1, 8]), m.input(&[24, 7], &[8, 1]));
    let ext = [10, 7, 24];
    let reads =
        vec![m.read(a, &ext, &[(Some(0), 0), (Some(2), 0)]), m.read(b, &ext, &[(Some(2), 0), (Some(1), 0)])];
    m.dtype = DType::I32;
    let o = m.fold(
        &ext,
        2,
        &[1, 1, 8],
        reads,
        Compute::Contract { accum_dtype: DType::I32, precision: Precision::Highest },
    );
    check("wider", &m.finish(&[o]), 0.0);
}
#[test]
fn views_of_all_kinds() {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let (x, y) = (m.input(&[12, 9], &[4, 1]), m.input(&[5, 4], &[1, 1]));
    let at = |lo: i64, hi: i64, step: i64| StridedRange { lo, hi, step };
    let part = |from, span: Vec<StridedRange>, map: Vec<AffineExpr>| AccessPiece {
        source: Source::Value(from),
        ranges: span,
        map,
    };
    // an array with interior padding, next to a slice of another value; the rest is filled
    let parts = vec![
        part(
            y,
            vec![at(1, 14, 3), at(0, 7, 2)],
            vec![AffineExpr::linear(0, 0, 1), AffineExpr::linear(0, 1, 1)],
        ),
        part(
            x,
            vec![at(0, 24, 2), at(10, 12, 1)],
            vec![AffineExpr::linear(0, 0, 1), AffineExpr::linear(8, 1, -1)],
        ),
    ];
    let pad = Access { dtype: F32_DTYPE, pieces: parts, fill: Scalar::Float(7.0) };
    let a = m.affine(pad.clone(), &[24, 12], &[8, 1], 2.0, 1.0);
    // the access is summed directly, and through windows with two terms
    let code = ScalarCode::single(ScalarOp::Copy, F32_DTYPE, F32_DTYPE, &[ScalarArg::Access(0)]);
    let add = Compute::Reduce { reducer: Reducer::Add, code: code.clone() };
    let s = m.fold(&[24, 12], 1, &[1, 1], vec![pad], add.clone());
    let ext = [5, 9, 3];
    let two = AffineExpr { constant: 1, terms: [(0, 2), (2, 1)].into_iter().collect() };
    let window = Access {
        dtype: F32_DTYPE,
        pieces: vec![part(x, StridedRange::full_box(&ext), vec![two, AffineExpr::linear(8, 1, -1)])],
        fill: Scalar::Float(0.0),
    };
    let ext2 = [4, 9, 3];
    let mut small = window.clone();
    small.pieces[0].ranges[0].hi = 4;
    let w = m.fold(&ext2, 2, &[1, 1, 1], vec![small], add);
    // every second row in reverse order, the diagonal, and a transpose
    let back = Access {
        dtype: F32_DTYPE,
        pieces: vec![part(
            x,
            vec![StridedRange::full(6), StridedRange::full(9)],
            vec![AffineExpr::linear(11, 0, -2), AffineExpr::linear(0, 1, 1)],
        )],
        fill: Scalar::Float(0.0),
    };
    let b = m.map(ScalarOp::Exp, &[6, 9], &[1, 1], vec![back]);
    let diagonal = m.read(x, &[9], &[(Some(0), 0), (Some(0), 0)]);
    let c = m.map(ScalarOp::Neg, &[9], &[1], vec![diagonal]);
    let t = m.read(b, &[9, 6], &[(Some(1), 0), (Some(0), 0)]);
    let t = m.map(ScalarOp::Sin, &[9, 6], &[1, 1], vec![t]);
    // a reshape in the middle of a program, whose result is both read and returned
    let r = m.slot(&[54], &[1]);
    let id = m.read(t, &[54], &[(Some(0), 0), (None, 0)]);
    let sentence = crate::ir::program::loop_nest::LoopNest {
        extents: vec![54],
        rank: 1,
        dtype: F32_DTYPE,
        accesses: vec![Access {
            pieces: vec![part(
                t,
                vec![StridedRange::full(54)],
                vec![AffineExpr::default(), AffineExpr::default()],
            )],
            ..id
        }],
        compute: Compute::Reshape,
    };
    m.p.steps.push(Step::Local { out: r, nest: sentence, layout: layouts(&[54], &[1]) });
    let u = m.scale(r, 0.5, 0.0);
    check("views", &m.finish(&[a, s, w, b, c, t, r, u, x, a]), 1e-5);
}
/// Checks a result that could be a view of an argument, but that a thousand or more steps read too.
#[test]
#[cfg_attr(miri, ignore = "too large for Miri; the small ones run the same code")]
fn results_that_many_steps_read() {
    for readers in [0, 1, 999, 1000, 1001, 2000] {
        let mut m = SampleBuilder::new(F32_DTYPE);
        m.p = collective("ppermute", 256);
        let o = m.p.outs[0];
        let read = |m: &mut SampleBuilder, k: i64| {
            let r = m.read(o, &[1], &[(None, k % 8), (None, k % 256)]);
            m.map(ScalarOp::Neg, &[1], &[1], vec![r])
        };
        let mut outs: Vec<Slot> = (0..readers).map(|k| read(&mut m, k)).collect();
        outs.push(o);
        let p = m.finish(&outs);
        check("read by many", &p, 0.0);
        let compiled = compile::compile(&p, &[]).unwrap();
        let view = matches!(compiled.results[outs.len() - 1], ResultPlan::View { .. });
        assert_eq!(view, readers == 0, "{readers} readers");
    }
}
#[test]
fn indices_and_constants() {
    let mut m = SampleBuilder::new(DType::I32);
    let mut code = ScalarCode::single(ScalarOp::Convert, DType::I64, DType::I32, &[ScalarArg::Index(0)]);
    let j = code.push(ScalarOp::Convert, DType::I64, DType::I32, &[ScalarArg::Index(1)]);
    let ten = code.push(
        ScalarOp::Mul,
        DType::I32,
        DType::I32,
        &[ScalarArg::Inst(0), ScalarArg::Const(Scalar::Int(1000))],
    );
    code.push(ScalarOp::Add, DType::I32, DType::I32, &[ten, j]);
    let a = m.local(&[5, if cfg!(miri) { 70 } else { 700 }], &[5, 1], vec![], DType::I32, code);
    let c = m.local(
        &[3],
        &[1],
        vec![],
        DType::I32,
        ScalarCode::single(ScalarOp::Copy, DType::I32, DType::I32, &[ScalarArg::Const(Scalar::Int(-9))]),
    );
    let s = m.fold_over(a, &[0], 1, Reducer::Max);
    check("indices", &m.finish(&[a, c, s]), 0.0);
    let mut m = SampleBuilder::new(DType::U64);
    let (k, n) = (m.input(&[4], &[1]), m.input(&[4, 50], &[1, 1]));
    let reads = vec![m.read(k, &[4, 50], &[(Some(0), 0)]), m.read_all(n)];
    let o = m.map(ScalarOp::Threefry, &[4, 50], &[1, 1], reads);
    check("threefry", &m.finish(&[o]), 0.0);
}
#[test]
fn nothing_and_scalars() {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let (x, z, s) = (m.input(&[3, 0], &[1, 1]), m.input(&[0, 4], &[1, 1]), m.input(&[], &[]));
    let mut outs = vec![m.unary(ScalarOp::Sin, x), m.unary(ScalarOp::Sin, s)];
    for c in [Reducer::Add, Reducer::Mul, Reducer::Max, Reducer::Min] {
        outs.extend([m.fold_over(x, &[1], 1, c), m.fold_over(z, &[0], 8, c), m.fold_over(x, &[0], 1, c)]);
    }
    outs.push(m.dot(x, false, z, false, [1, 1, 1]));
    let t = m.unary(ScalarOp::Neg, s);
    outs.push(m.binary(ScalarOp::Mul, t, s));
    check("nothing", &m.finish(&outs), 1e-6);
}
/// Checks a partial value that is scaled, returned unreduced, and reduced in two steps.
#[test]
fn parts() {
    use crate::core::sharding::SubAxis;
    for d in [F32_DTYPE, DType::BF16, DType::I32].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        let mut m = SampleBuilder::new(d);
        let (two, four) = (SubAxis { stride: 4, size: 2 }, SubAxis { stride: 1, size: 4 });
        let x = m.slot_of(d, &[6, 5], &[1, 1], &[two, four]);
        m.p.ins.push(x);
        let y = m.input(&[6, 5], &[1, 1]);
        let s = m.slot_of(d, &[6, 5], &[1, 1], &[two, four]);
        let code = ScalarCode::single(ScalarOp::Mul, d, d, &[ScalarArg::Access(0), ScalarArg::Access(1)]);
        let sentence = crate::ir::program::loop_nest::LoopNest {
            extents: vec![6, 5],
            rank: 2,
            dtype: d,
            accesses: vec![m.read_all(x), m.read_all(y)],
            compute: Compute::Map(code),
        };
        m.p.steps.push(Step::Local { out: s, nest: sentence, layout: layouts(&[6, 5], &[1, 1]) });
        let half = m.slot_of(d, &[6, 5], &[1, 1], &[two]);
        let full = m.slot_of(d, &[6, 5], &[1, 1], &[]);
        let other = m.slot_of(d, &[6, 5], &[1, 1], &[]);
        m.p.steps.push(Step::Reduce { src: s, out: half, combine: Reducer::Add });
        m.p.steps.push(Step::Reduce { src: half, out: full, combine: Reducer::Add });
        m.p.steps.push(Step::Reduce { src: x, out: other, combine: Reducer::Add });
        check("parts", &m.finish(&[s, full, other]), tolerance(d) * 4.0);
    }
}
/// Checks sums and maps of large values, to cover every way of dividing them into tasks.
#[test]
#[cfg_attr(miri, ignore = "too large for Miri; the small ones run the same code")]
fn large_values() {
    let mut m = SampleBuilder::new(F32_DTYPE);
    let x = m.input(&[200, 1400], &[8, 1]);
    let e = m.unary(ScalarOp::Exp, x);
    let s = m.fold_over(e, &[1], 1, Reducer::Add);
    let reads = vec![m.read_all(e), m.read(s, &[200, 1400], &[(Some(0), 0)])];
    let o = m.map(ScalarOp::Div, &[200, 1400], &[8, 1], reads);
    let q = m.unary(ScalarOp::Sin, x);
    let all = m.fold_over(q, &[0, 1], 8, Reducer::Add);
    let top = m.fold_over(x, &[0], 8, Reducer::Max);
    let y = m.input(&[24000, 12], &[8, 1]);
    let few = m.fold_over(y, &[1], 1, Reducer::Add);
    let columns = m.fold_over(y, &[0], 8, Reducer::Add);
    check("large", &m.finish(&[o, all, top, few, columns]), 1e-4);
}

/// Runs a float32 or int32 program of the partitioner's tests and compares all results bit by bit.
pub(crate) fn assert_results(p: &SpmdProgram, args: &[Vec<f64>], expected: &[Vec<f64>]) {
    let slab = |(s, x): (&Slot, &Vec<f64>)| {
        let shape = p.slots[*s].shape.clone();
        match p.slots[*s].dtype {
            DType::I32 => {
                ArrayData::from_elements(shape, &x.iter().map(|x| *x as i32).collect::<Vec<_>>()).unwrap()
            }
            _ => ArrayData::from_elements(shape, &x.iter().map(|x| *x as f32).collect::<Vec<_>>()).unwrap(),
        }
    };
    let mut args: Vec<ArrayData> = p.ins.iter().zip(args).map(slab).collect();
    let mut all = Vec::new();
    for inline in [true, false] {
        let ready = LockstepExecutable::new(p, &[], Some(inline)).unwrap();
        let made = ready.call(&mut args).unwrap();
        for (k, (m, w)) in made.iter().zip(expected).enumerate() {
            let mut x = vec![0.0; w.len()];
            for (i, part) in to_f64s(m).iter().enumerate() {
                x[i % w.len().max(1)] += part;
            }
            assert_eq!(&x, w, "result {k}\n{}\n{p:#?}", ready.report().listing);
        }
        all.push(made.iter().map(|m| bytes(m).to_vec()).collect::<Vec<_>>());
    }
    assert!(all[0] == all[1], "inline and workers differ");
}
