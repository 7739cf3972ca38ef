//! The engine of a program, and the options that the engine compiles it with.

use super::EngineKind;
use crate::core::{ErrorKind, Fault};
use crate::kernels::flush_mode;
use std::sync::atomic::{AtomicBool, Ordering};

/// The engine of a program, and the options that the engine compiles it with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct EngineConfig {
    /// The engine.
    pub(crate) kind: EngineKind,
    /// True if subnormal numbers are zeros.
    pub(crate) flush_subnormals: bool,
}

impl EngineConfig {
    /// Returns the configuration with the process's defaults for options that are not given.
    pub(crate) fn new(kind: Option<EngineKind>, flush_subnormals: Option<bool>) -> EngineConfig {
        EngineConfig {
            kind: kind.unwrap_or_default(),
            flush_subnormals: flush_subnormals.unwrap_or_else(default_flush_subnormals),
        }
    }
    /// Returns the configuration of operations outside of `jit`, on this engine.
    pub(crate) fn eager(kind: EngineKind) -> EngineConfig {
        EngineConfig::new(Some(kind), None)
    }
    /// Checks that the engine can flush subnormal numbers, if that was asked for.
    pub(super) fn check(self) -> Result<(), Fault> {
        if !self.flush_subnormals {
            return Ok(());
        }
        let fault = match self.kind {
            EngineKind::Xla => {
                let message = "the engine xla has no option to flush subnormal numbers: its plugin decides";
                Fault::new(ErrorKind::Unsupported, message)
                    .help("use the engine lockstep or threads: `jit(f).flush_subnormals(true).engine(Lockstep)`")
                    .help("or leave it to the plugin: `jit(f).flush_subnormals(false)`")
            }
            _ if !flush_mode::IS_SUPPORTED => {
                let message = "subnormal numbers cannot be flushed on this processor";
                Fault::new(ErrorKind::Unsupported, message)
                    .help("keep them: `jit(f).flush_subnormals(false)`; flushing needs x86-64 or AArch64")
            }
            _ => return Ok(()),
        };
        Err(fault)
    }
}

static DEFAULT_FLUSH_SUBNORMALS: AtomicBool = AtomicBool::new(false);

/// Returns true if programs flush subnormal numbers unless
/// [`Jit::flush_subnormals`](crate::Jit::flush_subnormals) says otherwise.
///
/// It is false until [`set_default_flush_subnormals`] changes it.
///
/// ```
/// println!("subnormal numbers are flushed: {}", atmesh::default_flush_subnormals());
/// ```
pub fn default_flush_subnormals() -> bool {
    DEFAULT_FLUSH_SUBNORMALS.load(Ordering::Relaxed)
}

/// Sets, for the whole process, whether programs flush subnormal numbers.
///
/// This is the default of [`Jit::flush_subnormals`](crate::Jit::flush_subnormals), which says what
/// it means and when to use it, and the setting of operations outside of [`jit`](crate::jit). It is
/// read when a program is traced, so functions that were called before keep their setting.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::set_default_flush_subnormals;
///
/// let x = Array::from([1e-38f32, 1.0]);
/// assert!((&x * 0.5).to_vec::<f32>()?[0] > 0.0);
/// set_default_flush_subnormals(true);
/// assert_eq!((&x * 0.5).to_vec::<f32>()?, [0.0, 0.5]);
/// set_default_flush_subnormals(false);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("denormals", "ftz", "daz", "set_flush_denormal"))]
pub fn set_default_flush_subnormals(flush: bool) {
    DEFAULT_FLUSH_SUBNORMALS.store(flush, Ordering::Relaxed);
}
