//! Verification of loop nests against the types of their equations.

use super::gather_scatter;
use crate::core::{ArrayType, Axes, DType, Shape, types::gcd, util::small_sort};
use crate::ir::program::loop_nest::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, Reducer, RowKernelCall, ScalarArg, ScalarCode,
    ScalarInst, ScalarOp, Source, StridedRange,
};
use crate::kernels::row_kernel::RowSharding;

/// The maximum position, and the maximum size in bytes.
/// The sum of a few such numbers does not overflow an `i64`.
const MAX_POSITION: i128 = 1 << 62;

/// The maximum size of a padded copy, relative to the sizes of the dimension and of its loops.
/// Windows that extend outside of a dimension are read from such a copy.
pub(crate) const MAX_WINDOW_COPY_RATIO: i128 = 64;

/// Verifies the loop nests of a primitive for operands and results of these types.
/// The error describes the first violation.
pub(crate) fn loop_nests(
    list: &[LoopNest],
    operands: &[ArrayType],
    results: &[ArrayType],
) -> Result<(), String> {
    if list.len() != results.len() {
        return Err(format!("it has {} loop nests for {} results", list.len(), results.len()));
    }
    for (k, (s, result)) in list.iter().zip(results).enumerate() {
        loop_nest(s, operands, result).map_err(|wrong| match list.len() {
            1 => wrong,
            _ => format!("result {k}: {wrong}"),
        })?;
    }
    Ok(())
}

fn loop_nest(s: &LoopNest, operands: &[ArrayType], result: &ArrayType) -> Result<(), String> {
    if s.extents.get(..s.rank) != Some(&result.shape[..]) {
        return Err(format!("its loops {:?} do not start with the dimensions of {result}", s.extents));
    }
    if s.dtype.storage() != result.dtype.storage() {
        return Err(format!("it makes elements of type {}, and the result is {result}", s.dtype));
    }
    if s.extents.iter().any(|n| *n as u128 > MAX_POSITION as u128) {
        return Err(format!("a loop of {:?} is too long", s.extents));
    }
    for (k, r) in s.accesses.iter().enumerate() {
        access(s, r, operands).map_err(|wrong| format!("access {k}: {wrong}"))?;
    }
    let parts = result.spec.unreduced_axes();
    if !parts.is_empty() && s.compute.partial_reducer() != Reducer::Add {
        return Err(format!(
            "its result is unreduced over {parts}, and is combined by {:?}",
            s.compute.partial_reducer()
        ));
    }
    let over_results = || match s.extents.len() - s.rank {
        0 => Ok(()),
        more => Err(format!("{more} of its loops are no dimensions of the result, and nothing is reduced")),
    };
    match &s.compute {
        Compute::Map(c) => over_results().and_then(|()| code(s, c)),
        Compute::Reduce { reducer: combine, code: c } => {
            if !combine.supports(s.dtype) {
                return Err(format!("elements of type {} are not combined by {combine:?}", s.dtype));
            }
            code(s, c)
        }
        Compute::Contract { accum_dtype: accumulate, .. } => contraction(s, *accumulate),
        Compute::RowKernel(l) => row_kernel(s, l, operands, result),
        Compute::Gather { indices: at } => gather_scatter::gather(s, at),
        Compute::Scatter { indices: at, reducer: combine } => gather_scatter::scatter(s, at, *combine),
        Compute::Reshape => over_results().and_then(|()| reshape(s, operands, result)),
    }
}

/// Verifies a contraction.
/// Sums must be numeric, and must be floats if an operand or the result is, so that they are not
/// truncated.
fn contraction(s: &LoopNest, accum_dtype: DType) -> Result<(), String> {
    let [a, b] = &s.accesses[..] else {
        return Err(format!("a contraction has two accesses, not {}", s.accesses.len()));
    };
    if !accum_dtype.is_number() || !s.dtype.storage().is_number() {
        return Err(format!("products are not summed in {accum_dtype} to elements of type {}", s.dtype));
    }
    let kind = |d: DType| (d.is_float(), d.is_complex());
    if kind(accum_dtype) != kind(s.dtype) {
        return Err(format!(
            "its sums are {accum_dtype}, and the result is of {}: both are floats or neither, and so for complex numbers",
            s.dtype
        ));
    }
    match [a, b].iter().find(|r| {
        r.dtype.is_float() && !accum_dtype.is_float() || r.dtype.is_complex() != accum_dtype.is_complex()
    }) {
        Some(r) => Err(format!("products of {} are not summed in {accum_dtype}", r.dtype)),
        None => Ok(()),
    }
}

fn access(s: &LoopNest, r: &Access, operands: &[ArrayType]) -> Result<(), String> {
    for (k, p) in r.pieces.iter().enumerate() {
        let described = |wrong: String| match r.pieces.len() {
            1 => wrong,
            _ => format!("piece {k}: {wrong}"),
        };
        ranges(&p.ranges, &s.extents).map_err(described)?;
        let Source::Value(from) = p.source else { continue };
        let Some(ty) = operands.get(from) else {
            return Err(described(format!("it reads operand {from} of {}", operands.len())));
        };
        if r.dtype.storage() != ty.dtype.storage() {
            return Err(described(format!("operand {from} is {ty}, and is read as {}", r.dtype)));
        }
        if p.map.len() != ty.rank() {
            return Err(described(format!("it has {} positions for the dimensions of {ty}", p.map.len())));
        }
        if s.compute.has_affine_accesses() {
            positions(p, ty).map_err(|wrong| described(format!("operand {from}, {ty}: {wrong}")))?;
        }
    }
    let Some((a, b)) = overlap(&r.pieces) else { return Ok(()) };
    Err(format!("pieces {a} and {b} overlap"))
}

/// Checks that ranges are within their loops.
fn ranges(list: &[StridedRange], extents: &[usize]) -> Result<(), String> {
    if list.len() != extents.len() {
        return Err(format!("it has {} ranges for {} loops", list.len(), extents.len()));
    }
    // after interior padding, a dimension of size 1 has a step larger than its loop
    let is_outside = |(s, n): &(&StridedRange, &usize)| {
        !(1..=1 << 60).contains(&s.step)
            || !(0..=**n as i64).contains(&s.lo)
            || !(s.lo..=**n as i64).contains(&s.hi)
    };
    let Some((l, (s, n))) = list.iter().zip(extents).enumerate().find(|(_, s)| is_outside(s)) else {
        return Ok(());
    };
    let StridedRange { lo, hi, step } = s;
    Err(format!("the range {lo}..{hi} by {step} is not within loop {l}, of {n} steps"))
}

/// Verifies a row kernel.
/// Its rows must be read in full, and accesses must not depend on loops along the result row.
fn row_kernel(
    s: &LoopNest,
    l: &RowKernelCall,
    operands: &[ArrayType],
    result: &ArrayType,
) -> Result<(), String> {
    if let Some(k) = l.row_loops.iter().find(|k| **k >= s.rank) {
        return Err(format!("loop {k} runs along its result, which has {} dimensions", s.rank));
    }
    if (1..l.row_loops.len()).any(|k| l.row_loops[..k].contains(&l.row_loops[k])) {
        return Err(format!("its result runs along loops {:?}, of which one is named twice", l.row_loops));
    }
    let sizes = |loops: &[usize]| loops.iter().map(|k| s.extents[*k]).collect::<Shape>();
    let row_shape: Shape = s.extents[s.rank..].iter().copied().collect();
    let ins: Vec<(DType, Shape)> =
        s.accesses.iter().map(|r| (r.dtype.storage(), row_shape.clone())).collect();
    let made = l.kernel.shapes(&ins)?;
    let is = (s.dtype.storage(), sizes(&l.row_loops));
    if made.get(l.result_index) != Some(&is) {
        return Err(format!(
            "a row of result {} of {} is {}{}, and this is not what the kernel makes",
            l.result_index,
            l.kernel.key(),
            is.0,
            is.1
        ));
    }
    let dtypes: Vec<DType> = s.accesses.iter().map(|r| r.dtype).collect();
    let sums = match l.kernel.sharding(&dtypes) {
        RowSharding::Sum { dims: over } => over,
        RowSharding::NotSharded
        | RowSharding::Scan { .. }
        | RowSharding::TopK { .. }
        | RowSharding::Separable { .. } => Vec::new(),
    };
    if let Some(a) = sums.iter().find(|a| **a >= row_shape.rank()) {
        return Err(format!("it sums over dimension {a} of rows that have {}", row_shape.rank()));
    }
    let expected = result.spec.unreduced_axes();
    let (mut partials, mut split) = (false, Axes::none());
    for (k, r) in s.accesses.iter().enumerate() {
        let [p] = &r.pieces[..] else {
            return Err(format!("access {k} of a row kernel has one piece, not {}", r.pieces.len()));
        };
        if p.ranges != StridedRange::full_box(&s.extents) {
            return Err(format!("access {k} of a row kernel does not cover all loops"));
        }
        let Source::Value(from) = p.source else { continue };
        if let Some((along, _)) = p.map.iter().flat_map(|m| &m.terms).find(|t| l.row_loops.contains(&t.0)) {
            return Err(format!("access {k} depends on loop {along}, which runs along the result"));
        }
        // dimensions that are summed may be split; each block then gives a partial result
        for (d, m) in p.map.iter().enumerate() {
            if sums.iter().any(|a| *m == AffineExpr::linear(0, s.rank + a, 1)) {
                split.extend_unique(&Axes::from(operands[from].spec.dim(d)));
            }
        }
        let is = operands[from].spec.unreduced_axes();
        partials |= is.same_set(expected);
        if !is.is_empty() && (!is.same_set(expected) || !sums.is_empty()) {
            let ty = &operands[from];
            return Err(format!("rows of {ty} are unreduced like it, but their type is {result}"));
        }
    }
    match partials || expected.is_empty() || expected.is_subset_of(&split) {
        true => Ok(()),
        false => Err(format!("none of its operands is unreduced, and its type is {result}")),
    }
}

/// Checks that positions that depend on one loop are within their dimensions.
fn positions(p: &AccessPiece, ty: &ArrayType) -> Result<(), String> {
    if let Some(t) = p.map.iter().flat_map(|m| &m.terms).find(|t| t.0 >= p.ranges.len()) {
        return Err(format!("a position depends on loop {}, and there are {}", t.0, p.ranges.len()));
    }
    // later passes assume that the terms of a position have different loops
    let twice =
        |m: &AffineExpr| (1..m.terms.len()).find(|k| m.terms[..*k].iter().any(|t| t.0 == m.terms[*k].0));
    if let Some((m, k)) = p.map.iter().find_map(|m| twice(m).map(|k| (m, k))) {
        let l = m.terms[k].0;
        return Err(format!("a position has two terms of loop {l}: write their sum as one"));
    }
    if p.ranges.iter().any(StridedRange::is_empty) {
        return Ok(());
    }
    let mut stride = ty.dtype.size() as i128;
    for (d, (map, n)) in p.map.iter().zip(&ty.shape[..]).enumerate().rev() {
        let (lo, hi, most) = position_range(map, &p.ranges);
        // positions in a window may be out of bounds: the piece does not apply to them
        if map.terms.len() < 2 && (lo < 0 || hi >= *n as i128) {
            let position = if lo < 0 { lo } else { hi };
            return Err(format!("it reads position {position} of dimension {d}, which has size {n}"));
        }
        let steps: i128 = map.terms.iter().map(|(l, _)| i128::from(p.ranges[*l].len())).sum();
        let reach = map.window_reach(&p.ranges);
        if (lo < 0 || hi >= *n as i128) && reach > MAX_WINDOW_COPY_RATIO * (*n as i128 + steps + 4) {
            return Err(format!(
                "its windows are spread over {reach} positions of dimension {d}, which has size {n}"
            ));
        }
        if most.saturating_mul(stride) > MAX_POSITION {
            return Err(format!("positions of dimension {d} are computed from values that are too large"));
        }
        stride = stride.saturating_mul(*n as i128);
    }
    Ok(())
}

/// Returns the minimum and maximum position over these ranges, and a bound for intermediates.
/// The bound holds for the magnitude of all values that occur while a position is computed.
fn position_range(map: &AffineExpr, ranges: &[StridedRange]) -> (i128, i128, i128) {
    let at = i128::from(map.constant);
    let (mut lo, mut hi, mut most) = (at, at, at.abs());
    for (l, c) in &map.terms {
        let (first, steps) = (i128::from(ranges[*l].lo), i128::from(ranges[*l].len()));
        most += i128::from(*c).abs() * (first + steps);
        let last = i128::from(*c) * (steps - 1);
        (lo, hi) = (lo + last.min(0), hi + last.max(0));
    }
    (lo, hi, most)
}

/// Returns two pieces that have an index in common; `None` if all are disjoint.
fn overlap(pieces: &[AccessPiece]) -> Option<(usize, usize)> {
    let loops = pieces.first()?.ranges.len();
    let empty = |p: &AccessPiece| p.ranges.iter().any(StridedRange::is_empty);
    let mut order: Vec<usize> = (0..pieces.len()).filter(|k| !empty(&pieces[*k])).collect();
    if order.len() < 2 {
        return None;
    }
    // sweep along the loop with the most distinct start indices, so that few pieces are active at
    // the same time
    let begins = |l: usize| {
        let mut at: Vec<i64> = order.iter().map(|k| pieces[*k].ranges[l].lo).collect();
        small_sort::sort(&mut at);
        at.dedup();
        at.len()
    };
    let along = (0..loops).max_by_key(|l| begins(*l))?;
    small_sort::sort_by_key(&mut order, |k| pieces[*k].ranges[along].lo);
    let mut open: Vec<usize> = Vec::new();
    for b in order {
        let lo = pieces[b].ranges[along].lo;
        open.retain(|a| pieces[*a].ranges[along].hi > lo);
        if let Some(a) = open.iter().find(|a| ranges_intersect(&pieces[**a].ranges, &pieces[b].ranges)) {
            return Some(((*a).min(b), (*a).max(b)));
        }
        open.push(b);
    }
    None
}

/// Returns true if two boxes have an index in common.
/// For two ranges with steps other than 1, it may return true even if they have none.
fn ranges_intersect(a: &[StridedRange], b: &[StridedRange]) -> bool {
    a.iter().zip(b).all(|(a, b)| {
        let (first, end) = (a.lo.max(b.lo), a.hi.min(b.hi));
        // the first index of `of` that is not before `first`
        let from = |of: &StridedRange| of.lo + (first - of.lo + of.step - 1) / of.step * of.step;
        match (a.step, b.step) {
            (1, _) => from(b) < end,
            (_, 1) => from(a) < end,
            (m, n) => first < end && (a.lo - b.lo) % gcd(m, n) == 0,
        }
    })
}

fn reshape(s: &LoopNest, operands: &[ArrayType], result: &ArrayType) -> Result<(), String> {
    let [r] = &s.accesses[..] else {
        return Err(format!("a reshape has one access, not {}", s.accesses.len()));
    };
    if r.dtype.storage() != s.dtype.storage() {
        return Err(format!("a reshape of {} cannot give {}", r.dtype, s.dtype));
    }
    let [p] = &r.pieces[..] else { return Err(format!("a reshape reads one piece, not {}", r.pieces.len())) };
    let Source::Value(from) = p.source else {
        return Err("a reshape reads an operand, not a constant".into());
    };
    let ty = &operands[from];
    let (is, makes) = (ty.spec.unreduced_axes(), result.spec.unreduced_axes());
    if !is.same_set(makes) {
        return Err(format!("a reshape of {ty} is unreduced like it, but its type is {result}"));
    }
    let count = |sizes: &[usize]| sizes.iter().fold(1u128, |n, size| n.saturating_mul(*size as u128));
    if count(&s.extents) != count(&ty.shape) {
        return Err(format!("{ty} and {:?} have different numbers of elements", s.extents));
    }
    let plain =
        p.ranges == StridedRange::full_box(&s.extents) && p.map.iter().all(|m| *m == AffineExpr::default());
    if plain { Ok(()) } else { Err("a reshape covers all loops, and all its maps are zero".into()) }
}

/// Verifies elementwise code.
/// Operands must exist and have the right types, and the result must have the type of the loop
/// nest.
fn code(s: &LoopNest, code: &ScalarCode) -> Result<(), String> {
    for (k, inst) in code.insts.iter().enumerate() {
        instruction(s, &code.insts[..k], inst).map_err(|wrong| format!("instruction {k}: {wrong}"))?;
    }
    match code.insts.last() {
        Some(last) if last.dtype.storage() == s.dtype.storage() => Ok(()),
        Some(last) => Err(format!("its code makes {}, and the result is of {}", last.dtype, s.dtype)),
        None => Err("its code has no instructions".into()),
    }
}

fn instruction(s: &LoopNest, before: &[ScalarInst], inst: &ScalarInst) -> Result<(), String> {
    let ScalarInst { op: fun, operand_dtype: from, dtype, args } = inst;
    let arity = fun.info().arity;
    if args.len() != arity {
        return Err(format!("{fun:?} has {arity} operands, not {}", args.len()));
    }
    if !fun.info().supports_dtypes(*from, *dtype) {
        return Err(format!("there is no {fun:?} of {from} that makes {dtype}"));
    }
    for (k, arg) in args.iter().enumerate() {
        let wants = if *fun == ScalarOp::Select && k == 0 { DType::Bool } else { from.storage() };
        let is = match arg {
            ScalarArg::Access(r) => s.accesses.get(*r).map(|r| r.dtype),
            ScalarArg::Inst(i) => before.get(*i).map(|i| i.dtype),
            ScalarArg::Index(l) => s.extents.get(*l).map(|_| DType::I64),
            ScalarArg::Const(_) => continue,
        };
        match is {
            None => return Err(format!("its operand {k}, {arg:?}, does not exist")),
            Some(is) if is.storage() != wants => {
                return Err(format!("its operand {k}, {arg:?}, is {is}, not {wants}"));
            }
            Some(_) => {}
        }
    }
    Ok(())
}
