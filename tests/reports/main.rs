//! Reports about programs before and after they run: plans, memory, explanations and pictures.

#[path = "../error_checks/mod.rs"]
mod error_checks;
#[path = "../soak/mod.rs"]
mod soak;

mod exchanges;
mod explain;
mod facts;
mod memory;
mod notebook;
mod pictures;
mod plan;
mod timeline;
