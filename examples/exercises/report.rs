//! What is printed about an exercise.

use crate::grader::Grade;
use crate::tasks::Exercise;

/// Returns the row of an exercise in the list of all.
pub(crate) fn line(number: usize, exercise: &Exercise, grade: &Grade) -> String {
    let state = match grade {
        Grade::Solved => "solved",
        Grade::Open => "open",
        Grade::Wrong { .. } => "not yet",
    };
    format!("{number:2}  {:13} {:16} {state}", exercise.part, exercise.name)
}

/// Returns the task of an exercise, and what the check says.
pub(crate) fn page(number: usize, exercise: &Exercise, grade: &Grade) -> String {
    let Exercise { part, name, task, chapter, .. } = exercise;
    let mut text = format!("{number}. {name} ({part}, book/src/{chapter})\n{task}\n");
    let file = exercise.file();
    text += &match grade {
        Grade::Solved => "solved\n".into(),
        Grade::Open => format!("open: fill the gap of `{name}` in examples/exercises/start/{file}\n"),
        Grade::Wrong { why, hint } => {
            let hint = hint.map_or(String::new(), |hint| format!("hint: {hint}\n"));
            format!("not yet: {}\n{hint}it is `{name}` in examples/exercises/start/{file}\n", why.trim_end())
        }
    };
    text
}
