//! Buffers: aligned memory from a process-wide pool.
//!
//! Fresh pages cost 25 to 50 times what reused memory does, so that buffers are kept when they are dropped: in size classes, four for
//! each power of two. From 2 MiB on they are mapped in huge pages (on Linux); smaller ones come from the system allocator. What is kept and
//! what is in use are together at most twice what was in use lately at its most, and half of the memory; classes that were not used for long
//! go first. Of the smallest each thread has a few at hand.

use super::kernels;
use crate::diagnostic::{ErrorKind, Fault};
use crate::sorted;
use crate::types::Element;
use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

/// Memory of the pool is aligned to this many bytes, at least.
const ALIGNMENT: usize = 64;
/// From this size on buffers are mapped in huge pages, where the system has them.
const HUGE: usize = 2 << 20;
/// The smallest class.
const SMALLEST: usize = 256;
const CLASSES: usize = 4 * usize::BITS as usize;

/// A block of bytes, 64-byte aligned, returned to the process-wide pool when dropped. With the feature `dlpack` it may also be memory that
/// another library lends, aligned to its elements: that goes back to the lender.
///
/// What a new buffer holds is not specified: whoever makes one writes it before it is shared.
#[derive(Debug)]
pub struct Buffer {
    start: NonNull<u8>,
    len: usize,
    class: usize,
    /// What gives the memory back when it is dropped, if it is not the pool's.
    #[cfg(feature = "dlpack")]
    lender: Option<Box<dyn std::any::Any + Send + Sync>>,
}

// SAFETY: a buffer owns its memory, or reads what is lent to it; shared references only read its address, and writes go through `&mut` or through
// pointers whose users keep to their own parts
unsafe impl Send for Buffer {}
// SAFETY: as above
unsafe impl Sync for Buffer {}

impl Buffer {
    /// A buffer of `len` bytes, from the pool if it has one that fits. They are not initialized: whoever makes it writes them all before
    /// any is read. An error where the system refuses.
    pub(crate) fn asked(len: usize) -> Result<Buffer, Fault> {
        Buffer::of(len).ok_or_else(|| none_for(len))
    }
    /// The same inside a kernel, which has nobody to give an error to: it unwinds, with the refusal, to whoever runs the program.
    pub(crate) fn within(len: usize) -> Buffer {
        Buffer::asked(len).unwrap_or_else(|refused| resume_unwind(Box::new(refused)))
    }
    fn of(len: usize) -> Option<Buffer> {
        if len > MOST {
            return None;
        }
        let (class, size) = class_of(len);
        if let Some(start) = near::take(class) {
            return Some(Buffer::pooled(start, len, class));
        }
        let start = match take(class) {
            Some(start) => start,
            None => {
                let kept = KEPT.load(Relaxed);
                if size >= HUGE && kept > 0 && LIVE.load(Relaxed) + kept + size > available() / 4 * 3 {
                    trim();
                }
                obtain(size)?
            }
        };
        let live = LIVE.fetch_add(size, Relaxed) + size;
        PEAK.fetch_max(live, Relaxed);
        Some(Buffer::pooled(start, len, class))
    }
    fn pooled(start: NonNull<u8>, len: usize, class: usize) -> Buffer {
        Buffer {
            start,
            len,
            class,
            #[cfg(feature = "dlpack")]
            lender: None,
        }
    }
    /// Memory of another's, which is given back by dropping the lender.
    ///
    /// # Safety
    /// As long as the lender lives, `len` bytes from `start` on can be read from any thread, and nobody writes them.
    #[cfg(feature = "dlpack")]
    pub(crate) unsafe fn lent(
        start: NonNull<u8>,
        len: usize,
        lender: impl std::any::Any + Send + Sync,
    ) -> Buffer {
        Buffer { start, len, class: 0, lender: Some(Box::new(lender)) }
    }
    /// Whether its memory is another's, which is read only.
    pub(crate) fn is_lent(&self) -> bool {
        #[cfg(feature = "dlpack")]
        return self.lender.is_some();
        #[cfg(not(feature = "dlpack"))]
        false
    }
    /// A buffer of `len` zero bytes.
    pub(crate) fn zeroed(len: usize) -> Result<Buffer, Fault> {
        let mut buffer = Buffer::asked(len)?;
        // SAFETY: the buffer has len bytes
        unsafe { buffer.as_mut_ptr().write_bytes(0, len) }
        Ok(buffer)
    }
    /// Its size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }
    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Where it begins.
    pub fn as_ptr(&self) -> *const u8 {
        self.start.as_ptr()
    }
    /// Where it begins, to write.
    pub fn as_mut_ptr(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.is_lent() {
            return;
        }
        // SAFETY: the memory is this class's, and nobody uses it any more
        unsafe {
            if !near::keep(self.start, self.class) {
                give(self.start, self.class);
            }
        }
    }
}

/// Memory of the pool that is in no buffer.
struct Free(Vec<NonNull<u8>>);
// SAFETY: the memory is the pool's alone and belongs to no thread
unsafe impl Send for Free {}

static POOL: [Mutex<Free>; CLASSES] = [const { Mutex::new(Free(Vec::new())) }; CLASSES];
/// When each class was last used, by the clock, which counts uses.
static USED: [AtomicUsize; CLASSES] = [const { AtomicUsize::new(0) }; CLASSES];
static CLOCK: AtomicUsize = AtomicUsize::new(0);
/// Bytes in buffers, the most there were lately, and bytes kept in the pool.
static LIVE: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);
static KEPT: AtomicUsize = AtomicUsize::new(0);
/// The pool always keeps up to this much.
const SMALL: usize = 64 << 20;
/// No buffer is larger.
const MOST: usize = isize::MAX as usize / 4;

/// The class for this many bytes, and its size.
fn class_of(len: usize) -> (usize, usize) {
    let len = len.max(SMALLEST);
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

fn free(class: usize) -> MutexGuard<'static, Free> {
    POOL[class].lock().unwrap_or_else(|e| e.into_inner())
}
fn take(class: usize) -> Option<NonNull<u8>> {
    let start = free(class).0.pop()?;
    KEPT.fetch_sub(size_of_class(class), Relaxed);
    Some(start)
}
/// Memory that is in no buffer any more goes to the pool.
///
/// # Safety
/// `start` was obtained for this class and is used by nobody.
unsafe fn give(start: NonNull<u8>, class: usize) {
    let size = size_of_class(class);
    let live = LIVE.fetch_sub(size, Relaxed) - size;
    if size >= HUGE {
        // what was in use at most is forgotten with what is given back: half of it after some thirty times as much
        let peak = PEAK.load(Relaxed);
        PEAK.store(live.max(peak - size.min(peak) / 64), Relaxed);
        USED[class].store(CLOCK.fetch_add(1, Relaxed), Relaxed);
    }
    let most = most(live, PEAK.load(Relaxed), available());
    if KEPT.load(Relaxed) + size > most {
        make_room(class, most.saturating_sub(size));
    }
    if KEPT.fetch_add(size, Relaxed) + size <= most {
        return free(class).0.push(start);
    }
    KEPT.fetch_sub(size, Relaxed);
    // SAFETY: the caller's
    unsafe { release(start, size) }
}
/// How many bytes the pool keeps at most: twice what was in use at its most, with what is, is enough for any program that runs again.
fn most(live: usize, peak: usize, memory: usize) -> usize {
    (2 * peak).min(memory / 2).saturating_sub(live).max(SMALL)
}
/// Gives back what is kept of other classes than this, those first that were not used for longest, until at most so much is.
fn make_room(class: usize, most: usize) {
    let used = |c: &usize| USED[*c].load(Relaxed);
    let mut others: Vec<usize> = (0..CLASSES).filter(|c| *c != class && !free(*c).0.is_empty()).collect();
    sorted::sort_by_key(&mut others, used);
    for other in others {
        while KEPT.load(Relaxed) > most
            && let Some(start) = take(other)
        {
            // SAFETY: it was in the pool's list for this class, and is in no list any more
            unsafe { release(start, size_of_class(other)) }
        }
    }
}

const LESS: &str = "make programs for such arrays from their types: `F32.of(shape)`";

/// Refuses what needs more memory than arrays leave of the machine's, or of what its cgroup or limits allow, where that is known: to take it
/// would end the process.
pub(crate) fn fits(bytes: usize) -> Result<(), Fault> {
    let (most, live) = (available(), LIVE.load(Relaxed));
    if bytes <= most.saturating_sub(live) {
        return Ok(());
    }
    let held = if bytes > most { String::new() } else { format!(", of which arrays hold {}", Bytes(live)) };
    let message = format!("this needs {} of memory, and the machine has {}{held}", Bytes(bytes), Bytes(most));
    let fault = Fault::new(ErrorKind::Data, message);
    Err(if held.is_empty() { fault.help(LESS) } else { fault.help("drop arrays that are not used any more") })
}
/// A list with room for `n` elements; an error where the system refuses.
pub(crate) fn room<T>(n: usize) -> Result<Vec<T>, Fault> {
    let mut list = Vec::new();
    match list.try_reserve_exact(n) {
        Ok(()) => Ok(list),
        Err(_) => Err(none_for(n.saturating_mul(size_of::<T>()))),
    }
}
/// `n` elements as a list; an error where the system refuses.
pub(crate) fn listed<T>(elements: impl Iterator<Item = T>, n: usize) -> Result<Vec<T>, Fault> {
    let mut list = room(n)?;
    list.extend(elements);
    Ok(list)
}
/// A copy of these elements; an error where the system refuses.
pub(crate) fn copied<T: Element>(elements: &[T]) -> Result<Vec<T>, Fault> {
    let mut list = room::<T>(elements.len())?;
    // SAFETY: there is room for so many elements, which have been written then
    unsafe {
        kernels::copy(size_of_val(elements), list.as_mut_ptr().cast(), elements.as_ptr().cast(), false);
        list.set_len(elements.len());
    }
    Ok(list)
}
/// Asks for huge pages for memory that is large and new: it is written for the first time in a quarter of the time.
pub(super) fn huge_pages<T>(new: &mut [std::mem::MaybeUninit<T>]) {
    #[cfg(all(target_os = "linux", not(miri)))]
    huge::advise(new);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    let _ = new;
}
/// Whether the system has memory for its middle already, since what was there has been freed: a guess for all of it.
pub(super) fn there<T>(new: &mut [std::mem::MaybeUninit<T>]) -> bool {
    #[cfg(all(target_os = "linux", not(miri)))]
    return huge::there(new);
    #[cfg(not(all(target_os = "linux", not(miri))))]
    {
        let _ = new;
        false
    }
}
fn none_for(bytes: usize) -> Fault {
    let message = format!("the system has no {} of memory for this", Bytes(bytes));
    Fault::new(ErrorKind::Data, message).help(LESS)
}
struct Bytes(usize);
impl std::fmt::Display for Bytes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.1} GiB", self.0 as f64 / (1u64 << 30) as f64)
    }
}

/// The memory in bytes that the process may use; without end where nobody says.
fn available() -> usize {
    #[cfg(all(target_os = "linux", not(miri)))]
    {
        static MEMORY: std::sync::LazyLock<usize> = std::sync::LazyLock::new(limits::least);
        *MEMORY
    }
    #[cfg(not(all(target_os = "linux", not(miri))))]
    usize::MAX
}

/// Returns all memory that no buffer uses to the system.
pub(super) fn trim() {
    near::empty();
    for class in 0..CLASSES {
        let list = std::mem::take(&mut free(class).0);
        let size = if list.is_empty() { 0 } else { size_of_class(class) };
        KEPT.fetch_sub(size * list.len(), Relaxed);
        for start in list {
            // SAFETY: it was in the pool's list for this class, and is in no list any more
            unsafe { release(start, size) }
        }
    }
    PEAK.store(LIVE.load(Relaxed), Relaxed);
}

fn layout(size: usize) -> Layout {
    let layout = Layout::from_size_align(size, ALIGNMENT);
    layout.unwrap_or_else(|_| handle_alloc_error(Layout::new::<[u8; ALIGNMENT]>()))
}

/// Memory of this size from the system; what the pool keeps is given back before it fails.
fn obtain(size: usize) -> Option<NonNull<u8>> {
    ask(size).or_else(|| {
        trim();
        ask(size)
    })
}
fn ask(size: usize) -> Option<NonNull<u8>> {
    #[cfg(all(target_os = "linux", not(miri)))]
    if size >= HUGE {
        return huge::map(size);
    }
    allocate(size)
}
/// # Safety
/// `start` came from `obtain(size)`, and nobody uses it.
unsafe fn release(start: NonNull<u8>, size: usize) {
    #[cfg(all(target_os = "linux", not(miri)))]
    if size >= HUGE {
        // SAFETY: the caller's: memory of this size is mapped
        return unsafe { huge::unmap(start, size) };
    }
    // SAFETY: the caller's: other memory is allocated
    unsafe { free_allocated(start, size) }
}

/// Memory from the system's allocator.
fn allocate(size: usize) -> Option<NonNull<u8>> {
    // SAFETY: classes are not empty
    NonNull::new(unsafe { alloc(layout(size)) })
}
/// # Safety
/// `start` came from `allocate(size)`, and nobody uses it.
unsafe fn free_allocated(start: NonNull<u8>, size: usize) {
    // SAFETY: the caller's: it was allocated with this layout
    unsafe { dealloc(start.as_ptr(), layout(size)) }
}

#[cfg(all(target_os = "linux", not(miri)))]
mod limits;
mod near;

/// Memory mapped in huge pages.
#[cfg(all(target_os = "linux", not(miri)))]
mod huge {
    use super::HUGE;
    use std::ptr::NonNull;

    pub(super) fn map(size: usize) -> Option<NonNull<u8>> {
        // one more huge page than needed, so that the buffer can begin where one does
        let whole = size.checked_next_multiple_of(HUGE)?.checked_add(HUGE)?;
        // SAFETY: a new private mapping of `whole` bytes, of which the aligned part begins less than a huge page on; what is before and
        // behind it is given back, and no one has seen it
        unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
            let start =
                libc::mmap(std::ptr::null_mut(), whole, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            if start == libc::MAP_FAILED {
                return None;
            }
            let before = (start as usize).next_multiple_of(HUGE) - start as usize;
            let used = whole - HUGE;
            let aligned = start.cast::<u8>().add(before);
            if before > 0 {
                libc::munmap(start, before);
            }
            libc::munmap(aligned.add(used).cast(), HUGE - before);
            libc::madvise(aligned.cast(), used, libc::MADV_HUGEPAGE);
            NonNull::new(aligned)
        }
    }
    /// Asks for huge pages in what belongs to this memory alone.
    pub(super) fn advise<T>(new: &mut [std::mem::MaybeUninit<T>]) {
        let at = new.as_mut_ptr().cast::<u8>();
        let before = (at as usize).next_multiple_of(HUGE) - at as usize;
        let len = size_of_val(new).saturating_sub(before) / HUGE * HUGE;
        if len > 0 {
            // SAFETY: the pages are within the slice; the advice changes nothing of what they hold
            unsafe {
                libc::madvise(at.add(before).cast(), len, libc::MADV_HUGEPAGE);
            }
        }
    }
    pub(super) fn there<T>(new: &mut [std::mem::MaybeUninit<T>]) -> bool {
        // (a multiple of all systems' pages)
        const PAGE: usize = 1 << 16;
        let (at, len) = (new.as_mut_ptr().cast::<u8>(), size_of_val(new));
        let before = (at as usize + len / 2).next_multiple_of(PAGE) - at as usize;
        let mut there = 0;
        // SAFETY: the system looks at the page of one byte of the slice, and says so in one byte
        len >= 4 * PAGE
            && unsafe { libc::mincore(at.add(before).cast(), 1, &raw mut there) == 0 }
            && there & 1 == 1
    }
    /// # Safety
    /// `start` came from `map(size)`, and nobody uses it.
    pub(super) unsafe fn unmap(start: NonNull<u8>, size: usize) {
        // SAFETY: the caller's: the aligned part of the mapping is what is left of it
        unsafe {
            libc::munmap(start.as_ptr().cast(), size.next_multiple_of(HUGE));
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
            assert!(len <= SMALLEST || size * 4 <= len * 5 + 4, "{len} in {size}");
        }
    }

    #[test]
    fn memory_is_aligned_and_all_of_it_writable() {
        for len in [0, 1, 300, 4096, HUGE, HUGE + 1, 3 * HUGE + 17] {
            let mut b = Buffer::zeroed(len).unwrap();
            assert_eq!(b.as_ptr() as usize % ALIGNMENT, 0);
            // SAFETY: within the buffer
            unsafe {
                b.as_mut_ptr().write_bytes(7, len);
                assert!(len == 0 || *b.as_ptr().add(len - 1) == 7);
            }
        }
    }

    /// What systems without huge pages have for large buffers.
    #[test]
    fn large_memory_comes_from_the_allocator_too() {
        for len in [HUGE, 3 * HUGE + 17] {
            let size = class_of(len).1;
            let start = allocate(size).unwrap();
            assert_eq!(start.as_ptr() as usize % ALIGNMENT, 0);
            // SAFETY: within what was allocated, which is used by nobody else and not after
            unsafe {
                start.write_bytes(7, size);
                assert_eq!(*start.as_ptr().add(size - 1), 7);
                free_allocated(start, size);
            }
        }
    }

    #[test]
    fn what_is_kept_and_what_is_used_are_bounded_together() {
        let gib = 1 << 30;
        assert_eq!(most(0, gib, 64 * gib), 2 * gib);
        assert_eq!(most(gib, gib, 64 * gib), gib);
        // of a small machine half is enough
        assert_eq!(most(0, 3 * gib, 4 * gib), 2 * gib);
        assert_eq!(most(2 * gib, 3 * gib, 4 * gib), SMALL);
        assert_eq!(most(0, 0, 64 * gib), SMALL);
    }

    #[test]
    #[cfg_attr(miri, ignore = "what the system refuses ends the interpreter")]
    fn what_the_machine_has_not_is_refused() {
        assert!(Buffer::asked(usize::MAX).is_err() && Buffer::asked(MOST).is_err());
        assert!(room::<u64>(usize::MAX).is_err() && room::<u8>(MOST).is_err());
        assert_eq!((listed(1..3, 2).unwrap(), copied(&[1, 2]).unwrap()), (vec![1, 2], vec![1, 2]));
        let told = std::panic::catch_unwind(|| Buffer::within(MOST)).unwrap_err();
        assert!(told.downcast::<Fault>().unwrap().message.contains("has no"));
        assert!(fits(usize::MAX - 1).is_err());
        assert!(fits(1 << 20).is_ok());
    }

    /// Sizes that change all the time leave no more behind than twice the most that was in use.
    #[test]
    #[cfg(not(miri))]
    fn sizes_that_change_do_not_pile_up() {
        for k in 0..400 {
            // mapped, but never touched
            drop(Buffer::asked((300 + k % 200) << 20).unwrap());
            let (kept, peak) = (KEPT.load(Relaxed), PEAK.load(Relaxed));
            assert!(kept <= (2 * peak).max(SMALL) + (640 << 20), "{kept} kept, {peak} in use");
        }
    }

    #[test]
    fn a_dropped_buffer_is_used_again() {
        // a size that no other test uses
        let len = 5 * HUGE + 12345;
        let first = Buffer::asked(len).unwrap();
        let start = first.as_ptr();
        drop(first);
        let again = Buffer::asked(len).unwrap();
        assert_eq!(start, again.as_ptr());
        drop(again);
        trim();
        assert!(free(class_of(len).0).0.is_empty());
    }
}
