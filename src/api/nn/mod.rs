//! Layers, losses and initializers as functions on arrays, with the names of JAX, flax and optax.
//!
//! A model is a struct of arrays with `#[derive(Tree)]`, and functions on it. The functions of this
//! module are the parts that most models have. They take arrays and return arrays: there are no
//! module classes, and no state.
//!
//! Each function computes the same on sharded and on unsharded operands. Its result is sharded
//! like one of its operands: that of [`embed`] like the ids, that of a norm or an activation like
//! the operand, and that of [`dot_product_attention`] like the queries. So no function takes a
//! spec, and one source runs on explicit and on auto axes. Inside of `shard_map` the functions see
//! the block of one device.
//!
//! | group | functions |
//! |---|---|
//! | lookups and positions | [`embed`], [`rope`] |
//! | norms | [`layer_norm`], [`rms_norm`], [`group_norm`], [`batch_norm`] |
//! | attention | [`dot_product_attention`] |
//! | regularization | [`dropout`] |
//! | activations | [`glu`], [`elu`], [`leaky_relu`], … and the methods [`relu`](crate::Array::relu), [`gelu`](crate::Array::gelu), [`silu`](crate::Array::silu), [`softplus`](crate::Array::softplus), [`logistic`](crate::Array::logistic), [`softmax`](crate::Array::softmax), [`one_hot`](crate::Array::one_hot) |
//! | losses | [`softmax_cross_entropy_with_integer_labels`], [`softmax_cross_entropy`], [`sigmoid_binary_cross_entropy`], [`huber_loss`], [`l2_loss`] |
//! | initializers | [`init`] |
//! | element types | [`Policy`] |
//!
//! 16-bit floats are converted to float32 where a sum or an exponential would lose digits: in
//! norms, in the softmax of attention, in rotary embeddings, and in losses.
//!
//! ```
//! use atmesh::{nn, prelude::*};
//!
//! #[derive(Clone, Tree)]
//! struct Model<T = Array> {
//!     words: T,
//!     scale: T,
//!     out: T,
//! }
//! fn loss(m: &Model, ids: &Array, labels: &Array) -> Array {
//!     let h = nn::rms_norm(&nn::embed(&m.words, ids), &m.scale).silu();
//!     nn::softmax_cross_entropy_with_integer_labels(&h.matmul(&m.out), labels).mean(..)
//! }
//! let mesh = Mesh::new([("data", 2)])?;
//! let [a, b] = Key::new(0).split();
//! let model = Model {
//!     words: nn::init::normal(&a, [10, 4], 1.0),
//!     scale: Array::ones([4]),
//!     out: nn::init::lecun_normal(&b, [4, 10]),
//! };
//! let ids = Array::arange(0..6).reshape([2, 3]);
//! let whole = value_and_grad(&model, |m| loss(&m, &ids, &ids));
//! let split = ids.put(&mesh, p!["data"]);
//! let sharded = value_and_grad(&model, |m| loss(&m, &split, &split));
//! assert!(whole.0.allclose(&sharded.0)? && whole.1.words.allclose(&sharded.1.words)?);
//! # Ok::<(), atmesh::Error>(())
//! ```

mod activation;
mod attention;
mod call;
mod dropout;
mod embedding;
pub mod init;
mod loss;
mod norm;
mod policy;
mod rotary;

pub use activation::{
    celu, elu, glu, hard_sigmoid, hard_silu, hard_tanh, leaky_relu, log_sigmoid, mish, relu6, selu,
    soft_sign, squareplus,
};
pub use attention::{AttentionOptions, dot_product_attention, dot_product_attention_with};
pub use dropout::dropout;
pub use embedding::embed;
pub use loss::{
    huber_loss, l2_loss, sigmoid_binary_cross_entropy, softmax_cross_entropy,
    softmax_cross_entropy_with_integer_labels,
};
pub use norm::{
    BatchNormOptions, BatchStats, NormOptions, batch_norm, batch_norm_with, group_norm, layer_norm,
    layer_norm_with, rms_norm, rms_norm_with,
};
pub use policy::Policy;
pub use rotary::{Rope, rope};
