//! Aligned memory from a process-wide pool.
//!
//! The first write to a fresh page takes 25 to 50 times as long as a write to reused memory, so the
//! pool keeps the memory of dropped buffers. It has four size classes for each power of two.
//! Buffers of 2 MiB and more are mapped in huge pages (on Linux); smaller ones come from the system
//! allocator. The pool may always keep 64 MiB. Beyond that, pooled and live bytes together are
//! limited to twice the recent peak of live bytes, and to half of the machine's memory. If the
//! limit is exceeded, classes of less than 2 MiB are released first, then the larger classes, the
//! least recently used first. Each thread also caches a few of the smallest blocks, which it takes
//! without a lock.
//!
//! Under a sanitizer, nothing is pooled: each buffer is an allocation of exactly its size, which
//! is freed when the buffer is dropped.

use crate::core::{Element, ErrorKind, Fault, util::small_sort};
use crate::kernels::copy_slice;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// The size of a huge page, in bytes. Buffers of at least this size are mapped in huge pages, if
/// the system has them.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// The size of the smallest class, in bytes.
const MIN_CLASS_BYTES: usize = 256;
const NUM_CLASSES: usize = 4 * usize::BITS as usize;
/// True if a sanitizer watches the bounds and the lifetime of each buffer (`scripts/sanitize` and
/// `scripts/fuzz`).
const IS_SANITIZED: bool = cfg!(any(fuzzing, sanitized = "address", sanitized = "thread"));

/// A byte of a buffer, initialized or not.
pub(crate) type RawByte = MaybeUninit<u8>;

/// A block of bytes, 64-byte aligned, which returns to the process-wide pool when it is dropped.
///
/// With the feature `dlpack` it may also borrow memory from another library. That memory is aligned
/// to the size of its elements only, and is given back to its owner on drop.
///
/// The contents of a new buffer are unspecified: the code that allocates it must write every byte
/// before it shares the buffer.
#[derive(Debug)]
pub struct Buffer {
    block: MemoryBlock,
    len: usize,
    class: usize,
    /// The value whose drop gives the memory back, if the memory does not belong to the pool.
    #[cfg(feature = "dlpack")]
    owner: Option<Box<dyn std::any::Any + Send + Sync>>,
}

// SAFETY: a buffer owns its memory, or keeps alive the owner of memory that any thread may read
// (caller contract of `borrowed`). Methods with `&self` only return the address. Unsafe code that
// writes through it from several threads writes disjoint ranges, which no thread reads meanwhile.
unsafe impl Sync for Buffer {}

impl Buffer {
    /// Allocates a buffer of `len` bytes, from the pool if it has a block of the right class.
    ///
    /// The bytes are uninitialized: the caller must write all of them before any is read. Returns
    /// an error if the system has no memory.
    pub(crate) fn allocate(len: usize) -> Result<Buffer, Fault> {
        Buffer::try_allocate(len).ok_or_else(|| out_of_memory(len))
    }
    /// Allocates as [`Buffer::allocate`] does, for kernels, which cannot return an error.
    ///
    /// If the system has no memory, it unwinds with the [`Fault`] as payload; the engine that runs
    /// the program catches it.
    pub(crate) fn allocate_or_unwind(len: usize) -> Buffer {
        Buffer::allocate(len).unwrap_or_else(|fault| resume_unwind(Box::new(fault)))
    }
    fn try_allocate(len: usize) -> Option<Buffer> {
        if len > MAX_BUFFER_BYTES {
            return None;
        }
        if IS_SANITIZED {
            let block = MemoryBlock::allocate(len)?;
            LIVE_BYTES.fetch_add(len, Relaxed);
            return Some(Buffer::pooled(block, len, 0));
        }
        let (class, size) = class_of(len);
        if let Some(block) = thread_cache::take(class) {
            return Some(Buffer::pooled(block, len, class));
        }
        let block = match take_free(class) {
            Some(block) => block,
            None => {
                let kept = POOLED_BYTES.load(Relaxed);
                if size >= HUGE_PAGE_BYTES
                    && kept > 0
                    && LIVE_BYTES.load(Relaxed) + kept + size > available() / 4 * 3
                {
                    trim();
                }
                obtain(size)?
            }
        };
        let live = LIVE_BYTES.fetch_add(size, Relaxed) + size;
        PEAK_BYTES.fetch_max(live, Relaxed);
        Some(Buffer::pooled(block, len, class))
    }
    fn pooled(block: MemoryBlock, len: usize, class: usize) -> Buffer {
        Buffer {
            block,
            len,
            class,
            #[cfg(feature = "dlpack")]
            owner: None,
        }
    }
    /// Wraps memory of another library; dropping its owner gives the memory back.
    ///
    /// # Safety
    /// As long as the owner lives, `len` bytes from `start` must be readable from any thread, and
    /// must not be written.
    #[cfg(feature = "dlpack")]
    pub(crate) unsafe fn borrowed(
        start: NonNull<u8>,
        len: usize,
        owner: impl std::any::Any + Send + Sync,
    ) -> Buffer {
        let block = MemoryBlock::without_memory(start);
        Buffer { block, len, class: 0, owner: Some(Box::new(owner)) }
    }
    /// Returns true if the memory belongs to another library and is read-only.
    pub(crate) fn is_borrowed(&self) -> bool {
        #[cfg(feature = "dlpack")]
        return self.owner.is_some();
        #[cfg(not(feature = "dlpack"))]
        false
    }
    /// Allocates a buffer of `len` zero bytes.
    #[cfg(any(test, feature = "xla"))]
    pub(crate) fn zeroed(len: usize) -> Result<Buffer, Fault> {
        let mut buffer = Buffer::allocate(len)?;
        buffer.fill_zeros();
        Ok(buffer)
    }
    /// Fills the memory with zeros, and returns it as bytes.
    ///
    /// # Panics
    /// The memory belongs to another library.
    pub(crate) fn fill_zeros(&mut self) -> &mut [u8] {
        let bytes = self.uninit_mut::<u8>();
        // SAFETY: the bytes are mutably borrowed, and are initialized before they are returned.
        unsafe {
            bytes.as_mut_ptr().write_bytes(0, bytes.len());
            bytes.assume_init_mut()
        }
    }
    /// Returns the memory as elements, initialized or not.
    ///
    /// # Panics
    /// The memory belongs to another library.
    pub(crate) fn uninit_mut<T: Copy>(&mut self) -> &mut [MaybeUninit<T>] {
        const { assert!(align_of::<T>() <= ALIGNMENT_BYTES) };
        assert!(!self.is_borrowed(), "memory of other libraries is read-only");
        // SAFETY: the buffer owns its `len` bytes, which are aligned and mutably borrowed.
        unsafe { std::slice::from_raw_parts_mut(self.as_mut_ptr().cast(), self.len / size_of::<T>()) }
    }
    /// Returns a part of the memory, initialized or not.
    ///
    /// # Panics
    /// The part is not within the buffer.
    pub(crate) fn part(&self, bytes: Range<usize>) -> &[RawByte] {
        assert!(bytes.start <= bytes.end && bytes.end <= self.len, "the part is within the buffer");
        // SAFETY: the part is within the buffer; nothing is written there meanwhile (see `Sync`).
        unsafe { std::slice::from_raw_parts(self.as_ptr().add(bytes.start).cast(), bytes.len()) }
    }
    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Returns true if the size is 0.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Returns a pointer to the first byte.
    pub fn as_ptr(&self) -> *const u8 {
        self.block.start().as_ptr()
    }
    /// Returns a mutable pointer to the first byte.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.block.start().as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.is_borrowed() {
            return;
        }
        if IS_SANITIZED {
            LIVE_BYTES.fetch_sub(self.len, Relaxed);
            return;
        }
        let block = std::mem::replace(&mut self.block, MemoryBlock::without_memory(NonNull::dangling()));
        if let Some(block) = thread_cache::keep(block, self.class) {
            recycle(block, self.class);
        }
    }
}

/// The blocks in the pool, by class.
static POOL: [Mutex<Vec<MemoryBlock>>; NUM_CLASSES] = [const { Mutex::new(Vec::new()) }; NUM_CLASSES];
/// The time of the last use of each class, in ticks of the clock below, which counts uses.
static LAST_USES: [AtomicUsize; NUM_CLASSES] = [const { AtomicUsize::new(0) }; NUM_CLASSES];
static CLOCK: AtomicUsize = AtomicUsize::new(0);
/// The number of bytes in live buffers; the recent peak of that; and the bytes in the pool.
static LIVE_BYTES: AtomicUsize = AtomicUsize::new(0);
static PEAK_BYTES: AtomicUsize = AtomicUsize::new(0);
static POOLED_BYTES: AtomicUsize = AtomicUsize::new(0);
/// The number of bytes that the pool may always keep.
const MIN_POOL_BYTES: usize = 64 << 20;
/// The maximum size of a buffer, in bytes.
const MAX_BUFFER_BYTES: usize = isize::MAX as usize / 4;

/// Returns the class for buffers of `len` bytes, and the size of its blocks in bytes.
fn class_of(len: usize) -> (usize, usize) {
    let len = len.max(MIN_CLASS_BYTES);
    let power = (len - 1).ilog2() as usize;
    let quarter = (1usize << power) / 4;
    let steps = (len - (1 << power)).div_ceil(quarter);
    let class = 4 * power + steps;
    (class, size_of_class(class))
}
fn size_of_class(class: usize) -> usize {
    let (power, steps) = (class / 4, class % 4);
    (1usize << power) + steps * ((1usize << power) / 4)
}

fn free_list(class: usize) -> MutexGuard<'static, Vec<MemoryBlock>> {
    POOL[class].lock().unwrap_or_else(|e| e.into_inner())
}
fn take_free(class: usize) -> Option<MemoryBlock> {
    let block = free_list(class).pop()?;
    POOLED_BYTES.fetch_sub(size_of_class(class), Relaxed);
    Some(block)
}
/// Returns a block of this class to the pool, or to the system if the pool is full.
fn recycle(block: MemoryBlock, class: usize) {
    let size = size_of_class(class);
    let live = LIVE_BYTES.fetch_sub(size, Relaxed) - size;
    if size >= HUGE_PAGE_BYTES {
        // the recorded peak decays with every large block that is returned: by half once about 30
        // times the peak has been returned
        let peak = PEAK_BYTES.load(Relaxed);
        PEAK_BYTES.store(live.max(peak - size.min(peak) / 64), Relaxed);
        LAST_USES[class].store(CLOCK.fetch_add(1, Relaxed), Relaxed);
    }
    let most = max_pooled_bytes(live, PEAK_BYTES.load(Relaxed), available());
    if POOLED_BYTES.load(Relaxed) + size > most {
        evict(class, most.saturating_sub(size));
    }
    if POOLED_BYTES.fetch_add(size, Relaxed) + size <= most {
        return free_list(class).push(block);
    }
    POOLED_BYTES.fetch_sub(size, Relaxed);
}
/// Returns the maximum number of bytes in the pool.
///
/// Twice the peak of live bytes, live ones included, is enough for any program that runs again.
fn max_pooled_bytes(live: usize, peak: usize, memory: usize) -> usize {
    (2 * peak).min(memory / 2).saturating_sub(live).max(MIN_POOL_BYTES)
}
/// Releases pooled blocks of other classes, least recently used first, until at most `most` bytes
/// are left in the pool.
fn evict(class: usize, most: usize) {
    let used = |c: &usize| LAST_USES[*c].load(Relaxed);
    let mut others: Vec<usize> =
        (0..NUM_CLASSES).filter(|c| *c != class && !free_list(*c).is_empty()).collect();
    small_sort::sort_by_key(&mut others, used);
    for other in others {
        while POOLED_BYTES.load(Relaxed) > most
            && let Some(block) = take_free(other)
        {
            drop(block);
        }
    }
}

/// Returns the bytes of live buffers, their recent peak, and the bytes in the pool.
pub(crate) fn memory_figures() -> [usize; 3] {
    [&LIVE_BYTES, &PEAK_BYTES, &POOLED_BYTES].map(|figure| figure.load(Relaxed))
}

const HELP_USE_TYPES: &str = "make programs for such arrays from their types: `F32.of(shape)`";

/// Returns an error if `bytes` exceed the memory that is left.
///
/// The limit is that of the machine, the process's cgroup and its resource limits, less the memory
/// of live arrays. Exceeding it would end the process. If the limit is not known, this is never an
/// error.
pub(crate) fn check_available(bytes: usize) -> Result<(), Fault> {
    let (most, live) = (available(), LIVE_BYTES.load(Relaxed));
    if bytes <= most.saturating_sub(live) {
        return Ok(());
    }
    let held =
        if bytes > most { String::new() } else { format!(", of which arrays hold {}", Gibibytes(live)) };
    let message =
        format!("this needs {} of memory, and the machine has {}{held}", Gibibytes(bytes), Gibibytes(most));
    let fault = Fault::new(ErrorKind::Data, message);
    Err(if held.is_empty() {
        fault.help(HELP_USE_TYPES)
    } else {
        fault.help("drop arrays that are not used any more")
    })
}
/// Returns an empty vector with capacity for `n` elements, or an error if the system has no memory.
pub(crate) fn try_vec_with_capacity<T>(n: usize) -> Result<Vec<T>, Fault> {
    let mut list = Vec::new();
    ok_or_return!(list.try_reserve_exact(n), |_| Err(out_of_memory(n.saturating_mul(size_of::<T>()))));
    Ok(list)
}
/// Collects `n` elements into a vector. Returns an error if the system has no memory.
pub(crate) fn try_collect<T>(elements: impl Iterator<Item = T>, n: usize) -> Result<Vec<T>, Fault> {
    let mut list = try_vec_with_capacity(n)?;
    list.extend(elements);
    Ok(list)
}
/// Copies the elements into a vector. Returns an error if the system has no memory.
pub(crate) fn try_to_vec<T: Element>(elements: &[T]) -> Result<Vec<T>, Fault> {
    let mut list = try_vec_with_capacity::<T>(elements.len())?;
    copy_slice(&mut list.spare_capacity_mut()[..elements.len()], elements, false);
    // SAFETY: `copy_slice` has initialized these elements.
    unsafe { list.set_len(elements.len()) };
    Ok(list)
}
/// Requests huge pages for large new memory, which makes the first write four times as fast.
pub(crate) fn huge_pages<T>(new: &mut [MaybeUninit<T>]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    huge::advise(new);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = new;
}
/// Returns true if the page in the middle of the memory is resident, which it is if it was used
/// before.
///
/// The other pages are assumed to be like it.
pub(crate) fn looks_resident<T>(new: &mut [MaybeUninit<T>]) -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    return huge::looks_resident(new);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = new;
        false
    }
}
fn out_of_memory(bytes: usize) -> Fault {
    fault!(Data, "the system has no {} of memory for this", Gibibytes(bytes)).help(HELP_USE_TYPES)
}
struct Gibibytes(usize);
impl std::fmt::Display for Gibibytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} GiB", self.0 as f64 / (1u64 << 30) as f64)
    }
}

/// Returns the memory that the process may use, in bytes, or `usize::MAX` if that is not known.
fn available() -> usize {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        static MEMORY_BYTES: std::sync::LazyLock<usize> = std::sync::LazyLock::new(limits::min_limit_bytes);
        *MEMORY_BYTES
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    usize::MAX
}

/// Returns all memory that is not in a buffer to the system.
pub(crate) fn trim() {
    thread_cache::flush();
    for class in 0..NUM_CLASSES {
        let list = std::mem::take(&mut *free_list(class));
        let size = if list.is_empty() { 0 } else { size_of_class(class) };
        POOLED_BYTES.fetch_sub(size * list.len(), Relaxed);
        drop(list);
    }
    PEAK_BYTES.store(LIVE_BYTES.load(Relaxed), Relaxed);
}

/// Obtains a block of `size` bytes from the system. If that fails, it empties the pool and retries.
fn obtain(size: usize) -> Option<MemoryBlock> {
    MemoryBlock::obtain(size).or_else(|| {
        trim();
        MemoryBlock::obtain(size)
    })
}

mod block;
mod guards;
#[cfg(all(target_os = "linux", not(miri)))]
mod limits;
mod thread_cache;

use block::{ALIGNMENT_BYTES, MemoryBlock};
pub(crate) use guards::Guards;

/// Memory that is mapped in huge pages.
#[cfg(all(target_os = "linux", not(miri)))]
mod huge {
    use super::HUGE_PAGE_BYTES;
    use std::mem::MaybeUninit;
    use std::ptr::NonNull;

    pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
        // one more huge page than needed, so that the buffer can start on a huge-page boundary
        let whole = size.checked_next_multiple_of(HUGE_PAGE_BYTES)?.checked_add(HUGE_PAGE_BYTES)?;
        // SAFETY: this is a new private mapping of `whole` bytes, which no other code knows. Its
        // aligned part starts less than one huge page after `start`; only the pages before and
        // after that part are unmapped.
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let start =
                libc::mmap(std::ptr::null_mut(), whole, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            if start == libc::MAP_FAILED {
                return None;
            }
            let before = (start as usize).next_multiple_of(HUGE_PAGE_BYTES) - start as usize;
            let used = whole - HUGE_PAGE_BYTES;
            let aligned = start.cast::<u8>().add(before);
            if before > 0 {
                libc::munmap(start, before);
            }
            libc::munmap(aligned.add(used).cast(), HUGE_PAGE_BYTES - before);
            libc::madvise(aligned.cast(), used, libc::MADV_HUGEPAGE);
            NonNull::new(aligned)
        }
    }
    /// Requests huge pages for the whole huge pages inside this memory.
    pub(super) fn advise<T>(new: &mut [MaybeUninit<T>]) {
        let at = new.as_mut_ptr().cast::<u8>();
        let before = (at as usize).next_multiple_of(HUGE_PAGE_BYTES) - at as usize;
        let len = size_of_val(new).saturating_sub(before) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
        if len > 0 {
            // SAFETY: the pages are within the slice, and the advice does not change their
            // contents.
            unsafe {
                libc::madvise(at.add(before).cast(), len, libc::MADV_HUGEPAGE);
            }
        }
    }
    pub(super) fn looks_resident<T>(new: &mut [MaybeUninit<T>]) -> bool {
        // a multiple of the page size of every system
        const PAGE_BYTES: usize = 1 << 16;
        let (at, len) = (new.as_mut_ptr().cast::<u8>(), size_of_val(new));
        let before = (at as usize + len / 2).next_multiple_of(PAGE_BYTES) - at as usize;
        let mut there = 0;
        // SAFETY: `mincore` only looks up the page of one address of the slice, and writes one
        // byte, to `there`.
        len >= 4 * PAGE_BYTES
            && unsafe { libc::mincore(at.add(before).cast(), 1, &raw mut there) == 0 }
            && there & 1 == 1
    }
    /// Unmaps a block.
    ///
    /// # Safety
    /// `start` came from `map(size)`, and the caller does not use it any more.
    pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
        // SAFETY: `start` is the aligned part that `map(size)` left mapped (caller contract).
        unsafe {
            libc::munmap(start.as_ptr().cast(), size.next_multiple_of(HUGE_PAGE_BYTES));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_waste_at_most_a_quarter() {
        for len in (1..5000).chain([1 << 20, (1 << 20) + 1, 3 << 29]) {
            let (class, size) = class_of(len);
            assert!(size >= len && size_of_class(class) == size, "{len} in {size}");
            assert!(len <= MIN_CLASS_BYTES || size * 4 <= len * 5 + 4, "{len} in {size}");
        }
    }

    #[test]
    fn memory_is_aligned_and_all_of_it_writable() {
        for len in [0, 1, 300, 4096, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 1, 3 * HUGE_PAGE_BYTES + 17] {
            let mut b = Buffer::zeroed(len).unwrap();
            assert_eq!(b.as_ptr() as usize % ALIGNMENT_BYTES, 0);
            // SAFETY: `b` has `len` bytes, and the last one is only read if `len > 0`.
            unsafe {
                b.as_mut_ptr().write_bytes(7, len);
                assert!(len == 0 || *b.as_ptr().add(len - 1) == 7);
            }
        }
    }

    /// Tests the path that systems without huge pages take for large buffers.
    #[test]
    fn large_memory_comes_from_the_allocator_too() {
        for len in [HUGE_PAGE_BYTES, 3 * HUGE_PAGE_BYTES + 17] {
            let size = class_of(len).1;
            let block = MemoryBlock::allocate(size).unwrap();
            let start = block.start();
            assert_eq!(start.as_ptr() as usize % ALIGNMENT_BYTES, 0);
            // SAFETY: the block has `size` bytes, and is not shared.
            unsafe {
                start.write_bytes(7, size);
                assert_eq!(*start.as_ptr().add(size - 1), 7);
            }
        }
    }

    #[test]
    fn pooled_and_live_bytes_are_bounded_together() {
        let gib = 1 << 30;
        assert_eq!(max_pooled_bytes(0, gib, 64 * gib), 2 * gib);
        assert_eq!(max_pooled_bytes(gib, gib, 64 * gib), gib);
        // on a small machine the limit is half of its memory
        assert_eq!(max_pooled_bytes(0, 3 * gib, 4 * gib), 2 * gib);
        assert_eq!(max_pooled_bytes(2 * gib, 3 * gib, 4 * gib), MIN_POOL_BYTES);
        assert_eq!(max_pooled_bytes(0, 0, 64 * gib), MIN_POOL_BYTES);
    }

    #[test]
    #[cfg_attr(miri, ignore = "what the system refuses ends the interpreter")]
    fn too_much_memory_is_an_error() {
        assert!(Buffer::allocate(usize::MAX).is_err() && Buffer::allocate(MAX_BUFFER_BYTES).is_err());
        assert!(
            try_vec_with_capacity::<u64>(usize::MAX).is_err()
                && try_vec_with_capacity::<u8>(MAX_BUFFER_BYTES).is_err()
        );
        assert_eq!((try_collect(1..3, 2).unwrap(), try_to_vec(&[1, 2]).unwrap()), (vec![1, 2], vec![1, 2]));
        let payload = std::panic::catch_unwind(|| Buffer::allocate_or_unwind(MAX_BUFFER_BYTES)).unwrap_err();
        assert!(payload.downcast::<Fault>().unwrap().message.contains("has no"));
        assert!(check_available(usize::MAX - 1).is_err());
        assert!(check_available(1 << 20).is_ok());
    }

    /// Tests that buffers of ever-changing sizes leave at most twice the peak in the pool.
    #[test]
    #[cfg(not(miri))]
    fn sizes_that_change_do_not_pile_up() {
        for k in 0..400 {
            // the memory is mapped, but never touched
            drop(Buffer::allocate((300 + k % 200) << 20).unwrap());
            let (kept, peak) = (POOLED_BYTES.load(Relaxed), PEAK_BYTES.load(Relaxed));
            assert!(kept <= (2 * peak).max(MIN_POOL_BYTES) + (640 << 20), "{kept} kept, {peak} in use");
        }
    }

    #[test]
    fn a_dropped_buffer_is_used_again() {
        // a size that no other test uses
        let len = 5 * HUGE_PAGE_BYTES + 12345;
        let first = Buffer::allocate(len).unwrap();
        let start = first.as_ptr();
        drop(first);
        let again = Buffer::allocate(len).unwrap();
        assert_eq!(start, again.as_ptr());
        drop(again);
        trim();
        assert!(free_list(class_of(len).0).is_empty());
    }
}
