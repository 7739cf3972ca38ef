//! `type_of`: the types of values, as text to print and to compare with.

use super::{Args, Path, Tree};
use crate::api::{array::Array, trace::type_here};
use std::fmt;

/// The types of a tree's arrays, as text.
///
/// It compares with strings. For a value that carries an error, it is the error's text.
///
/// ```
/// use atmesh::{Array, TypeOf, type_of};
/// let ty: TypeOf = type_of((Array::ones([2]), Array::from(1)));
/// assert_eq!(ty, "(float32[2], int32[])");
/// ```
#[derive(Clone)]
pub struct TypeOf(String);

/// Returns the type of an array (`int32[4@X,2]`), or the types of a tree's arrays, as text.
///
/// Scalars and ndarray values have the type that they would have as arguments. In the body of a
/// [`shard_map`](crate::shard_map()), a captured value has the type that the body's operations see.
///
/// ```
/// use atmesh::prelude::*;
/// let x = Array::zeros([4, 2]);
/// assert_eq!(type_of(&x), "float32[4,2]");
/// assert_eq!(type_of((&x, 1)), "(float32[4,2], int32[])");
/// assert_eq!(type_of(ndarray::Array2::<f64>::zeros((2, 3))), "float64[2,3]");
/// ```
#[doc(alias("typeof"))]
pub fn type_of<T: Args>(value: T) -> TypeOf {
    let tree = value.into_tree();
    let mut root = TypeNode::default();
    tree.visit(&mut Path::named(), &mut |path, a| {
        let mut at = &mut root;
        for part in path.parts() {
            let i = at.children.iter().position(|(name, _)| name == part).unwrap_or_else(|| {
                at.children.push((part.to_string(), TypeNode::default()));
                at.children.len() - 1
            });
            at = &mut at.children[i].1;
        }
        at.leaf = Some(type_text_of(a));
    });
    TypeOf(root.to_string())
}

fn type_text_of(a: &Array) -> String {
    let ty = ok_or_return!(type_here(a), |e| e.to_string());
    ty.to_string()
}

#[derive(Default)]
struct TypeNode {
    leaf: Option<String>,
    children: Vec<(String, TypeNode)>,
}
impl fmt::Display for TypeNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(leaf) = &self.leaf {
            return f.write_str(leaf);
        }
        let numbered = self.children.iter().all(|(name, _)| name.parse::<usize>().is_ok());
        let (open, close) = if numbered { ("(", ")") } else { ("{", "}") };
        f.write_str(open)?;
        for (i, (name, node)) in self.children.iter().enumerate() {
            let comma = if i > 0 { ", " } else { "" };
            let name = if numbered { String::new() } else { format!("{name}: ") };
            write!(f, "{comma}{name}{node}")?;
        }
        f.write_str(close)
    }
}

impl fmt::Display for TypeOf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
debug_as_display! { [] TypeOf }
impl PartialEq<&str> for TypeOf {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}
impl PartialEq<str> for TypeOf {
    fn eq(&self, other: &str) -> bool {
        self.0 == other
    }
}
impl PartialEq for TypeOf {
    fn eq(&self, other: &TypeOf) -> bool {
        self.0 == other.0
    }
}
