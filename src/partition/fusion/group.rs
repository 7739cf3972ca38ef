//! Groups operations that share one iteration space, and chooses the values in memory.

use super::plan::{FusionGroup, FusionMember, FusionPlan, FusionRoot, ValueDef};
use super::policy::{MAX_ABSORBED_MEMBERS, MAX_ACCESS_BOXES, MAX_MEMBERS};
use crate::core::util::small_sort;
use crate::ir::program::loop_nest::Source;
use crate::partition::Slot;
use crate::partition::buffers::index::{LoopVec, MAX_LOOPS};
use crate::partition::buffers::{
    AccessBox, BufferOp, BufferProgram, ElementwiseOp, ReductionLoops, UseCount,
};
use smallvec::SmallVec;

/// The identity permutation of the loops.
const IDENTITY_LOOPS: [u8; MAX_LOOPS] = {
    let (mut s, mut d) = ([0; MAX_LOOPS], 0);
    while d < MAX_LOOPS {
        s[d] = d as u8;
        d += 1;
    }
    s
};

/// Divides a program into fusion groups.
pub(crate) fn fuse<'f, 'p>(flow: &'f BufferProgram<'p>) -> FusionPlan<'f, 'p> {
    let n = flow.values.len();
    let at = Vec::with_capacity(flow.ops.len());
    let mut g = FusionPlan {
        program: flow,
        groups: Vec::new(),
        defs: vec![None; n],
        op_groups: at,
        materialized: vec![false; n],
        chains: Vec::new(),
    };
    let mut printed = 0;
    for k in 0..flow.ops.len() {
        let group = g.assign_group(k, &mut printed);
        g.op_groups.push(group);
    }
    g.choose_materialized();
    g
}

/// The values that an elementwise operation reads, each with its shift.
/// The shift is `None` unless all accesses read the value at the operation's index, up to this
/// shift.
type ElementwiseSources = SmallVec<[(Slot, Option<LoopVec>); 4]>;

impl FusionPlan<'_, '_> {
    /// Adds an empty group.
    fn add_group(&mut self, head: FusionRoot, level: u32) -> usize {
        self.groups.push(FusionGroup { root: head, members: Vec::new(), level, merged: false, num_boxes: 0 });
        self.groups.len() - 1
    }
    /// Returns the first level at which all of these values are ready.
    fn next_level(&self, sources: impl IntoIterator<Item = Slot>) -> u32 {
        1 + sources.into_iter().map(|s| self.value_level(s)).max().unwrap_or(0)
    }
    /// Assigns operation `k` to a group, and returns the group.
    /// `printed` is the level of the last print: prints keep their order.
    fn assign_group(&mut self, k: usize, printed: &mut u32) -> usize {
        match &self.program.ops[k] {
            BufferOp::Elementwise(m) => {
                let sources = self.elementwise_sources(m);
                let pieces: usize = m.reads.iter().map(|r| r.boxes.len()).sum();
                let (g, shift) = self.find_group(m, &sources, pieces).unwrap_or_else(|| {
                    let level = self.next_level(sources.iter().map(|s| s.0));
                    (self.add_group(FusionRoot::Elementwise, level), [0; MAX_LOOPS])
                });
                self.groups[g].members.push(FusionMember { op: k, shift, dims: IDENTITY_LOOPS });
                self.groups[g].num_boxes += pieces;
                self.defs[m.out] = Some(ValueDef { group: g, op: k, shift, rank: Some(m.num_loops) });
                g
            }
            BufferOp::Contraction(f) => {
                let level = self.next_level(self.program.ops[k].sources());
                let g = self.add_group(FusionRoot::Matmul(k), level);
                let rank = (f.partials.len() == 1).then_some(f.rank);
                self.defs[f.out] = Some(ValueDef { group: g, op: k, shift: [0; MAX_LOOPS], rank });
                g
            }
            BufferOp::Reduction(f) => {
                let g = self.absorb_producers(k, &f.loops);
                self.defs[f.loops.out] =
                    Some(ValueDef { group: g, op: k, shift: [0; MAX_LOOPS], rank: None });
                g
            }
            item => {
                let mut level = self.next_level(item.sources());
                if item.has_print() {
                    level = level.max(*printed + 1);
                    *printed = level;
                }
                let g = self.add_group(FusionRoot::Standalone(k), level);
                for o in item.results() {
                    self.defs[o] = Some(ValueDef { group: g, op: k, shift: [0; MAX_LOOPS], rank: None });
                }
                g
            }
        }
    }
    /// Returns the values that an elementwise operation reads, with their shifts.
    fn elementwise_sources(&self, m: &ElementwiseOp<'_>) -> ElementwiseSources {
        let mut v = ElementwiseSources::new();
        for p in m.reads.iter().flat_map(|r| &r.boxes) {
            let Source::Value(s) = p.source else { continue };
            let root = self.program.alias_root(s);
            let unit = if root == s { p.identity_shift(m.num_loops) } else { None };
            match v.iter_mut().find(|x| x.0 == root) {
                Some(x) if x.1 != unit => x.1 = None,
                Some(_) => {}
                None => v.push((root, unit)),
            }
        }
        v
    }
    /// Returns true if all consumers of `s` are elementwise operations of group `g`.
    fn is_read_only_by(&self, s: Slot, g: usize) -> bool {
        let reads = |m: &&FusionMember| {
            let of = |p: &AccessBox| matches!(p.source, Source::Value(x) if self.program.alias_root(x) == s);
            self.elementwise_op(m.op).reads.iter().any(|r| r.boxes.iter().any(of))
        };
        let uses = self.program.uses[s];
        !uses.result && uses.readers as usize == self.groups[g].members.iter().filter(reads).count()
    }
    /// Returns the shape of value `s`.
    fn shape_of(&self, s: Slot) -> &[usize] {
        &self.program.values[s].shape
    }
    /// Returns true if the loops of `m` have the sizes of value `s`.
    fn loops_match_shape(&self, m: &ElementwiseOp<'_>, s: Slot) -> bool {
        let shape = self.shape_of(s);
        m.num_loops == shape.len() && m.ext[..m.num_loops].iter().zip(shape).all(|(a, b)| *a == *b as i64)
    }
    /// Returns the group that an elementwise operation joins, and its shift there.
    /// Other groups that it reads are merged into this one where possible.
    fn find_group(
        &mut self,
        m: &ElementwiseOp<'_>,
        sources: &ElementwiseSources,
        pieces: usize,
    ) -> Option<(usize, LoopVec)> {
        let head = |g: usize| self.groups[g].root;
        let (s, t, d) = sources
            .iter()
            .filter_map(|(s, t)| Some((*s, (*t)?, self.defs[*s]?)))
            .filter(|x| x.2.rank == Some(m.num_loops))
            .filter(|x| matches!(head(x.2.group), FusionRoot::Elementwise | FusionRoot::Matmul(_)))
            .max_by_key(|x| {
                (self.groups[x.2.group].level, matches!(head(x.2.group), FusionRoot::Matmul(_)))
            })?;
        let (g, level) = (d.group, self.groups[d.group].level);
        let shift: LoopVec = std::array::from_fn(|i| t[i] + d.shift[i]);
        let room = |g: &FusionGroup, h: &FusionGroup| {
            g.members.len() + h.members.len() < MAX_MEMBERS
                && g.num_boxes + h.num_boxes + pieces <= MAX_ACCESS_BOXES
        };
        if self.groups[g].members.len() >= MAX_MEMBERS || self.groups[g].num_boxes + pieces > MAX_ACCESS_BOXES
        {
            return None;
        }
        if let FusionRoot::Matmul(_) = self.groups[g].root
            && (shift != [0; MAX_LOOPS] || !self.loops_match_shape(m, s))
        {
            return None;
        }
        let mut merge: SmallVec<[usize; 4]> = SmallVec::new();
        for (q, tq) in sources {
            let Some(dq) = self.defs[*q] else { continue };
            if dq.group == g {
                let at = tq.as_ref()?;
                if (0..MAX_LOOPS).any(|i| at[i] + dq.shift[i] != shift[i]) {
                    return None;
                }
                continue;
            }
            let gq = &self.groups[dq.group];
            let like = tq.is_some()
                && dq.rank == Some(m.num_loops)
                && gq.root == FusionRoot::Elementwise
                && shift == [0; MAX_LOOPS]
                && gq.members.iter().all(|m| m.shift == [0; MAX_LOOPS])
                && self.loops_match_shape(m, *q)
                && *tq == Some([0; MAX_LOOPS])
                && room(&self.groups[g], gq);
            if gq.level == level {
                if !like {
                    return None;
                }
                merge.push(dq.group);
            } else if gq.level > level {
                return None;
            } else if like && self.program.uses[*q] == UseCount::ONCE {
                let internal = |m: &FusionMember| {
                    let o = self.elementwise_op(m.op).out;
                    o == *q || self.is_read_only_by(o, dq.group)
                };
                if gq.members.iter().all(internal) {
                    merge.push(dq.group);
                }
            }
        }
        for h in merge {
            if !self.groups[h].merged && room(&self.groups[g], &self.groups[h]) {
                self.merge_group(h, g);
            } else if !self.groups[h].merged && self.groups[h].level == level {
                return None;
            }
        }
        Some((g, shift))
    }
    /// Moves all members of group `h` to group `g`.
    fn merge_group(&mut self, h: usize, g: usize) {
        let members = std::mem::take(&mut self.groups[h].members);
        self.groups[h].merged = true;
        self.groups[g].num_boxes += self.groups[h].num_boxes;
        for m in &members {
            self.op_groups[m.op] = g;
            let out = self.elementwise_op(m.op).out;
            if let Some(d) = &mut self.defs[out] {
                d.group = g;
            }
        }
        self.groups[g].members.extend(members);
        small_sort::sort_by_key(&mut self.groups[g].members, |m| m.op);
    }
    /// Adds the group of a reduction, with the elementwise groups that only it reads.
    /// Each of these must be read by one permutation of all its loops.
    fn absorb_producers(&mut self, k: usize, f: &ReductionLoops) -> usize {
        let mut taken: SmallVec<[(usize, [u8; MAX_LOOPS]); 2]> = SmallVec::new();
        let mut level = 1;
        for s in self.program.ops[k].sources() {
            let root = self.program.alias_root(s);
            match self.absorbable_producer(f, s).filter(|t| !taken.iter().any(|x| x.0 == t.0)) {
                Some(t) if root == s => {
                    level = level.max(self.groups[t.0].level);
                    taken.push(t);
                }
                _ => level = level.max(1 + self.value_level(s)),
            }
        }
        let g = self.add_group(FusionRoot::Reduction(k), level);
        for (h, dims) in taken {
            for m in &mut self.groups[h].members {
                m.dims = dims;
            }
            self.merge_group(h, g);
        }
        g
    }
    /// Returns the group that computes `s`, and the permutation, if reduction `f` can absorb it.
    fn absorbable_producer(&self, f: &ReductionLoops, s: Slot) -> Option<(usize, [u8; MAX_LOOPS])> {
        let d = self.defs[s]?;
        let g = &self.groups[d.group];
        if g.root != FusionRoot::Elementwise
            || g.members.len() > MAX_ABSORBED_MEMBERS
            || self.program.uses[s] != UseCount::ONCE
        {
            return None;
        }
        let mut dims = None;
        for p in f.reads.iter().flat_map(|r| &r.boxes).filter(|p| p.source == Source::Value(s)) {
            let own = p.permutation(f.num_loops)?;
            if *dims.get_or_insert(own) != own {
                return None;
            }
        }
        let fine = |m: &FusionMember| {
            let map = self.elementwise_op(m.op);
            m.shift == [0; MAX_LOOPS]
                && self.loops_match_shape(map, s)
                && (map.out == s || self.is_read_only_by(map.out, d.group))
                && map.reads.iter().all(|r| r.is_single_box(&map.ext, map.num_loops))
        };
        (g.members.iter().all(fine)).then_some((d.group, dims?))
    }
    /// Marks the values that must be in memory.
    /// These are results, values that another group reads, and values that their own group reads at
    /// another index.
    fn choose_materialized(&mut self) {
        let flow = self.program;
        for s in &flow.outs {
            self.materialized[flow.alias_root(*s)] = true;
        }
        for item in &flow.ops {
            match item {
                BufferOp::Elementwise(m) => {
                    let g = self.defs[m.out].map(|d| d.group);
                    for (s, unit) in self.elementwise_sources(m) {
                        let within = self.defs[s].map(|d| d.group) == g && unit.is_some();
                        if !within {
                            self.materialized[s] = true;
                        }
                    }
                }
                BufferOp::Reduction(_) | BufferOp::Contraction(_) => {
                    let g = item.results().first().and_then(|s| self.defs[*s]).map(|d| d.group);
                    for s in item.sources() {
                        let root = flow.alias_root(s);
                        if root != s || self.defs[s].map(|d| d.group) != g {
                            self.materialized[root] = true;
                        }
                    }
                }
                _ => {
                    for s in item.sources() {
                        self.materialized[flow.alias_root(s)] = true;
                    }
                    for s in item.results() {
                        self.materialized[s] = true;
                    }
                }
            }
        }
        for k in 0..self.groups.len() {
            if let FusionRoot::Reduction(item) = self.groups[k].root {
                let out = self.reduction_loops(item).out;
                self.materialized[out] = true;
            }
        }
    }
}
