//! Readers of files and notation on arbitrary input: the seeds of `fuzz/`, and random mutations of
//! them. `scripts/fuzz` runs the same checks on inputs that explore the code of the readers.
//!
//! `READERS_SEED=7 READERS_CASES=100000 cargo test --features safetensors,xla --test readers` tries
//! others.

// the crate in `fuzz/` exports the functions of these modules
#![allow(unreachable_pub)]

#[path = "../fuzz/src/notation.rs"]
mod notation;
#[path = "../fuzz/src/npy.rs"]
mod npy;
#[cfg(feature = "xla")]
#[path = "../fuzz/src/plugin_options.rs"]
mod plugin_options;
#[path = "laws/rng.rs"]
mod rng;
#[cfg(feature = "safetensors")]
#[path = "../fuzz/src/safetensors.rs"]
mod safetensors;

use rng::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};

fn set(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|n| n.parse().ok())
}

/// Inserts, removes, replaces or repeats a few bytes of `input`. Inserted ones are of another seed,
/// or one of `words`.
fn mutate(input: &mut Vec<u8>, seeds: &[Vec<u8>], words: &[&str], rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(input.len() + 1);
        let end = (at + rng.below(8)).min(input.len());
        let piece: Vec<u8> = match rng.below(6) {
            0 => Vec::new(),
            1 => vec![rng.number() as u8],
            2 => input[at..end].to_vec(),
            3 => {
                let other = rng.choose(seeds);
                let from = rng.below(other.len());
                other[from..(from + rng.below(16)).min(other.len())].to_vec()
            }
            _ => rng.choose(words).as_bytes().to_vec(),
        };
        let replaced = if rng.once_in(2) { at..at } else { at..end };
        input.splice(replaced, piece);
    }
}

/// Checks all seeds in `fuzz/seeds/{name}`, and mutations of them.
fn check(name: &str, cases: u64, words: &[&str], check: impl Fn(&[u8])) {
    let folder = format!("{}/fuzz/seeds/{name}", env!("CARGO_MANIFEST_DIR"));
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(!seeds.is_empty());
    let run = |input: &[u8], what: &str| {
        let done = catch_unwind(AssertUnwindSafe(|| check(input)));
        assert!(done.is_ok(), "{name}, {what}: {:?}", String::from_utf8_lossy(input));
    };
    for (file, seed) in files.iter().zip(&seeds) {
        run(seed, &format!("{}", file.display()));
    }
    let first = set("READERS_SEED").unwrap_or(1);
    for k in first..first + set("READERS_CASES").unwrap_or(cases) {
        let mut rng = Rng::new(k);
        let mut input = rng.choose(&seeds).clone();
        mutate(&mut input, &seeds, words, &mut rng);
        run(&input, &format!("seed {k}"));
    }
}

#[test]
fn npy_files_are_rejected_or_keep_their_bytes() {
    let words = ["(", ",)", "'", "True", "False", "<f8", ">i2", "|b1", "<c8", "|V2", "0", "L", "\x02\0"];
    check("npy", 400, &words, npy::check);
}

#[cfg(feature = "safetensors")]
#[test]
fn safetensors_files_are_rejected_or_keep_their_bytes() {
    let words =
        ["\"F8_E4M3\"", "\"BOOL\"", "\"F4\"", "[0,0]", "[0,4]", "[", "]", ",", "\"\"", "\\u0000", "0"];
    check("safetensors", 400, &words, safetensors::check);
}

/// Names of axes have characters that Rust's debug format escapes.
#[test]
fn notation_is_rejected_or_parses_as_it_prints() {
    let words = [
        "p![",
        "\"X\"",
        "\"a\\b\"",
        "\"\u{200b}\"",
        "\"e\u{301}\"",
        "\"é\"",
        "_",
        "(\"X\", \"Y\")",
        "; U: ",
        ", R: ",
        "()",
        "]",
        ",",
        "@",
        "X",
        "{V:Z",
        "U:Y",
        "}",
        "0",
        "2",
        "bf16",
        "key",
        "\"'\"",
        "\"?\"",
        "\"\u{7f}\"",
    ];
    check("notation", 20_000, &words, |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            notation::check(text);
        }
    });
}

#[cfg(feature = "xla")]
#[test]
fn options_are_rejected_or_parse_as_they_are_written() {
    let words =
        [";", "=", "[", "]", "true", "-1", "0.5", "1e9", "1e400", "inf", "nan", "9223372036854775808", "é"];
    check("plugin_options", 20_000, &words, |bytes| {
        if let Ok(text) = std::str::from_utf8(bytes) {
            plugin_options::check(text);
        }
    });
}
