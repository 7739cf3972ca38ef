//! The path of a leaf in its tree: `layers.0.w`.

use super::named_sizes::{NamedDim, NamedSizes};
use std::borrow::Cow;
use std::fmt;

/// The path from the root of a tree to a leaf: field names, element indices and map keys.
///
/// It prints as `layers.0.w`.
///
/// An unnamed path does not record its components, so that visiting only the leaves of a tree costs
/// nothing extra.
#[derive(Clone, Debug, Default)]
pub struct Path {
    /// What the path records. `None` for an unnamed path, which each call of a function makes.
    record: Option<Box<Record>>,
}

/// The components of a path, and what visits collect on the way.
#[derive(Clone, Debug, Default)]
struct Record {
    parts: Vec<Cow<'static, str>>,
    /// All paths that were entered. `None` if they are not recorded.
    entered: Option<Vec<String>>,
    /// The named sizes of typed leaves, and the name of the tree. `None` if they are not recorded.
    sizes: Option<(NamedSizes, &'static str)>,
}

impl Path {
    /// Creates the path of the root; components are recorded.
    pub fn named() -> Path {
        Path::recording(Record::default())
    }
    fn recording(record: Record) -> Path {
        Path { record: Some(Box::new(record)) }
    }
    /// Creates the path of the root; components are not recorded.
    pub fn unnamed() -> Path {
        Path::default()
    }
    /// Creates the path of the root; components are recorded, and also all paths that are entered.
    pub(crate) fn recorded() -> Path {
        Path::recording(Record { entered: Some(Vec::new()), ..Record::default() })
    }
    /// Returns all paths that were entered.
    pub(crate) fn entered(self) -> Vec<String> {
        self.record.and_then(|r| r.entered).unwrap_or_default()
    }
    /// Creates the path of the root; components are recorded, and also named sizes of typed leaves.
    pub(super) fn recording_sizes(known: NamedSizes, what: &'static str) -> Path {
        Path::recording(Record { sizes: Some((known, what)), ..Record::default() })
    }
    /// Returns the named sizes.
    pub(super) fn into_sizes(self) -> NamedSizes {
        self.record.and_then(|r| r.sizes).map(|s| s.0).unwrap_or_default()
    }
    /// Records the named dims of the leaf at this path, if sizes are recorded.
    #[cfg_attr(not(feature = "typed"), allow(dead_code))]
    pub(crate) fn record_dims<D: IntoIterator<Item = NamedDim>>(&mut self, dims: impl FnOnce() -> D) {
        let Some(record) = &mut self.record else { return };
        let Some((mut sizes, what)) = record.sizes.take() else { return };
        for dim in dims() {
            let leaf = if record.parts.is_empty() { what.to_string() } else { format!("{what} `{record}`") };
            sizes.record(leaf, dim);
        }
        record.sizes = Some((sizes, what));
    }
    /// Returns the components, from the root.
    pub fn parts(&self) -> &[Cow<'static, str>] {
        self.record.as_ref().map_or(&[], |r| &r.parts)
    }
    /// Calls `f` with the path extended by a field name.
    pub fn field<R>(&mut self, name: &'static str, f: impl FnOnce(&mut Path) -> R) -> R {
        self.enter(|| Cow::Borrowed(name), f)
    }
    /// Calls `f` with the path extended by an element index.
    pub fn entry<R>(&mut self, number: usize, f: impl FnOnce(&mut Path) -> R) -> R {
        self.enter(|| Cow::Owned(number.to_string()), f)
    }
    /// Calls `f` with the path extended by a map key.
    pub fn key<R>(&mut self, key: &str, f: impl FnOnce(&mut Path) -> R) -> R {
        self.enter(|| Cow::Owned(key.to_string()), f)
    }
    fn enter<R>(&mut self, part: impl FnOnce() -> Cow<'static, str>, f: impl FnOnce(&mut Path) -> R) -> R {
        let Some(record) = &mut self.record else { return f(self) };
        record.parts.push(part());
        if record.entered.is_some() {
            let here = record.to_string();
            record.entered.get_or_insert_default().push(here);
        }
        let out = f(self);
        if let Some(record) = &mut self.record {
            record.parts.pop();
        }
        out
    }
    /// Returns the path in backquotes, or `what` for the root.
    pub(crate) fn name_or(&self, what: &str) -> String {
        if self.parts().is_empty() { what.to_string() } else { format!("`{self}`") }
    }
}
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.record.iter().try_for_each(|record| fmt::Display::fmt(record, f))
    }
}
impl fmt::Display for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            let dot = if i > 0 { "." } else { "" };
            write!(f, "{dot}{part}")?;
        }
        Ok(())
    }
}
