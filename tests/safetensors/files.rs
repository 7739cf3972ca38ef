//! Single files: reading and writing files of other libraries.

use crate::error_checks::Unquoted as _;
use crate::rejected;
use atmesh::prelude::*;
use std::collections::BTreeMap;
use std::path::PathBuf;

fn place(name: &str) -> PathBuf {
    std::env::temp_dir().join(format!("atmesh-{}-{name}.safetensors", std::process::id()))
}

#[test]
fn all_element_types_and_another_mesh() {
    let path = place("types");
    let x = Array::from([[1.0f32, -0.0, f32::NAN], [2.5, 3.0, f32::INFINITY]]);
    let mut tree: BTreeMap<String, Array> = BTreeMap::new();
    for d in [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, BF16, F32, F64, C64] {
        let whole = Array::from([[1, 0, 3], [2, 5, 4]]);
        tree.insert(d.name().into(), if d.is_inexact() { x.astype(d) } else { whole.astype(d) });
    }
    tree::save_safetensors(&(tree.clone(), Key::new(3)), &path).unwrap();
    let mesh = Mesh::new([("X", 2), ("Y", 3)]).unwrap();
    let like: BTreeMap<String, Array> =
        tree.iter().map(|(k, a)| (k.clone(), a.zeros_like().put(&mesh, p!["X", "Y"]))).collect();
    let (read, key) = tree::load_safetensors(&(like, Key::new(0)), &path).unwrap();
    for (name, a) in &tree {
        assert_eq!(type_of(&read[name]).to_string(), format!("{name}[2@X,3@Y]"));
        assert_eq!(a.to_string(), read[name].to_string(), "{name}");
    }
    assert_eq!(key.data().to_string(), Key::new(3).data().to_string());
    let all = tree::read_safetensors(&path).unwrap();
    assert_eq!((all.len(), all["0.float32"].shape().unwrap().to_vec()), (15, vec![2, 3]));
    std::fs::remove_file(path).unwrap();
}

/// Floats of 8 bits are read as bytes; a tensor of another unknown type is named in the error.
#[test]
fn small_floats_are_bytes_and_unknown_types_are_named() {
    let path = place("fp8");
    let write = |dtype: &str, bytes: usize| {
        let header = format!(
            r#"{{"scale":{{"dtype":"F32","shape":[1],"data_offsets":[0,4]}},"up.weight":{{"dtype":"{dtype}","shape":[2],"data_offsets":[4,{}]}}}}"#,
            4 + bytes
        );
        let data = &[0, 0, 0, 63, 56, 192][..4 + bytes];
        std::fs::write(&path, [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), data].concat())
    };
    for dtype in ["F8_E4M3", "F8_E5M2"] {
        write(dtype, 2).unwrap();
        let all = tree::read_safetensors(&path).unwrap();
        assert_eq!(all["scale"].to_vec::<f32>().unwrap(), [0.5]);
        assert_eq!(all["up.weight"].to_vec::<u8>().unwrap(), [56, 192]);
    }
    write("F4", 1).unwrap();
    let text = rejected(tree::read_safetensors(&path));
    assert!(text.contains("`up.weight`") && text.contains("F4"), "{text}");
    let error = tree::read_safetensors(&path).unwrap_err().unquoted();
    assert!(error.contains("tree::read_safetensors: "), "{error}");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn what_does_not_fit_is_an_error() {
    let path = place("rejected");
    tree::save_safetensors(&(Array::ones([4]), Array::from([1, 2])), &path).unwrap();
    let like = (Array::ones([5]), Array::ones([2]), Array::ones([1]));
    let text = rejected(tree::load_safetensors(&like, &path));
    assert!(text.contains("the file holds float32[4], but float32[5] is expected"), "{text}");
    assert!(text.contains("the file holds int32[2], but float32[2] is expected"), "{text}");
    assert!(
        text.contains("2, from") && text.contains("no array of this name") && text.contains("it has 0, 1"),
        "{text}"
    );
    let text = rejected(tree::save_safetensors(&Array::ones([2]).astype(C128), &path));
    assert!(text.contains("complex128 cannot be stored in .safetensors files"), "{text}");
    // The file is unchanged.
    assert_eq!(tree::read_safetensors(&path).unwrap().len(), 2);
    let whole = std::fs::read(&path).unwrap();
    for n in [0, 7, 8, 40, whole.len() - 1] {
        std::fs::write(&path, &whole[..n]).unwrap();
        assert!(rejected(tree::read_safetensors(&path)).contains(".safetensors"), "{n}");
    }
    // A header whose length exceeds the file.
    let mut long = whole.clone();
    long[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&path, &long).unwrap();
    assert!(rejected(tree::read_safetensors(&path)).contains("is not a .safetensors file"));
    let text = String::from_utf8_lossy(&whole[8..]).replace("\"I32\"", "\"F8_E4M3\"").into_bytes();
    let head = [&((text.len() - 24) as u64).to_le_bytes()[..], &text].concat();
    std::fs::write(&path, head).unwrap();
    assert!(tree::read_safetensors(&path).is_err());
    std::fs::remove_file(&path).unwrap();
    assert!(rejected(tree::read_safetensors(&path)).contains("No such file"));
    assert!(rejected(tree::read_safetensors("/dev/null")).contains("not a regular file"));
}

/// Names join the parts of a path by dots, so two paths may have one name; and the format reserves
/// one name.
#[test]
fn names_that_a_file_cannot_hold_are_rejected() {
    let path = place("names");
    let map = |keys: &[&str]| -> BTreeMap<String, BTreeMap<String, Array>> {
        let leaf = |key: &str| BTreeMap::from([(key.to_string(), Array::ones([2]))]);
        keys.chunks(2).map(|pair| (pair[0].to_string(), leaf(pair[1]))).collect()
    };
    let text = rejected(tree::save_safetensors(&map(&["a", "b.c", "a.b", "c"]), &path));
    assert!(text.contains("two arrays are named `a.b.c`") && text.contains("rename a key"), "{text}");
    let reserved = BTreeMap::from([("__metadata__".to_string(), Array::ones([2]))]);
    let text = rejected(tree::save_safetensors(&reserved, &path));
    assert!(text.contains("`__metadata__` is reserved") && text.contains("rename the key"), "{text}");
    assert!(!path.exists());
    // Any other keys are names.
    let keys = BTreeMap::from(
        ["", "a.b", "a\"b", "\u{0}", "__METADATA__"].map(|k| (k.to_string(), Array::ones([1]))),
    );
    tree::save_safetensors(&keys, &path).unwrap();
    assert!(tree::read_safetensors(&path).unwrap().keys().eq(keys.keys()));
    std::fs::remove_file(&path).unwrap();
}
