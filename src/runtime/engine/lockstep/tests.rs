//! Every shape of program against the reference engine; inline and workers to the same bits.

use super::super::{EngineKind, get};
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
    unsafe { std::slice::from_raw_parts(s.dense().as_ptr(), s.nbytes()) }
}
/// Runs a program inline, on workers and by the reference engine.
#[track_caller]
fn check(name: &str, p: &SpmdProgram, tolerance: f64) {
    let args = inputs(p);
    let none = vec![false; args.len()];
    let want = get(EngineKind::Reference).compile(p).unwrap().call(&args, &none).unwrap();
    let inline = Ready::new(p, Some(true)).unwrap();
    let workers = Ready::new(p, Some(false)).unwrap();
    for _ in 0..2 {
        let (a, b) = (inline.call(&args, &none).unwrap(), workers.call(&args, &none).unwrap());
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
    for n in [1024, 1240, 64 * 64] {
        for kind in ["psum", "psum_scatter", "all_gather", "all_to_all", "ppermute"] {
            check(kind, &collective(kind, n), 1e-6);
        }
    }
}
#[test]
fn elementwise_and_reductions() {
    for n in [1, 7, 64, 100, 129] {
        check("elementwise", &elementwise(n), 1e-6);
        for dims in [&[0][..], &[1], &[0, 1]] {
            check("reduce", &reduce(n, dims), 1e-5);
        }
    }
}
#[test]
fn products() {
    for kind in ["none_contracted", "both_contracted", "same_axis", "replicated"] {
        check(kind, &matmul(96, kind), 1e-5);
        check(kind, &matmul(33, kind), 1e-5);
    }
}
#[test]
fn models() {
    check("seed layer", &seed_layer(), 1e-6);
    check("logistic step", &logistic_step(100.0), 1e-5);
    for kind in ["dp", "tp", "dp_tp"] {
        check(kind, &mlp(kind, 32, 24, 40, 1e3), 1e-5);
    }
    check("long", &long(60), 1e-4);
}
#[test]
fn loops() {
    for n in [104, 1003] {
        for steps in [0, 1, 2, 7] {
            check("heat 1-D", &heat1d(n, steps), 1e-5);
        }
    }
    check("heat 2-D", &heat2d(70, 5), 1e-5);
}

/// Times of the workloads; run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "measures"]
fn times() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let mut all: Vec<(String, SpmdProgram)> = Vec::new();
    for (s, n) in [("4K", 1 << 10), ("256K", 1 << 16), ("4M", 1 << 20), ("32M", 1 << 23)] {
        for kind in ["psum", "psum_scatter", "all_gather", "all_to_all", "ppermute"] {
            all.push((format!("{kind}/{s}"), collective(kind, n)));
        }
    }
    for n in [64, 4096, 8192] {
        all.push((format!("elementwise/{n}"), elementwise(n)));
        for dims in [&[0][..], &[1], &[0, 1]] {
            all.push((format!("reduce/{n} {dims:?}"), reduce(n, dims)));
        }
    }
    for kind in ["none_contracted", "both_contracted", "same_axis", "replicated"] {
        all.push((format!("matmul/{kind}"), matmul(2048, kind)));
    }
    all.push(("seed_layer".into(), seed_layer()));
    all.push(("logistic_step".into(), logistic_step(0.01)));
    for kind in ["dp", "tp", "dp_tp"] {
        all.push((format!("mlp_step/{kind}"), mlp(kind, 512, 512, 2048, 0.01)));
    }
    all.push(("heat1d/104".into(), heat1d(104, 100)));
    all.push(("heat1d/1048576".into(), heat1d(1 << 20, 100)));
    all.push(("heat2d/2048".into(), heat2d(2048, 20)));
    for (name, p) in all {
        if !only.split(',').any(|o| name.contains(o)) {
            continue;
        }
        let ready = Ready::new(&p, None).unwrap();
        let args = inputs(&p);
        let none = vec![false; args.len()];
        let first = Instant::now();
        ready.call(&args, &none).unwrap();
        let first = first.elapsed().as_secs_f64() * 1e6;
        let (mut times, begin) = (Vec::new(), Instant::now());
        while begin.elapsed().as_secs_f64() < 0.4 && times.len() < 20000 || times.len() < 5 {
            let t = Instant::now();
            std::hint::black_box(ready.call(&args, &none).unwrap());
            times.push(t.elapsed().as_secs_f64() * 1e6);
        }
        times.sort_by(f64::total_cmp);
        let (median, least) = (times[times.len() / 2], times[0]);
        let cost = ready.compiled.plan.cost;
        println!(
            "{name:28} median {median:>10.2} least {least:>10.2} first {first:>10.1} estimate {cost:>9.1} us"
        );
        if std::env::var("TEXT").is_ok() {
            println!("{}", ready.report().text);
        }
    }
    for n in [100, 1000, 10_000] {
        let p = long(n);
        let mut least = f64::MAX;
        for _ in 0..5 {
            let t = Instant::now();
            std::hint::black_box(Ready::new(&p, None).unwrap());
            least = least.min(t.elapsed().as_secs_f64() * 1e3);
        }
        println!("compile {n}: {least:.2} ms, arena {}", Ready::new(&p, None).unwrap().compiled.arena);
    }
}
