//! Every printed help, followed, leads to a program that is accepted and means the same.

mod operations;
mod random;
#[path = "../told/mod.rs"]
mod told;

/// What is between two pieces of text.
pub(crate) fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let rest = &text[text.find(before)? + before.len()..];
    Some(&rest[..rest.find(after)?])
}
