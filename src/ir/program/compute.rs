//! Properties of the computations of loop nests, on which passes base their decisions.
//!
//! A new variant of [`Compute`] needs changes here, and otherwise only where computations are
//! verified, lowered, executed or printed.

use super::loop_nest::{Compute, DynamicIndex, Reducer, RowKernelCall, ScalarArg, ScalarCode};

impl Compute {
    /// Returns true if the maps of each access determine which elements are read at which index.
    ///
    /// The elements that a block of the iteration space reads are then known: accesses of views can
    /// be composed, and boxes can be fetched. A reshape does not have this property, because it
    /// follows row-major order instead.
    pub(crate) fn has_affine_accesses(&self) -> bool {
        match self {
            Compute::Map(_) | Compute::Reduce { .. } | Compute::Contract { .. } | Compute::RowKernel(_) => {
                true
            }
            Compute::Gather { .. } | Compute::Scatter { .. } => true,
            Compute::Reshape => false,
        }
    }
    /// Returns true if the result is its operand under another name.
    /// Nothing is computed, and storage is shared.
    pub(crate) fn is_alias(&self) -> bool {
        match self {
            Compute::Reshape => true,
            Compute::Map(_) | Compute::Reduce { .. } | Compute::Contract { .. } | Compute::RowKernel(_) => {
                false
            }
            Compute::Gather { .. } | Compute::Scatter { .. } => false,
        }
    }
    /// Returns true if the loops may be reordered, together with the dimensions of the result.
    pub(crate) fn can_permute_loops(&self) -> bool {
        match self {
            Compute::Map(_)
            | Compute::Reduce { .. }
            | Compute::Contract { .. }
            | Compute::RowKernel(_)
            | Compute::Gather { .. } => true,
            // the original value of a scatter is addressed in its own order
            Compute::Reshape | Compute::Scatter { .. } => false,
        }
    }
    /// Returns the code if the computation is elementwise.
    /// It can then be computed on any device that has the operands.
    pub(crate) fn elementwise(&self) -> Option<&ScalarCode> {
        match self {
            Compute::Map(code) => Some(code),
            Compute::Reduce { .. } | Compute::Contract { .. } | Compute::RowKernel(_) | Compute::Reshape => {
                None
            }
            Compute::Gather { .. } | Compute::Scatter { .. } => None,
        }
    }
    /// Returns true if each access must be one block that covers all loops.
    /// Such an access cannot be composed of pieces of several values.
    pub(crate) fn needs_whole_blocks(&self) -> bool {
        match self {
            Compute::Contract { .. }
            | Compute::RowKernel(_)
            | Compute::Gather { .. }
            | Compute::Scatter { .. } => true,
            Compute::Map(_) | Compute::Reduce { .. } | Compute::Reshape => false,
        }
    }
    /// Returns true if the inner loops are contracted dimensions, as in a contraction.
    pub(crate) fn contracts(&self) -> bool {
        match self {
            Compute::Contract { .. } => true,
            Compute::Map(_) | Compute::Reduce { .. } | Compute::RowKernel(_) | Compute::Reshape => false,
            Compute::Gather { .. } | Compute::Scatter { .. } => false,
        }
    }
    /// Returns true if exactly one of the partial results has each element.
    /// Combining partial results then only selects.
    pub(crate) fn has_single_owner(&self) -> bool {
        match self {
            Compute::Gather { .. } => true,
            Compute::Map(_) | Compute::Reduce { .. } | Compute::Contract { .. } | Compute::RowKernel(_) => {
                false
            }
            Compute::Reshape | Compute::Scatter { .. } => false,
        }
    }
    /// Returns true if inner loops are reduced by an operation on elements: a reduction or a
    /// contraction.
    pub(crate) fn reduces(&self) -> bool {
        match self {
            Compute::Reduce { .. } | Compute::Contract { .. } => true,
            Compute::Map(_) | Compute::RowKernel(_) | Compute::Reshape => false,
            Compute::Gather { .. } | Compute::Scatter { .. } => false,
        }
    }
    /// Returns the call of a row kernel; `None` for other computations.
    pub(crate) fn row_kernel(&self) -> Option<&RowKernelCall> {
        match self {
            Compute::RowKernel(call) => Some(call),
            Compute::Map(_) | Compute::Reduce { .. } | Compute::Contract { .. } | Compute::Reshape => None,
            Compute::Gather { .. } | Compute::Scatter { .. } => None,
        }
    }
    /// Returns the loops of the result that run along the result rows of a row kernel.
    pub(crate) fn row_loops(&self) -> &[usize] {
        self.row_kernel().map_or(&[], |call| &call.row_loops)
    }
    /// Returns the dynamic indices: the loops of which an operand selects one step at run time.
    pub fn dynamic_indices(&self) -> &[DynamicIndex] {
        match self {
            Compute::Gather { indices: at } | Compute::Scatter { indices: at, .. } => at,
            Compute::Map(_)
            | Compute::Reduce { .. }
            | Compute::Contract { .. }
            | Compute::RowKernel(_)
            | Compute::Reshape => &[],
        }
    }
    /// Renames the loops that the computation refers to: loop l becomes loop `to(l)`.
    pub(crate) fn rename_loops(&mut self, to: impl Fn(usize) -> usize) {
        match self {
            Compute::Map(code) | Compute::Reduce { code, .. } => {
                for arg in code.insts.iter_mut().flat_map(|i| &mut i.args) {
                    if let ScalarArg::Index(l) = arg {
                        *l = to(*l);
                    }
                }
            }
            Compute::RowKernel(row_kernel) => row_kernel.row_loops.iter_mut().for_each(|l| *l = to(*l)),
            Compute::Gather { indices: at } | Compute::Scatter { indices: at, .. } => {
                at.iter_mut().for_each(|b| b.rename_loops(&to))
            }
            Compute::Contract { .. } | Compute::Reshape => {}
        }
    }
    /// Returns the operation that combines the partial results of several devices.
    pub(crate) fn partial_reducer(&self) -> Reducer {
        match self {
            Compute::Reduce { reducer: combine, .. } | Compute::Scatter { reducer: Some(combine), .. } => {
                *combine
            }
            Compute::Map(_) | Compute::Contract { .. } | Compute::RowKernel(_) | Compute::Reshape => {
                Reducer::Add
            }
            Compute::Gather { .. } | Compute::Scatter { reducer: None, .. } => Reducer::Add,
        }
    }
}
