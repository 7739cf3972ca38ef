//! What the page calls. Strings go by place and length in the module's memory: the page asks for room, writes its question there, asks
//! for the answer, and reads it.
//!
//! Nothing here reads through a pointer: the buffer belongs to this module, and the page is told where it is.

use std::cell::RefCell;
use std::panic;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Room for a question of so many bytes, zeros; where it begins.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn question(bytes: usize) -> *const u8 {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        // a question that does not fit is not asked
        if bytes > 1 << 20 || buffer.try_reserve(bytes).is_err() {
            return std::ptr::null();
        }
        buffer.resize(bytes, 0);
        buffer.as_ptr()
    })
}

/// Answers the question that is in the buffer; the answer's length in bytes.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn ask() -> usize {
    // what a panic says is found where an answer would be, for whoever catches the trap
    panic::set_hook(Box::new(|info| {
        let said = info.to_string().into_bytes();
        let _ = BUFFER.try_with(|buffer| buffer.try_borrow_mut().map(|mut buffer| *buffer = said));
    }));
    let question = BUFFER.with_borrow(|buffer| String::from_utf8_lossy(buffer).into_owned());
    let answer = crate::answer(&question).into_bytes();
    BUFFER.with_borrow_mut(|buffer| *buffer = answer);
    length()
}

/// Where the answer begins.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn reply() -> *const u8 {
    BUFFER.with_borrow(|buffer| buffer.as_ptr())
}

/// How many bytes are in the buffer: after a trap, those of the panic's words.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn length() -> usize {
    BUFFER.with_borrow(Vec::len)
}
