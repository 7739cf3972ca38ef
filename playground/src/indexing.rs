//! Indexes `ix![..]`.

use crate::error::ErrorResponse;
use crate::value::Value;
use atmesh::array::{DimIndex, Index};
use atmesh::{Ellipsis, NewAxis};
use std::rc::Rc;

/// Returns an entry: a range with a step, a position, an array, a window or a new dimension.
pub(crate) fn entry(value: &Value, step: Option<&Value>) -> Result<DimIndex, ErrorResponse> {
    let whole = |v: &Value| match v.inner() {
        Value::Int(n, _) => i64::try_from(*n).map_err(|_| syntax_error!("the index {n} is too large")),
        other => Err(syntax_error!("an index is a whole number, not {}", other.what())),
    };
    Ok(match value.inner() {
        Value::Range(range) => {
            let (start, end, through) = &**range;
            if let (Value::Array(start), Some(size)) = (start.inner(), step) {
                return Ok(DimIndex::window(start, whole(size)?.try_into().unwrap_or(0)));
            }
            let bound = |v: &Value| if matches!(v, Value::Unit) { Ok(None) } else { whole(v).map(Some) };
            let step = step.map(whole).transpose()?;
            match (through, bound(end)?) {
                (true, Some(last)) => DimIndex::range_inclusive(bound(start)?, last, step),
                (_, end) => DimIndex::range(bound(start)?, end, step),
            }
        }
        Value::Array(x) => DimIndex::from(x),
        Value::Path(name) if name.ends_with("NewAxis") => DimIndex::from(NewAxis),
        Value::Path(name) if name.ends_with("Ellipsis") => DimIndex::from(Ellipsis),
        other => DimIndex::from(whole(other)?),
    })
}

/// Returns the index of these entries.
pub(crate) fn index(list: Vec<DimIndex>) -> Result<Value, ErrorResponse> {
    macro_rules! of_length { ($($n:literal)*) => {
        match list.len() {
            $($n => match <[DimIndex; $n]>::try_from(list) {
                Ok(list) => Index::new(list),
                Err(_) => return Err(syntax_error!("an index has another number of entries")),
            },)*
            n => return Err(syntax_error!("an index has at most 6 entries here, not {n}")),
        }
    } }
    Ok(Value::Index(Rc::new(of_length! { 0 1 2 3 4 5 6 })))
}
