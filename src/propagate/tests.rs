//! The worked examples of the reference (numbered rows), and what is ours alone: mixed meshes, control flow, manual regions.
//!
//! Operations are toys that state their factors only, so that nothing here depends on how the real ones state theirs.

use super::propagate;
use crate::diagnostic::{Fault, Result};
use crate::mesh::{Axes, AxisType, Mesh};
use crate::program::sentence::Sentence;
use crate::program::{
    At, Builder, Control, Dim, Factors, Input, Linearity, Loop, Op, Operand, Pin, Placement, Prim, Primitive,
    Program, Rank, ShardMapping, Tangents, Value,
};
use crate::sharding::Spec;
use crate::sharding::atoms::{Atom, Atoms, of_axes, of_spec, ways};
use crate::types::{ArrayType, DType, Shape};
use crate::{axes, p};
use std::sync::Arc;

axes!(pub(super) X, pub(super) Y, pub(super) Z);

#[derive(Clone, Debug)]
struct Toy {
    factors: Factors,
    rank: Rank,
    pin: Option<Pin>,
    /// The result's type, where explicit axes matter.
    ty: Option<ArrayType>,
}

impl Primitive for Toy {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn params(&self) -> String {
        String::new()
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let size = |d: &Dim| d.loops.iter().map(|l| self.factors.loops[*l].size).product::<usize>();
        match self.pin {
            Some(_) => Ok(vec![(DType::F32, operands[0].ty.shape.clone())]),
            None => {
                Ok(self.factors.results.iter().map(|r| (DType::F32, r.iter().map(size).collect())).collect())
            }
        }
    }
    fn factors(&self, _: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        self.factors.clone()
    }
    fn linearity(&self) -> Linearity {
        Linearity::Joint
    }
    fn rank(&self) -> Rank {
        self.rank
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, _: &mut Builder, _: &[Value], t: &[Option<Value>], _: &[Value]) -> Result<Tangents> {
        Ok(t.to_vec())
    }
    fn transpose(
        &self,
        _: &mut Builder,
        _: &[Option<Value>],
        _: &[ArrayType],
        c: &[Option<Value>],
    ) -> Result<Tangents> {
        Ok(c.to_vec())
    }
    fn batched(&self, _: &crate::program::Batch<'_>) -> crate::program::Batched {
        crate::program::Batched::of(std::sync::Arc::new(self.clone()))
    }
    fn sentences(&self, _: &[ArrayType], _: &[ArrayType]) -> Vec<Sentence> {
        Vec::new()
    }
    fn cost(&self) -> f64 {
        1.0
    }
    fn types(&self, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
        let mesh = operands.iter().find_map(|o| o.ty.mesh.clone());
        let types =
            self.shapes(operands)?.into_iter().map(|(d, s)| ArrayType { mesh: mesh.clone(), ..d.of(s) });
        Ok(types.map(|t| self.ty.clone().unwrap_or(t)).collect())
    }
    fn pins(&self) -> Option<Pin> {
        self.pin.clone()
    }
}

/// `ij,jk->ik`; `(ij)` is one dimension of several loops, `~i` at a place known at run time, `'i` stretched, `+i` shifted. After a
/// blank: loops that are needed `whole` (`i!`) or `quiet` (`i?`).
fn toy(text: &str, sizes: &[(char, usize)], rank: Rank) -> Toy {
    let (text, marks) = text.split_once(' ').unwrap_or((text, ""));
    let mut factors = Factors::default();
    for (_, n) in sizes {
        factors.add(*n);
    }
    let index = |c: char| sizes.iter().position(|s| s.0 == c).unwrap();
    for (l, mark) in marks.chars().step_by(2).zip(marks.chars().skip(1).step_by(2)) {
        let l = &mut factors.loops[index(l)];
        l.whole |= mark == '!';
        l.quiet |= mark == '?';
    }
    let tensor = |t: &str| {
        let (mut dims, mut several, mut at) = (Vec::new(), None, At::Same);
        for c in t.chars() {
            match c {
                '(' => several = Some(Vec::new()),
                ')' => dims.push(Dim::several(several.take().unwrap())),
                '~' => at = At::Window,
                '\'' => at = At::Stretched,
                '+' => at = At::Affine { scale: 1, offset: 1, wrap: false },
                c => match &mut several {
                    Some(list) => list.push(index(c)),
                    None => dims.push(Dim::at(index(c), std::mem::replace(&mut at, At::Same))),
                },
            }
        }
        dims
    };
    let (ins, outs) = text.split_once("->").unwrap();
    factors.operands = ins.split(',').map(tensor).collect();
    factors.results = outs.split(',').map(tensor).collect();
    Toy { factors, rank, pin: None, ty: None }
}

/// A program under test on a mesh, and what is expected of its variables.
pub(super) struct Row {
    pub(super) mesh: Mesh,
    pub(super) b: Builder,
    want: Vec<(Value, String)>,
}

impl Row {
    fn new(axes: &[(crate::Axis, usize)]) -> Row {
        Row::on(Mesh::auto(axes.iter().copied()).unwrap())
    }
    pub(super) fn on(mesh: Mesh) -> Row {
        Row { mesh, b: Builder::new(), want: Vec::new() }
    }
    fn ty(&self, shape: &[usize]) -> ArrayType {
        ArrayType { mesh: Some(self.mesh.clone()), ..DType::F32.of(shape) }
    }
    /// An input that lies so.
    pub(super) fn arg(&mut self, shape: &[usize], spec: Spec) -> Value {
        let dims = of_spec(&self.mesh, spec.padded(shape.len()));
        self.arg_at(shape, dims)
    }
    pub(super) fn arg_at(&mut self, shape: &[usize], dims: Vec<Atoms>) -> Value {
        let ty = self.ty(shape);
        self.b.input(ty, Some(Placement { dims, partial: Atoms::new() }))
    }
    /// An input that may lie anyhow.
    pub(super) fn free(&mut self, shape: &[usize]) -> Value {
        let ty = self.ty(shape);
        self.b.input(ty, None)
    }
    fn op(&mut self, toy: Toy, inputs: &[&Value]) -> Value {
        let inputs: Vec<_> = inputs.iter().map(|v| (*v).clone()).collect();
        self.b.emit1(Arc::new(toy), &inputs).unwrap()
    }
    fn same(&mut self, inputs: &[&Value]) -> Value {
        let shape = inputs.iter().max_by_key(|v| v.ty.rank()).unwrap().ty.shape.clone();
        self.op(elementwise(&shape, inputs.len()), inputs)
    }
    fn dot(&mut self, a: &Value, b: &Value) -> Value {
        let sizes = [('i', a.ty.shape[0]), ('j', a.ty.shape[1]), ('k', b.ty.shape[1])];
        self.op(toy("ij,jk->ik", &sizes, Rank::Plain), &[a, b])
    }
    pub(super) fn pin(&mut self, x: &Value, spec: Spec) -> Value {
        let pin = Some(Pin { mesh: self.mesh.clone(), spec, open: Vec::new() });
        self.op(Toy { pin, ..elementwise(&x.ty.shape, 1) }, &[x])
    }
    pub(super) fn want(&mut self, v: &Value, text: &str) {
        self.want.push((v.clone(), text.to_string()));
    }
    /// Every variable is placed, in a way that one array can lie, and twice the same.
    pub(super) fn check_all(self, what: &str, outs: &[Value]) {
        let program = self.b.finish(outs);
        let placed = propagate(&program, &[]).unwrap();
        let again = propagate(&program, &[]).unwrap();
        assert_eq!(placed.vars, again.vars, "{what}");
        for info in &placed.vars {
            let at = info.placement.as_ref().unwrap();
            assert_eq!(at.dims.len(), info.ty.rank(), "{what}");
            let atoms: Vec<&Atom> = at.dims.iter().flatten().collect();
            for (i, a) in atoms.iter().enumerate() {
                assert!(!atoms[..i].iter().any(|b| a.clashes(**b)), "{what}: {at:?}\n{placed}");
                assert!(self.mesh.size().is_multiple_of(a.stride * a.size), "{what}: {at:?}");
            }
            let typed = of_spec(&self.mesh, info.ty.spec.padded(info.ty.rank()));
            for ((d, typed), n) in at.dims.iter().zip(typed).zip(info.ty.shape.iter()) {
                assert!(super::pieces::is_prefix(&typed, d), "{what}: {at:?} is not {}", info.ty);
                assert!(
                    typed.is_empty() || n.is_multiple_of(ways(d)),
                    "{what}: {at:?} does not divide {}",
                    info.ty
                );
            }
        }
    }
    fn check(self, row: &str) {
        let outs: Vec<Value> = self.want.iter().map(|w| w.0.clone()).collect();
        let placed = propagate(&self.b.finish(&outs), &[]).unwrap();
        for (k, (_, text)) in self.want.iter().enumerate() {
            assert_eq!(show(&self.mesh, &placement(&placed, k)), *text, "row {row}, value {k}\n{placed}");
        }
    }
}

fn elementwise(shape: &[usize], operands: usize) -> Toy {
    let mut factors = Factors::default();
    let dims: Vec<Dim> = shape.iter().map(|n| Dim::same(factors.add(*n))).collect();
    factors.operands = vec![dims.clone(); operands];
    factors.results = vec![dims];
    Toy { factors, rank: Rank::Elementwise, pin: None, ty: None }
}

fn placement(program: &Program, output: usize) -> Placement {
    let Input::Var(v) = program.outputs[output] else { panic!("a number") };
    program.vars[v.index()].placement.clone().unwrap()
}

/// `X,(Y,Z)`; a piece of an axis is `X:(pre)size`.
fn show(mesh: &Mesh, p: &Placement) -> String {
    let digit = |a: &Atom| {
        let (mut rest, mut names) = (*a, Vec::new());
        while rest.size > 1 {
            let top = rest.stride * rest.size;
            let of =
                |x: &&crate::Axis| mesh.stride(**x) < top && top <= mesh.stride(**x) * mesh.axis_size(**x);
            let axis = *mesh.axis_names().iter().find(of).unwrap();
            let (stride, size) = (mesh.stride(axis), mesh.axis_size(axis));
            let low = stride.max(rest.stride);
            let (pre, here) = (stride * size / top, top / low);
            names.push(if here == size { axis.to_string() } else { format!("{axis}:({pre}){here}") });
            rest.size /= here;
        }
        names
    };
    let dim = |d: &Atoms| {
        let names: Vec<_> = d.iter().flat_map(digit).collect();
        match names.as_slice() {
            [] => "-".to_string(),
            [one] => one.clone(),
            many => format!("({})", many.join(",")),
        }
    };
    p.dims.iter().map(dim).collect::<Vec<_>>().join(",")
}

pub(super) fn row(name: &str, mesh: &[(crate::Axis, usize)], build: impl FnOnce(&mut Row)) {
    let mut r = Row::new(mesh);
    build(&mut r);
    r.check(name);
}

/// The mesh of most rows.
pub(super) const M: [(crate::Axis, usize); 2] = [(X, 4), (Y, 2)];

#[test]
fn elementwise_rows() {
    row("1", &M, |r| {
        let (a, b) = (r.arg(&[16, 32], p![X]), r.free(&[16, 32]));
        let s = r.same(&[&a]);
        let u = r.same(&[&s, &b]);
        for v in [s, u, b] {
            r.want(&v, "X,-");
        }
    });
    row("2", &M, |r| {
        let (a, b) = (r.free(&[16, 32]), r.free(&[16, 32]));
        let s = r.same(&[&a]);
        let u = r.same(&[&s, &b]);
        let u = r.pin(&u, p![X, Y]);
        for v in [a, b, u] {
            r.want(&v, "X,Y");
        }
    });
    let sum = |name, a: Spec, b: Spec, want: &str| {
        row(name, &M, |r| {
            let (a, b) = (r.arg(&[16, 16], a), r.arg(&[16, 16], b));
            let c = r.same(&[&a, &b]);
            r.want(&c, want);
        });
    };
    sum("7", p![X, _], p![_, X], "X,-");
    sum("8", p![Y, _], p![_, (Y, X)], "-,(Y,X)");
    sum("45a", p![X, _], p![Y, _], "-,-");
    sum("45b", p![(X, Y), _], p![(Y, X), _], "-,-");
    sum("45e", p![X, _], p![(X, Y), _], "(X,Y),-");
    sum("45f", p![(X, Y), _], p![X, Y], "(X,Y),-");
    row("45d", &[(X, 2), (Y, 2), (Z, 2)], |r| {
        let (a, b) = (r.arg(&[16, 16], p![(X, Y), _]), r.arg(&[16, 16], p![(X, Z), _]));
        let c = r.same(&[&a, &b]);
        r.want(&c, "X,-");
    });
    let piece = |stride, size| vec![Atoms::from_slice(&[Atom { stride, size }]), Atoms::new()];
    row("45c", &[(X, 8)], |r| {
        let (a, b) = (r.arg_at(&[16, 16], piece(2, 4)), r.arg_at(&[16, 16], piece(1, 4)));
        let c = r.same(&[&a, &b]);
        r.want(&c, "-,-");
    });
    row("45g", &[(X, 8)], |r| {
        let (a, b) = (r.arg(&[16, 16], p![X]), r.arg_at(&[16, 16], piece(2, 4)));
        let c = r.same(&[&a, &b]);
        r.want(&c, "X,-");
    });
    row("44", &M, |r| {
        let a = r.arg(&[6], p![X]);
        let b = r.same(&[&a]);
        r.want(&b, "X");
    });
    row("12", &M, |r| {
        let (a, b) = (r.arg(&[16, 32], p![X]), r.arg(&[32], p![Y]));
        let c = r.op(toy("j->ij", &[('i', 16), ('j', 32)], Rank::Broadcast), &[&b]);
        let s = r.same(&[&a, &c]);
        r.want(&c, "X,Y");
        r.want(&s, "X,Y");
    });
    row("13", &M, |r| {
        let b = r.free(&[32]);
        let c = r.op(toy("j->ij", &[('i', 16), ('j', 32)], Rank::Broadcast), &[&b]);
        let d = r.same(&[&c]);
        let _ = r.pin(&d, p![X, Y]);
        r.want(&b, "Y");
    });
}

#[test]
fn constraint_rows() {
    row("30", &M, |r| {
        let a = r.arg(&[16, 32], p![X]);
        let s = r.same(&[&a]);
        let c = r.pin(&s, p![_, Y]);
        r.want(&s, "-,Y");
        r.want(&c, "-,Y");
    });
    row("two constraints that differ", &M, |r| {
        let a = r.arg(&[16, 32], p![X]);
        let s = r.same(&[&a]);
        let (c, d) = (r.pin(&s, p![_, Y]), r.pin(&s, p![Y, X]));
        r.want(&c, "-,Y");
        r.want(&d, "Y,X");
    });
}

#[test]
fn product_rows() {
    let dot = |name, a: &[usize], sa: Spec, b: &[usize], sb: Spec, want: &str| {
        row(name, &M, |r| {
            let (x, y) = (r.arg(a, sa), r.arg(b, sb));
            let c = r.dot(&x, &y);
            r.want(&c, want);
        });
    };
    row("3", &M, |r| {
        let (x, y) = (r.arg(&[16, 32], p![_, X]), r.free(&[32, 8]));
        let c = r.dot(&x, &y);
        r.want(&y, "X,-");
        r.want(&c, "-,-");
    });
    dot("4", &[64, 32], p![X], &[32, 8], p![_, X], "X,-");
    dot("5", &[8, 32], p![X], &[32, 64], p![_, X], "-,X");
    dot("6", &[32, 32], p![X], &[32, 32], p![_, X], "X,-");
    row("9", &M, |r| {
        let (x, w, v) = (r.arg(&[16, 16], p![X]), r.arg(&[16, 32], p![_, Y]), r.arg(&[32, 16], p![Y]));
        let h = r.dot(&x, &w);
        let q = r.same(&[&h]);
        let o = r.dot(&q, &v);
        r.want(&h, "X,Y");
        r.want(&q, "X,Y");
        r.want(&o, "X,-");
    });
    row("46a", &M, |r| {
        let (a, b) = (r.arg(&[16], p![X]), r.arg(&[16], p![Y]));
        let c = r.op(toy("i,j->ij", &[('i', 16), ('j', 16)], Rank::Plain), &[&a, &b]);
        r.want(&c, "X,Y");
    });
    row("46b", &M, |r| {
        let (a, b) = (r.arg(&[16], p![X]), r.arg(&[16], p![X]));
        let c = r.op(toy("i,j->ij", &[('i', 16), ('j', 16)], Rank::Plain), &[&a, &b]);
        r.want(&c, "X,-");
    });
    row("47", &M, |r| {
        let (q, k) = (r.arg(&[16, 8], p![X]), r.arg(&[16, 8], p![Y]));
        let s = r.op(toy("sd,td->st", &[('s', 16), ('t', 16), ('d', 8)], Rank::Plain), &[&q, &k]);
        let w = r.op(toy("st->s", &[('s', 16), ('t', 16)], Rank::Plain), &[&s]);
        r.want(&s, "X,Y");
        r.want(&w, "X");
    });
    row("52", &M, |r| {
        let (x, g) = (r.arg(&[64, 16], p![X]), r.arg(&[64, 8], p![X]));
        let w = r.op(toy("bi,bo->io", &[('b', 64), ('i', 16), ('o', 8)], Rank::Plain), &[&x, &g]);
        r.want(&w, "-,-");
    });
}

#[test]
fn shape_rows() {
    let shape =
        |name, axes: &[_], text: &str, sizes: &[(char, usize)], a: &[usize], spec: Spec, want: &str| {
            row(name, axes, |r| {
                let a = r.arg(a, spec);
                let c = r.op(toy(text, sizes, Rank::Alias), &[&a]);
                r.want(&c, want);
            });
        };
    shape("11", &M, "ij->ji", &[('i', 16), ('j', 32)], &[16, 32], p![X, Y], "Y,X");
    shape("14", &M, "(ij)->ij", &[('i', 2), ('j', 4)], &[8], p![X], "X:(1)2,X:(2)2");
    shape("15", &M, "ij->(ij)", &[('i', 2), ('j', 4)], &[2, 4], p![_, Y], "-");
    shape("16", &M, "ij->(ij)", &[('i', 2), ('j', 4)], &[2, 4], p![Y, _], "Y");
    let four = [(X, 4), (Y, 4)];
    shape("17", &four, "ijk->(ij)k", &[('i', 4), ('j', 4), ('k', 32)], &[4, 4, 32], p![X, Y], "(X,Y),-");
    shape("18", &M, "(ij)->ij", &[('i', 3), ('j', 4)], &[12], p![Y], "-,-");
    shape("19", &M, "(ij)k->i(jk)", &[('i', 2), ('j', 4), ('k', 4)], &[8, 4], p![X, Y], "X:(1)2,X:(2)2");
    shape("20", &M, "ik->ijk", &[('i', 8), ('j', 1), ('k', 4)], &[8, 4], p![X, Y], "X,-,Y");
    row("48", &M, |r| {
        let a = r.arg(&[4, 8, 32], p![X, _, Y]);
        let sizes = [('i', 4), ('j', 8), ('k', 4), ('l', 8)];
        let b = r.op(toy("ij(kl)->ijkl", &sizes, Rank::Alias), &[&a]);
        let c = r.op(toy("ijkl->ikjl", &sizes, Rank::Alias), &[&b]);
        r.want(&b, "X,-,Y,-");
        r.want(&c, "X,Y,-,-");
    });
}

#[test]
fn rows_of_reductions_slices_and_updates() {
    let one = |name, text: &str, sizes: &[(char, usize)], rank, a: &[usize], spec: Spec, want: &str| {
        row(name, &M, |r| {
            let a = r.arg(a, spec);
            let c = r.op(toy(text, sizes, rank), &[&a]);
            r.want(&c, want);
        });
    };
    let ij = [('i', 16), ('j', 32)];
    one("10", "ij->j", &ij, Rank::Plain, &[16, 32], p![X, Y], "Y");
    one("50", "ij->i", &ij, Rank::Plain, &[16, 32], p![X, Y], "X");
    one("32a", "ij->ij i!", &ij, Rank::Plain, &[16, 32], p![X, Y], "X,Y");
    one("32b", "i->i i!i?", &[('i', 16)], Rank::Plain, &[16], p![X], "-");
    one("33", "ij->ij i!", &ij, Rank::Plain, &[16, 32], p![X, Y], "X,Y");
    one("24", "ij->+ij", &[('i', 10), ('j', 16)], Rank::Plain, &[8, 16], p![X, Y], "X,Y");
    one("25", "ij->~ij", &[('i', 8), ('j', 16)], Rank::DynamicSlice, &[8, 16], p![X, Y], "-,Y");
    one("49", "+i->i", &[('i', 16)], Rank::Plain, &[16], p![X], "X");
    row("21", &M, |r| {
        let (a, b) = (r.arg(&[8, 8], p![X, Y]), r.free(&[16, 8]));
        let c = r.op(toy("ij,+ij->ij", &[('i', 24), ('j', 8)], Rank::Plain), &[&a, &b]);
        r.want(&c, "X,Y");
    });
    row("23", &[(X, 8)], |r| {
        let a = r.arg(&[8], p![X]);
        let s = r.op(toy("+i->i", &[('i', 7)], Rank::Plain), &[&a]);
        let t = r.op(toy("+i->i", &[('i', 7)], Rank::Plain), &[&a]);
        let d = r.same(&[&s, &t]);
        for v in [s, t, d] {
            r.want(&v, "X");
        }
    });
    row("26", &M, |r| {
        let (a, u) = (r.arg(&[8, 16], p![X, Y]), r.free(&[4, 16]));
        let s = r.op(toy("ij,~ij->ij", &[('i', 8), ('j', 16)], Rank::DynamicSlice), &[&a, &u]);
        r.want(&s, "X,Y");
        r.want(&u, "-,Y");
    });
    let take = |name, st: Spec, si: Spec, want: &str| {
        row(name, &M, |r| {
            let (t, i) = (r.arg(&[64, 16], st), r.arg(&[16, 1], si));
            let text = "kj,il->ij l!";
            let c = r.op(toy(text, &[('k', 64), ('j', 16), ('i', 16), ('l', 1)], Rank::Plain), &[&t, &i]);
            r.want(&c, want);
        });
    };
    take("27", p![X, Y], p![Y], "-,Y");
    take("28", p![_, Y], p![X], "X,Y");
    row("29", &M, |r| {
        let (t, i, u) = (r.arg(&[64, 16], p![X]), r.arg(&[16, 1], p![Y]), r.arg(&[16, 16], p![Y]));
        let sizes = [('k', 64), ('j', 16), ('i', 16), ('l', 1)];
        let c = r.op(toy("kj,il,ij->kj l!", &sizes, Rank::Plain), &[&t, &i, &u]);
        r.want(&c, "X,-");
    });
}

/// A program of its own, to nest.
fn body(r: &Row, inputs: &[&[usize]], build: impl FnOnce(&mut Row, &[Value]) -> Vec<Value>) -> Arc<Program> {
    let mut inner = Row::on(r.mesh.clone());
    let args: Vec<_> = inputs.iter().map(|s| inner.free(s)).collect();
    let outs = build(&mut inner, &args);
    Arc::new(inner.b.finish(&outs))
}
fn bodies(program: &Program) -> Vec<Arc<Program>> {
    let controls = program.equations.iter().filter_map(|e| match &e.op {
        Op::Control(c) => Some(c.bodies().into_iter().cloned().collect::<Vec<_>>()),
        Op::Prim(_) => None,
    });
    controls.flatten().collect()
}

#[test]
fn loops_carry_one_placement() {
    // row 37: c = tanh(c @ w), c [x,-], w [-,y]: y reaches the carry
    let mut r = Row::new(&M);
    let (c, w, xs) = (r.arg(&[16, 32], p![X]), r.arg(&[32, 32], p![_, Y]), r.arg(&[5, 16, 32], p![_, X]));
    let scanned = body(&r, &[&[], &[32, 32], &[16, 32], &[16, 32]], |b, a| {
        let h = b.dot(&a[2], &a[1]);
        let t = b.same(&[&h]);
        let s = b.same(&[&a[3]]);
        vec![t, s]
    });
    let control =
        Control::Loop(Loop { body: scanned, start: 0, length: 5, reverse: false, fixed: 1, carry: 1 });
    let types = vec![r.ty(&[16, 32]), r.ty(&[5, 16, 32])];
    let outs = r.b.control(control, &[w, c, xs], types);
    let mesh = r.mesh.clone();
    let placed = propagate(&r.b.finish(&outs), &[]).unwrap();
    assert_eq!(show(&mesh, &placement(&placed, 0)), "X,Y");
    assert_eq!(show(&mesh, &placement(&placed, 1)), "-,X,-", "the stacked dimension is whole");
    let inner = &bodies(&placed)[0];
    let at = |k: usize| show(&mesh, inner.vars[inner.inputs[k].index()].placement.as_ref().unwrap());
    assert_eq!([at(1), at(2), at(3)], ["-,Y", "X,Y", "X,-"]);
    assert_eq!(show(&mesh, &placement(inner, 0)), "X,Y");
}

#[test]
fn while_loops_branches_and_calls() {
    let mut r = Row::new(&M);
    let c = r.arg(&[16, 32], p![X, Y]);
    let mesh = r.mesh.clone();
    let step = body(&r, &[&[16, 32]], |b, a| vec![b.same(&[&a[0]])]);
    let test = body(&r, &[&[16, 32]], |b, a| {
        vec![b.op(toy("ij->", &[('i', 16), ('j', 32)], Rank::Plain), &[&a[0]])]
    });
    let control = Control::While { cond: test, body: step.clone(), cond_fixed: 0, body_fixed: 0 };
    let ty = r.ty(&[16, 32]);
    let out = r.b.control(control, &[c], vec![ty.clone()]);
    // row 38: branches [x,-] and [-,y] make [x,y]
    let (a, b) = (r.arg(&[16, 32], p![X]), r.arg(&[16, 32], p![_, Y]));
    let which = body(&r, &[&[16, 32], &[16, 32]], |_, a| vec![a[0].clone()]);
    let other = body(&r, &[&[16, 32], &[16, 32]], |_, a| vec![a[1].clone()]);
    let pred = r.b.input(DType::Bool.of([]), None);
    let chosen =
        r.b.control(Control::Cond { branches: vec![which, other] }, &[pred, a.clone(), b], vec![ty.clone()]);
    let called = r.b.control(Control::Jit { body: step, remat: false }, &[a], vec![ty]);
    let placed = propagate(&r.b.finish(&[out, chosen, called].concat()), &[]).unwrap();
    let at = |k| show(&mesh, &placement(&placed, k));
    assert_eq!([at(0), at(1), at(2)], ["X,Y", "X,Y", "X,-"]);
    for b in bodies(&placed) {
        assert!(b.vars.iter().all(|v| v.placement.is_some()));
    }
}

#[test]
fn manual_regions_pass_auto_axes_through() {
    let mut r = Row::new(&M);
    let (a, b) = (r.arg(&[16, 32], p![_, Y]), r.free(&[16, 32]));
    let mesh = r.mesh.clone();
    let manual = mesh.retyped(X, AxisType::Manual).unwrap();
    let mut inner = Row::on(manual);
    let (u, v) = (inner.free(&[4, 32]), inner.free(&[4, 32]));
    let s = inner.same(&[&u, &v]);
    let control = Control::ShardMap(ShardMapping {
        body: Arc::new(inner.b.finish(&[s])),
        mesh: mesh.clone(),
        axes: Axes::from(X),
        in_specs: vec![p![X], p![X]],
        out_specs: vec![p![X]],
        checked: true,
    });
    let ty = r.ty(&[16, 32]);
    let out = r.b.control(control, &[a, b.clone()], vec![ty]);
    let after = r.same(&[&out[0]]);
    let placed = propagate(&r.b.finish(&[out[0].clone(), after, b]), &[]).unwrap();
    let at = |k| show(&mesh, &placement(&placed, k));
    assert_eq!([at(0), at(1)], ["X,Y", "X,Y"]);
    assert_eq!(at(2), "X,Y", "also from inside to an operand");
    assert_eq!(show(&mesh, &placement(&bodies(&placed)[0], 0)), "-,Y", "inside, of a block");
}

#[test]
fn explicit_axes_are_facts_and_auto_axes_append() {
    let mesh = Mesh::with_types([("X", 2, AxisType::Explicit), ("Y", 4, AxisType::Auto)]).unwrap();
    let typed =
        |shape: &[usize], spec: Spec| ArrayType { spec, mesh: Some(mesh.clone()), ..DType::F32.of(shape) };
    let mut r = Row::on(mesh.clone());
    let lies = |ty: &ArrayType, spec: Spec| Placement {
        dims: of_spec(ty.mesh.as_ref().unwrap(), spec),
        ..Placement::default()
    };
    let (ta, tb) = (typed(&[16, 8], p![X, _]), typed(&[16, 8], p![_, X]));
    let a = r.b.input(ta.clone(), Some(lies(&ta, p![(X, Y), _])));
    let s = r.op(Toy { ty: Some(ta.clone()), ..elementwise(&[16, 8], 1) }, &[&a]);
    // a result whose type moves X: Y may follow where it is free
    let t = r.op(Toy { ty: Some(tb), ..toy("ij->ij", &[('i', 16), ('j', 8)], Rank::Plain) }, &[&s]);
    // 6 rows: 2 explicit ways divide them, 8 would not
    let tc = typed(&[6], p![X]);
    let c = r.b.input(typed(&[6], p![_]), Some(lies(&tc, p![Y])));
    let d = r.op(Toy { ty: Some(tc), ..elementwise(&[6], 1) }, &[&c]);
    let placed = propagate(&r.b.finish(&[s, t, d]), &[]).unwrap();
    let at = |k| show(&mesh, &placement(&placed, k));
    assert_eq!(at(0), "(X,Y),-");
    assert_eq!(at(1), "-,X", "X may not come back into dimension 0, so nor what is minor to it");
    assert_eq!(at(2), "X");
}

#[test]
fn without_auto_axes_types_say_all() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let mut r = Row::on(mesh.clone());
    let ty = ArrayType { spec: p![X, _; U: Y], mesh: Some(mesh.clone()), ..DType::F32.of([8, 8]) };
    let a = r.b.input(ty.clone(), None);
    let b = r.op(Toy { ty: Some(ty), ..elementwise(&[8, 8], 1) }, &[&a]);
    let placed = propagate(&r.b.finish(&[b]), &[]).unwrap();
    assert_eq!(placement(&placed, 0).dims, of_spec(&mesh, p![X, _]));
    assert_eq!(placement(&placed, 0).partial, of_axes(&mesh, [Y]));
}

#[test]
fn results_lie_as_asked() {
    let mut r = Row::new(&M);
    let mesh = r.mesh.clone();
    let a = r.arg(&[16, 32], p![X]);
    let s = r.same(&[&a]);
    let lies = |spec| Some(Placement { dims: of_spec(&mesh, spec), partial: Atoms::new() });
    // the sine itself lies as asked; twice in different ways it can't, nor can the argument
    let placed = propagate(&r.b.finish(&[s.clone(), a]), &[lies(p![_, Y]), lies(p![Y, _])]).unwrap();
    assert_eq!(placed.equations.len(), 2, "one copy, of the argument");
    assert_eq!(
        [placement(&placed, 0), placement(&placed, 1)],
        [lies(p![_, Y]).unwrap(), lies(p![Y, _]).unwrap()]
    );
}

#[test]
fn a_constant_is_no_channel_between_its_users() {
    let mut r = Row::new(&M);
    let (a, b) = (r.arg(&[16, 16], p![X]), r.arg(&[16, 16], p![_, X]));
    let zero = Value::literal(DType::F32, 0.0);
    let k = r.op(toy("->ij", &[('i', 16), ('j', 16)], Rank::Plain), &[&zero]);
    let (u, v) = (r.same(&[&a, &k]), r.same(&[&b, &k]));
    r.want(&u, "X,-");
    r.want(&v, "-,X");
    let (want, mesh) = (r.want.clone(), r.mesh.clone());
    let outs: Vec<_> = want.iter().map(|w| w.0.clone()).collect();
    let placed = propagate(&r.b.finish(&outs), &[]).unwrap();
    assert_eq!([show(&mesh, &placement(&placed, 0)), show(&mesh, &placement(&placed, 1))], ["X,-", "-,X"]);
    assert_eq!(placed.equations.len(), 4, "it is made twice:\n{placed}");
}

#[test]
fn meshes_of_other_devices_are_refused() {
    let mut r = Row::new(&M);
    let _ = r.free(&[8]);
    let other = Mesh::auto([("X", 2)]).unwrap();
    r.b.input(ArrayType { mesh: Some(other), ..DType::F32.of([8]) }, None);
    let e = propagate(&r.b.finish(&[]), &[]).unwrap_err();
    assert!(e.to_string().contains("which has other devices"), "{e}");
}

#[test]
fn long_programs_are_quick_on_any_number_of_devices() {
    let mesh = crate::AbstractMesh::new([("X", 1 << 20), ("Y", 1 << 10)]).unwrap().with_auto([X, Y]).unwrap();
    let mut r = Row::on(mesh.clone());
    let mut h = r.arg(&[1 << 20, 1 << 10], p![X]);
    for k in 0..500 {
        let w = if k == 7 { r.arg(&[1 << 10, 1 << 10], p![_, Y]) } else { r.free(&[1 << 10, 1 << 10]) };
        let d = r.dot(&h, &w);
        let t = r.same(&[&d]);
        h = r.same(&[&t, &h]);
    }
    let start = std::time::Instant::now();
    let placed = propagate(&r.b.finish(&[h]), &[]).unwrap();
    assert_eq!(show(&mesh, &placement(&placed, 0)), "X,Y");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn without_a_mesh_every_variable_is_whole() {
    // a type-only program on no mesh: every variable is placed, whole
    let mut b = Builder::new();
    let a = b.input(DType::F32.of([4]), None);
    let prim: Prim = Arc::new(elementwise(&[4], 1));
    let s = b.emit1(prim, &[a]).unwrap();
    let placed = propagate(&b.finish(&[s]), &[]).unwrap();
    assert_eq!(placement(&placed, 0).dims, vec![Atoms::new()]);
}

/// Random programs of toys over mixed meshes: whatever they are, every value ends as a layout that its type allows.
#[test]
fn random_programs_end_in_layouts() {
    let mut seed = 7_u64;
    let mut next = move |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    for round in 0..200 {
        let kinds = [AxisType::Explicit, AxisType::Auto, AxisType::Auto];
        let mesh = Mesh::with_types(
            [("X", [2, 3, 4][next(3)]), ("Y", 2), ("Z", [2, 6][next(2)])]
                .into_iter()
                .enumerate()
                .map(|(i, (a, n))| (a, n, kinds[(i + round) % 3])),
        )
        .unwrap();
        let mut r = Row::on(mesh.clone());
        let auto = mesh.axes_of(AxisType::Auto);
        let explicit = mesh.axes_of(AxisType::Explicit)[0];
        // a size that all axes together divide
        const N: usize = 144;
        let mut pool: Vec<Value> = (0..4)
            .map(|_| {
                let mut dims = [Axes::none(), Axes::none()];
                if next(2) == 0 {
                    dims[next(2)].push(explicit);
                }
                let ty = ArrayType { spec: Spec::of(dims.to_vec()), ..r.ty(&[N, N]) };
                auto.iter().for_each(|a| {
                    if next(2) == 0 {
                        dims[next(2)].push(*a);
                    }
                });
                let at = Placement { dims: of_spec(&mesh, Spec::of(dims.to_vec())), partial: Atoms::new() };
                r.b.input(ty, (next(3) > 0).then_some(at))
            })
            .collect();
        for _ in 0..12 {
            let (a, b) = (pool[next(pool.len())].clone(), pool[next(pool.len())].clone());
            let sizes = [('i', N), ('j', N), ('k', N)];
            let halves = [('i', 4), ('j', 36), ('k', N)];
            let mut op = match next(6) {
                0 => toy("ij,jk->ik", &sizes, Rank::Plain),
                1 => toy("ij,ij->ij", &sizes[..2], Rank::Elementwise),
                2 => toy("ij,~ij->ji", &sizes[..2], Rank::DynamicSlice),
                3 => toy("(ij)k,'i'k->(ij)k", &halves, Rank::Alias),
                4 => toy("ij,+ik->+jk", &sizes, Rank::Plain),
                _ => toy("ij,kj->ki i!", &sizes, Rank::Broadcast),
            };
            let spec =
                if next(2) == 0 { Spec::of(vec![Axes::from(explicit), Axes::none()]) } else { p![_, _] };
            op.ty = Some(ArrayType { spec, ..r.ty(&[N, N]) });
            if next(5) == 0 {
                op = Toy {
                    pin: Some(Pin {
                        mesh: mesh.clone(),
                        spec: Spec::of(vec![Axes::none(), Axes::from(auto[next(2)])]),
                        open: Vec::new(),
                    }),
                    ..op
                };
            }
            let inputs = if op.pin.is_some() { vec![&a] } else { vec![&a, &b] };
            let out = r.op(op, &inputs);
            pool.push(out);
        }
        r.check_all(&format!("round {round}"), &pool);
    }
}
