//! The number of workers does not affect bits: programs that are large enough for several workers
//! run in processes with 1, 2, 3 and 8 of them.

use crate::error_checks::Unquoted as _;
use crate::programs::{Program, Written};
use crate::soak::{part, runs_all};
use crate::{Rng, set};
use atmesh::prelude::*;
use std::process::{Command, Stdio};

const HERE: &str = "LAWS_WORKERS_HERE";

/// Hashes the types and bits of results, or the error.
fn bits(results: &Result<Vec<Array>>) -> String {
    let all = || -> Result<String> {
        let mut hash = 0xcbf2_9ce4_8422_2325u64;
        let mut put = |byte: u8| hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        for x in results.as_ref().map_err(Clone::clone)? {
            type_of(x).to_string().bytes().for_each(&mut put);
            // The wider float type represents all narrower floats exactly.
            let numbers = x.astype(F64).to_vec::<f64>()?;
            numbers.iter().flat_map(|x| x.to_bits().to_le_bytes()).for_each(&mut put);
        }
        Ok(format!("{hash:016x}"))
    };
    all().unwrap_or_else(|e| format!("rejected: {}", e.unquoted().lines().next().unwrap_or_default()))
}

/// Returns elements of all magnitudes, whose sums depend on their order.
fn numbers(shape: &[usize], salt: usize) -> Array {
    let n: usize = shape.iter().product();
    let number = |i: usize| ((i * 31 + 7 * salt) as f32 * 0.37).sin() * [1e3, 1.0, 1e-3, 7.7][i % 4];
    Array::from((0..n).map(number).collect::<Vec<_>>()).reshape(shape)
}

/// Returns row indices, many of them repeated.
fn ids(x: &Array) -> Array {
    let rows = x.shape().map_or(1, |shape| shape[0]);
    (Array::arange(0..3000) * 7919) % rows as i32
}

type Case = (String, Box<dyn Fn() -> Result<Vec<Array>>>);

/// Compiles and runs a function of one array.
fn compile_and_run(x: &Array, engine: EngineKind, f: impl Fn(&Array) -> Array) -> Result<Vec<Array>> {
    jit(|x: &Array| f(x)).engine(engine).call(x).map(|y| vec![y])
}

/// Returns each kind of work, in sizes that depend on the seed.
fn kinds(rng: &mut Rng) -> Vec<Case> {
    let mut all: Vec<Case> = Vec::new();
    let mut case = |name: String, f: Box<dyn Fn() -> Result<Vec<Array>>>| all.push((name, f));
    let (rows, columns) = (260 + rng.below(300), 500 + rng.below(700));
    let devices = *rng.choose(&[2, 3, 4, 8]);
    type Body = fn(&Array) -> Array;
    let bodies: [(&str, Body); 19] = [
        ("elementwise", |x| (x.sin() * 1.7 - x).exp() / (x.square() + 3.0)),
        ("elementwise of parts", |x| concat([x.flip(0), x * 0.3], 1).roll(5, 0) + 0.1),
        ("sum of all", |x| x.sum(..)),
        ("sum of rows", |x| x.sum(1)),
        ("sum of columns", |x| x.sum(0)),
        ("sums of computed values", |x| (x * 1.7).sin().sum(0)),
        ("sum in 16 bits", |x| x.astype(BF16).sum(..)),
        ("sum in 64 bits", |x| (x.astype(F64) * 1.1).sum(1)),
        ("transposed", |x| (x.t() * 0.7).sum(0)),
        ("max and mean", |x| x.max(0) + x.mean(0)),
        ("softmax", |x| x.softmax(1)),
        ("rows of length one", |x| {
            let c = x - x.mean(Dims::keep(1));
            &c * (c.square().mean(Dims::keep(1)) + 1e-5).rsqrt()
        }),
        ("its gradient", |x| grad(x, |x| (x.log_softmax(1) * x.sin()).sum(..))),
        ("least and greatest", |x| x.min(1).sum(..) * x.max(0)),
        ("steps of a loop", |x| fori_loop(0..3, x, |_, c| (&c * 0.9).tanh() + c.mean(Dims::keep(0)))),
        ("rows that a loop writes", |x| {
            fori_loop(0..3, x, |i, c| c.at(ix![&i]).set((&c * 0.9).tanh().mean(0)))
        }),
        ("a scan", |x| scan(x.sum(0) * 0.0, x, |c, row| ((&c * 0.5 + &row).tanh(), c * row)).1),
        ("rows at once", |x| vmap(x, |row| Ok(row.softmax(0) * row.sum(..)))),
        ("slopes", |x| grad(x, |x| (x.tanh() * x.softmax(1)).sum(..))),
    ];
    for (name, body) in bodies {
        for engine in [Lockstep, Threads] {
            let make = move |mesh: Option<Mesh>| {
                let x = numbers(&[rows / 24 * 24, columns / 24 * 24], 1);
                let x = mesh.map_or(x.clone(), |m| x.put(&m, p!["X", _]));
                compile_and_run(&x, engine, body)
            };
            case(format!("{name}, {engine}"), Box::new(move || make(None)));
            let auto = move || make(Some(Mesh::auto([("X", devices)])?));
            case(format!("{name}, {engine}, on {devices} devices"), Box::new(auto));
        }
        let at_once = move || Ok(vec![body(&numbers(&[rows, columns], 1))]);
        case(format!("{name}, at once"), Box::new(at_once));
    }
    let by_number: [(&str, Body); 8] = [
        ("rows by number", |x| x.take(&ids(x), 0)),
        ("what goes back to rows by number", |x| grad(x, |x| (x.take(&ids(&x), 0).sin() * x.sum(0)).sum(..))),
        ("rows added at numbers", |x| x.at(ix![&ids(x)]).add(x.take(&(ids(x) / 2), 0) * 0.3)),
        ("sums of segments", |x| x.take(&ids(x), 0).segment_sum(&(ids(x) % 50), 50)),
        ("sorted", |x| x.sort(0)),
        ("running sums", |x| x.cumsum(0) + x.cumsum_reverse(1)),
        ("the greatest of each row", |x| x.top_k(5, 1).0),
        ("windows", |x| {
            grad(x, |x| x.window_max([5, 3]).square().sum(..) + x.window_sum([4, 4]).sin().sum(..))
        }),
    ];
    for (name, body) in by_number {
        let make = move |mesh: Option<Mesh>| {
            let x = numbers(&[rows / 24 * 24, 240], 1);
            compile_and_run(&mesh.map_or(x.clone(), |m| x.put(&m, p!["X", _])), Lockstep, body)
        };
        case(name.to_string(), Box::new(move || make(None)));
        let auto = move || make(Some(Mesh::auto([("X", devices)])?));
        case(format!("{name}, on {devices} devices"), Box::new(auto));
    }
    let many = 14_000 + rng.below(20_000);
    type OfTwo = fn(&Array, &Array) -> Array;
    let large: [(&str, OfTwo); 4] = [
        ("rows added to a large table", |x, i| x.at(ix![i]).add(x.take(&(i / 3), 0) * 0.3)),
        ("rows of a large table added to it", |x, i| {
            x.at(ix![i]).add(numbers(&[i.shape().map_or(0, |s| s[0]), 81], 2))
        }),
        ("what goes back to a large table", |x, i| grad(x, |x| x.take(i, 0).square().sum(..))),
        ("what goes back to it from sums of rows", |x, i| {
            grad(x, |x| {
                (x.take(i, 0).sin().sum(1).square() * numbers(&[i.shape().map_or(0, |s| s[0])], 3)).sum(..)
            })
        }),
    ];
    for (name, body) in large {
        let make = move || {
            let i = (Array::arange(0..many as i32) * 7919) % 13_300 - 100;
            Ok(vec![jit(body).call((&numbers(&[13_117, 81], 1), &i))?])
        };
        case(name.to_string(), Box::new(make));
    }
    let bins = move || {
        let i = (Array::arange(0..90_000) * 7919) % 1000 - 20;
        let add = |x: &Array, i: &Array| x.at(ix![i]).add(numbers(&[90_000], 5));
        Ok(vec![jit(add).call((&numbers(&[950], 4), &i))?])
    };
    case("single elements".into(), Box::new(bins));
    let long = 300_000 + rng.below(9000);
    let lines: [(&str, usize, Body); 6] = [
        ("a long line sorted", long / 2, |x| x.sort(0)),
        ("its order", long / 2, |x| x.argsort(0)),
        ("its greatest", long, |x| {
            let (best, places) = x.top_k(90, 0);
            best + places.astype(F32)
        }),
        ("its running sums", 2 * long, |x| x.cumsum(0) - x.cumsum_reverse(0)),
        ("its transform", 1 << 16, |x| x.fft(0).real()),
        ("the inverse one", 1 << 17, |x| x.ifft(0).imag()),
    ];
    for (name, n, body) in lines {
        // With few distinct values, elements repeat.
        case(name.into(), Box::new(move || compile_and_run(&numbers(&[n], 6), Lockstep, body)));
        case(
            format!("{name}, every other one"),
            Box::new(move || {
                compile_and_run(&numbers(&[n, 2], 6), Lockstep, move |x| body(&x.slice(ix![.., 0])))
            }),
        );
    }
    let own = 100 + rng.below(900);
    for (m, k, n) in
        [(rows, 2 * own, 70), (3, devices * own, 5), (rows, columns, 1), (1, columns, rows), (9, 30_000, 11)]
    {
        let k = k / 24 * 24;
        for dtype in [F32, F64, BF16] {
            let made = move |mesh: Option<Mesh>| {
                let (x, y) = (numbers(&[m, k], 1).astype(dtype), numbers(&[k, n], 2).astype(dtype));
                let Some(mesh) = mesh else {
                    return Ok(vec![jit(|x: &Array, y: &Array| x.dot(y).tanh()).call((&x, &y))?]);
                };
                let (x, y) = (x.put(&mesh, p![_, "X"]), y.put(&mesh, p!["X", _]));
                Ok(vec![jit(|x: &Array, y: &Array| x.dot_to(y, p![_, _])).call((&x, &y))?])
            };
            case(format!("product {m} {k} {n} {dtype}"), Box::new(move || made(None)));
            let split = move || made(Some(Mesh::new([("X", devices)])?));
            case(format!("product {m} {k} {n} {dtype} over {devices} devices"), Box::new(split));
        }
    }
    for dtype in [F32, BF16] {
        let ragged = move || {
            let (x, w) = (numbers(&[600, 700], 1).astype(dtype), numbers(&[4, 700, 90], 2).astype(dtype));
            let sizes = Array::from([own as i32 % 300, 0, 171, 7]);
            let product = |(x, w): (&Array, &Array)| x.ragged_dot(w, &sizes).astype(F32).sin().sum(..);
            let (value, (dx, dw)) = value_and_grad((&x, &w), |(x, w)| product((&x, &w)));
            Ok(vec![value, dx, dw])
        };
        case(format!("products of groups of rows {dtype}"), Box::new(ragged));
    }
    let batch = move || {
        let (x, y) = (numbers(&[17, 40, 700], 1), numbers(&[17, 700, 30], 2));
        Ok(vec![x.matmul(&y), einsum("bij,bjk->k", [&x, &y])])
    };
    case("products of a batch".into(), Box::new(batch));
    let on_devices = move |f: fn(&Array) -> Array, to: Spec, engine| {
        let mesh = Mesh::new([("X", devices)])?;
        let x = numbers(&[devices * devices * 24, columns / 24 * 24], 3).put(&mesh, p!["X", _]);
        Ok(vec![jit(shard_map(&mesh, p!["X", _], to, f)).engine(engine).call(&x)?])
    };
    for engine in [Lockstep, Threads] {
        type Manual = (&'static str, fn(&Array) -> Array, Spec);
        let manual: [Manual; 4] = [
            ("psum", |x| (x * 0.3).psum("X"), p![_, _]),
            ("psum_scatter", |x| x.psum_scatter("X", CollectiveDim::tiled(0)), p!["X", _]),
            ("all_to_all", |x| x.sin().all_to_all("X", AllToAll::split(0).concat(0)) * 2.0, p!["X", _]),
            ("sum over devices", |x| x.sum(0).psum("X") * x, p!["X", _]),
        ];
        for (name, f, to) in manual {
            case(format!("{name}, {engine}"), Box::new(move || on_devices(f, to, engine)));
        }
        let moved = move || {
            let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
            let x = numbers(&[rows / 24 * 24, columns / 24 * 24], 4).put(&mesh, p!["X", "Y"]);
            let f = |x: &Array| {
                (x.reshard(p!["Y", "X"]) * 0.7).reshard(p![_, ("X", "Y")]).sum_to(0, p![("X", "Y")])
            };
            Ok(vec![jit(f).engine(engine).call(&x)?])
        };
        case(format!("reshards, {engine}"), Box::new(moved));
    }
    let drawn = move || Ok(vec![Key::new(3).normal([rows, columns]), Key::new(4).uniform([rows * columns])]);
    case("random numbers".into(), Box::new(drawn));
    all
}

/// Returns a random program over a batch that is large enough for several workers, on one device
/// and on a mesh.
fn random(seed: u64) -> Vec<Case> {
    let p = Program::new(&mut Rng::new(seed));
    let many = |p: &Program| -> Vec<Array> {
        let each: Vec<Vec<Array>> = (0..16).map(|k| p.numbers(10 * k)).collect();
        let all = |i: usize| stack(each.iter().map(|xs| &xs[i]), 0);
        (0..p.inputs.len()).map(|i| concat((0..12).map(|k| all(i) * (1.0 - 0.03 * k as f32)), 0)).collect()
    };
    let q = p.clone();
    let alone = move || {
        let run = |xs: &Vec<Array>| vmap(xs, |xs: Vec<Array>| q.run(&xs, None, Written::default()));
        jit(run).call(&many(&q))
    };
    let on_a_mesh = move || {
        let mesh = Mesh::auto([("B", 8)])?;
        let xs: Vec<Array> = many(&p).iter().map(|x| x.put(&mesh, p!["B"])).collect();
        let run = |xs: &Vec<Array>| vmap(xs, |xs: Vec<Array>| p.run(&xs, None, Written::default()));
        jit(run).call(&xs)
    };
    vec![
        (format!("program {seed}"), Box::new(alone)),
        (format!("program {seed} on a mesh"), Box::new(on_a_mesh)),
    ]
}

fn cases() -> Vec<Case> {
    let first = set("LAWS_SEED").unwrap_or(1);
    // About three random programs take a second in four processes.
    let count = set("LAWS_SECONDS").map_or(if runs_all() { 4 } else { 1 }, |s| 3 * s);
    let mut all: Vec<Case> = part(kinds(&mut Rng::new(first)), 4).collect();
    all.extend((first..first + count).flat_map(random));
    all
}

/// Returns the results of each program with `workers` workers. Programs print, so standard output
/// is discarded.
fn with(workers: usize) -> Vec<String> {
    let mut run = Command::new(std::env::current_exe().expect("it runs"));
    run.args(["--exact", "workers::any_number_of_workers_gives_the_same_bits", "--nocapture"]);
    run.env(HERE, "1").env("ATMESH_WORKERS", workers.to_string()).stdout(Stdio::null());
    let done = run.output().expect("it runs again");
    let stderr_text = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{workers} workers: {stderr_text}");
    stderr_text.lines().filter_map(|l| l.strip_prefix("made ")).map(str::to_string).collect()
}

#[test]
fn any_number_of_workers_gives_the_same_bits() {
    if std::env::var_os(HERE).is_some() {
        for (name, f) in cases() {
            eprintln!("made {name}: {}", bits(&f()));
        }
        return;
    }
    let want = with(1);
    let rejected: Vec<_> = want.iter().filter(|l| l.contains("rejected")).collect();
    assert!(
        want.len() > if runs_all() { 100 } else { 30 } && rejected.is_empty(),
        "{} cases, rejected are {rejected:#?}",
        want.len()
    );
    // three do not divide the work evenly
    for workers in if runs_all() { vec![2, 3, 8] } else { vec![3] } {
        let got = with(workers);
        let differ = want.iter().zip(&got).filter(|(w, g)| w != g).map(|(w, g)| format!("{w}, then {g}"));
        let differ: Vec<String> = differ.collect();
        assert!(got.len() == want.len() && differ.is_empty(), "{workers} workers: {differ:#?}");
    }
}
