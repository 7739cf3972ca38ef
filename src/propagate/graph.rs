//! A program, its nested programs and the data flow between them as one system of values and equations.

use super::instance::{ConstantUse, Instance};
use super::pieces::is_prefix;
use super::rule::Rule;
use super::solve::{Equation, System, Value, ValueId};
use crate::mesh::{Axis, AxisType, Mesh};
use crate::program::{
    Control, Input, Loop, Op, Pin, Placement, Primitive, Program, ShardMapping, Var, VarInfo,
};
use crate::sharding::atoms::{canonical, of_spec};
use crate::sharding::{Atom, Atoms, Spec};
use crate::types::ArrayType;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// A system under construction.
#[derive(Default)]
pub(super) struct Graph {
    pub(super) system: System,
    /// Whether anything is to be propagated: without auto axes, types say all.
    rules: bool,
    /// Values asked to be placed so, by whom they are made.
    asked: Vec<(ValueId, Vec<Atoms>)>,
}

/// A program being entered.
struct Scope<'a> {
    program: &'a Program,
    mesh: Option<Mesh>,
    ids: Vec<Option<ValueId>>,
    constant: Vec<bool>,
    nested: Vec<Vec<Instance>>,
    constants: Vec<ConstantUse>,
}

fn atom(mesh: &Mesh, axis: Axis) -> Atom {
    Atom { stride: mesh.step(axis), size: mesh.extent(axis) }
}

/// The digits that no dimension may take: of axes that are not auto, other than those named.
fn blocked(mesh: &Mesh, manual: &[Axis], named: &[Spec]) -> Vec<Atom> {
    let free = |a: Axis| mesh.axis_type(a) == Some(AxisType::Auto) && !manual.contains(&a);
    let named = |a: Axis| named.iter().any(|s| s.dims().iter().any(|d| d.contains(a)));
    let axes = mesh.axis_names().iter().copied().filter(|a| !free(*a) && !named(*a));
    axes.map(|a| atom(mesh, a)).filter(|a| a.size > 1).collect()
}

/// A value of which no more is known than its type.
fn typed(ty: &ArrayType, mesh: Option<&Mesh>) -> Value {
    let rank = ty.rank();
    let mesh = ty.mesh.as_ref().or(mesh);
    let dims = mesh.map_or(vec![Atoms::new(); rank], |m| of_spec(m, ty.spec.padded(rank)));
    Value {
        shape: ty.shape.to_vec(),
        closed: vec![false; rank],
        divides: dims.iter().map(|d| !d.is_empty()).collect(),
        blocked: mesh.map_or(Vec::new(), |m| blocked(m, &[], &[ty.spec])),
        dims,
        cut: None,
    }
}

impl Graph {
    pub(super) fn new(rules: bool) -> Graph {
        Graph { rules, ..Graph::default() }
    }
    fn value(&mut self, value: Value) -> ValueId {
        self.system.values.push(value);
        self.system.values.len() - 1
    }
    fn equation(&mut self, rule: impl FnOnce() -> Rule, values: Vec<Option<ValueId>>, inside: Option<usize>) {
        if self.rules {
            self.system.equations.push(Equation { rule: rule(), values, inside });
        }
    }
    /// Sources that are, or may become, the target.
    fn edge(&mut self, sources: &[Option<ValueId>], target: ValueId) {
        let shape = self.system.values[target].shape.clone();
        let values = sources.iter().copied().chain([Some(target)]).collect();
        self.equation(|| Rule::identity(&shape, sources.len(), 1), values, None);
    }

    /// Enters a program on a mesh. `known`: the values that its inputs are, where they are values of the program around it.
    pub(super) fn program(
        &mut self,
        program: &Program,
        mesh: Option<&Mesh>,
        known: &[Option<ValueId>],
    ) -> Instance {
        let mut scope = Scope {
            program,
            mesh: program.mesh.as_ref().or(mesh).cloned(),
            ids: vec![None; program.vars.len()],
            constant: vec![false; program.vars.len()],
            nested: Vec::new(),
            constants: Vec::new(),
        };
        for (i, var) in program.inputs.iter().enumerate() {
            let id = match known.get(i).copied().flatten() {
                Some(id) => id,
                None => self.input(&scope, *var),
            };
            scope.ids[var.index()] = Some(id);
        }
        for (e, equation) in program.equations.iter().enumerate() {
            let uses: Vec<_> = (equation.inputs.iter().enumerate())
                .map(|(k, input)| self.read(&mut scope, input, e, k))
                .collect();
            match &equation.op {
                Op::Prim(prim) => self.prim(&mut scope, &**prim, &equation.inputs, &uses, &equation.outputs),
                Op::Control(control) => {
                    let (results, nested) = self.control(&scope, control, &uses, &equation.outputs);
                    for (var, id) in equation.outputs.iter().zip(results) {
                        scope.ids[var.index()] = Some(id);
                    }
                    scope.nested.push(nested);
                }
            }
        }
        for (k, output) in program.outputs.iter().enumerate() {
            self.read(&mut scope, output, program.equations.len(), k);
        }
        // variables that nothing binds have a value all the same, so that every variable is placed
        let ids = (0..program.vars.len()).map(|v| match scope.ids[v] {
            Some(id) => id,
            None => self.value(typed(&program.vars[v].ty, scope.mesh.as_ref())),
        });
        Instance { ids: ids.collect(), nested: scope.nested, constants: scope.constants, mesh: scope.mesh }
    }
    fn input(&mut self, scope: &Scope<'_>, var: Var) -> ValueId {
        let VarInfo { ty, placement } = &scope.program.vars[var.index()];
        let mut value = typed(ty, scope.mesh.as_ref());
        if let Some(p) = placement {
            value.dims = p.dims.clone();
            value.closed = vec![true; ty.rank()];
        }
        self.value(value)
    }
    /// The value that an equation reads; none for numbers.
    fn read(
        &mut self,
        scope: &mut Scope<'_>,
        input: &Input,
        equation: usize,
        operand: usize,
    ) -> Option<ValueId> {
        let Input::Var(var) = input else { return None };
        if self.rules && scope.constant[var.index()] {
            let id = self.result(scope, *var);
            scope.constants.push(ConstantUse { var: *var, equation, operand, id });
            return Some(id);
        }
        scope.ids[var.index()]
    }
    fn result(&mut self, scope: &Scope<'_>, var: Var) -> ValueId {
        self.value(typed(scope.program.ty(var), scope.mesh.as_ref()))
    }
    fn prim(
        &mut self,
        scope: &mut Scope<'_>,
        prim: &dyn Primitive,
        inputs: &[Input],
        uses: &[Option<ValueId>],
        outputs: &[Var],
    ) {
        let results: Vec<ValueId> = outputs.iter().map(|v| self.result(scope, *v)).collect();
        for (var, id) in outputs.iter().zip(&results) {
            scope.ids[var.index()] = Some(*id);
        }
        if !self.rules {
            return;
        }
        let pin = prim.pins().or_else(|| {
            // a result asked for over auto axes too, which its type does not show
            let mesh = scope.program.ty(*outputs.first()?).mesh.clone()?;
            let spec = prim.out()?;
            let auto = |a: Axis| mesh.axis_type(a) == Some(AxisType::Auto);
            spec.all_axes().any(auto).then_some(Pin { mesh, spec, open: Vec::new(), loose: false })
        });
        if let (Some(pin), Some(&result)) = (&pin, results.first()) {
            self.pin(result, pin);
        }
        if prim.pins().is_some() {
            let (Some(&result), source) = (results.first(), uses.first().copied().flatten()) else { return };
            self.edge(&[source], result);
            if let Some(source) = source.filter(|_| self.system.values[result].closed.iter().all(|c| *c)) {
                self.asked.push((source, self.system.values[result].dims.clone()));
            }
            return;
        }
        if let ([only], true) = (outputs, uses.iter().all(Option::is_none)) {
            scope.constant[only.index()] = pin.is_none();
            return;
        }
        let operands: Vec<ArrayType> = inputs.iter().map(|i| scope.program.input_type(i)).collect();
        let shapes: Vec<_> =
            outputs.iter().map(|v| scope.program.ty(*v)).map(|t| (t.dtype, t.shape.clone())).collect();
        let factors = prim.factors(&operands, &shapes);
        let read = uses.iter().copied().chain(std::iter::repeat(None)).take(factors.operands.len());
        let made =
            results.iter().copied().map(Some).chain(std::iter::repeat(None)).take(factors.results.len());
        let values = read.chain(made).collect();
        self.equation(|| Rule::new(&factors, prim.priority()), values, None);
    }
    /// A value asked to be placed so.
    fn pin(&mut self, id: ValueId, pin: &Pin) {
        let value = &mut self.system.values[id];
        let wanted = of_spec(&pin.mesh, pin.spec.padded(value.shape.len()));
        for (d, wanted) in wanted.into_iter().enumerate().take(value.dims.len()) {
            let own = &value.dims[d];
            let spoken_of = own.iter().any(|o| wanted.iter().any(|w| w.clashes(*o)));
            value.dims[d] = if spoken_of { wanted } else { canonical(own.iter().copied().chain(wanted)) };
            value.closed[d] = !(pin.loose || pin.open.contains(&d));
        }
    }
    /// A result of the whole program asked to be placed so.
    pub(super) fn wanted(&mut self, program: &Program, instance: &Instance, k: usize, placement: &Placement) {
        let Some(Input::Var(var)) = program.outputs.get(k) else { return };
        let id = instance.use_of(*var, program.equations.len(), k);
        let mut value = self.system.values[id].clone();
        value.cut = None;
        value.dims = placement.dims.clone();
        value.closed.fill(true);
        let result = self.value(value);
        self.edge(&[Some(id)], result);
        self.asked.push((id, placement.dims.clone()));
    }
    /// What is asked of a value is set on the value itself already, if nothing else is asked of it and its type allows it: then
    /// what computes it is split as its user asked, too.
    pub(super) fn settle_asked(&mut self) {
        let mut asked: BTreeMap<ValueId, Option<Vec<Atoms>>> = BTreeMap::new();
        for (id, dims) in self.asked.drain(..) {
            match asked.entry(id) {
                Entry::Vacant(e) => drop(e.insert(Some(dims))),
                Entry::Occupied(mut e) if e.get().as_ref() != Some(&dims) => drop(e.insert(None)),
                Entry::Occupied(_) => {}
            }
        }
        for (id, dims) in asked {
            let (value, Some(dims)) = (&mut self.system.values[id], dims) else { continue };
            let open = !value.closed.iter().any(|c| *c) && value.cut.is_none();
            let allowed = value.dims.iter().zip(&dims).all(|(own, to)| {
                let free = value.blocked.iter().all(|b| !to.iter().any(|t| t.clashes(*b)));
                free && is_prefix(own, to)
            });
            if open && allowed {
                value.dims = dims;
                value.closed.fill(true);
            }
        }
    }

    /// Enters the nested programs; the values that the results are.
    fn control(
        &mut self,
        scope: &Scope<'_>,
        control: &Control,
        uses: &[Option<ValueId>],
        outputs: &[Var],
    ) -> (Vec<ValueId>, Vec<Instance>) {
        let mesh = scope.mesh.as_ref();
        match control {
            Control::Jit { body, .. } => {
                let inner = self.program(body, mesh, uses);
                let results = outputs.iter().enumerate();
                let results = results.map(|(k, v)| match inner.output(body, k) {
                    Some(id) => id,
                    None => self.result(scope, *v),
                });
                (results.collect(), vec![inner])
            }
            Control::Modes { body, .. } => {
                let inner = self.program(body, mesh, &[]);
                for (outer, var) in uses.iter().zip(&body.inputs) {
                    self.edge(&[*outer], inner.ids[var.index()]);
                }
                let results = outputs.iter().enumerate().map(|(k, v)| {
                    let id = self.result(scope, *v);
                    self.edge(&[inner.output(body, k)], id);
                    id
                });
                (results.collect(), vec![inner])
            }
            Control::Loop(l) => self.fixed_loop(scope, l, uses, outputs),
            Control::While { cond, body, cond_fixed, body_fixed } => {
                let (of_cond, rest) = uses.split_at((*cond_fixed).min(uses.len()));
                let (of_body, carries) = rest.split_at((*body_fixed).min(rest.len()));
                let inner = self.program(body, mesh, of_body);
                let owners: Vec<_> =
                    body.inputs[of_body.len()..].iter().map(|v| inner.ids[v.index()]).collect();
                for (k, (init, owner)) in carries.iter().zip(&owners).enumerate() {
                    self.edge(&[*init, inner.output(body, k)], *owner);
                }
                let known: Vec<_> = of_cond.iter().copied().chain(owners.iter().copied().map(Some)).collect();
                let test = self.program(cond, mesh, &known);
                (owners, vec![test, inner])
            }
            Control::Cond { branches } => {
                let inner: Vec<_> =
                    branches.iter().map(|b| self.program(b, mesh, uses.get(1..).unwrap_or(&[]))).collect();
                let results = outputs.iter().enumerate().map(|(k, v)| {
                    let id = self.result(scope, *v);
                    let sources: Vec<_> = inner.iter().zip(branches).map(|(i, b)| i.output(b, k)).collect();
                    self.edge(&sources, id);
                    id
                });
                (results.collect(), inner)
            }
            Control::ShardMap(mapping) => self.shard_map(mapping, uses, outputs),
            Control::Print { .. } => (Vec::new(), Vec::new()),
        }
    }
    fn fixed_loop(
        &mut self,
        scope: &Scope<'_>,
        l: &Loop,
        uses: &[Option<ValueId>],
        outputs: &[Var],
    ) -> (Vec<ValueId>, Vec<Instance>) {
        let body = &l.body;
        let given = l.parts(uses);
        // the step's number is nobody's
        let known: Vec<_> = std::iter::once(None).chain(given.fixed).collect();
        let inner = self.program(body, scope.mesh.as_ref(), &known);
        let ids: Vec<ValueId> = body.inputs.iter().map(|v| inner.ids[v.index()]).collect();
        let (_, own) = l.step_parts(&ids);
        let mut results = Vec::new();
        for (k, (init, owner)) in given.carry.iter().zip(own.carry).enumerate() {
            self.edge(&[*init, inner.output(body, k)], owner);
            results.push(owner);
        }
        for (array, slice) in given.xs.iter().zip(own.xs) {
            let Some(array) = *array else { continue };
            let shape = self.system.values[array].shape.clone();
            self.equation(|| Rule::slice_of(&shape), vec![Some(array), Some(slice)], None);
        }
        for (k, var) in outputs.iter().enumerate().skip(l.carry) {
            let id = self.result(scope, *var);
            let value = &mut self.system.values[id];
            // it is written a step at a time, so all of the leading dimension is where its steps are
            if let Some(leading) = value.closed.first_mut() {
                *leading = true;
            }
            let shape = value.shape.clone();
            self.equation(|| Rule::stack_of(&shape), vec![inner.output(body, k), Some(id)], None);
            results.push(id);
        }
        (results, vec![inner])
    }
    fn shard_map(
        &mut self,
        mapping: &ShardMapping,
        uses: &[Option<ValueId>],
        outputs: &[Var],
    ) -> (Vec<ValueId>, Vec<Instance>) {
        let ShardMapping { body, mesh, axes, in_specs, out_specs, .. } = mapping;
        let manual = mesh.retyped(axes, AxisType::Manual).ok();
        let inner = self.program(body, manual.as_ref().or(Some(mesh)), &[]);
        // a value at the border: cut over the manual axes, then as its block is split inside
        let border = |graph: &Graph, within: Option<ValueId>, ty: &ArrayType, spec: Spec| {
            let mut value = typed(ty, manual.as_ref());
            if let Some(id) = within {
                value.shape.clone_from(&graph.system.values[id].shape);
            }
            value.blocked = blocked(mesh, axes.as_slice(), &[spec, ty.spec]);
            value.cut = Some(of_spec(mesh, spec.padded(ty.rank())));
            value
        };
        for ((outer, var), spec) in uses.iter().zip(&body.inputs).zip(in_specs) {
            let (Some(outer), id) = (*outer, inner.ids[var.index()]) else { continue };
            let value = border(self, Some(id), body.ty(*var), *spec);
            let shape = value.shape.clone();
            let at = self.value(value);
            let whole = self.system.values[outer].shape.clone();
            self.equation(|| Rule::identity(&whole, 1, 1), vec![Some(outer), Some(at)], None);
            self.equation(|| Rule::identity(&shape, 1, 1), vec![Some(at), Some(id)], Some(0));
        }
        let results = (0..outputs.len()).map(|k| {
            let within = inner.output(body, k);
            let spec = out_specs.get(k).copied().unwrap_or(Spec::whole(0));
            let value = border(self, within, &body.input_type(&body.outputs[k]), spec);
            let shape = value.shape.clone();
            let at = self.value(value);
            self.equation(|| Rule::identity(&shape, 1, 1), vec![within, Some(at)], Some(1));
            at
        });
        (results.collect(), vec![inner])
    }
}

/// Whether propagation has anything to decide: whether any axis of any mesh in the program is auto.
pub(super) fn decides(program: &Program) -> bool {
    let auto = |m: &Mesh| m.axis_types().contains(&AxisType::Auto);
    let mut last: Option<&Mesh> = None;
    let mut meshes = program.vars.iter().filter_map(|v| v.ty.mesh.as_ref()).chain(&program.mesh);
    meshes.any(|m| {
        let same = last == Some(m);
        last = Some(m);
        !same && auto(m)
    }) || program.equations.iter().any(|e| match &e.op {
        Op::Control(c) => c.bodies().into_iter().any(|b| decides(b)),
        Op::Prim(_) => false,
    })
}
