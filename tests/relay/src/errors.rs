//! Errors of this plugin. The functions for errors accept them and those of the plugin below.

use crate::real::{self, Call, set_word, word};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A code of an error (`PJRT_Error_Code`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    InvalidArgument = 3,
    ResourceExhausted = 8,
    Unimplemented = 12,
    Internal = 13,
    Unavailable = 14,
}

/// The environment variable with a call that fails in this process: `run` or `compile`.
const FAILS: &str = "ATMESH_RELAY_FAILS";

/// Returns an error if the environment asks for the failure of a call.
pub(crate) fn fail_if_asked(call: &str) -> Result<(), Call> {
    match std::env::var(FAILS) {
        Ok(asked) if asked == call => {
            Err(Call::own(Code::ResourceExhausted, "RESOURCE_EXHAUSTED: as the environment asks"))
        }
        _ => Ok(()),
    }
}

/// The errors that exist, by the address of their box; `None` before the first one.
type ErrorTable = Option<HashMap<usize, Box<(Code, String)>>>;
static ERRORS: Mutex<ErrorTable> = Mutex::new(None);

fn errors() -> MutexGuard<'static, ErrorTable> {
    ERRORS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an error, and returns its address.
pub(crate) fn new(code: Code, message: String) -> usize {
    let error = Box::new((code, message));
    let at = real::address(&raw const *error);
    errors().get_or_insert_default().insert(at, error);
    at
}

pub(crate) extern "C" fn destroy(arguments: *mut usize) -> usize {
    if errors().get_or_insert_default().remove(&word(arguments, 2)).is_some() {
        return 0;
    }
    real::forward_call(real::ERROR_DESTROY, arguments)
}

pub(crate) extern "C" fn message(arguments: *mut usize) -> usize {
    if let Some(error) = errors().get_or_insert_default().get(&word(arguments, 2)) {
        set_word(arguments, 3, real::address(error.1.as_ptr()));
        set_word(arguments, 4, error.1.len());
        return 0;
    }
    real::forward_call(real::ERROR_MESSAGE, arguments)
}

pub(crate) extern "C" fn code(arguments: *mut usize) -> usize {
    let found = errors().get_or_insert_default().get(&word(arguments, 2)).map(|error| error.0);
    if let Some(code) = found {
        // SAFETY: the result is a 32-bit integer in the fourth word (contract of the interface)
        unsafe { arguments.add(3).cast::<i32>().write(code as i32) };
        return 0;
    }
    real::forward_call(real::ERROR_CODE, arguments)
}
