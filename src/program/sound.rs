//! What must hold of kernels and nested programs before they run, whoever wrote them.
//!
//! Primitives are an open trait, and what their sentences say becomes reads and writes of memory. So each sentence is checked against
//! the types of its equation where it comes in, and each nested program against the values that it is given: in all builds, since
//! safe code must not be able to read beyond an array.

use super::sentence::{Affine, Arg, Body, Code, Combine, Fun, Inst, Part, Read, Sentence, Source, Span};
use super::{Control, Equation, Input, Loop, Op, Operand, Program};
use crate::diagnostic::{Error, ErrorKind, Fault, Result as Checked};
use crate::types::{ArrayType, DType, gcd};

/// Positions and counts of bytes beyond this are refused: sums of a few of them still fit in an `i64`.
const MOST: i128 = 1 << 62;

/// What is wrong with the sentences that a primitive has for these types, if anything is.
pub(crate) fn sentences(
    list: &[Sentence],
    operands: &[ArrayType],
    results: &[ArrayType],
) -> Result<(), String> {
    if list.len() != results.len() {
        return Err(format!("it has {} sentences for {} results", list.len(), results.len()));
    }
    for (k, (s, result)) in list.iter().zip(results).enumerate() {
        sentence(s, operands, result).map_err(|wrong| match list.len() {
            1 => wrong,
            _ => format!("result {k}: {wrong}"),
        })?;
    }
    Ok(())
}

fn sentence(s: &Sentence, operands: &[ArrayType], result: &ArrayType) -> Result<(), String> {
    if s.extents.get(..s.rank) != Some(&result.shape[..]) {
        return Err(format!("its loops {:?} begin with no loop for each dimension of {result}", s.extents));
    }
    if s.dtype.storage() != result.dtype.storage() {
        return Err(format!("it makes elements of type {}, and the result is {result}", s.dtype));
    }
    if s.extents.iter().any(|n| *n as u128 > MOST as u128) {
        return Err(format!("a loop of {:?} is too long", s.extents));
    }
    for (k, r) in s.reads.iter().enumerate() {
        read(s, r, operands).map_err(|wrong| format!("read {k}: {wrong}"))?;
    }
    let over_results = || match s.extents.len() - s.rank {
        0 => Ok(()),
        more => Err(format!("{more} of its loops are no dimensions of the result, and nothing is folded")),
    };
    match &s.body {
        Body::Map(c) => over_results().and_then(|()| code(s, c)),
        Body::Fold { combine, code: c } => {
            if matches!(combine, Combine::And | Combine::Or) && s.dtype.is_float() {
                return Err(format!("elements of type {} are not combined by {combine:?}", s.dtype));
            }
            code(s, c)
        }
        Body::Product { accumulate } => match &s.reads[..] {
            [_, _] if *accumulate != DType::Key => Ok(()),
            [_, _] => Err("keys are not summed".into()),
            reads => Err(format!("a product is of two reads, and there are {}", reads.len())),
        },
        Body::Reshape => over_results().and_then(|()| reshape(s, operands)),
    }
}

fn read(s: &Sentence, r: &Read, operands: &[ArrayType]) -> Result<(), String> {
    for (k, p) in r.parts.iter().enumerate() {
        let told = |wrong: String| match r.parts.len() {
            1 => wrong,
            _ => format!("part {k}: {wrong}"),
        };
        spans(&p.span, &s.extents).map_err(told)?;
        let Source::Value(from) = p.from else { continue };
        let Some(ty) = operands.get(from) else {
            return Err(told(format!("it reads operand {from} of {}", operands.len())));
        };
        if r.dtype.storage() != ty.dtype.storage() {
            return Err(told(format!("operand {from} is {ty}, and is read as {}", r.dtype)));
        }
        if p.map.len() != ty.rank() {
            return Err(told(format!("it has {} positions for the dimensions of {ty}", p.map.len())));
        }
        if !matches!(s.body, Body::Reshape) {
            positions(p, ty).map_err(|wrong| told(format!("operand {from}, {ty}: {wrong}")))?;
        }
    }
    match overlap(&r.parts) {
        Some((a, b)) => Err(format!("parts {a} and {b} overlap")),
        None => Ok(()),
    }
}

/// Spans are within their loops.
fn spans(list: &[Span], extents: &[usize]) -> Result<(), String> {
    if list.len() != extents.len() {
        return Err(format!("it has {} spans for {} loops", list.len(), extents.len()));
    }
    // an interior pad of one element steps further than its loop is long
    let beyond = |(s, n): &(&Span, &usize)| {
        !(1..=1 << 60).contains(&s.step)
            || !(0..=**n as i64).contains(&s.lo)
            || !(s.lo..=**n as i64).contains(&s.hi)
    };
    match list.iter().zip(extents).enumerate().find(|(_, s)| beyond(s)) {
        None => Ok(()),
        Some((l, (s, n))) => {
            let Span { lo, hi, step } = s;
            Err(format!("the span {lo}..{hi} by {step} does not lie within loop {l}, of {n} steps"))
        }
    }
}

/// Positions are within their dimensions.
fn positions(p: &Part, ty: &ArrayType) -> Result<(), String> {
    if let Some(t) = p.map.iter().flat_map(|m| &m.terms).find(|t| t.0 >= p.span.len()) {
        return Err(format!("a position depends on loop {}, and there are {}", t.0, p.span.len()));
    }
    // later stages take the terms of a position as independent of one another
    let twice = |m: &Affine| (1..m.terms.len()).find(|k| m.terms[..*k].iter().any(|t| t.0 == m.terms[*k].0));
    if let Some((m, k)) = p.map.iter().find_map(|m| twice(m).map(|k| (m, k))) {
        let l = m.terms[k].0;
        return Err(format!("a position has two terms of loop {l}: write their sum as one"));
    }
    if p.span.iter().any(Span::is_empty) {
        return Ok(());
    }
    let mut stride = ty.dtype.size() as i128;
    for (d, (map, n)) in p.map.iter().zip(&ty.shape[..]).enumerate().rev() {
        let (lo, hi, most) = range(map, &p.span);
        if lo < 0 || hi >= *n as i128 {
            let beyond = if lo < 0 { lo } else { hi };
            return Err(format!("it reads position {beyond} of dimension {d}, which has size {n}"));
        }
        if most.saturating_mul(stride) > MOST {
            return Err(format!("positions of dimension {d} are made of numbers that are too large"));
        }
        stride = stride.saturating_mul(*n as i128);
    }
    Ok(())
}

/// The least and the greatest position over these spans, and a bound for all numbers on the way to them.
fn range(map: &Affine, span: &[Span]) -> (i128, i128, i128) {
    let at = i128::from(map.at);
    let (mut lo, mut hi, mut most) = (at, at, at.abs());
    for (l, c) in &map.terms {
        let (first, steps) = (i128::from(span[*l].lo), i128::from(span[*l].len()));
        most += i128::from(*c).abs() * (first + steps);
        let last = i128::from(*c) * (steps - 1);
        (lo, hi) = (lo + last.min(0), hi + last.max(0));
    }
    (lo, hi, most)
}

/// Two parts that have an index in common.
fn overlap(parts: &[Part]) -> Option<(usize, usize)> {
    let loops = parts.first()?.span.len();
    let empty = |p: &Part| p.span.iter().any(Span::is_empty);
    let mut order: Vec<usize> = (0..parts.len()).filter(|k| !empty(&parts[*k])).collect();
    if order.len() < 2 {
        return None;
    }
    // along the loop in which most of them begin elsewhere, each meets few others
    let begins = |l: usize| {
        let mut at: Vec<i64> = order.iter().map(|k| parts[*k].span[l].lo).collect();
        at.sort_unstable();
        at.dedup();
        at.len()
    };
    let along = (0..loops).max_by_key(|l| begins(*l))?;
    order.sort_by_key(|k| parts[*k].span[along].lo);
    let mut open: Vec<usize> = Vec::new();
    for b in order {
        let lo = parts[b].span[along].lo;
        open.retain(|a| parts[*a].span[along].hi > lo);
        if let Some(a) = open.iter().find(|a| meet(&parts[**a].span, &parts[b].span)) {
            return Some(((*a).min(b), (*a).max(b)));
        }
        open.push(b);
    }
    None
}

/// Whether two boxes have an index in common; steps that may meet count as if they did.
fn meet(a: &[Span], b: &[Span]) -> bool {
    a.iter().zip(b).all(|(a, b)| {
        let (first, end) = (a.lo.max(b.lo), a.hi.min(b.hi));
        // the first index of `of` from there on
        let from = |of: &Span| of.lo + (first - of.lo + of.step - 1) / of.step * of.step;
        match (a.step, b.step) {
            (1, _) => from(b) < end,
            (_, 1) => from(a) < end,
            (m, n) => first < end && (a.lo - b.lo) % gcd(m, n) == 0,
        }
    })
}

fn reshape(s: &Sentence, operands: &[ArrayType]) -> Result<(), String> {
    let [r] = &s.reads[..] else { return Err(format!("a reshape has one read, not {}", s.reads.len())) };
    if r.dtype.storage() != s.dtype.storage() {
        return Err(format!("a reshape of {} makes no {}", r.dtype, s.dtype));
    }
    let [p] = &r.parts[..] else { return Err(format!("a reshape reads one part, not {}", r.parts.len())) };
    let Source::Value(from) = p.from else { return Err("a reshape reads an operand, not a number".into()) };
    let ty = &operands[from];
    let count = |sizes: &[usize]| sizes.iter().fold(1u128, |n, size| n.saturating_mul(*size as u128));
    if count(&s.extents) != count(&ty.shape) {
        return Err(format!("{ty} has not as many elements as {:?}", s.extents));
    }
    let plain = p.span == Span::whole(&s.extents) && p.map.iter().all(|m| *m == Affine::default());
    if plain { Ok(()) } else { Err("a reshape reads all loops, by no positions".into()) }
}

/// Code reads what is there, as what it is, and ends with an element of the sentence's type.
fn code(s: &Sentence, code: &Code) -> Result<(), String> {
    for (k, inst) in code.insts.iter().enumerate() {
        instruction(s, &code.insts[..k], inst).map_err(|wrong| format!("instruction {k}: {wrong}"))?;
    }
    match code.insts.last() {
        Some(last) if last.dtype.storage() == s.dtype.storage() => Ok(()),
        Some(last) => Err(format!("its code makes {}, and the result is of {}", last.dtype, s.dtype)),
        None => Err("its code has no instructions".into()),
    }
}

fn instruction(s: &Sentence, before: &[Inst], inst: &Inst) -> Result<(), String> {
    let Inst { fun, from, dtype, args } = inst;
    if args.len() != arity(*fun) {
        return Err(format!("{fun:?} has {} operands, not {}", arity(*fun), args.len()));
    }
    if !defined(*fun, *from, *dtype) {
        return Err(format!("there is no {fun:?} of {from} that makes {dtype}"));
    }
    for (k, arg) in args.iter().enumerate() {
        let wants = if *fun == Fun::Select && k == 0 { DType::Bool } else { from.storage() };
        let is = match arg {
            Arg::Read(r) => s.reads.get(*r).map(|r| r.dtype),
            Arg::Inst(i) => before.get(*i).map(|i| i.dtype),
            Arg::Index(l) => s.extents.get(*l).map(|_| DType::I64),
            Arg::Const(_) => continue,
        };
        match is {
            None => return Err(format!("its operand {k}, {arg:?}, is not there")),
            Some(is) if is.storage() != wants => {
                return Err(format!("its operand {k}, {arg:?}, is {is}, not {wants}"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}

/// How many operands a function has.
fn arity(fun: Fun) -> usize {
    use Fun::*;
    match fun {
        Copy | Convert | Bitcast | Neg | Sign | Abs | Floor | Ceil | Round | Exp | Exp2 | Expm1 | Log
        | Log1p | Sin | Cos | Tan | Asin | Acos | Atan | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh
        | Sqrt | Rsqrt | Cbrt | Logistic | Erf | ErfInv | IsFinite | Not => 1,
        Add | Sub | Mul | Div | Rem | Max | Min | Pow | Atan2 | NextAfter | Eq | Ne | Lt | Le | Gt | Ge
        | And | Or | Xor | ShiftLeft | ShiftRightLogical | ShiftRightArithmetic | Threefry => 2,
        Select => 3,
    }
}

/// Whether there is such a function on elements of type `from` that makes elements of type `dtype`.
pub(crate) fn defined(fun: Fun, from: DType, dtype: DType) -> bool {
    use Fun::*;
    let (from, dtype) = (from.storage(), dtype.storage());
    let (float, truth) = (from.is_float(), from == DType::Bool);
    let (on, makes) = match fun {
        // a bool's byte is 0 or 1, another byte is no bool
        Bitcast => return from.size() == dtype.size() && (dtype != DType::Bool || truth),
        Convert => return true,
        Copy | Select => (true, from),
        Threefry => (from == DType::U64, from),
        IsFinite => (float, DType::Bool),
        Eq | Ne | Lt | Le | Gt | Ge => (true, DType::Bool),
        Add | Sub | Mul | Max | Min => (true, from),
        Neg | Sign | Abs | Div | Rem | Pow => (!truth, from),
        And | Or | Xor | Not => (!float, from),
        ShiftLeft | ShiftRightLogical | ShiftRightArithmetic => (!float && !truth, from),
        Floor | Ceil | Round | Exp | Exp2 | Expm1 | Log | Log1p | Sin | Cos | Tan | Asin | Acos | Atan
        | Sinh | Cosh | Tanh | Asinh | Acosh | Atanh | Sqrt | Rsqrt | Cbrt | Logistic | Erf | ErfInv
        | Atan2 | NextAfter => (float, from),
    };
    on && makes == dtype
}

/// The refusal of an equation that does not do what its types say: the fault of whoever wrote the primitive.
pub(crate) fn refuse(p: &Program, e: &Equation, wrong: impl std::fmt::Display) -> Error {
    const OWN: &str = concat!(env!("CARGO_CRATE_NAME"), "::");
    let (name, kind, mend) = match &e.op {
        Op::Prim(prim) if prim.as_ref().type_path().starts_with(OWN) => (
            prim.name(),
            ErrorKind::Internal,
            "this is a fault of atmesh, not of the program: please report it",
        ),
        Op::Prim(prim) => (
            prim.name(),
            ErrorKind::Other,
            "mend the primitive: what `sentences` returns must fit what `types` says",
        ),
        Op::Control(c) => (c.name(), ErrorKind::Other, "mend the primitive whose rule built this operation"),
    };
    let operands = e.inputs.iter().filter_map(|i| match i {
        Input::Var(v) => p.vars.get(v.index()).map(|v| v.ty.to_string()),
        Input::Lit(l) => Some(l.dtype.of([]).to_string()),
    });
    let fault = Fault::new(kind, format!("the rules of {name} contradict one another: {wrong}"));
    Error::at(fault.help(mend), name, operands.collect(), e.place)
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
            alike(&outs, &makes).map_err(|wrong| format!("it is typed otherwise: {wrong}"))
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
            fits("the body", &l.body, &given, Some(&makes))?;
            alike(&given[1 + l.fixed..1 + l.fixed + l.carry], outs.get(..l.carry).unwrap_or(&outs))
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

/// What a loop's body is given: the step's number, what is fixed, the carries, slices.
fn loop_inputs(l: &Loop, ins: &[Plain]) -> Result<Vec<Plain>, String> {
    let plain = l.fixed.checked_add(l.carry).filter(|n| *n <= ins.len());
    let Some(plain) = plain else {
        return Err(format!("{} inputs for {} fixed ones and {} carries", ins.len(), l.fixed, l.carry));
    };
    let mut given: Vec<Plain> =
        std::iter::once((DType::I32, Vec::new())).chain(ins.iter().cloned()).collect();
    given[1 + plain..].iter_mut().try_for_each(|slices| unstack(slices, l.length))?;
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
