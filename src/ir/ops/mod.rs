//! The primitives, with one file or folder for each family.
//!
//! Each primitive is defined with all its rules in one place. To add one, edit its family's file
//! and the list [`PRIMITIVES`]. A missing rule is a compile error. Tests check that every primitive
//! in the list is complete, and the list generates the tables of the book.

/// Defines the name, the linearity and, if there are any, the parameters of a primitive.
macro_rules! described {
    ($this:ident, $name:expr, $linearity:expr $(, $params:expr)?) => {
        fn name(&$this) -> &'static str {
            $name
        }
        fn linearity(&$this) -> crate::ir::program::Linearity {
            $linearity
        }
        $(
            fn params(&$this) -> String {
                $params
            }
        )?
    };
}

pub mod along_axis;
pub mod builder_ext;
pub mod collective;
pub mod creation;
pub(crate) mod custom;
mod dim_check;
pub mod dot_general;
pub mod elementwise;
mod fit_cotangent;
pub mod indexing;
pub mod linalg;
pub mod ragged_dot;
pub mod random;
pub mod reduce;
pub(crate) mod retype;
pub mod shape;
pub mod sharding;
pub mod slicing;
mod structural;
#[cfg(test)]
mod test_util;
pub mod windows;

use crate::core::types::DType::{Bool, C64, F32, I32, Key, U32};
use crate::core::{ArrayType, AxisType, Mesh, Precision, Scalar};
use crate::ir::program::{OutOfBounds, Prim, Reducer};
use along_axis::{Argsort, CumulativeOp, CumulativeScan, Fft, FftKind, Recurrence, Sort, TopK};
use collective::{
    AllGather, AllGatherTo, AllToAllPrim, AxisIndex, CollectiveGroup, OwnPart, Pbroadcast, Pcast, PcastTo,
    Ppermute, Preduce, PsumScatter,
};
use creation::{Full, Iota};
use dot_general::DotGeneral;
use elementwise::{Binary, Bitcast, Clamp, Convert, Select, Unary};
use indexing::{DynamicSlice, DynamicUpdateSlice, Gather, GatherDims, Scatter};
use ragged_dot::{RaggedDot, RaggedDotMode};
use random::{RandomBits, RandomFoldIn, RandomKeyData, RandomSplit, RandomWrap};
use reduce::{Reduce, Reduction};
use shape::{BroadcastInDim, ExpandDims, Reshape, Rev, Roll, Squeeze, Transpose};
use sharding::{Constrain, Copy, Reshard};
use slicing::{Concatenate, Pad, Slice, UpdateSlice};
use std::sync::Arc;
use windows::{Conv, ReduceWindow, Window, WindowExtreme, WindowPick, Windows};

/// An entry of the list of primitives.
pub struct PrimitiveEntry {
    /// The name of the primitive, as programs print it.
    pub name: &'static str,
    /// The family of the primitive.
    pub family: &'static str,
    /// Returns an instance of the primitive and the types of operands that it accepts.
    pub example: fn() -> (Prim, Vec<ArrayType>),
}

/// Builds a [`PrimitiveEntry`]: `entry!(name, family, primitive, [dtypes and shapes of operands])`.
///
/// Operands on a mesh are given by their types: `entry!(name, family, primitive; [types])`.
macro_rules! entry {
    ($name:expr, $family:literal, $prim:expr, [$($dtype:ident $shape:tt),*]) => {
        entry!($name, $family, $prim; [$($dtype.array_type($shape)),*])
    };
    ($name:expr, $family:literal, $prim:expr; [$($ty:expr),*]) => {
        PrimitiveEntry { name: $name, family: $family, example: || (Arc::new($prim), vec![$($ty),*]) }
    };
}

/// Returns the type of the example operands of a scalar function that accepts this class.
macro_rules! example {
    (Complex) => {
        C64.array_type([8, 4])
    };
    (Bits) => {
        Bool.array_type([8, 4])
    };
    (Integer) => {
        I32.array_type([8, 4])
    };
    ($class:ident) => {
        F32.array_type([8, 4])
    };
}

/// Defines the list of primitives: the scalar functions of the table, then these entries.
macro_rules! primitives {
    (
        [$($entry:tt)*]
        methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* }
        unary { $($(#[$note:meta])* $u:ident $term:ident $on:ident: $unary:expr;)* }
        binary { $($(#[$text:meta])* $b:ident $word:ident $of:ident: $binary:expr;)* }
        $($rest:tt)*
    ) => {
        /// All primitives, by family.
        pub const PRIMITIVES: &[PrimitiveEntry] = &[
            $(entry!(stringify!($name), "elementwise", Unary::$v; [example!($takes)]),)*
            $(entry!(stringify!($term), "elementwise", Unary::$u; [example!($on)]),)*
            $(entry!(stringify!($word), "elementwise", Binary::$b; [example!($of), example!($of)]),)*
            $($entry)*
        ];
    };
}
crate::scalar_functions! { primitives
    entry!("angle", "elementwise", Unary::Angle, [C64[8, 4]]),
    entry!("stop_gradient", "elementwise", Unary::StopGradient, [F32[8, 4]]),
    entry!("square", "elementwise", Unary::Square, [F32[8, 4]]),
    entry!("reciprocal", "elementwise", Unary::Reciprocal, [F32[8, 4]]),
    entry!("relu", "elementwise", Unary::Relu, [F32[8, 4]]),
    entry!("silu", "elementwise", Unary::Silu, [F32[8, 4]]),
    entry!("softplus", "elementwise", Unary::Softplus, [F32[8, 4]]),
    entry!("gelu", "elementwise", Unary::Gelu { approximate: true }, [F32[8, 4]]),
    entry!("integer_pow", "elementwise", Unary::IntegerPow(3), [F32[8, 4]]),
    entry!("hypot", "elementwise", Binary::Hypot, [F32[8, 4], F32[8, 4]]),
    entry!("xlogy", "elementwise", Binary::Xlogy, [F32[8, 4], F32[8, 4]]),
    entry!("select", "elementwise", Select, [Bool[8, 4], F32[8, 4], F32[8, 4]]),
    entry!("clamp", "elementwise", Clamp, [F32[], F32[8, 4], F32[]]),
    entry!("convert_element_type", "elementwise", Convert { dtype: I32 }, [F32[8, 4]]),
    entry!("bitcast_convert_type", "elementwise", Bitcast { dtype: I32 }, [F32[8, 4]]),
    entry!("reduce_sum", "reduce", Reduce::new(Reduction::Sum, &[1], None), [F32[8, 4]]),
    entry!("reduce_max", "reduce", Reduce::new(Reduction::Max, &[1], None), [F32[8, 4]]),
    entry!("reduce_min", "reduce", Reduce::new(Reduction::Min, &[1], None), [F32[8, 4]]),
    entry!("reduce_prod", "reduce", Reduce::new(Reduction::Prod, &[1], None), [F32[8, 4]]),
    entry!("reduce_and", "reduce", Reduce::new(Reduction::And, &[1], None), [Bool[8, 4]]),
    entry!("reduce_or", "reduce", Reduce::new(Reduction::Or, &[1], None), [Bool[8, 4]]),
    entry!("dot_general", "product", DotGeneral::matmul(), [F32[8, 4], F32[4, 2]]),
    entry!("ragged_dot", "product", RaggedDot::new(RaggedDotMode::PerRow), [F32[8, 4], Bool[8, 2], F32[2, 4, 6]]),
    entry!("ragged_dot_per_group", "product", RaggedDot::new(RaggedDotMode::PerGroup), [F32[8, 4], Bool[8, 2], F32[8, 6]]),
    entry!("conv_general_dilated", "windows",
        Conv {
            batch: [vec![], vec![]],
            contracting: [vec![3], vec![2]],
            spatial: [vec![1, 2], vec![0, 1]],
            windows: vec![Window { stride: 2, padding_low: 1, ..Window::default() }, Window { padding_low: 1, padding_high: 1, ..Window::default() }],
            output_order: vec![0, 1, 2, 3],
            out_sharding: None,
            accum_dtype: None,
            precision: Precision::Highest,
        },
        [F32[2, 4, 4, 2], F32[2, 3, 2, 2]]),
    entry!("reduce_window_sum", "windows", reduce_window(Reduction::Sum), [F32[4, 6]]),
    entry!("reduce_window_max", "windows", reduce_window(Reduction::Max), [F32[4, 6]]),
    entry!("reduce_window_min", "windows", reduce_window(Reduction::Min), [F32[4, 6]]),
    entry!("reduce_window_prod", "windows", reduce_window(Reduction::Prod), [F32[4, 6]]),
    entry!("reduce_window_and", "windows", reduce_window(Reduction::And), [Bool[4, 6]]),
    entry!("reduce_window_or", "windows", reduce_window(Reduction::Or), [Bool[4, 6]]),
    entry!("window_extreme", "windows", WindowExtreme { windows: pooling_windows() }, [F32[4, 6], F32[4, 4]]),
    entry!("window_pick", "windows", WindowPick { windows: pooling_windows(), transposed: false, out_sharding: None }, [I32[4, 4], F32[4, 6]]),
    entry!("window_place", "windows", WindowPick { windows: pooling_windows(), transposed: true, out_sharding: None }, [I32[4, 6], F32[4, 6]]),
    entry!("full", "creation", Full { ty: F32.array_type([8, 4]), value: Scalar::Float(1.0) }, []),
    entry!("iota", "creation", Iota { ty: I32.array_type([8, 4]), dimension: 1 }, []),
    entry!("random_bits", "random", RandomBits { ty: U32.array_type([8, 4]), num_key_dims: 0 }, [Key[]]),
    entry!("random_split", "random", RandomSplit { ty: Key.array_type([8]), num_key_dims: 0 }, [Key[]]),
    entry!("random_fold_in", "random", RandomFoldIn, [Key[], I32[]]),
    entry!("random_key_data", "random", RandomKeyData, [Key[8]]),
    entry!("random_wrap", "random", RandomWrap, [U32[8, 2]]),
    entry!("broadcast_in_dim", "shape",
        BroadcastInDim { shape: [3, 2, 4].into(), broadcast_dimensions: vec![2, 0], out_sharding: None }, [F32[4, 1]]),
    entry!("reshape", "shape", Reshape { new_sizes: [4, 6].into(), out_sharding: None }, [F32[2, 3, 4]]),
    entry!("transpose", "shape", Transpose { permutation: vec![2, 0, 1] }, [F32[2, 3, 4]]),
    entry!("squeeze", "shape", Squeeze { dimensions: vec![1] }, [F32[2, 1, 3]]),
    entry!("expand_dims", "shape", ExpandDims { dimensions: vec![0, 2] }, [F32[3, 2]]),
    entry!("rev", "shape", Rev { dimensions: vec![1] }, [F32[2, 3]]),
    entry!("roll", "shape", Roll { shift: 1, dimension: 1 }, [F32[2, 3]]),
    entry!("cumsum", "lines", CumulativeScan { kind: CumulativeOp::Sum, axis: 1, reverse: false }, [F32[8, 4]]),
    entry!("cumprod", "lines", CumulativeScan { kind: CumulativeOp::Prod, axis: 1, reverse: false }, [F32[8, 4]]),
    entry!("cummax", "lines", CumulativeScan { kind: CumulativeOp::Max, axis: 1, reverse: false }, [F32[8, 4]]),
    entry!("cummin", "lines", CumulativeScan { kind: CumulativeOp::Min, axis: 1, reverse: true }, [F32[8, 4]]),
    entry!("cumlogsumexp", "lines", CumulativeScan { kind: CumulativeOp::LogSumExp, axis: 1, reverse: false }, [F32[8, 4]]),
    entry!("recurrence", "lines", Recurrence { axis: 1, reverse: false }, [F32[8, 4], F32[8, 4]]),
    entry!("sort", "lines", Sort { axis: 1, keys: 1 }, [F32[8, 4], F32[8, 4]]),
    entry!("argsort", "lines", Argsort { axis: 1, keys: 1 }, [F32[8, 4]]),
    entry!("fft", "lines", Fft { kind: FftKind::Forward, lengths: [6].into() }, [C64[4, 6]]),
    entry!("ifft", "lines", Fft { kind: FftKind::Inverse, lengths: [4, 6].into() }, [C64[4, 6]]),
    entry!("rfft", "lines", Fft { kind: FftKind::Real, lengths: [4].into() }, [F32[6, 4]]),
    entry!("irfft", "lines", Fft { kind: FftKind::InverseReal, lengths: [6].into() }, [C64[6, 4]]),
    entry!("top_k", "lines", TopK { k: 2, axis: 1 }, [F32[8, 4]]),
    entry!("cholesky", "linalg", linalg::Cholesky, [F32[6, 2, 2]]),
    entry!("triangular_solve", "linalg", linalg::TriangularSolve { left_side: true, lower: true, transpose_a: false, unit_diagonal: false }, [F32[2, 3, 3], F32[2, 3, 2]]),
    entry!("lu", "linalg", linalg::Lu, [F32[6, 2, 3]]),
    entry!("qr", "linalg", linalg::Qr { full_matrices: false }, [F32[6, 3, 2]]),
    entry!("eigh", "linalg", linalg::Eigh, [F32[6, 2, 2]]),
    entry!("eigvalsh", "linalg", linalg::Eigvalsh, [F32[6, 2, 2]]),
    entry!("svd", "linalg", linalg::Svd { full_matrices: false }, [F32[6, 3, 2]]),
    entry!("svdvals", "linalg", linalg::Svdvals, [F32[6, 3, 2]]),
    entry!("solve", "linalg", linalg::Solve { transposed: false }, [F32[2, 3, 3], F32[2, 3, 2]]),
    entry!("inv", "linalg", linalg::Inv, [F32[6, 2, 2]]),
    entry!("det", "linalg", linalg::Det, [F32[6, 2, 2]]),
    entry!("slogdet", "linalg", linalg::Slogdet, [F32[6, 2, 2]]),
    entry!("cofactors", "linalg", linalg::Cofactors, [F32[6, 3, 3]]),
    entry!("pinv", "linalg", linalg::Pinv { tolerance: Scalar::Float(1e-5) }, [F32[6, 3, 2]]),
    entry!("slice", "slicing",
        Slice { start: vec![1, 0], limit: vec![7, 3], strides: vec![2, 1], out_sharding: None }, [F32[9, 3]]),
    entry!("pad", "slicing",
        Pad { low: vec![2, -1], high: vec![-1, 1], interior: vec![1, 0], value: Scalar::Float(0.5), out_sharding: None },
        [F32[4, 3]]),
    entry!("concatenate", "slicing", Concatenate { dimension: 1 }, [F32[2, 2], F32[2, 4], F32[2, 2]]),
    entry!("update_slice", "slicing", UpdateSlice { start: vec![2, 1] }, [F32[4, 6], F32[2, 4]]),
    entry!("dynamic_slice", "indexing",
        DynamicSlice { sizes: [3, 4].into(), dims: vec![0, 1], batch_dims: vec![], out_sharding: None }, [F32[8, 4], I32[], I32[]]),
    entry!("dynamic_update_slice", "indexing",
        DynamicUpdateSlice { dims: vec![1], batch_dims: vec![], reducer: None, out_sharding: None }, [F32[8, 4], F32[8, 2], I32[]]),
    entry!("gather", "indexing",
        Gather { dims: GatherDims::rows(2, 0, 1, OutOfBounds::Clip), slice_sizes: [1, 4].into(), fill: Scalar::Float(0.0), out_sharding: None },
        [F32[8, 4], I32[3, 1]]),
    entry!("scatter", "indexing",
        Scatter { dims: GatherDims::rows(2, 0, 1, OutOfBounds::Drop), reducer: None, out_sharding: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("scatter_add", "indexing",
        Scatter { dims: GatherDims::rows(2, 0, 1, OutOfBounds::Drop), reducer: Some(Reducer::Add), out_sharding: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("scatter_mul", "indexing",
        Scatter { dims: GatherDims::rows(2, 0, 1, OutOfBounds::Drop), reducer: Some(Reducer::Mul), out_sharding: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("scatter_max", "indexing",
        Scatter { dims: GatherDims::rows(2, 0, 1, OutOfBounds::Drop), reducer: Some(Reducer::Max), out_sharding: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("scatter_min", "indexing",
        Scatter { dims: GatherDims::rows(2, 0, 1, OutOfBounds::Drop), reducer: Some(Reducer::Min), out_sharding: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("reshard", "sharding", Reshard::new(example_mesh(AxisType::Explicit), crate::p!["X"]), [F32[4, 2]]),
    entry!("constrain", "sharding", Constrain::new(example_mesh(AxisType::Auto), crate::p!["X"]), [F32[4, 2]]),
    entry!("copy", "sharding", Copy, [F32[4]]),
    entry!("psum", "collective", Preduce { group: example_group(), reducer: Reducer::Add }; [varying_type()]),
    entry!("pmax", "collective", Preduce { group: example_group(), reducer: Reducer::Max }; [varying_type()]),
    entry!("pmin", "collective", Preduce { group: example_group(), reducer: Reducer::Min }; [varying_type()]),
    entry!("all_gather", "collective", AllGather { group: example_group(), dim: 1, tiled: true, to: AllGatherTo::Varying };
        [varying_type()]),
    entry!("psum_scatter", "collective", PsumScatter { group: example_group(), dim: 1, tiled: true }; [varying_type()]),
    entry!("own_part", "collective", OwnPart { group: example_group(), dim: 0, tiled: false }; [invarying_type()]),
    entry!("all_to_all", "collective", AllToAllPrim { group: example_group(), split_dim: 1, concat_dim: 0, tiled: true }; [varying_type()]),
    entry!("ppermute", "collective", Ppermute { group: example_group(), pairs: vec![(0, 1), (1, 0)] }; [varying_type()]),
    entry!("pbroadcast", "collective", Pbroadcast { group: example_group(), source: 1 }; [varying_type()]),
    entry!("axis_index", "collective", AxisIndex { group: example_group() }, []),
    entry!("pvary", "collective", Pcast { group: example_group(), to: PcastTo::Varying }; [invarying_type()]),
    entry!("pcast", "collective", Pcast { group: example_group(), to: PcastTo::Unreduced }; [varying_type()]),
}

/// Returns 1×2 windows with stride 2 along the second dimension and a padding of 1 at both ends.
fn pooling_windows() -> Windows {
    let over = Window { stride: 2, padding_low: 1, padding_high: 1, ..Window::default() };
    Windows { sizes: vec![1, 2], dims: vec![Window::default(), over] }
}

/// Returns a reduction over the example windows.
fn reduce_window(kind: Reduction) -> ReduceWindow {
    ReduceWindow { kind, windows: pooling_windows(), out_sharding: None }
}

/// Returns a mesh of two axes of this type.
fn example_mesh(axes: AxisType) -> Mesh {
    Mesh::with_types([("X", 2, axes), ("Y", 2, axes)]).expect("two axes make a mesh")
}

/// Returns a group of two devices along a manual axis.
pub(crate) fn example_group() -> CollectiveGroup {
    let mesh = Mesh::with_types([("X", 2, AxisType::Manual)]).expect("one axis makes a mesh");
    CollectiveGroup::new(mesh, "X".into(), true)
}

/// Returns the type of a value that is equal on both devices of the group.
fn invarying_type() -> ArrayType {
    ArrayType { mesh: Some(example_group().mesh), ..F32.array_type([2, 4]) }
}

/// Returns the type of a value that varies over the devices of the group.
fn varying_type() -> ArrayType {
    ArrayType { varying: "X".into(), ..invarying_type() }
}
