//! The interface between the web page and the module.
//!
//! A string is passed by its address and length in the module's memory: the page requests a buffer,
//! writes its question there, asks for the answer, and reads it.
//!
//! No function here reads through a pointer: the buffer belongs to this module, which returns its
//! address.

use std::cell::RefCell;
use std::panic;

thread_local! {
    static BUFFER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Prepares a zeroed buffer for a question of `bytes` bytes, and returns its address.
/// Returns null if the question is too long.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn question(bytes: usize) -> *const u8 {
    BUFFER.with_borrow_mut(|buffer| {
        buffer.clear();
        // reject a question that does not fit
        if bytes > 1 << 20 || buffer.try_reserve(bytes).is_err() {
            return std::ptr::null();
        }
        buffer.resize(bytes, 0);
        buffer.as_ptr()
    })
}

/// Answers the question in the buffer, and returns the length of the answer in bytes.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn ask() -> usize {
    // store a panic's message in place of the answer, for the page that catches the trap
    panic::set_hook(Box::new(|info| {
        let said = info.to_string().into_bytes();
        let _ = BUFFER.try_with(|buffer| buffer.try_borrow_mut().map(|mut buffer| *buffer = said));
    }));
    let question = BUFFER.with_borrow(|buffer| String::from_utf8_lossy(buffer).into_owned());
    let answer = crate::answer(&question).into_bytes();
    BUFFER.with_borrow_mut(|buffer| *buffer = answer);
    length()
}

/// Returns the address of the answer.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn reply() -> *const u8 {
    BUFFER.with_borrow(|buffer| buffer.as_ptr())
}

/// Returns the number of bytes in the buffer; after a trap, the length of the panic's message.
// SAFETY: no other function of the module has this name.
#[unsafe(no_mangle)]
pub extern "C" fn length() -> usize {
    BUFFER.with_borrow(Vec::len)
}
