//! The worked examples of the reference (numbered rows), and what is ours alone: mixed meshes, control flow, manual regions.
//!
//! Operations are toys that state their factors only, so that nothing here depends on how the real ones state theirs.

use super::propagate;
use crate::diagnostic::{Fault, Result};
use crate::mesh::{Axes, AxisType, Mesh};
use crate::program::sentence::Sentence;
use crate::program::{
    At, Builder, Control, Dim, Factors, Input, Keep, Linearity, Loop, Op, Operand, Pin, Placement, Prim,
    Primitive, Priority, Program, ShardMapping, Tangents, Value,
};
use crate::program::{Back, Forward};
use crate::sharding::Spec;
use crate::sharding::atoms::{Atom, Atoms, of_axes, of_spec, ways};
use crate::types::{ArrayType, DType, Shape};
use crate::{axes, p};
use std::sync::Arc;

mod programs;
mod rows;

axes!(pub(super) X, pub(super) Y, pub(super) Z);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Toy {
    factors: Factors,
    rank: Priority,
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
    fn priority(&self) -> Priority {
        self.rank
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, Forward { tangents: t, .. }: Forward<'_>) -> Result<Tangents> {
        Ok(t.to_vec())
    }
    fn transpose(&self, Back { cotangents: c, .. }: Back<'_>) -> Result<Tangents> {
        Ok(c.to_vec())
    }
    fn batched(&self, _: &crate::program::Batch<'_>) -> crate::program::Batched {
        crate::program::Batched::of(std::sync::Arc::new(self.clone()))
    }
    fn sentences(&self, _: &[ArrayType], _: &[ArrayType]) -> Vec<Sentence> {
        Vec::new()
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
fn toy(text: &str, sizes: &[(char, usize)], rank: Priority) -> Toy {
    let (text, marks) = text.split_once(' ').unwrap_or((text, ""));
    let mut factors = Factors::over(&sizes.iter().map(|s| s.1).collect::<Vec<_>>());
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
                '+' => at = At::Affine { scale: 1, offset: 1 },
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
    pub(super) fn ty(&self, shape: &[usize]) -> ArrayType {
        ArrayType { mesh: Some(self.mesh.clone()), ..DType::F32.of(shape) }
    }
    /// An input that is placed so.
    pub(super) fn arg(&mut self, shape: &[usize], spec: Spec) -> Value {
        let dims = of_spec(&self.mesh, spec.padded(shape.len()));
        self.arg_at(shape, dims)
    }
    pub(super) fn arg_at(&mut self, shape: &[usize], dims: Vec<Atoms>) -> Value {
        let ty = self.ty(shape);
        self.b.input(ty, Some(Placement { dims, partial: Atoms::new() }))
    }
    /// An input that may be placed anyhow.
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
        self.op(toy("ij,jk->ik", &sizes, Priority::Plain), &[a, b])
    }
    /// A program of its own, to nest.
    pub(super) fn body(
        &self,
        inputs: &[&[usize]],
        build: impl FnOnce(&mut Row, &[Value]) -> Vec<Value>,
    ) -> Arc<Program> {
        let mut inner = Row::on(self.mesh.clone());
        let args: Vec<_> = inputs.iter().map(|s| inner.free(s)).collect();
        let outs = build(&mut inner, &args);
        Arc::new(inner.b.finish(&outs))
    }
    pub(super) fn pin(&mut self, x: &Value, spec: Spec) -> Value {
        let pin = Some(Pin { mesh: self.mesh.clone(), spec, open: Vec::new(), loose: false });
        self.op(Toy { pin, ..elementwise(&x.ty.shape, 1) }, &[x])
    }
    pub(super) fn want(&mut self, v: &Value, text: &str) {
        self.want.push((v.clone(), text.to_string()));
    }
    /// Every variable is placed, in a way that one array can be, and twice the same.
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
    let dims = Dim::each(0..shape.len());
    let (operands, results) = (vec![dims.clone(); operands], vec![dims]);
    let factors = Factors { operands, results, ..Factors::over(shape) };
    Toy { factors, rank: Priority::Elementwise, pin: None, ty: None }
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
            let of = |x: &&crate::Axis| mesh.step(**x) < top && top <= mesh.step(**x) * mesh.extent(**x);
            let axis = *mesh.axis_names().iter().find(of).unwrap();
            let (stride, size) = (mesh.step(axis), mesh.extent(axis));
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
