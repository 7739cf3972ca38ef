//! Damaged files: each flipped bit and each missing byte is found.

use crate::{Scratch, assert_says, rejected};
use atmesh::prelude::*;
use atmesh::tree::{SaveOptions, save_safetensors_with};
use std::collections::BTreeMap;

fn arrays() -> BTreeMap<&'static str, Array> {
    BTreeMap::from([
        ("bias", Array::from([1.5f32, -2.0])),
        ("table", Array::arange(0..12).reshape([3, 4])),
        ("words", Array::from([7u8, 8, 9])),
    ])
}

/// A bit that is flipped in the data, in the header or in its length is an error that names the
/// file.
#[test]
fn every_flipped_bit_of_a_file_is_found() {
    let scratch = Scratch::new("bits.safetensors");
    save_safetensors_with(&arrays(), &scratch, [("offset", 1000)]).unwrap();
    let whole = std::fs::read(&scratch).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 8);
        std::fs::write(&scratch, &damaged).unwrap();
        let read = tree::load_safetensors(&arrays(), &scratch);
        assert_says(&rejected(read), &["bits.safetensors"]);
    }
    let mut damaged = whole.clone();
    *damaged.last_mut().unwrap() ^= 1;
    std::fs::write(&scratch, &damaged).unwrap();
    let text = rejected(tree::load_safetensors(&arrays(), &scratch));
    assert_says(&text, &["words, from", "differs from its digest", "copy or save the file again"]);
    // the other arrays are not damaged
    let mut files = tree::TensorFiles::open(&scratch).unwrap();
    assert_eq!(files.read("bias").unwrap().to_vec::<f32>().unwrap(), [1.5, -2.0]);
    for _ in 0..2 {
        assert_says(&rejected(files.read("words")), &["differs from its digest"]);
    }
    for length in (0..whole.len()).step_by(7) {
        std::fs::write(&scratch, &whole[..length]).unwrap();
        assert_says(&rejected(tree::load_safetensors(&arrays(), &scratch)), &["bits.safetensors"]);
    }
}

/// A flipped bit of an index is an error, or changes nothing that is loaded.
#[test]
fn no_flipped_bit_of_an_index_changes_arrays() {
    let folder = Scratch::new("index-bits");
    save_safetensors_with(&arrays(), &folder, SaveOptions::default().max_file_bytes(20)).unwrap();
    let index = folder.0.join("model.safetensors.index.json");
    let whole = std::fs::read(&index).unwrap();
    let wanted = tree::load_safetensors(&arrays(), &folder).unwrap();
    for at in 0..whole.len() {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << (at % 7);
        std::fs::write(&index, &damaged).unwrap();
        if let Ok(read) = tree::load_safetensors(&arrays(), &folder) {
            for (name, array) in &read {
                assert_eq!(array.to_string(), wanted[name].to_string(), "byte {at}");
            }
        }
    }
}

/// A part of a tensor is compared with the digest of the tensor when a tree is loaded.
#[test]
fn parts_of_damaged_tensors_are_found() {
    let scratch = Scratch::new("parts.safetensors");
    tree::save_safetensors(&arrays(), &scratch).unwrap();
    let mut bytes = std::fs::read(&scratch).unwrap();
    let table = bytes.len() - 3 - 48;
    bytes[table] ^= 4;
    std::fs::write(&scratch, &bytes).unwrap();
    let like = BTreeMap::from(["left", "right"].map(|name| (name, Array::zeros([3, 2]).astype(I32))));
    let options = tree::LoadOptions::default().split("table", 1, ["left", "right"]).ignore("*");
    let text = rejected(tree::load_safetensors_with(&like, &scratch, options));
    assert_says(&text, &["table, from", "differs from its digest"]);
}

/// Metadata names that belong to digests are an error, and files without digests are read.
#[test]
fn digests_have_reserved_names() {
    let scratch = Scratch::new("reserved.safetensors");
    for name in ["xxh64", "xxh64.header"] {
        let text = rejected(save_safetensors_with(&arrays(), &scratch, [(name, "x")]));
        assert_says(&text, &[&format!("`{name}` is reserved for digests"), "another name"]);
    }
    let header = r#"{"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}"#;
    let file = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &[9]].concat();
    std::fs::write(&scratch, file).unwrap();
    assert_eq!(tree::read_safetensors(&scratch).unwrap()["x"].to_vec::<u8>().unwrap(), [9]);
}
