//! Initializers of parameters, with JAX's names and JAX's draws.
//!
//! An initializer takes a key and the type of the parameter: a shape (then of float32), or an
//! [`ArrayType`] with an element type and a sharding. A sharded parameter has the same elements as
//! an unsharded one. `Array::zeros` and `Array::ones` are the initializers of biases and scales.
//!
//! The names that end in `_normal` and `_uniform` scale their draws by the number of inputs or
//! outputs of the layer. A kernel has its inputs in the dimension before the last, its outputs in
//! the last, and the dimensions of a window before them. For other layouts, such as `[d, heads,
//! k]`, name the dimensions: [`variance_scaling`].
//!
//! ```
//! use atmesh::{nn::init, prelude::*};
//! let mesh = Mesh::new([("model", 2)])?;
//! let key = Key::new(0);
//! let w = init::lecun_normal(&key, F32.array_type([64, 32]).on(&mesh, p![_, "model"]));
//! assert_eq!(type_of(&w), "float32[64,32@model]");
//! assert_eq!(w.to_vec::<f32>()?, init::lecun_normal(&key, [64, 32]).to_vec::<f32>()?);
//! # Ok::<(), atmesh::Error>(())
//! ```

use crate::api::array::Array;
use crate::api::random::{Key, round_to_dtype};
use crate::api::trace::poison;
use crate::core::{ArrayType, DType, Fault, TypePart};
use crate::ir::program::CallSite;

/// Draws from the normal distribution with mean 0 and this standard deviation.
///
/// ```
/// use atmesh::{nn::init, prelude::*};
/// let w = init::normal(&Key::new(0), [100, 100], 0.02);
/// assert!((w.std(..).item::<f32>()? - 0.02).abs() < 1e-3);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn normal(key: &Key, ty: impl Into<ArrayType>, stddev: f64) -> Array {
    key.normal(ty) * stddev
}

/// Draws uniformly from 0 up to `scale`.
///
/// ```
/// use atmesh::{nn::init, prelude::*};
/// let w = init::uniform(&Key::new(0), [100], 0.5);
/// assert!(w.min(..).item::<f32>()? >= 0.0 && w.max(..).item::<f32>()? < 0.5);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn uniform(key: &Key, ty: impl Into<ArrayType>, scale: f64) -> Array {
    key.uniform(ty) * scale
}

/// Draws from the normal distribution truncated to `lower..=upper`, and multiplies by `stddev`.
///
/// ```
/// use atmesh::{nn::init, prelude::*};
/// let w = init::truncated_normal(&Key::new(0), [100], 0.1, -2.0, 2.0);
/// assert!(w.abs().max(..).item::<f32>()? <= 0.2);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn truncated_normal(key: &Key, ty: impl Into<ArrayType>, stddev: f64, lower: f64, upper: f64) -> Array {
    key.truncated_normal(ty, lower, upper) * stddev
}

/// The number by which [`variance_scaling`] divides.
///
/// ```
/// use atmesh::nn::init::{self, Distribution, FanMode, VarianceScaling};
/// use atmesh::prelude::*;
/// let std = |mode| {
///     let options = VarianceScaling::new(1.0, mode, Distribution::Normal);
///     init::variance_scaling(&Key::new(0), [25, 400], options).std(..).item::<f32>()
/// };
/// assert!((std(FanMode::In)? - 0.2).abs() < 0.005); // 1 / √25
/// assert!((std(FanMode::Out)? - 0.05).abs() < 0.005); // 1 / √400
/// assert!((std(FanMode::GeometricAverage)? - 0.1).abs() < 0.005); // 1 / √100
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FanMode {
    /// The number of inputs of the layer.
    In,
    /// The number of its outputs.
    Out,
    /// The mean of both.
    Average,
    /// The geometric mean of both.
    GeometricAverage,
}

/// The distribution from which [`variance_scaling`] draws.
///
/// ```
/// use atmesh::nn::init::{self, Distribution, FanMode, VarianceScaling};
/// use atmesh::prelude::*;
/// let max = |distribution| {
///     let options = VarianceScaling::new(1.0, FanMode::In, distribution);
///     init::variance_scaling(&Key::new(0), [100, 100], options).abs().max(..).item::<f32>()
/// };
/// // the standard deviation is 0.1
/// assert!(max(Distribution::Uniform)? <= 0.1 * 3f32.sqrt());
/// assert!(max(Distribution::TruncatedNormal)? < max(Distribution::Normal)?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// The normal distribution, truncated at two standard deviations.
    TruncatedNormal,
    /// The normal distribution.
    Normal,
    /// The uniform distribution, with mean 0.
    Uniform,
}

/// Options of [`variance_scaling`]: `VarianceScaling::new(1.0, FanMode::In, Distribution::Normal)`.
///
/// ```
/// use atmesh::nn::init::{self, Distribution, FanMode, VarianceScaling};
/// use atmesh::prelude::*;
/// // four layers for a `scan`, each with kernels [heads, k, d] and 8 · 2 inputs
/// let options = VarianceScaling::new(1.0, FanMode::In, Distribution::Normal);
/// let options = options.in_dims([1, 2]).out_dims([3]).batch_dims([0]);
/// let w = init::variance_scaling(&Key::new(0), [4, 8, 2, 64], options);
/// assert!((w.std(..).item::<f32>()? - 0.25).abs() < 0.01);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct VarianceScaling {
    /// The variance, times the number of inputs or outputs.
    pub scale: f64,
    /// The number by which `scale` is divided.
    pub mode: FanMode,
    /// The distribution.
    pub distribution: Distribution,
    /// The dimensions of the inputs. Defaults to the one before the last.
    pub in_dims: Vec<i32>,
    /// The dimensions of the outputs. Defaults to the last one.
    pub out_dims: Vec<i32>,
    /// The dimensions that stand for several layers. Defaults to none.
    pub batch_dims: Vec<i32>,
}

impl VarianceScaling {
    /// Creates options for a kernel with inputs in the dimension before the last.
    ///
    /// ```
    /// use atmesh::nn::init::{Distribution, FanMode, VarianceScaling};
    /// let he = VarianceScaling::new(2.0, FanMode::In, Distribution::TruncatedNormal);
    /// assert_eq!((he.in_dims, he.out_dims), (vec![-2], vec![-1]));
    /// ```
    pub fn new(scale: f64, mode: FanMode, distribution: Distribution) -> VarianceScaling {
        let (in_dims, out_dims, batch_dims) = (vec![-2], vec![-1], Vec::new());
        VarianceScaling { scale, mode, distribution, in_dims, out_dims, batch_dims }
    }
    setters! {
        /// Sets the dimensions of the inputs.
        pub fn in_dims(dims: impl Into<Vec<i32>>) = in_dims: dims.into();
        /// Sets the dimensions of the outputs.
        pub fn out_dims(dims: impl Into<Vec<i32>>) = out_dims: dims.into();
        /// Sets the dimensions that stand for several layers, such as those of a `scan`.
        ///
        /// ```
        /// use atmesh::nn::init::{self, Distribution, FanMode, VarianceScaling};
        /// use atmesh::prelude::*;
        /// let lecun = VarianceScaling::new(1.0, FanMode::In, Distribution::Normal);
        /// let std = |options| init::variance_scaling(&Key::new(0), [9, 4, 64], options).std(..);
        /// // nine layers of 4 inputs, or one layer with a window of 9
        /// assert!((std(lecun.clone().batch_dims([0])).item::<f32>()? - 1.0 / 2.0).abs() < 0.02);
        /// assert!((std(lecun).item::<f32>()? - 1.0 / 6.0).abs() < 0.02);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn batch_dims(dims: impl Into<Vec<i32>>) = batch_dims: dims.into();
    }
    /// Returns the number that divides the scale, for a parameter of this shape.
    fn denominator(&self, shape: &[usize]) -> Result<f64, Fault> {
        let size = |dims: &[i32]| -> Result<f64, Fault> {
            let one =
                |d: &i32| crate::api::array::resolve_dim((*d).into(), shape.len()).map(|d| shape[d] as f64);
            Ok(dims.iter().map(one).collect::<Result<Vec<_>, _>>()?.into_iter().product())
        };
        let sizes = size(&self.in_dims).and_then(|a| Ok((a, size(&self.out_dims)?, size(&self.batch_dims)?)));
        let (inputs, outputs, batch) = sizes.map_err(|fault| {
            Fault { help: Vec::new(), ..fault }
                .help("give the dimensions of inputs and outputs: `VarianceScaling::new(..).in_dims([0])`")
                .help("or draw without them: `nn::init::normal(&key, shape, 0.02)`")
        })?;
        let all: f64 = shape.iter().map(|n| *n as f64).product();
        let window = all / inputs / outputs / batch;
        let (fan_in, fan_out) = (inputs * window, outputs * window);
        Ok(match self.mode {
            FanMode::In => fan_in,
            FanMode::Out => fan_out,
            FanMode::Average => (fan_in + fan_out) / 2.0,
            FanMode::GeometricAverage => (fan_in * fan_out).sqrt(),
        })
    }
}

/// Draws with a variance of `scale` over the number of inputs or outputs.
///
/// ```
/// use atmesh::nn::init::{self, Distribution, FanMode, VarianceScaling};
/// use atmesh::prelude::*;
/// // the queries of attention: [d, heads, k], with d inputs
/// let lecun = VarianceScaling::new(1.0, FanMode::In, Distribution::TruncatedNormal);
/// let w = init::variance_scaling(&Key::new(0), [64, 4, 16], lecun.in_dims([0]).out_dims([1, 2]));
/// assert!((w.std(..).item::<f32>()? - 0.125).abs() < 0.01);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn variance_scaling(key: &Key, ty: impl Into<ArrayType>, options: VarianceScaling) -> Array {
    scaled("variance_scaling", key, ty.into(), &options)
}

#[track_caller]
fn scaled(op: &'static str, key: &Key, ty: ArrayType, options: &VarianceScaling) -> Array {
    let dtype = ty.dtype;
    let call = CallSite::here(op);
    let reject = |fault: Fault| poison(call.error(fault, || vec![ty.to_string()]));
    if !dtype.is_float() {
        return reject(
            fault!(Dtype, "an initializer draws floats, not {dtype}")
                .help(format!("give the shape, or a float type: `F32.array_type({})`", ty.shape))
                .highlight(0, TypePart::Dtype),
        );
    }
    let fan = ok_or_return!(options.denominator(&ty.shape), |fault| reject(fault));
    let round = |x: f64| round_to_dtype(x, dtype);
    let variance = round(options.scale / fan);
    match options.distribution {
        Distribution::TruncatedNormal => {
            // the standard deviation of the normal distribution that is truncated to -2..=2
            let stddev = round(round(variance.sqrt()) / round(0.879_625_661_034_239_8));
            key.truncated_normal(ty, -2.0, 2.0) * stddev
        }
        Distribution::Normal => key.normal(ty) * round(variance.sqrt()),
        Distribution::Uniform => key.uniform_in(ty, -1.0..1.0) * round(round(3.0 * variance).sqrt()),
    }
}

/// Writes the initializers that are a `variance_scaling`.
macro_rules! scaled_initializers { ($(
    $(#[$doc:meta])*
    $name:ident: $scale:literal, $mode:ident, $distribution:ident;
)*) => {$(
    $(#[$doc])*
    ///
    /// ```
    /// use atmesh::{nn::init, prelude::*};
    #[doc = concat!("let w = init::", stringify!($name), "(&Key::new(0), [64, 32]);")]
    /// assert_eq!(type_of(&w), "float32[64,32]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn $name(key: &Key, ty: impl Into<ArrayType>) -> Array {
        let options = VarianceScaling::new($scale, FanMode::$mode, Distribution::$distribution);
        scaled(stringify!($name), key, ty.into(), &options)
    }
)*} }

scaled_initializers! {
    /// Draws from a truncated normal distribution with variance 1 / inputs.
    lecun_normal: 1.0, In, TruncatedNormal;
    /// Draws uniformly with variance 1 / inputs.
    lecun_uniform: 1.0, In, Uniform;
    /// Draws from a truncated normal distribution with variance 2 / inputs, for relu.
    #[doc(alias = "kaiming_normal")]
    he_normal: 2.0, In, TruncatedNormal;
    /// Draws uniformly with variance 2 / inputs, for relu.
    #[doc(alias = "kaiming_uniform")]
    he_uniform: 2.0, In, Uniform;
    /// Draws from a truncated normal distribution with variance 2 / (inputs + outputs).
    #[doc(alias = "xavier_normal")]
    glorot_normal: 1.0, Average, TruncatedNormal;
    /// Draws uniformly with variance 2 / (inputs + outputs).
    #[doc(alias = "xavier_uniform")]
    glorot_uniform: 1.0, Average, Uniform;
}

/// Draws a matrix with orthonormal columns, or rows if there are fewer, times `scale`.
///
/// All dimensions but the last are the rows.
///
/// ```
/// use atmesh::{nn::init, prelude::*};
/// let w = init::orthogonal(&Key::new(0), [8, 4], 1.0);
/// assert!(w.t().dot(&w).allclose_with(&Array::eye([4, 4], 0), 0.0, 1e-5)?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn orthogonal(key: &Key, ty: impl Into<ArrayType>, scale: f64) -> Array {
    let ty = ty.into();
    let call = CallSite::here("orthogonal");
    let reject = |fault: Fault| poison(call.error(fault, || vec![ty.to_string()]));
    if !matches!(ty.dtype, DType::F32 | DType::F64) {
        return reject(
            fault!(Dtype, "a factorization needs float32 or float64, not {}", ty.dtype)
                .help(format!(
                    "convert the result: `nn::init::orthogonal(&key, {}, scale).astype({:?})`",
                    ty.shape, ty.dtype
                ))
                .highlight(0, TypePart::Dtype),
        );
    }
    if ty.rank() < 2 {
        return reject(
            fault!(Shape, "a matrix has at least two dimensions, not {}", ty.rank())
                .help("draw a vector by another initializer: `nn::init::normal(&key, shape, 1.0)`"),
        );
    }
    let columns = ty.shape[ty.rank() - 1];
    let rows = ty.shape[..ty.rank() - 1].iter().product::<usize>();
    if rows * columns == 0 {
        return Array::zeros(ty);
    }
    let z = key.normal(ty.dtype.array_type([rows.max(columns), rows.min(columns)]));
    let (q, r) = z.qr(false);
    let q = q * r.diagonal(0).sign();
    let q = if rows < columns { q.t() } else { q };
    let q = (q * scale).reshape(ty.shape.clone());
    match &ty.mesh {
        Some(mesh) => q.put(mesh, ty.spec),
        None => q,
    }
}
