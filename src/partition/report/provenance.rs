//! Provenance: traces the sharding that a collective removes back to its origin.
//!
//! The origin is an argument, or the operation that introduced the sharding.

use crate::core::sharding::sub_axes::{from_axes, overlap};
use crate::core::{SourceLocation, SubAxes};
use crate::ir::program::{Phase, Reducer, Source};
use crate::partition::program::{Slot, SpmdProgram, Step, StepOrigin};
use crate::partition::{collective::Collective, print};

/// A value on the path from the origin of a sharding to a collective.
#[derive(Clone, Debug)]
pub(crate) struct ProvenanceLink {
    /// The type, as per-device programs print it.
    pub(crate) ty: String,
    /// The dimension that is split over the axes.
    /// `None` if the value is partial over them.
    pub(crate) dim: Option<usize>,
    /// True if partial values are added.
    /// Otherwise they are combined by another reducer.
    pub(crate) adds: bool,
    /// The origin of the value.
    pub(crate) source: ValueSource,
}

/// The origin of a value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ValueSource {
    /// An argument, by index.
    /// Captured arrays come last.
    Argument(usize),
    /// An input of a nested program that has no counterpart outside.
    NestedInput,
    /// An operation, with its source location and phase.
    Op(String, Option<SourceLocation>, Phase),
}

/// A program nested in other programs.
#[derive(Clone)]
struct ProgramCursor<'a> {
    /// The surrounding programs, outermost first.
    /// Each has the step that contains the next program, and that program's index in the step.
    outer: Vec<(&'a SpmdProgram, usize, usize)>,
    /// The program itself.
    program: &'a SpmdProgram,
}

/// The maximum number of values that are traced back.
const MAX_LINKS: usize = 64;

/// The path of values that leads to a collective, and the results it affects.
pub(crate) struct Provenance {
    /// The values, starting with the origin.
    pub(crate) links: Vec<ProvenanceLink>,
    /// The results of the whole program that depend elementwise on the collective's value.
    pub(crate) results: Vec<usize>,
}

/// Traces a collective's value back to the one that was first split over the collective's axes.
pub(crate) fn trace_sharding(p: &SpmdProgram, c: &Collective) -> Provenance {
    let mut at = ProgramCursor { outer: Vec::new(), program: p };
    let Some((last, outer)) = c.path.split_last() else {
        return Provenance { links: Vec::new(), results: Vec::new() };
    };
    for (k, n) in outer {
        let nested = at.program.steps[*k].nested_programs();
        let Some(inside) = nested.get(*n) else {
            return Provenance { links: Vec::new(), results: Vec::new() };
        };
        at.outer.push((at.program, *k, *n));
        at.program = inside.program;
    }
    let over =
        p.mesh.as_ref().or(at.program.mesh.as_ref()).map(|m| from_axes(m, c.axes.iter())).unwrap_or_default();
    let mut links = Vec::new();
    let (step, mut made) = (&at.program.steps[last.0], None);
    if let Some((src, requests)) = step.fetches() {
        made = requests.first().and_then(|n| at.program.steps[n.consumer_step].local()).map(|l| l.out);
        let dims = &at.program.slots[src].layout.dims;
        let dim = dims.iter().position(|l| overlap(&l.sub_axes, &over));
        trace_back(at.clone(), src, dim, &over, &mut links);
    } else if let Some((src, out, _)) = step.reduction() {
        made = Some(out);
        trace_back(at.clone(), src, None, &over, &mut links);
    }
    links.reverse();
    // one operation may consist of several steps
    links.dedup_by(|b, a| {
        let same = a.source == b.source && a.source != ValueSource::NestedInput;
        if same {
            std::mem::swap(a, b);
        }
        same
    });
    let results = made.filter(|_| outer.is_empty()).map(|s| results_from(p, s)).unwrap_or_default();
    Provenance { links, results }
}

/// Appends the values from `slot` backwards, as long as the axes split a dimension of an operand.
fn trace_back<'a>(
    mut at: ProgramCursor<'a>,
    mut slot: Slot,
    mut dim: Option<usize>,
    over: &SubAxes,
    links: &mut Vec<ProvenanceLink>,
) {
    while links.len() < MAX_LINKS {
        let p = at.program;
        let partial = p.slots[slot].layout.partial.as_ref();
        let adds = partial.is_none_or(|x| x.0 == Reducer::Add);
        let link = |from| ProvenanceLink { ty: print::type_text(p, slot), dim, adds, source: from };
        let Some(k) = p.steps.iter().position(|s| s.outputs().contains(&slot)) else {
            let Some(number) = p.ins.iter().position(|s| *s == slot) else { return };
            let Some((outer, k, n)) = at.outer.pop() else {
                return links.push(link(ValueSource::Argument(number)));
            };
            at.program = outer;
            let nested = outer.steps[k].nested_programs();
            let input = nested.get(n).and_then(|nested| nested.inputs.get(number)?.outer_value());
            let Some((value, leading)) = input else {
                return links.push(link(ValueSource::NestedInput));
            };
            (slot, dim) = (value, dim.map(|d| d + usize::from(leading)));
            continue;
        };
        let StepOrigin { op, location: source_location, phase, .. } = p.origins[k].clone();
        let made = ValueSource::Op(op, source_location, phase);
        match &p.steps[k] {
            Step::Local { .. } => {
                links.push(link(made));
                match split_source(p, k, dim, over) {
                    Some((value, of)) => (slot, dim) = (value, of),
                    None => return,
                }
            }
            Step::Reduce { src, .. } => {
                links.push(link(made));
                let scattered = dim.is_some_and(|d| !overlap(&p.slots[*src].layout.dims[d].sub_axes, over));
                if scattered {
                    return;
                }
                slot = *src;
            }
            step => {
                // continue in the nested program that computes it
                let Some((n, inside, value, stacked)) = nested_result(step, slot) else {
                    return links.push(link(made));
                };
                let Some(value) = inside.outs.get(value) else { return };
                at.outer.push((p, k, n));
                at.program = inside;
                (slot, dim) = (*value, dim.map(|d| d - usize::from(stacked && d > 0)));
            }
        }
    }
}

/// Returns the operand of step `k`, and its dimension, from which the result inherits its sharding.
///
/// A partial result inherits it from an operand that is partial or split along a reduction loop.
fn split_source(
    p: &SpmdProgram,
    k: usize,
    dim: Option<usize>,
    over: &SubAxes,
) -> Option<(Slot, Option<usize>)> {
    let l = p.steps[k].local()?;
    let s = l.nest;
    // a partial value comes from a partial operand, or from a sum over split loops
    let loops: Vec<usize> = match dim {
        Some(d) => vec![d],
        None => (s.rank..s.extents.len())
            .filter(|i| l.layout.get(*i).is_some_and(|l| overlap(&l.sub_axes, over)))
            .collect(),
    };
    for part in s.accesses.iter().flat_map(|r| &r.pieces) {
        let Source::Value(from) = part.source else { continue };
        let dims = &p.slots[from].layout.dims;
        let split = |d: &usize| overlap(&dims[*d].sub_axes, over);
        let reads = |d: &usize| {
            s.compute.is_alias()
                || part.map.get(*d).is_some_and(|m| m.terms.iter().any(|t| loops.contains(&t.0)))
        };
        if let Some(d) = (0..dims.len()).filter(split).find(reads) {
            return Some((from, Some(d)));
        }
        let partial = p.slots[from].layout.partial.as_ref();
        if dim.is_none() && loops.is_empty() && partial.is_some_and(|x| overlap(&x.1, over)) {
            return Some((from, None));
        }
    }
    None
}

/// Returns the nested program that computes this value, its index, and the index of its result.
/// The flag is true if the value is a stack of such results.
fn nested_result(step: &Step, slot: Slot) -> Option<(usize, &SpmdProgram, usize, bool)> {
    step.nested_programs().into_iter().enumerate().find_map(|(n, nested)| {
        let mut values = nested.results.iter().map(|r| r.outer_value());
        let (k, stacked) = values.by_ref().enumerate().find_map(|(k, value)| {
            let (outer, stacked) = value?;
            (outer == slot).then_some((k, stacked))
        })?;
        Some((n, nested.program, k, stacked))
    })
}

/// Returns the indices of the program results that a value becomes.
/// They equal it, or are computed from it by elementwise operations and views.
fn results_from(p: &SpmdProgram, slot: Slot) -> Vec<usize> {
    let mut of = vec![false; p.slots.len()];
    of[slot] = true;
    for step in &p.steps {
        if let Some(l) = step.local()
            && (l.nest.compute.elementwise().is_some() || l.nest.compute.is_alias())
            && step.inputs().iter().any(|s| of[*s])
        {
            of[l.out] = true;
        }
    }
    (0..p.outs.len()).filter(|k| of[p.outs[*k]]).collect()
}
