//! Verification of gathers and scatters: no index value may access memory outside of an array.

use crate::core::DType;
use crate::ir::program::loop_nest::{Access, DynamicIndex, LoopNest, Reducer, StridedRange};

/// Verifies a gather.
/// Each inner loop (index `rank` or higher) must have a dynamic index.
pub(crate) fn gather(s: &LoopNest, indices: &[DynamicIndex]) -> Result<(), String> {
    let Some(of) = s.accesses.first() else { return Err("a gather has no access to read from".into()) };
    if of.dtype.storage() != s.dtype.storage() {
        return Err(format!("the source is of {}, and the result is of {}", of.dtype, s.dtype));
    }
    for (k, b) in indices.iter().enumerate() {
        dynamic_index(s, indices, k).map_err(|wrong| format!("index {k}: {wrong}"))?;
        if b.loop_id < s.rank || b.operand == 0 {
            return Err(format!("index {k} selects in loop {} by access {}", b.loop_id, b.operand));
        }
        if b.window.is_some_and(|w| w >= s.rank) {
            return Err(format!("the window of index {k} is no dimension of the result"));
        }
    }
    if let Some(l) = (s.rank..s.extents.len()).find(|l| !s.is_dynamic_loop(*l)) {
        return Err(format!("no index selects a step of loop {l}"));
    }
    check_all_used(s, indices, 1)
}

/// Returns an error if an access from the `first` one on is not used as a dynamic index.
fn check_all_used(s: &LoopNest, indices: &[DynamicIndex], first: usize) -> Result<(), String> {
    match (first..s.accesses.len()).find(|k| indices.iter().all(|b| b.operand != *k)) {
        Some(k) => Err(format!("access {k} is not the index of a loop")),
        None => Ok(()),
    }
}

/// Verifies a scatter: the original, the updates, and the dynamic indices of result loops.
pub(crate) fn scatter(
    s: &LoopNest,
    indices: &[DynamicIndex],
    reducer: Option<Reducer>,
) -> Result<(), String> {
    let [was, update, ..] = &s.accesses[..] else {
        return Err(format!(
            "a scatter has two accesses before its indices, and there are {}",
            s.accesses.len()
        ));
    };
    if let Some(r) = [was, update].iter().find(|r| r.dtype.storage() != s.dtype.storage()) {
        return Err(format!("a {} is scattered into elements of type {}", r.dtype, s.dtype));
    }
    if reducer.is_some_and(|c| !c.supports(s.dtype)) {
        return Err(format!("elements of type {} are not combined by {reducer:?}", s.dtype));
    }
    if reducer.is_some() && s.dtype == DType::Key {
        return Err("keys are not combined".into());
    }
    if let Some(l) = (s.rank..s.extents.len()).find(|l| depends_on_loop(s, was, *l)) {
        return Err(format!("the original differs along loop {l}, which is no dimension of the result"));
    }
    for (k, b) in indices.iter().enumerate() {
        dynamic_index(s, indices, k).map_err(|wrong| format!("index {k}: {wrong}"))?;
        if b.loop_id >= s.rank || b.operand < 2 {
            return Err(format!("index {k} selects in loop {} by access {}", b.loop_id, b.operand));
        }
        if b.window.is_some_and(|w| w < s.rank) {
            return Err(format!("the window of index {k} is a dimension of the result"));
        }
        if depends_on_loop(s, update, b.loop_id) {
            return Err(format!("the update differs along loop {}, in which index {k} selects", b.loop_id));
        }
    }
    check_all_used(s, indices, 2)
}

/// Verifies one dynamic index.
/// It must be an integer that does not depend on a dynamically indexed loop, and all positions that
/// it can select must exist.
fn dynamic_index(s: &LoopNest, indices: &[DynamicIndex], k: usize) -> Result<(), String> {
    let b = &indices[k];
    let Some(n) = s.extents.get(b.loop_id).map(|n| *n as i64) else {
        return Err(format!("there is no loop {}", b.loop_id));
    };
    if indices[..k].iter().any(|a| a.loop_id == b.loop_id) {
        return Err(format!("loop {} has two indices", b.loop_id));
    }
    let Some(by) = s.accesses.get(b.operand) else { return Err(format!("there is no access {}", b.operand)) };
    if !by.dtype.is_integer() {
        return Err(format!("an index is an integer, not of type {}", by.dtype));
    }
    if let Some(a) = indices.iter().find(|a| depends_on_loop(s, by, a.loop_id)) {
        return Err(format!("it differs along loop {}, which has an index", a.loop_id));
    }
    let room = match b.window {
        None => 1,
        Some(w) => {
            let Some(room) = s.extents.get(w) else { return Err(format!("there is no loop {w}")) };
            if s.is_dynamic_loop(w) || indices[..k].iter().any(|a| a.window == Some(w)) {
                return Err(format!("its window is loop {w}, which is another's"));
            }
            *room as i64
        }
    };
    let last = b.max_start.checked_add(room).is_none_or(|end| end > n);
    if b.max_start < -1 || b.max_start >= 0 && last {
        return Err(format!("it is up to {} with {room} steps from there on, in a loop of {n}", b.max_start));
    }
    Ok(())
}

/// Returns true if an access depends on a loop.
/// A loop that does not exist is reported elsewhere.
fn depends_on_loop(s: &LoopNest, r: &Access, l: usize) -> bool {
    let Some(all) = s.extents.get(l).map(|n| StridedRange::full(*n)) else { return false };
    r.pieces.iter().any(|p| p.ranges[l] != all || p.map.iter().any(|m| m.terms.iter().any(|t| t.0 == l)))
}
