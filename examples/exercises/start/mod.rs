//! Your answers: each function has one gap, `gap()`, or one mistake. Fill it, and run
//! `cargo run --example exercises -- NUMBER`.

// a gap leaves arguments unused
#![allow(unused_variables)]

mod arrays;
mod modes;
mod programs;
mod scale;

use crate::answers::Answers;
use crate::grader::gap;
use arrays::*;
use modes::*;
use programs::*;
use scale::*;
pub(crate) use scale::{Data, Model, Pod};

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
