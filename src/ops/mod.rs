//! The primitives, a file or folder for each family, each with all its rules.
//!
//! Adding one touches its family's file and [`PRIMITIVES`]. A rule that is missing does not compile; what is in the list is
//! tested for completeness and appears in the tables of the book.

pub mod build;
#[cfg(test)]
mod check;
pub mod collective;
pub mod creation;
pub(crate) mod custom;
pub mod elementwise;
mod fit;
pub mod indexing;
#[cfg(feature = "linalg")]
pub mod linalg;
pub mod lines;
mod moves;
pub mod product;
pub mod random;
pub mod reduce;
pub mod shape;
pub mod sharding;
pub mod slicing;
mod view;
pub mod windows;

use crate::mesh::{AxisType, Mesh};
use crate::program::Prim;
use crate::program::sentence::{Beyond, Combine};
use crate::types::DType::{Bool, C64, F32, I32, Key, U32};
use crate::types::{ArrayType, Scalar};
use collective::{
    AllGather, AllToAll, Along, AxisIndex, Cast, Gathered, OwnPart, Pcast, Ppermute, Preduce, PsumScatter,
};
use creation::{Full, Iota};
use elementwise::{Binary, Bitcast, Clamp, Convert, Select, Unary};
use indexing::{DynamicSlice, DynamicUpdateSlice, Gather, Places, Scatter};
use lines::{Argsort, Fft, Recurrence, Running, Scan, Sort, TopK, Transform};
use product::DotGeneral;
use random::{RandomBits, RandomFoldIn, RandomKeyData, RandomSplit, RandomWrap};
use reduce::{Reduce, Reduction};
use shape::{BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose};
use sharding::{Constrain, Copy, Reshard};
use slicing::{Concatenate, Pad, Slice, UpdateSlice};
use std::sync::Arc;
use windows::{Conv, ReduceWindow, Window, WindowExtreme, WindowPick, Windows};

/// One line of the list of primitives.
pub struct Entry {
    /// Its name, as programs print it.
    pub name: &'static str,
    /// The family it belongs to: the file or folder that it is in.
    pub family: &'static str,
    /// An instance, and types of operands that it takes.
    pub example: fn() -> (Prim, Vec<ArrayType>),
}

/// `entry!(name, family, primitive, [element types and shapes of operands])`; operands on a mesh: `primitive; [types]`.
macro_rules! entry {
    ($name:literal, $family:literal, $prim:expr, [$($dtype:ident $shape:tt),*]) => {
        entry!($name, $family, $prim; [$($dtype.of($shape)),*])
    };
    ($name:literal, $family:literal, $prim:expr; [$($ty:expr),*]) => {
        Entry { name: $name, family: $family, example: || (Arc::new($prim), vec![$($ty),*]) }
    };
}

/// All primitives, by family.
pub const PRIMITIVES: &[Entry] = &[
    // elementwise
    entry!("neg", "elementwise", Unary::Neg, [F32[8, 4]]),
    entry!("sign", "elementwise", Unary::Sign, [F32[8, 4]]),
    entry!("abs", "elementwise", Unary::Abs, [F32[8, 4]]),
    entry!("floor", "elementwise", Unary::Floor, [F32[8, 4]]),
    entry!("ceil", "elementwise", Unary::Ceil, [F32[8, 4]]),
    entry!("round", "elementwise", Unary::Round, [F32[8, 4]]),
    entry!("exp", "elementwise", Unary::Exp, [F32[8, 4]]),
    entry!("exp2", "elementwise", Unary::Exp2, [F32[8, 4]]),
    entry!("expm1", "elementwise", Unary::Expm1, [F32[8, 4]]),
    entry!("log", "elementwise", Unary::Log, [F32[8, 4]]),
    entry!("log1p", "elementwise", Unary::Log1p, [F32[8, 4]]),
    entry!("sin", "elementwise", Unary::Sin, [F32[8, 4]]),
    entry!("cos", "elementwise", Unary::Cos, [F32[8, 4]]),
    entry!("tan", "elementwise", Unary::Tan, [F32[8, 4]]),
    entry!("asin", "elementwise", Unary::Asin, [F32[8, 4]]),
    entry!("acos", "elementwise", Unary::Acos, [F32[8, 4]]),
    entry!("atan", "elementwise", Unary::Atan, [F32[8, 4]]),
    entry!("sinh", "elementwise", Unary::Sinh, [F32[8, 4]]),
    entry!("cosh", "elementwise", Unary::Cosh, [F32[8, 4]]),
    entry!("tanh", "elementwise", Unary::Tanh, [F32[8, 4]]),
    entry!("asinh", "elementwise", Unary::Asinh, [F32[8, 4]]),
    entry!("acosh", "elementwise", Unary::Acosh, [F32[8, 4]]),
    entry!("atanh", "elementwise", Unary::Atanh, [F32[8, 4]]),
    entry!("sqrt", "elementwise", Unary::Sqrt, [F32[8, 4]]),
    entry!("rsqrt", "elementwise", Unary::Rsqrt, [F32[8, 4]]),
    entry!("cbrt", "elementwise", Unary::Cbrt, [F32[8, 4]]),
    entry!("logistic", "elementwise", Unary::Logistic, [F32[8, 4]]),
    entry!("erf", "elementwise", Unary::Erf, [F32[8, 4]]),
    entry!("erf_inv", "elementwise", Unary::ErfInv, [F32[8, 4]]),
    entry!("is_finite", "elementwise", Unary::IsFinite, [F32[8, 4]]),
    entry!("real", "elementwise", Unary::Real, [C64[8, 4]]),
    entry!("imag", "elementwise", Unary::Imag, [C64[8, 4]]),
    entry!("conj", "elementwise", Unary::Conj, [C64[8, 4]]),
    entry!("angle", "elementwise", Unary::Angle, [C64[8, 4]]),
    entry!("not", "elementwise", Unary::Not, [Bool[8, 4]]),
    entry!("stop_gradient", "elementwise", Unary::StopGradient, [F32[8, 4]]),
    entry!("square", "elementwise", Unary::Square, [F32[8, 4]]),
    entry!("reciprocal", "elementwise", Unary::Reciprocal, [F32[8, 4]]),
    entry!("relu", "elementwise", Unary::Relu, [F32[8, 4]]),
    entry!("silu", "elementwise", Unary::Silu, [F32[8, 4]]),
    entry!("softplus", "elementwise", Unary::Softplus, [F32[8, 4]]),
    entry!("gelu", "elementwise", Unary::Gelu { approximate: true }, [F32[8, 4]]),
    entry!("integer_pow", "elementwise", Unary::IntegerPow(3), [F32[8, 4]]),
    entry!("add", "elementwise", Binary::Add, [F32[8, 4], F32[8, 4]]),
    entry!("sub", "elementwise", Binary::Sub, [F32[8, 4], F32[8, 4]]),
    entry!("mul", "elementwise", Binary::Mul, [F32[8, 4], F32[8, 4]]),
    entry!("div", "elementwise", Binary::Div, [F32[8, 4], F32[8, 4]]),
    entry!("rem", "elementwise", Binary::Rem, [F32[8, 4], F32[8, 4]]),
    entry!("max", "elementwise", Binary::Max, [F32[8, 4], F32[8, 4]]),
    entry!("min", "elementwise", Binary::Min, [F32[8, 4], F32[8, 4]]),
    entry!("pow", "elementwise", Binary::Pow, [F32[8, 4], F32[8, 4]]),
    entry!("atan2", "elementwise", Binary::Atan2, [F32[8, 4], F32[8, 4]]),
    entry!("nextafter", "elementwise", Binary::NextAfter, [F32[8, 4], F32[8, 4]]),
    entry!("complex", "elementwise", Binary::Complex, [F32[8, 4], F32[8, 4]]),
    entry!("hypot", "elementwise", Binary::Hypot, [F32[8, 4], F32[8, 4]]),
    entry!("xlogy", "elementwise", Binary::Xlogy, [F32[8, 4], F32[8, 4]]),
    entry!("eq", "elementwise", Binary::Eq, [F32[8, 4], F32[8, 4]]),
    entry!("ne", "elementwise", Binary::Ne, [F32[8, 4], F32[8, 4]]),
    entry!("lt", "elementwise", Binary::Lt, [F32[8, 4], F32[8, 4]]),
    entry!("le", "elementwise", Binary::Le, [F32[8, 4], F32[8, 4]]),
    entry!("gt", "elementwise", Binary::Gt, [F32[8, 4], F32[8, 4]]),
    entry!("ge", "elementwise", Binary::Ge, [F32[8, 4], F32[8, 4]]),
    entry!("and", "elementwise", Binary::And, [Bool[8, 4], Bool[8, 4]]),
    entry!("or", "elementwise", Binary::Or, [Bool[8, 4], Bool[8, 4]]),
    entry!("xor", "elementwise", Binary::Xor, [Bool[8, 4], Bool[8, 4]]),
    entry!("shift_left", "elementwise", Binary::ShiftLeft, [I32[8, 4], I32[8, 4]]),
    entry!("shift_right_logical", "elementwise", Binary::ShiftRightLogical, [I32[8, 4], I32[8, 4]]),
    entry!("shift_right_arithmetic", "elementwise", Binary::ShiftRightArithmetic, [I32[8, 4], I32[8, 4]]),
    entry!("select", "elementwise", Select, [Bool[8, 4], F32[8, 4], F32[8, 4]]),
    entry!("clamp", "elementwise", Clamp, [F32[], F32[8, 4], F32[]]),
    entry!("convert_element_type", "elementwise", Convert { dtype: I32 }, [F32[8, 4]]),
    entry!("bitcast_convert_type", "elementwise", Bitcast { dtype: I32 }, [F32[8, 4]]),
    // reduce
    entry!("reduce_sum", "reduce", Reduce::new(Reduction::Sum, &[1], None), [F32[8, 4]]),
    entry!("reduce_max", "reduce", Reduce::new(Reduction::Max, &[1], None), [F32[8, 4]]),
    entry!("reduce_min", "reduce", Reduce::new(Reduction::Min, &[1], None), [F32[8, 4]]),
    entry!("reduce_prod", "reduce", Reduce::new(Reduction::Prod, &[1], None), [F32[8, 4]]),
    entry!("reduce_and", "reduce", Reduce::new(Reduction::And, &[1], None), [Bool[8, 4]]),
    entry!("reduce_or", "reduce", Reduce::new(Reduction::Or, &[1], None), [Bool[8, 4]]),
    // product
    entry!("dot_general", "product", DotGeneral::matrix(), [F32[8, 4], F32[4, 2]]),
    // windows
    entry!("conv_general_dilated", "windows",
        Conv {
            batch: [vec![], vec![]],
            contracting: [vec![3], vec![2]],
            spatial: [vec![1, 2], vec![0, 1]],
            windows: vec![Window { stride: 2, low: 1, ..Window::default() }, Window { low: 1, high: 1, ..Window::default() }],
            order: vec![0, 1, 2, 3],
            out: None,
            preferred: None,
        },
        [F32[2, 4, 4, 2], F32[2, 3, 2, 2]]),
    entry!("reduce_window_sum", "windows", reduce_window(Reduction::Sum), [F32[4, 6]]),
    entry!("reduce_window_max", "windows", reduce_window(Reduction::Max), [F32[4, 6]]),
    entry!("reduce_window_min", "windows", reduce_window(Reduction::Min), [F32[4, 6]]),
    entry!("reduce_window_prod", "windows", reduce_window(Reduction::Prod), [F32[4, 6]]),
    entry!("reduce_window_and", "windows", reduce_window(Reduction::And), [Bool[4, 6]]),
    entry!("reduce_window_or", "windows", reduce_window(Reduction::Or), [Bool[4, 6]]),
    entry!("window_extreme", "windows", WindowExtreme { over: pooled() }, [F32[4, 6], F32[4, 4]]),
    entry!("window_pick", "windows", WindowPick { over: pooled(), turned: false, out: None }, [I32[4, 4], F32[4, 6]]),
    entry!("window_place", "windows", WindowPick { over: pooled(), turned: true, out: None }, [I32[4, 6], F32[4, 6]]),
    // creation
    entry!("full", "creation", Full { ty: F32.of([8, 4]), value: Scalar::Float(1.0) }, []),
    entry!("iota", "creation", Iota { ty: I32.of([8, 4]), dimension: 1 }, []),
    // random
    entry!("random_bits", "random", RandomBits { ty: U32.of([8, 4]), keys: 0 }, [Key[]]),
    entry!("random_split", "random", RandomSplit { ty: Key.of([8]), keys: 0 }, [Key[]]),
    entry!("random_fold_in", "random", RandomFoldIn, [Key[], I32[]]),
    entry!("random_key_data", "random", RandomKeyData, [Key[8]]),
    entry!("random_wrap", "random", RandomWrap, [U32[8, 2]]),
    // shape
    entry!("broadcast_in_dim", "shape",
        BroadcastInDim { shape: [3, 2, 4].into(), broadcast_dimensions: vec![2, 0], out: None }, [F32[4, 1]]),
    entry!("reshape", "shape", Reshape { new_sizes: [4, 6].into(), out: None }, [F32[2, 3, 4]]),
    entry!("transpose", "shape", Transpose { permutation: vec![2, 0, 1] }, [F32[2, 3, 4]]),
    entry!("squeeze", "shape", Squeeze { dimensions: vec![1] }, [F32[2, 1, 3]]),
    entry!("expand_dims", "shape", ExpandDims { dimensions: vec![0, 2] }, [F32[3, 2]]),
    entry!("rev", "shape", Rev { dimensions: vec![1] }, [F32[2, 3]]),
    // lines
    entry!("cumsum", "lines", Scan { kind: Running::Sum, axis: 1, reverse: false }, [F32[8, 4]]),
    entry!("cumprod", "lines", Scan { kind: Running::Prod, axis: 1, reverse: false }, [F32[8, 4]]),
    entry!("cummax", "lines", Scan { kind: Running::Max, axis: 1, reverse: false }, [F32[8, 4]]),
    entry!("cummin", "lines", Scan { kind: Running::Min, axis: 1, reverse: true }, [F32[8, 4]]),
    entry!("cumlogsumexp", "lines", Scan { kind: Running::LogSumExp, axis: 1, reverse: false }, [F32[8, 4]]),
    entry!("recurrence", "lines", Recurrence { axis: 1, reverse: false }, [F32[8, 4], F32[8, 4]]),
    entry!("sort", "lines", Sort { axis: 1, keys: 1 }, [F32[8, 4], F32[8, 4]]),
    entry!("argsort", "lines", Argsort { axis: 1, keys: 1 }, [F32[8, 4]]),
    entry!("fft", "lines", Fft { kind: Transform::Forward, lengths: [6].into() }, [C64[4, 6]]),
    entry!("ifft", "lines", Fft { kind: Transform::Inverse, lengths: [4, 6].into() }, [C64[4, 6]]),
    entry!("rfft", "lines", Fft { kind: Transform::Real, lengths: [4].into() }, [F32[6, 4]]),
    entry!("irfft", "lines", Fft { kind: Transform::InverseReal, lengths: [6].into() }, [C64[6, 4]]),
    entry!("top_k", "lines", TopK { k: 2, axis: 1 }, [F32[8, 4]]),
    // linear algebra
    #[cfg(feature = "linalg")]
    entry!("cholesky", "linalg", linalg::Cholesky, [F32[6, 2, 2]]),
    #[cfg(feature = "linalg")]
    entry!("triangular_solve", "linalg", linalg::TriangularSolve { left_side: true, lower: true, transpose_a: false, unit_diagonal: false }, [F32[2, 3, 3], F32[2, 3, 2]]),
    #[cfg(feature = "linalg")]
    entry!("lu", "linalg", linalg::Lu, [F32[6, 2, 3]]),
    #[cfg(feature = "linalg")]
    entry!("qr", "linalg", linalg::Qr { full_matrices: false }, [F32[6, 3, 2]]),
    #[cfg(feature = "linalg")]
    entry!("eigh", "linalg", linalg::Eigh, [F32[6, 2, 2]]),
    #[cfg(feature = "linalg")]
    entry!("eigvalsh", "linalg", linalg::Eigvalsh, [F32[6, 2, 2]]),
    #[cfg(feature = "linalg")]
    entry!("svd", "linalg", linalg::Svd { full_matrices: false }, [F32[6, 3, 2]]),
    #[cfg(feature = "linalg")]
    entry!("svdvals", "linalg", linalg::Svdvals, [F32[6, 3, 2]]),
    #[cfg(feature = "linalg")]
    entry!("solve", "linalg", linalg::Solve { transposed: false }, [F32[2, 3, 3], F32[2, 3, 2]]),
    #[cfg(feature = "linalg")]
    entry!("inv", "linalg", linalg::Inv, [F32[6, 2, 2]]),
    #[cfg(feature = "linalg")]
    entry!("det", "linalg", linalg::Det, [F32[6, 2, 2]]),
    #[cfg(feature = "linalg")]
    entry!("slogdet", "linalg", linalg::Slogdet, [F32[6, 2, 2]]),
    #[cfg(feature = "linalg")]
    entry!("cofactors", "linalg", linalg::Cofactors, [F32[6, 3, 3]]),
    #[cfg(feature = "linalg")]
    entry!("pinv", "linalg", linalg::Pinv { tolerance: Scalar::Float(1e-5) }, [F32[6, 3, 2]]),
    // slicing
    entry!("slice", "slicing",
        Slice { start: vec![1, 0], limit: vec![7, 3], strides: vec![2, 1], out: None }, [F32[9, 3]]),
    entry!("pad", "slicing",
        Pad { low: vec![2, -1], high: vec![-1, 1], interior: vec![1, 0], value: Scalar::Float(0.5), out: None },
        [F32[4, 3]]),
    entry!("concatenate", "slicing", Concatenate { dimension: 1 }, [F32[2, 2], F32[2, 4], F32[2, 2]]),
    entry!("update_slice", "slicing", UpdateSlice { start: vec![2, 1] }, [F32[4, 6], F32[2, 4]]),
    // indexing
    entry!("dynamic_slice", "indexing",
        DynamicSlice { sizes: [3, 4].into(), dims: vec![0, 1], lead: vec![], out: None }, [F32[8, 4], I32[], I32[]]),
    entry!("dynamic_update_slice", "indexing",
        DynamicUpdateSlice { dims: vec![1], lead: vec![], combine: None, out: None }, [F32[8, 4], F32[8, 2], I32[]]),
    entry!("gather", "indexing",
        Gather { at: Places::rows(2, 0, 1, Beyond::Clip), sizes: [1, 4].into(), fill: Scalar::Float(0.0), out: None },
        [F32[8, 4], I32[3, 1]]),
    entry!("scatter", "indexing",
        Scatter { at: Places::rows(2, 0, 1, Beyond::Nothing), combine: None, out: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("scatter_add", "indexing",
        Scatter { at: Places::rows(2, 0, 1, Beyond::Nothing), combine: Some(Combine::Add), out: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("scatter_mul", "indexing",
        Scatter { at: Places::rows(2, 0, 1, Beyond::Nothing), combine: Some(Combine::Mul), out: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("scatter_max", "indexing",
        Scatter { at: Places::rows(2, 0, 1, Beyond::Nothing), combine: Some(Combine::Max), out: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    entry!("scatter_min", "indexing",
        Scatter { at: Places::rows(2, 0, 1, Beyond::Nothing), combine: Some(Combine::Min), out: None },
        [F32[8, 4], F32[3, 4], I32[3, 1]]),
    // sharding
    entry!("reshard", "sharding", Reshard::new(grid(AxisType::Explicit), crate::p!["X"]), [F32[4, 2]]),
    entry!("constrain", "sharding", Constrain::new(grid(AxisType::Auto), crate::p!["X"]), [F32[4, 2]]),
    entry!("copy", "sharding", Copy, [F32[4]]),
    // collective
    entry!("psum", "collective", Preduce { along: along(), combine: Combine::Add }; [varying()]),
    entry!("pmax", "collective", Preduce { along: along(), combine: Combine::Max }; [varying()]),
    entry!("pmin", "collective", Preduce { along: along(), combine: Combine::Min }; [varying()]),
    entry!("all_gather", "collective", AllGather { along: along(), dim: 1, tiled: true, to: Gathered::Varying };
        [varying()]),
    entry!("psum_scatter", "collective", PsumScatter { along: along(), dim: 1, tiled: true }; [varying()]),
    entry!("own_part", "collective", OwnPart { along: along(), dim: 0, tiled: false }; [alike()]),
    entry!("all_to_all", "collective", AllToAll { along: along(), split: 1, concat: 0, tiled: true }; [varying()]),
    entry!("ppermute", "collective", Ppermute { along: along(), pairs: vec![(0, 1), (1, 0)] }; [varying()]),
    entry!("axis_index", "collective", AxisIndex { along: along() }, []),
    entry!("pvary", "collective", Pcast { along: along(), to: Cast::Varying }; [alike()]),
    entry!("pcast", "collective", Pcast { along: along(), to: Cast::Unreduced }; [varying()]),
];

/// Windows of two steps along the second dimension, two elements apart, the first and the last with one beyond the array.
fn pooled() -> Windows {
    let over = Window { stride: 2, low: 1, high: 1, ..Window::default() };
    Windows { taps: vec![1, 2], windows: vec![Window::default(), over] }
}

fn reduce_window(kind: Reduction) -> ReduceWindow {
    ReduceWindow { kind, over: pooled(), out: None }
}

/// A mesh of two axes of this type.
fn grid(axes: AxisType) -> Mesh {
    Mesh::with_types([("X", 2, axes), ("Y", 2, axes)]).expect("two axes make a mesh")
}

/// Two devices along a manual axis.
fn along() -> Along {
    let mesh = Mesh::with_types([("X", 2, AxisType::Manual)]).expect("one axis makes a mesh");
    Along { mesh, axes: "X".into(), checked: true }
}

/// A value that is the same on both of these devices.
fn alike() -> ArrayType {
    ArrayType { mesh: Some(along().mesh), ..F32.of([2, 4]) }
}

/// A value that differs on them.
fn varying() -> ArrayType {
    ArrayType { varying: "X".into(), ..alike() }
}
