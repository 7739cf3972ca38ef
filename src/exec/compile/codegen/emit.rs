//! Emits the instructions of a cell (see `segments`): assigns registers, and adds loads and stores.

use super::interpreter;
use super::peephole::find_pairs;
use super::tile_program::{Instruction, TileProgram, TileSegment, TileStep, WeightedSumInstr};
use super::values::{ExprGraph, ExprNode, InstrOp, MemAccess, POSITION_SLOT, instr_ns_per_element};
use super::weighted_sum::{WeightedTerms, find_weighted_sums};
use crate::core::diagnostic::{Error, Result};
use crate::core::types::DType;
use crate::ir::program::loop_nest::ScalarOp;
use crate::kernels;
use crate::kernels::{BroadcastOp, FoldInput, MAX_TERMS, SliceKernel, TermFactors};
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
}

impl Emitter {
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
    /// Appends a copy from operand `s` to operand `d`.
    fn push_copy(&mut self, d: u16, s: u16, dtype: DType, stream: bool) -> Result<()> {
        let f = select_kernel(InstrOp::Scalar(ScalarOp::Copy), dtype, dtype, stream)?;
        self.push_instr(Instruction { kernel: f, dst: d, srcs: [s; 3], consts: [0.0; 4] });
        self.ns_per_element += 0.02;
        Ok(())
    }
    /// Appends a weighted sum; `at` has the operand of each node.
    fn push_weighted_sum(
        &mut self,
        sum: &WeightedTerms,
        d: u16,
        dtype: DType,
        at: &[u16],
        stream: bool,
    ) -> Result<()> {
        let terms = &sum.terms;
        let f = kernels::weighted_sum(dtype, terms.len(), stream)
            .ok_or_else(|| missing_kernel("a sum", dtype, dtype))?;
        let term = |t: usize| terms.get(t).copied().unwrap_or(terms[0]);
        let (s, of) = (std::array::from_fn(|t| at[term(t).0 as usize]), std::array::from_fn(|t| term(t).1));
        self.segment.tile_code.push(TileStep::WeightedSum(Box::new(WeightedSumInstr {
            kernel: f,
            dst: d,
            srcs: s,
            factors: TermFactors { factors: of, sum: sum.sum_factor },
        })));
        self.ns_per_element += instr_ns_per_element(InstrOp::Lin3, dtype, dtype) * terms.len() as f64 / 3.0;
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
}

/// The operands that hold the values of a cell.
struct ValueLocations {
    /// The operand of each node.
    operands: Vec<u16>,
    /// For each row scalar that has not been repeated over a tile yet, the kernel that does so.
    pending_splats: Vec<Option<SliceKernel>>,
}

impl ValueLocations {
    /// Returns the operand that has one element per index; a row scalar is repeated first.
    fn full_operand(&mut self, i: u32, e: &mut Emitter) -> u16 {
        let i = i as usize;
        debug_assert_ne!(self.operands[i], u16::MAX, "node {i} is read, but another one absorbed it");
        if let Some(f) = self.pending_splats[i].take() {
            self.operands[i] = e.push_row_instr(f, Some(self.operands[i]), [0.0; 4]);
        }
        self.operands[i]
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
}

/// A slot that shares memory with an operand, so that it is written after all reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DeferredStore {
    /// The slot that is written.
    pub(crate) slot: u32,
    /// The slot that it overwrites, index by index; `None` if operand and result are in one slot.
    pub(crate) overwrites: Option<u32>,
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
    let n = expr.nodes.len();
    let mut uses = vec![0u32; n];
    for r in roots {
        uses[r.0] += 1;
    }
    for i in (0..n).rev() {
        if let (ExprNode::Instr { n, args, .. }, true) = (&expr.nodes[i].0, uses[i] > 0) {
            for a in &args[..*n as usize] {
                uses[*a as usize] += 1;
            }
        }
    }
    let (sums, mut gone) = find_weighted_sums(expr, &uses);
    let pairs = find_pairs(expr, &uses, last, &sums, &mut gone);
    let mut e = Emitter {
        segment: TileSegment {
            lo: 0,
            hi: 0,
            row_code: Vec::new(),
            tile_code: Vec::new(),
            mems: Vec::new(),
            result: 0,
            fusible_reduction: None,
        },
        free: Vec::new(),
        num_registers: 0,
        ns_per_element: 0.0,
    };
    let mut found = ValueLocations { operands: vec![u16::MAX; n], pending_splats: vec![None; n] };
    let mut widest = 4;
    let is_late = |m: &MemAccess| deferred.iter().any(|l| l.slot == m.slot);
    for i in 0..n {
        if uses[i] == 0 || gone[i] {
            continue;
        }
        let (node, dtype) = expr.nodes[i];
        widest = widest.max(dtype.size());
        let store = roots.iter().find_map(|r| r.1.filter(|m| r.0 == i && !is_late(m)));
        let direct = store.filter(|_| uses[i] == 1);
        let size = dtype.size();
        let none = || missing_kernel("a load", dtype, dtype);
        match node {
            ExprNode::Const(b) => {
                let k = [f64::from_bits(b as u64), f64::from_bits((b >> 64) as u64), 0.0, 0.0];
                let f = kernels::fill(size).ok_or_else(none)?;
                found.operands[i] = match direct {
                    Some(m) => {
                        let d = e.mem_operand(m);
                        e.push_instr(Instruction { kernel: f, dst: d, srcs: [d; 3], consts: k });
                        d
                    }
                    None => e.push_row_instr(f, None, k),
                };
            }
            ExprNode::Mem(m) if m.strides[last] == i64::from(m.element_bytes) => {
                found.operands[i] = e.mem_operand(m)
            }
            ExprNode::Mem(m) if m.strides[last] == 0 => {
                found.operands[i] = e.mem_operand(m);
                found.pending_splats[i] = Some(kernels::splat(size).ok_or_else(none)?);
                // read it now if a deferred store may overwrite it
                if deferred.iter().any(|l| l.slot == m.slot || l.overwrites == Some(m.slot)) {
                    found.full_operand(i as u32, &mut e);
                }
            }
            ExprNode::Mem(m) => {
                let (f, s) = (kernels::gather(size).ok_or_else(none)?, e.mem_operand(m));
                let d = match direct {
                    Some(m) => e.mem_operand(m),
                    None => e.alloc_register(),
                };
                let step = (m.strides[last] / i64::from(m.element_bytes)) as f64;
                e.push_instr(Instruction { kernel: f, dst: d, srcs: [s; 3], consts: [step, 0.0, 0.0, 0.0] });
                e.ns_per_element += 0.5;
                found.operands[i] = d;
            }
            ExprNode::Position(m) => {
                let s = e.mem_operand(MemAccess { slot: POSITION_SLOT, ..m });
                let d = match direct {
                    Some(m) => e.mem_operand(m),
                    None => e.alloc_register(),
                };
                e.push_instr(Instruction {
                    kernel: interpreter::write_positions,
                    dst: d,
                    srcs: [s; 3],
                    consts: [m.strides[last] as f64, 0.0, 0.0, 0.0],
                });
                e.ns_per_element += 0.05;
                found.operands[i] = d;
            }
            ExprNode::Instr { op: what, from, n, args, k } => {
                widest = widest.max(from.size());
                let d = match store {
                    Some(m) => e.mem_operand(m),
                    None => e.alloc_register(),
                };
                let past = stream && direct.is_some();
                let read: SmallVec<[u32; MAX_TERMS]> = match (&sums[i], pairs[i]) {
                    (_, Some(p)) => {
                        for (_, a) in p.args[..p.num_args as usize]
                            .iter()
                            .enumerate()
                            .filter(|(j, _)| p.broadcast_mask >> j & 1 == 0)
                        {
                            found.full_operand(*a, &mut e);
                        }
                        // (if the operand has been repeated, its first element is read)
                        let f = kernels::broadcast_kernel(p.fun, p.broadcast_mask, dtype, past)
                            .ok_or_else(|| missing_kernel(p.fun, dtype, dtype))?;
                        let (s, [p0, p1, p2]) =
                            (p.args.map(|a| found.operands[a as usize]), p.consts.map(f64::from_bits));
                        e.push_instr(Instruction { kernel: f, dst: d, srcs: s, consts: [p0, p1, p2, 0.0] });
                        if p.fun == BroadcastOp::ExpLin && roots == [(i, None)] {
                            e.segment.fusible_reduction = Some(FoldInput::ExpLin);
                        }
                        e.ns_per_element += instr_ns_per_element(InstrOp::Lin2, dtype, dtype)
                            + instr_ns_per_element(what, from, dtype);
                        p.args[..p.num_args as usize].into()
                    }
                    (Some(sum), None) => {
                        sum.terms.iter().for_each(|t| _ = found.full_operand(t.0, &mut e));
                        e.push_weighted_sum(sum, d, dtype, &found.operands, past)?;
                        sum.terms.iter().map(|t| t.0).collect()
                    }
                    (None, None) => {
                        let (f, args, k) = match found.broadcast_kernel(what, dtype, args, n, k, past) {
                            Some(along) => along,
                            None => {
                                args[..n as usize].iter().for_each(|a| _ = found.full_operand(*a, &mut e));
                                if roots == [(i, None)] {
                                    e.segment.fusible_reduction = match what {
                                        InstrOp::Scalar(ScalarOp::Mul) => Some(FoldInput::Products),
                                        InstrOp::Scalar(ScalarOp::Exp) => Some(FoldInput::Exp),
                                        _ => None,
                                    };
                                }
                                (select_kernel(what, from, dtype, past)?, args, k)
                            }
                        };
                        let (s, [p, q, r]) =
                            (args.map(|a| found.operands[a as usize]), k.map(f64::from_bits));
                        e.push_instr(Instruction { kernel: f, dst: d, srcs: s, consts: [p, q, r, 0.0] });
                        e.ns_per_element += instr_ns_per_element(what, from, dtype);
                        args[..n as usize].into()
                    }
                };
                found.operands[i] = d;
                let pinned = |r: u16, seg: &TileSegment| seg.row_code.iter().any(|x| x.dst == r);
                for a in read {
                    let a = a as usize;
                    uses[a] -= 1;
                    if uses[a] == 0
                        && found.operands[a] & MEMORY_FLAG == 0
                        && !pinned(found.operands[a], &e.segment)
                    {
                        e.free.push(found.operands[a]);
                    }
                }
            }
        }
    }
    for (r, _) in roots {
        found.full_operand(*r as u32, &mut e);
    }
    let at = found.operands;
    for (r, m) in roots {
        match m {
            None => e.segment.result = at[*r],
            Some(m) if is_late(m) => {}
            Some(m) => {
                let d = e.mem_operand(*m);
                if at[*r] != d {
                    e.push_copy(d, at[*r], expr.nodes[*r].1, stream)?;
                }
            }
        }
    }
    // if one deferred store may overwrite the operand of another, that operand is copied before the
    // first of them
    let mut stores: SmallVec<[(u16, usize, MemAccess); 2]> = SmallVec::new();
    for (r, m) in roots.iter().filter_map(|(r, m)| Some((*r, m.filter(is_late)?))) {
        let own = |x: &MemAccess| {
            x.slot == m.slot || deferred.iter().any(|l| l.slot == m.slot && l.overwrites == Some(x.slot))
        };
        let mut s = at[r];
        if s & MEMORY_FLAG != 0 && !own(&e.segment.mems[usize::from(s & !MEMORY_FLAG)]) {
            let d = e.alloc_register();
            e.push_copy(d, s, expr.nodes[r].1, false)?;
            s = d;
        }
        stores.push((s, r, m));
    }
    for (s, r, m) in stores {
        let d = e.mem_operand(m);
        let dtype = expr.nodes[r].1;
        match s & MEMORY_FLAG != 0 {
            _ if s == d => {}
            true => {
                let k = [dtype.size() as f64, 0.0, 0.0, 0.0];
                e.push_instr(Instruction {
                    kernel: interpreter::copy_if_elsewhere,
                    dst: d,
                    srcs: [s; 3],
                    consts: k,
                });
                e.ns_per_element += 0.02;
            }
            false => e.push_copy(d, s, dtype, false)?,
        }
    }
    // a deferred store is last, because tiles are aligned to the last access
    Ok((e.segment, e.ns_per_element, e.num_registers, MAX_TILE_ELEMENTS * 4 / widest as i64))
}

/// Numbers the operands in memory, after the registers.
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
    }
}
