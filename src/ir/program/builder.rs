//! The program builder, which adds equations one at a time and infers their result types.

use super::{
    CallSite, Control, Env, Equation, FromLiteral, Input, Literal, Op, Phase, Placement, Prim, Program,
    ScopePath, TypedOperand, Var, VarInfo, verify,
};
use crate::core::{
    ArrayType, DType, Error, Fault, MAX_INDICES, Mesh, Result, Scalar, SourceLocation,
    types::too_many_indices,
};
use smallvec::SmallVec;
use std::sync::Arc;

/// A value of a program under construction: an input for equations, with its type.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    /// The variable or literal.
    pub input: Input,
    /// The type.
    pub ty: ArrayType,
}

impl Value {
    /// Returns a literal of this element type: a scalar that is not on a mesh.
    pub fn literal(dtype: DType, value: impl Into<Scalar>) -> Value {
        Value { input: Input::Lit(Literal { dtype, value: value.into() }), ty: dtype.array_type([]) }
    }
    /// Returns true if the value is a literal.
    pub fn is_literal(&self) -> bool {
        matches!(self.input, Input::Lit(_))
    }
}

impl FromLiteral for Value {
    fn from_literal(l: Literal) -> Value {
        Value { input: Input::Lit(l), ty: l.dtype.array_type([]) }
    }
}

/// The metadata of equations: where they come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct EquationContext {
    /// The source location of the user's call, if known.
    pub(crate) location: Option<SourceLocation>,
    /// The phase of a derivative.
    pub(crate) phase: Phase,
    /// The named scopes.
    pub(crate) scope: ScopePath,
}

impl EquationContext {
    /// Returns the context of an equation whose program is inlined in this context.
    pub(crate) fn of(&self, e: &Equation) -> EquationContext {
        EquationContext {
            location: e.location.or(self.location),
            phase: e.phase.within(self.phase),
            scope: e.scope.within(&self.scope),
        }
    }
    /// Returns the context of the transpose of an equation whose program is transposed in this
    /// context.
    pub(crate) fn of_transpose(&self, e: &Equation) -> EquationContext {
        EquationContext {
            location: e.location.or(self.location),
            phase: Phase::Backward,
            scope: e.scope.transposed().within(&self.scope),
        }
    }
}

/// A program under construction.
#[derive(Debug, Default)]
pub struct Builder {
    /// The program built so far, without results.
    program: Program,
    /// The context of the equations being added.
    context: EquationContext,
}

impl Builder {
    /// Creates an empty program.
    pub fn new() -> Builder {
        Builder::default()
    }
    /// Sets the source location of the equations added from now on.
    pub fn set_location(&mut self, location: Option<SourceLocation>) -> &mut Builder {
        self.context.location = location;
        self
    }
    /// Returns the source location of the equations being added.
    pub fn location(&self) -> Option<SourceLocation> {
        self.context.location
    }
    /// Sets the phase of the equations added from now on.
    pub fn set_phase(&mut self, phase: Phase) -> &mut Builder {
        self.context.phase = phase;
        self
    }
    /// Returns the phase of the equations being added.
    pub fn phase(&self) -> Phase {
        self.context.phase
    }
    /// Sets the named scopes of the equations added from now on.
    pub(crate) fn set_scope(&mut self, scope: ScopePath) -> &mut Builder {
        self.context.scope = scope;
        self
    }
    /// Returns the context of the equations being added.
    pub(crate) fn context(&self) -> &EquationContext {
        &self.context
    }
    /// Sets the context of the equations added from now on.
    pub(crate) fn set_context(&mut self, context: EquationContext) -> &mut Builder {
        self.context = context;
        self
    }
    /// Names the results of the equation that was added last.
    pub(crate) fn name_last(&mut self, name: Option<Arc<str>>) {
        if let (Some(e), Some(name)) = (self.program.equations.last_mut(), name) {
            e.name = Some(name);
        }
    }
    /// Names the results of the equation that computes `value`, if one does.
    pub(crate) fn name_value(&mut self, value: &Value, name: &str) {
        let Input::Var(var) = value.input else { return };
        if let Some(e) = self.program.equations.iter_mut().rev().find(|e| e.outputs.contains(&var)) {
            e.name = Some(name.into());
        }
    }
    /// Adds an input.
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
    /// Applies a primitive and returns its typed results.
    /// An error shows the operands' types and the user's source location.
    pub fn emit(&mut self, prim: Prim, inputs: &[Value]) -> Result<Vec<Value>> {
        let foreign = |v: &Value| matches!(v.input, Input::Var(v) if v.index() >= self.program.vars.len());
        if inputs.iter().any(foreign) {
            let fault = fault!(Trace, "an operand is a value of another program");
            let fault = fault.help("use the values that this builder gave");
            return Err(self.error(fault, prim.name(), inputs));
        }
        let types =
            infer_types(&prim, &operands(inputs)).map_err(|fault| self.error(fault, prim.name(), inputs))?;
        Ok(self.push(Op::Prim(prim), inputs, types))
    }
    /// Applies a primitive on behalf of the user's call and returns its typed results.
    /// Errors are about the user's call: they name its function, operands and source location.
    pub fn emit_for(&mut self, prim: Prim, inputs: &[Value], call: CallSite<'_>) -> Result<Vec<Value>> {
        self.context.location = Some(call.location);
        let operands = operands(inputs);
        let types = infer_types(&prim, &operands).map_err(|fault| {
            let named: SmallVec<[TypedOperand; 3]> =
                operands.iter().enumerate().map(|(k, o)| o.with_user_operand(call.user_operand(k))).collect();
            // if the user's operands differ, infer again with them, so that the message has their
            // indices and dimensions
            let fault = if call.has_user_operands() {
                infer_types(&prim, &named).err().unwrap_or(fault)
            } else {
                fault
            };
            call.error(fault, || inputs.iter().map(|v| v.ty.to_string()).collect())
        })?;
        Ok(self.push(Op::Prim(prim), inputs, types))
    }
    /// Applies a primitive with a single result.
    pub fn emit1(&mut self, prim: Prim, inputs: &[Value]) -> Result<Value> {
        Ok(self.emit(prim, inputs)?.swap_remove(0))
    }
    /// Applies a control operation whose result types are known.
    pub fn control(&mut self, control: Control, inputs: &[Value], types: Vec<ArrayType>) -> Vec<Value> {
        self.push(Op::Control(control), inputs, types)
    }
    /// Returns this fault as an error at the current source location.
    pub fn error(&self, fault: Fault, op: &str, inputs: &[Value]) -> Error {
        Error::new(fault, op, inputs.iter().map(|v| v.ty.to_string()).collect(), self.context.location)
    }
    /// Adds an equation whose result types are known.
    pub(crate) fn push(&mut self, op: Op, inputs: &[Value], types: Vec<ArrayType>) -> Vec<Value> {
        let outs: Vec<_> = types.into_iter().map(|ty| self.bind(ty, None)).collect();
        let outputs = outs.iter().filter_map(|v| if let Input::Var(v) = v.input { Some(v) } else { None });
        let equation = Equation {
            op,
            inputs: inputs.iter().map(|v| v.input).collect(),
            outputs: outputs.collect(),
            location: self.context.location,
            phase: self.context.phase,
            scope: self.context.scope.clone(),
            name: None,
        };
        self.program.equations.push(equation);
        outs
    }
    /// Inlines the equations of `program` with these inputs, and returns its results.
    pub fn inline(&mut self, program: &Program, inputs: &[Value]) -> Vec<Value> {
        let mut env = Env::new(program, inputs.iter().cloned());
        let outer = self.context.clone();
        for e in &program.equations {
            let types = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
            self.context = outer.of(e);
            env.bind(&e.outputs, self.push(e.op.clone(), &env.get_all(&e.inputs), types));
            self.name_last(e.name.clone());
        }
        self.context = outer;
        env.get_all(&program.outputs)
    }
    /// Returns the program built so far.
    pub fn program(&self) -> &Program {
        &self.program
    }
    /// Sets the mesh of a program whose values are not on a mesh.
    pub fn set_default_mesh(&mut self, mesh: &Mesh) {
        self.program.mesh.get_or_insert_with(|| mesh.clone());
    }
    /// Finishes the program with these results.
    pub fn finish(mut self, outputs: &[Value]) -> Program {
        self.program.outputs = outputs.iter().map(|v| v.input).collect();
        self.program
    }
}

fn operands(inputs: &[Value]) -> SmallVec<[TypedOperand; 3]> {
    inputs.iter().map(|v| TypedOperand::new(v.ty.clone(), v.is_literal())).collect()
}

/// Infers the types of the results, and checks that later stages can represent their sizes.
fn infer_types(prim: &Prim, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
    let types = prim.types(operands)?;
    verify::types(prim.as_ref(), operands, &types)?;
    types.iter().try_for_each(ArrayType::check_addressable)?;
    // few operations come near the limit, so loops are counted only if the ranks add up to it
    if operands.iter().map(|o| o.ty.rank()).sum::<usize>() > MAX_INDICES {
        let of: Vec<ArrayType> = operands.iter().map(|o| o.ty.clone()).collect();
        let indices = prim.loop_nests(&of, &types).iter().map(|s| s.extents.len()).max().unwrap_or(0);
        if indices > MAX_INDICES {
            return Err(too_many_indices(indices));
        }
    }
    Ok(types)
}
