//! Compares the static rules with the conformance cases.
//!
//! For every equation whose op has a rule, the test compares whether the rule holds and which type
//! it produces. A rule that does not hold is detected without a compile error: an inherent constant
//! that needs the rule takes precedence over a trait constant that does not. `agree.py` writes
//! `agreement/cases.rs`; `agreement/left_out.txt` counts the omitted cases and gives the reasons.
//! `tests/generated.rs` checks that the cases are up to date.
#![allow(dead_code, missing_docs, unreachable_pub, unused_parens)]

use std::collections::BTreeMap;

/// A case: the rule, the name of the case, the type that rustc finds, and the expected type.
pub type Case = (&'static str, &'static str, queries::Found, Option<&'static str>);

macro_rules! case {
    ($rule:ident, $name:literal, $query:ty, $expected:expr) => {
        (stringify!($rule), $name, <Probe<$query>>::FOUND, $expected)
    };
}

#[path = "agreement/queries.rs"]
pub mod queries;

#[path = "agreement/cases.rs"]
mod cases;

/// The cases that the static layer rejects on purpose: rule, number of cases, reason.
const STRICTER: &[(&str, usize, &str)] = &[
    ("Psum", 52, "a sum over an axis over which the value is the same is rarely meant: it wants `.pvary(X)`"),
    ("PsumScatter", 2, "the same"),
    ("Factor", 11, "a dim over several axes goes to several factors: `.then`"),
    ("Local", 5, "an unreduced or reduced array enters a `shard_map` by `.then`"),
    ("Reshard", 1, "a value is reduced over an axis that split it: in two steps"),
    ("Select", 5, "of unreduced or reduced values outside of `shard_map`, by a plain condition: `.then`"),
    ("Einsum", 2, "a contracted dim of size 1 does not repeat"),
    ("EinsumTo", 1, "`; R: X` has no effect on a sum: leave it out, or `reshard` the result"),
];

#[test]
fn every_case_agrees() {
    let (mut wrong, mut strict, mut accepted, mut rejected) = (Vec::new(), BTreeMap::new(), 0, 0);
    for (rule, name, found, expected) in cases::ALL.iter().flat_map(|part| part.iter()) {
        let found = queries::text(*found);
        *(if expected.is_some() { &mut accepted } else { &mut rejected }) += 1;
        if found.is_none() && expected.is_some() && STRICTER.iter().any(|s| s.0 == *rule) {
            *strict.entry(*rule).or_insert(0) += 1;
        } else if found.as_deref() != *expected {
            wrong.push(format!("{rule} {name}: rustc {found:?}, the case {expected:?}"));
        }
    }
    println!("{accepted} accepted, {rejected} rejected");
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    let listed: BTreeMap<&str, usize> = STRICTER.iter().map(|s| (s.0, s.1)).collect();
    assert_eq!(strict, listed, "rules that reject more than the cases");
    // both verdicts must occur: otherwise a probe that never holds would pass
    assert!(accepted > 6000 && rejected > 500);
}
