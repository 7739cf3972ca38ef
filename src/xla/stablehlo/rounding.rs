//! Rounds float32 values to 16-bit floats without float32, where the result is the same.
//!
//! The mean of bfloat16 values and its gradient divide in float32: a conversion, a quotient, often
//! a broadcast, and a conversion. These are several equations, so [`narrow`](super::narrow) does
//! not see them. XLA's own bfloat16 quotient returns the same value.

use super::writer::{Origin, OriginForm, Ssa, Writer};
use crate::core::{DType, Scalar};

/// The elementwise operations whose float32 result, rounded to a 16-bit float, is the result of
/// the operation on 16-bit floats: float32 has more than twice their bits, so rounding twice is
/// rounding once.
const ROUNDED_ONCE: [&str; 6] = ["add", "subtract", "multiply", "divide", "maximum", "minimum"];

/// Returns true if a 16-bit float of this type equals the constant.
fn holds(dtype: DType, value: Scalar) -> bool {
    let rounded = match dtype {
        DType::BF16 => value.to_bf16().to_f64(),
        _ => value.to_f16().to_f64(),
    };
    rounded == value.to_f64()
}

impl Writer {
    fn origin(&self, x: &Ssa) -> Option<&Origin> {
        self.origins.get(&x.name).filter(|_| x.dtype == DType::F32)
    }
    fn set_origin(&mut self, x: &Ssa, origin: Option<Origin>) {
        if let Some(origin) = origin {
            self.origins.insert(x.name.clone(), origin);
        }
    }
    /// Records that `wide` is a conversion of `x`.
    pub(super) fn record_conversion(&mut self, wide: &Ssa, x: &Ssa) {
        let widens = wide.dtype == DType::F32 && matches!(x.dtype, DType::BF16 | DType::F16);
        let form = OriginForm::Converted(x.clone());
        self.set_origin(wide, widens.then_some(Origin { dtype: x.dtype, is_exact: true, form }));
    }
    /// Records that `made` is an elementwise operation on `args`.
    pub(super) fn record_operation(&mut self, made: &Ssa, op: &str, args: &[&Ssa]) {
        if made.dtype != DType::F32 || !ROUNDED_ONCE.contains(&op) {
            return;
        }
        let Some(dtype) = args.iter().find_map(|x| self.origin(x)).map(|origin| origin.dtype) else { return };
        let fits = |x: &&Ssa| match x.splat {
            Some(value) => holds(dtype, value),
            None => self.origin(x).is_some_and(|origin| origin.is_exact && origin.dtype == dtype),
        };
        if args.iter().all(fits) {
            let form = OriginForm::Operation(op.to_string(), args.iter().copied().cloned().collect());
            self.set_origin(made, Some(Origin { dtype, is_exact: false, form }));
        }
    }
    /// Records that `made` has the elements of `x` in the shape of `made`.
    pub(super) fn record_reshape(&mut self, made: &Ssa, x: &Ssa) {
        let form = OriginForm::Reshaped(x.clone(), made.shape.clone());
        let origin = self.origin(x).map(|origin| Origin { form, ..origin.clone() });
        self.set_origin(made, origin);
    }
    /// Records that `made` is a broadcast of `x`, whose dimensions are `dims` of the result.
    pub(super) fn record_broadcast(&mut self, made: &Ssa, x: &Ssa, dims: &[usize]) {
        let form = OriginForm::Broadcast(x.clone(), dims.to_vec(), made.shape.clone());
        let origin = self.origin(x).map(|origin| Origin { form, ..origin.clone() });
        self.set_origin(made, origin);
    }
    /// Returns a float32 value rounded to a 16-bit float, without a conversion; `None` if it needs
    /// one.
    pub(super) fn rounded(&mut self, x: &Ssa, to: DType) -> Option<Ssa> {
        let origin = self.origin(x).filter(|origin| origin.dtype == to)?.clone();
        Some(match &origin.form {
            OriginForm::Converted(narrow) => narrow.clone(),
            OriginForm::Operation(op, args) => {
                let args: Vec<Ssa> =
                    args.iter().map(|x| self.rounded_operand(x, to)).collect::<Option<_>>()?;
                self.elementwise(op, &args.iter().collect::<Vec<_>>())
            }
            OriginForm::Reshaped(x, shape) => {
                let narrow = self.rounded(x, to)?;
                self.reshape(&narrow, shape)
            }
            OriginForm::Broadcast(x, dims, shape) => {
                let narrow = self.rounded(x, to)?;
                self.broadcast(&narrow, dims, shape)
            }
        })
    }
    fn rounded_operand(&mut self, x: &Ssa, to: DType) -> Option<Ssa> {
        match x.splat {
            Some(value) => Some(self.constant(to, value, &x.shape)),
            None => self.rounded(x, to),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xla::stablehlo::{Options, unused::without_unused};

    /// Writes a quotient of a bfloat16 value in float32, which is broadcast and rounded to `to`.
    /// Returns the number of conversions in the text, and the text.
    fn conversions(divisor: f64, to: DType) -> (usize, String) {
        let mut w = Writer::new(Options::default());
        let x = Ssa::named("%arg0".into(), &DType::BF16.array_type([4, 8, 1]));
        let wide = w.convert(&x, DType::F32);
        let divisor = w.constant(DType::F32, Scalar::Float(divisor), &[4, 8, 1]);
        let quotient = w.elementwise("divide", &[&wide, &divisor]);
        let rows = w.reshape(&quotient, &[4, 8]);
        let all = w.broadcast(&rows, &[0, 1], &[4, 8, 2]);
        let narrow = w.convert(&all, to);
        w.terminator("return", &[narrow]);
        let text = without_unused(&w.out);
        (text.matches("stablehlo.convert").count(), text)
    }

    #[test]
    fn a_quotient_that_rounds_once_is_written_without_float32() {
        let (left, text) = conversions(256.0, DType::BF16);
        assert_eq!(left, 0, "{text}");
        assert!(text.contains("stablehlo.divide %arg0, %5 : tensor<4x8x1xbf16>"), "{text}");
        // bfloat16 does not have the divisor 257, and a float16 rounds the float32 quotient
        assert_eq!(conversions(257.0, DType::BF16).0, 2);
        assert_eq!(conversions(256.0, DType::F16).0, 2);
    }

    #[test]
    fn values_that_round_twice_stay_in_float32() {
        let mut w = Writer::new(Options::default());
        let x = Ssa::named("%arg0".into(), &DType::F16.array_type([8]));
        let wide = w.convert(&x, DType::F32);
        assert_eq!(w.convert(&wide, DType::F16).name, x.name);
        let square = w.elementwise("multiply", &[&wide, &wide]);
        // the float32 square is not a float16, so the sum rounds a second time
        let sum = w.elementwise("add", &[&square, &wide]);
        let exponential = w.elementwise("exponential", &[&wide]);
        for value in [sum, exponential] {
            assert!(w.rounded(&value, DType::F16).is_none());
        }
        assert!(w.rounded(&square, DType::F16).is_some());
    }
}
