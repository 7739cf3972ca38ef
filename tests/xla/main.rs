//! The XLA engine. Without a plugin, its errors are tested. With one (`ATMESH_PJRT_PLUGIN`), its
//! results are compared with those of our own engine.

#[path = "../error_checks/mod.rs"]
mod error_checks;

#[expect(dead_code, reason = "what is saved for other runners is not run here")]
#[path = "../../examples/beyond/programs.rs"]
mod programs;

mod allocations;
mod manual;
mod plugins;

use atmesh::pjrt::transfers;
use atmesh::prelude::*;
use atmesh::{Complex, ErrorKind};
use error_checks::Unquoted as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns true if there is a plugin to run on.
fn plugin() -> bool {
    let there = std::env::var_os("ATMESH_PJRT_PLUGIN").is_some();
    if !there {
        println!("skipped: ATMESH_PJRT_PLUGIN is not set");
    }
    there
}

/// Returns the path of an array file; a key is stored as its words.
fn file(folder: &Path, name: &str, k: usize) -> PathBuf {
    folder.join(format!("{name}-{k}.npy"))
}

/// Saves the results of the process's default engine. The test below runs it with XLA as the
/// default.
#[test]
#[ignore = "another test runs it"]
fn saves_results() {
    let Some(folder) = std::env::var_os("ATMESH_RESULTS").map(PathBuf::from) else { return };
    for case in programs::all().unwrap() {
        for (k, a) in case.results.iter().enumerate() {
            let a = if a.dtype().unwrap() == BF16 { a.astype(F32) } else { programs::plain_bits(a).unwrap() };
            a.save_npy(file(&folder, &case.name, k)).unwrap();
        }
    }
}

/// The functions that the CPU plugin of jaxlib 0.11.2 computes wrongly: `atan` of float32 in two
/// dimensions (0.10.2 is right, and so is 0.11.2 with
/// `XLA_FLAGS=--xla_backend_optimization_level=0`).
const WRONG_THERE: [&str; 1] = ["prim_atan"];

/// Returns the tolerance, relative to the maximum absolute value.
fn near(dtype: DType) -> f64 {
    match dtype {
        F16 => 3e-3,
        F64 | C128 => 1e-12,
        _ => 3e-6,
    }
}

/// Returns the distance between two arrays of one shape, relative to the maximum absolute value.
fn apart(ours: &Array, theirs: &Array) -> f64 {
    let numbers = |a: &Array| a.astype(C128).to_vec::<Complex<f64>>().unwrap();
    let (a, b) = (numbers(ours), numbers(theirs));
    let greatest = a.iter().map(|x| x.norm()).filter(|x| x.is_finite()).fold(0.0, f64::max);
    let scale = if greatest == 0.0 { 1.0 } else { greatest };
    let one = |(a, b): (&Complex<f64>, &Complex<f64>)| {
        if a == b || a.is_nan() && b.is_nan() { 0.0 } else { (a - b).norm() / scale }
    };
    // If only one side is NaN, the distance is infinite.
    a.iter().zip(&b).map(one).fold(0.0, |worst, x| if x <= worst { worst } else { x })
}

/// Runs one of these tests in a process whose default engine is XLA.
fn in_a_process_of_xla(test: &str, more: impl FnOnce(&mut Command)) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--test-threads=1"]).env("ATMESH_ENGINE", "xla");
    more(&mut command);
    let done = command.output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && text.contains("1 passed"), "{text}");
}

/// All programs of examples/beyond, run by XLA in a separate process, agree with ours.
#[test]
fn programs_agree_with_ours() {
    if !plugin() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("atmesh-xla-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    in_a_process_of_xla("saves_results", |command| {
        command.env("ATMESH_RESULTS", &folder);
    });
    let (mut compared, mut wrong) = (0, Vec::new());
    for case in programs::all().unwrap() {
        for (k, ours) in case.results.iter().enumerate() {
            let theirs = Array::load_npy(file(&folder, &case.name, k)).unwrap();
            let dtype = ours.dtype().unwrap();
            let ours = if dtype == BF16 { ours.astype(F32) } else { programs::plain_bits(ours).unwrap() };
            assert_eq!(ours.shape().unwrap(), theirs.shape().unwrap(), "{} {k}", case.name);
            let apart = apart(&ours, &theirs);
            let near = if dtype == BF16 {
                2e-2
            } else if dtype.is_inexact() {
                near(dtype)
            } else {
                0.0
            };
            // The comparison is not negated, so that NaN counts as far apart.
            if apart <= near {
                compared += 1;
            } else if WRONG_THERE.contains(&case.name.as_str()) {
                println!("{} is apart by {apart:.1e}, as it is known to be there", case.name);
            } else {
                wrong.push(format!("{} result {k}, {dtype}: {apart:.1e}", case.name));
            }
        }
    }
    std::fs::remove_dir_all(&folder).unwrap();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(compared > 350, "{compared} results");
}

#[test]
fn results_have_the_types_and_shardings_of_ours() {
    if !plugin() {
        return;
    }
    let mesh = Mesh::new([("x", 4), ("y", 2)]).unwrap();
    let a = Array::arange(0..64).astype(F32).reshape([8, 8]).put(&mesh, p!["x", "y"]);
    let f = |a: &Array| (a.t(), a.sum(0), a.dot_to(a.reshard(p!["y"]), p!["x"; U: "y"]));
    let ours = jit(f).engine(Lockstep).call(&a).unwrap();
    let run = jit(f).engine(EngineKind::Xla).lower(&a).unwrap().compile().unwrap();
    for _ in 0..2 {
        let theirs = run.call(&a).unwrap();
        assert_eq!(type_of(&theirs), type_of(&ours));
        for (a, b) in [(&ours.0, &theirs.0), (&ours.1, &theirs.1), (&ours.2, &theirs.2)] {
            assert_eq!(a.sharding().unwrap(), b.sharding().unwrap());
            assert_eq!(a.to_vec::<f32>().unwrap(), b.to_vec::<f32>().unwrap());
        }
    }
    // Unreduced values are passed as their sum, from the host and from the devices.
    let theirs = run.call(&a).unwrap();
    let before = transfers();
    let back = jit(|u: &Array| -u.reshard(p!["x"])).engine(EngineKind::Xla).call(&theirs.2).unwrap();
    assert_eq!(transfers(), before);
    assert_eq!(back.to_vec::<f32>().unwrap(), (-&ours.2.reshard(p!["x"])).to_vec::<f32>().unwrap());
    assert_eq!((-theirs.2.reshard(p!["x"])).to_vec::<f32>().unwrap(), back.to_vec::<f32>().unwrap());
    let back = jit(|u: &Array| -u.reshard(p!["x"])).engine(EngineKind::Xla).call(&ours.2).unwrap();
    assert_eq!(back.to_vec::<f32>().unwrap(), (-&ours.2.reshard(p!["x"])).to_vec::<f32>().unwrap());
    let report = run.report();
    assert_eq!((report.engine, report.workers), ("xla", 8));
    assert!(report.listing.contains("func.func public @main"));
    // XLA's figures for the program, next to ours.
    let report_text = report.to_string();
    println!("{}", report.collectives);
    let (theirs, own) = report_text.split_once("collectives of the built-in engines").unwrap();
    assert!(
        theirs.contains("collectives of XLA:\n") && theirs.contains("all-reduce float32["),
        "{report_text}"
    );
    assert!(own.contains("assert_collectives!"), "{report_text}");
    let ours = jit(f).lower(&a).unwrap();
    assert!(!ours.collectives().is_empty());
    for c in ours.collectives() {
        let row = |l: &str| l.contains(c.kind.name()) && l.ends_with(&c.reason);
        assert!(own.lines().any(row), "{c:?} in {report_text}");
    }
    let alone = jit(|x: &Array| x + 1).engine(EngineKind::Xla).lower(Array::arange(0..4)).unwrap();
    assert!(alone.compile().unwrap().report().collectives.starts_with("collectives of XLA: none\n"));
}

/// Arrays stay on the plugin's devices between calls, and are copied to the host once, when they
/// are read.
#[test]
fn a_chain_of_calls_copies_nothing_to_the_host() {
    if !plugin() {
        return;
    }
    let mesh = Mesh::new([("x", 8)]).unwrap();
    let start = Array::arange(0..16).put(&mesh, p!["x"]);
    let step = jit(|x: &Array| (x + 1, x.sum(0))).engine(EngineKind::Xla);
    let (before, mut x) = (transfers(), start.clone());
    let mut total = None;
    for _ in 0..100 {
        let (next, sum) = step.call(&x).unwrap();
        (x, total) = (next, Some(sum));
    }
    let after = transfers();
    assert_eq!(after.to_devices - before.to_devices, 8, "the first argument's blocks");
    assert_eq!(after.from_devices, before.from_devices);
    let want: Vec<i32> = (100..116).collect();
    for _ in 0..2 {
        assert_eq!(x.to_vec::<i32>().unwrap(), want);
    }
    // For a replicated value, one block is read.
    assert_eq!(total.unwrap().to_vec::<i32>().unwrap(), [16 * 99 + 120]);
    assert_eq!(transfers().from_devices - before.from_devices, 8 + 1);
    // An array that was read is still on its devices.
    let again = transfers();
    let (y, _) = step.call(&x).unwrap();
    assert_eq!(transfers(), again);
    // Our own engines, eager operations and reshapes use the copy on the host.
    assert_eq!((&y * 2).to_vec::<i32>().unwrap()[15], 232);
    let own = jit(|x: &Array| x.reshard(p![])).engine(EngineKind::Threads).call(&y).unwrap();
    assert_eq!(own.to_vec::<i32>().unwrap()[0], 101);
    let alone = jit(|x: &Array| x * 3).engine(EngineKind::Xla).call(Array::arange(0..6)).unwrap();
    assert_eq!(alone.reshape([2, 3]).to_vec::<i32>().unwrap(), [0, 3, 6, 9, 12, 15]);
}

/// Runs operations outside `jit`. The test below runs it with XLA as the process's default engine.
#[test]
#[ignore = "another test runs it"]
fn operations_at_once() {
    if !std::env::var("ATMESH_ENGINE").is_ok_and(|name| name == "xla") {
        return;
    }
    let mesh = Mesh::new([("x", 8)]).unwrap();
    // Host data stays on the host: nothing is sent to the plugin.
    let start = transfers();
    let host = Array::arange(0..16).astype(F32).put(&mesh, p!["x"]) * 0.5;
    assert_eq!(transfers(), start);
    let x = jit(|x: &Array| x * 2.0).call(&host).unwrap();
    let sent = transfers();
    assert_eq!(sent.to_devices - start.to_devices, 8);
    // Single operations, several together, and derivatives all run where the operand is.
    let y = &x * 2.0 + &x;
    let total = y.sum(0);
    let slope = grad(&x, |x| x.square().sum(..));
    let last = scan(&x, &Array::arange(0..3).astype(F32), |c, k| (&c + &k, k)).0;
    assert_eq!(transfers().from_devices, start.from_devices);
    // The array of three elements was sent to the 8 devices.
    assert_eq!(transfers().to_devices - sent.to_devices, 8);
    assert_eq!(type_of(&y), "float32[16@x]");
    assert_eq!(type_of(&slope), "float32[16@x]");
    let of = |f: &dyn Fn(f32) -> f32| (0..16).map(|k| f(k as f32)).collect::<Vec<_>>();
    assert_eq!(y.to_vec::<f32>().unwrap(), of(&|k| 3.0 * k));
    assert_eq!(total.to_vec::<f32>().unwrap(), [360.0]);
    assert_eq!(slope.to_vec::<f32>().unwrap(), of(&|k| 2.0 * k));
    assert_eq!(last.to_vec::<f32>().unwrap(), of(&|k| k + 3.0));
    // Scalars that are seen to change stop causing compilations.
    let (mut z, mut compiled) = (x.clone(), 0);
    for k in 0..40 {
        if k == 20 {
            compiled = atmesh::engine::compilations();
        }
        z += k as f32;
    }
    assert_eq!(atmesh::engine::compilations(), compiled);
    assert_eq!(z.to_vec::<f32>().unwrap()[..2], [780.0, 781.0]);
    // Programs that XLA cannot run are run here, on a copy.
    let auto = Mesh::auto([("x", 8)]).unwrap();
    let even = jit(|x: &Array| x + 1.0).call(Array::ones([16, 2]).put(&auto, p!["x"])).unwrap();
    for _ in 0..2 {
        let uneven = concat([&even, &Array::ones([1, 2]).put(&auto, p![])], 0).put(&auto, p!["x"]) + 1.0;
        assert_eq!(uneven.to_vec::<f32>().unwrap()[30..], [3.0, 3.0, 2.0, 2.0]);
    }
    // Programs that the typing rules reject are errors as usual, with their source line.
    let rejected = (&x + Array::ones([3])).ty().unwrap_err().unquoted();
    assert!(rejected.contains("tests/xla/main.rs"), "{rejected}");
}

#[test]
fn operations_run_where_their_operands_are() {
    if plugin() {
        in_a_process_of_xla("operations_at_once", |_| {});
    }
}

/// A training loop: the weights and the batch stay on the devices.
#[test]
fn what_is_on_devices_goes_on_from_there() {
    if !plugin() {
        return;
    }
    let mesh = Mesh::new([("x", 8)]).unwrap();
    let x = Array::arange(0..64).astype(F32).reshape([16, 4]).put(&mesh, p!["x"]) / 64.0;
    let loss = |w: &Array, x: &Array| x.dot_to(w, p!["x"]).square().sum(..);
    let step = |w: &Array, x: &Array| w - 0.01 * grad(w, |w| loss(&w, x));
    let on = |kind| {
        let (f, mut w) = (jit(step).engine(kind), Array::ones([4]).put(&mesh, p![]));
        let x = jit(|x: &Array| x * 1.0).engine(kind).call(&x).unwrap();
        let before = transfers();
        for _ in 0..5 {
            w = f.call((&w, &x)).unwrap();
        }
        (w, transfers().to_devices - before.to_devices)
    };
    let ((w, puts), (want, none)) = (on(EngineKind::Xla), on(Lockstep));
    // Only the initial weights came from the host.
    assert_eq!((puts, none), (8, 0));
    assert!(w.allclose_with(&want, 1e-5, 1e-6).unwrap(), "{w} {want}");
}

#[test]
fn a_donated_argument_is_lost_and_others_stay() {
    if !plugin() {
        return;
    }
    let step = |x: &Array, w: &Array| x * 2.0 + w;
    let (x, w) = (Array::ones([4]), Array::ones([4]));
    let f = jit(step).engine(EngineKind::Xla).donate(0);
    let y = f.call((&x, &w)).unwrap();
    assert_eq!(y.to_vec::<f32>().unwrap(), [3.0; 4]);
    assert_eq!(w.to_vec::<f32>().unwrap(), [1.0; 4]);
    assert_eq!(f.call((&y, &w)).unwrap().to_vec::<f32>().unwrap(), [7.0; 4]);
    assert!(y.to_vec::<f32>().is_err());
    // Memory shared with another array is not overwritten.
    let y = f.call((Array::ones([4]), &w)).unwrap();
    let before = transfers();
    let same = y.put(&Mesh::new([("x", 8)]).unwrap(), p![]);
    assert_eq!(transfers(), before);
    assert_eq!(f.call((&y, &w)).unwrap().to_vec::<f32>().unwrap(), [7.0; 4]);
    assert!(y.to_vec::<f32>().is_err());
    assert_eq!(same.to_vec::<f32>().unwrap(), [3.0; 4]);
    // An array that is passed twice is sent twice.
    let y = f.call((Array::ones([4]), &w)).unwrap();
    let other = jit(|x: &Array| x + 0.0).engine(EngineKind::Xla).call(&y).unwrap();
    let again =
        jit(|x: &Array, w: &Array| x * 2.0 + w).engine(EngineKind::Xla).call((&other, &other)).unwrap();
    assert_eq!(again.to_vec::<f32>().unwrap(), [9.0; 4]);
    // Donated from step to step, nothing leaves the devices.
    let before = transfers();
    let (mut z, w) = (again, other);
    for _ in 0..10 {
        z = f.call((&z, &w)).unwrap();
    }
    assert_eq!(transfers(), before);
    assert_eq!(z.to_vec::<f32>().unwrap(), [12.0 * 1024.0 - 3.0; 4]);
}

#[test]
fn empty_arrays_and_no_arguments_run() {
    if !plugin() {
        return;
    }
    let mesh = Mesh::new([("x", 8)]).unwrap();
    let empty = Array::ones(F32.array_type([0, 8])).put(&mesh, p![_, "x"]);
    let (y, sum) = jit(|x: &Array| (x + 1.0, x.sum(0))).engine(EngineKind::Xla).call(&empty).unwrap();
    assert_eq!((y.to_vec::<f32>().unwrap(), sum.to_vec::<f32>().unwrap()), (vec![], vec![0.0; 8]));
    let made = jit(|| Array::arange(0..8).put(&mesh, p!["x"]) * 2).engine(EngineKind::Xla).call(()).unwrap();
    assert_eq!(made.to_vec::<i32>().unwrap(), [0, 2, 4, 6, 8, 10, 12, 14]);
}

/// Products of 16-bit floats, also of several matrices and with either order of the loops.
#[test]
fn products_of_16_bit_floats_agree_with_ours() {
    if !plugin() {
        return;
    }
    let [x, y] = [0, 1].map(|seed| Key::new(seed).normal([3, 5, 7, 4]));
    for dtype in [BF16, F16] {
        for subscripts in ["abij,abkj->abik", "abij,abkj->abki", "abij,ackj->cbik", "abij,abij->ij"] {
            let f = |x: &Array, y: &Array| einsum(subscripts, [x, y]).astype(F32);
            let [x, y] = [&x, &y].map(|x| x.astype(dtype));
            let ours = jit(f).engine(EngineKind::Lockstep).call((&x, &y)).unwrap();
            let theirs = jit(f).engine(EngineKind::Xla).call((&x, &y)).unwrap();
            // one rounding to the type, of sums in another order
            let far = (&ours - &theirs).abs().max(..).item::<f32>().unwrap();
            let size = ours.abs().max(..).item::<f32>().unwrap();
            let step = if dtype == BF16 { 1.0 / 128.0 } else { 1.0 / 1024.0 };
            assert!(far <= step * size, "{subscripts} {dtype}: {far} of {size}");
        }
    }
}

/// Programs that communicate, from several threads concurrently, on clients of 8 and of 32 devices.
#[test]
fn threads_take_turns() {
    if !plugin() {
        return;
    }
    let total = |devices: usize| {
        let mesh = Mesh::new([("x", devices)]).unwrap();
        let x = Array::arange(0..2 * devices as i32).put(&mesh, p!["x"]);
        let f = jit(|x: &Array| x.sum(..)).engine(EngineKind::Xla);
        for _ in 0..20 {
            let n = 2 * devices as i32;
            assert_eq!(f.call(&x).unwrap().to_vec::<i32>().unwrap(), [n * (n - 1) / 2]);
        }
    };
    std::thread::scope(|s| {
        for devices in [8, 32, 8, 2] {
            s.spawn(move || total(devices));
        }
    });
}

/// The error names the user's line that XLA cannot run, and the reason.
#[test]
fn what_xla_does_not_run_is_told_at_its_line() {
    let mesh = Mesh::auto([("x", 2)]).unwrap();
    let uneven = Array::ones([5]).put(&mesh, p!["x"]);
    let error = jit(|x: &Array| x + 1.0).engine(EngineKind::Xla).call(&uneven).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    let text = error.unquoted();
    assert!(
        text.contains("2 uneven blocks: XLA needs even ones") && text.contains("tests/xla/main.rs"),
        "{text}"
    );
    if plugin() {
        return;
    }
    let error = jit(|x: &Array| x + 1.0).engine(EngineKind::Xla).call(Array::ones([2])).unwrap_err();
    let text = error.unquoted();
    assert!(text.contains("ATMESH_PJRT_PLUGIN is not set") && text.contains("tests/xla/main.rs"), "{text}");
}

/// The order of complex numbers is that of our engines: by real parts, then by imaginary parts, and
/// NaN wins.
#[test]
fn complex_numbers_are_ordered_as_ours() {
    if !plugin() {
        return;
    }
    let parts = [0.0f32, 1.0, -1.0, f32::NAN, f32::INFINITY];
    let all: Vec<Complex<f32>> =
        parts.iter().flat_map(|re| parts.iter().map(|im| Complex::new(*re, *im))).collect();
    let n = all.len();
    let x = Array::from(all).reshape([n, 1]).broadcast_to([n, n]);
    let y = x.t();
    let f = |x: &Array, y: &Array| (x.maximum(y), x.minimum(y));
    let ours = jit(f).call((&x, &y)).unwrap();
    let theirs = jit(f).engine(EngineKind::Xla).call((&x, &y)).unwrap();
    for (ours, theirs) in [(ours.0, theirs.0), (ours.1, theirs.1)] {
        assert_eq!(ours.to_string(), theirs.to_string());
    }
}

/// XLA's partitioner wrongly adds up values of devices along other axes in a convolution whose
/// windows reach past the neighbouring block. Such programs still give right results here.
#[test]
fn convolutions_along_sharded_dimensions_are_right() -> Result<()> {
    if !plugin() {
        return Ok(());
    }
    let mesh = Mesh::new([("A", 2), ("B", 2), ("C", 2)])?;
    for (n, taps) in [(2, 3), (4, 5), (8, 9), (16, 3), (64, 5)] {
        let numbers: Vec<f32> = (0..2 * n).map(|i| (i as f32 * 0.7).sin()).collect();
        let x = Array::from(numbers).reshape([1, 1, n, 2]).put(&mesh, p![_, _, "B", "C"]);
        let w =
            Array::from((0..taps).map(|i| 0.3 - 0.1 * i as f32).collect::<Vec<_>>()).reshape([1, 1, taps, 1]);
        let how = || atmesh::ConvOptions::default().padding(atmesh::Padding::Same);
        let f = |x: &Array, w: &Array| grad((x, w), |(x, w)| x.conv_with(&w, how()).square().sum(..));
        let (dx, dw) = jit(f).engine(EngineKind::Xla).call((&x, &w))?;
        let (want, wanted) = jit(f).call((&x, &w))?;
        let near = |a: &Array, b: &Array| a.put(&mesh, p![]).allclose_with(&b.put(&mesh, p![]), 1e-4, 1e-5);
        assert!(near(&dx, &want)? && near(&dw, &wanted)?, "{n}, {taps}: {dx} {want} {dw} {wanted}");
    }
    Ok(())
}
