//! The book's page of exercises, whose list is written from the tasks, and the list that is printed.

use crate::grader::Grade;
use crate::tasks::{self, Exercise};
use crate::{report, start};
use atmesh::Error;
use atmesh::prelude::*;
use std::collections::BTreeSet;

/// The line of the page after which the list starts.
const MARKER: &str = "<!-- The list is written by tests/exercises/page.rs -->\n";

fn at(path: &str) -> String {
    format!("{}/{path}", env!("CARGO_MANIFEST_DIR"))
}

fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(at(path)).map_err(|e| Error::other(format!("{path}: {e}")))
}

/// Returns the title of a chapter: its first line.
fn title(chapter: &str) -> Result<String> {
    let page = read(&format!("book/src/{chapter}"))?;
    Ok(page.lines().next().unwrap_or_default().trim_start_matches("# ").to_string())
}

/// Returns the section of an exercise: task, starting program, and the answer, folded.
fn section(number: usize, exercise: &Exercise) -> Result<String> {
    let Exercise { name, task, chapter, .. } = exercise;
    let shown = |folder: &str| {
        let file = exercise.file();
        format!("```rust,ignore\n{{{{#include ../../examples/exercises/{folder}/{file}:{name}}}}}\n```\n")
    };
    Ok(format!(
        "### {number}. `{name}`\n\n{task} ([{}]({chapter}))\n\n{}\n<details><summary>Answer</summary>\n\n{}\n</details>\n",
        title(chapter)?,
        shown("start"),
        shown("answers")
    ))
}

/// Returns the list of all exercises, by parts of the book.
fn list() -> Result<String> {
    let (mut text, mut part) = (String::new(), "");
    for (k, exercise) in tasks::all().iter().enumerate() {
        if exercise.part != part {
            part = exercise.part;
            let (first, rest) = part.split_at(1);
            text += &format!("\n## {}{rest}\n", first.to_uppercase());
        }
        text += "\n";
        text += &section(k + 1, exercise)?;
    }
    Ok(text)
}

#[test]
fn the_page_has_all_exercises() -> Result<()> {
    let path = "book/src/exercises.md";
    let page = read(path)?;
    let (head, _) = page.split_once(MARKER).expect("the page has the marker");
    let want = format!("{head}{MARKER}{}", list()?);
    if std::env::var_os("ATMESH_BLESS").is_some() {
        std::fs::write(at(path), &want).map_err(Error::other)?;
    }
    assert_eq!(read(path)?, want, "`scripts/bless exercises` writes the list");
    let count = format!("{} exercises", tasks::all().len());
    assert!(head.contains(&count), "the page says that there are {count}");
    Ok(())
}

/// The page that teaches an exercise links to it.
#[test]
fn chapters_link_to_their_exercises() -> Result<()> {
    let mut missing = Vec::new();
    for (k, exercise) in tasks::all().iter().enumerate() {
        let link = format!("(exercises.md#{}-{})", k + 1, exercise.name);
        if !read(&format!("book/src/{}", exercise.chapter))?.contains(&link) {
            missing.push(format!("{}: {link}", exercise.chapter));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    Ok(())
}

/// Each exercise has a task, a chapter, and both functions between anchors.
#[test]
fn exercises_are_complete() -> Result<()> {
    let all = tasks::all();
    assert!(all.len() >= 40, "{} exercises", all.len());
    let names: BTreeSet<&str> = all.iter().map(|e| e.name).collect();
    assert_eq!(names.len(), all.len(), "two exercises have one name");
    for exercise in &all {
        assert!(exercise.task.ends_with('.') && exercise.task.len() < 260, "{}", exercise.name);
        for folder in ["start", "answers"] {
            let text = read(&format!("examples/exercises/{folder}/{}", exercise.file()))?;
            for anchor in ["ANCHOR", "ANCHOR_END"] {
                let line = format!("// {anchor}: {}\n", exercise.name);
                assert!(text.contains(&line), "{folder}: {line}");
            }
        }
    }
    let parts: BTreeSet<&str> = all.iter().map(|e| e.part).collect();
    assert_eq!(parts.len(), 15, "{parts:?}");
    Ok(())
}

/// Without a number, the command lists all exercises and their states.
#[test]
fn the_list_has_a_line_for_each() -> Result<()> {
    let all = tasks::all();
    let states: Vec<String> = all[..6]
        .iter()
        .enumerate()
        .map(|(k, e)| Ok(report::line(k + 1, e, &(e.grade)(&start::ANSWERS)?)))
        .collect::<Result<_>>()?;
    assert_eq!(states[4], " 5  communication column_sums      open");
    assert_eq!(report::line(4, &all[3], &Grade::Solved), " 4  arrays        padded_mean      solved");
    Ok(())
}
