//! Normalizations.

use super::call::{LayerCall, arrays, parameter, wide_dtype};
use crate::api::array::{Array, Dims, Operand, Term};
use crate::core::{DType, Fault};
use atmesh_derive::Tree;

/// Options of [`layer_norm_with`] and [`rms_norm_with`]: `NormOptions::default().epsilon(1e-5)`.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let x = Array::from([[1.0f32, 1.0], [3.0, 3.0]]);
/// // mean 2 and variance 1 along dimension 0, divided by √(1 + 3)
/// let options = nn::NormOptions::default().dims(0).epsilon(3.0);
/// let y = nn::layer_norm_with(&x, 1.0, 0.0, options);
/// assert!(y.allclose(&Array::from([[-0.5f32, -0.5], [0.5, 0.5]]))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct NormOptions {
    /// The number that is added to the variance, or to the mean square. Defaults to 1e-6, as in
    /// flax.
    pub epsilon: f64,
    /// The dimensions over which statistics are computed. Defaults to the last one.
    pub dims: Dims,
}

impl Default for NormOptions {
    fn default() -> NormOptions {
        NormOptions { epsilon: 1e-6, dims: (-1).into() }
    }
}

impl NormOptions {
    setters! {
        /// Sets the number that is added to the variance.
        pub fn epsilon(epsilon: f64) = epsilon: epsilon;
        /// Sets the dimensions over which statistics are computed.
        ///
        /// ```
        /// use atmesh::{nn, prelude::*};
        /// let x = Key::new(0).normal([4, 3, 5]);
        /// let options = nn::NormOptions::default().dims([1, 2]);
        /// let y = nn::layer_norm_with(&x, 1.0, 0.0, options);
        /// assert!(y.mean([1, 2]).allclose_with(&Array::zeros([4]), 0.0, 1e-5)?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn dims(dims: impl Into<Dims>) = dims: dims.into();
    }
}

/// Normalizes to mean 0 and variance 1 over the last dimension, then scales and shifts.
///
/// `scale` and `bias` are numbers, or arrays that broadcast to `x`. Statistics are computed in
/// float32 if `x` has 16-bit floats; the result has the element type and the sharding of `x`. The
/// epsilon is 1e-6: [`layer_norm_with`] sets another one, such as PyTorch's 1e-5.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let x = Array::from([[1.0f32, 3.0], [5.0, 5.0]]);
/// let y = nn::layer_norm(&x, Array::from([1.0f32, 2.0]), 0.5);
/// assert!(y.allclose(&Array::from([[-0.5f32, 2.5], [0.5, 0.5]]))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "LayerNorm")]
#[track_caller]
pub fn layer_norm(x: &Array, scale: impl Operand, bias: impl Operand) -> Array {
    normalize("layer_norm", x, [scale.term(), bias.term()], &NormOptions::default())
}

/// Computes [`layer_norm`] with options: the epsilon and the dimensions.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let x = Array::from([0.0f32, 2.0]);
/// let y = nn::layer_norm_with(&x, 1.0, 0.0, nn::NormOptions::default().epsilon(3.0));
/// assert_eq!(y.to_vec::<f32>()?, [-0.5, 0.5]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn layer_norm_with(x: &Array, scale: impl Operand, bias: impl Operand, options: NormOptions) -> Array {
    normalize("layer_norm_with", x, [scale.term(), bias.term()], &options)
}

/// Divides by the root of the mean square over the last dimension, then scales.
///
/// `scale` is a number, or an array that broadcasts to `x`. The mean is computed in float32 if `x`
/// has 16-bit floats; the result has the element type and the sharding of `x`. The epsilon is 1e-6:
/// [`rms_norm_with`] sets another one.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let y = nn::rms_norm(&Array::from([3.0f32, -3.0]), 2.0);
/// assert!(y.allclose(&Array::from([2.0f32, -2.0]))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "RMSNorm")]
#[track_caller]
pub fn rms_norm(x: &Array, scale: impl Operand) -> Array {
    normalize("rms_norm", x, [scale.term()], &NormOptions::default())
}

/// Computes [`rms_norm`] with options: the epsilon and the dimensions.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let x = Array::from([1.0f32, 1.0]);
/// let y = nn::rms_norm_with(&x, 1.0, nn::NormOptions::default().epsilon(3.0));
/// assert_eq!(y.to_vec::<f32>()?, [0.5, 0.5]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn rms_norm_with(x: &Array, scale: impl Operand, options: NormOptions) -> Array {
    normalize("rms_norm_with", x, [scale.term()], &options)
}

/// Normalizes over dimensions; with a bias the mean is subtracted, and without one it is not.
#[track_caller]
fn normalize<const N: usize>(op: &'static str, x: &Array, affine: [Term; N], options: &NormOptions) -> Array {
    let named: Vec<(&'static str, &Term)> = ["scale", "bias"].into_iter().zip(&affine).collect();
    let operands = arrays(("x", x), &named);
    let call = ok_or_return!(LayerCall::new(op, &operands));
    ok_or_return!(call.check_floats(0..operands.len()));
    for k in 1..operands.len() {
        ok_or_return!(call.check_broadcasts(k, 0));
    }
    let ty = call.ty(0);
    ok_or_return!(options.dims.resolve(ty.rank()), |fault| call.reject(fault));
    let (wide, dims) = (wide_dtype(ty.dtype), Dims::keep(&options.dims));
    let x = x.astype(wide);
    let x = if N == 2 { &x - x.mean(dims.clone()) } else { x };
    let y = &x * (x.square().mean(dims) + options.epsilon).rsqrt();
    let y = y * parameter(&affine[0], wide);
    let y = if N == 2 { y + parameter(&affine[1], wide) } else { y };
    y.astype(ty.dtype)
}

/// Normalizes groups of channels, the last dimension, over all dimensions but the first.
///
/// `x` has the dimensions `[batch, …, channels]`, and `groups` divides the channels. `scale` and
/// `bias` are numbers, or arrays that broadcast to `x`. The epsilon is 1e-6, as in flax.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let x = Key::new(0).normal([2, 5, 5, 4]);
/// let y = nn::group_norm(&x, 2, 1.0, 0.0);
/// let means = y.reshape([2, 25, 2, 2]).mean([1, 3]);
/// assert!(means.allclose_with(&Array::zeros([2, 2]), 0.0, 1e-5)?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "GroupNorm")]
#[track_caller]
pub fn group_norm(x: &Array, groups: usize, scale: impl Operand, bias: impl Operand) -> Array {
    let affine = [scale.term(), bias.term()];
    let named: Vec<(&'static str, &Term)> = ["scale", "bias"].into_iter().zip(&affine).collect();
    let operands = arrays(("x", x), &named);
    let call = ok_or_return!(LayerCall::new("group_norm", &operands));
    ok_or_return!(call.check_floats(0..operands.len()));
    for k in 1..operands.len() {
        ok_or_return!(call.check_broadcasts(k, 0));
    }
    let ty = call.ty(0);
    let channels = ty.shape.last().copied().unwrap_or(0);
    if ty.rank() < 2 || groups == 0 || !channels.is_multiple_of(groups) {
        let message = format!("{groups} groups do not divide the last dimension of {ty}");
        return call
            .reject(fault!(Shape, "{message}").help("give a number of groups that divides the channels"));
    }
    let (wide, rank) = (wide_dtype(ty.dtype), ty.rank());
    let mut shape = ty.shape[..rank - 1].to_vec();
    shape.extend([groups, channels / groups]);
    let parts = x.astype(wide).reshape(shape);
    let dims = Dims::keep((1..rank + 1).filter(|d| *d != rank - 1).collect::<Vec<usize>>());
    let parts = &parts - parts.mean(dims.clone());
    let parts = &parts * (parts.square().mean(dims) + 1e-6).rsqrt();
    let y = parts.reshape(ty.shape.clone()) * parameter(&affine[0], wide);
    (y + parameter(&affine[1], wide)).astype(ty.dtype)
}

/// The running mean and variance of a [`batch_norm`], one element for each feature.
///
/// It is a tree, so that it can be a part of a model's state, saved, and placed on a mesh.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let mut stats = nn::BatchStats::new(1);
/// for _ in 0..200 {
///     (_, stats) = nn::batch_norm(&Array::from([[1.0f32], [5.0]]), 1.0, 0.0, &stats, true);
/// }
/// // after 200 batches of mean 3 and variance 4
/// assert!((stats.mean.item::<f32>()? - 3.0).abs() < 0.5);
/// assert!((stats.var.item::<f32>()? - 4.0).abs() < 0.5);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, Tree)]
pub struct BatchStats<T = Array> {
    /// The running mean.
    pub mean: T,
    /// The running variance.
    pub var: T,
}

impl BatchStats {
    /// Returns the statistics before the first batch: mean 0 and variance 1, in float32.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let stats = nn::BatchStats::new(8);
    /// assert_eq!(type_of(&stats), "{mean: float32[8], var: float32[8]}");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn new(features: usize) -> BatchStats {
        BatchStats { mean: Array::zeros([features]), var: Array::ones([features]) }
    }
}

/// Options of [`batch_norm_with`]: `BatchNormOptions::default().momentum(0.9)`.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let x = Array::from([[1.0f32, 3.0]]); // one feature of two examples
/// let options = nn::BatchNormOptions::default().feature_dim(0).momentum(0.9).epsilon(3.0);
/// let (y, stats) = nn::batch_norm_with(&x, 1.0, 0.0, &nn::BatchStats::new(1), true, options);
/// assert!(y.allclose(&Array::from([[-0.5f32, 0.5]]))?); // divided by √(1 + 3)
/// assert!(stats.mean.allclose(&Array::from([0.2f32]))?); // 0.9 · 0 + 0.1 · 2
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct BatchNormOptions {
    /// The share of the running statistics that is kept in each step. Defaults to 0.99, as in flax.
    pub momentum: f64,
    /// The number that is added to the variance. Defaults to 1e-5, as in flax.
    pub epsilon: f64,
    /// The dimension of the features. Defaults to -1, the last one.
    pub feature_dim: i32,
}

impl Default for BatchNormOptions {
    fn default() -> BatchNormOptions {
        BatchNormOptions { momentum: 0.99, epsilon: 1e-5, feature_dim: -1 }
    }
}

impl BatchNormOptions {
    setters! {
        /// Sets the share of the running statistics that is kept in each step.
        pub fn momentum(momentum: f64) = momentum: momentum;
        /// Sets the number that is added to the variance.
        pub fn epsilon(epsilon: f64) = epsilon: epsilon;
        /// Sets the dimension of the features.
        pub fn feature_dim(d: i32) = feature_dim: d;
    }
}

/// Normalizes each feature over the batch, then scales and shifts; returns new running statistics.
///
/// With `train`, mean and variance are those of the whole batch: if it is sharded, they are summed
/// over the devices. The running statistics move towards them by 1 − momentum, and carry no
/// derivative. Without `train`, the running statistics normalize, and are returned unchanged.
/// `scale` and `bias` are numbers, or vectors with one element for each feature.
///
/// Inside of `shard_map` the batch is the block of one device.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let mesh = Mesh::new([("data", 2)])?;
/// let x = Array::from([[1.0f32, 0.0], [3.0, 4.0]]).put(&mesh, p!["data"]);
/// let (y, stats) = nn::batch_norm(&x, 1.0, 0.0, &nn::BatchStats::new(2), true);
/// assert!(y.allclose_with(&Array::from([[-1.0f32, -1.0], [1.0, 1.0]]), 1e-4, 0.0)?);
/// assert!(stats.mean.allclose(&Array::from([0.02f32, 0.02]))?);
/// let (y, _) = nn::batch_norm(&x, 1.0, 0.0, &stats, false);
/// assert_eq!(type_of(&y), "float32[2@data,2]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("BatchNorm", "sync_batch_norm"))]
#[track_caller]
pub fn batch_norm(
    x: &Array,
    scale: impl Operand,
    bias: impl Operand,
    stats: &BatchStats,
    train: bool,
) -> (Array, BatchStats) {
    batch_norm_in("batch_norm", x, [scale.term(), bias.term()], stats, train, BatchNormOptions::default())
}

/// Computes [`batch_norm`] with options: momentum, epsilon and the dimension of the features.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let options = nn::BatchNormOptions::default().momentum(0.5).feature_dim(1);
/// let (x, stats) = (Key::new(0).normal([4, 3, 8, 8]), nn::BatchStats::new(3));
/// let (y, stats) = nn::batch_norm_with(&x, 1.0, 0.0, &stats, true, options);
/// assert!(y.mean([0, 2, 3]).allclose_with(&Array::zeros([3]), 0.0, 1e-5)?);
/// assert!(stats.mean.allclose(&(x.mean([0, 2, 3]) * 0.5))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn batch_norm_with(
    x: &Array,
    scale: impl Operand,
    bias: impl Operand,
    stats: &BatchStats,
    train: bool,
    options: BatchNormOptions,
) -> (Array, BatchStats) {
    batch_norm_in("batch_norm_with", x, [scale.term(), bias.term()], stats, train, options)
}

#[track_caller]
fn batch_norm_in(
    op: &'static str,
    x: &Array,
    affine: [Term; 2],
    stats: &BatchStats,
    train: bool,
    options: BatchNormOptions,
) -> (Array, BatchStats) {
    let both = |y: Array| (y.clone(), BatchStats { mean: y.clone(), var: y });
    let named = [
        ("stats.mean", &Term::from(&stats.mean)),
        ("stats.var", &Term::from(&stats.var)),
        ("scale", &affine[0]),
        ("bias", &affine[1]),
    ];
    let operands = arrays(("x", x), &named);
    let call = ok_or_return!(LayerCall::new(op, &operands), |error| both(error));
    ok_or_return!(call.check_floats(0..operands.len()), |error| both(error));
    let ty = call.ty(0);
    let d =
        ok_or_return!(Dims::from(options.feature_dim).resolve(ty.rank()), |fault| both(call.reject(fault)))
            [0];
    for (k, (name, _)) in operands.iter().enumerate().skip(1) {
        if call.ty(k).shape[..] != [ty.shape[d]] {
            return both(call.reject(features_fault(name, ty.shape[d])));
        }
    }
    let (wide, rank) = (wide_dtype(ty.dtype), ty.rank());
    let others: Vec<usize> = (0..rank).filter(|k| *k != d).collect();
    let after: Vec<usize> = (1..rank - d).collect();
    let along = |v: Array| v.expand_dims(&after[..]);
    let y = x.astype(wide);
    let (mean, var) = if train {
        let mean = y.mean(&others[..]);
        let var = (&y - along(mean.clone())).square().mean(&others[..]);
        (mean, var)
    } else {
        (stats.mean.astype(wide), stats.var.astype(wide))
    };
    let column = |term: &Term| match parameter(term, wide) {
        Term::Array(a) => Term::Array(along(a)),
        number => number,
    };
    let y = (y - along(mean.clone())) * along((&var + options.epsilon).rsqrt());
    let y = (y * column(&affine[0]) + column(&affine[1])).astype(ty.dtype);
    if !train {
        return (y, stats.clone());
    }
    let moved = |old: &Array, new: &Array, dtype: DType| {
        let new = new.stop_gradient().astype(dtype);
        options.momentum * old + (1.0 - options.momentum) * new
    };
    let new = BatchStats {
        mean: moved(&stats.mean, &mean, call.ty(1).dtype),
        var: moved(&stats.var, &var, call.ty(2).dtype),
    };
    (y, new)
}

/// Returns the fault of a parameter that does not have one element for each feature.
fn features_fault(name: &str, features: usize) -> Fault {
    fault!(Shape, "`{name}` must have one element for each of the {features} features")
        .help(format!("give it the shape [{features}]"))
        .help("or name the dimension of the features: `BatchNormOptions::default().feature_dim(1)`")
}
