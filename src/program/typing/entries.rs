//! The entries of a result: over which axes each of its dimensions is split, or why that cannot be said.

use super::advice::resharded;
use crate::diagnostic::{ErrorKind, Fault};
use crate::mesh::{Axes, Axis, Mesh};
use crate::program::Operand;
use crate::program::factors::{At, Dim, FactorLoop, Factors, Join, Linearity, LoopId, Role};
use crate::sharding::Spec;
use crate::sorted;
use crate::types::{DType, Shape};
use smallvec::SmallVec;

/// How the choice of a result's sharding is told, where the rules give none.
const SAY: &str = "say the result's sharding";

/// A dimension that carries a loop.
pub(super) struct Holder {
    pub(super) operand: usize,
    pub(super) dim: usize,
    entry: Axes,
    stretched: bool,
}

/// One equation while it is typed.
pub(super) struct Rule<'a> {
    pub(super) prim: &'a str,
    pub(super) mesh: &'a Mesh,
    pub(super) factors: &'a Factors,
    pub(super) operands: &'a [Operand],
    pub(super) shapes: &'a [(DType, Shape)],
    /// Whether it makes each element of those at the same place, of sizes that broadcast.
    pub(super) elementwise: bool,
}

impl Rule<'_> {
    /// A dimension as messages name it.
    pub(super) fn tell(&self, operand: usize, dim: usize) -> String {
        let o = &self.operands[operand];
        let (ty, d) = (o.told(), o.dim(dim));
        let axes = Axes::from(ty.spec.dim(d));
        let at = if axes.is_empty() { String::new() } else { format!("@{axes}") };
        let of = match self.operands.len() {
            1 => "the operand".into(),
            _ => format!("operand {}", o.number(operand)),
        };
        format!("dimension {d} of {of}, {}{at},", ty.shape[d])
    }
    pub(super) fn refuse(&self, message: String) -> Fault {
        Fault::new(ErrorKind::Sharding, message)
    }
    /// How many parts these axes make.
    pub(super) fn ways(&self, axes: &Axes) -> usize {
        axes.iter().map(|a| self.mesh.extent(a)).product()
    }

    /// The axes of each loop. With `out` given only loops that ask for equality are joined.
    pub(super) fn join(&self, out: bool) -> Result<Vec<Axes>, Fault> {
        let asked = |l: LoopId| !out || self.factors.loops[l].join == Some(Join::Equal);
        let mut held: Vec<SmallVec<[Holder; 2]>> =
            self.factors.loops.iter().map(|_| SmallVec::new()).collect();
        for (operand, dims) in self.factors.operands.iter().enumerate() {
            for (dim, over) in dims.iter().enumerate().filter(|(_, d)| d.loops.iter().all(|l| asked(*l))) {
                let entry = self.operands[operand].ty.spec.dim(dim);
                let stretched = over.at == At::Stretched;
                if let [l] = over.loops[..] {
                    held[l].push(Holder { operand, dim, entry: Axes::from(entry), stretched });
                    continue;
                }
                let parts = self.hand_out(operand, dim, over)?;
                for (&l, entry) in over.loops.iter().zip(parts) {
                    held[l].push(Holder { operand, dim, entry, stretched });
                }
            }
        }
        self.must_be_whole(&held)?;
        held.iter().enumerate().map(|(l, held)| self.join_one(l, held)).collect()
    }

    /// A dimension's axes to its loops, major first: a loop takes axes while more than 1 is left of it.
    fn hand_out(&self, operand: usize, dim: usize, over: &Dim) -> Result<Vec<Axes>, Fault> {
        let entry = self.operands[operand].ty.spec.dim(dim);
        let split = |why: String| {
            self.refuse(format!(
                "{} is cut into {} parts, and {why}",
                self.tell(operand, dim),
                over.loops.len()
            ))
            .help(self.reshard(operand, dim, &Axes::none()))
            .choice(SAY, self.said())
            .dim(operand, dim)
        };
        let mut axes = entry;
        let mut parts = Vec::with_capacity(over.loops.len());
        for &l in &over.loops {
            let (mut left, mut taken) = (self.factors.loops[l].size, Axes::none());
            while let (true, [axis, rest @ ..]) = (left > 1, axes) {
                let n = self.mesh.extent(*axis);
                if !left.is_multiple_of(n) {
                    return Err(split(format!("{axis} of size {n} does not divide the remaining {left}")));
                }
                (left, axes) = (left / n, rest);
                taken.push(*axis);
            }
            parts.push(taken);
        }
        match axes {
            [] => Ok(parts),
            [axis, ..] => Err(split(format!("no part is left for {axis}"))),
        }
    }

    /// The axes of one loop, from what the dimensions that carry it have.
    fn join_one(&self, l: LoopId, held: &[Holder]) -> Result<Axes, Fault> {
        // what nobody splits is whole, whatever the loop asks for
        if held.iter().all(|h| h.entry.is_empty()) {
            return Ok(Axes::none());
        }
        let sharded: Vec<&Holder> = held.iter().filter(|h| !h.entry.is_empty()).collect();
        let clash = sharded.windows(2).find(|w| w[0].entry != w[1].entry);
        let role = self.factors.role(l);
        match (self.factors.loops[l].join, role) {
            // (refused before, all of them at once)
            (Some(Join::Never), _) | (None, Role::Whole) => {}
            (Some(Join::Equal), _) => {
                let full: Vec<&Holder> =
                    held.iter().filter(|h| !(h.stretched && h.entry.is_empty())).collect();
                if let Some(w) = full.windows(2).find(|w| w[0].entry != w[1].entry) {
                    return Err(self.unlike(w[0], w[1], "must be sharded the same way"));
                }
            }
            (None, Role::Sum) => {
                if let Some(w) = clash {
                    return Err(self.unlike(w[0], w[1], "must match, but are sharded differently"));
                }
                if let [a, b, ..] = sharded[..] {
                    return Err(self.ambiguous(l, a, b));
                }
            }
            (Some(Join::First | Join::Still), _) | (None, Role::Pass | Role::Moved) => {
                if let Some(w) = clash {
                    return Err(self.unlike(w[0], w[1], "must match, but are sharded differently"));
                }
            }
        }
        let speaker = match self.factors.loops[l].join {
            Some(Join::First) => held.first(),
            _ => sharded.first().copied(),
        };
        Ok(speaker.map_or(Axes::none(), |h| h.entry.clone()))
    }

    /// Dimensions that must be unsharded are refused together: the mend of one alone would be refused for the next.
    fn must_be_whole(&self, held: &[SmallVec<[Holder; 2]>]) -> Result<(), Fault> {
        let whole = |l: LoopId| match (self.factors.loops[l].join, self.factors.role(l)) {
            (Some(Join::Never), _) | (None, Role::Whole) => true,
            (Some(Join::Equal | Join::First | Join::Still), _) | (None, _) => false,
        };
        let each = held.iter().enumerate().filter(|(l, _)| whole(*l));
        let each: Vec<(LoopId, &Holder)> = each
            .flat_map(|(l, held)| held.iter().filter(|h| !h.entry.is_empty()).map(move |h| (l, h)))
            .collect();
        if each.is_empty() {
            return Ok(());
        }
        let mut named: Vec<String> = each.iter().map(|(_, h)| self.tell(h.operand, h.dim)).collect();
        sorted::sort(&mut named);
        named.dedup();
        let mut mends: Vec<(usize, Spec)> = Vec::new();
        let mut fault = self.refuse(format!("{} must be unsharded here", named.join(" and ")));
        for (_, h) in &each {
            let o = &self.operands[h.operand];
            let (number, dim) = (o.number(h.operand), o.dim(h.dim));
            let k = mends.iter().position(|m| m.0 == number).unwrap_or_else(|| {
                mends.push((number, o.told().spec));
                mends.len() - 1
            });
            mends[k].1 = mends[k].1.with_dim(dim, &Axes::none());
            fault = fault.dim(h.operand, h.dim);
        }
        sorted::sort_by_key(&mut mends, |m| m.0);
        let mend = match (&mends[..], self.operands.len()) {
            ([(_, spec)], 1) => format!("reshard it first: `.reshard({spec})`"),
            (mends, _) => resharded(mends),
        };
        let fault = fault.help(mend);
        // where the result's sharding is said they may be sharded
        let asked = each.iter().any(|(l, _)| self.factors.loops[*l].join == Some(Join::Never));
        Err(if asked { fault.choice(SAY, self.said()) } else { fault })
    }
    /// Both operands of a sum of products are split over it: whether the result is summed, and how it is then sharded, is open.
    fn ambiguous(&self, l: LoopId, a: &Holder, b: &Holder) -> Fault {
        let (one, two) = (self.tell(a.operand, a.dim), self.tell(b.operand, b.dim));
        let axes = &a.entry;
        let mut fault = self
            .refuse(format!(
                "{one} and {two} are contracted: the result could be summed over {axes}, summed and scattered, or left unreduced"
            ))
            .dim(a.operand, a.dim)
            .dim(b.operand, b.dim);
        if let Some(usual) = self.usual(l) {
            fault = fault.choice("all-reduced", Spec::of(usual.clone()));
            let shape = &self.shapes[0].1;
            let ways = self.ways(axes);
            // a dimension that nothing splits, else one that these axes split further
            let fits = |d: &usize| shape[*d].is_multiple_of(ways * self.ways(&usual[*d]));
            let free = (0..usual.len()).find(|d| usual[*d].is_empty() && fits(d));
            let free = free.or_else(|| (0..usual.len()).find(fits));
            let used = usual.iter().flat_map(Axes::iter).any(|x| axes.contains(x));
            let (partial, even) = self.partial(Linearity::Contraction);
            let free_of_parts = usual.iter().flat_map(Axes::iter).all(|x| !partial.contains(x));
            let parts = (even && free_of_parts && self.shapes[0].0.is_number())
                .then(|| Spec::of(usual.clone()).unreduced(&partial));
            if let Some(d) = free.filter(|_| !used) {
                let mut scattered = usual;
                scattered[d].extend(axes);
                fault = fault.choice("scattered", Spec::of(scattered));
            }
            if let Some(parts) = parts {
                fault = fault.choice("left unreduced, to be summed later", parts);
            }
        }
        fault
    }
    /// The first result's entries when all sums are made: what its own loops say, where these agree.
    fn usual(&self, sum: LoopId) -> Option<Vec<Axes>> {
        let mut seen = Axes::none();
        self.factors
            .results
            .first()?
            .iter()
            .map(|dim| {
                let mut entry = Axes::none();
                for l in dim.loops.iter().filter(|l| **l != sum) {
                    let holder = self.factors.operands.iter().enumerate().find_map(|(k, dims)| {
                        let d = dims.iter().position(|d| d.loops.contains(l))?;
                        let e = self.operands[k].ty.spec.dim(d);
                        (!e.is_empty()).then_some(e)
                    });
                    let fresh: Axes =
                        holder.unwrap_or(&[]).iter().copied().filter(|a| !seen.contains(*a)).collect();
                    entry.extend(&fresh);
                    seen.extend(&fresh);
                }
                Some(entry)
            })
            .collect()
    }

    /// A result's entries: its loops' axes strung together. Behind an unsharded loop there are only unsharded ones, behind one that is
    /// to keep still also where it is not split to the last step.
    pub(super) fn result(&self, i: usize, entries: &[Axes]) -> Result<Vec<Axes>, Fault> {
        let string = |(d, dim): (usize, &Dim)| {
            if let [l] = dim.loops[..] {
                return Ok(entries[l].clone());
            }
            let (mut entry, mut gap) = (Axes::none(), false);
            for l in &dim.loops {
                if gap && !entries[*l].is_empty() {
                    return Err(self.gap(d, *l));
                }
                let FactorLoop { size, join, .. } = self.factors.loops[*l];
                gap |= match join {
                    Some(Join::Still) => self.ways(&entries[*l]) < size,
                    _ => entries[*l].is_empty(),
                };
                entry = entry.iter().chain(entries[*l].iter()).collect();
            }
            Ok(entry)
        };
        self.factors.results[i].iter().enumerate().map(string).collect()
    }
    fn gap(&self, d: usize, l: LoopId) -> Fault {
        let from = self
            .factors
            .operands
            .iter()
            .enumerate()
            .find_map(|(k, dims)| dims.iter().position(|x| x.loops.contains(&l)).map(|dim| (k, dim)));
        match from {
            Some((k, dim)) => self
                .refuse(format!(
                    "{} becomes the minor part of dimension {d} of the result, whose major part is {}: its elements would move between devices",
                    self.tell(k, dim),
                    if self.factors.loops[l].join == Some(Join::Still) {
                        "not split to the last"
                    } else {
                        "unsharded"
                    }
                ))
                .help(self.reshard(k, dim, &Axes::none()))
                .choice(SAY, self.said())
                .dim(k, dim),
            None => self.refuse(format!(
                "the minor part of dimension {d} of the result is sharded, but its major part is not"
            )),
        }
    }

    /// How the result may be asked to be sharded: each axis on the first dimension made of what it split that it divides.
    fn said(&self) -> Spec {
        let shape = &self.shapes[0].1;
        let mut dims = vec![Axes::none(); shape.rank()];
        let split = self.factors.operands.iter().zip(self.operands).flat_map(|(dims, o)| {
            dims.iter().enumerate().map(|(d, dim)| (&dim.loops, Axes::from(o.ty.spec.dim(d))))
        });
        let sets: Axes = self
            .operands
            .iter()
            .flat_map(|o| o.ty.spec.unreduced_axes().iter().chain(o.ty.spec.reduced_axes().iter()))
            .collect();
        for (loops, entry) in split {
            let used = |a: &Axis| sets.contains(*a) || dims.iter().any(|d| d.contains(*a));
            let entry: Axes = entry.iter().filter(|a| !used(a)).collect();
            if entry.is_empty() {
                continue;
            }
            // all axes of the dimension on one of its parts, or as many as find one
            let room = |dims: &[Axes], axes: &[Axis]| {
                (0..shape.rank()).find(|d| {
                    let with: Axes = dims[*d].iter().chain(axes.iter().copied()).collect();
                    self.factors.results[0][*d].loops.iter().any(|l| loops.contains(l))
                        && shape[*d].is_multiple_of(self.ways(&with))
                })
            };
            match room(&dims, entry.as_slice()) {
                Some(d) => dims[d] = dims[d].iter().chain(entry.iter()).collect(),
                None => {
                    for axis in entry.iter() {
                        if let Some(d) = room(&dims, &[axis]) {
                            dims[d].push(axis);
                        }
                    }
                }
            }
        }
        Spec::of(dims)
    }

    /// No axis splits two dimensions of a result, or a dimension and a set.
    pub(super) fn once(&self, spec: Spec) -> Result<(), Fault> {
        let mut seen: SmallVec<[Axis; 4]> = SmallVec::new();
        let twice = spec.all_axes().any(|a| {
            let known = seen.contains(&a);
            seen.push(a);
            known
        });
        if !twice {
            return Ok(());
        }
        let named: Vec<(Axis, String)> = (spec.dims().iter().enumerate())
            .flat_map(|(d, e)| e.iter().map(move |a| (a, format!("dimension {d}"))))
            .chain(spec.unreduced_axes().iter().map(|a| (a, "the unreduced set".to_string())))
            .chain(spec.reduced_axes().iter().map(|a| (a, "the reduced set".to_string())))
            .collect();
        for (i, (axis, place)) in named.iter().enumerate() {
            if let Some((_, before)) = named[..i].iter().find(|n| n.0 == *axis) {
                let mut fault =
                    self.refuse(format!("the result would name {axis} twice: in {before} and in {place}"));
                fault.help = self.apart(*axis);
                let mends = fault.help.is_empty();
                for (k, o) in self.operands.iter().enumerate() {
                    for d in (0..o.ty.rank()).filter(|d| o.ty.spec.dim(*d).contains(axis)) {
                        if mends {
                            let rest: Axes = o.ty.spec.dim(d).iter().copied().filter(|a| a != axis).collect();
                            fault = fault.help(self.reshard(k, d, &rest));
                        }
                        fault = fault.dim(k, d);
                    }
                }
                return Err(fault);
            }
        }
        Ok(())
    }
    /// What is inferred divides too: the rule of slices, pads and splits of sharded dimensions.
    pub(super) fn divides(&self, spec: Spec, shape: &[usize]) -> Result<(), Fault> {
        for (d, (axes, n)) in spec.dims().iter().zip(shape).enumerate() {
            let ways = self.ways(axes);
            if n % ways != 0 {
                let mut fault = self.refuse(format!(
                    "dimension {d} of the result has size {n}, which {axes} does not divide into {ways} equal parts"
                ));
                let from =
                    (0..self.operands.len()).find(|k| self.operands[*k].ty.spec.dim(d) == axes.as_slice());
                if let Some(k) = from {
                    fault = fault.help(self.reshard(k, d, &Axes::none())).dim(k, d);
                }
                return Err(fault);
            }
        }
        Ok(())
    }
}
