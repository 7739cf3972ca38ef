//! Masks: which parameters a transform changes.

use crate::core::ArrayType;
use std::fmt;
use std::sync::Arc;

/// A set of parameters, by path and type.
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::optim::ParamMask;
/// let weights = ParamMask::paths(["*.w", "head"]);
/// assert!(weights.contains("layers.0.w", &F32.array_type([2])));
/// assert!(!weights.contains("layers.0.b", &F32.array_type([2])));
/// ```
#[derive(Clone)]
pub struct ParamMask(Arc<Selects>);

/// Says whether a parameter of this path and type is selected.
type Selects = dyn Fn(&str, &ArrayType) -> bool + Send + Sync;

impl fmt::Debug for ParamMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ParamMask")
    }
}

impl ParamMask {
    /// Creates a mask from a function of the path and the type of a parameter.
    pub fn new(f: impl Fn(&str, &ArrayType) -> bool + Send + Sync + 'static) -> ParamMask {
        ParamMask(Arc::new(f))
    }
    /// Creates a mask of all parameters.
    pub fn all() -> ParamMask {
        ParamMask::new(|_, _| true)
    }
    /// Creates a mask of the parameters whose path matches one of the patterns.
    ///
    /// In a pattern, `*` stands for any text: `*.lora_*`, `layers.0.*`.
    pub fn paths<'a>(patterns: impl IntoIterator<Item = &'a str>) -> ParamMask {
        let patterns: Vec<String> = patterns.into_iter().map(String::from).collect();
        ParamMask::new(move |path, _| patterns.iter().any(|p| matches(p, path)))
    }
    /// Returns true if the mask contains the parameter.
    pub fn contains(&self, path: &str, ty: &ArrayType) -> bool {
        (self.0)(path, ty)
    }
}

/// Returns true if the text matches a pattern in which `*` stands for any text.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut left) = text.strip_prefix(first) else { return false };
    let parts: Vec<&str> = rest.split('*').collect();
    let Some((last, middle)) = parts.split_last() else { return true };
    for part in middle {
        let Some(at) = left.find(part) else { return false };
        left = &left[at + part.len()..];
    }
    left.ends_with(last)
}
