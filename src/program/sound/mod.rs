//! What must hold of a primitive's answers and of nested programs before they run, whoever wrote them.
//!
//! Primitives are an open trait, and what their sentences say becomes reads and writes of memory. So each sentence is checked against
//! the types of its equation where it comes in ([`kernels`]), each other answer where it is asked for ([`answers`]), and each nested
//! program against the values that it is given: in all builds, since safe code must not be able to read beyond an array.

mod answers;
pub(crate) mod kernels;
mod seeks;

pub(crate) use answers::{added, batched, collective, cotangents, factors, tangents, types};
pub(crate) use kernels::{WIDE, sentences};

use super::{Control, Equation, Input, Loop, Op, Operand, Parts, Primitive, Program};
use crate::diagnostic::{Error, ErrorKind, Fault, Result as Checked};
use crate::types::{ArrayType, DType};

/// What is told of a primitive whose answers do not fit one another: the fault of whoever wrote it.
pub(crate) fn contradiction<P: Primitive + ?Sized>(prim: &P, wrong: impl std::fmt::Display) -> Fault {
    contradicted(prim.name(), prim.type_path(), wrong.to_string())
}

fn contradicted(name: &str, path: &str, wrong: String) -> Fault {
    const OWN: &str = concat!(env!("CARGO_CRATE_NAME"), "::");
    let message = format!("the rules of {name} contradict one another: {wrong}");
    if path.starts_with(OWN) {
        let mend = "this is a fault of atmesh, not of the program: please report it";
        return Fault::new(ErrorKind::Internal, message).help(mend);
    }
    let mend = "mend the primitive: its factors, sentences and other answers must fit what `types` says";
    Fault::new(ErrorKind::Other, message).help(mend)
}

/// The refusal of an equation that does not do what its types say: the fault of whoever wrote the primitive.
pub(crate) fn refuse(p: &Program, e: &Equation, wrong: impl std::fmt::Display) -> Error {
    let (name, fault) = match &e.op {
        Op::Prim(prim) => (prim.name(), contradiction(prim.as_ref(), wrong)),
        Op::Control(c) => {
            let message = format!("the rules of {} contradict one another: {wrong}", c.name());
            let mend = "mend the primitive whose rule built this operation";
            (c.name(), Fault::new(ErrorKind::Other, message).help(mend))
        }
    };
    let operands = e.inputs.iter().filter_map(|i| match i {
        Input::Var(v) => p.vars.get(v.index()).map(|v| v.ty.to_string()),
        Input::Lit(l) => Some(l.dtype.of([]).to_string()),
    });
    Error::at(fault, name, operands.collect(), e.place)
}

/// Refuses a program in which an equation reads what is not made before it, makes what is typed otherwise, or holds a program that
/// does not fit the values it is given.
pub(crate) fn check(p: &Program) -> Checked<()> {
    let fault =
        |wrong: String| Error::from(Fault::new(ErrorKind::Other, format!("this is no program: {wrong}")));
    let mut made = vec![false; p.vars.len()];
    for v in &p.inputs {
        let new = made.get_mut(v.index()).is_some_and(|made| !std::mem::replace(made, true));
        if !new {
            return Err(fault(format!("its input {v:?} is no variable, or one twice")));
        }
    }
    let there = |made: &[bool], i: &Input| match i {
        Input::Var(v) => made.get(v.index()).is_some_and(|made| *made),
        Input::Lit(_) => true,
    };
    for e in &p.equations {
        if let Some(i) = e.inputs.iter().find(|i| !there(&made, i)) {
            return Err(refuse(p, e, format!("it reads {i:?}, which nothing makes before it")));
        }
        for v in &e.outputs {
            let new = made.get_mut(v.index()).is_some_and(|made| !std::mem::replace(made, true));
            if !new {
                return Err(refuse(
                    p,
                    e,
                    format!("it makes {v:?}, which is no variable, or is made already"),
                ));
            }
        }
        equation(p, e).map_err(|wrong| refuse(p, e, wrong))?;
        if let Op::Control(c) = &e.op {
            c.bodies().into_iter().try_for_each(|b| check(b))?;
        }
    }
    match p.outputs.iter().find(|o| !there(&made, o)) {
        Some(o) => Err(fault(format!("nothing makes its result {o:?}"))),
        None => Ok(()),
    }
}

fn equation(p: &Program, e: &Equation) -> Result<(), String> {
    let ins: Vec<Plain> = e.inputs.iter().map(|i| plain(p, i)).collect();
    let outs: Vec<Plain> = e.outputs.iter().map(|v| plain(p, &Input::Var(*v))).collect();
    let fits = |what: &str, inner: &Program, given: &[Plain], makes: Option<&[Plain]>| {
        let takes: Vec<Plain> = inner.inputs.iter().map(|v| plain(inner, &Input::Var(*v))).collect();
        alike(given, &takes).map_err(|wrong| format!("{what}: values and inputs differ: {wrong}"))?;
        let results: Vec<Plain> = inner.outputs.iter().map(|o| plain(inner, o)).collect();
        if let Some(makes) = makes {
            alike(makes, &results).map_err(|wrong| format!("{what}: results differ: {wrong}"))?;
        }
        Ok(())
    };
    match &e.op {
        Op::Prim(prim) => {
            let literal = |i: &Input| matches!(i, Input::Lit(_));
            let operands = e.inputs.iter();
            let operands: Vec<Operand> =
                operands.map(|i| Operand::new(p.input_type(i), literal(i))).collect();
            let shapes = prim.shapes(&operands).map_err(|fault| fault.message)?;
            let makes: Vec<Plain> = shapes.iter().map(|(dtype, shape)| (*dtype, shape.to_vec())).collect();
            alike(&outs, &makes).map_err(|wrong| format!("it is typed otherwise: {wrong}"))?;
            let types: Vec<ArrayType> = operands.into_iter().map(|o| o.ty).collect();
            factors(&prim.factors(&types, &shapes), &types, &shapes)
        }
        Op::Control(Control::Jit { body, .. } | Control::Modes { body, .. }) => {
            fits("the body", body, &ins, Some(&outs))
        }
        Op::Control(Control::Loop(l)) => {
            let given = loop_inputs(l, &ins)?;
            let mut makes = outs.clone();
            for stacked in makes.iter_mut().skip(l.carry) {
                unstack(stacked, l.length)?;
            }
            let carry = given.carry.clone();
            fits("the body", &l.body, &given.step((DType::I32, Vec::new())), Some(&makes))?;
            alike(&carry, outs.get(..l.carry).unwrap_or(&outs))
                .map_err(|wrong| format!("first and last carries differ: {wrong}"))
        }
        Op::Control(Control::While { cond, body, cond_fixed, body_fixed }) => {
            let Some((for_cond, rest)) = ins.split_at_checked(*cond_fixed) else {
                return Err(format!("{} inputs, and the condition has {cond_fixed}", ins.len()));
            };
            let Some((for_body, carry)) = rest.split_at_checked(*body_fixed) else {
                return Err(format!("{} inputs, and the body has {body_fixed}", rest.len()));
            };
            alike(carry, &outs).map_err(|wrong| format!("first and last carries differ: {wrong}"))?;
            let holds = (DType::Bool, Vec::new());
            fits("the condition", cond, &[for_cond, carry].concat(), Some(&[holds]))?;
            fits("the body", body, &[for_body, carry].concat(), Some(carry))
        }
        Op::Control(Control::Cond { branches }) => {
            let Some(((which, shape), rest)) = ins.split_first() else {
                return Err("nothing says which branch".into());
            };
            let two = *which == DType::Bool && branches.len() == 2;
            if branches.is_empty() || !shape.is_empty() || !(two || *which == DType::I32) {
                return Err(format!("{which}{shape:?} does not say which of {} branches", branches.len()));
            }
            (branches.iter().enumerate())
                .try_for_each(|(k, b)| fits(&format!("branch {k}"), b, rest, Some(&outs)))
        }
        Op::Control(Control::ShardMap(m)) => {
            let (takes, makes) = (m.body.inputs.len(), m.body.outputs.len());
            if ins.len() != takes
                || m.in_specs.len() != takes
                || outs.len() != makes
                || m.out_specs.len() != makes
            {
                return Err("values, specs, and inputs and results of the body are not as many".into());
            }
            let inner = m.body.inputs.iter().map(|v| plain(&m.body, &Input::Var(*v)));
            let results = m.body.outputs.iter().map(|o| plain(&m.body, o));
            let sides =
                (ins.iter().zip(inner).zip(&m.in_specs)).chain(outs.iter().zip(results).zip(&m.out_specs));
            for ((whole, block), spec) in sides {
                let ways = |d: usize| -> usize {
                    let cut = spec.dim(d).iter().filter(|a| m.axes.contains(**a));
                    cut.map(|a| m.mesh.axis_size(*a).unwrap_or(1)).product()
                };
                let cut = |(d, n): (usize, &usize)| n.checked_mul(ways(d));
                let joined: Option<Vec<usize>> = block.1.iter().enumerate().map(cut).collect();
                if whole.0 != block.0 || joined.as_ref() != Some(&whole.1) {
                    return Err(format!(
                        "{}{:?} is not {}{:?} in blocks by {spec}",
                        whole.0, whole.1, block.0, block.1
                    ));
                }
            }
            Ok(())
        }
        Op::Control(Control::Print { .. }) => alike(&outs, &[]),
    }
}

/// What a value is in memory, but for its address: its element type and shape.
type Plain = (DType, Vec<usize>);

fn plain(p: &Program, input: &Input) -> Plain {
    match input {
        Input::Lit(l) => (l.dtype, Vec::new()),
        Input::Var(v) => {
            p.vars.get(v.index()).map_or_else(Default::default, |v| (v.ty.dtype, v.ty.shape.to_vec()))
        }
    }
}

fn alike(a: &[Plain], b: &[Plain]) -> Result<(), String> {
    if a.len() != b.len() {
        return Err(format!("{} and {}", a.len(), b.len()));
    }
    match a.iter().zip(b).enumerate().find(|(_, (a, b))| a != b) {
        Some((k, (a, b))) => Err(format!("number {k} is {}{:?} and {}{:?}", a.0, a.1, b.0, b.1)),
        None => Ok(()),
    }
}

/// What a loop's body is given beside the step's number: what is fixed, the carries, slices.
fn loop_inputs(l: &Loop, ins: &[Plain]) -> Result<Parts<Plain>, String> {
    if l.fixed.checked_add(l.carry).is_none_or(|n| n > ins.len()) {
        return Err(format!("{} inputs for {} fixed ones and {} carries", ins.len(), l.fixed, l.carry));
    }
    let mut given = l.parts(ins);
    given.xs.iter_mut().try_for_each(|slices| unstack(slices, l.length))?;
    Ok(given)
}

fn unstack(value: &mut Plain, length: usize) -> Result<(), String> {
    if value.1.first() != Some(&length) {
        return Err(format!("{}{:?} is no stack of {length}", value.0, value.1));
    }
    value.1.remove(0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::PRIMITIVES;
    use crate::program::Builder;

    /// A wrong primitive of atmesh's own is to be reported; `tests/laws` has those of users.
    #[test]
    fn own_primitives_are_told_apart() {
        let (prim, types) = (PRIMITIVES[0].example)();
        let mut b = Builder::new();
        let operands: Vec<_> = types.iter().map(|ty| b.input(ty.clone(), None)).collect();
        let outs = b.emit(prim, &operands).expect("it is an example");
        let p = b.finish(&outs);
        let error = refuse(&p, &p.equations[0], "it reads what is not there");
        assert_eq!(error.kind(), ErrorKind::Internal);
        assert!(error.to_string().contains("please report it"), "{error}");
    }
}
