//! Eager code is compiled once: iterations of a Rust loop that trace equal programs reuse what the
//! first one compiled.

use atmesh::engine::compilations;
use atmesh::prelude::*;
use atmesh::{ImplicitReshard, ScanOptions, checkpoint, scan_with, vjp};

/// Runs a step with different data each time, and asserts that only the first run compiles. Returns
/// all results.
fn compiles_once<T>(what: &str, mut step: impl FnMut(f32) -> T) -> Vec<T> {
    let start = compilations();
    let mut results = vec![step(1.0)];
    let first = compilations();
    assert!(first > start, "{what}: the first step compiled nothing, so the test shows nothing");
    results.extend((2..6).map(|k| step(k as f32)));
    assert_eq!(compilations(), first, "{what}: a later step compiled again");
    results
}

fn numbers(x: &Array) -> Vec<f32> {
    x.to_vec::<f32>().unwrap()
}

#[test]
fn derivatives() {
    // These sizes occur in no other test, so nothing has compiled them before.
    let got = compiles_once("grad", |k| {
        let (x, w) = (Array::full([3], k), Array::full([3], 10.0 * k));
        numbers(&grad(&x, |x| (&x * &x * &w).sum(..)))
    });
    assert_eq!(got[0], [20.0; 3]);
    assert_eq!(got[4], [500.0; 3]);
    let got = compiles_once("value_and_grad", |k| {
        let (y, g) = value_and_grad(Array::full([5], k), |x| (&x * &x).sum(..));
        (y.item::<f32>().unwrap(), numbers(&g)[0])
    });
    assert_eq!(got[2], (45.0, 6.0));
    compiles_once("jvp", |k| numbers(&jvp(Array::full([6], k), Array::full([6], 1.0f32), |x| x.sin()).1));
    let got = compiles_once("vjp", |k| {
        let (_, pull) = vjp(Array::full([7], k), |x| &x * &x);
        numbers(&pull.call(Array::full([7], k)))[0]
    });
    assert_eq!(got, [2.0, 8.0, 18.0, 32.0, 50.0]);
    compiles_once("checkpoint", |k| {
        numbers(&grad(Array::full([8], k), |x| checkpoint(&x, |x| x.sin().exp()).sum(..)))
    });
}

#[test]
fn control_flow() {
    let got = compiles_once("cond", |k| {
        let x = Array::full([9], k);
        numbers(&cond(x.sum(..).gt(20.0), || &x * 2.0, || &x * 3.0))[0]
    });
    assert_eq!(got, [3.0, 6.0, 6.0, 8.0, 10.0]);
    let got = compiles_once("switch", |k| {
        let x = Array::full([10], k);
        numbers(&switch(Array::from(k as i32 - 1), &[&|| &x + 1.0, &|| &x + 2.0]))[0]
    });
    assert_eq!(got, [2.0, 4.0, 5.0, 6.0, 7.0]);
    let got = compiles_once("fori_loop", |k| {
        let x = Array::full([11], k);
        numbers(&fori_loop(0..3, Array::zeros([11]), |_, y| y + &x))[0]
    });
    assert_eq!(got, [3.0, 6.0, 9.0, 12.0, 15.0]);
    compiles_once("while_loop", |k| {
        numbers(&while_loop(Array::full([12], k), |x| x.sum(..).lt(1000.0), |x| x * 2.0))
    });
    compiles_once("scan", |k| {
        numbers(&scan(Array::full([], k), Array::full([13], k), |c, x| (&c + &x, &c * &x)).1)
    });
    compiles_once("scan_with", |k| {
        let options = ScanOptions::default().length(4).reversed();
        numbers(&scan_with(Array::full([14], k), (), |x, ()| (x * 2.0, ()), options).0)
    });
}

#[test]
fn maps_and_modes() {
    let got = compiles_once("vmap", |k| {
        let (xs, w) = (Array::full([3, 15], k), Array::full([15], k));
        numbers(&vmap(&xs, |x| grad(&x, |x| (x * &w).square().sum(..))))[0]
    });
    assert_eq!(got, [2.0, 16.0, 54.0, 128.0, 250.0]);
    let mesh = Mesh::new([("X", 2)]).unwrap();
    compiles_once("auto_axes", |k| {
        let x = Array::full([4, 15], k).put(&mesh, p!["X"]);
        numbers(&auto_axes(&x, p!["X"], |x| &x + 1.0))
    });
    let got = compiles_once("shard_map", |k| {
        let x = Array::full([16], k).put(&mesh, p!["X"]);
        shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..).psum("X"))
            .call(&x)
            .unwrap()
            .item::<f32>()
            .unwrap()
    });
    assert_eq!(got, [16.0, 32.0, 48.0, 64.0, 80.0]);
    compiles_once("a jit made at each step", |k| {
        let w = Array::full([17], k);
        numbers(&jit(|x: &Array| x * &w).call(Array::full([17], k)).unwrap())
    });
}

/// Returns true if a step compiles a program.
fn compiles(step: impl FnOnce()) -> bool {
    let before = compilations();
    step();
    compilations() > before
}

#[test]
fn what_differs_is_compiled_for_itself() {
    let twice = |x: Array| drop(numbers(&grad(&x, |x| (x * 7.0).sum(..))));
    assert!(compiles(|| twice(Array::ones([18]))));
    assert!(!compiles(|| twice(Array::zeros([18]))));
    assert!(compiles(|| twice(Array::ones([19]))), "another shape");
    let mesh = Mesh::new([("X", 2)]).unwrap();
    assert!(compiles(|| twice(Array::ones([18]).put(&mesh, p!["X"]))), "another sharding");
    let auto = Mesh::auto([("X", 2)]).unwrap();
    assert!(compiles(|| twice(Array::ones([18]).put(&auto, p!["X"]))), "an axis of another type");
    assert!(compiles(|| twice(Array::ones([18]).put(&auto, p![]))), "split otherwise over an auto axis");
    // A literal is part of the program.
    assert!(compiles(|| drop(numbers(&grad(Array::ones([18]), |x| (x * 8.0).sum(..))))));
    // A different branch or loop body is a different program.
    let choose = |x: &Array, k: f32| cond(true, || x * k, || x * 2.0);
    let x = Array::ones([20]);
    assert_eq!(numbers(&choose(&x, 3.0))[0], 3.0);
    assert_eq!(numbers(&choose(&x, 4.0))[0], 4.0);
}

/// Meshes that differ only in device order have separate programs, also for several operations
/// together.
#[test]
fn meshes_over_other_devices_are_told_apart() {
    let ids = atmesh::devices(2).unwrap();
    for order in [[ids[0], ids[1]], [ids[1], ids[0]]] {
        let mesh = Mesh::of_devices(&order, [("X", 2)]).unwrap();
        let split = |x: &Array| x.put(&mesh, p!["X"]);
        let x = Array::arange(0..22);
        for placed in [split(&x), jit(split).call(&x).unwrap(), cond(true, || split(&x), || split(&x))] {
            let first = &placed.shards().unwrap()[0];
            assert_eq!((first.device, first.index[0].start), (order[0], 0));
            assert_eq!(placed.sharding().unwrap().unwrap().mesh, mesh);
        }
    }
}

/// A scalar that changes all the time stops causing compilations after a few values. It gives the
/// same bits as a constant in a compiled function, and as one of the first values run eagerly.
#[test]
fn numbers_that_change() {
    type Law = (&'static str, fn(&Array, f32) -> Array);
    let laws: [Law; 12] = [
        ("x * t", |x, t| x * t),
        ("t * x", |x, t| f64::from(t) * x),
        ("x + t", |x, t| x + t),
        ("x - t", |x, t| x - t),
        ("t - x", |x, t| f64::from(t) - x),
        ("x / t", |x, t| x / t),
        ("t / x", |x, t| f64::from(t) / x),
        ("x % t", |x, t| x % t),
        ("max", |x, t| x.maximum(t)),
        ("pow", |x, t| x.pow(t)),
        ("clamp", |x, t| x.clamp(-t.abs(), t.abs())),
        ("select", |x, t| x.gt(t).select(t, x)),
    ];
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let auto = Mesh::auto([("X", 4)]).unwrap();
    let edges =
        [0.0, -0.0, 1.0, -1.0, 2.0, 0.5, -0.25, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 1e-45, f32::MAX];
    let bits = |x: &Array| -> Vec<u64> {
        let all = x.astype(F64).to_vec::<f64>().unwrap();
        all.into_iter().map(|x| if x.is_nan() { f64::NAN.to_bits() } else { x.to_bits() }).collect()
    };
    for dtype in [F32, F64, BF16] {
        let x = Array::from(edges.map(|x| x * 1.7)).astype(dtype);
        for (place, x) in
            [("", x.clone()), (" on a mesh", x.put(&mesh, p!["X"])), (" by itself", x.put(&auto, p!["X"]))]
        {
            for (name, f) in laws {
                let what = format!("{name}, {dtype}{place}");
                let number =
                    |k: usize| if k < 12 { 0.3 + k as f32 } else { edges[k % 12] * (1.0 + k as f32 / 64.0) };
                (0..12).for_each(|k| drop(f(&x, number(k)).ready().unwrap()));
                let first = compilations();
                let some: Vec<(usize, Array)> = (12..1012).map(|k| (k, f(&x, number(k)))).collect();
                assert_eq!(compilations(), first, "{what} compiles again");
                for (k, got) in some.iter().step_by(97).chain(&some[..12]) {
                    let t = number(*k);
                    let want = jit(|x: &Array| f(x, t)).call(&x).unwrap();
                    assert_eq!(type_of(got), type_of(&want), "{what}");
                    assert_eq!(got.sharding().unwrap(), want.sharding().unwrap(), "{what}");
                    assert_eq!(bits(got), bits(&want), "{what} of {t}");
                }
            }
        }
    }
    let x = Array::from([i32::MIN, -7, -1, 0, 1, 3, i32::MAX]);
    for k in -20..20 {
        let of = |x: &Array| stack([x * k, x - k, x / k, x % k, x.maximum(k), x & k, x.gt(k).astype(I32)], 0);
        assert_eq!(
            of(&x).to_vec::<i32>().unwrap(),
            jit(of).call(&x).unwrap().to_vec::<i32>().unwrap(),
            "{k}"
        );
    }
}

#[test]
fn what_a_call_recorded_serves_the_stages() -> Result<()> {
    let times = std::cell::Cell::new(0);
    let scale = Array::from([3.0f32, 4.0]);
    let f = jit(|x: &Array| {
        times.set(times.get() + 1);
        x * &scale
    });
    let x = Array::from([1.0f32, 2.0]);
    assert_eq!(numbers(&f.call(&x)?), [3.0, 8.0]);
    let (traced, lowered) = (f.trace(&x)?, f.lower(&x)?);
    assert_eq!(times.get(), 1);
    // The captured value is available in all later stages.
    assert_eq!(numbers(&traced.lower()?.compile()?.call(&x)?), [3.0, 8.0]);
    assert_eq!(numbers(&lowered.compile()?.call(&x)?), [3.0, 8.0]);
    // Other types are traced again.
    f.lower(x.astype(DType::F64) * 0.0 + 1.0).map(drop).unwrap_err();
    f.lower(Array::ones([3, 2]))?;
    assert_eq!(times.get(), 3);
    Ok(())
}

#[test]
fn what_a_stage_recorded_serves_a_call() -> Result<()> {
    let times = std::cell::Cell::new(0);
    let scale = Array::from([3.0f32, 4.0]);
    let f = jit(|x: &Array| {
        times.set(times.get() + 1);
        x * &scale
    });
    let x = Array::from([1.0f32, 2.0]);
    let (first, second) = (f.trace(&x)?, f.lower(&x)?);
    assert_eq!(first.program(), f.trace(&x)?.program());
    assert_eq!(numbers(&f.call(&x)?), [3.0, 8.0]);
    assert_eq!((numbers(&f.call(&x)?), times.get()), (vec![3.0, 8.0], 1));
    assert_eq!(numbers(&second.compile()?.call(&x)?), [3.0, 8.0]);
    // Other types and other options are traced again.
    f.lower(Array::ones([3, 2]))?;
    assert_eq!(numbers(&f.call(Array::ones([2]))?), [3.0, 4.0]);
    assert_eq!(times.get(), 2);
    f.lower(Array::ones([4, 2]))?;
    let donating = f.donate(0);
    let y = Array::ones([4, 2]);
    assert_eq!(numbers(&donating.call(&y)?), [3.0, 4.0, 3.0, 4.0, 3.0, 4.0, 3.0, 4.0]);
    assert!(y.to_vec::<f32>().is_err(), "the call does not donate");
    Ok(())
}

/// A thread runs what another one compiled.
#[test]
fn threads_share_what_they_compile() {
    let step = || numbers(&(Array::full([21], 2.0f32) * Array::full([21], 3.0f32)));
    assert!(compiles(|| drop(step())));
    let other = std::thread::spawn(move || {
        let mut results = Vec::new();
        assert!(!compiles(|| results = step()), "another thread compiles it again");
        results
    });
    assert_eq!(other.join().unwrap(), [6.0; 21]);
}

/// The thread's cache of recent operations compares complete operations: it also works if many
/// differ in details, and in any order.
#[test]
fn operations_at_once_are_told_apart() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let auto = Mesh::auto([("X", 2), ("Y", 2)]).unwrap();
    let turned = Mesh::new([("Y", 2), ("X", 2)]).unwrap();
    let whole = Array::from([1.5f32, -2.0, 3.0, 7.0]);
    let mut xs = vec![whole.clone(), whole.reshape([2, 2]), whole.reshape([4, 1]), whole.reshape([1, 4])];
    xs.extend([F64, BF16, I32].map(|dtype| whole.astype(dtype)));
    for m in [&mesh, &auto, &turned] {
        xs.extend([p![], p!["X"], p!["Y"], p![("X", "Y")]].map(|spec| whole.put(m, spec)));
    }
    type Law = fn(&Array) -> Array;
    let laws: [Law; 9] = [
        |x| x + 2,
        |x| x - 2,
        |x| 2 - x,
        |x| x * 3,
        |x| x * x,
        |x| -x,
        |x| x.sum(0),
        |x| x.max(0),
        |x| x.gt(2).select(x, x + 1),
    ];
    let each = || {
        for step in [1, 5, 7] {
            for k in 0..xs.len() * laws.len() {
                // Run all pairs, in a different order each time.
                let k = k * step % (xs.len() * laws.len());
                let (x, f) = (&xs[k / laws.len()], laws[k % laws.len()]);
                let (got, want) = (f(x), jit(f).call(x).unwrap());
                assert_eq!(type_of(&got), type_of(&want));
                assert_eq!(got.sharding().unwrap(), want.sharding().unwrap());
                assert_eq!(
                    got.astype(F64).to_vec::<f64>().unwrap(),
                    want.astype(F64).to_vec::<f64>().unwrap()
                );
            }
        }
    };
    each();
    assert!(!compiles(|| std::thread::scope(|s| drop((s.spawn(each), s.spawn(each))))));
    assert!(!compiles(each));
}

/// Options that are set after a call take effect: earlier compilations are not reused.
#[test]
fn options_after_a_call_hold() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let x = || Array::from((0..8).map(|k| k as f32).collect::<Vec<_>>());
    let square = Array::ones([8, 8]).put(&mesh, p!["X", _]);
    macro_rules! outcome {
        ($f:expr, $x:expr) => {{
            let f = $f;
            match f.lower($x).and_then(|lowered| lowered.compile()) {
                Ok(compiled) => {
                    let results = f.call($x).map(|y| format!("{} {:?}", type_of(&y), y.sharding().unwrap()));
                    let program = f.trace($x).map(|t| t.to_string());
                    let engine = compiled.report().engine;
                    format!(
                        "{}{}{engine}{:?}",
                        results.unwrap(),
                        program.unwrap(),
                        compiled.report().donated_bytes
                    )
                }
                Err(e) => format!("{e}"),
            }
        }};
    }
    macro_rules! holds {
        ($what:literal, $x:expr, $make:expr, $f:ident => $with:expr) => {{
            let $f = $make;
            let plain = outcome!($f, $x);
            let $f = $make;
            let at_once = outcome!($with, $x);
            let $f = $make;
            let _ = $f.call($x).unwrap();
            assert_eq!(outcome!($with, $x), at_once, $what);
            assert_ne!(plain, at_once, "{}: it says nothing, so that the test shows nothing", $what);
        }};
    }
    holds!("donate", x(), jit(|x: Array| x + 1.0), f => f.donate(0));
    holds!("engine", x(), jit(|x: Array| x + 1.0), f => f.engine(Threads));
    holds!("on", x(), jit(|x: Array| x + 1.0), f => f.on(&mesh));
    holds!("in_specs", x(), jit(|x: Array| x + 1.0).on(&mesh), f => f.in_specs(p!["X"]));
    holds!("out_specs", x(), jit(|x: Array| x + 1.0).on(&mesh), f => f.out_specs(p!["X"]));
    let moves = || jit(|x: Array| x.dot(&square));
    holds!("implicit_reshard", square.clone(), moves(), f => f.implicit_reshard(ImplicitReshard::Deny(0)));
    let map = || shard_map(&mesh, p!["X"], p!["X"], |x: Array| x + 1.0);
    holds!("over", x(), map(), f => f.over(["X"]));
    holds!("unchecked", x(), map(), f => f.unchecked());
    holds!("shard_map's engine", x(), map(), f => f.engine(Threads));
    // Donation alone: the memory of an argument that is donated from the second call on.
    let f = jit(|x: &Array| x + 1.0);
    let (first, second) = (x(), x());
    let _ = f.call(&first).unwrap();
    let f = f.donate(0);
    let _ = f.call(&second).unwrap();
    assert!(first.to_vec::<f32>().is_ok() && second.to_vec::<f32>().is_err());
}
