//! Operations that take indices: gather, scatter and related ones, and segment reductions.

use super::check::numbers;
use super::ops::{Val, out, prim, sizes};
use atmesh::array::{DimIndex, Index};
use atmesh::ops::indexing::{Gather, GatherDims, Scatter, fill_value};
use atmesh::program::loop_nest::{OutOfBounds, Reducer};
use atmesh::{Array, IndexMode, IndexOptions, Result, Spec};
use serde_json::Value;

fn mode(p: &Value) -> Option<IndexMode> {
    match p["mode"].as_str() {
        Some("clip") => Some(IndexMode::Clip),
        Some(_) => Some(IndexMode::Fill),
        None => None,
    }
}

fn options(p: &Value) -> IndexOptions {
    let mut options = IndexOptions::default();
    (options.mode, options.out_sharding) = (mode(p), out(p));
    options
}

fn pairs(p: &Value, first: &str, second: &str) -> Vec<(usize, usize)> {
    let list = |name: &str| p.get(name).map(sizes).unwrap_or_default();
    list(first).into_iter().zip(list(second)).collect()
}

/// Returns the results, or `None` if the operation is not in this family.
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
            let places = GatherDims {
                start_index_map: sizes(&p["start_index_map"]),
                collapsed_dims: sizes(&p["collapsed_slice_dims"]),
                batching_dims: pairs(p, "operand_batching_dims", "start_indices_batching_dims"),
                offset_dims: sizes(&p["offset_dims"]),
                mode: if p["mode"] == "fill" { OutOfBounds::Drop } else { OutOfBounds::Clip },
            };
            let fill = fill_value(x.dtype()?);
            prim(
                Gather {
                    dims: places,
                    slice_sizes: sizes(&p["slice_sizes"]).into(),
                    fill,
                    out_sharding: asked,
                },
                ins,
            )
        }
        "scatter_add" => {
            let places = GatherDims {
                start_index_map: sizes(&p["scatter_dims_to_operand_dims"]),
                collapsed_dims: sizes(&p["inserted_window_dims"]),
                batching_dims: pairs(p, "operand_batching_dims", "scatter_indices_batching_dims"),
                offset_dims: sizes(&p["update_window_dims"]),
                mode: if p["mode"] == "clip" { OutOfBounds::Clip } else { OutOfBounds::Drop },
            };
            let ins = [ins[0].clone(), ins[2].clone(), ins[1].clone()];
            prim(Scatter { dims: places, reducer: Some(Reducer::Add), out_sharding: asked }, &ins)
        }
        "at_set" | "at_add" | "at_mul" | "at_max" | "at_min" => {
            let all = DimIndex::range(None, None, None);
            let mut picks = vec![all; axis() as usize];
            picks.push(DimIndex::from(&ins[1].array()));
            let at = x.at(Index::from(picks)).mode(mode(p).unwrap_or(IndexMode::Fill));
            let at = if let Some(spec) = asked { at.out_sharding(spec) } else { at };
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
            Some(weights) => x.bincount_weighted(&weights.array(), count("length")),
        },
        _ => return Ok(None),
    }))
}
