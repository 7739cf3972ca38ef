//! Every printed help, when followed, gives a program that is accepted and has the same meaning.

#[path = "../error_checks/mod.rs"]
mod error_checks;
mod operations;
mod programs;
mod random;
mod regions;

/// Returns the text between two pieces of text.
pub(crate) fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}
