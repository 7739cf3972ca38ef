//! `.npy` files: files written by numpy are read, and a file in another format, or shorter than its
//! header says, is an error.

mod error_checks;

use atmesh::prelude::*;
use atmesh::{Args, ErrorKind};
use error_checks::Unquoted as _;
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
        assert!(error.unquoted().contains("load_npy"), "{error}");
    }
    let error = load("short", &file(&header("<f4", false, "(3, 2)"), &[0; 8])).unwrap_err();
    assert!(error.unquoted().contains("float32[3,2] takes 24 bytes, but the file holds 8"), "{error}");
    let error = load("long", &file(&header("<f4", false, "(1,)"), &[0; 8])).unwrap_err();
    assert!(error.unquoted().contains("float32[1] takes 4 bytes, but the file holds 8"), "{error}");
}

/// A file without an end, such as `/dev/zero`, or one without a writer, is an error instead of
/// blocking for ever.
#[test]
#[cfg(unix)]
fn only_regular_files_are_read() {
    for path in ["/dev/zero", "/dev/null", "/"] {
        let error = Array::load_npy(path).unwrap_err();
        assert!(error.unquoted().contains("not a regular file"), "{error}");
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
        ("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }".into(), "records"),
        ("{'descr': '<f4', 'shape': (1,), }".into(), "fortran_order"),
        ("{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }".into(), "header"),
        ("{'descr': '<f4', 'fortran_order': 1, 'shape': (1,), }".into(), "header"),
        (String::new(), "header"),
    ] {
        let error = load("bad", &file(&text, &[0; 8])).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Data, "{text}");
        assert!(error.unquoted().contains(why), "{text}: {error}");
    }
    let error = load("bool", &file(&header("|b1", false, "(2,)"), &[1, 2])).unwrap_err();
    assert!(error.unquoted().contains("neither true nor false"), "{error}");
    for bytes in [&b""[..], b"\x93NUMPY", b"PK\x03\x04 and so on", b"\x93NUMPY\x09\x00\x01\x00 "] {
        assert_eq!(load("magic", bytes).unwrap_err().kind(), ErrorKind::Data);
    }
    let traced = jit(|x: &Array| -> Result<Array> {
        x.save_npy("never.npy")?;
        Ok(x.clone())
    });
    let error = traced.call(Array::ones([2])).unwrap_err().unquoted();
    assert!(error.contains("`save_npy` needs concrete data"), "{error}");
}

/// Records and archives are named for what they are, with what to do instead.
#[test]
fn records_and_archives_are_named() {
    let records = "{'descr': [('mass', '<f4'), ('id', '<i8')], 'fortran_order': False, 'shape': (2,), }";
    let error = load("records", &file(records, &[0; 24])).unwrap_err().unquoted();
    for part in ["its elements are records, with the fields mass, id", "np.save(path, x['mass'])"] {
        assert!(error.contains(part), "{error}");
    }
    let error =
        load("archive", b"PK\x03\x04\x14\x00\x00\x00\x00\x00\x00\x00\x21\x00").unwrap_err().unquoted();
    for part in ["a zip archive of arrays (.npz)", "unzip"] {
        assert!(error.contains(part), "{error}");
    }
}

/// bfloat16 is read and written as JAX does, and the forms that old programs wrote are read.
#[test]
fn other_forms_of_types_and_shapes() {
    let ones = load("bfloat16", &file(&header("<V2", false, "(2,)"), &[0x80, 0x3f, 0, 0xc0])).unwrap();
    assert_eq!(type_of(&ones), "bfloat16[2]");
    assert_eq!(ones.astype(F32).to_vec::<f32>().unwrap(), [1.0, -2.0]);
    let scratch = Scratch::new("bfloat16-written", &[]);
    ones.save_npy(&scratch.0).unwrap();
    assert!(String::from_utf8_lossy(&std::fs::read(&scratch.0).unwrap()).contains("'<V2'"));
    assert_eq!(Array::load_npy(&scratch.0).unwrap().astype(F32).to_vec::<f32>().unwrap(), [1.0, -2.0]);
    let long = "{'descr': '<i4', 'fortran_order': False, 'shape': (1L, 2L), }";
    assert_eq!(type_of(load("long", &file(long, &[0; 8])).unwrap()), "int32[1,2]");
    assert_eq!(
        type_of(load("name", &file(&header("float32", false, "(2,)"), &[0; 8])).unwrap()),
        "float32[2]"
    );
    assert_eq!(type_of(load("bool", &file(&header("?", false, "(2,)"), &[0, 1])).unwrap()), "bool[2]");
}

/// Several arrays in one file, as repeated `np.save` calls write them.
#[test]
fn several_arrays_in_one_file() {
    let scratch = Scratch::new("several", &[]);
    let arrays = [Array::from([1, 2, 3]), Array::ones([2, 2]), Array::from(7u8)];
    Array::save_npy_all(&arrays, &scratch.0).unwrap();
    let read = Array::load_npy_all(&scratch.0).unwrap();
    assert_eq!(type_of(&read), "(int32[3], float32[2,2], uint8[])");
    assert_eq!(read[0].to_vec::<i32>().unwrap(), [1, 2, 3]);
    let error = Array::load_npy(&scratch.0).unwrap_err().unquoted();
    assert!(error.contains("more than one array") && error.contains("load_npy_all"), "{error}");
    let mut bytes = std::fs::read(&scratch.0).unwrap();
    bytes.pop();
    let error = Array::load_npy_all(&Scratch::new("cut", &bytes).0).unwrap_err().unquoted();
    assert!(error.contains("array 2: uint8[] takes 1 bytes"), "{error}");
    assert!(Array::load_npy_all(&Scratch::new("none", &[]).0).unwrap().is_empty());
}

/// Saving follows links, keeps permissions, and does not replace pipes, devices and directories.
#[cfg(unix)]
#[test]
fn saving_replaces_regular_files_only() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let target = Scratch::new("target", b"old");
    std::fs::set_permissions(&target.0, std::fs::Permissions::from_mode(0o600)).unwrap();
    let link = Scratch::new("link", &[]);
    std::fs::remove_file(&link.0).unwrap();
    symlink(target.0.file_name().unwrap(), &link.0).unwrap();
    let x = Array::ones([10]);
    x.save_npy(&link.0).unwrap();
    assert!(std::fs::symlink_metadata(&link.0).unwrap().is_symlink());
    assert_eq!(type_of(Array::load_npy(&target.0).unwrap()), "float32[10]");
    assert_eq!(std::fs::metadata(&target.0).unwrap().permissions().mode() & 0o777, 0o600);
    let pipe = Scratch::new("pipe", &[]);
    std::fs::remove_file(&pipe.0).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(&pipe.0).status().unwrap().success());
    for special in [&pipe.0, &PathBuf::from("/dev/null"), &std::env::temp_dir()] {
        let error = x.save_npy(special).unwrap_err().unquoted();
        assert!(error.contains("it is not a regular file, so it is not replaced"), "{error}");
    }
    let ring = Scratch::new("ring", &[]);
    std::fs::remove_file(&ring.0).unwrap();
    symlink(&ring.0, &ring.0).unwrap();
    assert!(x.save_npy(&ring.0).unwrap_err().unquoted().contains("too many symbolic links"));
}

/// Two threads save one file and one directory; every save succeeds, and every read finds a
/// complete file.
#[test]
fn concurrent_saves_do_not_disturb_each_other() {
    let scratch = Scratch::new("concurrent", &[]);
    let dir = Scratch::new("concurrent-dir", &[]);
    std::fs::remove_file(&dir.0).unwrap();
    Array::ones([1]).save_npy(&scratch.0).unwrap();
    std::thread::scope(|s| {
        for k in 0..3usize {
            let (path, dir) = (&scratch.0, &dir.0);
            s.spawn(move || {
                let x = Array::full([30_000 - 10_000 * k], k as f32);
                for _ in 0..40 {
                    if k == 2 {
                        assert!(Array::load_npy(path).is_ok());
                    } else {
                        x.save_npy(path).unwrap();
                        tree::save_npy(&x, dir).unwrap();
                    }
                }
            });
        }
    });
    assert!(dir.0.join("array.npy").exists());
    let others = std::fs::read_dir(std::env::temp_dir()).unwrap().filter(|entry| {
        let name = entry.as_ref().unwrap().file_name();
        let name = name.to_string_lossy();
        name.contains("concurrent") && (name.ends_with(".part") || name.ends_with(".old"))
    });
    assert_eq!(others.count(), 0);
    std::fs::remove_dir_all(&dir.0).unwrap();
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
    let error = tree::save_npy(&saved, &dir.0).unwrap_err().unquoted();
    assert!(error.contains("notes.txt"), "{error}");
    Ok(())
}

/// Different keys have different files: the code of a character is written byte by byte, and an
/// empty key has a name.
#[test]
fn each_key_has_a_file() -> Result<()> {
    let dir = Dir::new("keys");
    let keys = ["", " 14", "\u{2014}", ".", "..", "%2E", "%", "a.b", "\u{0}1", "/", "\u{10000}", "\u{1}0000"];
    let keys = keys.iter().enumerate().map(|(k, key)| (key.to_string(), Array::from(k as i32)));
    let saved: BTreeMap<String, Array> = keys.collect();
    // Saving again replaces the directory, which has only files of arrays.
    for _ in 0..2 {
        tree::save_npy(&saved, &dir.0)?;
    }
    let read = tree::load_npy(&saved, &dir.0)?;
    for (key, x) in &saved {
        assert_eq!(read[key].to_string(), x.to_string(), "{key:?}");
    }
    Ok(())
}
