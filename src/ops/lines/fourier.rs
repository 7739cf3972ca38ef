//! Fourier transforms over the last dimensions.

use super::transform::{Along, Sides};
use crate::diagnostic::{ErrorKind, Fault, Result};
use crate::ops::build::cotangent_type;
use crate::ops::elementwise::{Takes, Unary};
use crate::ops::moves::linear_jvp;
use crate::ops::slicing::Pad;
use crate::ops::view::arity;
use crate::program::factors::{At, Dim, Factors, Join, Linearity, Priority};
use crate::program::sentence::{Affine, Body, Lines, Part, Read, Sentence, Source, Span};
use crate::program::{Back, Batch, Batched, Builder, Familiar, Fourier, Operand, Primitive, Tangents, Value};
use crate::sharding::Spec;
use crate::types::{ArrayType, DType, Scalar, Shape};
use std::sync::Arc;

/// Which transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transform {
    /// Complex to complex: y(k) = Σ x(j)·e^(−2πi·jk/n).
    Forward,
    /// Complex to complex: with +, and divided by all n.
    Inverse,
    /// Real to complex: the first n/2 + 1 of the last dimension, the others are their conjugates.
    Real,
    /// Complex to real: of n/2 + 1 in the last dimension n.
    InverseReal,
}

/// `fft{lengths}`, `ifft`, `rfft`, `irfft`: over as many last dimensions as there are lengths, 1 to 3. These are the sizes of the real side in
/// the last dimension, of both in the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Fft {
    /// Which one.
    pub kind: Transform,
    /// The lengths.
    pub lengths: Shape,
}

impl Fft {
    /// The sizes along a line of what goes in and of what comes out.
    fn sizes(&self) -> Sides {
        Sides::of(self.kind, &self.lengths)
    }
    fn check(&self, x: &ArrayType) -> Result<usize, Fault> {
        let shape = |message: String| Fault::new(ErrorKind::Shape, message);
        let (name, k, rank) = (self.name(), self.lengths.rank(), x.rank());
        if !(1..=3).contains(&k) {
            return Err(shape(format!("{name} is over 1 to 3 dimensions, not {k}"))
                .help("apply it again for the others: it is separable"));
        }
        if let Some(d) = (0..k).find(|d| self.lengths[*d] == 0) {
            return Err(shape(format!("length {d} of {name} is 0: there is no transform of nothing"))
                .help("leave out what is empty before this"));
        }
        if k > rank {
            return Err(shape(format!("{name} is over {k} dimensions, and {x} has {rank}"))
                .help("give a length for each of the last dimensions of the operand"));
        }
        let first = rank - k;
        let wanted = self.sizes().ins;
        if let Some(d) = (0..k).find(|d| x.shape[first + d] != wanted[*d]) {
            let at = first + d;
            let (n, m, length) = (x.shape[at], wanted[d], self.lengths[d]);
            let fault = match n > m {
                true => format!("cut it: `.slice(..)` to {m}"),
                false => format!("fill it up: `.pad(..)` to {m}"),
            };
            let text = format!("dimension {at} has size {n}, and {name} of length {length} takes {m} there");
            return Err(shape(text).help(fault).help("or give the length that fits").dim(0, at));
        }
        Ok(first)
    }
}

impl Primitive for Fft {
    fn name(&self) -> &'static str {
        match self.kind {
            Transform::Forward => "fft",
            Transform::Inverse => "ifft",
            Transform::Real => "rfft",
            Transform::InverseReal => "irfft",
        }
    }
    fn params(&self) -> String {
        format!("lengths={}", self.lengths)
    }
    fn shapes(&self, operands: &[Operand]) -> Result<Vec<(DType, Shape)>, Fault> {
        let x = arity(self.name(), operands, 1)?[0];
        match self.kind {
            Transform::Real => Takes::Parts.check(operands, 0)?,
            _ => Takes::Complex.check(operands, 0)?,
        }
        let first = self.check(x)?;
        let mut shape = x.shape.clone();
        shape.sizes_mut()[first..].copy_from_slice(&self.sizes().outs);
        let dtype = match self.kind {
            Transform::InverseReal => x.dtype.real(),
            _ => x.dtype.complex().unwrap_or(x.dtype),
        };
        Ok(vec![(dtype, shape)])
    }
    /// Lines are needed whole, and what comes out of them is sharded as they are.
    fn factors(&self, operands: &[ArrayType], results: &[(DType, Shape)]) -> Factors {
        let (x, y) = (&operands[0].shape, &results[0].1);
        let mut f = Factors::over(x);
        for l in &mut f.loops[x.rank() - self.lengths.rank()..] {
            (l.whole, l.join) = (true, Some(Join::First));
        }
        let at = |d: usize| if x[d] == y[d] { At::Same } else { At::Window };
        f.operands = vec![Dim::each(0..x.rank())];
        f.results = vec![(0..x.rank()).map(|d| Dim::at(d, at(d))).collect()];
        f
    }
    fn linearity(&self) -> Linearity {
        Linearity::Joint
    }
    fn priority(&self) -> Priority {
        Priority::Plain
    }
    fn out(&self) -> Option<Spec> {
        None
    }
    linear_jvp!();
    /// Of the sum of products with a cotangent the real part counts.
    fn transpose(&self, Back { b, types, cotangents, .. }: Back<'_>) -> Result<Tangents> {
        let Some(ct) = &cotangents[0] else { return Ok(vec![None]) };
        let same = |b: &mut Builder, kind, ct: &Value| {
            let prim = Fft { kind, lengths: self.lengths.clone() };
            b.emit1(Arc::new(prim), std::slice::from_ref(ct))
        };
        let back = match self.kind {
            Transform::Forward | Transform::Inverse => same(b, self.kind, ct)?,
            // the real part of the transform of what there is of it
            Transform::Real => {
                let last = types[0].rank() - 1;
                let more = types[0].shape[last] - ct.ty.shape[last];
                let filled = b.filled(ct, [0, more], Scalar::Float(0.0))?;
                let all = same(b, Transform::Forward, &filled)?;
                b.unary(Unary::Real, &all)?
            }
            // what has a conjugate counts twice
            Transform::InverseReal => {
                let half = same(b, Transform::Real, ct)?;
                let (n, one) = (self.lengths[self.lengths.rank() - 1], 1.0 / self.lengths.elements() as f64);
                let twice = b.vector_beside(&half.ty, (n - 1) / 2, 2.0 * one)?;
                let ends = [1, if n > 1 && n.is_multiple_of(2) { 1 } else { 0 }];
                let weights = b.filled(&twice, ends, Scalar::Float(one))?;
                let half = b.mul(&half, &weights)?;
                b.unary(Unary::Conj, &half)?
            }
        };
        Ok(vec![Some(b.fit(&back, &cotangent_type(&types[0]))?)])
    }
    fn familiar(&self, _: &[ArrayType]) -> Option<Familiar> {
        let kind = match self.kind {
            Transform::Forward => Fourier::Forward,
            Transform::Inverse => Fourier::Inverse,
            Transform::Real => Fourier::Real,
            Transform::InverseReal => Fourier::InverseReal,
        };
        Some(Familiar::Fourier { kind, lengths: self.lengths.iter().copied().collect() })
    }
    fn sentences(&self, operands: &[ArrayType], results: &[ArrayType]) -> Vec<Sentence> {
        let (x, y) = (&operands[0], &results[0]);
        let (rank, first) = (y.rank(), y.rank() - self.lengths.rank());
        let extents: Vec<usize> = y.shape.iter().chain(&x.shape[first..]).copied().collect();
        let map = (0..rank).map(|d| Affine::of(0, if d < first { d } else { rank + d - first }, 1)).collect();
        let part = Part { from: Source::Value(0), span: Span::whole(&extents), map };
        let reads = vec![Read { dtype: x.dtype, parts: vec![part], fill: Scalar::zero(x.dtype) }];
        let of = Arc::new(Along::new(self.kind, &self.lengths));
        let body = Body::Lines(Lines { of, result: 0, along: (first..rank).collect() });
        vec![Sentence { extents, rank, dtype: y.dtype, reads, body }]
    }
    fn batched(&self, _: &Batch<'_>) -> Batched {
        Batched::of(Arc::new(self.clone()))
    }
}

impl Builder {
    /// With so many of these numbers before and behind along the last dimension.
    fn filled(&mut self, x: &Value, [before, behind]: [usize; 2], value: Scalar) -> Result<Value> {
        let rank = x.ty.rank();
        let (mut low, mut high) = (vec![0; rank], vec![0; rank]);
        (low[rank - 1], high[rank - 1]) = (before as i64, behind as i64);
        self.emit1(
            Arc::new(Pad { low, high, interior: vec![0; rank], value, out: None }),
            std::slice::from_ref(x),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::check::check_prim;

    fn over(kind: Transform, lengths: &[usize]) -> Fft {
        Fft { kind, lengths: lengths.into() }
    }

    check_prim! {
        fft_along_a_split_dimension_stays_so: over(Transform::Forward, &[4]), ["complex64[2,4@X]"] => "
            (a: complex64[2,4@X]) {
              b: complex64[2,4@X] = fft[lengths=[4]] a
              return b
            }
        ";
        rfft_over_two_dimensions: over(Transform::Real, &[2, 3]), ["float32[4@X,2,3]"] => "
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
        irfft_over_two_dimensions: over(Transform::InverseReal, &[2, 4]), ["complex64[4@X,2,3]"] => "
            (a: complex64[4@X,2,3]) {
              b: float32[4@X,2,4] = irfft[lengths=[2,4]] a
              return b
            }
        ";
        rfft_that_does_not_divide_is_refused: over(Transform::Real, &[4]), ["float32[2,4@X]"] => "
            refused: dimension 1 of the result has size 3, which X does not divide into 2 equal parts
            reshard it first: `.reshard(p![_, _])`
        ";
        fft_of_another_length_is_refused: over(Transform::Forward, &[6]), ["complex64[2,4]"] => "
            refused: dimension 1 has size 4, and fft of length 6 takes 6 there
            fill it up: `.pad(..)` to 6
            or give the length that fits
        ";
        fft_of_floats_is_refused: over(Transform::Forward, &[4]), ["float64[2,4]"] => "
            refused: operand 0 is float64, but complex numbers are expected
            make it complex: `.astype(C128)`
        ";
    }
}
