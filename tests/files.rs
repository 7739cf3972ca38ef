//! `.npy` files: files written by numpy are read, and a file in another format, or shorter than its
//! header says, is an error.

use atmesh::prelude::*;
use atmesh::{Args, ErrorKind};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::id;

/// A file that is deleted when the test ends.
struct Scratch(PathBuf);
impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Scratch {
        let path = std::env::temp_dir().join(format!("atmesh-files-{}-{name}.npy", id()));
        std::fs::write(&path, bytes).unwrap();
        Scratch(path)
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Writes a file with this header, padded as numpy does it, followed by these bytes.
fn file(header: &str, data: &[u8]) -> Vec<u8> {
    let mut header = header.to_string();
    while !(10 + header.len() + 1).is_multiple_of(64) {
        header.push(' ');
    }
    header.push('\n');
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    bytes.extend(data);
    bytes
}
fn header(descr: &str, fortran: bool, shape: &str) -> String {
    let fortran = if fortran { "True" } else { "False" };
    format!("{{'descr': '{descr}', 'fortran_order': {fortran}, 'shape': {shape}, }}")
}
fn load(name: &str, bytes: &[u8]) -> Result<Array> {
    Array::load_npy(&Scratch::new(name, bytes).0)
}

#[test]
fn a_header_that_promises_more_than_the_file_holds_is_rejected() {
    for (descr, shape) in [
        ("<f4", "(1099511627776,)"),
        ("<f4", "(8589934592,)"),
        ("|i1", "(30000000000,)"),
        ("<f8", "(4611686018427387904, 4)"),
        ("<f8", "(18446744073709551616,)"),
        ("<i4", "(1, 1, 1073741824, 2)"),
        ("<f4", "(0, 18446744073709551615, 2)"),
        ("<f4", "(3,)"),
    ] {
        let error = load("bomb", &file(&header(descr, false, shape), &[0; 8])).unwrap_err();
        assert!(matches!(error.kind(), ErrorKind::Data | ErrorKind::Shape), "{shape}: {error}");
        assert!(error.to_string().contains("load_npy"), "{error}");
    }
    let error = load("short", &file(&header("<f4", false, "(3, 2)"), &[0; 8])).unwrap_err();
    assert!(error.to_string().contains("float32[3,2] takes 24 bytes, but the file holds 8"), "{error}");
    let error = load("long", &file(&header("<f4", false, "(1,)"), &[0; 8])).unwrap_err();
    assert!(error.to_string().contains("float32[1] takes 4 bytes, but the file holds 8"), "{error}");
}

/// A file without an end, such as `/dev/zero`, or one without a writer, is an error instead of
/// blocking for ever.
#[test]
#[cfg(unix)]
fn only_regular_files_are_read() {
    for path in ["/dev/zero", "/dev/null", "/"] {
        let error = Array::load_npy(path).unwrap_err();
        assert!(error.to_string().contains("not a regular file"), "{error}");
    }
    let fifo = std::env::temp_dir().join(format!("atmesh-files-{}-fifo", id()));
    assert!(std::process::Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let rejected = Array::load_npy(&fifo);
    std::fs::remove_file(&fifo).unwrap();
    assert!(rejected.is_err());
}

#[test]
fn every_element_type_is_written_and_read() {
    let x = Array::arange(0..6).reshape([2, 3]);
    for dtype in [Bool, I8, I16, I32, I64, U8, U16, U32, U64, F16, F32, F64] {
        let scratch = Scratch::new(&format!("{dtype}"), b"");
        let x = x.astype(dtype);
        x.save_npy(&scratch.0).unwrap();
        let read = Array::load_npy(&scratch.0).unwrap();
        assert_eq!(read.ty().unwrap(), x.ty().unwrap());
        assert_eq!(read.to_string(), x.to_string());
        // The data starts at a multiple of 64 bytes, as in numpy.
        assert!(
            (std::fs::metadata(&scratch.0).unwrap().len() as usize - x.nbytes().unwrap()).is_multiple_of(64)
        );
    }
    for shape in [&[][..], &[0], &[1], &[2, 0, 3], &[1, 2, 3, 4]] {
        let scratch = Scratch::new("shapes", b"");
        let x = Array::ones(shape);
        x.save_npy(&scratch.0).unwrap();
        assert_eq!(Array::load_npy(&scratch.0).unwrap().ty().unwrap(), x.ty().unwrap());
    }
}

/// Python's numpy can write formats that this crate does not.
#[test]
fn other_orders_and_other_headers_are_read() {
    let big: Vec<u8> = [1i16, -2, 300].iter().flat_map(|x| x.to_be_bytes()).collect();
    assert_eq!(
        load("big", &file(&header(">i2", false, "(3,)"), &big)).unwrap().to_vec::<i16>().unwrap(),
        [1, -2, 300]
    );
    let columns: Vec<u8> = [1i32, 2, 3, 4, 5, 6].iter().flat_map(|x| x.to_be_bytes()).collect();
    let x = load("fortran", &file(&header(">i4", true, "(2, 3)"), &columns)).unwrap();
    assert_eq!(x.to_vec::<i32>().unwrap(), [1, 3, 5, 2, 4, 6]);
    let halves = [0x3c00u16, 0xc000].map(u16::to_le_bytes).concat();
    let x = load("half", &file(&header("<f2", false, "(2,)"), &halves)).unwrap();
    assert_eq!(x.astype(F32).to_vec::<f32>().unwrap(), [1.0, -2.0]);
    for text in [
        "{\"shape\": (2, ), 'fortran_order':False,\n 'descr' : '|u1'}",
        "{'descr': '<u1', 'fortran_order': False, 'shape': (2,)}",
        "{'descr': '=u1', 'fortran_order': True, 'shape': (2,), }",
    ] {
        assert_eq!(load("header", &file(text, &[7, 8])).unwrap().to_vec::<u8>().unwrap(), [7, 8], "{text}");
    }
    // Versions 2 and 3 have a longer length field.
    for version in [2u8, 3] {
        let text = header("|u1", false, "(2,)") + "\n";
        let mut bytes = vec![0x93, b'N', b'U', b'M', b'P', b'Y', version, 0];
        bytes.extend((text.len() as u32).to_le_bytes());
        bytes.extend(text.as_bytes());
        bytes.extend([7, 8]);
        assert_eq!(load("version", &bytes).unwrap().to_vec::<u8>().unwrap(), [7, 8]);
    }
}

#[test]
fn what_is_no_file_of_numbers_is_an_error() {
    for (text, why) in [
        (header("<c32", false, "(1,)"), "`<c32`"),
        (header("|O", false, "(1,)"), "`|O`"),
        (header("<f2", false, "1"), "header"),
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }".into(), "header"),
        ("{'descr': '<f4', 'shape': (1,), }".into(), "fortran_order"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }".into(), "header"),
        ("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }".into(), "header"),
        (String::new(), "header"),
    ] {
        let error = load("bad", &file(&text, &[0; 8])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{text}");
        assert!(error.to_string().contains(why), "{text}: {error}");
    }
    let error = load("bool", &file(&header("|b1", false, "(2,)"), &[1, 2])).unwrap_err();
    assert!(error.to_string().contains("neither true nor false"), "{error}");
    for bytes in [&b""[..], b"\x93NUMPY", b"PK\x03\x04 and so on", b"\x93NUMPY\x09\x00\x01\x00 "] {
        assert_eq!(load("magic", bytes).unwrap_err().kind(), ErrorKind::Data);
    }
    let traced = jit(|x: &Array| -> Result<Array> {
        x.save_npy("never.npy")?;
        Ok(x.clone())
    });
    let error = traced.call(Array::ones([2])).unwrap_err().to_string();
    assert!(error.contains("`save_npy` needs concrete data"), "{error}");
}

/// Headers that are truncated, duplicated and overwritten at random give an error or an array, and
/// never allocate more memory than the file has bytes.
#[test]
fn mutated_headers() {
    let mut seed = 7u64;
    let mut next = move |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    let pieces: [&[u8]; 14] = [
        b"9",
        b"0",
        b"4611686018427387904",
        b"-",
        b",",
        b"(",
        b")",
        b"'",
        b"True",
        b"<f8",
        b">i2",
        b"|b1",
        b"{",
        b"\xff",
    ];
    const SHAPES: [&str; 6] = ["(2, 2)", "(4,)", "()", "(0, 3)", "(8589934592,)", "(2, 4611686018427387904)"];
    let (mut read, mut rejected) = (0, 0);
    for round in 0..3000 {
        let descr = ["<f4", ">f8", "|u1", "<i2", "|b1", "<f2"][next(6)];
        let mut bytes = file(&header(descr, next(2) == 0, SHAPES[next(SHAPES.len())]), &[1; 16]);
        for _ in 0..next(4) {
            let at = next(bytes.len());
            match next(4) {
                0 => bytes.truncate(at),
                1 => bytes[at] = next(256) as u8,
                2 => drop(bytes.splice(at..at, pieces[next(pieces.len())].iter().copied())),
                _ => {
                    let end = (at + next(6)).min(bytes.len());
                    drop(bytes.splice(at..end, pieces[next(pieces.len())].iter().copied()));
                }
            }
            if bytes.is_empty() {
                bytes.push(b'x');
            }
        }
        match load("mutated", &bytes) {
            Ok(x) => {
                read += 1;
                assert!(x.nbytes().unwrap() <= bytes.len(), "round {round}");
                let _ = x.to_string();
            }
            Err(error) => {
                rejected += 1;
                assert!(matches!(error.kind(), ErrorKind::Data | ErrorKind::Shape), "round {round}: {error}");
            }
        }
    }
    assert!(read > 20 && rejected > 1000, "{read} {rejected}");
}

#[derive(Clone, Tree)]
struct Model {
    layers: Vec<Array>,
    scale: Option<Array>,
    key: Key,
    named: BTreeMap<String, Array>,
}
fn model(mesh: &Mesh) -> Model {
    let w = Array::arange(0..8).astype(F32).put(mesh, p!["X"]);
    let named = [("a/../b", 1), ("a.b", 2), ("ä b", 3)].map(|(k, n)| (k.to_string(), Array::from(n)));
    let named = BTreeMap::from(named);
    Model { layers: vec![w.clone(), (&w * 0.1).astype(BF16)], scale: None, key: Key::new(7), named }
}
/// A temporary directory that is deleted when the test ends.
struct Dir(PathBuf);
impl Dir {
    fn new(name: &str) -> Dir {
        Dir(std::env::temp_dir().join(format!("atmesh-trees-{}-{name}", id())))
    }
}
impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn trees_are_saved_and_loaded() -> Result<()> {
    let dir = Dir::new("tree");
    let mesh = Mesh::new([("X", 2)])?;
    let saved = model(&mesh);
    tree::save_npy(&saved, &dir.0)?;
    // Saving again replaces the first copy.
    tree::save_npy(&saved, &dir.0)?;
    let read = tree::load_npy(&saved, &dir.0)?;
    assert_eq!(type_of(&read), type_of(&saved));
    for (a, b) in tree::leaves(&read).iter().zip(tree::leaves(&saved)) {
        assert_eq!(a.to_string(), b.to_string());
    }
    // A single array can be loaded with its type as the template.
    let one = Dir::new("one");
    tree::save_npy(&saved.layers[0], &one.0)?;
    let like = F32.array_type([8]).on(&mesh, p!["X"]).into_tree();
    assert_eq!(type_of(tree::load_npy(&like, &one.0)?), "float32[8@X]");
    Ok(())
}

#[test]
fn trees_that_do_not_fit_are_told_whole() -> Result<()> {
    let dir = Dir::new("unlike");
    let mesh = Mesh::new([("X", 2)])?;
    let saved = model(&mesh);
    tree::save_npy(&saved, &dir.0)?;
    let mut other = saved.clone();
    other.layers = vec![Array::ones([4]), Array::ones(I32.array_type([8])), Array::ones([1])];
    other.named.remove("a.b");
    let error = tree::load_npy(&other, &dir.0).err().unwrap().to_string();
    for said in ["`layers.0`", "float32[8]", "`layers.1`", "`layers.2`", "layers.2.npy", "a%2Eb.npy"] {
        assert!(error.contains(said), "{said}: {error}");
    }
    // Values that cannot be saved leave the old files, and no temporary files.
    let rejected = (Array::ones([2]), Array::ones([2]).dot(Array::ones([3])));
    assert!(tree::save_npy(&rejected, &dir.0).is_err());
    assert!(tree::load_npy(&saved, &dir.0).is_ok());
    let beside = std::fs::read_dir(dir.0.parent().unwrap()).unwrap();
    let name = dir.0.file_name().unwrap().to_str().unwrap();
    assert_eq!(
        beside
            .filter(|e| e.as_ref().unwrap().file_name().to_str().is_some_and(|n| n.starts_with(name)))
            .count(),
        1
    );
    // A directory with other files is not replaced.
    std::fs::write(dir.0.join("notes.txt"), "mine").unwrap();
    let error = tree::save_npy(&saved, &dir.0).unwrap_err().to_string();
    assert!(error.contains("notes.txt"), "{error}");
    Ok(())
}

/// `.safetensors` files: reading and writing files of other libraries.
#[cfg(feature = "safetensors")]
mod safetensors {
    use atmesh::prelude::*;
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    fn place(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("atmesh-{}-{name}.safetensors", std::process::id()))
    }
    fn rejected<T>(read: Result<T>) -> String {
        read.err().expect("rejected").to_string()
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

    #[test]
    fn what_does_not_fit_is_an_error() {
        let path = place("rejected");
        tree::save_safetensors(&(Array::ones([4]), Array::from([1, 2])), &path).unwrap();
        let like = (Array::ones([5]), Array::ones([2]), Array::ones([1]));
        let text = rejected(tree::load_safetensors(&like, &path));
        assert!(text.contains("the file holds float32[4], but float32[5] is expected"), "{text}");
        assert!(text.contains("the file holds int32[2], but float32[2] is expected"), "{text}");
        assert!(
            text.contains("2, from")
                && text.contains("no array of this name")
                && text.contains("it has 0, 1"),
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
        assert!(rejected(tree::read_safetensors(std::env::temp_dir())).contains("not a regular file"));
    }
}
