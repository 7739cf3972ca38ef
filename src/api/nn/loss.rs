//! Losses, one for each example: take their mean for a batch.

use super::call::{LayerCall, arrays, dims_spec, parameter, wide_dtype};
use crate::api::array::{Array, Operand, Term};
use crate::core::DType;

/// Computes the cross entropy of the softmax of logits and integer labels.
///
/// `logits` are `[.., classes]`, and `labels` the integers of the other dimensions. The result has
/// the shape of the labels: for each example, −log of the probability of its label. Take the mean
/// for a loss, or a weighted mean to leave examples out.
///
/// No array of one-hot labels is made. The classes may be sharded, as in a model whose last layer
/// is split over its vocabulary: each device looks up the labels among its own classes, and only
/// numbers for each example are summed over devices.
///
/// 16-bit logits are converted to float32, and so is the loss. As in optax, a negative label counts
/// from the end, and the loss of a label that is out of range is NaN.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let mesh = Mesh::new([("model", 3)])?;
/// let logits = Array::from([[1.2f32, -0.8, -0.5], [0.9, -1.2, 1.1]]);
/// let labels = Array::from([0, 1]);
/// let loss = nn::softmax_cross_entropy_with_integer_labels(&logits, &labels);
/// assert!(loss.allclose_with(&Array::from([0.2761f32, 2.9518]), 0.0, 1e-4)?);
/// // classes that are sharded: the gradient is sharded as the logits are
/// let split = logits.put(&mesh, p![_, "model"]);
/// let g = grad(&split, |x| nn::softmax_cross_entropy_with_integer_labels(&x, &labels).mean(..));
/// assert_eq!(type_of(&g), "float32[2,3@model]");
/// // leave out examples whose label is negative
/// let labels = Array::from([0, -1]);
/// let loss = nn::softmax_cross_entropy_with_integer_labels(&logits, &labels);
/// let counted = labels.ge(0);
/// let mean = counted.select(loss, 0.0).sum(..) / counted.astype(F32).sum(..);
/// assert!((mean.item::<f32>()? - 0.2761).abs() < 1e-4);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("cross_entropy", "CrossEntropyLoss", "nll_loss", "sparse_categorical_crossentropy"))]
#[track_caller]
pub fn softmax_cross_entropy_with_integer_labels(logits: &Array, labels: &Array) -> Array {
    let op = "softmax_cross_entropy_with_integer_labels";
    let call = ok_or_return!(LayerCall::new(op, &[("logits", logits), ("labels", labels)]));
    ok_or_return!(call.check_floats([0]));
    ok_or_return!(call.check_integers(1));
    let (x, y) = (call.ty(0), call.ty(1));
    let Some(last) = x.rank().checked_sub(1).filter(|last| x.shape[..*last] == y.shape[..]) else {
        let fault = fault!(
            Shape,
            "`logits` have shape {}, and `labels` {}, which must be that of the logits without the classes",
            x.shape,
            y.shape
        );
        let fault = if x.shape == y.shape {
            fault.help("for probabilities of classes: `nn::softmax_cross_entropy(&logits, &labels)`")
        } else {
            fault.help("the classes are the last dimension of the logits: `logits.moveaxis(d, -1)`")
        };
        return call.reject(fault);
    };
    let (wide, column) = (logits.astype(wide_dtype(x.dtype)), labels.expand_dims(-1));
    let right = if call.explicit_mesh().is_some() {
        let mut dims = Vec::with_capacity(x.rank());
        for d in 0..last {
            dims.push(ok_or_return!(call.join((0, d), (1, d))));
        }
        dims.push(crate::core::Axes::none());
        wide.take_along_axis_to(&column, -1, dims_spec(dims))
    } else {
        wide.take_along_axis(&column, -1)
    };
    wide.logsumexp(-1) - right.squeeze(-1)
}

/// Computes the cross entropy of the softmax of logits and probabilities of the classes.
///
/// `logits` and `labels` are `[.., classes]`; the result drops the classes. 16-bit logits are
/// converted to float32, and so is the loss.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let logits = Array::from([[1.2f32, -0.8, -0.5], [0.9, -1.2, 1.1]]);
/// let labels = Array::from([[1.0f32, 0.0, 0.0], [0.0, 0.5, 0.5]]);
/// let loss = nn::softmax_cross_entropy(&logits, &labels);
/// assert!(loss.allclose_with(&Array::from([0.2761f32, 1.8018]), 0.0, 1e-4)?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn softmax_cross_entropy(logits: &Array, labels: &Array) -> Array {
    let call =
        ok_or_return!(LayerCall::new("softmax_cross_entropy", &[("logits", logits), ("labels", labels)]));
    ok_or_return!(call.check_floats([0, 1]));
    let (x, y) = (call.ty(0), call.ty(1));
    if x.rank() == 0 || x.shape != y.shape {
        let fault = fault!(Shape, "`logits` have shape {}, but `labels` {}", x.shape, y.shape);
        return call.reject(if y.rank() + 1 == x.rank() {
            fault.help("labels of one dimension less are integers: `nn::softmax_cross_entropy_with_integer_labels(&logits, &labels)`")
        } else {
            fault.help("give a probability for each class: `labels.reshape(logits.shape()?)`")
        });
    }
    let wide = wide_dtype(x.dtype);
    -(labels.astype(wide) * logits.astype(wide).log_softmax(-1)).sum(-1)
}

/// Computes the cross entropy of the logistic function of logits and labels, for each element.
///
/// `labels` are probabilities, booleans or the integers 0 and 1, and broadcast to the logits.
/// 16-bit logits are converted to float32, and so is the loss.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let logits = Array::from([0.0f32, 100.0, 100.0]);
/// let loss = nn::sigmoid_binary_cross_entropy(&logits, &Array::from([true, true, false]));
/// assert!(loss.allclose(&Array::from([0.6931472f32, 0.0, 100.0]))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("BCEWithLogitsLoss", "binary_cross_entropy", "binary_cross_entropy_with_logits"))]
#[track_caller]
pub fn sigmoid_binary_cross_entropy(logits: &Array, labels: impl Operand) -> Array {
    let labels = labels.term();
    let operands = arrays(("logits", logits), &[("labels", &labels)]);
    let call = ok_or_return!(LayerCall::new("sigmoid_binary_cross_entropy", &operands));
    ok_or_return!(call.check_floats([0]));
    if operands.len() > 1 {
        ok_or_return!(call.check_broadcasts(1, 0));
    }
    let wide = wide_dtype(call.ty(0).dtype);
    let (x, p) = (logits.astype(wide), parameter(&labels, wide));
    // −p log σ(x) − (1 − p) log σ(−x), where log σ(x) = −softplus(−x)
    let positive = (-&x).softplus();
    let negative = x.softplus();
    match p {
        Term::Array(p) => &p * positive + (1.0 - &p) * negative,
        Term::Number(p) => {
            let p = p.to_c128().re;
            positive * p + negative * (1.0 - p)
        }
    }
}

/// Computes half of the squared difference, for each element.
///
/// `targets` are a number, or an array that broadcasts.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let loss = nn::l2_loss(&Array::from([1.0f32, 4.0]), Array::from([1.0f32, 2.0]));
/// assert_eq!(loss.to_vec::<f32>()?, [0.0, 2.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("mse_loss", "squared_error"))]
#[track_caller]
pub fn l2_loss(predictions: &Array, targets: impl Operand) -> Array {
    let targets = targets.term();
    let (_call, error) = ok_or_return!(difference("l2_loss", predictions, &targets));
    error.square() * 0.5
}

/// Computes the Huber loss of the difference, for each element.
///
/// It is half of the square up to `delta`, and linear beyond, so that outliers have bounded
/// derivatives. `targets` are a number, or an array that broadcasts.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let loss = nn::huber_loss(&Array::from([1.0f32, 5.0]), 0.0, 2.0);
/// assert_eq!(loss.to_vec::<f32>()?, [0.5, 8.0]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "smooth_l1_loss")]
#[track_caller]
pub fn huber_loss(predictions: &Array, targets: impl Operand, delta: f64) -> Array {
    let targets = targets.term();
    let (call, error) = ok_or_return!(difference("huber_loss", predictions, &targets));
    if delta < 0.0 || delta.is_nan() {
        return call.reject(fault!(Data, "delta is {delta}").help("give a distance that is not negative"));
    }
    let size = error.abs();
    let quadratic = size.minimum(delta);
    let linear = size - &quadratic;
    quadratic.square() * 0.5 + linear * delta
}

/// Checks predictions and targets, and returns their difference.
#[track_caller]
fn difference(op: &'static str, predictions: &Array, targets: &Term) -> Result<(LayerCall, Array), Array> {
    let operands = arrays(("predictions", predictions), &[("targets", targets)]);
    let call = LayerCall::new(op, &operands)?;
    call.check_floats(0..operands.len())?;
    if operands.len() > 1 {
        call.check_one_dtype(0, 1)?;
    }
    let error = match targets {
        Term::Number(x) if x.to_c128().re == 0.0 && call.ty(0).dtype != DType::Bool => predictions.clone(),
        targets => predictions - targets,
    };
    Ok((call, error))
}
