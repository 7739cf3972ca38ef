//! Files for `Array::load_npy` and `Array::load_npy_all`. What was read is written and read again.
#![no_main]

use atmesh::Array;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let path = std::env::temp_dir().join(format!("atmesh-fuzz-{}.npy", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let all = Array::load_npy_all(&path);
    if let Ok(one) = Array::load_npy(&path) {
        // one array in the file, so the other function reads it, too
        assert_eq!(all.as_ref().map_or(0, Vec::len), 1);
        one.save_npy(&path).unwrap();
        let again = Array::load_npy(&path).unwrap();
        assert_eq!(atmesh::type_of(&one).to_string(), atmesh::type_of(&again).to_string());
        // NaN is printed as such, so equal texts mean equal elements
        assert_eq!(one.to_string(), again.to_string());
    }
});
