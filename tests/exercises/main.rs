//! The exercises of the book grade themselves: `cargo run --example exercises`.
//!
//! The tests assert that each answer passes, that each starting program does not, and that common
//! wrong answers get the hint that is written for them.

#[path = "../../examples/exercises/answers/mod.rs"]
mod answers;
#[path = "../../examples/exercises/grader.rs"]
mod grader;
#[path = "../../examples/exercises/report.rs"]
mod report;
#[path = "../../examples/exercises/start/mod.rs"]
mod start;
#[path = "../../examples/exercises/tasks/mod.rs"]
mod tasks;

mod page;
mod wrong;

use atmesh::prelude::*;
use grader::Grade;

#[test]
fn answers_are_right() -> Result<()> {
    for exercise in tasks::all() {
        assert_eq!((exercise.grade)(&answers::ANSWERS)?, Grade::Solved, "{}", exercise.name);
    }
    Ok(())
}

/// A starting program has a gap or a mistake. A mistake gets a hint.
#[test]
fn starting_programs_are_not_right() -> Result<()> {
    let (mut open, mut mistakes) = (0, 0);
    for exercise in tasks::all() {
        match (exercise.grade)(&start::ANSWERS)? {
            Grade::Open => open += 1,
            Grade::Wrong { hint: Some(_), .. } => mistakes += 1,
            grade => {
                panic!("{} starts as {grade:?}: `git checkout examples/exercises` restores it", exercise.name)
            }
        }
    }
    assert!(open >= 15 && mistakes >= 15, "{open} gaps and {mistakes} mistakes");
    Ok(())
}
