//! The tables of the library's decimal arithmetic, as impls of traits with one associated type for
//! each case.
//!
//! A number is a list of its digits, the ones digit first: `Digit8<Digit2<NoDigits>>` is 28. The
//! node of a digit `d` knows the results of all operations of `d` with another digit, so that rustc
//! finds each digit of a result without a search among impls.

use proc_macro::TokenStream;
use std::fmt::Write;

const PRIMES: [u32; 6] = [2, 3, 5, 7, 11, 13];

fn parsed(text: &str) -> TokenStream {
    text.parse().expect("the tables are well-formed code")
}
/// Formats the node of a digit before the list `tail`. A leading zero is left out.
fn node(digit: u32, tail: &str) -> String {
    match digit {
        0 => format!("<{tail} as DigitList>::Shifted"),
        _ => format!("Digit{digit}<{tail}>"),
    }
}

/// The associated types of `DigitList` that have an entry for each digit: declarations, and the
/// definitions for the empty list, for the node of a digit, and for a number below zero.
#[derive(Default)]
struct Tables {
    declared: String,
    empty: String,
    nodes: [String; 10],
    negative: String,
}
impl Tables {
    /// Adds an associated type: its name and parameters, and its definitions.
    fn add(&mut self, name: &str, empty: &str, negative: &str, of_digit: impl Fn(u32) -> String) {
        let bound = if negative == "Self" { ": DigitList" } else { "" };
        let _ = write!(self.declared, "type {name}{bound};");
        let _ = write!(self.empty, "type {name} = {empty};");
        let _ = write!(self.negative, "type {name} = {negative};");
        for (digit, node) in self.nodes.iter_mut().enumerate() {
            let _ = write!(node, "type {name} = {};", of_digit(digit as u32));
        }
    }
    /// Adds sums and differences: `Self` is the second operand, the first one is `a` before `U`.
    fn sums(&mut self) {
        for (name, carry) in [("Sum", 0), ("SumCarry", 1)] {
            let empty = if carry == 0 { "L" } else { "L::Next" };
            self.add(&format!("{name}<L: DigitList>"), empty, "Self", |b| format!("L::{name}After{b}<T>"));
            for a in 0..10 {
                let empty =
                    if a + carry == 10 { "Digit0<U::Next>".into() } else { format!("Digit{}<U>", a + carry) };
                self.add(&format!("{name}After{a}<U: DigitList>"), &empty, "Self", |b| {
                    let rest = if a + b + carry > 9 { "SumCarry" } else { "Sum" };
                    format!("Digit{}<U::{rest}<T>>", (a + b + carry) % 10)
                });
            }
        }
        self.add("Next", "Digit1<NoDigits>", "Self", |b| match b {
            9 => "Digit0<T::Next>".into(),
            _ => format!("Digit{}<T>", b + 1),
        });
    }
    fn differences(&mut self) {
        let less_one = |a: u32, tail: &str| match a {
            0 => format!("Digit9<{tail}::Previous>"),
            _ => node(a - 1, tail),
        };
        for (name, borrow) in [("Difference", 0), ("DifferenceBorrow", 1)] {
            let empty = if borrow == 0 { "L::Negated" } else { "BelowZero" };
            self.add(&format!("{name}<L: DigitList>"), empty, "Self", |b| format!("L::{name}After{b}<T>"));
            for a in 0..10 {
                let empty = if borrow == 0 { format!("Digit{a}<U>") } else { less_one(a, "U") };
                self.add(&format!("{name}After{a}<U: DigitList>"), &empty, "Self", |b| {
                    let rest = if a < b + borrow { "DifferenceBorrow" } else { "Difference" };
                    node((10 + a - b - borrow) % 10, &format!("U::{rest}<T>"))
                });
            }
        }
        self.add("Previous", "BelowZero", "Self", |b| less_one(b, "T"));
        self.add("Negated", "NoDigits", "Self", |_| "BelowZero".into());
    }
    /// Adds products: `Times7Carry3` is 7 · `Self` + 3.
    fn products(&mut self) {
        self.add("Shifted", "NoDigits", "Self", |_| "Digit0<Self>".into());
        self.add("Product<L: DigitList>", "NoDigits", "Self", |b| match b {
            0 => "<T::Product<L> as DigitList>::Shifted".into(),
            _ => format!("<L::Times{b}Carry0 as DigitList>::Sum<<T::Product<L> as DigitList>::Shifted>"),
        });
        for p in 1..10 {
            for carry in 0..p {
                let empty = if carry == 0 { "NoDigits".into() } else { node(carry, "NoDigits") };
                self.add(&format!("Times{p}Carry{carry}"), &empty, "Self", |b| {
                    let v = p * b + carry;
                    format!("Digit{}<T::Times{p}Carry{}>", v % 10, v / 10)
                });
            }
        }
    }
    /// Adds quotients by primes, and the conversion of three digits to a group.
    fn quotients_and_groups(&mut self) {
        for p in PRIMES {
            let name = format!("Quotient{p}");
            let _ = write!(self.declared, "type {name}: QuotientDigits;");
            let _ = write!(self.empty, "type {name} = Rest0<NoDigits>;");
            let _ = write!(self.negative, "type {name} = Rest0<Self>;");
            for (b, text) in self.nodes.iter_mut().enumerate() {
                let _ = write!(text, "type {name} = <T::{name} as QuotientDigits>::Push{p}And{b};");
            }
        }
        self.add("Groups<F: GroupList>", "F::Push<0, NoDigits>", "TooLarge", |b| format!("T::GroupOf{b}<F>"));
        for b in 0..10 {
            let put = format!("F::Push<{b}, NoDigits>");
            self.add(&format!("GroupOf{b}<F: GroupList>"), &put, "TooLarge", |d| {
                format!("T::GroupOf{d}And{b}<F>")
            });
        }
        for n in 0..100 {
            let (tens, ones) = (n / 10, n % 10);
            let put = format!("F::Push<{n}, NoDigits>");
            self.add(&format!("GroupOf{tens}And{ones}<F: GroupList>"), &put, "TooLarge", |d| {
                format!("F::Push<{}, T>", d * 100 + n)
            });
        }
    }
}

/// Generates the traits `DigitList` and `QuotientDigits`, a quotient with a remainder.
pub(crate) fn digits() -> TokenStream {
    let mut all = Tables::default();
    all.sums();
    all.differences();
    all.products();
    all.quotients_and_groups();
    // the next group, after groups that are already known
    let next = ["A", "A, B", "A, B, C", "A, B, C, E"];
    for (i, names) in next.iter().enumerate() {
        let parameters: String = names.split(", ").map(|n| format!("const {n}: u16,")).collect();
        let (number, sink) = (["Num", "K", "M", "G"][i], i + 1);
        let _ = write!(all.declared, "type Groups{sink}<{parameters}>;");
        let _ = write!(all.empty, "type Groups{sink}<{parameters}> = {number}<{names}>;");
        let _ = write!(all.negative, "type Groups{sink}<{parameters}> = TooLarge;");
        for (b, text) in all.nodes.iter_mut().enumerate() {
            let more =
                if i == 3 { "TooLarge".into() } else { format!("T::GroupOf{b}<Groups{sink}<{names}>>") };
            let _ = write!(text, "type Groups{sink}<{parameters}> = {more};");
        }
    }
    let Tables { declared, empty, nodes, negative } = all;
    let mut out = format!(
        "/// The digits of a number, the ones digit first, and their arithmetic.
        #[allow(missing_docs)] pub trait DigitList: crate::sealed::Sealed {{ {declared} }}
        impl DigitList for NoDigits {{ {empty} }}
        impl DigitList for BelowZero {{ {negative} }}"
    );
    for (b, text) in nodes.iter().enumerate() {
        let _ = write!(
            out,
            "/// The digit {b}, before the more significant digits `T`.
            pub struct Digit{b}<T>(PhantomData<T>);
            impl<T> crate::sealed::Sealed for Digit{b}<T> {{}}
            impl<T: DigitList> DigitList for Digit{b}<T> {{ {text} }}"
        );
    }
    parsed(&(out + &remainders()))
}
/// Generates `QuotientDigits` and the remainders 0 to 12.
fn remainders() -> String {
    let mut declared = String::new();
    let mut impls = String::new();
    let steps = || PRIMES.into_iter().flat_map(|p| (0..10).map(move |d| (p, d)));
    for (p, d) in steps() {
        let _ = write!(declared, "type Push{p}And{d}: QuotientDigits;");
    }
    for r in 0..13 {
        let mut text = String::new();
        for (p, d) in steps() {
            // remainders are less than the divisor
            let n = if r < p { r * 10 + d } else { 0 };
            let _ = write!(text, "type Push{p}And{d} = Rest{}<{}>;", n % p, node(n / p, "T"));
        }
        let _ = write!(
            impls,
            "/// The quotient `T` of a division that leaves the remainder {r}.
            pub struct Rest{r}<T>(PhantomData<T>);
            impl<T> crate::sealed::Sealed for Rest{r}<T> {{}}
            impl<T: DigitList> QuotientDigits for Rest{r}<T> {{
                type Quotient = T; type Rest = R<{r}>; {text}
            }}"
        );
    }
    format!(
        "/// A quotient with a remainder, and the next step of a long division.
        #[allow(missing_docs)] pub trait QuotientDigits: crate::sealed::Sealed {{
            type Quotient: DigitList; type Rest; {declared}
        }} {impls}"
    )
}

/// Generates the digits of all groups of three digits.
pub(crate) fn groups() -> TokenStream {
    let mut out = String::new();
    for n in 0..1000 {
        let (a, b, c) = (n / 100, n / 10 % 10, n % 10);
        let leading = match n {
            0 => "NoDigits".into(),
            1..10 => format!("Digit{c}<NoDigits>"),
            10..100 => format!("Digit{c}<Digit{b}<NoDigits>>"),
            _ => format!("Digit{c}<Digit{b}<Digit{a}<NoDigits>>>"),
        };
        let _ = write!(
            out,
            "impl GroupDigits for Group<{n}> {{
                type Leading = {leading};
                type Before<T: DigitList> = Digit{c}<Digit{b}<Digit{a}<T>>>;
            }}"
        );
    }
    parsed(&out)
}
/// Generates `integer name` for the `typenum` integers below 1000.
pub(crate) fn typenums(input: TokenStream) -> TokenStream {
    let rows: String = (0..1000).map(|n| format!("{n} U{n} ")).collect();
    parsed(&format!("{input}! {{ {rows} }}"))
}
