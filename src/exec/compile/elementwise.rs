//! Elementwise groups: tile programs whose tasks are ranges of one dimension.

use super::bound_tile::BoundTile;
use super::codegen::flat_program::flat_tile_program;
use super::codegen::flat_rows::{FlatRows, LONG_ROW, MIN_FLAT_ELEMENTS};
use super::codegen::interpreter::blocks::BLOCK_ROWS;
use super::codegen::interpreter::{self, Scratch};
use super::codegen::segments::{self, CodegenRequest};
use super::task_kernel::{BoundCall, KernelStage, KernelTask, SlotAccess, TaskKernel};
use super::{codegen::tile_program::TileProgram, fusion::FusionPlan, index::MAX_LOOPS};
use crate::core::Result;
use crate::exec::runtime::thread_pool;
use crate::kernels::HAS_FAST_PATHS;
use crate::partition::{Slot, fusion::space::elementwise_order};

/// The minimum size, in bytes, of a result that is stored past the caches.
const MIN_STREAM_BYTES: usize = 16 << 20;

/// A tile program that is bound to memory.
#[derive(Clone, Debug)]
pub(crate) struct ElementwiseKernel {
    /// The program.
    pub(crate) tiles: TileProgram,
    /// The dimension that is divided among tasks.
    split_dim: usize,
    /// The number of indices of this dimension that a task has.
    task_indices: i64,
    /// The approximate cost, in microseconds.
    cost_us: f64,
}

/// Binds an elementwise group to memory.
/// `over` lists the values that are stored over an operand of the group.
pub(crate) fn bind(
    g: &FusionPlan<'_, '_>,
    group: usize,
    base: u32,
    in_loop: bool,
    over: &[(Slot, Slot)],
) -> Result<ElementwiseKernel> {
    let ask = Request::new(g, group, in_loop, over);
    let mut tiles = segments::tile_program(g, group, &ask.codegen(over, base))?;
    tiles.collapse_dims();
    Ok(ElementwiseKernel::new(tiles, in_loop))
}

/// Binds an elementwise group to memory, with flat rows if those of `kernel` are short.
pub(crate) fn bind_flat(
    g: &FusionPlan<'_, '_>,
    group: usize,
    base: u32,
    in_loop: bool,
    over: &[(Slot, Slot)],
    kernel: &ElementwiseKernel,
) -> Result<Option<ElementwiseKernel>> {
    let t = &kernel.tiles;
    let one = matches!(&t.boxes[..], [b] if b.segments.len() == 1);
    if !HAS_FAST_PATHS
        || !one
        || t.rank < 2
        || t.ext[t.rank - 1] >= LONG_ROW
        || t.elements() < MIN_FLAT_ELEMENTS
    {
        return Ok(None);
    }
    let ask = Request::new(g, group, in_loop, over);
    let ext = segments::dim_sizes(g, group, &ask.codegen(over, base));
    let Some(rows) = FlatRows::choose(&ext, 1, t.tile_elements) else { return Ok(None) };
    let flat = flat_tile_program(g, group, &ask.codegen(over, base), rows)?;
    Ok(flat.map(|mut tiles| {
        tiles.collapse_dims();
        ElementwiseKernel::new(tiles, in_loop)
    }))
}

/// The order and the options of the code that is generated for a group.
struct Request {
    order: Vec<usize>,
    stream: bool,
}

impl Request {
    fn new(g: &FusionPlan<'_, '_>, group: usize, in_loop: bool, over: &[(Slot, Slot)]) -> Request {
        let order = elementwise_order(g, group);
        let outs: Vec<Slot> = g.stored_members(group).collect();
        let stream = !in_loop
            && over.is_empty()
            && outs.len() == 1
            && g.program.value_bytes(outs[0]) >= MIN_STREAM_BYTES
            && g.program.outs.iter().any(|o| g.program.alias_root(*o) == outs[0]);
        Request { order, stream }
    }
    fn codegen<'a>(&'a self, over: &'a [(Slot, Slot)], base: u32) -> CodegenRequest<'a> {
        CodegenRequest {
            order: &self.order,
            stream: self.stream,
            alias: None,
            overwrites: over,
            slot_base: base,
        }
    }
}

/// Returns the approximate cost of a tile program, in microseconds.
fn estimate_cost_us(t: &TileProgram) -> f64 {
    let (mut operand_bytes, mut calls) = (1, 0.0);
    for b in &t.boxes {
        let rows: i64 = (0..t.rank - 1).map(|d| b.hi[d] - b.lo[d]).product();
        for s in &b.segments {
            operand_bytes = operand_bytes.max(s.mems.iter().map(|m| m.element_bytes as usize).sum());
            let tiles = (s.hi - s.lo + t.tile_elements - 1) / t.tile_elements;
            calls += rows as f64 * (tiles as f64 * (s.tile_code.len() + 2) as f64 + s.row_code.len() as f64);
        }
    }
    let size = t.elements() as f64;
    (size * t.ns_per_element + 3.0 * calls).max(size * operand_bytes as f64 / 60.0) / 1000.0
}

impl ElementwiseKernel {
    /// Divides a tile program into tasks.
    fn new(mut tiles: TileProgram, in_loop: bool) -> ElementwiseKernel {
        tiles.transposed_dim = if tiles.is_flat { None } else { tiles.find_transposed_dim() };
        let cost_us = estimate_cost_us(&tiles);
        let workers = thread_pool::thread_pool().num_workers() as i64;
        let requested_tasks = match in_loop {
            true if cost_us < 3.0 => 1,
            true if cost_us < 1000.0 => workers,
            true => 16 * workers,
            false => ((cost_us / 20.0) as i64).clamp(1, 512),
        };
        // (a flat row is not divided)
        let dims = if tiles.is_flat { tiles.rank - 1 } else { tiles.rank };
        let split_dim = match tiles.ext[0] >= requested_tasks.min(8) {
            true => 0,
            false => (0..dims).max_by_key(|d| tiles.ext[*d]).unwrap_or(0),
        };
        let quantum = match split_dim {
            d if d == tiles.rank - 1 => 512,
            // (a task has whole blocks of rows, if all workers have a task)
            d if tiles.transposed_dim == Some(d) && tiles.ext[d] >= workers * BLOCK_ROWS => BLOCK_ROWS,
            _ => 1,
        };
        let step = ((tiles.ext[split_dim] + requested_tasks - 1) / requested_tasks).max(1);
        let task_indices = (step + quantum - 1) / quantum * quantum;
        ElementwiseKernel { tiles, split_dim, task_indices, cost_us }
    }
    /// Returns the name of the kernel in reports.
    pub(crate) fn name(&self) -> &'static str {
        if self.tiles.stream { "streamed tiles" } else { "tiles" }
    }
}

impl TaskKernel for ElementwiseKernel {
    fn visit_accesses(&self, visit: &mut dyn FnMut(SlotAccess)) {
        self.tiles.visit_accesses(visit);
    }
    fn num_tasks(&self) -> i64 {
        ((self.tiles.ext[self.split_dim] + self.task_indices - 1) / self.task_indices).max(1)
    }
    fn cost_us(&self) -> f64 {
        self.cost_us
    }
    fn limit_tasks(&mut self, most: i64) {
        if self.tiles.ext[0] >= most {
            self.split_dim = 0;
        }
        self.task_indices = ((self.tiles.ext[self.split_dim] + most - 1) / most).max(1);
    }
    fn bind_call(&self, memory: &[*mut u8], moving: &[u32]) -> Option<Box<dyn BoundCall + '_>> {
        Some(Box::new(BoundTile::new(&self.tiles, memory, moving)?))
    }
    unsafe fn run(&self, task: KernelTask, memory: &mut [*mut u8], scratch: &mut Scratch) {
        let (mut lo, mut hi) = ([0; MAX_LOOPS], self.tiles.ext);
        if task.count > 1 {
            let d = self.split_dim;
            lo[d] = task.index * self.task_indices;
            hi[d] = (lo[d] + self.task_indices).min(self.tiles.ext[d]);
        }
        // SAFETY: the box is within the space, and the caller upholds the contract for its
        // elements.
        unsafe { interpreter::run(&self.tiles, memory, &lo, &hi, scratch) }
    }
    unsafe fn run_all(&self, _: KernelStage, memory: &mut [*mut u8], scratch: &mut Scratch) {
        // SAFETY: the box is the whole space, and the caller upholds the contract for its elements.
        unsafe { interpreter::run(&self.tiles, memory, &[0; MAX_LOOPS], &self.tiles.ext, scratch) }
    }
}
