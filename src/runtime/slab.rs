//! Slabs: the stored global value of an array.

use super::Buffer;
use super::kernels;
use super::sync::Mutex;
use super::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use super::workers::{Member, team};
use crate::diagnostic::Fault;
use crate::types::{DType, Element, Number, Scalar, Shape, with_dtype};
use std::sync::{Arc, OnceLock, PoisonError};
#[cfg(feature = "xla")]
use std::{any::Any, fmt::Debug};

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
/// blocks of another slab's buffer in another order (what `ppermute` and `all_gather` return without moving a byte). With the feature
/// `xla` its value may also be in other memory, until it is read here.
#[derive(Clone, Debug)]
pub struct Slab(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    dtype: DType,
    shape: Shape,
    copies: usize,
    held: Held,
}

/// Where a value's bytes are: mostly in one piece, which shall be small.
#[derive(Debug)]
enum Held {
    Whole(Arc<Buffer>),
    Apart(Box<Apart>),
}

/// A value that is not in one piece here, until it is made so.
#[derive(Debug)]
struct Apart {
    from: Origin,
    dense: OnceLock<Arc<Buffer>>,
    /// Held by whoever makes it dense: one copy is made.
    making: Mutex<()>,
}

/// What it is made of.
#[derive(Clone, Debug)]
enum Origin {
    /// Of a view: the buffer, bytes of a block, and for each block of this value the byte of the buffer where it begins.
    Blocks(Arc<Buffer>, usize, Arc<[usize]>),
    #[cfg(feature = "xla")]
    Elsewhere(Arc<dyn Elsewhere>),
}

/// A view's buffer, bytes of a block, and where each begins.
type Blocks<'a> = (&'a Arc<Buffer>, usize, &'a Arc<[usize]>);

impl Held {
    fn apart(from: Origin) -> Held {
        Held::Apart(Box::new(Apart { from, dense: OnceLock::new(), making: Mutex::new(()) }))
    }
}

/// A value in memory that is not ours.
#[cfg(feature = "xla")]
pub(crate) trait Elsewhere: Any + Debug + Send + Sync {
    /// Copies it here, row-major (all parts).
    fn fetch(&self) -> Result<Buffer, Fault>;
}

impl Slab {
    /// A slab over all of a buffer, whose bytes are elements of the type. `dtype` is a storage type; `copies` is 1 but for values in
    /// parts.
    pub(crate) fn new(dtype: DType, shape: Shape, copies: usize, buffer: Arc<Buffer>) -> Slab {
        let slab = Slab::of(dtype, shape, copies, Held::Whole(buffer));
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
        let slab = Slab::of(dtype, shape, 1, Held::apart(Origin::Blocks(buffer, block, blocks)));
        assert!(within && slab.covered(), "the blocks of a view are the value, and lie within its buffer");
        slab
    }
    /// A slab whose value is in other memory: it is copied here when it is first read.
    #[cfg(feature = "xla")]
    pub(crate) fn elsewhere(dtype: DType, shape: Shape, copies: usize, value: impl Elsewhere) -> Slab {
        Slab::of(dtype, shape, copies, Held::apart(Origin::Elsewhere(Arc::new(value))))
    }
    /// Where the value is, if that is memory of this kind.
    #[cfg(feature = "xla")]
    pub(crate) fn held_by<T: Elsewhere>(&self) -> Option<&T> {
        match &self.0.held {
            Held::Apart(apart) => match &apart.from {
                Origin::Elsewhere(value) => (&**value as &dyn Any).downcast_ref(),
                Origin::Blocks(..) => None,
            },
            Held::Whole(_) => None,
        }
    }
    /// Whether this is the only handle on it.
    #[cfg(feature = "xla")]
    pub(crate) fn alone(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some()
    }
    fn of(dtype: DType, shape: Shape, copies: usize, held: Held) -> Slab {
        Slab(Arc::new(Inner { dtype, shape, copies, held }))
    }
    /// Whether the value is in blocks of its own, or within its buffer.
    fn covered(&self) -> bool {
        match &self.0.held {
            Held::Whole(buffer) => self.nbytes() <= buffer.len(),
            Held::Apart(apart) => match &apart.from {
                Origin::Blocks(_, block, blocks) => Some(self.nbytes()) == block.checked_mul(blocks.len()),
                #[cfg(feature = "xla")]
                Origin::Elsewhere(_) => true,
            },
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
    /// The buffer that has the value in one piece, if there is one by now.
    fn whole(&self) -> Option<&Arc<Buffer>> {
        match &self.0.held {
            Held::Whole(buffer) => Some(buffer),
            Held::Apart(apart) => apart.dense.get(),
        }
    }
    /// The blocks of a view, if it is one.
    fn blocks(&self) -> Option<Blocks<'_>> {
        match &self.0.held {
            Held::Apart(apart) => match &apart.from {
                Origin::Blocks(buffer, block, blocks) => Some((buffer, *block, blocks)),
                #[cfg(feature = "xla")]
                Origin::Elsewhere(_) => None,
            },
            Held::Whole(_) => None,
        }
    }
    /// The same bytes under another shape of as many elements. An error where they are in other memory and cannot be had from there.
    pub(crate) fn reshaped(&self, dtype: DType, shape: Shape, copies: usize) -> Result<Slab, Fault> {
        if (dtype, &shape, copies) == (self.0.dtype, &self.0.shape, self.0.copies) {
            return Ok(self.clone());
        }
        self.here()?;
        let held = match (self.whole(), &self.0.held) {
            (Some(whole), _) | (None, Held::Whole(whole)) => Held::Whole(whole.clone()),
            (None, Held::Apart(apart)) => Held::apart(apart.from.clone()),
        };
        let slab = Slab::of(dtype, shape, copies, held);
        assert!(slab.covered(), "a reshape keeps the number of bytes");
        Ok(slab)
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
        let (None, Some((buffer, own, at))) = (self.whole(), self.blocks()) else {
            return Ok(Slab::view(dtype, shape, self.dense()?.clone(), block, blocks.clone()));
        };
        let place = |b: &usize| (b % own + block <= own).then(|| at[b / own] + b % own);
        Ok(match blocks.iter().map(place).collect::<Option<Arc<[usize]>>>() {
            Some(places) => Slab::view(dtype, shape, buffer.clone(), block, places),
            None => Slab::view(dtype, shape, self.dense()?.clone(), block, blocks.clone()),
        })
    }
    /// Has the value's bytes in this memory, in one piece or in blocks.
    pub(crate) fn here(&self) -> Result<(), Fault> {
        if self.whole().is_none() && self.blocks().is_none() {
            self.dense()?;
        }
        Ok(())
    }
    /// Copies `len` bytes of the value from byte `at` on, wherever they are.
    ///
    /// # Safety
    /// They are bytes of the value, which is here, and `to` has room for them, in no memory of the slab's.
    pub(crate) unsafe fn copy_to(&self, mut at: usize, len: usize, mut to: *mut u8) {
        if let Some(from) = self.whole() {
            // SAFETY: the caller's
            return unsafe { kernels::copy(len, to, from.as_ptr().add(at), false) };
        }
        let Some((buffer, block, blocks)) = self.blocks() else { unreachable!("the value is here") };
        let end = at + len;
        while at < end {
            let n = (block - at % block).min(end - at);
            // SAFETY: the caller's; blocks are within the buffer
            unsafe {
                let from = buffer.as_ptr().add(blocks[at / block] + at % block);
                kernels::copy(n, to, from, false);
                to = to.add(n);
            }
            at += n;
        }
    }
    /// The value in one piece, row-major: the buffer itself; or for a view a copy that is made once, by all workers if it is large; or what is
    /// fetched once from other memory. An error where the system has no memory for the copy, or the value cannot be fetched.
    pub fn dense(&self) -> Result<&Arc<Buffer>, Fault> {
        let apart = match &self.0.held {
            Held::Whole(buffer) => return Ok(buffer),
            Held::Apart(apart) => apart,
        };
        let _one = apart.making.lock().unwrap_or_else(PoisonError::into_inner);
        match apart.dense.get() {
            Some(dense) => Ok(dense),
            None => {
                let made = match &apart.from {
                    Origin::Blocks(..) => self.copied()?,
                    #[cfg(feature = "xla")]
                    Origin::Elsewhere(value) => Arc::new(value.fetch()?),
                };
                assert!(made.len() >= self.nbytes(), "all of the value is there");
                Ok(apart.dense.get_or_init(|| made))
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
    /// The memory of the value in one piece, if this is the only handle on it and it is not lent: whoever asks may write over it.
    pub(crate) fn sole(&mut self) -> Option<Arc<Buffer>> {
        self.dense().ok()?;
        let inner = Arc::get_mut(&mut self.0)?;
        let buffer = match &mut inner.held {
            Held::Whole(buffer) => buffer,
            Held::Apart(apart) => apart.dense.get_mut()?,
        };
        let own = !Arc::get_mut(buffer)?.is_lent();
        own.then(|| buffer.clone())
    }
    /// The elements, row-major (all parts).
    ///
    /// # Panics
    /// If `T` is not the storage type; and where [`Slab::dense`] is an error, which is to be asked before.
    pub fn elements<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.0.dtype, "a slab is read as what it is");
        let n = self.0.shape.elements() * self.0.copies;
        let start = self.dense().unwrap_or_else(|e| panic!("{}", e.message)).as_ptr();
        // SAFETY: the buffer holds n elements of this type (`new` and its kin ask for it), written before the slab was made, aligned to
        // 64 bytes or, where it is lent, to an element; it lives as long as self, and who holds a handle does not write
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
            kernels::copy(size_of_val(data), buffer.as_mut_ptr(), from, false);
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
        let (beneath, ..) = thirds.blocks().expect("a view");
        assert!(Arc::ptr_eq(beneath, slab.dense().unwrap()) && halves.whole().is_none());
        assert_eq!(thirds.elements::<i32>(), [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]);
        // a block that is in two pieces
        let across = view(&halves, 8, &[1]);
        assert_eq!(across.elements::<i32>(), [20, 21, 22, 23, 0, 1, 2, 3]);
        assert!(halves.whole().is_some());
        // now it is in one piece, which its other forms share
        let again = halves.reshaped(DType::I32, [4, 6].into(), 1).unwrap();
        assert!(matches!(&again.0.held, Held::Whole(whole) if Arc::ptr_eq(whole, halves.dense().unwrap())));
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
        assert!(reversed.whole().is_none());
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
