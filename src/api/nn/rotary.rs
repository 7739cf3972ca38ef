//! Rotary position embeddings.

use super::call::LayerCall;
use crate::api::array::{Array, concat, stack};
use crate::core::{DType, Fault, Spec};

/// The form of a rotary embedding: which elements are pairs, and how fast they turn.
///
/// Models that were trained with one pairing compute something else with the other one.
///
/// ```
/// use atmesh::{nn, nn::Rope, prelude::*};
/// let x = Array::from([1.0f32, 0.0, 5.0]).reshape([1, 1, 3]);
/// // the pair turns by one radian for each position; the last element stays
/// let form = Rope::halves(10_000.0).rotary_dims(2);
/// let y = nn::rope(&x, &Array::from([2]), &form);
/// assert!(y.ravel().allclose(&Array::from([2f32.cos(), 2f32.sin(), 5.0]))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Rope {
    /// The base of the frequencies: pair i of n turns by position · theta^(−i/n) radians.
    pub theta: f64,
    /// True if neighbors are pairs, false if element i and element i + n are. Defaults to false.
    pub interleaved: bool,
    /// The number of elements that turn, from the first one. Defaults to `None`: all of them.
    pub rotary_dims: Option<usize>,
    /// The frequencies of the pairs, in radians for each position; `None` if they follow from
    /// theta.
    pub frequencies: Option<Array>,
}

impl Rope {
    /// Pairs element i with element i + n of 2n: Llama, Mistral, Qwen and GPT-NeoX in Hugging Face.
    ///
    /// ```
    /// use atmesh::{nn, nn::Rope, prelude::*};
    /// let x = Array::from([1.0f32, 0.0, 0.0, 0.0]).reshape([1, 1, 4]);
    /// let turned = nn::rope(&x, &Array::from([1]), &Rope::halves(10_000.0));
    /// assert!(turned.ravel().allclose(&Array::from([0.5403023f32, 0.0, 0.841471, 0.0]))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn halves(theta: f64) -> Rope {
        Rope { theta, interleaved: false, rotary_dims: None, frequencies: None }
    }
    /// Pairs each even element with the next one: the original paper, GPT-J and Meta's Llama files.
    ///
    /// ```
    /// use atmesh::{nn, nn::Rope, prelude::*};
    /// let x = Array::from([1.0f32, 0.0, 0.0, 0.0]).reshape([1, 1, 4]);
    /// let turned = nn::rope(&x, &Array::from([1]), &Rope::interleaved(10_000.0));
    /// assert!(turned.ravel().allclose(&Array::from([0.5403023f32, 0.841471, 0.0, 0.0]))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn interleaved(theta: f64) -> Rope {
        Rope { interleaved: true, ..Rope::halves(theta) }
    }
    setters! {
        /// Turns the first `n` elements only, and leaves the others as they are.
        ///
        /// ```
        /// use atmesh::{nn, nn::Rope, prelude::*};
        /// let x = Array::ones([2, 1, 6]);
        /// let y = nn::rope(&x, &Array::arange(0..2), &Rope::halves(10_000.0).rotary_dims(4));
        /// assert_eq!(y.slice(ix![.., .., 4..]).to_vec::<f32>()?, [1.0; 4]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn rotary_dims(n: usize) = rotary_dims: Some(n);
        /// Sets the frequency of each pair, as models with a longer context need.
        ///
        /// ```
        /// use atmesh::{nn, nn::Rope, prelude::*};
        /// let slow = Array::from([0.5f32]);
        /// let x = Array::from([1.0f32, 0.0]).reshape([1, 1, 2]);
        /// let y = nn::rope(&x, &Array::from([2]), &Rope::halves(1e4).frequencies(&slow));
        /// assert!(y.ravel().allclose(&Array::from([0.5403023f32, 0.841471]))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn frequencies(frequencies: &Array) = frequencies: Some(frequencies.clone());
    }
}

/// Turns pairs of elements of each query or key by an angle that grows with its position.
///
/// `x` is `[.., t, heads, features]`. `positions` are the integers of its dimensions up to `t`:
/// `[t]`, or `[batch, t]` if each sequence has its own. While decoding with a cache, a scalar is
/// the position of the only query. Angles and products are computed in float32; the result has the
/// element type and the sharding of `x`.
///
/// ```
/// use atmesh::{nn, nn::Rope, prelude::*};
/// let (q, k) = (Key::new(0).normal([2, 8, 4, 16]), Key::new(1).normal([2, 8, 4, 16]));
/// let rope = Rope::halves(10_000.0);
/// let scores = |first: i32| {
///     let at = Array::arange(first..first + 8);
///     einsum("bthk,bshk->bhts", [nn::rope(&q, &at, &rope), nn::rope(&k, &at, &rope)])
/// };
/// // products of queries and keys depend on distances only
/// assert!(scores(0).allclose_with(&scores(100), 0.0, 1e-3)?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("rotary", "apply_rotary_pos_emb"))]
#[track_caller]
pub fn rope(x: &Array, positions: &Array, form: &Rope) -> Array {
    let mut operands = vec![("x", x), ("positions", positions)];
    operands.extend(form.frequencies.as_ref().map(|f| ("frequencies", f)));
    let call = ok_or_return!(LayerCall::new("rope", &operands));
    ok_or_return!(call.check_floats([0]));
    let n = ok_or_return!(check_rope(&call, form), |fault| call.reject(fault));
    let ty = call.ty(0);
    let all = ty.shape[ty.rank() - 1];
    let frequencies = match &form.frequencies {
        Some(f) => f.astype(DType::F32),
        None => {
            let of = |i: usize| form.theta.powf(-2.0 * i as f64 / n as f64) as f32;
            Array::from((0..n / 2).map(of).collect::<Vec<f32>>())
        }
    };
    let angles = positions.astype(DType::F32).expand_dims(-1) * frequencies;
    let angles = angles.expand_dims(-2);
    let (cos, sin) = (angles.cos(), angles.sin());
    let parts = if n < all { x.split([n, all - n], -1) } else { vec![x.clone()] };
    let turned = turn(&parts[0].astype(DType::F32), &cos, &sin, form.interleaved).astype(ty.dtype);
    match parts.get(1) {
        Some(rest) => concat([&turned, rest], -1),
        None => turned,
    }
}

/// Turns the pairs along the last dimension by angles.
#[track_caller]
fn turn(x: &Array, cos: &Array, sin: &Array, interleaved: bool) -> Array {
    let Ok(shape) = x.shape() else { return x.clone() };
    let n = shape[shape.len() - 1] / 2;
    let pairs = if interleaved {
        let mut split = shape.to_vec();
        split.pop();
        split.extend([n, 2]);
        x.reshape(split).unstack(-1)
    } else {
        x.split([n, n], -1)
    };
    let [a, b] = &pairs[..] else { return pairs.first().unwrap_or(x).clone() };
    let (first, second) = (a * cos - b * sin, b * cos + a * sin);
    if interleaved { stack([first, second], -1).reshape(shape) } else { concat([first, second], -1) }
}

/// Checks the operands; returns the number of elements that turn.
fn check_rope(call: &LayerCall, form: &Rope) -> Result<usize, Fault> {
    let (x, at) = (call.ty(0), call.ty(1));
    if x.rank() < 3 {
        return Err(fault!(
            Shape,
            "`x` has rank {}, and must have the dimensions [.., t, heads, features]",
            x.rank()
        )
        .help("add a dimension of heads: `x.expand_dims(-2)`"));
    }
    let last = x.rank() - 1;
    let lead = &x.shape[..last - 1];
    let fits = at.rank() <= lead.len()
        && at.shape.iter().rev().zip(lead.iter().rev()).all(|(n, of)| n == of || *n == 1);
    if !fits {
        return Err(fault!(
            Shape,
            "`positions` have shape {}, and must have one element for each of the {} positions of dimension {} of `x`",
            at.shape,
            lead[lead.len() - 1],
            last - 2
        )
        .help(format!("number the positions: `Array::arange(0..{})`", lead[lead.len() - 1])));
    }
    let n = form.rotary_dims.unwrap_or(x.shape[last]);
    if n == 0 || !n.is_multiple_of(2) || n > x.shape[last] {
        return Err(fault!(Shape, "{n} of {} elements turn, which are no pairs", x.shape[last])
            .help("give an even number of elements: `Rope::halves(1e4).rotary_dims(2)`")
            .highlight_dim(0, last));
    }
    if form.frequencies.is_some() && call.ty(2).shape[..] != [n / 2] {
        return Err(fault!(
            Shape,
            "`frequencies` have shape {}, but there are {} pairs",
            call.ty(2).shape,
            n / 2
        )
        .help(format!("give one frequency for each pair: a vector of {}", n / 2)));
    }
    let axes = call.axes(0, last);
    if !axes.is_empty() {
        let spec: Spec = x.spec.with_dim(last, &crate::core::Axes::none());
        return Err(fault!(
            Sharding,
            "dimension {last} of `x` is sharded over {axes}, and its elements are pairs"
        )
        .help(format!("gather it first: `x.reshard({spec})`"))
        .highlight_dim(0, last));
    }
    Ok(n)
}
