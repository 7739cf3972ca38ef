//! Files for `tree::read_safetensors`.

use atmesh::prelude::*;

/// Reads the bytes as a `.safetensors` file. What was read is written and read again.
pub fn check(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("atmesh-fuzz-{}.safetensors", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    if let Ok(tensors) = tree::read_safetensors(&path) {
        let nbytes: usize = tensors.values().map(|x| x.nbytes().unwrap()).sum();
        assert!(nbytes <= bytes.len());
        tree::save_safetensors(&tensors, &path).unwrap();
        let written = std::fs::read(&path).unwrap();
        let again = tree::read_safetensors(&path).unwrap();
        assert!(tensors.keys().eq(again.keys()), "the names are {:?}", again.keys());
        for (name, x) in &tensors {
            assert_eq!(x.ty().unwrap(), again[name].ty().unwrap(), "{name}");
        }
        tree::save_safetensors(&again, &path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), written);
    }
    let _ = std::fs::remove_file(&path);
}
