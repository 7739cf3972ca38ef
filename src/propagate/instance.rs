//! A program in the system: which values its variables are, and the program placed as they came out.

use super::solve::{Value, ValueId};
use crate::mesh::Mesh;
use crate::program::{Input, Op, Placement, Program, Var, VarInfo};
use crate::sharding::atoms::of_axes;
use crate::sharding::{Atom, Atoms};
use crate::types::ArrayType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Which values the variables of one program are.
pub(super) struct Instance {
    pub(super) ids: Vec<ValueId>,
    /// The programs nested in each control equation, in order.
    pub(super) nested: Vec<Vec<Instance>>,
    /// Uses of constants: each is a value of its own, so that what is equal by accident connects nothing.
    pub(super) constants: Vec<ConstantUse>,
    pub(super) mesh: Option<Mesh>,
}

/// A use of a variable that depends on no other.
pub(super) struct ConstantUse {
    pub(super) var: Var,
    /// Which equation reads it (the one after the last: the program's results), and which of its operands.
    pub(super) equation: usize,
    pub(super) operand: usize,
    pub(super) id: ValueId,
}

impl Instance {
    /// The value of a result.
    pub(super) fn output(&self, program: &Program, k: usize) -> Option<ValueId> {
        match program.outputs.get(k)? {
            Input::Var(v) => Some(self.use_of(*v, program.equations.len(), k)),
            Input::Lit(_) => None,
        }
    }
    /// The value of a variable, as read there.
    pub(super) fn use_of(&self, var: Var, equation: usize, operand: usize) -> ValueId {
        let here = |c: &&ConstantUse| c.var == var && c.equation == equation && c.operand == operand;
        self.constants.iter().find(here).map_or(self.ids[var.index()], |c| c.id)
    }

    /// The program with every variable placed.
    pub(super) fn place(&self, program: &Program, values: &[Value]) -> Program {
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
                *body = Arc::new(instance.place(body, values));
            }
        }
        self.place_constants(&mut placed, values);
        placed
    }
    /// Constants that users want placed in several ways are made several times.
    fn place_constants(&self, program: &mut Program, values: &[Value]) {
        // of each constant, where it is placed and the variables that are placed there: the first is its own
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
    fn placement(&self, ty: &ArrayType, value: &Value) -> Placement {
        let mesh = ty.mesh.as_ref().or(self.mesh.as_ref());
        let partial = mesh.map_or(Atoms::new(), |m| of_axes(m, ty.spec.in_order(m).unreduced_axes().iter()));
        // along the axes that tell the parts apart no dimension is sharded, whatever axes of other meshes are wished for
        let free = |a: &Atom| partial.iter().all(|p| !a.clashes(*p));
        let dims = (0..value.dims.len()).map(|d| value.dim(d, false).into_iter().take_while(free).collect());
        Placement { dims: dims.collect(), partial }
    }
}
