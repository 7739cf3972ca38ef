//! Planning: where the loops of each step run, which values are stored, and what is fetched.

use super::draft::{self, Draft, Item};
use super::lower::{copied, sorted};
use super::reads::{is_identity, sources};
use super::{Collectives, DimLayout, Layout, Localised, Slot, SpmdProgram, Step, Stored, fetch};
use crate::diagnostic::Result;
use crate::program::sentence::{Arg, Body, Combine, Fun, Read, Sentence, Source, Span};
use crate::sharding::atoms::{Atom, Atoms, ways};
use crate::types::Scalar;

/// Decides everything that a draft leaves open.
pub(super) fn plan(mut d: Draft) -> Result<Localised> {
    let items = std::mem::take(&mut d.items);
    for item in items {
        match item.step {
            Step::Local { out, ref sentence, .. } => {
                let sentence = sentence.clone();
                place(&mut d, item, out, sentence);
            }
            _ => d.items.push(item),
        }
    }
    let mut program = SpmdProgram::from(d);
    fetch::insert(&mut program);
    Ok(Localised { program, collectives: Collectives::default() })
}

/// Whether two sets of digits can't be in one layout.
pub(super) fn clash(a: &[Atom], b: &[Atom]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.clashes(*y)))
}

/// Digits up to the first that is in use.
pub(super) fn cut(a: &[Atom], used: &[Atom]) -> Atoms {
    a.iter().copied().take_while(|x| !clash(&[*x], used)).collect()
}

/// Lays a local step out: where its result lies, with folded loops split as its operands are.
fn place(d: &mut Draft, mut item: Item, out: Slot, mut s: Sentence) {
    let own = d.slots[out].layout.clone();
    let wanted = own.partial.clone().map(|p| p.1).unwrap_or_default();
    // parts of operands: they stay parts where the result is in the same ones, and are combined before otherwise
    let mut kept = Atoms::new();
    for k in 0..s.reads.len() {
        for src in sources(&s.reads[k]) {
            let Some((combine, parts)) = d.slots[src].layout.partial.clone() else { continue };
            if parts.iter().all(|a| wanted.contains(a)) {
                kept = sorted(kept.into_iter().chain(parts).collect());
                continue;
            }
            let whole = copied(&s).is_some() && is_identity(&s.reads[k], &s.extents, &d.slots[src].shape);
            if whole {
                item.step = Step::Reduce { src, out, combine };
                d.items.push(item);
                return;
            }
            let layout = Layout { partial: None, ..d.slots[src].layout.clone() };
            let Stored { dtype, shape, .. } = d.slots[src].clone();
            let settled = d.slot(dtype, shape, layout);
            d.items.push(Item::new(Step::Reduce { src, out: settled, combine }, item.why.clone()));
            replace(&mut s, src, settled);
        }
    }
    let missing: Atoms = wanted.iter().copied().filter(|a| !kept.contains(a)).collect();
    if !missing.is_empty() && s.extents.len() == s.rank {
        s = in_parts(s, ways(&missing));
    }
    let rank = s.rank;
    let mut used: Atoms = kept.clone();
    let mut folded: Vec<DimLayout> = Vec::new();
    let mut left = missing.clone();
    for l in rank..s.extents.len() {
        let mut atoms = split_of(d, &s, l);
        if !wanted.is_empty() {
            atoms.retain(|a| left.contains(a));
            left.retain(|a| !atoms.contains(a));
        }
        let atoms = cut(&atoms, &used);
        used.extend(atoms.iter().copied());
        folded.push(DimLayout::new(s.extents[l], atoms));
    }
    if let (Some(first), false) = (folded.first_mut(), left.is_empty()) {
        // the type says it is in parts, and no operand says how: the first folded loop is split
        let atoms: Atoms = first.atoms.iter().copied().chain(left).collect();
        *first = DimLayout::new(s.extents[rank], atoms);
    }
    let parts = sorted(folded.iter().flat_map(|l| l.atoms.iter().copied()).chain(kept).collect());
    let combine = match s.body {
        Body::Fold { combine, .. } => combine,
        _ => Combine::Add,
    };
    let dims = (own.dims.iter().zip(&s.extents)).map(|(l, n)| {
        let atoms = cut(&l.atoms, &parts);
        if atoms == l.atoms { l.clone() } else { DimLayout::new(*n, atoms) }
    });
    let at = Layout { dims: dims.collect(), partial: (!parts.is_empty()).then_some((combine, parts)) };
    let layout: Vec<DimLayout> = at.dims.iter().cloned().chain(folded).collect();
    let why = item.why.clone();
    if at == own {
        item.step = Step::Local { out, sentence: s, layout };
        d.items.push(item);
        return;
    }
    let Stored { dtype, shape, .. } = d.slots[out].clone();
    let tmp = d.slot(dtype, shape.clone(), at.clone());
    let user = item.user.clone();
    item.step = Step::Local { out: tmp, sentence: s, layout };
    d.items.push(item);
    let last = if at.partial.is_some() {
        Item { user, ..Item::new(Step::Reduce { src: tmp, out, combine }, why) }
    } else {
        let sentence = draft::copy(tmp, dtype, &shape);
        Item::new(Step::Local { out, sentence, layout: own.dims }, why)
    };
    d.items.push(last);
}

/// Reads `to` wherever the sentence reads `from`.
pub(super) fn replace(s: &mut Sentence, from: Slot, to: Slot) {
    for p in s.reads.iter_mut().flat_map(|r| &mut r.parts) {
        if p.from == Source::Value(from) {
            p.from = Source::Value(to);
        }
    }
}

/// A sentence over elements as one in `n` parts: the first is the value, the others are zero.
fn in_parts(mut s: Sentence, n: usize) -> Sentence {
    let Body::Map(mut code) = s.body else { return s };
    let index = s.extents.len();
    s.extents.push(n);
    for p in s.reads.iter_mut().flat_map(|r| &mut r.parts) {
        p.span.push(Span::all(n));
    }
    let value = Arg::Inst(code.insts.len() - 1);
    let first = code.push(
        Fun::Eq,
        crate::DType::I64,
        crate::DType::Bool,
        &[Arg::Index(index), Arg::Const(Scalar::Int(0))],
    );
    code.push(Fun::Select, s.dtype, s.dtype, &[first, value, Arg::Const(Scalar::zero(s.dtype))]);
    s.body = Body::Fold { combine: Combine::Add, code };
    s
}

/// The digits that split what operands hold along a loop: the first operand's that is split there.
fn split_of(d: &Draft, s: &Sentence, l: usize) -> Atoms {
    let along = |r: &Read| {
        let [p] = &r.parts[..] else { return None };
        let Source::Value(src) = p.from else { return None };
        let dim = p.map.iter().position(|m| m.at == 0 && m.terms[..] == [(l, 1)])?;
        let held = &d.slots[src];
        (held.shape[dim] == s.extents[l]).then(|| held.layout.dims[dim].atoms.clone())
    };
    s.reads.iter().filter_map(along).find(|a| !a.is_empty()).unwrap_or_default()
}
