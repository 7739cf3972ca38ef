//! Tile programs: straight-line code on tiles of at most 512 elements, for each box of a space.

use super::values::{MemAccess, POSITION_SLOT, SlotAccess};
use crate::exec::compile::index::{LoopVec, MAX_LOOPS};
use crate::kernels::{FoldInput, MAX_TERMS, SliceKernel, TermFactors, TransposeBlock, WeightedSumKernel};

/// The maximum number of elements of a tile.
pub(crate) const MAX_TILE_ELEMENTS: i64 = 512;
/// The size of a register, in bytes: a tile of 4-byte elements, or half a tile of 8-byte ones.
pub(crate) const REGISTER_BYTES: usize = 2048;

/// An instruction on a tile.
/// Its operands are indices: registers come first, then the memory accesses of the segment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Instruction {
    /// The kernel that it runs.
    pub(crate) kernel: SliceKernel,
    /// The operand that it writes.
    pub(crate) dst: u16,
    /// The operands that it reads.
    pub(crate) srcs: [u16; 3],
    /// The constants.
    pub(crate) consts: [f64; 4],
}

impl PartialEq for Instruction {
    fn eq(&self, o: &Instruction) -> bool {
        let bits = |k: &[f64; 4]| k.map(f64::to_bits);
        std::ptr::fn_addr_eq(self.kernel, o.kernel)
            && self.dst == o.dst
            && self.srcs == o.srcs
            && bits(&self.consts) == bits(&o.consts)
    }
}

/// A weighted sum of many operands, on a tile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WeightedSumInstr {
    /// The kernel that it runs.
    pub(crate) kernel: WeightedSumKernel,
    /// The operand that it writes.
    pub(crate) dst: u16,
    /// The operands that it reads, one for each term; the rest repeats the first.
    pub(crate) srcs: [u16; MAX_TERMS],
    /// The factors.
    pub(crate) factors: TermFactors,
}

impl PartialEq for WeightedSumInstr {
    fn eq(&self, o: &WeightedSumInstr) -> bool {
        let bits = |k: &TermFactors| (k.factors.map(f64::to_bits), k.sum.to_bits());
        std::ptr::fn_addr_eq(self.kernel, o.kernel)
            && self.dst == o.dst
            && self.srcs == o.srcs
            && bits(&self.factors) == bits(&o.factors)
    }
}

/// A step of a tile program.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TileStep {
    /// An instruction with up to three operands.
    Instr(Instruction),
    /// A weighted sum of many operands.
    WeightedSum(Box<WeightedSumInstr>),
}

impl TileStep {
    /// Returns the operand that is written.
    pub(crate) fn dst(&self) -> u16 {
        match self {
            TileStep::Instr(i) => i.dst,
            TileStep::WeightedSum(i) => i.dst,
        }
    }
    /// Returns all operands, the one that is written first.
    pub(crate) fn operands(&mut self) -> impl Iterator<Item = &mut u16> {
        let (d, s) = match self {
            TileStep::Instr(i) => (&mut i.dst, &mut i.srcs[..]),
            TileStep::WeightedSum(i) => (&mut i.dst, &mut i.srcs[..]),
        };
        std::iter::once(d).chain(s)
    }
}

/// A step that loads elements which are not contiguous along the innermost dimension.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StridedLoad {
    /// The number of the step in the code of a tile.
    pub(crate) step: usize,
    /// The number of the memory access in the segment.
    pub(crate) mem: usize,
    /// The register that it writes.
    pub(crate) register: u16,
    /// The kernel that loads a block of such elements.
    pub(crate) transpose: TransposeBlock,
}

/// The code of an interval of the innermost index.
#[derive(Clone, Debug)]
pub(crate) struct TileSegment {
    /// The first index.
    pub(crate) lo: i64,
    /// The end (exclusive).
    pub(crate) hi: i64,
    /// The code that runs once per row: constants, and values that do not change along the row.
    pub(crate) row_code: Vec<Instruction>,
    /// The code that runs for each tile.
    pub(crate) tile_code: Vec<TileStep>,
    /// The steps of `tile_code` that load elements which are not contiguous.
    pub(crate) strided_loads: Vec<StridedLoad>,
    /// The memory accesses.
    pub(crate) mems: Vec<MemAccess>,
    /// The operand that holds the value if the segment stores nothing.
    pub(crate) result: u16,
    /// The last operation, if it computes the value and a reduction can be fused with it.
    pub(crate) fusible_reduction: Option<FoldInput>,
}

impl TileSegment {
    /// Returns true if an instruction writes operand `operand`.
    fn writes(&self, operand: u16) -> bool {
        self.row_code.iter().any(|i| i.dst == operand) || self.tile_code.iter().any(|s| s.dst() == operand)
    }
    /// Returns true if both segments have equal code; their intervals may differ.
    fn has_same_code(&self, o: &TileSegment) -> bool {
        self.tile_code == o.tile_code
            && self.row_code == o.row_code
            && self.mems == o.mems
            && self.result == o.result
    }
}

/// A box of the outer indices with equal segments everywhere.
#[derive(Clone, Debug)]
pub(crate) struct SegmentBox {
    /// The first index of each dimension.
    pub(crate) lo: LoopVec,
    /// The end of each dimension (exclusive).
    pub(crate) hi: LoopVec,
    /// The segments, in order.
    pub(crate) segments: Vec<TileSegment>,
}

/// The tile program of an iteration space, which starts at index 0.
#[derive(Clone, Debug)]
pub(crate) struct TileProgram {
    /// The number of dimensions, at least 1.
    pub(crate) rank: usize,
    /// The dimension sizes.
    pub(crate) ext: LoopVec,
    /// The code, by box.
    pub(crate) boxes: Vec<SegmentBox>,
    /// The number of registers; operands with higher numbers are in memory.
    pub(crate) num_registers: u16,
    /// The maximum number of operands of a segment, registers included.
    pub(crate) max_operands: usize,
    /// The number of elements of a tile.
    pub(crate) tile_elements: i64,
    /// The dimension along which transposed operands are read in blocks of rows.
    pub(crate) transposed_dim: Option<usize>,
    /// True if results are stored past the caches, so that a fence must follow.
    pub(crate) stream: bool,
    /// The approximate cost, in nanoseconds per element.
    pub(crate) ns_per_element: f64,
    /// True if each row is a tile that runs as a whole (see `flat_rows`).
    pub(crate) is_flat: bool,
}

impl TileProgram {
    /// Returns the number of elements of the space.
    pub(crate) fn elements(&self) -> i64 {
        self.ext[..self.rank].iter().product()
    }
    /// Calls `visit` with each slot that the program accesses, without loop positions.
    pub(crate) fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        for s in self.boxes.iter().flat_map(|b| &b.segments) {
            for (m, operand) in s.mems.iter().zip(self.num_registers..) {
                if m.slot != POSITION_SLOT {
                    visit(SlotAccess { slot: m.slot, is_written: s.writes(operand) });
                }
            }
        }
    }
    /// Adds a box, merged with earlier ones that have equal segments.
    pub(crate) fn push_box(&mut self, mut b: SegmentBox) {
        let mut segs: Vec<TileSegment> = Vec::with_capacity(b.segments.len());
        for s in b.segments {
            match segs.last_mut() {
                Some(p) if p.hi == s.lo && p.has_same_code(&s) => p.hi = s.hi,
                _ => segs.push(s),
            }
        }
        b.segments = segs;
        let outer = self.rank - 1;
        loop {
            let alike = |p: &SegmentBox| {
                let mut differ = (0..outer).filter(|&d| p.lo[d] != b.lo[d] || p.hi[d] != b.hi[d]);
                let (Some(d), None) = (differ.next(), differ.next()) else { return false };
                let same =
                    |x: &TileSegment, y: &TileSegment| x.lo == y.lo && x.hi == y.hi && x.has_same_code(y);
                p.hi[d] == b.lo[d]
                    && p.segments.len() == b.segments.len()
                    && p.segments.iter().zip(&b.segments).all(|(x, y)| same(x, y))
            };
            let Some(h) = self.boxes.iter().rposition(alike) else { break };
            b.lo = self.boxes.remove(h).lo;
        }
        self.boxes.push(b);
    }
    /// Returns true if every access steps through dimensions d and d + 1 as if they were one
    /// dimension.
    pub(crate) fn can_collapse(&self, d: usize) -> bool {
        let (a, b, last) = (d, d + 1, self.rank - 1);
        let eb = self.ext[b];
        let full = |bd: &SegmentBox| match b == last {
            true => bd.segments.len() == 1 && bd.segments[0].lo == 0 && bd.segments[0].hi == eb,
            false => bd.lo[b] == 0 && bd.hi[b] == eb,
        };
        let alike = |x: &MemAccess| x.strides[a] == x.strides[b] * eb;
        eb > 0 && self.boxes.iter().all(|bd| full(bd) && bd.segments.iter().all(|s| s.mems.iter().all(alike)))
    }
    /// Merges dimensions d and d + 1.
    pub(crate) fn collapse_pair(&mut self, d: usize) {
        let (a, b, last) = (d, d + 1, self.rank - 1);
        let (ea, eb) = (self.ext[a], self.ext[b]);
        for bd in &mut self.boxes {
            if b == last
                && let Some(s) = bd.segments.first_mut()
            {
                (s.lo, s.hi) = (bd.lo[a] * eb, bd.hi[a] * eb);
            }
            if b != last {
                (bd.lo[b], bd.hi[b]) = (bd.lo[a] * eb, bd.hi[a] * eb);
            }
            for x in bd.segments.iter_mut().flat_map(|s| &mut s.mems) {
                x.strides.copy_within(b.., a);
                x.strides[MAX_LOOPS - 1] = 0;
            }
            for v in [&mut bd.lo, &mut bd.hi] {
                v.copy_within(b.., a);
            }
        }
        self.ext[b] = ea * eb;
        self.ext.copy_within(b.., a);
        self.ext[MAX_LOOPS - 1] = 1;
        self.rank -= 1;
    }
    /// Merges all dimensions that can be merged.
    pub(crate) fn collapse_dims(&mut self) {
        for d in (0..self.rank.saturating_sub(1)).rev() {
            if self.can_collapse(d) {
                self.collapse_pair(d);
            }
        }
    }
}
