//! Files that programs write are up to date, and `scripts/bless` writes each of those that need no
//! other software.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Scripts that need JAX or numpy, the files that they write, and the digest of all of them.
/// Our columns of `bytes_moved/figures.tsv` change with the library, so that file is not included.
const WRITTEN_BY_SCRIPTS: [(&[&str], u32); 5] = [
    (&["tests/conformance/own.py", "tests/conformance/own.jsonl"], 0xe087_3f40),
    (&["tests/golden/display.py", "tests/golden/display.txt"], 0x7dc5_f02f),
    (&["tests/xla_agreement/xla.py", "tests/xla_agreement/figures.tsv"], 0x5345_f179),
    (&["tests/bytes_moved/xla.py"], 0xfc6e_7684),
    (
        &[
            "tests/safetensors/hf/make.py",
            "tests/safetensors/hf/llama/model.safetensors.index.json",
            "tests/safetensors/hf/llama/config.json",
        ],
        0xef8c_05a2,
    ),
];

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the paths in a folder, sorted.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = list.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// Adds bytes to a CRC-32 (the polynomial of zlib).
fn crc32(crc: u32, bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    let table: Vec<u32> = (0..256).map(|byte| (0..8).fold(byte, |crc, _| step(crc))).collect();
    !bytes.iter().fold(!crc, |crc, byte| (crc >> 8) ^ table[((crc ^ u32::from(*byte)) & 0xff) as usize])
}

/// Returns the digest of the names and contents of the files.
fn digest(files: &[PathBuf]) -> u32 {
    files.iter().fold(0, |crc, file| {
        let name = file.file_name().expect("a file has a name").to_string_lossy().into_owned();
        crc32(crc32(crc, name.as_bytes()), read(file).as_bytes())
    })
}

#[test]
fn the_digest_is_that_of_zlib() {
    assert_eq!(crc32(crc32(0, b"1234"), b"56789"), 0xcbf4_3926);
}

/// `agree.py` writes the digest of the files that it reads into the first line of `cases.rs`.
#[test]
fn static_cases_are_those_of_the_conformance_files() {
    let cases = root().join("tests/conformance");
    let mut files = entries(&cases);
    files.retain(|file| file.extension().is_some_and(|e| e == "jsonl") && !file.ends_with("functions.jsonl"));
    files.extend(["accepted.txt", "exceptions.txt"].map(|name| cases.join(name)));
    files.push(root().join("typed/tests/agree.py"));
    let now = digest(&files);
    let written = read(&root().join("typed/tests/agreement/cases.rs"));
    let head = written.lines().next().unwrap_or_default();
    assert!(
        head.contains(&format!("of digest {now:08x}.")),
        "typed/tests/agreement/cases.rs is of other files ({now:08x} now): run `scripts/bless typed`\n{head}"
    );
}

#[test]
fn files_are_those_that_the_scripts_wrote() {
    for (files, known) in WRITTEN_BY_SCRIPTS {
        let now = digest(&files.iter().map(|file| root().join(file)).collect::<Vec<_>>());
        assert_eq!(
            now, known,
            "{files:?} have changed ({now:#010x} now): run the script, and write the digest in this test"
        );
    }
}

/// Returns the Rust files in a folder and its subfolders.
fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for path in entries(folder) {
        match path.is_dir() {
            true => files.extend(rust_files(&path)),
            false if path.extension().is_some_and(|e| e == "rs") => files.push(path),
            false => {}
        }
    }
    files
}

/// Returns the names of the tests (or crates) with a file that has this text.
fn users(folders: &[&str], text: &str) -> BTreeSet<String> {
    let folders = folders.iter().map(|folder| root().join(folder));
    let files = folders.flat_map(|folder| rust_files(&folder).into_iter().map(move |f| (folder.clone(), f)));
    let name = |(folder, file): (PathBuf, PathBuf)| {
        let path = file.strip_prefix(&folder).expect("the file is in the folder");
        let test = path.components().next().expect("a path has a component");
        test.as_os_str().to_string_lossy().trim_end_matches(".rs").to_owned()
    };
    files.filter(|(_, file)| read(file).contains(text)).map(name).collect()
}

#[test]
fn every_golden_file_is_blessed_by_one_command() {
    let script = read(&root().join("scripts/bless"));
    let list = script.lines().find_map(|line| line.strip_prefix("tests=(")?.strip_suffix(')'));
    let listed: BTreeSet<String> =
        list.expect("a list of tests").split_whitespace().map(String::from).collect();
    let bless = concat!("ATMESH_", "BLESS");
    assert_eq!(listed, users(&["tests", "typed/tests", "linalg"], &format!("\"{bless}\"")));
    // expect tests: by name of the test, and of the module in `src`
    let expect = concat!("expect", "![");
    for name in users(&["tests"], expect) {
        assert!(script.contains(&format!("--test {name}")), "scripts/bless does not run {name}");
    }
    for file in rust_files(&root().join("src")).iter().filter(|file| read(file).contains(expect)) {
        let module = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let runs = script.lines().any(|line| line.contains("--lib -- ") && line.contains(&module));
        assert!(runs, "scripts/bless does not run {}", file.display());
    }
}
