//! Large data where it enters and leaves: copied, converted and put in order by all cores.
//!
//! Device programs have workers of their own (`workers`) and never come here; this runs before and after them, on rayon's
//! threads. Small data is left to the thread that has it.

use super::buffer::{self, Buffer, huge_pages, room};
use super::kernels;
use super::slab::Slab;
use crate::diagnostic::Fault;
use crate::types::{Element, Shape};
use ndarray::{ArrayView, ArrayViewMut, Dimension, Zip};
use rayon::prelude::*;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::sync::Arc;

/// From this many bytes on all cores take part: below it, to wake them costs more than they save.
const LARGE: usize = if cfg!(miri) { 1 << 10 } else { 1 << 20 };
/// The bytes that one core takes at a time.
const PIECE: usize = 1 << 18;
/// From this many bytes on a copy is larger than what caches would keep of it.
const PAST: usize = 8 << 20;

/// A copy of these elements; an error where the system refuses.
pub(crate) fn copied<T: Element>(elements: &[T]) -> Result<Vec<T>, Fault> {
    if size_of_val(elements) < LARGE {
        return buffer::copied(elements);
    }
    let mut list = room(elements.len())?;
    let new = &mut list.spare_capacity_mut()[..elements.len()];
    huge_pages(new);
    // (what the system clears first is in cache then)
    let past = size_of_val(elements) >= PAST && buffer::there(new);
    copy(new, elements, past);
    // SAFETY: all of them have been written
    unsafe { list.set_len(elements.len()) };
    Ok(list)
}
/// Copies elements by all cores: past the caches, or through them.
fn copy<T: Element>(to: &mut [MaybeUninit<T>], from: &[T], past: bool) {
    let piece = PIECE / size_of::<T>();
    to.par_chunks_mut(piece).zip(from.par_chunks(piece)).for_each(|(to, from)| {
        let bytes = size_of_val(from).min(size_of_val(to));
        // SAFETY: each has so many bytes, and what is written is nobody else's
        unsafe { kernels::copy(bytes, to.as_mut_ptr().cast(), from.as_ptr().cast(), past) };
    });
}

/// The elements, each converted; an error where the system refuses.
pub(crate) fn converted<T: Element, U: Send>(
    elements: &[T],
    f: impl Fn(T) -> U + Sync,
) -> Result<Vec<U>, Fault> {
    if size_of_val(elements) < LARGE {
        return buffer::listed(elements.iter().map(|x| f(*x)), elements.len());
    }
    let mut list = room(elements.len())?;
    huge_pages(list.spare_capacity_mut());
    let pieces = elements.par_iter().with_min_len(PIECE / size_of::<T>());
    list.par_extend(pieces.map(|x| f(*x)));
    Ok(list)
}

/// Whether something holds of all pairs of elements of two arrays of one shape.
pub(crate) fn all_pairs<T: Element, D: Dimension>(
    a: ArrayView<'_, T, D>,
    b: ArrayView<'_, T, D>,
    holds: impl Fn(&T, &T) -> bool + Sync,
) -> bool {
    let pairs = |(a, b): (&T, &T)| holds(a, b);
    match (a.as_slice(), b.as_slice()) {
        (Some(a), Some(b)) if size_of_val(a) >= LARGE => {
            a.par_iter().with_min_len(PIECE / size_of::<T>()).zip(b).all(pairs)
        }
        _ => a.iter().zip(b.iter()).all(pairs),
    }
}

/// The elements of an array of any strides in row-major order, as a slab; an error where the system refuses.
pub(crate) fn dense<T: Element, D: Dimension>(x: ArrayView<'_, T, D>) -> Result<Slab, Fault> {
    let bytes = x.len() * size_of::<T>();
    let mut buffer = Buffer::asked(bytes)?;
    // SAFETY: the buffer is aligned for all elements, has as many bytes as they take, and nobody else knows it yet
    let room: &mut [MaybeUninit<T>] =
        unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), x.len()) };
    let shape = x.shape().into();
    let to = ArrayViewMut::from_shape(x.raw_dim(), room).expect("as many elements as the shape has");
    let both = Zip::from(to).and(x);
    let write = |to: &mut MaybeUninit<T>, from: &T| {
        to.write(*from);
    };
    match bytes {
        ..LARGE => both.for_each(write),
        LARGE.. => both.par_for_each(write),
    }
    Ok(Slab::new(T::DTYPE, shape, 1, Arc::new(buffer)))
}

/// Turns the bytes of each element round.
pub(crate) fn swap_bytes(bytes: &mut [u8], element: usize) {
    if bytes.len() < LARGE {
        return bytes.chunks_exact_mut(element).for_each(<[u8]>::reverse);
    }
    let pieces = bytes.par_chunks_mut(PIECE);
    pieces.for_each(|piece| piece.chunks_exact_mut(element).for_each(<[u8]>::reverse));
}

/// Cuts a buffer into runs of so many bytes, and has `f` write each, by its number.
pub(crate) fn each_run(buffer: &mut Buffer, run: usize, f: impl Fn(usize, *mut u8) + Sync) {
    let len = buffer.len();
    // SAFETY: the buffer has as many bytes, and is borrowed as long as they are written
    let bytes: &mut [MaybeUninit<u8>] =
        unsafe { std::slice::from_raw_parts_mut(buffer.as_mut_ptr().cast(), len) };
    let write = |(k, run): (usize, &mut [MaybeUninit<u8>])| f(k, run.as_mut_ptr().cast());
    match len {
        ..LARGE => bytes.chunks_exact_mut(run.max(1)).enumerate().for_each(write),
        LARGE.. => {
            let runs = bytes.par_chunks_exact_mut(run).enumerate();
            runs.with_min_len(PIECE.div_ceil(run)).for_each(write)
        }
    }
}

/// Where runs are put.
struct Target(*mut u8);
// SAFETY: whoever shares one writes each of its runs from one thread
unsafe impl Sync for Target {}

/// Puts the runs of `from`, of so many bytes each, at these places. Whether they are what was there: if `again`.
///
/// # Safety
/// The places are those of disjoint runs within memory that nobody else uses; if `again`, it has been written before.
pub(crate) unsafe fn put_runs(from: &[u8], run: usize, to: *mut u8, places: &[usize], again: bool) -> bool {
    let to = &Target(to);
    let put = |(from, place): (&[u8], &usize)| {
        // SAFETY: the caller's
        unsafe {
            let to = to.0.add(*place);
            let same = !again || std::slice::from_raw_parts(to, run) == from;
            kernels::copy(run, to, from.as_ptr(), false);
            same
        }
    };
    match from.len() {
        ..LARGE => from.chunks_exact(run.max(1)).zip(places).all(put),
        LARGE.. => {
            let runs = from.par_chunks_exact(run).zip(places);
            runs.with_min_len(PIECE.div_ceil(run)).all(put)
        }
    }
}

/// The runs of bytes of a block within a row-major array: for each, where it begins there.
pub(crate) fn rows(shape: &[usize], index: &[Range<usize>], element: usize) -> (usize, Vec<usize>) {
    // dimensions that are taken whole at the end belong to one run
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

/// The block of a slab's copy as a slab of its own; the slab itself where the block is all of it.
pub(crate) fn block(slab: &Slab, copy: usize, index: &[Range<usize>]) -> Result<Slab, Fault> {
    let shape = slab.shape();
    if slab.copies() == 1 && index.iter().zip(shape.iter()).all(|(r, n)| *r == (0..*n)) {
        return Ok(slab.clone());
    }
    slab.here()?;
    let size = slab.dtype().size();
    let local: Shape = index.iter().map(Range::len).collect();
    let mut out = Buffer::asked(local.elements() * size)?;
    let (run, starts) = rows(shape, index, size);
    let base = copy * shape.elements() * size;
    // SAFETY: the value is here; the runs of a block are within its copy, and are as many bytes together as the new buffer has
    each_run(&mut out, run, |k, to| unsafe { slab.copy_to(base + starts[k], run, to) });
    Ok(Slab::new(slab.dtype(), local, 1, Arc::new(out)))
}

/// Puts a block's bytes, row-major, where the block is within a row-major value: the buffer's first bytes.
///
/// # Panics
/// If the block is not within the value, the value not within the buffer, or the bytes are not as many as the block has.
#[cfg(any(test, feature = "xla"))]
pub(crate) fn put_block(
    bytes: &[u8],
    shape: &[usize],
    index: &[Range<usize>],
    element: usize,
    to: &mut Buffer,
) {
    let inside = index.len() == shape.len() && index.iter().zip(shape).all(|(r, n)| r.end <= *n);
    let sizes = (index.iter().map(Range::len).product::<usize>(), shape.iter().product::<usize>());
    assert!(inside && sizes.0 * element == bytes.len() && sizes.1 * element <= to.len(), "a block is put");
    let (run, starts) = rows(shape, index, element);
    // SAFETY: the runs of a block are within the value, which is within the buffer, and are as many bytes together as are given
    unsafe { put_runs(bytes, run, to.as_mut_ptr(), &starts, false) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use ndarray::{Array, s};

    /// Sizes about the one from which on all cores take part.
    const SIZES: [usize; 3] = [3, LARGE / 4 - 1, LARGE / 4 + 97];

    #[test]
    fn copies_and_conversions_keep_the_order() {
        for n in SIZES {
            let x: Vec<i32> = (0..n as i32).collect();
            assert!(copied(&x).unwrap() == x);
            for past in [false, true] {
                let mut list = vec![7];
                list.reserve_exact(n);
                copy(&mut list.spare_capacity_mut()[..n], &x, past);
                // SAFETY: the elements behind the first have been written
                unsafe { list.set_len(n + 1) };
                assert!(list[0] == 7 && list[1..] == x);
            }
            assert!(converted(&x, |x| x as f64).unwrap().iter().enumerate().all(|(k, x)| *x == k as f64));
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
                let slab = dense(view).unwrap();
                assert_eq!(**slab.shape(), *view.shape());
                assert!(slab.elements::<i32>().iter().eq(view.iter()));
            }
        }
    }

    #[test]
    fn blocks_are_put_where_they_are() {
        let whole: Vec<i32> = (0..24).collect();
        let slab = Slab::from_elements([4, 3, 2].into(), &whole).unwrap();
        let mut back = Buffer::zeroed(slab.nbytes()).unwrap();
        for (d, rows) in [0..1, 1..4].into_iter().enumerate() {
            for columns in [0..2, 2..3] {
                let index = [rows.clone(), columns, 0..2];
                let cut = block(&slab, 0, &index).unwrap();
                assert_eq!(cut.elements::<i32>().len(), rows.len() * index[1].len() * 2, "{d}");
                put_block(cut.bytes().unwrap(), &[4, 3, 2], &index, 4, &mut back);
            }
        }
        let back = Slab::new(crate::types::DType::I32, [4, 3, 2].into(), 1, Arc::new(back));
        assert_eq!(back.elements::<i32>(), whole);
    }

    #[test]
    fn runs_are_taken_and_put_by_their_numbers() {
        for (n, run) in [(0, 4), (7, 4), (1, 2 * LARGE), (LARGE / 10, 28)] {
            let x: Vec<u8> = (0..n * run).map(|k| (k % 251) as u8).collect();
            let mut turned = Buffer::asked(n * run).unwrap();
            // SAFETY: each run is as long as what is copied into it
            each_run(&mut turned, run, |k, to| unsafe {
                to.copy_from_nonoverlapping(x[(n - 1 - k) * run..].as_ptr(), run)
            });
            // SAFETY: all of it was written
            let turned = unsafe { std::slice::from_raw_parts(turned.as_ptr(), n * run) };
            let mut back = vec![0; n * run];
            let places: Vec<usize> = (0..n).rev().map(|k| k * run).collect();
            for (from, again, same) in
                [(turned, false, true), (turned, true, true), (&vec![255; n * run], true, n == 0)]
            {
                // SAFETY: the runs are those of the list
                assert_eq!(unsafe { put_runs(from, run, back.as_mut_ptr(), &places, again) }, same);
                assert!(!same || back == x);
            }
        }
    }
}
