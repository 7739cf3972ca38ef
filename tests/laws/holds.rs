//! Laws that hold for every program, however it is run, placed and written down.

use crate::error_checks::Unquoted as _;
use crate::order::{differs, otherwise, planned, text, written};
use crate::programs::{Program, Written, spec};
use crate::{Rng, quiet_law};
use atmesh::plan::{self, EntryKind, Link, Machine, Plan};
use atmesh::prelude::*;
use atmesh::{Axes, Collectives, Error, type_of};

/// The elements of several results.
type Numbers = Vec<Vec<f32>>;

fn read(results: &[Array]) -> Result<Numbers> {
    results.iter().map(|x| x.to_vec::<f32>()).collect()
}
fn near(a: &Numbers, b: &Numbers, tolerance: f32) -> bool {
    let near = |a: &[f32], b: &[f32]| {
        let most = b.iter().fold(1e-3f32, |m, x| m.max(x.abs()));
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b || (a - b).abs() <= tolerance * most)
    };
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, b))
}
fn same(a: &Numbers, b: &Numbers) -> bool {
    let bits = |a: &Numbers| -> Vec<Vec<u32>> {
        a.iter().map(|a| a.iter().map(|x| x.to_bits()).collect()).collect()
    };
    bits(a) == bits(b)
}

/// The faults found in one case.
struct Checker<'a> {
    wrong: Vec<String>,
    program: &'a Program,
}

impl Checker<'_> {
    fn holds(&mut self, law: &str, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.wrong.push(format!("{law}: {}\n  {:?}", what(), self.program));
        }
    }
    /// Returns the value, or records its error.
    fn runs<T>(&mut self, what: &str, value: Result<T>) -> Option<T> {
        value.map_err(|e| self.wrong.push(format!("{what}: {e}\n  {:?}", self.program))).ok()
    }
}

/// Returns the collectives of a program, ignoring the order of steps.
fn communicated(c: &Collectives) -> Vec<String> {
    let mut list: Vec<String> = (c.iter())
        .map(|c| {
            let mut axes: Vec<String> = c.axes.iter().map(|a| a.to_string()).collect();
            axes.sort();
            let axes = axes.join("+");
            format!("{} {axes} {} {} times {}", c.kind, c.bytes_per_device, c.total_bytes, c.count)
        })
        .collect();
    list.sort();
    list
}

/// Returns the types of the results, and their shardings.
fn placed(results: &[Array]) -> Vec<String> {
    let of = |x: &Array| {
        format!(
            "{} {}",
            type_of(x),
            x.sharding().ok().flatten().map_or(String::new(), |s| s.spec.to_string())
        )
    };
    results.iter().map(of).collect()
}

/// Runs on one device: compiled, on every engine, inside other programs, differentiated, and for
/// several examples.
fn on_one_device(p: &Program, checker: &mut Checker) -> Option<Numbers> {
    let xs = p.numbers(0);
    let run = |xs: &Vec<Array>| p.run(xs, None, Written::default());
    let eager = run(&xs).and_then(|y| read(&y));
    let want = checker.runs("it runs", eager)?;
    if want.iter().flatten().any(|x| !x.is_finite()) {
        return None;
    }
    let jitted = jit(run).call(&xs).and_then(|y| read(&y));
    let jitted = checker.runs("it runs compiled", jitted)?;
    checker.holds("jit(f) = f", near(&jitted, &want, 2e-5), || format!("{jitted:?}, not {want:?}"));
    let inner = jit(run);
    let twice = jit(|xs: &Vec<Array>| inner.call(xs)).call(&xs).and_then(|y| read(&y));
    if let Some(twice) = checker.runs("it runs within another", twice) {
        checker.holds("jit of jit = jit, bit by bit", same(&twice, &jitted), || {
            format!("{twice:?}, not {jitted:?}")
        });
    }
    for engine in [EngineKind::Threads, EngineKind::Reference] {
        let got = jit(run).engine(engine).call(&xs).and_then(|y| read(&y));
        if let Some(got) = checker.runs("it runs on every engine", got) {
            checker.holds("engines agree", near(&got, &jitted, 3e-5), || {
                format!("{engine}: {got:?}, not {jitted:?}")
            });
        }
    }
    derived_on_one_device(p, &xs, checker);
    let three: Vec<Vec<Array>> = (0..3).map(|k| p.numbers(10 * k)).collect();
    let all: Vec<Array> = (0..xs.len()).map(|k| stack(three.iter().map(|xs| &xs[k]), 0)).collect();
    let each: Result<Vec<Vec<Array>>> = three.iter().map(&run).collect();
    let each = each.and_then(|each| {
        let of = |r: usize| stack(each.iter().map(|y| &y[r]), 0);
        read(&(0..each[0].len()).map(of).collect::<Vec<_>>())
    });
    if let (Some(each), Some(all)) = (
        checker.runs("it runs on each example", each),
        checker.runs("it runs on all examples at once", read(&vmap(&all, |xs: Vec<Array>| run(&xs)))),
    ) {
        checker.holds("vmap = a loop", near(&all, &each, 5e-5), || format!("{all:?}, not {each:?}"));
    }
    Some(want)
}

/// Checks that the gradient is the same at once and compiled.
fn derived_on_one_device(p: &Program, xs: &Vec<Array>, checker: &mut Checker) {
    let slope = |xs: &Vec<Array>| {
        let of = |xs: Vec<Array>| Ok::<_, Error>(loss(p.run(&xs, None, Written::default())?));
        grad(xs, of)
    };
    let compiled = jit(slope).call(xs).and_then(|y| read(&y));
    match (read(&slope(xs)), compiled) {
        (Ok(eager), Ok(compiled)) => {
            checker.holds("grad of jit = grad", near(&compiled, &eager, 1e-4), || {
                format!("{compiled:?}, not {eager:?}")
            });
        }
        (Err(a), Err(b)) if a.kind() == b.kind() => {
            drop((crate::error_checks::well(a), crate::error_checks::well(b)))
        }
        (a, b) => {
            checker.runs("it has a gradient at once", a);
            checker.runs("it has a gradient compiled", b);
        }
    }
}

fn loss(results: Vec<Array>) -> Array {
    let mean = |x: &Array| x.sum(..) * (1.0 / x.size().unwrap_or(1).max(1) as f32);
    results.iter().fold(Array::from(0f32), |sum, x| sum + mean(x))
}

/// Checks that the gradient on a mesh equals that on one device.
fn derived(p: &Program, mesh: &Mesh, xs: &[Array], checker: &mut Checker) {
    let slope = |xs: &[Array], mesh: Option<&Mesh>| {
        let of = |xs: Vec<Array>| Ok::<Array, atmesh::Error>(loss(p.run(&xs, mesh, Written::default())?));
        read(&grad(&xs.to_vec(), of))
    };
    match slope(&p.numbers(0), None) {
        Ok(want) => {
            if let Some(got) = checker.runs("it has a gradient on a mesh", slope(xs, Some(mesh))) {
                let near = near(&got, &want, 2e-4);
                checker.holds("the gradient on any mesh = on one device", near, || {
                    format!("{got:?}, not {want:?}")
                });
            }
        }
        Err(e) if e.unquoted().contains("which a while loop does not have") => {
            drop(crate::error_checks::well(e))
        }
        Err(e) => drop(checker.runs::<()>("it has a gradient", Err(e))),
    }
}

fn machine() -> Machine {
    let whole = Machine::new("any").flops(F32, 1e9).elementwise(1e8).memory(1e9, 1e7).launch_overhead(1e-6);
    whole.links(Link::ring(1e6).latency(1e-6))
}

/// Checks that a plan has times, overlaps no time twice, and moves the bytes of the report (for
/// branches, those of one branch).
fn is_a_plan(plan: &Plan, report: &Collectives) -> Result<()> {
    let moves = plan.entries().iter().filter(|i| i.kind != EntryKind::Kernel);
    let bytes: f64 = moves.map(|i| i.bytes * i.count as f64).sum();
    let near = |a: f64, b: f64| a <= b * (1.0 + 1e-9) + 1e-12;
    let hidden = |i: &plan::PlanEntry| i.overlapped >= 0.0 && near(i.overlapped, i.seconds);
    let times = plan.entries().iter().all(|i| i.start >= 0.0 && i.seconds > 0.0 && hidden(i));
    let seconds = plan.seconds();
    let whole = near(plan.kernel_seconds(), seconds) && near(plan.exposed_seconds(), seconds);
    let sum = near(seconds, plan.kernel_seconds() + plan.exposed_seconds());
    match times && whole && sum && near(bytes, report.bytes() as f64) {
        true => Ok(()),
        false => Err(Error::other(format!("a plan that is none: {}\n{report}", plan.to_json()))),
    }
}

/// Runs on a mesh: the results equal those of one device, and do not depend on names, the order of
/// operands, or the order of lines.
fn on_a_mesh(
    p: &Program,
    auto: &dyn Fn(usize) -> bool,
    want: &Numbers,
    rng: &mut Rng,
    checker: &mut Checker,
) {
    // The other names sort in another order.
    let (names, others) = (["axis_k", "axis_l", "axis_m"], ["axis_z", "axis_b", "axis_a"]);
    let (mesh, numbers) = (p.mesh(names, auto), p.numbers(0));
    let xs = p.placed(&numbers, &mesh);
    let mut p = p.clone();
    let Some(eager) = checker.runs("what is replicated is accepted", p.accept(&xs, &mesh)) else { return };
    if let Some(got) = checker.runs("it runs on a mesh", read(&eager)) {
        checker.holds("any mesh = one device, at once", near(&got, want, 3e-5), || {
            format!("{mesh}: {got:?}, not {want:?}")
        });
    }
    let p = &p;
    // Returns the report, the results, and their shardings.
    let on = |mesh: &Mesh, xs: &Vec<Array>, written: Written, engine| -> Result<_> {
        let f = jit(|xs: &Vec<Array>| p.run(xs, Some(mesh), written)).engine(engine);
        let lowered = f.lower(xs)?;
        let report = lowered.collectives().clone();
        is_a_plan(&lowered.plan(&machine())?, &report)?;
        let results = f.call(xs)?;
        Ok((report, placed(&results), read(&results)?))
    };
    let plain = on(&mesh, &xs, Written::default(), EngineKind::Lockstep);
    let Some((report, result_types, got)) = checker.runs("it runs on a mesh compiled", plain) else { return };
    checker
        .holds("any mesh = one device", near(&got, want, 3e-5), || format!("{mesh}: {got:?}, not {want:?}"));
    for (engine, bits) in [(EngineKind::Threads, true), (EngineKind::Reference, false)] {
        if let Some((.., other)) =
            checker.runs("it runs on every engine", on(&mesh, &xs, Written::default(), engine))
        {
            let ok = if bits { same(&other, &got) } else { near(&other, &got, 3e-5) };
            checker
                .holds("engines agree on a mesh", ok, || format!("{mesh}, {engine}: {other:?}, not {got:?}"));
        }
    }
    // The program's results do not depend on the cost of a byte.
    let machine = machine().links(Link::ring([1e2, 1e8, 1e10, f64::INFINITY][rng.below(4)]));
    let priced = jit(|xs: &Vec<Array>| p.run(xs, Some(&mesh), Written::default())).cost_model(&machine, F32);
    let priced = priced.call(&xs).and_then(|y| Ok((placed(&y), read(&y)?)));
    if let Some((l, y)) = checker.runs("it runs as planned for a machine", priced) {
        checker.holds("for a machine: the same types", l == result_types, || {
            format!("{mesh}: {l:?}, not {result_types:?}")
        });
        checker.holds("for a machine: the same numbers", near(&y, &got, 3e-5), || {
            format!("{mesh}: {y:?}, not {got:?}")
        });
    }
    if auto(0) == auto(1) && !auto(0) {
        let types = |result_types: &[String]| result_types.join("; ");
        let eager = placed(&eager);
        checker.holds("types at once = types compiled", eager == result_types, || {
            format!("{} {}", types(&eager), types(&result_types))
        });
    }
    let sum = |r: &Collectives| (communicated(r), r.bytes(), r.total_bytes());
    let swapped = Written { swapped: true, ..Written::default() };
    if let Some((r, l, _)) = checker.runs("b + a runs", on(&mesh, &xs, swapped, EngineKind::Lockstep)) {
        checker.holds("b + a is placed as a + b", l == result_types, || {
            format!("{mesh}: {l:?}, not {result_types:?}")
        });
        checker.holds("b + a communicates as a + b", sum(&r) == sum(&report), || {
            format!("{mesh}:\n{r}\n{report}")
        });
    }
    let order = p.reordered(rng);
    let other = Written { order: Some(&order), ..Written::default() };
    if let Some((r, l, y)) = checker.runs("another order runs", on(&mesh, &xs, other, EngineKind::Lockstep)) {
        let order_text = || format!("{mesh} {order:?}");
        checker.holds("another order is placed alike", l == result_types, || {
            format!("{}: {l:?}, not {result_types:?}", order_text())
        });
        checker.holds("another order communicates alike", sum(&r) == sum(&report), || {
            format!("{}:\n{r}\n{report}", order_text())
        });
        checker.holds("another order: the same numbers", near(&y, &got, 3e-5), || {
            format!("{}: {y:?}, not {got:?}", order_text())
        });
    }
    let slope = |xs: &Vec<Array>| {
        grad(xs, |xs: Vec<Array>| {
            Ok::<_, atmesh::Error>(loss(p.run(&xs, Some(&mesh), Written::default())?))
        })
    };
    let run = |xs: &Vec<Array>| p.run(xs, Some(&mesh), Written::default());
    let traced = [jit(run).trace(&xs), jit(slope).trace(&xs)];
    for traced in traced.iter().flatten() {
        at_every_depth(traced.program(), rng, checker);
        printed_alike(traced.program(), rng, checker);
    }
    let renamed = p.mesh(others, auto);
    let ys = p.placed(&numbers, &renamed);
    let run = |xs: &Vec<Array>| p.run(xs, Some(&renamed), Written::default());
    let first = traced[0].as_ref().ok().and_then(|t| text(t.program()).ok());
    let renamed = jit(run).trace(&ys).and_then(|t| Ok((text(t.program())?, read(&jit(run).call(&ys)?)?)));
    if let Some((mut other, y)) = checker.runs("it runs with other names", renamed) {
        for (name, other_name) in names.into_iter().zip(others) {
            other = other.replace(other_name, name);
        }
        checker.holds("other names are laid out alike, byte by byte", first.as_ref() == Some(&other), || {
            format!("{mesh}:\n{other}\n{}", first.unwrap_or_default())
        });
        checker.holds("other names: the same bits", same(&y, &got), || format!("{mesh}: {y:?}, not {got:?}"));
    }
    derived(p, &mesh, &xs, checker);
}

/// Checks other orders of equations and operands, also in nested programs.
fn at_every_depth(program: &atmesh::program::Program, rng: &mut Rng, checker: &mut Checker) {
    let sum = |r: &Collectives| (communicated(r), r.bytes(), r.total_bytes());
    let Some((report, results)) = checker.runs("it is planned", planned(program)) else { return };
    for _ in 0..3 {
        let other = otherwise(program, rng);
        let Some((r, y)) = checker.runs("another order is planned", planned(&other)) else { return };
        checker.holds("another order at every depth is placed alike", y == results, || {
            format!("{y:?}, not {results:?}\n{other}")
        });
        checker.holds("another order at every depth communicates alike", sum(&r) == sum(&report), || {
            format!("{r}\n{report}\n{other}")
        });
    }
}

/// Checks that the per-device program and its report are reproducible: a second time, on another
/// thread, and with independent equations in other orders, at every depth.
fn printed_alike(program: &atmesh::program::Program, rng: &mut Rng, checker: &mut Checker) {
    let Some(first) = checker.runs("it is printed", text(program)) else { return };
    let again = || text(program).unwrap_or_default();
    let elsewhere = std::thread::scope(|s| s.spawn(again).join()).unwrap_or_default();
    checker.holds("again: the same text", again() == first, || format!("{}\n{first}", again()));
    checker.holds("on another thread: the same text", elsewhere == first, || format!("{elsewhere}\n{first}"));
    for _ in 0..3 {
        let other = written(program, rng, false);
        let Some(second) = checker.runs("another order is printed", text(&other)) else { return };
        let how = differs(&first, &second);
        checker.holds("another order at every depth prints alike", how.is_none(), || {
            format!("{}\n{first}\n{second}", how.unwrap_or_default())
        });
    }
}

/// Runs the program as per-device code on blocks: each device runs it independently.
fn per_device(p: &Program, checker: &mut Checker) {
    let mesh = p.mesh(["X", "Y", "Z"], |_| false);
    let each: Vec<Vec<Array>> = (0..mesh.size()).map(|k| p.numbers(10 * k)).collect();
    let all: Vec<Array> = (0..each[0].len()).map(|k| stack(each.iter().map(|xs| &xs[k]), 0)).collect();
    let body = |xs: &Vec<Array>| -> Result<Vec<Array>> {
        let own: Vec<Array> = xs.iter().map(|x| x.squeeze(0)).collect();
        Ok(p.run(&own, None, Written::default())?.into_iter().map(|y| y.expand_dims(0)).collect())
    };
    let spec = Spec::from_dims(vec![Axes::from(mesh.axis_names())]);
    let run = |engine| shard_map(&mesh, spec, spec, body).engine(engine).call(&all).and_then(|y| read(&y));
    let one = |xs: &Vec<Array>| p.run(xs, None, Written::default()).and_then(|y| read(&y));
    let alone: Result<Vec<Numbers>> = each.iter().map(one).collect();
    let want = alone.map(|all| -> Numbers {
        (0..all[0].len()).map(|r| all.iter().flat_map(|y| y[r].clone()).collect()).collect()
    });
    if let (Some(a), Some(b), Some(want)) = (
        checker.runs("it runs on each device", run(EngineKind::Lockstep)),
        checker.runs("it runs on a thread for each device", run(EngineKind::Threads)),
        checker.runs("it runs alone", want),
    ) {
        checker.holds("per device = a loop over devices", near(&a, &want, 3e-5), || {
            format!("{mesh}: {a:?}, not {want:?}")
        });
        checker
            .holds("per device: engines agree, bit by bit", same(&a, &b), || format!("{mesh}: {a:?}, {b:?}"));
    }
}

/// Devices along some axes have equal values, compute equal results, and declare them so: nothing
/// is moved, and consumers may reshard the result. Values differ along the other axes.
fn per_device_unchecked(p: &Program, rng: &mut Rng, checker: &mut Checker) {
    let mesh = p.mesh(["X", "Y", "Z"], |_| false);
    let axes = mesh.axis_names();
    let mut differ: Vec<Axis> = axes.iter().copied().filter(|_| rng.once_in(2)).collect();
    differ.truncate(axes.len() - 1);
    let alike: Vec<Axis> = axes.iter().copied().filter(|a| !differ.contains(a)).collect();
    let sets = differ.iter().map(|a| mesh.axis_size(*a).unwrap_or(1)).product();
    let each: Vec<Vec<Array>> = (0..sets).map(|k| p.numbers(10 * k)).collect();
    let all: Vec<Array> = (0..each[0].len()).map(|k| stack(each.iter().map(|xs| &xs[k]), 0)).collect();
    let body = |xs: &Vec<Array>| -> Result<Vec<Array>> {
        // The types cannot prove that this is the same everywhere.
        let zero = alike.iter().fold(Array::from(0f32), |sum, a| sum + axis_index(*a).astype(F32) * 0.0);
        let own: Vec<Array> = xs.iter().map(|x| x.squeeze(0) + &zero).collect();
        Ok(p.run(&own, None, Written::default())?.into_iter().map(|y| y.expand_dims(0)).collect())
    };
    let at = Spec::from_dims(vec![Axes::from(&differ[..])]);
    let f = shard_map(&mesh, at, at, body).unchecked();
    let one = |xs: &Vec<Array>| p.run(xs, None, Written::default()).and_then(|y| read(&y));
    let alone: Result<Vec<Numbers>> = each.iter().map(one).collect();
    let want = alone.map(|all| -> Numbers {
        (0..all[0].len()).map(|r| all.iter().flat_map(|y| y[r].clone()).collect()).collect()
    });
    let Some(want) = checker.runs("it runs alone", want) else { return };
    if let Some(l) = checker.runs("what is said to be the same is lowered", f.lower(&all)) {
        let moved = l.collectives();
        checker.holds("what is said to be the same is not moved", moved.is_empty(), || {
            format!("{mesh}\n{moved}\n{l}")
        });
    }
    let number = rng.below(1 << 16);
    let elsewhere = |xs: &Vec<Array>| -> Result<Vec<Array>> {
        let resharded = |y: &Array| Ok(y.reshard(spec(&mesh, &y.shape()?, number, axes)));
        f.call(xs)?.iter().map(resharded).collect()
    };
    for engine in [EngineKind::Lockstep, EngineKind::Threads, EngineKind::Reference] {
        let ways = [
            f.call(&all).and_then(|y| read(&y)),
            jit(elsewhere).engine(engine).call(&all).and_then(|y| read(&y)),
        ];
        for (got, what) in ways.into_iter().zip(["as it is", "split otherwise"]) {
            let Some(got) = checker.runs("what is said to be the same runs", got) else { return };
            checker.holds("what is said to be the same = alone", near(&got, &want, 3e-5), || {
                format!("{mesh}, differs over {differ:?}, {engine}, {what}: {got:?}, not {want:?}")
            });
        }
    }
}

fn laws(seed: u64) -> Vec<String> {
    let mut rng = Rng::new(seed);
    let p = Program::new(&mut rng);
    let mut checker = Checker { wrong: Vec::new(), program: &p };
    let Some(want) = on_one_device(&p, &mut checker) else { return checker.wrong };
    match seed % 5 {
        0 | 1 => on_a_mesh(&p, &|_| false, &want, &mut rng, &mut checker),
        2 => on_a_mesh(&p, &|_| true, &want, &mut rng, &mut checker),
        3 => on_a_mesh(&p, &|k| k == 0, &want, &mut rng, &mut checker),
        _ => {
            per_device(&p, &mut checker);
            per_device_unchecked(&p, &mut rng, &mut checker);
        }
    }
    checker.wrong
}

#[test]
fn programs_do_not_depend_on_how_they_are_run_placed_and_written() {
    quiet_law("holds::programs_do_not_depend_on_how_they_are_run_placed_and_written", 60, laws);
}
