//! The texts of programs: their fingerprints, and the first difference of two of them.
//!
//! A line of a text may end with its source location, ` loc("src/main.rs":20:9)`, which is not part
//! of the program: the same program may be compiled at different lines.

use super::progress::{FNV_START, fnv};
use std::borrow::Cow;

/// The maximum length of a line in a message, and the part of it before the difference, in
/// characters.
const MAX_SHOWN: usize = 160;
const SHOWN_BEFORE: usize = 60;

/// Returns a line without the location at its end, and the location: `src/main.rs:20`.
fn split_location(line: &str) -> (&str, Option<String>) {
    let Some((code, location)) = line.rsplit_once(" loc(").filter(|(_, rest)| rest.ends_with(')')) else {
        return (line, None);
    };
    // the file is the last name in quotes: `"scope"("src/main.rs":20:9)`
    let shown = location.rsplit_once("\":").and_then(|(before, numbers)| {
        let file = before.rsplit_once('"').map_or(before, |(_, file)| file);
        let line = numbers.split(':').next()?;
        Some(format!("{file}:{line}"))
    });
    (code, shown)
}

/// Returns the hash of a program, which its source locations do not change.
pub(crate) fn fingerprint(text: &str, options: &[u8]) -> u64 {
    let hash =
        text.lines().fold(FNV_START, |hash, line| fnv(fnv(hash, split_location(line).0.as_bytes()), b"\n"));
    fnv(hash, options)
}

/// The first difference of two texts.
#[derive(Debug, PartialEq)]
pub(super) struct TextDifference {
    /// The number of the line; the first is 1.
    pub(super) line: usize,
    /// The line of each text, without blanks at its ends, and its source location.
    pub(super) sides: [(String, Option<String>); 2],
}

/// Returns the first difference of two texts, apart from source locations.
pub(super) fn first_difference(one: &str, other: &str) -> Option<TextDifference> {
    let (mut a, mut b) = (one.lines(), other.lines());
    let mut line = 0;
    loop {
        line += 1;
        let (a, b) = match (a.next(), b.next()) {
            (None, None) => return None,
            (a, b) => (a.map(split_location), b.map(split_location)),
        };
        if a.as_ref().map(|a| a.0) == b.as_ref().map(|b| b.0) {
            continue;
        }
        let side = |own: Option<(&str, Option<String>)>, other: Option<&str>| match own {
            Some((code, location)) => {
                (excerpt(code.trim(), other.unwrap_or("").trim()).into_owned(), location)
            }
            None => ("the end of the program".into(), None),
        };
        let (a_code, b_code) = (a.as_ref().map(|a| a.0), b.as_ref().map(|b| b.0));
        return Some(TextDifference { line, sides: [side(a, b_code), side(b, a_code)] });
    }
}

/// Returns a line, or its part around the first difference if it is long.
fn excerpt<'a>(line: &'a str, other: &str) -> Cow<'a, str> {
    if line.chars().count() <= MAX_SHOWN {
        return line.into();
    }
    let same = line.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let start = same.saturating_sub(SHOWN_BEFORE);
    let shown: String = line.chars().skip(start).take(MAX_SHOWN).collect();
    let dots = |is_cut: bool| if is_cut { "…" } else { "" };
    let is_last = line.chars().count() <= start + MAX_SHOWN;
    format!("{}{shown}{}", dots(start > 0), dots(!is_last)).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ADD: &str = "module {\n  %0 = stablehlo.add %a, %a : tensor<4xf32> loc(\"src/main.rs\":20:9)\n}\n";

    #[test]
    fn locations_are_not_part_of_a_program() {
        let moved = ADD.replace("20:9", "31:5");
        assert_eq!(fingerprint(ADD, b"x"), fingerprint(&moved, b"x"));
        assert_eq!(first_difference(ADD, &moved), None);
        let scoped = ADD.replace("loc(\"src/main.rs\":20:9)", "loc(\"layer\"(\"src/main.rs\":20:9))");
        assert_eq!(fingerprint(ADD, b""), fingerprint(&scoped, b""));
        assert_eq!(split_location(scoped.lines().nth(1).unwrap()).1.as_deref(), Some("src/main.rs:20"));
        assert_ne!(fingerprint(ADD, b"x"), fingerprint(ADD, b"y"));
    }

    #[test]
    fn the_first_difference_has_both_lines() {
        let other = ADD.replace("add", "multiply").replace("20:9", "31:5");
        assert_ne!(fingerprint(ADD, b""), fingerprint(&other, b""));
        let TextDifference { line, sides: [one, two] } = first_difference(ADD, &other).unwrap();
        assert_eq!(line, 2);
        assert_eq!(one, ("%0 = stablehlo.add %a, %a : tensor<4xf32>".into(), Some("src/main.rs:20".into())));
        assert_eq!(two.1.as_deref(), Some("src/main.rs:31"));
        let end = first_difference(ADD, &format!("{ADD}more\n")).unwrap();
        assert_eq!((end.line, &*end.sides[0].0, &*end.sides[1].0), (4, "the end of the program", "more"));
    }

    #[test]
    fn long_lines_are_cut_around_the_difference() {
        let long = |middle: &str| format!("{}{middle}{}", "ä".repeat(500), "b".repeat(500));
        let [one, _] = first_difference(&long("X"), &long("Y")).unwrap().sides;
        let shown = one.0;
        assert!(shown.starts_with("…ä") && shown.ends_with("b…") && shown.contains("äX"), "{shown}");
        assert_eq!(shown.chars().count(), MAX_SHOWN + 2);
    }
}
