//! Decides which cotangents stay unreduced until they are added.
//!
//! If several operations read one value, its cotangent is a sum. A contribution that is summed over
//! a sharded dimension is a sum of the partial values of devices, too. Such contributions are added
//! on each device first, and their sum is reduced once, as for a value that is reduced over these
//! axes. This concerns explicit axes only: the partitioner decides for auto axes, and the types of
//! per-device code for manual ones.

use super::util::as_var;
use crate::core::{ArrayType, Axes, Axis, AxisType, DType, Mesh, Shape};
use crate::ir::ops::sharding::Reshard;
use crate::ir::program::{Control, DimMap, Equation, Input, LoopId, Op, Prim, Program, Var};
use std::collections::HashMap;

/// The axes over which contributions to the cotangents of variables stay unreduced.
pub(super) struct UnreducedCotangents(HashMap<Var, Vec<Axes>>);

impl UnreducedCotangents {
    /// Finds the cotangents of a linear program that get several partial contributions.
    ///
    /// `linear` has the equations to transpose. `added_to` returns true if the caller adds more
    /// partial values to the cotangent of an input.
    pub(super) fn find(
        program: &Program,
        linear: &[&Equation],
        added_to: &dyn Fn(usize) -> bool,
    ) -> UnreducedCotangents {
        let explicit = |m: &Mesh| !m.axes_of(AxisType::Explicit).is_empty();
        if !program.mesh.as_ref().is_some_and(explicit) {
            return UnreducedCotangents(HashMap::new());
        }
        let mut counts: HashMap<Var, Vec<(Axes, usize)>> = HashMap::new();
        for e in linear {
            for (k, v) in e.inputs.iter().enumerate().filter_map(|(k, i)| Some((k, as_var(i)?))) {
                let over = partial_axes(program, e, k);
                if over.is_empty() {
                    continue;
                }
                let list = counts.entry(v).or_default();
                match list.iter_mut().find(|(known, _)| known.same_set(&over)) {
                    Some((_, n)) => *n += 1,
                    None => list.push((over, 1)),
                }
            }
        }
        let added_outside = |v: &Var| program.inputs.iter().position(|i| i == v).is_some_and(added_to);
        let several = |(v, list): (Var, Vec<(Axes, usize)>)| {
            let least = if added_outside(&v) { 1 } else { 2 };
            let over: Vec<Axes> =
                list.into_iter().filter(|(_, n)| *n >= least).map(|(over, _)| over).collect();
            (!over.is_empty()).then_some((v, over))
        };
        UnreducedCotangents(counts.into_iter().filter_map(several).collect())
    }

    /// Returns the axes over which the contribution of operand `k` of an equation stays unreduced.
    pub(super) fn of_operand(&self, program: &Program, e: &Equation, k: usize) -> Axes {
        let list = as_var(&e.inputs[k]).and_then(|v| self.0.get(&v));
        let Some(list) = list else { return Axes::none() };
        let over = partial_axes(program, e, k);
        if list.iter().any(|a| a.same_set(&over)) { over } else { Axes::none() }
    }
}

/// Returns the explicit axes over which the cotangent of operand `k` is a sum of partial values.
///
/// These axes split dimensions of the result that the operand does not have. Returns no axes if the
/// operand is split over one of them.
fn partial_axes(program: &Program, e: &Equation, k: usize) -> Axes {
    let axes = match &e.op {
        Op::Prim(prim) => axes_of_new_dims(program, e, prim, k),
        Op::Control(Control::Jit { body, .. }) => axes_in_body(body, k),
        Op::Control(_) => Axes::none(),
    };
    let own = program.input_type(&e.inputs[k]);
    let Some(mesh) = &own.mesh else { return Axes::none() };
    let axes: Axes = axes.iter().filter(|a| mesh.axis_type(*a) == Some(AxisType::Explicit)).collect();
    let is_free = |a: Axis| !own.spec.all_axes().any(|b| a == b);
    if axes.iter().all(is_free) { mesh.in_order(axes.iter()) } else { Axes::none() }
}

fn axes_of_new_dims(program: &Program, e: &Equation, prim: &Prim, k: usize) -> Axes {
    let results: Vec<&ArrayType> = e.outputs.iter().map(|v| program.ty(*v)).collect();
    let [result] = results[..] else { return Axes::none() };
    if result.spec.dims().iter().all(|axes| axes.is_empty()) || prim.downcast_ref::<Reshard>().is_some() {
        return Axes::none();
    }
    let operands: Vec<ArrayType> = e.inputs.iter().map(|i| program.input_type(i)).collect();
    let shapes: Vec<(DType, Shape)> = vec![(result.dtype, result.shape.clone())];
    let factors = prim.factors(&operands, &shapes);
    let held =
        |l: &LoopId| factors.operands[k].iter().any(|d| d.map != DimMap::Broadcast && d.loops.contains(l));
    let dims = factors.results[0].iter().zip(result.spec.dims());
    dims.filter(|(d, _)| !d.loops.iter().any(held)).flat_map(|(_, axes)| axes.iter()).collect()
}

/// Returns the axes over which all operations of a called program that read input `k`, and leave
/// partial values, leave them.
fn axes_in_body(body: &Program, k: usize) -> Axes {
    let input = Input::Var(body.inputs[k]);
    let mut all: Option<Axes> = None;
    for e in &body.equations {
        for k in (0..e.inputs.len()).filter(|k| e.inputs[*k] == input) {
            let axes = partial_axes(body, e, k);
            if axes.is_empty() {
                continue;
            }
            if all.as_ref().is_some_and(|known| !known.same_set(&axes)) {
                return Axes::none();
            }
            all = Some(axes);
        }
    }
    all.unwrap_or_default()
}
