//! What every primitive of the list must have besides its rules: conformance cases, a derivative that agrees with differences, the same
//! numbers on every mesh, and a row of the book's table. (That it does to many examples at once what it does to each is tested beside `vmap`, in `src/batch/tests.rs`.)
//!
//! All walk `atmesh::ops::PRIMITIVES`: a primitive that lacks one of these fails here.

mod cases;
mod derivatives;
mod devices;
mod identity;
mod page;

#[path = "../conformance/runner/mod.rs"]
#[expect(dead_code, reason = "single cases are run here, not reports of files made")]
mod runner;
