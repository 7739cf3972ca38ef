//! Named scopes: the user's names for parts of a program.

use std::fmt;
use std::sync::Arc;

/// The named scopes around an operation, outermost first, such as `layer1/attention`.
///
/// [`named_scope`](crate::named_scope) opens one. Reports, plans, timelines and the metadata of XLA
/// show it. Derivatives mark the scopes of the backward pass: `transpose(layer1)`.
///
/// ```
/// use atmesh::prelude::*;
/// let f = jit(|x: &Array| named_scope("layer", || x.sin()));
/// let plan = f.lower(F32.array_type([8]))?.plan(&atmesh::plan::Machine::h100())?;
/// assert_eq!(plan.entries()[0].scope.name(), Some("layer"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ScopePath(Option<Arc<str>>);

impl ScopePath {
    /// Returns the scope with this name; an empty name is no scope.
    ///
    /// Control characters become spaces, because tables show a scope in one line.
    pub fn new(name: &str) -> ScopePath {
        if name.is_empty() {
            return ScopePath(None);
        }
        ScopePath(Some(name.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>().into()))
    }
    /// Returns the names, separated by `/`; `None` outside of all scopes.
    ///
    /// ```
    /// use atmesh::ScopePath;
    /// assert_eq!(ScopePath::new("layer1").name(), Some("layer1"));
    /// assert_eq!(ScopePath::default().name(), None);
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.0.as_deref()
    }
    /// Returns this scope as it appears inside another one.
    pub(crate) fn within(&self, outer: &ScopePath) -> ScopePath {
        match (&outer.0, &self.0) {
            (Some(outer), Some(own)) => ScopePath(Some(format!("{outer}/{own}").into())),
            (_, None) => outer.clone(),
            (None, _) => self.clone(),
        }
    }
    /// Returns the scope of the equations that transpose those of this scope.
    pub(crate) fn transposed(&self) -> ScopePath {
        ScopePath(self.0.as_ref().map(|own| format!("transpose({own})").into()))
    }
}

impl fmt::Display for ScopePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name().unwrap_or_default())
    }
}
