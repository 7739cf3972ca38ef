//! Complete programs, from closures to results.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{CollectiveKind, EngineKind, ErrorKind, PcastTo};

fn near(a: &Array, b: &[f32]) {
    let a = a.to_vec::<f32>().unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(a.len(), b.len());
    assert!(a.iter().zip(b).all(|(a, b)| (a - b).abs() < 1e-5), "{a:?} {b:?}");
}

#[test]
fn the_thin_program() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let a = Array::arange(0..4).reshape([4, 1]).put(&mesh, p!["X", _]);
    let b = Array::arange(0..8).reshape([1, 8]).put(&mesh, p![_, "Y"]);
    for engine in [EngineKind::Reference, EngineKind::Lockstep] {
        let f = jit(|a: &Array, b: &Array| a + b).engine(engine);
        let c = f.call((&a, &b)).unwrap();
        assert_eq!(type_of(&c), "int32[4@X,8@Y]");
        let want: Vec<i32> = (0..4).flat_map(|i| (0..8).map(move |j| i + j)).collect();
        assert_eq!(c.to_vec::<i32>().unwrap(), want);
        assert_eq!(f.call((&a, &b)).unwrap().to_vec::<i32>().unwrap(), want);
    }
    assert_eq!((&a + &b).to_vec::<i32>().unwrap().len(), 32);
}

#[test]
fn calls_are_cached_by_type() {
    let traced = std::cell::Cell::new(0);
    let f = jit(|x: &Array, Static(n): Static<i32>| {
        traced.set(traced.get() + 1);
        x * n
    });
    let x = Array::from([1, 2]);
    assert_eq!(f.call((&x, Static(2))).unwrap().to_vec::<i32>().unwrap(), [2, 4]);
    assert_eq!(f.call((&x + 1, Static(2))).unwrap().to_vec::<i32>().unwrap(), [4, 6]);
    assert_eq!(traced.get(), 1);
    assert_eq!(f.call((&x, Static(3))).unwrap().to_vec::<i32>().unwrap(), [3, 6]);
    let _ = f.call((Array::from([1.0f32]), Static(3))).unwrap();
    assert_eq!(traced.get(), 3);
    let mesh = Mesh::auto([("X", 2)]).unwrap();
    let _ = f.call((x.put(&mesh, p!["X"]), Static(3))).unwrap();
    let _ = f.call((x.put(&mesh, p![]), Static(3))).unwrap();
    assert_eq!(traced.get(), 5);
}

#[test]
fn donation_takes_the_argument() {
    let f = jit(|x: &Array, y: &Array| x + y).donate(0);
    let (x, y) = (Array::from([1, 2]), Array::from([3, 4]));
    assert_eq!(f.call((&x, &y)).unwrap().to_vec::<i32>().unwrap(), [4, 6]);
    let e = x.to_vec::<i32>().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Donated);
    let d = &e.diagnostics()[0];
    assert!(d.location.is_some() && d.related.len() == 1, "{e}");
    // Each error names the operation that used the value.
    let used = |by: &str, e: atmesh::Error| {
        assert_eq!((e.kind(), e.diagnostics()[0].op.as_str()), (ErrorKind::Donated, by), "{e}");
    };
    used("to_vec", e.clone());
    used("add", (&x + 1).ready().unwrap_err());
    used("reshape", x.reshape([1, 2]).ready().unwrap_err());
    used("call", f.call((&x, &y)).unwrap_err());
    used("cond", cond(true, || &x + 1, || x.clone()).ready().unwrap_err());
    assert_eq!(y.to_vec::<i32>().unwrap(), [3, 4]);
}

#[test]
fn compiled_functions_reject_other_types() {
    let c = jit(|x: &(Array, Array)| &x.0 + &x.1)
        .lower(&(Array::from(1), Array::from(2)))
        .unwrap()
        .compile()
        .unwrap();
    assert_eq!(c.call((1, 2)).unwrap().item::<i32>().unwrap(), 3);
    let e = c.call((1, 2.0)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Dtype);
    assert!(e.unquoted().contains("`1`"), "{e}");
    let c2 = c.clone();
    assert_eq!(
        std::thread::spawn(move || c2.call((3, 4)).unwrap().item::<i32>().unwrap()).join().unwrap(),
        7
    );
}

#[test]
fn loops_and_branches_run() {
    let sum = fori_loop(0..10, Array::from(0), |i, x| x + i);
    assert_eq!(sum.item::<i32>().unwrap(), 45);
    let n = Array::from(4);
    let zero = Array::from(0);
    let sum = fori_loop(Array::from(1)..n, (&zero, &zero), |i, (x, n)| (x + i, n + 1));
    assert_eq!((sum.0.item::<i32>().unwrap(), sum.1.item::<i32>().unwrap()), (6, 3));
    let (x, n) = while_loop((Array::from(100), &zero), |(x, _)| x.gt(1), |(x, n)| (x / 2, n + 1));
    assert_eq!((x.item::<i32>().unwrap(), n.item::<i32>().unwrap()), (1, 6));
    let (total, sums) = scan(&zero, Array::from([1, 2, 3]), |total, x| (&total + &x, &total + &x));
    assert_eq!((total.item::<i32>().unwrap(), sums.to_vec::<i32>().unwrap()), (6, vec![1, 3, 6]));
    let back = atmesh::ScanOptions::default().reversed();
    let (_, sums) = atmesh::scan_with(&zero, Array::from([1, 2, 3]), |t, x| (&t + &x, &t + &x), back);
    assert_eq!(sums.to_vec::<i32>().unwrap(), [6, 5, 3]);
    let f = jit(|i: &Array, x: &Array| switch(i, &[&|| x.square(), &|| x * 10.0, &|| -x]));
    let pick = |i: i32| f.call((i, 3.0)).unwrap().item::<f32>().unwrap();
    assert_eq!([pick(-5), pick(1), pick(2), pick(9)], [9.0, 30.0, -3.0, -3.0]);
    let g = jit(|x: &Array| cond(x.gt(0.0), || x.sqrt(), || Array::from(-1.0f32)));
    assert_eq!(g.call(4.0).unwrap().item::<f32>().unwrap(), 2.0);
    assert_eq!(g.call(-4.0).unwrap().item::<f32>().unwrap(), -1.0);
}

#[test]
fn derivatives_are_right() {
    let x = Array::from([1.0f32, 2.0, 3.0]);
    near(&grad(&x, |x| (&x * &x * &x).sum(..)), &[3.0, 12.0, 27.0]);
    near(&grad(&x, |x| grad(x, |x| (&x * &x * &x).sum(..)).sum(..)), &[6.0, 12.0, 18.0]);
    let f = jit(|x: &Array| grad(x, |x| fori_loop(0..3, &x, |_, y| y * &x).sum(..)));
    near(&f.call(&x).unwrap(), &[4.0, 32.0, 108.0]);
    let (y, dy) = jvp(&x, Array::from([1.0f32, 0.0, 1.0]), |x| x.square());
    near(&y, &[1.0, 4.0, 9.0]);
    near(&dy, &[2.0, 0.0, 6.0]);
    let (_, pull) = vjp((&x, Array::from(2.0f32)), |(x, a)| x * a);
    let (dx, da) = pull.call(Array::from([1.0f32, 1.0, 0.0]));
    near(&dx, &[2.0, 2.0, 0.0]);
    near(&da, &[3.0]);
    let e = pull.call(Array::from([1.0f32])).0.ready().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Shape);
    near(
        &grad(&x, |x| checkpoint(&x, |x| x.sin().exp()).sum(..)).slice(ix![0]),
        &[0.540_302_3 * 0.841_471f32.exp()],
    );
}

#[test]
fn per_device_code_runs() {
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let a = Array::arange(0.0..16.0f32).put(&mesh, p!["X"]);
    for engine in [EngineKind::Reference, EngineKind::Lockstep] {
        let sums = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.sum(Dims::keep(..))).engine(engine);
        near(&sums.call(&a).unwrap(), &[6.0, 22.0, 38.0, 54.0]);
        let total = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..).psum("X")).engine(engine);
        near(&total.call(&a).unwrap(), &[120.0]);
        let turn = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
            x.slice(ix![..1]).ppermute("X", Permutation::ring(1))
        });
        near(&turn.engine(engine).call(&a).unwrap(), &[12.0, 0.0, 4.0, 8.0]);
        let index = shard_map(&mesh, (), p!["X"], || axis_index("X").reshape([1]));
        assert_eq!(index.engine(engine).call(()).unwrap().to_vec::<i32>().unwrap(), [0, 1, 2, 3]);
        // Each device takes its own branch.
        let own = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
            cond(axis_index("X").eq(1), || x * 0.0, || x.clone())
        });
        let got = own.engine(engine).call(&a).unwrap().to_vec::<f32>().unwrap();
        assert_eq!(got[3..9], [3.0, 0.0, 0.0, 0.0, 0.0, 8.0]);
    }
}

#[test]
fn modes_change_the_type_of_axes() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let x = Array::arange(0.0..16.0f32).reshape([4, 4]);
    let want = x.t().dot(&x).to_vec::<f32>().unwrap();
    let placed = x.put(&mesh, p!["X", "Y"]);
    let captured = Array::ones([4]).put(&mesh, p!["X"]);
    let f = jit(|x: &Array| {
        auto_axes(x, p!["X", _], |x| {
            assert_eq!(type_of(&x), "float32[4,4]");
            assert_eq!(type_of(&(&captured + 0.0)), "float32[4]");
            x.t().dot(&x)
        })
    });
    let y = f.call(&placed).unwrap();
    assert_eq!(type_of(&y), "float32[4@X,4]");
    assert_eq!(y.to_vec::<f32>().unwrap(), want);
    let y = atmesh::auto_axes_over("X", &placed, p!["X", "Y"], |x| {
        assert_eq!(type_of(&x), "float32[4,4@Y]");
        x * 2.0
    });
    assert_eq!(type_of(&y), "float32[4@X,4@Y]");
    let parts = auto_axes(&placed, p![_, _; U: "X"], |x| x * 1.0);
    assert_eq!(type_of(&parts), "float32[4,4]{U:X}");
    assert_eq!(parts.reshard(p![]).to_vec::<f32>().unwrap(), x.to_vec::<f32>().unwrap());
    let g = grad(&placed, |x| auto_axes(&x, p!["X", _], |x| x.square()).sum(..));
    assert_eq!(type_of(&g), "float32[4@X,4@Y]");
    near(&g.reshard(p![]).slice(ix![0, Ellipsis]), &[0.0, 2.0, 4.0, 6.0]);

    let auto = Mesh::auto([("X", 2)]).unwrap();
    let x = Array::arange(0..4).put(&auto, p![]);
    let y = explicit_axes(&x, p!["X"], |x| {
        assert_eq!(type_of(&x), "int32[4@X]");
        x + 1
    });
    assert_eq!(type_of(&y), "int32[4]");
    assert_eq!(y.to_vec::<i32>().unwrap(), [1, 2, 3, 4]);
}

/// Devices leave a loop at different iterations: each keeps its values of that iteration.
#[test]
fn devices_leave_a_loop_when_they_are_done() -> Result<()> {
    let mesh = Mesh::new([("X", 4), ("Y", 2)])?;
    let x = Array::from([1, 6, 7, 27, 2, 9, 1, 100]).put(&mesh, p![("X", "Y")]);
    // Iterations until 1 is reached: none, or up to 111.
    let collatz = |x: &Array| {
        let start = (x.reshape([]), Array::from(0).pvary(["X", "Y"]));
        let next = |n: &Array| (n % 2).eq(0).select(n / 2, n * 3 + 1);
        let (_, steps) = while_loop(start, |(n, _)| n.ne(1), |(n, k)| (next(&n), k + 1));
        steps.reshape([1])
    };
    let f = shard_map(&mesh, p![("X", "Y")], p![("X", "Y")], collatz);
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let steps = jit(|x: &Array| f.call(x)).engine(engine).call(&x)?;
        assert_eq!(steps.to_vec::<i32>()?, [0, 8, 16, 111, 1, 19, 0, 25], "{engine}");
    }
    // The others would wait for a device that has left.
    let summed =
        |x: &Array| while_loop(x, |x: &Array| x.sum(..).lt(100), |x: Array| &x + x.psum("X").pvary("X"));
    let e = shard_map(&mesh, p![("X", "Y")], p![("X", "Y")], summed).call(&x).unwrap_err().unquoted();
    assert!(e.contains("may leave the loop at different steps, and it has psum over X"), "{e}");
    // A carry that starts out equal on all devices varies as the condition does.
    let counted = |x: &Array| {
        let start = (x.reshape([]), Array::from(0));
        let (_, k) = while_loop(start, |(x, _)| x.lt(100), |(x, k)| (x * 3, k + 1));
        assert_eq!(type_of(&k), "int32[]{V:(X,Y)}");
        k.reshape([1])
    };
    let f = shard_map(&mesh, p![("X", "Y")], p![("X", "Y")], counted);
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let steps = jit(|x: &Array| f.call(x)).engine(engine).call(&x)?;
        assert_eq!(steps.to_vec::<i32>()?, [5, 3, 3, 2, 4, 3, 5, 0], "{engine}");
    }
    Ok(())
}

/// The number of steps up to the device's own bound.
fn count_to(n: &Array) -> Array {
    let n = n.slice(ix![0]);
    while_loop(0.0f32, |c: &Array| c.lt(&n), |c: Array| c + 1.0).expand_dims(0)
}

#[test]
fn a_carry_varies_as_the_condition_does() -> Result<()> {
    let mesh = Mesh::new([("i", 4)])?;
    let bounds = Array::from([2.0f32, 5.0, 1.0, 0.0]);
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        for checked in [true, false] {
            let f = shard_map(&mesh, p!["i"], p!["i"], count_to).engine(engine);
            let f = if checked { f } else { f.unchecked() };
            assert_eq!(f.call(&bounds)?.to_vec::<f32>()?, [2.0, 5.0, 1.0, 0.0], "{engine}");
            assert_collectives!(f.lower(&bounds)?);
        }
    }
    // a body that returns a value equal on all devices
    let f = shard_map(&mesh, p!["i"], p!["i"], |n: &Array| {
        let n = n.slice(ix![0]);
        let start = (Array::from(0.0f32), Array::from(7.0f32));
        let (_, last) = while_loop(start, |(c, _)| c.lt(&n), |(c, _)| (c + 1.0, Array::from(1.0f32)));
        last.expand_dims(0)
    });
    assert_eq!(f.call(&bounds)?.to_vec::<f32>()?, [1.0, 1.0, 1.0, 7.0]);
    // `fori_loop` up to the device's own bound
    let f = shard_map(&mesh, p!["i"], p!["i"], |n: &Array| {
        fori_loop(Array::from(0)..n.slice(ix![0]).astype(I32), 0.5f32, |_, c| c * 2.0).expand_dims(0)
    });
    assert_eq!(f.call(&bounds)?.to_vec::<f32>()?, [2.0, 16.0, 1.0, 0.5]);
    Ok(())
}

/// A carry that varies because of the body only is an error, which names the user's carry.
#[test]
fn a_carry_that_the_body_makes_vary_is_named() -> Result<()> {
    let mesh = Mesh::new([("i", 4), ("j", 2)])?;
    let over = p![("i", "j")];
    let x = Array::ones([8]).put(&mesh, over);
    let e = |f: &dyn Fn(&Array) -> Array| {
        let e = shard_map(&mesh, over, over, f).call(&x).unwrap_err();
        assert_eq!(e.kind(), atmesh::ErrorKind::Varying, "{e}");
        assert!(e.unquoted().contains(".pvary("), "{e}");
        e.unquoted()
    };
    let steps = |x: &Array| (x.slice(ix![0]) * 3.0).astype(I32).pmax("i");
    let told = e(&|x| while_loop(0.0f32, |c| c.lt(3.0), |c| c + x.slice(ix![0])).expand_dims(0));
    assert!(told.contains("the carry is float32[]"), "{told}");
    let told = e(&|x| {
        let start = (Array::from(0.0f32), Array::from(1));
        while_loop(start, |(_, n)| n.lt(3), |(c, n)| (c + x.slice(ix![0]), n + 1)).0.expand_dims(0)
    });
    assert!(told.contains("the carry `0` is float32[]"), "{told}");
    // the counter of a loop with a bound known at run time is not the user's; the bound varies over j
    let told = e(&|x| fori_loop(Array::from(0)..steps(x), 0.0f32, |_, c| c + x.slice(ix![0])).expand_dims(0));
    assert!(told.contains("the carry is float32[]{V:j}") && told.contains(".pvary(\"i\")"), "{told}");
    let told = e(&|x| {
        let start = (Array::from(1.0f32), Array::from(0.0f32));
        fori_loop(Array::from(0)..steps(x), start, |_, (a, c)| (a, c + x.slice(ix![0]))).1.expand_dims(0)
    });
    assert!(told.contains("the carry `1` is float32[]{V:j}"), "{told}");
    Ok(())
}

/// Loops that devices leave at different iterations communicate nothing, on every engine and as
/// StableHLO, with collectives over other axes in the body or without.
#[test]
fn loops_of_different_length_communicate_nothing() -> Result<()> {
    for mesh in [Mesh::new([("i", 4), ("j", 2)])?, Mesh::auto([("i", 4), ("j", 2)])?] {
        let x = Array::from([0.0f32, 0.75, 1.25, 1.75]).put(&mesh, p!["i"]);
        let own = jit(shard_map(&mesh, p!["i"], p!["i"], |x: &Array| {
            while_loop(x, |y| y.lt(2.0).all(..), |y| y + 0.25)
        }));
        let other = jit(shard_map(&mesh, p!["i"], p!["i"], |x: &Array| {
            while_loop(x, |y| y.lt(2.0).all(..), |y| &y + 0.125 * (0.0 * &y + 1.0).psum("j"))
        }));
        for (f, sums) in [(&own, 0), (&other, 1)] {
            for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
                let run = jit(|x: &Array| f.call(x)).engine(engine);
                assert_eq!(run.call(&x)?.to_vec::<f32>()?, [2.0; 4], "{engine}");
            }
            let lowered = f.lower(&x)?;
            let told = lowered.collectives().to_string();
            assert!(!told.contains("control/"), "a line of the library:\n{told}");
            assert_eq!(lowered.collectives().count(CollectiveKind::AllReduce, "i"), 0, "{told}");
            assert_eq!(lowered.collectives().len(), 0, "{told}");
            let text = f.trace(&x)?.to_stablehlo()?.to_string();
            assert!(text.matches("stablehlo.all_reduce").count() <= sums, "{text}");
            assert!(text.contains("stablehlo.while"), "{text}");
        }
    }
    Ok(())
}

/// Tests prints in a separate process, whose output can be read: an unreduced value prints its sum,
/// on either engine.
#[test]
fn unreduced_values_print_their_sum() {
    if std::env::var_os("ATMESH_PRINTS").is_some() {
        return prints().unwrap();
    }
    let out = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "running::unreduced_values_print_their_sum", "--nocapture"])
        .env("ATMESH_PRINTS", "1")
        .output()
        .unwrap();
    let said = String::from_utf8(out.stdout).unwrap() + &String::from_utf8(out.stderr).unwrap();
    assert!(out.status.success(), "{said}");
    for engine in ["lockstep", "threads"] {
        let lines: Vec<&str> =
            said.lines().filter_map(|l| l.strip_prefix(engine)?.strip_prefix(' ')).collect();
        let want = ["explicit [10. 10.] [2.5 2.5]", "split [0. 1. 2. 3.]", "in a loop 2.0", "in a loop 4.0"];
        assert_eq!(lines, want, "{engine}, of\n{said}");
        let blocks = said.split(&format!("body of {engine}s\n")).nth(1).unwrap_or_else(|| panic!("{said}"));
        let blocks: Vec<&str> = blocks.lines().take(5).filter(|l| l.starts_with('[')).collect();
        assert_eq!(blocks, ["[4. 6.]", "[4. 6.]"], "{engine}, of\n{said}");
    }
}

fn prints() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    for (engine, name) in [(Lockstep, "lockstep"), (Threads, "threads")] {
        let say = |what: &str, values: &[Array]| {
            atmesh::debug_print_values(&format!("{name} {what}{}", " {}".repeat(values.len())), values);
        };
        let f = jit(|x: &Array, w: &Array| {
            let parts = x.dot_to(w, p![_; U: "X"]);
            say("explicit", &[parts.clone(), parts.reshard(p![]) / 4.0]);
            say("split", &[Array::arange(0.0..4.0f32).put(&mesh, p!["X"]).reshard(p![_; U: "X"])]);
            fori_loop(0..2, parts.sum(..).zeros_like(), |_, s| {
                let s = s + Array::from(2.0f32).put(&mesh, p![; U: "X"]);
                say("in a loop", std::slice::from_ref(&s));
                s
            })
        });
        let (x, w) = (Array::full([2, 4], 2.5).put(&mesh, p![_, "X"]), Array::ones([4]).put(&mesh, p!["X"]));
        let _ = f.engine(engine).call((&x, &w))?;
        let body = shard_map(&mesh, p!["X"], p![_; U: "X"], |x: &Array| {
            let parts = x.pcast("X", PcastTo::Unreduced);
            atmesh::debug_print_values(&format!("body of {name}s\n{{}}"), std::slice::from_ref(&parts));
            parts
        });
        let _ = body.engine(engine).call(Array::arange(1.0..5.0f32).put(&mesh, p!["X"]))?;
    }
    Ok(())
}

/// Runs in a separate process: a misspelt engine name is an error, eagerly and under `jit`; an
/// empty variable counts as unset.
#[test]
fn an_unknown_engine_runs_nothing() -> Result<()> {
    const CHILD: &str = "ATMESH_RUNNING_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let x = Array::arange(0.0..4.0f32);
        let at_once = (&x + 1.0).to_vec::<f32>().err();
        let compiled = jit(|x: &Array| x * 2.0).call(&x).err();
        let by_name = atmesh::EngineKind::from_args().err();
        for e in [at_once, compiled, by_name] {
            println!("it says: {}", e.map_or("nothing".into(), |e| e.unquoted().replace('\n', " ")));
        }
        return Ok(());
    }
    let said = |engine: &str| -> Vec<String> {
        let out = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "running::an_unknown_engine_runs_nothing", "--nocapture"])
            .envs([(CHILD, "1"), ("ATMESH_ENGINE", engine)])
            .output()
            .unwrap();
        let said = String::from_utf8(out.stdout).unwrap();
        said.lines().filter_map(|l| Some(l.split_once("it says: ")?.1.to_string())).collect()
    };
    let lines = said("treads");
    assert_eq!(lines.len(), 3, "{lines:?}");
    for line in &lines {
        assert!(line.contains("there is no engine \"treads\", which ATMESH_ENGINE names"), "{line}");
        assert!(line.contains("engines are lockstep, threads, reference and xla"), "{line}");
    }
    for known in ["", "threads"] {
        assert_eq!(said(known), ["nothing"; 3], "{known:?}");
    }
    Ok(())
}

/// Runs in a separate process: an invalid `ATMESH_CPU` or `ATMESH_WORKERS` is an error, eagerly and
/// under `jit`; an empty variable counts as unset.
#[test]
fn invalid_environment_variables_run_nothing() {
    const CHILD: &str = "ATMESH_VARIABLES_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let x = Array::arange(0.0..4.0f32);
        let eager = (&x + 1.0).to_vec::<f32>().err();
        let compiled = jit(|x: &Array| x * 2.0).call(&x).err();
        for e in [eager, compiled] {
            println!("it says: {}", e.map_or("nothing".into(), |e| e.unquoted().replace('\n', " ")));
        }
        return;
    }
    let output = |name: &str, value: &str| -> Vec<String> {
        let out = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "running::invalid_environment_variables_run_nothing", "--nocapture"])
            .envs([(CHILD, "1"), (name, value)])
            .output()
            .unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        text.lines().filter_map(|l| Some(l.split_once("it says: ")?.1.to_string())).collect()
    };
    for (name, value, help) in [
        ("ATMESH_CPU", "AVX512", "the instruction sets of this processor are: base"),
        ("ATMESH_CPU", "sse", "the instruction sets of this processor are: base"),
        ("ATMESH_WORKERS", "abc", "set it to a number from 1 to 1024"),
        ("ATMESH_WORKERS", "-3", "set it to a number from 1 to 1024"),
        ("ATMESH_WORKERS", "0", "set it to a number from 1 to 1024"),
        ("ATMESH_WORKERS", "1025", "set it to a number from 1 to 1024"),
        ("ATMESH_PRINT", "compiler", "the stages are partition and compile"),
    ] {
        let lines = output(name, value);
        assert_eq!(lines.len(), 2, "{name}={value}: {lines:?}");
        for line in &lines {
            assert!(line.contains(name) && line.contains(value) && line.contains(help), "{line}");
        }
    }
    for (name, value) in [
        ("ATMESH_CPU", ""),
        ("ATMESH_CPU", "base"),
        ("ATMESH_WORKERS", ""),
        ("ATMESH_WORKERS", "2"),
        ("ATMESH_PRINT", ""),
        ("ATMESH_PRINT", "compile, partition"),
    ] {
        assert_eq!(output(name, value), ["nothing"; 2], "{name}={value}");
    }
}

/// Runs in a separate process: `ATMESH_PRINT` prints the program after each pass of its stages.
#[test]
fn the_passes_of_a_program_are_printed() -> Result<()> {
    const CHILD: &str = "ATMESH_VARIABLES_CHILD";
    if std::env::var_os(CHILD).is_some() {
        let mesh = Mesh::new([("X", 2)])?;
        let x = F32.array_type([8, 6]).on(&mesh, p!["X"]);
        let w = F32.array_type([2, 6]).on(&mesh, p![_, "X"]);
        jit(|x: &Array, w: &Array| x.dot(w.t()).tanh()).lower((x, w))?.compile()?;
        return Ok(());
    }
    let printed = |stages: &str| -> String {
        let out = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "running::the_passes_of_a_program_are_printed", "--nocapture"])
            .envs([(CHILD, "1"), ("ATMESH_PRINT", stages)])
            .output()
            .unwrap();
        String::from_utf8(out.stderr).unwrap()
    };
    let partition = printed("partition");
    let passes = ["lower", "views", "regions", "alignment", "loops", "hoist", "fetch"];
    let shown: Vec<&str> =
        partition.lines().filter_map(|l| l.strip_prefix("partition after ")?.strip_suffix(':')).collect();
    assert_eq!(shown, passes, "{partition}");
    assert!(partition.contains("= %1[j,i] over []  // transpose"), "{partition}");
    assert!(partition.contains("fetch %1 for"), "{partition}");
    let both = printed("partition,compile");
    assert!(both.contains(partition.trim_end()), "{both}");
    for text in ["compile after lower:\n(", "contraction over [8, 2, 6] of %0, %1", "map (tanh) of"] {
        assert!(both.contains(text), "{text} is not in\n{both}");
    }
    for text in ["compile after fuse:\nlevel 1, group 0: matmul", "compile after schedule:\n  0  product"] {
        assert!(both.contains(text), "{text} is not in\n{both}");
    }
    Ok(())
}

#[test]
fn a_long_loop_has_the_bits_of_short_ones() -> Result<()> {
    type State = (Array, Array, Array);
    // a row that is read and written, a value that is moved in each step, and a position that may
    // be negative or beyond the last row
    let step = |i: Array, (cache, x, at): State| -> State {
        let row = cache.slice(ix![&at]) * 3 + &x;
        let next = (at * 5 + i) % 13 - 4;
        (cache.at(ix![&next]).set(&row), x.roll(1, 0) + row, next)
    };
    // a loop of 12 steps runs as each of its steps does
    let short = move |(cache, x, at): State| {
        let parts = (0..60).step_by(12);
        parts.fold((cache, x, at), |state, first| fori_loop(first..first + 12, state, step))
    };
    let numbers = |state: &State| -> Result<Vec<f64>> {
        let (cache, x, at) = state;
        Ok([cache.astype(F64).to_vec()?, x.astype(F64).to_vec()?, at.astype(F64).to_vec()?].concat())
    };
    for (dtype, width) in [(F32, 1i32), (F32, 16), (F64, 3), (F32, 700), (BF16, 5), (I8, 64), (I64, 40)] {
        let cache = Array::arange(0..8 * width).reshape([8, width as usize]).astype(dtype);
        let x = Array::arange(0..width).astype(dtype);
        let state: State = (cache, x, Array::from(2));
        for engine in [Lockstep, Threads] {
            let run = |f: &dyn Fn(State) -> State| jit(f).engine(engine).call(state.clone());
            let long = run(&|state| fori_loop(0..60, state, step))?;
            let short = numbers(&run(&short)?)?;
            assert_eq!(numbers(&long)?, short, "{dtype}, {width}, {engine:?}");
            // the same steps in a while loop, and in a loop of loops of three steps
            let steps = |state: State| {
                let next = |(i, s): (Array, State)| (&i + 1, step(i, s));
                while_loop((Array::from(0), state), |(i, _)| i.lt(60), next).1
            };
            assert_eq!(numbers(&run(&steps)?)?, short, "while, {dtype}, {width}, {engine:?}");
            let nested = |state: State| {
                let three = |k: Array, s| fori_loop(0..3, s, move |i, s| step(&k * 3 + i, s));
                fori_loop(0..20, state, three)
            };
            assert_eq!(numbers(&run(&nested)?)?, short, "nested, {dtype}, {width}, {engine:?}");
        }
    }
    // rows of an operand and of a result, which are elsewhere in each step
    let all = |x: &Array| scan(x.slice(ix![0]), x, |c: Array, x: Array| (&c * 3 + &x, c.roll(1, 0) - x));
    let x = (Array::arange(0..60 * 7) % 11).reshape([60, 7]);
    let (end, rows) = jit(all).call(&x)?;
    let want = jit(all).engine(EngineKind::Reference).call(&x)?;
    assert_eq!((end.to_vec::<i32>()?, rows.to_vec::<i32>()?), (want.0.to_vec()?, want.1.to_vec()?));
    Ok(())
}
