//! Programs element by element: each sentence read as it is written, in plain loops over 64-bit numbers.

use crate::scalar::{apply, combined, convert, neutral};
use atmesh::program::sentence::{Affine, Arg, Body, Code, Combine, Fun, Part, Read, Sentence, Source};
use atmesh::program::{Input, Op, Program};
use atmesh::types::Scalar;

/// A value: its elements in row-major order, each as its element type holds it.
pub(crate) type Data = Vec<Scalar>;

/// The results of a program of primitives.
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
        for (sentence, var) in prim.sentences(&operands, &results).iter().zip(&e.outputs) {
            values[var.index()] = Some(run(sentence, &data, &shapes));
        }
    }
    program.outputs.iter().map(|o| get(&values, o)).collect()
}

pub(crate) fn run(s: &Sentence, data: &[Data], shapes: &[Vec<usize>]) -> Data {
    let out: usize = s.extents[..s.rank].iter().product();
    let inner: usize = s.extents[s.rank..].iter().product();
    if s.body == Body::Reshape {
        let Source::Value(k) = s.reads[0].parts[0].from else { panic!("reshape of a constant") };
        return data[k].clone();
    }
    let element = |o: usize| {
        let mut total: Option<Scalar> = None;
        for i in 0..inner {
            let index = unflatten(o * inner + i, &s.extents);
            let reads: Vec<Scalar> = s.reads.iter().map(|r| read(r, &index, data, shapes)).collect();
            let (value, combine, dtype) = match &s.body {
                Body::Map(code) => return convert(compute(code, &reads, &index), s.dtype),
                Body::Fold { combine, code } => (compute(code, &reads, &index), *combine, s.dtype),
                Body::Product { accumulate } => {
                    let factors = [convert(reads[0], *accumulate), convert(reads[1], *accumulate)];
                    let product = apply(Fun::Mul, *accumulate, *accumulate, &factors);
                    (product, Combine::Add, *accumulate)
                }
                Body::Reshape => unreachable!(),
            };
            // sums in double precision, rounded at the end: the order of addition is not this test's
            total = Some(total.map_or(value, |t| combined(combine, dtype, t, value)));
        }
        match &s.body {
            Body::Fold { combine, .. } => convert(total.unwrap_or(neutral(*combine, s.dtype)), s.dtype),
            _ => convert(total.unwrap_or(Scalar::zero(s.dtype)), s.dtype),
        }
    };
    (0..out).map(element).collect()
}

fn unflatten(mut i: usize, extents: &[usize]) -> Vec<i64> {
    let mut index: Vec<i64> = extents.iter().rev().map(|n| ((i % n) as i64, i /= n).0).collect();
    index.reverse();
    index
}

fn read(r: &Read, index: &[i64], data: &[Data], shapes: &[Vec<usize>]) -> Scalar {
    let covers = |p: &&Part| {
        p.span.iter().zip(index).all(|(s, i)| (s.lo..s.hi).contains(i) && (i - s.lo) % s.step == 0)
    };
    let mut parts = r.parts.iter().filter(covers);
    let Some(part) = parts.next() else { return r.fill };
    assert!(parts.next().is_none(), "parts overlap");
    match part.from {
        Source::Const(c) => c,
        Source::Value(k) => {
            assert_eq!(part.map.len(), shapes[k].len());
            let step = |l: usize| (index[l] - part.span[l].lo) / part.span[l].step;
            let position = |a: &Affine| a.at + a.terms.iter().map(|(l, c)| c * step(*l)).sum::<i64>();
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

fn compute(code: &Code, reads: &[Scalar], index: &[i64]) -> Scalar {
    let mut made: Vec<Scalar> = Vec::new();
    for inst in &code.insts {
        let args: Vec<Scalar> = inst
            .args
            .iter()
            .map(|a| match a {
                Arg::Read(r) => reads[*r],
                Arg::Inst(i) => made[*i],
                Arg::Const(c) => *c,
                Arg::Index(d) => Scalar::Int(i128::from(index[*d])),
            })
            .collect();
        made.push(apply(inst.fun, inst.from, inst.dtype, &args));
    }
    *made.last().unwrap()
}
