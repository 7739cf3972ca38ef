//! Blocks of memory, the units of the pool: each belongs to one owner, who drops it.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::ptr::NonNull;

/// The minimum alignment of a block, in bytes.
pub(super) const ALIGNMENT_BYTES: usize = 64;

/// A block of memory that no other code uses. Dropping it returns the memory to the system.
#[derive(Debug)]
pub(super) struct MemoryBlock {
    start: NonNull<u8>,
    /// The size of the block. It is 0 for a block without memory, and the alignment is that of a
    /// huge page for a block that is mapped.
    layout: Layout,
}

// SAFETY: a block owns its memory, which is not bound to a thread.
unsafe impl Send for MemoryBlock {}

impl MemoryBlock {
    /// Returns a block of 0 bytes at this address, which owns no memory.
    pub(super) fn without_memory(start: NonNull<u8>) -> MemoryBlock {
        MemoryBlock { start, layout: Layout::new::<()>() }
    }
    /// Obtains a block of `size` bytes from the system: large ones are mapped in huge pages.
    pub(super) fn obtain(size: usize) -> Option<MemoryBlock> {
        #[cfg(all(target_os = "linux", not(miri)))]
        if size >= super::HUGE_PAGE_BYTES {
            let layout = Layout::from_size_align(size, super::HUGE_PAGE_BYTES).ok()?;
            return Some(MemoryBlock { start: super::huge::map(size)?, layout });
        }
        MemoryBlock::allocate(size)
    }
    /// Allocates a block of at least one byte with the system allocator.
    pub(super) fn allocate(size: usize) -> Option<MemoryBlock> {
        let layout = Layout::from_size_align(size.max(1), ALIGNMENT_BYTES);
        let layout = layout.unwrap_or_else(|_| handle_alloc_error(Layout::new::<[u8; ALIGNMENT_BYTES]>()));
        // SAFETY: the layout has at least one byte.
        let start = NonNull::new(unsafe { alloc(layout) })?;
        Some(MemoryBlock { start, layout })
    }
    /// Returns the address of the first byte.
    pub(super) fn start(&self) -> NonNull<u8> {
        self.start
    }
}

impl Drop for MemoryBlock {
    fn drop(&mut self) {
        let MemoryBlock { start, layout } = *self;
        if layout.size() == 0 {
            return;
        }
        // SAFETY: the memory came from `huge::map` if it is aligned to a huge page, and otherwise
        // from the allocator (by `obtain` and `allocate`); a block that is dropped is not used any
        // more.
        unsafe {
            #[cfg(all(target_os = "linux", not(miri)))]
            if layout.align() == super::HUGE_PAGE_BYTES {
                return super::huge::unmap(start, layout.size());
            }
            dealloc(start.as_ptr(), layout);
        }
    }
}
