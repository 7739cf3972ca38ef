//! Activation functions that are not methods of arrays.

use super::call::LayerCall;
use crate::api::array::Array;
use crate::core::Fault;

/// Writes activation functions: each checks that its operand is of floats.
macro_rules! activations { ($(
    $(#[$doc:meta])*
    pub fn $name:ident($x:ident $(, $arg:ident: f64)*) = $value:expr;
)*) => {$(
    $(#[$doc])*
    #[track_caller]
    pub fn $name($x: &Array $(, $arg: f64)*) -> Array {
        let call = ok_or_return!(LayerCall::new(stringify!($name), &[("x", $x)]));
        ok_or_return!(call.check_floats([0]));
        $value
    }
)*} }

/// The constants of [`selu`], which keep mean 0 and variance 1.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

activations! {
    /// Computes the exponential linear unit: x where x > 0, α (eˣ − 1) elsewhere.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::elu(&Array::from([2.0f32, -50.0]), 1.0);
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, -1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn elu(x, alpha: f64) = exponential_below_zero(x, alpha, 1.0);
    /// Computes the scaled exponential linear unit, which keeps mean 0 and variance 1.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// assert!(nn::selu(&Array::from(1.0f32)).allclose(&Array::from(1.050701f32))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn selu(x) = SELU_SCALE * exponential_below_zero(x, SELU_ALPHA, 1.0);
    /// Computes the continuously differentiable ELU: x where x > 0, α (e^(x/α) − 1) elsewhere.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::celu(&Array::from([2.0f32, -200.0]), 2.0);
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, -2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn celu(x, alpha: f64) = exponential_below_zero(x, alpha, alpha);
    /// Computes x where x ≥ 0, and `slope` · x elsewhere.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::leaky_relu(&Array::from([2.0f32, -2.0]), 0.25);
    /// assert_eq!(y.to_vec::<f32>()?, [2.0, -0.5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn leaky_relu(x, slope: f64) = x.ge(0.0).select(x, x * slope);
    /// Computes min(max(x, 0), 6).
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::relu6(&Array::from([-1.0f32, 2.0, 8.0]));
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 2.0, 6.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn relu6(x) = x.maximum(0.0).minimum(6.0);
    /// Computes the piecewise linear sigmoid, relu6(x + 3) / 6.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::hard_sigmoid(&Array::from([-4.0f32, 0.0, 4.0]));
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.5, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn hard_sigmoid(x) = (x + 3.0).maximum(0.0).minimum(6.0) / 6.0;
    /// Computes x · hard_sigmoid(x).
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::hard_silu(&Array::from([-4.0f32, 0.0, 4.0]));
    /// assert_eq!(y.to_vec::<f32>()?, [0.0, 0.0, 4.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "hard_swish")]
    pub fn hard_silu(x) = x * ((x + 3.0).maximum(0.0).minimum(6.0) / 6.0);
    /// Clamps to the range from −1 to 1.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::hard_tanh(&Array::from([-4.0f32, 0.5, 4.0]));
    /// assert_eq!(y.to_vec::<f32>()?, [-1.0, 0.5, 1.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn hard_tanh(x) = x.clamp(-1.0, 1.0);
    /// Computes log(logistic(x)), without overflow.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::log_sigmoid(&Array::from([0.0f32, -1000.0]));
    /// assert!(y.allclose(&Array::from([-0.6931472f32, -1000.0]))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "logsigmoid")]
    pub fn log_sigmoid(x) = -(-x).softplus();
    /// Computes x / (|x| + 1).
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::soft_sign(&Array::from([-3.0f32, 1.0]));
    /// assert_eq!(y.to_vec::<f32>()?, [-0.75, 0.5]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "softsign")]
    pub fn soft_sign(x) = x / (x.abs() + 1.0);
    /// Computes x · tanh(softplus(x)).
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// assert!(nn::mish(&Array::from(1.0f32)).allclose(&Array::from(0.86509836f32))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn mish(x) = x * x.softplus().tanh();
    /// Computes (x + √(x² + b)) / 2, a smooth form of relu; JAX's default of `b` is 4.
    ///
    /// ```
    /// use atmesh::{nn, prelude::*};
    /// let y = nn::squareplus(&Array::from([0.0f32, 1.5]), 4.0);
    /// assert_eq!(y.to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn squareplus(x, b: f64) = (x + (x.square() + b).sqrt()) * 0.5;
}

/// Computes x where x > 0, and α (e^(x/β) − 1) elsewhere, with finite derivatives for large x.
#[track_caller]
fn exponential_below_zero(x: &Array, alpha: f64, beta: f64) -> Array {
    let positive = x.gt(0.0);
    let below = positive.select(0.0, x);
    positive.select(x, (below / beta).expm1() * alpha)
}

/// Multiplies the first half along a dimension by the logistic function of the second half.
///
/// The gated activation of a transformer with SiLU (SwiGLU) is `gate.silu() * up`.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let x = Array::from([3.0f32, 4.0, 0.0, 0.0]);
/// assert_eq!(nn::glu(&x, -1).to_vec::<f32>()?, [1.5, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("gated linear unit", "swiglu"))]
#[track_caller]
pub fn glu(x: &Array, dim: i32) -> Array {
    let call = ok_or_return!(LayerCall::new("glu", &[("x", x)]));
    ok_or_return!(call.check_floats([0]));
    let ty = call.ty(0);
    let d = ok_or_return!(crate::api::array::resolve_dim(dim.into(), ty.rank()), |fault| call.reject(fault));
    let n = ty.shape[d];
    if !n.is_multiple_of(2) {
        return call.reject(odd_size(d, n));
    }
    match &x.split([n / 2, n / 2], dim)[..] {
        [value, gate] => value * gate.logistic(),
        other => other.first().unwrap_or(x).clone(),
    }
}

/// Returns the fault of a dimension that cannot be split into halves.
pub(super) fn odd_size(d: usize, n: usize) -> Fault {
    fault!(Shape, "dimension {d} has size {n}, and is split into two halves")
        .help("give it an even size")
        .highlight_dim(0, d)
}
