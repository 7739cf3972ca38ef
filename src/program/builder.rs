//! Builder: programs one equation at a time, each typed as it is added.

use super::{
    Call, Control, Env, Equation, Input, Known, Literal, Op, Operand, Phase, Placement, Prim, Program, Var,
    VarInfo, sound,
};
use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::mesh::Mesh;
use crate::types::{ArrayType, DType, Scalar};
use crate::types::{MOST_INDICES, too_many};
use smallvec::SmallVec;
use std::sync::Arc;

/// A value of a program under construction: what equations read, and its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The variable or literal.
    pub input: Input,
    /// Its type.
    pub ty: ArrayType,
}

impl Value {
    /// A number of this element type.
    pub fn literal(dtype: DType, value: impl Into<Scalar>) -> Value {
        Value { input: Input::Lit(Literal { dtype, value: value.into() }), ty: dtype.of([]) }
    }
    /// Whether it is a literal.
    pub fn is_literal(&self) -> bool {
        matches!(self.input, Input::Lit(_))
    }
}

impl Known for Value {
    fn number(l: Literal) -> Value {
        Value { input: Input::Lit(l), ty: l.dtype.of([]) }
    }
}

/// A program under construction.
#[derive(Debug, Default)]
pub struct Builder {
    program: Program,
    place: Option<Place>,
    phase: Phase,
}

impl Builder {
    /// An empty program.
    pub fn new() -> Builder {
        Builder::default()
    }
    /// Equations added from here on are the user's `place`'s.
    pub fn at(&mut self, place: Option<Place>) -> &mut Builder {
        self.place = place;
        self
    }
    /// The user's line that equations are added for.
    pub fn place(&self) -> Option<Place> {
        self.place
    }
    /// Equations added from here on are of this phase.
    pub fn during(&mut self, phase: Phase) -> &mut Builder {
        self.phase = phase;
        self
    }
    /// The phase of equations that are added.
    pub fn phase(&self) -> Phase {
        self.phase
    }
    /// Names the results of the equation that was added last.
    pub(crate) fn name(&mut self, name: Option<Arc<str>>) {
        if let (Some(e), Some(name)) = (self.program.equations.last_mut(), name) {
            e.name = Some(name);
        }
    }
    /// Names the results of the equation that makes this value, if one does.
    pub(crate) fn name_of(&mut self, value: &Value, name: &str) {
        let Input::Var(var) = value.input else { return };
        if let Some(e) = self.program.equations.iter_mut().rev().find(|e| e.outputs.contains(&var)) {
            e.name = Some(name.into());
        }
    }
    /// One more input.
    pub fn input(&mut self, ty: ArrayType, placement: Option<Placement>) -> Value {
        let v = self.bind(ty, placement);
        if let Input::Var(var) = v.input {
            self.program.inputs.push(var);
        }
        v
    }
    fn bind(&mut self, ty: ArrayType, placement: Option<Placement>) -> Value {
        if self.program.mesh.is_none() {
            self.program.mesh = ty.mesh.clone();
        }
        let var = Var(self.program.vars.len() as u32);
        self.program.vars.push(VarInfo { ty: ty.clone(), placement });
        Value { input: Input::Var(var), ty }
    }
    /// Applies a primitive: its results, typed; or its refusal, with the operands' types and the user's line.
    pub fn emit(&mut self, prim: Prim, inputs: &[Value]) -> Result<Vec<Value>> {
        let foreign = |v: &Value| matches!(v.input, Input::Var(v) if v.index() >= self.program.vars.len());
        if inputs.iter().any(foreign) {
            let fault = Fault::new(ErrorKind::Trace, "an operand is a value of another program");
            let fault = fault.help("use the values that this builder gave");
            return Err(self.refuse(fault, prim.name(), inputs));
        }
        let types =
            typed(&prim, &operands(inputs)).map_err(|fault| self.refuse(fault, prim.name(), inputs))?;
        Ok(self.push(Op::Prim(prim), inputs, types))
    }
    /// Applies a primitive for a call of the user's: its results, typed; or its refusal, in the call's terms.
    pub fn emit_for(&mut self, prim: Prim, inputs: &[Value], call: Call<'_>) -> Result<Vec<Value>> {
        self.place = Some(call.place);
        let operands = operands(inputs);
        let types = typed(&prim, &operands).map_err(|fault| {
            let named: SmallVec<[Operand; 3]> =
                operands.iter().enumerate().map(|(k, o)| o.named(call.source(k))).collect();
            // in the user's numbers and dimensions, where these are others
            let fault =
                if call.tells_operands() { typed(&prim, &named).err().unwrap_or(fault) } else { fault };
            call.error(fault, || inputs.iter().map(|v| v.ty.to_string()).collect())
        })?;
        Ok(self.push(Op::Prim(prim), inputs, types))
    }
    /// Applies a primitive of one result.
    pub fn emit1(&mut self, prim: Prim, inputs: &[Value]) -> Result<Value> {
        Ok(self.emit(prim, inputs)?.swap_remove(0))
    }
    /// Applies a control operation whose result types are known.
    pub fn control(&mut self, control: Control, inputs: &[Value], types: Vec<ArrayType>) -> Vec<Value> {
        self.push(Op::Control(control), inputs, types)
    }
    /// The error of this fault at the current place.
    pub fn refuse(&self, fault: Fault, op: &str, inputs: &[Value]) -> Error {
        Error::at(fault, op, inputs.iter().map(|v| v.ty.to_string()).collect(), self.place)
    }
    /// Adds an equation whose result types are known.
    pub(crate) fn push(&mut self, op: Op, inputs: &[Value], types: Vec<ArrayType>) -> Vec<Value> {
        let outs: Vec<_> = types.into_iter().map(|ty| self.bind(ty, None)).collect();
        let outputs = outs.iter().filter_map(|v| if let Input::Var(v) = v.input { Some(v) } else { None });
        let equation = Equation {
            op,
            inputs: inputs.iter().map(|v| v.input).collect(),
            outputs: outputs.collect(),
            place: self.place,
            phase: self.phase,
            name: None,
        };
        self.program.equations.push(equation);
        outs
    }
    /// Repeats all equations of `program` here, on these inputs; its results.
    pub fn inline(&mut self, program: &Program, inputs: &[Value]) -> Vec<Value> {
        let mut env = Env::new(program, inputs.iter().cloned());
        let (outer, phase) = (self.place, self.phase);
        for e in &program.equations {
            let types = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
            self.place = e.place.or(outer);
            self.phase = e.phase.within(phase);
            env.bind(&e.outputs, self.push(e.op.clone(), &env.all(&e.inputs), types));
            self.name(e.name.clone());
        }
        (self.place, self.phase) = (outer, phase);
        env.all(&program.outputs)
    }
    /// The program so far, to look at.
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// Sets the mesh of a program whose values are on none.
    pub fn on(&mut self, mesh: &Mesh) {
        self.program.mesh.get_or_insert_with(|| mesh.clone());
    }
    /// The program with these results.
    pub fn finish(mut self, outputs: &[Value]) -> Program {
        self.program.outputs = outputs.iter().map(|v| v.input).collect();
        self.program
    }
}

fn operands(inputs: &[Value]) -> SmallVec<[Operand; 3]> {
    inputs.iter().map(|v| Operand::new(v.ty.clone(), v.is_literal())).collect()
}

/// The types of the results, which later stages can count in.
fn typed(prim: &Prim, operands: &[Operand]) -> Result<Vec<ArrayType>, Fault> {
    let types = prim.types(operands)?;
    sound::types(prim.as_ref(), operands, &types)?;
    types.iter().try_for_each(ArrayType::addressable)?;
    // few operations come near: only for those the indices are counted
    if operands.iter().map(|o| o.ty.rank()).sum::<usize>() > MOST_INDICES {
        let of: Vec<ArrayType> = operands.iter().map(|o| o.ty.clone()).collect();
        let indices = prim.sentences(&of, &types).iter().map(|s| s.extents.len()).max().unwrap_or(0);
        if indices > MOST_INDICES {
            return Err(too_many(indices));
        }
    }
    Ok(types)
}
