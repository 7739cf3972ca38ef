//! Maps the variables of a program to values of the system, and places the solved program.

use super::solve::{PropagatedValue, ValueId};
use crate::core::{ArrayType, Mesh, SubAxes, SubAxis, sharding::sub_axes::from_axes};
use crate::ir::program::{Input, Op, Placement, Program, Var, VarInfo};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The values of the variables of one program.
pub(super) struct Instance {
    /// The value of each variable.
    pub(super) ids: Vec<ValueId>,
    /// The programs nested in each control equation, in order.
    pub(super) nested: Vec<Vec<Instance>>,
    /// The uses of constants.
    /// Each use is a separate value, so that unrelated uses do not affect each other.
    pub(super) constants: Vec<ConstantUse>,
    /// The mesh of values whose types have none.
    pub(super) mesh: Option<Mesh>,
}

/// A use of a variable that depends on no other variable.
pub(super) struct ConstantUse {
    /// The variable.
    pub(super) var: Var,
    /// The index of the equation that reads it.
    /// It is the number of equations if the use is a result of the program.
    pub(super) equation: usize,
    /// The index of the operand or result.
    pub(super) operand: usize,
    /// The value of this use.
    pub(super) id: ValueId,
}

impl Instance {
    /// Returns the value of a result, `None` for a literal.
    pub(super) fn output(&self, program: &Program, k: usize) -> Option<ValueId> {
        match program.outputs.get(k)? {
            Input::Var(v) => Some(self.use_of(*v, program.equations.len(), k)),
            Input::Lit(_) => None,
        }
    }
    /// Returns the value of a variable at one of its uses.
    pub(super) fn use_of(&self, var: Var, equation: usize, operand: usize) -> ValueId {
        let here = |c: &&ConstantUse| c.var == var && c.equation == equation && c.operand == operand;
        self.constants.iter().find(here).map_or(self.ids[var.index()], |c| c.id)
    }

    /// Returns the program with every variable placed.
    pub(super) fn place_program(&self, program: &Program, values: &[PropagatedValue]) -> Program {
        let mut placed = program.clone();
        for (info, id) in placed.vars.iter_mut().zip(&self.ids) {
            info.placement = Some(self.placement(&info.ty, &values[*id]));
        }
        let controls = placed.equations.iter_mut().filter_map(|e| match &mut e.op {
            Op::Control(c) => Some(c),
            Op::Prim(_) => None,
        });
        for (control, nested) in controls.zip(&self.nested) {
            for (body, instance) in control.bodies_mut().into_iter().zip(nested) {
                *body = Arc::new(instance.place_program(body, values));
            }
        }
        self.place_constants(&mut placed, values);
        placed
    }
    /// Duplicates constants whose uses are placed differently.
    fn place_constants(&self, program: &mut Program, values: &[PropagatedValue]) {
        // for each constant, its placements and the variable of each; the first is the original
        // variable
        let mut made: BTreeMap<Var, Vec<(Placement, Var)>> = BTreeMap::new();
        let last = program.equations.len();
        for used in &self.constants {
            let ty = program.ty(used.var).clone();
            let at = self.placement(&ty, &values[used.id]);
            let made = made.entry(used.var).or_default();
            let var = match made.iter().find(|(p, _)| *p == at) {
                Some((_, var)) => *var,
                None => {
                    let mut var = used.var;
                    if !made.is_empty() {
                        var = Var(program.vars.len() as u32);
                        program.vars.push(VarInfo { ty, placement: None });
                    }
                    program.vars[var.index()].placement = Some(at.clone());
                    made.push((at, var));
                    var
                }
            };
            let input = if used.equation == last {
                &mut program.outputs[used.operand]
            } else {
                &mut program.equations[used.equation].inputs[used.operand]
            };
            *input = Input::Var(var);
        }
        if made.values().all(|m| m.len() == 1) {
            return;
        }
        for equation in std::mem::take(&mut program.equations) {
            let mut again = Vec::new();
            for (k, output) in equation.outputs.iter().enumerate() {
                for (_, copy) in made.get(output).into_iter().flatten().skip(1) {
                    let mut e = equation.clone();
                    e.outputs[k] = *copy;
                    again.push(e);
                }
            }
            program.equations.push(equation);
            program.equations.extend(again);
        }
    }
    fn placement(&self, ty: &ArrayType, value: &PropagatedValue) -> Placement {
        let mesh = ty.mesh.as_ref().or(self.mesh.as_ref());
        let partial =
            mesh.map_or(SubAxes::new(), |m| from_axes(m, ty.spec.in_order(m).unreduced_axes().iter()));
        // dimensions must not be sharded over axes that the value is partial over, not even over
        // axes of other meshes
        let free = |a: &SubAxis| partial.iter().all(|p| !a.overlaps(*p));
        let dims = (0..value.dims.len()).map(|d| value.dim(d, false).into_iter().take_while(free).collect());
        Placement { dims: dims.collect(), partial }
    }
}
