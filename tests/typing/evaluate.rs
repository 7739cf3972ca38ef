//! Evaluates programs element by element: each loop nest is interpreted by plain loops over 64-bit
//! numbers.

use crate::scalar::{apply, convert, neutral};
use atmesh::program::loop_nest::{
    Access, AccessPiece, AffineExpr, Compute, LoopNest, Reducer, RowKernelCall, ScalarArg, ScalarCode,
    ScalarOp, Source,
};
use atmesh::program::{Input, Op, Program, RowInput, RowOutput, RowOutputs};
use atmesh::types::{DType, Scalar};
use half::{bf16, f16};
use std::any::Any;

/// A value: its elements in row-major order, each a scalar of its element type.
pub(crate) type Data = Vec<Scalar>;

/// Returns the results of a program of primitives.
pub(crate) fn evaluate(program: &Program, inputs: &[Data]) -> Vec<Data> {
    let mut values: Vec<Option<Data>> = vec![None; program.vars.len()];
    for (var, data) in program.inputs.iter().zip(inputs) {
        values[var.index()] = Some(data.clone());
    }
    let get = |values: &[Option<Data>], input: &Input| match input {
        Input::Var(v) => values[v.index()].clone().unwrap(),
        Input::Lit(l) => vec![convert(l.value, l.dtype)],
    };
    for e in &program.equations {
        let Op::Prim(prim) = &e.op else { panic!("{e:?}") };
        let operands: Vec<_> = e.inputs.iter().map(|i| program.input_type(i)).collect();
        let results: Vec<_> = e.outputs.iter().map(|v| program.ty(*v).clone()).collect();
        let data: Vec<Data> = e.inputs.iter().map(|i| get(&values, i)).collect();
        let shapes: Vec<Vec<usize>> = operands.iter().map(|t| t.shape.to_vec()).collect();
        for (loop_nest, var) in prim.loop_nests(&operands, &results).iter().zip(&e.outputs) {
            values[var.index()] = Some(run(loop_nest, &data, &shapes));
        }
    }
    program.outputs.iter().map(|o| get(&values, o)).collect()
}

pub(crate) fn run(s: &LoopNest, data: &[Data], shapes: &[Vec<usize>]) -> Data {
    let out: usize = s.extents[..s.rank].iter().product();
    let inner: usize = s.extents[s.rank..].iter().product();
    if s.compute == Compute::Reshape {
        let Source::Value(k) = s.accesses[0].pieces[0].source else { panic!("reshape of a constant") };
        return data[k].clone();
    }
    if let Compute::RowKernel(l) = &s.compute {
        return lines(s, l, data, shapes);
    }
    if let Compute::Scatter { reducer: combine, .. } = s.compute {
        return put(s, combine, data, shapes);
    }
    if let Compute::Gather { .. } = s.compute {
        return (0..out).map(|o| take(s, &unflatten(o, &s.extents[..s.rank]), data, shapes)).collect();
    }
    let element = |o: usize| {
        let mut total: Option<Scalar> = None;
        for i in 0..inner {
            let index = unflatten(o * inner + i, &s.extents);
            let reads: Vec<Scalar> = s.accesses.iter().map(|r| read(r, &index, data, shapes)).collect();
            let (value, combine, dtype) = match &s.compute {
                Compute::Map(code) => return convert(compute(code, &reads, &index), s.dtype),
                Compute::Reduce { reducer: combine, code } => {
                    (compute(code, &reads, &index), *combine, s.dtype)
                }
                Compute::Contract { accum_dtype: accumulate, .. } => {
                    let factors = [convert(reads[0], *accumulate), convert(reads[1], *accumulate)];
                    let product = apply(ScalarOp::Mul, *accumulate, *accumulate, &factors);
                    (product, Reducer::Add, *accumulate)
                }
                Compute::RowKernel(_)
                | Compute::Reshape
                | Compute::Gather { .. }
                | Compute::Scatter { .. } => unreachable!(),
            };
            // Sums are computed in double precision and rounded at the end: this test does not
            // cover the order of addition.
            total = Some(total.map_or(value, |t| crate::scalar::combine(combine, dtype, t, value)));
        }
        match &s.compute {
            Compute::Reduce { reducer: combine, .. } => {
                convert(total.unwrap_or(neutral(*combine, s.dtype)), s.dtype)
            }
            _ => convert(total.unwrap_or(Scalar::zero(s.dtype)), s.dtype),
        }
    };
    (0..out).map(element).collect()
}

/// Evaluates an expression with `$T` as the Rust type of an element type.
macro_rules! with_type {
    ($dtype:expr, $T:ident => $e:expr) => {
        with_type!(@ $dtype, $T => $e; Bool bool, I8 i8, I16 i16, I32 i32, I64 i64, U8 u8, U16 u16, U32 u32, U64 u64, F16 f16,
            BF16 bf16, F32 f32, F64 f64)
    };
    (@ $dtype:expr, $T:ident => $e:expr; $($D:ident $R:ident),*) => {
        match $dtype.storage() {
            $(DType::$D => { type $T = $R; $e })*
            other => panic!("{other}"),
        }
    };
}

/// Runs each row through the primitive's own function: this test covers only where it reads and
/// writes.
fn lines(s: &LoopNest, l: &RowKernelCall, data: &[Data], shapes: &[Vec<usize>]) -> Data {
    let inside = &s.extents[s.rank..];
    let along: Vec<usize> = l.row_loops.iter().map(|k| s.extents[*k]).collect();
    let element = |o: usize| {
        let index = unflatten(o, &s.extents[..s.rank]);
        let steps = (0..inside.iter().product()).map(|i| [&index[..], &unflatten(i, inside)].concat());
        let steps: Vec<Vec<i64>> = steps.collect();
        let typed = |r: &Access| {
            let line: Data = steps.iter().map(|i| read(r, i, data, shapes)).collect();
            with_type!(r.dtype, T => Box::new(line.iter().map(|x| T::from_scalar(*x)).collect::<Vec<T>>()) as Box<dyn Any>)
        };
        let ins: Vec<(DType, Box<dyn Any>)> = s.accesses.iter().map(|r| (r.dtype, typed(r))).collect();
        let ins = ins.iter().map(
            |(dtype, line)| with_type!(dtype, T => RowInput::from_slice(inside, line.downcast_ref::<Vec<T>>().unwrap())),
        );
        let ins: Vec<RowInput> = ins.collect();
        let at = l.row_loops.iter().zip(&along).fold(0, |at, (k, n)| at * n + index[*k] as usize);
        with_type!(s.dtype, T => {
            let mut y = vec![T::from_scalar(Scalar::zero(s.dtype)); along.iter().product()];
            let asked = (0..l.result_index).map(|_| None).chain([Some(RowOutput::from_slice(&along, &mut y))]);
            l.kernel.run(&ins, &mut RowOutputs::new(asked));
            convert(y[at].number(), s.dtype)
        })
    };
    (0..s.extents[..s.rank].iter().product()).map(element).collect()
}

/// Conversion of elements of a type from scalars, and back.
trait Typed: Copy {
    fn from_scalar(x: Scalar) -> Self;
    fn number(self) -> Scalar;
}
macro_rules! typed { ($($t:ty: $x:ident => $e:expr, $y:ident => $s:expr;)*) => {$(
    impl Typed for $t {
        fn from_scalar($x: Scalar) -> $t { $e }
        fn number(self) -> Scalar { let $y = self; $s }
    }
)*} }
typed! {
    bool: x => x.to_f64() != 0.0, y => y.into();
    i8: x => x.to_i128() as i8, y => y.into(); i16: x => x.to_i128() as i16, y => y.into();
    i32: x => x.to_i128() as i32, y => y.into(); i64: x => x.to_i128() as i64, y => y.into();
    u8: x => x.to_i128() as u8, y => y.into(); u16: x => x.to_i128() as u16, y => y.into();
    u32: x => x.to_i128() as u32, y => y.into(); u64: x => x.to_i128() as u64, y => y.into();
    f16: x => x.to_f16(), y => y.to_f64().into(); bf16: x => x.to_bf16(), y => y.to_f64().into();
    f32: x => x.to_f32(), y => y.into(); f64: x => x.to_f64(), y => y.into();
}

/// Returns the offset of each dynamically indexed loop at this index, and whether it is in bounds.
fn found(s: &LoopNest, index: &[i64], data: &[Data], shapes: &[Vec<usize>]) -> (Vec<i64>, bool) {
    let (mut index, mut there) = (index.to_vec(), true);
    for b in s.compute.dynamic_indices() {
        let Scalar::Int(n) = read(&s.accesses[b.operand], &index, data, shapes) else {
            panic!("numbers are integers")
        };
        let n = n.clamp(i64::MIN.into(), i64::MAX.into()) as i64;
        let (step, is) = b.resolve(n, b.window.map_or(0, |w| index[w]));
        (index[b.loop_id], there) = (step, there && is);
    }
    (index, there)
}

fn take(s: &LoopNest, index: &[i64], data: &[Data], shapes: &[Vec<usize>]) -> Scalar {
    let mut all = vec![0; s.extents.len()];
    all[..s.rank].copy_from_slice(index);
    match found(s, &all, data, shapes) {
        (at, true) => read(&s.accesses[0], &at, data, shapes),
        (_, false) => convert(s.accesses[0].fill, s.dtype),
    }
}

fn put(s: &LoopNest, combine: Option<Reducer>, data: &[Data], shapes: &[Vec<usize>]) -> Data {
    let (shape, n) = (&s.extents[..s.rank], s.extents.len());
    let count: usize = shape.iter().product();
    let base = |o: usize| {
        let mut all = vec![0; n];
        all[..s.rank].copy_from_slice(&unflatten(o, shape));
        read(&s.accesses[0], &all, data, shapes)
    };
    let mut out: Data = (0..count).map(base).collect();
    let steps: Vec<usize> = (0..n)
        .map(|l| if s.compute.dynamic_indices().iter().any(|b| b.loop_id == l) { 1 } else { s.extents[l] })
        .collect();
    for i in 0..steps.iter().product() {
        let index = unflatten(i, &steps);
        let (at, there) = found(s, &index, data, shapes);
        if there {
            let k = at[..s.rank].iter().zip(shape).fold(0, |k, (i, n)| k * n + *i as usize);
            let x = read(&s.accesses[1], &index, data, shapes);
            out[k] = combine.map_or(x, |c| crate::scalar::combine(c, s.dtype, out[k], x));
        }
    }
    out.into_iter().map(|x| convert(x, s.dtype)).collect()
}

fn unflatten(mut i: usize, extents: &[usize]) -> Vec<i64> {
    let mut index: Vec<i64> = extents.iter().rev().map(|n| ((i % n) as i64, i /= n).0).collect();
    index.reverse();
    index
}

fn read(r: &Access, index: &[i64], data: &[Data], shapes: &[Vec<usize>]) -> Scalar {
    let covers = |p: &&AccessPiece| {
        p.ranges.iter().zip(index).all(|(s, i)| (s.lo..s.hi).contains(i) && (i - s.lo) % s.step == 0)
    };
    let mut parts = r.pieces.iter().filter(covers);
    let Some(part) = parts.next() else { return r.fill };
    assert!(parts.next().is_none(), "parts overlap");
    match part.source {
        Source::Const(c) => c,
        Source::Value(k) => {
            assert_eq!(part.map.len(), shapes[k].len());
            let step = |l: usize| (index[l] - part.ranges[l].lo) / part.ranges[l].step;
            let position =
                |a: &AffineExpr| a.constant + a.terms.iter().map(|(l, c)| c * step(*l)).sum::<i64>();
            let mut at = 0;
            for (a, n) in part.map.iter().zip(&shapes[k]) {
                let p = position(a);
                if !(0..*n as i64).contains(&p) {
                    assert!(a.terms.len() > 1, "position {p} of a dimension of size {n}");
                    return r.fill;
                }
                at = at * *n + p as usize;
            }
            data[k][at]
        }
    }
}

fn compute(code: &ScalarCode, reads: &[Scalar], index: &[i64]) -> Scalar {
    let mut made: Vec<Scalar> = Vec::new();
    for inst in &code.insts {
        let args: Vec<Scalar> = inst
            .args
            .iter()
            .map(|a| match a {
                ScalarArg::Access(r) => reads[*r],
                ScalarArg::Inst(i) => made[*i],
                ScalarArg::Const(c) => *c,
                ScalarArg::Index(d) => Scalar::Int(i128::from(index[*d])),
            })
            .collect();
        made.push(apply(inst.op, inst.operand_dtype, inst.dtype, &args));
    }
    *made.last().unwrap()
}
