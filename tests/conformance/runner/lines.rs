//! Ops along a dimension: running sums, sorts.

use super::check::numbers;
use super::ops::Val;
use atmesh::Array;
use serde_json::Value;

/// The results of an op of this family.
pub(crate) fn lines(op: &str, ins: &[Val], p: &Value) -> Option<Vec<Array>> {
    let x = ins.first()?.array();
    let axis = |name: &str| numbers::int(&p[name]) as i32;
    let running = |forward: fn(&Array, i32) -> Array, back: fn(&Array, i32) -> Array| {
        let run = if p["reverse"].as_bool() == Some(true) { back } else { forward };
        Some(vec![run(&x, axis("axis"))])
    };
    match op {
        "cumsum" => running(Array::cumsum, Array::cumsum_from_end),
        "cumprod" => running(Array::cumprod, Array::cumprod_from_end),
        "cummax" => running(Array::cummax, Array::cummax_from_end),
        "cummin" => running(Array::cummin, Array::cummin_from_end),
        "recurrence" => Some(vec![ins.get(1)?.array().recurrence(&x, axis("axis"))]),
        _ => None,
    }
}
