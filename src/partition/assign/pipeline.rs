//! The pass pipeline from a draft to a finished program.
//!
//! If region search changes the placement of values, the program is finished with and without these
//! changes, and the better one is used.

use crate::core::{PrintedStage, Result, sharding::sub_axes::from_axes};
use crate::partition::assign::place::{self, Placer};
use crate::partition::assign::{
    block_align, combine_collectives, fuse_views, hoist_inputs, insert_fetches, licm, region_search,
    split_scatters,
};
use crate::partition::collective::{Collective, Collectives};
use crate::partition::cost::compute::{CostEstimate, TransferPrices, computed_elements};
use crate::partition::draft::{Draft, DraftStep, FusedView};
use crate::partition::{
    assign::hoist_inputs::AdoptedInput, cost::cache::CostCache, program::SpmdProgram, report::classify,
};

/// A per-device program and the report of its collectives.
#[derive(Clone, Debug)]
pub struct Partitioned {
    /// The per-device program.
    pub program: SpmdProgram,
    /// The collectives, each with its bytes, source location and reason.
    pub collectives: Collectives,
}

impl Partitioned {
    /// Returns the cost of the program's own steps.
    ///
    /// Nested programs are left out, because they are equal in all alternative placements.
    fn total_cost(&self, per_byte: &TransferPrices) -> CostEstimate {
        let own = self.program.steps.iter().filter_map(|s| s.local());
        let work: f64 = own.map(|l| computed_elements(l.nest, l.layout)).sum();
        let weight = |c: &Collective| match &self.program.mesh {
            Some(mesh) => per_byte.weight(c.kind, &from_axes(mesh, c.axes.iter())),
            None => 1.0,
        };
        let one = |c: &Collective| weight(c) * c.total_bytes.saturating_mul(c.count) as f64;
        let bytes = self.collectives.iter().map(one).sum();
        per_byte.cost(bytes, work * self.program.devices as f64)
    }
}

/// A finished program, and the changes it needs in the loop around it.
pub(crate) struct PlannedProgram {
    /// The program and its collectives.
    pub(crate) partitioned: Partitioned,
    /// Inputs whose layouts differ from the draft's, and the consumers that need that.
    pub(crate) adopted: Vec<AdoptedInput>,
    /// Loop-invariant steps to hoist before the loop.
    /// Their results are inputs of the program, after those of the draft.
    pub(crate) hoisted: Vec<DraftStep>,
}

/// Runs all passes on a draft.
pub(crate) fn run_pipeline(mut d: Draft) -> Result<PlannedProgram> {
    d.check_sizes()?;
    watch("lower", &d);
    split_scatters::split_scatters(&mut d);
    let vias = fuse_views::fuse_views(&mut d);
    fuse_views::absorb_permutations(&mut d);
    watch("views", &d);
    let before = region_search::place_regions(&mut d);
    watch("regions", &d);
    if before.is_empty() {
        return Ok(assign_layouts(d, &vias)?.0);
    }
    let mut propagated = d.clone_uncached();
    before.into_iter().for_each(|(slot, dims)| propagated.slots[slot].layout.dims = dims);
    // the cost around a region does not include all effects, so compare whole programs
    let per_byte = d.per_byte.clone();
    let (moved, prices) = assign_layouts(d, &vias)?;
    propagated.costs = prices;
    let propagated = assign_layouts(propagated, &vias)?.0;
    let [after, before] = [&moved, &propagated].map(|p| p.partitioned.total_cost(&per_byte));
    Ok(if after.bytes < before.bytes && after.total < before.total { moved } else { propagated })
}

/// Runs the passes that follow placement, and returns the program with the cache of costs.
fn assign_layouts(mut d: Draft, vias: &[Option<FusedView>]) -> Result<(PlannedProgram, CostCache)> {
    block_align::align_blocks(&mut d);
    watch("alignment", &d);
    let (again, n) =
        ((d.trip_count > 1 && !d.loop_invariant.is_empty()).then(|| d.clone_uncached()), d.slots.len());
    let mut placed = place::place(d);
    placed.d.check_sizes()?;
    watch("loops", &placed.d);
    let mut adopted = hoist_inputs::adopt_layouts(&mut placed.d);
    let mut before = Vec::new();
    if let Some(mut body) = again
        && let Some(found) = licm::find_invariants(&placed.d, n)
    {
        body.costs = std::mem::take(&mut placed.d.costs);
        before = licm::hoist_out(&mut body, found);
        placed = place::place(body);
        adopted = hoist_inputs::adopt_layouts(&mut placed.d);
    }
    let Placer { mut d, two_step_reductions: halves, .. } = placed;
    combine_collectives::combine_small_reductions(&mut d);
    watch("hoist", &d);
    insert_fetches::insert_fetches(&mut d, vias);
    watch("fetch", &d);
    let prices = std::mem::take(&mut d.costs);
    let (program, notes) = d.finish();
    #[cfg(debug_assertions)]
    if let Err(wrong) = crate::partition::assign::verify::verify(&program) {
        let what = format!("the per-device program is not sound: {wrong}\n{program}");
        return Err(crate::core::diagnostic::Error::internal(what));
    }
    let collectives = classify::list_collectives(&program, &notes, vias, &halves, &prices);
    Ok((
        PlannedProgram { partitioned: Partitioned { program, collectives }, adopted, hoisted: before },
        prices,
    ))
}

/// Prints a draft after a pass, if requested, and records it for the test of the module
/// documentation.
fn watch(pass: &'static str, d: &Draft) {
    #[cfg(test)]
    crate::partition::tests::watch(pass, d);
    PrintedStage::Partition.print_pass(pass, || d.to_program().to_string());
}
