//! Row kernels: copies the operands to dense arrays and runs the kernel on all rows at once.

use super::{ElementReader, for_each_index, ravel, scalar, value::ReferenceValue};
use crate::core::{Scalar, ScalarElement, types::with_dtype};
use crate::exec::runtime::ArrayData;
use crate::ir::program::{LoopNest, RowInput, RowKernelCall, RowOutput, RowOutputs};
use crate::kernels::row_kernel;

/// Appends one partial value of the result of a row kernel to `made`.
pub(super) fn row_kernel(
    s: &LoopNest,
    l: &RowKernelCall,
    reader: &ElementReader<'_>,
    made: &mut ReferenceValue,
) {
    let loops: Vec<usize> = (0..s.rank).filter(|k| !l.row_loops.contains(k)).collect();
    let sizes = |loops: &[usize]| -> Vec<usize> { loops.iter().map(|k| s.extents[*k]).collect() };
    let into: Vec<usize> = loops.iter().copied().chain(s.rank..s.extents.len()).collect();
    let from: Vec<usize> = loops.iter().chain(&l.row_loops).copied().collect();
    let shape = sizes(&into);
    let slabs: Vec<ArrayData> = (s.accesses.iter())
        .map(|r| {
            let mut value = ReferenceValue::empty(r.dtype.storage(), shape.as_slice().into());
            let mut index = vec![0i64; s.extents.len()];
            let mut at = vec![0i64; into.len()];
            for_each_index(&mut at, 0, into.len(), &|d| (0, shape[d] as i64), &mut |at| {
                into.iter().zip(at).for_each(|(l, i)| index[*l] = *i);
                value.push(reader.read(r, &index));
            });
            // an operand cannot be copied without memory: unwind with the fault
            value.to_array_data(1).unwrap_or_else(|error| std::panic::resume_unwind(Box::new(error)))
        })
        .collect();
    let ins: Vec<RowInput<'_>> = slabs
        .iter()
        .map(|x| with_dtype!(x.dtype(), T => RowInput::from_slice(&shape, x.elements::<T>())))
        .collect();
    let results = with_dtype!(s.dtype, T => run_rows::<T>(l, &ins, &sizes(&from)));
    let mut index = vec![0i64; s.rank];
    for_each_index(&mut index, 0, s.rank, &|d| (0, s.extents[d] as i64), &mut |index| {
        let at = from.iter().map(|k| index[*k] as usize);
        made.push(scalar::round_to_dtype(results[ravel(at, &sizes(&from))], s.dtype.storage()));
    });
}

fn run_rows<T: ScalarElement>(l: &RowKernelCall, ins: &[RowInput<'_>], shape: &[usize]) -> Vec<Scalar> {
    let mut all = vec![T::from_scalar(Scalar::zero(T::DTYPE)); shape.iter().product()];
    let mut asked: Vec<Option<RowOutput<'_>>> = (0..l.result_index).map(|_| None).collect();
    asked.push(Some(RowOutput::from_slice(shape, &mut all)));
    row_kernel::run_kernel(l.kernel.as_ref(), ins, RowOutputs::new(asked));
    all.into_iter().map(ScalarElement::to_scalar).collect()
}
