//! Emits the instructions of a cell (see `segments`): assigns registers, and adds loads and stores.

use super::cell::{CellCode, DeferredStore, NodePlan, NodeTarget};
use super::tile_program::{Instruction, StridedLoad, TileProgram, TileSegment, TileStep, WeightedSumInstr};
use super::values::{ExprGraph, ExprNode, InstrOp, MemAccess, POSITION_SLOT, instr_ns_per_element};
use super::{interpreter, peephole::FusedPair, weighted_sum::WeightedTerms};
use crate::core::{DType, Error, Result};
use crate::ir::program::ScalarOp;
use crate::kernels::{self, BroadcastOp, FoldInput, MAX_TERMS, SliceKernel, TermFactors};
use smallvec::SmallVec;

pub(crate) use super::tile_program::MAX_TILE_ELEMENTS;

/// Marks the number of an operand in memory, until the number of registers is known.
///
/// The operands in memory are then numbered after the registers.
const MEMORY_FLAG: u16 = 0x8000;

/// Returns the error for an operation without a kernel.
fn missing_kernel(what: impl std::fmt::Debug, from: DType, dtype: DType) -> Error {
    Error::internal(format!("no kernel for {what:?} from {from} to {dtype}"))
}

/// Returns the kernel of an operation; with `stream`, preferably one with non-temporal stores.
fn select_kernel(what: InstrOp, from: DType, dtype: DType, stream: bool) -> Result<SliceKernel> {
    let streaming = match what {
        _ if !stream => None,
        InstrOp::Scalar(f) => kernels::select_streaming(f, from, dtype),
        InstrOp::Lin1 => kernels::scaled_sum_streaming(dtype, 1),
        InstrOp::Lin2 => kernels::scaled_sum_streaming(dtype, 2),
        InstrOp::Lin3 => kernels::scaled_sum_streaming(dtype, 3),
        InstrOp::MulAdd => None,
    };
    let plain = || match what {
        InstrOp::Scalar(f) => kernels::select(f, from, dtype),
        InstrOp::Lin1 => kernels::scaled_sum(dtype, 1),
        InstrOp::Lin2 => kernels::scaled_sum(dtype, 2),
        InstrOp::Lin3 => kernels::scaled_sum(dtype, 3),
        InstrOp::MulAdd => kernels::mul_add(dtype),
    };
    streaming.or_else(plain).ok_or_else(|| missing_kernel(what, from, dtype))
}

/// The code of a cell under construction.
struct Emitter {
    /// The segment.
    segment: TileSegment,
    /// The registers that can be assigned again.
    free: Vec<u16>,
    /// The number of registers.
    num_registers: u16,
    /// The approximate cost, in nanoseconds per element.
    ns_per_element: f64,
    /// The size of the widest element, in bytes.
    widest: usize,
    /// The operand of each node.
    operands: Vec<u16>,
    /// For each row scalar that has not been repeated over a tile yet, the kernel that does so.
    pending_splats: Vec<Option<SliceKernel>>,
}

impl Emitter {
    /// Creates an emitter for a cell of `n` nodes.
    fn new(n: usize) -> Emitter {
        let segment = TileSegment {
            lo: 0,
            hi: 0,
            row_code: Vec::new(),
            tile_code: Vec::new(),
            strided_loads: Vec::new(),
            mems: Vec::new(),
            result: 0,
            fusible_reduction: None,
        };
        Emitter {
            segment,
            free: Vec::new(),
            num_registers: 0,
            ns_per_element: 0.0,
            widest: 4,
            operands: vec![u16::MAX; n],
            pending_splats: vec![None; n],
        }
    }
    /// Appends an instruction.
    fn push_instr(&mut self, i: Instruction) {
        self.segment.tile_code.push(TileStep::Instr(i));
    }
    /// Returns the operand of a memory access.
    fn mem_operand(&mut self, m: MemAccess) -> u16 {
        let mems = &mut self.segment.mems;
        let i = mems.iter().position(|x| *x == m).unwrap_or_else(|| {
            mems.push(m);
            mems.len() - 1
        });
        MEMORY_FLAG | i as u16
    }
    /// Returns a free register.
    fn alloc_register(&mut self) -> u16 {
        self.free.pop().unwrap_or_else(|| {
            self.num_registers += 1;
            self.num_registers - 1
        })
    }
    /// Returns the operand of the access, or a free register if there is none.
    fn target_operand(&mut self, m: Option<MemAccess>) -> u16 {
        let Some(m) = m else { return self.alloc_register() };
        self.mem_operand(m)
    }
    /// Appends a copy from operand `s` to operand `d`.
    fn push_copy(&mut self, d: u16, s: u16, dtype: DType, stream: bool) -> Result<()> {
        let f = select_kernel(InstrOp::Scalar(ScalarOp::Copy), dtype, dtype, stream)?;
        self.push_instr(Instruction { kernel: f, dst: d, srcs: [s; 3], consts: [0.0; 4] });
        self.ns_per_element += 0.02;
        Ok(())
    }
    /// Appends an instruction that runs once per row, and returns its register.
    fn push_row_instr(&mut self, f: SliceKernel, s: Option<u16>, k: [f64; 4]) -> u16 {
        // pinned: never freed
        let d = self.num_registers;
        self.num_registers += 1;
        self.segment.row_code.push(Instruction { kernel: f, dst: d, srcs: [s.unwrap_or(d); 3], consts: k });
        d
    }
    /// Returns the operand that has one element per index; a row scalar is repeated first.
    fn full_operand(&mut self, i: u32) -> u16 {
        let i = i as usize;
        debug_assert_ne!(self.operands[i], u16::MAX, "node {i} is read, but another one absorbed it");
        if let Some(f) = self.pending_splats[i].take() {
            self.operands[i] = self.push_row_instr(f, Some(self.operands[i]), [0.0; 4]);
        }
        self.operands[i]
    }

    /// Emits the instructions of a node.
    fn emit_node(&mut self, cell: &CellCode<'_>, plan: &mut NodePlan, i: usize) -> Result<()> {
        let (node, dtype) = cell.expr.nodes[i];
        let size = dtype.size();
        self.widest = self.widest.max(size);
        let store = cell.roots.iter().find_map(|r| r.1.filter(|m| r.0 == i && !cell.is_late(m)));
        let to = NodeTarget { store, direct: store.filter(|_| plan.uses[i] == 1) };
        let missing_load = || missing_kernel("a load", dtype, dtype);
        self.operands[i] = match node {
            ExprNode::Const(b) => {
                let k = [f64::from_bits(b as u64), f64::from_bits((b >> 64) as u64), 0.0, 0.0];
                let f = kernels::fill(size).ok_or_else(missing_load)?;
                match to.direct {
                    Some(m) => {
                        let d = self.mem_operand(m);
                        self.push_instr(Instruction { kernel: f, dst: d, srcs: [d; 3], consts: k });
                        d
                    }
                    None => self.push_row_instr(f, None, k),
                }
            }
            ExprNode::Mem(m) if m.strides[cell.last] == i64::from(m.element_bytes) => self.mem_operand(m),
            ExprNode::Mem(m) if m.strides[cell.last] == 0 => {
                self.operands[i] = self.mem_operand(m);
                self.pending_splats[i] = Some(kernels::splat(size).ok_or_else(missing_load)?);
                // read it now if a deferred store may overwrite it
                if cell.may_overwrite(&m) { self.full_operand(i as u32) } else { self.operands[i] }
            }
            ExprNode::Mem(m) => {
                let (f, s) = (kernels::gather(size).ok_or_else(missing_load)?, self.mem_operand(m));
                let d = self.alloc_register();
                self.segment.strided_loads.push(StridedLoad {
                    step: self.segment.tile_code.len(),
                    mem: usize::from(s & !MEMORY_FLAG),
                    register: d,
                    transpose: kernels::transpose_block(size).ok_or_else(missing_load)?,
                });
                let step = (m.strides[cell.last] / i64::from(m.element_bytes)) as f64;
                self.push_instr(Instruction {
                    kernel: f,
                    dst: d,
                    srcs: [s; 3],
                    consts: [step, 0.0, 0.0, 0.0],
                });
                self.ns_per_element += 0.5;
                d
            }
            ExprNode::Spread(..) | ExprNode::SpreadPosition(..) if !kernels::HAS_FAST_PATHS => {
                unreachable!("only flat rows have such nodes")
            }
            ExprNode::Spread(m, steps) => {
                let f = kernels::gather_at_of(size).ok_or_else(missing_load)?;
                let at = self.push_row_instr(kernels::spread_indices, None, steps.constants(0));
                let s = self.mem_operand(m);
                self.push_spread(f, s, at, to.direct, m.strides[..cell.last].iter().all(|s| *s == 0))
            }
            ExprNode::SpreadPosition(first, steps) => {
                self.push_row_instr(kernels::spread_positions, None, steps.constants(first))
            }
            ExprNode::Position(m) => {
                let s = self.mem_operand(MemAccess { slot: POSITION_SLOT, ..m });
                let d = self.target_operand(to.direct);
                self.push_instr(Instruction {
                    kernel: interpreter::write_positions,
                    dst: d,
                    srcs: [s; 3],
                    consts: [m.strides[cell.last] as f64, 0.0, 0.0, 0.0],
                });
                self.ns_per_element += 0.05;
                d
            }
            ExprNode::Instr { .. } => self.emit_instr(cell, plan, i, to)?,
        };
        Ok(())
    }
    /// Appends the load of the elements of operand `s` at the positions in register `at`.
    ///
    /// If they are the same in each row, they are loaded in the first one, as constants are.
    fn push_spread(&mut self, f: SliceKernel, s: u16, at: u16, to: Option<MemAccess>, same: bool) -> u16 {
        if same {
            let d = self.push_row_instr(f, None, [0.0; 4]);
            if let Some(i) = self.segment.row_code.last_mut() {
                i.srcs = [d, s, at];
            }
            return d;
        }
        let d = self.target_operand(to);
        self.push_instr(Instruction { kernel: f, dst: d, srcs: [at, s, at], consts: [0.0; 4] });
        self.ns_per_element += 0.15;
        d
    }
    /// Emits the instruction of node `i`, and frees the registers of operands that it reads last.
    fn emit_instr(
        &mut self,
        cell: &CellCode<'_>,
        plan: &mut NodePlan,
        i: usize,
        to: NodeTarget,
    ) -> Result<u16> {
        if let ExprNode::Instr { from, .. } = cell.expr.nodes[i].0 {
            self.widest = self.widest.max(from.size());
        }
        let d = self.target_operand(to.store);
        let past = cell.stream && to.direct.is_some();
        let read: SmallVec<[u32; MAX_TERMS]> = match (&plan.sums[i], plan.pairs[i]) {
            (_, Some(p)) => {
                self.push_pair(cell, i, &p, d, past)?;
                p.args[..p.num_args as usize].into()
            }
            (Some(sum), None) => {
                self.push_weighted_sum(sum, d, cell.expr.nodes[i].1, past)?;
                sum.terms.iter().map(|t| t.0).collect()
            }
            (None, None) => self.push_operation(cell, i, d, past)?,
        };
        for a in read {
            let a = a as usize;
            plan.uses[a] -= 1;
            let operand = self.operands[a];
            let is_pinned = || self.segment.row_code.iter().any(|x| x.dst == operand);
            if plan.uses[a] == 0 && operand & MEMORY_FLAG == 0 && !is_pinned() {
                self.free.push(operand);
            }
        }
        Ok(d)
    }
    /// Appends the fused pair of node `i`.
    fn push_pair(&mut self, cell: &CellCode<'_>, i: usize, p: &FusedPair, d: u16, past: bool) -> Result<()> {
        let (ExprNode::Instr { op, from, .. }, dtype) = cell.expr.nodes[i] else { return Ok(()) };
        for (j, a) in p.args[..p.num_args as usize].iter().enumerate() {
            if let (BroadcastOp::ExtremeIndex, ExprNode::Position(m)) =
                (p.fun, cell.expr.nodes[*a as usize].0)
            {
                self.operands[*a as usize] = self.mem_operand(MemAccess { slot: POSITION_SLOT, ..m });
            } else if p.broadcast_mask >> j & 1 == 0 {
                self.full_operand(*a);
            }
        }
        // (if the operand has been repeated, its first element is read)
        let f =
            kernels::broadcast_kernel(p.fun, p.broadcast_mask, cell.expr.nodes[p.args[0] as usize].1, past)
                .ok_or_else(|| missing_kernel(p.fun, dtype, dtype))?;
        let (srcs, [p0, p1, p2]) = (p.args.map(|a| self.operands[a as usize]), p.consts.map(f64::from_bits));
        self.push_instr(Instruction { kernel: f, dst: d, srcs, consts: [p0, p1, p2, 0.0] });
        if p.fun == BroadcastOp::ExpLin && cell.is_only_result(i) {
            self.segment.fusible_reduction = Some(FoldInput::ExpLin);
        }
        self.ns_per_element +=
            instr_ns_per_element(InstrOp::Lin2, dtype, dtype) + instr_ns_per_element(op, from, dtype);
        Ok(())
    }
    /// Appends a weighted sum.
    fn push_weighted_sum(&mut self, sum: &WeightedTerms, d: u16, dtype: DType, past: bool) -> Result<()> {
        let terms = &sum.terms;
        terms.iter().for_each(|t| _ = self.full_operand(t.0));
        let f = kernels::weighted_sum(dtype, terms.len(), past)
            .ok_or_else(|| missing_kernel("a sum", dtype, dtype))?;
        let term = |t: usize| terms.get(t).copied().unwrap_or(terms[0]);
        let srcs = std::array::from_fn(|t| self.operands[term(t).0 as usize]);
        let factors = TermFactors { factors: std::array::from_fn(|t| term(t).1), sum: sum.sum_factor };
        let instr = WeightedSumInstr { kernel: f, dst: d, srcs, factors };
        self.segment.tile_code.push(TileStep::WeightedSum(Box::new(instr)));
        self.ns_per_element += instr_ns_per_element(InstrOp::Lin3, dtype, dtype) * terms.len() as f64 / 3.0;
        Ok(())
    }
    /// Appends the operation of node `i`, and returns the nodes that it reads.
    fn push_operation(
        &mut self,
        cell: &CellCode<'_>,
        i: usize,
        d: u16,
        past: bool,
    ) -> Result<SmallVec<[u32; MAX_TERMS]>> {
        let (ExprNode::Instr { op, from, n, args, k }, dtype) = cell.expr.nodes[i] else {
            return Ok(SmallVec::new());
        };
        let (f, args, k) = match self.broadcast_kernel(op, dtype, args, n, k, past) {
            Some(along) => along,
            None => {
                args[..n as usize].iter().for_each(|a| _ = self.full_operand(*a));
                if cell.is_only_result(i) {
                    self.segment.fusible_reduction = match op {
                        InstrOp::Scalar(ScalarOp::Mul) => Some(FoldInput::Products),
                        InstrOp::Scalar(ScalarOp::Exp) => Some(FoldInput::Exp),
                        _ => None,
                    };
                }
                (select_kernel(op, from, dtype, past)?, args, k)
            }
        };
        let (srcs, [p, q, r]) = (args.map(|a| self.operands[a as usize]), k.map(f64::from_bits));
        self.push_instr(Instruction { kernel: f, dst: d, srcs, consts: [p, q, r, 0.0] });
        self.ns_per_element += instr_ns_per_element(op, from, dtype);
        Ok(args[..n as usize].into())
    }
    /// Returns the kernel that reads row scalars without repeating them, with its operands and
    /// constants.
    ///
    /// `None` if no operand is a row scalar or there is no such kernel. With `past`, a kernel with
    /// non-temporal stores is preferred.
    fn broadcast_kernel(
        &self,
        what: InstrOp,
        dtype: DType,
        mut args: [u32; 3],
        n: u8,
        mut k: [u64; 3],
        past: bool,
    ) -> Option<(SliceKernel, [u32; 3], [u64; 3])> {
        let one = |a: u32| self.pending_splats[a as usize].is_some();
        if !args[..n as usize].iter().any(|a| one(*a)) {
            return None;
        }
        let fun = match what {
            InstrOp::Scalar(ScalarOp::Mul) => BroadcastOp::Mul,
            InstrOp::Scalar(ScalarOp::Div) => BroadcastOp::Div,
            InstrOp::Lin2 => BroadcastOp::Lin2,
            InstrOp::MulAdd => BroadcastOp::MulAdd,
            _ => return None,
        };
        // products and sums are commutative
        if one(args[0]) && fun != BroadcastOp::Div {
            args.swap(0, 1);
            if fun == BroadcastOp::Lin2 {
                k.swap(0, 1);
            }
        }
        if one(args[0]) {
            return None;
        }
        let same = (1..n as usize).filter(|j| one(args[*j])).map(|j| 1u8 << j).sum();
        Some((kernels::broadcast_kernel(fun, same, dtype, past)?, args, k))
    }

    /// Stores the roots whose stores are not deferred.
    fn store_roots(&mut self, cell: &CellCode<'_>) -> Result<()> {
        for (r, m) in cell.roots {
            match m {
                None => self.segment.result = self.operands[*r],
                Some(m) if cell.is_late(m) => {}
                Some(m) => {
                    let d = self.mem_operand(*m);
                    if self.operands[*r] != d {
                        self.push_copy(d, self.operands[*r], cell.expr.nodes[*r].1, cell.stream)?;
                    }
                }
            }
        }
        Ok(())
    }
    /// Stores the roots whose stores are deferred.
    /// They are last, because tiles are aligned to the last access.
    fn store_late_roots(&mut self, cell: &CellCode<'_>) -> Result<()> {
        // if one deferred store may overwrite the operand of another, that operand is copied before
        // the first of them
        let mut stores: SmallVec<[(u16, usize, MemAccess); 2]> = SmallVec::new();
        for (r, m) in cell.roots.iter().filter_map(|(r, m)| Some((*r, m.filter(|m| cell.is_late(m))?))) {
            let own = |x: &MemAccess| {
                x.slot == m.slot
                    || cell.deferred.iter().any(|l| l.slot == m.slot && l.overwrites == Some(x.slot))
            };
            let mut s = self.operands[r];
            if s & MEMORY_FLAG != 0 && !own(&self.segment.mems[usize::from(s & !MEMORY_FLAG)]) {
                let d = self.alloc_register();
                self.push_copy(d, s, cell.expr.nodes[r].1, false)?;
                s = d;
            }
            stores.push((s, r, m));
        }
        for (s, r, m) in stores {
            let d = self.mem_operand(m);
            let dtype = cell.expr.nodes[r].1;
            match s & MEMORY_FLAG != 0 {
                _ if s == d => {}
                true => {
                    self.push_instr(Instruction {
                        kernel: interpreter::copy_if_elsewhere,
                        dst: d,
                        srcs: [s; 3],
                        consts: [dtype.size() as f64, 0.0, 0.0, 0.0],
                    });
                    self.ns_per_element += 0.02;
                }
                false => self.push_copy(d, s, dtype, false)?,
            }
        }
        Ok(())
    }
}

/// Emits instructions for these roots, each stored at its access or left in `result`.
/// Returns the segment, its nanoseconds per element, its number of registers, and the elements of a
/// tile.
pub(crate) fn emit(
    expr: &ExprGraph,
    roots: &[(usize, Option<MemAccess>)],
    last: usize,
    deferred: &[DeferredStore],
    stream: bool,
) -> Result<(TileSegment, f64, u16, i64)> {
    let cell = CellCode { expr, roots, last, deferred, stream };
    let (mut plan, mut e) = (NodePlan::new(&cell), Emitter::new(expr.nodes.len()));
    for i in 0..expr.nodes.len() {
        if plan.uses[i] > 0 && !plan.absorbed[i] {
            e.emit_node(&cell, &mut plan, i)?;
        }
    }
    for (r, _) in roots {
        e.full_operand(*r as u32);
    }
    e.store_roots(&cell)?;
    e.store_late_roots(&cell)?;
    Ok((e.segment, e.ns_per_element, e.num_registers, MAX_TILE_ELEMENTS * 4 / e.widest as i64))
}

/// Numbers the operands in memory, after the registers, and finds the largest number.
pub(crate) fn number_memory_operands(t: &mut TileProgram) {
    let regs = t.num_registers;
    let fix = |x: &mut u16| {
        if *x & MEMORY_FLAG != 0 {
            *x = (*x & !MEMORY_FLAG) + regs;
        }
    };
    for s in t.boxes.iter_mut().flat_map(|b| &mut b.segments) {
        for i in &mut s.row_code {
            fix(&mut i.dst);
            i.srcs.iter_mut().for_each(fix);
        }
        s.tile_code.iter_mut().flat_map(TileStep::operands).for_each(fix);
        fix(&mut s.result);
        t.max_operands = t.max_operands.max(regs as usize + s.mems.len());
    }
}
