//! Projections: the accesses of steps that read many values, one value at a time.
//!
//! A concatenation has a piece for each operand. The cost of a fetch depends on the pieces of one
//! value only, so they are found once and not for each fetch.

use crate::ir::program::{Access, AccessPiece, Compute, LoopNest, ScalarCode, Source};
use crate::partition::{cost::consumer::Consumer, layout::DimLayout, program::Slot, work};
use std::collections::{HashMap, HashSet};

/// The number of pieces up to which an access is not projected.
const MAX_WHOLE_PIECES: usize = 16;

/// The accesses of many values, for each step, access and value.
#[derive(Default)]
pub(crate) struct Projections {
    nests: HashMap<(usize, usize, Slot), LoopNest>,
}

impl Projections {
    /// Projects the accesses with many pieces of these steps.
    pub(crate) fn new<'a>(steps: impl IntoIterator<Item = (usize, &'a LoopNest)>) -> Projections {
        let mut nests: HashMap<(usize, usize, Slot), LoopNest> = HashMap::new();
        for (k, nest) in steps {
            for (access, r) in nest.accesses.iter().enumerate().filter(|(_, r)| has_many_sources(nest, r)) {
                work::count(r.pieces.len());
                for p in &r.pieces {
                    let Source::Value(slot) = p.source else { continue };
                    let own = nests.entry((k, access, slot)).or_insert_with(|| LoopNest {
                        extents: nest.extents.clone(),
                        accesses: vec![Access { pieces: Vec::new(), ..*r }],
                        compute: Compute::Map(ScalarCode::copy(r.dtype)),
                        ..*nest
                    });
                    own.accesses[0].pieces.push(p.clone());
                }
            }
        }
        Projections { nests }
    }
    /// Returns the access of one value by step `k`.
    pub(crate) fn consumer<'a>(
        &'a self,
        k: usize,
        (nest, access): (&'a LoopNest, usize),
        src: Slot,
        layout: &'a [DimLayout],
    ) -> Consumer<'a> {
        let many = !self.nests.is_empty() && has_many_sources(nest, &nest.accesses[access]);
        match self.nests.get(&(k, access, src)).filter(|_| many) {
            Some(nest) => Consumer { nest, access: 0, layout },
            None => Consumer { nest, access, layout },
        }
    }
    /// Returns the pieces of step `k` that read some values, or all pieces if there are few.
    pub(crate) fn pieces<'a>(&'a self, k: usize, nest: &'a LoopNest, of: &[Slot]) -> Vec<&'a AccessPiece> {
        let mut pieces = Vec::new();
        for (access, r) in nest.accesses.iter().enumerate() {
            if has_many_sources(nest, r) {
                let own = of.iter().filter_map(|slot| self.nests.get(&(k, access, *slot)));
                pieces.extend(own.flat_map(|nest| &nest.accesses[0].pieces));
            } else {
                pieces.extend(&r.pieces);
            }
        }
        pieces
    }
    /// Returns the loop nest of step `k`, with the pieces of some values only if it joins many.
    pub(crate) fn restricted(&self, k: usize, nest: &LoopNest, of: &HashSet<Slot>) -> LoopNest {
        let [r] = &nest.accesses[..] else { return nest.clone() };
        if !has_many_sources(nest, r) {
            return nest.clone();
        }
        let mut found: Vec<(&Slot, &LoopNest)> =
            of.iter().filter_map(|slot| Some((slot, self.nests.get(&(k, 0, *slot))?))).collect();
        found.sort_unstable_by_key(|f| f.0);
        let pieces = found.iter().flat_map(|f| f.1.accesses[0].pieces.iter().cloned()).collect();
        LoopNest {
            extents: nest.extents.clone(),
            accesses: vec![Access { pieces, ..*r }],
            compute: nest.compute.clone(),
            ..*nest
        }
    }
}

fn has_many_sources(nest: &LoopNest, r: &Access) -> bool {
    r.pieces.len() > MAX_WHOLE_PIECES && nest.compute.has_affine_accesses()
}
