//! What to write instead of operands that are sharded differently.

use super::Rule;
use super::entries::Holder;
use crate::diagnostic::Fault;
use crate::mesh::{Axes, Axis};
use crate::program::factors::{At, LoopId};
use crate::sharding::Spec;

/// How to reshard these operands, by number: all that one mend takes.
pub(crate) fn resharded(list: &[(usize, Spec)]) -> String {
    if let [(k, to)] = list {
        return format!("reshard operand {k}: `.reshard({to})`");
    }
    let each: Vec<String> = list.iter().map(|(k, to)| format!("operand {k} by `.reshard({to})`")).collect();
    match each.split_last() {
        Some((last, before)) => format!("reshard {} and {last}", before.join(", ")),
        None => String::new(),
    }
}

impl Rule<'_> {
    /// How to make a dimension of an operand sharded as given.
    pub(super) fn reshard(&self, operand: usize, dim: usize, entry: &Axes) -> String {
        let o = &self.operands[operand];
        let spec = o.told().spec.with_dim(o.dim(dim), entry);
        match self.operands.len() {
            1 => format!("reshard it first: `.reshard({spec})`"),
            _ => resharded(&[(o.number(operand), spec)]),
        }
    }
    /// The refusal of two dimensions that must match: each mend shards all operands like one of the two.
    pub(super) fn unlike(&self, a: &Holder, b: &Holder, what: &str) -> Fault {
        let (one, two) = (self.tell(a.operand, a.dim), self.tell(b.operand, b.dim));
        let fault =
            self.refuse(format!("{one} and {two} {what}")).dim(a.operand, a.dim).dim(b.operand, b.dim);
        let mut mends: Vec<String> = Vec::new();
        for model in [b, a] {
            mends.extend(self.like(model.operand).and_then(|list| self.written(list)));
        }
        if mends.is_empty() {
            let none = |h: &Holder| {
                let o = &self.operands[h.operand];
                (o.number(h.operand), o.told().spec.with_dim(o.dim(h.dim), &Axes::none()))
            };
            mends.push(resharded(&[none(a), none(b)]));
        }
        mends.dedup();
        mends.into_iter().fold(fault, Fault::help)
    }
    /// The entries of the other operands as this one's are where they meet, of those that are sharded otherwise; `None` where one cannot.
    fn like(&self, model: usize) -> Option<Vec<(usize, Vec<Axes>)>> {
        let mut list = Vec::new();
        for (k, o) in self.operands.iter().enumerate().filter(|(k, o)| *k != model && !o.literal) {
            let dims = &self.factors.operands[k];
            let met: Vec<Option<Axes>> =
                dims.iter().map(|dim| self.entry(model, &dim.loops, dim.at)).collect();
            let taken: Vec<Axis> = met.iter().flatten().flat_map(Axes::iter).collect();
            let own = |d: usize| o.ty.spec.dim(d).iter().copied().filter(|a| !taken.contains(a)).collect();
            let entries: Vec<Axes> =
                met.into_iter().enumerate().map(|(d, met)| met.unwrap_or_else(|| own(d))).collect();
            if entries.iter().zip(o.ty.shape.iter()).any(|(entry, n)| !n.is_multiple_of(self.ways(entry))) {
                return None;
            }
            if entries.iter().enumerate().any(|(d, entry)| o.ty.spec.dim(d) != entry.as_slice()) {
                list.push((k, entries));
            }
        }
        Some(list)
    }
    /// What to write so that operands have these entries.
    fn written(&self, list: Vec<(usize, Vec<Axes>)>) -> Option<String> {
        let each = |(k, entries): (usize, Vec<Axes>)| {
            let o = &self.operands[k];
            // (of indices the applied operand has a dimension more)
            let own = entries.iter().enumerate().filter(|(d, _)| o.dim(*d) < o.told().rank());
            let spec = own.fold(o.told().spec, |s, (d, entry)| s.with_dim(o.dim(d), entry));
            (o.number(k), spec)
        };
        (!list.is_empty()).then(|| resharded(&list.into_iter().map(each).collect::<Vec<_>>()))
    }
    /// The mends of an axis that would split two dimensions of a result: the operands as one of these is, so that it splits one.
    pub(super) fn apart(&self, axis: Axis) -> Vec<String> {
        let holds = |k: &usize| self.operands[*k].ty.spec.dims().iter().any(|d| d.contains(axis));
        let mends = (0..self.operands.len()).filter(holds).filter_map(|model| {
            let list = self.like(model)?;
            let entries = |k: usize| -> Vec<Axes> {
                let mended = list.iter().find(|m| m.0 == k).map(|m| m.1.clone());
                mended.unwrap_or_else(|| self.operands[k].ty.spec.dims().to_vec())
            };
            // what it splits in all operands then
            let mut over: Vec<&[LoopId]> = Vec::new();
            for (k, dims) in self.factors.operands.iter().enumerate() {
                let split = entries(k).into_iter().zip(dims).filter(|(entry, _)| entry.contains(axis));
                over.extend(split.map(|(_, dim)| &dim.loops[..]));
            }
            over.dedup();
            if over.len() == 1 { self.written(list) } else { None }
        });
        mends.collect()
    }
    /// The axes of the dimension of an operand that runs over these loops, if it has one and neither is stretched.
    fn entry(&self, operand: usize, loops: &[usize], at: At) -> Option<Axes> {
        let d = self.factors.operands[operand]
            .iter()
            .position(|d| d.loops[..] == *loops && d.at != At::Stretched)?;
        (at != At::Stretched).then(|| Axes::from(self.operands[operand].ty.spec.dim(d)))
    }
}
