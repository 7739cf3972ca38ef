//! What is told of a program: the names and figures of what it communicates, and its text.

pub(super) mod names;
mod print;
mod seen;
