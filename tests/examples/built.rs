//! Finds the built examples, and rejects those that are older than their sources.
//!
//! Cargo builds no examples for `cargo test --test examples`, so the binaries may be those of an
//! earlier version. The comparison of such a binary proves nothing, and blessing its output would
//! write old text. Next to each example Cargo writes a list of its source files (`NAME.d`), which
//! includes those of the library and of the macros.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// Returns the binary of an example, in the folder that `ATMESH_EXAMPLES` names or next to the
/// tests. Panics if it is not built, or older than its sources.
pub(crate) fn example(name: &str) -> PathBuf {
    let own = || {
        let mut folder = std::env::current_exe().expect("a test has a path");
        folder.pop();
        folder.pop();
        folder.join("examples")
    };
    let binary = std::env::var_os("ATMESH_EXAMPLES").map_or_else(own, PathBuf::from).join(name);
    up_to_date(&binary).unwrap_or_else(|why| {
        panic!("{why}: run `cargo build --examples` first, or `scripts/bless` to write golden files")
    });
    binary
}

/// Returns an error if the binary does not exist or is older than a source file in its list.
fn up_to_date(binary: &Path) -> Result<(), String> {
    let built = modified(binary).ok_or_else(|| format!("{} is not built", binary.display()))?;
    let list = binary.with_extension("d");
    let text = std::fs::read_to_string(&list)
        .map_err(|e| format!("the sources of {} are not known: {}: {e}", binary.display(), list.display()))?;
    let sources = sources(&text);
    if sources.is_empty() {
        return Err(format!("{} lists no sources", list.display()));
    }
    let newer = sources.iter().find(|s| modified(s).is_none_or(|changed| changed > built));
    match newer {
        Some(source) => Err(format!("{} is older than {}", binary.display(), source.display())),
        None => Ok(()),
    }
}

/// Returns the time of the last change of a file; `None` if it does not exist.
fn modified(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|m| m.modified()).ok()
}

/// Returns the source files in the text `BINARY: FILE FILE …`, in which `\ ` is a space of a name.
fn sources(text: &str) -> Vec<PathBuf> {
    let list = text.lines().next().and_then(|line| line.split_once(": ")).map_or("", |(_, list)| list);
    let names = list.replace("\\ ", "\0");
    names.split_whitespace().map(|name| PathBuf::from(name.replace('\0', " "))).collect()
}

#[test]
fn a_binary_that_is_older_than_a_source_is_rejected() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("built");
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("the folder can be made");
    let file = |name: &str| folder.join(name);
    let write = |name: &str, text: &str| std::fs::write(file(name), text).expect("it can be written");
    let at = |name: &str, seconds: u64| {
        let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000 + seconds);
        let opened = std::fs::File::options().write(true).open(file(name)).expect("it is there");
        opened.set_modified(time).expect("its time can be set");
    };
    let binary = file("program");
    let rejected = |why: &str| {
        let error = up_to_date(&binary).expect_err(why);
        assert!(error.contains(why), "{error}");
    };
    rejected("is not built");
    write("program", "");
    rejected("are not known");
    write("main.rs", "");
    write("a lib.rs", "");
    let escaped = file("a lib.rs").display().to_string().replace(' ', "\\ ");
    write("program.d", &format!("{}: {} {escaped}\n", binary.display(), file("main.rs").display()));
    at("program", 10);
    at("main.rs", 9);
    at("a lib.rs", 10);
    assert_eq!(up_to_date(&binary), Ok(()));
    at("a lib.rs", 11);
    rejected("is older than");
    at("program", 12);
    assert_eq!(up_to_date(&binary), Ok(()));
    std::fs::remove_file(file("main.rs")).expect("it can be removed");
    rejected("main.rs");
    write("program.d", "");
    rejected("lists no sources");
}
