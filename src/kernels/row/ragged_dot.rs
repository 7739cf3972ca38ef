//! Products of the rows of groups with one matrix per group.
//!
//! Consecutive rows of one group are a matrix, and each such run of rows is one call of
//! [`gemm`](crate::kernels::gemm). The order of each sum depends on the runs only, not on the tile
//! of the result that a call computes.

use crate::core::{DType, Shape};
use crate::kernels::buffer::Buffer;
use crate::kernels::gemm::{ProductKind, gemm};
use crate::kernels::row_kernel::{RawRows, RowInput, RowKernel, RowOutputs, RowSharding};
use half::{bf16, f16};
use std::ops::Range;

/// The row kernel of `ragged_dot`: the operands are rows, a mask of rows and groups, and factors.
///
/// A row of the kernel is the sum for one element of the result. All loops over elements are
/// leading dimensions, so a batch is a box of the result.
#[derive(Debug)]
pub(crate) struct RaggedDotKernel {
    /// False for sums over groups and k: the mask is `[.., g, k]` along a row of the kernel.
    /// True for sums over the rows, which are then all dimensions along a row of the kernel.
    pub(crate) per_group: bool,
    /// The number of dimensions of the rows.
    pub(crate) num_row_dims: usize,
    /// The number of groups.
    pub(crate) num_groups: usize,
}

/// The approximate time of a multiplication and addition, in nanoseconds.
const NS_PER_MAC: f64 = 0.03;

impl RowKernel for RaggedDotKernel {
    fn key(&self) -> String {
        let RaggedDotKernel { per_group, num_row_dims, num_groups } = self;
        format!("ragged_dot per_group={per_group} row_dims={num_row_dims} groups={num_groups}")
    }
    fn cost(&self, elements: usize) -> f64 {
        // a row is in one group
        NS_PER_MAC * elements as f64 / self.num_groups.max(1) as f64
    }
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [x, (DType::Bool, _), y]
                if x.0 == y.0 && x.0.is_number() && x.1.rank() == self.num_inner_dims() =>
            {
                Ok(vec![(x.0, Shape::default())])
            }
            _ => Err("ragged_dot takes rows, a mask and factors of one element type".to_string()),
        }
    }
    fn sharding(&self, _: &[DType]) -> RowSharding {
        RowSharding::Sum { dims: (0..self.num_inner_dims()).collect() }
    }
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
        let (shape, dtype) = (ins[0].shape(), ins[0].dtype());
        let over = shape.len() - self.num_inner_dims();
        let Some(mut out) = outs.take(0) else { return };
        if shape[..over].contains(&0) {
            return;
        }
        let [x, mask, y] = [0, 1, 2].map(|k| ins[k].raw());
        let (given, dtype) = match dtype {
            DType::F16 | DType::BF16 => (dtype, DType::F32),
            _ => (dtype, dtype),
        };
        let tiles = |out| RaggedTiles { given, dtype, shape, over, x, mask, y, out }.run(self.per_group);
        if given == dtype {
            return tiles(out.raw_uninit());
        }
        // 16-bit floats are summed in float32, and rounded once
        let elements: usize = shape[..over].iter().product();
        let mut sums = Buffer::allocate_or_unwind(elements.saturating_mul(size_of::<f32>()));
        let (ptr, strides) = (sums.as_mut_ptr(), dense_strides(&shape[..over]));
        tiles(RawRows { ptr, strides: &strides });
        // SAFETY: the buffer has this number of floats, all of which the product wrote.
        let sums = unsafe { std::slice::from_raw_parts(ptr.cast::<f32>(), elements) };
        match given {
            DType::F16 => out.uninit_view::<f16>().iter_mut().zip(sums).for_each(|(y, x)| {
                y.write(f16::from_f32(*x));
            }),
            _ => out.uninit_view::<bf16>().iter_mut().zip(sums).for_each(|(y, x)| {
                y.write(bf16::from_f32(*x));
            }),
        }
    }
}

impl RaggedDotKernel {
    /// Returns the number of dimensions along a row of the kernel.
    fn num_inner_dims(&self) -> usize {
        if self.per_group { self.num_row_dims } else { 2 }
    }
}

/// Returns the strides of an array in row-major order.
fn dense_strides(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d];
    }
    strides
}

/// A box of the result with its operands.
struct RaggedTiles<'a> {
    /// The element type of the operands.
    given: DType,
    /// The element type of the sums.
    dtype: DType,
    /// The sizes of the loops: those over the result, then the summed ones.
    shape: &'a [usize],
    /// The number of loops over the result.
    over: usize,
    /// The rows.
    x: RawRows<'a>,
    /// The mask.
    mask: RawRows<'a>,
    /// The matrices of the groups, or the rows of the other factor.
    y: RawRows<'a>,
    /// The sums.
    out: RawRows<'a>,
}

/// A matrix in an operand or in the result: offset and strides in elements.
#[derive(Clone, Copy)]
struct RunMatrix {
    offset: usize,
    rows: usize,
    columns: usize,
}

/// The offsets of a tile in `x`, the mask, `y` and the result, in elements.
type Offsets = [usize; 4];

impl RaggedTiles<'_> {
    /// Computes all elements.
    ///
    /// A tile has the loops on which only one of the factors depends as its rows and columns.
    fn run(&self, per_group: bool) {
        let longest =
            |list: &dyn Fn(usize) -> bool| (0..self.over).filter(|d| list(*d)).max_by_key(|d| self.shape[*d]);
        let fixed = |r: &RawRows<'_>, d: usize| r.strides[d] == 0;
        let column = longest(&|d| fixed(&self.x, d) && fixed(&self.mask, d));
        let row =
            longest(&|d| Some(d) != column && fixed(&self.y, d) && (!per_group || fixed(&self.mask, d)));
        let others: Vec<usize> = (0..self.over).filter(|d| Some(*d) != column && Some(*d) != row).collect();
        let rows = [&self.x, &self.mask, &self.y, &self.out];
        for tile in 0..others.iter().map(|d| self.shape[*d]).product() {
            let at = self.offsets(&others, tile, rows);
            match per_group {
                true => self.sum_groups(at, row, column),
                false => self.multiply_rows(at, row, column),
            }
        }
    }
    /// Returns the offsets at position `index`, in row-major order, of some of the loops.
    fn offsets<const N: usize>(
        &self,
        loops: &[usize],
        mut index: usize,
        rows: [&RawRows<'_>; N],
    ) -> [usize; N] {
        let mut at = [0; N];
        for d in loops.iter().rev() {
            let i = index % self.shape[*d];
            index /= self.shape[*d];
            at.iter_mut().zip(rows).for_each(|(at, r)| *at += i * r.strides[*d]);
        }
        at
    }
    /// Returns the size of a loop of a tile, and its strides in one operand and in the result.
    fn tile_loop(&self, d: Option<usize>, operand: &RawRows<'_>) -> (usize, usize, usize) {
        d.map_or((1, 0, 0), |d| (self.shape[d], operand.strides[d], self.out.strides[d]))
    }
    /// Computes a tile whose rows have groups: each run of rows of a group is one product.
    fn multiply_rows(&self, [x, mask, y, out]: Offsets, row: Option<usize>, column: Option<usize>) {
        let (m, x_rows, out_rows) = self.tile_loop(row, &self.x);
        let (n, y_columns, out_columns) = self.tile_loop(column, &self.y);
        let [groups, k] = [self.shape[self.over], self.shape[self.over + 1]];
        let mask_rows = row.map_or(0, |d| self.mask.strides[d]);
        let step = |r: &RawRows<'_>, d: usize| r.strides[self.over + d];
        let mut written = vec![false; m];
        for group in (0..groups).filter(|_| k > 0) {
            let mask = mask + group * step(&self.mask, 0);
            let mut next = 0;
            while let Some(run) = self.next_run(mask, mask_rows, next..m) {
                let more = written[run.start];
                let end = run.clone().find(|i| written[*i] != more).unwrap_or(run.end);
                written[run.start..end].fill(true);
                next = end;
                let x = RunMatrix {
                    offset: x + run.start * x_rows + group * step(&self.x, 0),
                    rows: x_rows,
                    columns: step(&self.x, 1),
                };
                let y = RunMatrix {
                    offset: y + group * step(&self.y, 0),
                    rows: step(&self.y, 1),
                    columns: y_columns,
                };
                let out =
                    RunMatrix { offset: out + run.start * out_rows, rows: out_rows, columns: out_columns };
                self.multiply([end - run.start, k, n], x, y, out, more);
            }
        }
        for i in (0..m).filter(|i| !written[*i]) {
            self.clear([1, n], RunMatrix { offset: out + i * out_rows, rows: 0, columns: out_columns });
        }
    }
    /// Computes a tile of the matrix of a group: the sum of the products of its runs of rows.
    fn sum_groups(&self, [x, mask, y, out]: Offsets, row: Option<usize>, column: Option<usize>) {
        let (m, x_rows, out_rows) = self.tile_loop(row, &self.x);
        let (n, y_columns, out_columns) = self.tile_loop(column, &self.y);
        let out = RunMatrix { offset: out, rows: out_rows, columns: out_columns };
        let last = self.shape.len() - 1;
        let lead: Vec<usize> = (self.over..last).collect();
        let (x_step, y_step) = (self.x.strides[last], self.y.strides[last]);
        let mut more = false;
        for index in 0..lead.iter().map(|d| self.shape[*d]).product() {
            let from = self.offsets(&lead, index, [&self.x, &self.mask, &self.y]);
            let (x, mask, y) = (x + from[0], mask + from[1], y + from[2]);
            let mut next = 0;
            while let Some(run) = self.next_run(mask, self.mask.strides[last], next..self.shape[last]) {
                next = run.end;
                let x = RunMatrix { offset: x + run.start * x_step, rows: x_rows, columns: x_step };
                let y = RunMatrix { offset: y + run.start * y_step, rows: y_step, columns: y_columns };
                self.multiply([m, run.len(), n], x, y, out, more);
                more = true;
            }
        }
        if !more {
            self.clear([m, n], out);
        }
    }
    /// Returns the first run of rows within `rows` that the mask includes.
    fn next_run(&self, mask: usize, stride: usize, rows: Range<usize>) -> Option<Range<usize>> {
        // SAFETY: the mask has an element at each index of its loops (invariant of `RawRows`), and
        // the elements are bools, whose bytes are 0 or 1.
        let included = |i: &usize| unsafe { *self.mask.ptr.wrapping_add(mask + i * stride) } != 0;
        let start = rows.clone().find(included)?;
        let end = (start..rows.end).find(|i| !included(i)).unwrap_or(rows.end);
        Some(start..end)
    }
    /// Computes `out = x·y`, or `out += x·y` with `accumulate`, for matrices of sizes `[m, k, n]`.
    fn multiply(&self, [m, k, n]: [usize; 3], x: RunMatrix, y: RunMatrix, out: RunMatrix, accumulate: bool) {
        let (mut wide_x, mut wide_y) = (Vec::new(), Vec::new());
        let address =
            |r: &RawRows<'_>, t: RunMatrix, dtype: DType| r.ptr.wrapping_add(t.offset * dtype.size());
        let (x_at, x) = match self.given == self.dtype {
            true => (address(&self.x, x, self.dtype), x),
            false => self.widen(&self.x, x, [m, k], &mut wide_x),
        };
        let (y_at, y) = match self.given == self.dtype {
            true => (address(&self.y, y, self.dtype), y),
            false => self.widen(&self.y, y, [k, n], &mut wide_y),
        };
        // SAFETY: the tiles are within the loops of the operands and the result, whose elements
        // exist there (invariant of `RawRows`), or in the float32 copies. The result overlaps no
        // operand, its elements are distinct, and an earlier product wrote them if `accumulate`.
        unsafe {
            gemm(
                self.dtype,
                ProductKind::MatMat,
                m,
                k,
                n,
                address(&self.out, out, self.dtype),
                out.rows as isize,
                out.columns as isize,
                x_at,
                x.rows as isize,
                x.columns as isize,
                y_at,
                y.rows as isize,
                y.columns as isize,
                accumulate,
                1.0,
            );
        }
    }
    /// Copies a matrix of 16-bit floats to `wide`, as float32 in row-major order.
    /// Returns its address and strides.
    fn widen(
        &self,
        from: &RawRows<'_>,
        t: RunMatrix,
        size: [usize; 2],
        wide: &mut Vec<f32>,
    ) -> (*mut u8, RunMatrix) {
        let [m, n] = size;
        wide.reserve_exact(m * n);
        for i in 0..m {
            for j in 0..n {
                let at = from.ptr.wrapping_add((t.offset + i * t.rows + j * t.columns) * 2).cast::<u16>();
                // SAFETY: the element is within the loops of the operand (invariant of `RawRows`).
                let bits = unsafe { *at };
                wide.push(match self.given {
                    DType::F16 => f16::from_bits(bits).to_f32(),
                    _ => bf16::from_bits(bits).to_f32(),
                });
            }
        }
        (wide.as_mut_ptr().cast(), RunMatrix { offset: 0, rows: n, columns: 1 })
    }
    /// Writes zeros to a matrix of the result.
    fn clear(&self, [m, n]: [usize; 2], out: RunMatrix) {
        let size = self.dtype.size();
        for (i, j) in (0..m).flat_map(|i| (0..n).map(move |j| (i, j))) {
            let at = (out.offset + i * out.rows + j * out.columns) * size;
            // SAFETY: the element is within the loops of the result (invariant of `RawRows`), and
            // zero bytes are a number.
            unsafe { self.out.ptr.wrapping_add(at).write_bytes(0, size) }
        }
    }
}
