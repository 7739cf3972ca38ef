//! Figures that must not get worse: bytes of views, products, stencils and loops, and the time that plans take.

use super::oracle::{check, plain};
use super::random::{part, product};
use crate::DType::F32;
use crate::mesh::Mesh;
use crate::partition::draft::{Draft, copy, mapped, reshape};
use crate::partition::lay::plan;
use crate::partition::lay::plan::Localised;
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::price::work::PerByte;
use crate::partition::program::{Slot, Why};
use crate::partition::report::{Collective, Kind};
use crate::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Sentence, Span};
use crate::sharding::atoms::of_axes;
use crate::types::{Scalar, Shape};

fn mesh(axes: &[(&str, usize)]) -> Mesh {
    Mesh::without_devices(axes.iter().copied()).expect("a mesh")
}

/// A layout by the names of the axes of each dimension: `x y -`, several axes as `x+y`.
fn lay(mesh: &Mesh, shape: &[usize], spec: &str) -> Layout {
    let dims = shape.iter().zip(spec.split(' ')).map(|(n, names)| {
        let names = names.split('+').filter(|n| *n != "-").map(Into::into);
        DimLayout::new(*n, of_axes(mesh, names))
    });
    Layout { dims: dims.collect(), partial: None }
}

fn why() -> Why {
    Why { op: "test".into(), ..Why::default() }
}

struct Plan {
    d: Draft,
    mesh: Mesh,
}

impl Plan {
    fn on(axes: &[(&str, usize)]) -> Plan {
        let mesh = mesh(axes);
        Plan { d: Draft::new(mesh.size(), Some(mesh.clone()), PerByte::default()), mesh }
    }
    fn input(&mut self, shape: &[usize], spec: &str) -> Slot {
        let s = self.d.slot(F32, Shape::from(shape), lay(&self.mesh, shape, spec));
        self.d.ins.push(s);
        s
    }
    fn local(&mut self, s: Sentence, spec: &str) -> Slot {
        let l = lay(&self.mesh, &s.extents[..s.rank], spec);
        self.d.local(s, l, &why())
    }
    fn shape(&self, s: Slot) -> Vec<usize> {
        self.d.slots[s].shape.to_vec()
    }
    fn dot(&mut self, a: Slot, b: Slot, spec: &str) -> Slot {
        let s = product(a, &self.shape(a), b, &self.shape(b));
        self.local(s, spec)
    }
    /// A slice from `start` with `n` elements of dimension 0, every `step`th.
    fn slice(&mut self, a: Slot, start: i64, n: usize, step: i64, spec: &str) -> Slot {
        let mut to = self.shape(a);
        to[0] = n;
        let mut map = Affine::identity(to.len());
        map[0] = Affine::of(start, 0, step);
        self.local(mapped(part(a, &to, map), &to), spec)
    }
    fn done(mut self, out: Slot) -> Localised {
        self.d.outs.push(out);
        let program = plan::plan(self.d).expect("a plan").localised;
        if program.program.devices <= 16 {
            // it is also right
            let args: Vec<Vec<f64>> = (program.program.ins.iter())
                .map(|s| (0..program.program.slots[*s].shape.elements()).map(|i| (i % 11) as f64).collect())
                .collect();
            let wanted = plain(&program.program, &args);
            let traffic = check(&program.program, &wanted, &args);
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
        let mut p = Plan::on(mesh);
        let (x, y) = (p.input(&[8, 16], a), p.input(&[16, 12], b));
        let out = p.dot(x, y, to);
        p.bytes(out)
    };
    let one = [("x", 4)];
    let two = [("x", 4), ("y", 2)];
    // split along the contracted dimension on both sides: one reduction, or scattered
    let v = 8 * 12 * 4;
    assert_eq!(dot(&one, "- x", "x -", "- -"), 2 * v * 3 / 4);
    assert_eq!(dot(&one, "- x", "x -", "x -"), v * 3 / 4);
    // nothing to move
    assert_eq!(dot(&one, "x -", "- -", "x -"), 0);
    assert_eq!(dot(&two, "x -", "- y", "x y"), 0);
    // the smaller operand, or less
    assert!(dot(&two, "x y", "y -", "x -") <= 8 / 4 * 12 * 4);
    // one operand, and the result
    assert_eq!(dot(&one, "x -", "- x", "- -"), (8 * 16 + 8 * 12) * 4 * 3 / 4);
}

#[test]
fn views_of_64_on_8_move_only_their_edges() {
    let on = [("x", 8)];
    let slice = |start, n, step| {
        let mut p = Plan::on(&on);
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
        let mut p = Plan::on(&on);
        let x = p.input(&[64], "x");
        let to = [(low + 63 * (1 + inner) + 1 + high) as usize];
        let mut read = part(x, &to, Affine::identity(1));
        read.parts[0].span[0] = Span { lo: low, hi: low + 63 * (1 + inner) + 1, step: 1 + inner };
        let out = p.local(mapped(read, &to), "x");
        p.bytes(out)
    };
    assert_eq!(pad(4, 4, 0), 12);
    assert_eq!(pad(0, 1, 1), 0);
    let reshaped = |from: usize, to: [usize; 2], spec: &str| {
        let mut p = Plan::on(&on);
        let x = p.input(&[from], "x");
        let out = p.local(reshape(x, F32, &[from], &to), spec);
        p.bytes(out)
    };
    assert_eq!(reshaped(64, [8, 8], "x -"), 0);
    assert_eq!(reshaped(64, [8, 8], "- x"), 28);
    assert_eq!(reshaped(96, [3, 32], "- x"), 48);
}

/// One heat step: the ends stay, the others take from their neighbours.
fn heat(p: &mut Plan, u: Slot, n: usize) -> Slot {
    let inner = n - 2;
    let read = |k: i64| part(u, &[inner], vec![Affine::of(k, 0, 1)]);
    let mut code = Code { insts: Vec::new() };
    let twice = code.push(Fun::Mul, F32, F32, &[Arg::Read(1), Arg::Const(Scalar::Float(2.0))]);
    let a = code.push(Fun::Sub, F32, F32, &[Arg::Read(2), twice]);
    code.push(Fun::Add, F32, F32, &[a, Arg::Read(0)]);
    let reads = vec![read(0), read(1), read(2)];
    let s = Sentence { extents: vec![inner], rank: 1, dtype: F32, reads, body: Body::Map(code) };
    let middle = p.local(s, "x");
    // ends of u around the middle
    let mut whole = part(u, &[n], Affine::identity(1));
    let mut parts = Vec::new();
    for (lo, hi, from) in [(0, 1, u), (1, n - 1, middle), (n - 1, n, u)] {
        let mut q = whole.parts[0].clone();
        q.span[0] = Span { lo: lo as i64, hi: hi as i64, step: 1 };
        q.from = crate::program::sentence::Source::Value(from);
        q.map[0].at = if from == u { lo as i64 } else { 0 };
        parts.push(q);
    }
    whole.parts = parts;
    p.local(mapped(whole, &[n]), "x")
}

#[test]
fn a_heat_step_exchanges_one_element_with_each_neighbour() {
    for (devices, messages) in [(1, 0), (2, 2), (4, 6), (8, 14)] {
        let mut p = Plan::on(&[("x", devices)]);
        let u = p.input(&[102], "x");
        let out = heat(&mut p, u, 102);
        let c = p.done(out).collectives;
        assert_eq!(c.total_bytes(), 4 * messages);
        if messages > 0 {
            c.assert(&[(Kind::Halo, "x".into(), 1)]);
            let only = c.iter().next().expect("one");
            assert_eq!((only.messages, only.bytes), (messages, if devices == 2 { 4 } else { 8 }));
        }
    }
    // three steps in a row: the same bytes, fewer messages
    let mut p = Plan::on(&[("x", 8)]);
    let u = p.input(&[102], "x");
    let v = heat(&mut p, u, 102);
    let w = heat(&mut p, v, 102);
    let out = heat(&mut p, w, 102);
    assert!(p.done(out).collectives.total_bytes() <= 168);
}

#[test]
fn weights_that_two_products_read_are_gathered_once() {
    let mut p = Plan::on(&[("x", 8)]);
    let (a, b, w) = (p.input(&[64, 8], "x -"), p.input(&[64, 8], "x -"), p.input(&[8, 8], "x -"));
    let (ya, yb) = (p.dot(a, w, "x -"), p.dot(b, w, "x -"));
    p.d.outs.push(ya);
    let c = p.done(yb).collectives;
    c.assert(&[(Kind::AllGather, "x".into(), 1)]);
    assert_eq!(c.bytes(), 8 * 8 * 4 * 7 / 8);
}

#[test]
fn parts_become_whole_or_scattered() {
    let reduced = |spec: &str| {
        let mut p = Plan::on(&[("x", 4), ("y", 2)]);
        let (a, b) = (p.input(&[16, 32], "y x"), p.input(&[32, 24], "x -"));
        let s = product(a, &[16, 32], b, &[32, 24]);
        let mut l = lay(&p.mesh, &[16, 24], "y -");
        l.partial = Some((crate::program::sentence::Combine::Add, of_axes(&p.mesh, ["x".into()])));
        let parts = p.d.local(s, l, &why());
        let out = p.local(copy(parts, F32, &[16, 24]), spec);
        p.done(out).collectives
    };
    let v = 8 * 24 * 4;
    let all = reduced("y -");
    all.assert(&[(Kind::AllReduce, "x".into(), 1)]);
    assert_eq!(all.bytes(), 2 * v * 3 / 4);
    let scattered = reduced("y x");
    scattered.assert(&[(Kind::ReduceScatter, "x".into(), 1)]);
    assert_eq!(scattered.bytes(), v * 3 / 4);
}

#[test]
fn plans_for_65536_devices_take_no_longer() {
    let plan = |n: usize| {
        let started = std::time::Instant::now();
        let mut p = Plan::on(&[("x", n)]);
        let u = p.input(&[13 * n - 2], "x");
        let out = heat(&mut p, u, 13 * n - 2);
        let c = p.done(out).collectives;
        assert_eq!(c.total_bytes(), 8 * (n as u64 - 1));
        // an uneven dimension moved to another axis order
        let mut p = Plan::on(&[("x", n / 8), ("y", 8)]);
        let u = p.input(&[n, n], "x y");
        let out = p.local(copy(u, F32, &[n, n]), "y x");
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
                let mut p = Plan::on(&axes);
                let x = p.input(&sizes, from);
                let out = p.local(copy(x, F32, &sizes), to);
                // the oracle compares with what is read, element by element
                p.done(out);
            }
        }
    }
}

/// Of a value that devices along `x` are said to have alike, laid along `y`: its readers take what their devices have, and where that is
/// another block, one of the holders sends it.
#[test]
fn of_what_is_said_to_be_the_same_one_is_sent() {
    let told = |to: &str| {
        let mut p = Plan::on(&[("x", 4), ("y", 2)]);
        let a = p.input(&[8, 6], "y -");
        let map = (0..2).map(|d| Affine::of(0, d + 1, 1)).collect();
        let copies = p.local(mapped(part(a, &[4, 8, 6], map), &[4, 8, 6]), "x y -");
        p.d.items.last_mut().expect("just made").pinned = true;
        let map = [2, 0, 1].map(|l| Affine::of(0, l, 1)).to_vec();
        let body = Body::Fold { combine: Combine::Same, code: Code::copy(F32) };
        let reads = vec![part(copies, &[8, 6, 4], map)];
        let one = Sentence { extents: vec![8, 6, 4], rank: 2, dtype: F32, reads, body };
        let out = p.local(one, to);
        let all = p.done(out).collectives;
        let line = |c: &Collective| {
            (c.kind, c.axes.to_string(), c.bytes, c.total_bytes, c.messages, c.reason.clone())
        };
        all.iter().map(line).collect::<Vec<_>>()
    };
    // of its own block, be it all of it or a piece
    assert_eq!(told("y -"), []);
    assert_eq!(told("y x"), []);
    assert_eq!(told("y+x -"), []);
    let reason =
        "test says that devices along x have the same: one of them is sent where another block of it is read";
    let exchange = |bytes, all, messages| {
        vec![(Kind::Exchange, "x".to_string(), bytes, all, messages, reason.to_string())]
    };
    // the other half, from the device beside
    assert_eq!(told("- -"), exchange(4 * 6 * 4, 8 * 4 * 6 * 4, 8));
    // a half of the columns: of the other half of the rows
    assert_eq!(told("- y"), exchange(4 * 3 * 4, 8 * 4 * 3 * 4, 8));
}
