//! Tile programs of one tile, with the addresses of their operands.

use super::codegen::interpreter;
use super::codegen::tile_program::{Instruction, REGISTER_BYTES, TileProgram, TileSegment};
use super::codegen::values::MemAccess;
use super::index::{LoopVec, MAX_LOOPS};
use super::task_kernel::BoundCall;
use std::mem::MaybeUninit;

/// A register, which is aligned for vector instructions.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Register(
    #[expect(dead_code, reason = "written and read by kernels")] [MaybeUninit<u8>; REGISTER_BYTES],
);

/// A tile program that is one tile, with the addresses of its operands.
#[derive(Debug)]
pub(crate) struct BoundTile<'p> {
    /// The code.
    segment: &'p TileSegment,
    /// The code before that of the tile, except for constants, which are in registers already.
    row_code: Vec<&'p Instruction>,
    /// The addresses of the operands: registers first.
    table: Vec<*mut u8>,
    /// The operands that may have another address in each call, with their places in `table`.
    moving: Vec<(usize, &'p MemAccess)>,
    /// The index of the first element.
    first: LoopVec,
    /// The number of elements.
    elements: i64,
    /// The registers, to which `table` points.
    _registers: Vec<Register>,
}

impl<'p> BoundTile<'p> {
    /// Returns a tile program with the operands that `memory` has; `None` if it has several tiles.
    ///
    /// The slots of `moving` may have other addresses in each call.
    pub(crate) fn new(t: &'p TileProgram, memory: &[*mut u8], moving: &[u32]) -> Option<BoundTile<'p>> {
        let ([b], true) = (&t.boxes[..], t.rank == 1 && !t.stream && !t.is_flat) else { return None };
        let [segment] = &b.segments[..] else { return None };
        let elements = segment.hi - segment.lo;
        if !(1..=t.tile_elements).contains(&elements) {
            return None;
        }
        let empty = Register([MaybeUninit::uninit(); REGISTER_BYTES]);
        let mut registers = vec![empty; t.num_registers as usize];
        let mut first = [0; MAX_LOOPS];
        first[0] = segment.lo;
        let own = registers.iter_mut().map(|r| (&raw mut *r).cast());
        let operands = segment.mems.iter().map(|m| interpreter::address(m, memory, &first, 1));
        let table: Vec<*mut u8> = own.chain(operands).collect();
        let (constants, row_code) = segment.row_code.iter().partition(|i: &&Instruction| i.srcs[0] == i.dst);
        let constants: Vec<&Instruction> = constants;
        for i in constants {
            // SAFETY: a constant is written to a register, which has space for a tile.
            unsafe { interpreter::execute_instr(i, &table, elements) }
        }
        let moving = (segment.mems.iter().enumerate())
            .filter(|(_, m)| moving.contains(&m.slot))
            .map(|(k, m)| (registers.len() + k, m))
            .collect();
        Some(BoundTile { segment, row_code, table, moving, first, elements, _registers: registers })
    }
}

impl BoundCall for BoundTile<'_> {
    #[inline]
    unsafe fn run(&mut self, memory: &[*mut u8]) {
        for (k, m) in &self.moving {
            self.table[*k] = interpreter::address(m, memory, &self.first, 1);
        }
        // SAFETY: the operands are valid for the elements (caller contract).
        unsafe {
            for i in &self.row_code {
                interpreter::execute_instr(i, &self.table, self.elements);
            }
            interpreter::execute_steps(&self.segment.tile_code, &self.table, self.elements);
        }
    }
}
