//! `Spec`: how the dimensions of an array are split, and over which axes it is unreduced or reduced.

use super::{Axes, Axis};
use std::collections::HashMap;
use std::fmt;
use std::sync::{LazyLock, RwLock};

/// How an array's dimensions are split: `p!["X", _, ("Y", "Z")]`. Interned, so `Copy` and compared by address.
#[doc(alias("PartitionSpec"))]
#[derive(Clone, Copy)]
pub struct Spec(&'static Data);

#[derive(Clone, PartialEq, Eq, Hash)]
struct Data {
    dims: Vec<Axes>,
    unreduced: Axes,
    reduced: Axes,
}

fn intern(data: Data) -> Spec {
    static SPECS: LazyLock<RwLock<HashMap<Data, &'static Data>>> = LazyLock::new(RwLock::default);
    if let Some(known) = SPECS.read().unwrap_or_else(|e| e.into_inner()).get(&data) {
        return Spec(known);
    }
    let mut specs = SPECS.write().unwrap_or_else(|e| e.into_inner());
    // specs live as long as the process: distinct ones are few
    Spec(specs.entry(data.clone()).or_insert_with(|| Box::leak(Box::new(data))))
}

impl Spec {
    /// An entry for each dimension; `None` is an unsharded dimension. [`crate::p!`] writes it shorter.
    pub fn new<const N: usize>(entries: [Option<Axes>; N]) -> Spec {
        Spec::of(entries.into_iter().map(Option::unwrap_or_default).collect())
    }
    /// An entry for each dimension; no axes is an unsharded dimension.
    pub fn of(dims: Vec<Axes>) -> Spec {
        intern(Data { dims, unreduced: Axes::none(), reduced: Axes::none() })
    }
    /// All dimensions unsharded.
    pub fn whole(rank: usize) -> Spec {
        Spec::of(vec![Axes::none(); rank])
    }
    /// The same, unreduced over these axes.
    pub fn unreduced(self, axes: impl Into<Axes>) -> Spec {
        intern(Data { unreduced: axes.into(), ..self.0.clone() })
    }
    /// The same, reduced over these axes.
    pub fn reduced(self, axes: impl Into<Axes>) -> Spec {
        intern(Data { reduced: axes.into(), ..self.0.clone() })
    }
    /// The same sets over other dimensions.
    pub fn with_dims(self, dims: Vec<Axes>) -> Spec {
        intern(Data { dims, ..self.0.clone() })
    }
    /// The spec without `"?"`, and the dimensions that have it: those of which a constraint says nothing more.
    pub(crate) fn opened(self) -> (Spec, Vec<usize>) {
        let open = Axis::from(Spec::OPEN);
        let has = |d: &usize| self.dim(*d).contains(&open);
        (self.only(|a| a != open), (0..self.0.dims.len()).filter(has).collect())
    }
    /// In an entry of a constraint: the dimension may be split over further axes. `p!["X", "?"]` says how dimension 0 is split and leaves dimension 1
    /// to the partitioner; `p![("X", "?")]` splits over X, and over more if that is good. See [`Array::constrain`](crate::Array::constrain).
    pub const OPEN: &str = "?";
    /// An entry for each dimension.
    pub fn dims(self) -> &'static [Axes] {
        &self.0.dims
    }
    /// The axes of a dimension; none beyond the entries.
    pub fn dim(self, d: usize) -> &'static [Axis] {
        self.0.dims.get(d).map_or(&[], Axes::as_slice)
    }
    /// The axes over which the array is unreduced.
    pub fn unreduced_axes(self) -> &'static Axes {
        &self.0.unreduced
    }
    /// The axes over which the array is reduced.
    pub fn reduced_axes(self) -> &'static Axes {
        &self.0.reduced
    }
    /// Every axis it names, with repetitions.
    pub fn all_axes(self) -> impl Iterator<Item = Axis> {
        let Data { dims, unreduced, reduced } = self.0;
        dims.iter().flat_map(Axes::iter).chain(unreduced.iter()).chain(reduced.iter())
    }
    /// Whether no dimension is split and both sets are empty.
    pub fn is_whole(self) -> bool {
        self.all_axes().next().is_none()
    }
    /// With unsharded dimensions added up to this rank.
    pub fn padded(self, rank: usize) -> Spec {
        if self.0.dims.len() >= rank {
            return self;
        }
        let mut dims = self.0.dims.clone();
        dims.resize(rank, Axes::none());
        self.with_dims(dims)
    }
    /// With dimension `d` split over these axes, and nothing else over one of them.
    pub(crate) fn with_dim(self, d: usize, axes: &Axes) -> Spec {
        let others = self.padded(d + 1).only(|a| !axes.contains(a));
        let entry = |(i, e): (usize, &Axes)| match i == d {
            true => axes.clone(),
            false if self.dim(i).iter().any(|a| axes.contains(*a)) => Axes::none(),
            false => e.clone(),
        };
        others.with_dims(others.dims().iter().enumerate().map(entry).collect())
    }
    /// With these sets in place of its own.
    pub(crate) fn with_sets(self, unreduced: Axes, reduced: Axes) -> Spec {
        intern(Data { unreduced, reduced, dims: self.0.dims.clone() })
    }
    /// Only the axes that `keep` holds for.
    pub fn only(self, keep: impl Fn(Axis) -> bool) -> Spec {
        let cut = |axes: &Axes| axes.iter().filter(|a| keep(*a)).collect::<Axes>();
        let Data { dims, unreduced, reduced } = self.0;
        intern(Data {
            dims: dims.iter().map(cut).collect(),
            unreduced: cut(unreduced),
            reduced: cut(reduced),
        })
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
        std::ptr::hash(self.0, state);
    }
}
/// As `p!` takes it: `p!["X", _, ("Y", "Z"); U: "W"]`.
impl fmt::Display for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let quoted = |axes: &Axes| match axes.len() {
            0 => "_".into(),
            1 => axes.quotes(),
            _ => format!("({})", axes.quotes()),
        };
        let dims: Vec<_> = self.0.dims.iter().map(quoted).collect();
        write!(f, "p![{}", dims.join(", "))?;
        let (u, r) = (&self.0.unreduced, &self.0.reduced);
        match (u.is_empty(), r.is_empty()) {
            (true, true) => {}
            (false, true) => write!(f, "; U: {}", quoted(u))?,
            (true, false) => write!(f, "; R: {}", quoted(r))?,
            (false, false) => write!(f, "; U: {}, R: {}", quoted(u), quoted(r))?,
        }
        write!(f, "]")
    }
}
impl fmt::Debug for Spec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A partition spec. `_` (or `None`) is an unsharded dimension; `p![]` a replicated array; `p![_, "Y"; U: "X"]` is unreduced over X.
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
