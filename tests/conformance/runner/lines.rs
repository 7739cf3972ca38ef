//! Ops along a dimension: running sums, sorts.

use super::check::numbers;
use super::ops::{Val, prim, sizes};
use atmesh::ops::lines::{Fft, Transform};
use atmesh::{Array, sort_together};
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
        "cumlogsumexp" => running(Array::cumlogsumexp, Array::cumlogsumexp_from_end),
        "recurrence" => Some(vec![ins.get(1)?.array().recurrence(&x, axis("axis"))]),
        "sort" => {
            let keys = p.get("num_keys").map_or(1, |n| numbers::int(n) as usize);
            let all: Vec<Array> = ins.iter().map(Val::array).collect();
            Some(match &all[..] {
                [x] if keys == 1 => vec![x.sort(axis("dimension"))],
                all => sort_together(all, keys, axis("dimension")),
            })
        }
        "fft" | "ifft" | "rfft" | "irfft" => {
            let kind = match op {
                "fft" => Transform::Forward,
                "ifft" => Transform::Inverse,
                "rfft" => Transform::Real,
                _ => Transform::InverseReal,
            };
            Some(vec![prim(Fft { kind, lengths: sizes(&p["lengths"]).into() }, ins)])
        }
        "argsort" => Some(vec![x.argsort(axis("axis"))]),
        "top_k" => {
            let (best, at) =
                x.top_k(numbers::int(&p["k"]) as usize, p.get("axis").map_or(-1, |a| numbers::int(a) as i32));
            Some(vec![best, at])
        }
        _ => None,
    }
}
