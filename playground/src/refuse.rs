//! What the playground does not run, and what to write in its place.

use crate::error::ErrorResponse;

/// Pairs of names, and what a program can do here: the reason, and what to write.
const REFUSED: &[(&[&str], &str, &str)] = &[
    (
        &["spmd", "Peer", "ArrayView1", "ArrayView2", "ArrayD", "ArrayViewD", "Device"],
        "native SPMD needs a thread for each device, which a page does not have",
        "write the same program with `shard_map(&mesh, p![..], p![..], |x| ..)`, or run it natively",
    ),
    (
        &[
            "T!",
            "S!",
            "P!",
            "N!",
            "mesh!",
            "dim!",
            "einsum!",
            "typed::",
            "Typed",
            "P",
            "T",
            "ix_typed",
            "Dim",
            "TypedMesh",
            "Pod",
        ],
        "typed arrays are checked by the Rust compiler, which is not part of this page",
        "write the program with untyped arrays: `Array`, `p![..]` and `type_of`",
    ),
    (
        &["custom_op", "custom_vjp", "custom_jvp", "CustomOp", "unsafe"],
        "an operation of your own is compiled Rust code, which this page cannot compile",
        "compose it of methods of arrays, or run it natively",
    ),
    (
        &[
            "std::fs",
            "std::env",
            "std::path",
            "File",
            "fs::",
            "env::",
            "save_npy",
            "load_npy",
            "save_npy_all",
            "load_npy_all",
            "save_safetensors",
            "load_safetensors",
            "Checkpoints",
            "TempDir",
            "tree::save_npy",
            "tree::load_npy",
            "include_str!",
            "env!",
            "concat!",
            "load_safetensors_with",
        ],
        "a page has no files",
        "make the arrays in the program: `Array::from(..)` or `Key::new(0).normal(..)`",
    ),
    (
        &["rfft", "irfft", "rfftn", "fft", "ifft", "fftn", "cholesky", "solve", "inv", "svd", "eigh", "lu"],
        "Fourier transforms and factorizations are not part of this page's module",
        "run it natively",
    ),
    (
        &[
            "conv_with",
            "conv",
            "ConvOptions",
            "WindowOptions",
            "max_pool",
            "avg_pool",
            "max_pool_with",
            "avg_pool_with",
            "window_max_with",
            "switch",
            "while_loop_with",
            "WhileOptions",
            "associative_scan",
            "hessian",
            "jacrev",
            "jacfwd",
            "top_k",
            "unique",
            "interp",
            "searchsorted",
            "quantile",
            "median",
            "kron",
            "tensordot",
            "jvp",
            "Adam",
            "Sgd",
            "WeightDecay",
            "accumulate",
            "bincount",
            "flatnonzero",
            "categorical",
            "permutation",
            "AttentionOptions",
            "dot_product_attention",
            "dot_product_attention_with",
            "repeat",
            "tile",
            "diff",
            "gradient",
            "inner",
            "vdot",
            "glorot_normal",
            "glorot_uniform",
            "lecun_normal",
        ],
        "it is left out, so that the module of this page stays small",
        "run it natively",
    ),
    (
        &["to_ndarray", "array!", "nd", "ndarray"],
        "the crate `ndarray` is not part of this page",
        "read elements by `x.to_vec::<f32>()?`, and make arrays by `Array::from([[1.0f32, 2.0]])`",
    ),
    (
        &["Instant::now", "Instant", "Duration", "std::time", "std::thread", "thread::"],
        "a page has no clock and no threads of its own",
        "measure natively; `lower(..)?.plan(&machine)` predicts times",
    ),
    (
        &[
            "Machine",
            "Link",
            "plan::",
            "plan",
            "profile",
            "to_stablehlo",
            "to_stablehlo_with",
            "StableHlo",
            "Summary",
            "Options",
            "LineChart",
            "memory_stats",
        ],
        "plans, profiles and exported programs are not part of this page's module",
        "the report is here: `lower(..)?.collectives()`; run the rest natively",
    ),
    (
        &["distributed::init", "Cluster", "distributed::"],
        "several processes cannot be started from a page",
        "one process has as many devices as its mesh: `Mesh::new([(\"X\", 4)])`",
    ),
];

/// Returns the refusal of a name, if it is one that the playground explains.
pub(crate) fn name(name: &str) -> Option<ErrorResponse> {
    let bare = name.trim_end_matches('!');
    let is = |known: &&str| match known.strip_suffix("::") {
        Some(module) => name.split("::").any(|part| part == module),
        None if known.ends_with('!') => name == *known,
        None => {
            bare == *known || bare.starts_with(&format!("{known}::")) || bare.ends_with(&format!("::{known}"))
        }
    };
    let (_, why, instead) = REFUSED.iter().find(|(names, ..)| names.iter().any(|n| is(n)))?;
    Some(
        ErrorResponse::refused(format!("`{name}` is not part of the playground: {why}")).help(*instead, None),
    )
}
