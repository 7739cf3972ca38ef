//! Exchanges between devices of `spmd` that send blocks or rows to some of them only.

use super::collectives::{message_data, to_ndarray};
use super::device::{Device, row_major_elements};
use crate::api::array::{AllToAll, AxisGroups, Permutation};
use crate::core::{Axes, Element, Error, Fault, Result};
use crate::exec::runtime::mailbox::Tag;
use ndarray::{Array as NdArray, ArrayRef, Dimension};
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

/// The rows that a device exchanges in [`Device::ragged_all_to_all`].
///
/// Each field has `e` entries for each of `n` devices: entry `t * e + j` is about the rows that go
/// to device `t` (or, in `recv_sizes`, that come from it).
///
/// ```
/// use atmesh::nd::{ArrayView1, array};
/// use atmesh::prelude::*;
/// use atmesh::spmd::RowRanges;
/// let mesh = Mesh::new([("x", 2)])?;
/// // each device sends its row 0 to device 0, and its row 1 to device 1
/// let f = spmd(&mesh, p!["x"], p!["x"], |dev: &Device, x: ArrayView1<i32>| {
///     let (one, output_offsets) = ([1, 1], [dev.position(); 2]);
///     let (send_sizes, recv_sizes, output_offsets) = (&one, &one, &output_offsets);
///     let rows = RowRanges { input_offsets: &[0, 1], send_sizes, output_offsets, recv_sizes };
///     dev.ragged_all_to_all(&x, array![0, 0], "x", rows)
/// });
/// assert_eq!(f.call(Array::arange(1..5))?.to_vec::<i32>()?, [1, 3, 2, 4]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct RowRanges<'a> {
    /// The first row that is sent.
    pub input_offsets: &'a [usize],
    /// The number of rows that are sent.
    pub send_sizes: &'a [usize],
    /// The first row of the receiver's result at which the rows are written.
    pub output_offsets: &'a [usize],
    /// The number of rows that are received.
    pub recv_sizes: &'a [usize],
}

/// Rows that one device sends to another: where they are written, and their elements.
type SentRows<T> = Vec<(usize, Vec<T>)>;

impl Device {
    /// Returns the block of device `source` along the axes.
    ///
    /// ```
    /// use atmesh::nd::ArrayView1;
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 2)])?;
    /// let last = |dev: &Device, x: ArrayView1<i32>| dev.pbroadcast(&x, "x", 1);
    /// let f = spmd(&mesh, p!["x"], p!["x"], last);
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [2, 3, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("MPI_Bcast", "Bcast"))]
    #[track_caller]
    pub fn pbroadcast<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<Axes>,
        source: usize,
    ) -> Result<NdArray<T, D>> {
        let location = Location::caller();
        let at = self.begin_collective(axes.into().into(), "pbroadcast", location)?;
        let (n, rank) = (at.group.size, at.group.rank);
        if source >= n {
            let fault = fault!(Mesh, "there is no device {source} along {}, which has {n}", at.group.axes);
            return Err(self.error(fault, "pbroadcast", location));
        }
        let exchange = self.exchange(at, T::DTYPE, x.shape(), format!("source {source}"));
        let tag = Tag::Collective(exchange.at.group.axes.clone(), exchange.at.sequence, 0);
        if rank == source {
            let mine = Arc::new(row_major_elements(x)?);
            for k in (0..n).filter(|k| *k != rank) {
                exchange.send(k, &tag, mine.clone())?;
            }
            return to_ndarray(x.shape(), Arc::unwrap_or_clone(mine));
        }
        let message = exchange.receive(source..source + 1, &tag)?;
        if !exchange.call.matches(&message.call) {
            return Err(exchange.mismatch((rank, &exchange.call), (source, &message.call)));
        }
        to_ndarray(x.shape(), Arc::unwrap_or_clone(message_data::<Vec<T>>(&message)?))
    }
    /// Returns the block of device `permutation[i]` on each device `i` along the axes.
    ///
    /// `permutation` names each device once.
    ///
    /// ```
    /// use atmesh::nd::ArrayView1;
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 3)])?;
    /// let turn = |dev: &Device, x: ArrayView1<i32>| dev.pshuffle(&x, "x", &[2, 0, 1]);
    /// let f = spmd(&mesh, p!["x"], p!["x"], turn);
    /// assert_eq!(f.call(Array::from([10, 20, 30]))?.to_vec::<i32>()?, [30, 10, 20]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pshuffle<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<Axes>,
        permutation: &[usize],
    ) -> Result<NdArray<T, D>> {
        let (axes, location) = (axes.into(), Location::caller());
        let n = self.axis_size(&axes)?;
        if permutation.len() != n {
            let fault = fault!(Mesh, "{permutation:?} is not a permutation of the {n} devices along {axes}")
                .help("name each device once, or the pairs that communicate: `ppermute`");
            return Err(self.error(fault, "pshuffle", location));
        }
        let pairs: Vec<_> = permutation.iter().copied().zip(0..).collect();
        self.permute(x, axes, Permutation::from(pairs), "pshuffle", location)
    }
    /// Swaps dimension `dim` of the block, whose size is the number of devices, with the devices
    /// along the axes.
    ///
    /// ```
    /// use atmesh::nd::ArrayView1;
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("x", 2)])?;
    /// // device i gets element i of each block
    /// let swap = |dev: &Device, x: ArrayView1<i32>| dev.pswapaxes(&x, "x", 0);
    /// let f = spmd(&mesh, p!["x"], p!["x"], swap);
    /// assert_eq!(f.call(Array::arange(0..4))?.to_vec::<i32>()?, [0, 2, 1, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn pswapaxes<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        axes: impl Into<AxisGroups>,
        dim: usize,
    ) -> Result<NdArray<T, D>> {
        let d = i32::try_from(dim).unwrap_or(i32::MAX);
        let split_concat = AllToAll::split(d).stack(d);
        self.exchange_pieces(x, axes.into(), split_concat, "pswapaxes", Location::caller())
    }
    /// Sends rows of `x` to each device along the axes, and returns `output` with those received.
    ///
    /// Rows are slices along dimension 0. Only the rows that are sent travel. It is an error if
    /// rows are out of bounds, or if `recv_sizes` differ from what the devices send.
    ///
    /// ```
    /// use atmesh::nd::{ArrayView1, array};
    /// use atmesh::prelude::*;
    /// use atmesh::spmd::RowRanges;
    /// let mesh = Mesh::new([("x", 2)])?;
    /// // device 0 sends nothing to itself and rows 1, 2 to device 1, which sends back row 3
    /// let f = spmd(&mesh, p!["x"], p!["x"], |dev: &Device, x: ArrayView1<i32>| {
    ///     let (send_sizes, recv_sizes) = ([[0, 2], [1, 0]], [[0, 1], [2, 0]]);
    ///     let me = dev.position();
    ///     let rows = RowRanges {
    ///         input_offsets: &[0, 0],
    ///         send_sizes: &send_sizes[me],
    ///         output_offsets: &[1, 0],
    ///         recv_sizes: &recv_sizes[me],
    ///     };
    ///     dev.ragged_all_to_all(&x, array![0, 0], "x", rows)
    /// });
    /// assert_eq!(f.call(Array::from([1, 2, 3, 4]))?.to_vec::<i32>()?, [0, 3, 1, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("MPI_Alltoallv", "Alltoallv"))]
    #[track_caller]
    pub fn ragged_all_to_all<T: Element, D: Dimension>(
        &self,
        x: &ArrayRef<T, D>,
        output: NdArray<T, D>,
        axes: impl Into<AxisGroups>,
        rows: RowRanges<'_>,
    ) -> Result<NdArray<T, D>> {
        let location = Location::caller();
        let at = self.begin_collective(axes.into(), "ragged_all_to_all", location)?;
        let reject = |fault| -> Error { self.error(fault, "ragged_all_to_all", location) };
        let (n, rank) = (at.group.size, at.group.rank);
        let each = rows.check(n, x.shape(), output.shape()).map_err(reject)?;
        let row_shape = output.shape().get(1..).unwrap_or_default().to_vec();
        let length: usize = row_shape.iter().product();
        let exchange = self.exchange(at, T::DTYPE, &row_shape, format!("{each} entries per device"));
        let tag = Tag::Collective(exchange.at.group.axes.clone(), exchange.at.sequence, 0);
        let mine = row_major_elements(x)?;
        let sent = |to: usize| -> SentRows<T> {
            let entry = |q: usize| {
                let from = rows.input_offsets[q] * length;
                (rows.output_offsets[q], mine[from..from + rows.send_sizes[q] * length].to_vec())
            };
            (to * each..(to + 1) * each).map(entry).collect()
        };
        for k in (0..n).filter(|k| *k != rank) {
            exchange.send(k, &tag, Arc::new(sent(k)))?;
        }
        let (shape, mut data) = (output.shape().to_vec(), row_major_elements(&output)?);
        for k in 0..n {
            let received = if k == rank {
                Arc::new(sent(k))
            } else {
                let message = exchange.receive(k..k + 1, &tag)?;
                if !exchange.call.matches(&message.call) {
                    return Err(exchange.mismatch((rank, &exchange.call), (k, &message.call)));
                }
                message_data::<SentRows<T>>(&message)?
            };
            for (j, (start, elements)) in received.iter().enumerate() {
                let expected = rows.recv_sizes[k * each + j];
                let range =
                    start.saturating_mul(length)..start.saturating_mul(length).saturating_add(elements.len());
                if elements.len() != expected * length || range.end > data.len() {
                    let count = elements.len().checked_div(length).unwrap_or(0);
                    return Err(reject(unexpected_rows(k, (*start, count), expected, shape[0])));
                }
                data[range].copy_from_slice(elements);
            }
        }
        to_ndarray(&shape, data)
    }
}

/// Returns the error for rows of device `from` that do not fit in the output, or are not those
/// that `recv_sizes` has.
fn unexpected_rows(from: usize, (start, count): (usize, usize), expected: usize, rows: usize) -> Fault {
    if count != expected {
        return fault!(Shape, "device {from} sends {count} rows, and `recv_sizes` has {expected} for it")
            .help("give the number of rows that each device sends: exchange `send_sizes` by `all_to_all`");
    }
    let end = start.saturating_add(count);
    fault!(Shape, "device {from} writes rows {start}..{end}, but the output has {rows} rows")
        .help("give a larger output, or other `output_offsets`")
}

impl RowRanges<'_> {
    /// Checks the ranges against the shapes of the operand and the output, and returns the number
    /// of entries for each of `n` devices.
    fn check(&self, n: usize, operand: &[usize], output: &[usize]) -> Result<usize, Fault> {
        let entries = self.input_offsets.len();
        let lengths = [self.send_sizes, self.output_offsets, self.recv_sizes].map(<[usize]>::len);
        if lengths != [entries; 3] || entries == 0 || !entries.is_multiple_of(n) {
            return Err(fault!(Shape, "the offsets and sizes have {entries} and {lengths:?} entries")
                .help(format!("give each a multiple of {n} entries: the first ones are for device 0")));
        }
        if operand.is_empty() || operand.len() != output.len() || operand[1..] != output[1..] {
            return Err(fault!(
                Shape,
                "the block has shape {operand:?} and the output {output:?}: their rows differ"
            )
            .help("give the output the same dimensions after the first one"));
        }
        let range = |q: usize| -> Option<Range<usize>> {
            let from = self.input_offsets[q];
            Some(from..from.checked_add(self.send_sizes[q])?).filter(|range| range.end <= operand[0])
        };
        if let Some(q) = (0..entries).find(|q| range(*q).is_none()) {
            let (from, count) = (self.input_offsets[q], self.send_sizes[q]);
            return Err(fault!(
                Shape,
                "entry {q} sends {count} rows from row {from} on, but the block has {} rows",
                operand[0]
            ));
        }
        Ok(entries / n)
    }
}
