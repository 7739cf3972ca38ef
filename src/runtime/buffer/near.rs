//! Small memory that a thread keeps at hand: taken and given back without a lock. For whoever counts, it is in use.

use super::give;
use std::cell::RefCell;
use std::ptr::NonNull;

/// Classes up to this size are kept at hand, some of each.
const MOST: usize = 4096;
const CLASSES: usize = 4 * MOST.ilog2() as usize + 1;
const EACH: usize = 8;

/// A thread's own, by class.
struct Near([Vec<NonNull<u8>>; CLASSES]);

thread_local! {
    static NEAR: RefCell<Near> = const { RefCell::new(Near([const { Vec::new() }; CLASSES])) };
}

/// Memory of this class, if this thread has some at hand.
pub(super) fn take(class: usize) -> Option<NonNull<u8>> {
    if class >= CLASSES {
        return None;
    }
    NEAR.try_with(|near| near.borrow_mut().0[class].pop()).ok().flatten()
}

/// Keeps it at hand, if there is room.
///
/// # Safety
/// `start` was obtained for this class and is used by nobody; where this is true, it is the thread's from now on.
pub(super) unsafe fn keep(start: NonNull<u8>, class: usize) -> bool {
    if class >= CLASSES {
        return false;
    }
    let keep = |near: &RefCell<Near>| {
        let list = &mut near.borrow_mut().0[class];
        let room = list.len() < EACH;
        if room {
            list.push(start);
        }
        room
    };
    // a thread that ends keeps nothing
    NEAR.try_with(keep).unwrap_or(false)
}

/// Gives what this thread has at hand to all.
pub(super) fn empty() {
    let _ = NEAR.try_with(|near| near.borrow_mut().give_back());
}

impl Near {
    fn give_back(&mut self) {
        for (class, list) in self.0.iter_mut().enumerate() {
            for start in list.drain(..) {
                // SAFETY: it was kept for this class, and is in this list no more
                unsafe { give(start, class) }
            }
        }
    }
}
impl Drop for Near {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[test]
fn a_thread_has_small_memory_at_hand_until_it_ends() {
    use super::{Buffer, class_of, size_of_class};
    let class = class_of(3000).0;
    assert!(class < CLASSES && size_of_class(CLASSES - 1) == MOST);
    std::thread::spawn(move || {
        let buffers: Vec<Buffer> = (0..EACH + 2).map(|_| Buffer::asked(3000).unwrap()).collect();
        let starts: Vec<_> = buffers.iter().map(|b| b.start).collect();
        drop(buffers);
        let held = |n| NEAR.with(|near| assert_eq!(near.borrow().0[class].len(), n));
        held(EACH);
        let again = Buffer::asked(3000).unwrap();
        assert!(starts[..EACH].contains(&again.start));
        held(EACH - 1);
        drop(again);
        empty();
        held(0);
        // larger memory is everybody's
        assert!(take(class_of(MOST + 1).0).is_none());
        drop(Buffer::asked(MOST + 1).unwrap());
        assert!(take(class_of(MOST + 1).0).is_none());
    })
    .join()
    .unwrap();
}
