//! Iteration spaces: the loops of a group, and the affine maps by which it accesses memory.
//!
//! They follow from the loop nests of the group's operations, before code is generated. The
//! generated code accesses no other memory, but may omit an access that it does not need.

use super::plan::{FusionMember, FusionPlan, FusionRoot};
use crate::core::util::small_sort;
use crate::ir::program::loop_nest::{ScalarArg, ScalarCode, Source};
use crate::partition::Slot;
use crate::partition::buffers::index::{LoopVec, MAX_LOOPS};
use crate::partition::buffers::{OperandAccess, ReductionLoops};

/// A memory access of a group: the element at `offset + Σ index · stride`, in bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpaceAccess {
    /// The value; `None` if the index of a loop is read.
    pub(crate) value: Option<Slot>,
    /// The element size, in bytes.
    pub(crate) element_bytes: i64,
    /// The offset of the first index, in bytes.
    pub(crate) offset: i64,
    /// The bytes from one index of each dimension to the next.
    pub(crate) strides: LoopVec,
}

/// The iteration space of a group, with adjacent dimensions merged where all accesses permit.
#[derive(Clone, Debug)]
pub(crate) struct GroupSpace {
    /// The number of dimensions, at least 1.
    pub(crate) rank: usize,
    /// The dimension sizes.
    pub(crate) ext: LoopVec,
    /// True for each dimension that is reduced.
    pub(crate) reduced: [bool; MAX_LOOPS],
    /// The memory accesses: operands and stored values.
    pub(crate) accesses: Vec<SpaceAccess>,
    /// True for each dimension whose indices are all treated alike: no access box ends within it.
    uncut: [bool; MAX_LOOPS],
}

/// The space of a group under construction.
struct SpaceBuilder<'a, 'f, 'p> {
    plan: &'a FusionPlan<'f, 'p>,
    group: usize,
    /// The loops that become dimensions, outermost first.
    order: &'a [usize],
    /// The first indices of the iteration space.
    lo: LoopVec,
    /// The ends of the iteration space (exclusive).
    hi: LoopVec,
    /// A value that is computed in the memory of another one, as (the value, the other value).
    alias: Option<(Slot, Slot)>,
    /// True for each member whose value is needed.
    visited: Vec<bool>,
    space: GroupSpace,
}

/// Returns the iteration space of a group: first index, end, and number of loops.
/// It is the box that the stored members cover, or the loops of the reduction.
pub(crate) fn iteration_space(g: &FusionPlan<'_, '_>, group: usize) -> (LoopVec, LoopVec, usize) {
    if let FusionRoot::Reduction(k) = g.groups[group].root {
        let f = g.reduction_loops(k);
        return ([0; MAX_LOOPS], f.ext, f.num_loops);
    }
    let (mut lo, mut hi, mut n) = ([i64::MAX; MAX_LOOPS], [i64::MIN; MAX_LOOPS], 0);
    for m in g.groups[group].members.iter().filter(|m| g.materialized[g.elementwise_op(m.op).out]) {
        let (a, b) = member_box(g, m);
        n = g.elementwise_op(m.op).num_loops;
        for d in 0..MAX_LOOPS {
            (lo[d], hi[d]) = (lo[d].min(a[d]), hi[d].max(b[d]));
        }
    }
    if lo[0] == i64::MAX {
        return ([0; MAX_LOOPS], [0; MAX_LOOPS], 0);
    }
    (lo, hi, n)
}

/// Returns the box of a member in the iteration space of its group.
pub(crate) fn member_box(g: &FusionPlan<'_, '_>, m: &FusionMember) -> (LoopVec, LoopVec) {
    let map = g.elementwise_op(m.op);
    let (mut lo, mut hi) = ([0; MAX_LOOPS], [1; MAX_LOOPS]);
    for l in 0..map.num_loops {
        let d = m.dims[l] as usize;
        (lo[d], hi[d]) = (m.shift[l], m.shift[l] + map.ext[l]);
    }
    (lo, hi)
}

/// Returns the loops of an elementwise group or of a matmul that become dimensions.
pub(crate) fn elementwise_order(g: &FusionPlan<'_, '_>, group: usize) -> Vec<usize> {
    let (lo, hi, n) = iteration_space(g, group);
    (0..n).filter(|d| hi[*d] - lo[*d] != 1).collect()
}

/// Returns the loops as dimensions, largest stride first, without loops of size 1.
pub(crate) fn reduction_memory_order(f: &ReductionLoops) -> Vec<usize> {
    let mut order: Vec<usize> = (0..f.num_loops).filter(|l| f.ext[*l] != 1).collect();
    let step =
        |l: usize| f.reads.iter().flat_map(|r| &r.boxes).map(|p| p.strides[l].abs()).max().unwrap_or(0);
    small_sort::sort_by_key(&mut order, |l| std::cmp::Reverse(step(*l)));
    order
}

/// Returns the loops in the order of [`reduction_memory_order`], but for an inner loop over
/// results.
pub(crate) fn reduction_order(f: &ReductionLoops) -> Vec<usize> {
    let mut order = reduction_memory_order(f);
    // if few elements are reduced to each result, an inner loop runs over results instead
    let run: i64 = order.iter().rev().take_while(|l| **l >= f.rank).map(|l| f.ext[*l]).product();
    if run > 1
        && run <= 48
        && let Some(k) = order.iter().rposition(|l| *l < f.rank)
        && f.ext[order[k]] >= 32
    {
        let l = order.remove(k);
        order.push(l);
    }
    order
}

impl GroupSpace {
    /// Returns the space of an elementwise group.
    pub(crate) fn of_elementwise(g: &FusionPlan<'_, '_>, group: usize) -> GroupSpace {
        let order = elementwise_order(g, group);
        let mut space = SpaceBuilder::new(g, group, &order).of_stores();
        for d in (0..space.rank - 1).rev() {
            if space.can_collapse(d) {
                space.collapse_pair(d);
            }
        }
        space
    }
    /// Returns the space of a reduction; its result is an access without steps in reduced
    /// dimensions.
    pub(crate) fn of_reduction(g: &FusionPlan<'_, '_>, group: usize, k: usize) -> GroupSpace {
        let (op, f) = (g.reduction_op(k), g.reduction_loops(k));
        let order = reduction_order(f);
        let mut b = SpaceBuilder::new(g, group, &order);
        let identity = FusionMember { op: k, shift: [0; MAX_LOOPS], dims: std::array::from_fn(|d| d as u8) };
        b.visit(&op.code, &f.reads, &identity, f.num_loops, 0);
        let v = &g.program.values[f.out];
        let own = usize::from(v.num_partials > 1);
        let mut strides = [0; MAX_LOOPS];
        strides[..f.rank].copy_from_slice(&v.strides[own..own + f.rank]);
        b.access(Some(f.out), v.dtype.size(), 0, &strides, &identity, f.num_loops);
        for (e, &l) in order.iter().enumerate() {
            b.space.reduced[e] = l >= f.rank;
            b.space.uncut[e] &= f.filled_boxes().all(|s| s.lo[l] == 0 && s.hi[l] == f.ext[l]);
        }
        let mut space = b.space;
        for d in (0..space.rank - 1).rev() {
            if space.reduced[d] == space.reduced[d + 1] && space.can_collapse(d) {
                space.collapse_pair(d);
            }
        }
        space
    }
    /// Returns the space of a matmul's epilogue over the loops `order`, without merged dimensions.
    ///
    /// `alias` is the result and the value in whose memory it is computed.
    pub(super) fn of_epilogue(
        g: &FusionPlan<'_, '_>,
        group: usize,
        order: &[usize],
        alias: (Slot, Slot),
    ) -> GroupSpace {
        SpaceBuilder { alias: Some(alias), ..SpaceBuilder::new(g, group, order) }.of_stores()
    }
    /// Returns the number of elements of the space.
    pub(crate) fn elements(&self) -> i64 {
        self.ext[..self.rank].iter().product()
    }
    /// Returns the values that are accessed, once for each access.
    pub(crate) fn values(&self) -> impl Iterator<Item = Slot> {
        self.accesses.iter().filter_map(|a| a.value)
    }
    /// Returns true if every access steps through dimensions d and d + 1 as if they were one
    /// dimension.
    pub(super) fn can_collapse(&self, d: usize) -> bool {
        let e = self.ext[d + 1];
        e > 0 && self.uncut[d + 1] && self.accesses.iter().all(|x| x.strides[d] == x.strides[d + 1] * e)
    }
    /// Merges dimensions d and d + 1.
    pub(super) fn collapse_pair(&mut self, d: usize) {
        self.ext[d + 1] *= self.ext[d];
        self.ext.copy_within(d + 1.., d);
        self.ext[MAX_LOOPS - 1] = 1;
        self.uncut[d + 1] &= self.uncut[d];
        self.uncut.copy_within(d + 1.., d);
        self.reduced.copy_within(d + 1.., d);
        for x in &mut self.accesses {
            x.strides.copy_within(d + 1.., d);
            x.strides[MAX_LOOPS - 1] = 0;
        }
        self.rank -= 1;
    }
    /// Returns true if, of a value, row r of the space accesses only the r-th part of `row` bytes.
    pub(crate) fn is_row_local(&self, value: Slot, rows: i64, row: i64) -> bool {
        let each = self.ext[0] / rows;
        let inside = |m: &SpaceAccess| {
            let ext = |d: usize| if d == 0 { each } else { self.ext[d] };
            let far = |d: usize| m.strides[d] * (ext(d) - 1);
            let low: i64 = m.offset + (0..self.rank).map(|d| far(d).min(0)).sum::<i64>();
            let high: i64 = m.offset + (0..self.rank).map(|d| far(d).max(0)).sum::<i64>();
            m.strides[0] * each == row && low >= 0 && high + m.element_bytes <= row
        };
        self.accesses.iter().filter(|m| m.value == Some(value)).all(inside)
    }
}

impl<'a, 'f, 'p> SpaceBuilder<'a, 'f, 'p> {
    fn new(plan: &'a FusionPlan<'f, 'p>, group: usize, order: &'a [usize]) -> Self {
        let (lo, hi, _) = iteration_space(plan, group);
        let mut ext = [1; MAX_LOOPS];
        for (e, &d) in order.iter().enumerate() {
            ext[e] = (hi[d] - lo[d]).max(0);
        }
        let space = GroupSpace {
            rank: order.len().max(1),
            ext,
            reduced: [false; MAX_LOOPS],
            accesses: Vec::new(),
            uncut: [true; MAX_LOOPS],
        };
        let visited = vec![false; plan.groups[group].members.len()];
        SpaceBuilder { plan, group, order, lo, hi, alias: None, visited, space }
    }
    /// Adds the accesses of all stored members.
    fn of_stores(mut self) -> GroupSpace {
        let plan = self.plan;
        for (k, m) in plan.groups[self.group].members.iter().enumerate() {
            let map = plan.elementwise_op(m.op);
            if plan.materialized[map.out] {
                self.visit_member(k);
                let v = &plan.program.values[map.out];
                self.access(Some(map.out), v.dtype.size(), 0, &v.strides, m, map.num_loops);
            }
        }
        self.space
    }
    /// Adds the accesses of a member, once.
    fn visit_member(&mut self, k: usize) {
        if std::mem::replace(&mut self.visited[k], true) {
            return;
        }
        let plan = self.plan;
        let m = &plan.groups[self.group].members[k];
        let (map, (a, b)) = (plan.elementwise_op(m.op), member_box(plan, m));
        for (e, &d) in self.order.iter().enumerate() {
            self.space.uncut[e] &= a[d] <= self.lo[d] && b[d] >= self.hi[d];
        }
        self.visit(&map.code, &map.reads, m, map.num_loops, map.code_loop_base);
    }
    /// Adds the accesses of an operation.
    fn visit(
        &mut self,
        code: &ScalarCode,
        reads: &[OperandAccess],
        m: &FusionMember,
        n: usize,
        loop_base: usize,
    ) {
        let plan = self.plan;
        for arg in code.insts.iter().flat_map(|i| &i.args) {
            if let ScalarArg::Index(l) = arg {
                let mut strides = [0; MAX_LOOPS];
                strides[l + loop_base] = 1;
                self.access(None, 1, 0, &strides, m, n);
            }
        }
        for read in reads {
            for p in &read.boxes {
                for (e, &d) in self.order.iter().enumerate() {
                    let Some(l) = (0..n).find(|l| m.dims[*l] as usize == d) else { continue };
                    let (a, b) = (p.lo[l] + m.shift[l], p.hi[l] + m.shift[l]);
                    self.space.uncut[e] &= a <= self.lo[d] && b >= self.hi[d];
                }
                let Source::Value(s) = p.source else { continue };
                let own = plan.defs[s].filter(|d| d.group == self.group);
                let members = &plan.groups[self.group].members;
                match own.and_then(|d| members.binary_search_by_key(&d.op, |m| m.op).ok()) {
                    Some(k) => self.visit_member(k),
                    None => {
                        let root = plan.program.alias_root(s);
                        let root = self.alias.filter(|a| a.0 == root).map_or(root, |a| a.1);
                        self.access(Some(root), read.dtype.size(), p.offset, &p.strides, m, n);
                    }
                }
            }
        }
    }
    /// Adds the access of element `offset + Σ loop · stride` of a value, for member `m`.
    fn access(
        &mut self,
        value: Option<Slot>,
        size: usize,
        mut offset: i64,
        strides: &LoopVec,
        m: &FusionMember,
        n: usize,
    ) {
        let (mut wide, size) = ([0; MAX_LOOPS], size as i64);
        for l in 0..n {
            offset -= strides[l] * m.shift[l];
            wide[m.dims[l] as usize] += strides[l];
        }
        offset += self.lo.iter().zip(&wide).map(|(lo, w)| lo * w).sum::<i64>();
        let mut strides = [0; MAX_LOOPS];
        for (e, d) in self.order.iter().enumerate() {
            strides[e] = wide[*d] * size;
        }
        self.space.accesses.push(SpaceAccess { value, element_bytes: size, offset: offset * size, strides });
    }
}
