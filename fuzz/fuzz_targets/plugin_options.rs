//! Checks the parser of `ATMESH_PJRT_OPTIONS`.
#![no_main]

libfuzzer_sys::fuzz_target!(|text: &str| atmesh_fuzz::plugin_options::check(text));
