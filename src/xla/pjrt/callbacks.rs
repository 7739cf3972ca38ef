//! The key-value callbacks of a client of several processes, and all their `unsafe` code.
//!
//! A client of several processes exchanges what its processes must know of each other, such as
//! their devices and the ids of NCCL's communicators, through three functions that its creator
//! passes: `get`, `try_get` and `put`. Each takes one pointer to a struct of 8-byte words, like the
//! functions of the plugin itself, and returns an error or null.
//!
//! # Contract
//! * The plugin calls them from any of its threads, several at a time, from the creation of the
//!   client until its destruction. So the store is `Send + Sync`, and [`Callbacks`] lives longer
//!   than the client.
//! * The user word is the address that [`Callbacks::words`] returned. Keys and values live until
//!   the call returns.
//! * A value that a callback returns belongs to the plugin, which frees it with the deleter that
//!   the callback returned with it.
//! * Errors are made by the function that comes with the arguments, and belong to the plugin.
//! * No panic leaves a callback: it becomes an error.

use std::alloc::{Layout, alloc, dealloc, handle_alloc_error};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::slice;
use std::sync::Arc;
use std::time::Duration;

/// The values that the processes of a client share.
pub(crate) trait KeyValueStore: Send + Sync + fmt::Debug {
    /// Returns the value of a key. Waits up to `wait` for one; `None` if none is stored by then.
    fn get(&self, key: &[u8], wait: Duration) -> Result<Option<Vec<u8>>, String>;
    /// Stores a value under a key.
    fn set(&self, key: &[u8], value: &[u8]) -> Result<(), String>;
}

/// The callbacks of a client, which call a store.
#[derive(Debug)]
pub(super) struct Callbacks(Box<Arc<dyn KeyValueStore>>);

/// A function that makes an error: code, message and its length.
type MakeError = extern "C" fn(i32, *const u8, usize) -> usize;

// Codes of errors (`PJRT_Error_Code`).
const DEADLINE_EXCEEDED: i32 = 4;
const NOT_FOUND: i32 = 5;
const INTERNAL: i32 = 13;
const UNAVAILABLE: i32 = 14;

impl Callbacks {
    pub(super) fn new(store: Arc<dyn KeyValueStore>) -> Callbacks {
        Callbacks(Box::new(store))
    }
    /// Returns the functions `get`, `put` and `try_get`, each with its user word.
    pub(super) fn words(&self) -> [(usize, usize); 3] {
        let user = (&raw const *self.0).expose_provenance();
        let functions: [extern "C" fn(*mut usize) -> usize; 3] = [get, put, try_get];
        functions.map(|f| ((f as *const ()).expose_provenance(), user))
    }
}

/// The outcome of a callback: a value, success without one, or an error with its code.
type Outcome = Result<Option<Vec<u8>>, (i32, String)>;

/// Runs a callback, and returns its error to the plugin.
///
/// # Safety
/// `words[user]` is the user word, `words[make_error]` is the address of a [`MakeError`], and
/// `words[2]` and `words[3]` are a key; `words[value..]` has space for a value, its length and its
/// deleter, if `run` returns one.
unsafe fn answer(
    words: &mut [usize],
    (user, make_error, value): (usize, usize, usize),
    run: impl FnOnce(&dyn KeyValueStore, &[u8]) -> Outcome,
) -> usize {
    // SAFETY: the user word is the address of the store, which lives longer than the client; the key
    // lives until the call returns (contract of this module)
    let (store, key) = unsafe {
        let store: *const Arc<dyn KeyValueStore> = std::ptr::with_exposed_provenance(words[user]);
        (&**store, bytes(words[2], words[3]))
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| run(store, key)));
    match outcome.unwrap_or_else(|_| Err((INTERNAL, "the store of atmesh panicked".into()))) {
        Ok(None) => 0,
        Ok(Some(found)) => {
            words[value] = hand_over(&found).expose_provenance();
            words[value + 1] = found.len();
            words[value + 2] = (free as *const ()).expose_provenance();
            0
        }
        Err((code, message)) => {
            // SAFETY: the plugin passes the address of a function of this type (contract of this
            // module)
            let make: MakeError =
                unsafe { std::ptr::with_exposed_provenance::<MakeError>(words[make_error]).read() };
            make(code, message.as_ptr(), message.len())
        }
    }
}

/// `PJRT_KeyValueGetCallback`: size, extensions, key, its length, timeout, error function, user,
/// and the value, its length and its deleter.
extern "C" fn get(words: *mut usize) -> usize {
    // SAFETY: the plugin passes these words (contract of this module)
    unsafe {
        let words = slice::from_raw_parts_mut(words, 10);
        // a 32-bit number of milliseconds
        let wait = Duration::from_millis((words[4] as u32 as i32).max(1) as u64);
        answer(words, (6, 5, 7), |store, key| match store.get(key, wait) {
            Ok(None) => {
                let key = String::from_utf8_lossy(key);
                Err((DEADLINE_EXCEEDED, format!("no process has stored {key:?} within {wait:?}")))
            }
            found => found.map_err(|message| (UNAVAILABLE, message)),
        })
    }
}

/// `PJRT_KeyValueTryGetCallback`: size, extensions, key, its length, error function, user, and the
/// value, its length and its deleter.
extern "C" fn try_get(words: *mut usize) -> usize {
    // SAFETY: the plugin passes these words (contract of this module)
    unsafe {
        let words = slice::from_raw_parts_mut(words, 9);
        answer(words, (5, 4, 6), |store, key| match store.get(key, Duration::ZERO) {
            Ok(None) => Err((NOT_FOUND, format!("there is no value of {:?}", String::from_utf8_lossy(key)))),
            found => found.map_err(|message| (UNAVAILABLE, message)),
        })
    }
}

/// `PJRT_KeyValuePutCallback`: size, extensions, key, its length, value, its length, error
/// function, and user.
extern "C" fn put(words: *mut usize) -> usize {
    // SAFETY: the plugin passes these words, and the value lives until the call returns (contract of
    // this module)
    unsafe {
        let words = slice::from_raw_parts_mut(words, 8);
        let value = bytes(words[4], words[5]);
        answer(words, (7, 6, 0), |store, key| {
            store.set(key, value).map(|()| None).map_err(|message| (UNAVAILABLE, message))
        })
    }
}

/// Returns bytes that the plugin passes.
///
/// # Safety
/// `at` points to `len` bytes that live for `'a`, or `len` is 0.
unsafe fn bytes<'a>(at: usize, len: usize) -> &'a [u8] {
    if len == 0 || at == 0 {
        return &[];
    }
    // SAFETY: `at` points to `len` bytes (caller contract)
    unsafe { slice::from_raw_parts(std::ptr::with_exposed_provenance(at), len) }
}

/// The bytes before a value, which hold the size of its allocation.
const HEADER_BYTES: usize = 16;

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, HEADER_BYTES).expect("the size of a message")
}

/// Copies a value to memory that [`free`] returns.
fn hand_over(value: &[u8]) -> *mut u8 {
    let size = HEADER_BYTES + value.len();
    // SAFETY: the size is not 0, and the allocation has space for the header and the value
    unsafe {
        let start = alloc(layout(size));
        if start.is_null() {
            handle_alloc_error(layout(size));
        }
        start.cast::<usize>().write(size);
        let data = start.add(HEADER_BYTES);
        data.copy_from_nonoverlapping(value.as_ptr(), value.len());
        data
    }
}

/// The deleter of values.
extern "C" fn free(value: *mut u8) {
    if value.is_null() {
        return;
    }
    // SAFETY: `value` is a result of `hand_over` that is freed once (contract of this module)
    unsafe {
        let start = value.sub(HEADER_BYTES);
        dealloc(start, layout(start.cast::<usize>().read()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use std::sync::Mutex;

    #[derive(Debug, Default)]
    struct Values(Mutex<HashMap<Vec<u8>, Vec<u8>>>);
    impl KeyValueStore for Values {
        fn get(&self, key: &[u8], _: Duration) -> Result<Option<Vec<u8>>, String> {
            assert_ne!(key, b"panic");
            if key == b"dead" {
                Err("process 1 is gone".into())
            } else {
                Ok(self.0.lock().unwrap().get(key).cloned())
            }
        }
        fn set(&self, key: &[u8], value: &[u8]) -> Result<(), String> {
            self.0.lock().unwrap().insert(key.to_vec(), value.to_vec());
            Ok(())
        }
    }
    /// Returns the code as the address of an error.
    extern "C" fn code(code: i32, message: *const u8, len: usize) -> usize {
        // SAFETY: callbacks pass a message
        assert!(!unsafe { slice::from_raw_parts(message, len) }.is_empty());
        code as usize
    }
    static CODE: MakeError = code;

    #[test]
    fn a_plugin_stores_and_reads_values() {
        let callbacks = Callbacks::new(Arc::new(Values::default()));
        let [_, _, (_, user)] = callbacks.words();
        let at = |bytes: &[u8]| bytes.as_ptr().expose_provenance();
        let error = (&raw const CODE).expose_provenance();
        for value in [&b"some bytes"[..], b""] {
            let mut words = [64, 0, at(b"key"), 3, at(value), value.len(), error, user];
            assert_eq!(put(words.as_mut_ptr()), 0);
            for function in 0..2 {
                let mut words = match function {
                    0 => vec![80, 0, at(b"key"), 3, 10, error, user, 0, 0, 0],
                    _ => vec![72, 0, at(b"key"), 3, error, user, 0, 0, 0],
                };
                let result =
                    if function == 0 { get(words.as_mut_ptr()) } else { try_get(words.as_mut_ptr()) };
                let [data, len, deleter] = words[words.len() - 3..].try_into().unwrap();
                // SAFETY: the callback returned a value and its deleter
                unsafe {
                    assert_eq!((result, bytes(data, len)), (0, value));
                    let delete: extern "C" fn(*mut u8) = std::mem::transmute(deleter);
                    delete(std::ptr::with_exposed_provenance_mut(data));
                }
            }
        }
    }

    #[test]
    fn errors_have_their_codes() {
        let callbacks = Callbacks::new(Arc::new(Values::default()));
        let user = callbacks.words()[0].1;
        let error = (&raw const CODE).expose_provenance();
        for (key, codes) in
            [("none", [DEADLINE_EXCEEDED, NOT_FOUND]), ("dead", [UNAVAILABLE; 2]), ("panic", [INTERNAL; 2])]
        {
            let at = key.as_ptr().expose_provenance();
            let mut words = [80, 0, at, key.len(), 10, error, user, 0, 0, 0];
            assert_eq!(get(words.as_mut_ptr()), codes[0] as usize);
            let mut words = [72, 0, at, key.len(), error, user, 0, 0, 0];
            assert_eq!(try_get(words.as_mut_ptr()), codes[1] as usize);
        }
    }
}
