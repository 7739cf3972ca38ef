//! Protobuf messages of compiled modules, as plugins return them.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    for format in ["hlo", "hlo_with_config"] {
        atmesh::pjrt::fuzz_hlo_module(format, bytes);
    }
});
