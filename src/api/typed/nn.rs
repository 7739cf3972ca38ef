//! Layers of typed arrays: functions of [`atmesh::nn`](crate::nn) whose types the rules state.
//!
//! Activations, softmax and reductions are methods of [`Typed`], and attention is written with
//! [`einsum!`](super::einsum). For other functions of `atmesh::nn` use [`Typed::then`], which
//! checks the type of the result.

use super::operands::{JoinsElem, RightOperand};
use super::rules::broadcast::ZipRhs;
use super::sets::{CompleteFor, JoinRhs, Sets};
use super::shape::Shape;
use super::{Float, Typed, equal_sizes, op};
use crate::api::array::{Array, Term};
use crate::api::nn;
use crate::core::Element;

/// A scale or bias of a norm: a number, or a typed array that broadcasts to the normalized one.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot scale or shift an array of `{T}` with the shape `{S}`",
    label = "expected a number, or an array of `{T}` whose dims are the last ones of `{S}`, sharding and all",
    note = "`reshard` it like these dims, or `convert` its elements"
)]
pub trait AffineOperand<T, S, V>: RightOperand {}
impl<T: Element, S: Shape, V: Sets, R: RightOperand<Kind: JoinsElem<T, R::Elem>>> AffineOperand<T, S, V> for R
where
    R::Shape: ZipRhs<S, Out: NormalizedAs<S>>,
    R::Sets: JoinRhs<V, Out: NormalizedAs<V>>,
{
}

/// The shape or the sets of a normalized array with a scale or bias: those of the array, `S`.
#[diagnostic::on_unimplemented(
    message = "a norm: its scale or bias would change the type of the result from `{S}` to `{Self}`",
    label = "the result is `{Self}`",
    note = "give it the last dims of the normalized array, sharding and all: `.reshard(P![..])`"
)]
pub trait NormalizedAs<S> {}
impl<S> NormalizedAs<S> for S {}

/// Normalizes by the root mean square over the last dim, then scales.
///
/// The function is [`nn::rms_norm`](crate::nn::rms_norm). The result has the type of `x`.
///
/// ```
/// use atmesh::typed::{nn, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// let pod = Pod::mesh()?;
/// let (x, scale) = (<T![f32; 4@X, 8]>::full(&pod, 3.0), <T![f32; 8]>::full(&pod, 0.5));
/// let y: T![f32; 4@X, 8] = nn::rms_norm(&x, &scale);
/// assert!((y.to_vec()?[0] - 0.5).abs() < 1e-6);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn rms_norm<T: Float, S: Shape, V: CompleteFor<op::rms_norm>, R: AffineOperand<T, S, V>>(
    x: &Typed<T, S, V>,
    scale: R,
) -> Typed<T, S, V> {
    let scale = broadcast::<S, R>("rms_norm", &x.array, scale);
    Typed::from_rule_result(scale.map_or_else(|unequal| unequal, |scale| nn::rms_norm(&x.array, scale)))
}

/// Normalizes to mean 0 and variance 1 over the last dim, then scales and shifts.
///
/// The function is [`nn::layer_norm`](crate::nn::layer_norm). The result has the type of `x`.
///
/// ```
/// use atmesh::typed::{nn, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// let x = <T![f32; 4@X, 2]>::iota(&Pod::mesh()?, D1);
/// let y: T![f32; 4@X, 2] = nn::layer_norm(&x, 2.0, 1.0);
/// assert!((y.to_vec()?[0] + 1.0).abs() < 1e-4 && (y.to_vec()?[1] - 3.0).abs() < 1e-4);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// A bias that is sharded otherwise does not compile:
///
/// ```compile_fail
/// use atmesh::typed::{nn, prelude::*};
/// mesh! { struct Pod { X: 2 } }
/// fn wrong(x: &T![f32; 4, 8], bias: &T![f32; 8@X]) -> T![f32; 4, 8] {
///     nn::layer_norm(x, 1.0, bias)
/// }
/// ```
#[track_caller]
pub fn layer_norm<T: Float, S: Shape, V: CompleteFor<op::layer_norm>, R, B>(
    x: &Typed<T, S, V>,
    scale: R,
    bias: B,
) -> Typed<T, S, V>
where
    R: AffineOperand<T, S, V>,
    B: AffineOperand<T, S, V>,
{
    let scale = broadcast::<S, R>("layer_norm", &x.array, scale);
    let both = scale.and_then(|scale| Ok((scale, broadcast::<S, B>("layer_norm", &x.array, bias)?)));
    Typed::from_rule_result(
        both.map_or_else(|unequal| unequal, |(scale, bias)| nn::layer_norm(&x.array, scale, bias)),
    )
}

/// Returns the operand of the untyped function, or an array that carries the error of sizes that
/// differ at run time.
#[track_caller]
fn broadcast<S: Shape, R: RightOperand>(op: &'static str, x: &Array, operand: R) -> Result<Term, Array> {
    let term = operand.right_term();
    equal_sizes::right::<S, R>(op, x, &term)?;
    Ok(term)
}
