//! Planning: what is stored, where blocks begin, where loops run, what is fetched.

use super::choose::Placer;
use super::draft::Draft;
use super::{Localised, Slot, Step, Why, fetch, frames, hoist, names, views};
use crate::diagnostic::Result;
use crate::program::sentence::{Arg, Body, Combine, Fun, Sentence, Source, Span};
use crate::sharding::atoms::{Atom, Atoms};
use crate::types::{DType, Scalar};

/// A finished program.
pub(super) struct Planned {
    pub(super) localised: Localised,
    /// Inputs that are to lie otherwise than the draft said, and whose sake it is for.
    pub(super) adopted: Vec<(Slot, Why)>,
}

/// Decides everything that a draft leaves open.
pub(super) fn plan(mut d: Draft) -> Result<Planned> {
    let vias = views::resolve(&mut d);
    views::absorb(&mut d);
    frames::choose(&mut d);
    let items = std::mem::take(&mut d.items);
    let mut placer = Placer::new(d);
    for item in items {
        match item.step {
            Step::Local { out, ref sentence, .. } => {
                let sentence = sentence.clone();
                placer.place(item, out, sentence);
            }
            _ => placer.d.items.push(item),
        }
    }
    let Placer { mut d, halves, .. } = placer;
    let adopted = hoist::adopt(&mut d);
    fetch::insert(&mut d);
    let prices = std::mem::take(&mut d.prices);
    let (program, notes) = d.finish();
    #[cfg(debug_assertions)]
    if let Err(wrong) = super::check::check(&program) {
        let what = format!("the per-device program is not sound (please report this): {wrong}\n{program}");
        return Err(crate::Error::other(what));
    }
    let collectives = names::collectives(&program, &notes, &vias, &halves, &prices);
    Ok(Planned { localised: Localised { program, collectives }, adopted })
}

/// Whether two sets of digits can't be in one layout.
pub(super) fn clash(a: &[Atom], b: &[Atom]) -> bool {
    a.iter().any(|x| b.iter().any(|y| x.clashes(*y)))
}

/// Digits up to the first that is in use.
pub(super) fn cut(a: &[Atom], used: &[Atom]) -> Atoms {
    a.iter().copied().take_while(|x| !clash(&[*x], used)).collect()
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
pub(super) fn in_parts(mut s: Sentence, n: usize) -> Sentence {
    let Body::Map(mut code) = s.body else { return s };
    let index = s.extents.len();
    s.extents.push(n);
    for p in s.reads.iter_mut().flat_map(|r| &mut r.parts) {
        p.span.push(Span::all(n));
    }
    let value = Arg::Inst(code.insts.len() - 1);
    let at = [Arg::Index(index), Arg::Const(Scalar::Int(0))];
    let first = code.push(Fun::Eq, DType::I64, DType::Bool, &at);
    code.push(Fun::Select, s.dtype, s.dtype, &[first, value, Arg::Const(Scalar::zero(s.dtype))]);
    s.body = Body::Fold { combine: Combine::Add, code };
    s
}
