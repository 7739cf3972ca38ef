//! The reference engine: every sentence element by element, loop by loop. Slow, and plainly right; the oracle of tests.

use super::{Engine, Executable, RunReport};
use crate::diagnostic::{Error, Result};
use crate::partition::SpmdProgram;
use crate::runtime::Slab;
use std::sync::Arc;

/// Runs programs element by element on the caller's thread.
pub(crate) struct Reference;

struct Plain(SpmdProgram);

impl Engine for Reference {
    fn name(&self) -> &'static str {
        "reference"
    }
    fn compile(&self, program: &SpmdProgram) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(Plain(program.clone())))
    }
}

impl Executable for Plain {
    fn call(&self, args: &[Slab], donated: &[bool]) -> Result<Vec<Slab>> {
        let _ = (&self.0, args, donated);
        Err(Error::other("the reference engine is not built yet"))
    }
    fn report(&self) -> RunReport {
        RunReport { engine: "reference", workers: 1, inline: true, ..RunReport::default() }
    }
}
