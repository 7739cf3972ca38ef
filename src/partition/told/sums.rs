//! Lines of the report for parts that are combined.

use super::names::{Namer, axes_of, listed};
use crate::mesh::Axes;
use crate::partition::draft::copy;
use crate::partition::price::prices;
use crate::partition::price::reader::{Fetch, Reader};
use crate::partition::program::{Slot, Step, Why};
use crate::partition::report::{Collective, Kind};
use crate::partition::route;
use crate::program::sentence::Combine;
use crate::sharding::atoms::{Atom, without};

impl Namer<'_> {
    /// What combining the parts of a value moves by itself.
    pub(super) fn reduce(&self, k: usize, src: Slot, out: Slot, combine: Combine) -> Option<Collective> {
        let p = self.p;
        let stored = &p.slots[src];
        let copies = if p.own_part(src) { 1 } else { p.parts_gone(src, out).ways() as i64 };
        let sentence = copy(src, stored.dtype, &stored.shape);
        let reader = Reader { sentence: &sentence, read: 0, layout: &p.slots[out].layout.dims };
        let fetch = Fetch { devices: p.devices, slot: src, stored, readers: &[reader], copies };
        let small = route::cost(p.devices, stored, &p.slots[out].layout);
        let c = small.unwrap_or_else(|| self.prices.of(&fetch));
        if c.total == 0 {
            return None;
        }
        let parts = |s: Slot| p.slots[s].layout.partial.as_ref().map(|x| x.1.clone()).unwrap_or_default();
        let stay = parts(out);
        let gone = without(&parts(src), &stay).unwrap_or_default();
        // where it ends up: behind the second half, if this is the first
        let end = self.halves.iter().find(|h| h.0 == out).map_or(out, |h| h.1);
        let used = |a: &Atom| p.slots[end].layout.dims.iter().any(|l| l.atoms.iter().any(|b| a.clashes(*b)));
        let scattered = gone.iter().any(used);
        let axes = axes_of(self.mesh(), &gone);
        let finds = self.maker(src).is_some_and(|k| p.steps[k].sentence().is_some_and(|s| s.body.finds()));
        let (what, how) = match combine {
            _ if finds => ("what each device has of it is", "put together"),
            Combine::Add => ("partial sums are", "added"),
            Combine::Mul => ("partial products are", "multiplied"),
            Combine::Max => ("the largest of each part are", "compared"),
            Combine::Min => ("the smallest of each part are", "compared"),
            Combine::And | Combine::Or => ("partial results are", "combined"),
            Combine::Same => ("one of them is", "sent"),
        };
        let ending = match (combine, scattered) {
            (Combine::Same, _) => "where another block of it is read",
            (_, true) => "and each device keeps its block",
            (_, false) => "on all devices",
        };
        let cause = match combine {
            Combine::Same => self.promise(src, &axes),
            _ => self.cause(src, &axes, &p.whys[k]),
        };
        let (mut kind, mut axes_named) = (
            match (combine, scattered) {
                (Combine::Same, _) => Kind::Exchange,
                (_, true) => Kind::ReduceScatter,
                (_, false) => Kind::AllReduce,
            },
            axes,
        );
        if let Some((asked, over)) = &self.notes[k].user
            && matches!(asked, Kind::AllReduce | Kind::ReduceScatter)
        {
            (kind, axes_named) = (*asked, over.clone());
        }
        let why = &p.whys[k];
        let size = stored.dtype.size() as u64;
        let mut key = Vec::new();
        prices::write(&mut key, &fetch);
        for s in [src, out] {
            prices::digits(&mut key, &parts(s));
        }
        let look = || match small {
            Some(_) => self.looks.small(&[k]),
            None => self.looks.combined(src, out),
        };
        let seen = self.looks.seen(key, look);
        let reason = format!("{cause}: {what} {how} {ending}");
        let asked = self.notes[k].user.is_some();
        let before = self.notes[k].before.clone();
        Some(Collective { asked, before, ..listed(k, (kind, axes_named), &c, size, &seen, why, reason) })
    }

    /// Makes the line of one small sum that of all that go with it in one exchange.
    pub(super) fn all_of(&self, together: &[usize], c: &mut Collective) {
        let [first, others @ ..] = together else { return };
        if others.is_empty() {
            return;
        }
        let p = self.p;
        let mut elements = 0;
        c.total_bytes = 0;
        for k in together {
            let Step::Reduce { src, out, .. } = &p.steps[*k] else { continue };
            let (stored, to) = (&p.slots[*src], &p.slots[*out].layout);
            let (Some((route, more)), Some(cost)) =
                (route::small(stored, to), route::cost(p.devices, stored, to))
            else {
                continue;
            };
            let size = stored.dtype.size() as u64;
            elements += more;
            c.bytes = (route.busiest(elements) as u64).saturating_mul(size);
            c.total_bytes = c.total_bytes.saturating_add((cost.total as u64).saturating_mul(size));
        }
        let seen = self.looks.small(together);
        (c.messages, c.counted) = (seen.messages, seen.counted);
        let mut names: Vec<String> = Vec::new();
        for why in others.iter().map(|k| &p.whys[*k]) {
            let line = why.place.filter(|place| Some(*place) != p.whys[*first].place);
            let at = line.map(|place| format!(" of line {}", place.line())).unwrap_or_default();
            let name = format!("{}{at}", why.op);
            if !names.contains(&name) {
                names.push(name);
            }
        }
        c.reason = format!("{}; in one exchange with {}", c.reason, names.join(", "));
    }

    /// The step that makes a value.
    fn maker(&self, v: Slot) -> Option<usize> {
        self.makers[v]
    }
    /// Who says that all parts of a value are the same.
    fn promise(&self, src: Slot, axes: &Axes) -> String {
        let by = self.maker(src).map_or("the program", |k| &self.p.whys[k].op);
        format!("{by} says that devices along {axes} have the same")
    }
    /// Why a value is partial.
    fn cause(&self, src: Slot, axes: &Axes, asks: &Why) -> String {
        // parts that were added up are those of what was added
        let mut src = src;
        while let Some(l) = self.maker(src).and_then(|k| self.p.steps[k].local())
            && l.sentence.body.elementwise().is_some()
            && l.sentence.extents.len() == l.sentence.rank
            && let Some(from) = l.sentence.reads.iter().find_map(|r| r.sources().first().copied())
            && self.p.slots[from].layout.partial == self.p.slots[src].layout.partial
        {
            src = from;
        }
        let Some(k) = self.maker(src) else { return format!("the value is unreduced over {axes}") };
        if self.notes[k].user.is_some() {
            return format!("the program calls {} over {axes}", self.p.whys[k].op);
        }
        let made = &self.p.whys[k];
        match self.p.steps[k].sentence() {
            // another operation asks for the sum
            Some(sentence) if sentence.body.contracts() && made.op != asks.op => {
                format!("{} contracts a dimension that is sharded over {axes}", made.op)
            }
            Some(sentence) if sentence.body.contracts() => {
                format!("the contracting dimension is sharded over {axes}")
            }
            Some(sentence) if sentence.extents.len() > sentence.rank => {
                format!("a dimension that {} runs over is sharded over {axes}", self.p.whys[k].op)
            }
            Some(_) | None => format!("the value is unreduced over {axes}"),
        }
    }
}
