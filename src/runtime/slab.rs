//! Slabs: the stored global value of an array.

use super::Buffer;
use super::sync::Mutex;
use super::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use super::workers::{Member, team};
use crate::diagnostic::Fault;
use crate::types::{DType, Element, Number, Scalar, Shape, with_dtype};
use std::sync::{Arc, OnceLock, PoisonError};

/// From this many bytes on a view is made dense by all workers.
const LARGE: usize = if cfg!(miri) { 32 << 10 } else { 2 << 20 };
/// Bytes that one of them copies at a time.
const PIECE: usize = LARGE / 2;

/// A new buffer that all workers write, each its own pieces.
struct Target(*mut u8);
// SAFETY: the pointer is followed by `dense` alone, where no piece is written by two workers, and none is read before all have ended
unsafe impl Sync for Target {}

/// A stored value in global row-major order, shared: every device's block is a view of it, replicas are one.
///
/// A partial value has one copy of the shape for each part, in rank order. A slab may be a *view*: whole
/// blocks of another slab's buffer in another order (what `ppermute` and `all_gather` return without moving a byte).
#[derive(Clone, Debug)]
pub struct Slab(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dtype: DType,
    shape: Shape,
    copies: usize,
    buffer: Arc<Buffer>,
    /// Bytes of a block, and for each block of this value the byte of the buffer where it begins.
    blocks: Option<(usize, Arc<[usize]>)>,
    dense: OnceLock<Arc<Buffer>>,
    /// Held by whoever makes it dense: one copy is made.
    making: Mutex<()>,
}

impl Slab {
    /// A slab over all of a buffer, whose bytes are elements of the type. `dtype` is a storage type; `copies` is 1 but for values in
    /// parts.
    pub(crate) fn new(dtype: DType, shape: Shape, copies: usize, buffer: Arc<Buffer>) -> Slab {
        let slab = Slab::of(dtype, shape, copies, buffer, None);
        assert!(slab.covered(), "a slab lies within its buffer");
        slab
    }
    /// A view: block k of the value begins at byte `blocks[k]` of the buffer.
    pub(crate) fn view(
        dtype: DType,
        shape: Shape,
        buffer: Arc<Buffer>,
        block: usize,
        blocks: Arc<[usize]>,
    ) -> Slab {
        let within = blocks.iter().all(|at| at.checked_add(block).is_some_and(|end| end <= buffer.len()));
        let slab = Slab::of(dtype, shape, 1, buffer, Some((block, blocks)));
        assert!(within && slab.covered(), "the blocks of a view are the value, and lie within its buffer");
        slab
    }
    fn of(
        dtype: DType,
        shape: Shape,
        copies: usize,
        buffer: Arc<Buffer>,
        blocks: Option<(usize, Arc<[usize]>)>,
    ) -> Slab {
        let (dense, making) = (OnceLock::new(), Mutex::new(()));
        Slab(Arc::new(Inner { dtype, shape, copies, buffer, blocks, dense, making }))
    }
    /// Whether the value is in blocks of its own, or within its buffer.
    fn covered(&self) -> bool {
        match &self.0.blocks {
            Some((block, blocks)) => Some(self.nbytes()) == block.checked_mul(blocks.len()),
            None => self.nbytes() <= self.0.buffer.len(),
        }
    }
    /// The element type in memory.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// The global shape.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }
    /// How many parts the value is in.
    pub fn copies(&self) -> usize {
        self.0.copies
    }
    /// Bytes of the value: all parts.
    pub fn nbytes(&self) -> usize {
        self.0.shape.elements().saturating_mul(self.0.dtype.size()).saturating_mul(self.0.copies)
    }
    /// The blocks of a view.
    pub fn blocks(&self) -> Option<(usize, &Arc<[usize]>)> {
        self.0.blocks.as_ref().map(|(n, b)| (*n, b))
    }
    /// The buffer that holds the value, or the blocks of a view.
    pub fn buffer(&self) -> &Arc<Buffer> {
        &self.0.buffer
    }
    /// The same bytes under another shape of as many elements.
    pub(crate) fn reshaped(&self, dtype: DType, shape: Shape, copies: usize) -> Slab {
        let whole = self.0.dense.get().filter(|_| self.0.blocks.is_some());
        let (buffer, blocks) = match whole {
            Some(dense) => (dense, None),
            None => (&self.0.buffer, self.0.blocks.clone()),
        };
        let buffer = buffer.clone();
        let slab = Slab::of(dtype, shape, copies, buffer, blocks);
        assert!(slab.covered(), "a reshape keeps the number of bytes");
        slab
    }
    /// A view of this value: block k of the result begins at byte `blocks[k]` of it. A view of a view is one of the buffer beneath,
    /// where no block is in two of its own.
    pub(crate) fn select(
        &self,
        dtype: DType,
        shape: Shape,
        block: usize,
        blocks: &Arc<[usize]>,
    ) -> Result<Slab, Fault> {
        let Some((own, at)) = self.0.blocks.as_ref().filter(|_| self.0.dense.get().is_none()) else {
            return Ok(Slab::view(dtype, shape, self.dense()?.clone(), block, blocks.clone()));
        };
        let place = |b: &usize| (b % own + block <= *own).then(|| at[b / own] + b % own);
        Ok(match blocks.iter().map(place).collect::<Option<Arc<[usize]>>>() {
            Some(places) => Slab::view(dtype, shape, self.0.buffer.clone(), block, places),
            None => Slab::view(dtype, shape, self.dense()?.clone(), block, blocks.clone()),
        })
    }
    /// Copies `len` bytes of the value from byte `at` on, wherever they are.
    ///
    /// # Safety
    /// They are bytes of the value, and `to` has room for them, in no memory of the slab's.
    pub(crate) unsafe fn copy_to(&self, mut at: usize, len: usize, mut to: *mut u8) {
        let whole = if self.0.blocks.is_none() { Some(&self.0.buffer) } else { self.0.dense.get() };
        let (None, Some((block, blocks))) = (whole, &self.0.blocks) else {
            let from = whole.unwrap_or(&self.0.buffer);
            // SAFETY: the caller's
            return unsafe { std::ptr::copy_nonoverlapping(from.as_ptr().add(at), to, len) };
        };
        let end = at + len;
        while at < end {
            let n = (block - at % block).min(end - at);
            // SAFETY: the caller's; blocks are within the buffer
            unsafe {
                let from = self.0.buffer.as_ptr().add(blocks[at / block] + at % block);
                std::ptr::copy_nonoverlapping(from, to, n);
                to = to.add(n);
            }
            at += n;
        }
    }
    /// The value in one piece, row-major: the buffer itself, or for a view a copy that is made once, by all workers if it is large. An error
    /// where the system has no memory for the copy.
    pub fn dense(&self) -> Result<&Arc<Buffer>, Fault> {
        if self.0.blocks.is_none() {
            return Ok(&self.0.buffer);
        }
        let _one = self.0.making.lock().unwrap_or_else(PoisonError::into_inner);
        match self.0.dense.get() {
            Some(dense) => Ok(dense),
            None => {
                let made = self.copied()?;
                Ok(self.0.dense.get_or_init(|| made))
            }
        }
    }
    fn copied(&self) -> Result<Arc<Buffer>, Fault> {
        let len = self.nbytes();
        let mut whole = Buffer::asked(len)?;
        if len < LARGE {
            // SAFETY: all bytes of the value, into a buffer of as many
            unsafe { self.copy_to(0, len, whole.as_mut_ptr()) }
            return Ok(Arc::new(whole));
        }
        let (next, to) = (AtomicUsize::new(0), Target(whole.as_mut_ptr()));
        let copy = |_: &Member| {
            let Target(to) = &to;
            loop {
                let at = next.fetch_add(PIECE, Relaxed);
                if at >= len {
                    return;
                }
                // SAFETY: each piece of the value into the same piece of the new buffer, which nobody else writes
                unsafe { self.copy_to(at, PIECE.min(len - at), to.add(at)) }
            }
        };
        if let Err(panic) = team().run(&copy) {
            std::panic::resume_unwind(panic);
        }
        Ok(Arc::new(whole))
    }
    /// The bytes of the value in one piece, row-major (all parts).
    pub(crate) fn bytes(&self) -> Result<&[u8], Fault> {
        let start = self.dense()?.as_ptr();
        // SAFETY: a buffer's bytes up to the value's length were written before its slab was made; it lives as long as self, and who holds
        // a handle does not write
        Ok(unsafe { std::slice::from_raw_parts(start, self.nbytes()) })
    }
    /// The memory of the value in one piece, if this is the only handle on it: whoever asks may write over it.
    pub(crate) fn sole(&mut self) -> Option<Arc<Buffer>> {
        self.dense().ok()?;
        let inner = Arc::get_mut(&mut self.0)?;
        let buffer = if inner.blocks.is_some() { inner.dense.get_mut()? } else { &mut inner.buffer };
        Arc::get_mut(buffer)?;
        Some(buffer.clone())
    }
    /// The elements, row-major (all parts).
    ///
    /// # Panics
    /// If `T` is not the storage type; and for a view for whose copy the system has no memory, of which [`Slab::dense`] tells before.
    pub fn elements<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.0.dtype, "a slab is read as what it is");
        let n = self.0.shape.elements() * self.0.copies;
        let start = self.dense().unwrap_or_else(|e| panic!("{}", e.message)).as_ptr();
        // SAFETY: the buffer holds n elements of this type (`new` and its kin ask for it), written before the slab was made, aligned to
        // 64 bytes; it lives as long as self, and who holds a handle does not write
        unsafe { std::slice::from_raw_parts(start.cast(), n) }
    }
    /// A slab of which each element is the same.
    pub(crate) fn filled<T: Element>(shape: Shape, value: T) -> Result<Slab, Fault> {
        let n = shape.elements();
        let mut buffer = Buffer::asked(n * size_of::<T>())?;
        let start: *mut T = buffer.as_mut_ptr().cast();
        // a first run of them, then copies of it
        let run = n.min(4096);
        // SAFETY: n elements have room in the buffer, which is aligned to 64 bytes and nobody else's; what is copied was written before
        unsafe {
            for i in 0..run {
                start.add(i).write(value);
            }
            for at in (run..n).step_by(run.max(1)) {
                std::ptr::copy_nonoverlapping(start, start.add(at), run.min(n - at));
            }
        }
        Ok(Slab::new(T::DTYPE, shape, 1, Arc::new(buffer)))
    }
    /// A slab of one number, as an element of this type.
    pub(crate) fn number(dtype: DType, x: Scalar) -> Result<Slab, Fault> {
        with_dtype!(dtype, T => Slab::filled(Shape::scalar(), T::of_scalar(x)))
    }
    /// A slab of these elements; an error where the system has no memory for them.
    ///
    /// # Panics
    /// If they are not as many as the shape has.
    pub fn from_elements<T: Element>(shape: Shape, data: &[T]) -> Result<Slab, Fault> {
        assert_eq!(data.len(), shape.elements(), "as many elements as the shape has");
        let mut buffer = Buffer::asked(size_of_val(data))?;
        // SAFETY: the buffer has as many bytes as data
        unsafe {
            let from: *const u8 = data.as_ptr().cast();
            std::ptr::copy_nonoverlapping(from, buffer.as_mut_ptr(), size_of_val(data));
        }
        Ok(Slab::new(T::DTYPE, shape, 1, Arc::new(buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(of: &Slab, block: usize, order: &[usize]) -> Slab {
        let places: Arc<[usize]> = order.iter().map(|k| k * block * 4).collect();
        of.select(DType::I32, [block * order.len()].into(), block * 4, &places).unwrap()
    }

    #[test]
    fn a_view_of_a_view_copies_nothing_where_its_blocks_are_whole() {
        let numbers: Vec<i32> = (0..24).collect();
        let slab = Slab::from_elements([24].into(), &numbers).unwrap();
        let halves = view(&slab, 12, &[1, 0]);
        let thirds = view(&halves, 4, &[5, 0, 1, 2]);
        assert!(Arc::ptr_eq(thirds.buffer(), slab.buffer()) && halves.0.dense.get().is_none());
        assert_eq!(thirds.elements::<i32>(), [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]);
        // a block that is in two pieces
        let across = view(&halves, 8, &[1]);
        assert_eq!(across.elements::<i32>(), [20, 21, 22, 23, 0, 1, 2, 3]);
        assert!(halves.0.dense.get().is_some());
        // now it is in one piece, which its other forms share
        let again = halves.reshaped(DType::I32, [4, 6].into(), 1);
        assert!(Arc::ptr_eq(again.buffer(), halves.dense().unwrap()) && again.blocks().is_none());
    }

    #[test]
    fn any_bytes_of_a_view_can_be_copied() {
        let numbers: Vec<i32> = (0..24).collect();
        let reversed =
            view(&Slab::from_elements([24].into(), &numbers).unwrap(), 3, &[7, 6, 5, 4, 3, 2, 1, 0]);
        let mut some = [0i32; 8];
        // SAFETY: elements 2 to 10 of 24
        unsafe { reversed.copy_to(2 * 4, 8 * 4, some.as_mut_ptr().cast()) }
        assert_eq!(some, [23, 18, 19, 20, 15, 16, 17, 12]);
        assert!(reversed.0.dense.get().is_none());
    }

    #[test]
    fn all_workers_make_a_large_view_dense() {
        let n = 3 * LARGE / 4 + 12;
        let numbers: Vec<i32> = (0..n as i32).collect();
        let slab = Slab::from_elements([n].into(), &numbers).unwrap();
        let order: Vec<usize> = (0..n / 4).rev().collect();
        let reversed = view(&slab, 4, &order);
        let got = reversed.elements::<i32>();
        for (k, x) in got.iter().enumerate() {
            assert_eq!(*x as usize, n - 4 - k / 4 * 4 + k % 4);
        }
    }
}
