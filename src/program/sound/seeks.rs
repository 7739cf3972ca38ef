//! Loops bound to numbers, against the sentence that binds them: whatever the numbers are, nothing beyond an array is read or written.

use crate::program::sentence::{Bound, Combine, Read, Sentence, Span};
use crate::types::DType;

/// A take: each loop beyond the rank is bound.
pub(crate) fn take(s: &Sentence, at: &[Bound]) -> Result<(), String> {
    let Some(of) = s.reads.first() else { return Err("a take has no read to take from".into()) };
    if of.dtype.storage() != s.dtype.storage() {
        return Err(format!("what is taken is {}, and the result is of {}", of.dtype, s.dtype));
    }
    for (k, b) in at.iter().enumerate() {
        bound(s, at, k).map_err(|wrong| format!("number {k}: {wrong}"))?;
        if b.index < s.rank || b.by == 0 {
            return Err(format!("number {k} binds loop {} by read {}", b.index, b.by));
        }
        if b.window.is_some_and(|w| w >= s.rank) {
            return Err(format!("the window of number {k} is no dimension of the result"));
        }
    }
    if let Some(l) = (s.rank..s.extents.len()).find(|l| !s.binds(*l)) {
        return Err(format!("nothing says which step of loop {l} is taken"));
    }
    all_used(s, at, 1)
}

/// Whether all reads beyond the first so many say where.
fn all_used(s: &Sentence, at: &[Bound], first: usize) -> Result<(), String> {
    match (first..s.reads.len()).find(|k| at.iter().all(|b| b.by != *k)) {
        Some(k) => Err(format!("read {k} binds no loop")),
        None => Ok(()),
    }
}

/// A put: what was there, what is put, and loops of the result that numbers bind.
pub(crate) fn put(s: &Sentence, at: &[Bound], combine: Option<Combine>) -> Result<(), String> {
    let [was, put, ..] = &s.reads[..] else {
        return Err(format!("a put has two reads before its numbers, and there are {}", s.reads.len()));
    };
    if let Some(r) = [was, put].iter().find(|r| r.dtype.storage() != s.dtype.storage()) {
        return Err(format!("a {} is put into elements of type {}", r.dtype, s.dtype));
    }
    if combine.is_some_and(|c| !c.takes(s.dtype)) {
        return Err(format!("elements of type {} are not combined by {combine:?}", s.dtype));
    }
    if combine.is_some() && s.dtype == DType::Key {
        return Err("keys are not combined".into());
    }
    if let Some(l) = (s.rank..s.extents.len()).find(|l| depends(s, was, *l)) {
        return Err(format!("what was there differs along loop {l}, which is no dimension of the result"));
    }
    for (k, b) in at.iter().enumerate() {
        bound(s, at, k).map_err(|wrong| format!("number {k}: {wrong}"))?;
        if b.index >= s.rank || b.by < 2 {
            return Err(format!("number {k} binds loop {} by read {}", b.index, b.by));
        }
        if b.window.is_some_and(|w| w < s.rank) {
            return Err(format!("the window of number {k} is a dimension of the result"));
        }
        if depends(s, put, b.index) {
            return Err(format!("what is put differs along loop {}, which number {k} binds", b.index));
        }
    }
    all_used(s, at, 2)
}

/// One bound loop: its number is an integer that no bound loop changes, and all steps that it may find are there.
fn bound(s: &Sentence, at: &[Bound], k: usize) -> Result<(), String> {
    let b = &at[k];
    let Some(n) = s.extents.get(b.index).map(|n| *n as i64) else {
        return Err(format!("there is no loop {}", b.index));
    };
    if at[..k].iter().any(|a| a.index == b.index) {
        return Err(format!("loop {} is bound twice", b.index));
    }
    let Some(by) = s.reads.get(b.by) else { return Err(format!("there is no read {}", b.by)) };
    if !by.dtype.is_integer() {
        return Err(format!("a number of type {} says no step", by.dtype));
    }
    if let Some(a) = at.iter().find(|a| depends(s, by, a.index)) {
        return Err(format!("it differs along loop {}, which is bound", a.index));
    }
    let room = match b.window {
        None => 1,
        Some(w) => {
            let Some(room) = s.extents.get(w) else { return Err(format!("there is no loop {w}")) };
            if s.binds(w) || at[..k].iter().any(|a| a.window == Some(w)) {
                return Err(format!("its window is loop {w}, which is another's"));
            }
            *room as i64
        }
    };
    let last = b.most.checked_add(room).is_none_or(|end| end > n);
    if b.most < -1 || b.most >= 0 && last {
        return Err(format!("it is up to {} with {room} steps from there on, in a loop of {n}", b.most));
    }
    Ok(())
}

/// Whether what a read reads differs along a loop. (One that is not there is told when its turn comes.)
fn depends(s: &Sentence, r: &Read, l: usize) -> bool {
    let Some(all) = s.extents.get(l).map(|n| Span::all(*n)) else { return false };
    r.parts.iter().any(|p| p.span[l] != all || p.map.iter().any(|m| m.terms.iter().any(|t| t.0 == l)))
}
