//! Programs over many devices, written once, with sharded arrays whose shardings are part of their types.
//!
//! An [`Array`] is global: a program is written as if there were one device, and the array's type says how it is sharded over the axes of
//! a [`Mesh`]. `int32[4@X,2]` is a 4×2 array whose first dimension is sharded over mesh axis `X`. For each axis of the mesh you
//! choose who decides:
//!
//! * **explicit** ([`Mesh::new`]): shardings are in the types, propagate by fixed rules while a program is traced, and what is
//!   ambiguous is an error that says what to write;
//! * **auto** ([`Mesh::auto`]): you place a few values, propagation and the partitioner do the rest;
//! * **manual**: [`shard_map`](shard_map::shard_map) traces code of one device's blocks with `psum`, `all_gather`, …;
//!   [`spmd`](spmd::spmd) runs your own Rust on a thread per device with the same collectives.
//!
//! ```
//! use atmesh::prelude::*;
//!
//! fn layer(x: &Array, w: &Array, b: &Array) -> Array {
//!     (x.dot(w) + b).logistic()
//! }
//!
//! let mesh = Mesh::new([("X", 8)])?;
//! let [_, xk, wk, bk] = Key::new(1701).split();
//! let (x, w, b) = (xk.normal([32]).put(&mesh, p!["X"]), wk.normal([32, 4]), bk.normal([4]));
//! assert_eq!(type_of(&x), "float32[32@X]");
//!
//! let f = jit(layer); // traced and compiled once for each set of argument types
//! let y = f.call((&x, &w, &b))?;
//! assert_eq!(y.to_string(), "[0.01422223 0.9701333  0.00124826 0.08572859]");
//!
//! // what is communicated, and nothing else
//! assert_collectives!(f.lower((&x, &w, &b))?, AllReduce("X") x 1);
//!
//! // gradients are sharded as the values they belong to
//! let g = grad(&x, |x| layer(&x, &w, &b).sum(..));
//! assert_eq!(type_of(&g), "float32[32@X]");
//! # Ok::<(), atmesh::Error>(())
//! ```
//!
#![cfg_attr(atmesh_book, doc = include_str!("../book/chapters.md"))]
//! # Errors are values that flow
//!
//! An ill-typed operation returns an array that carries the diagnostic; operations on it keep the first cause. It comes out at the next
//! `?`: [`Array::ty`], [`Array::to_vec`], the end of a trace (which reports all independent errors). Nothing panics on bad input.
//!
//! # Names
//!
//! * `f` goes by the rules; `f_to(.., spec)` says how its result is sharded; `f_with(.., options)` takes all that may be said, the options last.
//!   (`broadcast_to` has its shape in its name already: the form with a spec is `broadcast_as`.)
//! * Options and reports may get more fields: options are made by `Default` and their methods, `ScanOptions::default().length(4)`.
//! * A name of numpy or JAX finds ours in the search of these pages: `concatenate`, `moveaxis`, `where`, `device_put`.
//!
//! # What is stable
//!
//! What the root and the [`prelude`] name, with [`array`](mod@array), [`mesh`], [`sharding`], [`types`], [`random`], [`tree`](mod@tree), [`shard_map`](mod@shard_map),
//! [`spmd`](mod@spmd), [`diagnostic`] and [`show`], changes with a major version only. [`program`], [`ops`], [`grad`](mod@grad), [`batch`], [`propagate`],
//! [`partition`], [`plan`], [`engine`], [`runtime`], [`trace`] and [`transform`] are open to those who read programs or write primitives and change with minor versions.
//!
//! # The same bits
//!
//! Where nothing is summed, every element is the same bits at once and under [`jit`], on any mesh, engine and number of workers: each operation
//! rounds by itself, whatever runs in one kernel. Sums of floats follow one tree, by the shape, the sharding and the layout of what is
//! summed; products of matrices add their terms in panels of 512, and the devices' partial values by that tree. (What a NaN carries is left open. Between
//! levels of processors (`ATMESH_CPU` chooses one) last bits of `exp` and its like and of products may differ.) The book has a page on it.
//!
//! # Stages
//!
//! `jit(f)` → [`trace`](Jit::trace) a typed program → [`lower`](Traced::lower) a per-device program with its [`Collectives`] →
//! [`compile`](Lowered::compile) → [`call`](Compiled::call). Each prints.
//!
//! With the feature `tracing`, off by default, each stage is a span for subscribers of the crate `tracing`, at level `DEBUG` with target `atmesh`: `trace`
//! (with the caller's `place`), `lower`, `compile` (with its `engine`) and `call` (with both). A call whose program was compiled before has none of the first three. In the span of
//! [`call_timed`](Compiled::call_timed) each [`Span`](plan::Span) of its timeline is an event `measured` at level `TRACE`, told when the run is over: `track`, `what`, `op`,
//! `place`, `phase`, `kernel`, `begin_ns` and `end_ns`, nanoseconds from the beginning of the call.
//!
//! # Platforms
//!
//! Tested on Linux on x86-64; checked by the compiler for macOS and Linux on AArch64, Windows on x86-64 and `wasm32-unknown-unknown`.
//! Where pointers have 32 bits an array has at most 256 MiB. Without threads (on `wasm32-unknown-unknown`) programs run on the
//! caller's thread by the engine [`EngineKind::Lockstep`]; other engines, and [`spmd`](spmd::spmd), which needs a thread per device, are an `Err`.
//!
//! # Folders
//!
//! From the top down; a folder uses those below it only (a test reads the imports). The book (`book/`) walks through all of it.
//!
//! | folder | what is in it |
//! |---|---|
//! | `typed` | shardings as Rust types, over the arrays of the floors below |
//! | `spmd`, `shard_map` | code of one device: your own Rust on a thread per device, and traced code of one device's blocks |
//! | `transform` | what takes a function: `jit`, `grad`, `vmap`, loops and branches |
//! | `tree` | nests of arrays |
//! | `random` | keys and samplers |
//! | `array` | the methods of arrays |
//! | `trace` | the handle of an array, recording operations on it, running them at once |
//! | `engine` | running what is compiled: in lock-step, on a thread per device, element by element, or by XLA |
//! | `show` | arrays and meshes as text and as pictures |
//! | `compile` | from a per-device program to tile programs and a plan of buffers |
//! | `plan` | how long a step takes on a machine |
//! | `pjrt` | XLA's plugins (feature `xla`) |
//! | `runtime` | memory, kernels, products, workers, messages |
//! | `partition` | from a placed program to one per-device program with its collectives |
//! | `export` | placed programs as StableHLO, for XLA |
//! | `propagate` | a placement for every value |
//! | `batch`, `grad` | programs of many examples; derivatives of programs |
//! | `ops` | the primitives |
//! | `program` | the IR: programs, what a primitive answers, the language of kernels |
//! | `types` | types of arrays |
//! | `sharding` | which device holds what |
//! | `elements`, `mesh` | element types and shapes; devices and their axes |
//! | `diagnostic` | errors |
//! | `axes` | names of axes, and specs |
//! | `sorted`, `digest` | short lists in order; a quick hasher |

extern crate self as atmesh;

/// One of the book's pictures, for these pages.
#[cfg(doc)]
macro_rules! picture {
    ($name:literal) => {
        concat!(
            "\n<figure style=\"margin: 1em 0\">\n",
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/book/src/pictures/", $name, ".svg")),
            "</figure>\n"
        )
    };
}

/// Whether this is built for a page, which loads few bytes rather than fast loops.
macro_rules! on_a_page {
    () => {
        cfg!(target_family = "wasm")
    };
}

/// From here to the end of the block runs in a span of the crate `tracing`; without the feature nothing is there.
macro_rules! in_span {
    ($($span:tt)*) => {
        #[cfg(feature = "tracing")]
        let _span = ::tracing::debug_span!(target: "atmesh", $($span)*).entered();
    };
}

#[cfg(target_pointer_width = "16")]
compile_error!("atmesh needs pointers of 32 or 64 bits");

pub mod array;
mod axes;
pub mod batch;
mod compile;
pub mod diagnostic;
mod digest;
mod elements;
pub mod engine;
pub mod export;
#[cfg(test)]
mod floors;
pub mod grad;
pub mod mesh;
pub mod ops;
pub mod partition;
#[cfg(feature = "xla")]
pub mod pjrt;
pub mod plan;
pub mod program;
pub mod propagate;
pub mod random;
pub mod runtime;
pub mod shard_map;
pub mod sharding;
pub mod show;
mod sorted;
pub mod spmd;
pub mod trace;
pub mod transform;
pub mod tree;
#[cfg(feature = "typed")]
pub mod typed;
pub mod types;

#[cfg(feature = "dlpack")]
pub use dlpark;
pub use ndarray as nd;
pub use num_complex::Complex;

#[cfg(feature = "linalg")]
#[doc(inline)]
pub use array::TriangularOptions;
#[doc(inline)]
pub use array::{
    Array, Beyond, ConvOptions, Dims, Exchange, Gather, IndexOptions, Mode, NewAxis, Operand, Padding,
    Permutation, Places, ProductOptions, Rest, Shard, Term, WindowOptions, axis_index, axis_size, concat,
    einsum, einsum_to, einsum_with, meshgrid, sort_together, stack,
};
pub use atmesh_derive::Tree;
#[doc(inline)]
pub use diagnostic::{Diagnostic, Error, ErrorKind, Result};
#[doc(inline)]
pub use engine::EngineKind;
#[doc(inline)]
pub use mesh::{Axes, Axis, AxisType, DeviceId, Mesh, devices};
#[doc(inline)]
pub use ops::collective::Cast;
#[doc(inline)]
pub use partition::{Collective, Collectives, Kind, Memory, MemoryClass, MemoryEntry};
#[doc(inline)]
pub use program::{Keep, Phase};
#[doc(inline)]
pub use random::Key;
#[doc(inline)]
pub use shard_map::{ShardMap, shard_map};
#[doc(inline)]
pub use sharding::{Sharding, Spec};
#[doc(inline)]
pub use show::{Moves, Picture};
#[doc(inline)]
pub use spmd::{Device, Peer, Spmd, spmd};
#[doc(inline)]
pub use transform::{
    Change, Compiled, Explanation, ImplicitReshard, Jit, Lowered, ScanOptions, Traced, associative_scan,
    associative_scan_from_end, cond, debug_print_values, fori_loop, jit, map, scan, scan_with, switch,
    while_loop,
};
#[doc(inline)]
pub use transform::{
    CustomOp, Pullback, auto_axes, auto_axes_over, checkpoint, checkpoint_with, custom_op, explicit_axes,
    explicit_axes_over, grad, jvp, value_and_grad, vjp,
};
#[doc(inline)]
pub use transform::{MapDims, VmapOptions, vmap, vmap_with};
#[doc(inline)]
pub use tree::{Args, Func, Inferred, Loss, Output, Param, Specs, Static, Tree, TypeOf, type_of};
#[doc(inline)]
pub use types::{ArrayType, DType, Element, Scalar, Shape};

/// What programs use: `use atmesh::prelude::*;`.
pub mod prelude {
    pub use crate::DType::{BF16, Bool, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    pub use crate::EngineKind::{Lockstep, Threads};
    pub use crate::{
        Array, ArrayType, Axis, Cast, DType, DeviceId, Dims, EngineKind, Exchange, Gather, Inferred, Key,
        Mesh, NewAxis, Output, Permutation, Rest, Result, Sharding, Spec, Static, Tree, assert_collectives,
        axes, axis_index, axis_size, concat, cond, debug_print, einsum, einsum_to, fori_loop, ix, jit, p,
        scan, stack, switch, tree, type_of, while_loop,
    };
    // what traces, branches and differentiates
    pub use crate::shard_map::shard_map;
    pub use crate::spmd::{Device, spmd};
    pub use crate::transform::{auto_axes, checkpoint, explicit_axes, grad, jvp, value_and_grad, vjp, vmap};
}

/// The README's program runs unchanged.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// So do the programs of the book's page on `vmap`.
#[cfg(doctest)]
#[doc = include_str!("../book/src/vmap.md")]
mod vmap_page {}

/// And those of its page on sorts and running sums.
#[cfg(doctest)]
#[doc = include_str!("../book/src/lines.md")]
mod lines_page {}

/// And the one that its page on devices times; it is compiled only.
#[cfg(doctest)]
#[doc = include_str!("../book/src/devices.md")]
mod devices_page {}

/// And those of its pages on typed arrays: the chapter, and every rule with what it refuses.
#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../book/src/typed.md")]
mod typed_page {}
#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../book/src/typed_rules.md")]
mod typed_rules_page {}
