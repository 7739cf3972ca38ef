//! The text of `ATMESH_PJRT_OPTIONS`.
#![no_main]

use atmesh::pjrt::ClientOptions;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    if let Ok(options) = ClientOptions::parse(text) {
        for (name, _) in options.iter() {
            assert!(!name.is_empty() && !name.contains([';', '=']), "{text:?} has the option {name:?}");
        }
    }
});
