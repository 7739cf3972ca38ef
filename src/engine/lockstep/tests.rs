//! Every shape of program against the reference engine; inline, workers and a thread per device to the same bits.

mod control;
mod rows;
mod scores;
mod seek;

use super::super::reference;
use super::samples::*;
use super::*;
use crate::partition::{Step, Stored};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Part, Read, Source, Span};
use crate::types::Scalar;

fn inputs(p: &SpmdProgram) -> Vec<Slab> {
    let kind = |s: &Stored| s.layout.partial.as_ref().map_or(1, |p| p.1.iter().map(|a| a.size).product());
    p.ins
        .iter()
        .enumerate()
        .map(|(k, s)| noise(p.slots[*s].dtype, &p.slots[*s].shape, kind(&p.slots[*s]), k))
        .collect()
}
fn bytes(s: &Slab) -> &[u8] {
    // SAFETY: the buffer has these bytes
    unsafe { std::slice::from_raw_parts(s.dense().unwrap().as_ptr(), s.nbytes()) }
}
/// Runs a program inline, on workers and by the reference engine.
#[track_caller]
fn check(name: &str, p: &SpmdProgram, tolerance: f64) {
    let mut args = inputs(p);
    let want = reference::ready(p).call(&mut args).unwrap();
    let inline = Ready::new(p, &[], Some(true)).unwrap();
    let workers = Ready::new(p, &[], Some(false)).unwrap();
    let devices = Ready::on_devices(p, &[]).unwrap();
    for _ in 0..2 {
        let (a, b) = (inline.call(&mut args).unwrap(), workers.call(&mut args).unwrap());
        for (k, (a, c)) in a.iter().zip(devices.call(&mut args).unwrap()).enumerate() {
            assert!(bytes(a) == bytes(&c), "{name}: inline and a thread per device differ in result {k}");
        }
        assert_eq!(a.len(), want.len());
        for (k, ((a, b), w)) in a.iter().zip(&b).zip(&want).enumerate() {
            assert_eq!((a.dtype(), a.shape(), a.copies()), (w.dtype(), w.shape(), w.copies()), "{name}");
            assert!(
                bytes(a) == bytes(b),
                "{name}: inline and workers differ in result {k}\n{}",
                inline.report().text
            );
            let (x, y) = (numbers(a), numbers(w));
            let top = y.iter().fold(0.0f64, |m, y| m.max(y.abs())).max(1e-30);
            for (i, (x, y)) in x.iter().zip(&y).enumerate() {
                let same = x == y || (x - y).abs() / top <= tolerance || x.is_nan() && y.is_nan();
                assert!(same, "{name}: result {k} element {i} is {x}, not {y}\n{}", inline.report().text);
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
/// What only moves blocks is a view, also where a device's part is in pieces; of small pieces it is a copy.
#[test]
fn moved_blocks_are_not_copied() {
    for (kind, n, blocks) in [("ppermute", 256, 8), ("all_to_all", 8192, 64), ("all_to_all", 4096, 0)] {
        let text = Ready::new(&collective(kind, n), &[], None).unwrap().report().text;
        let want = format!("{blocks} blocks of");
        assert_eq!(text.contains("not copied") && text.contains(&want), blocks > 0, "{kind} {n}: {text}");
    }
}

/// The transposition in a product's gradient is part of the product, and what is computed from it runs on its tiles.
#[test]
fn products_that_are_read_transposed_are_made_so() {
    let (n, rows, columns) = if cfg!(miri) { (8, 4, 8) } else { (40, 16, 24) };
    for (fun, text) in [(Fun::Add, " with 1 map"), (Fun::Copy, "; ")] {
        let text = format!("f32[{rows},{columns}]{text}");
        let mut m = Make::new(F);
        let (x, y) = (m.input(&[n, columns], &[8, 1]), m.input(&[n, rows], &[8, 1]));
        let w = m.input(&[rows, columns], &[1, 8]);
        let product = m.dot(x, true, y, false, [1, 1, 8]);
        let turned = m.read(product, &[rows, columns], &[(Some(1), 0), (Some(0), 0)]);
        let reads = if fun == Fun::Add { vec![turned, m.id(w)] } else { vec![turned] };
        let out = m.map(fun, &[rows, columns], &[1, 8], reads);
        let p = m.done(&[out]);
        check("turned", &p, 1e-5);
        let report = Ready::new(&p, &[], None).unwrap().report().text;
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
/// Sums of neighbours, each with its factor, some of them scaled on the way: whatever is one instruction, each step is rounded.
#[test]
fn sums_of_many_terms() {
    let (n, most) = if cfg!(miri) { (9, 6) } else { (700, 12) };
    for (dtype, terms) in [DType::F32, DType::F64]
        .into_iter()
        .flat_map(|d| (3..most).step_by(if cfg!(miri) { 2 } else { 1 }).map(move |t| (d, t)))
    {
        for scaled in if cfg!(miri) { terms - 2..terms - 1 } else { 0..terms } {
            let mut m = Make::new(dtype);
            let x = m.input(&[n + terms], &[1]);
            let mut code = Code { insts: Vec::new() };
            let mut one = |f: Fun, a: Arg, b: Arg| code.push(f, dtype, dtype, &[a, b]);
            let factor = |t: usize| Arg::Const(Scalar::Float([1.0, -4.0, 0.3, 1.0, 1.7][t % 5]));
            let mut sum = one(Fun::Mul, Arg::Read(0), factor(0));
            for t in 1..terms {
                let term = one(Fun::Mul, Arg::Read(t), factor(t));
                sum = match (t + scaled) % 3 {
                    0 => one(Fun::Sub, sum, term),
                    1 => one(Fun::Add, sum, term),
                    _ => one(Fun::Add, term, sum),
                };
                if t == scaled {
                    sum = one(Fun::Mul, sum, Arg::Const(Scalar::Float(0.1)));
                }
            }
            let reads: Vec<Read> = (0..terms).map(|t| m.slice(x, &[t as i64], &[n])).collect();
            let y = m.local(&[n], &[1], reads, dtype, code);
            check(&format!("{terms} terms"), &m.done(&[y]), 0.0);
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
    check("long", &long(60), 1e-4);
}
/// What kernels compute with: keys are words.
fn all() -> impl Iterator<Item = DType> {
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
    // complex numbers have no order (tests/complex.rs)
    for d in all().filter(|d| !d.is_complex()) {
        let name = d.name();
        let mut m = Make::new(d);
        let (x, y) = (m.input(&[13, 37], &[8, 1]), m.input(&[13, 37], &[8, 1]));
        let mut outs = Vec::new();
        if d != DType::Bool {
            let s = m.bin(Fun::Sub, x, y);
            let p = m.bin(Fun::Mul, s, x);
            outs.push(m.scale(p, 3.0, 2.0));
            for dims in [&[0][..], &[1], &[0, 1]] {
                for c in [Combine::Add, Combine::Max, Combine::Min] {
                    outs.push(m.fold_over(x, dims, if dims[0] == 0 { 8 } else { 1 }, c));
                }
            }
        }
        outs.push(m.bin(Fun::Max, x, y));
        let shape = [13, 37];
        let reads = vec![m.id(x), m.id(y)];
        let code = Code::one(Fun::Lt, d, DType::Bool, &[Arg::Read(0), Arg::Read(1)]);
        let less = m.local(&shape, &[8, 1], reads, DType::Bool, code);
        outs.push(less);
        let reads = vec![m.id(less), m.id(x), m.id(y)];
        let code = Code::one(Fun::Select, d, d, &[Arg::Read(0), Arg::Read(1), Arg::Read(2)]);
        outs.push(m.local(&shape, &[8, 1], reads, d, code));
        for to in all().filter(|d| !d.is_complex()) {
            let r = m.id(y);
            outs.push(m.local(&shape, &[8, 1], vec![r], to, Code::one(Fun::Convert, d, to, &[Arg::Read(0)])));
        }
        check(name, &m.done(&outs), tolerance(d));
    }
    for c in [Combine::And, Combine::Or] {
        let mut m = Make::new(DType::Bool);
        let x = m.input(&[24, 6], &[8, 1]);
        let outs = [m.fold_over(x, &[0], 8, c), m.fold_over(x, &[1], 1, c), m.fold_over(x, &[0, 1], 8, c)];
        check("bools", &m.done(&outs), 0.0);
    }
}
#[test]
#[cfg_attr(miri, ignore = "too large for Miri; the small ones run the same code")]
fn products_of_all_types() {
    for d in all().filter(|d| *d != DType::Bool) {
        let mut m = Make::new(d);
        let (a, b) = (m.input(&[10, 24], &[1, 8]), m.input(&[24, 7], &[8, 1]));
        let o = m.dot(a, false, b, false, [1, 1, 8]);
        // a batch of products, rows of two loops, a bias on each
        let (x, y) = (m.input(&[3, 4, 5, 6], &[1; 4]), m.input(&[6, 3, 7], &[1; 3]));
        let ext = [3, 4, 5, 7, 6];
        let some = |l: &[usize]| l.iter().map(|l| (Some(*l), 0)).collect::<Vec<_>>();
        let reads = vec![m.read(x, &ext, &some(&[0, 1, 2, 4])), m.read(y, &ext, &some(&[4, 0, 3]))];
        let p = m.fold(&ext, 4, &[1, 1, 1, 1, 2], reads, Body::Product { accumulate: d });
        let bias = m.input(&[5, 7], &[1, 1]);
        let q = m.bin(Fun::Add, p, bias);
        check(d.name(), &m.done(&[o, q, p]), tolerance(d) * 8.0);
    }
    // summed wider than the operands
    let mut m = Make::new(DType::I8);
    let (a, b) = (m.input(&[10, 24], &[1, 8]), m.input(&[24, 7], &[8, 1]));
    let ext = [10, 7, 24];
    let reads =
        vec![m.read(a, &ext, &[(Some(0), 0), (Some(2), 0)]), m.read(b, &ext, &[(Some(2), 0), (Some(1), 0)])];
    m.dtype = DType::I32;
    let o = m.fold(&ext, 2, &[1, 1, 8], reads, Body::Product { accumulate: DType::I32 });
    check("wider", &m.done(&[o]), 0.0);
}
#[test]
fn views_of_all_kinds() {
    let mut m = Make::new(F);
    let (x, y) = (m.input(&[12, 9], &[4, 1]), m.input(&[5, 4], &[1, 1]));
    let at = |lo: i64, hi: i64, step: i64| Span { lo, hi, step };
    let part = |from, span: Vec<Span>, map: Vec<Affine>| Part { from: Source::Value(from), span, map };
    // an interior pad beside a slice of another value, the rest filled
    let parts = vec![
        part(y, vec![at(1, 14, 3), at(0, 7, 2)], vec![Affine::of(0, 0, 1), Affine::of(0, 1, 1)]),
        part(x, vec![at(0, 24, 2), at(10, 12, 1)], vec![Affine::of(0, 0, 1), Affine::of(8, 1, -1)]),
    ];
    let pad = Read { dtype: F, parts, fill: Scalar::Float(7.0) };
    let a = m.lin(pad.clone(), &[24, 12], &[8, 1], 2.0, 1.0);
    // summed as it is, and by windows of two terms
    let code = Code::one(Fun::Copy, F, F, &[Arg::Read(0)]);
    let add = Body::Fold { combine: Combine::Add, code: code.clone() };
    let s = m.fold(&[24, 12], 1, &[1, 1], vec![pad], add.clone());
    let ext = [5, 9, 3];
    let two = Affine { at: 1, terms: [(0, 2), (2, 1)].into_iter().collect() };
    let window = Read {
        dtype: F,
        parts: vec![part(x, Span::whole(&ext), vec![two, Affine::of(8, 1, -1)])],
        fill: Scalar::Float(0.0),
    };
    let ext2 = [4, 9, 3];
    let mut small = window.clone();
    small.parts[0].span[0].hi = 4;
    let w = m.fold(&ext2, 2, &[1, 1, 1], vec![small], add);
    // every second row backwards, the diagonal, and transposed
    let back = Read {
        dtype: F,
        parts: vec![part(
            x,
            vec![Span::all(6), Span::all(9)],
            vec![Affine::of(11, 0, -2), Affine::of(0, 1, 1)],
        )],
        fill: Scalar::Float(0.0),
    };
    let b = m.map(Fun::Exp, &[6, 9], &[1, 1], vec![back]);
    let diagonal = m.read(x, &[9], &[(Some(0), 0), (Some(0), 0)]);
    let c = m.map(Fun::Neg, &[9], &[1], vec![diagonal]);
    let t = m.read(b, &[9, 6], &[(Some(1), 0), (Some(0), 0)]);
    let t = m.map(Fun::Sin, &[9, 6], &[1, 1], vec![t]);
    // a reshape between, read and returned
    let r = m.slot(&[54], &[1]);
    let id = m.read(t, &[54], &[(Some(0), 0), (None, 0)]);
    let sentence = crate::program::sentence::Sentence {
        extents: vec![54],
        rank: 1,
        dtype: F,
        reads: vec![Read {
            parts: vec![part(t, vec![Span::all(54)], vec![Affine::default(), Affine::default()])],
            ..id
        }],
        body: Body::Reshape,
    };
    m.p.steps.push(Step::Local { out: r, sentence, layout: layouts(&[54], &[1]) });
    let u = m.scale(r, 0.5, 0.0);
    check("views", &m.done(&[a, s, w, b, c, t, r, u, x, a]), 1e-5);
}
/// A result that could be a view of an argument, were it not read by steps too: by a thousand of them, and more.
#[test]
#[cfg_attr(miri, ignore = "too large for Miri; the small ones run the same code")]
fn results_that_many_steps_read() {
    for readers in [0, 1, 999, 1000, 1001, 2000] {
        let mut m = Make::new(F);
        m.p = collective("ppermute", 256);
        let o = m.p.outs[0];
        let read = |m: &mut Make, k: i64| {
            let r = m.read(o, &[1], &[(None, k % 8), (None, k % 256)]);
            m.map(Fun::Neg, &[1], &[1], vec![r])
        };
        let mut outs: Vec<Slot> = (0..readers).map(|k| read(&mut m, k)).collect();
        outs.push(o);
        let p = m.done(&outs);
        check("read by many", &p, 0.0);
        let compiled = compile::compile(&p, &[]).unwrap();
        let view = matches!(compiled.outs[outs.len() - 1], OutPlan::View { .. });
        assert_eq!(view, readers == 0, "{readers} readers");
    }
}
#[test]
fn indices_and_constants() {
    let mut m = Make::new(DType::I32);
    let mut code = Code::one(Fun::Convert, DType::I64, DType::I32, &[Arg::Index(0)]);
    let j = code.push(Fun::Convert, DType::I64, DType::I32, &[Arg::Index(1)]);
    let ten = code.push(Fun::Mul, DType::I32, DType::I32, &[Arg::Inst(0), Arg::Const(Scalar::Int(1000))]);
    code.push(Fun::Add, DType::I32, DType::I32, &[ten, j]);
    let a = m.local(&[5, if cfg!(miri) { 70 } else { 700 }], &[5, 1], vec![], DType::I32, code);
    let c = m.local(
        &[3],
        &[1],
        vec![],
        DType::I32,
        Code::one(Fun::Copy, DType::I32, DType::I32, &[Arg::Const(Scalar::Int(-9))]),
    );
    let s = m.fold_over(a, &[0], 1, Combine::Max);
    check("indices", &m.done(&[a, c, s]), 0.0);
    let mut m = Make::new(DType::U64);
    let (k, n) = (m.input(&[4], &[1]), m.input(&[4, 50], &[1, 1]));
    let reads = vec![m.read(k, &[4, 50], &[(Some(0), 0)]), m.id(n)];
    let o = m.map(Fun::Threefry, &[4, 50], &[1, 1], reads);
    check("threefry", &m.done(&[o]), 0.0);
}
#[test]
fn nothing_and_scalars() {
    let mut m = Make::new(F);
    let (x, z, s) = (m.input(&[3, 0], &[1, 1]), m.input(&[0, 4], &[1, 1]), m.input(&[], &[]));
    let mut outs = vec![m.un(Fun::Sin, x), m.un(Fun::Sin, s)];
    for c in [Combine::Add, Combine::Mul, Combine::Max, Combine::Min] {
        outs.extend([m.fold_over(x, &[1], 1, c), m.fold_over(z, &[0], 8, c), m.fold_over(x, &[0], 1, c)]);
    }
    outs.push(m.dot(x, false, z, false, [1, 1, 1]));
    let t = m.un(Fun::Neg, s);
    outs.push(m.bin(Fun::Mul, t, s));
    check("nothing", &m.done(&outs), 1e-6);
}
/// A partial value: scaled part by part, returned as it is, reduced in two steps.
#[test]
fn parts() {
    use crate::sharding::Atom;
    for d in [F, DType::BF16, DType::I32].into_iter().take(if cfg!(miri) { 1 } else { 3 }) {
        let mut m = Make::new(d);
        let (two, four) = (Atom { stride: 4, size: 2 }, Atom { stride: 1, size: 4 });
        let x = m.slot_of(d, &[6, 5], &[1, 1], &[two, four]);
        m.p.ins.push(x);
        let y = m.input(&[6, 5], &[1, 1]);
        let s = m.slot_of(d, &[6, 5], &[1, 1], &[two, four]);
        let code = Code::one(Fun::Mul, d, d, &[Arg::Read(0), Arg::Read(1)]);
        let sentence = crate::program::sentence::Sentence {
            extents: vec![6, 5],
            rank: 2,
            dtype: d,
            reads: vec![m.id(x), m.id(y)],
            body: Body::Map(code),
        };
        m.p.steps.push(Step::Local { out: s, sentence, layout: layouts(&[6, 5], &[1, 1]) });
        let half = m.slot_of(d, &[6, 5], &[1, 1], &[two]);
        let whole = m.slot_of(d, &[6, 5], &[1, 1], &[]);
        let other = m.slot_of(d, &[6, 5], &[1, 1], &[]);
        m.p.steps.push(Step::Reduce { src: s, out: half, combine: Combine::Add });
        m.p.steps.push(Step::Reduce { src: half, out: whole, combine: Combine::Add });
        m.p.steps.push(Step::Reduce { src: x, out: other, combine: Combine::Add });
        check("parts", &m.done(&[s, whole, other]), tolerance(d) * 4.0);
    }
}
/// Sums and maps of large values, so that each way of cutting them runs.
#[test]
#[cfg_attr(miri, ignore = "too large for Miri; the small ones run the same code")]
fn large_values() {
    let mut m = Make::new(F);
    let x = m.input(&[200, 1400], &[8, 1]);
    let e = m.un(Fun::Exp, x);
    let s = m.fold_over(e, &[1], 1, Combine::Add);
    let reads = vec![m.id(e), m.read(s, &[200, 1400], &[(Some(0), 0)])];
    let o = m.map(Fun::Div, &[200, 1400], &[8, 1], reads);
    let q = m.un(Fun::Sin, x);
    let all = m.fold_over(q, &[0, 1], 8, Combine::Add);
    let top = m.fold_over(x, &[0], 8, Combine::Max);
    let y = m.input(&[24000, 12], &[8, 1]);
    let few = m.fold_over(y, &[1], 1, Combine::Add);
    let columns = m.fold_over(y, &[0], 8, Combine::Add);
    check("large", &m.done(&[o, all, top, few, columns]), 1e-4);
}

/// Runs a program of the partitioner's tests, of float32 and int32: all results as they should be, to the last bit.
pub(crate) fn agrees(p: &SpmdProgram, args: &[Vec<f64>], wanted: &[Vec<f64>]) {
    let slab = |(s, x): (&Slot, &Vec<f64>)| {
        let shape = p.slots[*s].shape.clone();
        match p.slots[*s].dtype {
            DType::I32 => {
                Slab::from_elements(shape, &x.iter().map(|x| *x as i32).collect::<Vec<_>>()).unwrap()
            }
            _ => Slab::from_elements(shape, &x.iter().map(|x| *x as f32).collect::<Vec<_>>()).unwrap(),
        }
    };
    let mut args: Vec<Slab> = p.ins.iter().zip(args).map(slab).collect();
    let mut all = Vec::new();
    for inline in [true, false] {
        let ready = Ready::new(p, &[], Some(inline)).unwrap();
        let made = ready.call(&mut args).unwrap();
        for (k, (m, w)) in made.iter().zip(wanted).enumerate() {
            let mut x = vec![0.0; w.len()];
            for (i, part) in numbers(m).iter().enumerate() {
                x[i % w.len().max(1)] += part;
            }
            assert_eq!(&x, w, "result {k}\n{}\n{p:#?}", ready.report().text);
        }
        all.push(made.iter().map(|m| bytes(m).to_vec()).collect::<Vec<_>>());
    }
    assert!(all[0] == all[1], "inline and workers differ");
}
