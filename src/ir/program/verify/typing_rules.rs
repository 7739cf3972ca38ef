//! Verification of recorded types: the typing rules give every equation the types that it has.
//!
//! Tracing infers the types of what users write. Derivatives, `vmap` and regions build programs
//! with types that they compute themselves, so debug builds and tests infer all types again before
//! a program runs.

use super::equation_error;
use crate::core::{ArrayType, Axes, Axis, Error, ErrorKind, Fault, Result as Checked, Spec};
use crate::ir::program::{
    Control, CustomCall, DerivativeRule, Equation, Input, Loop, Op, Program, ShardMapping, TypedOperand,
    typing::cotangent_type,
};

/// Returns an error for the first equation whose types differ from those that its rules give.
pub(crate) fn typing_rules(p: &Program) -> Checked<()> {
    for e in &p.equations {
        check_types(p, e).map_err(|wrong| match &e.op {
            Op::Prim(_) => equation_error(p, e, wrong),
            Op::Control(c) => wrong_control(c, wrong, e),
        })?;
        if let Op::Control(c) = &e.op {
            c.bodies().into_iter().try_for_each(|b| typing_rules(b))?;
        }
    }
    Ok(())
}

/// Returns the error of a control operation with other types than its rules give. Only this crate
/// makes such operations.
fn wrong_control(c: &Control, wrong: String, e: &Equation) -> Error {
    let message = format!("the types of {} are not those of its rules: {wrong}", c.name());
    let help = "this is a fault of atmesh, not of the program: please report it";
    Error::new(Fault::new(ErrorKind::Internal, message).help(help), c.name(), Vec::new(), e.location)
}

fn check_types(p: &Program, e: &Equation) -> Result<(), String> {
    let ins: Vec<ArrayType> = e.inputs.iter().map(|i| p.input_type(i)).collect();
    let outs: Vec<ArrayType> = e.outputs.iter().map(|v| p.ty(*v).clone()).collect();
    match &e.op {
        Op::Prim(prim) => {
            let literal = |i: &Input| matches!(i, Input::Lit(_));
            let operands: Vec<TypedOperand> =
                ins.iter().zip(&e.inputs).map(|(ty, i)| TypedOperand::new(ty.clone(), literal(i))).collect();
            let inferred = prim
                .types(&operands)
                .map_err(|fault| format!("its operands are refused: {}", fault.message))?;
            all_same("its results", &inferred, &outs)
        }
        Op::Control(c) => check_control(c, &ins, &outs),
    }
}

fn check_control(c: &Control, ins: &[ArrayType], outs: &[ArrayType]) -> Result<(), String> {
    match c {
        Control::Jit { body, .. } => {
            all_same("its operands", &input_types(body), ins)?;
            all_same("its results", &body.output_types(), outs)
        }
        Control::AxisModes { body, .. } => {
            let varying = |types: &[ArrayType]| types.iter().map(|ty| ty.varying.clone()).collect::<Vec<_>>();
            if varying(&input_types(body)) == varying(ins) && varying(&body.output_types()) == varying(outs) {
                Ok(())
            } else {
                Err("values vary over other axes inside of it".into())
            }
        }
        Control::Loop(l) => check_loop(l, ins, outs),
        Control::While { cond, body, cond_fixed, body_fixed } => {
            let carry = &ins[cond_fixed + body_fixed..];
            all_same(
                "the operands of its condition",
                &input_types(cond),
                &[&ins[..*cond_fixed], carry].concat(),
            )?;
            all_same("the operands of its body", &input_types(body), &ins[*cond_fixed..])?;
            all_same("its next carries", &body.output_types(), outs)?;
            all_same("its first carries", carry, outs)?;
            let test = cond.output_types();
            vary_over("carry", outs, &test[0].varying)
        }
        Control::Cond { branches } => {
            let Some((which, rest)) = ins.split_first() else { return Err("it has no selector".into()) };
            for branch in branches {
                all_same("the operands of a branch", &input_types(branch), rest)?;
                all_same("the results of a branch", &branch.output_types(), outs)?;
            }
            vary_over("operand", rest, &which.varying)?;
            vary_over("result", outs, &which.varying)
        }
        Control::ShardMap(m) => {
            let ins = input_types(&m.body).into_iter().zip(ins).zip(&m.in_specs);
            let outs = m.body.output_types().into_iter().zip(outs).zip(&m.out_specs);
            for ((block, full), spec) in ins.chain(outs) {
                check_block(m, &block, full, *spec)?;
                check_crossing(m, &block, *spec)?;
            }
            Ok(())
        }
        Control::Custom(call) => check_rule(call, ins, outs),
        Control::Print { .. } => Ok(()),
    }
}

/// Checks the types of a call with a rule, except those of the cotangents that the rule returns.
fn check_rule(call: &CustomCall, ins: &[ArrayType], outs: &[ArrayType]) -> Result<(), String> {
    all_same("its operands", &input_types(&call.body), ins)?;
    all_same("its results", &call.body.output_types(), outs)?;
    let inexact = |types: &[ArrayType]| -> Vec<ArrayType> {
        types.iter().filter(|ty| ty.dtype.is_inexact()).cloned().collect()
    };
    let (arguments, captures) = ins.split_at(call.arguments.len());
    match &call.rule {
        DerivativeRule::Reversible(program) => {
            all_same("the operands of its reversible program", &input_types(program), ins)?;
            all_same("the results of its reversible program", &program.output_types(), outs)
        }
        DerivativeRule::Jvp(rule) => {
            let takes = [arguments, &inexact(arguments), captures].concat();
            all_same("the operands of its rule", &input_types(rule), &takes)?;
            all_same("the results of its rule", &rule.output_types(), &[outs, &inexact(outs)].concat())
        }
        DerivativeRule::Vjp { forward, backward } => {
            all_same("the operands of its forward rule", &input_types(forward), ins)?;
            let mut results = forward.output_types();
            let residuals = results.split_off(outs.len());
            all_same("the results of its forward rule", &results, outs)?;
            let cotangents = inexact(outs).iter().map(cotangent_type).collect();
            let takes = [residuals, cotangents, captures.to_vec()].concat();
            all_same("the operands of its backward rule", &input_types(backward), &takes)
        }
    }
}

fn check_loop(l: &Loop, ins: &[ArrayType], outs: &[ArrayType]) -> Result<(), String> {
    let slice = |ty: &ArrayType| {
        let dims = ty.spec.padded(ty.rank()).dims()[1..].to_vec();
        ArrayType { shape: ty.shape[1..].into(), spec: ty.spec.with_dims(dims), ..ty.clone() }
    };
    let mut given = l.split_operands(ins);
    let carry = given.carry.clone();
    given.xs = given.xs.iter().map(slice).collect();
    all_same("the operands of its body", &input_types(&l.body)[1..], &given.into_vec())?;
    let made: Vec<ArrayType> =
        outs[..l.carry].iter().cloned().chain(outs[l.carry..].iter().map(slice)).collect();
    all_same("the results of its body", &l.body.output_types(), &made)?;
    all_same("its first carries", &carry, &outs[..l.carry])
}

/// Checks that a block and the full value agree about all axes that are not manual in the region.
fn check_block(m: &ShardMapping, block: &ArrayType, full: &ArrayType, spec: Spec) -> Result<(), String> {
    let outer = |axes: &Axes| axes.without(&m.axes);
    let dims = |ty: &ArrayType, d: usize| outer(&Axes::from(ty.spec.dim(d)));
    let alike = outer(&block.varying).same_set(&outer(&full.varying))
        && outer(block.spec.unreduced_axes()).same_set(&outer(full.spec.unreduced_axes()))
        && outer(block.spec.reduced_axes()).same_set(&outer(full.spec.reduced_axes()))
        && (0..block.rank()).all(|d| dims(block, d) == dims(full, d));
    if alike { Ok(()) } else { Err(format!("{full} by {spec} is {block} inside of it")) }
}

/// Checks the state of an operand or a result over the manual axes of the region.
fn check_crossing(m: &ShardMapping, block: &ArrayType, spec: Spec) -> Result<(), String> {
    let split: Axes = spec.dims().iter().flatten().collect();
    let own = |axes: &Axes| axes.iter().filter(|a| m.axes.contains(*a)).collect::<Axes>();
    let alike = !m.checked
        || own(&block.varying).same_set(&split)
            && own(block.spec.unreduced_axes()).same_set(spec.unreduced_axes())
            && own(block.spec.reduced_axes()).same_set(spec.reduced_axes());
    if alike { Ok(()) } else { Err(format!("{block} crosses its boundary by {spec}")) }
}

/// Checks that these values vary over all of these axes, and are in no set over them.
fn vary_over(what: &str, types: &[ArrayType], axes: &Axes) -> Result<(), String> {
    let lacks = |ty: &ArrayType, a: Axis| !ty.varying.contains(a) || ty.spec.all_axes().any(|b| b == a);
    match types.iter().enumerate().find(|(_, ty)| axes.iter().any(|a| lacks(ty, a))) {
        Some((k, ty)) => Err(format!("{what} {k} is {ty}, and the choice varies over {axes}")),
        None => Ok(()),
    }
}

fn input_types(p: &Program) -> Vec<ArrayType> {
    p.inputs.iter().map(|v| p.ty(*v).clone()).collect()
}

fn all_same(what: &str, inferred: &[ArrayType], recorded: &[ArrayType]) -> Result<(), String> {
    if inferred.len() != recorded.len() {
        return Err(format!("{what} are {} and {}", inferred.len(), recorded.len()));
    }
    match inferred.iter().zip(recorded).enumerate().find(|(_, (a, b))| !same_type(a, b)) {
        Some((k, (a, b))) => Err(format!("{what}: item {k} is {a} by the rules, and {b} in the program")),
        None => Ok(()),
    }
}

/// Returns true if the types are equal. An unplaced value agrees with a replicated one on any mesh.
fn same_type(a: &ArrayType, b: &ArrayType) -> bool {
    let meshes = match (&a.mesh, &b.mesh) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    };
    meshes
        && a.dtype == b.dtype
        && a.shape == b.shape
        && a.spec.padded(a.rank()) == b.spec.padded(b.rank())
        && a.varying.same_set(&b.varying)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::types::DType;
    use crate::ir::ops::example_group;
    use crate::ir::program::{Builder, Value};
    use std::sync::Arc;

    fn on_mesh(dtype: DType, varying: Axes) -> ArrayType {
        ArrayType { mesh: Some(example_group().mesh), varying, ..dtype.array_type([]) }
    }
    /// Returns a conditional that varies over X, whose branches return their operand of type `ty`.
    fn choice(ty: &ArrayType) -> Program {
        let mut branch = Builder::new();
        let x = branch.input(ty.clone(), None);
        let branch = Arc::new(branch.finish(&[x]));
        let mut b = Builder::new();
        let ins: Vec<Value> =
            [on_mesh(DType::Bool, "X".into()), ty.clone()].into_iter().map(|ty| b.input(ty, None)).collect();
        let control = Control::Cond { branches: vec![branch.clone(), branch] };
        let outs = b.control(control, &ins, vec![ty.clone()]);
        b.finish(&outs)
    }

    #[test]
    fn a_choice_that_varies_has_results_that_vary() {
        assert!(typing_rules(&choice(&on_mesh(DType::F32, "X".into()))).is_ok());
        let e = typing_rules(&choice(&on_mesh(DType::F32, Axes::none()))).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Internal);
        assert!(e.to_string().contains("operand 0 is float32[], and the choice varies over X"), "{e}");
    }

    #[test]
    fn a_recorded_type_is_the_inferred_one() {
        let mut b = Builder::new();
        let x = b.input(on_mesh(DType::F32, "X".into()), None);
        let y = b.neg(&x).unwrap();
        let mut p = b.finish(&[y]);
        assert!(typing_rules(&p).is_ok());
        p.vars.last_mut().unwrap().ty.varying = Axes::none();
        let e = typing_rules(&p).unwrap_err().to_string();
        assert!(e.contains("item 0 is float32[]{V:X} by the rules, and float32[] in the program"), "{e}");
    }
}
