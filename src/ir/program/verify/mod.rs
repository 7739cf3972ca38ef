//! Verification of primitives' rules and of nested programs, before anything runs.
//!
//! [`Primitive`] is an open trait, and its loop nests become reads and writes of memory. Safe code
//! must not be able to access memory outside of an array, so all builds verify: each loop nest is
//! checked against the types of its equation when a program first needs it (`verify::loop_nests`),
//! every other answer when it is requested (`verify::rules`, and `verify::result_types` for types),
//! and each nested program against the values that it is given.

mod gather_scatter;
pub(crate) mod loop_nests;
mod result_types;
mod rules;
mod typing_rules;

pub(crate) use loop_nests::{MAX_WINDOW_COPY_RATIO, loop_nests};
pub(crate) use result_types::types;
pub(crate) use rules::{added_equations, collective, cotangents, factors, tangents, vmap};
pub(crate) use typing_rules::typing_rules;

use super::{
    Control, CustomCall, DerivativeRule, Equation, Input, Loop, LoopOperands, Op, Primitive, Program,
    ShardMapping, TypedOperand,
};
use crate::core::{ArrayType, DType, Error, ErrorKind, Fault, Result as Checked};

/// Returns the fault of a primitive whose rules contradict each other.
/// The mistake is in the implementation of the primitive.
pub(crate) fn inconsistent_rules<P: Primitive + ?Sized>(prim: &P, wrong: impl std::fmt::Display) -> Fault {
    inconsistent_rules_of(prim.name(), prim.type_path(), wrong.to_string())
}

fn inconsistent_rules_of(name: &str, path: &str, wrong: String) -> Fault {
    const CRATE_PREFIX: &str = concat!(env!("CARGO_CRATE_NAME"), "::");
    let message = format!("the rules of {name} contradict one another: {wrong}");
    if path.starts_with(CRATE_PREFIX) {
        let help = "this is a fault of atmesh, not of the program: please report it";
        return Fault::new(ErrorKind::Internal, message).help(help);
    }
    let help = "fix the primitive: its factors, loop nests and other answers must fit what `types` says";
    Fault::new(ErrorKind::User, message).help(help)
}

/// Returns the error of an equation that does not match its types.
/// The mistake is in the implementation of a primitive.
pub(crate) fn equation_error(p: &Program, e: &Equation, wrong: impl std::fmt::Display) -> Error {
    let (name, fault) = match &e.op {
        Op::Prim(prim) => (prim.name(), inconsistent_rules(prim.as_ref(), wrong)),
        Op::Control(c) => {
            let help = "fix the primitive whose rule built this operation";
            (c.name(), fault!(User, "the rules of {} contradict one another: {wrong}", c.name()).help(help))
        }
    };
    let operands = e.inputs.iter().filter_map(|i| match i {
        Input::Var(v) => p.vars.get(v.index()).map(|v| v.ty.to_string()),
        Input::Lit(l) => Some(l.dtype.array_type([]).to_string()),
    });
    Error::new(fault, name, operands.collect(), e.location)
}

/// Verifies a program.
/// Returns an error if an equation reads an undefined variable, binds a variable of another type,
/// or contains a nested program that does not fit its values.
pub(crate) fn check(p: &Program) -> Checked<()> {
    let fault = |wrong: String| Error::from(fault!(User, "invalid program: {wrong}"));
    let mut made = vec![false; p.vars.len()];
    for v in &p.inputs {
        let new = made.get_mut(v.index()).is_some_and(|made| !std::mem::replace(made, true));
        if !new {
            return Err(fault(format!("its input {v:?} is not a variable, or occurs twice")));
        }
    }
    let there = |made: &[bool], i: &Input| match i {
        Input::Var(v) => made.get(v.index()).is_some_and(|made| *made),
        Input::Lit(_) => true,
    };
    for e in &p.equations {
        if let Some(i) = e.inputs.iter().find(|i| !there(&made, i)) {
            return Err(equation_error(p, e, format!("it reads {i:?}, which no earlier equation defines")));
        }
        for v in &e.outputs {
            let new = made.get_mut(v.index()).is_some_and(|made| !std::mem::replace(made, true));
            if !new {
                return Err(equation_error(
                    p,
                    e,
                    format!("it defines {v:?}, which is not a variable, or is already defined"),
                ));
            }
        }
        check_equation(p, e).map_err(|wrong| equation_error(p, e, wrong))?;
        if let Op::Control(c) = &e.op {
            c.bodies().into_iter().try_for_each(|b| check(b))?;
        }
    }
    let Some(o) = p.outputs.iter().find(|o| !there(&made, o)) else { return Ok(()) };
    Err(fault(format!("its result {o:?} is not defined")))
}

fn check_equation(p: &Program, e: &Equation) -> Result<(), String> {
    let ins: Vec<PlainType> = e.inputs.iter().map(|i| plain_type(p, i)).collect();
    let outs: Vec<PlainType> = e.outputs.iter().map(|v| plain_type(p, &Input::Var(*v))).collect();
    let prim = match &e.op {
        Op::Prim(prim) => prim,
        Op::Control(c) => return check_control(c, &ins, &outs),
    };
    let literal = |i: &Input| matches!(i, Input::Lit(_));
    let operands: Vec<TypedOperand> =
        e.inputs.iter().map(|i| TypedOperand::new(p.input_type(i), literal(i))).collect();
    let shapes = prim.shapes(&operands).map_err(|fault| fault.message)?;
    let makes: Vec<PlainType> = shapes.iter().map(|(dtype, shape)| (*dtype, shape.to_vec())).collect();
    check_same_types(&outs, &makes).map_err(|wrong| format!("its recorded types differ: {wrong}"))?;
    let types: Vec<ArrayType> = operands.into_iter().map(|o| o.ty).collect();
    factors(&prim.factors(&types, &shapes), &types, &shapes)
}

/// Checks that the nested programs of a control operation fit its values.
fn check_control(c: &Control, ins: &[PlainType], outs: &[PlainType]) -> Result<(), String> {
    match c {
        Control::Jit { body, .. } | Control::AxisModes { body, .. } => {
            check_body("the body", body, ins, outs)
        }
        Control::Loop(l) => {
            let given = loop_inputs(l, ins)?;
            let mut makes = outs.to_vec();
            for stacked in makes.iter_mut().skip(l.carry) {
                unstack(stacked, l.length)?;
            }
            let carry = given.carry.clone();
            check_body("the body", &l.body, &given.into_body_inputs((DType::I32, Vec::new())), &makes)?;
            check_carries(&carry, outs.get(..l.carry).unwrap_or(outs))
        }
        Control::While { cond, body, cond_fixed, body_fixed } => {
            let Some((for_cond, rest)) = ins.split_at_checked(*cond_fixed) else {
                return Err(format!("{} inputs, and the condition has {cond_fixed}", ins.len()));
            };
            let Some((for_body, carry)) = rest.split_at_checked(*body_fixed) else {
                return Err(format!("{} inputs, and the body has {body_fixed}", rest.len()));
            };
            check_carries(carry, outs)?;
            let holds = (DType::Bool, Vec::new());
            check_body("the condition", cond, &[for_cond, carry].concat(), &[holds])?;
            check_body("the body", body, &[for_body, carry].concat(), carry)
        }
        Control::Cond { branches } => {
            let Some(((which, shape), rest)) = ins.split_first() else {
                return Err("it has no branch index".into());
            };
            let two = *which == DType::Bool && branches.len() == 2;
            if branches.is_empty() || !shape.is_empty() || !(two || *which == DType::I32) {
                return Err(format!("{which}{shape:?} cannot select one of {} branches", branches.len()));
            }
            (branches.iter().enumerate())
                .try_for_each(|(k, b)| check_body(&format!("branch {k}"), b, rest, outs))
        }
        Control::ShardMap(m) => check_blocks(m, ins, outs),
        Control::Custom(call) => check_rule(call, ins, outs),
        Control::Print { .. } => check_same_types(outs, &[]),
    }
}

/// Checks that the programs of a call with a rule take and return the values that belong together.
///
/// The cotangents that a rule returns are checked when a derivative is taken.
fn check_rule(call: &CustomCall, ins: &[PlainType], outs: &[PlainType]) -> Result<(), String> {
    check_body("the function", &call.body, ins, outs)?;
    let Some((arguments, captures)) = ins.split_at_checked(call.arguments.len()) else {
        return Err(format!("{} inputs, and {} arguments", ins.len(), call.arguments.len()));
    };
    let tangents = |types: &[PlainType]| -> Vec<PlainType> {
        types.iter().filter(|(dtype, _)| dtype.is_inexact()).cloned().collect()
    };
    match &call.rule {
        DerivativeRule::Reversible(program) => check_body("the reversible program", program, ins, outs),
        DerivativeRule::Jvp(rule) => {
            let takes = [arguments, &tangents(arguments), captures].concat();
            check_body("the rule", rule, &takes, &[outs, &tangents(outs)].concat())
        }
        DerivativeRule::Vjp { forward, backward } => {
            let makes: Vec<PlainType> = forward.outputs.iter().map(|o| plain_type(forward, o)).collect();
            let Some((_, residuals)) = makes.split_at_checked(outs.len()) else {
                return Err(format!("{} results of the forward rule", makes.len()));
            };
            check_body("the forward rule", forward, ins, &[outs, residuals].concat())?;
            let takes = [residuals, &tangents(outs), captures].concat();
            let cotangents: Vec<PlainType> =
                backward.outputs.iter().map(|o| plain_type(backward, o)).collect();
            let expected = tangents(arguments).len();
            if cotangents.len() != expected {
                return Err(format!("{} cotangents for {expected} arguments", cotangents.len()));
            }
            check_body("the backward rule", backward, &takes, &cotangents)
        }
    }
}

/// Checks that a nested program takes values of the types `given` and returns those of `makes`.
fn check_body(what: &str, inner: &Program, given: &[PlainType], makes: &[PlainType]) -> Result<(), String> {
    let takes: Vec<PlainType> = inner.inputs.iter().map(|v| plain_type(inner, &Input::Var(*v))).collect();
    check_same_types(given, &takes).map_err(|wrong| format!("{what}: values and inputs differ: {wrong}"))?;
    let results: Vec<PlainType> = inner.outputs.iter().map(|o| plain_type(inner, o)).collect();
    check_same_types(makes, &results).map_err(|wrong| format!("{what}: results differ: {wrong}"))
}

fn check_carries(first: &[PlainType], last: &[PlainType]) -> Result<(), String> {
    check_same_types(first, last).map_err(|wrong| format!("first and last carries differ: {wrong}"))
}

/// Checks that the values of a `shard_map` consist of the blocks that its body takes and returns.
fn check_blocks(m: &ShardMapping, ins: &[PlainType], outs: &[PlainType]) -> Result<(), String> {
    let (takes, makes) = (m.body.inputs.len(), m.body.outputs.len());
    if ins.len() != takes || m.in_specs.len() != takes || outs.len() != makes || m.out_specs.len() != makes {
        return Err("the numbers of values, specs, and inputs and results of the body differ".into());
    }
    let inner = m.body.inputs.iter().map(|v| plain_type(&m.body, &Input::Var(*v)));
    let results = m.body.outputs.iter().map(|o| plain_type(&m.body, o));
    let sides = (ins.iter().zip(inner).zip(&m.in_specs)).chain(outs.iter().zip(results).zip(&m.out_specs));
    for ((full, block), spec) in sides {
        let num_shards = |d: usize| -> usize {
            let cut = spec.dim(d).iter().filter(|a| m.axes.contains(**a));
            cut.map(|a| m.mesh.axis_size(*a).unwrap_or(1)).product()
        };
        let cut = |(d, n): (usize, &usize)| n.checked_mul(num_shards(d));
        let joined: Option<Vec<usize>> = block.1.iter().enumerate().map(cut).collect();
        if full.0 != block.0 || joined.as_ref() != Some(&full.1) {
            return Err(format!(
                "{}{:?} is not {}{:?} in blocks by {spec}",
                full.0, full.1, block.0, block.1
            ));
        }
    }
    Ok(())
}

/// The type of a value without its sharding: the element type and the shape.
type PlainType = (DType, Vec<usize>);

fn plain_type(p: &Program, input: &Input) -> PlainType {
    match input {
        Input::Lit(l) => (l.dtype, Vec::new()),
        Input::Var(v) => {
            p.vars.get(v.index()).map_or_else(Default::default, |v| (v.ty.dtype, v.ty.shape.to_vec()))
        }
    }
}

fn check_same_types(a: &[PlainType], b: &[PlainType]) -> Result<(), String> {
    if a.len() != b.len() {
        return Err(format!("{} and {}", a.len(), b.len()));
    }
    let Some((k, (a, b))) = a.iter().zip(b).enumerate().find(|(_, (a, b))| a != b) else { return Ok(()) };
    Err(format!("item {k} is {}{:?} and {}{:?}", a.0, a.1, b.0, b.1))
}

/// Returns the inputs of a loop's body after the index: loop-invariant values, carries, slices.
fn loop_inputs(l: &Loop, ins: &[PlainType]) -> Result<LoopOperands<PlainType>, String> {
    if l.fixed.checked_add(l.carry).is_none_or(|n| n > ins.len()) {
        return Err(format!("{} inputs for {} fixed ones and {} carries", ins.len(), l.fixed, l.carry));
    }
    let mut given = l.split_operands(ins);
    given.xs.iter_mut().try_for_each(|slices| unstack(slices, l.length))?;
    Ok(given)
}

fn unstack(value: &mut PlainType, length: usize) -> Result<(), String> {
    if value.1.first() != Some(&length) {
        return Err(format!("{}{:?} is not a stack of {length} slices", value.0, value.1));
    }
    value.1.remove(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::PRIMITIVES;
    use crate::ir::program::Builder;

    /// Tests that the error for a faulty primitive of this crate asks users to report it.
    /// `tests/laws` tests the primitives of users.
    #[test]
    fn own_primitives_are_distinguished() {
        let (prim, types) = (PRIMITIVES[0].example)();
        let mut b = Builder::new();
        let operands: Vec<_> = types.iter().map(|ty| b.input(ty.clone(), None)).collect();
        let outs = b.emit(prim, &operands).expect("it is an example");
        let p = b.finish(&outs);
        let error = equation_error(&p, &p.equations[0], "it reads what is not there");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("please report it"), "{error}");
    }
}
