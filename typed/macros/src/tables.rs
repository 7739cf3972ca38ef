//! The tables of the library's arithmetic, as macro calls with one row for each integer.

use crate::tokens::code;
use proc_macro::TokenStream;

/// Generates the calls of two macros, the tables of digit groups and of prime arithmetic.
///
/// A row of the first is `[limb, its three digits, Zero or Nonzero]`; a row of the second is
/// `[prime, carry in, digit : quotient, remainder | last digit and carry of the product]`.
pub(crate) fn decimal(input: TokenStream) -> TokenStream {
    let names: Vec<String> = input.into_iter().map(|t| t.to_string()).collect();
    let limb = |n: u32| {
        let is = if n == 0 { "Zero" } else { "Nonzero" };
        format!("[{n} {} {} {} {is}]", n / 100, n / 10 % 10, n % 10)
    };
    let limbs: String = (0..1000).map(limb).collect();
    let step = |p: u32, r: u32, d: u32| {
        let (divided, multiplied) = (r * 10 + d, d * p + r);
        format!("[{p} {r} {d} : {} {} | {} {}]", divided / p, divided % p, multiplied % 10, multiplied / 10)
    };
    let steps: String = [2, 3, 5, 7, 11, 13]
        .into_iter()
        .flat_map(|p| (0..p).flat_map(move |r| (0..10).map(move |d| step(p, r, d))))
        .collect();
    code(&format!("{}! {{ {limbs} }} {}! {{ {steps} }}", names[0], names[1]))
}
/// Generates `integer name` for the `typenum` integers below 1000.
pub(crate) fn typenums(input: TokenStream) -> TokenStream {
    let rows: String = (0..1000).map(|n| format!("{n} U{n} ")).collect();
    code(&format!("{input}! {{ {rows} }}"))
}
