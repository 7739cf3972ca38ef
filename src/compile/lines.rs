//! Whole lines through a function, bound to memory. Tasks are cut along the longest loop over lines.

use super::flow::{Flow, LinesItem, LinesOut, Operand};
use crate::program::sentence::Source;
use crate::program::{In, Line, Out, Outs, line};
use crate::types::DType;
use std::sync::Arc;

/// Microseconds of work that are worth a task of their own.
const TASK: f64 = 20.0;

/// An aligned place at which nothing is read.
const NOWHERE: *mut u8 = std::ptr::without_provenance_mut(64);

/// Where lines are: elements of a slot, by loops over lines, then along one.
#[derive(Clone, Debug)]
struct View {
    slot: u32,
    dtype: DType,
    /// Bytes from the slot's beginning.
    off: i64,
    shape: Vec<usize>,
    strides: Vec<usize>,
}

/// Lines that are ready to run.
#[derive(Clone, Debug)]
pub(crate) struct LinesKernel {
    of: Arc<dyn Line>,
    ins: Vec<View>,
    outs: Vec<Option<View>>,
    /// The loop over lines that is cut into tasks.
    cut: Option<usize>,
    /// Whether nothing is to be made.
    empty: bool,
    /// How many tasks.
    pub(crate) chunks: i64,
    /// Microseconds, roughly.
    pub(crate) cost: f64,
}

/// Prepares lines for so many workers.
pub(crate) fn bind(flow: &Flow<'_>, l: &LinesItem, base: u32, workers: i64) -> LinesKernel {
    let slot = |s: usize| flow.root(s) as u32 + base;
    let shape: Vec<usize> = l.ext[..l.n].iter().map(|e| *e as usize).collect();
    let ins = l.reads.iter().map(|o: &Operand| {
        let p = &o.pieces[0];
        let Source::Value(s) = p.from else { unreachable!("operands were settled") };
        let strides = p.st[..l.n].iter().map(|s| *s as usize).collect();
        let off = p.off * o.dtype.size() as i64;
        View { slot: slot(s), dtype: o.dtype, off, shape: shape.clone(), strides }
    });
    let mut outs: Vec<Option<View>> = Vec::new();
    for LinesOut { result, out, dims } in &l.outs {
        let v = &flow.values[*out];
        let shape = dims.iter().map(|d| v.shape[*d]).collect();
        let strides = dims.iter().map(|d| v.strides[*d] as usize).collect();
        outs.resize(outs.len().max(result + 1), None);
        outs[*result] = Some(View { slot: slot(*out), dtype: v.dtype, off: 0, shape, strides });
    }
    let cut = (0..l.over).filter(|k| l.ext[*k] > 1).max_by_key(|k| (l.ext[*k], std::cmp::Reverse(*k)));
    let lines: i64 = l.ext[..l.over].iter().product();
    let each: usize = shape[l.over..].iter().product();
    let cost = lines as f64 * l.of.cost(each) / 1000.0;
    let want = ((cost / TASK) as i64).clamp(1, 4 * workers);
    let empty = outs.iter().flatten().all(|o| o.shape.contains(&0));
    let mut kernel = LinesKernel { of: l.of.clone(), ins: ins.collect(), outs, cut, empty, chunks: 1, cost };
    kernel.spread(want);
    kernel
}

impl LinesKernel {
    /// Cuts it into at most so many tasks.
    pub(crate) fn spread(&mut self, most: i64) -> i64 {
        let lines = self.cut.map_or(1, |k| self.ins.first().map_or(1, |v| v.shape[k] as i64));
        self.chunks = most.min(lines).max(1);
        self.chunks
    }
    /// Task i of so many.
    ///
    /// # Safety
    /// As for a plan: `base` has the values, and nobody else writes what is read, or reads or writes what is written.
    pub(crate) unsafe fn run(&self, i: i64, chunks: i64, base: &[*mut u8]) {
        if self.empty {
            return;
        }
        let part = |v: &View| {
            let (mut at, mut shape) = (v.off, v.shape.clone());
            if let Some(k) = self.cut {
                let n = shape[k] as i64;
                let (lo, hi) = (n * i / chunks, n * (i + 1) / chunks);
                at += lo * (v.strides[k] * v.dtype.size()) as i64;
                shape[k] = (hi - lo) as usize;
            }
            // what has no elements is nowhere
            let start = if shape.contains(&0) { NOWHERE } else { base[v.slot as usize] };
            (start.wrapping_offset(at as isize), shape)
        };
        let ins: Vec<In<'_>> = (self.ins.iter())
            .map(|v| {
                let (at, shape) = part(v);
                // SAFETY: the plan's maps stay within the values that they read, which nobody writes meanwhile
                unsafe { In::at(v.dtype, at, shape, v.strides.clone()) }
            })
            .collect();
        let outs = self.outs.iter().map(|v| {
            let v = v.as_ref()?;
            let (at, shape) = part(v);
            // SAFETY: a value of its own for each result, dense, of which each task has lines of its own
            Some(unsafe { Out::at(v.dtype, at, shape, v.strides.clone()) })
        });
        line::run(self.of.as_ref(), &ins, &mut Outs::new(outs));
    }
}
