//! Files for `Array::load_npy` and `Array::load_npy_all`.

use atmesh::Array;

/// Reads the bytes as a `.npy` file. What was read is written and read again.
pub fn check(bytes: &[u8]) {
    let path = std::env::temp_dir().join(format!("atmesh-fuzz-{}.npy", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let all = Array::load_npy_all(&path);
    if let Ok(one) = Array::load_npy(&path) {
        // one array in the file, so the other function reads it, too
        assert_eq!(all.as_ref().map_or(0, Vec::len), 1);
        assert!(one.nbytes().unwrap() <= bytes.len());
        one.save_npy(&path).unwrap();
        let written = std::fs::read(&path).unwrap();
        let again = Array::load_npy(&path).unwrap();
        assert_eq!(one.ty().unwrap(), again.ty().unwrap());
        again.save_npy(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), written);
    }
    if let Ok(all) = all {
        Array::save_npy_all(&all, &path).unwrap();
        let again = Array::load_npy_all(&path).unwrap();
        // NaN is printed as such, so equal texts mean equal elements
        assert_eq!(format!("{all:?}"), format!("{again:?}"));
    }
    let _ = std::fs::remove_file(&path);
}
