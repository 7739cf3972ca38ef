//! Ops that go by indices: gather, scatter and their kin, segments.

use super::check::numbers;
use super::ops::{Val, out, prim, sizes};
use atmesh::array::{Index, Pick};
use atmesh::ops::indexing::{Gather, Places, Scatter, nothing};
use atmesh::program::sentence::{Beyond, Combine};
use atmesh::{Array, IndexOptions, Mode, Result, Spec};
use serde_json::Value;

fn mode(p: &Value) -> Option<Mode> {
    match p["mode"].as_str() {
        Some("clip") => Some(Mode::Clip),
        Some(_) => Some(Mode::Fill),
        None => None,
    }
}

fn options(p: &Value) -> IndexOptions {
    let mut options = IndexOptions::default();
    (options.mode, options.out) = (mode(p), out(p));
    options
}

fn pairs(p: &Value, first: &str, second: &str) -> Vec<(usize, usize)> {
    let list = |name: &str| p.get(name).map(sizes).unwrap_or_default();
    list(first).into_iter().zip(list(second)).collect()
}

/// What the op makes; nothing, if it is none of these.
pub(crate) fn indexing(op: &str, ins: &[Val], p: &Value) -> Result<Option<Array>> {
    let Some(first) = ins.first() else { return Ok(None) };
    let x = first.array();
    let axis = || p.get("axis").map_or(0, |a| numbers::int(a) as i32);
    let count = |name: &str| numbers::int(&p[name]) as usize;
    let asked: Option<Spec> = out(p);
    Ok(Some(match op {
        "take" => match (mode(p), asked) {
            (None, None) => x.take(&ins[1].array(), axis()),
            (None, Some(spec)) => x.take_to(&ins[1].array(), axis(), spec),
            _ => x.take_with(&ins[1].array(), axis(), options(p)),
        },
        "take_along_axis" => match asked {
            None => x.take_along_axis(&ins[1].array(), axis()),
            Some(spec) => x.take_along_axis_to(&ins[1].array(), axis(), spec),
        },
        "gather" => {
            let places = Places {
                of: sizes(&p["start_index_map"]),
                collapsed: sizes(&p["collapsed_slice_dims"]),
                batching: pairs(p, "operand_batching_dims", "start_indices_batching_dims"),
                windows: sizes(&p["offset_dims"]),
                beyond: if p["mode"] == "fill" { Beyond::Nothing } else { Beyond::Clip },
            };
            let fill = nothing(x.dtype()?);
            prim(Gather { at: places, sizes: sizes(&p["slice_sizes"]).into(), fill, out: asked }, ins)
        }
        "scatter_add" => {
            let places = Places {
                of: sizes(&p["scatter_dims_to_operand_dims"]),
                collapsed: sizes(&p["inserted_window_dims"]),
                batching: pairs(p, "operand_batching_dims", "scatter_indices_batching_dims"),
                windows: sizes(&p["update_window_dims"]),
                beyond: if p["mode"] == "clip" { Beyond::Clip } else { Beyond::Nothing },
            };
            let ins = [ins[0].clone(), ins[2].clone(), ins[1].clone()];
            prim(Scatter { at: places, combine: Some(Combine::Add), out: asked }, &ins)
        }
        "at_set" | "at_add" | "at_mul" | "at_max" | "at_min" => {
            let all = Pick::range(None, None, None);
            let mut picks = vec![all; axis() as usize];
            picks.push(Pick::from(&ins[1].array()));
            let at = x.at(Index::from(picks)).mode(mode(p).unwrap_or(Mode::Fill));
            let at = if let Some(spec) = asked { at.to(spec) } else { at };
            let u = ins[2].term();
            match op {
                "at_set" => at.set(u),
                "at_add" => at.add(u),
                "at_mul" => at.mul(u),
                "at_max" => at.max(u),
                _ => at.min(u),
            }
        }
        "segment_sum" => x.segment_sum_with(&ins[1].array(), count("num_segments"), options(p)),
        "segment_prod" => x.segment_prod_with(&ins[1].array(), count("num_segments"), options(p)),
        "segment_max" => x.segment_max_with(&ins[1].array(), count("num_segments"), options(p)),
        "segment_min" => x.segment_min_with(&ins[1].array(), count("num_segments"), options(p)),
        "bincount" => match ins.get(1) {
            None => x.bincount(count("length")),
            Some(weights) => x.bincount_of(&weights.array(), count("length")),
        },
        _ => return Ok(None),
    }))
}
