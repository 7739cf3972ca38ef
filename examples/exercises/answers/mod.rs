//! One answer of each exercise.

mod arrays;
mod modes;
mod programs;
mod scale;

use crate::start::{Data, Model};
use arrays::*;
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
use modes::*;
use programs::*;
use scale::*;

pub(crate) type Layout = fn() -> Result<Spec>;
pub(crate) type Number = fn() -> Result<u64>;
pub(crate) type One = fn(&Array) -> Result<Array>;
pub(crate) type Two = fn(&Array, &Array) -> Result<Array>;
pub(crate) type Three = fn(&Array, &Array, &Array) -> Result<Array>;
pub(crate) type OnMesh = fn(&Mesh, &Array) -> Result<Array>;
pub(crate) type FromKey = fn(&Key, &Array) -> Result<Array>;

pub(crate) type TypedInput = T![f32; 16@Data, 32@Model];
pub(crate) type TypedWeights = T![f32; 32@Model, 8];
pub(crate) type TypedPart = T![f32; 16@Data, 8; U: Model];
pub(crate) type TypedOutput = T![f32; 16@Data, 8];

/// The answers of one folder.
#[derive(Clone)]
pub(crate) struct Answers {
    pub(crate) fewest_bytes: Layout,
    pub(crate) first_row: Number,
    pub(crate) normalized: One,
    pub(crate) padded_mean: OnMesh,
    pub(crate) column_sums: One,
    pub(crate) turned: One,
    pub(crate) two_layers: Three,
    pub(crate) gram: One,
    pub(crate) gathered_bytes: Number,
    pub(crate) summed_product: Two,
    pub(crate) biased: Two,
    pub(crate) heads: One,
    pub(crate) late_sum: Two,
    pub(crate) late_relu: Two,
    pub(crate) one_sum: Three,
    pub(crate) smoothed: One,
    pub(crate) pinned: Two,
    pub(crate) laplacian: One,
    pub(crate) own_mean: OnMesh,
    pub(crate) from_left: OnMesh,
    pub(crate) own_softmax: OnMesh,
    pub(crate) looked_up: Two,
    pub(crate) counts: One,
    pub(crate) highest: One,
    pub(crate) step: Two,
    pub(crate) curvature: Two,
    pub(crate) held: Two,
    pub(crate) power: Two,
    pub(crate) averages: One,
    pub(crate) halved: One,
    pub(crate) two_keys: FromKey,
    pub(crate) masked: OnMesh,
    pub(crate) own_slopes: Two,
    pub(crate) distances: Two,
    pub(crate) adam_steps: Two,
    pub(crate) accumulated: Two,
    pub(crate) clipped: Two,
    pub(crate) summed_bytes: Number,
    pub(crate) best_axis: Number,
    pub(crate) typed_layer: fn(&TypedInput, &TypedWeights) -> Result<TypedOutput>,
    pub(crate) typed_late: fn(&TypedPart, &TypedPart) -> Result<TypedOutput>,
    pub(crate) finite: One,
    pub(crate) masked_mean: OnMesh,
    pub(crate) less_sent: One,
    pub(crate) swapped: OnMesh,
}

pub(crate) const ANSWERS: Answers = Answers {
    fewest_bytes,
    first_row,
    normalized,
    padded_mean,
    column_sums,
    turned,
    two_layers,
    gram,
    gathered_bytes,
    summed_product,
    biased,
    heads,
    late_sum,
    late_relu,
    one_sum,
    smoothed,
    pinned,
    laplacian,
    own_mean,
    from_left,
    own_softmax,
    looked_up,
    counts,
    highest,
    step,
    curvature,
    held,
    power,
    averages,
    halved,
    two_keys,
    masked,
    own_slopes,
    distances,
    adam_steps,
    accumulated,
    clipped,
    summed_bytes,
    best_axis,
    typed_layer,
    typed_late,
    finite,
    masked_mean,
    less_sent,
    swapped,
};
