//! Names of what is communicated: read off the digits that are held and wanted, or off the user's own collectives.

use crate::mesh::{Axes, Axis, Mesh};
use crate::partition::draft::{Note, Via};
use crate::partition::layout::DimLayout;
use crate::partition::memory::Holds;
use crate::partition::pieces::Piece;
use crate::partition::price::cost::Cost;
use crate::partition::price::factors::{Factor, factored};
use crate::partition::price::prices;
use crate::partition::price::prices::Prices;
use crate::partition::price::reader::{Fetch, Reader, distinct};
use crate::partition::program::{Local, Need, Slot, SpmdProgram, Step, Stored, Why};
use crate::partition::region::volume;
use crate::partition::report::{Collective, Collectives, Kind, Part};
use crate::partition::told::seen::{Looks, Seen};
use crate::program::sentence::Source;
use crate::sharding::atoms::{Atom, Atoms, touched_axes, ways};
use crate::sorted;

/// All collectives of a program, with those of the programs inside, and the most bytes on a device.
pub(crate) fn collectives(
    p: &SpmdProgram,
    notes: &[Note],
    vias: &[Option<Via>],
    halves: &[(Slot, Slot)],
    prices: &Prices,
) -> Collectives {
    let mut makers = vec![None; p.slots.len()];
    for (k, l) in p.steps.iter().enumerate().filter_map(|(k, s)| Some((k, s.local()?))).rev() {
        makers[l.out] = Some(k);
    }
    let namer = Namer { p, notes, vias, halves, prices, makers, looks: Looks::at(p) };
    let mut list: Vec<Collective> = Vec::new();
    // the first half of an all-reduce, by the value between the halves
    let mut open: Vec<(Slot, usize)> = Vec::new();
    let mut inside = Vec::new();
    for (k, step) in p.steps.iter().enumerate() {
        for (n, (c, times)) in notes[k].inside.iter().enumerate() {
            list.extend(c.list.iter().map(|c| {
                let path = [&[(k, n)], &c.path[..]].concat();
                Collective { times: c.times.saturating_mul(*times), path, ..c.clone() }
            }));
        }
        inside.push(notes[k].inside.iter().map(|(c, _)| c.holds.clone()).collect());
        match step {
            Step::Fetch { src, needs } => {
                let Some(c) = namer.fetch(k, *src, needs) else { continue };
                match open.iter().find(|o| o.0 == *src) {
                    Some((_, first)) => {
                        let all = &mut list[*first];
                        all.bytes = all.bytes.saturating_add(c.bytes);
                        all.total_bytes = all.total_bytes.saturating_add(c.total_bytes);
                        all.messages += c.messages;
                        all.exact &= c.exact;
                        all.counted &= c.counted;
                    }
                    None => list.push(c),
                }
            }
            Step::Reduce { src, out, combine } => {
                let Some(mut c) = namer.reduce(k, *src, *out, *combine) else { continue };
                let together = p.together(k);
                if together.is_empty() && p.is_small(k) {
                    // told where its exchange begins
                    continue;
                }
                namer.all_of(&together, &mut c);
                if halves.iter().any(|h| h.0 == *out) {
                    open.push((*out, list.len()));
                }
                list.push(c);
            }
            // these move nothing themselves; what is nested in them was listed above
            Step::Local { .. }
            | Step::Loop { .. }
            | Step::While { .. }
            | Step::Branch { .. }
            | Step::Print { .. } => {}
        }
    }
    let (fetched, exact) = namer.fetched();
    let holds = Holds::new(p, fetched, inside, exact);
    let (peak_bytes, exact) = holds.peak(p, &[]);
    Collectives { list, peak_bytes, estimated: !exact, holds }
}

pub(super) struct Namer<'a> {
    pub(super) p: &'a SpmdProgram,
    pub(super) notes: &'a [Note],
    vias: &'a [Option<Via>],
    pub(super) halves: &'a [(Slot, Slot)],
    pub(super) prices: &'a Prices,
    /// The local step that makes each value.
    pub(super) makers: Vec<Option<usize>>,
    pub(super) looks: Looks<'a>,
}

/// A line of the report of step `k`: what moves and what it costs, of elements of `size` bytes, and who asked for it.
pub(super) fn listed(
    k: usize,
    named: (Kind, Axes),
    c: &Cost,
    size: u64,
    seen: &Seen,
    why: &Why,
    reason: String,
) -> Collective {
    Collective {
        kind: named.0,
        axes: named.1,
        bytes: (c.max as u64).saturating_mul(size),
        total_bytes: (c.total as u64).saturating_mul(size),
        exact: c.exact,
        messages: seen.messages,
        counted: seen.counted,
        times: 1,
        op: why.op.clone(),
        source: why.place,
        phase: why.phase,
        asked: false,
        reason,
        part: Part::Sum,
        sake: None,
        before: None,
        path: vec![(k, 0)],
    }
}

/// A kind of exchange with its digits.
struct Name {
    kind: Kind,
    digits: Atoms,
    reason: String,
}

impl Namer<'_> {
    pub(super) fn mesh(&self) -> Option<&Mesh> {
        self.p.mesh.as_ref()
    }

    /// What a fetch moves.
    fn price(&self, src: Slot, needs: &[Need]) -> (Vec<Reader<'_>>, Cost) {
        let readers = distinct(needs.iter().filter_map(|n| self.reader(n)));
        let cost = self.prices.of(&self.asks(src, &readers));
        (readers, cost)
    }
    fn asks<'r>(&'r self, src: Slot, readers: &'r [Reader<'r>]) -> Fetch<'r> {
        Fetch { devices: self.p.devices, slot: src, stored: &self.p.slots[src], readers, copies: 1 }
    }

    fn fetch(&self, k: usize, src: Slot, needs: &[Need]) -> Option<Collective> {
        let p = self.p;
        let stored = &p.slots[src];
        let (readers, c) = self.price(src, needs);
        if c.total == 0 {
            return None;
        }
        let mut key = Vec::new();
        prices::write(&mut key, &self.asks(src, &readers));
        let seen = self.looks.seen(key, || self.looks.fetched(src, needs));
        let first = needs.first()?.reader;
        let mut why = p.whys[first].clone();
        let size = stored.dtype.size() as u64;
        let called = self.asked(src, needs);
        let asked = called.is_some() || self.notes[first].pinned || self.notes[first].asked;
        let (kind, axes, reason) = match called {
            Some((kind, axes, by)) => {
                let reason = format!("the program calls {} over {axes}", by.op);
                why = by;
                (kind, axes, reason)
            }
            None => {
                let name = self.named(src, (k, &seen), &readers, c.total, first);
                (name.kind, axes_of(self.mesh(), &name.digits), name.reason)
            }
        };
        let (sake, before) = (self.notes[first].sake.clone(), self.notes[first].before.clone());
        let part = match p.steps[first].sentence() {
            Some(s) if s.copied().is_some() => Part::Result,
            Some(_) | None => Part::Operand(needs.first()?.read),
        };
        let told = listed(k, (kind, axes), &c, size, &seen, &why, reason);
        Some(Collective { asked, part, sake, before, ..told })
    }

    fn reader(&self, n: &Need) -> Option<Reader<'_>> {
        let Local { sentence, layout, .. } = self.p.steps[n.reader].local()?;
        Some(Reader { sentence, read: n.read, layout })
    }

    /// The collective that the user asked for and that makes a reader need the value, if that is why.
    fn asked(&self, src: Slot, needs: &[Need]) -> Option<(Kind, Axes, Why)> {
        let moves = |u: &(Kind, Axes)| matches!(u.0, Kind::AllGather | Kind::AllToAll | Kind::Permute);
        for n in needs {
            let note = &self.notes[n.reader];
            if let Some(u) = note.user.clone().filter(moves) {
                return Some((u.0, u.1, self.p.whys[n.reader].clone()));
            }
            for via in note.through.iter().filter_map(|s| self.vias[*s].as_ref()) {
                if let Some(u) = via.item.user.clone().filter(moves)
                    && via.read.sources().contains(&src)
                {
                    return Some((u.0, u.1, via.item.why.clone()));
                }
            }
        }
        None
    }

    /// The name of what these readers need together.
    fn named(
        &self,
        src: Slot,
        (k, seen): (usize, &Seen),
        readers: &[Reader],
        total: i64,
        first: usize,
    ) -> Name {
        let stored = &self.p.slots[src];
        let (op, note) = (&self.p.whys[first].op, &self.notes[first]);
        let copies = || self.p.steps[first].sentence().is_some_and(|s| s.copied().is_some());
        let asks = note.pinned || note.asked && copies();
        let mut names: Vec<Name> = Vec::new();
        for r in readers {
            let Some(name) = single(src, stored, r, self.mesh(), op, asks) else {
                continue;
            };
            // one reader that needs all that the others need names the whole
            let alone = readers.len() == 1 || self.prices.total(&self.asks(src, &[*r])).0 == total;
            if alone {
                return name;
            }
            names.push(name);
        }
        if names.len() == readers.len()
            && names.windows(2).all(|w| w[0].kind == w[1].kind && w[0].digits == w[1].digits)
            && let Some(name) = names.pop()
        {
            return name;
        }
        let looked = seen.pieces(self.p, k);
        let digits = between(self.mesh(), looked);
        let axes = axes_of(self.mesh(), &digits);
        let whole = |(_, pieces): &(usize, Vec<Piece>)| {
            let moved: i64 = pieces.iter().map(|x| volume(&x.region)).sum();
            pieces.first().is_none_or(|x| moved == volume(&stored.layout.region(&stored.shape, x.from)))
        };
        if seen.most <= 1 && looked.iter().all(whole) {
            let reason = format!("{op} reads blocks of other devices along {axes}");
            return Name { kind: Kind::Permute, digits, reason };
        }
        if readers.iter().all(|r| is_halo(src, stored, r)) {
            let reason = format!("{op} reads beyond the edges of blocks along {axes}");
            return Name { kind: Kind::Halo, digits, reason };
        }
        let most = seen.most;
        let reason = format!("{op} reads regions of other devices along {axes}: from up to {most} of them");
        Name { kind: Kind::Exchange, digits, reason }
    }

    /// What each step brings, and whether no figure is an estimate.
    fn fetched(&self) -> (Vec<u64>, bool) {
        let mut exact = true;
        let brings = |step: &Step| {
            let Some((src, needs)) = step.fetches() else { return 0 };
            let (_, c) = self.price(src, needs);
            exact &= c.exact;
            (c.max as u64).saturating_mul(self.p.slots[src].dtype.size() as u64)
        };
        (self.p.steps.iter().map(brings).collect(), exact)
    }
}

/// The name of what one reader needs, from digits alone; `None` where they do not say.
fn single(
    src: Slot,
    stored: &Stored,
    r: &Reader,
    mesh: Option<&Mesh>,
    op: &str,
    asks_for: bool,
) -> Option<Name> {
    let factors = factored(src, stored, r, false)?;
    let cuts: Vec<(Atoms, Atoms)> = factors
        .iter()
        .map(|f| {
            let same = f.held.iter().zip(&f.wanted).take_while(|(a, b)| a == b).count();
            (f.held[same..].iter().copied().collect(), f.wanted[same..].iter().copied().collect())
        })
        .collect();
    let list = |pick: fn(&(Atoms, Atoms)) -> &Atoms| -> Atoms {
        cuts.iter().flat_map(|c| pick(c).iter().copied()).collect()
    };
    let (gone, new) = (list(|c| &c.0), list(|c| &c.1));
    if gone.is_empty() {
        return None;
    }
    let named = |a: &Atoms| axes_of(mesh, a);
    let dim = |pick: fn(&(Atoms, Atoms)) -> &Atoms| {
        cuts.iter().position(|c| !pick(c).is_empty()).map_or(0, |k| factors[k].dim)
    };
    let asks = |what: String| {
        if asks_for {
            format!("{op} asks for the value {what}")
        } else {
            format!("{op} reads the value {what}")
        }
    };
    let whole = |f: &Factor, c: &(Atoms, Atoms)| c.0.len() == f.held.len();
    let (kind, digits, reason) = if new.is_empty() {
        let what =
            format!("unsharded along dimension {}, which is sharded over {}", dim(|c| &c.0), named(&gone));
        (Kind::AllGather, gone, asks(what))
    } else if let Some(over) = swapped(&cuts) {
        let (from, to) = (dim(|c| &c.0), dim(|c| &c.1));
        let what =
            format!("sharded over {} along dimension {to}, but it is along dimension {from}", named(&over));
        (Kind::AllToAll, over, asks(what))
    } else if factors.iter().all(|f| ways(&f.held) == ways(&f.wanted)) {
        let all: Atoms = gone.iter().chain(&new).copied().collect();
        let what = format!("in other blocks of the same size, along {}", named(&all));
        (Kind::Permute, all, asks(what))
    } else if new.iter().all(|a| factors.iter().flat_map(|f| &f.held).all(|b| !a.clashes(*b)))
        && factors.iter().zip(&cuts).all(|(f, c)| whole(f, c) || c.0.is_empty() || c.1.is_empty())
    {
        // the part that is wanted is cut off first
        let what =
            format!("unsharded along dimension {}, which is sharded over {}", dim(|c| &c.0), named(&gone));
        (Kind::AllGather, gone, asks(what))
    } else {
        let all: Atoms = gone.iter().chain(&new).copied().collect();
        let what = format!("sharded over {}, but it is sharded over {}", named(&new), named(&gone));
        (Kind::Exchange, all, asks(what))
    };
    Some(Name { kind, digits, reason })
}

/// The digits that leave some dimensions and come to others, if they are the same ones.
fn swapped(cuts: &[(Atoms, Atoms)]) -> Option<Atoms> {
    let mut gone: Vec<Atom> = cuts.iter().flat_map(|c| c.0.iter().copied()).collect();
    let mut new: Vec<Atom> = cuts.iter().flat_map(|c| c.1.iter().copied()).collect();
    let over: Atoms = gone.iter().copied().collect();
    sorted::sort(&mut gone);
    sorted::sort(&mut new);
    let from = cuts.iter().filter(|c| !c.0.is_empty()).count();
    let to = cuts.iter().filter(|c| !c.1.is_empty()).count();
    let apart = cuts.iter().all(|c| c.0.is_empty() || c.1.is_empty());
    (gone == new && apart && from == 1 && to == 1).then_some(over)
}

/// Whether a reader needs its own blocks and something beyond their edges: same digits and the same slope in each split dimension.
fn is_halo(src: Slot, stored: &Stored, r: &Reader) -> bool {
    let parts = r.sentence.reads[r.read].parts.iter().filter(|p| p.from == Source::Value(src));
    let along =
        |l: &DimLayout, m: &crate::program::sentence::Affine, spans: &[crate::program::sentence::Span]| {
            if l.atoms.is_empty() {
                return true;
            }
            let mut split = m.terms.iter().filter(|t| !r.layout[t.0].atoms.is_empty());
            let Some((k, c)) = split.next() else { return false };
            let reader = &r.layout[*k];
            split.next().is_none()
                && reader.atoms == l.atoms
                && (reader.block * c - l.block * spans[*k].step).abs() <= l.block / 2
        };
    r.sentence.body.reads_by_position()
        && parts.into_iter().all(|p| p.map.iter().zip(&stored.layout.dims).all(|(m, l)| along(l, m, &p.span)))
}

/// The digits in which senders and receivers differ: whole axes.
fn between(mesh: Option<&Mesh>, looked: &[(usize, Vec<Piece>)]) -> Atoms {
    let Some(mesh) = mesh else { return Atoms::new() };
    let axis = |a: Axis| Atom { stride: mesh.step(a), size: mesh.extent(a) };
    let differs = |a: &Atom| {
        looked.iter().any(|(device, pieces)| pieces.iter().any(|x| a.digit(x.from) != a.digit(*device)))
    };
    mesh.axis_names().iter().map(|a| axis(*a)).filter(|a| a.size > 1 && differs(a)).collect()
}

pub(super) fn axes_of(mesh: Option<&Mesh>, digits: &[Atom]) -> Axes {
    mesh.map_or_else(Axes::none, |mesh| touched_axes(mesh, digits))
}
