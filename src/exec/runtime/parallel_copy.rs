//! Parallel copies and conversions of host data, before and after a program runs.
//!
//! They run on rayon's threads. Programs run on the thread pool instead, and never call these
//! functions. Small data is handled by the calling thread.

use super::array_data::ArrayData;
use crate::core::{Element, Fault, Shape};
use crate::kernels;
use crate::kernels::buffer::{self, Buffer, RawByte, huge_pages, try_vec_with_capacity};
use ndarray::{ArrayView, ArrayViewD, ArrayViewMut, Axis, Dimension, Zip};
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// The minimum size, in bytes, for parallel execution. Below it, waking the other cores costs more
/// than they save.
const MIN_PARALLEL_BYTES: usize = if cfg!(miri) { 1 << 10 } else { 1 << 20 };

/// False where there is one thread: code for several is then left out of the module of a page.
const HAS_THREADS: bool = cfg!(not(target_arch = "wasm32"));

/// Returns true if this many bytes are copied on all cores.
fn is_parallel(bytes: usize) -> bool {
    HAS_THREADS && bytes >= MIN_PARALLEL_BYTES
}
/// The number of bytes that one task handles.
const PIECE_BYTES: usize = 1 << 18;
/// The minimum size, in bytes, for non-temporal stores: larger copies do not fit in caches anyway.
const MIN_STREAMING_BYTES: usize = 8 << 20;

/// Copies the elements into a vector. Returns an error if the system has no memory.
pub(crate) fn to_vec<T: Element>(elements: &[T]) -> Result<Vec<T>, Fault> {
    if !is_parallel(size_of_val(elements)) {
        return buffer::try_to_vec(elements);
    }
    let mut list = try_vec_with_capacity(elements.len())?;
    let new = &mut list.spare_capacity_mut()[..elements.len()];
    huge_pages(new);
    // the system clears fresh pages first, which leaves them in the cache
    let past = size_of_val(elements) >= MIN_STREAMING_BYTES && buffer::looks_resident(new);
    copy(new, elements, past);
    // SAFETY: `copy` has initialized the first `elements.len()` elements.
    unsafe { list.set_len(elements.len()) };
    Ok(list)
}
/// Copies elements on all cores; with `past` it bypasses the caches.
fn copy<T: Element>(to: &mut [MaybeUninit<T>], from: &[T], past: bool) {
    if !HAS_THREADS {
        return kernels::copy_slice(to, from, past);
    }
    let piece = PIECE_BYTES / size_of::<T>();
    let pieces = to.par_chunks_mut(piece).zip(from.par_chunks(piece));
    pieces.for_each(|(to, from)| kernels::copy_slice(to, from, past));
}

/// Calls `f` with ranges of about `PIECE_BYTES` bytes, which together are `0..n`, on all cores.
///
/// Stops early if a call returns false, and returns whether all calls returned true. Everything
/// that depends on an element type is in `f`, so that the parallel loop is compiled once.
fn all_pieces(n: usize, element: usize, f: &(dyn Fn(Range<usize>) -> bool + Sync)) -> bool {
    if !HAS_THREADS {
        return f(0..n);
    }
    let piece = (PIECE_BYTES / element).max(1);
    let pieces = (0..n.div_ceil(piece)).into_par_iter();
    pieces.all(|i| f(i * piece..n.min((i + 1) * piece)))
}

/// Converts each element with `f`. Returns an error if the system has no memory.
pub(crate) fn to_f64_vec<T: Element>(elements: &[T], f: fn(T) -> f64) -> Result<Vec<f64>, Fault> {
    let mut list = try_vec_with_capacity(elements.len())?;
    let to = &mut list.spare_capacity_mut()[..elements.len()];
    if is_parallel(size_of_val(elements)) {
        huge_pages(to);
    }
    fill_pieces(to, &|start, to| {
        for (to, x) in to.iter_mut().zip(&elements[start..]) {
            to.write(f(*x));
        }
    });
    // SAFETY: `fill_pieces` has passed each of the first `elements.len()` elements to the closure,
    // which writes all that it is given.
    unsafe { list.set_len(elements.len()) };
    Ok(list)
}
/// Calls `f` with the index of the first element and the memory of each piece, on all cores unless
/// there are few elements.
fn fill_pieces(to: &mut [MaybeUninit<f64>], f: &(dyn Fn(usize, &mut [MaybeUninit<f64>]) + Sync)) {
    const PIECE: usize = PIECE_BYTES / size_of::<f64>();
    if !is_parallel(size_of_val(to)) {
        return f(0, to);
    }
    to.par_chunks_mut(PIECE).enumerate().for_each(|(i, to)| f(i * PIECE, to));
}

/// Returns true if `holds` is true for all pairs of elements of two arrays of equal shape.
pub(crate) fn all_pairs<T: Element, D: Dimension>(
    a: ArrayView<'_, T, D>,
    b: ArrayView<'_, T, D>,
    holds: impl Fn(&T, &T) -> bool + Sync,
) -> bool {
    let pairs = |(a, b): (&T, &T)| holds(a, b);
    match (a.as_slice(), b.as_slice()) {
        (Some(a), Some(b)) if is_parallel(size_of_val(a)) => {
            all_pieces(a.len(), size_of::<T>(), &|r| a[r.clone()].iter().zip(&b[r]).all(pairs))
        }
        _ => a.iter().zip(b.iter()).all(pairs),
    }
}

/// Copies an array of any strides into row-major order. Returns an error if the system has no
/// memory.
pub(crate) fn to_contiguous<T: Element, D: Dimension>(x: ArrayView<'_, T, D>) -> Result<ArrayData, Fault> {
    let mut buffer = Buffer::allocate(x.len() * size_of::<T>())?;
    let shape = x.shape().into();
    let x = x.into_dyn();
    // The copy is compiled for each size of elements instead of each element type.
    macro_rules! copy_as {
        ($bits:ty) => {
            // SAFETY: the view's elements have the size of `$bits`, at least its alignment, and
            // initialized bytes; they stay borrowed.
            copy_strided(unsafe { x.raw_view().cast::<$bits>().deref_into_view() }, &mut buffer)
        };
    }
    match size_of::<T>() {
        1 => copy_as!(u8),
        2 => copy_as!(u16),
        4 => copy_as!(u32),
        8 => copy_as!([u32; 2]),
        _ => copy_as!([u64; 2]),
    }
    Ok(ArrayData::new(T::DTYPE, shape, 1, Arc::new(buffer)))
}

/// Copies an array of any strides to a buffer of its size, in row-major order.
fn copy_strided<B: Copy + Send + Sync>(x: ArrayViewD<'_, B>, buffer: &mut Buffer) {
    let bytes = x.len() * size_of::<B>();
    assert_eq!(bytes, buffer.len());
    let mut to = ArrayViewMut::from_shape(x.raw_dim(), buffer.uninit_mut())
        .expect("as many elements as the shape has");
    let write = |to: &mut MaybeUninit<B>, from: &B| {
        to.write(*from);
    };
    if !is_parallel(bytes) {
        return Zip::from(to).and(x).for_each(write);
    }
    let longest = (0..x.ndim()).max_by_key(|d| x.shape()[*d]).unwrap_or(0);
    let step = x.shape()[longest].div_ceil(bytes / PIECE_BYTES);
    rayon::scope(|scope| {
        let pieces =
            to.axis_chunks_iter_mut(Axis(longest), step).zip(x.axis_chunks_iter(Axis(longest), step));
        for (to, from) in pieces {
            scope.spawn(move |_| Zip::from(to).and(from).for_each(write));
        }
    });
}

/// Reverses the bytes of each element, which has `element` bytes.
pub(crate) fn swap_bytes(bytes: &mut [u8], element: usize) {
    if !is_parallel(bytes.len()) {
        return bytes.chunks_exact_mut(element).for_each(<[u8]>::reverse);
    }
    let pieces = bytes.par_chunks_mut(PIECE_BYTES);
    pieces.for_each(|piece| piece.chunks_exact_mut(element).for_each(<[u8]>::reverse));
}

/// Splits a buffer into runs of `run` bytes, and calls `f` with the index and the memory of each
/// run to write it.
pub(crate) fn for_each_run(
    buffer: &mut Buffer,
    run: usize,
    f: impl Fn(usize, &mut [MaybeUninit<RawByte>]) + Sync,
) {
    let bytes = buffer.uninit_mut();
    let write = |(k, run): (usize, &mut [MaybeUninit<RawByte>])| f(k, run);
    match is_parallel(bytes.len()) {
        false => bytes.chunks_exact_mut(run.max(1)).enumerate().for_each(write),
        true => {
            let runs = bytes.par_chunks_exact_mut(run).enumerate();
            runs.with_min_len(PIECE_BYTES.div_ceil(run)).for_each(write)
        }
    }
}

/// The base address to which runs are written.
struct RunTarget(*mut u8);
// SAFETY: the only user, `write_runs`, writes each run from one thread, and the runs are disjoint
// (caller contract of `write_runs`).
unsafe impl Sync for RunTarget {}

/// Writes the runs of `from`, each of `run` bytes, to the offsets `places` from `to`.
///
/// With `again`, it returns true only if every run equals the bytes that were there before, and may
/// stop at the first that differs; without, the result is true.
///
/// # Safety
/// The destination runs are disjoint, do not overlap `from`, and are within writable memory that no
/// other thread accesses. With `again`, they are initialized.
pub(crate) unsafe fn write_runs(from: &[u8], run: usize, to: *mut u8, places: &[usize], again: bool) -> bool {
    let to = &RunTarget(to);
    let put = |(from, place): (&[u8], &usize)| {
        // SAFETY: `to` plus the offset points to `run` writable bytes, which overlap neither `from`
        // nor another run, and which are initialized if `again` (caller contract).
        unsafe {
            let to = to.0.add(*place);
            let same = !again || std::slice::from_raw_parts(to, run) == from;
            kernels::copy(run, to, from.as_ptr(), false);
            same
        }
    };
    match is_parallel(from.len()) {
        false => from.chunks_exact(run.max(1)).zip(places).all(put),
        true => {
            let runs = from.par_chunks_exact(run).zip(places);
            runs.with_min_len(PIECE_BYTES.div_ceil(run)).all(put)
        }
    }
}

/// Returns the size in bytes of the contiguous runs of a block within a row-major array, and the
/// byte offset of each run.
pub(crate) fn block_runs(shape: &[usize], index: &[Range<usize>], element: usize) -> (usize, Vec<usize>) {
    // trailing dimensions that are taken completely belong to one run
    let mut tail = shape.len();
    while tail > 0 && index[tail - 1] == (0..shape[tail - 1]) {
        tail -= 1;
    }
    let inner: usize = shape[tail..].iter().product::<usize>() * element;
    let lead = tail.saturating_sub(1);
    let run = if tail == 0 { inner } else { index[lead].len() * inner };
    let mut starts = vec![0];
    for d in 0..tail {
        let stride: usize = shape[d + 1..].iter().product::<usize>() * element;
        let steps = if d == lead { index[d].start..index[d].start + 1 } else { index[d].clone() };
        starts = starts.iter().flat_map(|s| steps.clone().map(move |i| s + i * stride)).collect();
    }
    if run == 0 { (0, Vec::new()) } else { (run, starts) }
}

/// Copies a block of one partial value. Returns the array itself if the block is all of it.
pub(crate) fn extract_block(
    slab: &ArrayData,
    copy: usize,
    index: &[Range<usize>],
) -> Result<ArrayData, Fault> {
    let shape = slab.shape();
    if slab.num_partials() == 1 && index.iter().zip(shape.iter()).all(|(r, n)| *r == (0..*n)) {
        return Ok(slab.clone());
    }
    slab.ensure_host()?;
    let size = slab.dtype().size();
    let local: Shape = index.iter().map(Range::len).collect();
    let mut out = Buffer::allocate(local.num_elements() * size)?;
    let (run, starts) = block_runs(shape, index, size);
    let base = copy * shape.num_elements() * size;
    for_each_run(&mut out, run, |k, to| slab.copy_to(base + starts[k], to));
    Ok(ArrayData::new(slab.dtype(), local, 1, Arc::new(out)))
}

/// Writes a block's row-major bytes into a row-major value, which is at the start of the buffer.
///
/// # Panics
/// If the block is not within the value, if the value is not within the buffer, or if `bytes` does
/// not have the size of the block.
#[cfg(any(test, feature = "xla"))]
pub(crate) fn write_block(
    bytes: &[u8],
    shape: &[usize],
    index: &[Range<usize>],
    element: usize,
    to: &mut Buffer,
) {
    let inside = index.len() == shape.len() && index.iter().zip(shape).all(|(r, n)| r.end <= *n);
    let sizes = (index.iter().map(Range::len).product::<usize>(), shape.iter().product::<usize>());
    assert!(
        inside && sizes.0 * element == bytes.len() && sizes.1 * element <= to.len(),
        "the block must be within the value, and the value within the buffer"
    );
    let (run, starts) = block_runs(shape, index, element);
    // SAFETY: the runs of the block are disjoint and within the value, which is within the buffer
    // (asserted above). The buffer is mutably borrowed, so it does not overlap `bytes`, and no
    // other thread accesses it.
    unsafe { write_runs(bytes, run, to.as_mut_ptr(), &starts, false) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array, s};

    /// Sizes below and above the minimum for parallel execution.
    const SIZES: [usize; 3] = [3, MIN_PARALLEL_BYTES / 4 - 1, MIN_PARALLEL_BYTES / 4 + 97];

    #[test]
    fn copies_and_conversions_keep_the_order() {
        for n in SIZES {
            let x: Vec<i32> = (0..n as i32).collect();
            assert!(to_vec(&x).unwrap() == x);
            for past in [false, true] {
                let mut list = vec![7];
                list.reserve_exact(n);
                copy(&mut list.spare_capacity_mut()[..n], &x, past);
                // SAFETY: the first element was there, and `copy` has initialized the `n` after it.
                unsafe { list.set_len(n + 1) };
                assert!(list[0] == 7 && list[1..] == x);
            }
            assert!(to_f64_vec(&x, f64::from).unwrap().iter().enumerate().all(|(k, x)| *x == k as f64));
            let mut bytes: Vec<u8> = x.iter().flat_map(|x| x.to_be_bytes()).collect();
            swap_bytes(&mut bytes, 4);
            assert!(bytes == x.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>());
        }
    }

    #[test]
    fn views_of_any_strides_become_row_major() {
        for n in SIZES {
            let x = Array::from_iter(0..2 * n as i32).into_shape_with_order((n, 2)).unwrap();
            for view in [x.t(), x.slice(s![..;-1, ..]), x.slice(s![.., 1..])] {
                let slab = to_contiguous(view).unwrap();
                assert_eq!(**slab.shape(), *view.shape());
                assert!(slab.elements::<i32>().iter().eq(view.iter()));
            }
        }
    }

    #[test]
    fn blocks_are_written_at_their_offsets() {
        let full: Vec<i32> = (0..24).collect();
        let slab = ArrayData::from_elements([4, 3, 2].into(), &full).unwrap();
        let mut back = Buffer::zeroed(slab.nbytes()).unwrap();
        for (d, rows) in [0..1, 1..4].into_iter().enumerate() {
            for columns in [0..2, 2..3] {
                let index = [rows.clone(), columns, 0..2];
                let cut = extract_block(&slab, 0, &index).unwrap();
                assert_eq!(cut.elements::<i32>().len(), rows.len() * index[1].len() * 2, "{d}");
                write_block(cut.bytes().unwrap(), &[4, 3, 2], &index, 4, &mut back);
            }
        }
        let back = ArrayData::new(crate::core::types::DType::I32, [4, 3, 2].into(), 1, Arc::new(back));
        assert_eq!(back.elements::<i32>(), full);
    }

    #[test]
    fn runs_are_gathered_and_scattered_by_index() {
        for (n, run) in [(0, 4), (7, 4), (1, 2 * MIN_PARALLEL_BYTES), (MIN_PARALLEL_BYTES / 10, 28)] {
            let x: Vec<u8> = (0..n * run).map(|k| (k % 251) as u8).collect();
            let mut turned = Buffer::allocate(n * run).unwrap();
            for_each_run(&mut turned, run, |k, to| {
                to.iter_mut().zip(&x[(n - 1 - k) * run..]).for_each(|(to, x)| {
                    to.write(RawByte::new(*x));
                });
            });
            // SAFETY: all runs were written above.
            let turned = unsafe { std::slice::from_raw_parts(turned.as_ptr(), n * run) };
            let mut back = vec![0; n * run];
            let places: Vec<usize> = (0..n).rev().map(|k| k * run).collect();
            for (from, again, same) in
                [(turned, false, true), (turned, true, true), (&vec![255; n * run], true, n == 0)]
            {
                // SAFETY: the offsets are those of the disjoint runs of `back`, which is
                // initialized.
                assert_eq!(unsafe { write_runs(from, run, back.as_mut_ptr(), &places, again) }, same);
                assert!(!same || back == x);
            }
        }
    }
}
