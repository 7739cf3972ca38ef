//! The reference engine: interprets loop nests one element at a time.
//!
//! It is slow but obviously correct, and serves as the test oracle. It ignores where values are
//! placed, except for partial values: each of these is reduced only over the loop indices of the
//! devices that hold it. Floats are accumulated in float64 and rounded once, so results may differ
//! from those of other engines in the last digits. Row kernels are an exception: the kernel itself
//! runs, on all rows at once.

mod control;
mod flush;
mod gather_scatter;
mod row_kernel;
mod scalar;
mod value;

use super::{CompileRequest, Engine, Executable, ExecutionReport, Failure};
use crate::core::{DType, Fault, Result, Scalar, SubAxes};
use crate::exec::display::print::{PrintArgument, print_text};
use crate::exec::runtime::print_queue::PrintQueue;
use crate::exec::runtime::{ArrayData, check_available};
use crate::ir::program::{Access, AccessPiece, Compute, LoopNest, Reducer, ScalarArg, ScalarCode, Source};
use crate::partition::{Layout, Slot, SpmdProgram, Step, StoredValue};
use std::rc::Rc;
use std::sync::Arc;
use value::ReferenceValue;

/// Runs programs one element at a time on the caller's thread.
pub(crate) struct Reference;

struct ReferenceExecutable {
    program: SpmdProgram,
    /// True if subnormal numbers are zeros.
    flushes: bool,
}

impl Engine for Reference {
    fn compile(&self, job: CompileRequest<'_>) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(ReferenceExecutable { program: job.spmd.clone(), flushes: job.flush_subnormals }))
    }
}

/// Returns an executable that interprets the program.
#[cfg(test)]
pub(super) fn executable(program: &SpmdProgram) -> Arc<dyn Executable> {
    Arc::new(ReferenceExecutable { program: program.clone(), flushes: false })
}

impl Executable for ReferenceExecutable {
    fn call(&self, args: &mut [ArrayData]) -> Result<Vec<ArrayData>, Failure> {
        let ReferenceExecutable { program, flushes } = self;
        check_available(held_bytes(program))?;
        let args = args
            .iter()
            .map(|s| Ok(Rc::new(ReferenceValue::from_array_data(s)?.flushed_if(*flushes))))
            .collect::<Result<_, Fault>>()?;
        let parts = program.outs.iter().map(|s| num_partials(&program.slots[*s]));
        let made = Failure::catch(|| run(program, args, *flushes))?;
        let slabs = made.iter().zip(parts).map(|(v, parts)| v.to_array_data(parts));
        Ok(slabs.collect::<Result<_, Fault>>()?)
    }
    fn report(&self) -> ExecutionReport {
        ExecutionReport { engine: "reference", workers: 1, inline: true, ..ExecutionReport::default() }
    }
}

/// Returns the memory in bytes that interpreting a program needs.
/// All values are kept to the end; nested programs run one after the other, so the largest one
/// counts.
fn held_bytes(p: &SpmdProgram) -> usize {
    let one = |s: &StoredValue| {
        s.shape.num_elements().saturating_mul(num_partials(s)).saturating_mul(size_of::<Scalar>())
    };
    let nested = p.steps.iter().flat_map(Step::nested_programs).map(|nested| held_bytes(nested.program));
    let own = p.slots.iter().map(one).fold(0, usize::saturating_add);
    own.saturating_add(nested.max().unwrap_or(0))
}

type Values = Vec<Option<Rc<ReferenceValue>>>;

fn slot_value(values: &Values, slot: Slot) -> Rc<ReferenceValue> {
    values[slot].clone().expect("steps read inputs and earlier results")
}
fn slot_values(values: &Values, slots: &[Slot]) -> Vec<Rc<ReferenceValue>> {
    slots.iter().map(|s| slot_value(values, *s)).collect()
}

/// Runs a program; if it `flushes`, no value that is stored is subnormal.
fn run(program: &SpmdProgram, args: Vec<Rc<ReferenceValue>>, flushes: bool) -> Vec<Rc<ReferenceValue>> {
    let mut values: Values = vec![None; program.slots.len()];
    for (slot, arg) in program.ins.iter().zip(args) {
        values[*slot] = Some(arg);
    }
    for step in &program.steps {
        let made = self::step(program, step, &values, flushes);
        for (slot, value) in made {
            values[slot] = Some(value);
        }
    }
    slot_values(&values, &program.outs)
}

fn step(
    program: &SpmdProgram,
    step: &Step,
    values: &Values,
    flushes: bool,
) -> Vec<(Slot, Rc<ReferenceValue>)> {
    match step {
        Step::Fetch { .. } => Vec::new(),
        Step::Local { out, nest: loop_nest, layout } => {
            let stored = &program.slots[*out];
            let folded: Vec<_> = layout[loop_nest.rank..].iter().map(|l| (l.clone(), &l.sub_axes)).collect();
            let mut made = ReferenceValue::empty(stored.dtype, stored.shape.clone());
            for position in holder_positions(stored) {
                // a partial result is reduced only over this device's range of the reduced loops
                let ranges = folded.iter().zip(&loop_nest.extents[loop_nest.rank..]).map(|((l, _), n)| {
                    let own = stored.layout.partial.is_some();
                    if own { l.range(l.rank(position), *n) } else { (0, *n as i64) }
                });
                let ranges: Vec<(i64, i64)> = ranges.collect();
                let reducer = stored.layout.partial.as_ref().map_or(Reducer::Add, |p| p.0);
                let reader = ElementReader::new(program, values, loop_nest, position, flushes);
                run_local(loop_nest, (&ranges, reducer), &reader, &mut made);
            }
            vec![(*out, Rc::new(made.flushed_if(flushes)))]
        }
        Step::Reduce { src, out, combine } => {
            let (from, to) = (&program.slots[*src], &program.slots[*out]);
            let value = slot_value(values, *src);
            let made = reduce(&value, &partial_axes(&from.layout), to, *combine);
            vec![(*out, Rc::new(made.flushed_if(flushes)))]
        }
        Step::Loop { .. } => control::run_loop(program, step, values, flushes),
        Step::While { .. } => control::run_while(step, values, flushes),
        Step::Branch { .. } => control::run_branch(program, step, values, flushes),
        Step::Print { template, values: shown, manual } => {
            let shown = shown.iter().map(|v| {
                let slab = slot_value(values, v.slot).to_array_data(num_partials(&program.slots[v.slot]))?;
                Ok(PrintArgument { data: slab, dtype: v.dtype, leading_axes: v.hidden.clone() })
            });
            let prints = PrintQueue::default();
            prints.push(print_text(template, shown.collect(), manual, program.mesh.as_ref()));
            prints.flush();
            Vec::new()
        }
    }
}

fn partial_axes(layout: &Layout) -> SubAxes {
    layout.partial.as_ref().map(|p| p.1.clone()).unwrap_or_default()
}
fn num_partials(stored: &StoredValue) -> usize {
    partial_axes(&stored.layout).iter().map(|a| a.size).product()
}
/// Returns the index of a device position within these sub-axes.
fn sub_axis_rank(sub_axes: &SubAxes, position: usize) -> usize {
    sub_axes.iter().fold(0, |r, a| r * a.size + a.index_of(position))
}
/// Returns one device position that holds each partial value of a stored value.
fn holder_positions(stored: &StoredValue) -> Vec<usize> {
    partial_positions(&partial_axes(&stored.layout))
}
fn partial_positions(sub_axes: &SubAxes) -> Vec<usize> {
    let n: usize = sub_axes.iter().map(|a| a.size).product();
    let place = |mut r: usize| {
        sub_axes.iter().rev().fold(0, |p, a| {
            let digit = r % a.size;
            r /= a.size;
            p + digit * a.stride
        })
    };
    (0..n).map(place).collect()
}

fn unravel(mut k: usize, shape: &[usize]) -> Vec<usize> {
    let mut index = vec![0; shape.len()];
    for (i, n) in index.iter_mut().zip(shape).rev() {
        *i = k % n;
        k /= n;
    }
    index
}
fn ravel(index: impl Iterator<Item = usize>, shape: &[usize]) -> usize {
    index.zip(shape).fold(0, |k, (i, n)| k * n + i)
}

/// Combines partial values pairwise, by a balanced tree over their indices.
fn pairwise_combine(combine: Reducer, dtype: DType, partials: &[Scalar]) -> Scalar {
    match partials {
        [] => scalar::neutral(combine, dtype),
        [one] => *one,
        [first, ..] if combine == Reducer::AssumeEqual => *first,
        many => {
            let (a, b) = many.split_at(many.len() / 2);
            scalar::combine(
                combine,
                dtype,
                pairwise_combine(combine, dtype, a),
                pairwise_combine(combine, dtype, b),
            )
        }
    }
}

fn reduce(value: &ReferenceValue, from: &SubAxes, to: &StoredValue, combine: Reducer) -> ReferenceValue {
    let n = to.shape.num_elements();
    let keep = partial_axes(&to.layout);
    let sources = partial_positions(from);
    let mut made = ReferenceValue::empty(to.dtype, to.shape.clone());
    for position in holder_positions(to) {
        let own: Vec<usize> = (0..sources.len())
            .filter(|s| sub_axis_rank(&keep, sources[*s]) == sub_axis_rank(&keep, position))
            .collect();
        for k in 0..n {
            let partials: Vec<Scalar> = own.iter().map(|part| value.element(part * n + k)).collect();
            // start with the neutral element, so that a sum of `-0` is `0`
            let all = pairwise_combine(combine, to.dtype, &partials);
            let all = match combine {
                Reducer::AssumeEqual => all,
                _ => scalar::combine(combine, to.dtype, scalar::neutral(combine, to.dtype), all),
            };
            made.push(scalar::round_to_dtype(all, to.dtype));
        }
    }
    made
}

/// Appends one partial value of a loop nest's result to `made`.
///
/// The reduced loops run over `ranges`, and `parts` is the reducer that combines partial values.
fn run_local(
    s: &LoopNest,
    (ranges, parts): (&[(i64, i64)], Reducer),
    reader: &ElementReader<'_>,
    made: &mut ReferenceValue,
) {
    if s.compute.is_alias() {
        let part = &s.accesses[0].pieces[0];
        let Source::Value(slot) = part.source else { return made.fill(s.accesses[0].fill) };
        let ReferenceOperand { value, base, .. } = reader.held(slot);
        let n = value.shape.num_elements();
        (0..n).for_each(|k| made.push(value.element(base + k)));
        return;
    }
    if let Compute::RowKernel(l) = &s.compute {
        return row_kernel::row_kernel(s, l, reader, made);
    }
    if let Compute::Scatter { indices: at, reducer: combine } = &s.compute {
        return gather_scatter::scatter(s, (at, *combine), ranges, reader, made);
    }
    let mut index = vec![0i64; s.extents.len()];
    let mut insts = Vec::new();
    for_each_index(&mut index, 0, s.rank, &|d| (0, s.extents[d] as i64), &mut |index| {
        let out = match &s.compute {
            Compute::Map(code) => eval(code, &s.accesses, index, reader, &mut insts),
            Compute::Reduce { reducer: combine, code } => {
                let mut total = scalar::neutral(*combine, s.dtype);
                let mut first = *combine == Reducer::AssumeEqual;
                let mut inner = index.to_vec();
                for_each_index(&mut inner, s.rank, s.extents.len(), &|d| ranges[d - s.rank], &mut |index| {
                    let x = eval(code, &s.accesses, index, reader, &mut insts);
                    total = match *combine {
                        Reducer::AssumeEqual if !std::mem::take(&mut first) => total,
                        Reducer::AssumeEqual => x,
                        _ => scalar::combine(*combine, s.dtype, total, x),
                    };
                });
                total
            }
            Compute::Contract { accum_dtype: accumulate, .. } => {
                let mut total = Scalar::zero(*accumulate);
                let mut inner = index.to_vec();
                for_each_index(&mut inner, s.rank, s.extents.len(), &|d| ranges[d - s.rank], &mut |index| {
                    let (a, b) = (reader.read(&s.accesses[0], index), reader.read(&s.accesses[1], index));
                    let ab = scalar::combine(Reducer::Mul, *accumulate, a, b);
                    total = scalar::combine(Reducer::Add, *accumulate, total, ab);
                });
                total
            }
            Compute::Gather { indices: at } => gather_scatter::gather(s, at, ranges, index, reader)
                .unwrap_or_else(|| scalar::neutral(parts, s.dtype)),
            Compute::RowKernel(_) | Compute::Reshape | Compute::Scatter { .. } => unreachable!("done above"),
        };
        made.push(scalar::round_to_dtype(out, s.dtype.storage()));
    });
}

/// Calls `f` for every index of the loops `from..to`, in row-major order.
fn for_each_index(
    index: &mut [i64],
    from: usize,
    to: usize,
    range: &dyn Fn(usize) -> (i64, i64),
    f: &mut dyn FnMut(&[i64]),
) {
    if from == to {
        return f(index);
    }
    let (lo, hi) = range(from);
    for i in lo..hi {
        index[from] = i;
        for_each_index(index, from + 1, to, range, f);
    }
}

/// A stored value, as one device position reads it.
#[derive(Clone, Copy)]
struct ReferenceOperand<'a> {
    value: &'a ReferenceValue,
    shape: &'a [usize],
    /// The offset of the partial value that the position holds.
    base: usize,
}

struct ElementReader<'a> {
    /// The values that the loop nest reads, by slot.
    held: Vec<Option<ReferenceOperand<'a>>>,
    /// True if subnormal numbers are zeros.
    flushes: bool,
}

// Elements are read by plain loops over slices, without allocation: tests compare with this engine
// in builds without optimization, in which each layer of iterators is a call.
impl<'a> ElementReader<'a> {
    /// Returns a reader of what the loop nest reads, at a device position.
    fn new(
        program: &SpmdProgram,
        values: &'a Values,
        nest: &LoopNest,
        position: usize,
        flushes: bool,
    ) -> ElementReader<'a> {
        let mut held = vec![None; values.len()];
        for piece in nest.accesses.iter().flat_map(|a| &a.pieces) {
            if let Source::Value(slot) = piece.source {
                let value = values[slot].as_deref().expect("steps read inputs and earlier results");
                let part = sub_axis_rank(&partial_axes(&program.slots[slot].layout), position);
                let base = part * value.shape.num_elements();
                held[slot] = Some(ReferenceOperand { value, shape: &value.shape, base });
            }
        }
        ElementReader { held, flushes }
    }
    /// Returns a constant of an element type.
    fn constant(&self, x: Scalar, dtype: DType) -> Scalar {
        let x = scalar::round_to_dtype(x, dtype.storage());
        if self.flushes { scalar::flush_subnormals(x, dtype.storage()) } else { x }
    }
    /// Returns a slot's value, and the offset of the partial value that the device position holds.
    fn held(&self, slot: Slot) -> ReferenceOperand<'a> {
        self.held[slot].expect("a reader has all values of its loop nest")
    }
    fn read(&self, read: &Access, index: &[i64]) -> Scalar {
        for part in &read.pieces {
            if !is_inside(part, index) {
                continue;
            }
            return match part.source {
                Source::Const(x) => self.constant(x, read.dtype),
                Source::Value(slot) => {
                    let ReferenceOperand { value, shape, base } = self.held(slot);
                    match linear_index(part, index, shape) {
                        Some(k) => value.element(base + k),
                        None => break,
                    }
                }
            };
        }
        self.constant(read.fill, read.dtype)
    }
}

/// Returns true if the piece covers the index.
fn is_inside(part: &AccessPiece, index: &[i64]) -> bool {
    for (d, s) in part.ranges.iter().enumerate() {
        let i = index[d];
        if i < s.lo || i >= s.hi || (s.step != 1 && (i - s.lo) % s.step != 0) {
            return false;
        }
    }
    true
}

/// Returns the row-major index of the element that a piece reads; `None` outside of the shape.
fn linear_index(part: &AccessPiece, index: &[i64], shape: &[usize]) -> Option<usize> {
    let mut k = 0;
    for (d, position) in part.map.iter().enumerate() {
        let mut at = position.constant;
        for &(l, c) in position.terms.as_slice() {
            let range = &part.ranges[l];
            at += c * ((index[l] - range.lo) / range.step);
        }
        // a negative position wraps to a huge `usize`, so the upper bound check catches it
        if at as usize >= shape[d] {
            return None;
        }
        k = k * shape[d] + at as usize;
    }
    Some(k)
}

/// Runs scalar code at an index. `made` is room for the results of its instructions.
fn eval(
    code: &ScalarCode,
    reads: &[Access],
    index: &[i64],
    reader: &ElementReader,
    made: &mut Vec<Scalar>,
) -> Scalar {
    let apply = if reader.flushes { flush::apply } else { scalar::apply };
    made.clear();
    for inst in &code.insts {
        let mut args = [Scalar::Bool(false); 3];
        let operands = inst.args.as_slice();
        for (i, a) in operands.iter().enumerate() {
            args[i] = match *a {
                ScalarArg::Access(r) => reader.read(&reads[r], index),
                ScalarArg::Inst(i) => made[i],
                // the condition of a select is a bool, whatever the operand type is
                ScalarArg::Const(Scalar::Bool(b)) => Scalar::Bool(b),
                ScalarArg::Const(x) => reader.constant(x, inst.operand_dtype),
                ScalarArg::Index(l) => Scalar::Int(index[l].into()),
            };
        }
        made.push(apply(inst.op, inst.operand_dtype, inst.dtype, &args[..operands.len()]));
    }
    *made.last().expect("code makes a value")
}
