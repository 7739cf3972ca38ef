//! Loading with conversions: casts, other names, parts of tensors, several files, an index, a folder.

use crate::{Scratch, assert_says, rejected};
use atmesh::prelude::*;
use atmesh::tree::{LoadOptions, SaveOptions, TensorFiles, load_safetensors_with, save_safetensors_with};
use std::collections::BTreeMap;

type Named = BTreeMap<&'static str, Array>;

/// Saves arrays in a new file.
fn saved(name: &str, arrays: Named) -> Scratch {
    let scratch = Scratch::new(&format!("{name}.safetensors"));
    tree::save_safetensors(&arrays, &scratch).unwrap();
    scratch
}
fn numbers(shape: [usize; 2]) -> Array {
    Array::arange(0..(shape[0] * shape[1]) as i32).reshape(shape)
}
fn options() -> LoadOptions {
    LoadOptions::default()
}

/// The bytes are those that a Python script with `xxhash` computed, and that Python's `safetensors`
/// reads.
#[test]
fn the_bytes_of_a_file_are_golden() {
    let header = concat!(
        r#"{"__metadata__":{"format":"pt","note":"a \"quoted\" note","xxh64":"{\"n\":\"c295"#,
        r#"f2d4426a5667\",\"w\":\"646eb9ab3acb69dd\"}","xxh64.header":"b079495fe056e244"},""#,
        r#"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]},"n":{"dtype":"U8","shape""#,
        r#":[3],"data_offsets":[16,19]}}   "#,
    );
    assert_eq!(header.len(), 272);
    let data = [1.0f32, 2.0, 3.0, 4.0].map(f32::to_le_bytes).concat();
    let golden = [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &data, &[7, 8, 9]].concat();
    let scratch = Scratch::new("golden.safetensors");
    let arrays =
        BTreeMap::from([("n", Array::from([7u8, 8, 9])), ("w", Array::from([[1.0f32, 2.0], [3.0, 4.0]]))]);
    save_safetensors_with(&arrays, &scratch, [("note", "a \"quoted\" note")]).unwrap();
    let written = std::fs::read(&scratch).unwrap();
    assert_eq!(String::from_utf8_lossy(&written[8..8 + 272]), header);
    assert_eq!(written, golden);
}

#[test]
fn casts_keep_the_kind_of_elements() {
    let floats = numbers([2, 3]).astype(F32) / 3.0;
    let file = saved("casts", Named::from([("x", floats.astype(BF16)), ("n", Array::from([1i64, -2, 300]))]));
    let mesh = Mesh::new([("X", 3)]).unwrap();
    let load = |x: DType, n: DType| {
        let like = BTreeMap::from([
            ("x", x.array_type([2, 3]).on(&mesh, p![_, "X"])),
            ("n", n.array_type([3]).on(&mesh, p![])),
        ]);
        let like: Named = like.into_iter().map(|(name, ty)| (name, atmesh::Args::into_tree(ty))).collect();
        load_safetensors_with(&like, &file, options().cast())
    };
    let read = load(F32, I16).unwrap();
    assert_eq!(type_of(&read), "{n: int16[3], x: float32[2,3@X]}");
    assert_eq!(read["x"].to_vec::<f32>().unwrap(), floats.astype(BF16).astype(F32).to_vec::<f32>().unwrap());
    assert_eq!(read["n"].to_vec::<i16>().unwrap(), [1, -2, 300]);
    assert_eq!(load(F64, F32).unwrap()["n"].to_vec::<f32>().unwrap(), [1.0, -2.0, 300.0]);
    assert_says(&rejected(load(F32, I8)), &["n, from", "an element of int64 does not fit into int8"]);
    assert_says(&rejected(load(I32, I64)), &["x, from", "the file holds bfloat16[2,3], but int32[2,3]"]);
    // without the option, the error names it
    let like = Named::from([("x", Array::zeros([2, 3])), ("n", Array::from([0i64; 3]))]);
    let text = rejected(load_safetensors_with(&like, &file, options()));
    assert_says(&text, &["x, from", "but float32[2,3] is expected", "LoadOptions::default().cast()"]);
}

/// All arrays that do not fit are listed, before any data is read.
#[test]
fn missing_unexpected_and_other_arrays_are_listed() {
    let file = saved(
        "strict",
        Named::from([("a", numbers([2, 2])), ("b", numbers([2, 3])), ("c", numbers([1, 1]))]),
    );
    let like = Named::from([("a", numbers([4, 1])), ("d", numbers([2, 2])), ("e", numbers([2, 2]))]);
    let text = rejected(load_safetensors_with(&like, &file, options()));
    assert_says(
        &text,
        &[
            "a, from",
            "the file holds int32[2,2], but int32[4,1] is expected",
            "d, from",
            "no array of this name",
            "it has a, b, c",
            "e, from",
            "b, from",
            "no array of the tree has this path",
            "ignore(\"b\")",
            "c, from",
        ],
    );
    let like = Named::from([("a", numbers([2, 2])), ("d", numbers([3, 1]))]);
    let read = load_safetensors_with(&like, &file, options().ignore("*").keep_missing("d")).unwrap();
    assert_eq!(read["d"].to_vec::<i32>().unwrap(), [0, 1, 2]);
    // a type has no values that could be kept
    let types = BTreeMap::from([("a", I32.array_type([2, 2])), ("d", I32.array_type([2]))]);
    let types: Named = types.into_iter().map(|(name, ty)| (name, atmesh::Args::into_tree(ty))).collect();
    let text = rejected(load_safetensors_with(&types, &file, options().ignore("*").keep_missing("d")));
    assert_says(&text, &["has a type only"]);
}

#[test]
fn names_and_parts_are_chosen_by_rules() {
    let fused = numbers([2, 6]);
    let file =
        saved("rules", Named::from([("model.h.0.qkv", fused.clone()), ("model.wte", numbers([3, 2]))]));
    let rules = options().rename("model.*", "*").copy("wte", "head").transpose("h.*.qkv").split_sizes(
        "h.*.qkv",
        0,
        [("h.*.q", 4), ("h.*.k", 1), ("h.*.v", 1)],
    );
    let zeros = |shape: [usize; 2]| Array::zeros(shape).astype(I32);
    let like = Named::from([
        ("h.0.q", zeros([4, 2])),
        ("h.0.k", zeros([1, 2])),
        ("h.0.v", zeros([1, 2])),
        ("wte", zeros([3, 2])),
        ("head", zeros([3, 2])),
    ]);
    let read = load_safetensors_with(&like, &file, rules).unwrap();
    assert_eq!(read["h.0.q"].to_vec::<i32>().unwrap(), [0, 6, 1, 7, 2, 8, 3, 9]);
    assert_eq!(read["h.0.v"].to_vec::<i32>().unwrap(), [5, 11]);
    assert_eq!(read["head"].to_vec::<i32>().unwrap(), read["wte"].to_vec::<i32>().unwrap());
    let load = |rules: LoadOptions| rejected(load_safetensors_with(&like, &file, rules));
    let cases: [(LoadOptions, &[&str]); 6] = [
        (options().rename("modle.*", "*"), &["no tensor has a name like `modle.*`", "model.wte"]),
        (options().rename("model.*", "x"), &["both get the name `x`"]),
        (options().rename("model.wte", "*.y"), &["`*.y` has 1 `*`, but its pattern has 0"]),
        (options().split("*.wte", 2, ["a", "b"]), &["has no dimension 2"]),
        (options().split("*.wte", 0, ["a", "b"]), &["size 3 cannot be split into 2 parts", "split_sizes"]),
        (options().split_sizes("*.wte", 0, [("a", 2), ("b", 2)]), &["cannot be split", "[2, 2]"]),
    ];
    for (rules, parts) in cases {
        assert_says(&load(rules), parts);
    }
}

/// Blocks that are read are those of the array, of every shape and place.
#[test]
fn blocks_are_read_by_ranges() {
    let x = Array::arange(0..120i32).reshape([4, 5, 6]).astype(I16);
    let file = saved("blocks", Named::from([("x", x.clone()), ("y", Array::ones([3]))]));
    let mut files = TensorFiles::open(&file).unwrap();
    assert_eq!(files.names().collect::<Vec<_>>(), ["x", "y"]);
    assert_eq!(files.ty("x").unwrap(), I16.array_type([4, 5, 6]));
    for index in
        [[0..4, 0..5, 0..6], [1..3, 0..5, 0..6], [1..3, 2..4, 0..6], [3..4, 0..5, 5..6], [0..4, 2..2, 1..3]]
    {
        let block = files.read_block("x", &index).unwrap();
        let [a, b, c] = index.clone().map(|r| (r.start as i64, r.end as i64));
        let wanted = x.slice(ix![a.0..a.1, b.0..b.1, c.0..c.1]);
        assert_eq!(block.shape().unwrap(), wanted.shape().unwrap());
        assert_eq!(block.to_vec::<i16>().unwrap(), wanted.to_vec::<i16>().unwrap(), "{index:?}");
    }
    let text = rejected(files.read_block("x", &[0..4, 0..5, 0..7]));
    assert_says(&text, &["x, from", "is not a block of an array of shape", "read_block"]);
    assert_says(&rejected(files.read_block("x", std::slice::from_ref(&(0..4)))), &["is not a block"]);
    assert_says(&rejected(files.read("z")), &["z, from", "no array of this name"]);
}

/// A folder of several files has an index, and the files have at most the given size.
#[test]
fn several_files_have_an_index() {
    let folder = Scratch::new("several");
    let arrays: BTreeMap<String, Array> =
        (0..7).map(|k| (format!("w{k}"), numbers([2, k + 1]).astype(F32))).collect();
    let options = || SaveOptions::default().max_file_bytes(64).metadata([("epoch", 3)]);
    save_safetensors_with(&arrays, &folder, options()).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names.len(), 6, "{names:?}");
    assert_eq!(names[0], "model-00001-of-00005.safetensors");
    assert_eq!(names[5], "model.safetensors.index.json");
    let index: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(folder.0.join(&names[5])).unwrap()).unwrap();
    assert_eq!(index["metadata"]["total_size"], 224);
    assert_eq!(index["weight_map"]["w6"], "model-00005-of-00005.safetensors");
    let paths = || names[..5].iter().map(|name| folder.0.join(name));
    for files in [
        TensorFiles::open(&folder),
        TensorFiles::open(folder.0.join(&names[5])),
        TensorFiles::open_all(paths()),
    ] {
        let mut files = files.unwrap();
        assert_eq!(files.metadata()["epoch"], "3");
        for (name, array) in &arrays {
            assert_eq!(files.read(name).unwrap().to_vec::<f32>().unwrap(), array.to_vec::<f32>().unwrap());
        }
    }
    // without the index, the names of the files say how many there are
    std::fs::remove_file(folder.0.join(&names[5])).unwrap();
    assert_eq!(tree::read_safetensors(&folder).unwrap().len(), 7);
    std::fs::remove_file(folder.0.join(&names[2])).unwrap();
    let text = rejected(tree::read_safetensors(&folder));
    assert_says(&text, &["but not model-00003-of-00005.safetensors", "download the missing file"]);
    let text = rejected(TensorFiles::open_all([folder.0.join(&names[0]), folder.0.join(&names[0])]));
    assert_says(&text, &["is in", "too"]);
    // a save replaces the folder, unless it has other files
    save_safetensors_with(&arrays, &folder, options().max_file_bytes(1 << 20)).unwrap();
    assert!(folder.0.join("model.safetensors").exists() && !folder.0.join(&names[0]).exists());
    std::fs::write(folder.0.join("config.json"), "{}").unwrap();
    assert_says(
        &rejected(save_safetensors_with(&arrays, &folder, options())),
        &["config.json", "not replaced"],
    );
    assert_eq!(tree::read_safetensors(&folder).unwrap().len(), 7);
}

#[test]
fn an_index_leads_only_to_files_of_its_folder() {
    let folder = Scratch::folder("index");
    let index = folder.0.join("model.safetensors.index.json");
    let file = folder.0.join("a.safetensors");
    tree::save_safetensors(&Named::from([("w", numbers([2, 2]))]), &file).unwrap();
    let cases: [(&str, &[&str]); 7] = [
        (r#"{"weight_map":{"w":"../a.safetensors"}}"#, &["`w` is in \"../a.safetensors\"", "of the folder"]),
        (r#"{"weight_map":{"w":"/etc/passwd"}}"#, &["`w` is in \"/etc/passwd\"", "of the folder"]),
        (r#"{"weight_map":{"w":3}}"#, &["`w` is in \"\""]),
        (r#"{"weight_map":{"w":"b.safetensors"}}"#, &["`w` is in", "b.safetensors, which does not exist"]),
        (r#"{"weight_map":{"v":"a.safetensors"}}"#, &["no tensor `v`, but the index says so", "it has w"]),
        (r#"{"weight_map":"#, &["is not an index of .safetensors files"]),
        ("{}", &["no object `weight_map`"]),
    ];
    for (text, parts) in cases {
        std::fs::write(&index, text).unwrap();
        let error = rejected(tree::load_safetensors(&Named::from([("w", numbers([2, 2]))]), &folder));
        assert_says(&error, parts);
        assert_says(&error, &["tree::load_safetensors"]);
    }
    std::fs::write(&index, r#"{"weight_map":{"w":"a.safetensors"}}"#).unwrap();
    assert_eq!(tree::read_safetensors(&folder).unwrap().len(), 1);
    // of several indices, one has to be chosen
    std::fs::rename(&index, folder.0.join("x.safetensors.index.json")).unwrap();
    std::fs::write(folder.0.join("y.safetensors.index.json"), "{}").unwrap();
    assert_says(&rejected(tree::read_safetensors(&folder)), &["several indices: x.", "y.", "one of them"]);
    let empty = Scratch::folder("empty");
    assert_says(&rejected(tree::read_safetensors(&empty)), &["has no .safetensors file"]);
}
