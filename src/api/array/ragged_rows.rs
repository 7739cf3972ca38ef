//! `ragged_all_to_all`: an exchange of rows, any number from each device to each.

use super::collectives::group_size;
use super::operand::{self, Operand, Term};
use super::{
    AllToAll, Array, AxisGroups, CollectiveDim, Dims, IndexOptions, concat::concat_at, prims,
    reductions::Extreme,
};
use crate::api::trace::apply1;
use crate::core::{ArrayType, DType, Fault, Result};
use crate::ir::ops::elementwise::Binary;
use crate::ir::program::CallSite;

/// The rows that devices exchange in a [`ragged_all_to_all`](Array::ragged_all_to_all).
///
/// Each field is an integer vector with `e` entries for each of `n` devices: entry `t * e + j`
/// is about the rows that go to device `t` (or, in `recv_sizes`, that come from it).
///
/// ```
/// use atmesh::prelude::*;
/// use atmesh::RaggedRows;
/// let mesh = Mesh::new([("X", 2)])?;
/// // each device sends its row 0 to device 0, and its row 1 to device 1
/// let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
///     let (me, one) = (axis_index("X"), Array::from([1, 1]));
///     let (send_sizes, recv_sizes) = (one.clone(), one);
///     let (input_offsets, output_offsets) = (Array::from([0, 1]), stack([&me, &me], 0));
///     let rows = RaggedRows { input_offsets, send_sizes, output_offsets, recv_sizes };
///     x.ragged_all_to_all("X", &Array::zeros(I32.array_type([2])), &rows)
/// });
/// assert_eq!(f.call(Array::arange(1..5))?.to_vec::<i32>()?, [1, 3, 2, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RaggedRows {
    /// The first row of the operand that is sent.
    pub input_offsets: Array,
    /// The number of rows that are sent.
    pub send_sizes: Array,
    /// The first row of the receiver's result at which the rows are written.
    pub output_offsets: Array,
    /// The number of rows that are received.
    pub recv_sizes: Array,
}

impl Array {
    /// Sends any number of rows to each device along `axes`, and writes those received to `output`.
    ///
    /// Rows are slices along dimension 0. Entry `t * e + j` of `rows` on device `s` sends the rows
    /// `input_offsets[..] .. input_offsets[..] + send_sizes[..]` of this array to device `t`, which
    /// writes them at `output_offsets[..]`: the sender says where on the receiver. Entry
    /// `s * e + j` of the receiver's `recv_sizes` has their number too. The rest of the result is
    /// `output`. The result varies, and its gradient is exchanged back.
    ///
    /// Indices are not checked, since they are known in the run only: rows outside of the operand,
    /// or outside of the result, are not sent. If the two sizes differ, the smaller one is used,
    /// and if rows overlap, those of the last entry are kept. All devices gather the operands of
    /// the others, so that `n - 1` operands are received, however few rows are sent.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// use atmesh::RaggedRows;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// // device 0 keeps row 1 and sends rows 2, 2; device 1 sends row 3 and keeps row 4
    /// let x = Array::from([1, 2, 2, 3, 4, 0]);
    /// let args = [[0, 1, 0, 1], [1, 2, 1, 1], [0, 0, 1, 2], [1, 1, 2, 1]].map(Array::from);
    /// let [input_offsets, send_sizes, output_offsets, recv_sizes] = args;
    /// let exchange = |x: &Array, (i, s): (&Array, &Array), (o, r): (&Array, &Array)| {
    ///     let [input_offsets, send_sizes, output_offsets, recv_sizes] = [i, s, o, r].map(Clone::clone);
    ///     let rows = RaggedRows { input_offsets, send_sizes, output_offsets, recv_sizes };
    ///     x.ragged_all_to_all("X", &Array::zeros(I32.array_type([4])), &rows)
    /// };
    /// let f = shard_map(&mesh, p!["X"], p!["X"], exchange);
    /// let y = f.call((&x, (&input_offsets, &send_sizes), (&output_offsets, &recv_sizes)))?;
    /// assert_eq!(y.to_vec::<i32>()?, [1, 3, 0, 0, 2, 2, 4, 0]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("MPI_Alltoallv", "Alltoallv"))]
    #[track_caller]
    pub fn ragged_all_to_all(&self, axes: impl Into<AxisGroups>, output: &Array, rows: &RaggedRows) -> Array {
        let call = CallSite::here("ragged_all_to_all");
        let over = axes.into();
        let RaggedRows { input_offsets, send_sizes, output_offsets, recv_sizes } = rows;
        let operands = [self, output, input_offsets, send_sizes, output_offsets, recv_sizes];
        let types = ok_or_return!(operand::types(operands));
        let reject = |fault| operand::reject(fault, &operands.map(Term::from), call);
        let n = match group_size(&over, call) {
            Ok(n) => n,
            // the collective reports the error about the axes
            Err(_) => return self.all_gather_at(over, CollectiveDim::tiled(0), call),
        };
        let dtype = ok_or_return!(check_rows(&types, n), |fault| reject(fault));
        self.with_call_site(call, |call| {
            let index = |x: &Array| x.convert_at(dtype, call);
            let plan =
                [input_offsets, send_sizes, output_offsets].map(|x| index(x).expand_dims_at(&[0], call));
            let plan = concat_at(&plan, 0, call);
            let plan = plan.all_to_all_at(over.clone(), AllToAll::split(1).concat(1), call);
            let part = |k: usize| plan.slice_dim(0, k, k + 1, call);
            let sizes = part(1).binary_with(Binary::Min, index(recv_sizes).expand_dims_at(&[0], call), call);
            let plan = Received { first: part(0), start: part(2), sizes };
            let all = self.all_gather_at(over, CollectiveDim::tiled(0), call);
            plan.write(&all, types[0].shape[0], output, call)
        })
    }
}

/// The entries of all senders, as rows of shape `[1, n * e]`, on the receiver.
struct Received {
    /// The first row of the sender's operand.
    first: Array,
    /// The first row of the result.
    start: Array,
    /// The number of rows.
    sizes: Array,
}

impl Received {
    /// Writes the received rows to `output`. `all` has the operands of all senders, of `m` rows.
    fn write(&self, all: &Array, m: usize, output: &Array, call: CallSite<'_>) -> Array {
        let [ty, plan, sent] = ok_or_return!(operand::types([output, &self.first, all]));
        let (k, count, dtype) = (ty.shape[0], plan.shape[1], plan.dtype);
        let senders = sent.shape[0] / m.max(1);
        let row = apply1(prims::iota(dtype.array_type([k, 1]), 0), &[], call);
        let entry = apply1(prims::iota(dtype.array_type([1, count]), 1), &[], call);
        // the row of the sender's operand for each row of the result and each entry
        let offset = row.binary_with(Binary::Sub, &self.start, call);
        let from = self.first.binary_with(Binary::Add, &offset, call);
        let and = |a: Array, b: Array| a.binary_with(Binary::And, b, call);
        let in_order = |x: &Array| x.binary_with(Binary::Ge, 0, call);
        let mut hits = and(in_order(&self.start), in_order(&self.first));
        hits = and(hits, and(in_order(&offset), offset.binary_with(Binary::Lt, &self.sizes, call)));
        hits = and(hits, and(in_order(&from), from.binary_with(Binary::Lt, m, call)));
        let last = hits.select_at(entry.term(), Array::from(-1).convert_at(dtype, call).term(), call);
        let last = last.extreme_at(Dims::from(1), Extreme::Maximum, call);
        let found = in_order(&last);

        // the distance from a row of the result to its row among all operands, for each entry
        let before: Vec<i64> = (0..count).map(|q| (q * senders / count * m) as i64).collect();
        let shift = Array::from(before).convert_at(dtype, call).expand_dims_at(&[0], call);
        let shift =
            shift.binary_with(Binary::Add, &self.first, call).binary_with(Binary::Sub, &self.start, call);
        let shift = shift.reshape_at([count].into(), None, call);
        let at = last.binary_with(Binary::Max, 0, call);
        let at = shift.take_at(&at, 0, IndexOptions::default(), call);
        let at = at.binary_with(Binary::Add, row.reshape_at([k].into(), None, call), call);
        let rows = all.take_at(&at.binary_with(Binary::Max, 0, call), 0, IndexOptions::default(), call);
        let wide: Vec<usize> = (1..ty.rank()).collect();
        found.expand_dims_at(&wide, call).select_at(rows.term(), output.term(), call)
    }
}

/// Checks the operands, and returns the element type of indices.
fn check_rows(types: &[&ArrayType; 6], n: usize) -> Result<DType, Fault> {
    let [operand, output, vectors @ ..] = types;
    if operand.dtype != output.dtype {
        return Err(fault!(
            Dtype,
            "the operand has elements of type {}, and `output` of type {}",
            operand.dtype,
            output.dtype
        )
        .help(format!("convert `output`: `output.astype({:?})`", operand.dtype)));
    }
    if operand.rank() == 0 || output.rank() == 0 || operand.shape[1..] != output.shape[1..] {
        return Err(fault!(Shape, "rows are exchanged along dimension 0, but those of {operand} and of `output`, {output}, have different shapes")
            .help("give `output` the same dimensions after the first one"));
    }
    let names = ["input_offsets", "send_sizes", "output_offsets", "recv_sizes"];
    for (name, ty) in names.iter().zip(vectors) {
        if !ty.dtype.is_integer() {
            return Err(fault!(Dtype, "`{name}` is {ty}: it counts rows, so it has integers")
                .help("convert it: `.astype(I32)`"));
        }
        if ty.rank() != 1 || ty.shape[0] != vectors[0].shape[0] {
            return Err(fault!(
                Shape,
                "`{name}` is {ty}, but `input_offsets` is {}: all four are vectors of one length",
                vectors[0]
            )
            .help(format!("give each of them a multiple of {n} entries")));
        }
    }
    let entries = vectors[0].shape[0];
    if entries == 0 || entries % n != 0 {
        return Err(fault!(
            Shape,
            "`{}` has {entries} entries, which are not as many for each of {n} devices",
            names[0]
        )
        .help(format!("give a multiple of {n} entries: the first ones are for device 0")));
    }
    let wide = vectors.iter().any(|ty| ty.dtype.size() > 4 || ty.dtype == DType::U32)
        || operand.shape[0].max(output.shape[0]).saturating_mul(n) > i32::MAX as usize;
    Ok(if wide { DType::I64 } else { DType::I32 })
}
