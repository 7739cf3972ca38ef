//! Axis names and their types.

use smallvec::SmallVec;
use std::collections::HashSet;
use std::fmt;
use std::sync::{LazyLock, Mutex};

/// An axis name, interned: `Copy`, compared by name.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axis(&'static str);

impl Axis {
    /// A name known at compile time; [`crate::axes!`] declares constants by it.
    pub const fn new(name: &'static str) -> Axis {
        Axis(name)
    }
    /// The name itself.
    pub fn name(self) -> &'static str {
        self.0
    }
    /// Whether names of a mesh's axes may have this character: those may not that surround them in types.
    pub(crate) fn names_with(c: char) -> bool {
        !c.is_whitespace() && !"@,:()[]{}".contains(c)
    }
}
impl From<&str> for Axis {
    fn from(name: &str) -> Axis {
        static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
        let mut names = NAMES.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = names.get(name) {
            return Axis(known);
        }
        // names live as long as the process: there are few of them
        let kept: &'static str = Box::leak(name.into());
        names.insert(kept);
        Axis(kept)
    }
}
impl fmt::Display for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.0)
    }
}
impl fmt::Debug for Axis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Who decides how values are split over an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisType {
    /// The types: shardings over it propagate by fixed rules while a program is traced.
    Explicit,
    /// Propagation and the partitioner.
    Auto,
    /// The user's per-device code.
    Manual,
}

/// One axis or several, major first: `"X"`, `X`, `("X", "Y")`, `["X", "Y"]`.
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Axes(SmallVec<[Axis; 2]>);

impl Axes {
    /// No axis.
    pub fn none() -> Axes {
        Axes::default()
    }
    /// How many axes there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// The axes, major first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Axis> + ExactSizeIterator + '_ {
        self.0.iter().copied()
    }
    /// Whether the axis is among them.
    pub fn contains(&self, axis: Axis) -> bool {
        self.0.contains(&axis)
    }
    /// The axes as a slice.
    pub fn as_slice(&self) -> &[Axis] {
        &self.0
    }
    /// One more axis, minor to the others.
    pub fn push(&mut self, axis: Axis) {
        self.0.push(axis);
    }
    /// The axes of `more` that are not among them, minor to the others.
    pub(crate) fn extend(&mut self, more: &Axes) {
        for axis in more.iter() {
            if !self.contains(axis) {
                self.push(axis);
            }
        }
    }
    /// Those that are not among `others`.
    pub(crate) fn without(&self, others: &Axes) -> Axes {
        self.iter().filter(|a| !others.contains(*a)).collect()
    }
    /// Whether all of them are among `others`.
    pub(crate) fn within(&self, others: &Axes) -> bool {
        self.iter().all(|a| others.contains(a))
    }
    /// As messages write them: `"X"`, `["X", "Y"]`.
    pub(crate) fn quoted(&self) -> String {
        if self.len() == 1 { self.quotes() } else { format!("[{}]", self.quotes()) }
    }
    /// Each in quotes, with commas between them.
    pub(super) fn quotes(&self) -> String {
        self.iter().map(|a| format!("{:?}", a.name())).collect::<Vec<_>>().join(", ")
    }
    /// Whether they are the same axes, in any order.
    pub(crate) fn same_set(&self, other: &Axes) -> bool {
        self.len() == other.len() && self.within(other)
    }
}
impl<'a> IntoIterator for &'a Axes {
    type Item = Axis;
    type IntoIter = std::iter::Copied<std::slice::Iter<'a, Axis>>;
    fn into_iter(self) -> Self::IntoIter {
        self.0.iter().copied()
    }
}
impl FromIterator<Axis> for Axes {
    fn from_iter<I: IntoIterator<Item = Axis>>(iter: I) -> Axes {
        Axes(iter.into_iter().collect())
    }
}
impl From<&str> for Axes {
    fn from(a: &str) -> Axes {
        Axes::from_iter([a.into()])
    }
}
impl From<Axis> for Axes {
    fn from(a: Axis) -> Axes {
        Axes::from_iter([a])
    }
}
impl<A: Into<Axis>, const N: usize> From<[A; N]> for Axes {
    fn from(a: [A; N]) -> Axes {
        a.into_iter().map(Into::into).collect()
    }
}
impl From<&[Axis]> for Axes {
    fn from(a: &[Axis]) -> Axes {
        a.iter().copied().collect()
    }
}
impl From<Vec<Axis>> for Axes {
    fn from(a: Vec<Axis>) -> Axes {
        a.into_iter().collect()
    }
}
impl From<&Axes> for Axes {
    fn from(a: &Axes) -> Axes {
        a.clone()
    }
}
impl<A: Into<Axis>, B: Into<Axis>> From<(A, B)> for Axes {
    fn from((a, b): (A, B)) -> Axes {
        Axes::from_iter([a.into(), b.into()])
    }
}
impl<A: Into<Axis>, B: Into<Axis>, C: Into<Axis>> From<(A, B, C)> for Axes {
    fn from((a, b, c): (A, B, C)) -> Axes {
        Axes::from_iter([a.into(), b.into(), c.into()])
    }
}
/// `X`, or `(X,Y)`: as types print them.
impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            return write!(f, "{one}");
        }
        let names: Vec<_> = self.0.iter().map(|a| a.name()).collect();
        write!(f, "({})", names.join(","))
    }
}
impl fmt::Debug for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Axis names as constants, so that a typo is a compile error: `axes!(X, Y);` then `p![X, _]`.
///
/// ```
/// use atmesh::prelude::*;
/// axes!(X, Y);
/// let mesh = Mesh::new([(X, 2), (Y, 4)])?;
/// assert_eq!(mesh.to_string(), "Mesh(X: 2, Y: 4)");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[macro_export]
macro_rules! axes {
    ($($vis:vis $name:ident),* $(,)?) => { $(
        #[allow(missing_docs)]
        $vis const $name: $crate::Axis = $crate::Axis::new(stringify!($name));
    )* };
}
