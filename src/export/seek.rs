//! Reads and writes at places known at run time: gather and scatter, and their simple forms where one number says all.

use super::Out;
use super::sentences::combiner;
use super::text::{array, list};
use super::writer::{Ssa, Writer};
use crate::program::sentence::{Beyond, Bound, Combine, Sentence};
use crate::sorted;
use crate::types::{DType, Scalar};

/// The numbers of bound loops, over the loops that they depend on.
struct Numbers {
    /// One for each bound loop, clipped to what is there; over `loops`.
    at: Vec<Ssa>,
    loops: Vec<usize>,
    /// Whether all of them were there; nothing where no one asks.
    there: Option<Ssa>,
}

/// ` name = [..],` or nothing.
fn field(name: &str, dims: &[usize]) -> String {
    if dims.is_empty() { String::new() } else { format!("{name} = {}, ", list(dims)) }
}

impl Writer {
    /// The numbers over the loops that they depend on, and these.
    fn numbers(&mut self, at: &[Bound], s: &Sentence, also: &[usize], operands: &[Ssa]) -> Out<Numbers> {
        let mut loops = also.to_vec();
        for b in at {
            loops.extend(super::reads::depends(&s.reads[b.by], &s.extents));
        }
        sorted::sort(&mut loops);
        loops.dedup();
        let (mut numbers, mut there) = (Vec::new(), None);
        let shape: Vec<usize> = loops.iter().map(|l| s.extents[*l]).collect();
        let narrow = |d: DType| matches!(d, DType::I8 | DType::I16 | DType::I32 | DType::U8 | DType::U16);
        let to = if at.iter().all(|b| narrow(s.reads[b.by].dtype)) { DType::I32 } else { DType::I64 };
        for b in at {
            let x = self.read(&s.reads[b.by], &s.extents, &loops, operands)?;
            let bits = 8 * x.dtype.size() as u32 - u32::from(x.dtype.is_signed());
            // what the element type cannot say is never beyond
            let most = if bits < 63 { b.most.min((1 << bits) - 1) } else { b.most };
            let (zero, last) = (self.int(x.dtype, 0, &shape), self.int(x.dtype, most.max(0), &shape));
            let text = format!("stablehlo.clamp {}, {}, {} : {}", zero.name, x.name, last.name, x.ty());
            let clipped = self.op(text, x.dtype, &shape);
            if b.beyond == Beyond::Nothing || b.most < 0 {
                let is = if b.most < 0 {
                    self.constant(DType::Bool, Scalar::Bool(false), &shape)
                } else {
                    self.compare("EQ", &x, &clipped)
                };
                there = Some(match there {
                    None => is,
                    Some(all) => self.same("and", &[&all, &is]),
                });
            }
            numbers.push(self.convert(&clipped, to));
        }
        Ok(Numbers { at: numbers, loops, there })
    }
    /// The numbers side by side in a new last dimension.
    fn vectors(&mut self, numbers: &[Ssa]) -> Ssa {
        let mut parts = Vec::new();
        for x in numbers {
            let mut shape = x.shape.clone();
            shape.push(1);
            parts.push(self.reshape(x, &shape));
        }
        let d = parts[0].shape.len() - 1;
        self.concatenate(&parts, d)
    }
    /// `%i, %zero, …` for each dimension, and their types.
    fn starts(&mut self, rank: usize, dims: &[usize], numbers: &[Ssa]) -> String {
        let zero = self.int(numbers[0].dtype, 0, &[]);
        let name = |d: usize| dims.iter().position(|e| *e == d).map_or(&zero, |k| &numbers[k]).name.clone();
        super::text::join((0..rank).map(name))
    }

    pub(super) fn take(&mut self, at: &[Bound], s: &Sentence, operands: &[Ssa]) -> Out<Ssa> {
        let sizes = &s.extents[..s.rank];
        let (x, loops) = self.slim(&s.reads[0], &s.extents, operands)?;
        let n = self.numbers(at, s, &[], operands)?;
        // the bound dimensions of what is read, their numbers, and the loop of each dimension that stays
        let (mut dims, mut used, mut kept, mut collapsed) = (vec![], vec![], vec![], vec![]);
        let (mut batch, mut by) = (vec![], vec![]);
        let mut slice = x.shape.clone();
        for (d, l) in loops.iter().enumerate() {
            if let Some(k) = at.iter().position(|b| b.index == *l) {
                dims.push(d);
                used.push(n.at[k].clone());
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
            self.placed(&x, &loops, sizes)
        } else if n.loops.is_empty() {
            let starts = self.starts(slice.len(), &dims, &used);
            let text = format!("stablehlo.dynamic_slice {}, {starts}, sizes = {}", x.name, list(&slice));
            let zero = &used[0];
            let args: Vec<&Ssa> = std::iter::once(&x).chain(slice.iter().map(|_| zero)).collect();
            let cut = self.typed(&text, &args, x.dtype, &slice);
            let shape: Vec<usize> =
                (0..slice.len()).filter(|d| !collapsed.contains(d)).map(|d| slice[d]).collect();
            let cut = self.reshape(&cut, &shape);
            self.placed(&cut, &kept, sizes)
        } else {
            let index = self.vectors(&used);
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
            self.placed(&found, &over, sizes)
        };
        let Some(there) = n.there else { return Ok(found) };
        let there = self.placed(&there, &n.loops, sizes);
        let fill = self.constant(found.dtype, s.reads[0].fill, sizes);
        Ok(self.select(&there, &found, &fill))
    }

    pub(super) fn put(
        &mut self,
        at: &[Bound],
        combine: Option<Combine>,
        s: &Sentence,
        operands: &[Ssa],
    ) -> Out<Ssa> {
        let all: Vec<usize> = (0..s.rank).collect();
        let base = self.read(&s.reads[0], &s.extents, &all, operands)?;
        let windows: Vec<usize> = at.iter().filter_map(|b| b.window).collect();
        let beyond: Vec<usize> = (s.rank..s.extents.len()).filter(|l| !windows.contains(l)).collect();
        let n = self.numbers(at, s, &beyond, operands)?;
        // each dimension of the result: bound, the same loop as the numbers', or a window of all of it
        let (mut dims, mut used, mut inserted, mut batch, mut by, mut open) =
            (vec![], vec![], vec![], vec![], vec![], vec![]);
        for d in 0..s.rank {
            if let Some(k) = at.iter().position(|b| b.index == d) {
                dims.push(d);
                used.push(n.at[k].clone());
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
        sorted::sort(&mut sorted);
        let update = self.read(&s.reads[1], &s.extents, &sorted, operands)?;
        let order: Vec<usize> = over.iter().filter_map(|l| sorted.iter().position(|m| m == l)).collect();
        let update = self.transpose(&update, &order);
        if dims.is_empty() {
            let (update, sizes) = (self.placed(&update, &over, &base.shape), base.shape.clone());
            let new = match combine {
                None => update,
                Some(c) => self.same(combiner(c), &[&base, &update]),
            };
            return Ok(match n.there {
                None => new,
                Some(there) => {
                    let there = self.placed(&there, &n.loops, &sizes);
                    self.select(&there, &new, &base)
                }
            });
        }
        if n.loops.is_empty() && combine.is_none() {
            let mut shape = update.shape.clone();
            inserted.iter().for_each(|d| shape.insert(*d, 1));
            let update = self.reshape(&update, &shape);
            let starts = self.starts(s.rank, &dims, &used);
            let text = format!("stablehlo.dynamic_update_slice {}, {}, {starts}", base.name, update.name);
            let args: Vec<&Ssa> = [&base, &update].into_iter().chain(all.iter().map(|_| &used[0])).collect();
            let new = self.typed(&text, &args, base.dtype, &base.shape);
            let Some(there) = n.there else { return Ok(new) };
            let there = self.broadcast(&there, &[], &base.shape);
            return Ok(self.select(&there, &new, &base));
        }
        // a window that is dropped begins behind the end: then all of it is outside
        if let Some(there) = &n.there {
            for (x, d) in used.iter_mut().zip(&dims) {
                let out = self.int(x.dtype, s.extents[*d] as i64, &x.shape);
                *x = self.select(there, x, &out);
            }
        }
        let index = self.vectors(&used);
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
        Ok(self.with_region(&head, &[&base, &index, &update], out, |w| w.combined(combine, dtype)))
    }
}
