//! XLA without Python: compiles and runs StableHLO modules with a PJRT plugin. (Feature `xla`.)
//!
//! A plugin is a shared library that the XLA project or a device vendor builds. The environment
//! variable `ATMESH_PJRT_PLUGIN` names its file. A [`Client`] gives access to the plugin's devices:
//! it compiles the text of a module for several of them, copies blocks of elements to a device, and
//! returns results device by device. Plugins must implement the PJRT C API (`pjrt_c_api.h`),
//! versions 0.x from 2023 on.
//!
//! ```
//! use atmesh::pjrt::Client;
//! use atmesh::prelude::*;
//! # if std::env::var_os("ATMESH_PJRT_PLUGIN").is_none() {
//! #     return Ok(());
//! # }
//! let text = "module { func.func public @main(%x: tensor<2xf32>) -> tensor<2xf32> {
//!   %y = stablehlo.add %x, %x : tensor<2xf32>
//!   return %y : tensor<2xf32>
//! } }";
//! let client = Client::from_env(1)?;
//! let double = client.compile(text, 1)?;
//! let x: Vec<u8> = [1.0f32, 2.0].iter().flat_map(|x| x.to_ne_bytes()).collect();
//! let x = client.put(&x, F32, &[2], 0)?;
//! let results = double.run(&[vec![&x]])?;
//! assert_eq!(results[0][0].read()?[..4], 2.0f32.to_ne_bytes());
//! # Ok::<(), atmesh::Error>(())
//! ```

#[cfg(not(target_pointer_width = "64"))]
compile_error!("the feature `xla` needs pointers of 64 bits, as the plugins have");

mod api;
mod callbacks;
mod client_options;
mod cluster_client;
mod executable;
mod functions;
mod gather;
mod hlo;
mod proto;
mod raw_client;

use callbacks::KeyValueStore;
pub use client_options::{ClientOptions, OptionValue, PLUGIN_OPTIONS};
pub(crate) use cluster_client::plugin_version;
pub use executable::{DeviceBuffer, LoadedExecutable};
pub use hlo::XlaCollective;
#[cfg(fuzzing)]
pub use hlo::fuzz_hlo_module;

use crate::cluster::ProcessGroup;
use crate::core::{DType, Error, ErrorKind, Fault, Result, SourceLocation};
use api::PluginLoadError;
use client_options::{is_out_of_memory, out_of_memory_help};
use raw_client::RawClient;
use std::cell::Cell;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The environment variable that names the plugin's file.
pub const PLUGIN: &str = "ATMESH_PJRT_PLUGIN";

/// The `PJRT_Buffer_Type` of each element type that PJRT shares with this crate.
const BUFFER_TYPES: [(DType, usize); 15] = [
    (DType::Bool, 1),
    (DType::I8, 2),
    (DType::I16, 3),
    (DType::I32, 4),
    (DType::I64, 5),
    (DType::U8, 6),
    (DType::U16, 7),
    (DType::U32, 8),
    (DType::U64, 9),
    (DType::F16, 10),
    (DType::F32, 11),
    (DType::F64, 12),
    (DType::BF16, 13),
    (DType::C64, 14),
    (DType::C128, 15),
];

fn fault(kind: ErrorKind, what: impl Into<String>) -> Fault {
    Fault::new(kind, what)
}
fn op_error(op: &str, fault: Fault) -> Error {
    Error::new(fault, op, Vec::new(), None)
}
/// Returns a device error with the plugin's message.
fn plugin_error(op: &str, what: &str, words: &str) -> Error {
    let fault = fault!(Device, "{what}: {words}");
    op_error(op, if is_out_of_memory(words) { fault.help(out_of_memory_help()) } else { fault })
}

/// The numbers of blocks that were copied to devices and from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transfers {
    /// The number of blocks copied to devices.
    pub to_devices: usize,
    /// The number of blocks copied from devices.
    pub from_devices: usize,
}

thread_local! {
    static TRANSFERS: Cell<Transfers> = const { Cell::new(Transfers { to_devices: 0, from_devices: 0 }) };
}

/// Returns the numbers of blocks that this thread has copied to and from devices so far.
///
/// If they are the same before and after a step of a loop, the arrays of that step stay on the
/// devices.
///
/// ```
/// use atmesh::pjrt::transfers;
/// use atmesh::prelude::*;
/// # if std::env::var_os("ATMESH_PJRT_PLUGIN").is_none() {
/// #     return Ok(());
/// # }
/// let double = jit(|x: &Array| x * 2.0).engine(EngineKind::Xla);
/// let mut x = double.call(Array::ones([2]))?;
/// let before = transfers();
/// for _ in 0..10 {
///     x = double.call(&x)?;
/// }
/// assert_eq!(transfers(), before);
/// assert_eq!(x.to_vec::<f32>()?, [2048.0; 2]);
/// assert_eq!(transfers().from_devices, before.from_devices + 1);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub fn transfers() -> Transfers {
    TRANSFERS.get()
}
fn update_transfers(one: impl FnOnce(&mut Transfers)) {
    let mut now = TRANSFERS.get();
    one(&mut now);
    TRANSFERS.set(now);
}

/// A connection of this process to the devices of a plugin. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<RawClient>,
    path: Arc<Path>,
    /// A lock that is held while a module runs, with memory for the lists of a run.
    /// Two modules that communicate would deadlock if they started in different orders on their
    /// devices.
    run_lock: Arc<Mutex<Vec<usize>>>,
    /// The processes of the client; `None` if there is only this one.
    group: Option<Arc<ProcessGroup>>,
    gathers: Arc<gather::GatherModules>,
}

impl Client {
    /// Returns a client, with at least `devices` devices, of the plugin that the environment names.
    ///
    /// The variable `ATMESH_PJRT_PLUGIN` names the plugin's file, and `ATMESH_PJRT_OPTIONS` has the
    /// plugin's options (see [`ClientOptions::parse`]).
    ///
    /// CPU plugins create the requested number of devices; other plugins have those of the machine.
    ///
    /// This function is safe because only the environment of the process determines which code is
    /// loaded.
    ///
    /// # Errors
    /// The variable is not set, or names something that is not a file, a shared library or a
    /// plugin; the plugin is too old, does not start, or has fewer devices.
    ///
    /// ```
    /// use atmesh::pjrt::Client;
    /// if std::env::var_os("ATMESH_PJRT_PLUGIN").is_none() {
    ///     let error = Client::from_env(8).unwrap_err();
    ///     assert!(error.to_string().contains("ATMESH_PJRT_PLUGIN is not set"));
    /// }
    /// ```
    pub fn from_env(devices: usize) -> Result<Client> {
        let path = plugin_path()?;
        // SAFETY: the environment of the process names the library; the user who sets the variable
        // guarantees that it is a PJRT plugin that is sound to load
        unsafe { Client::load_with(path, devices, &ClientOptions::from_env()?) }
    }
    /// Loads the plugin file at `path` and returns a client with at least `devices` devices.
    ///
    /// It is like [`from_env`](Client::from_env), which takes the path from the environment.
    ///
    /// # Safety
    /// The code of the file runs in this process. The library must be sound to load, and if it
    /// exports `GetPjrtApi`, this must be the function of that name of a PJRT plugin.
    ///
    /// ```
    /// use atmesh::pjrt::Client;
    /// // SAFETY: there is no such file
    /// let error = unsafe { Client::load("nowhere.so", 1) }.unwrap_err();
    /// assert!(error.to_string().contains("there is no file nowhere.so"));
    /// ```
    pub unsafe fn load(path: impl AsRef<Path>, devices: usize) -> Result<Client> {
        // SAFETY: the contract is the same
        unsafe { Client::load_with(path, devices, &ClientOptions::default()) }
    }
    /// Loads the plugin file at `path` like [`load`](Client::load), with options of the plugin.
    ///
    /// ```no_run
    /// use atmesh::pjrt::{Client, ClientOptions, OptionValue};
    /// let options = ClientOptions::default().with("preallocate", OptionValue::Bool(false));
    /// // SAFETY: the file is a PJRT plugin that is sound to load
    /// let client = unsafe { Client::load_with("pjrt_c_api_gpu_plugin.so", 1, &options) }?;
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// As for [`load`](Client::load); also if the plugin does not know an option.
    ///
    /// # Safety
    /// The contract of [`load`](Client::load) applies.
    pub unsafe fn load_with(
        path: impl AsRef<Path>,
        devices: usize,
        options: &ClientOptions,
    ) -> Result<Client> {
        let op = "pjrt::Client";
        let path: Arc<Path> = path.as_ref().into();
        // SAFETY: the file is a PJRT plugin that is sound to load (caller contract)
        let api = unsafe { load_api(&path) }.map_err(|fault| op_error(op, fault))?;
        let count = OptionValue::Int(i64::try_from(devices).unwrap_or(i64::MAX));
        // other than CPU plugins reject the option because of its name, so try again without it
        let made = RawClient::new(&api, &options.clone().with("cpu_device_count", count), None)
            .or_else(|_| RawClient::new(&api, options, None))
            .map_err(|words| {
                let fault = fault!(Device, "{} has no devices: {words}", path.display())
                    .help("run where its devices are, or name a plugin for CPUs")
                    .help(out_of_memory_help());
                op_error(op, fault)
            })?;
        if made.devices.len() < devices {
            let has = crate::core::diagnostic::pluralize(made.devices.len(), "device");
            let fault =
                fault!(Mesh, "{} ({}) has {has}, but {devices} are needed", path.display(), made.platform);
            return Err(op_error(op, fault.help("use a mesh with no more devices than the plugin has")));
        }
        Ok(Client {
            inner: Arc::new(made),
            path,
            run_lock: Arc::default(),
            group: None,
            gathers: Arc::default(),
        })
    }
    /// Returns the number of devices, of all processes.
    pub fn devices(&self) -> usize {
        self.inner.devices.len()
    }
    /// Returns the plugin's name of its platform: `cpu`, `cuda`, `tpu`.
    pub fn platform(&self) -> &str {
        &self.inner.platform
    }
    /// Returns the version of the plugin's interface, major and minor.
    pub fn version(&self) -> (i32, i32) {
        self.inner.version()
    }
    /// Compiles the text of a StableHLO module for the first `devices` devices.
    ///
    /// Shardy partitions the program by the shardings in the text, with one partition per device.
    /// bfloat16 values are rounded after each operation, as in this crate; XLA's default keeps some
    /// intermediate values in float32.
    ///
    /// All processes of a client compile the same modules in the same order.
    ///
    /// # Errors
    /// The client has fewer devices, or XLA rejects the module; the error contains XLA's message.
    /// If there are several processes: another one compiles another module, or is gone.
    #[track_caller]
    pub fn compile(&self, text: &str, devices: usize) -> Result<LoadedExecutable> {
        self.compile_at(text, devices, Location::caller())
    }
    /// Compiles like [`compile`](Client::compile), for the user's call at `location`.
    pub(crate) fn compile_at(
        &self,
        text: &str,
        devices: usize,
        location: SourceLocation,
    ) -> Result<LoadedExecutable> {
        let op = "pjrt::Client::compile";
        if devices == 0 || devices > self.devices() {
            let has = crate::core::diagnostic::pluralize(self.devices(), "device");
            let fault = fault!(Mesh, "a module for {devices} devices, but {} has {has}", self.path.display());
            return Err(op_error(op, fault.help("pass the mesh's number of devices to `Client::from_env`")));
        }
        if self.inner.has_processes() && devices != self.devices() {
            let fault = fault!(
                Mesh,
                "a module for {devices} devices, but the processes have {} together, and all of them run it",
                self.devices()
            );
            return Err(op_error(op, fault.help("use a mesh of all devices: `cluster.devices()`")));
        }
        let ids: Vec<i64> = match self.inner.has_processes() {
            true => self.inner.devices.iter().map(|device| device.id).collect(),
            false => Vec::new(),
        };
        let proto = proto::compile_options(devices, &ids, &[("xla_allow_excess_precision", false)]);
        let compile = || {
            self.inner.compile(text, &proto).map_err(|words| {
                let error = match is_out_of_memory(&words) {
                    true => plugin_error(op, "the memory of a device is full", &words),
                    false => op_error(op, fault!(Unsupported, "XLA rejected the module: {words}")),
                };
                error.with_location(op, location)
            })
        };
        let (inner, name) = self.compile_together(text, &proto, location, compile)?;
        let own = self.inner.own.iter().copied().filter(|device| *device < devices).collect();
        Ok(LoadedExecutable {
            inner: Arc::new(inner),
            client: self.clone(),
            name,
            devices,
            own,
            hlo_module: OnceLock::new(),
            result_types: OnceLock::new(),
        })
    }
    /// Copies a block of elements to the device with index `device`.
    ///
    /// The elements are in row-major order and in the machine's byte order.
    ///
    /// # Errors
    /// There is no such device, the number of bytes does not match the shape, or the element type
    /// is that of PRNG keys (pass their two uint32 words instead).
    pub fn put(&self, elements: &[u8], dtype: DType, shape: &[usize], device: usize) -> Result<DeviceBuffer> {
        let op = "pjrt::Client::put";
        let ty = dtype.array_type(shape);
        let at = |fault| Error::new(fault, op, vec![ty.to_string()], None);
        let Some((_, kind)) = BUFFER_TYPES.iter().find(|k| k.0 == dtype) else {
            let fault = fault!(Dtype, "XLA has no element type {dtype}");
            return Err(at(fault.help("pass the two words of the key: `key.data()`")));
        };
        if device >= self.devices() {
            let last = self.devices().saturating_sub(1);
            return Err(at(fault!(Mesh, "there is no device {device}: the last one is {last}")));
        }
        if !self.inner.own.contains(&device) {
            let owner = self.inner.devices[device].process;
            return Err(at(fault!(Mesh, "device {device} is one of process {owner}, which copies to it")));
        }
        ty.check_addressable().map_err(at)?;
        if elements.len() != ty.nbytes() {
            let message = format!("{ty} takes {} bytes, and {} are given", ty.nbytes(), elements.len());
            return Err(at(fault(ErrorKind::Shape, message)));
        }
        let inner = self
            .inner
            .put(elements, *kind, shape, device)
            .map_err(|words| plugin_error(op, &format!("device {device} did not accept {ty}"), &words))?;
        update_transfers(|t| t.to_devices += 1);
        Ok(DeviceBuffer { inner, dtype, shape: shape.into(), device, client: self.clone() })
    }
    pub(crate) fn is_same(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

/// Returns the path of the plugin that the environment names.
fn plugin_path() -> Result<PathBuf> {
    std::env::var_os(PLUGIN).filter(|path| !path.is_empty()).map(PathBuf::from).ok_or_else(|| {
        let fault = fault!(Data, "{PLUGIN} is not set, so there is no XLA to run on").help(format!(
            "name a plugin that exports `GetPjrtApi`: `{PLUGIN}=/path/to/pjrt_c_api_cpu_plugin.so`"
        ));
        op_error("pjrt::Client", fault)
    })
}

/// Returns the function table of the plugin in a file; each plugin is loaded once.
///
/// # Safety
/// The contract of [`Client::load`] applies.
unsafe fn load_api(path: &Path) -> Result<Arc<api::Api>, Fault> {
    type Loaded = Vec<(PathBuf, Arc<api::Api>)>;
    static LOADED: Mutex<Loaded> = Mutex::new(Vec::new());
    let shown = path.display();
    let known = std::fs::metadata(path).map_err(|why| {
        let message = match why.kind() {
            std::io::ErrorKind::NotFound => format!("there is no file {shown}"),
            _ => format!("{shown}: {why}"),
        };
        fault(ErrorKind::Data, message).help(format!("{PLUGIN} names the file of a plugin"))
    })?;
    if !known.is_file() {
        return Err(fault!(Data, "{shown} is not a file").help(format!(
            "{PLUGIN} must name the plugin's file itself, such as `…/pjrt_c_api_cpu_plugin.so`"
        )));
    }
    // the system's loader would search other folders for a name without a folder
    let full_path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mut list = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, api)) = list.iter().find(|l| l.0 == full_path) {
        return Ok(api.clone());
    }
    // SAFETY: the file is a PJRT plugin that is sound to load (caller contract)
    let api = unsafe { api::Api::load(&full_path) }.map_err(|why| match why {
        PluginLoadError::NoLibrary(words) => fault!(Data, "{shown} cannot be loaded: {words}")
            .help("name a shared library for this system"),
        PluginLoadError::NoPlugin => {
            fault!(Data, "{shown} is not a PJRT plugin: it does not export `GetPjrtApi`")
                .help("jaxlib's own library is not one either; the wheels of plugins contain one, such as `…pjrt…plugin.so`")
        }
        PluginLoadError::Version((major, minor), size) => fault!(
            Unsupported,
            "{shown} has PJRT C API {major}.{minor} with a table of {size} bytes; supported are versions 0.x from 2023 on"
        )
        .help("use a newer plugin"),
        PluginLoadError::NoFunction(name) => {
            fault!(Unsupported, "{shown} does not have the function {name}")
                .help("use a plugin that compiles and runs modules")
        }
        PluginLoadError::Start(words) => fault!(Device, "{shown} does not start: {words}"),
    })?;
    let api = Arc::new(api);
    list.push((full_path, api.clone()));
    Ok(api)
}
