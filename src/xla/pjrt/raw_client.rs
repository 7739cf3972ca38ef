//! Clients as the C interface has them: devices, compilation, and copies to devices.

use super::api::{
    Api, ClientKind, GET_ALL_DEVICES, GET_DEVICES, GET_NUM_OUTPUTS, GET_PLATFORM, MAX_DEVICES, MAX_RESULTS,
    MAX_TEXT_BYTES, OwnedHandle, RawBuffer, RawExecutable, address, await_event, incarnation,
};
use super::callbacks::{Callbacks, KeyValueStore};
use super::client_options::{ClientOptions, OptionValue};
use super::functions::{
    BUFFER_FROM_HOST, CLIENT_COMPILE, CLIENT_CREATE, CLIENT_UPDATE_PROCESSES, DESCRIPTION_ID,
    DESCRIPTION_PROCESS, DEVICE_DESCRIPTION,
};
use std::sync::Arc;

/// A device of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RawDevice {
    /// The rank of the process that owns it.
    pub(super) process: usize,
    /// The number of the device in XLA, which device assignments use.
    pub(super) id: i64,
    word: usize,
}

/// A client: the connection to the devices of a plugin.
#[derive(Debug)]
pub(super) struct RawClient {
    owned: OwnedHandle<ClientKind>,
    /// The devices of all processes, process by process.
    pub(super) devices: Vec<RawDevice>,
    /// The indices of the devices of this process.
    pub(super) own: Vec<usize>,
    pub(super) platform: String,
    /// The callbacks of a client of several processes. They live longer than `owned`, which is
    /// dropped first.
    callbacks: Option<Callbacks>,
}

impl RawClient {
    /// Creates a client with the plugin's options. With a store, it spans several processes.
    pub(super) fn new(
        api: &Arc<Api>,
        options: &ClientOptions,
        store: Option<&Arc<dyn KeyValueStore>>,
    ) -> Result<RawClient, String> {
        // PJRT_NamedValue: size, extensions, name and its length, type, value, number of values
        let named: Vec<[usize; 7]> = options
            .iter()
            .map(|(name, value)| {
                let (kind, word, count) = match value {
                    OptionValue::Text(text) => (0, address(text.as_ptr()), text.len()),
                    OptionValue::Int(n) => (1, *n as usize, 1),
                    OptionValue::IntList(list) => (2, address(list.as_ptr()), list.len()),
                    OptionValue::Float(x) => (3, x.to_bits() as usize, 1),
                    OptionValue::Bool(yes) => (4, usize::from(*yes), 1),
                };
                [56, 0, address(name.as_ptr()), name.len(), kind, word, count]
            })
            .collect();
        let mut made = [0, 0, address(named.as_ptr()), named.len(), 0, 0, 0, 0, 0, 0, 0];
        let callbacks = store.map(|store| Callbacks::new(store.clone()));
        if let Some(callbacks) = &callbacks {
            let [get, put, try_get] = callbacks.words();
            (made[4], made[5], made[6], made[7], made[9], made[10]) =
                (get.0, get.1, put.0, put.1, try_get.0, try_get.1);
        }
        // SAFETY: these are PJRT_Client_Create_Args; the options live until the call returns, and the
        // callbacks live longer than the client
        unsafe { api.call(CLIENT_CREATE, &mut made)? };
        let owned = OwnedHandle::new(api, made[8])?;
        let own_words = owned.list(GET_DEVICES, MAX_DEVICES, "devices")?;
        let platform = owned.list(GET_PLATFORM, MAX_TEXT_BYTES, "characters")?;
        let platform = String::from_utf8_lossy(&platform).into_owned();
        let all_words = match &callbacks {
            Some(_) => owned.list(GET_ALL_DEVICES, MAX_DEVICES, "devices")?,
            None => own_words.clone(),
        };
        if own_words.contains(&0) || all_words.contains(&0) {
            return Err("the plugin returned a list of devices with a null pointer".into());
        }
        let mut devices = match &callbacks {
            Some(_) => all_words.iter().map(|word| describe(api, *word)).collect::<Result<Vec<_>, _>>()?,
            None => all_words.iter().map(|word| RawDevice { process: 0, id: 0, word: *word }).collect(),
        };
        if callbacks.is_some() {
            devices.sort_unstable();
        }
        let own = (0..devices.len()).filter(|k| own_words.contains(&devices[*k].word)).collect();
        Ok(RawClient { owned, devices, own, platform, callbacks })
    }
    /// Returns true if the client spans several processes.
    pub(super) fn has_processes(&self) -> bool {
        self.callbacks.is_some()
    }
    /// Reports which processes are connected: all but `gone`, of which the reason is given.
    pub(super) fn update_processes(&self, gone: Option<(usize, &str)>) -> Result<(), String> {
        // states of a process (`PJRT_ProcessState`), and the code of a lost connection
        const CONNECTED: usize = 3;
        const FAILED: usize = 4 | 14 << 32;
        let processes = self.devices.last().map_or(0, |device| device.process + 1);
        let info = |process: usize| {
            let (state, reason) = match gone {
                Some((lost, reason)) if lost == process => (FAILED, reason),
                _ => (CONNECTED, ""),
            };
            // PJRT_ProcessInfo: size, rank, incarnation, state and code, message and its length
            [48, process, incarnation(process) as usize, state, address(reason.as_ptr()), reason.len()]
        };
        let infos: Vec<[usize; 6]> = (0..processes).map(info).collect();
        let mut words = [0, 0, self.owned.word, address(infos.as_ptr()), infos.len()];
        // SAFETY: these are PJRT_Client_UpdateGlobalProcessInfo_Args; the list and its messages live
        // until the call returns
        unsafe { self.owned.api.call(CLIENT_UPDATE_PROCESSES, &mut words) }
    }
    /// Returns the version of the plugin's interface, major and minor.
    pub(super) fn version(&self) -> (i32, i32) {
        self.owned.api.version
    }
    /// Compiles the text of a module; `options` is a serialised `CompileOptionsProto`.
    pub(super) fn compile(&self, text: &str, options: &[u8]) -> Result<RawExecutable, String> {
        let (api, format) = (&self.owned.api, "mlir");
        let program = [48, 0, address(text.as_ptr()), text.len(), address(format.as_ptr()), format.len()];
        let mut made =
            [0, 0, self.owned.word, address(program.as_ptr()), address(options.as_ptr()), options.len(), 0];
        // SAFETY: these are PJRT_Client_Compile_Args with a PJRT_Program; all of it lives until the
        // call returns
        unsafe { api.call(CLIENT_COMPILE, &mut made)? };
        let processes = match self.has_processes() {
            true => self.devices.last().map_or(0, |device| device.process + 1),
            false => 0,
        };
        let mut made = RawExecutable {
            loaded: OwnedHandle::new(api, made[6])?,
            outputs: 0,
            ranks: (0..processes as i32).collect(),
            incarnations: (0..processes).map(incarnation).collect(),
        };
        [made.outputs] = made.unloaded()?.get(GET_NUM_OUTPUTS)?;
        if made.outputs > MAX_RESULTS {
            return Err(format!("the plugin returned an executable of {} results", made.outputs));
        }
        Ok(made)
    }
    /// Copies a row-major block of elements to a device; `kind` is a `PJRT_Buffer_Type`.
    pub(super) fn put(
        &self,
        elements: &[u8],
        kind: usize,
        shape: &[usize],
        device: usize,
    ) -> Result<RawBuffer, String> {
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
        // no strides, because the block is dense; the plugin reads the bytes during the call only
        // (semantics 0)
        made[10] = self.devices[device].word;
        // SAFETY: these are PJRT_Client_BufferFromHostBuffer_Args; the elements and sizes live
        // until the call returns, and the plugin reads them only until then (semantics 0). The
        // caller of `put` passes as many elements as `shape` has
        unsafe { api.call(BUFFER_FROM_HOST, &mut made)? };
        let buffer = OwnedHandle::new(api, made[14]);
        await_event(api, made[13])?;
        Ok(RawBuffer(buffer?))
    }
}

/// Returns a device with the rank of its process and its number.
fn describe(api: &Arc<Api>, word: usize) -> Result<RawDevice, String> {
    let get = |function, object| {
        let mut words = [0, 0, object, 0];
        // SAFETY: these functions take a device, or its description, and return one word; the device
        // is one that the client returned, and lives as long as the client
        unsafe { api.call(function, &mut words) }.map(|()| words[3])
    };
    let description = get(DEVICE_DESCRIPTION, word)?;
    // both are 32-bit integers
    let id = i64::from(get(DESCRIPTION_ID, description)? as u32 as i32);
    let process = get(DESCRIPTION_PROCESS, description)? as u32 as usize;
    Ok(RawDevice { process, id, word })
}
