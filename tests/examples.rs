//! What the examples print, against `tests/golden/NAME.txt`: words to the letter, numbers to 5 digits.
//!
//! `ATMESH_BLESS=1 cargo test --test examples` writes the files anew (their `ANCHOR` lines, which the book uses, are kept by hand).
use std::path::PathBuf;
use std::process::Command;

fn run(name: &str, args: &[&str]) -> String {
    let mut path = std::env::current_exe().expect("a test has a path");
    path.pop();
    path.pop();
    let program = path.join("examples").join(name);
    let out = Command::new(&program)
        .args(args)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", program.display()));
    let text = String::from_utf8(out.stdout).expect("examples print text");
    assert!(out.status.success(), "{name} failed\n{text}{}", String::from_utf8_lossy(&out.stderr));
    text
}

fn same_word(got: &str, want: &str) -> bool {
    let number =
        |w: &str| w.trim_matches(|c: char| !c.is_ascii_digit() && c != '-' && c != '.').parse::<f64>();
    let around = |w: &str| w.replace(|c: char| c.is_ascii_digit() || "-.e".contains(c), "");
    got == want
        || match (number(got), number(want)) {
            (Ok(g), Ok(w)) => around(got) == around(want) && (g - w).abs() <= 1e-5 * w.abs().max(1e-3),
            _ => false,
        }
}

fn compare(name: &str, args: &[&str]) {
    let got = run(name, args);
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(format!("{name}.txt"));
    if std::env::var_os("ATMESH_BLESS").is_some() && args.is_empty() {
        std::fs::write(&path, &got).expect("the golden file can be written");
        return;
    }
    let want = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let want = want.lines().filter(|l| !l.contains("ANCHOR"));
    // which engine runs is said in one line
    let said = |l: &&str| !l.starts_with("engine: ");
    let (mut got_lines, mut want_lines) = (got.lines().filter(said), want.filter(said));
    let mut line = 0;
    loop {
        line += 1;
        match (got_lines.next(), want_lines.next()) {
            (None, None) => return,
            (Some(g), Some(w)) => {
                let (gs, ws): (Vec<_>, Vec<_>) =
                    (g.split_whitespace().collect(), w.split_whitespace().collect());
                let same = gs.len() == ws.len() && gs.iter().zip(&ws).all(|(g, w)| same_word(g, w));
                assert!(same, "{name}, line {line}:\n got: {g}\nwant: {w}\n\nall of it:\n{got}");
            }
            (g, w) => panic!("{name}, line {line}:\n got: {g:?}\nwant: {w:?}\n\nall of it:\n{got}"),
        }
    }
}

#[test]
fn tour_prints_what_the_book_shows() {
    compare("tour", &[]);
}
#[test]
fn tour_prints_the_same_on_device_threads() {
    compare("tour", &["--engine", "threads"]);
}
#[test]
fn notebook_prints_what_the_book_shows() {
    compare("notebook", &[]);
}
#[test]
fn collectives_prints_what_the_book_shows() {
    compare("collectives", &[]);
}
#[test]
fn collectives_prints_the_same_on_device_threads() {
    compare("collectives", &["--engine", "threads"]);
}
#[test]
fn heat1d_prints_what_the_book_shows() {
    compare("heat1d", &[]);
}
#[test]
fn big_sin_prints_what_the_book_shows() {
    compare("big_sin", &[]);
}
#[test]
fn follow_prints_what_the_book_shows() {
    compare("follow", &[]);
}
#[test]
fn refusals_prints_what_the_book_shows() {
    compare("refusals", &[]);
}
