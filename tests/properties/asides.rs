//! Side operations of a program (prints in branches and loops without results) change none of its
//! values, and no program hangs.
//!
//! Each property runs in a separate process with a time limit, whose output is discarded.

use super::bits::bits;
use super::holds;
use atmesh::prelude::*;
use proptest::collection::vec;
use proptest::prelude::{Strategy, any, prop_oneof};
use proptest::test_runner::TestCaseError;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Returns true in the process that runs the property of this name; else starts it, and waits.
fn alone(name: &str) -> bool {
    const ALONE: &str = "PROPERTY_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return true;
    }
    let exe = std::env::current_exe().unwrap();
    let mut run = Command::new(exe)
        .args(["--exact", &format!("asides::{name}"), "--nocapture"])
        .env(ALONE, "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let long = if std::env::var_os("PROPTEST_CASES").is_some() { 3600 } else { 240 };
    let begin = Instant::now();
    loop {
        if let Some(end) = run.try_wait().unwrap() {
            assert!(end.success(), "{name}: {end}");
            return false;
        }
        if begin.elapsed() > Duration::from_secs(long) {
            run.kill().unwrap();
            panic!("{name} hangs");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A line that the results depend on, or a side operation.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// A product with an earlier value, scaled down.
    Dot(u8),
    /// An elementwise operation with an earlier value.
    Mix(u8),
    /// A transpose.
    Turn,
    /// A branch, with the side operation of each arm.
    Cond(Aside, Aside, bool),
    /// One of three branches.
    Switch(Aside, Aside, u8),
    /// A loop of this many iterations with this side operation, or with it and a branch.
    Loop(Aside, u8, bool),
}

/// A side operation.
#[derive(Clone, Copy, Debug)]
enum Aside {
    Nothing,
    /// Prints an existing value.
    Print(u8),
    /// Computes a product that needs scratch memory.
    Product(u8),
    /// Does both, in a loop.
    Inner(u8),
}

fn aside() -> impl Strategy<Value = Aside> {
    prop_oneof![
        any::<u8>().prop_map(|_| Aside::Nothing),
        any::<u8>().prop_map(Aside::Print),
        any::<u8>().prop_map(Aside::Product),
        any::<u8>().prop_map(Aside::Inner),
    ]
}
fn lines() -> impl Strategy<Value = Vec<Line>> {
    let line = prop_oneof![
        2 => any::<u8>().prop_map(Line::Dot),
        2 => any::<u8>().prop_map(Line::Mix),
        1 => any::<u8>().prop_map(|_| Line::Turn),
        1 => (aside(), aside(), any::<bool>()).prop_map(|(a, b, c)| Line::Cond(a, b, c)),
        1 => (aside(), aside(), any::<u8>()).prop_map(|(a, b, c)| Line::Switch(a, b, c)),
        1 => (aside(), 0..4u8, any::<bool>()).prop_map(|(a, n, c)| Line::Loop(a, n, c)),
    ];
    vec(line, 2..=9)
}

impl Aside {
    fn run(self, values: &[Array]) {
        let value = |k: u8| &values[k as usize % values.len()];
        match self {
            Aside::Nothing => {}
            Aside::Print(k) => debug_print!("{}", value(k).max(..)),
            Aside::Product(k) => {
                let big = (value(k) * 3.0).dot(value(k.wrapping_mul(7)));
                debug_print!("{} {}", big.sum(..), big.tanh().dot(&big).max(..));
            }
            Aside::Inner(k) => fori_loop(0..2, (), |i: Array, ()| {
                let big = (value(k) * i.astype(F32)).dot(value(k / 2));
                debug_print!("{}", (&big * &big).sum(..));
            }),
        }
    }
}

fn program(lines: &[Line], x: &Array, asides: bool) -> Array {
    let mut values = vec![x.clone(), x.t()];
    for line in lines {
        let last = values[values.len() - 1].clone();
        let value = |k: u8| &values[k as usize % values.len()];
        match *line {
            Line::Dot(k) => {
                let y = last.dot(value(k));
                values.push(&y / (y.abs().max(..) + 1.0));
            }
            Line::Mix(k) => values.push(&last * 0.5 - value(k).sin() * 0.25),
            Line::Turn => values.push(last.t() * 1.5),
            _ if !asides => {}
            Line::Cond(a, b, up) => {
                let sum = last.sum(..);
                let which = if up { sum.gt(0.0) } else { sum.lt(0.0) };
                cond(&which, || a.run(&values), || b.run(&values));
            }
            Line::Switch(a, b, k) => {
                let which = (last.max(..) * f32::from(k)).astype(I32) % 3;
                switch(&which, &[&|| a.run(&values), &|| (), &|| b.run(&values)]);
            }
            Line::Loop(a, n, choose) => fori_loop(0..i32::from(n), (), |i: Array, ()| match choose {
                true => cond((&i % 2).eq(0), || a.run(&values), || ()),
                false => a.run(&values),
            }),
        }
    }
    values.into_iter().rev().take(3).reduce(|a, b| a + b).unwrap_or_else(|| x.clone())
}

#[test]
fn what_is_done_aside_changes_nothing() {
    if !alone("what_is_done_aside_changes_nothing") {
        return;
    }
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let numbers: Vec<f32> = (0..96 * 96).map(|i| ((i * 7919) % 1000) as f32 / 1000.0 - 0.4).collect();
    let x = Array::from(numbers).reshape([96, 96]);
    holds(40, (lines(), any::<bool>()), |(lines, donated)| {
        let fails = |e: atmesh::Error| TestCaseError::fail(format!("{e}"));
        for engine in [Lockstep, Threads] {
            for x in [x.clone(), x.put(&mesh, p!["X", _]).reshard(p![_, _])] {
                let of = |asides: bool| {
                    let f = jit(|x: &Array| program(&lines, x, asides)).engine(engine);
                    let f = if donated { f.donate(0) } else { f };
                    f.call(&(&x * 1.0)).and_then(|y| bits(&y)).map_err(fails)
                };
                if of(true)? != of(false)? {
                    return Err(TestCaseError::fail(format!("{engine}: the prints change the result")));
                }
            }
        }
        Ok(())
    });
}

/// Workers that have no work in a branch wait for the others, which may not yet have read the
/// branch index.
#[test]
fn branches_with_nothing_in_them_do_not_race() {
    if !alone("branches_with_nothing_in_them_do_not_race") {
        return;
    }
    let mesh = Mesh::new([("x", 4)]).unwrap();
    let f = |x: &Array| {
        fori_loop(0..200, x, |i: Array, x: Array| {
            let y = (&x * 1.0001).sin();
            cond((&i % 2).eq(0), || debug_print!("{}", &i), || ());
            y
        })
    };
    let plain = |x: &Array| fori_loop(0..200, x, |_, x: Array| (&x * 1.0001).sin());
    let x = Array::ones([1 << 14]);
    let want = bits(&jit(plain).call(&x).unwrap()).unwrap();
    for (engine, x) in [(Lockstep, x.clone()), (Threads, x.put(&mesh, p!["x"]))] {
        let f = jit(f).engine(engine);
        for _ in 0..5 {
            assert_eq!(bits(&f.call(&x).unwrap()).unwrap(), want, "{engine}");
        }
    }
}
