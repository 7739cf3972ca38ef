//! Formats arrays as text in numpy's style.
//!
//! Floats have at most 8 digits after the point, lines have at most 75 columns, and arrays of more
//! than 1000 elements are summarised.

use crate::core::{DType, Element, Scalar, types::with_dtype};
use crate::exec::runtime::ArrayData;
use half::{bf16, f16};
use num_complex::Complex;
use std::fmt::Write;

/// The maximum number of columns in a line.
const MAX_LINE_COLUMNS: usize = 75;
/// The maximum number of digits after the decimal point.
const MAX_FRACTION_DIGITS: usize = 8;
/// The maximum number of elements printed in full; larger arrays are summarised.
const MAX_FULL_ELEMENTS: usize = 1000;
/// The number of elements printed at each end of a dimension in a summary.
const EDGE_ELEMENTS: usize = 3;

/// Formats a row-major array of element type `T`.
///
/// With `precision`, floats are positional and have that number of digits after the point.
pub(crate) fn array<T: Print>(shape: &[usize], data: &[T], precision: Option<usize>) -> String {
    if shape.is_empty() {
        return data.first().map_or_else(String::new, |x| match precision {
            None => x.scalar_text(),
            Some(_) => x.element_text(&T::style(&[*x], precision)).trim().into(),
        });
    }
    if data.is_empty() {
        return "[]".into();
    }
    let summary = data.len() > MAX_FULL_ELEMENTS;
    let shown: Vec<T> = positions(shape, summary).into_iter().map(|i| data[i]).collect();
    let style = T::style(&shown, precision);
    let out = ArrayText { shape, element: &|i| data[i].element_text(&style), summary };
    out.text(0, 0, " ", MAX_LINE_COLUMNS)
}

/// Returns the row-major positions of the elements that are printed.
fn positions(shape: &[usize], summary: bool) -> Vec<usize> {
    let mut all = vec![0];
    for &n in shape {
        let kept: Vec<usize> = (0..n)
            .filter(|i| !summary || 2 * EDGE_ELEMENTS >= n || *i < EDGE_ELEMENTS || *i >= n - EDGE_ELEMENTS)
            .collect();
        all = all.iter().flat_map(|at| kept.iter().map(move |i| at * n + i)).collect();
    }
    all
}

struct ArrayText<'a> {
    shape: &'a [usize],
    /// Formats the element at a row-major position.
    element: &'a dyn Fn(usize) -> String,
    summary: bool,
}

impl ArrayText<'_> {
    /// Formats the sub-array of the dimensions from `axis` on; `at` is its linear index.
    fn text(&self, axis: usize, at: usize, indent: &str, width: usize) -> String {
        if axis == self.shape.len() {
            return (self.element)(at);
        }
        let n = self.shape[axis];
        let cut = self.summary && 2 * EDGE_ELEMENTS < n;
        let shown: Vec<Option<usize>> = if cut {
            (0..EDGE_ELEMENTS).map(Some).chain([None]).chain((n - EDGE_ELEMENTS..n).map(Some)).collect()
        } else {
            (0..n).map(Some).collect()
        };
        let inner_indent = format!("{indent} ");
        let last = axis + 1 == self.shape.len();
        let mut s = String::new();
        let mut line = indent.to_string();
        for (k, item) in shown.iter().enumerate() {
            let word = match item {
                Some(i) => self.text(axis + 1, at * n + i, &inner_indent, width - 1),
                None => "...".to_string(),
            };
            if last {
                // wrap a word that does not fit, unless the line is empty
                if line.len() + word.len() > width - 1 && line.len() > indent.len() {
                    s.push_str(line.trim_end());
                    s.push('\n');
                    line = indent.to_string();
                }
                line.push_str(&word);
                if k + 1 < shown.len() {
                    line.push(' ');
                }
            } else {
                s.push_str(indent);
                s.push_str(&word);
                if k + 1 < shown.len() {
                    s.push_str(&"\n".repeat(self.shape.len() - axis - 1));
                }
            }
        }
        if last {
            s.push_str(&line);
        }
        format!("[{}]", &s[indent.len()..])
    }
}

/// An element type that can be printed.
pub(crate) trait Print: Element {
    /// The formatting that all printed elements share: widths and numbers of digits.
    type Style;
    /// Returns the formatting that fits these elements.
    fn style(shown: &[Self], precision: Option<usize>) -> Self::Style;
    /// Formats an element of an array.
    fn element_text(&self, style: &Self::Style) -> String;
    /// Formats a scalar.
    fn scalar_text(&self) -> String;
}

macro_rules! integers { ($($t:ty)*) => {$(
    impl Print for $t {
        type Style = usize;
        fn style(shown: &[$t], _: Option<usize>) -> usize {
            shown.iter().map(|x| x.to_string().len()).max().unwrap_or(0)
        }
        fn element_text(&self, width: &usize) -> String {
            format!("{self:>width$}")
        }
        fn scalar_text(&self) -> String {
            self.to_string()
        }
    }
)*} }
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

impl Print for bool {
    type Style = ();
    fn style(_: &[bool], _: Option<usize>) {}
    fn element_text(&self, _: &()) -> String {
        (if *self { " True" } else { "False" }).into()
    }
    fn scalar_text(&self) -> String {
        (if *self { "True" } else { "False" }).into()
    }
}

macro_rules! floats { ($($t:ty: $cutoff:expr, $to:expr, $of:expr, $shortest:expr;)*) => {$(
    impl Print for $t {
        type Style = FloatStyle;
        fn style(shown: &[$t], precision: Option<usize>) -> FloatStyle {
            let shown: Vec<FloatDigits> = shown.iter().map(FloatDigits::new).collect();
            if let Some(digits) = precision {
                return FloatStyle::fixed(&shown, digits);
            }
            let (to, of): (fn($t) -> f64, fn(f64) -> $t) = ($to, $of);
            FloatStyle::fitting(&shown, $cutoff, |x| to(of(x)))
        }
        fn element_text(&self, style: &FloatStyle) -> String {
            style.show(&FloatDigits::new(self))
        }
        fn scalar_text(&self) -> String {
            // a float64 scalar is positional up to 1e16, but the elements of an array only up to
            // 1e8
            FloatDigits::new(self).scalar_text(if $cutoff == 1e8 { 1e16 } else { $cutoff })
        }
    }
    impl From<&$t> for FloatDigits {
        fn from(x: &$t) -> FloatDigits {
            let to: fn($t) -> f64 = $to;
            let shortest: fn($t) -> String = $shortest;
            let value = to(*x);
            FloatDigits { value, digits: if value.is_finite() { shortest(*x) } else { String::new() } }
        }
    }
)*} }
floats! {
    f64: 1e8, |x| x, |x| x, |x| format!("{x:e}");
    f32: 1e6, f64::from, |x| x as f32, |x| format!("{x:e}");
    f16: 1e3, f64::from, |x| Scalar::Float(x).to_f16(), |x| narrow(x.into(), |y| Scalar::Float(y).to_f16().into());
    bf16: 1e3, f64::from, |x| Scalar::Float(x).to_bf16(), |x| narrow(x.into(), |y| Scalar::Float(y).to_bf16().into());
}

/// Formats the real part, then the imaginary part with its sign and a `j`.
/// The two parts have separate numbers of digits.
impl<P: Print<Style = FloatStyle>> Print for Complex<P>
where
    Complex<P>: Element,
    for<'a> FloatDigits: From<&'a P>,
{
    type Style = [FloatStyle; 2];
    fn style(shown: &[Complex<P>], precision: Option<usize>) -> [FloatStyle; 2] {
        let (re, im): (Vec<P>, Vec<P>) = shown.iter().map(|z| (z.re, z.im)).unzip();
        [P::style(&re, precision), P::style(&im, precision)]
    }
    fn element_text(&self, [re, im]: &[FloatStyle; 2]) -> String {
        let text = signed(im.show(&FloatDigits::new(&self.im)).trim_start());
        // one column more for the sign, and blanks after the `j`
        let width = im.left + im.right + 2;
        let text = format!("{}j", text.trim_end());
        format!("{}{text:<width$}", self.re.element_text(re))
    }
    fn scalar_text(&self) -> String {
        format!("({}{}j)", self.re.scalar_text(), signed(&self.im.scalar_text()))
    }
}

/// Prepends a plus sign unless the number is negative.
fn signed(text: &str) -> String {
    if text.starts_with('-') { text.into() } else { format!("+{text}") }
}

/// Returns the shortest decimal that rounds to the same 16-bit float.
fn narrow(x: f64, round: fn(f64) -> f64) -> String {
    let tries = (0..8).map(|p| format!("{x:.p$e}"));
    let fits = |s: &String| s.parse::<f64>().is_ok_and(|y| round(y) == x);
    tries.into_iter().find(fits).unwrap_or_else(|| format!("{x:e}"))
}

/// A float with its shortest decimal representation, such as `d.ddde-n`.
/// This is the shortest one that distinguishes the value from its neighbours.
pub(crate) struct FloatDigits {
    value: f64,
    digits: String,
}

impl FloatDigits {
    fn new<'a, T>(x: &'a T) -> FloatDigits
    where
        FloatDigits: From<&'a T>,
    {
        FloatDigits::from(x)
    }
    /// Returns the digits before and after the decimal point.
    /// There are at most [`MAX_FRACTION_DIGITS`] digits after the point, without trailing zeros.
    fn positional(&self) -> (String, String) {
        let (sign, digits, exponent) = self.decompose();
        let decimals = (digits.len() as i32 - 1 - exponent).max(0) as usize;
        if decimals > MAX_FRACTION_DIGITS {
            let text = format!("{:.MAX_FRACTION_DIGITS$}", self.value);
            let (int, frac) = text.split_once('.').unwrap_or((&text, ""));
            return (int.into(), frac.trim_end_matches('0').into());
        }
        let mut int = sign.to_string();
        let mut frac = String::new();
        if exponent < 0 {
            int.push('0');
            frac.push_str(&"0".repeat((-exponent - 1) as usize));
            frac.push_str(&digits);
        } else {
            let e = exponent as usize + 1;
            let split = e.min(digits.len());
            int.push_str(&digits[..split]);
            int.push_str(&"0".repeat(e - split));
            frac.push_str(&digits[split..]);
        }
        (int, frac.trim_end_matches('0').into())
    }
    /// Returns the signed digit before the point, the digits after it, and an exponent like `+05`.
    fn scientific(&self) -> (String, String, String) {
        let (sign, digits, exponent) = self.decompose();
        if digits.len() - 1 > MAX_FRACTION_DIGITS {
            let text = format!("{:.MAX_FRACTION_DIGITS$e}", self.value);
            let (number, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (int, frac) = number.split_once('.').unwrap_or((number, ""));
            let exponent = exponent.parse().unwrap_or(0);
            return (int.into(), frac.trim_end_matches('0').into(), power(exponent));
        }
        (format!("{sign}{}", &digits[..1]), digits[1..].into(), power(exponent))
    }
    /// Returns the sign, the significant digits, and the exponent of the first digit.
    fn decompose(&self) -> (&'static str, String, i32) {
        let (number, exponent) = self.digits.split_once('e').unwrap_or((&self.digits, "0"));
        let sign = if number.starts_with('-') { "-" } else { "" };
        let mut digits: String = number.chars().filter(char::is_ascii_digit).collect();
        let kept = digits.trim_end_matches('0').len().max(1);
        digits.truncate(kept);
        (sign, digits, exponent.parse().unwrap_or(0))
    }
    /// Formats a scalar with all its digits.
    /// The notation is scientific below 1e-4 and from `cutoff` on.
    fn scalar_text(&self, cutoff: f64) -> String {
        let x = self.value.abs();
        if !x.is_finite() {
            return special(self.value).into();
        }
        let (sign, digits, exponent) = self.decompose();
        if x != 0.0 && !(1e-4..cutoff).contains(&x) {
            let behind = if digits.len() > 1 { format!(".{}", &digits[1..]) } else { String::new() };
            return format!("{sign}{}{behind}e{}", &digits[..1], power(exponent));
        }
        let mut s = sign.to_string();
        if exponent < 0 {
            let _ = write!(s, "0.{}{digits}", "0".repeat((-exponent - 1) as usize));
        } else {
            let e = exponent as usize + 1;
            let split = e.min(digits.len());
            let behind = if digits.len() > split { &digits[split..] } else { "0" };
            let _ = write!(s, "{}{}.{behind}", &digits[..split], "0".repeat(e - split));
        }
        s
    }
}

fn power(exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{sign}{:02}", exponent.abs())
}

fn special(x: f64) -> &'static str {
    if x.is_nan() {
        "nan"
    } else if x < 0.0 {
        "-inf"
    } else {
        "inf"
    }
}

/// The formatting of the floats of an array.
pub(crate) struct FloatStyle {
    scientific: bool,
    /// The number of columns before the decimal point.
    left: usize,
    /// The number of columns after the decimal point, including the exponent.
    right: usize,
    /// The number of digits after the point in scientific notation.
    digits: usize,
    /// The number of digits of the exponent.
    exponent: usize,
    /// The number of digits after the point that the user asked for.
    precision: Option<usize>,
}

impl FloatStyle {
    /// Returns the formatting with this number of digits after the point.
    fn fixed(shown: &[FloatDigits], digits: usize) -> FloatStyle {
        let width = |x: &FloatDigits| {
            if x.value.is_finite() { format!("{:.digits$}", x.value).len() } else { special(x.value).len() }
        };
        let widest = shown.iter().map(width).max().unwrap_or(0);
        let left = widest.saturating_sub(digits + usize::from(digits > 0));
        FloatStyle { scientific: false, left, right: digits, digits: 0, exponent: 0, precision: Some(digits) }
    }
    /// Returns the formatting that fits these elements; `round` rounds to the element type.
    /// The notation is scientific if a magnitude is below 1e-4 or at least `cutoff`, or if
    /// magnitudes differ by a factor of more than 1000.
    fn fitting(shown: &[FloatDigits], cutoff: f64, round: impl Fn(f64) -> f64) -> FloatStyle {
        let finite = || shown.iter().filter(|x| x.value.is_finite());
        let sizes = || finite().map(|x| x.value.abs()).filter(|x| *x != 0.0);
        let most = sizes().fold(0.0, f64::max);
        let least = sizes().fold(f64::INFINITY, f64::min);
        let mut style =
            FloatStyle { scientific: false, left: 0, right: 0, digits: 0, exponent: 0, precision: None };
        style.scientific =
            most > 0.0 && (most >= cutoff || least < round(1e-4) || round(most / least) > 1000.0);
        for x in finite() {
            if style.scientific {
                let (int, frac, exponent) = x.scientific();
                style.left = style.left.max(int.len());
                style.digits = style.digits.max(frac.len());
                style.exponent = style.exponent.max(exponent.len() - 1);
            } else {
                let (int, frac) = x.positional();
                style.left = style.left.max(int.len());
                style.right = style.right.max(frac.len());
            }
        }
        if style.scientific {
            style.right = style.exponent + 2 + style.digits;
        }
        for x in shown.iter().filter(|x| !x.value.is_finite()) {
            style.left = style.left.max(special(x.value).len().saturating_sub(style.right + 1));
        }
        style
    }
    fn show(&self, x: &FloatDigits) -> String {
        let (left, right) = (self.left, self.right);
        let width = left + right + usize::from(self.precision != Some(0));
        if !x.value.is_finite() {
            return format!("{:>width$}", special(x.value));
        }
        if let Some(digits) = self.precision {
            return format!("{:>width$.digits$}", x.value);
        }
        if self.scientific {
            // all elements get as many digits as the longest one, so round the value instead of
            // padding
            let (digits, width) = (self.digits, self.exponent);
            let text = format!("{:.digits$e}", x.value);
            let (number, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let point = if digits == 0 { "." } else { "" };
            let number = format!("{number}{point}");
            let left = left + 1 + digits;
            let (sign, power) = match exponent.strip_prefix('-') {
                Some(power) => ('-', power),
                None => ('+', exponent),
            };
            return format!("{number:>left$}e{sign}{power:0>width$}");
        }
        let (int, frac) = x.positional();
        format!("{int:>left$}.{frac:<right$}")
    }
}

/// Formats an array of any element type, given the data as stored.
pub(crate) fn array_data(dtype: DType, slab: &ArrayData) -> String {
    array_data_with(dtype, slab, None)
}

/// Formats an array of any element type, with this number of digits after the points of floats.
pub(crate) fn array_data_with(dtype: DType, slab: &ArrayData, precision: Option<usize>) -> String {
    let shape = slab.shape();
    if dtype == DType::Key {
        // a PRNG key is printed as its two words
        let words = slab.elements::<u64>().iter().flat_map(|k| [*k as u32, (*k >> 32) as u32]);
        let words: Vec<u32> = words.collect();
        let shape: Vec<usize> = shape.iter().copied().chain([2]).collect();
        return array(&shape, &words, None);
    }
    with_dtype!(dtype, T => array::<T>(shape, slab.elements(), precision))
}
