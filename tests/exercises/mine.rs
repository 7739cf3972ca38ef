//! Your answers. Replace `todo()` by them, then run `cargo test --test exercises -- --nocapture`.
//!
//! The table in `main.rs`, and the book's page "Exercises that grade themselves", say what each
//! must return, and with which collectives.
use super::{Answers, Result, todo};
use atmesh::prelude::*;

/// `x: float32[64@X,32]`. Return the sums of its columns, sharded over `X`.
fn column_sums(_x: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64@X,32]`. Return each row divided by its Euclidean norm.
fn normalized(_x: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[16,32]`. Return `relu(x · up) · down`, replicated; `up` is 32 × 64, and `down` 64 ×
/// 32. Which shardings do they need?
fn two_layers(_x: &Array, _up: &Array, _down: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64@X,32]`. Return `xᵀ · x`, with its rows sharded.
fn gram(_x: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64@X,32]`. Return the same elements, with the columns sharded.
fn turned(_x: &Array) -> Result<Array> {
    todo()
}

/// `a: float32[8,64@X]`, `b: float32[64@X,8]`. Return `a · b + a · (2 b)`, replicated. Add before
/// you reduce.
fn late_sum(_a: &Array, _b: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64]`, over an auto axis `X`. Return `(left + x + right) / 3` on a ring.
fn smoothed(_x: &Array) -> Result<Array> {
    todo()
}

/// `x: float32[64@X]`. Return each element minus the mean of all, by `shard_map`.
fn own_mean(_x: &Array) -> Result<Array> {
    todo()
}

/// `w: float32[32,8]`, `x: float32[64@X,32]`. Return
/// `w - 0.1 · gradient of the sum of the squares of x · w`.
fn step(_w: &Array, _x: &Array) -> Result<Array> {
    todo()
}

/// `m: float32[64@X,64]`, `v: float32[64@X]`. Compute `v = m · v`, divided by its norm, ten times.
fn power(_m: &Array, _v: &Array) -> Result<Array> {
    todo()
}

pub(super) const ANSWERS: Answers =
    Answers { column_sums, normalized, two_layers, gram, turned, late_sum, smoothed, own_mean, step, power };
