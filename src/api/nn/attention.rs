//! Attention.

use super::call::LayerCall;
use super::dropout::{check_rate, drop_elements};
use crate::api::array::{Array, DotOptions, Operand, einsum_with};
use crate::api::random::Key;
use crate::core::{ArrayType, Axes, DType, Spec};

/// Options of [`dot_product_attention_with`]: `AttentionOptions::causal().scale(0.125)`.
///
/// ```
/// use atmesh::{nn, nn::AttentionOptions, prelude::*};
/// let [q, k, v] = [0, 1, 2].map(|i| Key::new(i).normal([1, 6, 2, 4]));
/// // with a scale of 0, a query sees its own key and the one before it equally
/// let options = AttentionOptions::causal().scale(0.0).local_window_size(1, 0);
/// let y = nn::dot_product_attention_with(&q, &k, &v, options);
/// let mean = (v.slice(ix![.., ..5]) + v.slice(ix![.., 1..])) / 2.0;
/// assert!(y.slice(ix![.., 1..]).allclose(&mean)?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct AttentionOptions {
    /// True if query t sees keys up to position t + `query_offset` only. Defaults to false.
    pub is_causal: bool,
    /// The factor of the scores. `None` is 1 / √features.
    pub scale: Option<f64>,
    /// Booleans that broadcast to `[batch, heads, t, s]`, false where a query must not see a key.
    /// `None` masks nothing.
    pub mask: Option<Array>,
    /// Floats that broadcast to `[batch, heads, t, s]` and are added to the scores. `None` adds
    /// nothing.
    pub bias: Option<Array>,
    /// The number of keys that queries see: a scalar, or one integer for each sequence of the
    /// batch. `None` is all of them.
    pub key_value_seq_lengths: Option<Array>,
    /// The number of queries whose result is not zero: a scalar, or one integer for each sequence.
    /// `None` is all of them.
    pub query_seq_lengths: Option<Array>,
    /// The position of the first query among the keys: a scalar, or one integer for each sequence.
    /// `None` is 0.
    pub query_offset: Option<Array>,
    /// The number of keys before and after its own position that a query sees. `None` is all of
    /// them.
    pub local_window_size: Option<(usize, usize)>,
    /// The key and the rate of a [`dropout`](crate::nn::dropout()) of the weights of keys, after
    /// the softmax. `None` keeps all of them.
    pub dropout: Option<(Key, f64)>,
}

impl AttentionOptions {
    /// Returns the options of a decoder: query t sees keys up to position t.
    ///
    /// ```
    /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
    /// let (q, k) = (Array::ones([1, 2, 1, 4]), Array::ones([1, 2, 1, 4]));
    /// let v = Array::from([[1.0f32, 1.0, 1.0, 1.0], [3.0, 3.0, 3.0, 3.0]]).reshape([1, 2, 1, 4]);
    /// let y = nn::dot_product_attention_with(&q, &k, &v, AttentionOptions::causal());
    /// assert_eq!(y.slice(ix![0, .., 0, 0]).to_vec::<f32>()?, [1.0, 2.0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "is_causal")]
    pub fn causal() -> AttentionOptions {
        AttentionOptions { is_causal: true, ..AttentionOptions::default() }
    }
    setters! {
        /// Sets the factor of the scores.
        ///
        /// ```
        /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
        /// let [q, k, v] = [0, 1, 2].map(|i| Key::new(i).normal([1, 3, 2, 4]));
        /// // twice the queries have twice the scores
        /// let half = AttentionOptions::default().scale(0.25);
        /// let y = nn::dot_product_attention_with(&(&q * 2.0), &k, &v, half);
        /// assert!(y.allclose(&nn::dot_product_attention(&q, &k, &v))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn scale(scale: f64) = scale: Some(scale);
        /// Sets the mask: booleans, false where a query must not see a key.
        ///
        /// ```
        /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
        /// let (q, k) = (Array::ones([1, 1, 1, 4]), Array::ones([1, 2, 1, 4]));
        /// let v = Array::arange(0.0..8.0f32).reshape([1, 2, 1, 4]);
        /// let options = AttentionOptions::default().mask(&Array::from([true, false]));
        /// let y = nn::dot_product_attention_with(&q, &k, &v, options);
        /// assert_eq!(y.to_vec::<f32>()?, [0.0, 1.0, 2.0, 3.0]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn mask(mask: &Array) = mask: Some(mask.clone());
        /// Sets the numbers that are added to the scores.
        ///
        /// ```
        /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
        /// let (q, k) = (Array::ones([1, 1, 1, 4]), Array::ones([1, 2, 1, 4]));
        /// let v = Array::from([0.0f32, 4.0]).reshape([1, 2, 1, 1]).broadcast_to([1, 2, 1, 4]);
        /// // equal scores, of which the second gets ln 3: its key has 3 of 4 parts of the weight
        /// let options = AttentionOptions::default().bias(&Array::from([0.0f32, 3f32.ln()]));
        /// let y = nn::dot_product_attention_with(&q, &k, &v, options);
        /// assert!(y.allclose(&Array::full([1, 1, 1, 4], 3.0))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn bias(bias: &Array) = bias: Some(bias.clone());
        /// Sets the number of keys that queries see: the length of a cache.
        ///
        /// ```
        /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
        /// // a cache of 16 keys, of which 3 are filled
        /// let (q, cache) = (Array::ones([2, 1, 4, 8]), Key::new(0).normal([2, 16, 2, 8]));
        /// let options = AttentionOptions::default().key_value_seq_lengths(3);
        /// let y = nn::dot_product_attention_with(&q, &cache, &cache, options);
        /// let filled = cache.slice(ix![.., ..3]);
        /// assert!(y.allclose(&nn::dot_product_attention(&q, &filled, &filled))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn key_value_seq_lengths(lengths: impl Operand)
            = key_value_seq_lengths: Some(integers(lengths));
        /// Sets the number of queries whose result is not zero.
        ///
        /// ```
        /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
        /// // two sequences, of 3 and of 1 queries
        /// let [q, k, v] = [0, 1, 2].map(|i| Key::new(i).normal([2, 3, 1, 4]));
        /// let options = AttentionOptions::default().query_seq_lengths(Array::from([3, 1]));
        /// let y = nn::dot_product_attention_with(&q, &k, &v, options);
        /// let filled = y.ne(0.0).any([2, 3]);
        /// assert_eq!(filled.to_vec::<bool>()?, [true, true, true, true, false, false]);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn query_seq_lengths(lengths: impl Operand) = query_seq_lengths: Some(integers(lengths));
        /// Sets the position of the first query among the keys, for causal masks and windows.
        ///
        /// ```
        /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
        /// let [q, k, v] = [0, 1, 2].map(|i| Key::new(i).normal([1, 6, 2, 4]));
        /// let all = nn::dot_product_attention_with(&q, &k, &v, AttentionOptions::causal());
        /// let last = q.slice(ix![.., 4..]);
        /// let options = AttentionOptions::causal().query_offset(4);
        /// let y = nn::dot_product_attention_with(&last, &k, &v, options);
        /// assert!(y.allclose(&all.slice(ix![.., 4..]))?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn query_offset(first: impl Operand) = query_offset: Some(integers(first));
        /// Sets the number of keys before and after its own position that a query sees.
        ///
        /// ```
        /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
        /// let [q, k, v] = [0, 1, 2].map(|i| Key::new(i).normal([1, 5, 2, 4]));
        /// // no key before or after: each query sees the key at its own position
        /// let options = AttentionOptions::default().local_window_size(0, 0);
        /// assert!(nn::dot_product_attention_with(&q, &k, &v, options).allclose(&v)?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        pub fn local_window_size(before: usize, after: usize)
            = local_window_size: Some((before, after));
        /// Sets weights of keys to zero with probability `rate`, and divides the others by
        /// 1 − `rate`, for training.
        ///
        /// Each query of each head draws its own keys.
        ///
        /// ```
        /// use atmesh::{nn, nn::AttentionOptions, prelude::*};
        /// let [q, k, v] = [0, 1, 2].map(|i| Key::new(i).normal([2, 5, 4, 8]));
        /// let train = |rate| AttentionOptions::causal().dropout(&Key::new(3), rate);
        /// let half = nn::dot_product_attention_with(&q, &k, &v, train(0.5));
        /// // the first query sees one key, whose weight is 0 or 1 / 0.5
        /// let first = half.slice(ix![.., 0]) / v.slice(ix![.., 0]);
        /// assert!((first.eq(0.0) | first.eq(2.0)).all(..).item::<bool>()?);
        /// let none = nn::dot_product_attention_with(&q, &k, &v, train(0.0));
        /// assert!(!half.allclose(&none)?);
        /// # Ok::<(), atmesh::Error>(())
        /// ```
        #[doc(alias("dropout_rate", "dropout_rng", "dropout_p"))]
        pub fn dropout(key: &Key, rate: f64) = dropout: Some((key.clone(), rate));
    }
}

/// Converts a number or an array of integers to an array.
#[track_caller]
fn integers(x: impl Operand) -> Array {
    match x.term() {
        crate::api::array::Term::Array(a) => a,
        number => Array::full(DType::I32.array_type([]), number),
    }
}

/// Computes softmax(q kᵀ / √features) v for each head.
///
/// The queries are `[batch, t, heads, features]`, keys and values `[batch, s, kv_heads, features]`,
/// or all of them without the batch. With fewer heads of keys than of queries (grouped or
/// multi-query attention) each is used by heads / `kv_heads` heads of queries, neighbors of one
/// another. Scores and softmax are computed in float32; the result has the type of the queries.
///
/// The result is sharded as the queries are. Batch and heads may be sharded in all operands, and
/// heads in the queries only. If the keys are sharded over s, the devices sum their parts of the
/// softmax. Other conflicts are errors.
///
/// ```
/// use atmesh::{nn, prelude::*};
/// let mesh = Mesh::new([("data", 2), ("model", 2)])?;
/// let q = Key::new(0).normal([2, 5, 4, 8]).put(&mesh, p!["data", _, "model"]);
/// let [k, v] = [1, 2].map(|i| Key::new(i).normal([2, 7, 2, 8]).put(&mesh, p!["data", _, "model"]));
/// let y = nn::dot_product_attention(&q, &k, &v);
/// assert_eq!(type_of(&y), "float32[2@data,5,4@model,8]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[doc(alias("MultiHeadAttention", "scaled_dot_product_attention"))]
#[track_caller]
pub fn dot_product_attention(query: &Array, key: &Array, value: &Array) -> Array {
    attend("dot_product_attention", query, key, value, &AttentionOptions::default())
}

/// Computes [`dot_product_attention`] with options: masks, biases, the scale, and a cache's length.
///
/// A query that sees no key attends to all keys equally, as in JAX.
///
/// ```
/// use atmesh::{nn, nn::AttentionOptions, prelude::*};
/// let [q, k, v] = [0, 1, 2].map(|i| Key::new(i).normal([2, 5, 4, 8]));
/// let causal = nn::dot_product_attention_with(&q, &k, &v, AttentionOptions::causal());
/// // the first query sees the first key only
/// assert!(causal.slice(ix![.., 0]).allclose(&v.slice(ix![.., 0]))?);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
pub fn dot_product_attention_with(
    query: &Array,
    key: &Array,
    value: &Array,
    options: AttentionOptions,
) -> Array {
    attend("dot_product_attention_with", query, key, value, &options)
}

/// The number that stands for minus infinity: a row of it has a softmax.
const MASKED_SCORE: f64 = -0.7 * f32::MAX as f64;

#[track_caller]
fn attend(op: &'static str, q: &Array, k: &Array, v: &Array, options: &AttentionOptions) -> Array {
    let mut operands = vec![("query", q), ("key", k), ("value", v)];
    let dropout_key = options.dropout.as_ref().map(|(key, _)| key.array());
    let more = [
        ("mask", &options.mask),
        ("bias", &options.bias),
        ("key_value_seq_lengths", &options.key_value_seq_lengths),
        ("query_seq_lengths", &options.query_seq_lengths),
        ("query_offset", &options.query_offset),
    ];
    operands.extend(more.into_iter().filter_map(|(name, a)| Some((name, a.as_ref()?))));
    operands.extend(dropout_key.map(|key| ("dropout key", key)));
    let call = ok_or_return!(LayerCall::new(op, &operands));
    let batched = call.ty(0).rank() != 3;
    ok_or_return!(check_operands(&call, &operands, batched));
    if let Some((_, rate)) = &options.dropout {
        let example = "AttentionOptions::causal().dropout(&key, 0.1)";
        ok_or_return!(check_rate(*rate, example), |fault| call.reject(fault));
    }
    if batched {
        return ok_or_return!(Heads::new(&call, [q, k, v])).attend(options);
    }
    // the specs of `Heads` are those of operands with a batch
    let [q, k, v] = [q, k, v].map(|x| x.expand_dims(0));
    let call = ok_or_return!(LayerCall::new(op, &[("query", &q), ("key", &k), ("value", &v)]));
    ok_or_return!(Heads::new(&call, [&q, &k, &v])).attend(options).squeeze(0)
}

/// Checks ranks, sizes and element types.
fn check_operands(call: &LayerCall, operands: &[(&str, &Array)], batched: bool) -> Result<(), Array> {
    let (rank, queries, keys) = if batched {
        (4, "[batch, t, heads, features]", "[batch, s, kv_heads, features]")
    } else {
        (3, "[t, heads, features]", "[s, kv_heads, features]")
    };
    call.check_floats(0..3)?;
    for k in 0..3 {
        call.check_rank(k, rank, if k == 0 { queries } else { keys })?;
    }
    call.check_one_dtype(0, 1)?;
    call.check_one_dtype(0, 2)?;
    let [q, k, v] = [0, 1, 2].map(|k| &call.ty(k).shape);
    let (heads, kv_heads) = (q[rank - 2], k[rank - 2]);
    let wrong = if k != v {
        Some(fault!(Shape, "`key` has shape {k}, but `value` {v}").help("give each key one value"))
    } else if batched && q[0] != k[0] {
        Some(
            fault!(Shape, "`query` has a batch of {}, but `key` of {}", q[0], k[0])
                .help("give them one batch: `key.broadcast_to(..)`"),
        )
    } else if q[rank - 1] != k[rank - 1] {
        Some(
            fault!(Shape, "`query` has {} features, but `key` {}", q[rank - 1], k[rank - 1])
                .help("give queries and keys the same number of features"),
        )
    } else if kv_heads == 0 || !heads.is_multiple_of(kv_heads) {
        Some(
            fault!(Shape, "the {heads} heads of `query` are not a multiple of the {kv_heads} of `key`")
                .help("give one head of keys for each group of heads of queries"),
        )
    } else {
        None
    };
    if let Some(fault) = wrong {
        return Err(call.reject(fault));
    }
    let scores = [q[..rank - 3].first().copied().unwrap_or(1), heads, q[rank - 3], k[rank - 3]];
    for (index, (name, _)) in operands.iter().enumerate().skip(3) {
        check_option(call, index, name, scores)?;
    }
    Ok(())
}

/// Checks an array of the options; `scores` is the shape `[batch, heads, t, s]`.
fn check_option(call: &LayerCall, index: usize, name: &str, scores: [usize; 4]) -> Result<(), Array> {
    let ty = call.ty(index);
    match name {
        "mask" if ty.dtype != DType::Bool => {
            let fault = fault!(Dtype, "`mask` must be booleans, not {}", ty.dtype);
            return Err(call.reject(fault.help("compare it: `mask.ne(0)`; numbers to add are a `bias`")));
        }
        "mask" => {}
        "bias" => call.check_floats([index])?,
        "dropout key" => return Ok(()),
        _ => {
            call.check_integers(index)?;
            if ty.rank() > 1 || ty.rank() == 1 && ty.shape[0] != scores[0] {
                let fault = fault!(Shape, "`{name}` has shape {}, for a batch of {}", ty.shape, scores[0]);
                let help = format!("give one integer, or one for each sequence: a vector of {}", scores[0]);
                return Err(call.reject(fault.help(help)));
            }
            return Ok(());
        }
    }
    let fits =
        ty.rank() <= 4 && ty.shape.iter().rev().zip(scores.iter().rev()).all(|(n, of)| n == of || *n == 1);
    if fits {
        return Ok(());
    }
    let fault = fault!(Shape, "`{name}` has shape {}, which does not broadcast to {scores:?}", ty.shape);
    Err(call.reject(fault.help("its dimensions are those of the scores: [batch, heads, t, s]")))
}

/// Queries, keys and values, with the heads of the queries in groups that share a head of keys.
struct Heads {
    query: Array,
    key: Array,
    value: Array,
    /// The sizes of batch, t, s, heads of keys, and heads of queries in a group.
    sizes: [usize; 5],
    /// The spec of the scores `[b, g, r, t, s]`, if the sum over the features needs it.
    scores: Option<Spec>,
    /// The spec of the result `[b, t, g, r, h]`, if the sum over the keys needs it.
    result: Option<Spec>,
}

impl Heads {
    #[track_caller]
    fn new(call: &LayerCall, [q, k, v]: [&Array; 3]) -> Result<Heads, Array> {
        let [qt, kt] = [0, 1].map(|k| call.ty(k));
        let (b, t, s) = (qt.shape[0], qt.shape[1], kt.shape[1]);
        let (heads, kv_heads, features) = (qt.shape[2], kt.shape[2], qt.shape[3]);
        let groups = heads / kv_heads;
        call.check_free(1, [1], &call.axes(0, 1), "query")?;
        let batch = call.join((0, 0), (1, 0))?;
        let head_axes = call.axes(0, 2);
        // sharded heads of queries can be split into groups if each device gets whole groups
        let whole_groups = kv_heads.is_multiple_of(num_shards(qt, &head_axes));
        let (query, key, value, g, r) = if groups > 1 && whole_groups {
            (q.reshape([b, t, kv_heads, groups, features]), k.clone(), v.clone(), kv_heads, groups)
        } else if groups > 1 {
            (q.expand_dims(3), k.repeat(groups, 2), v.repeat(groups, 2), heads, 1)
        } else {
            (q.expand_dims(3), k.clone(), v.clone(), heads, 1)
        };
        let head = if head_axes.is_empty() { call.axes(1, 2) } else { head_axes };
        let (t_axes, s_axes, none) = (call.axes(0, 1), call.axes(1, 1), Axes::none());
        let spec = |dims: [&Axes; 5]| Spec::from_dims(dims.map(Clone::clone).to_vec());
        let sum = |summed: bool, dims| (summed && call.explicit_mesh().is_some()).then(|| spec(dims));
        let split_features = !call.axes(0, 3).is_empty() && !call.axes(1, 3).is_empty();
        let scores = sum(split_features, [&batch, &head, &none, &t_axes, &s_axes]);
        let result = sum(!s_axes.is_empty(), [&batch, &t_axes, &head, &none, &call.axes(2, 3)]);
        Ok(Heads { query, key, value, sizes: [b, t, s, g, r], scores, result })
    }
    #[track_caller]
    fn attend(self, options: &AttentionOptions) -> Array {
        let Ok(shape) = self.query.shape() else { return self.query };
        let Ok(dtype) = self.query.dtype() else { return self.query };
        let [b, t, _, g, r] = self.sizes;
        let features = shape[4];
        let wide = super::call::wide_dtype(dtype);
        let how = DotOptions { out_sharding: self.scores, ..DotOptions::default().accum_dtype(wide) };
        let scores = einsum_with("btgrh,bsgh->bgrts", [&self.query, &self.key], how);
        let scores = scores * options.scale.unwrap_or(1.0 / (features as f64).sqrt());
        let scores = match &options.bias {
            Some(bias) => scores + self.per_head(bias).astype(wide),
            None => scores,
        };
        let scores = match self.visible(options) {
            Some(visible) => visible.select(scores, MASKED_SCORE),
            None => scores,
        };
        let weights = scores.softmax(-1).astype(dtype);
        let weights = match &options.dropout {
            Some((key, rate)) => drop_elements(key, *rate, &weights),
            None => weights,
        };
        let how = DotOptions { out_sharding: self.result, ..DotOptions::default() };
        let y = einsum_with("bgrts,bsgh->btgrh", [&weights, &self.value], how);
        let y = y.reshape([b, t, g * r, features]);
        match &options.query_seq_lengths {
            Some(lengths) => {
                let rows = Array::iota(DType::I32.array_type([t, 1, 1]), 0);
                rows.lt(per_batch(lengths, 4)).select(y, 0.0)
            }
            None => y,
        }
    }
    /// Returns true where a query sees a key, as an array that broadcasts to `[b, g, r, t, s]`.
    #[track_caller]
    fn visible(&self, options: &AttentionOptions) -> Option<Array> {
        let [_, t, s, ..] = self.sizes;
        let rows = Array::iota(DType::I32.array_type([t, 1]), 0);
        let rows = match &options.query_offset {
            Some(first) => rows + per_batch(first, 5),
            None => rows,
        };
        let columns = Array::iota(DType::I32.array_type([1, s]), 1);
        let mut all: Vec<Array> = options.mask.iter().map(|mask| self.per_head(mask)).collect();
        if options.is_causal {
            all.push(rows.ge(&columns));
        }
        if let Some((before, after)) = options.local_window_size {
            all.push(rows.le(&columns + saturating_i32(before)));
            all.push(rows.ge(&columns - saturating_i32(after)));
        }
        if let Some(lengths) = &options.key_value_seq_lengths {
            all.push(columns.lt(per_batch(lengths, 5)));
        }
        all.into_iter().reduce(|a, b| a & b)
    }
    /// Returns a mask or bias as an array that broadcasts to the scores, with heads in groups.
    #[track_caller]
    fn per_head(&self, x: &Array) -> Array {
        let Ok(shape) = x.shape() else { return x.clone() };
        let [.., g, r] = self.sizes;
        let mut sizes = vec![1; 4 - shape.rank().min(4)];
        sizes.extend(shape.iter());
        let heads = if sizes[1] == 1 { [1, 1] } else { [g, r] };
        if shape.rank() <= 2 {
            return x.clone();
        }
        x.reshape([&sizes[..1], &heads, &sizes[2..]].concat())
    }
}

/// Returns one integer for each sequence, or one for all, as an array of this rank.
#[track_caller]
fn per_batch(x: &Array, rank: usize) -> Array {
    let x = x.astype(DType::I32);
    if x.shape().is_ok_and(|s| s.rank() == 1) { x.expand_dims((1..rank).collect::<Vec<usize>>()) } else { x }
}

/// Converts a number of positions, saturating well below the overflow of sums of positions.
fn saturating_i32(n: usize) -> i32 {
    i32::try_from(n).unwrap_or(i32::MAX).min(i32::MAX / 2)
}

/// Returns the number of shards along axes of the type's mesh.
fn num_shards(ty: &ArrayType, axes: &Axes) -> usize {
    ty.mesh.as_ref().map_or(1, |mesh| axes.iter().map(|a| mesh.extent(a)).product())
}
