//! Lowers a per-device program to operations over buffers.
//!
//! The submodules lower operands, reductions and contractions, row kernels, gathers and scatters,
//! and nested programs.

pub(crate) mod transpose_products;

mod access;
mod control;
mod equal_reductions;

mod gather_scatter;
mod outer_products;
mod reduction;
mod row_kernel;
mod spread;
mod windows;

use crate::core::diagnostic::Result;
use crate::core::mesh::Mesh;
use crate::core::types::{DType, Scalar, Shape};
use crate::ir::program::loop_nest::{
    Compute, LoopNest, Reducer, ScalarArg, ScalarCode, ScalarInst, ScalarOp, Source,
};
use crate::kernels::HAS_FAST_PATHS;
use crate::partition::buffers::index::{check_num_loops, extents, row_major_strides};
use crate::partition::buffers::lower::transpose_products::transpose_matmuls;
use crate::partition::buffers::{
    BufferOp, BufferProgram, BufferValue, ElementwiseOp, HalfMatmuls, OperandAccess, UseCount,
};
use crate::partition::{DimLayout, Slot, SpmdProgram, Step};
use smallvec::SmallVec;
use std::borrow::Cow;

/// The state of the lowering of one program.
struct ProgramLowering<'p> {
    /// The program so far.
    program: BufferProgram<'p>,
    /// The mesh, for prints.
    mesh: Option<&'p Mesh>,
    /// The number of steps and results that read each value.
    num_readers: Vec<u32>,
    /// The index of the operation that computes each value; `u32::MAX` if there is none.
    producers: Vec<u32>,
    /// Pairs of a result and the same value in the wider type of its accumulator.
    widened: Vec<(Slot, Slot)>,
}

/// Lowers a program.
pub(crate) fn lower(p: &SpmdProgram, half_matmuls: HalfMatmuls) -> Result<BufferProgram<'_>> {
    let mut b = ProgramLowering {
        program: BufferProgram {
            values: Vec::with_capacity(p.slots.len()),
            half_matmuls,
            ..BufferProgram::default()
        },
        mesh: p.mesh.as_ref(),
        num_readers: vec![0; p.slots.len()],
        producers: vec![u32::MAX; p.slots.len()],
        widened: Vec::new(),
    };
    b.add_slots(p)?;
    for s in &p.steps {
        b.count_readers(s, 0);
    }
    for o in &p.outs {
        b.num_readers[*o] += 1;
    }
    b.program.ins = p.ins.clone();
    b.program.outs = p.outs.clone();
    for s in &p.steps {
        b.lower_step(s, 0)?;
    }
    b.finish();
    Ok(b.program)
}

impl<'p> ProgramLowering<'p> {
    /// Adds the values of a program.
    fn add_slots(&mut self, p: &'p SpmdProgram) -> Result<()> {
        let first = self.program.values.len();
        for s in &p.slots {
            let partial_layout = match &s.layout.partial {
                Some((_, sub_axis_list)) => {
                    DimLayout { sub_axes: sub_axis_list.clone(), block: 1, origin: 0 }
                }
                None => DimLayout { sub_axes: SmallVec::new(), block: 1, origin: 0 },
            };
            let k = self.add_value(s.dtype.storage(), s.shape.clone(), partial_layout)?;
            self.program.values[k].layout = Some(&s.layout);
        }
        for (step, why) in p.steps.iter().zip(&p.origins) {
            let combines = matches!(step, Step::Reduce { .. });
            step.outputs().iter().for_each(|s| self.program.values[first + s].origin = Some((why, combines)));
        }
        Ok(())
    }
    /// Adds a value; a partial one gets a leading dimension over its partials.
    fn add_value(&mut self, dtype: DType, shape: Shape, parts: DimLayout) -> Result<Slot> {
        let copies = parts.num_shards();
        let shape =
            if copies > 1 { std::iter::once(copies).chain(shape.iter().copied()).collect() } else { shape };
        check_num_loops(shape.rank())?;
        let k = self.program.values.len();
        let strides = row_major_strides(&shape);
        self.program.values.push(BufferValue {
            dtype,
            shape,
            num_partials: copies,
            partial_layout: parts,
            strides,
            alias: None,
            layout: None,
            origin: None,
        });
        if self.num_readers.len() <= k {
            self.num_readers.resize(k + 1, 0);
            self.producers.resize(k + 1, u32::MAX);
        }
        Ok(k)
    }
    /// Appends an operation, and records it as the producer of its results.
    fn push(&mut self, item: BufferOp<'p>) {
        for r in item.results() {
            self.producers[r] = self.program.ops.len() as u32;
        }
        self.program.ops.push(item);
    }
    /// Counts a step as a consumer of each value that it reads, to know what may be fused.
    /// `at` is the first slot of the program that the step belongs to.
    fn count_readers(&mut self, step: &Step, at: Slot) {
        if step.fetches().is_some() {
            return;
        }
        let mut seen: SmallVec<[Slot; 4]> = SmallVec::new();
        for slot in step.inputs() {
            // a loop nest reads a value once, however many of its accesses do
            if step.local().is_none() || !seen.contains(&slot) {
                seen.push(slot);
                self.num_readers[at + slot] += 1;
            }
        }
    }
    /// Lowers one step.
    fn lower_step(&mut self, step: &'p Step, at: Slot) -> Result<()> {
        match step {
            Step::Fetch { .. } => Ok(()),
            Step::Local { out, nest: loop_nest, layout } => {
                self.lower_local(*out + at, loop_nest, layout, at)
            }
            Step::Reduce { src, out, combine } => self.lower_reduce_step(*src + at, *out + at, *combine),
            Step::Loop { .. } => self.lower_loop(step, at),
            Step::While { .. } => self.lower_while(step, at),
            Step::Branch { .. } => self.lower_branch(step, at),
            Step::Print { template, values, manual } => {
                let values = values.iter().map(|v| (v.slot + at, v)).collect();
                self.push(BufferOp::Print { template, values, manual, mesh: self.mesh });
                Ok(())
            }
        }
    }
    /// Lowers a loop nest.
    fn lower_local(&mut self, out: Slot, s: &'p LoopNest, layout: &[DimLayout], at: Slot) -> Result<()> {
        match &s.compute {
            Compute::Reshape => {
                let Some(Source::Value(src)) =
                    s.accesses.first().and_then(|r| r.pieces.first()).map(|p| p.source)
                else {
                    // without operands, the value is empty or a constant
                    return self.lower_elementwise(out, s, Cow::Owned(ScalarCode::copy(s.dtype)), at);
                };
                self.program.values[out].alias = Some(src + at);
                Ok(())
            }
            Compute::Map(code) => self.lower_elementwise(out, s, Cow::Borrowed(code), at),
            Compute::Reduce { reducer: combine, code } => {
                if HAS_FAST_PATHS && let Some(op) = self.window_op(out, s, *combine, code, at) {
                    self.push(BufferOp::Window(op));
                    return Ok(());
                }
                let narrow = matches!(s.dtype, DType::F16 | DType::BF16);
                let rounds = narrow && matches!(combine, Reducer::Add | Reducer::Mul);
                let (dtype, code) = if rounds {
                    let mut code = code.clone();
                    let last = ScalarArg::Inst(code.insts.len() - 1);
                    code.push(ScalarOp::Convert, s.dtype, DType::F32, &[last]);
                    (DType::F32, Cow::Owned(code))
                } else {
                    (s.dtype, Cow::Borrowed(code))
                };
                self.lower_reduction(out, s, layout, Some((*combine, code)), dtype, at)
            }
            Compute::Gather { indices: bound } => {
                self.lower_gather_scatter(out, s, layout, (bound, None), at)
            }
            Compute::Scatter { indices: bound, reducer: combine } => {
                self.lower_gather_scatter(out, s, layout, (bound, Some(*combine)), at)
            }
            Compute::Contract { accum_dtype: accumulate, .. } => {
                let dtype = match accumulate {
                    DType::F16 | DType::BF16 if self.program.half_matmuls == HalfMatmuls::Widened => {
                        DType::F32
                    }
                    DType::Bool => DType::U8,
                    d => *d,
                };
                self.lower_reduction(out, s, layout, None, dtype, at)
            }
            Compute::RowKernel(l) => self.lower_row_kernel(out, s, l, at),
        }
    }
    /// Lowers an elementwise loop nest; a plain copy becomes an alias.
    fn lower_elementwise(
        &mut self,
        out: Slot,
        s: &'p LoopNest,
        code: Cow<'p, ScalarCode>,
        at: Slot,
    ) -> Result<()> {
        let v = &self.program.values[out];
        let lead = usize::from(v.num_partials > 1);
        let (n, ext) = (v.shape.rank(), extents(&v.shape));
        let mut reads = Vec::with_capacity(s.accesses.len());
        for r in &s.accesses {
            reads.push(self.lower_access(r, &ext, n, lead, Some(out), at)?);
        }
        let map = ElementwiseOp { out, num_loops: n, ext, reads, code, code_loop_base: lead };
        match self.copied_value(&map) {
            Some(src) => self.program.values[out].alias = Some(src),
            None => self.push(BufferOp::Elementwise(map)),
        }
        Ok(())
    }
    /// Returns the value that an elementwise operation copies unchanged.
    /// Examples are an all-gather of replicas, and a product with a cotangent of 1. In shared
    /// memory both values are one buffer.
    fn copied_value(&self, m: &ElementwiseOp<'_>) -> Option<Slot> {
        let [inst] = &m.code.insts[..] else { return None };
        let read = match (inst.op, &m.reads[..], &inst.args[..]) {
            (ScalarOp::Copy, [read], [ScalarArg::Access(0)]) => read,
            (ScalarOp::Mul, [a, b], [ScalarArg::Access(0), ScalarArg::Access(1)])
                if self.reads_ones(a, m) =>
            {
                b
            }
            (ScalarOp::Mul, [a, b], [ScalarArg::Access(0), ScalarArg::Access(1)])
                if self.reads_ones(b, m) =>
            {
                a
            }
            _ => return None,
        };
        self.identity_read(read, m)
            .filter(|s| self.program.values[*s].dtype == self.program.values[m.out].dtype)
    }
    /// Returns the value that an operand reads element by element, at the index of the result.
    fn identity_read(&self, read: &OperandAccess, m: &ElementwiseOp<'_>) -> Option<Slot> {
        let [p] = &read.boxes[..] else { return None };
        let Source::Value(s) = p.source else { return None };
        let fits = self.has_same_layout(s, m.out)
            && p.offset == 0
            && p.strides == self.program.values[s].strides
            && p.covers(&m.ext, m.num_loops);
        fits.then_some(s)
    }
    /// Returns true if an operand reads 1 everywhere, as float32 or float64.
    /// A product with it has the bits of the other factor.
    fn reads_ones(&self, read: &OperandAccess, m: &ElementwiseOp<'_>) -> bool {
        matches!(read.dtype, DType::F32 | DType::F64)
            && self.constant_read(read, m) == Some(Scalar::one(read.dtype))
    }
    /// Returns the constant that an operand reads everywhere.
    /// It may be stored in a value that an elementwise operation fills.
    fn constant_read(&self, read: &OperandAccess, m: &ElementwiseOp<'_>) -> Option<Scalar> {
        let [p] = &read.boxes[..] else { return None };
        if !p.covers(&m.ext, m.num_loops) {
            return None;
        }
        match p.source {
            Source::Const(c) => Some(c),
            Source::Value(s) => {
                let by = self.elementwise_producer(s)?;
                let [ScalarInst { op: ScalarOp::Copy, args, .. }] = &by.code.insts[..] else { return None };
                match (&args[..], &by.reads[..]) {
                    _ if self.program.values[s].num_partials != 1 => None,
                    ([ScalarArg::Const(c)], _) => Some(*c),
                    ([ScalarArg::Access(0)], [of]) => self.constant_read(of, by),
                    _ => None,
                }
            }
        }
    }
    /// Returns the elementwise operation that computes a value.
    fn elementwise_producer(&self, s: Slot) -> Option<&ElementwiseOp<'p>> {
        match self.program.ops.get(*self.producers.get(self.program.alias_root(s))? as usize)? {
            BufferOp::Elementwise(m) => Some(m),
            _ => None,
        }
    }
    /// Returns true if two values have equal shapes and strides, and neither is partial.
    fn has_same_layout(&self, a: Slot, b: Slot) -> bool {
        let (a, b) = (&self.program.values[a], &self.program.values[b]);
        a.shape == b.shape && a.strides == b.strides && a.num_partials == 1 && b.num_partials == 1
    }

    /// Removes operations without uses, counts the uses of values, transposes matmuls, and expands
    /// outer products.
    fn finish(&mut self) {
        let f = &mut self.program;
        if HAS_FAST_PATHS {
            equal_reductions::merge_equal_reductions(f);
        }
        f.count_uses();
        let mut keep = vec![true; f.ops.len()];
        for (k, item) in f.ops.iter().enumerate().rev() {
            let dead = item
                .results()
                .iter()
                .all(|r| f.uses[f.alias_root(*r)] == UseCount::NONE && f.uses[*r] == UseCount::NONE);
            if dead && !item.has_print() {
                keep[k] = false;
                for s in item.sources() {
                    let root = f.alias_root(s);
                    f.uses[root].readers -= 1;
                }
            }
        }
        let mut k = 0;
        f.ops.retain(|_| {
            k += 1;
            keep[k - 1]
        });
        transpose_matmuls(f);
        if HAS_FAST_PATHS {
            outer_products::expand_outer_products(f);
        }
    }
}
