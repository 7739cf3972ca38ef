//! Runs conformance cases: `… --example conformance -- [--engine lockstep|…] FILE.jsonl…`.
//!
//! Prints `name passed/total` per file and every failure. Exits with status 1 if a case failed.

#[path = "../tests/conformance/runner/mod.rs"]
#[expect(dead_code, reason = "the example checks all values")]
mod runner;

use atmesh::EngineKind;
use std::process::ExitCode;

fn main() -> ExitCode {
    let mut engine = EngineKind::default();
    let mut files = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--engine" {
            engine = match args.next().as_deref() {
                Some("threads") => EngineKind::Threads,
                Some("lockstep") => EngineKind::Lockstep,
                Some("reference") => EngineKind::Reference,
                other => return usage(&format!("no engine {}", other.unwrap_or("named"))),
            };
        } else if arg.starts_with("--") {
            return usage(&format!("unknown option {arg}"));
        } else {
            files.push(arg);
        }
    }
    if files.is_empty() {
        return usage("no files");
    }
    // A panic is reported as a failure of its case, so the default message is suppressed.
    std::panic::set_hook(Box::new(|_| {}));
    let lists = runner::Lists::own();
    let mut failed = false;
    for path in files {
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(e) => {
                println!("{path}: {e}");
                failed = true;
                continue;
            }
        };
        let name = std::path::Path::new(&path)
            .file_stem()
            .map_or(path.clone(), |s| s.to_string_lossy().into_owned());
        let report = runner::run(&name, &text, engine, &lists, |_| runner::Depth::Values);
        print!("{}", report.print());
        failed |= !report.failed.is_empty();
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn usage(why: &str) -> ExitCode {
    eprintln!("{why}\nusage: conformance [--engine threads|lockstep|reference] FILE.jsonl…");
    ExitCode::from(2)
}
