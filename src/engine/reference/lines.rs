//! Whole lines: operands copied densely, all lines at once.

use super::value::Value;
use super::{Reader, over, ravel, scalar};
use crate::program::sentence::{Lines, Sentence};
use crate::program::{In, Out, Outs, line};
use crate::runtime::Slab;
use crate::types::{Number, Scalar, with_dtype};

/// One part of the result of lines.
pub(super) fn lines(s: &Sentence, l: &Lines, reader: &Reader<'_>, made: &mut Value) {
    let loops: Vec<usize> = (0..s.rank).filter(|k| !l.along.contains(k)).collect();
    let sizes = |loops: &[usize]| -> Vec<usize> { loops.iter().map(|k| s.extents[*k]).collect() };
    let into: Vec<usize> = loops.iter().copied().chain(s.rank..s.extents.len()).collect();
    let from: Vec<usize> = loops.iter().chain(&l.along).copied().collect();
    let shape = sizes(&into);
    let slabs: Vec<Slab> = (s.reads.iter())
        .map(|r| {
            let mut value = Value::empty(r.dtype.storage(), shape.as_slice().into());
            let mut index = vec![0i64; s.extents.len()];
            let mut at = vec![0i64; into.len()];
            over(&mut at, 0, into.len(), &|d| (0, shape[d] as i64), &mut |at| {
                into.iter().zip(at).for_each(|(l, i)| index[*l] = *i);
                value.push(reader.read(r, &index));
            });
            // without memory nothing can be run
            value.to_slab(1).unwrap_or_else(|refused| std::panic::resume_unwind(Box::new(refused)))
        })
        .collect();
    let ins: Vec<In<'_>> =
        slabs.iter().map(|x| with_dtype!(x.dtype(), T => In::of(&shape, x.elements::<T>()))).collect();
    let results = with_dtype!(s.dtype, T => results::<T>(l, &ins, &sizes(&from)));
    let mut index = vec![0i64; s.rank];
    over(&mut index, 0, s.rank, &|d| (0, s.extents[d] as i64), &mut |index| {
        let at = from.iter().map(|k| index[*k] as usize);
        made.push(scalar::cut(results[ravel(at, &sizes(&from))], s.dtype.storage()));
    });
}

fn results<T: Number>(l: &Lines, ins: &[In<'_>], shape: &[usize]) -> Vec<Scalar> {
    let mut all = vec![T::of_scalar(Scalar::zero(T::DTYPE)); shape.iter().product()];
    let mut asked: Vec<Option<Out<'_>>> = (0..l.result).map(|_| None).collect();
    asked.push(Some(Out::of(shape, &mut all)));
    line::run(l.of.as_ref(), ins, &mut Outs::new(asked));
    all.into_iter().map(Number::scalar).collect()
}
