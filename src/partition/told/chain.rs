//! Where the sharding that a collective takes away comes from: from value to value, back to an argument or to the operation that made it.

use crate::diagnostic::Place;
use crate::partition::print;
use crate::partition::program::{Slot, SpmdProgram, Step, Why};
use crate::partition::report::Collective;
use crate::program::Phase;
use crate::program::sentence::{Combine, Source};
use crate::sharding::atoms::{Atoms, clash, of_axes};

/// One value on the way.
#[derive(Clone, Debug)]
pub(crate) struct Link {
    /// Its type, as per-device programs print it.
    pub(crate) ty: String,
    /// The dimension that is split over the axes; none where the value is partial over them.
    pub(crate) dim: Option<usize>,
    /// Whether parts are added; else the largest of them counts, and the like.
    pub(crate) adds: bool,
    pub(crate) from: From,
}

/// Where a value is from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum From {
    /// The argument of this number; captured arrays come last.
    Argument(usize),
    /// What a loop or a branch is given, where that has no line.
    Inside,
    /// An operation, with its line.
    Op(String, Option<Place>, Phase),
}

/// A value of a program inside others.
#[derive(Clone)]
struct At<'a> {
    /// The programs around it, the outermost first, each with the step inside of which the next one is, and which it is there.
    around: Vec<(&'a SpmdProgram, usize, usize)>,
    program: &'a SpmdProgram,
}

/// More values than these are not told of.
const LONGEST: usize = 64;

/// What a collective is about.
pub(crate) struct Told {
    /// The values, the first one first.
    pub(crate) links: Vec<Link>,
    /// The results of the whole program that the collective's value becomes, element by element.
    pub(crate) results: Vec<usize>,
}

/// The values from the one that was first split over the collective's axes to the one that it moves.
pub(crate) fn chain(p: &SpmdProgram, c: &Collective) -> Told {
    let mut at = At { around: Vec::new(), program: p };
    let Some((last, outer)) = c.path.split_last() else {
        return Told { links: Vec::new(), results: Vec::new() };
    };
    for (k, n) in outer {
        match inner(&at.program.steps[*k], *n) {
            Some(inside) => {
                at.around.push((at.program, *k, *n));
                at.program = inside;
            }
            None => return Told { links: Vec::new(), results: Vec::new() },
        }
    }
    let over =
        p.mesh.as_ref().or(at.program.mesh.as_ref()).map(|m| of_axes(m, c.axes.iter())).unwrap_or_default();
    let mut links = Vec::new();
    let (step, mut made) = (&at.program.steps[last.0], None);
    match step {
        Step::Fetch { src, needs } => {
            made = needs.first().and_then(|n| at.program.steps[n.reader].local()).map(|l| l.out);
            let dims = &at.program.slots[*src].layout.dims;
            if let Some(d) = dims.iter().position(|l| clash(&l.atoms, &over)) {
                follow(at.clone(), *src, Some(d), &over, &mut links);
            } else {
                follow(at.clone(), *src, None, &over, &mut links);
            }
        }
        Step::Reduce { src, out, .. } => {
            made = Some(*out);
            follow(at.clone(), *src, None, &over, &mut links);
        }
        Step::Local { .. }
        | Step::Loop { .. }
        | Step::While { .. }
        | Step::Branch { .. }
        | Step::Print { .. } => {}
    }
    links.reverse();
    // one operation may be several steps
    links.dedup_by(|b, a| {
        let same = a.from == b.from && a.from != From::Inside;
        if same {
            std::mem::swap(a, b);
        }
        same
    });
    let results = made.filter(|_| outer.is_empty()).map(|s| becomes(p, s)).unwrap_or_default();
    Told { links, results }
}

/// The n-th program inside a step.
fn inner(step: &Step, n: usize) -> Option<&SpmdProgram> {
    match (step, n) {
        (Step::Loop { body, .. }, 0) => Some(body),
        (Step::While { cond, .. }, 0) => Some(cond),
        (Step::While { body, .. }, 1) => Some(body),
        (Step::Branch { branches, .. }, n) => branches.get(n),
        _ => None,
    }
}

/// From a value back, as long as the axes split a dimension of what it is made of.
fn follow<'a>(mut at: At<'a>, mut slot: Slot, mut dim: Option<usize>, over: &Atoms, links: &mut Vec<Link>) {
    while links.len() < LONGEST {
        let p = at.program;
        let partial = p.slots[slot].layout.partial.as_ref();
        let adds = partial.is_none_or(|x| x.0 == Combine::Add);
        let link = |from| Link { ty: print::of(p, slot), dim, adds, from };
        let Some(k) = p.steps.iter().position(|s| s.outputs().contains(&slot)) else {
            let Some(number) = p.ins.iter().position(|s| *s == slot) else { return };
            let Some((outer, k, n)) = at.around.pop() else {
                return links.push(link(From::Argument(number)));
            };
            at.program = outer;
            let Some((value, leading)) = given(&outer.steps[k], n, number) else {
                return links.push(link(From::Inside));
            };
            (slot, dim) = (value, dim.map(|d| d + usize::from(leading)));
            continue;
        };
        let Why { op, place, phase } = p.whys[k].clone();
        let made = From::Op(op, place, phase);
        match &p.steps[k] {
            Step::Local { .. } => {
                links.push(link(made));
                match source(p, k, dim, over) {
                    Some((value, of)) => (slot, dim) = (value, of),
                    None => return,
                }
            }
            Step::Reduce { src, .. } => {
                links.push(link(made));
                let scattered = dim.is_some_and(|d| !clash(&p.slots[*src].layout.dims[d].atoms, over));
                if scattered {
                    return;
                }
                slot = *src;
            }
            step => {
                // into the program that makes it
                let Some((n, value, stacked)) = result(step, slot) else { return links.push(link(made)) };
                let Some(inside) = inner(step, n) else { return };
                let Some(value) = inside.outs.get(value) else { return };
                at.around.push((p, k, n));
                at.program = inside;
                (slot, dim) = (*value, dim.map(|d| d - usize::from(stacked && d > 0)));
            }
        }
    }
}

/// The value that step `k` reads, and which of its dimensions, where that is split over the axes and becomes this dimension of the result,
/// or is summed to a partial one.
fn source(p: &SpmdProgram, k: usize, dim: Option<usize>, over: &Atoms) -> Option<(Slot, Option<usize>)> {
    let l = p.steps[k].local()?;
    let s = l.sentence;
    // a partial value is one of a partial one, or a sum over loops that are split
    let loops: Vec<usize> = match dim {
        Some(d) => vec![d],
        None => (s.rank..s.extents.len())
            .filter(|i| l.layout.get(*i).is_some_and(|l| clash(&l.atoms, over)))
            .collect(),
    };
    for part in s.reads.iter().flat_map(|r| &r.parts) {
        let Source::Value(from) = part.from else { continue };
        let dims = &p.slots[from].layout.dims;
        let split = |d: &usize| clash(&dims[*d].atoms, over);
        let reads = |d: &usize| {
            s.body.renames() || part.map.get(*d).is_some_and(|m| m.terms.iter().any(|t| loops.contains(&t.0)))
        };
        if let Some(d) = (0..dims.len()).filter(split).find(reads) {
            return Some((from, Some(d)));
        }
        let partial = p.slots[from].layout.partial.as_ref();
        if dim.is_none() && loops.is_empty() && partial.is_some_and(|x| clash(&x.1, over)) {
            return Some((from, None));
        }
    }
    None
}

/// The value outside that input `number` of the n-th program inside a step is, and whether it is a slice of it.
fn given(step: &Step, n: usize, number: usize) -> Option<(Slot, bool)> {
    match step {
        Step::Loop { fixed, carry, xs, .. } => {
            let k = number.checked_sub(1)?;
            let whole = fixed.iter().chain(carry).nth(k).map(|s| (*s, false));
            whole.or_else(|| Some((*xs.get(k.checked_sub(fixed.len() + carry.len())?)?, true)))
        }
        Step::While { cond_fixed, body_fixed, carry, .. } => {
            let fixed = if n == 0 { cond_fixed } else { body_fixed };
            fixed.iter().chain(carry).nth(number).map(|s| (*s, false))
        }
        Step::Branch { ins, .. } => ins.get(number).map(|s| (*s, false)),
        Step::Fetch { .. } | Step::Local { .. } | Step::Reduce { .. } | Step::Print { .. } => None,
    }
}

/// Which program inside a step makes this value, which of its results, and whether these are stacked.
fn result(step: &Step, slot: Slot) -> Option<(usize, usize, bool)> {
    let of = |list: &[Slot]| list.iter().position(|s| *s == slot);
    match step {
        Step::Loop { out, ys, .. } => {
            of(out).map(|k| (0, k, false)).or_else(|| Some((0, out.len() + of(ys)?, true)))
        }
        Step::While { out, .. } => of(out).map(|k| (1, k, false)),
        Step::Branch { out, .. } => of(out).map(|k| (0, k, false)),
        Step::Fetch { .. } | Step::Local { .. } | Step::Reduce { .. } | Step::Print { .. } => None,
    }
}

/// The results that a value becomes: itself, or what elementwise operations and views make of it.
fn becomes(p: &SpmdProgram, slot: Slot) -> Vec<usize> {
    let mut of = vec![false; p.slots.len()];
    of[slot] = true;
    for step in &p.steps {
        if let Some(l) = step.local()
            && (l.sentence.body.elementwise().is_some() || l.sentence.body.renames())
            && step.inputs().iter().any(|s| of[*s])
        {
            of[l.out] = true;
        }
    }
    (0..p.outs.len()).filter(|k| of[p.outs[*k]]).collect()
}
