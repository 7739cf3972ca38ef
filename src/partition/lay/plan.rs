//! Planning: what is stored, where blocks begin, where loops run, what is fetched.

use crate::diagnostic::Result;
use crate::partition::draft::{Draft, Item, Via};
use crate::partition::lay::hoist::Adopted;
use crate::partition::lay::place::{self, Placer};
use crate::partition::lay::{fetch, frames, hoist, invariant, regions, together, views};
use crate::partition::price::prices::Prices;
use crate::partition::price::work::{PerByte, Price, work};
use crate::partition::program::SpmdProgram;
use crate::partition::report::Collectives;
use crate::partition::told::names;

/// One per-device program, and what it communicates.
#[derive(Clone, Debug)]
pub struct Localised {
    /// The per-device program.
    pub program: SpmdProgram,
    /// Every collective, with its bytes, source line and reason.
    pub collectives: Collectives,
}

impl Localised {
    /// What its own steps compute and all its steps move. (Both ways to place its values have the same programs inside.)
    fn price(&self, per_byte: PerByte) -> Price {
        let own = self.program.steps.iter().filter_map(|s| s.local());
        let work: f64 = own.map(|l| work(l.sentence, l.layout)).sum();
        per_byte.price(self.collectives.total_bytes() as f64, work * self.program.devices as f64)
    }
}

/// A finished program.
pub(crate) struct Planned {
    pub(crate) localised: Localised,
    /// Inputs that are to be laid out otherwise than the draft said, and whose sake it is for.
    pub(crate) adopted: Vec<Adopted>,
    /// Steps that are the same at each run of a loop's body and are to be made before it: what the body reads of them are fixed inputs of its
    /// program, behind those of the draft.
    pub(crate) before: Vec<Item>,
}

/// Decides everything that a draft leaves open.
pub(crate) fn plan(mut d: Draft) -> Result<Planned> {
    d.countable()?;
    watch("lower", &d);
    let vias = views::resolve(&mut d);
    views::absorb(&mut d);
    watch("views", &d);
    let before = regions::choose(&mut d);
    if before.is_empty() {
        return Ok(laid_out(d, &vias)?.0);
    }
    let mut propagated = d.again();
    before.into_iter().for_each(|(slot, dims)| propagated.slots[slot].layout.dims = dims);
    // what was priced around a region is not all that matters
    let per_byte = d.per_byte;
    let (moved, prices) = laid_out(d, &vias)?;
    propagated.prices = prices;
    let propagated = laid_out(propagated, &vias)?.0;
    let [after, before] = [&moved, &propagated].map(|p| p.localised.price(per_byte));
    Ok(if after.bytes < before.bytes && after.all < before.all { moved } else { propagated })
}

/// Decides the rest of it, where values are placed; and what it learnt of prices.
fn laid_out(mut d: Draft, vias: &[Option<Via>]) -> Result<(Planned, Prices)> {
    frames::choose(&mut d);
    let (again, n) = ((d.trips > 1 && !d.once.is_empty()).then(|| d.again()), d.slots.len());
    let mut placed = place::place(d);
    placed.d.countable()?;
    let mut adopted = hoist::adopt(&mut placed.d);
    let mut before = Vec::new();
    if let Some(mut body) = again
        && let Some(found) = invariant::found(&placed.d, n)
    {
        body.prices = std::mem::take(&mut placed.d.prices);
        before = invariant::take_out(&mut body, found);
        placed = place::place(body);
        adopted = hoist::adopt(&mut placed.d);
    }
    let Placer { mut d, halves, .. } = placed;
    together::gather(&mut d);
    watch("choose", &d);
    fetch::insert(&mut d);
    watch("fetch", &d);
    let prices = std::mem::take(&mut d.prices);
    let (program, notes) = d.finish();
    #[cfg(debug_assertions)]
    if let Err(wrong) = crate::partition::lay::check::check(&program) {
        let what = format!("the per-device program is not sound: {wrong}\n{program}");
        return Err(crate::diagnostic::Error::internal(what));
    }
    let collectives = names::collectives(&program, &notes, vias, &halves, &prices);
    Ok((Planned { localised: Localised { program, collectives }, adopted, before }, prices))
}

/// Shows a draft between two passes to the test of the module's page.
#[cfg(test)]
use crate::partition::tests::watch;
#[cfg(not(test))]
fn watch(_: &'static str, _: &Draft) {}
