//! The C interface of PJRT plugins: the calls that running a module takes. All that is `unsafe` about them is here.
//!
//! A function of the interface takes one pointer to a struct of its arguments and returns an error or null. Every such struct is a run of
//! 8-byte words, the first its size in bytes, the second null, and results are written into words of it. Functions stand at fixed offsets
//! of one table that only grows (`pjrt_c_api.h`, versions 0.x). So offsets and words do, without a binding of the header.

use std::ffi::c_void;
use std::fmt;
use std::path::Path;
use std::slice;
use std::sync::Arc;

/// Where a function is in the table, in bytes.
#[derive(Clone, Copy)]
struct Function(usize);

const ERROR_DESTROY: Function = Function(40);
const ERROR_MESSAGE: Function = Function(48);
const PLUGIN_INITIALIZE: Function = Function(64);
const EVENT_DESTROY: Function = Function(80);
const EVENT_AWAIT: Function = Function(104);
const CLIENT_CREATE: Function = Function(120);
const CLIENT_DESTROY: Function = Function(128);
const CLIENT_PLATFORM: Function = Function(136);
const CLIENT_DEVICES: Function = Function(168);
const CLIENT_COMPILE: Function = Function(200);
const BUFFER_FROM_HOST: Function = Function(216);
const EXECUTABLE_DESTROY: Function = Function(360);
const EXECUTABLE_OUTPUTS: Function = Function(392);
const EXECUTABLE_OPTIMIZED: Function = Function(424);
const LOADED_DESTROY: Function = Function(440);
const LOADED_EXECUTABLE: Function = Function(448);
const LOADED_EXECUTE: Function = Function(480);
const BUFFER_DESTROY: Function = Function(504);
const BUFFER_TYPE: Function = Function(512);
const BUFFER_DIMENSIONS: Function = Function(520);
const BUFFER_TO_HOST: Function = Function(600);
/// What the table has at least: up to the last of these.
const TABLE: usize = 608;

/// The words of a call: what it is given and what it answers.
type Words<'a> = &'a mut [usize];

fn address<T>(of: *const T) -> usize {
    of.expose_provenance()
}
fn pointer<T>(word: usize) -> *const T {
    std::ptr::with_exposed_provenance(word)
}

/// Why a plugin cannot be used, before it is asked anything.
#[derive(Debug)]
pub(super) enum Unusable {
    /// The system could not load it, in its words.
    NoLibrary(String),
    /// It exports no `GetPjrtApi`.
    NoPlugin,
    /// Its interface is of this version, with a table of so many bytes.
    Version((i32, i32), usize),
    /// It refused to start, in its words.
    Start(String),
}

/// The table of a plugin that is loaded. Plugins stay until the process ends: threads of theirs run their code.
pub(super) struct Api {
    table: *const u8,
    pub(super) version: (i32, i32),
}
// SAFETY: the table is never written once the plugin has made it, and PJRT's functions may be called from any thread
unsafe impl Send for Api {}
// SAFETY: as above
unsafe impl Sync for Api {}

impl Api {
    /// Loads a library and starts the plugin that it is.
    ///
    /// # Safety
    /// The file's code runs in this process: it must be sound to load, and its `GetPjrtApi`, if it exports one, that of a PJRT plugin.
    pub(super) unsafe fn load(path: &Path) -> Result<Api, Unusable> {
        // SAFETY: the caller's
        let library =
            unsafe { libloading::Library::new(path) }.map_err(|e| Unusable::NoLibrary(deepest(&e)))?;
        // SAFETY: of this type, by the caller's promise
        let table = unsafe {
            match library.get::<extern "C" fn() -> *const u8>(b"GetPjrtApi\0") {
                Ok(get) => get(),
                Err(_) => return Err(Unusable::NoPlugin),
            }
        };
        // never unloaded: the table points into it
        std::mem::forget(library);
        if table.is_null() {
            return Err(Unusable::NoPlugin);
        }
        // SAFETY: a table begins with its size, a pointer, and a version that is size, pointer, major and minor
        let (size, major, minor) = unsafe {
            let number = |at: usize| table.add(at).cast::<i32>().read();
            (table.cast::<usize>().read(), number(32), number(36))
        };
        if size < TABLE || major != 0 {
            return Err(Unusable::Version((major, minor), size));
        }
        let api = Api { table, version: (major, minor) };
        // SAFETY: the words that it takes
        unsafe { api.call(PLUGIN_INITIALIZE, &mut [0; 2]) }.map_err(Unusable::Start)?;
        Ok(api)
    }
    /// Calls a function; what it refuses is its own words.
    ///
    /// # Safety
    /// The words are those that the function takes, and what they point to lives until it returns.
    unsafe fn call(&self, function: Function, words: Words<'_>) -> Result<(), String> {
        // SAFETY: the caller's
        let error = unsafe { self.enter(function, words) };
        if error == 0 {
            return Ok(());
        }
        let mut message = [0, 0, error, 0, 0];
        // SAFETY: an error has a message, which lives as long as it does, and it is destroyed once
        unsafe {
            self.enter(ERROR_MESSAGE, &mut message);
            let text = String::from_utf8_lossy(bytes(message[3], message[4])).trim_end().to_string();
            self.enter(ERROR_DESTROY, &mut [0, 0, error]);
            Err(if text.is_empty() { "it gave no reason".into() } else { text })
        }
    }
    /// # Safety
    /// As of `call`.
    unsafe fn enter(&self, Function(at): Function, words: Words<'_>) -> usize {
        words[0] = size_of_val(words);
        // SAFETY: the table is large enough, as `load` saw, and at this offset has a function of one such struct
        unsafe {
            let f = self.table.add(at).cast::<Option<extern "C" fn(*mut usize) -> usize>>().read();
            f.map_or(0, |f| f(words.as_mut_ptr()))
        }
    }
}

/// The last cause of an error: the system's words.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut at = error;
    while let Some(source) = at.source() {
        at = source;
    }
    at.to_string()
}

/// # Safety
/// There are so many bytes at this address, or none are claimed, for as long as the result is used.
unsafe fn bytes<'a>(at: usize, len: usize) -> &'a [u8] {
    if len == 0 || at == 0 {
        return &[];
    }
    // SAFETY: the caller's
    unsafe { slice::from_raw_parts(pointer(at), len) }
}

/// Something that a plugin made and that is given back to it.
struct Owned {
    api: Arc<Api>,
    word: usize,
    destroy: Function,
}
impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: it is destroyed once, by the function for its kind
        let _ = unsafe { self.api.call(self.destroy, &mut [0, 0, self.word]) };
    }
}
impl fmt::Debug for Owned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.word)
    }
}

/// A client: the devices of a plugin.
#[derive(Debug)]
pub(super) struct Client {
    owned: Owned,
    devices: Vec<usize>,
    pub(super) platform: String,
}

impl Client {
    /// Makes one; options are numbers by name.
    pub(super) fn new(api: &Arc<Api>, options: &[(&str, i64)]) -> Result<Client, String> {
        // size, extensions, name and its length, kind 1 (a number of 64 bits), the number, how many
        let named: Vec<[usize; 7]> = options
            .iter()
            .map(|(name, n)| [56, 0, address(name.as_ptr()), name.len(), 1, *n as usize, 1])
            .collect();
        let mut made = [0, 0, address(named.as_ptr()), named.len(), 0, 0, 0, 0, 0, 0, 0];
        // SAFETY: PJRT_Client_Create_Args; options live until it returns
        unsafe { api.call(CLIENT_CREATE, &mut made)? };
        let owned = Owned { api: api.clone(), word: made[8], destroy: CLIENT_DESTROY };
        let (mut held, mut named) = ([0, 0, owned.word, 0, 0], [0, 0, owned.word, 0, 0]);
        // SAFETY: both take a client and answer a list that lives as long as it does
        let (devices, platform) = unsafe {
            api.call(CLIENT_DEVICES, &mut held)?;
            api.call(CLIENT_PLATFORM, &mut named)?;
            let devices = match held[4] {
                0 => Vec::new(),
                n => slice::from_raw_parts(pointer::<usize>(held[3]), n).to_vec(),
            };
            (devices, String::from_utf8_lossy(bytes(named[3], named[4])).into_owned())
        };
        Ok(Client { owned, devices, platform })
    }
    /// How many devices this process may use.
    pub(super) fn devices(&self) -> usize {
        self.devices.len()
    }
    /// The version of its plugin's interface.
    pub(super) fn version(&self) -> (i32, i32) {
        self.owned.api.version
    }
    /// Compiles a module as text; `options` is a serialised `CompileOptionsProto`.
    pub(super) fn compile(&self, text: &str, options: &[u8]) -> Result<Executable, String> {
        let (api, format) = (&self.owned.api, "mlir");
        let program = [48, 0, address(text.as_ptr()), text.len(), address(format.as_ptr()), format.len()];
        let mut made =
            [0, 0, self.owned.word, address(program.as_ptr()), address(options.as_ptr()), options.len(), 0];
        // SAFETY: PJRT_Client_Compile_Args with a PJRT_Program; all of it lives until it returns
        unsafe { api.call(CLIENT_COMPILE, &mut made)? };
        let loaded = Owned { api: api.clone(), word: made[6], destroy: LOADED_DESTROY };
        let mut made = Executable { loaded, outputs: 0 };
        let mut outputs = [0, 0, made.inner()?.word, 0];
        // SAFETY: takes the executable
        unsafe { api.call(EXECUTABLE_OUTPUTS, &mut outputs)? };
        made.outputs = outputs[3];
        Ok(made)
    }
    /// A block of elements of the kind with this number, row-major, on a device; the bytes are copied.
    pub(super) fn put(
        &self,
        elements: &[u8],
        kind: usize,
        shape: &[usize],
        device: usize,
    ) -> Result<Buffer, String> {
        let api = &self.owned.api;
        let dims: Vec<i64> = shape.iter().map(|n| *n as i64).collect();
        let mut made = [0; 15];
        made[2..7].copy_from_slice(&[
            self.owned.word,
            address(elements.as_ptr()),
            kind,
            address(dims.as_ptr()),
            dims.len(),
        ]);
        // of no strides: dense; the bytes are the plugin's to read during the call only (semantics 0)
        made[10] = self.devices[device];
        // SAFETY: PJRT_Client_BufferFromHostBuffer_Args; elements and sizes live until it returns
        unsafe { api.call(BUFFER_FROM_HOST, &mut made)? };
        let buffer = Buffer(Owned { api: api.clone(), word: made[14], destroy: BUFFER_DESTROY });
        wait(api, made[13])?;
        Ok(buffer)
    }
}

/// Waits for an event, and gives it back.
fn wait(api: &Arc<Api>, event: usize) -> Result<(), String> {
    if event == 0 {
        return Ok(());
    }
    let event = Owned { api: api.clone(), word: event, destroy: EVENT_DESTROY };
    // SAFETY: takes the event
    unsafe { api.call(EVENT_AWAIT, &mut [0, 0, event.word]) }
}

/// What a module is compiled to.
#[derive(Debug)]
pub(super) struct Executable {
    loaded: Owned,
    pub(super) outputs: usize,
}

impl Executable {
    /// What is loaded, apart from its devices.
    fn inner(&self) -> Result<Owned, String> {
        let api = &self.loaded.api;
        let mut inner = [0, 0, self.loaded.word, 0];
        // SAFETY: takes the loaded executable
        unsafe { api.call(LOADED_EXECUTABLE, &mut inner)? };
        Ok(Owned { api: api.clone(), word: inner[3], destroy: EXECUTABLE_DESTROY })
    }
    /// The module as it was compiled, and the name of the form that it is in.
    pub(super) fn optimized(&self) -> Result<(String, Vec<u8>), String> {
        let inner = self.inner()?;
        // PJRT_Program: size, extensions, code and its length, format and its length
        let mut program = [48usize, 0, 0, 0, 0, 0];
        let mut words = [0, 0, inner.word, program.as_mut_ptr().expose_provenance()];
        // SAFETY: PJRT_Executable_OptimizedProgram_Args; without room for the code it answers how long that is
        unsafe { inner.api.call(EXECUTABLE_OPTIMIZED, &mut words)? };
        let mut code = vec![0u8; program[3]];
        program[2] = code.as_mut_ptr().expose_provenance();
        // SAFETY: the same, with room for as many bytes as it said; the format lives as long as the executable
        let format = unsafe {
            inner.api.call(EXECUTABLE_OPTIMIZED, &mut words)?;
            String::from_utf8_lossy(bytes(program[4], program[5])).into_owned()
        };
        Ok((format, code))
    }
    /// Runs it and waits: `arguments` and the results are lists, one for each device.
    ///
    /// The lists are of one length, their buffers of the executable's client. Those of arguments of the numbers `kept` are not donated,
    /// whatever the module says.
    pub(super) fn run(&self, arguments: &[Vec<&Buffer>], kept: &[i64]) -> Result<Vec<Vec<Buffer>>, String> {
        let api = &self.loaded.api;
        let (devices, given) = (arguments.len(), arguments.first().map_or(0, Vec::len));
        assert!(arguments.iter().all(|list| list.len() == given), "as many arguments on each device");
        let lists: Vec<Vec<usize>> =
            arguments.iter().map(|list| list.iter().map(|b| b.0.word).collect()).collect();
        let ins: Vec<usize> = lists.iter().map(|list| address(list.as_ptr())).collect();
        let mut made = vec![vec![0usize; self.outputs]; devices];
        let outs: Vec<usize> = made.iter_mut().map(|list| list.as_mut_ptr().expose_provenance()).collect();
        let mut events = vec![0usize; devices];
        // PJRT_ExecuteOptions of a later version than any known: what is not known is null
        let mut options = [0usize; 18];
        options[0] = size_of_val(&options);
        options[7..9].copy_from_slice(&[address(kept.as_ptr()), kept.len()]);
        let mut words = [
            0,
            0,
            self.loaded.word,
            options.as_mut_ptr().expose_provenance(),
            address(ins.as_ptr()),
            devices,
            given,
            address(outs.as_ptr()),
            events.as_mut_ptr().expose_provenance(),
            0,
        ];
        // SAFETY: PJRT_LoadedExecutable_Execute_Args; lists have as many entries as they say, results and events have room, and all of it
        // lives until the events have come
        let started = unsafe { api.call(LOADED_EXECUTE, &mut words) };
        let owned = |word| Buffer(Owned { api: api.clone(), word, destroy: BUFFER_DESTROY });
        let full = |list: Vec<usize>| list.into_iter().filter(|w| *w != 0).map(owned).collect();
        let results: Vec<Vec<Buffer>> = made.into_iter().map(full).collect();
        // all are waited for, whichever failed
        let ends: Vec<_> = events.into_iter().map(|event| wait(api, event)).collect();
        started?;
        ends.into_iter().collect::<Result<(), String>>()?;
        Ok(results)
    }
}

/// What is on one device.
#[derive(Debug)]
pub(super) struct Buffer(Owned);

impl Buffer {
    /// The number of its kind of elements.
    pub(super) fn kind(&self) -> Result<usize, String> {
        let mut words = [0, 0, self.0.word, 0];
        // SAFETY: takes the buffer; the kind is written as a number of 32 bits into a word of zeros
        unsafe { self.0.api.call(BUFFER_TYPE, &mut words)? };
        Ok(words[3] & 0xffff_ffff)
    }
    /// Its sizes.
    pub(super) fn shape(&self) -> Result<Vec<usize>, String> {
        let mut words = [0, 0, self.0.word, 0, 0];
        // SAFETY: takes the buffer, and answers a list that lives as long as it does
        unsafe {
            self.0.api.call(BUFFER_DIMENSIONS, &mut words)?;
            Ok(match words[4] {
                0 => Vec::new(),
                n => slice::from_raw_parts(pointer::<i64>(words[3]), n).iter().map(|n| *n as usize).collect(),
            })
        }
    }
    /// Copies its elements, row-major, to where there is room for all of them.
    pub(super) fn read(&self, to: &mut [u8]) -> Result<(), String> {
        // minor to major: the last dimension runs fastest, whatever the order on the device
        let order: Vec<i64> = (0..self.shape()?.len() as i64).rev().collect();
        // PJRT_Buffer_MemoryLayout: of kind 0, tiled, without tiles
        let layout = [80, 0, 56, 0, address(order.as_ptr()), order.len(), 0, 0, 0, 0];
        let target = to.as_mut_ptr().cast::<c_void>().expose_provenance();
        let mut words = [0, 0, self.0.word, address(layout.as_ptr()), target, to.len(), 0];
        // SAFETY: PJRT_Buffer_ToHostBuffer_Args; the plugin compares the size given with its own, and the target is borrowed until the event
        // has come
        unsafe { self.0.api.call(BUFFER_TO_HOST, &mut words)? };
        wait(&self.0.api, words[6])
    }
}
