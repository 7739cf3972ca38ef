//! Complete programs: closures, arguments, tracing, compiling, running, and their errors.

#[path = "../error_checks/mod.rs"]
mod error_checks;

mod book_tables;
mod calling_convention;
mod compiled_once;
mod diagnostics;
mod donation;
mod running;
mod threads_share;
mod tracing;
mod types_as_trees;
