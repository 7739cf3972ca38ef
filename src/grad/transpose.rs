//! Backward: a linear program turned round.

use super::surgery::{input_types, inputs, var};
use super::{branches, loops, modes, per_device};
use crate::diagnostic::Result;
use crate::ops::build::cotangent_type;
use crate::program::dce::{chosen, dce};
use crate::program::{Back, Builder, Control, Env, Equation, Op, Phase, Program, Value, sound};
use crate::types::ArrayType;

/// A linear program turned round.
#[derive(Clone, Debug)]
pub(super) struct Transposed {
    /// Inputs: the inputs that are not linear, then the cotangents given. Results: the cotangents of the linear inputs reached.
    pub(super) program: Program,
    /// For each linear input, whether it has a cotangent.
    pub(super) reached: Vec<bool>,
}

/// What the cotangents of inputs are when they leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// Of exactly the type that they must have.
    Fitted,
    /// As they came, where all came alike: whoever takes them fits them, after more of them have been added.
    AsTheyAre,
}

/// Turns `program` round, which is linear in the inputs marked, for cotangents of the results marked. `leave` is asked for each input.
pub(super) fn transpose(
    program: &Program,
    is_linear: &[bool],
    given: &[bool],
    leave: impl Fn(usize) -> Leave,
) -> Result<Transposed> {
    let mut b = Builder::new();
    if let Some(mesh) = &program.mesh {
        b.on(mesh);
    }
    let mut values = Vec::with_capacity(is_linear.len());
    for (ty, is_linear) in input_types(program).into_iter().zip(is_linear) {
        values.push((!is_linear).then(|| b.input(ty, None)));
    }
    let mut cts = Vec::with_capacity(given.len());
    for (ty, given) in program.output_types().iter().zip(given) {
        cts.push(given.then(|| b.input(cotangent_type(ty), None)));
    }
    let back = chosen(&pull_back(&mut b, program, &values, &cts, leave)?, is_linear);
    let reached = back.iter().map(Option::is_some).collect();
    let outs: Vec<Value> = back.into_iter().flatten().collect();
    Ok(Transposed { program: dce(&b.finish(&outs)), reached })
}

/// An equation that is turned round, with what is known of it.
pub(super) struct Turned<'a> {
    /// Values of the operands that are not linear.
    pub(super) operands: Vec<Option<Value>>,
    /// Types of all operands.
    pub(super) types: Vec<ArrayType>,
    /// The cotangents of the results.
    pub(super) cts: &'a [Option<Value>],
}

impl Turned<'_> {
    /// Which operands are linear.
    pub(super) fn is_linear(&self) -> Vec<bool> {
        self.operands.iter().map(Option::is_none).collect()
    }
    /// Which results have a cotangent.
    pub(super) fn given(&self) -> Vec<bool> {
        self.cts.iter().map(Option::is_some).collect()
    }
    /// The cotangents that there are.
    pub(super) fn cotangents(&self) -> Vec<Value> {
        self.cts.iter().flatten().cloned().collect()
    }
    /// The values of the operands that are not linear.
    pub(super) fn known(&self) -> Vec<Value> {
        self.operands.iter().flatten().cloned().collect()
    }
    /// For each operand a cotangent, from those of the linear ones that were reached.
    pub(super) fn spread(&self, reached: &[bool], outs: Vec<Value>) -> Vec<Option<Value>> {
        let (mut reached, mut outs) = (reached.iter(), outs.into_iter());
        let mut next = || reached.next().filter(|r| **r).and_then(|_| outs.next());
        self.operands.iter().map(|o| if o.is_none() { next() } else { None }).collect()
    }
}

/// Repeats the part of `program` that depends on known inputs only, then goes backward through the rest: a cotangent for each input
/// whose value is `None` and that the given cotangents reach.
pub(super) fn pull_back(
    b: &mut Builder,
    program: &Program,
    values: &[Option<Value>],
    given: &[Option<Value>],
    leave: impl Fn(usize) -> Leave,
) -> Result<Vec<Option<Value>>> {
    let mut known: Env<Value> = Env::new(program, []);
    for (v, value) in program.inputs.iter().zip(values) {
        known.bind(&[*v], value.clone());
    }
    let (outer, phase) = (b.place(), b.phase());
    let mut linear: Vec<&Equation> = Vec::new();
    for e in &program.equations {
        let ins: Option<Vec<Value>> = e.inputs.iter().map(|i| known.find(i)).collect();
        let Some(ins) = ins else {
            linear.push(e);
            continue;
        };
        b.at(e.place.or(outer)).during(e.phase.within(Phase::Recomputed));
        let types = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
        known.bind(&e.outputs, b.push(e.op.clone(), &ins, types));
    }

    let mut cts = vec![Sum::default(); program.vars.len()];
    b.at(outer).during(Phase::Backward);
    for (output, ct) in program.outputs.iter().zip(given) {
        if let (Some(v), Some(ct)) = (var(output), ct) {
            cts[v.index()].add(b, ct)?;
        }
    }
    for e in linear.into_iter().rev() {
        b.at(e.place.or(outer));
        let mut of_results = Vec::with_capacity(e.outputs.len());
        for v in &e.outputs {
            of_results.push(std::mem::take(&mut cts[v.index()]).fitted(b, program.ty(*v))?);
        }
        if of_results.iter().all(Option::is_none) {
            continue;
        }
        let turned = Turned {
            operands: e.inputs.iter().map(|i| known.find(i)).collect(),
            types: e.inputs.iter().map(|i| program.input_type(i)).collect(),
            cts: &of_results,
        };
        let back = equation(b, e, &turned)?;
        for ((input, ct), operand) in e.inputs.iter().zip(back).zip(&turned.operands) {
            if let (Some(v), Some(ct), None) = (var(input), ct, operand) {
                cts[v.index()].add(b, &ct)?;
            }
        }
    }
    b.at(outer);
    let mut back = Vec::with_capacity(values.len());
    for (i, (v, value)) in program.inputs.iter().zip(values).enumerate() {
        let sum = std::mem::take(&mut cts[v.index()]);
        back.push(match (value, sum.0.as_slice()) {
            (Some(_), _) => None,
            (None, [one]) if leave(i) == Leave::AsTheyAre => Some(one.clone()),
            (None, _) => sum.fitted(b, program.ty(*v))?,
        });
    }
    b.during(phase);
    Ok(back)
}

/// The cotangents of a variable: a sum for each type that they come in. So what they need to fit the variable's own (a sum over
/// devices, a move) is done once for all.
#[derive(Clone, Debug, Default)]
struct Sum(Vec<Value>);

impl Sum {
    fn add(&mut self, b: &mut Builder, ct: &Value) -> Result<()> {
        match self.0.iter_mut().find(|sum| sum.ty == ct.ty) {
            Some(sum) => *sum = b.accumulated(sum, ct)?,
            None => self.0.push(ct.clone()),
        }
        Ok(())
    }
    /// All of them, made to fit a variable of this type.
    fn fitted(self, b: &mut Builder, of: &ArrayType) -> Result<Option<Value>> {
        let mut all = None;
        for ct in self.0 {
            let ct = b.fit_cotangent(&ct, of)?;
            all = b.sum_of(all, Some(ct))?;
        }
        Ok(all)
    }
}

fn equation(b: &mut Builder, e: &Equation, turned: &Turned<'_>) -> Result<Vec<Option<Value>>> {
    match &e.op {
        Op::Prim(prim) => {
            let Turned { operands, types, .. } = turned;
            let from = b.program().equations.len();
            let back = prim.transpose(Back { b, operands, types, cotangents: turned.cts })?;
            sound::added(b, from, prim.as_ref())?;
            sound::cotangents(b, prim.as_ref(), &back, types)?;
            Ok(back)
        }
        Op::Control(Control::Jit { body, .. }) => modes::turn_jit(b, body, turned),
        Op::Control(Control::Modes { body, .. }) => modes::turn_modes(b, body, turned),
        Op::Control(Control::Loop(l)) => loops::turn(b, l, turned),
        Op::Control(Control::While { .. }) => Err(loops::no_way_back(b)),
        Op::Control(Control::Cond { branches }) => branches::turn(b, branches, turned),
        Op::Control(Control::ShardMap(m)) => per_device::turn(b, m, turned),
        Op::Control(Control::Print { .. }) => Ok(vec![None; e.inputs.len()]),
    }
}

/// Inputs of a program in a builder of their own, for bodies that are put together by hand.
pub(super) fn body(types: &[ArrayType]) -> (Builder, Vec<Value>) {
    let mut b = Builder::new();
    let ins = inputs(&mut b, types.iter().cloned());
    (b, ins)
}
