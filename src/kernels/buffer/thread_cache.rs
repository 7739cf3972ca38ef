//! A per-thread cache of small blocks, which are taken and returned without a lock.
//!
//! The pool's counters treat cached blocks as live.

use super::{MemoryBlock, recycle};
use std::cell::RefCell;

/// The size of the largest class that is cached, in bytes.
const MAX_CACHED_BYTES: usize = 4096;
const NUM_CACHED_CLASSES: usize = 4 * MAX_CACHED_BYTES.ilog2() as usize + 1;
const MAX_BLOCKS_PER_CLASS: usize = 8;

/// The cached blocks of a thread, by class.
struct ThreadCache([Vec<MemoryBlock>; NUM_CACHED_CLASSES]);

thread_local! {
    static THREAD_CACHE: RefCell<ThreadCache> = const { RefCell::new(ThreadCache([const { Vec::new() }; NUM_CACHED_CLASSES])) };
}

/// Takes a cached block of this class, if the thread has one.
pub(super) fn take(class: usize) -> Option<MemoryBlock> {
    if class >= NUM_CACHED_CLASSES {
        return None;
    }
    THREAD_CACHE.try_with(|near| near.borrow_mut().0[class].pop()).ok().flatten()
}

/// Caches a block of this class if the class is small enough and has space. Otherwise it returns
/// the block.
pub(super) fn keep(block: MemoryBlock, class: usize) -> Option<MemoryBlock> {
    if class >= NUM_CACHED_CLASSES {
        return Some(block);
    }
    let mut block = Some(block);
    // a thread that is ending caches nothing
    let _ = THREAD_CACHE.try_with(|near| {
        let list = &mut near.borrow_mut().0[class];
        if list.len() < MAX_BLOCKS_PER_CLASS
            && let Some(block) = block.take()
        {
            list.push(block);
        }
    });
    block
}

/// Returns all blocks that this thread caches to the pool.
pub(super) fn flush() {
    let _ = THREAD_CACHE.try_with(|near| near.borrow_mut().recycle_all());
}

impl ThreadCache {
    fn recycle_all(&mut self) {
        for (class, list) in self.0.iter_mut().enumerate() {
            list.drain(..).for_each(|block| recycle(block, class));
        }
    }
}
impl Drop for ThreadCache {
    fn drop(&mut self) {
        self.recycle_all();
    }
}

#[test]
fn a_thread_has_small_memory_at_hand_until_it_ends() {
    use super::{Buffer, class_of, size_of_class};
    let class = class_of(3000).0;
    assert!(class < NUM_CACHED_CLASSES && size_of_class(NUM_CACHED_CLASSES - 1) == MAX_CACHED_BYTES);
    std::thread::spawn(move || {
        let buffers: Vec<Buffer> =
            (0..MAX_BLOCKS_PER_CLASS + 2).map(|_| Buffer::allocate(3000).unwrap()).collect();
        let starts: Vec<_> = buffers.iter().map(|b| b.as_ptr()).collect();
        drop(buffers);
        let held = |n| THREAD_CACHE.with(|near| assert_eq!(near.borrow().0[class].len(), n));
        held(MAX_BLOCKS_PER_CLASS);
        let again = Buffer::allocate(3000).unwrap();
        assert!(starts[..MAX_BLOCKS_PER_CLASS].contains(&again.as_ptr()));
        held(MAX_BLOCKS_PER_CLASS - 1);
        drop(again);
        flush();
        held(0);
        // larger blocks go to the shared pool
        assert!(take(class_of(MAX_CACHED_BYTES + 1).0).is_none());
        drop(Buffer::allocate(MAX_CACHED_BYTES + 1).unwrap());
        assert!(take(class_of(MAX_CACHED_BYTES + 1).0).is_none());
    })
    .join()
    .unwrap();
}
