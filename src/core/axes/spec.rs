//! [`Spec`]: the axes that split each dimension of an array, and its unreduced and reduced axes.

use super::{Axes, Axis};
use rustc_hash::FxBuildHasher;
use std::collections::HashMap;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::{LazyLock, RwLock};

/// A partition spec: `p!["X", _, ("Y", "Z")]`.
///
/// Names are axes of a mesh, or its [logical axes](crate::Mesh::with_logical_axes). Specs are
/// interned, so that a spec is `Copy` and is compared by address.
///
/// ```
/// use atmesh::prelude::*;
/// let spec: Spec = p!["X", _, ("Y", "Z")];
/// assert_eq!(spec.dims().len(), 3);
/// assert_eq!(spec.unreduced("W"), p!["X", _, ("Y", "Z"); U: "W"]);
/// ```
#[doc(alias("PartitionSpec"))]
#[derive(Clone, Copy)]
pub struct Spec(&'static InternedSpec);

/// The only copy of a spec in this process.
struct InternedSpec {
    data: SpecData,
    /// The hash of the data. It does not depend on the address, so that caches of programs, whose
    /// positions come from hashes, hold the same programs in all processes that run together.
    hash: u64,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct SpecData {
    /// The axes that split each dimension.
    dims: Vec<Axes>,
    /// The axes over which the array is unreduced.
    unreduced: Axes,
    /// The axes over which the array is reduced.
    reduced: Axes,
}

fn intern(data: SpecData) -> Spec {
    static SPECS: LazyLock<RwLock<HashMap<SpecData, &'static InternedSpec>>> = LazyLock::new(RwLock::default);
    if let Some(known) = SPECS.read().unwrap_or_else(|e| e.into_inner()).get(&data) {
        return Spec(known);
    }
    let mut specs = SPECS.write().unwrap_or_else(|e| e.into_inner());
    // specs are leaked: a process has few distinct ones
    let hash = FxBuildHasher.hash_one(&data);
    Spec(specs.entry(data.clone()).or_insert_with(|| Box::leak(Box::new(InternedSpec { data, hash }))))
}

impl Spec {
    /// Returns a spec with an entry for each dimension; `None` is an unsharded dimension.
    /// The macro [`crate::p!`] is shorter.
    pub fn new<const N: usize>(entries: [Option<Axes>; N]) -> Spec {
        Spec::from_dims(entries.into_iter().map(Option::unwrap_or_default).collect())
    }
    /// Returns a spec with an entry for each dimension; no axes is an unsharded dimension.
    pub fn from_dims(dims: Vec<Axes>) -> Spec {
        intern(SpecData { dims, unreduced: Axes::none(), reduced: Axes::none() })
    }
    /// Returns the spec in which all `rank` dimensions are unsharded.
    pub fn replicated(rank: usize) -> Spec {
        Spec::from_dims(vec![Axes::none(); rank])
    }
    /// Returns this spec with `axes` as its unreduced axes.
    #[doc(alias = "Partial")]
    pub fn unreduced(self, axes: impl Into<Axes>) -> Spec {
        let axes = axes.into();
        if axes == self.0.data.unreduced {
            self
        } else {
            intern(SpecData { unreduced: axes, ..self.0.data.clone() })
        }
    }
    /// Returns this spec with `axes` as its reduced axes.
    pub fn reduced(self, axes: impl Into<Axes>) -> Spec {
        let axes = axes.into();
        if axes == self.0.data.reduced {
            self
        } else {
            intern(SpecData { reduced: axes, ..self.0.data.clone() })
        }
    }
    /// Returns this spec with other dimensions and the same sets.
    pub fn with_dims(self, dims: Vec<Axes>) -> Spec {
        intern(SpecData { dims, ..self.0.data.clone() })
    }
    /// Returns the spec without `"?"`, and the open dimensions: those whose entry contains a `"?"`.
    pub(crate) fn split_open_dims(self) -> (Spec, Vec<usize>) {
        let open = Axis::from(Spec::OPEN);
        let has = |d: &usize| self.dim(*d).contains(&open);
        (self.filter_axes(|a| a != open), (0..self.0.data.dims.len()).filter(has).collect())
    }
    /// The name `"?"`, which leaves a dimension open in the spec of a constraint.
    ///
    /// An open dimension may be split over further axes. `p!["X", "?"]` fixes the sharding of
    /// dimension 0 and leaves dimension 1 to the partitioner. `p![("X", "?")]` splits over X, and
    /// over more axes if that is better. See [`Array::constrain`](crate::Array::constrain).
    pub const OPEN: &str = "?";
    /// Returns the entries, one for each dimension.
    pub fn dims(self) -> &'static [Axes] {
        &self.0.data.dims
    }
    /// Returns the axes of dimension `d`; none if there is no entry for it.
    pub fn dim(self, d: usize) -> &'static [Axis] {
        self.0.data.dims.get(d).map_or(&[], Axes::as_slice)
    }
    /// Returns the axes over which the array is unreduced.
    pub fn unreduced_axes(self) -> &'static Axes {
        &self.0.data.unreduced
    }
    /// Returns the axes over which the array is reduced.
    pub fn reduced_axes(self) -> &'static Axes {
        &self.0.data.reduced
    }
    /// Returns true if the unreduced or the reduced set has an axis.
    pub(crate) fn has_sets(self) -> bool {
        !(self.0.data.unreduced.is_empty() && self.0.data.reduced.is_empty())
    }
    /// Returns every axis that the spec names, with repetitions.
    pub fn all_axes(self) -> impl Iterator<Item = Axis> {
        let SpecData { dims, unreduced, reduced } = &self.0.data;
        dims.iter().flat_map(Axes::iter).chain(unreduced.iter()).chain(reduced.iter())
    }
    /// Returns true if all dimensions are unsharded and both sets are empty.
    pub fn is_replicated(self) -> bool {
        self.all_axes().next().is_none()
    }
    /// Returns this spec, extended with unsharded dimensions to the given rank.
    pub fn padded(self, rank: usize) -> Spec {
        if self.0.data.dims.len() >= rank {
            return self;
        }
        let mut dims = self.0.data.dims.clone();
        dims.resize(rank, Axes::none());
        self.with_dims(dims)
    }
    /// Returns this spec with dimension `d` split over `axes`.
    /// A dimension that used one of these axes becomes unsharded.
    pub(crate) fn with_dim(self, d: usize, axes: &Axes) -> Spec {
        let others = self.padded(d + 1).filter_axes(|a| !axes.contains(a));
        let entry = |(i, e): (usize, &Axes)| match i == d {
            true => axes.clone(),
            false if self.dim(i).iter().any(|a| axes.contains(*a)) => Axes::none(),
            false => e.clone(),
        };
        others.with_dims(others.dims().iter().enumerate().map(entry).collect())
    }
    /// Returns this spec with other unreduced and reduced sets.
    pub(crate) fn with_sets(self, unreduced: Axes, reduced: Axes) -> Spec {
        intern(SpecData { unreduced, reduced, dims: self.0.data.dims.clone() })
    }
    /// Returns this spec with only the axes that satisfy `keep`.
    pub fn filter_axes(self, keep: impl Fn(Axis) -> bool) -> Spec {
        self.filter_by(&keep)
    }
    fn filter_by(self, keep: &dyn Fn(Axis) -> bool) -> Spec {
        let cut = |axes: &Axes| axes.iter().filter(|a| keep(*a)).collect::<Axes>();
        let SpecData { dims, unreduced, reduced } = &self.0.data;
        intern(SpecData {
            dims: dims.iter().map(cut).collect(),
            unreduced: cut(unreduced),
            reduced: cut(reduced),
        })
    }
    /// Removes axes from the dimensions only; the sets stay.
    pub(crate) fn filter_dim_axes(self, keep: &dyn Fn(Axis) -> bool) -> Spec {
        let cut = |axes: &Axes| axes.iter().filter(|a| keep(*a)).collect::<Axes>();
        self.with_dims(self.dims().iter().map(cut).collect())
    }
}
impl PartialEq for Spec {
    fn eq(&self, other: &Spec) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}
impl Eq for Spec {}
impl std::hash::Hash for Spec {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        state.write_u64(self.0.hash);
    }
}
/// Prints the spec in the syntax of `p!`: `p!["X", _, ("Y", "Z"); U: "W"]`.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |axes: &Axes| match axes.len() {
            0 => "_".into(),
            1 => axes.quoted_list(),
            _ => format!("({})", axes.quoted_list()),
        };
        let dims: Vec<_> = self.0.data.dims.iter().map(quoted).collect();
        write!(f, "p![{}", dims.join(", "))?;
        let (u, r) = (&self.0.data.unreduced, &self.0.data.reduced);
        match (u.is_empty(), r.is_empty()) {
            (true, true) => {}
            (false, true) => write!(f, "; U: {}", quoted(u))?,
            (true, false) => write!(f, "; R: {}", quoted(r))?,
            (false, false) => write!(f, "; U: {}, R: {}", quoted(u), quoted(r))?,
        }
        write!(f, "]")
    }
}
debug_as_display! { [] Spec }

/// Returns a partition spec.
/// `_` (or `None`) is an unsharded dimension; `p![]` is a replicated array; `p![_, "Y"; U: "X"]` is
/// unreduced over X.
///
/// ```
/// use atmesh::prelude::*;
/// assert_eq!(p!["X", _, ("Y", "Z"); U: "W"].to_string(), r#"p!["X", _, ("Y", "Z"); U: "W"]"#);
/// ```
#[macro_export]
macro_rules! p {
    (@ [$($done:tt)*] _ $(, $($rest:tt)*)?) => { $crate::p!(@ [$($done)* None,] $($($rest)*)?) };
    (@ [$($done:tt)*] _ ; $($sets:tt)*) => { $crate::p!(@ [$($done)* None,] ; $($sets)*) };
    (@ [$($done:tt)*] None $(, $($rest:tt)*)?) => { $crate::p!(@ [$($done)* None,] $($($rest)*)?) };
    (@ [$($done:tt)*] None ; $($sets:tt)*) => { $crate::p!(@ [$($done)* None,] ; $($sets)*) };
    (@ $done:tt ; U: $u:expr, R: $r:expr) => { $crate::p!(@ $done ; U: $u).reduced($r) };
    (@ $done:tt ; U: $u:expr) => { $crate::p!(@ $done).unreduced($u) };
    (@ $done:tt ; R: $r:expr) => { $crate::p!(@ $done).reduced($r) };
    (@ [$($done:tt)*] $axes:expr ; $($sets:tt)*) => {
        $crate::p!(@ [$($done)* Some($crate::Axes::from($axes)),] ; $($sets)*)
    };
    (@ [$($done:tt)*] $axes:expr $(, $($rest:tt)*)?) => {
        $crate::p!(@ [$($done)* Some($crate::Axes::from($axes)),] $($($rest)*)?)
    };
    (@ [$($done:tt)*]) => { $crate::Spec::new([$($done)*]) };
    ($($t:tt)*) => { $crate::p!(@ [] $($t)*) };
}
