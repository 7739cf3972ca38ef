//! `.safetensors` files: files of other libraries, loading with conversions, damaged files, and
//! checkpoints.

#[path = "../error_checks/mod.rs"]
mod error_checks;
#[path = "../soak/mod.rs"]
mod soak;
#[path = "../training/transformer.rs"]
mod transformer;

mod book;
mod char_gpt;
mod checkpoints;
mod damage;
mod files;
mod killed;
mod layouts;
mod llama;
mod loading;
mod models;

use atmesh::prelude::*;
use error_checks::Unquoted as _;
use std::path::{Path, PathBuf};

/// A path in the system's folder for temporary files, which is removed when the test ends.
struct Scratch(PathBuf);
impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("atmesh-safetensors-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        Scratch(path)
    }
    fn folder(name: &str) -> Scratch {
        let scratch = Scratch::new(name);
        std::fs::create_dir_all(&scratch.0).unwrap();
        scratch
    }
}
impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
        let _ = std::fs::remove_file(&self.0);
    }
}
impl AsRef<Path> for Scratch {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

fn rejected<T>(result: Result<T>) -> String {
    result.err().expect("an error").unquoted()
}

/// Fails unless the text has all parts.
#[track_caller]
fn assert_says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is not in:\n{text}");
    }
}
