//! The steps of a draft while their loops get layouts.

use crate::core::SubAxes;
use crate::ir::program::LoopNest;
use crate::partition::draft::DraftStep;
use crate::partition::layout::DimLayout;
use crate::partition::program::Slot;

/// A step of the draft, during the assignment of loop layouts.
pub(super) enum Candidate {
    /// A step whose layout is final.
    Fixed(DraftStep),
    /// A local step whose loops need a layout.
    Free(FreeStep),
}

/// A local step whose loops need a layout.
pub(super) struct FreeStep {
    /// The step, with its metadata.
    pub(super) step: DraftStep,
    /// The slot of the result.
    pub(super) out: Slot,
    /// The loop nest of the step.
    pub(super) nest: LoopNest,
    /// The sub-axes over which the result is partial because operands are.
    pub(super) inherited_partial: SubAxes,
    /// The layout of the loops, if the layouts of operands and result leave only one.
    /// `None` if it is to be chosen.
    pub(super) fixed_loops: Option<Vec<DimLayout>>,
}
