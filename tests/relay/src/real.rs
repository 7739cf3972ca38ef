//! The plugin below: its functions by offset, and its errors.

use crate::errors::{self, Code};
use std::sync::OnceLock;

pub(crate) const ERROR_DESTROY: usize = 40;
pub(crate) const ERROR_MESSAGE: usize = 48;
pub(crate) const ERROR_CODE: usize = 56;
pub(crate) const EVENT_DESTROY: usize = 80;
pub(crate) const EVENT_AWAIT: usize = 104;
pub(crate) const CLIENT_CREATE: usize = 120;
pub(crate) const CLIENT_DESTROY: usize = 128;
pub(crate) const CLIENT_PROCESS: usize = 144;
pub(crate) const CLIENT_DEVICES: usize = 160;
pub(crate) const CLIENT_OWN_DEVICES: usize = 168;
pub(crate) const CLIENT_COMPILE: usize = 200;
pub(crate) const BUFFER_FROM_HOST: usize = 216;
pub(crate) const DESCRIPTION_ID: usize = 224;
pub(crate) const DESCRIPTION_PROCESS: usize = 232;
pub(crate) const DEVICE_DESCRIPTION: usize = 272;
pub(crate) const DEVICE_IS_OWN: usize = 280;
pub(crate) const EXECUTABLE_DESTROY: usize = 360;
pub(crate) const EXECUTABLE_OUTPUTS: usize = 392;
pub(crate) const LOADED_DESTROY: usize = 440;
pub(crate) const LOADED_EXECUTABLE: usize = 448;
pub(crate) const LOADED_EXECUTE: usize = 480;
pub(crate) const BUFFER_DESTROY: usize = 504;
pub(crate) const BUFFER_TYPE: usize = 512;
pub(crate) const BUFFER_DIMENSIONS: usize = 520;
pub(crate) const BUFFER_DELETE: usize = 576;
pub(crate) const BUFFER_IS_DELETED: usize = 584;
pub(crate) const BUFFER_TO_HOST: usize = 600;
pub(crate) const BUFFER_READY: usize = 616;
pub(crate) const UPDATE_PROCESSES: usize = 944;

/// A function of the interface: it takes the address of its arguments, and returns an error or 0.
pub(crate) type Function = extern "C" fn(*mut usize) -> usize;

/// A failed call: the address of an error, of the plugin below or of this one.
#[derive(Debug)]
pub(crate) struct Call(usize);
impl Call {
    /// Makes an error of this plugin.
    pub(crate) fn own(code: Code, message: impl Into<String>) -> Call {
        Call(errors::new(code, message.into()))
    }
    /// Takes over an error that a callback returned, which is one of this plugin.
    pub(crate) fn adopt(error: usize) -> Call {
        Call(error)
    }
    /// Hands over the error.
    pub(crate) fn into_word(self) -> usize {
        std::mem::ManuallyDrop::new(self).0
    }
    /// Returns the message.
    pub(crate) fn text(&self) -> String {
        let mut words = [40, 0, self.0, 0, 0];
        errors::message(words.as_mut_ptr());
        String::from_utf8_lossy(&bytes(words[3], words[4])).into_owned()
    }
}
impl Drop for Call {
    fn drop(&mut self) {
        errors::destroy([24, 0, self.0].as_mut_ptr());
    }
}

static REAL: OnceLock<usize> = OnceLock::new();

/// Loads the plugin that a variable names, and returns a copy of its table.
pub(crate) fn load(variable: &str) -> Result<Vec<usize>, String> {
    let path = std::env::var_os(variable).ok_or(format!("{variable} names the plugin below"))?;
    // SAFETY: the caller of `GetPjrtApi` guarantees that the file is a PJRT plugin
    let library = unsafe { libloading::Library::new(path) }.map_err(|e| format!("{variable}: {e}"))?;
    // SAFETY: as above, `GetPjrtApi` has this type
    let table = unsafe {
        let get = library.get::<extern "C" fn() -> *const usize>(b"GetPjrtApi\0");
        get.map_err(|e| format!("{variable}: {e}"))?()
    };
    std::mem::forget(library);
    if table.is_null() {
        return Err(format!("{variable}: the plugin has no table"));
    }
    let _ = REAL.set(table.expose_provenance());
    // SAFETY: a table starts with its size in bytes
    let mut copy = unsafe { std::slice::from_raw_parts(table, *table / 8) }.to_vec();
    if copy.len() <= UPDATE_PROCESSES / 8 {
        copy.resize(UPDATE_PROCESSES / 8 + 1, 0);
        copy[0] = 8 * copy.len();
    }
    Ok(copy)
}

/// Calls a function of the plugin below, with these arguments as the caller made them.
pub(crate) fn forward_call(offset: usize, arguments: *mut usize) -> usize {
    let table: *const u8 = std::ptr::with_exposed_provenance(*REAL.get().expect("a loaded plugin"));
    // SAFETY: the table has a function at this offset (the constants above), and `arguments` are its
    // arguments (the caller of this plugin, or `call`)
    unsafe {
        let size = table.cast::<usize>().read();
        let function = if offset + 8 <= size { table.add(offset).cast::<usize>().read() } else { 0 };
        if function == 0 {
            return Call::own(Code::Unimplemented, format!("the plugin below has no function at {offset}"))
                .into_word();
        }
        table.add(offset).cast::<Function>().read()(arguments)
    }
}

/// Calls a function of the plugin below; the first word becomes the size of the arguments.
pub(crate) fn call(offset: usize, words: &mut [usize]) -> Result<(), Call> {
    words[0] = size_of_val(words);
    match forward_call(offset, words.as_mut_ptr()) {
        0 => Ok(()),
        error => Err(Call(error)),
    }
}
/// Calls a function that takes one object, and returns its first result.
pub(crate) fn get(offset: usize, object: usize) -> Result<usize, Call> {
    let mut words = [0, 0, object, 0];
    call(offset, &mut words).map(|()| words[3])
}
/// Calls a function that takes one object, and returns a list of words.
pub(crate) fn list(offset: usize, object: usize) -> Result<Vec<usize>, Call> {
    let mut words = [0, 0, object, 0, 0];
    call(offset, &mut words)?;
    Ok(copied(words[3], words[4]))
}
/// Waits for an event, and destroys it.
pub(crate) fn wait(event: usize) -> Result<(), Call> {
    if event == 0 {
        return Ok(());
    }
    let done = call(EVENT_AWAIT, &mut [0, 0, event]);
    let _ = call(EVENT_DESTROY, &mut [0, 0, event]);
    done
}

/// Copies `n` values from an address of the interface.
pub(crate) fn copied<T: Copy>(address: usize, n: usize) -> Vec<T> {
    if n == 0 {
        return Vec::new();
    }
    // SAFETY: the interface passes the address of `n` values, which live until the call returns
    unsafe { std::slice::from_raw_parts(std::ptr::with_exposed_provenance(address), n) }.to_vec()
}
/// Copies `n` bytes from an address of the interface.
pub(crate) fn bytes(address: usize, n: usize) -> Vec<u8> {
    copied(address, n)
}
/// Returns the address of a value, as a word.
pub(crate) fn address<T>(of: *const T) -> usize {
    of.expose_provenance()
}
/// Reads a word of the arguments of a call.
pub(crate) fn word(arguments: *mut usize, index: usize) -> usize {
    // SAFETY: callers pass arguments with this word (contract of the interface)
    unsafe { arguments.add(index).read() }
}
/// Writes a word into the arguments of a call.
pub(crate) fn set_word(arguments: *mut usize, index: usize, value: usize) {
    // SAFETY: callers pass arguments with this word (contract of the interface)
    unsafe { arguments.add(index).write(value) }
}
