//! Robustness: failures on devices, locks held by callers, system limits, depth of nesting, and
//! thousands of calls must not hang, abort or leak.

use atmesh::nd::{Array1, Ix1};
use atmesh::prelude::*;
use atmesh::{Axes, EngineKind, Error, ErrorKind};
use error_checks::Unquoted as _;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

#[path = "error_checks/mod.rs"]
mod error_checks;

/// Runs the code on a new thread; fails if it does not return.
fn in_time<R: Send + 'static>(code: impl FnOnce() -> R + Send + 'static) -> R {
    let (done, result) = mpsc::channel();
    let thread = std::thread::spawn(move || done.send(code()));
    match result.recv_timeout(Duration::from_secs(120)) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(_) => match thread.join() {
            Err(panic) => std::panic::resume_unwind(panic),
            Ok(_) => panic!("it gave nothing"),
        },
    }
}

const CHILD: &str = "ATMESH_LIMITS_CHILD";

/// Returns true in the child process that a test of this name started.
fn child() -> bool {
    std::env::var_os(CHILD).is_some()
}
/// Runs the test of this name in a child process, through the command `before`. Returns its output
/// once it ended or printed `until`.
fn said_by(test: &str, before: &[&str], until: Option<&str>) -> String {
    let exe = std::env::current_exe().unwrap();
    let mut words = before.iter().map(|w| w.to_string()).collect::<Vec<_>>();
    words.extend([exe.to_str().unwrap().into(), "--exact".into(), test.into(), "--nocapture".into()]);
    let mut process = Command::new(&words[0])
        .args(&words[1..])
        .env(CHILD, "1")
        .env("ATMESH_WORKERS", "3")
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let (send, lines) = mpsc::channel();
    let mut pipes: Vec<Box<dyn Read + Send>> =
        vec![Box::new(process.stdout.take().unwrap()), Box::new(process.stderr.take().unwrap())];
    for mut pipe in pipes.drain(..) {
        let send = send.clone();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(n @ 1..) = pipe.read(&mut some) {
                let _ = send.send(String::from_utf8_lossy(&some[..n]).into_owned());
            }
        });
    }
    drop(send);
    let (mut said, begun) = (String::new(), Instant::now());
    let status = loop {
        match lines.recv_timeout(Duration::from_millis(50)) {
            Ok(more) => said += &more,
            Err(mpsc::RecvTimeoutError::Disconnected) => break Some(process.wait().unwrap()),
            Err(_) => {}
        }
        if until.is_some_and(|u| said.contains(u)) {
            let _ = process.kill();
            let _ = process.wait();
            break None;
        }
        if begun.elapsed() > Duration::from_secs(120) {
            let _ = process.kill();
            panic!("{test} hangs; it said\n{said}");
        }
    };
    assert!(status.is_none_or(|s| s.success()), "{test}: {status:?}; it said\n{said}");
    said
}

#[test]
fn prints_come_while_the_caller_holds_stdout() {
    if !child() {
        let said = said_by("prints_come_while_the_caller_holds_stdout", &[], None);
        for engine in ["lockstep", "threads", "reference"] {
            let lines: Vec<&str> = said.lines().filter_map(|l| l.strip_prefix(engine)).collect();
            assert_eq!(lines, [" step 0", " step 1", " step 2", " sum 512.0", " is done"], "{said}");
        }
        return;
    }
    let mesh = Mesh::new([("X", 4)]).unwrap();
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let n = if engine == EngineKind::Reference { 8 } else { 512 };
        let x = Array::full([n, n], 1.0 / n as f64 * 512.0 / n as f64).put(&mesh, p!["X", _]);
        let mut out = std::io::stdout().lock();
        let f = jit(|x: &Array| {
            let y = fori_loop(0..3, x, |i, x| {
                atmesh::debug_print_values(&format!("{engine} step {{}}"), std::slice::from_ref(&i));
                x * 1.0
            });
            atmesh::debug_print_values(&format!("{engine} sum {{}}"), &[y.sum(..)]);
            y
        });
        let _ = f.engine(engine).call(&x).unwrap();
        writeln!(out, "{engine} is done").unwrap();
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_stdout_that_is_full_ends_no_program() {
    if !child() {
        let said = said_by("a_stdout_that_is_full_ends_no_program", &[], None);
        assert!(said.contains("both ran"), "{said}");
        return;
    }
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    // SAFETY: both file descriptors are open.
    unsafe { libc::dup2(std::os::fd::AsRawFd::as_raw_fd(&full), 1) };
    for engine in [EngineKind::Lockstep, EngineKind::Threads] {
        let f = jit(|x: &Array| {
            debug_print!("{}", x.sum(..));
            x + 1.0
        });
        assert!(f.engine(engine).call(Array::ones([4])).is_ok());
    }
    eprintln!("both ran");
    std::process::exit(0);
}

#[test]
fn a_failure_is_told_while_others_still_run() {
    if !child() {
        let until = "device 3 (X=3) still runs";
        let said = said_by("a_failure_is_told_while_others_still_run", &[], Some(until));
        assert!(said.contains("device 4 (X=4) panicked") && said.contains("the cause"), "{said}");
        return;
    }
    let mesh = Mesh::new([("X", 8)]).unwrap();
    let f = spmd(&mesh, (), (), |dev: &Device| match dev.position() {
        3 => loop {
            std::thread::sleep(Duration::from_millis(10));
        },
        4 => panic!("the cause"),
        _ => dev.barrier("X"),
    });
    let _ = f.call(());
}

#[test]
#[cfg(target_os = "linux")]
fn a_forked_process_computes() {
    if !child() {
        let said = said_by("a_forked_process_computes", &[], None);
        assert!(said.contains("the child is right"), "{said}");
        return;
    }
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let (x, n) = (Array::ones([1 << 20]), 1 << 20);
    let f = jit(|x: &Array| (x * 2.0).sin().sum(..) + x.sum(..));
    let g = spmd(&mesh, (), p![], |dev: &Device| dev.psum_scalar(1i32, "X"));
    let (want, _) = (f.call(&x).unwrap().item::<f32>().unwrap(), g.call(()).unwrap());
    // SAFETY: the child only computes and exits.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let same = f.call(&x).unwrap().item::<f32>().unwrap().to_bits() == want.to_bits();
        let four = g.call(()).unwrap().item::<i32>().unwrap() == 4;
        // SAFETY: `_exit` ends the child process.
        unsafe { libc::_exit(if same && four && n > 0 { 0 } else { 1 }) };
    }
    let mut status = -1;
    // SAFETY: `pid` is a child of this process, and `status` is a live variable.
    unsafe { libc::waitpid(pid, &mut status, 0) };
    assert_eq!(status, 0);
    println!("the child is right");
}

#[test]
fn a_thread_that_ends_computes() {
    if !child() {
        let said = said_by("a_thread_that_ends_computes", &[], None);
        assert!(said.contains("at once: [2.0, 2.0]") && said.contains("jitted: "), "{said}");
        return;
    }
    struct Last(Array);
    impl Drop for Last {
        fn drop(&mut self) {
            // Written in one piece, since other threads write to the stream, too.
            let text = format!("at once: {:?}", (&self.0 + 1.0).to_vec::<f32>().unwrap());
            eprintln!("{text}");
            let text = format!("jitted: {:?}", jit(|x: &Array| x + 1.0).call(&self.0).is_ok());
            eprintln!("{text}");
        }
    }
    thread_local!(static LAST: std::cell::RefCell<Option<Last>> = const { std::cell::RefCell::new(None) });
    let thread = std::thread::spawn(|| {
        // Registered first, so that it is dropped last.
        LAST.with(|l| drop(l.borrow_mut()));
        LAST.set(Some(Last(jit(|x: &Array| x * 1.0).call(Array::ones([2])).unwrap())));
    });
    assert!(thread.join().is_ok());
}

#[test]
#[cfg(target_os = "linux")]
fn memory_that_the_system_rejects_is_an_error() {
    if !child() {
        let limited = ["sh", "-c", "ulimit -v 1000000; exec \"$@\"", "sh"];
        let said = said_by("memory_that_the_system_rejects_is_an_error", &limited, None);
        assert!(said.contains("all were rejected"), "{said}");
        return;
    }
    let x = Array::ones([240]);
    let wide = jit(|x: &Array| x.broadcast_to([1 << 20, 240]) * 2.0);
    for n in [240 << 20, 1 << 30, 1 << 40] {
        let rejected = Array::full([n], 1).ready().err().map(|e| e.kind());
        assert_eq!(rejected, Some(ErrorKind::Data), "{n}");
    }
    assert_eq!(wide.call(&x).err().map(|e| e.kind()), Some(ErrorKind::Data));
    assert_eq!(x.to_vec::<f32>().unwrap().len(), 240);
    drop(x);
    // With most of the permitted memory in use, reading and creating arrays, and gathering views,
    // give errors.
    let rejected = |what: &str, e: Option<Error>| {
        let e = e.unwrap_or_else(|| panic!("{what}: there was memory"));
        assert!(e.kind() == ErrorKind::Data && e.unquoted().contains("has no"), "{what}: {e}");
        assert!(!e.diagnostics()[0].op.is_empty(), "{what}: {e}");
    };
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let n = 56 << 20;
    let large = Array::zeros([n]).put(&mesh, p!["X"]).ready().unwrap();
    let turned = |y: &Array| y.ppermute("X", Permutation::ring(1));
    let view = jit(shard_map(&mesh, p!["X"], p!["X"], turned)).call(&large).unwrap();
    let numbers = vec![0f32; 40 << 20];
    atmesh::runtime::trim();
    // Less memory is left than any of these needs.
    let mut filled = Vec::new();
    while let Ok(more) = Array::zeros([4 << 20]).ready() {
        filled.push(more);
    }
    rejected("to_vec", large.to_vec::<f32>().err());
    rejected("to_ndarray", large.to_ndarray::<f32>().err());
    rejected("view", view.view::<f32>().err());
    rejected("call", jit(|x: &Array| x.slice(ix![0..8]) * 2.0).call(&view).err());
    rejected("from", Array::from(numbers).ready().err());
    rejected("shards", large.shards().err());
    rejected("linspace", Array::linspace_of(F32.array_type([64 << 20]), 0.0, 1.0, true).ready().err());
    rejected("allclose", large.allclose(&large).err());
    let device = spmd(&mesh, p!["X"], p![], |dev: &Device, x: atmesh::nd::ArrayView1<f32>| dev.psum(&x, "X"));
    rejected("spmd", device.call(&large).err());
    drop(filled);
    assert_eq!(view.view::<f32>().unwrap().len(), n);
    println!("all were rejected");
}

#[test]
fn a_donated_argument_survives_a_call_that_does_not_run() {
    let a = Array::from([1.0f32, 2.0]);
    let add = jit(|x: &Array, y: &Array| x + y).donate([0, 1]);
    assert_eq!(add.call((&a, &a)).unwrap_err().kind(), ErrorKind::Donated);
    assert_eq!(a.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let huge = jit(|x: &Array| (x.sum(..).broadcast_to([1 << 45]), x * 2.0)).donate(0);
    assert_eq!(huge.call(&a).unwrap_err().kind(), ErrorKind::Data);
    assert_eq!(a.to_vec::<f32>().unwrap(), [1.0, 2.0]);
    let double = jit(|x: &Array| x * 2.0).donate(0);
    let _ = double.call(&a).unwrap();
    let gone = double.call(&a).unwrap_err();
    assert_eq!((gone.kind(), a.to_vec::<f32>().is_err()), (ErrorKind::Donated, true));
}

fn jits(x: &Array, n: usize) -> Result<Array> {
    if n == 0 { Ok(x.clone()) } else { jit(|x: &Array| jits(&(x + 1.0), n - 1)).call(x) }
}
fn conds(x: &Array, n: usize) -> Array {
    if n == 0 { x.clone() } else { cond(x.sum(..).gt(0.0), || conds(&(x + 1.0), n - 1), || x.clone()) }
}

#[test]
fn what_is_too_deep_is_rejected() {
    in_time(|| {
        let x = Array::ones([2]);
        assert_eq!(jits(&x, 95).unwrap().to_vec::<f32>().unwrap(), [96.0; 2]);
        let deep = jits(&x, 10_000).unwrap_err();
        assert_eq!(deep.kind(), ErrorKind::Trace, "{deep}");
        assert!(deep.to_string().contains("open inside one another"), "{deep}");
        let y = jit(|x: &Array| conds(x, 95)).call(&x).unwrap();
        assert_eq!(y.to_vec::<f32>().unwrap(), [96.0; 2]);
        let deep = jit(|x: &Array| conds(x, 3000)).call(&x).unwrap_err();
        assert_eq!(deep.kind(), ErrorKind::Trace, "{deep}");
    });
}

/// Nests all functions that open a trace, each kind inside the others, to depth `n`, with
/// derivatives.
fn nested(x: &Array, n: usize) -> Array {
    if n == 0 {
        return x.sin();
    }
    let more = |x: &Array| nested(x, n - 1);
    match n % 8 {
        // The surrounding trace reports its error.
        0 => jit(|x: &Array| more(x)).call(x).unwrap_or_else(|_| x.clone()),
        1 => cond(x.sum(..).gt(-1e9), || more(x), || x.clone()),
        // Each `vmap` adds a dimension, of which there are at most 12; loops trace their bodies
        // more than once.
        2..=4 if n > 20 => checkpoint(x, |x| more(&x)),
        2 => fori_loop(0..1, x, |_, x| more(&x)),
        3 => scan(x, Array::zeros([1]), |x, y| (more(&x), y)).0,
        4 => vmap(x.expand_dims(0), |x| Ok(more(&x))).squeeze(0),
        5 => checkpoint(x, |x| more(&x)),
        6 => switch(Array::from(0), &[&|| more(x)]),
        _ => more(&jvp(x, x, |x| x.cos()).0),
    }
}

/// Nested traces fit on a thread's default stack in every build; an unoptimised build like this one
/// needs most.
#[test]
fn traces_in_one_another_fit_a_stack() {
    let on_a_thread = |code: fn()| {
        let thread = std::thread::Builder::new().stack_size(2 << 20).spawn(code);
        thread.unwrap().join().unwrap();
    };
    on_a_thread(|| {
        let rejected = jit(|x: &Array| nested(x, 400)).call(Array::ones([2])).unwrap_err();
        assert_eq!(rejected.kind(), ErrorKind::Trace, "{rejected}");
    });
    on_a_thread(|| drop(jit(|x: &Array| nested(x, 95)).call(Array::ones([2])).unwrap()));
    on_a_thread(|| drop(grad(Array::ones([2]), |x| nested(&x, 60).sum(..)).ready().unwrap()));
}

#[test]
fn a_function_called_with_many_shapes_knows_them() {
    let traced = std::cell::Cell::new(0);
    let f = jit(|x: &Array| {
        traced.set(traced.get() + 1);
        x.sum(..)
    });
    for round in 0..3 {
        for n in 1..60 {
            let sum = f.call(Array::ones([n])).unwrap().item::<f32>().unwrap();
            assert_eq!((sum, traced.get()), (n as f32, if round == 0 { n } else { 59 }));
        }
    }
}

/// A generator of pseudo-random numbers.
struct Dice(u64);
impl Dice {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) as usize % n
    }
}

/// Runs one line of device code: a collective or a message, whose error is returned.
fn line(dev: &Device, kind: usize, x: &Array1<f32>, axes: Axes, by: i64) -> Result<Array1<f32>> {
    Ok(match kind {
        0 => dev.barrier(axes).map(|()| x.clone())?,
        1 => dev.psum(x, axes)?,
        2 => dev.pmax(x, axes)?,
        3 => {
            let all = dev.all_gather(x, axes, 0)?;
            all.slice(atmesh::nd::s![..x.len()]).to_owned()
        }
        4 => dev.ppermute(x, axes, Permutation::ring(by))?,
        5 => dev.ppermute(x, axes, Permutation::shift(by))?,
        6 => {
            dev.send(dev.neighbor_periodic(axes.clone(), by)?, x)?;
            dev.recv::<f32, Ix1>(dev.neighbor_periodic(axes, -by)?)?
        }
        _ => {
            let wide = Array1::from_iter((0..dev.axis_size(axes.clone())?).flat_map(|_| x.to_vec()));
            dev.psum_scatter(&wide, axes, 0)?
        }
    })
}

/// Random device code in which some devices deviate: every call returns, and is an error only if
/// something was wrong.
#[test]
fn random_device_code_ends() {
    let seconds: u64 = std::env::var("ATMESH_SECONDS").ok().and_then(|s| s.parse().ok()).unwrap_or(2);
    let first: u64 = std::env::var("ATMESH_SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(1);
    let begun = Instant::now();
    for seed in first.. {
        if begun.elapsed() > Duration::from_secs(seconds) {
            break;
        }
        println!("seed {seed}");
        in_time(move || random_device_code(seed));
    }
}

fn random_device_code(seed: u64) {
    let mut dice = Dice(seed);
    let sizes = [[2, 2], [3, 2], [1, 4], [7, 4]][dice.below(4)];
    let mesh = Mesh::new([("x", sizes[0]), ("y", sizes[1])]).unwrap();
    let n = mesh.size();
    let choices: [Axes; 4] = ["x".into(), "y".into(), ("x", "y").into(), ("y", "x").into()];
    let lines: Vec<(usize, Axes, i64)> = (0..2 + dice.below(6))
        .map(|_| (dice.below(8), choices[dice.below(4)].clone(), dice.below(5) as i64 - 2))
        .collect();
    // Which device deviates, at which line, and whether the others check errors.
    let faults: Vec<(usize, usize, usize)> =
        (0..dice.below(3)).map(|_| (dice.below(n), dice.below(lines.len()), dice.below(7))).collect();
    let minds = dice.below(2) == 0;
    let run = spmd(&mesh, (), p![("x", "y")], |dev: &Device| {
        let mut x = Array1::from_elem(3, 1.0 + dev.position() as f32);
        for (k, (kind, axes, by)) in lines.iter().enumerate() {
            let fault = faults.iter().find(|f| (f.0, f.1) == (dev.position(), k)).map(|f| f.2);
            let (kind, x_now, by) = match fault {
                Some(0) => return Ok(x),
                Some(1) => panic!("as requested"),
                Some(2) => return Err(Error::other("as requested")),
                Some(3) => continue,
                Some(4) => ((kind + 1) % 8, x.clone(), *by),
                Some(5) => (*kind, Array1::zeros(2), *by),
                Some(_) => (*kind, x.clone(), by + 1),
                None => (*kind, x.clone(), *by),
            };
            match line(dev, kind, &x_now, axes.clone(), by) {
                Ok(new) if new.len() == 3 => x = new,
                Ok(_) => {}
                Err(e) if minds => return Err(e),
                Err(_) => {}
            }
        }
        Ok(x)
    });
    let result = run.call(());
    assert!(!faults.is_empty() || result.is_ok(), "seed {seed}: {}", result.unwrap_err());
    if let Err(e) = result.as_ref() {
        error_checks::well(e.clone());
    }
    let failing = faults.iter().any(|f| matches!(f.2, 1 | 2));
    let reached = faults.len() == 1;
    assert!(!(failing && reached) || result.is_err(), "seed {seed}: a failure is not reported");
}

/// Returns the resident memory in MiB, and the number of threads.
#[cfg(target_os = "linux")]
fn takes() -> (usize, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let number = |name: &str| -> usize {
        let line = status.lines().find(|l| l.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    };
    (number("VmRSS") / 1024, number("Threads"))
}

/// Calls of all kinds do not increase memory or threads after the first round. `ATMESH_CALLS` sets
/// the number of rounds.
#[test]
#[cfg(target_os = "linux")]
fn many_calls_leave_nothing_behind() {
    if !child() {
        let said = said_by("many_calls_leave_nothing_behind", &[], None);
        assert!(said.contains("nothing was left"), "{said}");
        return;
    }
    let rounds: usize = std::env::var("ATMESH_CALLS").ok().and_then(|n| n.parse().ok()).unwrap_or(400);
    let mesh = Mesh::new([("X", 4)]).unwrap();
    let f = jit(|x: &Array| (x * 2.0).sum(..));
    let devices = spmd(&mesh, (), p![], |dev: &Device| dev.psum_scalar(1i32, "X"));
    let fails = spmd(&mesh, (), p![], |dev: &Device| {
        assert!(dev.position() != 1, "as requested");
        dev.psum_scalar(1i32, "X")
    });
    let x = Array::ones([64, 64]);
    let mut after_first = None;
    for k in 0..rounds {
        let rows = 1 + k % 7;
        let _ = f.call(Array::ones([rows, 8])).unwrap();
        let w = &x * 1.5 + k as f32;
        let _ = grad(&w, |w| w.square().sum(..)).ready().unwrap();
        let y = jit(|x: &Array| x + 1.0).engine(EngineKind::Threads).call(x.put(&mesh, p!["X", _])).unwrap();
        assert!((&y + Array::ones([3])).ready().is_err());
        assert_eq!(devices.call(()).unwrap().item::<i32>().unwrap(), 4);
        assert!(k % 8 != 0 || fails.call(()).is_err());
        let _large = Array::zeros([(k % 5 + 1) << 18]);
        if k + 1 == rounds / 4 {
            after_first = Some(takes());
        }
    }
    let ((memory, threads), (before, threads_before)) = (takes(), after_first.unwrap());
    assert!(memory < before + 24 + rounds / 500, "{before} MiB, then {memory} MiB");
    assert!(threads <= threads_before + 4, "{threads_before} threads, then {threads}");
    atmesh::runtime::trim();
    println!("nothing was left: {memory} MiB, {threads} threads");
}

/// Nests loops to depth `depth`: of three carries, the second is dropped by the outer loop, and the
/// third feeds only itself.
fn loops(x: &Array, depth: usize) -> Array {
    if depth == 0 {
        return x * 2.0;
    }
    let step = |_, (x, y, z): (Array, Array, Array)| (loops(&x, depth - 1), &y * 1.0, &z * 1.0);
    fori_loop(0..1, (x, x + 1.0, x - 1.0), step).0
}

/// Nests loops with a condition in the same way.
fn whiles(x: &Array, depth: usize) -> Array {
    if depth == 0 {
        return x * 2.0;
    }
    let start = (x, &(x * 0.0), x - 1.0);
    let step = |(x, n, z): (Array, Array, Array)| (whiles(&x, depth - 1), &n + 1.0, &z * 1.0);
    while_loop(start, |(_, n, _)| n.lt(1.0), step).0
}

/// No stage processes a body more than a few times, however deep it is.
#[test]
fn loops_in_loops_are_traced_and_compiled_in_no_time() {
    in_time(|| {
        let start = Instant::now();
        let x = Array::from(1.0f32);
        assert_eq!(loops(&x, 24).item::<f32>().unwrap(), 2.0);
        assert_eq!(jit(|x: &Array| loops(x, 24)).call(&x).unwrap().item::<f32>().unwrap(), 2.0);
        let dx = jit(|x: &Array| grad(x, |x| loops(&x, 24))).call(&x).unwrap();
        assert_eq!(dx.item::<f32>().unwrap(), 2.0);
        let two = Array::from([1.0f32, 3.0]);
        let ys = jit(|x: &Array| vmap(x, |x| loops(&x, 24))).call(&two).unwrap();
        assert_eq!(ys.to_vec::<f32>().unwrap(), [2.0, 6.0]);
        assert_eq!(whiles(&x, 24).item::<f32>().unwrap(), 2.0);
        let ys = jit(|x: &Array| vmap(x, |x| whiles(&x, 24))).call(&two).unwrap();
        assert_eq!(ys.to_vec::<f32>().unwrap(), [2.0, 6.0]);
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
    });
}
