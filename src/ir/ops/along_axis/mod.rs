//! Primitives along one dimension: scans, recurrences, sorts, `top_k`, and Fourier transforms.
//!
//! Each one consists of a row kernel ([`RowKernel`]), which is a function of 1-D slices of the
//! operands, and the dimension along which the kernel runs (for Fourier transforms, up to three
//! trailing dimensions). Explicit typing requires that this dimension is unsharded; all other
//! dimensions keep their sharding.

mod fourier;
mod recurrence;
mod scan;
mod sort;
mod top_k;

pub use fourier::{Fft, FftKind};
pub use recurrence::Recurrence;
pub use scan::{CumulativeOp, CumulativeScan};
pub use sort::{Argsort, Sort};
pub use top_k::TopK;

use crate::core::{ArrayType, Fault, Scalar};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, Compute, Dim, Factors, LoopNest, RowKernel, RowKernelCall, Source,
    StridedRange, TypedOperand,
};
use std::sync::Arc;

/// Returns an error if the operand does not have dimension `axis`.
fn check_axis(axis: usize, operands: &[TypedOperand]) -> Result<(), Fault> {
    let rank = operands[0].ty.rank();
    if axis < rank {
        return Ok(());
    }
    let fault = fault!(Shape, "there is no dimension {axis} in an array of rank {rank}");
    Err(match rank {
        0 => fault.help("a scalar has no dimensions: `.reshape([1])` gives it one"),
        _ => fault.help("dimensions are counted from 0"),
    })
}

/// Returns an error if the operands have different shapes.
fn check_one_shape(operands: &[TypedOperand]) -> Result<(), Fault> {
    let first = &operands[0].ty.shape;
    let Some(k) = operands.iter().position(|o| o.ty.shape != *first) else { return Ok(()) };
    Err(fault!(
        Shape,
        "operand {} has shape {}, operand {} has {first}: they must be of one shape",
        operands[k].user_index(k),
        operands[k].ty.shape,
        operands[0].user_index(0),
    )
    .help(format!("repeat operand {}: `.broadcast_to({first})`", operands[k].user_index(k))))
}

/// Returns one loop per dimension, shared by all operands and results.
/// The loop of `axis` must be unsharded.
fn factors(operands: &[ArrayType], axis: usize, results: usize) -> Factors {
    let mut f = Factors::from_sizes(&operands[0].shape);
    f.loops[axis].need_replication = true;
    let dims = Dim::each(0..operands[0].rank());
    f.operands = vec![dims.clone(); operands.len()];
    f.results = vec![dims; results];
    f
}

/// Returns the loop nest for result `k` of a row kernel along dimension `axis`.
fn row_loop_nest(
    kernel: Arc<dyn RowKernel>,
    k: usize,
    operands: &[ArrayType],
    axis: usize,
    result: &ArrayType,
) -> LoopNest {
    let rank = result.rank();
    let mut extents = result.shape.to_vec();
    extents.push(operands[0].shape[axis]);
    let map: Vec<AffineExpr> =
        (0..rank).map(|d| AffineExpr::linear(0, if d == axis { rank } else { d }, 1)).collect();
    let read = |(k, ty): (usize, &ArrayType)| {
        let dtype = ty.dtype.storage();
        let piece = AccessPiece {
            source: Source::Value(k),
            ranges: StridedRange::full_box(&extents),
            map: map.clone(),
        };
        Access { dtype, pieces: vec![piece], fill: Scalar::zero(dtype) }
    };
    let reads = operands.iter().enumerate().map(read).collect();
    let body = Compute::RowKernel(RowKernelCall {
        kernel,
        result_index: k,
        row_loops: std::iter::once(axis).collect(),
    });
    LoopNest { extents, rank, dtype: result.dtype.storage(), accesses: reads, compute: body }
}

#[cfg(test)]
mod tests {
    use super::scan::{ScanKernel as Scans, ScanStage};
    use super::{CumulativeOp, FftKind, sort::SortKernel as Sorts};
    use crate::core::types::{DType, Element};
    use crate::ir::program::{RowInput, RowKernel, RowOutput, RowOutputs, SecondPass};
    use crate::kernels::row::fft::FftKernel as Transforms;
    use crate::kernels::row::top_k::TopKKernel as Best;
    use half::bf16;
    use num_complex::Complex;
    use std::ops::Range;

    /// Returns buffers with the lengths of the results.
    fn results<T: Element>(of: &dyn RowKernel, x: &[T]) -> (Vec<T>, Vec<i32>) {
        let made = of.shapes(&[(T::DTYPE, [x.len()].into())]).expect("it takes lines");
        let n = made[0].1.num_elements();
        (x[..n].to_vec(), vec![0; n])
    }
    /// Returns the requested results, computed row by row.
    fn at_once<T: Element>(of: &dyn RowKernel, x: &[T], asked: [bool; 2]) -> (Vec<T>, Vec<i32>) {
        let (mut y, mut from) = results(of, x);
        let n = [y.len()];
        let outs = [
            asked[0].then(|| RowOutput::from_slice(&n, &mut y)),
            asked[1].then(|| RowOutput::from_slice(&n, &mut from)),
        ];
        of.run(&[RowInput::from_slice(&[x.len()], x)], &mut RowOutputs::new(outs));
        (y, from)
    }
    /// Returns the requested results, computed by the parallel kernel with `runs` runs.
    fn by_runs<T: Element>(of: &dyn RowKernel, x: &[T], asked: [bool; 2], runs: usize) -> (Vec<T>, Vec<i32>) {
        let n = x.len();
        let stages = of.parallel(&[T::DTYPE], n, &asked).expect("it is computed by runs");
        let cut = |n: usize| {
            let each = n.div_ceil(runs).next_multiple_of(stages.alignment());
            let positions = |(lo, hi)| if stages.reverse() { n - hi..n - lo } else { lo..hi };
            (0..n).step_by(each).map(|lo| positions((lo, (lo + each).min(n)))).collect::<Vec<_>>()
        };
        let (first, then) = match stages.second_pass() {
            SecondPass::Elements => (cut(n), cut(n)),
            SecondPass::FullRow => (cut(n), std::iter::once(0..n).collect()),
            SecondPass::Columns { operand_columns: first, result_columns: then } => (cut(first), cut(then)),
        };
        let ins = [RowInput::from_slice(&[n], x)];
        let typed = |positions: &Range<usize>| stages.scratch(positions.len());
        // 128-bit words have space for an element of any type
        let mut scratch_buffers: Vec<Vec<u128>> =
            first.iter().map(|places| vec![0; typed(places).1]).collect();
        for (positions, scratch) in first.iter().zip(&mut scratch_buffers) {
            let (dtype, n) = typed(positions);
            // SAFETY: the scratch buffer has `n` words, each at least as large as an element.
            let mut scratch =
                unsafe { RowOutput::from_raw(dtype, scratch.as_mut_ptr().cast(), vec![n], vec![1]) };
            stages.run_first_pass(positions.clone(), &ins, &mut scratch);
        }
        let scratch_buffers: Vec<RowInput<'_>> = (first.iter().zip(&scratch_buffers))
            .map(|(positions, scratch)| {
                let (dtype, n) = typed(positions);
                // SAFETY: the scratch buffer has `n` words, each at least as large as an element.
                unsafe { RowInput::from_raw(dtype, scratch.as_ptr().cast(), vec![n], vec![1]) }
            })
            .collect();
        let (mut y, mut from) = results(of, x);
        for (r, positions) in then.into_iter().enumerate() {
            let n = y.len();
            let (at, shape, strides) = match stages.second_pass() {
                SecondPass::Elements => (positions.start, vec![positions.len()], vec![1]),
                SecondPass::FullRow => (0, vec![n], vec![1]),
                SecondPass::Columns { result_columns: then, .. } => {
                    (positions.start, vec![n / then, positions.len()], vec![then, 1])
                }
            };
            let one = |dtype, to: *mut u8, size: usize| {
                // SAFETY: the elements of the run are within the result, which no other code
                // accesses during the pass.
                unsafe {
                    RowOutput::from_raw(dtype, to.wrapping_add(at * size), shape.clone(), strides.clone())
                }
            };
            let outs = [
                asked[0].then(|| one(T::DTYPE, y.as_mut_ptr().cast(), size_of::<T>())),
                asked[1].then(|| one(DType::I32, from.as_mut_ptr().cast(), size_of::<i32>())),
            ];
            stages.run_second_pass(r, positions, &ins, &scratch_buffers, &mut RowOutputs::new(outs));
        }
        (y, from)
    }
    /// Returns pseudorandom numbers, some of them frequent, including zeros of both signs and NaN.
    fn numbers(n: usize) -> Vec<f32> {
        let mut k = 1u32;
        let one = |_| {
            k = k.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            match k >> 28 {
                0 => 0.0,
                1 => -0.0,
                2 => f32::NAN,
                3 => (k >> 20 & 3) as f32,
                _ => (k >> 8) as f32 / 4e6 - 2.0,
            }
        };
        (0..n).map(one).collect()
    }
    #[track_caller]
    fn same<T: Element>(of: &dyn RowKernel, x: &[T], asked: [bool; 2], bits: fn(&T) -> u64) {
        let (expected, expected_indices) = at_once(of, x, asked);
        let expected: Vec<u64> = expected.iter().map(bits).collect();
        for runs in [2, 3, 7] {
            let (y, from) = by_runs(of, x, asked, runs);
            assert_eq!(y.iter().map(bits).collect::<Vec<_>>(), expected, "{of:?}, {runs} runs");
            assert_eq!(from, expected_indices, "{of:?}, {runs} runs");
        }
    }

    #[test]
    fn sorts_by_runs_are_sorts() {
        let x = numbers(3001);
        for asked in [[true, false], [false, true], [true, true]] {
            let of = Sorts { num_keys: 1, num_operands: 1 };
            same(&of, &x, asked, |x| x.to_bits().into());
            let small: Vec<i8> = x.iter().map(|x| *x as i8).collect();
            same(&of, &small, asked, |x| *x as u64);
            let halves: Vec<bf16> = x.iter().map(|x| bf16::from_f32(*x)).collect();
            same(&of, &halves, asked, |x| x.to_bits().into());
        }
        let long: Vec<i64> = x.iter().map(|x| (*x * 1e18) as i64).collect();
        let of = Sorts { num_keys: 1, num_operands: 1 };
        same(&of, &long, [true, false], |x| *x as u64);
        assert!(
            of.parallel(&[DType::I64], 3001, &[true, true]).is_none(),
            "keys and places are of more than 64 bits"
        );
    }

    #[test]
    fn the_greatest_of_runs_are_the_greatest() {
        let x = numbers(30_001);
        for k in [0, 1, 7, 29] {
            let of = Best { k };
            for asked in [[true, false], [false, true], [true, true]] {
                same(&of, &x, asked, |x| x.to_bits().into());
                same(&of, &x.iter().map(|x| *x as i8).collect::<Vec<_>>(), asked, |x| *x as u64);
                same(&of, &x.iter().map(|x| f64::from(*x)).collect::<Vec<_>>(), asked, |x| x.to_bits());
            }
        }
        assert!(
            Best { k: 30 }.parallel(&[DType::F32], 30_001, &[true, true]).is_none(),
            "runs leave too many"
        );
    }

    #[test]
    fn transforms_by_columns_are_transforms() {
        let x = numbers(2 << 17);
        let number = |x: &f32| if x.is_nan() { 0.5 } else { *x };
        for n in [1 << 16, 1 << 17] {
            let single: Vec<_> = x.chunks(2).map(|x| Complex::new(number(&x[0]), number(&x[1]))).collect();
            let double: Vec<Complex<f64>> =
                single.iter().map(|z| Complex::new(z.re.into(), z.im.into())).collect();
            for kind in [FftKind::Forward, FftKind::Inverse] {
                let of = Transforms::new(kind, &[n].into());
                let asked = [true, false];
                same(&of, &single[..n], asked, |z| {
                    u64::from(z.re.to_bits()) << 32 | u64::from(z.im.to_bits())
                });
                same(&of, &double[..n], asked, |z| z.re.to_bits() ^ z.im.to_bits().rotate_left(7));
            }
        }
    }

    #[test]
    fn running_sums_by_runs_are_running_sums() {
        let x: Vec<f32> = numbers(3 * crate::kernels::row::prefix_sum::BLOCK_ELEMENTS + 77)
            .into_iter()
            .map(|x| x.max(-3.0))
            .collect();
        for kind in [CumulativeOp::Sum, CumulativeOp::Max, CumulativeOp::LogSumExp] {
            for reverse in [false, true] {
                same(&Scans { kind, reverse, stage: ScanStage::WholeRow }, &x, [true, false], |x| {
                    x.to_bits().into()
                });
            }
        }
        let halves: Vec<bf16> = x.iter().map(|x| bf16::from_f32(*x)).collect();
        same(
            &Scans { kind: CumulativeOp::Prod, reverse: false, stage: ScanStage::WholeRow },
            &halves,
            [true, false],
            |x| x.to_bits().into(),
        );
    }
}
