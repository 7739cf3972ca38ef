//! Checks the reader of `.safetensors` files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atmesh_fuzz::safetensors::check(bytes));
