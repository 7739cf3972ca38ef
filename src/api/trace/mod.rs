//! Tracing: the [`Array`] handle, the traces that record operations on it, and eager execution.
//!
//! An operation on arrays is recorded into the innermost open trace. Without an open trace it is
//! compiled (or found in a cache) and runs eagerly. The modules contain the handle, the recording
//! of traces, the pipeline from a program to an executable, and the caches of eager operations.

pub(crate) mod cache;
pub(crate) mod eager;
mod handle;
mod op_cache;
pub(crate) mod pipeline;
mod record;
mod scope;
pub(crate) mod what_if;

pub use handle::Array;
pub(crate) use handle::{PlacedType, Repr};
#[cfg(feature = "typed")]
pub(crate) use record::user_location;
pub(crate) use record::{
    ArrayOrLiteral, CaptureTypeFn, OpenTrace, RecordedProgram, Setting, Trace, apply, apply_control, apply1,
    apply1_ref, build, carried_errors, innermost, name_equation, poison, setting, tracing, type_here,
};
pub(crate) use scope::in_call;
pub use scope::named_scope;
