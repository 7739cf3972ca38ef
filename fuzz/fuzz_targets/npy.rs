//! Checks the reader of `.npy` files.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| atmesh_fuzz::npy::check(bytes));
