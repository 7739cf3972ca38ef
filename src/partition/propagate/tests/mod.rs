//! Tests Shardy's worked examples (numbered rows), mixed meshes, control flow, and manual regions.
//!
//! The operations are test primitives that only state factors, so that these tests do not depend on
//! the factors of real ones.

#[cfg(test)]
pub(crate) mod golden;

use super::propagate;
use crate::axes;
use crate::core::sharding::sub_axes::{from_axes, from_spec, num_shards};
use crate::core::{ArrayType, Axes, AxisType, DType, Fault, Mesh, Result, Shape, Spec, SubAxes, SubAxis};
use crate::ir::program::{
    Builder, CheckpointPolicy, Control, Dim, DimMap, Factors, Input, JvpArgs, Linearity, Loop, LoopNest, Op,
    Placement, Prim, Primitive, Priority, Program, ShardMapping, ShardingConstraint, Tangents, TransposeArgs,
    TypedOperand, Value,
};
use crate::p;
use std::sync::Arc;

mod programs;
mod rows;

axes!(pub(super) X, pub(super) Y, pub(super) Z);

/// A primitive with given factors.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ToyPrimitive {
    factors: Factors,
    priority: Priority,
    pin: Option<ShardingConstraint>,
    /// The type of the result, for tests with explicit axes.
    /// `None` to infer it.
    ty: Option<ArrayType>,
}

impl Primitive for ToyPrimitive {
    fn name(&self) -> &'static str {
        "toy"
    }
    fn params(&self) -> String {
        String::new()
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
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
        self.priority
    }
    fn out_sharding(&self) -> Option<Spec> {
        None
    }
    fn jvp(&self, JvpArgs { tangents: t, .. }: JvpArgs<'_>) -> Result<Tangents> {
        Ok(t.to_vec())
    }
    fn transpose(&self, TransposeArgs { cotangents: c, .. }: TransposeArgs<'_>) -> Result<Tangents> {
        Ok(c.to_vec())
    }
    fn vmap(&self, _: &crate::ir::program::VmapArgs<'_>) -> crate::ir::program::BatchedOp {
        crate::ir::program::BatchedOp::new(std::sync::Arc::new(self.clone()))
    }
    fn loop_nests(&self, _: &[ArrayType], _: &[ArrayType]) -> Vec<LoopNest> {
        Vec::new()
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        let mesh = operands.iter().find_map(|o| o.ty.mesh.clone());
        let types = self
            .shapes(operands)?
            .into_iter()
            .map(|(d, s)| ArrayType { mesh: mesh.clone(), ..d.array_type(s) });
        Ok(types.map(|t| self.ty.clone().unwrap_or(t)).collect())
    }
    fn constraint(&self) -> Option<ShardingConstraint> {
        self.pin.clone()
    }
}

/// Parses factors such as `ij,jk->ik`.
///
/// `(ij)` is one dimension with several loops, `~i` is dynamically indexed, `'i` broadcast, and
/// `+i` shifted. Marks follow after a space: `i!` for a loop that needs replication, `i?` for one
/// without propagation.
fn toy(text: &str, sizes: &[(char, usize)], rank: Priority) -> ToyPrimitive {
    let (text, marks) = text.split_once(' ').unwrap_or((text, ""));
    let mut factors = Factors::from_sizes(&sizes.iter().map(|s| s.1).collect::<Vec<_>>());
    let index = |c: char| sizes.iter().position(|s| s.0 == c).unwrap();
    for (l, mark) in marks.chars().step_by(2).zip(marks.chars().skip(1).step_by(2)) {
        let l = &mut factors.loops[index(l)];
        l.need_replication |= mark == '!';
        l.no_propagation |= mark == '?';
    }
    let tensor = |t: &str| {
        let (mut dims, mut several, mut at) = (Vec::new(), None, DimMap::Identity);
        for c in t.chars() {
            match c {
                '(' => several = Some(Vec::new()),
                ')' => dims.push(Dim::merged(several.take().unwrap())),
                '~' => at = DimMap::Dynamic,
                '\'' => at = DimMap::Broadcast,
                '+' => at = DimMap::Affine { scale: 1, offset: 1 },
                c => match &mut several {
                    Some(list) => list.push(index(c)),
                    None => dims.push(Dim::mapped(index(c), std::mem::replace(&mut at, DimMap::Identity))),
                },
            }
        }
        dims
    };
    let (ins, outs) = text.split_once("->").unwrap();
    factors.operands = ins.split(',').map(tensor).collect();
    factors.results = outs.split(',').map(tensor).collect();
    ToyPrimitive { factors, priority: rank, pin: None, ty: None }
}

/// A program under test on a mesh, with the expected sharding of its values.
pub(super) struct PropagationTest {
    pub(super) mesh: Mesh,
    pub(super) b: Builder,
    want: Vec<(Value, String)>,
}

impl PropagationTest {
    fn new(axes: &[(crate::Axis, usize)]) -> PropagationTest {
        PropagationTest::on(Mesh::auto(axes.iter().copied()).unwrap())
    }
    pub(super) fn on(mesh: Mesh) -> PropagationTest {
        PropagationTest { mesh, b: Builder::new(), want: Vec::new() }
    }
    pub(super) fn ty(&self, shape: &[usize]) -> ArrayType {
        ArrayType { mesh: Some(self.mesh.clone()), ..DType::F32.array_type(shape) }
    }
    /// Adds an input with this placement.
    pub(super) fn arg(&mut self, shape: &[usize], spec: Spec) -> Value {
        let dims = from_spec(&self.mesh, spec.padded(shape.len()));
        self.arg_at(shape, dims)
    }
    pub(super) fn arg_at(&mut self, shape: &[usize], dims: Vec<SubAxes>) -> Value {
        let ty = self.ty(shape);
        self.b.input(ty, Some(Placement { dims, partial: SubAxes::new() }))
    }
    /// Adds an input without placement.
    pub(super) fn free(&mut self, shape: &[usize]) -> Value {
        let ty = self.ty(shape);
        self.b.input(ty, None)
    }
    fn op(&mut self, toy: ToyPrimitive, inputs: &[&Value]) -> Value {
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
    /// Returns a separate program, to be nested.
    pub(super) fn body(
        &self,
        inputs: &[&[usize]],
        build: impl FnOnce(&mut PropagationTest, &[Value]) -> Vec<Value>,
    ) -> Arc<Program> {
        let mut inner = PropagationTest::on(self.mesh.clone());
        let args: Vec<_> = inputs.iter().map(|s| inner.free(s)).collect();
        let outs = build(&mut inner, &args);
        Arc::new(inner.b.finish(&outs))
    }
    pub(super) fn pin(&mut self, x: &Value, spec: Spec) -> Value {
        let pin = Some(ShardingConstraint {
            mesh: self.mesh.clone(),
            spec,
            open_dims: Vec::new(),
            explicit_only: false,
        });
        self.op(ToyPrimitive { pin, ..elementwise(&x.ty.shape, 1) }, &[x])
    }
    pub(super) fn want(&mut self, v: &Value, text: &str) {
        self.want.push((v.clone(), text.to_string()));
    }
    /// Checks that every variable has a valid placement, and that propagation is deterministic.
    pub(super) fn check_all(self, what: &str, outs: &[Value]) {
        let program = self.b.finish(outs);
        let placed = propagate(&program, &[]).unwrap();
        let again = propagate(&program, &[]).unwrap();
        assert_eq!(placed.vars, again.vars, "{what}");
        for info in &placed.vars {
            let at = info.placement.as_ref().unwrap();
            assert_eq!(at.dims.len(), info.ty.rank(), "{what}");
            let sub_axis_list: Vec<&SubAxis> = at.dims.iter().flatten().collect();
            for (i, a) in sub_axis_list.iter().enumerate() {
                assert!(!sub_axis_list[..i].iter().any(|b| a.overlaps(**b)), "{what}: {at:?}\n{placed}");
                assert!(self.mesh.size().is_multiple_of(a.stride * a.size), "{what}: {at:?}");
            }
            let typed = from_spec(&self.mesh, info.ty.spec.padded(info.ty.rank()));
            for ((d, typed), n) in at.dims.iter().zip(typed).zip(info.ty.shape.iter()) {
                assert!(super::sub_axes::is_prefix(&typed, d), "{what}: {at:?} is not {}", info.ty);
                assert!(
                    typed.is_empty() || n.is_multiple_of(num_shards(d)),
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

fn elementwise(shape: &[usize], operands: usize) -> ToyPrimitive {
    let dims = Dim::each(0..shape.len());
    let (operands, results) = (vec![dims.clone(); operands], vec![dims]);
    let factors = Factors { operands, results, ..Factors::from_sizes(shape) };
    ToyPrimitive { factors, priority: Priority::Elementwise, pin: None, ty: None }
}

fn placement(program: &Program, output: usize) -> Placement {
    let Input::Var(v) = program.outputs[output] else { panic!("a number") };
    program.vars[v.index()].placement.clone().unwrap()
}

/// Prints a placement as `X,(Y,Z)`.
/// A sub-axis is printed as `X:(pre)size`.
fn show(mesh: &Mesh, p: &Placement) -> String {
    let sub_axis_text = |a: &SubAxis| {
        let (mut rest, mut names) = (*a, Vec::new());
        while rest.size > 1 {
            let top = rest.stride * rest.size;
            let of =
                |x: &&crate::Axis| mesh.stride_of(**x) < top && top <= mesh.stride_of(**x) * mesh.extent(**x);
            let axis = *mesh.axis_names().iter().find(of).unwrap();
            let (stride, size) = (mesh.stride_of(axis), mesh.extent(axis));
            let low = stride.max(rest.stride);
            let (pre, here) = (stride * size / top, top / low);
            names.push(if here == size { axis.to_string() } else { format!("{axis}:({pre}){here}") });
            rest.size /= here;
        }
        names
    };
    let dim = |d: &SubAxes| {
        let names: Vec<_> = d.iter().flat_map(sub_axis_text).collect();
        match names.as_slice() {
            [] => "-".to_string(),
            [one] => one.clone(),
            many => format!("({})", many.join(",")),
        }
    };
    p.dims.iter().map(dim).collect::<Vec<_>>().join(",")
}

pub(super) fn row(name: &str, mesh: &[(crate::Axis, usize)], build: impl FnOnce(&mut PropagationTest)) {
    let mut r = PropagationTest::new(mesh);
    build(&mut r);
    r.check(name);
}

/// The mesh of most rows.
pub(super) const M: [(crate::Axis, usize); 2] = [(X, 4), (Y, 2)];
