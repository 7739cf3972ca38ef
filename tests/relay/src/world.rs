//! A client of several processes: its devices, callbacks and connections, and who is alive.

use crate::errors::{Code, fail_if_asked};
use crate::guarded;
use crate::link::Link;
use crate::real::{self, Call, address, bytes, copied, set_word, word};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The time that a process waits for the values of the others, in milliseconds.
const KV_TIMEOUT_MS: usize = 120_000;

/// A client of several processes.
pub(crate) struct World {
    /// The address of the client of the plugin below, which has the devices of all processes.
    client: usize,
    /// The rank of this process.
    pub(crate) process: usize,
    /// The number of devices of each process.
    pub(crate) each: usize,
    /// The devices of all processes by number, each with the address of its description.
    pub(crate) devices: Vec<(usize, usize)>,
    /// The addresses of this process's devices, as the interface returns them.
    own: Vec<usize>,
    /// The executables of this client, each with its number of results.
    executables: Mutex<Vec<(usize, usize)>>,
    /// The connections: to all others on process 0, and to process 0 on the others.
    pub(crate) links: Mutex<Vec<Link>>,
    /// The reason why collectives are aborted, once `UpdateGlobalProcessInfo` has named a process.
    aborted: Mutex<Option<String>>,
}

static WORLDS: Mutex<Vec<Arc<World>>> = Mutex::new(Vec::new());

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}
fn find(test: impl Fn(&World) -> bool) -> Option<Arc<World>> {
    lock(&WORLDS).iter().find(|world| test(world)).cloned()
}

impl World {
    pub(crate) fn abort_reason(&self) -> Option<String> {
        lock(&self.aborted).clone()
    }
    /// Returns the process that owns a device.
    pub(crate) fn owner(&self, number: usize) -> usize {
        number / self.each
    }
    /// Returns the world of an executable, and its number of results.
    pub(crate) fn of_executable(loaded: usize) -> Option<(Arc<World>, usize)> {
        lock(&WORLDS).iter().find_map(|world| {
            let results = lock(&world.executables).iter().find(|e| e.0 == loaded)?.1;
            Some((world.clone(), results))
        })
    }
    /// Copies elements to a device of any process, through the client of the plugin below.
    pub(crate) fn put(
        &self,
        elements: &[u8],
        kind: usize,
        dims: &[i64],
        device: usize,
    ) -> Result<usize, Call> {
        let mut words = [0; 15];
        let (at, sizes) = (address(elements.as_ptr()), address(dims.as_ptr()));
        words[2..7].copy_from_slice(&[self.client, at, kind, sizes, dims.len()]);
        words[10] = self.devices[device].0;
        real::call(real::BUFFER_FROM_HOST, &mut words)?;
        real::wait(words[13])?;
        Ok(words[14])
    }
}

/// The options and callbacks with which a client is created.
struct Settings {
    processes: usize,
    process: usize,
    each: usize,
    /// The options that the plugin below may know, as the interface has them.
    others: Vec<[usize; 7]>,
    /// The callbacks: `get` and its user word, `put` and its user word, `try_get` and its user word.
    callbacks: [usize; 6],
}

fn settings(arguments: *mut usize) -> Settings {
    let callbacks = [4, 5, 6, 7, 9, 10].map(|index| word(arguments, index));
    let mut found = Settings { processes: 1, process: 0, each: 1, others: Vec::new(), callbacks };
    for option in copied::<[usize; 7]>(word(arguments, 2), word(arguments, 3)) {
        match &*bytes(option[2], option[3]) {
            b"num_nodes" => found.processes = option[5],
            b"node_id" => found.process = option[5],
            b"cpu_device_count" => found.each = option[5],
            // options of GPU plugins, which have no meaning here
            b"visible_devices" | b"abort_collectives_on_failure" | b"use_tfrt_gpu_client" => {}
            _ => found.others.push(option),
        }
    }
    found
}

pub(crate) extern "C" fn create(arguments: *mut usize) -> usize {
    let found = settings(arguments);
    if found.processes == 1 {
        return real::forward_call(real::CLIENT_CREATE, arguments);
    }
    guarded(|| {
        let world = join(found)?;
        set_word(arguments, 8, world.client);
        lock(&WORLDS).push(Arc::new(world));
        Ok(())
    })
}

/// Creates the client of all devices, and connects the processes.
fn join(settings: Settings) -> Result<World, Call> {
    let Settings { processes, process, each, mut others, callbacks } = settings;
    if process >= processes || each == 0 {
        let message = format!("node_id {process}, num_nodes {processes}, cpu_device_count {each}");
        return Err(Call::own(Code::InvalidArgument, message));
    }
    if callbacks[..4].contains(&0) {
        return Err(Call::own(Code::InvalidArgument, "several nodes need the key-value callbacks"));
    }
    let name = "cpu_device_count";
    others.push([56, 0, address(name.as_ptr()), name.len(), 1, processes * each, 1]);
    let mut words = [0, 0, address(others.as_ptr()), others.len(), 0, 0, 0, 0, 0, 0, 0];
    real::call(real::CLIENT_CREATE, &mut words)?;
    let client = words[8];
    let mut devices = Vec::new();
    for device in real::list(real::CLIENT_DEVICES, client)? {
        let description = real::get(real::DEVICE_DESCRIPTION, device)?;
        let id = real::get(real::DESCRIPTION_ID, description)? & 0xffff_ffff;
        devices.push((id, device, description));
    }
    devices.sort_unstable();
    let devices: Vec<(usize, usize)> = devices.into_iter().map(|(_, device, at)| (device, at)).collect();
    if devices.len() != processes * each {
        let message = format!("the plugin below has {} devices of {}", devices.len(), processes * each);
        return Err(Call::own(Code::Internal, message));
    }
    let own = devices[process * each..(process + 1) * each].iter().map(|d| d.0).collect();
    let links = connect(&KeyValue { callbacks }, process, processes)?;
    Ok(World {
        client,
        process,
        each,
        devices,
        own,
        executables: Mutex::default(),
        links: Mutex::new(links),
        aborted: Mutex::default(),
    })
}

/// Connects all processes to process 0, whose address the key-value store has.
fn connect(store: &KeyValue, process: usize, processes: usize) -> Result<Vec<Link>, Call> {
    let failed = |e: std::io::Error| Call::own(Code::Internal, format!("the relay cannot connect: {e}"));
    // no process has a client before all of them are there
    if store.try_get("relay/no such key")?.is_some() {
        return Err(Call::own(Code::Internal, "the store has a value that was never stored"));
    }
    if process > 0 {
        let address = String::from_utf8_lossy(&store.get("relay/address")?).into_owned();
        let mut link = Link::new(TcpStream::connect(&*address).map_err(failed)?, 0).map_err(failed)?;
        link.send(&(process as u64).to_le_bytes(), &|| None)?;
        store.get("relay/complete")?;
        return Ok(vec![link]);
    }
    let listener = TcpListener::bind("127.0.0.1:0").map_err(failed)?;
    store.put("relay/address", listener.local_addr().map_err(failed)?.to_string().as_bytes())?;
    let mut links: Vec<Option<Link>> = (0..processes).map(|_| None).collect();
    while links[1..].iter().any(Option::is_none) {
        let (stream, _) = listener.accept().map_err(failed)?;
        let mut link = Link::new(stream, 0).map_err(failed)?;
        let peer = link.receive(&|| None)?;
        let peer = u64::from_le_bytes(peer.try_into().unwrap_or_default()) as usize;
        link.set_peer(peer);
        links[peer] = Some(link);
    }
    store.put("relay/complete", b"")?;
    Ok(links.into_iter().flatten().collect())
}

/// The key-value callbacks of a client.
struct KeyValue {
    callbacks: [usize; 6],
}

/// The function with which callbacks make their errors.
static MAKE_ERROR: extern "C" fn(i32, *const u8, usize) -> usize = make_error;
extern "C" fn make_error(code: i32, message: *const u8, len: usize) -> usize {
    let text = String::from_utf8_lossy(&bytes(address(message), len)).into_owned();
    Call::own(Code::Unavailable, format!("{text} (code {code})")).into_word()
}

impl KeyValue {
    fn run(&self, callback: usize, words: &mut [usize]) -> Result<(), Call> {
        words[0] = size_of_val(words);
        // SAFETY: the word is a callback of the client, which takes these arguments
        let function: real::Function = unsafe { std::mem::transmute(self.callbacks[callback]) };
        match function(words.as_mut_ptr()) {
            0 => Ok(()),
            error => Err(Call::adopt(error)),
        }
    }
    fn put(&self, key: &str, value: &[u8]) -> Result<(), Call> {
        let error = address(&raw const MAKE_ERROR);
        let (key, len, value, size) =
            (address(key.as_ptr()), key.len(), address(value.as_ptr()), value.len());
        self.run(2, &mut [0, 0, key, len, value, size, error, self.callbacks[3]])
    }
    fn get(&self, key: &str) -> Result<Vec<u8>, Call> {
        let (at, len, error) = (address(key.as_ptr()), key.len(), address(&raw const MAKE_ERROR));
        let mut words = [0, 0, at, len, KV_TIMEOUT_MS, error, self.callbacks[1], 0, 0, 0];
        self.run(0, &mut words)?;
        Ok(take_value(words[7], words[8], words[9]))
    }
    /// Returns a value, or `None` if there is none; clients without the callback have none.
    fn try_get(&self, key: &str) -> Result<Option<Vec<u8>>, Call> {
        if self.callbacks[4] == 0 {
            return Ok(None);
        }
        let (at, len, error) = (address(key.as_ptr()), key.len(), address(&raw const MAKE_ERROR));
        let mut words = [0, 0, at, len, error, self.callbacks[5], 0, 0, 0];
        match self.run(4, &mut words) {
            Ok(()) => Ok(Some(take_value(words[6], words[7], words[8]))),
            Err(error) if error.text().contains("(code 5)") => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Copies a value that a callback returned, and calls its deleter.
fn take_value(at: usize, len: usize, deleter: usize) -> Vec<u8> {
    let value = bytes(at, len);
    if deleter != 0 {
        // SAFETY: the callback returned this function with the value
        let delete: extern "C" fn(usize) = unsafe { std::mem::transmute(deleter) };
        delete(at);
    }
    value
}

pub(crate) extern "C" fn destroy(arguments: *mut usize) -> usize {
    lock(&WORLDS).retain(|world| world.client != word(arguments, 2));
    real::forward_call(real::CLIENT_DESTROY, arguments)
}

pub(crate) extern "C" fn process_of_client(arguments: *mut usize) -> usize {
    match find(|world| world.client == word(arguments, 2)) {
        Some(world) => {
            set_int(arguments, world.process);
            0
        }
        None => real::forward_call(real::CLIENT_PROCESS, arguments),
    }
}

pub(crate) extern "C" fn own_devices(arguments: *mut usize) -> usize {
    match find(|world| world.client == word(arguments, 2)) {
        Some(world) => {
            // the list lives as long as the client
            set_word(arguments, 3, address(world.own.as_ptr()));
            set_word(arguments, 4, world.own.len());
            0
        }
        None => real::forward_call(real::CLIENT_OWN_DEVICES, arguments),
    }
}

pub(crate) extern "C" fn process_of_description(arguments: *mut usize) -> usize {
    let described = word(arguments, 2);
    let place = |world: &World| world.devices.iter().position(|d| d.1 == described);
    match find(|world| place(world).is_some()) {
        Some(world) => {
            set_int(arguments, world.owner(place(&world).unwrap_or(0)));
            0
        }
        None => real::forward_call(real::DESCRIPTION_PROCESS, arguments),
    }
}

pub(crate) extern "C" fn is_own(arguments: *mut usize) -> usize {
    let device = word(arguments, 2);
    match find(|world| world.devices.iter().any(|d| d.0 == device)) {
        Some(world) => {
            // SAFETY: the result is one byte in the fourth word (contract of the interface)
            unsafe { arguments.add(3).cast::<u8>().write(u8::from(world.own.contains(&device))) };
            0
        }
        None => real::forward_call(real::DEVICE_IS_OWN, arguments),
    }
}

/// Writes a 32-bit result into the fourth word.
fn set_int(arguments: *mut usize, value: usize) {
    // SAFETY: the result is a 32-bit integer in the fourth word (contract of the interface)
    unsafe { arguments.add(3).cast::<i32>().write(value as i32) };
}

/// Rejects buffers on the devices of other processes, as real plugins do.
pub(crate) extern "C" fn buffer_from_host(arguments: *mut usize) -> usize {
    let (client, device) = (word(arguments, 2), word(arguments, 10));
    match find(|world| world.client == client && !world.own.contains(&device)) {
        Some(_) => Call::own(Code::InvalidArgument, "cannot copy to a non-addressable device").into_word(),
        None => real::forward_call(real::BUFFER_FROM_HOST, arguments),
    }
}

pub(crate) extern "C" fn compile(arguments: *mut usize) -> usize {
    if let Err(error) = fail_if_asked("compile") {
        return error.into_word();
    }
    let error = real::forward_call(real::CLIENT_COMPILE, arguments);
    if error != 0 {
        return error;
    }
    let Some(world) = find(|world| world.client == word(arguments, 2)) else { return 0 };
    guarded(|| {
        let loaded = word(arguments, 6);
        let inner = real::get(real::LOADED_EXECUTABLE, loaded)?;
        let results = real::get(real::EXECUTABLE_OUTPUTS, inner);
        real::call(real::EXECUTABLE_DESTROY, &mut [0, 0, inner])?;
        lock(&world.executables).push((loaded, results?));
        Ok(())
    })
}

pub(crate) extern "C" fn destroy_executable(arguments: *mut usize) -> usize {
    if let Some((world, _)) = World::of_executable(word(arguments, 2)) {
        lock(&world.executables).retain(|e| e.0 != word(arguments, 2));
    }
    real::forward_call(real::LOADED_DESTROY, arguments)
}

/// Learns which processes are connected, and aborts collectives if one is not.
pub(crate) extern "C" fn update_processes(arguments: *mut usize) -> usize {
    /// The state of a process that has failed (`PJRT_ProcessState`).
    const FAILED: usize = 4;
    let Some(world) = find(|world| world.client == word(arguments, 2)) else {
        return real::forward_call(real::UPDATE_PROCESSES, arguments);
    };
    for info in copied::<[usize; 6]>(word(arguments, 3), word(arguments, 4)) {
        if info[3] & 0xffff_ffff == FAILED {
            let message = format!("Task with incarnation id {} is not connected", info[2]);
            lock(&world.aborted).get_or_insert(message);
        }
    }
    0
}
