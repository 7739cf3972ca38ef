//! Files for `tree::read_safetensors`. What was read is written and read again.
#![no_main]

use atmesh::tree;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("atmesh-fuzz-{}.safetensors", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    if let Ok(tensors) = tree::read_safetensors(&path) {
        tree::save_safetensors(&tensors, &path).unwrap();
        let again = tree::read_safetensors(&path).unwrap();
        assert_eq!(tensors.len(), again.len());
    }
});
