//! Checks the parsers of element types, types and specs.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| atmesh_fuzz::notation::check(text));
