//! Exercises that grade themselves.
//!
//! `cargo run --example exercises` lists them, `-- 7` grades the seventh, and `-- 7 answer` grades the
//! one in the folder `answers` instead. Each is a function with a gap in the folder `start`.

mod answers;
mod grader;
mod report;
mod start;
mod tasks;

use atmesh::prelude::*;
use grader::Grade;
use tasks::Exercise;

fn main() -> Result<()> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let asks_for_answer = words.pop_if(|word| word == "answer").is_some();
    let mine = if asks_for_answer { &answers::ANSWERS } else { &start::ANSWERS };
    let all = tasks::all();
    let chosen: Vec<usize> = (0..all.len()).filter(|k| is_chosen(&words, *k, &all[*k])).collect();
    if chosen.is_empty() {
        return Err(atmesh::Error::other(format!(
            "there is no exercise {}: they are 1 to {}",
            words[0],
            all.len()
        )));
    }
    let mut solved = 0;
    for k in &chosen {
        let (exercise, number) = (&all[*k], k + 1);
        let grade = (exercise.grade)(mine)?;
        solved += usize::from(grade == Grade::Solved);
        if words.is_empty() {
            println!("{}", report::line(number, exercise, &grade));
        } else {
            println!("{}", report::page(number, exercise, &grade));
        }
    }
    if words.is_empty() {
        println!("{solved} of {} are solved. Show one: cargo run --example exercises -- 1", all.len());
    }
    Ok(())
}

/// True if a number, a name or a part of the book chooses the exercise. No word chooses all.
fn is_chosen(words: &[String], k: usize, exercise: &Exercise) -> bool {
    words.is_empty()
        || words.iter().any(|w| *w == (k + 1).to_string() || w == exercise.name || w == exercise.part)
}
