//! Names and types of mesh axes.

use smallvec::SmallVec;
use std::collections::HashSet;
use std::fmt;
use std::sync::{LazyLock, Mutex};

/// The name of a mesh axis.
/// Names are interned, so that an axis is `Copy`.
///
/// ```
/// use atmesh::prelude::*;
/// const X: Axis = Axis::new("X");
/// let mesh = Mesh::new([(X, 2)])?;
/// assert_eq!((mesh.axis_size(X)?, X.name()), (2, "X"));
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Axis(&'static str);

impl Axis {
    /// Returns the axis with this name, in const contexts.
    /// The macro [`crate::axes!`] declares constants with it.
    pub const fn new(name: &'static str) -> Axis {
        Axis(name)
    }
    /// Returns the name.
    pub fn name(self) -> &'static str {
        self.0
    }
    /// Returns true if `c` may occur in the name of an axis.
    ///
    /// The characters that delimit axis names in printed types and specs may not, and those that
    /// Rust's string literals escape.
    pub(crate) fn is_valid_char(c: char) -> bool {
        !c.is_whitespace() && !c.is_control() && !"@,:()[]{}\"\\".contains(c)
    }
}
impl From<&str> for Axis {
    fn from(name: &str) -> Axis {
        static NAMES: LazyLock<Mutex<HashSet<&'static str>>> = LazyLock::new(Mutex::default);
        let mut names = NAMES.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(known) = names.get(name) {
            return Axis(known);
        }
        // names are leaked: a process has few distinct ones
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
debug_as_display! { [] Axis }

/// The rule that decides how values are sharded over an axis.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::with_types([("X", 2, AxisType::Explicit), ("Y", 4, AxisType::Auto)])?;
/// assert_eq!(mesh.axis_type("Y".into()), Some(AxisType::Auto));
/// // the type of an array shows its sharding over explicit axes
/// assert_eq!(type_of(Array::ones([2, 4]).put(&mesh, p!["X", "Y"])), "float32[2@X,4]");
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AxisType {
    /// Types decide: shardings over the axis are part of array types and propagate during tracing.
    Explicit,
    /// The partitioner decides: it propagates shardings over the axis after tracing.
    Auto,
    /// The user decides: per-device code communicates explicitly over the axis.
    Manual,
}

/// A list of axes, major first: `"X"`, `X`, `("X", "Y")`, `["X", "Y"]`, or `()` for none.
///
/// ```
/// use atmesh::prelude::*;
/// let axes = Axes::from(("X", "Y"));
/// assert_eq!((axes.to_string().as_str(), axes.len()), ("(X,Y)", 2));
/// ```
#[derive(Clone, Default, PartialEq, Eq, Hash)]
pub struct Axes(SmallVec<[Axis; 2]>);

impl Axes {
    /// Returns the empty list.
    pub fn none() -> Axes {
        Axes::default()
    }
    /// Returns the number of axes.
    pub fn len(&self) -> usize {
        self.0.len()
    }
    /// Returns true if there are no axes.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
    /// Returns an iterator over the axes, major first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Axis> + ExactSizeIterator + '_ {
        self.0.iter().copied()
    }
    /// Returns true if the list contains `axis`.
    pub fn contains(&self, axis: Axis) -> bool {
        self.0.contains(&axis)
    }
    /// Returns the axes as a slice.
    pub fn as_slice(&self) -> &[Axis] {
        &self.0
    }
    /// Appends an axis, minor to the others.
    pub fn push(&mut self, axis: Axis) {
        self.0.push(axis);
    }
    /// Appends the axes of `more` that are not in the list yet, minor to the others.
    pub(crate) fn extend_unique(&mut self, more: &Axes) {
        for axis in more.iter() {
            if !self.contains(axis) {
                self.push(axis);
            }
        }
    }
    /// Returns the axes that are not in `others`.
    pub(crate) fn without(&self, others: &Axes) -> Axes {
        self.iter().filter(|a| !others.contains(*a)).collect()
    }
    /// Returns true if all axes are in `others`.
    pub(crate) fn is_subset_of(&self, others: &Axes) -> bool {
        self.iter().all(|a| others.contains(a))
    }
    /// Returns the axes as messages write them: `"X"`, `["X", "Y"]`.
    pub(crate) fn quoted(&self) -> String {
        if self.len() == 1 { self.quoted_list() } else { format!("[{}]", self.quoted_list()) }
    }
    /// Returns the quoted names, separated by commas.
    ///
    /// Names have no characters to escape (`is_valid_char`), and `{:?}` would escape others, which
    /// parsers do not undo.
    pub(super) fn quoted_list(&self) -> String {
        self.iter().map(|a| format!("\"{a}\"")).collect::<Vec<_>>().join(", ")
    }
    /// Returns true if both lists have the same axes, in any order.
    pub(crate) fn same_set(&self, other: &Axes) -> bool {
        self.len() == other.len() && self.is_subset_of(other)
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
    // a plain loop: `SmallVec::extend` is much code, which is compiled for each type of iterator
    fn from_iter<I: IntoIterator<Item = Axis>>(iter: I) -> Axes {
        let mut axes = Axes::none();
        for axis in iter {
            axes.push(axis);
        }
        axes
    }
}
conversions! { Axes:
    [] () => |()| Axes::none();
    [] &str => |a| Axes::from_iter([a.into()]);
    [] Axis => |a| Axes::from_iter([a]);
    [A: Into<Axis>, const N: usize] [A; N] => |a| a.into_iter().map(Into::into).collect();
    [] &[Axis] => |a| a.iter().copied().collect();
    [] Vec<Axis> => |a| a.into_iter().collect();
    [] &Axes => |a| a.clone();
    [A: Into<Axis>, B: Into<Axis>] (A, B) => |(a, b)| Axes::from_iter([a.into(), b.into()]);
    [A: Into<Axis>, B: Into<Axis>, C: Into<Axis>] (A, B, C)
        => |(a, b, c)| Axes::from_iter([a.into(), b.into(), c.into()]);
}
/// Prints `X` or `(X,Y)`, as in types.
impl fmt::Display for Axes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let [one] = self.0.as_slice() {
            return write!(f, "{one}");
        }
        let names: Vec<_> = self.0.iter().map(|a| a.name()).collect();
        write!(f, "({})", names.join(","))
    }
}
debug_as_display! { [] Axes }

/// Declares constants for axis names: `axes!(X, Y);`, then `p![X, _]`.
/// A typo is then a compile error.
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
