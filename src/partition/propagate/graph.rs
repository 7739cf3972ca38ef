//! Builds one system of values and equations from a program and its nested programs.
//!
//! The dataflow between the programs is part of the system.

use super::instance::{ConstantUse, Instance};
use super::solve::{FactorEquation, PropagatedValue, System, ValueId};
use super::{rule::PropagationRule, sub_axes::is_prefix};
use crate::core::sharding::sub_axes::{canonicalize, from_spec};
use crate::core::{ArrayType, Axis, AxisType, Mesh, Spec, SubAxes, SubAxis};
use crate::ir::program::{
    Control, CustomCall, Input, Loop, Op, Placement, Primitive, Program, ShardMapping, ShardingConstraint,
    Var, VarInfo,
};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

/// The builder of a system.
#[derive(Default)]
pub(super) struct SystemBuilder {
    /// The system built so far.
    pub(super) system: System,
    /// True if there are auto axes.
    /// Otherwise types determine all placements, and equations are not added.
    rules: bool,
    /// The requested placements, with the values from which they are copied.
    requested: Vec<(ValueId, Vec<SubAxes>)>,
}

/// A program while its variables and equations are added.
struct Scope<'a> {
    /// The program.
    program: &'a Program,
    /// The mesh of values whose types have none.
    mesh: Option<Mesh>,
    /// The value of each variable, once defined.
    ids: Vec<Option<ValueId>>,
    /// For each variable, true if it depends on no other variable.
    constant: Vec<bool>,
    /// The programs nested in each control equation.
    nested: Vec<Vec<Instance>>,
    /// The uses of constants.
    constants: Vec<ConstantUse>,
}

fn sub_axis(mesh: &Mesh, axis: Axis) -> SubAxis {
    SubAxis { stride: mesh.stride_of(axis), size: mesh.extent(axis) }
}

/// Returns the sub-axes that no dimension may use.
/// They belong to axes that are not auto and that no spec in `named` contains.
fn blocked(mesh: &Mesh, manual: &[Axis], named: &[Spec]) -> Vec<SubAxis> {
    let free = |a: Axis| mesh.axis_type(a) == Some(AxisType::Auto) && !manual.contains(&a);
    let named = |a: Axis| named.iter().any(|s| s.dims().iter().any(|d| d.contains(a)));
    let axes = mesh.axis_names().iter().copied().filter(|a| !free(*a) && !named(*a));
    axes.map(|a| sub_axis(mesh, a)).filter(|a| a.size > 1).collect()
}

/// Returns a value with the sharding in its type.
fn value_of_type(ty: &ArrayType, mesh: Option<&Mesh>) -> PropagatedValue {
    let rank = ty.rank();
    let mesh = ty.mesh.as_ref().or(mesh);
    let dims = mesh.map_or(vec![SubAxes::new(); rank], |m| from_spec(m, ty.spec.padded(rank)));
    PropagatedValue {
        shape: ty.shape.to_vec(),
        closed: vec![false; rank],
        must_divide: dims.iter().map(|d| !d.is_empty()).collect(),
        blocked: mesh.map_or(Vec::new(), |m| blocked(m, &[], &[ty.spec])),
        dims,
        cut: None,
    }
}

impl SystemBuilder {
    pub(super) fn new(rules: bool) -> SystemBuilder {
        SystemBuilder { rules, ..SystemBuilder::default() }
    }
    fn value(&mut self, value: PropagatedValue) -> ValueId {
        self.system.values.push(value);
        self.system.values.len() - 1
    }
    fn equation(
        &mut self,
        rule: impl FnOnce() -> PropagationRule,
        values: Vec<Option<ValueId>>,
        inside: Option<usize>,
    ) {
        if self.rules {
            self.system.equations.push(FactorEquation { rule: rule(), values, inside });
        }
    }
    /// Adds an equation that identifies a value with each of its possible sources.
    fn edge(&mut self, sources: &[Option<ValueId>], target: ValueId) {
        let shape = self.system.values[target].shape.clone();
        let values = sources.iter().copied().chain([Some(target)]).collect();
        self.equation(|| PropagationRule::identity(&shape, sources.len(), 1), values, None);
    }

    /// Adds a program on a mesh.
    /// `known` gives the values of inputs that are values of the program around it.
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
        // variables that no equation defines get a value too, so that every variable is placed
        let ids = (0..program.vars.len()).map(|v| match scope.ids[v] {
            Some(id) => id,
            None => self.value(value_of_type(&program.vars[v].ty, scope.mesh.as_ref())),
        });
        Instance { ids: ids.collect(), nested: scope.nested, constants: scope.constants, mesh: scope.mesh }
    }
    fn input(&mut self, scope: &Scope<'_>, var: Var) -> ValueId {
        let VarInfo { ty, placement } = &scope.program.vars[var.index()];
        let mut value = value_of_type(ty, scope.mesh.as_ref());
        if let Some(p) = placement {
            value.dims = p.dims.clone();
            value.closed = vec![true; ty.rank()];
        }
        self.value(value)
    }
    /// Returns the value that an equation reads, `None` for a literal.
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
        self.value(value_of_type(scope.program.ty(var), scope.mesh.as_ref()))
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
        let pin = prim.constraint().or_else(|| {
            // the type of the result does not show a constraint over auto axes
            let mesh = scope.program.ty(*outputs.first()?).mesh.clone()?;
            let spec = prim.out_sharding()?;
            let auto = |a: Axis| mesh.axis_type(a) == Some(AxisType::Auto);
            spec.all_axes().any(auto).then_some(ShardingConstraint {
                mesh,
                spec,
                open_dims: Vec::new(),
                explicit_only: false,
            })
        });
        if let (Some(pin), Some(&result)) = (&pin, results.first()) {
            self.constrain(result, pin);
        }
        if prim.constraint().is_some() {
            let (Some(&result), source) = (results.first(), uses.first().copied().flatten()) else { return };
            self.edge(&[source], result);
            if let Some(source) = source.filter(|_| self.system.values[result].closed.iter().all(|c| *c)) {
                self.requested.push((source, self.system.values[result].dims.clone()));
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
        self.equation(|| PropagationRule::new(&factors, prim.priority()), values, None);
    }
    /// Applies a requested placement to a value.
    fn constrain(&mut self, id: ValueId, pin: &ShardingConstraint) {
        let value = &mut self.system.values[id];
        let requested = from_spec(&pin.mesh, pin.spec.padded(value.shape.len()));
        for (d, requested) in requested.into_iter().enumerate().take(value.dims.len()) {
            let own = &value.dims[d];
            let spoken_of = own.iter().any(|o| requested.iter().any(|w| w.overlaps(*o)));
            value.dims[d] =
                if spoken_of { requested } else { canonicalize(own.iter().copied().chain(requested)) };
            value.closed[d] = !(pin.explicit_only || pin.open_dims.contains(&d));
        }
    }
    /// Requests the placement of a program result.
    pub(super) fn request_output(
        &mut self,
        program: &Program,
        instance: &Instance,
        k: usize,
        placement: &Placement,
    ) {
        let Some(Input::Var(var)) = program.outputs.get(k) else { return };
        let id = instance.use_of(*var, program.equations.len(), k);
        let mut value = self.system.values[id].clone();
        value.cut = None;
        value.dims = placement.dims.clone();
        value.closed.fill(true);
        let result = self.value(value);
        self.edge(&[Some(id)], result);
        self.requested.push((id, placement.dims.clone()));
    }
    /// Applies requests directly to the requested values where possible.
    ///
    /// A value gets a requested placement if no other is requested of it and its type allows it.
    /// The operations that compute it are then split in the same way.
    pub(super) fn apply_requests(&mut self) {
        let mut asked: BTreeMap<ValueId, Option<Vec<SubAxes>>> = BTreeMap::new();
        for (id, dims) in self.requested.drain(..) {
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
                let free = value.blocked.iter().all(|b| !to.iter().any(|t| t.overlaps(*b)));
                free && is_prefix(own, to)
            });
            if open && allowed {
                value.dims = dims;
                value.closed.fill(true);
            }
        }
    }

    /// Adds the nested programs of a control equation, and returns the values of its results.
    fn control(
        &mut self,
        scope: &Scope<'_>,
        control: &Control,
        uses: &[Option<ValueId>],
        outputs: &[Var],
    ) -> (Vec<ValueId>, Vec<Instance>) {
        let mesh = scope.mesh.as_ref();
        match control {
            Control::Jit { body, .. } | Control::Custom(CustomCall { body, .. }) => {
                let inner = self.program(body, mesh, uses);
                let results = outputs.iter().enumerate();
                let results = results.map(|(k, v)| match inner.output(body, k) {
                    Some(id) => id,
                    None => self.result(scope, *v),
                });
                (results.collect(), vec![inner])
            }
            Control::AxisModes { body, .. } => {
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
    /// Adds a loop with a known trip count, and returns the values of its results.
    fn fixed_loop(
        &mut self,
        scope: &Scope<'_>,
        l: &Loop,
        uses: &[Option<ValueId>],
        outputs: &[Var],
    ) -> (Vec<ValueId>, Vec<Instance>) {
        let body = &l.body;
        let given = l.split_operands(uses);
        // the iteration index has no value outside
        let known: Vec<_> = std::iter::once(None).chain(given.fixed).collect();
        let inner = self.program(body, scope.mesh.as_ref(), &known);
        let ids: Vec<ValueId> = body.inputs.iter().map(|v| inner.ids[v.index()]).collect();
        let (_, own) = l.split_body_inputs(&ids);
        let mut results = Vec::new();
        for (k, (init, owner)) in given.carry.iter().zip(own.carry).enumerate() {
            self.edge(&[*init, inner.output(body, k)], owner);
            results.push(owner);
        }
        for (array, slice) in given.xs.iter().zip(own.xs) {
            let Some(array) = *array else { continue };
            let shape = self.system.values[array].shape.clone();
            self.equation(|| PropagationRule::slice(&shape), vec![Some(array), Some(slice)], None);
        }
        for (k, var) in outputs.iter().enumerate().skip(l.carry) {
            let id = self.result(scope, *var);
            let value = &mut self.system.values[id];
            // results are written one iteration at a time, so the leading dimension stays unsharded
            if let Some(leading) = value.closed.first_mut() {
                *leading = true;
            }
            let shape = value.shape.clone();
            self.equation(|| PropagationRule::stack(&shape), vec![inner.output(body, k), Some(id)], None);
            results.push(id);
        }
        (results, vec![inner])
    }
    /// Adds a `shard_map`, and returns the values of its results.
    fn shard_map(
        &mut self,
        mapping: &ShardMapping,
        uses: &[Option<ValueId>],
        outputs: &[Var],
    ) -> (Vec<ValueId>, Vec<Instance>) {
        let ShardMapping { body, mesh, axes, in_specs, out_specs, .. } = mapping;
        let manual = mesh.with_axis_types(axes, AxisType::Manual).ok();
        let inner = self.program(body, manual.as_ref().or(Some(mesh)), &[]);
        // a value at the boundary is cut over the manual axes, then split like its block inside
        let border = |graph: &SystemBuilder, within: Option<ValueId>, ty: &ArrayType, spec: Spec| {
            let mut value = value_of_type(ty, manual.as_ref());
            if let Some(id) = within {
                value.shape.clone_from(&graph.system.values[id].shape);
            }
            value.blocked = blocked(mesh, axes.as_slice(), &[spec, ty.spec]);
            value.cut = Some(from_spec(mesh, spec.padded(ty.rank())));
            value
        };
        for ((outer, var), spec) in uses.iter().zip(&body.inputs).zip(in_specs) {
            let (Some(outer), id) = (*outer, inner.ids[var.index()]) else { continue };
            let value = border(self, Some(id), body.ty(*var), *spec);
            let shape = value.shape.clone();
            let at = self.value(value);
            let full = self.system.values[outer].shape.clone();
            self.equation(|| PropagationRule::identity(&full, 1, 1), vec![Some(outer), Some(at)], None);
            self.equation(|| PropagationRule::identity(&shape, 1, 1), vec![Some(at), Some(id)], Some(0));
        }
        let results = (0..outputs.len()).map(|k| {
            let within = inner.output(body, k);
            let spec = out_specs.get(k).copied().unwrap_or(Spec::replicated(0));
            let value = border(self, within, &body.input_type(&body.outputs[k]), spec);
            let shape = value.shape.clone();
            let at = self.value(value);
            self.equation(|| PropagationRule::identity(&shape, 1, 1), vec![within, Some(at)], Some(1));
            at
        });
        (results.collect(), vec![inner])
    }
}

/// Returns true if any mesh in the program has an auto axis.
/// Otherwise there is nothing to propagate.
pub(super) fn has_auto_axes(program: &Program) -> bool {
    let auto = |m: &Mesh| m.axis_types().contains(&AxisType::Auto);
    let mut last: Option<&Mesh> = None;
    let mut meshes = program.vars.iter().filter_map(|v| v.ty.mesh.as_ref()).chain(&program.mesh);
    meshes.any(|m| {
        let same = last == Some(m);
        last = Some(m);
        !same && auto(m)
    }) || program.equations.iter().any(|e| match &e.op {
        Op::Control(c) => c.bodies().into_iter().any(|b| has_auto_axes(b)),
        Op::Prim(_) => false,
    })
}
