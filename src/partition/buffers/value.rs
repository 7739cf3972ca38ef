//! Values in memory, and the number of their uses.

use super::index::LoopVec;
use crate::core::types::{DType, Shape};
use crate::partition::{DimLayout, Layout, Slot, StepOrigin};

/// A value in memory: its element type, shape, strides and aliases.
#[derive(Clone, Debug)]
pub(crate) struct BufferValue<'p> {
    /// The element type in memory.
    pub(crate) dtype: DType,
    /// The shape.
    /// A partial value has a leading dimension over its partials.
    pub(crate) shape: Shape,
    /// The number of partials; 1 if the value is fully reduced.
    pub(crate) num_partials: usize,
    /// The sub-axes that index the partials.
    pub(crate) partial_layout: DimLayout,
    /// The strides, in elements.
    pub(crate) strides: LoopVec,
    /// The value whose buffer it shares in the same linear order; `None` if it has a separate one.
    pub(crate) alias: Option<Slot>,
    /// The layout in the partitioned program; `None` for temporary values of the compiler.
    pub(crate) layout: Option<&'p Layout>,
    /// The origin of the step that computes it, and true if the step combines partials of devices.
    /// `None` for inputs and for temporary values; a copy or transpose has that of the original.
    pub(crate) origin: Option<(&'p StepOrigin, bool)>,
}

/// The uses of a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct UseCount {
    /// The number of operations that read it.
    pub(crate) readers: u32,
    /// True if it is a result of the program.
    pub(crate) result: bool,
}

impl UseCount {
    /// An unused value.
    pub(crate) const NONE: UseCount = UseCount { readers: 0, result: false };
    /// A value that a single operation reads.
    pub(crate) const ONCE: UseCount = UseCount { readers: 1, result: false };
}
