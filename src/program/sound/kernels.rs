//! Sentences against the types of their equation.

use super::seeks;
use crate::mesh::Axes;
use crate::program::line::Cut;
use crate::program::sentence::{
    Affine, Arg, Body, Code, Combine, Fun, Inst, Lines, Part, Read, Sentence, Source, Span,
};
use crate::sorted;
use crate::types::{ArrayType, DType, Shape, gcd};

/// Positions and counts of bytes beyond this are refused: sums of a few of them still fit in an `i64`.
const MOST: i128 = 1 << 62;

/// Windows that leave a dimension are read from a copy with what is around it: it is at most so many times as long as dimension and loops are.
pub(crate) const WIDE: i128 = 64;

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
    let parts = result.spec.unreduced_axes();
    if !parts.is_empty() && s.body.combine() != Combine::Add {
        return Err(format!(
            "its result is unreduced over {parts}, and is combined by {:?}",
            s.body.combine()
        ));
    }
    let over_results = || match s.extents.len() - s.rank {
        0 => Ok(()),
        more => Err(format!("{more} of its loops are no dimensions of the result, and nothing is folded")),
    };
    match &s.body {
        Body::Map(c) => over_results().and_then(|()| code(s, c)),
        Body::Fold { combine, code: c } => {
            if !combine.takes(s.dtype) {
                return Err(format!("elements of type {} are not combined by {combine:?}", s.dtype));
            }
            code(s, c)
        }
        Body::Product { accumulate } => product(s, *accumulate),
        Body::Lines(l) => lines(s, l, operands, result),
        Body::Take { at } => seeks::take(s, at),
        Body::Put { at, combine } => seeks::put(s, at, *combine),
        Body::Reshape => over_results().and_then(|()| reshape(s, operands, result)),
    }
}

/// Sums are of numbers, and of floats where floats are read or made: so nothing is cut or clamped on the way.
fn product(s: &Sentence, sums: DType) -> Result<(), String> {
    let [a, b] = &s.reads[..] else {
        return Err(format!("a product is of two reads, and there are {}", s.reads.len()));
    };
    if !sums.is_number() || !s.dtype.storage().is_number() {
        return Err(format!("products are not summed in {sums} to elements of type {}", s.dtype));
    }
    let kind = |d: DType| (d.is_float(), d.is_complex());
    if kind(sums) != kind(s.dtype) {
        return Err(format!(
            "its sums are {sums}, and the result is of {}: both are floats or neither, and so for complex numbers",
            s.dtype
        ));
    }
    match [a, b]
        .iter()
        .find(|r| r.dtype.is_float() && !sums.is_float() || r.dtype.is_complex() != sums.is_complex())
    {
        Some(r) => Err(format!("products of {} are not summed in {sums}", r.dtype)),
        None => Ok(()),
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
        if s.body.reads_by_position() {
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

/// Lines are read whole, by no loop that runs along what comes out of them.
fn lines(s: &Sentence, l: &Lines, operands: &[ArrayType], result: &ArrayType) -> Result<(), String> {
    if let Some(k) = l.along.iter().find(|k| **k >= s.rank) {
        return Err(format!("loop {k} runs along its result, which has {} dimensions", s.rank));
    }
    if (1..l.along.len()).any(|k| l.along[..k].contains(&l.along[k])) {
        return Err(format!("its result runs along loops {:?}, of which one is named twice", l.along));
    }
    let sizes = |loops: &[usize]| loops.iter().map(|k| s.extents[*k]).collect::<Shape>();
    let beyond: Shape = s.extents[s.rank..].iter().copied().collect();
    let ins: Vec<(DType, Shape)> = s.reads.iter().map(|r| (r.dtype.storage(), beyond.clone())).collect();
    let made = l.of.shapes(&ins)?;
    let is = (s.dtype.storage(), sizes(&l.along));
    if made.get(l.result) != Some(&is) {
        return Err(format!(
            "a line of result {} of {} is {}{}, and this is not what the function makes",
            l.result,
            l.of.key(),
            is.0,
            is.1
        ));
    }
    let dtypes: Vec<DType> = s.reads.iter().map(|r| r.dtype).collect();
    let sums = match l.of.cut(&dtypes) {
        Cut::Sum { over } => over,
        Cut::Whole | Cut::Scan { .. } | Cut::Best { .. } => Vec::new(),
    };
    if let Some(a) = sums.iter().find(|a| **a >= beyond.rank()) {
        return Err(format!("it sums over dimension {a} of lines that have {}", beyond.rank()));
    }
    let wanted = result.spec.unreduced_axes();
    let (mut parts, mut split) = (false, Axes::none());
    for (k, r) in s.reads.iter().enumerate() {
        let [p] = &r.parts[..] else {
            return Err(format!("read {k} of lines is one part, not {}", r.parts.len()));
        };
        if p.span != Span::whole(&s.extents) {
            return Err(format!("read {k} of lines does not cover all loops"));
        }
        let Source::Value(from) = p.from else { continue };
        if let Some((along, _)) = p.map.iter().flat_map(|m| &m.terms).find(|t| l.along.contains(&t.0)) {
            return Err(format!("read {k} depends on loop {along}, which runs along the result"));
        }
        // what is summed over is split, and each block makes a part
        for (d, m) in p.map.iter().enumerate() {
            if sums.iter().any(|a| *m == Affine::of(0, s.rank + a, 1)) {
                split.extend(&Axes::from(operands[from].spec.dim(d)));
            }
        }
        let is = operands[from].spec.unreduced_axes();
        parts |= is.same_set(wanted);
        if !is.is_empty() && (!is.same_set(wanted) || !sums.is_empty()) {
            let ty = &operands[from];
            return Err(format!("lines of {ty} are unreduced as that is, and their type is {result}"));
        }
    }
    match parts || wanted.is_empty() || wanted.within(&split) {
        true => Ok(()),
        false => Err(format!("none of its operands is unreduced, and its type is {result}")),
    }
}

/// Positions that one loop makes are within their dimensions.
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
        // a window's positions may be outside: the part is not there
        if map.terms.len() < 2 && (lo < 0 || hi >= *n as i128) {
            let beyond = if lo < 0 { lo } else { hi };
            return Err(format!("it reads position {beyond} of dimension {d}, which has size {n}"));
        }
        let steps: i128 = map.terms.iter().map(|(l, _)| i128::from(p.span[*l].len())).sum();
        let reach = map.reach(&p.span);
        if (lo < 0 || hi >= *n as i128) && reach > WIDE * (*n as i128 + steps + 4) {
            return Err(format!(
                "its windows are spread over {reach} positions of dimension {d}, which has size {n}"
            ));
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
        sorted::sort(&mut at);
        at.dedup();
        at.len()
    };
    let along = (0..loops).max_by_key(|l| begins(*l))?;
    sorted::sort_by_key(&mut order, |k| parts[*k].span[along].lo);
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

fn reshape(s: &Sentence, operands: &[ArrayType], result: &ArrayType) -> Result<(), String> {
    let [r] = &s.reads[..] else { return Err(format!("a reshape has one read, not {}", s.reads.len())) };
    if r.dtype.storage() != s.dtype.storage() {
        return Err(format!("a reshape of {} makes no {}", r.dtype, s.dtype));
    }
    let [p] = &r.parts[..] else { return Err(format!("a reshape reads one part, not {}", r.parts.len())) };
    let Source::Value(from) = p.from else { return Err("a reshape reads an operand, not a number".into()) };
    let ty = &operands[from];
    let (is, makes) = (ty.spec.unreduced_axes(), result.spec.unreduced_axes());
    if !is.same_set(makes) {
        return Err(format!("a reshape of {ty} is unreduced as that is, and its type is {result}"));
    }
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
        | Sqrt | Rsqrt | Cbrt | Logistic | Erf | ErfInv | IsFinite | Real | Imag | Conj | Not => 1,
        Add | Sub | Mul | Div | Rem | Max | Min | Pow | Atan2 | NextAfter | Complex | Eq | Ne | Lt | Le
        | Gt | Ge | And | Or | Xor | ShiftLeft | ShiftRightLogical | ShiftRightArithmetic | Threefry => 2,
        Select => 3,
    }
}

/// Whether there is such a function on elements of type `from` that makes elements of type `dtype`.
pub(crate) fn defined(fun: Fun, from: DType, dtype: DType) -> bool {
    use Fun::*;
    let (from, dtype) = (from.storage(), dtype.storage());
    let (float, complex, truth) = (from.is_float(), from.is_complex(), from == DType::Bool);
    let (on, makes) = match fun {
        // a bool's byte is 0 or 1, another byte is no bool
        Bitcast => return from.size() == dtype.size() && (dtype != DType::Bool || truth),
        // the parts of complex numbers are taken apart and put together by name
        Convert => return complex == dtype.is_complex(),
        Fun::Complex => return float && from.complex() == Some(dtype),
        Copy | Select => (true, from),
        Threefry => (from == DType::U64, from),
        IsFinite => (float, DType::Bool),
        Real | Imag => (complex, from.real()),
        Conj => (complex, from),
        Eq | Ne => (true, DType::Bool),
        Lt | Le | Gt | Ge => (!complex, DType::Bool),
        Add | Sub | Mul | Max | Min => (true, from),
        Neg | Sign | Div | Pow => (!truth, from),
        Abs => (!truth, from.real()),
        Rem => (!truth && !complex, from),
        And | Or | Xor | Not => (!from.is_inexact(), from),
        ShiftLeft | ShiftRightLogical | ShiftRightArithmetic => (!from.is_inexact() && !truth, from),
        Exp | Log | Sin | Cos | Tan | Sinh | Cosh | Tanh | Sqrt | Rsqrt => (from.is_inexact(), from),
        Floor | Ceil | Round | Exp2 | Expm1 | Log1p | Asin | Acos | Atan | Asinh | Acosh | Atanh | Cbrt
        | Logistic | Erf | ErfInv | Atan2 | NextAfter => (float, from),
    };
    on && makes == dtype
}
