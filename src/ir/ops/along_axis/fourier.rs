//! The Fourier transforms over the last dimensions.

use crate::core::{ArrayType, DType, ErrorKind, Fault, Result, Scalar, Shape};
use crate::ir::ops::elementwise::{DTypeClass, Unary};
use crate::ir::program::{
    Access, AccessPiece, AffineExpr, BatchedOp, Builder, Compute, Dim, DimMap, ExplicitRule, Factors,
    FftType, Linearity, LoopNest, NamedOp, Primitive, RowKernelCall, Source, StridedRange, Tangents,
    TransposeArgs, TypedOperand, Value, VmapArgs, typing::cotangent_type,
};
use crate::ir::{ops::dim_check::arity, ops::slicing::Pad, ops::structural::linear_jvp};
pub use crate::kernels::row::fft::FftKind;
use crate::kernels::row::fft::{FftKernel, RowSizes};
use std::sync::Arc;

/// The Fourier transforms over the last 1 to 3 dimensions: `fft{lengths}`, `ifft`, `rfft`, `irfft`.
///
/// There is one length for each transformed dimension: its size in the operand and in the result.
/// For the last dimension, it is the size on the real side.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fft {
    /// The kind of transform.
    pub kind: FftKind,
    /// The length of each transformed dimension.
    pub lengths: Shape,
}

impl Fft {
    /// Returns the sizes of a row in the operand and in the result.
    fn sizes(&self) -> RowSizes {
        RowSizes::new(self.kind, &self.lengths)
    }
    fn check(&self, x: &ArrayType) -> Result<usize, Fault> {
        let shape = |message: String| Fault::new(ErrorKind::Shape, message);
        let (name, k, rank) = (self.name(), self.lengths.rank(), x.rank());
        if !(1..=3).contains(&k) {
            return Err(shape(format!("{name} is over 1 to 3 dimensions, not {k}"))
                .help("apply it again for the others: it is separable"));
        }
        if let Some(d) = (0..k).find(|d| self.lengths[*d] == 0) {
            return Err(shape(format!("length {d} of {name} is 0: a transform needs at least one element"))
                .help("remove empty dimensions first"));
        }
        if k > rank {
            return Err(shape(format!("{name} is over {k} dimensions, and {x} has {rank}"))
                .help("give a length for each of the last dimensions of the operand"));
        }
        let first = rank - k;
        let expected = self.sizes().ins;
        if let Some(d) = (0..k).find(|d| x.shape[first + d] != expected[*d]) {
            let at = first + d;
            let (n, m, length) = (x.shape[at], expected[d], self.lengths[d]);
            let fault = match n > m {
                true => format!("cut it: `.slice(..)` to {m}"),
                false => format!("fill it up: `.pad(..)` to {m}"),
            };
            let text = format!("dimension {at} has size {n}, and {name} of length {length} takes {m} there");
            return Err(shape(text).help(fault).help("or give the length that fits").highlight_dim(0, at));
        }
        Ok(first)
    }
}

impl Primitive for Fft {
    described!(self, self.kind.name(), Linearity::Joint, format!("lengths={}", self.lengths));
    fn shapes(&self, operands: &[TypedOperand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        match self.kind {
            FftKind::Real => DTypeClass::Parts.check(operands, 0)?,
            _ => DTypeClass::Complex.check(operands, 0)?,
        }
        let first = self.check(x)?;
        let mut shape = x.shape.clone();
        shape.sizes_mut()[first..].copy_from_slice(&self.sizes().outs);
        let dtype = match self.kind {
            FftKind::InverseReal => x.dtype.real(),
            _ => x.dtype.complex().unwrap_or(x.dtype),
        };
        Ok(vec![(dtype, shape)])
    }
    /// Returns factors with unsharded transformed dimensions.
    /// The other dimensions of the result are sharded like those of the operand.
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let (x, y) = (&operands[0].shape, &results[0].1);
        let mut f = Factors::from_sizes(x);
        for l in &mut f.loops[x.rank() - self.lengths.rank()..] {
            (l.need_replication, l.explicit_rule) = (true, Some(ExplicitRule::FirstWins));
        }
        let at = |d: usize| if x[d] == y[d] { DimMap::Identity } else { DimMap::Dynamic };
        f.operands = vec![Dim::each(0..x.rank())];
        f.results = vec![(0..x.rank()).map(|d| Dim::mapped(d, at(d))).collect()];
        f
    }
    linear_jvp!();
    /// Returns the cotangent of the operand, which is the real part of the transposed transform.
    fn transpose(&self, args: TransposeArgs<'_>) -> Result<Tangents> {
        let TransposeArgs { builder: b, types, cotangents, .. } = args;
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        let same = |b: &mut Builder, kind, ct: &Value| {
            let prim = Fft { kind, lengths: self.lengths.clone() };
            b.emit1(Arc::new(prim), std::slice::from_ref(ct))
        };
        let back = match self.kind {
            FftKind::Forward | FftKind::Inverse => same(b, self.kind, ct)?,
            // the cotangent is the real part of the transform of the result's cotangent, padded
            // with zeros
            FftKind::Real => {
                let last = types[0].rank() - 1;
                let more = types[0].shape[last] - ct.ty.shape[last];
                let filled = b.pad_last_dim(ct, [0, more], Scalar::Float(0.0))?;
                let all = same(b, FftKind::Forward, &filled)?;
                b.unary(Unary::Real, &all)?
            }
            // elements whose conjugates are in the omitted half count twice
            FftKind::InverseReal => {
                let half = same(b, FftKind::Real, ct)?;
                let (n, one) =
                    (self.lengths[self.lengths.rank() - 1], 1.0 / self.lengths.num_elements() as f64);
                let twice = b.vector_like(&half.ty, (n - 1) / 2, 2.0 * one)?;
                let ends = [1, if n > 1 && n.is_multiple_of(2) { 1 } else { 0 }];
                let weights = b.pad_last_dim(&twice, ends, Scalar::Float(one))?;
                let half = b.mul(&half, &weights)?;
                b.unary(Unary::Conj, &half)?
            }
        };
        Ok(vec![Some(b.fit_to_type(&back, &cotangent_type(&types[0]))?)])
    }
    fn named_op(&self, _: &[ArrayType]) -> Option<NamedOp> {
        let kind = match self.kind {
            FftKind::Forward => FftType::Forward,
            FftKind::Inverse => FftType::Inverse,
            FftKind::Real => FftType::Real,
            FftKind::InverseReal => FftType::InverseReal,
        };
        Some(NamedOp::Fourier { kind, lengths: self.lengths.iter().copied().collect() })
    }
    fn loop_nests(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<LoopNest> {
        let (x, y) = (&operands[0], &results[0]);
        let (rank, first) = (y.rank(), y.rank() - self.lengths.rank());
        let extents: Vec<usize> = y.shape.iter().chain(&x.shape[first..]).copied().collect();
        let map = (0..rank)
            .map(|d| AffineExpr::linear(0, if d < first { d } else { rank + d - first }, 1))
            .collect();
        let piece = AccessPiece { source: Source::Value(0), ranges: StridedRange::full_box(&extents), map };
        let reads = vec![Access { dtype: x.dtype, pieces: vec![piece], fill: Scalar::zero(x.dtype) }];
        let of = Arc::new(FftKernel::new(self.kind, &self.lengths));
        let body = Compute::RowKernel(RowKernelCall {
            kernel: of,
            result_index: 0,
            row_loops: (first..rank).collect(),
        });
        vec![LoopNest { extents, rank, dtype: y.dtype, accesses: reads, compute: body }]
    }
    fn vmap(&self, _: &VmapArgs<'_>) -> BatchedOp {
        BatchedOp::new(Arc::new(self.clone()))
    }
}

impl Builder {
    /// Pads the last dimension with `value`, by the given numbers of elements at both ends.
    fn pad_last_dim(&mut self, x: &Value, [before, behind]: [usize; 2], value: Scalar) -> Result<Value> {
        let rank = x.ty.rank();
        let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
        (low[rank - 1], high[rank - 1]) = (before as i64, behind as i64);
        self.emit1(
            Arc::new(Pad { low, high, interior: vec![0; rank], value, out_sharding: None }),
            std::slice::from_ref(x),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ir::ops::test_util::check_prim;

    fn over(kind: FftKind, lengths: &[usize]) -> Fft {
        Fft { kind, lengths: lengths.into() }
    }

    check_prim! {
        fft_along_a_split_dimension_stays_so: over(FftKind::Forward, &[4]), ["complex64[2,4@X]"] => "
            (a: complex64[2,4@X]) {
              b: complex64[2,4@X] = fft[lengths=[4]] a
              return b
            }
        ";
        rfft_over_two_dimensions: over(FftKind::Real, &[2, 3]), ["float32[4@X,2,3]"] => "
            (a: float32[4@X,2,3]) {
              b: complex64[4@X,2,2] = rfft[lengths=[2,3]] a
              return b
            }
            tangents: (a: float32[4@X,2,3], b: float32[4@X,2,3]) {
              c: complex64[4@X,2,2] = rfft[lengths=[2,3]] a
              d: complex64[4@X,2,2] = rfft[lengths=[2,3]] b
              return c, d
            }
            cotangents: (a: complex64[4@X,2,2]) {
              b: complex64[4@X,2,3] = pad[low=[0,0,0], high=[0,0,1], value=0.0] a
              c: complex64[4@X,2,3] = fft[lengths=[2,3]] b
              d: float32[4@X,2,3] = real c
              return d
            }
        ";
        irfft_over_two_dimensions: over(FftKind::InverseReal, &[2, 4]), ["complex64[4@X,2,3]"] => "
            (a: complex64[4@X,2,3]) {
              b: float32[4@X,2,4] = irfft[lengths=[2,4]] a
              return b
            }
        ";
        rfft_that_does_not_divide_is_rejected: over(FftKind::Real, &[4]), ["float32[2,4@X]"] => "
            error: dimension 1 of the result has size 3, which X does not divide into 2 equal parts
            reshard it first: `.reshard(p![_, _])`
        ";
        fft_of_another_length_is_rejected: over(FftKind::Forward, &[6]), ["complex64[2,4]"] => "
            error: dimension 1 has size 4, and fft of length 6 takes 6 there
            fill it up: `.pad(..)` to 6
            or give the length that fits
        ";
        fft_of_floats_is_rejected: over(FftKind::Forward, &[4]), ["float64[2,4]"] => "
            error: operand 0 is float64, but complex numbers are expected
            make it complex: `.astype(C128)`
        ";
    }
}
