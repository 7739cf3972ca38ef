//! Your answers. Replace `todo()` by them, then: `cargo test --test exercises -- --nocapture`.
//!
//! What each is to return, and with which collectives, is the table in `main.rs`, and the book's page "Exercises that grade themselves".
use super::{Answers, Result, todo};
use atmesh::prelude::*;

/// `x: float32[64@X,32]`. The sums of its columns, split over `X`.
fn column_sums(_x: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64@X,32]`. Each row divided by its length.
fn normalized(_x: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[16,32]`. `relu(x · up) · down`, replicated; `up` is 32 × 64, and `down` 64 × 32. How are they split?
fn two_layers(_x: &Array, _up: &Array, _down: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64@X,32]`. `xᵀ · x`, with its rows split.
fn gram(_x: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64@X,32]`. The same numbers, with columns split.
fn turned(_x: &Array) -> Result<Array> {
    todo()
}

/// `a: float32[8,64@X]`, `b: float32[64@X,8]`. `a · b + a · (2 b)`, replicated. Add first.
fn late_sum(_a: &Array, _b: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64]`, over an auto axis `X`. `(left + x + right) / 3` on a ring.
fn smoothed(_x: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64@X]`. Each number minus the mean of all, by `shard_map`.
fn own_mean(_x: &Array) -> Result<Array> {
    todo()
}

/// `w: float32[32,8]`, `x: float32[64@X,32]`. `w - 0.1 · gradient of the sum of the squares of x · w`.
fn step(_w: &Array, _x: &Array) -> Result<Array> {
    todo()
}

/// `m: float32[64@X,64]`, `v: float32[64@X]`. Ten times `v = m · v`, divided by its length.
fn power(_m: &Array, _v: &Array) -> Result<Array> {
    todo()
}

pub(super) const ANSWERS: Answers =
    Answers { column_sums, normalized, two_layers, gram, turned, late_sum, smoothed, own_mean, step, power };
