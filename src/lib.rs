//! Sharded arrays for many devices, with the sharding in the type.
//!
//! An [`Array`] is global: you write a program once, as if there were one device, and the type of
//! each array says how it is sharded over the axes of a [`Mesh`]. `int32[4@X,2]` is a 4×2 array
//! whose first dimension is sharded over mesh axis `X`. For each mesh axis, one of three modes
//! decides the shardings:
//!
//! * **explicit** ([`Mesh::new`]): shardings are part of array types and propagate by fixed rules
//!   during tracing. An ambiguity is an error that suggests fixes.
//! * **auto** ([`Mesh::auto`]): you place a few values, and propagation and the partitioner choose
//!   the other shardings.
//! * **manual**: you write code for one device's blocks, with collectives such as `psum` and
//!   `all_gather`. [`shard_map`](shard_map::shard_map) traces such code, and
//!   [`spmd`](spmd::spmd) runs plain Rust code on a thread for each device.
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
//! // all communication of the program: one all-reduce
//! assert_collectives!(f.lower((&x, &w, &b))?, AllReduce("X") x 1);
//!
//! // gradients have the shardings of the values that they belong to
//! let g = grad(&x, |x| layer(&x, &w, &b).sum(..));
//! assert_eq!(type_of(&g), "float32[32@X]");
//! # Ok::<(), atmesh::Error>(())
//! ```
//!
#![cfg_attr(atmesh_book, doc = include_str!("../book/chapters.md"))]
//! # Closures and arguments
//!
//! **A closure takes trees by value**: `|x: Array|`, and a tuple of several values,
//! `|(w, b): (Array, Array)|`. Every function that traces a closure accepts this form. Two groups
//! differ in what else you may write:
//!
//! * [`grad`], [`value_and_grad`], [`vmap`], [`jvp`], [`vjp`], [`checkpoint`], [`scan`] and similar
//!   functions take the values first and the closure last. The values determine the closure's
//!   types, so leave these out: `|x|`, `|(w, b)|`. If a function takes references, wrap it in a
//!   closure: `grad(&w, |w| loss(&w))`.
//! * [`jit`] and [`shard_map`](shard_map::shard_map) take the closure alone, so write out its
//!   types. Here the closure may also take references, and several parameters instead of one tuple:
//!   `|w: &Array, b: &Array|` is the usual form.
//!
//! There is one exception: the condition of [`while_loop`] takes its argument by reference, because
//! the body takes the same carry by value. The closure of [`spmd`](spmd::spmd) is not traced, and
//! takes views of blocks.
//!
//! **Arguments are passed by value or by reference**, several in one tuple, in any mix:
//! `f.call((&x, y))`. The form of the closure does not matter. An argument that is passed by value
//! is dropped after the call. If you pass a [donated](Jit::donate) argument by value, the Rust
//! compiler rejects its use after the call.
//!
//! ```
//! use atmesh::prelude::*;
//!
//! fn loss(w: &Array, x: &Array) -> Array {
//!     x.dot(w).square().sum(..)
//! }
//! let (w, x) = (Array::ones([3]), Array::ones([2, 3]));
//!
//! // types written out: references, values, or one tuple
//! assert_eq!(jit(loss).call((&w, &x))?.item::<f32>()?, 18.0);
//! assert_eq!(jit(|w: Array, x: Array| loss(&w, &x)).call((&w, &x))?.item::<f32>()?, 18.0);
//! assert_eq!(jit(|(w, x): (Array, Array)| loss(&w, &x)).call((&w, &x))?.item::<f32>()?, 18.0);
//!
//! // types found by inference: values
//! let g = grad(&w, |w| loss(&w, &x));
//! let (gw, gx) = grad((&w, &x), |(w, x)| loss(&w, &x));
//! let losses = vmap(&x, |x| loss(&w, &x));
//! assert_eq!(type_of((g, gw, gx)), "(float32[3], float32[3], float32[2,3])");
//! assert_eq!(losses.to_vec::<f32>()?, [9.0, 9.0]);
//!
//! // arguments: references, values, or both
//! let f = jit(loss);
//! assert_eq!(f.call((&w, x))?.item::<f32>()?, 18.0);
//! # let x = Array::ones([2, 3]);
//! assert_eq!(f.call((w, x))?.item::<f32>()?, 18.0);
//! # Ok::<(), atmesh::Error>(())
//! ```
//!
//! # Errors are values
//!
//! An ill-typed operation returns an array that carries the error, and operations on such an array
//! pass it on. So formulas need no `?`. The error is returned by the next function that returns a
//! `Result`, such as [`Array::ty`] or [`Array::to_vec`], or at the end of a trace, which reports
//! all independent errors. Invalid input never panics.
//!
//! # Naming
//!
//! * `f` follows the default rules; `f_to(.., spec)` sets the sharding of its result;
//!   `f_with(.., options)` takes all options, as the last argument. (`broadcast_to` takes a shape;
//!   its form with a spec is `broadcast_as`.)
//! * Structs for options and reports may get more fields in minor versions. Create options with
//!   `Default` and their methods: `ScanOptions::default().length(4)`.
//! * The search on these pages finds functions by their NumPy and JAX names too: `concatenate`,
//!   `moveaxis`, `where`, `device_put`.
//!
//! # Stability
//!
//! These change with a major version only: the items at the crate root and in the [`prelude`], and
//! the modules `array`, `mesh`, `sharding`, `types`, `random`, `nn`, `tree`, `shard_map`, `spmd`,
//! `diagnostic`, `display` and `notebook`. The modules for readers of programs and authors of
//! primitives change with minor versions: `program`, `ops`, `grad`, `vmap`, `propagate`,
//! `partition`, `plan`, `engine`, `runtime`, `stablehlo`, `pjrt`, `trace` and `transform`.
//!
//! # Reproducibility
//!
//! If no sum is involved, elements have the same bits in eager mode and under [`jit`], on any mesh,
//! engine and number of workers. The reason is that each operation is rounded on its own, even if
//! several run in one kernel. Sums of floats are added in one fixed tree, which depends on the
//! shape, the sharding and the memory layout of the operand. Matrix products add their terms in
//! panels of 512 terms, and add the partial values of the devices in the same fixed tree.
//!
//! The payload of a NaN is unspecified. The last bits of matrix products, and of `exp` and similar
//! functions, may differ between instruction sets (`ATMESH_CPU` selects one). The page "The same
//! bits" of the book has all details.
//!
//! # Stages
//!
//! `jit(f)` → [`trace`](Jit::trace): a typed program → [`lower`](Traced::lower): a per-device
//! program with its [`Collectives`] → [`compile`](Lowered::compile) → [`call`](Compiled::call).
//! Every stage can be printed.
//!
//! With the feature `tracing` (off by default) each stage is a span of the crate `tracing`, at
//! level `DEBUG` with target `atmesh`: `trace` (with the caller's `location`), `lower`, `compile`
//! (with its `engine`) and `call` (with both). A call of a program that is already compiled has
//! only the last one. In the span of [`profile`](Compiled::profile) each [`Span`](plan::Span) of
//! the timeline is an event `measured` at level `TRACE`, emitted after the run: `track`, `kind`,
//! `op`, `location`, `phase`, `kernel`, `start_ns` and `end_ns`. Times are nanoseconds from the
//! start of the call.
//!
//! # Platforms
//!
//! Tested on Linux on x86-64. Type-checked for macOS and Linux on AArch64, Windows on x86-64, and
//! `wasm32-unknown-unknown`. On 32-bit targets an array has at most 256 MiB. Without threads (on
//! `wasm32-unknown-unknown`) programs run on the caller's thread in the engine
//! [`EngineKind::Lockstep`]; other engines, and [`spmd`](spmd::spmd), which needs a thread per
//! device, return an error.
//!
//! # Folders
//!
//! The folders of `src/`, from the top down. A folder uses only the folders below it, which
//! `tests/architecture.rs` checks by reading the imports. So a group (`api`, `xla`, `exec`,
//! `partition`, `ir`, `kernels`, `core`) uses only the groups below it. The row `partition`
//! covers all of this folder except the two with their own row. `ARCHITECTURE.md` follows a
//! `dot` through the folders, and the book (`book/`) explains them.
//!
//! | folder | contents |
//! |---|---|
//! | `api/notebook` | How values show themselves in a Jupyter notebook |
//! | `api/typed` | The typed layer: arrays whose element type, sizes and sharding are part of the Rust type, over the rules of the crate `atmesh_typed` (feature `typed`) |
//! | `api/spmd` | Native manual mode: the user's own Rust code, run on a thread for each device, with collectives |
//! | `api/shard_map` | Traced manual mode: per-device code on blocks of arrays, as an equation of a program |
//! | `api/nn` | Layers, losses, initializers and mixed precision, as functions on arrays |
//! | `api/optim` | Optimizers, schedules and fits: functions of trees of parameters |
//! | `api/transform` | Function transformations: `jit` and its stages, derivatives, `vmap`, control flow, custom operations, explanations of data movement, and StableHLO export |
//! | `api/tree` | Trees of arrays: the arguments and results of functions, and files of them |
//! | `api/random` | Random keys, and the samplers that draw arrays from them |
//! | `api/array` | The methods of `Array`, by topic, and the types of their arguments |
//! | `api/trace` | Tracing: the handle of an array, the traces that record operations, eager execution, and the caches of compiled programs |
//! | `api/distributed` | One program in several processes: `init`, and calls in which all processes take part |
//! | `api/display` | Pictures of arrays, meshes and data movement: terminal tables and SVG images; charts of lines |
//! | `xla/engine` | The engine `Xla`: compiles a placed program as a StableHLO module and runs it on a PJRT plugin (feature `xla`) |
//! | `xla/pjrt` | Bindings to PJRT plugins: loading, compilation, buffers and execution (feature `xla`) |
//! | `xla/stablehlo` | Programs as text of StableHLO modules with Shardy shardings |
//! | `cluster` | One program in several processes: how they find and join each other, and notice deaths |
//! | `exec/engine` | The trait of engines and their registry; `Lockstep`, which runs all devices on one thread pool, `Threads`, with a thread for each device, and `Reference`, which evaluates element by element |
//! | `exec/compile` | The compiler: from a per-device program to fused kernels, buffers and levels of tasks |
//! | `exec/display` | Values of arrays as text in numpy's style, and the output of `debug_print!` |
//! | `exec/runtime` | Arrays in memory, parallel copies, the thread pool, device threads and their mailboxes, and detection of deadlocks |
//! | `partition/plan` | The performance model: predicts the time and memory of a program on a machine model, before anything runs |
//! | `partition` | The SPMD partitioner: lowers a placed program to a draft, assigns layouts by cost, inserts fetches, and reports the collectives of the resulting per-device program |
//! | `partition/propagate` | Sharding propagation: chooses the placement of values on auto axes |
//! | `ir/vmap` | Vectorization: turns a program for one example into a program for a batch of examples |
//! | `ir/grad` | Automatic differentiation: forward mode, linearization, transposition and rematerialization |
//! | `ir/ops` | The primitives: one file or folder for each family, with all rules of each operation |
//! | `ir/program` | The IR: programs and equations, the trait `Primitive`, loop nests, typing rules and verification |
//! | `kernels` | Loops over slices, for each instruction, element type and instruction set: elementwise operations, reductions, matrix products, gathers, sorts, prefix sums and Fourier transforms; and the pool of their memory |
//! | `core/types` | Types of arrays: element type, shape, sharding and varying axes, and their parser |
//! | `core/sharding` | Specs and shardings, the sub-axes that split a dimension, and the block of each device |
//! | `core/scalar_op` | The scalar instructions and reducers that loop nests consist of and kernels implement |
//! | `core/dtype` | Element types, scalars and shapes, which do not depend on placement |
//! | `core/mesh` | Devices, and meshes of them with named axes |
//! | `core/diagnostic` | Errors as values: the message, the source location, the suggested fixes, and their rendering |
//! | `core/axes` | The names of mesh axes, and specs that say which axes split which dimension |
//! | `core/util` | Sorting of short lists, and a fast hasher |

extern crate self as atmesh;

/// Embeds one of the book's pictures in a documentation page.
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

/// Evaluates to the value of an `Ok`; for an error, it returns what the last argument makes of it.
macro_rules! ok_or_return {
    ($result:expr) => {
        ok_or_return!($result, |error| error)
    };
    ($result:expr, |$error:pat_param| $otherwise:expr) => {
        match $result {
            Ok(value) => value,
            Err($error) => return $otherwise,
        }
    };
}

/// Makes a `Fault` of this kind, with a message that is written as in `format!`.
macro_rules! fault {
    ($kind:ident, $($message:tt)+) => {
        $crate::core::diagnostic::Fault::new(
            $crate::core::diagnostic::ErrorKind::$kind,
            format!($($message)+),
        )
    };
}

/// Writes the setters of an options type: each replaces some fields.
macro_rules! setters { ($(
    $(#[$doc:meta])*
    pub fn $name:ident($($arg:ident: $ty:ty),*) = $($field:ident: $value:expr),+;
)*) => {$(
    $(#[$doc])*
    pub fn $name(self, $($arg: $ty),*) -> Self {
        Self { $($field: $value,)+ ..self }
    }
)*} }

/// Writes the conversions into a type: `[parameters] type => |value| result;`.
macro_rules! conversions {
    ($to:ty: $([$($parameter:tt)*] $from:ty => |$value:pat_param| $result:expr;)*) => {$(
        impl<$($parameter)*> From<$from> for $to {
            fn from($value: $from) -> $to {
                $result
            }
        }
    )*};
}

/// Makes the `Debug` form of a type the same as its `Display` form.
macro_rules! debug_as_display {
    ([$($parameter:tt)*] $ty:ty) => {
        impl<$($parameter)*> std::fmt::Debug for $ty {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                std::fmt::Display::fmt(self, f)
            }
        }
    };
}

/// Opens a span of the crate `tracing` until the end of the block.
///
/// Without the feature it expands to nothing.
macro_rules! in_span {
    ($($span:tt)*) => {
        #[cfg(feature = "tracing")]
        let _span = ::tracing::debug_span!(target: "atmesh", $($span)*).entered();
    };
}

#[cfg(target_pointer_width = "16")]
compile_error!("atmesh needs pointers of 32 or 64 bits");

mod api;
mod cluster;
mod core;
mod exec;
mod ir;
#[allow(unreachable_pub, reason = "the names are public within the crate")]
pub(crate) mod kernels;
pub mod partition;
mod xla;

#[doc(inline)]
pub use self::core::{diagnostic, mesh, sharding, types};
#[cfg(feature = "typed")]
#[doc(inline)]
pub use api::typed;
#[doc(inline)]
pub use api::{array, display, distributed, nn, notebook, optim, random, shard_map, spmd, tree};
#[doc(hidden)]
pub use api::{trace, transform};
#[doc(inline)]
pub use exec::{engine, runtime};
#[doc(inline)]
#[doc(hidden)]
pub use ir::{grad, ops, vmap};
#[doc(inline)]
pub use partition::plan;
#[doc(hidden)]
pub use partition::propagate;
#[cfg(feature = "xla")]
#[doc(inline)]
pub use xla::pjrt;
#[doc(inline)]
pub use xla::stablehlo;

#[cfg(feature = "dlpack")]
pub use dlpark;
pub use ndarray as nd;
pub use num_complex::Complex;

#[doc(inline)]
pub use self::core::diagnostic::{Diagnostic, Error, ErrorKind, Result};
#[doc(inline)]
pub use self::core::mesh::{Axes, Axis, AxisType, DeviceId, Mesh, devices};
#[doc(inline)]
pub use self::core::sharding::{Sharding, Spec};
#[doc(inline)]
pub use self::core::types::{
    ArrayType, DType, Element, Precision, Scalar, Shape, default_matmul_precision,
    set_default_matmul_precision,
};
#[doc(hidden)]
pub use api::array::Term;
#[doc(inline)]
pub use api::array::TriangularOptions;
#[doc(inline)]
pub use api::array::{
    AllToAll, Array, AxisGroups, CollectiveDim, ConvOptions, ConvolveMode, Dims, DotOptions, Ellipsis,
    GatherDims, GridIndexing, IndexMode, IndexOptions, NewAxis, Operand, PadMode, Padding, Permutation,
    RaggedRows, Shard, WindowOptions, axis_index, axis_size, concat, einsum, einsum_to, einsum_with,
    meshgrid, sort_by_keys, stack,
};
#[doc(inline)]
pub use api::display::{MovementDiagram, Picture};
#[doc(inline)]
pub use api::random::Key;
#[doc(inline)]
pub use api::shard_map::{ShardMap, SmapDims, shard_map, smap};
#[doc(inline)]
pub use api::spmd::{Device, Peer, Spmd, spmd};
#[doc(inline)]
pub use api::trace::named_scope;
#[doc(inline)]
pub use api::transform::{
    Compiled, Explanation, ImplicitReshard, Jit, Lowered, MapOptions, ScanOptions, Suggestion, Traced,
    WhileOptions, associative_scan, associative_scan_reverse, cond, debug_print_values, fori_loop, jit, map,
    map_with, scan, scan_with, switch, while_loop, while_loop_with,
};
#[doc(inline)]
pub use api::transform::{
    CustomOp, Pullback, Pushforward, auto_axes, auto_axes_over, checkpoint, checkpoint_with, custom_jvp,
    custom_op, custom_vjp, custom_vjp_with, explicit_axes, explicit_axes_over, grad, hessian, hvp, jacfwd,
    jacobian, jacrev, jvp, linearize, value_and_grad, vjp,
};
#[doc(inline)]
pub use api::transform::{MapDims, VmapOptions, vmap, vmap_with};
#[doc(inline)]
pub use api::tree::{
    Args, CallArgs, Func, Inferred, Loss, Output, Param, Specs, Static, Tree, TypeOf, type_of,
};
pub use atmesh_derive::Tree;
#[doc(inline)]
pub use exec::engine::{EngineKind, default_flush_subnormals, set_default_flush_subnormals};
#[doc(inline)]
pub use ir::ops::collective::PcastTo;
#[doc(inline)]
pub use ir::program::{self, CheckpointPolicy, Phase, ScopePath};
#[doc(inline)]
pub use partition::{Collective, CollectiveKind, Collectives, Memory, MemoryClass, MemoryEntry};

/// The items that most programs use: `use atmesh::prelude::*;`.
pub mod prelude {
    pub use crate::DType::{BF16, Bool, C64, C128, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    pub use crate::EngineKind::{Lockstep, Threads};
    pub use crate::TriangularOptions;
    pub use crate::{
        AllToAll, Array, ArrayType, Axes, Axis, AxisType, CheckpointPolicy, CollectiveDim, Compiled,
        ConvOptions, ConvolveMode, CustomOp, DType, DeviceId, Dims, DotOptions, Ellipsis, EngineKind,
        GatherDims, GridIndexing, IndexMode, IndexOptions, Inferred, Jit, Key, Lowered, MapOptions, Mesh,
        NewAxis, Output, PadMode, Padding, Permutation, Result, ScanOptions, ShardMap, Sharding, Spec,
        Static, Traced, Tree, VmapOptions, WindowOptions, assert_collectives, associative_scan, axes,
        axis_index, axis_size, concat, cond, custom_op, debug_print, devices, einsum, einsum_to, einsum_with,
        fori_loop, ix, jit, map, map_with, meshgrid, named_scope, p, scan, scan_with, sort_by_keys, stack,
        switch, tree, type_of, while_loop,
    };
    // tracing, control flow and differentiation
    pub use crate::api::notebook::NotebookDisplay;
    pub use crate::api::shard_map::shard_map;
    pub use crate::api::spmd::{Device, spmd};
    pub use crate::api::transform::{
        auto_axes, auto_axes_over, checkpoint, checkpoint_with, custom_jvp, custom_vjp, explicit_axes,
        explicit_axes_over, grad, hessian, hvp, jacfwd, jacobian, jacrev, jvp, linearize, value_and_grad,
        vjp, vmap, vmap_with,
    };
}

/// Tests the program in the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// Tests the programs on the book's page on `vmap`.
#[cfg(doctest)]
#[doc = include_str!("../book/src/vmap.md")]
mod vmap_page {}

/// Tests the programs on the book's pages for users of other libraries.
#[cfg(doctest)]
#[doc = include_str!("../book/src/jax.md")]
mod jax_page {}
#[cfg(doctest)]
#[doc = include_str!("../book/src/pytorch.md")]
mod pytorch_page {}
#[cfg(doctest)]
#[doc = include_str!("../book/src/mpi.md")]
mod mpi_page {}
#[cfg(doctest)]
#[doc = include_str!("../book/src/reactant.md")]
mod reactant_page {}
#[cfg(doctest)]
#[doc = include_str!("../book/src/numpy.md")]
mod numpy_page {}

/// Tests the program on the book's page on installing.
#[cfg(doctest)]
#[doc = include_str!("../book/src/install.md")]
mod install_page {}

/// Tests the recipes of the book's cookbook.
#[cfg(doctest)]
#[doc = include_str!("../book/src/cookbook.md")]
mod cookbook_page {}

/// Tests the programs on the book's page on layers and losses.
#[cfg(doctest)]
#[doc = include_str!("../book/src/layers.md")]
mod layers_page {}

/// Tests the programs on the book's page on sorts and cumulative sums.
#[cfg(doctest)]
#[doc = include_str!("../book/src/lines.md")]
mod lines_page {}

/// Tests the programs on the book's page on Fourier transforms.
#[cfg(doctest)]
#[doc = include_str!("../book/src/fft.md")]
mod fft_page {}

/// Tests the programs on the book's page on linear algebra.
#[cfg(doctest)]
#[doc = include_str!("../book/src/linalg.md")]
mod linalg_page {}

/// Tests the programs on the book's page on structs of arrays.
#[cfg(doctest)]
#[doc = include_str!("../book/src/trees.md")]
mod trees_page {}

/// Tests the programs on the book's page on logical axes and layouts.
#[cfg(doctest)]
#[doc = include_str!("../book/src/layouts.md")]
mod layouts_page {}
/// Tests the programs on the book's page on optimizers.
#[cfg(doctest)]
#[doc = include_str!("../book/src/optimizers.md")]
mod optimizers_page {}

/// Tests the program on the book's page on a training run.
#[cfg(doctest)]
#[doc = include_str!("../book/src/training.md")]
mod training_page {}

/// Compiles the program on the book's page on devices.
#[cfg(doctest)]
#[doc = include_str!("../book/src/devices.md")]
mod devices_page {}

/// Tests the programs on the book's pages on typed arrays.
#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../book/src/typed.md")]
mod typed_page {}
#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../book/src/typed_structs.md")]
mod typed_structs_page {}
#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../book/src/typed_generic.md")]
mod typed_generic_page {}
#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../book/src/typed_rules.md")]
mod typed_rules_page {}
#[cfg(all(doctest, feature = "typed"))]
#[doc = include_str!("../book/src/typed_compared.md")]
mod typed_compared_page {}
