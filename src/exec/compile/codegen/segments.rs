//! Pass 5: divides the iteration space of a group into cells, and generates code for each.
//!
//! The space is cut wherever an access changes its box and wherever a member starts or ends. The
//! boxes in between are the cells. Within a cell every operand is one affine access or a constant,
//! so no tile needs a mask.

use super::tile_program::{SegmentBox, TileProgram, TileSegment};
use super::values::{ExprGraph, MemAccess, POSITION_SLOT};
use super::{cell::DeferredStore, emit, flat_rows::FlatRows};
use crate::core::{DType, Result, Scalar, util::small_sort};
use crate::exec::compile::fusion::{FusionMember, FusionPlan, FusionRoot};
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};
use crate::exec::compile::ir::{AccessBox, OperandAccess};
use crate::ir::program::{ScalarArg, ScalarCode, ScalarOp, Source};
use crate::kernels::{HAS_FAST_PATHS, SpreadSteps};
use crate::partition::Slot;
use crate::partition::fusion::space::{iteration_space, member_box};
use smallvec::SmallVec;
use std::collections::HashMap;

/// The options of code generation for a group.
#[derive(Debug)]
pub(crate) struct CodegenRequest<'a> {
    /// The loops that become dimensions, outermost first; the others have one index.
    pub(crate) order: &'a [usize],
    /// True if results are stored past the caches, with non-temporal stores.
    pub(crate) stream: bool,
    /// A value that is computed in the memory of another one, as (the value, the other value).
    pub(crate) alias: Option<(Slot, Slot)>,
    /// The values that are stored over an operand of the group, as (value, operand).
    pub(crate) overwrites: &'a [(Slot, Slot)],
    /// The offset that is added to slot numbers.
    pub(crate) slot_base: u32,
}

/// The state of code generation for one group.
pub(super) struct SegmentBuilder<'a, 'f, 'p> {
    /// The fusion plan.
    plan: &'a FusionPlan<'f, 'p>,
    /// The group whose code is generated.
    group: usize,
    /// The options.
    request: &'a CodegenRequest<'a>,
    /// The first indices of the iteration space.
    lo: LoopVec,
    /// The ends of the iteration space (exclusive).
    hi: LoopVec,
    /// The loops that become dimensions; one loop with a single index if there are none.
    dims: &'a [usize],
    /// The members that are stored.
    stores: SmallVec<[usize; 4]>,
    /// The first index of the current cell.
    cell: LoopVec,
    /// The expression graph of the current cell.
    expr: ExprGraph,
    /// The node of each member in the current cell; `u32::MAX` if it has none yet.
    memo: Vec<u32>,
    /// The sorted boxes of operands with many of them, by address of the operand.
    sorted_boxes: HashMap<*const OperandAccess, Option<SortedBoxes>>,
    /// The dimensions that are one row; `None` unless rows are flat.
    flat: Option<FlatRows>,
    /// True if an access does not fit flat rows.
    is_irregular: bool,
}

/// Generates the tile program of a group; that of a reduction leaves its value in `result`.
pub(crate) fn tile_program(
    g: &FusionPlan<'_, '_>,
    group: usize,
    ask: &CodegenRequest<'_>,
) -> Result<TileProgram> {
    let mut c = SegmentBuilder::new(g, group, ask);
    let inner = c.dims.len() - 1;
    let mut t = TileProgram {
        rank: c.dims.len(),
        ext: [1; MAX_LOOPS],
        boxes: Vec::new(),
        num_registers: 0,
        max_operands: 0,
        tile_elements: emit::MAX_TILE_ELEMENTS,
        transposed_dim: None,
        stream: ask.stream,
        ns_per_element: 0.0,
        is_flat: false,
    };
    for (e, &d) in c.dims.iter().enumerate() {
        t.ext[e] = (c.hi[d] - c.lo[d]).max(0);
    }
    if t.elements() == 0 {
        return Ok(t);
    }
    let deferred = c.deferred_stores();
    let cuts = c.cuts();
    for outer in boxes(&cuts[..inner]) {
        let mut band = SegmentBox { lo: [0; MAX_LOOPS], hi: [1; MAX_LOOPS], segments: Vec::new() };
        for (e, (from, to)) in outer.into_iter().enumerate() {
            let d = c.dims[e];
            c.cell[d] = from;
            (band.lo[e], band.hi[e]) = (from - c.lo[d], to - c.lo[d]);
        }
        for w in cuts[inner].windows(2) {
            let d = c.dims[inner];
            c.cell[d] = w[0];
            let Some((mut seg, weight, regs, tile)) = c.build_segment(&deferred)? else { continue };
            (seg.lo, seg.hi) = (w[0] - c.lo[d], w[1] - c.lo[d]);
            t.ns_per_element = t.ns_per_element.max(weight);
            t.num_registers = t.num_registers.max(regs);
            t.tile_elements = t.tile_elements.min(tile);
            band.segments.push(seg);
        }
        if !band.segments.is_empty() {
            t.push_box(band);
        }
    }
    emit::number_memory_operands(&mut t);
    Ok(t)
}

/// Returns the sizes of the dimensions of a group's space.
pub(crate) fn dim_sizes(
    g: &FusionPlan<'_, '_>,
    group: usize,
    ask: &CodegenRequest<'_>,
) -> SmallVec<[i64; 4]> {
    SegmentBuilder::new(g, group, ask).dim_sizes()
}

/// Returns the operands and their factors if a reduction's input is the square of their sum.
pub(crate) fn square_of_sum(
    g: &FusionPlan<'_, '_>,
    group: usize,
    ask: &CodegenRequest<'_>,
) -> Result<Option<([MemAccess; 2], [f64; 2])>> {
    let mut c = SegmentBuilder::new(g, group, ask);
    if c.cuts().iter().any(|c| c.len() != 2) {
        return Ok(None);
    }
    let deferred = c.deferred_stores();
    c.build_segment(&deferred)?;
    Ok(c.expr.as_square_of_sum())
}

/// Returns all boxes between these cuts, the last dimension fastest.
fn boxes(cuts: &[Vec<i64>]) -> impl Iterator<Item = SmallVec<[(i64, i64); 4]>> {
    let all: usize = cuts.iter().map(|c| c.len() - 1).product();
    (0..all).map(move |mut k| {
        let mut cell = SmallVec::from_elem((0, 0), cuts.len());
        for (side, c) in cell.iter_mut().zip(cuts).rev() {
            let x = k % (c.len() - 1);
            k /= c.len() - 1;
            *side = (c[x], c[x + 1]);
        }
        cell
    })
}

/// The many access boxes of an operand, sorted along a loop in which no two of them overlap.
struct SortedBoxes {
    /// The loop along which they are sorted.
    loop_dim: usize,
    /// The first index and the number of each box, in order.
    order: Vec<(i64, u32)>,
}

/// The minimum number of boxes that are sorted; fewer are searched one by one.
const MIN_SORTED_BOXES: usize = 8;

impl SortedBoxes {
    /// Sorts these boxes along the first loop in which no two overlap; `None` if there is none.
    fn from_boxes(pieces: &[AccessBox], n: usize) -> Option<SortedBoxes> {
        (0..n).find_map(|along| {
            let mut order: Vec<_> = pieces.iter().zip(0..).map(|(p, k)| (p.lo[along], k)).collect();
            small_sort::sort(&mut order);
            let apart = |w: &[(i64, u32)]| pieces[w[0].1 as usize].hi[along] <= w[1].0;
            order.windows(2).all(apart).then_some(SortedBoxes { loop_dim: along, order })
        })
    }
    /// Returns the one box that may contain this index.
    fn find_candidate(&self, x: i64) -> Option<usize> {
        let after = self.order.partition_point(|p| p.0 <= x);
        Some(self.order[after.checked_sub(1)?].1 as usize)
    }
}

impl<'a, 'f, 'p> SegmentBuilder<'a, 'f, 'p> {
    pub(super) fn new(plan: &'a FusionPlan<'f, 'p>, group: usize, request: &'a CodegenRequest<'a>) -> Self {
        let (lo, hi, _) = iteration_space(plan, group);
        let members = &plan.groups[group].members;
        let stores = match plan.groups[group].root {
            FusionRoot::Reduction(_) => SmallVec::new(),
            _ => (0..members.len())
                .filter(|m| plan.materialized[plan.elementwise_op(members[*m].op).out])
                .collect(),
        };
        let dims: &[usize] = if request.order.is_empty() { &[MAX_LOOPS - 1] } else { request.order };
        let (expr, memo, sorted_boxes) = (ExprGraph::default(), Vec::new(), HashMap::new());
        let (flat, is_irregular) = (None, false);
        SegmentBuilder {
            plan,
            group,
            request,
            lo,
            hi,
            dims,
            stores,
            cell: lo,
            expr,
            memo,
            sorted_boxes,
            flat,
            is_irregular,
        }
    }
    /// Generates code over flat rows.
    pub(super) fn flatten(&mut self, rows: FlatRows) {
        self.flat = Some(rows);
    }
    /// Returns true if an access does not fit flat rows.
    pub(super) fn is_irregular(&self) -> bool {
        self.is_irregular
    }
    /// Returns the sizes of the dimensions.
    pub(super) fn dim_sizes(&self) -> SmallVec<[i64; 4]> {
        self.dims.iter().map(|d| self.hi[*d] - self.lo[*d]).collect()
    }
    /// Returns the access over flat rows, if rows are flat.
    fn flat_access(&mut self, m: MemAccess) -> (MemAccess, Option<SpreadSteps>) {
        let Some(rows) = self.flat.filter(|_| HAS_FAST_PATHS) else { return (m, None) };
        rows.access(&m, &self.dim_sizes()).unwrap_or_else(|| {
            self.is_irregular = true;
            (m, None)
        })
    }
    /// Returns the slots whose memory is also read, so that stores to them are deferred.
    pub(super) fn deferred_stores(&self) -> SmallVec<[DeferredStore; 2]> {
        let slot = |s: Slot| s as u32 + self.request.slot_base;
        let same = self.request.alias.map(|s| DeferredStore { slot: slot(s.1), overwrites: None });
        let over = self
            .request
            .overwrites
            .iter()
            .map(|s| DeferredStore { slot: slot(s.0), overwrites: Some(slot(s.1)) });
        same.into_iter().chain(over).collect()
    }
    /// Returns the sorted cuts of each dimension: its ends, and those of members and access boxes.
    pub(super) fn cuts(&self) -> Vec<Vec<i64>> {
        let mut cuts: Vec<Vec<i64>> = self.dims.iter().map(|&d| vec![self.lo[d], self.hi[d]]).collect();
        for m in &self.plan.groups[self.group].members {
            let map = self.plan.elementwise_op(m.op);
            let (a, b) = member_box(self.plan, m);
            for (cuts, &d) in cuts.iter_mut().zip(self.dims) {
                cuts.extend([a[d], b[d]]);
                let Some(l) = (0..map.num_loops).find(|l| m.dims[*l] as usize == d) else { continue };
                for p in map.reads.iter().flat_map(|r| &r.boxes) {
                    cuts.extend([p.lo[l] + m.shift[l], p.hi[l] + m.shift[l]]);
                }
            }
        }
        for (cuts, &d) in cuts.iter_mut().zip(self.dims) {
            cuts.retain(|x| (self.lo[d]..=self.hi[d]).contains(x));
            small_sort::sort(cuts);
            cuts.dedup();
        }
        cuts
    }
    /// Generates the code of the current cell; `None` if nothing is stored there.
    /// Also returns the nanoseconds per element, the number of registers and the elements of a
    /// tile.
    pub(super) fn build_segment(
        &mut self,
        deferred: &[DeferredStore],
    ) -> Result<Option<(TileSegment, f64, u16, i64)>> {
        let g = self.plan;
        let group = &g.groups[self.group];
        self.expr.clear();
        self.memo.clear();
        self.memo.resize(group.members.len(), u32::MAX);
        let mut roots: SmallVec<[(usize, Option<MemAccess>); 4]> = SmallVec::new();
        if let FusionRoot::Reduction(k) = group.root {
            let f = g.reduction_op(k);
            let identity =
                FusionMember { op: k, shift: [0; MAX_LOOPS], dims: std::array::from_fn(|d| d as u8) };
            roots.push((self.inline_code(&f.code, &f.loops.reads, &identity, f.loops.num_loops, 0), None));
        }
        for m in self.stores.clone() {
            let (a, b) = member_box(g, &group.members[m]);
            if (0..MAX_LOOPS).all(|d| a[d] <= self.cell[d] && self.cell[d] < b[d]) {
                let node = self.member_value(m);
                roots.push((node, Some(self.store_target(&group.members[m]))));
            }
        }
        if roots.is_empty() {
            return Ok(None);
        }
        emit::emit(&self.expr, &roots, self.row_dim(), deferred, self.request.stream).map(Some)
    }
    /// Returns the memory access of element `off + Σ loop · st` of a value, for member `m`.
    ///
    /// The access is expressed in dimensions of the tile program, and in bytes.
    fn mem_access(
        &self,
        slot: u32,
        size: usize,
        off: i64,
        st: &LoopVec,
        m: &FusionMember,
        n: usize,
    ) -> MemAccess {
        let (mut o, mut wide) = (off, [0; MAX_LOOPS]);
        for l in 0..n {
            o -= st[l] * m.shift[l];
            wide[m.dims[l] as usize] += st[l];
        }
        o += self.lo.iter().zip(&wide).map(|(lo, w)| lo * w).sum::<i64>();
        let mut packed = [0; MAX_LOOPS];
        for (e, d) in self.request.order.iter().enumerate() {
            packed[e] = wide[*d] * size as i64;
        }
        MemAccess { slot, element_bytes: size as u8, offset: o * size as i64, strides: packed }
    }
    /// Returns the node that loads an element of value `s`.
    fn load(&mut self, s: Slot, dtype: DType, off: i64, st: &LoopVec, m: &FusionMember, n: usize) -> usize {
        let root = self.plan.program.alias_root(s);
        let slot = match self.request.alias {
            Some((from, to)) if from == root => to,
            _ => root,
        };
        let mem = self.mem_access(slot as u32 + self.request.slot_base, dtype.size(), off, st, m, n);
        match self.flat_access(mem) {
            (mem, None) => self.expr.load(dtype, mem),
            (mem, Some(steps)) => self.expr.spread(dtype, mem, steps),
        }
    }
    /// Returns the node of the loop position that an access computes.
    fn position(&mut self, m: MemAccess) -> usize {
        match (self.flat_access(m), i32::try_from(m.offset)) {
            ((m, None), _) => self.expr.position(m),
            ((m, Some(steps)), Ok(first)) if m.strides[..self.row_dim()].iter().all(|s| *s == 0) => {
                self.expr.spread_position(first, steps)
            }
            _ => {
                self.is_irregular = true;
                self.expr.position(m)
            }
        }
    }
    /// Returns the innermost dimension.
    fn row_dim(&self) -> usize {
        self.flat.map_or(self.dims.len() - 1, |rows| rows.dim + 1)
    }
    /// Returns the memory access that stores a member.
    fn store_target(&mut self, m: &FusionMember) -> MemAccess {
        let map = self.plan.elementwise_op(m.op);
        let v = &self.plan.program.values[map.out];
        let (slot, size) = (map.out as u32 + self.request.slot_base, v.dtype.size());
        let mem = self.mem_access(slot, size, 0, &v.strides, m, map.num_loops);
        let (flat, spread) = self.flat_access(mem);
        let is_dense = spread.is_none() && flat.strides[self.row_dim()] == size as i64;
        self.is_irregular |= self.flat.is_some() && !is_dense;
        flat
    }
    /// Returns the node of a member's value in the current cell.
    fn member_value(&mut self, k: usize) -> usize {
        if self.memo[k] != u32::MAX {
            return self.memo[k] as usize;
        }
        let g = self.plan;
        let m = &g.groups[self.group].members[k];
        let map = g.elementwise_op(m.op);
        let node = self.inline_code(&map.code, &map.reads, m, map.num_loops, map.code_loop_base);
        self.memo[k] = node as u32;
        node
    }
    /// Returns the node that an operand reads in the current cell.
    fn operand_value(&mut self, o: &OperandAccess, m: &FusionMember, n: usize) -> usize {
        let at = |l: usize| self.cell[m.dims[l] as usize] - m.shift[l];
        let inside = |p: &&AccessBox| (0..n).all(|l| p.lo[l] <= at(l) && at(l) < p.hi[l]);
        let row = match o.boxes.len() {
            ..MIN_SORTED_BOXES => &None,
            _ => self.sorted_boxes.entry(o).or_insert_with(|| SortedBoxes::from_boxes(&o.boxes, n)),
        };
        let found = match row {
            Some(row) => row.find_candidate(at(row.loop_dim)).map(|k| &o.boxes[k]).filter(inside),
            None => o.boxes.iter().find(inside),
        };
        let Some(p) = found else { return self.expr.constant(o.dtype, o.fill) };
        let s = match p.source {
            Source::Const(c) => return self.expr.constant(o.dtype, c),
            Source::Value(s) => s,
        };
        // computed by this group, and read at the same index
        if let Some(d) = self.plan.defs[s]
            && d.group == self.group
            && let Ok(k) = self.plan.groups[self.group].members.binary_search_by_key(&d.op, |m| m.op)
        {
            return self.member_value(k);
        }
        self.load(s, o.dtype, p.offset, &p.strides, m, n)
    }
    /// Adds the nodes of scalar code, and returns the node of its value.
    fn inline_code(
        &mut self,
        code: &ScalarCode,
        reads: &[OperandAccess],
        m: &FusionMember,
        n: usize,
        lead: usize,
    ) -> usize {
        let mut nodes: SmallVec<[usize; 8]> = SmallVec::with_capacity(code.insts.len());
        for i in &code.insts {
            let from = i.operand_dtype.storage();
            let mut args: SmallVec<[usize; 3]> = SmallVec::new();
            for (j, a) in i.args.iter().enumerate() {
                args.push(match *a {
                    ScalarArg::Access(r) => self.operand_value(&reads[r], m, n),
                    ScalarArg::Inst(k) => nodes[k],
                    ScalarArg::Const(c) => {
                        let bool = i.op == ScalarOp::Select && j == 0;
                        self.expr.constant(if bool { DType::Bool } else { from }, c)
                    }
                    ScalarArg::Index(l) => {
                        let mut st = [0; MAX_LOOPS];
                        st[l + lead] = 1;
                        let mem = self.mem_access(POSITION_SLOT, 1, 0, &st, m, n);
                        let at = self.position(mem);
                        let as_it_is = matches!(i.op, ScalarOp::Copy | ScalarOp::Convert | ScalarOp::Bitcast)
                            || from == DType::I64;
                        if as_it_is {
                            at
                        } else {
                            self.expr.apply(ScalarOp::Convert, DType::I64, from, &[at])
                        }
                    }
                });
            }
            // copying a loop index to a type other than int64 is a conversion
            let (mut fun, mut from) = (i.op, from);
            if matches!(i.args.first(), Some(ScalarArg::Index(_)))
                && matches!(fun, ScalarOp::Copy | ScalarOp::Convert)
            {
                (fun, from) = (ScalarOp::Convert, DType::I64);
            }
            nodes.push(self.expr.apply(fun, from, i.dtype.storage(), &args));
        }
        nodes.last().copied().unwrap_or_else(|| self.expr.constant(DType::F32, Scalar::Float(0.0)))
    }
}
