//! Sizes that have names in the static types of leaves: within one call, one name is one size.

use crate::core::{ErrorKind, Fault, Result};
use crate::ir::program::CallSite;
use std::any::TypeId;

/// A dim of a leaf whose size has a name in the leaf's static type, such as `Batch`.
#[derive(Clone, Debug)]
pub(crate) struct NamedDim {
    /// The type that stands for the name.
    pub id: TypeId,
    /// The name, for error messages.
    pub name: String,
    /// The dim number.
    pub dim: usize,
    /// The size of the array.
    pub size: usize,
    /// The type of the array, for error messages.
    pub ty: String,
}

/// The first dim of each name, and the first dim of another size.
#[derive(Clone, Debug, Default)]
pub(crate) struct NamedSizes {
    known: Vec<(String, NamedDim)>,
    conflict: Option<[(String, NamedDim); 2]>,
}

impl NamedSizes {
    /// Adds a dim of the leaf that messages call `leaf`.
    #[cfg_attr(not(feature = "typed"), allow(dead_code))]
    pub(crate) fn record(&mut self, leaf: String, dim: NamedDim) {
        match self.known.iter().find(|(_, first)| first.id == dim.id) {
            None => self.known.push((leaf, dim)),
            Some(first) if self.conflict.is_none() && first.1.size != dim.size => {
                self.conflict = Some([first.clone(), (leaf, dim)]);
            }
            Some(_) => {}
        }
    }
    /// Returns an error if one name has two sizes.
    pub(crate) fn check(&self, call: CallSite<'_>) -> Result<()> {
        let Some([(leaf, a), (other, b)]) = &self.conflict else { return Ok(()) };
        let fault = Fault::new(
            ErrorKind::Shape,
            format!(
                "dimension {} of the {leaf} has size {}, dimension {} of the {other} size {}, but the types call \
                 both `{}`: within a call, one name is one size",
                a.dim, a.size, b.dim, b.size, a.name
            ),
        );
        let fault = fault.highlight_dim(0, a.dim).highlight_dim(1, b.dim);
        let fault = match (a.size, b.size) {
            (1, _) => {
                fault.help(format!("to repeat the {leaf}, write `~` instead of `{}` in its type", a.name))
            }
            (_, 1) => {
                fault.help(format!("to repeat the {other}, write `~` instead of `{}` in its type", a.name))
            }
            _ => fault.help("make the sizes equal, for instance by `slice` or `pad`, before `.typed()`"),
        };
        let fault = fault.help("two sizes have two names: `dim!(Rows); dim!(Columns);`");
        Err(call.error(fault, || vec![a.ty.clone(), b.ty.clone()]))
    }
}
