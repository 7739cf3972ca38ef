//! StableHLO syntax: types, literals and lists.

use crate::core::{DType, Scalar};
use std::fmt::Display;

/// Returns the name of an element type. A PRNG key is stored as ui64.
pub(super) fn dtype(d: DType) -> &'static str {
    match d {
        DType::Bool => "i1",
        DType::I8 => "i8",
        DType::I16 => "i16",
        DType::I32 => "i32",
        DType::I64 => "i64",
        DType::U8 => "ui8",
        DType::U16 => "ui16",
        DType::U32 => "ui32",
        DType::U64 | DType::Key => "ui64",
        DType::F16 => "f16",
        DType::BF16 => "bf16",
        DType::F32 => "f32",
        DType::F64 => "f64",
        DType::C64 => "complex<f32>",
        DType::C128 => "complex<f64>",
    }
}

/// Formats a tensor type, such as `tensor<8x4xf32>`.
pub(crate) fn tensor(d: DType, shape: &[usize]) -> String {
    let dims: String = shape.iter().map(|n| format!("{n}x")).collect();
    format!("tensor<{dims}{}>", dtype(d))
}

/// Formats an element of a `dense<…>` literal. Floats that are not finite are written as bits.
pub(super) fn literal(d: DType, value: Scalar) -> String {
    match d.storage() {
        DType::Bool => (value.to_f64() != 0.0).to_string(),
        d if d.is_complex() => {
            let (x, part) = (value.to_c128(), d.real());
            format!("({}, {})", literal(part, Scalar::Float(x.re)), literal(part, Scalar::Float(x.im)))
        }
        d if d.is_float() => float(d, value),
        d => {
            // wrap the value into the range of the type
            let bits = 8 * d.size() as u32;
            let cut = value.to_i128() & ((1i128 << bits) - 1);
            let negative = d.is_signed() && cut >> (bits - 1) == 1;
            (if negative { cut - (1i128 << bits) } else { cut }).to_string()
        }
    }
}

fn float(d: DType, value: Scalar) -> String {
    let x = value.to_f64();
    let bits = |finite: bool, bits: String| if finite { decimal(x) } else { bits };
    match d {
        DType::F16 => {
            let x = value.to_f16();
            bits(x.is_finite(), format!("0x{:04X}", x.to_bits()))
        }
        DType::BF16 => {
            let x = value.to_bf16();
            bits(x.is_finite(), format!("0x{:04X}", x.to_bits()))
        }
        DType::F32 => {
            let x = value.to_f32();
            bits(x.is_finite(), format!("0x{:08X}", x.to_bits()))
        }
        _ => bits(x.is_finite(), format!("0x{:016X}", x.to_bits())),
    }
}

/// Formats a float with a point and an exponent, such as `1.0E-5`, as MLIR requires.
fn decimal(x: f64) -> String {
    let text = format!("{x:E}");
    let (mantissa, exponent) = text.split_once('E').unwrap_or((&text, "0"));
    let point = if mantissa.contains('.') { "" } else { ".0" };
    format!("{mantissa}{point}E{exponent}")
}

/// Formats a list, such as `[1, 2]`.
pub(super) fn list<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    format!("[{}]", join(items))
}
/// Joins items with commas, such as `1, 2`.
pub(super) fn join<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let mut out = String::new();
    for (k, item) in items.into_iter().enumerate() {
        out += if k == 0 { "" } else { ", " };
        out += &item.to_string();
    }
    out
}
/// Formats an array attribute, such as `array<i64: 1, 2>`.
pub(super) fn array<T: Display>(items: impl IntoIterator<Item = T>) -> String {
    let items = join(items);
    if items.is_empty() { "array<i64>".into() } else { format!("array<i64: {items}>") }
}
/// Quotes and escapes text as an MLIR string.
pub(super) fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for b in text.bytes() {
        match b {
            b'"' | b'\\' => out.extend(['\\', b.into()]),
            0x20..0x7f => out.push(b.into()),
            b => out += &format!("\\{b:02X}"),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        let float = |d, x| literal(d, Scalar::Float(x));
        assert_eq!(float(DType::F32, 1e-5), "1.0E-5");
        assert_eq!(float(DType::F32, -0.0), "-0.0E0");
        assert_eq!(float(DType::F32, f64::INFINITY), "0x7F800000");
        assert_eq!(float(DType::F32, 1e300), "0x7F800000");
        assert_eq!(float(DType::BF16, f64::NEG_INFINITY), "0xFF80");
        assert_eq!(float(DType::F64, 0.1), "1.0E-1");
        assert_eq!(literal(DType::U8, Scalar::Int(-1)), "255");
        assert_eq!(literal(DType::I8, Scalar::Int(200)), "-56");
        assert_eq!(literal(DType::Bool, Scalar::Int(2)), "true");
        assert_eq!(literal(DType::C64, Scalar::Complex(1.0, -2.5)), "(1.0E0, -2.5E0)");
        assert_eq!(quoted("a\"b\n"), "\"a\\22b\\0A\"".replace("\\22", "\\\""));
    }
}
