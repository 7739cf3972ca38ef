//! Compares the output of the examples with `tests/golden/NAME.txt`: words exactly, numbers to 5
//! digits.
//!
//! The examples must be built from the present sources; older binaries are rejected. `.ci/run
//! examples` sets `ATMESH_EXAMPLES` to the folder of optimized binaries, and compares all programs;
//! without it, some of the slow ones run.
//!
//! `scripts/bless examples` builds them and writes the files again. Their `ANCHOR` lines, which the
//! book uses, stay before the lines that they precede; if such a line is gone, the run fails, and
//! the anchor must be moved by hand. The files of the book's chapters, in `tests/golden/book`, take
//! their anchors from the output of the example. The page `all_shardings.md` and the pictures are
//! also generated from output.

mod built;
mod figures;
mod page_form;
#[path = "../soak/mod.rs"]
mod soak;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

fn run(name: &str, args: &[&str]) -> String {
    let program = built::example(name);
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

/// Copies the anchors of an earlier version into the text: each stays before the lines that
/// followed it.
fn anchored(text: &str, before: &str) -> String {
    fn is_anchor(line: &str) -> bool {
        line.contains("ANCHOR")
    }
    let (mut lines, old): (Vec<&str>, Vec<&str>) = (text.lines().collect(), before.lines().collect());
    let mut at = 0;
    for (i, anchor) in old.iter().enumerate().filter(|(_, line)| is_anchor(line)) {
        let next: Vec<&str> = old[i..].iter().copied().filter(|line| !is_anchor(line)).take(2).collect();
        let here = (at..lines.len()).find(|i| lines[*i..].starts_with(&next));
        let to = if next.is_empty() { Some(lines.len()) } else { here };
        let to = to.unwrap_or_else(|| panic!("{anchor} stood before lines that are gone: {next:?}"));
        lines.insert(to, anchor);
        at = to + 1;
    }
    lines.join("\n") + "\n"
}

fn compare(name: &str, args: &[&str]) {
    let path = at(&format!("tests/golden/{name}.txt"));
    check(name, &run(name, args), &path, args.is_empty(), |l| !l.contains("ANCHOR"));
}

fn at(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path)
}
fn blessing() -> bool {
    std::env::var_os("ATMESH_BLESS").is_some()
}
/// Returns each `step`-th program, or all of them in a soak and when golden files are written.
fn some<T>(programs: impl IntoIterator<Item = T>, step: usize) -> impl Iterator<Item = T> {
    soak::part(programs, if blessing() { 1 } else { step })
}

/// Compares output with a golden file. `shown` returns the lines of the file that are compared.
fn check(name: &str, got: &str, path: &Path, bless: bool, shown: fn(&str) -> bool) {
    if blessing() {
        // While blessing, checks that only compare are skipped, since another test may be writing
        // the file.
        if !bless {
            return;
        }
        let before = std::fs::read_to_string(path).unwrap_or_default();
        // If the files are compared with anchors, the output has its own.
        let text = if shown("ANCHOR") { got.to_string() } else { anchored(got, &before) };
        std::fs::write(path, text).expect("the golden file can be written");
        return;
    }
    let want = std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    // One line of the output names the engine.
    let said = |l: &&str| !l.starts_with("engine: ");
    let (mut got_lines, mut want_lines) =
        (got.lines().filter(said), want.lines().filter(|l| shown(l)).filter(said));
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
/// The output shown in the README is what the command printed below it prints.
#[test]
fn the_readme_shows_what_the_tour_prints() {
    let (readme, golden) = (at("README.md"), at("tests/golden/tour.txt"));
    let read = |p: &Path| std::fs::read_to_string(p).expect("it can be read");
    let (readme, golden) = (read(&readme), read(&golden));
    let blocks: Vec<&str> =
        readme.split("```text\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 3, "the README shows a picture, a report and an error");
    for block in blocks {
        assert!(golden.contains(block), "the tour does not print what the README shows:\n{block}");
    }
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
fn programs_by_indexing_print_what_the_book_shows() {
    for name in ["kmeans", "embedding", "messages", "life"] {
        compare(name, &[]);
    }
}
#[test]
fn one_process_trains_alone() {
    compare("processes", &[]);
}
#[test]
fn training_programs_print_what_they_did() {
    for name in some(["lora", "cnn", "pde_fit", "neural_ode"], 4) {
        compare(name, &[]);
    }
}
#[test]
fn plan_prints_what_the_book_shows() {
    compare("plan", &[]);
}
#[test]
fn big_sin_prints_what_the_book_shows() {
    compare("big_sin", &[]);
}
#[test]
fn mlp_layouts_prints_what_the_book_shows() {
    compare("mlp_layouts", &[]);
}
#[test]
fn experts_and_pipelines_print_what_the_book_shows() {
    compare("moe", &[]);
    compare("pipeline", &[]);
}
#[test]
fn follow_prints_what_the_book_shows() {
    compare("follow", &[]);
}
#[test]
fn errors_prints_what_the_book_shows() {
    compare("errors", &[]);
}

/// Turns the output of a chapter's programs into named sections that the book can include. The
/// output before the first section is the section `start`.
fn chapter(example: &str, name: &str) {
    let (mut text, mut open) = ("ANCHOR: start\n".to_string(), Some("start".to_string()));
    let printed = run(example, &[name]);
    if printed.starts_with("== ") {
        (text, open) = (String::new(), None);
    }
    for line in printed.lines() {
        match line.strip_prefix("== ") {
            // Keep one blank line between outputs, and none before the first.
            None if line.is_empty()
                && text.lines().last().is_none_or(|l| l.is_empty() || l.starts_with("ANCHOR")) => {}
            None => text += &format!("{line}\n"),
            Some(section) => {
                text = end(&text, open);
                text += &format!("ANCHOR: {section}\n");
                open = Some(section.to_string());
            }
        }
    }
    let path = at(&format!("tests/golden/{example}/{name}.txt"));
    check(name, &end(&text, open), &path, true, |_| true);
}
fn end(text: &str, open: Option<String>) -> String {
    open.map_or(String::new(), |section| format!("{}\nANCHOR_END: {section}\n", text.trim_end()))
}

#[test]
fn chapters_print_what_the_book_shows() {
    for name in ["meshes", "shardings", "explicit", "unreduced", "modes"] {
        chapter("book", name);
    }
}
/// Each page of the part on training is a program of the example `project`.
#[test]
fn pages_on_training_print_what_the_book_shows() {
    for name in some(PROJECT, 4) {
        chapter("project", name);
    }
}
const PROJECT: [&str; 12] = [
    "one",
    "optimizer",
    "data",
    "accumulation",
    "fsdp",
    "tensor",
    "both",
    "sequence",
    "pipeline",
    "experts",
    "precision",
    "layouts",
];
/// Every lesson file is a program that runs, and prints what its page shows.
#[test]
fn lessons_print_what_the_book_shows() {
    let mut lessons = 0;
    for file in std::fs::read_dir(at("examples/learn")).expect("there are lessons") {
        let path = file.expect("a lesson").path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        if !["main", "chart", "figures", "plate"].contains(&&*name) {
            chapter("learn", &name);
            lessons += 1;
        }
    }
    assert!(lessons > 15, "only {lessons} lessons");
}
#[test]
fn the_page_of_all_shardings_is_what_its_program_prints() {
    check("all_shardings", &run("book", &["all_shardings"]), &at("book/src/all_shardings.md"), true, |_| {
        true
    });
}
#[test]
fn pictures_of_the_book_are_drawn_again() {
    let fresh = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    let _ = std::fs::remove_dir_all(&fresh);
    let _ = run("book", &["--pictures", fresh.to_str().expect("the path is text")]);
    let _ = run("learn", &["--pictures", fresh.to_str().expect("the path is text")]);
    let draws_all = soak::runs_all() || blessing();
    if draws_all {
        let _ = run("project", &["--pictures", fresh.to_str().expect("the path is text")]);
    }
    let read = |folder: &Path| -> BTreeMap<String, String> {
        let files = std::fs::read_dir(folder).into_iter().flatten();
        files
            .map(|f| f.expect("the folder can be read").path())
            .map(|f| {
                let name = f.file_name().unwrap_or_default().to_string_lossy().into_owned();
                (name, std::fs::read_to_string(&f).expect("pictures are text"))
            })
            .collect()
    };
    let (drawn, folder) = (read(&fresh), at("book/src/pictures"));
    let mut kept = read(&folder);
    // the losses of 300 steps, which the soak compares: tests/safetensors/char_gpt.rs
    kept.remove("char_gpt.svg");
    assert!(drawn.len() > 20, "only {} pictures", drawn.len());
    if blessing() {
        for name in kept.keys() {
            std::fs::remove_file(folder.join(name)).expect("the picture can be removed");
        }
        for (name, picture) in &drawn {
            std::fs::write(folder.join(name), picture).expect("the picture can be written");
        }
        return;
    }
    kept.retain(|name, _| draws_all || drawn.contains_key(name));
    assert_eq!(kept.keys().collect::<Vec<_>>(), drawn.keys().collect::<Vec<_>>());
    for (name, picture) in &drawn {
        assert!(kept[name] == *picture, "{name} is drawn otherwise:\n{picture}");
    }
}

/// On a phone's page of 390 px, pictures have 350 px: their text is at least 11 px high there.
#[test]
fn letters_of_pictures_are_legible_on_a_phone() {
    for file in std::fs::read_dir(at("book/src/pictures")).expect("the book has pictures") {
        let path = file.expect("a picture").path();
        let svg = std::fs::read_to_string(&path).expect("pictures are text");
        let numbers = |name: &str| -> Vec<f64> {
            let before = format!(" {name}=\"");
            let found = svg.split(before.as_str()).skip(1);
            found.filter_map(|rest| rest.split('"').next()?.parse().ok()).collect()
        };
        let wide = numbers("width").into_iter().next().expect("the picture has a width");
        let letters = numbers("font-size").into_iter().fold(f64::INFINITY, f64::min);
        let shown = letters * (350.0 / wide).min(1.0);
        assert!(shown >= 11.0, "{}: letters are {shown:.1} px high", path.display());
    }
}

/// All files that pages include, show or link to exist: mdBook only logs missing ones.
#[test]
fn pages_of_the_book_include_what_there_is() {
    let folder = at("book/src");
    let pages = std::fs::read_dir(&folder).expect("the book has pages").map(|f| f.expect("a page").path());
    let pages = pages.filter(|p| p.extension().is_some_and(|e| e == "md"));
    let listed = std::fs::read_to_string(folder.join("SUMMARY.md")).expect("the book has a summary");
    let mut included = 0;
    for page in pages {
        let text = std::fs::read_to_string(&page).expect("a page can be read");
        let name = page.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let of = page.display();
        // mdBook shows all parts of a program that have one name, but only the first one of other files
        let parts = |verb: &str| text.split(verb).skip(1).map(str::to_string).collect::<Vec<_>>();
        let (programs, files) = (parts("{{#rustdoc_include "), parts("{{#include "));
        let parts = programs.iter().map(|p| (p, true)).chain(files.iter().map(|p| (p, false)));
        for (part, may_repeat) in parts {
            let (path, anchor) = part.split("}}").next().map_or(("", None), |p| match p.split_once(':') {
                Some((path, anchor)) => (path, Some(anchor)),
                None => (p, None),
            });
            let file =
                std::fs::read_to_string(folder.join(path)).unwrap_or_else(|e| panic!("{of}: {path}: {e}"));
            if let Some(a) = anchor {
                let marks = |mark: &str| {
                    file.lines().filter(|l| l.trim_end().ends_with(&format!("{mark}: {a}"))).count()
                };
                let (starts, ends) = (marks("ANCHOR"), marks("ANCHOR_END"));
                let is_there = starts == ends && (starts == 1 || starts > 1 && may_repeat);
                assert!(is_there, "{of}: {path} has no part {a}");
            }
            included += 1;
        }
        // not in programs and messages, which have brackets of their own
        let prose: String = text.split("```").step_by(2).collect();
        let links = prose.split("](").skip(1).filter_map(|l| l.split(')').next());
        // Links into the API docs are checked by the browser script, after the docs are built.
        for link in links.filter(|l| !l.contains("://") && !l.starts_with('#') && !l.starts_with("api/")) {
            let file = link.split('#').next().unwrap_or(link);
            assert!(folder.join(file).exists(), "{of}: there is no {file}");
        }
        let is_listed = listed.contains(&format!("({name})"));
        assert!(name == "SUMMARY.md" || is_listed, "SUMMARY.md does not list {name}");
    }
    assert!(included > 100, "only {included} parts are included");
}

/// Collects the files of a folder and of its subfolders.
fn beneath(folder: &Path, files: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("it is listed").path();
        if path.is_dir() { beneath(&path, files) } else { files.push(path) }
    }
}

/// Returns a word of a comment that has a better standard term: values are placed and sharded, and
/// are in memory.
fn poor(comment: &str) -> Option<&str> {
    let words: Vec<&str> = comment.split(|c: char| !c.is_alphanumeric()).filter(|w| !w.is_empty()).collect();
    let found = words.iter().zip(words.iter().skip(1).chain([&""])).find(|(word, next)| match **word {
        "lie" | "lies" | "lying" => true,
        "stands" | "stood" => **next != "for",
        _ => false,
    });
    found.map(|f| *f.0)
}

/// The book, the printed output and the strings in the sources use standard terms, so that a search
/// finds them.
#[test]
fn texts_use_the_words_of_the_field() {
    const INSTEAD: [(&str, &str); 12] = [
        ("stands twice", "appears twice"),
        ("come apart", "is divisible"),
        ("comes apart", "is divisible"),
        ("misshapen", "of the wrong shape"),
        ("bytes a device", "bytes per device"),
        ("thread a device", "thread per device"),
        ("split alike", "sharded the same way"),
        ("lie alike", "are sharded the same way"),
        ("in parts", "unreduced, partial"),
        ("is no axis of", "is not an axis of"),
        ("lies as", "is sharded as"),
        ("to lie as", "to be sharded as"),
    ];
    let mut files = vec![at("README.md")];
    for folder in ["book/src", "tests/golden", "src"] {
        beneath(&at(folder), &mut files);
    }
    let mut wrong = Vec::new();
    for file in files {
        // `scripts/playground` writes this file, which has the code of all programs.
        if file.ends_with("playground/wholes.json") {
            continue;
        }
        let Ok(text) = std::fs::read_to_string(&file) else { continue };
        let source = file.extension().is_some_and(|e| e == "rs");
        for (n, line) in text.lines().enumerate() {
            // In a source file, check comments and string literals.
            let (code, comment) = line.split_once("//").unwrap_or((line, ""));
            let texts = code.split('"').skip(1).step_by(2).chain([comment]);
            let texts_of_line: Vec<&str> = if source { texts.collect() } else { vec![line] };
            if let Some(word) = poor(comment).filter(|_| source) {
                wrong.push(format!("{}:{}: \"{word}\" in a comment: say where it is", file.display(), n + 1));
            }
            for (idiom, word) in INSTEAD {
                if texts_of_line.iter().any(|t| t.contains(idiom)) {
                    wrong.push(format!("{}:{}: \"{idiom}\": say \"{word}\"", file.display(), n + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Programs that train and decode print the same; `char_gpt` runs a few of its steps.
#[test]
#[cfg(feature = "safetensors")]
fn programs_with_files_print_what_the_book_shows() {
    compare("llama", &[]);
    chapter("project", "resume");
    let golden = at("tests/golden/char_gpt.txt");
    check("char_gpt", &run("char_gpt", &["10"]), &golden, true, |l| !l.contains("ANCHOR"));
}

#[test]
#[cfg(feature = "typed")]
fn typed_examples() {
    compare("typed_heat", &[]);
    compare("typed_mlp", &[]);
    compare("typed_shard_map", &[]);
    compare("typed_train", &[]);
    compare("typed_transformer", &[]);
}
