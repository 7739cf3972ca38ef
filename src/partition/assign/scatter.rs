//! Partial scatters: scatters whose updates are split over devices.
//! This module also decides which operands of gathers and scatters may be partial.

use crate::core::{Scalar, SubAxes};
use crate::ir::program::{AccessPiece, Compute, LoopNest, OutOfBounds, Reducer, Source, StridedRange};
use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::StoredValue;

impl LoopNest {
    /// Returns true if the operand at this access may be read while it is partial.
    ///
    /// Indices must be full, and so must the operands of a scatter whose reducer is not linear.
    pub(crate) fn accepts_partial(&self, read: usize) -> bool {
        match &self.compute {
            Compute::Gather { indices: at } => {
                let clipped = at.iter().all(|b| b.mode == OutOfBounds::Clip);
                read == 0 && (clipped || self.accesses[0].fill.is_additively_idempotent())
            }
            Compute::Scatter { reducer: combine, .. } => {
                read < 2 && matches!(combine, None | Some(Reducer::Add))
            }
            Compute::Map(_)
            | Compute::Reduce { .. }
            | Compute::Contract { .. }
            | Compute::RowKernel(_)
            | Compute::Reshape => true,
        }
    }
    /// Returns the constant that an access reads at all indices, `None` if it is not constant.
    pub(crate) fn constant_value(&self, read: usize) -> Option<Scalar> {
        let r = &self.accesses[read];
        match &r.pieces[..] {
            [] => Some(r.fill),
            [AccessPiece { source: Source::Const(c), ranges: span, .. }]
                if *span == StridedRange::full_box(&self.extents) =>
            {
                Some(*c)
            }
            _ => None,
        }
    }
}

/// Returns the loop layout in which a scatter with split updates reads its operand.
/// It is that of the result. `None` for other steps.
pub(super) fn scatter_base_layout(s: &LoopNest, own: &Layout, loops: &[DimLayout]) -> Option<Vec<DimLayout>> {
    let Compute::Scatter { reducer: Some(_), .. } = s.compute else { return None };
    let split = loops[s.rank..].iter().any(|l| !l.sub_axes.is_empty());
    let rest = || s.extents[s.rank..].iter().map(|n| DimLayout::new(*n, SubAxes::new()));
    split.then(|| own.dims.iter().cloned().chain(rest()).collect())
}

/// Returns true if a step is a scatter that adds its updates to zeros.
pub(super) fn adds_to_zero(s: &LoopNest) -> bool {
    matches!(s.compute, Compute::Scatter { reducer: Some(Reducer::Add), .. })
        && s.constant_value(0) == Some(Scalar::zero(s.dtype))
}

/// Returns true if a scatter can compute a result that is partial over the requested sub-axes.
///
/// The operand and the updates are partial over them or zero. If `missing` lists sub-axes that
/// neither is partial over, updates are split over them and the operand is zero.
pub(super) fn can_scatter_partial(
    stored: &[StoredValue],
    s: &LoopNest,
    kept: &SubAxes,
    missing: &SubAxes,
) -> bool {
    let Compute::Scatter { reducer: combine, .. } = s.compute else { return true };
    let nothing = |read: usize| s.constant_value(read).is_some_and(|c| c == Scalar::zero(s.dtype));
    let alike = |read: usize| {
        s.accesses[read].sources().iter().all(|v| {
            let partial = stored[*v].layout.partial.as_ref().map(|p| &p.1);
            partial.map_or(kept.is_empty(), |p| p == kept)
        })
    };
    let fits = |read: usize| nothing(read) || s.constant_value(read).is_none() && alike(read);
    match missing.is_empty() {
        true => fits(0) && fits(1),
        false => combine == Some(Reducer::Add) && s.extents.len() > s.rank && nothing(0) && fits(1),
    }
}
