//! Tracing: the [`Array`] handle, the traces that record operations on it, and eager execution.
//!
//! An operation on arrays is recorded into the innermost open trace. Without an open trace it runs
//! eagerly. The modules use each other in one direction: `handle` (arrays and the state of traces),
//! `operand`, `pipeline` (from a program to an executable), `op_cache`, `eager`, `record`.
//!
//! # One eager operation
//!
//! These are the steps of `x.dot(&w)` outside of any trace, from the call to the result:
//!
//! 1. `api/array/products.rs` makes the primitive `DotGeneral` (`ir/ops/dot_general.rs`) and the
//!    `CallSite`, and calls `apply1`.
//! 2. `record.rs`: `apply1` finds no open trace, and calls `eager::run_recent`.
//! 3. `eager.rs` asks `op_cache.rs` for the program that this thread compiled for this primitive
//!    and operands of these types. If there is none, `apply` calls `eager::run`, which compiles:
//!    1. `ir/program/builder.rs` builds a program of one equation. It infers the result's type
//!       (`ir/program/typing/mod.rs`), and returns the error of an ill-typed operation.
//!    2. `pipeline.rs` returns the program that any thread compiled for an equal program before.
//!       Otherwise it places all values (`partition/propagate/mod.rs`), writes the program of one
//!       device (`partition/lower/program.rs`), and has it compiled by the engine
//!       (`exec/engine/lockstep/mod.rs`, `exec/compile/plan/build.rs`).
//!    3. `op_cache.rs` keeps the program.
//! 4. `eager.rs` takes the operands' data out of the arrays (`handle.rs`), and runs the executable
//!    (`exec/engine/lockstep/run.rs`). The result is an array of the type that `pipeline.rs` stored
//!    with the program.

pub(crate) mod cache;
mod composite;
mod device_code;
mod eager;
mod handle;
mod op_cache;
mod operand;
pub(crate) mod pipeline;
mod record;
mod scope;
pub(crate) mod what_if;

pub(crate) use composite::CompositeGuard;
pub(crate) use device_code::runs_device_code;
pub use handle::Array;
pub(crate) use handle::{CaptureTypeFn, PlacedType, Repr, Setting, input_placement};
pub(crate) use operand::ArrayOrLiteral;
#[cfg(feature = "typed")]
pub(crate) use record::user_location;
pub(crate) use record::{
    OpenTrace, RecordedProgram, apply, apply_control, apply1, apply1_ref, build, carried_errors, innermost,
    name_equation, poison, run_fused, setting, tracing, type_here,
};
pub(crate) use scope::in_call;
pub use scope::named_scope;
