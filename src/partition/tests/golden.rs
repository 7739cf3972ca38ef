//! Golden figures: bytes moved by views, products, stencils and loops, and partition time.

use super::random::{part, product};
use super::{oracle::check, plain::plain};
use crate::DType::F32;
use crate::core::{Mesh, Scalar, Shape, sharding::sub_axes::from_axes};
use crate::ir::program::{
    AffineExpr, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarOp, StridedRange,
};
use crate::partition::assign::pipeline::{self, Partitioned};
use crate::partition::collective::{Collective, CollectiveKind};
use crate::partition::cost::compute::TransferPrices;
use crate::partition::draft::{Draft, copy_nest, map_nest, reshape_nest};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::{Slot, StepOrigin};

fn mesh(axes: &[(&str, usize)]) -> Mesh {
    Mesh::without_devices(axes.iter().copied()).expect("a mesh")
}

/// Returns a layout from the axis names of each dimension: `x y -`, several axes as `x+y`.
fn layout(mesh: &Mesh, shape: &[usize], spec: &str) -> Layout {
    let dims = shape.iter().zip(spec.split(' ')).map(|(n, names)| {
        let names = names.split('+').filter(|n| *n != "-").map(Into::into);
        DimLayout::new(*n, from_axes(mesh, names))
    });
    Layout { dims: dims.collect(), partial: None }
}

fn why() -> StepOrigin {
    StepOrigin { op: "test".into(), ..StepOrigin::default() }
}

/// A draft under construction.
struct TestDraft {
    d: Draft,
    mesh: Mesh,
}

impl TestDraft {
    fn on(axes: &[(&str, usize)]) -> TestDraft {
        let mesh = mesh(axes);
        TestDraft { d: Draft::new(mesh.size(), Some(mesh.clone()), TransferPrices::default()), mesh }
    }
    fn input(&mut self, shape: &[usize], spec: &str) -> Slot {
        let s = self.d.add_slot(F32, Shape::from(shape), layout(&self.mesh, shape, spec));
        self.d.ins.push(s);
        s
    }
    fn local(&mut self, s: LoopNest, spec: &str) -> Slot {
        let l = layout(&self.mesh, &s.extents[..s.rank], spec);
        self.d.add_local(s, l, &why())
    }
    fn shape(&self, s: Slot) -> Vec<usize> {
        self.d.slots[s].shape.to_vec()
    }
    fn dot(&mut self, a: Slot, b: Slot, spec: &str) -> Slot {
        let s = product(a, &self.shape(a), b, &self.shape(b));
        self.local(s, spec)
    }
    /// Adds a slice of `n` elements of dimension 0, starting at `start`, with stride `step`.
    fn slice(&mut self, a: Slot, start: i64, n: usize, step: i64, spec: &str) -> Slot {
        let mut to = self.shape(a);
        to[0] = n;
        let mut map = AffineExpr::identity(to.len());
        map[0] = AffineExpr::linear(start, 0, step);
        self.local(map_nest(part(a, &to, map), &to), spec)
    }
    fn done(mut self, out: Slot) -> Partitioned {
        self.d.outs.push(out);
        let program = pipeline::run_pipeline(self.d).expect("a plan").partitioned;
        if program.program.devices <= 16 {
            // check the results too
            let args: Vec<Vec<f64>> = (program.program.ins.iter())
                .map(|s| {
                    (0..program.program.slots[*s].shape.num_elements()).map(|i| (i % 11) as f64).collect()
                })
                .collect();
            let expected = plain(&program.program, &args);
            let traffic = check(&program.program, &expected, &args);
            assert_eq!(
                traffic.elements as u64 * 4,
                program.collectives.total_bytes(),
                "the report tells what moves"
            );
            let messages: u64 = program.collectives.iter().map(|c| c.messages).sum();
            assert_eq!(traffic.messages as u64, messages);
        }
        program
    }
    fn bytes(self, out: Slot) -> u64 {
        self.done(out).collectives.bytes()
    }
}

#[test]
fn products_move_what_the_design_says() {
    let dot = |mesh: &[(&str, usize)], a: &str, b: &str, to: &str| {
        let mut p = TestDraft::on(mesh);
        let (x, y) = (p.input(&[8, 16], a), p.input(&[16, 12], b));
        let out = p.dot(x, y, to);
        p.bytes(out)
    };
    let one = [("x", 4)];
    let two = [("x", 4), ("y", 2)];
    // split along the contracted dimension on both sides: all-reduce or reduce-scatter
    let v = 8 * 12 * 4;
    assert_eq!(dot(&one, "- x", "x -", "- -"), 2 * v * 3 / 4);
    assert_eq!(dot(&one, "- x", "x -", "x -"), v * 3 / 4);
    // nothing moves
    assert_eq!(dot(&one, "x -", "- -", "x -"), 0);
    assert_eq!(dot(&two, "x -", "- y", "x y"), 0);
    // the smaller operand moves, or less
    assert!(dot(&two, "x y", "y -", "x -") <= 8 / 4 * 12 * 4);
    // one operand and the result move
    assert_eq!(dot(&one, "x -", "- x", "- -"), (8 * 16 + 8 * 12) * 4 * 3 / 4);
}

#[test]
fn views_of_64_on_8_move_only_their_edges() {
    let on = [("x", 8)];
    let slice = |start, n, step| {
        let mut p = TestDraft::on(&on);
        let x = p.input(&[64], "x");
        let out = p.slice(x, start, n, step, "x");
        p.bytes(out)
    };
    assert_eq!(slice(0, 32, 1), 16);
    assert_eq!(slice(8, 32, 1), 16);
    assert_eq!(slice(16, 48, 1), 24);
    assert_eq!(slice(0, 32, 2), 0);
    assert_eq!(slice(63, 64, -1), 32);
    let pad = |low: i64, high: i64, inner: i64| {
        let mut p = TestDraft::on(&on);
        let x = p.input(&[64], "x");
        let to = [(low + 63 * (1 + inner) + 1 + high) as usize];
        let mut read = part(x, &to, AffineExpr::identity(1));
        read.pieces[0].ranges[0] = StridedRange { lo: low, hi: low + 63 * (1 + inner) + 1, step: 1 + inner };
        let out = p.local(map_nest(read, &to), "x");
        p.bytes(out)
    };
    assert_eq!(pad(4, 4, 0), 12);
    assert_eq!(pad(0, 1, 1), 0);
    let reshaped = |from: usize, to: [usize; 2], spec: &str| {
        let mut p = TestDraft::on(&on);
        let x = p.input(&[from], "x");
        let out = p.local(reshape_nest(x, F32, &[from], &to), spec);
        p.bytes(out)
    };
    assert_eq!(reshaped(64, [8, 8], "x -"), 0);
    assert_eq!(reshaped(64, [8, 8], "- x"), 28);
    assert_eq!(reshaped(96, [3, 32], "- x"), 48);
}

/// Adds one step of the heat equation: the end points stay, the others depend on their neighbours.
fn heat(p: &mut TestDraft, u: Slot, n: usize) -> Slot {
    let inner = n - 2;
    let read = |k: i64| part(u, &[inner], vec![AffineExpr::linear(k, 0, 1)]);
    let mut code = ScalarCode { insts: Vec::new() };
    let twice =
        code.push(ScalarOp::Mul, F32, F32, &[ScalarArg::Access(1), ScalarArg::Const(Scalar::Float(2.0))]);
    let a = code.push(ScalarOp::Sub, F32, F32, &[ScalarArg::Access(2), twice]);
    code.push(ScalarOp::Add, F32, F32, &[a, ScalarArg::Access(0)]);
    let reads = vec![read(0), read(1), read(2)];
    let s =
        LoopNest { extents: vec![inner], rank: 1, dtype: F32, accesses: reads, compute: Compute::Map(code) };
    let middle = p.local(s, "x");
    // the ends of u, with the new middle between them
    let mut full = part(u, &[n], AffineExpr::identity(1));
    let mut pieces = Vec::new();
    for (lo, hi, from) in [(0, 1, u), (1, n - 1, middle), (n - 1, n, u)] {
        let mut q = full.pieces[0].clone();
        q.ranges[0] = StridedRange { lo: lo as i64, hi: hi as i64, step: 1 };
        q.source = crate::ir::program::loop_nest::Source::Value(from);
        q.map[0].constant = if from == u { lo as i64 } else { 0 };
        pieces.push(q);
    }
    full.pieces = pieces;
    p.local(map_nest(full, &[n]), "x")
}

#[test]
fn a_heat_step_exchanges_one_element_with_each_neighbour() {
    for (devices, messages) in [(1, 0), (2, 2), (4, 6), (8, 14)] {
        let mut p = TestDraft::on(&[("x", devices)]);
        let u = p.input(&[102], "x");
        let out = heat(&mut p, u, 102);
        let c = p.done(out).collectives;
        assert_eq!(c.total_bytes(), 4 * messages);
        if messages > 0 {
            c.assert(&[(CollectiveKind::Halo, "x".into(), 1)]);
            let only = c.iter().next().expect("one");
            assert_eq!((only.messages, only.bytes_per_device), (messages, if devices == 2 { 4 } else { 8 }));
        }
    }
    // three steps in a row move the same bytes in fewer messages
    let mut p = TestDraft::on(&[("x", 8)]);
    let u = p.input(&[102], "x");
    let v = heat(&mut p, u, 102);
    let w = heat(&mut p, v, 102);
    let out = heat(&mut p, w, 102);
    assert!(p.done(out).collectives.total_bytes() <= 168);
}

#[test]
fn weights_that_two_products_read_are_gathered_once() {
    let mut p = TestDraft::on(&[("x", 8)]);
    let (a, b, w) = (p.input(&[64, 8], "x -"), p.input(&[64, 8], "x -"), p.input(&[8, 8], "x -"));
    let (ya, yb) = (p.dot(a, w, "x -"), p.dot(b, w, "x -"));
    p.d.outs.push(ya);
    let c = p.done(yb).collectives;
    c.assert(&[(CollectiveKind::AllGather, "x".into(), 1)]);
    assert_eq!(c.bytes(), 8 * 8 * 4 * 7 / 8);
}

#[test]
fn partials_become_full_or_scattered() {
    let reduced = |spec: &str| {
        let mut p = TestDraft::on(&[("x", 4), ("y", 2)]);
        let (a, b) = (p.input(&[16, 32], "y x"), p.input(&[32, 24], "x -"));
        let s = product(a, &[16, 32], b, &[32, 24]);
        let mut l = layout(&p.mesh, &[16, 24], "y -");
        l.partial = Some((crate::ir::program::loop_nest::Reducer::Add, from_axes(&p.mesh, ["x".into()])));
        let partials = p.d.add_local(s, l, &why());
        let out = p.local(copy_nest(partials, F32, &[16, 24]), spec);
        p.done(out).collectives
    };
    let v = 8 * 24 * 4;
    let all = reduced("y -");
    all.assert(&[(CollectiveKind::AllReduce, "x".into(), 1)]);
    assert_eq!(all.bytes(), 2 * v * 3 / 4);
    let scattered = reduced("y x");
    scattered.assert(&[(CollectiveKind::ReduceScatter, "x".into(), 1)]);
    assert_eq!(scattered.bytes(), v * 3 / 4);
}

#[test]
fn plans_for_65536_devices_take_no_longer() {
    let plan = |n: usize| {
        let started = std::time::Instant::now();
        let mut p = TestDraft::on(&[("x", n)]);
        let u = p.input(&[13 * n - 2], "x");
        let out = heat(&mut p, u, 13 * n - 2);
        let c = p.done(out).collectives;
        assert_eq!(c.total_bytes(), 8 * (n as u64 - 1));
        // an uneven dimension is moved to another axis order
        let mut p = TestDraft::on(&[("x", n / 8), ("y", 8)]);
        let u = p.input(&[n, n], "x y");
        let out = p.local(copy_nest(u, F32, &[n, n]), "y x");
        p.done(out);
        started.elapsed()
    };
    plan(32);
    let slow = plan(65_536);
    assert!(slow.as_secs_f64() < 2.0, "{slow:?}");
}

#[test]
fn every_pair_of_shardings_moves_the_least() {
    for (axes, sizes) in [(vec![("x", 2), ("y", 2)], [4, 4]), (vec![("x", 2), ("y", 3)], [6, 5])] {
        let entries = ["-", "x", "y", "x+y", "y+x"];
        let mut specs = Vec::new();
        for a in entries {
            for b in entries {
                let used = |s: &str, n: &str| s.split('+').any(|x| x == n);
                if !["x", "y"].iter().any(|n| used(a, n) && used(b, n)) {
                    specs.push(format!("{a} {b}"));
                }
            }
        }
        for from in &specs {
            for to in &specs {
                let mut p = TestDraft::on(&axes);
                let x = p.input(&sizes, from);
                let out = p.local(copy_nest(x, F32, &sizes), to);
                // the oracle compares with the elements actually read
                p.done(out);
            }
        }
    }
}

/// Checks the layouts of a value that is declared equal along `x` and is sharded along `y`.
///
/// Consumers use what their own device holds. If that is another block, one of the holders sends
/// it.
#[test]
fn of_what_is_said_to_be_the_same_one_is_sent() {
    let told = |to: &str| {
        let mut p = TestDraft::on(&[("x", 4), ("y", 2)]);
        let a = p.input(&[8, 6], "y -");
        let map = (0..2).map(|d| AffineExpr::linear(0, d + 1, 1)).collect();
        let copies = p.local(map_nest(part(a, &[4, 8, 6], map), &[4, 8, 6]), "x y -");
        p.d.steps.last_mut().expect("just made").info.constrained = true;
        let map = [2, 0, 1].map(|l| AffineExpr::linear(0, l, 1)).to_vec();
        let body = Compute::Reduce { reducer: Reducer::AssumeEqual, code: ScalarCode::copy(F32) };
        let reads = vec![part(copies, &[8, 6, 4], map)];
        let one = LoopNest { extents: vec![8, 6, 4], rank: 2, dtype: F32, accesses: reads, compute: body };
        let out = p.local(one, to);
        let all = p.done(out).collectives;
        let line = |c: &Collective| {
            (c.kind, c.axes.to_string(), c.bytes_per_device, c.total_bytes, c.messages, c.reason.clone())
        };
        all.iter().map(line).collect::<Vec<_>>()
    };
    // the consumer needs its device's block, or a piece of it
    assert_eq!(told("y -"), []);
    assert_eq!(told("y x"), []);
    assert_eq!(told("y+x -"), []);
    let reason =
        "test says that devices along x have the same: one of them is sent where another block of it is read";
    let exchange = |bytes, all, messages| {
        vec![(CollectiveKind::Exchange, "(x,y)".to_string(), bytes, all, messages, reason.to_string())]
    };
    // the other half comes from the neighbouring device
    assert_eq!(told("- -"), exchange(4 * 6 * 4, 8 * 4 * 6 * 4, 8));
    // half of the columns of the other half of the rows is sent
    assert_eq!(told("- y"), exchange(4 * 3 * 4, 8 * 4 * 3 * 4, 8));
}
