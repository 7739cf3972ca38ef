//! Samplers: distributions made of random bits.

use super::{Integers, Key};
use crate::array::{Array, holds};
use crate::diagnostic::{ErrorKind, Fault, Spot};
use crate::ops::random::RandomBits;
use crate::program::Call;
use crate::trace::{apply1, poison};
use crate::types::{ArrayType, DType, Scalar};
use half::{bf16, f16};
use std::f64::consts::SQRT_2;
use std::ops::Range;
use std::sync::Arc;

/// What a float type is made of.
struct Float {
    /// An unsigned integer of its width.
    word: DType,
    /// What random bits are drawn for it.
    bits: DType,
    /// Bits behind the point.
    mantissa: u32,
    /// The bits of 1.
    one: u64,
    /// The least normal number.
    tiny: f64,
    /// The number after −1 towards 0.
    above_minus_one: f64,
}

fn float(dtype: DType) -> Option<Float> {
    let made = |word, bits, mantissa: i32, one, tiny| Float {
        word,
        bits,
        mantissa: mantissa as u32,
        one,
        tiny,
        above_minus_one: -1.0 + f64::powi(2.0, -mantissa - 1),
    };
    Some(match dtype {
        DType::F16 => {
            made(DType::U16, DType::U16, 10, u64::from(f16::ONE.to_bits()), f16::MIN_POSITIVE.to_f64())
        }
        DType::BF16 => {
            made(DType::U16, DType::U8, 7, u64::from(bf16::ONE.to_bits()), bf16::MIN_POSITIVE.to_f64())
        }
        DType::F32 => {
            made(DType::U32, DType::U32, 23, u64::from(1f32.to_bits()), f64::from(f32::MIN_POSITIVE))
        }
        DType::F64 => made(DType::U64, DType::U64, 52, 1f64.to_bits(), f64::MIN_POSITIVE),
        _ => return None,
    })
}

impl Key {
    /// Uniform floats in [0, 1). A bare shape is float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Key::new(0).uniform(F32.of([100]).on(&mesh, p!["X"]));
    /// assert_eq!(type_of(&x), "float32[100@X]");
    /// assert!(x.min(..).item::<f32>()? >= 0.0 && x.max(..).item::<f32>()? < 1.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn uniform(&self, ty: impl Into<ArrayType>) -> Array {
        self.float(ty.into(), Call::here("uniform"), |u, _| u(0.0, 1.0))
    }
    /// Uniform floats in a range.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).uniform_in([100], -2.0..2.0);
    /// assert!(x.min(..).item::<f32>()? >= -2.0 && x.max(..).item::<f32>()? < 2.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn uniform_in(&self, ty: impl Into<ArrayType>, range: Range<f64>) -> Array {
        self.float(ty.into(), Call::here("uniform_in"), |u, _| u(range.start, range.end))
    }
    /// Normally distributed floats: mean 0, deviation 1.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).normal([1000]);
    /// assert!(x.mean(..).item::<f32>()?.abs() < 0.1 && (x.std(..).item::<f32>()? - 1.0).abs() < 0.1);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn normal(&self, ty: impl Into<ArrayType>) -> Array {
        self.float(ty.into(), Call::here("normal"), |u, f| SQRT_2 * u(f.above_minus_one, 1.0).erf_inv())
    }
    /// Normally distributed floats between `lower` and `upper`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).truncated_normal([100], -1.0, 1.0);
    /// assert!(x.abs().max(..).item::<f32>()? <= 1.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn truncated_normal(&self, ty: impl Into<ArrayType>, lower: f64, upper: f64) -> Array {
        self.float(ty.into(), Call::here("truncated_normal"), |u, _| {
            let x = SQRT_2 * u(libm::erf(lower / SQRT_2), libm::erf(upper / SQRT_2)).erf_inv();
            let (low, high) = (x.full_like(lower), x.full_like(upper));
            x.clamp(low.nextafter(f64::INFINITY), high.nextafter(f64::NEG_INFINITY))
        })
    }
    /// Exponentially distributed floats: mean 1.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert!((Key::new(0).exponential([1000]).mean(..).item::<f32>()? - 1.0).abs() < 0.2);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn exponential(&self, ty: impl Into<ArrayType>) -> Array {
        self.float(ty.into(), Call::here("exponential"), |u, _| -(-u(0.0, 1.0)).log1p())
    }
    /// Floats of the standard Gumbel distribution.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert!(Key::new(0).gumbel([100]).is_finite().all(..).item::<bool>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn gumbel(&self, ty: impl Into<ArrayType>) -> Array {
        self.float(ty.into(), Call::here("gumbel"), |u, f| -(-u(f.tiny, 1.0).log()).log())
    }
    /// `true` with probability `p`. The type says shape and sharding only.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let heads = Key::new(0).bernoulli([1000], 0.25).astype(F32).mean(..);
    /// assert!((heads.item::<f32>()? - 0.25).abs() < 0.1);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn bernoulli(&self, ty: impl Into<ArrayType>, p: f64) -> Array {
        let ty = ArrayType { dtype: DType::F32, ..ty.into() };
        self.float(ty, Call::here("bernoulli"), |u, _| u(0.0, 1.0).lt(p))
    }
    /// Whole numbers of a range, which must be one of their element type. A bare shape is int32: `key.randint([8], 0..10)`. An empty
    /// range gives its start.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let dice = Key::new(0).randint([100], 1..7);
    /// assert_eq!((dice.min(..).item::<i32>()?, dice.max(..).item::<i32>()?), (1, 6));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn randint(&self, ty: impl Into<Integers>, range: Range<i64>) -> Array {
        let (Integers(ty), call) = (ty.into(), Call::here("randint"));
        if !ty.dtype.is_integer() {
            let fault = Fault::new(ErrorKind::Dtype, format!("`randint` makes integers, not {}", ty.dtype))
                .help(format!(
                    "say the element type: `key.randint(I32.of({}), {}..{})`",
                    ty.shape, range.start, range.end
                ))
                .mark(0, Spot::Dtype);
            return poison(call.error(fault, || vec![ty.to_string()]));
        }
        let dtype = ty.dtype;
        let last = if range.is_empty() { range.start } else { range.end - 1 };
        if let Some(out) = [range.start, last].into_iter().find(|i| !holds(dtype, (*i).into())) {
            let (start, end) = (range.start, range.end);
            let fault =
                Fault::new(ErrorKind::Dtype, format!("{out}, of the range {start}..{end}, is no {dtype}"))
                    .help(format!(
                        "int64 holds the range: `key.randint(I64.of({}), {start}..{end})`",
                        ty.shape
                    ))
                    .mark(0, Spot::Dtype);
            return poison(call.error(fault, || vec![ty.to_string()]));
        }
        let wide = if dtype.size() == 8 { DType::U64 } else { DType::U32 };
        crate::array::made(ArrayType { dtype: wide, ..ty }, call, |ty| {
            let keys = self.split_vec(2);
            let [hi, lo] = [&keys[0], &keys[1]].map(|k| k.raw(ty.clone(), call));
            // 2^bits mod span, to put the two words together
            let (span, shift) = if wide == DType::U64 {
                let span =
                    if range.end > range.start { range.end.wrapping_sub(range.start) as u64 } else { 1 };
                let half = (1u64 << 32) % span;
                (span, half.wrapping_mul(half) % span)
            } else {
                let span =
                    if range.end > range.start { range.end.wrapping_sub(range.start) as u32 } else { 1 };
                let half = (1u32 << 16) % span.max(1);
                (u64::from(span), u64::from(half.wrapping_mul(half) % span.max(1)))
            };
            let (all, shift) = (Scalar::from(span), Scalar::from(shift));
            // a range of all numbers of the type needs no remainder
            let offset = if span == 0 { lo } else { ((hi % all) * shift + lo % all) % all };
            let to = if dtype.size() == 8 { dtype } else { DType::I32 };
            let start =
                if to.is_unsigned() { Scalar::from(range.start as u64) } else { Scalar::from(range.start) };
            if dtype == DType::U32 {
                return offset + Scalar::from(range.start as u32);
            }
            (offset.astype(to) + start).astype(dtype)
        })
    }
    /// Indices (int32) along a dimension, each with the probability of its logit: softmax(logits).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let logits = Array::from([[0.0f32, 100.0], [100.0, 0.0]]);
    /// assert_eq!(Key::new(0).categorical(&logits, 1).to_vec::<i32>()?, [1, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn categorical(&self, logits: &Array, dim: i32) -> Array {
        let Ok(ty) = logits.type_ref() else { return logits.clone() };
        (self.gumbel(ty.dtype.of(&ty.shape)) + logits).argmax(dim)
    }

    fn raw(&self, ty: ArrayType, call: Call<'_>) -> Array {
        apply1(Arc::new(RandomBits { ty, keys: 0 }), &[self.array().into()], call)
    }
    /// Floats made by `f` of uniform ones in a range.
    #[track_caller]
    fn float(
        &self,
        ty: ArrayType,
        call: Call<'_>,
        f: impl FnOnce(&dyn Fn(f64, f64) -> Array, &Float) -> Array,
    ) -> Array {
        let dtype = ty.dtype;
        let Some(of) = float(dtype) else {
            let fault = Fault::new(ErrorKind::Dtype, format!("`{}` makes floats, not {dtype}", call.op))
                .help(format!("give the shape, or a float type: `key.{}(F32.of({}))`", call.op, ty.shape))
                .mark(0, Spot::Dtype);
            return poison(call.error(fault, || vec![ty.to_string()]));
        };
        crate::array::made(ty, call, |ty| {
            let uniform = |low: f64, high: f64| {
                let bits = self.raw(ArrayType { dtype: of.bits, ..ty.clone() }, call);
                let bits = if of.bits == of.word { bits } else { bits.astype(of.word) };
                let drawn = of.bits.size() as u32 * 8;
                // random digits behind the point of 1.…, then minus 1
                let digits =
                    bits.shift_right_logical(Scalar::from(drawn - of.mantissa)) | Scalar::from(of.one);
                let unit = digits.bitcast(dtype) - 1.0;
                let (low, high) = (rounded(low, dtype), rounded(high, dtype));
                (unit * rounded(high - low, dtype) + low).maximum(low)
            };
            f(&uniform, &of)
        })
    }
}

/// The number of this element type nearest to `x`.
fn rounded(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => Scalar::Float(x).to_f16().to_f64(),
        DType::BF16 => Scalar::Float(x).to_bf16().to_f64(),
        DType::F32 => f64::from(x as f32),
        _ => x,
    }
}
