//! Samplers for distributions: uniform, normal, integer, categorical and others.
//!
//! Every sampler transforms uniform random bits. A uniform float is made by filling the mantissa of
//! a float in [1, 2) with random bits and subtracting 1, as JAX does.

use super::{IntegerArrayType, Key};
use crate::api::array::{Array, fits_dtype};
use crate::api::trace::{apply1, poison, run_fused};
use crate::core::{ArrayType, DType, Scalar, TypePart};
use crate::ir::{ops::random::RandomBits, program::CallSite};
use crate::kernels::HAS_FAST_PATHS;
use half::{bf16, f16};
use std::f64::consts::SQRT_2;
use std::ops::Range;
use std::sync::Arc;

/// The minimum number of elements that are drawn by one program. Fewer elements take less time than
/// finding the program.
const MIN_FUSED_ELEMENTS: usize = 1 << 14;

/// The constants of a floating-point type that samplers need.
pub(crate) struct FloatFormat {
    /// The unsigned integer type of the same width.
    uint_dtype: DType,
    /// The unsigned integer type of the random bits drawn for one sample.
    drawn_dtype: DType,
    /// The number of stored mantissa bits.
    mantissa_bits: u32,
    /// The bit pattern of 1.0.
    one_bits: u64,
    /// The smallest positive normal value.
    min_normal: f64,
    /// The smallest value greater than −1.
    above_minus_one: f64,
}

fn float_format(dtype: DType) -> Option<FloatFormat> {
    let made = |word, bits, mantissa: i32, one, tiny| FloatFormat {
        uint_dtype: word,
        drawn_dtype: bits,
        mantissa_bits: mantissa as u32,
        one_bits: one,
        min_normal: tiny,
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
    /// Draws floats uniformly distributed in [0, 1).
    ///
    /// A bare shape means float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Key::new(0).uniform(F32.array_type([100]).on(&mesh, p!["X"]));
    /// assert_eq!(type_of(&x), "float32[100@X]");
    /// assert!(x.min(..).item::<f32>()? >= 0.0 && x.max(..).item::<f32>()? < 1.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "rand")]
    #[track_caller]
    pub fn uniform(&self, ty: impl Into<ArrayType>) -> Array {
        self.sample_float(ty.into(), CallSite::here("uniform"), |u, _| u(0.0, 1.0))
    }
    /// Draws floats uniformly distributed in `range`. The end is excluded, also after rounding.
    ///
    /// A bare shape means float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).uniform_in([100], -2.0..2.0);
    /// assert!(x.min(..).item::<f32>()? >= -2.0 && x.max(..).item::<f32>()? < 2.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn uniform_in(&self, ty: impl Into<ArrayType>, range: Range<f64>) -> Array {
        let ty = ty.into();
        let dtype = ty.dtype;
        self.sample_float(ty, CallSite::here("uniform_in"), |u, f| {
            let drawn = u(range.start, range.end);
            // the largest number that is drawn may be rounded to the end
            let of = |x: f64| round_to_dtype(x, dtype);
            let (low, high) = (of(range.start), of(range.end));
            let unit = 1.0 - 0.5f64.powi(f.mantissa_bits as i32);
            let largest = of(of(unit * of(high - low)) + low);
            if low < high && largest >= high { drawn.minimum(next_below(high, dtype)) } else { drawn }
        })
    }
    /// Draws normally distributed floats of mean 0 and standard deviation 1.
    ///
    /// A bare shape means float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).normal([1000]);
    /// assert!(x.mean(..).item::<f32>()?.abs() < 0.1
    ///     && (x.std(..).item::<f32>()? - 1.0).abs() < 0.1);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "randn")]
    #[track_caller]
    pub fn normal(&self, ty: impl Into<ArrayType>) -> Array {
        self.sample_float(ty.into(), CallSite::here("normal"), |u, f| {
            SQRT_2 * u(f.above_minus_one, 1.0).erf_inv()
        })
    }
    /// Draws from the standard normal distribution, truncated to `lower..=upper`.
    ///
    /// A bare shape means float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Key::new(0).truncated_normal([100], -1.0, 1.0);
    /// assert!(x.abs().max(..).item::<f32>()? <= 1.0);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn truncated_normal(&self, ty: impl Into<ArrayType>, lower: f64, upper: f64) -> Array {
        self.sample_float(ty.into(), CallSite::here("truncated_normal"), |u, _| {
            let x = SQRT_2 * u(libm::erf(lower / SQRT_2), libm::erf(upper / SQRT_2)).erf_inv();
            let (low, high) = (x.full_like(lower), x.full_like(upper));
            x.clamp(low.nextafter(f64::INFINITY), high.nextafter(f64::NEG_INFINITY))
        })
    }
    /// Draws exponentially distributed floats of mean 1.
    ///
    /// A bare shape means float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert!((Key::new(0).exponential([1000]).mean(..).item::<f32>()? - 1.0).abs() < 0.2);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn exponential(&self, ty: impl Into<ArrayType>) -> Array {
        self.sample_float(ty.into(), CallSite::here("exponential"), |u, _| -(-u(0.0, 1.0)).log1p())
    }
    /// Draws floats from the standard Gumbel distribution.
    ///
    /// A bare shape means float32.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert!(Key::new(0).gumbel([100]).is_finite().all(..).item::<bool>()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn gumbel(&self, ty: impl Into<ArrayType>) -> Array {
        self.sample_float(ty.into(), CallSite::here("gumbel"), |u, f| -(-u(f.min_normal, 1.0).log()).log())
    }
    /// Draws booleans that are `true` with probability `p`.
    ///
    /// Only the shape and sharding of `ty` are used.
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
        self.sample_float(ty, CallSite::here("bernoulli"), |u, _| u(0.0, 1.0).lt(p))
    }
    /// Draws integers uniformly distributed in `range`.
    ///
    /// A bare shape means int32: `key.randint([8], 0..10)`. An empty range gives its start. It is
    /// an error (`ErrorKind::Dtype`) if the element type is not an integer type or cannot represent
    /// the range.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let dice = Key::new(0).randint([100], 1..7);
    /// assert_eq!((dice.min(..).item::<i32>()?, dice.max(..).item::<i32>()?), (1, 6));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn randint(&self, ty: impl Into<IntegerArrayType>, range: Range<i64>) -> Array {
        let (IntegerArrayType(ty), call) = (ty.into(), CallSite::here("randint"));
        if !ty.dtype.is_integer() {
            let fault = fault!(Dtype, "`randint` makes integers, not {}", ty.dtype)
                .help(format!(
                    "give the element type: `key.randint(I32.array_type({}), {}..{})`",
                    ty.shape, range.start, range.end
                ))
                .highlight(0, TypePart::Dtype);
            return poison(call.error(fault, || vec![ty.to_string()]));
        }
        let dtype = ty.dtype;
        let last = if range.is_empty() { range.start } else { range.end - 1 };
        if let Some(out) = [range.start, last].into_iter().find(|i| !fits_dtype(dtype, (*i).into())) {
            let (start, end) = (range.start, range.end);
            let fault = fault!(Dtype, "{out}, in the range {start}..{end}, does not fit into {dtype}")
                .help(format!(
                    "int64 holds the range: `key.randint(I64.array_type({}), {start}..{end})`",
                    ty.shape
                ))
                .highlight(0, TypePart::Dtype);
            return poison(call.error(fault, || vec![ty.to_string()]));
        }
        let wide = if dtype.size() == 8 { DType::U64 } else { DType::U32 };
        crate::api::array::create_sharded(ArrayType { dtype: wide, ..ty }, call, |ty| {
            let keys = self.split_vec(2);
            let [hi, lo] = [&keys[0], &keys[1]].map(|k| k.raw_bits(ty.clone(), call));
            // 2^bits mod span, the weight of the upper word
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
            // a span of 0 stands for all values of the type, which need no remainder
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
    /// Draws int32 indices along `dim` with the probabilities softmax(`logits`).
    ///
    /// The result has the shape of `logits` without `dim`.
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
        (self.gumbel(ty.dtype.array_type(&ty.shape)) + logits).argmax(dim)
    }

    /// Draws random bits of an unsigned integer type.
    fn raw_bits(&self, ty: ArrayType, call: CallSite<'_>) -> Array {
        apply1(Arc::new(RandomBits { ty, num_key_dims: 0 }), &[self.array().into()], call)
    }
    /// Draws floats computed by `f` from uniformly distributed floats.
    ///
    /// `f` receives a sampler of uniform floats in `[low, high)` and the constants of the element
    /// type. It is an error if the element type is not floating-point.
    #[track_caller]
    fn sample_float(
        &self,
        ty: ArrayType,
        call: CallSite<'_>,
        f: impl Fn(&dyn Fn(f64, f64) -> Array, &FloatFormat) -> Array,
    ) -> Array {
        let dtype = ty.dtype;
        let of = ok_or_return!(check_floats(&ty, call));
        crate::api::array::create_sharded(ty, call, |ty| {
            let bits_of = |key: &Array| {
                let ty = ArrayType { dtype: of.drawn_dtype, ..ty.clone() };
                Key(key.clone()).raw_bits(ty, call)
            };
            let draw = |key: &Array| f(&|low, high| uniform_floats(bits_of(key), dtype, &of, low..high), &of);
            let fused = match HAS_FAST_PATHS && ty.shape.num_elements() >= MIN_FUSED_ELEMENTS {
                true => run_fused(self.array(), call, draw),
                false => None,
            };
            fused.unwrap_or_else(|| draw(self.array()))
        })
    }
}

/// Returns the constants of a type of floats, or an array that carries an error for other types.
pub(crate) fn check_floats(ty: &ArrayType, call: CallSite<'_>) -> Result<FloatFormat, Array> {
    float_format(ty.dtype).ok_or_else(|| {
        let fault = fault!(Dtype, "`{}` makes floats, not {}", call.op, ty.dtype)
            .help(format!("give the shape, or a float type: `key.{}(F32.array_type({}))`", call.op, ty.shape))
            .highlight(0, TypePart::Dtype);
        poison(call.error(fault, || vec![ty.to_string()]))
    })
}

/// Returns floats of type `dtype` that random bits make, uniformly distributed in a range.
fn uniform_floats(bits: Array, dtype: DType, of: &FloatFormat, Range { start, end }: Range<f64>) -> Array {
    let bits = if of.drawn_dtype == of.uint_dtype { bits } else { bits.astype(of.uint_dtype) };
    let drawn = of.drawn_dtype.size() as u32 * 8;
    // random mantissa bits make a float in [1, 2); subtract 1
    let mantissa =
        bits.shift_right_logical(Scalar::from(drawn - of.mantissa_bits)) | Scalar::from(of.one_bits);
    let unit = mantissa.bitcast(dtype) - 1.0;
    let (low, high) = (round_to_dtype(start, dtype), round_to_dtype(end, dtype));
    (unit * round_to_dtype(high - low, dtype) + low).maximum(low)
}

/// Returns the largest value of an element type below `x`, which is a value of this type.
fn next_below(x: f64, dtype: DType) -> f64 {
    let below = |bits: u16| match bits {
        0 | 0x8000 => 0x8001,
        bits if bits < 0x8000 => bits - 1,
        bits => bits + 1,
    };
    match dtype {
        DType::F16 => half::f16::from_bits(below(Scalar::Float(x).to_f16().to_bits())).to_f64(),
        DType::BF16 => half::bf16::from_bits(below(Scalar::Float(x).to_bf16().to_bits())).to_f64(),
        DType::F32 => f64::from((x as f32).next_down()),
        _ => x.next_down(),
    }
}

/// Rounds `x` to the nearest value of an element type.
pub(crate) fn round_to_dtype(x: f64, dtype: DType) -> f64 {
    match dtype {
        DType::F16 => Scalar::Float(x).to_f16().to_f64(),
        DType::BF16 => Scalar::Float(x).to_bf16().to_f64(),
        DType::F32 => f64::from(x as f32),
        _ => x,
    }
}
