//! Writes gathers and scatters, and their simple forms with a single index.

use super::syntax::{array, list};
use super::writer::{Ssa, Writer};
use super::{FaultResult, loop_nests::reducer_op};
use crate::core::{DType, Scalar, util::small_sort};
use crate::ir::program::{DynamicIndex, LoopNest, OutOfBounds, Reducer};

/// The dynamic indices of a gather or scatter, as tensors over the loops that they depend on.
struct IndexTensors {
    /// A tensor over `loops` for each dynamic index, clamped to its bounds.
    indices: Vec<Ssa>,
    loops: Vec<usize>,
    /// A bool tensor over `loops`, true where all indices are in bounds.
    /// `None` if out-of-bounds indices are clamped.
    in_bounds: Option<Ssa>,
}

/// Formats an attribute as `name = [..], `; an empty string without dimensions.
fn field(name: &str, dims: &[usize]) -> String {
    if dims.is_empty() { String::new() } else { format!("{name} = {}, ", list(dims)) }
}

impl Writer {
    /// Writes the dynamic indices over the loops that they depend on and the loops in `also`.
    fn index_tensors(
        &mut self,
        at: &[DynamicIndex],
        s: &LoopNest,
        also: &[usize],
        operands: &[Ssa],
    ) -> FaultResult<IndexTensors> {
        let mut loops = also.to_vec();
        for b in at {
            loops.extend(super::access::dependent_loops(&s.accesses[b.operand], &s.extents));
        }
        small_sort::sort(&mut loops);
        loops.dedup();
        let (mut numbers, mut there) = (Vec::new(), None);
        let shape: Vec<usize> = loops.iter().map(|l| s.extents[*l]).collect();
        let narrow = |d: DType| matches!(d, DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16);
        let to = if at.iter().all(|b| narrow(s.accesses[b.operand].dtype)) { DType::I32 } else { DType::I64 };
        for b in at {
            let x = self.read(&s.accesses[b.operand], &s.extents, &loops, operands)?;
            let bits = 8 * x.dtype.size() as u32 - u32::from(x.dtype.is_signed());
            // an index type that cannot represent larger indices needs no bound
            let most = if bits < 63 { b.max_start.min((1 << bits) - 1) } else { b.max_start };
            let (zero, last) = (self.int(x.dtype, 0, &shape), self.int(x.dtype, most.max(0), &shape));
            let text = format!("stablehlo.clamp {}, {}, {} : {}", zero.name, x.name, last.name, x.ty());
            let clipped = self.op(text, x.dtype, &shape);
            if b.mode == OutOfBounds::Drop || b.max_start < 0 {
                let is = if b.max_start < 0 {
                    self.constant(DType::Bool, Scalar::Bool(false), &shape)
                } else {
                    self.compare("EQ", &x, &clipped)
                };
                there = Some(match there {
                    None => is,
                    Some(all) => self.elementwise("and", &[&all, &is]),
                });
            }
            numbers.push(self.convert(&clipped, to));
        }
        Ok(IndexTensors { indices: numbers, loops, in_bounds: there })
    }
    /// Stacks the indices along a new last dimension.
    fn index_vectors(&mut self, numbers: &[Ssa]) -> Ssa {
        let mut pieces = Vec::new();
        for x in numbers {
            let mut shape = x.shape.clone();
            shape.push(1);
            pieces.push(self.reshape(x, &shape));
        }
        let d = pieces[0].shape.len() - 1;
        self.concatenate(&pieces, d)
    }
    /// Formats the start index of each dimension; a dimension without an index starts at `%zero`.
    fn starts(&mut self, rank: usize, dims: &[usize], numbers: &[Ssa]) -> String {
        let zero = self.int(numbers[0].dtype, 0, &[]);
        let name = |d: usize| dims.iter().position(|e| *e == d).map_or(&zero, |k| &numbers[k]).name.clone();
        super::syntax::join((0..rank).map(name))
    }

    pub(super) fn gather(&mut self, at: &[DynamicIndex], s: &LoopNest, operands: &[Ssa]) -> FaultResult<Ssa> {
        let sizes = &s.extents[..s.rank];
        let (x, loops) = self.minimal_read(&s.accesses[0], &s.extents, operands)?;
        let n = self.index_tensors(at, s, &[], operands)?;
        // sort the dimensions of the operand: dynamically indexed ones with their indices, batch
        // dimensions, and the loops of those that are kept
        let (mut dims, mut used, mut kept, mut collapsed) = (vec![], vec![], vec![], vec![]);
        let (mut batch, mut by) = (vec![], vec![]);
        let mut slice = x.shape.clone();
        for (d, l) in loops.iter().enumerate() {
            if let Some(k) = at.iter().position(|b| b.loop_id == *l) {
                dims.push(d);
                used.push(n.indices[k].clone());
                slice[d] = at[k].window.map_or(1, |w| s.extents[w]);
                match at[k].window {
                    Some(w) => kept.push(w),
                    None => collapsed.push(d),
                }
            } else if let Some(k) = n.loops.iter().position(|m| m == l) {
                batch.push(d);
                by.push(k);
                slice[d] = 1;
            } else {
                kept.push(*l);
            }
        }
        let found = if dims.is_empty() {
            self.over_loops(&x, &loops, sizes)
        } else if n.loops.is_empty() {
            let starts = self.starts(slice.len(), &dims, &used);
            let text = format!("stablehlo.dynamic_slice {}, {starts}, sizes = {}", x.name, list(&slice));
            let zero = &used[0];
            let args: Vec<&Ssa> = std::iter::once(&x).chain(slice.iter().map(|_| zero)).collect();
            let cut = self.typed(&text, &args, x.dtype, &slice);
            let shape: Vec<usize> =
                (0..slice.len()).filter(|d| !collapsed.contains(d)).map(|d| slice[d]).collect();
            let cut = self.reshape(&cut, &shape);
            self.over_loops(&cut, &kept, sizes)
        } else {
            let index = self.index_vectors(&used);
            let over: Vec<usize> = n.loops.iter().chain(&kept).copied().collect();
            let offsets: Vec<usize> = (n.loops.len()..over.len()).collect();
            let text = format!(
                "\"stablehlo.gather\"({}, {}) <{{dimension_numbers = #stablehlo.gather<{}{}{}{}start_index_map = {}, index_vector_dim = {}>, indices_are_sorted = false, slice_sizes = {}}}>",
                x.name,
                index.name,
                field("offset_dims", &offsets),
                field("collapsed_slice_dims", &collapsed),
                field("operand_batching_dims", &batch),
                field("start_indices_batching_dims", &by),
                list(&dims),
                n.loops.len(),
                array(&slice)
            );
            let shape: Vec<usize> = over.iter().map(|l| s.extents[*l]).collect();
            let found = self.typed(&text, &[&x, &index], x.dtype, &shape);
            self.over_loops(&found, &over, sizes)
        };
        let Some(there) = n.in_bounds else { return Ok(found) };
        let there = self.over_loops(&there, &n.loops, sizes);
        let fill = self.constant(found.dtype, s.accesses[0].fill, sizes);
        Ok(self.select(&there, &found, &fill))
    }

    /// Combines updates of all elements of `base`; without a reducer, the last one replaces `base`.
    ///
    /// The first `count` dimensions of `updates` enumerate the updates, in their order.
    fn combine_updates(&mut self, base: &Ssa, updates: &Ssa, count: usize, combine: Option<Reducer>) -> Ssa {
        let ways = &updates.shape[..count];
        if ways.contains(&0) {
            return base.clone();
        }
        match combine {
            None => {
                let bounds = |(d, n): (usize, &usize)| {
                    let n = *n as i64;
                    [if d < count { n - 1 } else { 0 }, n, 1]
                };
                let bounds: Vec<[i64; 3]> = updates.shape.iter().enumerate().map(bounds).collect();
                let last = self.slice(updates, &bounds);
                self.reshape(&last, &base.shape)
            }
            Some(c) => {
                let all: Vec<usize> = (0..count).collect();
                let (op, neutral) = (reducer_op(c), c.neutral(updates.dtype));
                let update = self.reduce(updates, op, neutral, &all);
                self.elementwise(op, &[base, &update])
            }
        }
    }

    pub(super) fn scatter(
        &mut self,
        at: &[DynamicIndex],
        combine: Option<Reducer>,
        s: &LoopNest,
        operands: &[Ssa],
    ) -> FaultResult<Ssa> {
        let all: Vec<usize> = (0..s.rank).collect();
        let base = self.read(&s.accesses[0], &s.extents, &all, operands)?;
        let windows: Vec<usize> = at.iter().filter_map(|b| b.window).collect();
        let beyond: Vec<usize> = (s.rank..s.extents.len()).filter(|l| !windows.contains(l)).collect();
        let n = self.index_tensors(at, s, &beyond, operands)?;
        // sort the dimensions of the result: dynamically indexed ones, batch dimensions, and
        // windows
        let (mut dims, mut used, mut inserted, mut batch, mut by, mut open) =
            (vec![], vec![], vec![], vec![], vec![], vec![]);
        for d in 0..s.rank {
            if let Some(k) = at.iter().position(|b| b.loop_id == d) {
                dims.push(d);
                used.push(n.indices[k].clone());
                match at[k].window {
                    Some(w) => open.push(w),
                    None => inserted.push(d),
                }
            } else if let Some(k) = n.loops.iter().position(|l| *l == d) {
                batch.push(d);
                by.push(k);
            } else {
                open.push(d);
            }
        }
        let over: Vec<usize> = n.loops.iter().chain(&open).copied().collect();
        let mut sorted = over.clone();
        small_sort::sort(&mut sorted);
        let update = self.read(&s.accesses[1], &s.extents, &sorted, operands)?;
        let order: Vec<usize> = over.iter().filter_map(|l| sorted.iter().position(|m| m == l)).collect();
        let update = self.transpose(&update, &order);
        if dims.is_empty() {
            // no dimension is indexed at runtime, so the update has its own loops, then all
            // dimensions of the result
            return Ok(self.combine_updates(&base, &update, n.loops.len(), combine));
        }
        if n.loops.is_empty() && combine.is_none() {
            let mut shape = update.shape.clone();
            inserted.iter().for_each(|d| shape.insert(*d, 1));
            let update = self.reshape(&update, &shape);
            let starts = self.starts(s.rank, &dims, &used);
            let text = format!("stablehlo.dynamic_update_slice {}, {}, {starts}", base.name, update.name);
            let args: Vec<&Ssa> = [&base, &update].into_iter().chain(all.iter().map(|_| &used[0])).collect();
            let new = self.typed(&text, &args, base.dtype, &base.shape);
            let Some(there) = n.in_bounds else { return Ok(new) };
            let there = self.broadcast(&there, &[], &base.shape);
            return Ok(self.select(&there, &new, &base));
        }
        // start the windows of dropped updates after the end, so that they are out of bounds
        if let Some(there) = &n.in_bounds {
            for (x, d) in used.iter_mut().zip(&dims) {
                let out = self.int(x.dtype, s.extents[*d] as i64, &x.shape);
                *x = self.select(there, x, &out);
            }
        }
        let index = self.index_vectors(&used);
        let updated: Vec<usize> = (n.loops.len()..over.len()).collect();
        let head = format!(
            "\"stablehlo.scatter\"({}, {}, {}) <{{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<{}{}{}{}scatter_dims_to_operand_dims = {}, index_vector_dim = {}>, unique_indices = false}}>",
            base.name,
            index.name,
            update.name,
            field("update_window_dims", &updated),
            field("inserted_window_dims", &inserted),
            field("input_batching_dims", &batch),
            field("scatter_indices_batching_dims", &by),
            list(&dims),
            n.loops.len()
        );
        let dtype = base.dtype;
        let out = (dtype, &base.shape[..]);
        Ok(self.with_region(&head, &[&base, &index, &update], out, |w| w.reducer_region(combine, dtype)))
    }
}
