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
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::ParamMask;
    /// let mask = ParamMask::new(|path, ty| ty.rank() >= 2 && !path.starts_with("embed"));
    /// assert!(mask.contains("head.w", &F32.array_type([4, 8])));
    /// assert!(!mask.contains("head.b", &F32.array_type([8])));
    /// assert!(!mask.contains("embed.w", &F32.array_type([4, 8])));
    /// ```
    pub fn new(f: impl Fn(&str, &ArrayType) -> bool + Send + Sync + 'static) -> ParamMask {
        ParamMask(Arc::new(f))
    }
    /// Creates a mask of all parameters.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::{ParamMask, WeightDecay};
    /// assert!(ParamMask::all().contains("head.b", &F32.array_type([8])));
    /// // it is the mask of a weight decay that has no other
    /// assert!(WeightDecay::new(0.1).mask.contains("head.b", &F32.array_type([8])));
    /// ```
    pub fn all() -> ParamMask {
        ParamMask::new(|_, _| true)
    }
    /// Creates a mask of the parameters whose path matches one of the patterns.
    ///
    /// In a pattern, `*` stands for any text: `*.lora_*`, `layers.0.*`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::ParamMask;
    /// let mask = ParamMask::paths(["layers.0.*", "*.lora_*"]);
    /// let contains = |path: &str| mask.contains(path, &F32.array_type([2]));
    /// assert!(contains("layers.0.w.base") && contains("layers.7.w.lora_a"));
    /// assert!(!contains("layers.7.w.base") && !contains("old.layers.0.w"));
    /// ```
    pub fn paths<'a>(patterns: impl IntoIterator<Item = &'a str>) -> ParamMask {
        let patterns: Vec<String> = patterns.into_iter().map(String::from).collect();
        ParamMask::new(move |path, _| patterns.iter().any(|p| matches(p, path)))
    }
    /// Returns true if the mask contains the parameter.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::optim::{self, ParamMask};
    /// let mask = ParamMask::paths(["*.w"]);
    /// // a mask decides by its method, where a function of path and type is expected
    /// let opt = optim::masked(optim::trace(0.9, false), move |path, ty| mask.contains(path, ty));
    /// let params = ["up.w", "up.b"].map(|path| (path, Array::ones([2])));
    /// let state = opt.init(&std::collections::BTreeMap::from(params))?;
    /// assert_eq!(tree::paths(&state), ["count", "slots.trace.up.w"]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
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
