//! Arrays as text, as numpy prints them: 8 digits, 75 columns, the middle left out above 1000 elements.

use crate::types::{DType, Element, Scalar, with_dtype};
use half::{bf16, f16};
use num_complex::Complex;
use std::fmt::Write;

/// Columns of a line.
const WIDTH: usize = 75;
/// Digits after the point.
const PRECISION: usize = 8;
/// Elements above which the middle is left out.
const THRESHOLD: usize = 1000;
/// Elements that are shown at each end then.
const EDGE: usize = 3;

/// The text of a row-major array of element type `T`.
pub(crate) fn array<T: Print>(shape: &[usize], data: &[T]) -> String {
    if shape.is_empty() {
        return data.first().map_or_else(String::new, |x| x.alone());
    }
    if data.is_empty() {
        return "[]".into();
    }
    let summary = data.len() > THRESHOLD;
    let shown: Vec<T> = positions(shape, summary).into_iter().map(|i| data[i]).collect();
    let style = T::style(&shown);
    let mut out = Layout { shape, data, style: &style, summary };
    out.text(0, 0, " ", WIDTH)
}

/// The row-major positions that are shown.
fn positions(shape: &[usize], summary: bool) -> Vec<usize> {
    let mut all = vec![0];
    for &n in shape {
        let kept: Vec<usize> =
            (0..n).filter(|i| !summary || 2 * EDGE >= n || *i < EDGE || *i >= n - EDGE).collect();
        all = all.iter().flat_map(|at| kept.iter().map(move |i| at * n + i)).collect();
    }
    all
}

struct Layout<'a, T: Print> {
    shape: &'a [usize],
    data: &'a [T],
    style: &'a T::Style,
    summary: bool,
}

impl<T: Print> Layout<'_, T> {
    /// The part of the array from dimension `axis` on that begins at `at` (counted in such parts).
    fn text(&mut self, axis: usize, at: usize, indent: &str, width: usize) -> String {
        if axis == self.shape.len() {
            return self.data[at].show(self.style);
        }
        let n = self.shape[axis];
        let cut = self.summary && 2 * EDGE < n;
        let shown: Vec<Option<usize>> = if cut {
            (0..EDGE).map(Some).chain([None]).chain((n - EDGE..n).map(Some)).collect()
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
                // a word that would not fit begins a new line, unless that does not help
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

/// Elements that can be printed.
pub(crate) trait Print: Element {
    /// What all elements shown share: widths and digits.
    type Style;
    /// The style that fits these elements.
    fn style(shown: &[Self]) -> Self::Style;
    /// An element of an array.
    fn show(&self, style: &Self::Style) -> String;
    /// A scalar.
    fn alone(&self) -> String;
}

macro_rules! whole { ($($t:ty)*) => {$(
    impl Print for $t {
        type Style = usize;
        fn style(shown: &[$t]) -> usize {
            shown.iter().map(|x| x.to_string().len()).max().unwrap_or(0)
        }
        fn show(&self, width: &usize) -> String {
            format!("{self:>width$}")
        }
        fn alone(&self) -> String {
            self.to_string()
        }
    }
)*} }
whole!(i8 i16 i32 i64 u8 u16 u32 u64);

impl Print for bool {
    type Style = ();
    fn style(_: &[bool]) {}
    fn show(&self, _: &()) -> String {
        (if *self { " True" } else { "False" }).into()
    }
    fn alone(&self) -> String {
        (if *self { "True" } else { "False" }).into()
    }
}

macro_rules! floats { ($($t:ty: $cutoff:expr, $to:expr, $of:expr, $shortest:expr;)*) => {$(
    impl Print for $t {
        type Style = FloatStyle;
        fn style(shown: &[$t]) -> FloatStyle {
            let shown: Vec<Number> = shown.iter().map(Number::of).collect();
            let (to, of): (fn($t) -> f64, fn(f64) -> $t) = ($to, $of);
            FloatStyle::fitting(&shown, $cutoff, |x| to(of(x)))
        }
        fn show(&self, style: &FloatStyle) -> String {
            style.show(&Number::of(self))
        }
        fn alone(&self) -> String {
            // float64 alone keeps its digits longer than in an array
            Number::of(self).alone(if $cutoff == 1e8 { 1e16 } else { $cutoff })
        }
    }
    impl From<&$t> for Number {
        fn from(x: &$t) -> Number {
            let to: fn($t) -> f64 = $to;
            let shortest: fn($t) -> String = $shortest;
            let value = to(*x);
            Number { value, digits: if value.is_finite() { shortest(*x) } else { String::new() } }
        }
    }
)*} }
floats! {
    f64: 1e8, |x| x, |x| x, |x| format!("{x:e}");
    f32: 1e6, f64::from, |x| x as f32, |x| format!("{x:e}");
    f16: 1e3, f64::from, |x| Scalar::Float(x).to_f16(), |x| narrow(x.into(), |y| Scalar::Float(y).to_f16().into());
    bf16: 1e3, f64::from, |x| Scalar::Float(x).to_bf16(), |x| narrow(x.into(), |y| Scalar::Float(y).to_bf16().into());
}

/// Real parts, then imaginary ones with their signs and a `j`, each with digits of its own.
impl<P: Print<Style = FloatStyle>> Print for Complex<P>
where
    Complex<P>: Element,
    for<'a> Number: From<&'a P>,
{
    type Style = [FloatStyle; 2];
    fn style(shown: &[Complex<P>]) -> [FloatStyle; 2] {
        let (re, im): (Vec<P>, Vec<P>) = shown.iter().map(|z| (z.re, z.im)).unzip();
        [P::style(&re), P::style(&im)]
    }
    fn show(&self, [re, im]: &[FloatStyle; 2]) -> String {
        let text = signed(im.show(&Number::of(&self.im)).trim_start());
        // (a sign of its own, and blanks behind the letter)
        let width = im.left + im.right + 2;
        let text = format!("{}j", text.trim_end());
        format!("{}{text:<width$}", self.re.show(re))
    }
    fn alone(&self) -> String {
        format!("({}{}j)", self.re.alone(), signed(&self.im.alone()))
    }
}

/// A number with its sign.
fn signed(text: &str) -> String {
    match text.starts_with('-') {
        true => text.into(),
        false => format!("+{text}"),
    }
}

/// The fewest digits that round to the same 16-bit number.
fn narrow(x: f64, round: fn(f64) -> f64) -> String {
    let tries = (0..8).map(|p| format!("{x:.p$e}"));
    let fits = |s: &String| s.parse::<f64>().is_ok_and(|y| round(y) == x);
    tries.into_iter().find(fits).unwrap_or_else(|| format!("{x:e}"))
}

/// A float: its value, and the fewest digits that tell it from its neighbours, as `d.ddde-n`.
pub(crate) struct Number {
    value: f64,
    digits: String,
}

impl Number {
    fn of<'a, T>(x: &'a T) -> Number
    where
        Number: From<&'a T>,
    {
        Number::from(x)
    }
    /// The digits before and behind the point, at most `PRECISION` of these, no zeros at the end.
    fn positional(&self) -> (String, String) {
        let (sign, digits, exponent) = self.parts();
        let behind = (digits.len() as i32 - 1 - exponent).max(0) as usize;
        if behind > PRECISION {
            let text = format!("{:.PRECISION$}", self.value);
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
    /// The digit before the point with its sign, those behind it, and the exponent as `+05`.
    fn scientific(&self) -> (String, String, String) {
        let (sign, digits, exponent) = self.parts();
        if digits.len() - 1 > PRECISION {
            let text = format!("{:.PRECISION$e}", self.value);
            let (number, exponent) = text.split_once('e').unwrap_or((&text, "0"));
            let (int, frac) = number.split_once('.').unwrap_or((number, ""));
            let exponent = exponent.parse().unwrap_or(0);
            return (int.into(), frac.trim_end_matches('0').into(), power(exponent));
        }
        (format!("{sign}{}", &digits[..1]), digits[1..].into(), power(exponent))
    }
    /// Sign, digits and the exponent of the first.
    fn parts(&self) -> (&'static str, String, i32) {
        let (number, exponent) = self.digits.split_once('e').unwrap_or((&self.digits, "0"));
        let sign = if number.starts_with('-') { "-" } else { "" };
        let mut digits: String = number.chars().filter(char::is_ascii_digit).collect();
        let kept = digits.trim_end_matches('0').len().max(1);
        digits.truncate(kept);
        (sign, digits, exponent.parse().unwrap_or(0))
    }
    /// As a scalar prints: all digits, scientific below 1e-4 and from `cutoff` on.
    fn alone(&self, cutoff: f64) -> String {
        let x = self.value.abs();
        if !x.is_finite() {
            return special(self.value).into();
        }
        let (sign, digits, exponent) = self.parts();
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

/// How the floats of an array are shown.
pub(crate) struct FloatStyle {
    scientific: bool,
    /// Columns before the point.
    left: usize,
    /// Columns behind the point (with the exponent).
    right: usize,
    /// Digits behind the point, where numbers are scientific.
    digits: usize,
    /// Digits of the exponent.
    exponent: usize,
}

impl FloatStyle {
    /// Scientific from `cutoff` on, below 1e-4, or where sizes differ by more than 1000; `round` rounds to the element type.
    fn fitting(shown: &[Number], cutoff: f64, round: impl Fn(f64) -> f64) -> FloatStyle {
        let finite = || shown.iter().filter(|x| x.value.is_finite());
        let sizes = || finite().map(|x| x.value.abs()).filter(|x| *x != 0.0);
        let most = sizes().fold(0.0, f64::max);
        let least = sizes().fold(f64::INFINITY, f64::min);
        let mut style = FloatStyle { scientific: false, left: 0, right: 0, digits: 0, exponent: 0 };
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
    fn show(&self, x: &Number) -> String {
        let (left, right) = (self.left, self.right);
        if !x.value.is_finite() {
            let width = left + right + 1;
            return format!("{:>width$}", special(x.value));
        }
        if self.scientific {
            // all have the digits of the longest one, so these are of the number itself
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

/// The text of elements of any type, from the bytes of their storage.
pub(crate) fn slab(dtype: DType, slab: &crate::runtime::Slab) -> String {
    let shape = slab.shape();
    if dtype == DType::Key {
        // a key prints as its two words
        let words = slab.elements::<u64>().iter().flat_map(|k| [*k as u32, (*k >> 32) as u32]);
        let words: Vec<u32> = words.collect();
        let shape: Vec<usize> = shape.iter().copied().chain([2]).collect();
        return array(&shape, &words);
    }
    with_dtype!(dtype, T => array::<T>(shape, slab.elements()))
}
