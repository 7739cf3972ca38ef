//! The path of a leaf in its tree: `layers.0.w`.

use std::borrow::Cow;
use std::fmt;

/// The way from the root of a tree to a leaf: names of fields, numbers of entries, keys of maps. Prints as `layers.0.w`.
///
/// A path that nobody asked for keeps no parts, so that walking a tree for its leaves alone costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Path {
    parts: Vec<Cow<'static, str>>,
    kept: bool,
    /// Every way that was entered, where that is asked for.
    entered: Option<Vec<String>>,
}

impl Path {
    /// The root; parts are kept.
    pub fn named() -> Path {
        Path { kept: true, ..Path::default() }
    }
    /// The root; no parts are kept.
    pub fn unnamed() -> Path {
        Path::default()
    }
    /// The root; parts are kept, and so is a list of all ways that are entered.
    pub(crate) fn recorded() -> Path {
        Path { kept: true, entered: Some(Vec::new()), ..Path::default() }
    }
    /// All ways that were entered.
    pub(crate) fn entered(self) -> Vec<String> {
        self.entered.unwrap_or_default()
    }
    /// The parts, from the root.
    pub fn parts(&self) -> &[Cow<'static, str>] {
        &self.parts
    }
    /// Does something within a field.
    pub fn field<R>(&mut self, name: &'static str, f: impl FnOnce(&mut Path) -> R) -> R {
        self.within(|| Cow::Borrowed(name), f)
    }
    /// Does something within an entry.
    pub fn entry<R>(&mut self, number: usize, f: impl FnOnce(&mut Path) -> R) -> R {
        self.within(|| Cow::Owned(number.to_string()), f)
    }
    /// Does something within the value of a key.
    pub fn key<R>(&mut self, key: &str, f: impl FnOnce(&mut Path) -> R) -> R {
        self.within(|| Cow::Owned(key.to_string()), f)
    }
    fn within<R>(&mut self, part: impl FnOnce() -> Cow<'static, str>, f: impl FnOnce(&mut Path) -> R) -> R {
        if !self.kept {
            return f(self);
        }
        self.parts.push(part());
        if self.entered.is_some() {
            let here = self.to_string();
            self.entered.get_or_insert_default().push(here);
        }
        let out = f(self);
        self.parts.pop();
        out
    }
    /// `w`, or for the root `what`.
    pub(crate) fn or(&self, what: &str) -> String {
        if self.parts.is_empty() { what.to_string() } else { format!("`{self}`") }
    }
}
impl fmt::Display for Path {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, part) in self.parts.iter().enumerate() {
            let dot = if i > 0 { "." } else { "" };
            write!(f, "{dot}{part}")?;
        }
        Ok(())
    }
}
