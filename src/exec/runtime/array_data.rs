//! [`ArrayData`]: the stored global value of an array.

use super::thread_pool::{Worker, thread_pool};
use super::{Buffer, sync::Mutex};
use crate::core::{ArrayType, DType, Element, Fault, Scalar, ScalarElement, Shape, types::with_dtype};
use crate::ir::program::Placement;
use crate::kernels;
use crate::kernels::buffer::RawByte;
use std::any::Any;
use std::fmt::Debug;
use std::mem::MaybeUninit;
use std::sync::{Arc, OnceLock, PoisonError};

/// The minimum size, in bytes, from which all workers copy a view together.
const MIN_PARALLEL_BYTES: usize = if cfg!(miri) { 32 << 10 } else { 2 << 20 };
/// The number of bytes that one worker copies at a time.
const CHUNK_BYTES: usize = MIN_PARALLEL_BYTES / 2;

/// The stored value of an array, in global row-major order, with shared ownership.
///
/// Every device's block is a part of it, so replicas share memory. A value that is unreduced over
/// mesh axes consists of several partial values, each of the full shape, in rank order.
/// The data may be a *view*: whole blocks of another value's buffer in another order, as `ppermute`
/// and `all_gather` return without copying a byte. With the feature `xla` it may also be in other
/// memory, for example on a PJRT device, until it is first read on the host.
#[derive(Clone, Debug)]
pub struct ArrayData(Arc<ArrayDataInner>);

#[derive(Debug)]
struct ArrayDataInner {
    dtype: DType,
    shape: Shape,
    num_partials: usize,
    storage: Storage,
}

/// The storage of a value. Most values are contiguous; the enum is kept small for these.
#[derive(Debug)]
enum Storage {
    Contiguous(Arc<Buffer>),
    Deferred(Box<DeferredStorage>),
}

/// A value that is not contiguous in host memory, with its contiguous copy once that is needed.
#[derive(Debug)]
struct DeferredStorage {
    source: DeferredSource,
    contiguous: OnceLock<Arc<Buffer>>,
    /// Held by the thread that makes the contiguous copy, so that only one copy is made.
    lock: Mutex<()>,
}

/// The source from which a contiguous copy is made.
#[derive(Clone, Debug)]
enum DeferredSource {
    /// A view: the buffer, the block size in bytes, and for each block of this value its byte
    /// offset in the buffer.
    Blocks(Arc<Buffer>, usize, Arc<[usize]>),
    /// A value in other memory.
    #[cfg_attr(not(feature = "xla"), allow(dead_code, reason = "the engine xla makes them"))]
    Foreign(Arc<dyn ForeignValue>),
}

/// The buffer of a view, the block size in bytes, and the byte offset of each block.
type ViewBlocks<'a> = (&'a Arc<Buffer>, usize, &'a Arc<[usize]>);

impl Storage {
    fn deferred(from: DeferredSource) -> Storage {
        Storage::Deferred(Box::new(DeferredStorage {
            source: from,
            contiguous: OnceLock::new(),
            lock: Mutex::new(()),
        }))
    }
}

/// A value in memory that does not belong to the buffer pool, such as that of a PJRT device.
pub(crate) trait ForeignValue: Any + Debug + Send + Sync {
    /// Copies the value into a new buffer, row-major, with all partial values.
    ///
    /// # Errors
    /// The value is not [local](ForeignValue::is_local), or a device fails.
    fn fetch(&self) -> Result<Buffer, Fault>;
    /// Returns true if the devices of this process hold all elements.
    fn is_local(&self) -> bool;
    /// Returns true if the value has the blocks of this type and placement on each device.
    fn has_blocks_of(&self, ty: &ArrayType, at: &Placement) -> bool;
    /// Copies the block of the device at this position of the mesh, which is one of this process.
    ///
    /// If the value is unreduced, the block is that of the sum.
    fn block(&self, position: usize) -> Result<ArrayData, Fault>;
}

impl ArrayData {
    /// Wraps a buffer whose bytes are elements of `dtype`, which is a storage type.
    ///
    /// `copies` is the number of partial values; it is 1 unless the value is partial.
    ///
    /// # Panics
    /// If the value does not fit in the buffer.
    pub(crate) fn new(dtype: DType, shape: Shape, copies: usize, buffer: Arc<Buffer>) -> ArrayData {
        let slab = ArrayData::from_storage(dtype, shape, copies, Storage::Contiguous(buffer));
        assert!(slab.is_covered(), "the value must fit in its buffer");
        slab
    }
    /// Creates a view in which block `k` of the value starts at byte `blocks[k]` of the buffer.
    ///
    /// All blocks have `block` bytes.
    ///
    /// # Panics
    /// If the blocks are not exactly the value, or are not within the buffer.
    pub(crate) fn view(
        dtype: DType,
        shape: Shape,
        buffer: Arc<Buffer>,
        block: usize,
        blocks: Arc<[usize]>,
    ) -> ArrayData {
        let within = blocks.iter().all(|at| at.checked_add(block).is_some_and(|end| end <= buffer.len()));
        let slab = ArrayData::from_storage(
            dtype,
            shape,
            1,
            Storage::deferred(DeferredSource::Blocks(buffer, block, blocks)),
        );
        assert!(
            within && slab.is_covered(),
            "the blocks of a view must be the whole value, within its buffer"
        );
        slab
    }
    /// Wraps a value in other memory, which is copied to the host when it is first read.
    #[cfg(feature = "xla")]
    pub(crate) fn from_foreign(
        dtype: DType,
        shape: Shape,
        copies: usize,
        value: impl ForeignValue,
    ) -> ArrayData {
        ArrayData::from_storage(
            dtype,
            shape,
            copies,
            Storage::deferred(DeferredSource::Foreign(Arc::new(value))),
        )
    }
    /// Returns the foreign value, if the value is stored as one.
    pub(crate) fn foreign(&self) -> Option<&dyn ForeignValue> {
        match &self.0.storage {
            Storage::Deferred(apart) => match &apart.source {
                DeferredSource::Foreign(value) => Some(&**value),
                DeferredSource::Blocks(..) => None,
            },
            Storage::Contiguous(_) => None,
        }
    }
    /// Returns the foreign value, if the value is stored as a `T`.
    #[cfg(feature = "xla")]
    pub(crate) fn foreign_as<T: ForeignValue>(&self) -> Option<&T> {
        self.foreign().and_then(|value| (value as &dyn Any).downcast_ref())
    }
    /// Returns true if this process holds all elements; the others are on devices of other
    /// processes.
    pub(crate) fn is_local(&self) -> bool {
        self.foreign().is_none_or(ForeignValue::is_local)
    }
    /// Returns true if this is the only handle on the value.
    #[cfg(feature = "xla")]
    pub(crate) fn is_unique(&mut self) -> bool {
        Arc::get_mut(&mut self.0).is_some()
    }
    fn from_storage(dtype: DType, shape: Shape, copies: usize, held: Storage) -> ArrayData {
        ArrayData(Arc::new(ArrayDataInner { dtype, shape, num_partials: copies, storage: held }))
    }
    /// Returns true if the storage has as many bytes as the value needs.
    fn is_covered(&self) -> bool {
        match &self.0.storage {
            Storage::Contiguous(buffer) => self.nbytes() <= buffer.len(),
            Storage::Deferred(apart) => match &apart.source {
                DeferredSource::Blocks(_, block, blocks) => {
                    Some(self.nbytes()) == block.checked_mul(blocks.len())
                }
                DeferredSource::Foreign(_) => true,
            },
        }
    }
    /// Returns the storage element type.
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }
    /// Returns the global shape.
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }
    /// Returns the number of partial values: 1 unless the value is partial.
    pub fn num_partials(&self) -> usize {
        self.0.num_partials
    }
    /// Returns the size of the value in bytes, with all partial values.
    pub fn nbytes(&self) -> usize {
        self.0.shape.num_elements().saturating_mul(self.0.dtype.size()).saturating_mul(self.0.num_partials)
    }
    /// Returns the buffer that has the contiguous value, if it exists already.
    fn contiguous_buffer(&self) -> Option<&Arc<Buffer>> {
        match &self.0.storage {
            Storage::Contiguous(buffer) => Some(buffer),
            Storage::Deferred(apart) => apart.contiguous.get(),
        }
    }
    /// Returns the blocks of a view, or `None` if the value is not a view.
    fn blocks(&self) -> Option<ViewBlocks<'_>> {
        match &self.0.storage {
            Storage::Deferred(apart) => match &apart.source {
                DeferredSource::Blocks(buffer, block, blocks) => Some((buffer, *block, blocks)),
                DeferredSource::Foreign(_) => None,
            },
            Storage::Contiguous(_) => None,
        }
    }
    /// Returns the value's bytes as an array of another type and shape of equal size.
    ///
    /// Returns an error if the value is in other memory and cannot be fetched.
    pub(crate) fn reshaped(&self, dtype: DType, shape: Shape, copies: usize) -> Result<ArrayData, Fault> {
        if (dtype, &shape, copies) == (self.0.dtype, &self.0.shape, self.0.num_partials) {
            return Ok(self.clone());
        }
        self.ensure_host()?;
        let held = match (self.contiguous_buffer(), &self.0.storage) {
            (Some(full), _) | (None, Storage::Contiguous(full)) => Storage::Contiguous(full.clone()),
            (None, Storage::Deferred(apart)) => Storage::deferred(apart.source.clone()),
        };
        let slab = ArrayData::from_storage(dtype, shape, copies, held);
        assert!(slab.is_covered(), "a reshape keeps the number of bytes");
        Ok(slab)
    }
    /// Returns a view of this value, in which block `k` starts at byte `blocks[k]` of the value.
    ///
    /// If this value is a view itself, the result is a view of the underlying buffer, unless a
    /// block of the result spans two of its blocks.
    pub(crate) fn select_blocks(
        &self,
        dtype: DType,
        shape: Shape,
        block: usize,
        blocks: &Arc<[usize]>,
    ) -> Result<ArrayData, Fault> {
        let (None, Some((buffer, own, at))) = (self.contiguous_buffer(), self.blocks()) else {
            return Ok(ArrayData::view(dtype, shape, self.contiguous()?.clone(), block, blocks.clone()));
        };
        let place = |b: &usize| (b % own + block <= own).then(|| at[b / own] + b % own);
        Ok(match blocks.iter().map(place).collect::<Option<Arc<[usize]>>>() {
            Some(places) => ArrayData::view(dtype, shape, buffer.clone(), block, places),
            None => ArrayData::view(dtype, shape, self.contiguous()?.clone(), block, blocks.clone()),
        })
    }
    /// Makes sure that the value's bytes are in host memory, contiguous or in blocks.
    pub(crate) fn ensure_host(&self) -> Result<(), Fault> {
        if self.contiguous_buffer().is_none() && self.blocks().is_none() {
            self.contiguous()?;
        }
        Ok(())
    }
    /// Copies as many bytes of the value, from byte `at` on, as `to` has.
    ///
    /// # Panics
    /// The bytes are not within the value, or `ensure_host` has not succeeded.
    pub(crate) fn copy_to(&self, mut at: usize, mut to: &mut [MaybeUninit<RawByte>]) {
        if let Some(from) = self.contiguous_buffer() {
            return kernels::copy_slice(to, from.part(at..at + to.len()), false);
        }
        let Some((buffer, block, blocks)) = self.blocks() else { unreachable!("the value is here") };
        while !to.is_empty() {
            let n = (block - at % block).min(to.len());
            let (piece, rest) = to.split_at_mut(n);
            let from = blocks[at / block] + at % block;
            kernels::copy_slice(piece, buffer.part(from..from + n), false);
            (at, to) = (at + n, rest);
        }
    }
    /// Returns the value as one contiguous row-major buffer.
    ///
    /// If the value is a view, a contiguous copy is made once, by all workers if it is large. If it
    /// is in other memory, it is fetched once. Returns an error if the system has no memory for the
    /// copy, or if the value cannot be fetched.
    pub fn contiguous(&self) -> Result<&Arc<Buffer>, Fault> {
        let apart = match &self.0.storage {
            Storage::Contiguous(buffer) => return Ok(buffer),
            Storage::Deferred(apart) => apart,
        };
        let _one = apart.lock.lock().unwrap_or_else(PoisonError::into_inner);
        match apart.contiguous.get() {
            Some(dense) => Ok(dense),
            None => {
                let made = match &apart.source {
                    DeferredSource::Blocks(..) => self.copy_contiguous()?,
                    DeferredSource::Foreign(value) => Arc::new(value.fetch()?),
                };
                assert!(made.len() >= self.nbytes(), "all of the value is there");
                Ok(apart.contiguous.get_or_init(|| made))
            }
        }
    }
    /// Returns the value as a contiguous one, like [`ArrayData::contiguous`], but without keeping a
    /// copy that has to be made: its memory is free when the result is dropped.
    ///
    /// The calling thread makes the copy alone.
    pub(crate) fn contiguous_once(&self) -> Result<ArrayData, Fault> {
        let made = match (self.contiguous_buffer(), &self.0.storage) {
            (Some(_), _) | (None, Storage::Contiguous(_)) => return Ok(self.clone()),
            (None, Storage::Deferred(apart)) => match &apart.source {
                DeferredSource::Blocks(..) => {
                    let mut full = Buffer::allocate(self.nbytes())?;
                    self.copy_to(0, full.uninit_mut());
                    full
                }
                DeferredSource::Foreign(value) => value.fetch()?,
            },
        };
        Ok(ArrayData::new(self.dtype(), self.shape().clone(), self.num_partials(), Arc::new(made)))
    }
    fn copy_contiguous(&self) -> Result<Arc<Buffer>, Fault> {
        let len = self.nbytes();
        let mut full = Buffer::allocate(len)?;
        if len < MIN_PARALLEL_BYTES {
            self.copy_to(0, full.uninit_mut());
            return Ok(Arc::new(full));
        }
        self.copy_in_parallel(full.uninit_mut());
        Ok(Arc::new(full))
    }
    /// Copies the value, in chunks that the workers take.
    fn copy_in_parallel(&self, to: &mut [MaybeUninit<RawByte>]) {
        let chunks = Mutex::new(to.chunks_mut(CHUNK_BYTES).enumerate());
        let copy = |_: &Worker| {
            loop {
                let next = chunks.lock().unwrap_or_else(PoisonError::into_inner).next();
                let Some((k, chunk)) = next else { return };
                self.copy_to(k * CHUNK_BYTES, chunk);
            }
        };
        if let Err(panic) = thread_pool().run(&copy) {
            std::panic::resume_unwind(panic);
        }
    }
    /// Returns the bytes of the contiguous value, row-major, with all partial values.
    pub(crate) fn bytes(&self) -> Result<&[u8], Fault> {
        let start = self.contiguous()?.as_ptr();
        // SAFETY: the buffer has at least `nbytes` bytes, which were written before the `ArrayData`
        // was made (contract of `Buffer`). It lives as long as `self`, and handles to it are never
        // used to write.
        Ok(unsafe { std::slice::from_raw_parts(start, self.nbytes()) })
    }
    /// Returns the buffer of the contiguous value, if this is the only handle on it and it is not
    /// borrowed.
    ///
    /// The caller may overwrite the buffer.
    pub(crate) fn unique_buffer(&mut self) -> Option<Arc<Buffer>> {
        self.contiguous().ok()?;
        let inner = Arc::get_mut(&mut self.0)?;
        let buffer = match &mut inner.storage {
            Storage::Contiguous(buffer) => buffer,
            Storage::Deferred(apart) => apart.contiguous.get_mut()?,
        };
        let own = !Arc::get_mut(buffer)?.is_borrowed();
        own.then(|| buffer.clone())
    }
    /// Returns the elements, row-major, with all partial values.
    ///
    /// # Panics
    /// If `T` is not the storage type, or if [`ArrayData::contiguous`] returns an error; call that
    /// first to handle it.
    pub fn elements<T: Element>(&self) -> &[T] {
        assert_eq!(T::DTYPE, self.0.dtype, "the element type must be the storage type");
        let n = self.0.shape.num_elements() * self.0.num_partials;
        let start = self.contiguous().unwrap_or_else(|e| panic!("{}", e.message)).as_ptr();
        // SAFETY: the buffer holds `n` elements of this type (checked by the constructors), written
        // before the `ArrayData` was made, and aligned to 64 bytes or, if it is borrowed, to an
        // element. It lives as long as `self`, and handles to it are never used to write.
        unsafe { std::slice::from_raw_parts(start.cast(), n) }
    }
    /// Creates an array with every element equal to `value`. Returns an error if the system has no
    /// memory.
    pub(crate) fn filled<T: Element>(shape: Shape, value: T) -> Result<ArrayData, Fault> {
        let n = shape.num_elements();
        let mut buffer = Buffer::allocate(n * size_of::<T>())?;
        // the first run is written element by element, the others are copies of it
        let (room, run) = (buffer.uninit_mut::<T>(), n.min(4096));
        room[..run].fill(MaybeUninit::new(value));
        for at in (run..n).step_by(run.max(1)) {
            room.copy_within(..run.min(n - at), at);
        }
        Ok(ArrayData::new(T::DTYPE, shape, 1, Arc::new(buffer)))
    }
    /// Creates a scalar array: `x` as an element of `dtype`.
    pub(crate) fn from_scalar(dtype: DType, x: Scalar) -> Result<ArrayData, Fault> {
        with_dtype!(dtype, T => ArrayData::filled(Shape::scalar(), T::from_scalar(x)))
    }
    /// Creates an array from elements in row-major order. Returns an error if the system has no
    /// memory.
    ///
    /// # Panics
    /// If `data` does not have as many elements as the shape.
    pub fn from_elements<T: Element>(shape: Shape, data: &[T]) -> Result<ArrayData, Fault> {
        assert_eq!(data.len(), shape.num_elements(), "as many elements as the shape has");
        let mut buffer = Buffer::allocate(size_of_val(data))?;
        kernels::copy_slice(buffer.uninit_mut(), data, false);
        Ok(ArrayData::new(T::DTYPE, shape, 1, Arc::new(buffer)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(of: &ArrayData, block: usize, order: &[usize]) -> ArrayData {
        let places: Arc<[usize]> = order.iter().map(|k| k * block * 4).collect();
        of.select_blocks(DType::I32, [block * order.len()].into(), block * 4, &places).unwrap()
    }

    #[test]
    fn a_view_of_a_view_copies_nothing_where_its_blocks_are_whole() {
        let numbers: Vec<i32> = (0..24).collect();
        let slab = ArrayData::from_elements([24].into(), &numbers).unwrap();
        let halves = view(&slab, 12, &[1, 0]);
        let thirds = view(&halves, 4, &[5, 0, 1, 2]);
        let (beneath, ..) = thirds.blocks().expect("a view");
        assert!(Arc::ptr_eq(beneath, slab.contiguous().unwrap()) && halves.contiguous_buffer().is_none());
        assert_eq!(thirds.elements::<i32>(), [8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]);
        // this block spans two blocks of the view
        let across = view(&halves, 8, &[1]);
        assert_eq!(across.elements::<i32>(), [20, 21, 22, 23, 0, 1, 2, 3]);
        assert!(halves.contiguous_buffer().is_some());
        // the contiguous copy now exists, and reshaped values share it
        let again = halves.reshaped(DType::I32, [4, 6].into(), 1).unwrap();
        assert!(
            matches!(&again.0.storage, Storage::Contiguous(whole) if Arc::ptr_eq(whole, halves.contiguous().unwrap()))
        );
    }

    #[test]
    fn any_bytes_of_a_view_can_be_copied() {
        let numbers: Vec<i32> = (0..24).collect();
        let reversed =
            view(&ArrayData::from_elements([24].into(), &numbers).unwrap(), 3, &[7, 6, 5, 4, 3, 2, 1, 0]);
        let mut some = Buffer::zeroed(8 * 4).unwrap();
        reversed.copy_to(2 * 4, some.uninit_mut());
        let some = ArrayData::new(DType::I32, [8].into(), 1, Arc::new(some));
        assert_eq!(some.elements::<i32>(), [23, 18, 19, 20, 15, 16, 17, 12]);
        assert!(reversed.contiguous_buffer().is_none());
    }

    #[test]
    fn all_workers_make_a_large_view_dense() {
        let n = 3 * MIN_PARALLEL_BYTES / 4 + 12;
        let numbers: Vec<i32> = (0..n as i32).collect();
        let slab = ArrayData::from_elements([n].into(), &numbers).unwrap();
        let order: Vec<usize> = (0..n / 4).rev().collect();
        let reversed = view(&slab, 4, &order);
        let got = reversed.elements::<i32>();
        for (k, x) in got.iter().enumerate() {
            assert_eq!(*x as usize, n - 4 - k / 4 * 4 + k % 4);
        }
    }
}
