//! Dropout.

use super::call::LayerCall;
use crate::api::array::Array;
use crate::api::random::Key;
use crate::api::trace::{poison, type_here};
use crate::core::{ArrayType, Axes, DType, Fault};

/// Sets elements to zero with probability `rate`, and divides the others by 1 − `rate`.
///
/// Which elements are kept depends on the key and on the shape, and never on the sharding: a model
/// draws the same mask on every mesh, and flax draws it too. A rate of 0 returns `x`, a rate of 1
/// zeros. To evaluate a model, leave the call out, or pass a rate of 0.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let x = Array::ones([1000]);
/// let y = nn::dropout(&Key::new(0), 0.25, &x);
/// let kept = y.ne(0.0).astype(F32).mean(..).item::<f32>()?;
/// assert!((kept - 0.75).abs() < 0.05 && (y.max(..).item::<f32>()? - 1.0 / 0.75).abs() < 1e-6);
/// // the mask does not depend on the mesh
/// let mesh = Mesh::new([("data", 4)])?;
/// let sharded = nn::dropout(&Key::new(0), 0.25, &x.put(&mesh, p!["data"]));
/// assert_eq!(sharded.to_vec::<f32>()?, y.to_vec::<f32>()?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias = "Dropout")]
#[track_caller]
pub fn dropout(key: &Key, rate: f64, x: &Array) -> Array {
    let call = ok_or_return!(LayerCall::new("dropout", &[("x", x), ("key", key.array())]));
    ok_or_return!(call.check_floats([0]));
    ok_or_return!(check_rate(rate, "nn::dropout(&key, 0.1, &x)"), |fault| call.reject(fault));
    drop_elements(key, rate, x)
}

/// Checks that a rate is a probability; `example` is a call with a valid rate.
pub(super) fn check_rate(rate: f64, example: &str) -> Result<(), Fault> {
    if (0.0..=1.0).contains(&rate) {
        return Ok(());
    }
    Err(fault!(Data, "the rate {rate} is not a probability")
        .help(format!("give the share of elements to drop, from 0 to 1: `{example}`")))
}

/// Computes [`dropout`] of floats with a valid rate.
#[track_caller]
pub(super) fn drop_elements(key: &Key, rate: f64, x: &Array) -> Array {
    if rate == 0.0 {
        return x.clone();
    }
    if rate == 1.0 {
        return x.zeros_like();
    }
    let ty = ok_or_return!(type_here(x), |error| poison(error));
    let spec = ty.spec.unreduced(Axes::none()).reduced(Axes::none());
    let ty = ArrayType { dtype: DType::F32, spec, varying: Axes::none(), ..ty };
    let keep = 1.0 - rate;
    key.bernoulli(ty, keep).select(x / keep, 0.0)
}
