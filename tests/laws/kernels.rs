//! Custom primitives are memory-safe: whatever their loop nests say, they are rejected or computed
//! as stated.

use crate::error_checks::Unquoted as _;
use crate::error_checks::{flaw, well};
use crate::soak::runs_all;
use crate::{Rng, law};
use atmesh::array::Term;
use atmesh::diagnostic::{ErrorKind, Fault};
use atmesh::ops::PRIMITIVES;
use atmesh::ops::random::RandomWrap;
use atmesh::prelude::*;
use atmesh::program::loop_nest::{
    Access, AccessPiece, AffineExpr, Compute, DynamicIndex, LoopNest, OutOfBounds, Reducer, ScalarArg,
    ScalarCode, ScalarInst, ScalarOp, Source, StridedRange,
};
use atmesh::program::{
    BatchedOp, Builder, Control, Dim, Factors, JvpArgs, Linearity, Loop, Prim, Primitive, Priority, Tangents,
    TransposeArgs, TypedOperand, VmapArgs,
};
use atmesh::{Precision, Scalar, Shape};
use std::sync::Arc;

/// The loop nest of a custom primitive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Says {
    /// Reads each element at its own index.
    Itself,
    /// Reads each element at an index shifted by this many elements.
    Shifted(i64),
    /// Reads backwards from the first element, out of bounds.
    Before,
    /// Reads bytes as bools.
    Bools,
    /// Uses the operand's elements as the result's, with another type.
    Untyped,
    /// Computes a longer result than its type says.
    Longer,
    /// Sums the squares of its elements over no loop, in this type.
    Product(DType),
}

/// A primitive of one operand whose loops are elementwise, with an arbitrary loop nest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Own {
    name: &'static str,
    to: DType,
    says: Says,
}

impl Primitive for Own {
    fn name(&self) -> &'static str {
        self.name
    }
    fn params(&self) -> String {
        String::new()
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        Ok(vec![(self.to, operands[0].ty.shape.clone())])
    }
    fn factors(&self, operands: &[ArrayType], _: &[(DType, Shape)]) -> Factors {
        let dims = Dim::each(0..operands[0].rank());
        Factors {
            operands: vec![dims.clone()],
            results: vec![dims],
            ..Factors::from_sizes(&operands[0].shape)
        }
    }
    fn linearity(&self) -> Linearity {
        Linearity::None
    }
    /// Returns a loop whose carry has another type than its body takes.
    fn jvp(&self, at: JvpArgs<'_>) -> Result<Tangents> {
        let mut body = Builder::new();
        body.input(I32.array_type([]), None);
        let carry = body.input(F32.array_type([4096]), None);
        let body = Arc::new(body.finish(&[carry]));
        let turns = Control::Loop(Loop { body, start: 0, length: 2, reverse: false, fixed: 0, carry: 1 });
        let outs = at.builder.control(turns, at.operands, vec![at.operands[0].ty.clone()]);
        Ok(vec![Some(outs[0].clone())])
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::broadcasting(Arc::new(self.clone()))
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        vec![self.says.loop_nest(&operands[0], &results[0])]
    }
}

impl Says {
    fn loop_nest(self, x: &ArrayType, y: &ArrayType) -> LoopNest {
        let extents = match self {
            Says::Longer => vec![1000 * y.shape[0]],
            _ => y.shape.to_vec(),
        };
        let map = match self {
            Says::Shifted(by) => AffineExpr::linear(by, 0, 1),
            Says::Before => AffineExpr::linear(0, 0, -1),
            _ => AffineExpr::linear(0, 0, 1),
        };
        let (code, dtype) = match self {
            Says::Bools => {
                (ScalarCode::single(ScalarOp::Bitcast, U8, Bool, &[ScalarArg::Access(0)]), y.dtype)
            }
            Says::Untyped => (ScalarCode::copy(x.dtype), x.dtype),
            _ => (ScalarCode::copy(y.dtype), y.dtype),
        };
        if let Says::Product(accumulate) = self {
            let read = Access::from_loops(0, x.dtype, &extents, &[Some(0)]);
            let reads = vec![read.clone(), read];
            return LoopNest {
                rank: 1,
                extents,
                dtype: y.dtype,
                accesses: reads,
                compute: Compute::Contract { accum_dtype: accumulate, precision: Precision::Highest },
            };
        }
        let part = AccessPiece {
            source: Source::Value(0),
            ranges: StridedRange::full_box(&extents),
            map: vec![map],
        };
        let parts = if self == Says::Longer { Vec::new() } else { vec![part] };
        let read = Access { dtype: x.dtype, pieces: parts, fill: Scalar::Int(7) };
        LoopNest { rank: 1, extents, dtype, accesses: vec![read], compute: Compute::Map(code) }
    }
}

fn rejected(what: &str, x: &Array, to: DType, says: Says, expected: &str) {
    let own = Own { name: "of_my_own", to, says };
    let run = |x: &Array| Array::apply(Arc::new(own.clone()), &[x.into()]).swap_remove(0);
    let errors = [run(x).ready().expect_err(what), jit(run).call(x).expect_err(what)];
    for error in errors.map(|e| well(e).to_string()) {
        let all = ["of_my_own", expected, "kernels.rs:"];
        assert!(all.iter().all(|part| error.contains(part)), "{what}: {error}");
    }
}

#[test]
fn a_kernel_cannot_leave_its_arrays() {
    let x = &Array::from(vec![1u32; 64]);
    rejected("beside it", x, U32, Says::Shifted(64), "position 127 of dimension 0");
    rejected("far off", x, U32, Says::Shifted(1 << 40), "of dimension 0, which has size 64");
    rejected("before it", x, U32, Says::Before, "position -63 of dimension 0");
    rejected("a longer result", x, U32, Says::Longer, "loops [64000]");
    rejected("another result", x, F32, Says::Untyped, "type uint32");
    rejected("bytes as bools", &Array::from(vec![7u8, 0, 1, 255]), Bool, Says::Bools, "Bitcast of uint8");
}

/// The accumulator type of a product must be numeric, and a float if an operand is: neither engine
/// truncates or saturates on the way.
#[test]
fn a_product_is_summed_in_numbers_that_hold_it() {
    let x = &Array::from(vec![-1.5f32; 4]);
    for (sums, expected) in
        [(U16, "and the result is of float32"), (Bool, "not summed in bool"), (DType::Key, "key")]
    {
        rejected("another sum", x, F32, Says::Product(sums), expected);
    }
    let n = &Array::from(vec![-3i32; 4]);
    rejected("ints as floats", n, I32, Says::Product(F32), "both are floats or neither");
    rejected("floats as ints", x, I32, Says::Product(I32), "float32 are not summed in int32");
    rejected("a bool of sums", n, Bool, Says::Product(I32), "to elements of type bool");
}

#[test]
fn a_rule_cannot_give_a_loop_what_it_does_not_take() {
    let own = Own { name: "of_my_own", to: F32, says: Says::Itself };
    let x = &Array::from(vec![1f32; 64]);
    let run = |x: Array| Array::apply(Arc::new(own.clone()), &[(&x).into()]).swap_remove(0).sum(..);
    let error = grad(x, run).ready().expect_err("the loop's carry has other sizes").unquoted();
    assert!(error.contains("loop") && error.contains("float32[64] and float32[4096]"), "{error}");
}

/// A primitive of the list with one change in its loop nests.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Changed {
    /// The position in the list.
    entry: usize,
    seed: u64,
}

impl Changed {
    fn original(&self) -> Prim {
        (PRIMITIVES[self.entry].example)().0
    }
}

impl Primitive for Changed {
    fn name(&self) -> &'static str {
        "changed"
    }
    fn params(&self) -> String {
        format!("of={}, seed={}", self.original().key(), self.seed)
    }
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        self.original().shapes(operands)
    }
    fn types(&self, operands: &[TypedOperand]) -> Result<Vec<ArrayType>, Fault> {
        self.original().types(operands)
    }
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        self.original().factors(operands, results)
    }
    fn linearity(&self) -> Linearity {
        self.original().linearity()
    }
    fn priority(&self) -> Priority {
        self.original().priority()
    }
    fn out_sharding(&self) -> Option<Spec> {
        self.original().out_sharding()
    }
    fn jvp(&self, _: JvpArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn transpose(&self, _: TransposeArgs<'_>) -> Result<Tangents> {
        Ok(vec![None])
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::broadcasting(Arc::new(self.clone()))
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let mut list = self.original().loop_nests(operands, results);
        let mut rng = Rng::new(self.seed);
        for _ in 0..1 + rng.below(2) {
            change(&mut list, &mut rng);
            // A reduction over a loop that long would be right, but would never finish.
            for s in &mut list {
                let rank = s.rank.min(s.extents.len());
                s.extents[rank..].iter_mut().filter(|n| **n <= 1 << 62).for_each(|n| *n %= 1 << 12);
            }
        }
        list
    }
}

fn dtypes() -> Vec<DType> {
    DType::all().collect()
}

/// Returns a value close to `n`, its negation, or an unrelated one.
fn off(n: i64, rng: &mut Rng) -> i64 {
    let far = [i64::MAX, i64::MIN, 1 << 40, -(1 << 40), i64::MAX / 8, 0, 1, -1];
    match rng.below(3) {
        0 => n.wrapping_add(*rng.choose(&[1, -1, 2, 3, -7])),
        1 => n.wrapping_neg(),
        _ => *rng.choose(&far),
    }
}
pub(crate) fn off_size(n: usize, rng: &mut Rng) -> usize {
    *rng.choose(&[n.wrapping_add(1), n.wrapping_sub(1), n.wrapping_mul(1000), 0, 1, 2, usize::MAX, 1 << 61])
}

/// Changes one thing in these loop nests.
fn change(list: &mut Vec<LoopNest>, rng: &mut Rng) {
    if rng.once_in(40) {
        let again = list.first().cloned();
        list.extend(again);
        return;
    }
    let k = rng.below(list.len());
    let Some(s) = list.get_mut(k) else { return };
    match rng.below(16) {
        0 => {
            let l = rng.below(s.extents.len());
            if let Some(n) = s.extents.get_mut(l) {
                *n = off_size(*n, rng);
            }
        }
        1 => s.rank = off_size(s.rank, rng),
        2 => s.dtype = *rng.choose(&dtypes()),
        3 if rng.once_in(2) => s.extents.push(rng.below(4)),
        3 => drop(s.extents.pop()),
        4..=5 => change_body(&mut s.compute, rng),
        6 => {
            let k = rng.below(s.accesses.len());
            if k < s.accesses.len() && rng.once_in(2) {
                s.accesses.remove(k);
            } else if let Some(again) = s.accesses.get(k).cloned() {
                s.accesses.push(again);
            }
        }
        _ => {
            let k = rng.below(s.accesses.len());
            if let Some(r) = s.accesses.get_mut(k) {
                change_read(r, rng);
            }
        }
    }
}

fn change_read(r: &mut Access, rng: &mut Rng) {
    let k = rng.below(r.pieces.len());
    match rng.below(8) {
        0 => r.dtype = *rng.choose(&dtypes()),
        1 if k < r.pieces.len() && rng.once_in(2) => drop(r.pieces.remove(k)),
        1 => {
            let again = r.pieces.get(k).cloned();
            r.pieces.extend(again);
        }
        _ => {
            if let Some(p) = r.pieces.get_mut(k) {
                change_part(p, rng);
            }
        }
    }
}

fn change_part(p: &mut AccessPiece, rng: &mut Rng) {
    let (l, d) = (rng.below(p.ranges.len()), rng.below(p.map.len()));
    match rng.below(10) {
        0 => p.source = Source::Value(rng.below(4)),
        1 => p.source = Source::Const(Scalar::Float(0.5)),
        2 if rng.once_in(2) => drop(p.ranges.pop()),
        2 => p.ranges.push(StridedRange::full(2)),
        3 if rng.once_in(2) => drop(p.map.pop()),
        3 => p.map.push(AffineExpr::linear(0, 0, 1)),
        4..=6 => {
            let Some(s) = p.ranges.get_mut(l) else { return };
            match rng.below(3) {
                0 => s.lo = off(s.lo, rng),
                1 => s.hi = off(s.hi, rng),
                _ => s.step = off(s.step, rng),
            }
        }
        _ => {
            let Some(m) = p.map.get_mut(d) else { return };
            let t = rng.below(m.terms.len());
            match rng.below(5) {
                0 | 1 => m.constant = off(m.constant, rng),
                2 => m.terms.push((rng.below(4), off(1, rng))),
                3 if t < m.terms.len() => m.terms[t].1 = off(m.terms[t].1, rng),
                _ if t < m.terms.len() => m.terms[t].0 = off_size(m.terms[t].0, rng),
                _ => {}
            }
        }
    }
}

fn change_body(body: &mut Compute, rng: &mut Rng) {
    let combines = [Reducer::Add, Reducer::Mul, Reducer::Max, Reducer::Min, Reducer::And, Reducer::Or];
    match body {
        Compute::Map(code) if rng.once_in(8) => {
            *body = Compute::Reduce { reducer: *rng.choose(&combines), code: code.clone() }
        }
        Compute::Reduce { code, .. } if rng.once_in(8) => *body = Compute::Map(code.clone()),
        Compute::Reduce { reducer: combine, .. } if rng.once_in(4) => *combine = *rng.choose(&combines),
        Compute::Map(code) | Compute::Reduce { code, .. } => change_code(code, rng),
        Compute::Gather { indices: at } if rng.once_in(8) => {
            *body = Compute::Scatter { indices: at.clone(), reducer: None }
        }
        Compute::Scatter { indices: at, .. } if rng.once_in(8) => {
            *body = Compute::Gather { indices: at.clone() }
        }
        Compute::Scatter { reducer: combine, .. } if rng.once_in(4) => {
            *combine = Some(*rng.choose(&combines))
        }
        Compute::Gather { indices: at } | Compute::Scatter { indices: at, .. } => change_bound(at, rng),
        Compute::Contract { accum_dtype: accumulate, .. } if rng.once_in(2) => {
            *accumulate = *rng.choose(&dtypes())
        }
        Compute::Contract { .. } | Compute::RowKernel(_) | Compute::Reshape => {
            *body = match rng.below(3) {
                0 => Compute::Map(ScalarCode::copy(*rng.choose(&dtypes()))),
                1 => Compute::Reshape,
                _ => Compute::Contract { accum_dtype: F32, precision: Precision::Highest },
            }
        }
    }
}

fn change_bound(at: &mut Vec<DynamicIndex>, rng: &mut Rng) {
    let k = rng.below(at.len());
    let Some(b) = at.get_mut(k) else { return };
    match rng.below(8) {
        0 => drop(at.remove(k)),
        1 => {
            let again = b.clone();
            at.push(again);
        }
        2 => b.loop_id = off_size(b.loop_id, rng),
        3 => b.operand = off_size(b.operand, rng),
        4 | 5 => b.max_start = off(b.max_start, rng),
        6 => b.mode = *rng.choose(&[OutOfBounds::Clip, OutOfBounds::Drop]),
        _ => b.window = *rng.choose(&[None, Some(0), Some(1), Some(2), Some(usize::MAX)]),
    }
}

fn change_code(code: &mut ScalarCode, rng: &mut Rng) {
    let k = rng.below(code.insts.len());
    if rng.once_in(10) {
        code.insts.truncate(k);
        return;
    }
    let Some(ScalarInst { op: fun, operand_dtype: from, dtype, args }) = code.insts.get_mut(k) else {
        return;
    };
    let funs = [
        ScalarOp::Copy,
        ScalarOp::Convert,
        ScalarOp::Bitcast,
        ScalarOp::Tanh,
        ScalarOp::Add,
        ScalarOp::Lt,
        ScalarOp::Not,
        ScalarOp::Select,
        ScalarOp::Threefry,
    ];
    let a = rng.below(args.len());
    match rng.below(8) {
        0 => *fun = *rng.choose(&funs),
        1 => *from = *rng.choose(&dtypes()),
        2 => *dtype = *rng.choose(&dtypes()),
        3 => drop(args.pop()),
        4 => args.push(ScalarArg::Access(0)),
        _ if a < args.len() => {
            args[a] = match rng.below(4) {
                0 => ScalarArg::Access(rng.below(4)),
                1 => ScalarArg::Inst(rng.below(4)),
                2 => ScalarArg::Index(rng.below(4)),
                _ => ScalarArg::Const(Scalar::Float(1.5)),
            }
        }
        _ => {}
    }
}

/// Returns distinct elements of this type.
pub(crate) fn numbers(ty: &ArrayType, rng: &mut Rng) -> Array {
    let n = ty.shape.num_elements();
    if ty.dtype == DType::Key {
        let words = U32.array_type([&ty.shape[..], &[2]].concat());
        return Array::apply(Arc::new(RandomWrap), &[(&numbers(&words, rng)).into()]).swap_remove(0);
    }
    let flat = Array::from((0..n).map(|_| rng.below(401) as f64 / 50.0 - 4.0).collect::<Vec<f64>>());
    let flat = match ty.dtype {
        Bool => flat.gt(0.0),
        d => flat.astype(d),
    };
    flat.reshape(&ty.shape[..])
}

pub(crate) fn read(x: &Array) -> Result<Vec<f64>> {
    let x = match x.ty()?.dtype {
        d if d.is_complex() => return Ok([read(&x.real())?, read(&x.imag())?].concat()),
        DType::Key => Array::apply(Arc::new(atmesh::ops::random::RandomKeyData), &[x.into()]).swap_remove(0),
        _ => x.clone(),
    };
    x.astype(F64).to_vec::<f64>()
}

/// Any kernel close to a right one is rejected by name, or agrees with the reference engine.
#[test]
fn kernels_are_rejected_or_right() {
    let accepted = std::cell::Cell::new(0);
    law(1500, |seed| {
        let mut rng = Rng::new(seed);
        let entry = rng.below(PRIMITIVES.len());
        if PRIMITIVES[entry].family == "collective" {
            return Vec::new();
        }
        let (_, types) = (PRIMITIVES[entry].example)();
        let prim: Prim = Arc::new(Changed { entry, seed });
        let xs: Vec<Array> = types.iter().map(|ty| numbers(ty, &mut rng)).collect();
        let run = |engine| -> Result<Vec<Vec<f64>>> {
            let program =
                |xs: &Vec<Array>| Array::apply(prim.clone(), &xs.iter().map(Term::from).collect::<Vec<_>>());
            jit(program).engine(engine).call(&xs)?.iter().map(read).collect()
        };
        let (got, want) = (run(EngineKind::Lockstep), run(EngineKind::Reference));
        match (&got, &want) {
            (Ok(got), Ok(want)) => {
                accepted.set(accepted.get() + 1);
                let near = |a: &f64, b: &f64| {
                    a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * (1.0 + b.abs())
                };
                let same = got.len() == want.len()
                    && got
                        .iter()
                        .zip(want)
                        .all(|(a, b)| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| near(a, b)));
                if same { Vec::new() } else { vec![format!("{}: {got:?}, not {want:?}", prim.key())] }
            }
            (Err(a), Err(b)) => {
                let is_reported = |e: &atmesh::Error| {
                    e.unquoted().contains("changed") && e.kind() == ErrorKind::User && flaw(e).is_none()
                };
                if is_reported(a) && is_reported(b) {
                    Vec::new()
                } else {
                    vec![format!("{}: {a}", prim.key())]
                }
            }
            (Ok(_), Err(e)) => vec![format!("{}: the reference engine alone rejects: {e}", prim.key())],
            (Err(e), Ok(_)) => vec![format!("{}: the reference engine alone takes it: {e}", prim.key())],
        }
    });
    let least = if runs_all() { 20 } else { 5 };
    assert!(accepted.get() > least, "{} were accepted", accepted.get());
}
