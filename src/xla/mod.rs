//! XLA: programs as StableHLO text, and their execution by a PJRT plugin.

#[cfg(feature = "xla")]
pub(crate) mod engine;
#[cfg(feature = "xla")]
pub mod pjrt;
pub mod stablehlo;
