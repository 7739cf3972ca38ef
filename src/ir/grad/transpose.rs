//! Transposes linear programs: computes cotangents of inputs from cotangents of results.

use super::util::{as_var, input_types, inputs};
use super::{backward_loop, call, cond, loops, shard_map, unreduced::UnreducedCotangents};
use crate::core::{ArrayType, Axes, AxisType, Result};
use crate::ir::ops::sharding::Reshard;
use crate::ir::program::dce::{dce, select};
use crate::ir::program::{
    Builder, Control, Env, Equation, EquationContext, Input, Op, Phase, Prim, Program, Tangents,
    TransposeArgs, Value, Var,
    typing::{cotangent_type, not_linear_error},
    verify,
};

/// A transposed linear program.
#[derive(Clone, Debug)]
pub(super) struct TransposedProgram {
    /// The transposed program.
    /// It takes the nonlinear inputs, then the given cotangents. It returns the cotangents of the
    /// linear inputs for which `reached` is set.
    pub(super) program: Program,
    /// Marks the linear inputs that have a cotangent.
    pub(super) reached: Vec<bool>,
}

/// The conversion of an input's cotangent before it leaves the transposed program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CotangentExit {
    /// The cotangent is converted to the cotangent type of the input.
    Fitted,
    /// The cotangent keeps its type if all its contributions have the same type.
    /// The caller converts it, after it has added more contributions.
    Unfitted,
    /// As `Unfitted`, and the cotangent stays unreduced if it is a sum of partial values.
    /// The caller adds more partial values to it.
    Unreduced,
}

/// Transposes a program that is linear in the marked inputs.
/// `given` marks the results that have a cotangent. `leave` returns how the cotangent of each input
/// is converted.
pub(super) fn transpose(
    program: &Program,
    is_linear: &[bool],
    given: &[bool],
    leave: &dyn Fn(usize) -> CotangentExit,
) -> Result<TransposedProgram> {
    let mut b = Builder::new();
    if let Some(mesh) = &program.mesh {
        b.set_default_mesh(mesh);
    }
    let mut values = Vec::with_capacity(is_linear.len());
    for (ty, is_linear) in input_types(program).into_iter().zip(is_linear) {
        values.push((!is_linear).then(|| b.input(ty, None)));
    }
    let mut cts = Vec::with_capacity(given.len());
    for (ty, given) in program.output_types().iter().zip(given) {
        cts.push(given.then(|| b.input(cotangent_type(ty), None)));
    }
    let back = select(&backward_pass(&mut b, program, &values, &cts, leave)?, is_linear);
    let reached = back.iter().map(Option::is_some).collect();
    let outs: Vec<Value> = back.into_iter().flatten().collect();
    Ok(TransposedProgram { program: dce(&b.finish(&outs)), reached })
}

/// An equation to transpose, with the values that are available to it.
pub(super) struct TransposedOp<'a> {
    /// The values of the operands; `None` for linear operands.
    pub(super) operands: Tangents,
    /// The types of all operands.
    pub(super) types: Vec<ArrayType>,
    /// The cotangents of the results; `None` is zero.
    pub(super) cts: &'a [Option<Value>],
    /// The axes over which the cotangent of each operand stays unreduced.
    pub(super) unreduced: Vec<Axes>,
}

impl TransposedOp<'_> {
    /// Returns a flag for each operand that is true if it is linear.
    pub(super) fn is_linear(&self) -> Vec<bool> {
        self.operands.iter().map(Option::is_none).collect()
    }
    /// Returns a flag for each result that is true if it has a cotangent.
    pub(super) fn has_cotangent(&self) -> Vec<bool> {
        self.cts.iter().map(Option::is_some).collect()
    }
    /// Returns the cotangents that are not zero.
    pub(super) fn cotangents(&self) -> Vec<Value> {
        self.cts.iter().flatten().cloned().collect()
    }
    /// Returns the values of the operands that are not linear.
    pub(super) fn known_operands(&self) -> Vec<Value> {
        self.operands.iter().flatten().cloned().collect()
    }
    /// Distributes the cotangents of the linear operands that have one over all operands.
    pub(super) fn spread_cotangents(&self, reached: &[bool], outs: Vec<Value>) -> Tangents {
        let (mut reached, mut outs) = (reached.iter(), outs.into_iter());
        let mut next = || reached.next().filter(|r| **r).and_then(|_| outs.next());
        self.operands.iter().map(|o| if o.is_none() { next() } else { None }).collect()
    }
}

/// Transposes `program`: runs nonlinear equations forward, then transposes the others in reverse.
///
/// `values` has a value for each known (not linear) input and `None` for each linear one. Returns
/// the cotangents of the linear inputs that the given cotangents reach.
pub(super) fn backward_pass(
    b: &mut Builder,
    program: &Program,
    values: &[Option<Value>],
    given: &[Option<Value>],
    leave: &dyn Fn(usize) -> CotangentExit,
) -> Result<Tangents> {
    let outer = b.context().clone();
    let backward = EquationContext { phase: Phase::Backward, ..outer.clone() };
    let (known, linear) = recompute(b, program, values);
    let mut cts = vec![CotangentSum::default(); program.vars.len()];
    b.set_context(backward.clone());
    for (output, ct) in program.outputs.iter().zip(given) {
        if let (Some(v), Some(ct)) = (as_var(output), ct) {
            cts[v.index()].add(b, ct)?;
        }
    }
    let unreduced = UnreducedCotangents::find(program, &linear, &|i| leave(i) == CotangentExit::Unreduced);
    let mut is_resharded = vec![false; program.vars.len()];
    let reshards = linear.iter().filter(|e| reshard_of(e).is_some());
    reshards.for_each(|e| is_resharded[e.outputs[0].index()] = true);
    for e in linear.into_iter().rev() {
        b.set_context(outer.of_transpose(e));
        if let Some(v) = reshard_of(e) {
            let of_result = std::mem::take(&mut cts[e.outputs[0].index()]);
            let types = [e.outputs[0], v].map(|v| program.ty(v));
            // in a chain of reshards, partial values are summed at the first one
            for ct in of_result.resharded(b, types, is_resharded[v.index()])? {
                cts[v.index()].add(b, &ct)?;
            }
            continue;
        }
        let mut of_results = Vec::with_capacity(e.outputs.len());
        for v in &e.outputs {
            of_results.push(std::mem::take(&mut cts[v.index()]).fitted(b, program.ty(*v))?);
        }
        if of_results.iter().all(Option::is_none) {
            continue;
        }
        let turned = TransposedOp {
            operands: e.inputs.iter().map(|i| known.try_get(i)).collect(),
            types: e.inputs.iter().map(|i| program.input_type(i)).collect(),
            cts: &of_results,
            unreduced: (0..e.inputs.len()).map(|k| unreduced.of_operand(program, e, k)).collect(),
        };
        let back = transpose_equation(b, e, &turned)?;
        for ((input, ct), operand) in e.inputs.iter().zip(back).zip(&turned.operands) {
            if let (Some(v), Some(ct), None) = (as_var(input), ct, operand) {
                cts[v.index()].add(b, &ct)?;
            }
        }
    }
    b.set_context(backward);
    let mut back = Vec::with_capacity(values.len());
    for (i, (v, value)) in program.inputs.iter().zip(values).enumerate() {
        let sum = std::mem::take(&mut cts[v.index()]);
        back.push(match (value, sum.0.as_slice()) {
            (Some(_), _) => None,
            (None, [one]) if leave(i) != CotangentExit::Fitted => Some(one.clone()),
            (None, _) => sum.fitted(b, program.ty(*v))?,
        });
    }
    b.set_context(outer);
    Ok(back)
}

/// Emits the nonlinear equations of a program, and returns the values that do not depend on linear
/// inputs, with the other equations.
fn recompute<'p>(
    b: &mut Builder,
    program: &'p Program,
    values: &[Option<Value>],
) -> (Env<Value>, Vec<&'p Equation>) {
    let mut known: Env<Value> = Env::new(program, []);
    for (v, value) in program.inputs.iter().zip(values) {
        known.bind(&[*v], value.clone());
    }
    let recomputed = EquationContext { phase: Phase::Recomputed, ..b.context().clone() };
    let mut linear: Vec<&Equation> = Vec::new();
    for e in &program.equations {
        let ins: Option<Vec<Value>> = e.inputs.iter().map(|i| known.try_get(i)).collect();
        let Some(ins) = ins else {
            linear.push(e);
            continue;
        };
        b.set_context(recomputed.of(e));
        let types = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
        known.bind(&e.outputs, b.push(e.op.clone(), &ins, types));
    }
    (known, linear)
}

/// The cotangents of a variable, with one sum for each type.
///
/// The conversion to the variable's cotangent type (a sum over devices, a reshard) is then done
/// once per type instead of once per contribution.
#[derive(Clone, Debug, Default)]
struct CotangentSum(Vec<Value>);

impl CotangentSum {
    /// Adds a cotangent to the sum of its type.
    fn add(&mut self, b: &mut Builder, ct: &Value) -> Result<()> {
        match self.0.iter_mut().find(|sum| sum.ty == ct.ty) {
            Some(sum) => *sum = b.accumulate_cotangent(sum, ct)?,
            None => self.0.push(ct.clone()),
        }
        Ok(())
    }
    /// Returns the sums, converted to the cotangent type of the operand of a reshard.
    ///
    /// The types are those of the reshard's result and operand. A sum whose type differs from the
    /// result's cotangent type only in its sharding is converted at once, so that a partial value
    /// is summed and scattered in one step. If `keep_partial`, it stays partial.
    fn resharded(
        self,
        b: &mut Builder,
        [result, operand]: [&ArrayType; 2],
        keep_partial: bool,
    ) -> Result<Vec<Value>> {
        let expected = cotangent_type(result);
        let manual = |ty: &ArrayType| {
            let is_manual = |a| ty.mesh.as_ref().is_some_and(|m| m.axis_type(a) == Some(AxisType::Manual));
            (ty.varying.clone(), ty.mesh.clone(), ty.spec.filter_axes(is_manual))
        };
        let mut all = Vec::new();
        for ct in self.0 {
            let alike = manual(&ct.ty) == manual(&expected);
            if alike && keep_partial && !ct.ty.spec.unreduced_axes().is_empty() {
                all.push(ct);
                continue;
            }
            let ct = if alike { ct } else { b.fit_cotangent(&ct, result)? };
            all.push(b.reshard_to(&ct, &cotangent_type(operand))?);
        }
        Ok(all)
    }
    /// Returns the sum of all cotangents, converted to the cotangent type of `of`.
    fn fitted(self, b: &mut Builder, primal_ty: &ArrayType) -> Result<Option<Value>> {
        let mut all = None;
        for ct in self.0 {
            let ct = b.fit_cotangent(&ct, primal_ty)?;
            all = b.add_optional(all, Some(ct))?;
        }
        Ok(all)
    }
}

/// Records the transpose of an equation and returns the cotangents of its operands.
fn transpose_equation(b: &mut Builder, e: &Equation, turned: &TransposedOp<'_>) -> Result<Tangents> {
    match &e.op {
        Op::Prim(prim) => {
            if let Some(back) = transpose_unreduced(b, prim, turned) {
                return Ok(back);
            }
            transpose_primitive(b, prim, turned, &turned.types)
        }
        Op::Control(call @ Control::Jit { .. }) => call::transpose_jit(b, call, turned),
        Op::Control(Control::AxisModes { body, .. }) => call::transpose_modes(b, body, turned),
        Op::Control(Control::Loop(l)) => backward_loop::transpose_loop(b, l, turned),
        Op::Control(Control::While { .. }) => Err(loops::while_not_reversible(b)),
        Op::Control(Control::Cond { branches }) => cond::transpose_cond(b, branches, turned),
        Op::Control(Control::ShardMap(m)) => shard_map::transpose_shard_map(b, m, turned),
        Op::Control(Control::Custom(call)) => Err(not_linear_error(call.name())),
        Op::Control(Control::Print { .. }) => Ok(vec![None; e.inputs.len()]),
    }
}

/// Records the transpose of a primitive with operands of these types.
fn transpose_primitive(
    b: &mut Builder,
    prim: &Prim,
    turned: &TransposedOp<'_>,
    types: &[ArrayType],
) -> Result<Tangents> {
    let from = b.program().equations.len();
    let operands = &turned.operands;
    let back = prim.transpose(TransposeArgs { builder: b, operands, types, cotangents: turned.cts })?;
    verify::added_equations(b, from, prim.as_ref())?;
    verify::cotangents(b, prim.as_ref(), &back, types)?;
    Ok(back)
}

/// Records the transpose of a primitive, with the cotangents left unreduced that may be.
///
/// Returns `None` if none may be, or if the primitive cannot leave them so. Equations that were
/// recorded by then are unused.
fn transpose_unreduced(b: &mut Builder, prim: &Prim, turned: &TransposedOp<'_>) -> Option<Tangents> {
    if turned.unreduced.iter().all(Axes::is_empty) {
        return None;
    }
    let mut types = turned.types.clone();
    for (ty, more) in types.iter_mut().zip(&turned.unreduced) {
        let over: Axes = ty.spec.reduced_axes().iter().chain(more.iter()).collect();
        ty.spec = ty.spec.reduced(over);
        if let Some(mesh) = &ty.mesh {
            ty.spec = ty.spec.in_order(mesh);
        }
    }
    let from = b.program().equations.len();
    let back = transpose_primitive(b, prim, turned, &types).ok()?;
    // a value that is summed first and unreduced by a reshard would be summed twice
    let unreduces = |e: &Equation| {
        let of = |i: &Input| b.program().input_type(i).spec.unreduced_axes();
        let made = e.outputs.first().map(|v| b.program().ty(*v).spec.unreduced_axes());
        reshard_of(e).is_some() && made.is_some_and(|made| !made.is_subset_of(of(&e.inputs[0])))
    };
    (!b.program().equations[from..].iter().any(unreduces)).then_some(back)
}

/// Returns the operand of a reshard, `None` for other equations.
fn reshard_of(e: &Equation) -> Option<Var> {
    let Op::Prim(prim) = &e.op else { return None };
    prim.downcast_ref::<Reshard>()?;
    as_var(&e.inputs[0])
}

/// Returns a new builder with inputs of the given types, for a body that is built by hand.
pub(super) fn body_builder(types: &[ArrayType]) -> (Builder, Vec<Value>) {
    let mut b = Builder::new();
    let ins = inputs(&mut b, types.iter().cloned());
    (b, ins)
}
