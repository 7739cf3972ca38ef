//! The C interface of PJRT plugins: the calls needed to run a module. Their `unsafe` code is here
//! and in `raw_client`; that of callbacks is in `callbacks`.
//!
//! A function of the interface takes one pointer to a struct of arguments, and returns an error or
//! null. Every such struct is a sequence of 8-byte words: the first is its size in bytes, the
//! second is null, and results are written into some of the others. The functions are at fixed
//! offsets in a table that only grows (`pjrt_c_api.h`, versions 0.x). Offsets and words are
//! therefore sufficient, and no binding of the header is needed.

use super::functions::{
    BUFFER_DESTROY, BUFFER_DIMENSIONS, BUFFER_TO_HOST, BUFFER_TYPE, CLIENT_ALL_DEVICES, CLIENT_DESTROY,
    CLIENT_DEVICES, CLIENT_PLATFORM, ERROR_DESTROY, ERROR_MESSAGE, EVENT_AWAIT, EVENT_DESTROY,
    EXECUTABLE_DESTROY, EXECUTABLE_OPTIMIZED, EXECUTABLE_OUTPUTS, FunctionOffset, LOADED_DESTROY,
    LOADED_EXECUTABLE, LOADED_EXECUTE, MIN_TABLE_BYTES, PLUGIN_INITIALIZE, REQUIRED,
};
use std::ffi::c_void;
use std::fmt;
use std::marker::PhantomData;
use std::path::Path;
use std::slice;
use std::sync::Arc;

// Limits of the counts and lengths that a plugin returns. Larger ones are errors, so that a faulty
// plugin neither exhausts the memory nor makes this crate read far outside of a list.

/// The maximum length of a message or a name, in bytes.
pub(super) const MAX_TEXT_BYTES: usize = 1 << 20;
/// The maximum number of devices.
pub(super) const MAX_DEVICES: usize = 1 << 20;
/// The maximum number of results of a module.
pub(super) const MAX_RESULTS: usize = 1 << 20;
/// The maximum rank of a result.
const MAX_RANK: usize = 64;
/// The maximum size of an optimised module, in bytes.
const MAX_MODULE_BYTES: usize = 1 << 31;

/// Returns the id of a process's run, by which XLA tells it from an earlier one of the same rank.
pub(super) fn incarnation(process: usize) -> u64 {
    1000 + process as u64
}

/// The argument struct of a call as words, for both arguments and results.
type CallWords<'a> = &'a mut [usize];

pub(super) fn address<T>(of: *const T) -> usize {
    of.expose_provenance()
}
fn pointer<T>(word: usize) -> *const T {
    std::ptr::with_exposed_provenance(word)
}

/// The reason why a plugin cannot be loaded.
#[derive(Debug)]
pub(super) enum PluginLoadError {
    /// The system could not load the library; the system's message.
    NoLibrary(String),
    /// The library exports no `GetPjrtApi`.
    NoPlugin,
    /// The plugin has an unsupported interface; its version, and the size of its table in bytes.
    Version((i32, i32), usize),
    /// The plugin lacks a function; its name.
    NoFunction(&'static str),
    /// The plugin failed to start; its message.
    Start(String),
}

/// The function table of a loaded plugin.
/// Plugins stay loaded until the process ends, since their threads run their code.
pub(super) struct Api {
    table: *const u8,
    /// The size of the table, in bytes.
    size: usize,
    pub(super) version: (i32, i32),
}
// SAFETY: the plugin does not write to the table after it has returned it, and PJRT's functions may
// be called from any thread (contract of PJRT plugins)
unsafe impl Send for Api {}
// SAFETY: the table is never written, and PJRT's functions may be called from several threads at a
// time (contract of PJRT plugins)
unsafe impl Sync for Api {}

impl Api {
    /// Loads a library and starts the plugin in it.
    ///
    /// # Safety
    /// The code of the file runs in this process: the library must be sound to load, and its
    /// `GetPjrtApi`, if it exports one, must be that of a PJRT plugin.
    pub(super) unsafe fn load(path: &Path) -> Result<Api, PluginLoadError> {
        // SAFETY: the library is sound to load (caller contract)
        let library = unsafe { libloading::Library::new(path) }
            .map_err(|e| PluginLoadError::NoLibrary(root_cause(&e)))?;
        // SAFETY: `GetPjrtApi` is that of a PJRT plugin, so it has this type (caller contract)
        let table = unsafe {
            match library.get::<extern "C" fn() -> *const u8>(b"GetPjrtApi\0") {
                Ok(get) => get(),
                Err(_) => return Err(PluginLoadError::NoPlugin),
            }
        };
        // the library is never unloaded, since the table points into it
        std::mem::forget(library);
        if table.is_null() || !table.addr().is_multiple_of(align_of::<usize>()) {
            return Err(PluginLoadError::NoPlugin);
        }
        // SAFETY: a table starts with its size, a pointer, and a version struct of size, pointer,
        // major and minor (contract of PJRT plugins)
        let (size, major, minor) = unsafe {
            let number = |at: usize| table.add(at).cast::<i32>().read();
            (table.cast::<usize>().read(), number(32), number(36))
        };
        if size < MIN_TABLE_BYTES || major != 0 {
            return Err(PluginLoadError::Version((major, minor), size));
        }
        let api = Api { table, size, version: (major, minor) };
        if let Some((_, name)) = REQUIRED.iter().find(|f| !api.has(f.0)) {
            return Err(PluginLoadError::NoFunction(name));
        }
        // SAFETY: `PJRT_Plugin_Initialize_Args` has two words
        unsafe { api.call(PLUGIN_INITIALIZE, &mut [0; 2]) }.map_err(PluginLoadError::Start)?;
        Ok(api)
    }
    /// Returns true if the table has a function at this offset.
    fn has(&self, FunctionOffset(at): FunctionOffset) -> bool {
        // SAFETY: the offset is in the table, which is aligned (checked by `load`)
        at + size_of::<usize>() <= self.size && unsafe { self.table.add(at).cast::<usize>().read() != 0 }
    }
    /// Calls a function; an error is the plugin's message.
    ///
    /// # Safety
    /// `words` are the argument struct of this function, which returns an error, and everything
    /// that they point to lives until it returns.
    pub(super) unsafe fn call(&self, function: FunctionOffset, words: CallWords<'_>) -> Result<(), String> {
        let FunctionOffset(at) = function;
        if !self.has(function) {
            return Err(format!("the plugin has no function at byte {at} of its table"));
        }
        words[0] = size_of_val(words);
        // SAFETY: at this offset the table has a function that takes one such struct and returns an
        // error (contract of PJRT plugins); `words` are its arguments (caller contract)
        let error = unsafe {
            let f = self.table.add(at).cast::<extern "C" fn(*mut usize) -> usize>().read();
            f(words.as_mut_ptr())
        };
        if error == 0 {
            return Ok(());
        }
        let mut message = [0, 0, error, 0, 0];
        // SAFETY: `error` is an error returned by the plugin; its message lives until the error is
        // destroyed, which happens once
        unsafe {
            self.call_void(ERROR_MESSAGE, &mut message);
            let text = String::from_utf8_lossy(text_bytes(message[3], message[4])).trim_end().to_string();
            self.call_void(ERROR_DESTROY, &mut [0, 0, error]);
            Err(if text.is_empty() { "it gave no reason".into() } else { text })
        }
    }
    /// Calls a function that returns nothing: one of those for errors.
    ///
    /// # Safety
    /// The contract of `call` applies, except that the function returns nothing.
    unsafe fn call_void(&self, FunctionOffset(at): FunctionOffset, words: CallWords<'_>) {
        words[0] = size_of_val(words);
        // SAFETY: `load` has checked that the table has the functions for errors, which take one
        // such struct and return nothing (contract of PJRT plugins)
        unsafe {
            let f = self.table.add(at).cast::<extern "C" fn(*mut usize)>().read();
            f(words.as_mut_ptr());
        }
    }
}

/// Returns the message of the innermost cause of an error.
fn root_cause(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// Returns the bytes of a text; an empty slice if the address is 0, or the length is 0 or above
/// [`MAX_TEXT_BYTES`].
///
/// # Safety
/// Otherwise `at` points to `len` bytes that stay valid while the result is used.
unsafe fn text_bytes<'a>(at: usize, len: usize) -> &'a [u8] {
    if len == 0 || at == 0 || len > MAX_TEXT_BYTES {
        return &[];
    }
    // SAFETY: `at` points to `len` valid bytes (caller contract)
    unsafe { slice::from_raw_parts(pointer(at), len) }
}

/// A kind of object of a plugin.
pub(super) trait ObjectKind {
    /// The name of the kind in errors.
    const NAME: &'static str;
    /// The function that destroys an object.
    const DESTROY: FunctionOffset;
}
macro_rules! object_kinds { ($($kind:ident $name:literal $destroy:ident;)*) => { $(
    #[derive(Debug)]
    pub(super) enum $kind {}
    impl ObjectKind for $kind {
        const NAME: &'static str = $name;
        const DESTROY: FunctionOffset = $destroy;
    }
)* } }
object_kinds! {
    ClientKind "client" CLIENT_DESTROY;
    EventKind "event" EVENT_DESTROY;
    ExecutableKind "executable" EXECUTABLE_DESTROY;
    LoadedKind "executable" LOADED_DESTROY;
    BufferKind "buffer" BUFFER_DESTROY;
}

/// A function that takes one object of kind `K`, and returns `N` words.
pub(super) struct ObjectGetter<K, const N: usize>(FunctionOffset, PhantomData<K>);
/// A function that takes one object of kind `K`, and returns the address and the length of a list
/// of `T`, which lives as long as the object.
pub(super) struct ListGetter<K, T>(ObjectGetter<K, 2>, PhantomData<T>);

impl<K, const N: usize> ObjectGetter<K, N> {
    const fn at(offset: FunctionOffset) -> ObjectGetter<K, N> {
        ObjectGetter(offset, PhantomData)
    }
}

pub(super) const GET_ALL_DEVICES: ListGetter<ClientKind, usize> =
    ListGetter(ObjectGetter::at(CLIENT_ALL_DEVICES), PhantomData);
pub(super) const GET_DEVICES: ListGetter<ClientKind, usize> =
    ListGetter(ObjectGetter::at(CLIENT_DEVICES), PhantomData);
pub(super) const GET_PLATFORM: ListGetter<ClientKind, u8> =
    ListGetter(ObjectGetter::at(CLIENT_PLATFORM), PhantomData);
pub(super) const GET_NUM_OUTPUTS: ObjectGetter<ExecutableKind, 1> = ObjectGetter::at(EXECUTABLE_OUTPUTS);
const GET_UNLOADED: ObjectGetter<LoadedKind, 1> = ObjectGetter::at(LOADED_EXECUTABLE);
const GET_TYPE: ObjectGetter<BufferKind, 1> = ObjectGetter::at(BUFFER_TYPE);
const GET_DIMENSIONS: ListGetter<BufferKind, i64> =
    ListGetter(ObjectGetter::at(BUFFER_DIMENSIONS), PhantomData);
const AWAIT: ObjectGetter<EventKind, 0> = ObjectGetter::at(EVENT_AWAIT);

/// A handle to an object of the plugin, which is destroyed when the handle is dropped.
pub(super) struct OwnedHandle<K: ObjectKind> {
    pub(super) api: Arc<Api>,
    pub(super) word: usize,
    kind: PhantomData<K>,
}
impl<K: ObjectKind> OwnedHandle<K> {
    /// Takes over an object of this kind that the plugin returned.
    pub(super) fn new(api: &Arc<Api>, word: usize) -> Result<OwnedHandle<K>, String> {
        match word {
            0 => Err(format!("the plugin returned no {}", K::NAME)),
            word => Ok(OwnedHandle { api: api.clone(), word, kind: PhantomData }),
        }
    }
    /// Calls a function of this object, and returns its results.
    pub(super) fn get<const N: usize>(&self, getter: ObjectGetter<K, N>) -> Result<[usize; N], String> {
        let mut words = [0, 0, self.word, 0, 0];
        // SAFETY: the function takes an object of this kind and returns `N` words, at most two
        // (invariant of `ObjectGetter`, whose values are the constants above and `K::DESTROY`)
        unsafe { self.api.call(getter.0, &mut words[..3 + N])? };
        Ok(std::array::from_fn(|k| words[3 + k]))
    }
    /// Copies a list of this object that has at most `max` elements; `what` names them.
    pub(super) fn list<T: Copy>(
        &self,
        getter: ListGetter<K, T>,
        max: usize,
        what: &str,
    ) -> Result<Vec<T>, String> {
        let [at, len] = self.get(getter.0)?;
        if len == 0 {
            return Ok(Vec::new());
        }
        if len > max || at == 0 || !at.is_multiple_of(align_of::<T>()) {
            return Err(format!("the plugin returned a list of {len} {what} at address {at:#x}"));
        }
        // SAFETY: `at` points to `len` elements as long as the object lives (contract of PJRT
        // plugins for this function), and is neither null nor misaligned
        Ok(unsafe { slice::from_raw_parts(pointer::<T>(at), len) }.to_vec())
    }
}
impl<K: ObjectKind> Drop for OwnedHandle<K> {
    fn drop(&mut self) {
        // the object is destroyed once, by the function for its kind
        let _ = self.get::<0>(ObjectGetter::at(K::DESTROY));
    }
}
impl<K: ObjectKind> fmt::Debug for OwnedHandle<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.word)
    }
}

/// Waits for an event and destroys it.
pub(super) fn await_event(api: &Arc<Api>, event: usize) -> Result<(), String> {
    if event == 0 {
        return Ok(());
    }
    OwnedHandle::new(api, event)?.get(AWAIT).map(|[]| ())
}

/// A compiled module, loaded onto its devices.
#[derive(Debug)]
pub(super) struct RawExecutable {
    pub(super) loaded: OwnedHandle<LoadedKind>,
    pub(super) outputs: usize,
    /// The ranks of the processes that run it together; empty if the client has only this one.
    pub(super) ranks: Vec<i32>,
    /// The ids of their runs.
    pub(super) incarnations: Vec<u64>,
}

impl RawExecutable {
    /// Returns a handle to the compiled module without its devices.
    pub(super) fn unloaded(&self) -> Result<OwnedHandle<ExecutableKind>, String> {
        let [word] = self.loaded.get(GET_UNLOADED)?;
        OwnedHandle::new(&self.loaded.api, word)
    }
    /// Returns the name of the format of the optimised module, and the module in that format.
    pub(super) fn optimized(&self) -> Result<(String, Vec<u8>), String> {
        let inner = self.unloaded()?;
        // PJRT_Program: size, extensions, code and its length, format and its length
        let mut program = [48usize, 0, 0, 0, 0, 0];
        let mut words = [0, 0, inner.word, program.as_mut_ptr().expose_provenance()];
        // SAFETY: these are PJRT_Executable_OptimizedProgram_Args; without a buffer for the code,
        // the call returns the length of the code
        unsafe { inner.api.call(EXECUTABLE_OPTIMIZED, &mut words)? };
        let len = program[3];
        let mut code = Vec::new();
        if len > MAX_MODULE_BYTES || code.try_reserve_exact(len).is_err() {
            return Err(format!("the plugin returned an optimised module of {len} bytes"));
        }
        code.resize(len, 0u8);
        program[2] = code.as_mut_ptr().expose_provenance();
        // SAFETY: these are the same arguments, now with a buffer of the length that the first call
        // returned; the format's name lives as long as the executable
        let format = unsafe {
            inner.api.call(EXECUTABLE_OPTIMIZED, &mut words)?;
            String::from_utf8_lossy(text_bytes(program[4], program[5])).into_owned()
        };
        Ok((format, code))
    }
    /// Runs the module on `devices` devices and waits for it. It passes the results to `result`,
    /// each with the position of its device: the first result of all devices, then the second one.
    ///
    /// `argument(d, k)` is the argument `k` of `given` on the device at position `d`. The buffers
    /// must belong to the executable's client. The arguments with the indices `kept` are not
    /// donated, even if the module donates them. `words` is memory that runs use one after another.
    pub(super) fn run<'a, E: From<String>>(
        &self,
        (devices, given): (usize, usize),
        argument: &dyn Fn(usize, usize) -> &'a RawBuffer,
        kept: &[i64],
        words: &mut Vec<usize>,
        result: &mut dyn FnMut(usize, RawBuffer) -> Result<(), E>,
    ) -> Result<(), E> {
        // a list of arguments and one of results for each device, then the addresses of both lists,
        // and an event for each device
        let (made, ins) = (devices * given, devices * (given + self.outputs));
        let (outs, events) = (ins + devices, ins + 2 * devices);
        words.clear();
        words.extend((0..devices).flat_map(|d| (0..given).map(move |k| argument(d, k).0.word)));
        words.resize(events + devices, 0);
        let start = address(words.as_ptr());
        let at = |word: usize| start + word * size_of::<usize>();
        for d in 0..devices {
            (words[ins + d], words[outs + d]) = (at(d * given), at(made + d * self.outputs));
        }
        let started = self.execute((devices, given), words, [ins, outs, events], kept);
        let api = &self.loaded.api;
        let mut done = started;
        for event in &words[events..] {
            // wait for all events, even if one failed
            let end = await_event(api, *event);
            done = done.and(end);
        }
        let mut done = done.map_err(E::from);
        let results = &words[made..ins];
        let count =
            |d: usize| results[d * self.outputs..][..self.outputs].iter().filter(|w| **w != 0).count();
        if let (Ok(()), Some(d)) = (&done, (0..devices).find(|d| count(*d) != self.outputs)) {
            done = Err(format!("device {d} has {} results", count(d)).into());
        }
        for (k, d) in (0..self.outputs).flat_map(|k| (0..devices).map(move |d| (k, d))) {
            // each buffer has an owner, also after a failure
            if let (Ok(buffer), Ok(())) = (OwnedHandle::new(api, results[d * self.outputs + k]), &done) {
                done = result(d, RawBuffer(buffer));
            }
        }
        done
    }
    /// Starts a run. `words` has the lists that [`run`](Self::run) describes at the positions
    /// `[ins, outs, events]`.
    fn execute(
        &self,
        (devices, given): (usize, usize),
        words: &mut [usize],
        lists: [usize; 3],
        kept: &[i64],
    ) -> Result<(), String> {
        // PJRT_ExecuteOptions, larger than in any known version: unknown fields are null
        let mut options = [0usize; 18];
        options[0] = size_of_val(&options);
        options[7..9].copy_from_slice(&[address(kept.as_ptr()), kept.len()]);
        // the runs of the processes that take part, so that XLA knows which ones it waits for
        if !self.ranks.is_empty() {
            options[11..14].copy_from_slice(&[
                self.ranks.len(),
                address(self.ranks.as_ptr()),
                address(self.incarnations.as_ptr()),
            ]);
        }
        let start = words.as_mut_ptr().expose_provenance();
        let [ins, outs, events] = lists.map(|word| start + word * size_of::<usize>());
        let mut arguments = [
            0,
            0,
            self.loaded.word,
            options.as_mut_ptr().expose_provenance(),
            ins,
            devices,
            given,
            outs,
            events,
            0,
        ];
        // SAFETY: these are PJRT_LoadedExecutable_Execute_Args; each device's list has `given`
        // arguments and space for `outputs` results, and there is one event for each device (caller
        // contract of this private function). All lists live until the call returns, and the plugin
        // does not access them afterwards (contract of PJRT plugins)
        unsafe { self.loaded.api.call(LOADED_EXECUTE, &mut arguments) }
    }
}

/// A block of elements on one device.
#[derive(Debug)]
pub(super) struct RawBuffer(pub(super) OwnedHandle<BufferKind>);

impl RawBuffer {
    /// Returns the `PJRT_Buffer_Type` of the elements.
    pub(super) fn kind(&self) -> Result<usize, String> {
        // (the call writes a 32-bit integer)
        let [kind] = self.0.get(GET_TYPE)?;
        Ok(kind & 0xffff_ffff)
    }
    /// Returns the shape.
    pub(super) fn shape(&self) -> Result<Vec<usize>, String> {
        let dims = self.0.list(GET_DIMENSIONS, MAX_RANK, "dimensions")?;
        let size = |n: &i64| {
            usize::try_from(*n)
                .map_err(|_| format!("the plugin returned a result with a dimension of size {n}"))
        };
        dims.iter().map(size).collect()
    }
    /// Copies the elements in row-major order to `to`, which must have exactly their size.
    pub(super) fn read(&self, to: &mut [u8]) -> Result<(), String> {
        // minor to major: the last dimension varies fastest, whatever the order on the device
        let order: Vec<i64> = (0..self.shape()?.len() as i64).rev().collect();
        // PJRT_Buffer_MemoryLayout of type 0 (tiled), without tiles
        let layout = [80, 0, 56, 0, address(order.as_ptr()), order.len(), 0, 0, 0, 0];
        let target = to.as_mut_ptr().cast::<c_void>().expose_provenance();
        let mut words = [0, 0, self.0.word, address(layout.as_ptr()), target, to.len(), 0];
        // SAFETY: these are PJRT_Buffer_ToHostBuffer_Args; the plugin checks the size of the
        // target, which is borrowed until the event is complete
        unsafe { self.0.api.call(BUFFER_TO_HOST, &mut words)? };
        await_event(&self.0.api, words[6])
    }
}
