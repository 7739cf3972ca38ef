//! Operations along a dimension: cumulative reductions and sorts.

use super::check::numbers;
use super::ops::{Val, prim, sizes};
use atmesh::ops::along_axis::{Fft, FftKind};
use atmesh::{Array, sort_by_keys};
use serde_json::Value;

/// Returns the results, or `None` if the operation is not in this family.
pub(crate) fn lines(op: &str, ins: &[Val], p: &Value) -> Option<Vec<Array>> {
    let x = ins.first()?.array();
    let axis = |name: &str| numbers::int(&p[name]) as i32;
    let running = |forward: fn(&Array, i32) -> Array, back: fn(&Array, i32) -> Array| {
        let run = if p["reverse"].as_bool() == Some(true) { back } else { forward };
        Some(vec![run(&x, axis("axis"))])
    };
    match op {
        "cumsum" => running(Array::cumsum, Array::cumsum_reverse),
        "cumprod" => running(Array::cumprod, Array::cumprod_reverse),
        "cummax" => running(Array::cummax, Array::cummax_reverse),
        "cummin" => running(Array::cummin, Array::cummin_reverse),
        "cumlogsumexp" => running(Array::cumlogsumexp, Array::cumlogsumexp_reverse),
        "recurrence" => Some(vec![ins.get(1)?.array().recurrence(&x, axis("axis"))]),
        "sort" => {
            let keys = p.get("num_keys").map_or(1, |n| numbers::int(n) as usize);
            let all: Vec<Array> = ins.iter().map(Val::array).collect();
            Some(match &all[..] {
                [x] if keys == 1 => vec![x.sort(axis("dimension"))],
                all => sort_by_keys(all, keys, axis("dimension")),
            })
        }
        "fft" | "ifft" | "rfft" | "irfft" => {
            let kind = match op {
                "fft" => FftKind::Forward,
                "ifft" => FftKind::Inverse,
                "rfft" => FftKind::Real,
                _ => FftKind::InverseReal,
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
