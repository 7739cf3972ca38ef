//! Static types as text, as `type_of` prints arrays.

use crate::sets::{Sets, State};
use crate::shape::{DimInfo, Shape};

/// Formats a shape and its sets as `type_of` prints them after the element type: `[4@X,2]{V:Y}`.
pub fn text<S: Shape, V: Sets>() -> String {
    print(S::DIMS, V::STATES)
}

/// Formats the dims and axis states of a type. [`text`] calls this single function for all types.
pub fn print(dims: &[DimInfo], states: &[Option<(&str, State)>]) -> String {
    let dims: Vec<String> = dims.iter().map(ToString::to_string).collect();
    let sets: Vec<String> = [("V", State::Varying), ("U", State::Unreduced), ("R", State::Reduced)]
        .into_iter()
        .filter_map(|(name, state)| {
            let axes: Vec<&str> = states.iter().flatten().filter(|s| s.1 == state).map(|s| s.0).collect();
            match axes.as_slice() {
                [] => None,
                [one] => Some(format!("{name}:{one}")),
                many => Some(format!("{name}:({})", many.join(","))),
            }
        })
        .collect();
    let sets = if sets.is_empty() { String::new() } else { format!("{{{}}}", sets.join(", ")) };
    format!("[{}]{sets}", dims.join(","))
}
