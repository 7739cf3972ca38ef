//! Puts of which each device makes a part: what takes and puts need of values that are partial, and where updates are split among devices.

use crate::partition::layout::{DimLayout, Layout};
use crate::partition::program::Stored;
use crate::program::sentence::{Beyond, Body, Combine, Part, Sentence, Source, Span};
use crate::sharding::atoms::Atoms;
use crate::types::Scalar;

impl Sentence {
    /// Whether it may read a partial value there part by part: numbers that say where are whole, and so is what is put by a way that is
    /// not linear.
    pub(crate) fn takes_parts(&self, read: usize) -> bool {
        match &self.body {
            Body::Take { at } => {
                let clipped = at.iter().all(|b| b.beyond == Beyond::Clip);
                read == 0 && (clipped || self.reads[0].fill.adds_to_itself())
            }
            Body::Put { combine, .. } => read < 2 && matches!(combine, None | Some(Combine::Add)),
            Body::Map(_) | Body::Fold { .. } | Body::Product { .. } | Body::Lines(_) | Body::Reshape => true,
        }
    }
    /// The one number that a read is everywhere.
    pub(crate) fn everywhere(&self, read: usize) -> Option<Scalar> {
        let r = &self.reads[read];
        match &r.parts[..] {
            [] => Some(r.fill),
            [Part { from: Source::Const(c), span, .. }] if *span == Span::whole(&self.extents) => Some(*c),
            _ => None,
        }
    }
}

/// Where what a put begins from is read: where its loops run; but where updates are split, where the result is stored.
pub(super) fn base(s: &Sentence, own: &Layout, loops: &[DimLayout]) -> Option<Vec<DimLayout>> {
    let Body::Put { combine: Some(_), .. } = s.body else { return None };
    let split = loops[s.rank..].iter().any(|l| !l.atoms.is_empty());
    let rest = || s.extents[s.rank..].iter().map(|n| DimLayout::new(*n, Atoms::new()));
    split.then(|| own.dims.iter().cloned().chain(rest()).collect())
}

/// Whether a put may be made in the parts that its result is asked for in: what was there and what is put are in these parts, or nothing;
/// where `missing` are parts that neither is in, updates are split over them, and nothing was there.
pub(super) fn in_these(stored: &[Stored], s: &Sentence, kept: &Atoms, missing: &Atoms) -> bool {
    let Body::Put { combine, .. } = s.body else { return true };
    let nothing = |read: usize| s.everywhere(read).is_some_and(|c| c == Scalar::zero(s.dtype));
    let alike = |read: usize| {
        s.reads[read].sources().iter().all(|v| {
            let partial = stored[*v].layout.partial.as_ref().map(|p| &p.1);
            partial.map_or(kept.is_empty(), |p| p == kept)
        })
    };
    let fits = |read: usize| nothing(read) || s.everywhere(read).is_none() && alike(read);
    match missing.is_empty() {
        true => fits(0) && fits(1),
        false => combine == Some(Combine::Add) && s.extents.len() > s.rank && nothing(0) && fits(1),
    }
}
