//! Requirements on every primitive in the list in addition to its rules: a conformance case, a
//! derivative that agrees with finite differences, the same results on every mesh, and a row in the
//! book's table. (`src/ir/vmap/tests.rs` tests that `vmap` of a primitive applies it to each
//! example.)
//!
//! All tests walk `atmesh::ops::PRIMITIVES`: a primitive that lacks one of these fails here.

mod cases;
mod derivatives;
mod devices;
mod identity;
mod page;

#[path = "../soak/mod.rs"]
mod soak;

#[path = "../conformance/runner/mod.rs"]
#[expect(dead_code, reason = "single cases are run here, not reports of files made")]
mod runner;
