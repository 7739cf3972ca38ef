//! Specs for trees: one spec per array, or one for a whole subtree.

use super::{Path, Tree};
use crate::core::{Error, ErrorKind, Fault, Result, Spec};
use std::collections::BTreeMap;

/// The specs of a tree: a structure of specs like the tree, or one spec for a whole subtree.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// // a spec for each argument, as a tuple; one spec would hold for all
/// let f = shard_map(&mesh, (p!["X"], p![]), p!["X"], |x: &Array, y: &Array| x + y);
/// assert_eq!(f.call((Array::from([1, 2]), 10))?.to_vec::<i32>()?, [11, 12]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say how to shard a tree",
    label = "expected `p![..]`, or a tuple, `Vec` or struct of them"
)]
pub trait Specs {
    /// Converts the specs to a [`SpecTree`].
    fn spec_tree(&self) -> SpecTree;
}

/// A tree of specs, matched against a tree of arrays.
#[derive(Clone, Debug, PartialEq)]
pub enum SpecTree {
    /// One spec for all arrays below.
    One(Spec),
    /// No specs: each array below is sharded as its own type says.
    Inferred,
    /// One entry for each field, element or key.
    Node(Vec<(String, SpecTree)>),
}

/// Specs for arguments that are sharded as their own types say (explicit axes only).
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// // the specs of the arguments are those that they have
/// let x = Array::arange(0..4).put(&mesh, p!["X"]);
/// let f = shard_map(&mesh, Inferred, p!["X"], |x: &Array| x + 1);
/// assert_eq!(f.call(&x)?.to_vec::<i32>()?, [1, 2, 3, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Inferred;

impl Specs for Inferred {
    fn spec_tree(&self) -> SpecTree {
        SpecTree::Inferred
    }
}
impl Specs for Spec {
    fn spec_tree(&self) -> SpecTree {
        SpecTree::One(*self)
    }
}
impl Specs for SpecTree {
    fn spec_tree(&self) -> SpecTree {
        self.clone()
    }
}
impl<S: Specs + ?Sized> Specs for &S {
    fn spec_tree(&self) -> SpecTree {
        (**self).spec_tree()
    }
}
impl<S: Specs> Specs for [S] {
    fn spec_tree(&self) -> SpecTree {
        SpecTree::Node(self.iter().enumerate().map(|(i, s)| (i.to_string(), s.spec_tree())).collect())
    }
}
impl<S: Specs> Specs for Vec<S> {
    fn spec_tree(&self) -> SpecTree {
        self.as_slice().spec_tree()
    }
}
impl<S: Specs, const N: usize> Specs for [S; N] {
    fn spec_tree(&self) -> SpecTree {
        self.as_slice().spec_tree()
    }
}
/// Treats `None` like [`Inferred`]: the array is sharded as its own type says.
impl<S: Specs> Specs for Option<S> {
    fn spec_tree(&self) -> SpecTree {
        self.as_ref().map_or(SpecTree::Inferred, Specs::spec_tree)
    }
}
macro_rules! maps { ($($K:ty)*) => {$(
    impl<S: Specs> Specs for BTreeMap<$K, S> {
        fn spec_tree(&self) -> SpecTree {
            SpecTree::Node(self.iter().map(|(k, s)| (k.to_string(), s.spec_tree())).collect())
        }
    }
)*} }
maps!(String &'static str);
macro_rules! tuples { ($($T:ident $n:tt)*) => {
    impl<$($T: Specs),*> Specs for ($($T,)*) {
        fn spec_tree(&self) -> SpecTree {
            SpecTree::Node(vec![$( (stringify!($n).to_string(), self.$n.spec_tree()) ),*])
        }
    }
} }
prefixes! { tuples [] (A 0) (B 1) (C 2) (D 3) (E 4) (F 5) (G 6) (H 7) (I 8) (J 9) (K 10) (L 11) }

/// Returns the spec of each leaf of a tree; `None` if the leaf is sharded as its own type says.
/// `what` names the specs in errors: `in_specs`.
pub(crate) fn resolve<T: Tree>(specs: &SpecTree, tree: &T, what: &str) -> Result<Vec<Option<Spec>>> {
    let mut found: Vec<Result<Option<Spec>, Fault>> = Vec::new();
    let mut path = Path::recorded();
    tree.visit(&mut path, &mut |path, _| found.push(find(specs, path, what)));
    let entered = path.entered();
    check_unused(specs, "", &entered, what)?;
    found.into_iter().collect::<Result<_, _>>().map_err(Error::from)
}

fn find(specs: &SpecTree, path: &Path, what: &str) -> Result<Option<Spec>, Fault> {
    let mut at = specs;
    for (depth, part) in path.parts().iter().enumerate() {
        match at {
            SpecTree::One(_) | SpecTree::Inferred => break,
            SpecTree::Node(entries) => match entries.iter().find(|(name, _)| name == part) {
                Some((_, below)) => at = below,
                None => {
                    let here: Vec<_> = entries.iter().map(|e| e.0.as_str()).collect();
                    let below = path.parts()[..depth].join(".");
                    let below = if below.is_empty() { String::new() } else { format!(" at `{below}`") };
                    return Err(Fault::new(
                        ErrorKind::Tree,
                        format!("{what} has no entry for `{path}`: it has {}{below}", quoted_names(&here)),
                    )
                    .help("specs have the shape of the tree; one spec is for a whole subtree"));
                }
            },
        }
    }
    match at {
        SpecTree::One(spec) => Ok(Some(*spec)),
        SpecTree::Inferred => Ok(None),
        SpecTree::Node(_) => Err(Fault::new(
            ErrorKind::Tree,
            format!("{what} has several specs for {}, which is one array", path.name_or("the only array")),
        )),
    }
}

/// Returns an error for an entry of the specs that the tree does not have.
fn check_unused(specs: &SpecTree, at: &str, entered: &[String], what: &str) -> Result<(), Fault> {
    let SpecTree::Node(entries) = specs else { return Ok(()) };
    for (name, below) in entries {
        let here = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        if !entered.contains(&here) {
            return Err(fault!(Tree, "{what} has an entry `{here}`, but the tree has nothing there")
                .help("specs have the shape of the tree; one spec is for a whole subtree"));
        }
        check_unused(below, &here, entered, what)?;
    }
    Ok(())
}

fn quoted_names(names: &[&str]) -> String {
    match names {
        [] => "none".into(),
        names => names.iter().map(|n| format!("`{n}`")).collect::<Vec<_>>().join(", "),
    }
}
