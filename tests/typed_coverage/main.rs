//! The typed layer beside the untyped one: each public method of `Array` has a typed form or a
//! reason for having none, and each typed form returns the bits of its untyped twin, with the type
//! that it states, on sharded operands and on each engine.
//!
//! `typed/tests/coverage.txt` lists the methods. A new method of `Array` needs a line there; a new
//! typed form needs a line in `twins.rs` too.
#![allow(clippy::type_complexity, reason = "these tests are about the types")]

#[path = "../error_checks/mod.rs"]
mod error_checks;
mod halos;
#[path = "../lexer/mod.rs"]
mod lexer;
mod methods;
mod operands;
mod twins;
mod twins_of_arrays;
mod twins_of_grids;
mod twins_of_rows;

use std::collections::{BTreeMap, BTreeSet};

/// The typed forms that return no arrays, with the tests that call them.
const ON_THE_HOST: &[&str] = &[
    "to_vec",
    "to_ndarray",
    "view",
    "item",
    "dtype",
    "size",
    "nbytes",
    "shape",
    "ty",
    "ready",
    "sharding",
    "visualize",
    "devices",
    "shards",
    "save_npy",
    "load_npy",
    "allclose",
    "allclose_with",
    "array_equal",
];
/// The typed forms of collectives and of creation, which `tests/typed/compiled.rs` compares.
const ELSEWHERE: &[&str] = &[
    "psum",
    "pmean",
    "pmax",
    "pmin",
    "all_gather",
    "psum_scatter",
    "all_to_all",
    "ppermute",
    "pvary",
    "zeros",
    "ones",
    "full",
    "iota",
];

/// The methods of the table of scalar functions: each has a typed form of its name.
macro_rules! scalar_methods {
    ([] methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* } $($rest:tt)*) => {
        const SCALAR_METHODS: &[&str] = &[$(stringify!($name)),*];
    };
}
atmesh::scalar_functions!(scalar_methods);

/// A line of the list: the method of `Array`, and the typed form or the reason for having none.
type Line = (String, Result<String, String>);

fn list() -> Vec<Line> {
    let text =
        std::fs::read_to_string(lexer::root().join("typed/tests/coverage.txt")).expect("the list is there");
    let lines = text.lines().filter(|l| !l.is_empty() && !l.starts_with('#') && !l.starts_with('['));
    let scalars = SCALAR_METHODS.iter().map(|name| (name.to_string(), Ok(name.to_string())));
    lines
        .map(|line| {
            let (method, form) = line.split_once(": ").unwrap_or_else(|| panic!("`{line}` has no `: `"));
            let form =
                form.strip_prefix("- ").map_or_else(|| Ok(form.to_string()), |why| Err(why.to_string()));
            (method.to_string(), form)
        })
        .chain(scalars)
        .collect()
}

#[test]
fn every_method_of_arrays_is_listed_once() {
    let (mut listed, mut twice) = (BTreeSet::new(), Vec::new());
    for (method, _) in list() {
        if !listed.insert(method.clone()) {
            twice.push(method);
        }
    }
    let mut found: BTreeSet<String> = methods::of("Array", &["src/api/array", "src/api/trace"]);
    found.extend(SCALAR_METHODS.iter().map(|name| name.to_string()));
    assert!(found.len() > 300, "only {} methods were found: the sources are read wrongly", found.len());
    let missing: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(twice.is_empty(), "listed twice: {twice:?}");
    assert!(missing.is_empty(), "not in typed/tests/coverage.txt: {missing:?}");
    assert!(gone.is_empty(), "in typed/tests/coverage.txt, but not methods of `Array`: {gone:?}");
}

#[test]
fn a_method_without_a_typed_form_has_none() {
    let typed = methods::of("Typed", &["src/api/typed"]);
    let stale: Vec<String> =
        list().into_iter().filter(|(m, form)| form.is_err() && typed.contains(m)).map(|l| l.0).collect();
    assert!(stale.is_empty(), "these have typed forms now: {stale:?}");
}

#[test]
fn every_typed_form_has_a_twin() {
    let forms: BTreeSet<String> = list().into_iter().filter_map(|(_, form)| form.ok()).collect();
    let mut compared: BTreeMap<&str, usize> = BTreeMap::new();
    let operands = operands::Operands::new();
    for twin in twins::all(&operands) {
        *compared.entry(twin.name).or_default() += 1;
    }
    let elsewhere = ON_THE_HOST.iter().chain(ELSEWHERE).copied();
    let known: BTreeSet<String> = compared.keys().copied().chain(elsewhere).map(str::to_string).collect();
    let missing: Vec<_> = forms.difference(&known).collect();
    assert!(missing.is_empty(), "typed forms without a case in twins.rs: {missing:?}");
    assert!(forms.len() >= 240, "{} typed forms", forms.len());
}
