//! XLA without Python: a StableHLO module is compiled and run by a PJRT plugin, a shared library that XLA's makers and vendors of devices build.
//! (Feature `xla`.)
//!
//! The plugin is the file that the environment variable `ATMESH_PJRT_PLUGIN` names. A [`Client`] is its devices; it compiles the text of a
//! module for several of them, takes blocks of elements onto a device, and hands results out device by device. The interface is that of
//! `pjrt_c_api.h`, versions 0.x, from 2023 on.
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
mod hlo;
mod options;

pub use hlo::Collective;

use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::types::{DType, Shape};
use api::Unusable;
use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The environment variable that names the plugin's file.
pub const PLUGIN: &str = "ATMESH_PJRT_PLUGIN";

/// The kinds of elements that both have, with their numbers in the interface.
const KINDS: [(DType, usize); 15] = [
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
fn refused(op: &str, fault: Fault) -> Error {
    Error::at(fault, op, Vec::new(), None)
}
/// What the plugin said, as an error of ours.
fn said(op: &str, what: &str, words: &str) -> Error {
    refused(op, fault(ErrorKind::Device, format!("{what}: {words}")))
}

/// How many blocks were copied to devices and from them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Transfers {
    /// To devices.
    pub to_devices: usize,
    /// From devices.
    pub from_devices: usize,
}

thread_local! {
    static TRANSFERS: Cell<Transfers> = const { Cell::new(Transfers { to_devices: 0, from_devices: 0 }) };
}

/// How many blocks this thread has copied to devices and from them until now. A number that stays the same between two steps of a loop shows
/// that its arrays stay on the devices.
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
fn count(one: impl FnOnce(&mut Transfers)) {
    let mut now = TRANSFERS.get();
    one(&mut now);
    TRANSFERS.set(now);
}

/// The devices of a plugin, as this process has them. Clones are the same client.
#[derive(Clone, Debug)]
pub struct Client {
    inner: Arc<api::Client>,
    path: Arc<Path>,
    /// Held by whoever runs a module: two that communicate and start in different orders on their devices would wait for one another.
    turn: Arc<Mutex<()>>,
}

impl Client {
    /// A client of the plugin that `ATMESH_PJRT_PLUGIN` names, with at least so many devices. Plugins for CPUs make as many as are asked
    /// for; others have those of the machine.
    ///
    /// It is safe as the process's own start is: whoever sets the environment chooses what code runs.
    ///
    /// An error where the variable is not set, names no file, no shared library or no plugin, or one that is too old; where the plugin
    /// does not start; and where it has fewer devices.
    ///
    /// ```
    /// use atmesh::pjrt::Client;
    /// if std::env::var_os("ATMESH_PJRT_PLUGIN").is_none() {
    ///     let error = Client::from_env(8).unwrap_err();
    ///     assert!(error.to_string().contains("ATMESH_PJRT_PLUGIN is not set"));
    /// }
    /// ```
    pub fn from_env(devices: usize) -> Result<Client> {
        let Some(path) = std::env::var_os(PLUGIN).filter(|p| !p.is_empty()) else {
            let fault = fault(ErrorKind::Data, format!("{PLUGIN} is not set, so there is no XLA to run on"))
                .help(format!(
                    "name a plugin that exports `GetPjrtApi`: `{PLUGIN}=/path/to/pjrt_c_api_cpu_plugin.so`"
                ));
            return Err(refused("pjrt::Client", fault));
        };
        // SAFETY: whoever sets the environment of a process says what code it loads
        unsafe { Client::load(PathBuf::from(path), devices) }
    }
    /// A client of the plugin in a file; as [`from_env`](Client::from_env).
    ///
    /// # Safety
    /// The file's code runs in this process. It must be sound to load, and what it exports as `GetPjrtApi` must be what that is in
    /// PJRT's plugins.
    ///
    /// ```
    /// use atmesh::pjrt::Client;
    /// // SAFETY: there is no such file
    /// let error = unsafe { Client::load("nowhere.so", 1) }.unwrap_err();
    /// assert!(error.to_string().contains("there is no file nowhere.so"));
    /// ```
    pub unsafe fn load(path: impl AsRef<Path>, devices: usize) -> Result<Client> {
        let op = "pjrt::Client";
        let path: Arc<Path> = path.as_ref().into();
        // SAFETY: the caller's
        let api = unsafe { loaded(&path) }.map_err(|fault| refused(op, fault))?;
        let counted = i64::try_from(devices).unwrap_or(i64::MAX);
        // what is not for CPUs refuses the option by its name
        let made = api::Client::new(&api, &[("cpu_device_count", counted)])
            .or_else(|_| api::Client::new(&api, &[]))
            .map_err(|words| {
                let fault = fault(ErrorKind::Device, format!("{} has no devices: {words}", path.display()))
                    .help("run where its devices are, or name a plugin for CPUs");
                refused(op, fault)
            })?;
        if made.devices() < devices {
            let has = crate::diagnostic::counted(made.devices(), "device");
            let fault = fault(
                ErrorKind::Mesh,
                format!("{} ({}) has {has}, and {devices} are asked for", path.display(), made.platform),
            );
            return Err(refused(op, fault.help("use a mesh of as many devices as there are")));
        }
        Ok(Client { inner: Arc::new(made), path, turn: Arc::default() })
    }
    /// How many devices it has.
    pub fn devices(&self) -> usize {
        self.inner.devices()
    }
    /// What they are, in the plugin's word: `cpu`, `cuda`, `tpu`.
    pub fn platform(&self) -> &str {
        &self.inner.platform
    }
    /// The version of the plugin's interface, major and minor.
    pub fn version(&self) -> (i32, i32) {
        self.inner.version()
    }
    /// Compiles a StableHLO module, as text, for the first `devices` devices: one partition of the program on each, made by Shardy as the
    /// shardings in the text say.
    ///
    /// bfloat16 is rounded after each operation, as here; XLA's own default keeps some values in between in float32.
    ///
    /// An error where there are not so many devices, and where XLA refuses the text, in its words.
    pub fn compile(&self, text: &str, devices: usize) -> Result<Executable> {
        let op = "pjrt::Client::compile";
        if devices == 0 || devices > self.devices() {
            let has = crate::diagnostic::counted(self.devices(), "device");
            let fault = fault(
                ErrorKind::Mesh,
                format!("a module for {devices} devices, but {} has {has}", self.path.display()),
            );
            return Err(refused(op, fault.help("ask `Client::from_env` for as many as the mesh has")));
        }
        let proto = options::compile(devices, &[("xla_allow_excess_precision", false)]);
        let inner = self.inner.compile(text, &proto).map_err(|words| {
            let fault = fault(ErrorKind::Unsupported, format!("XLA refused the module: {words}"));
            refused(op, fault)
        })?;
        Ok(Executable { inner, client: self.clone(), devices, known: OnceLock::new() })
    }
    /// A block of elements, row-major in the machine's order of bytes, onto device number `device`.
    ///
    /// An error where there is no such device, the bytes are not as many as the shape takes, or the element type is a key's (give its
    /// two words, uint32).
    pub fn put(&self, elements: &[u8], dtype: DType, shape: &[usize], device: usize) -> Result<DeviceBuffer> {
        let op = "pjrt::Client::put";
        let ty = dtype.of(shape);
        let at = |fault| Error::at(fault, op, vec![ty.to_string()], None);
        let Some((_, kind)) = KINDS.iter().find(|k| k.0 == dtype) else {
            let fault = fault(ErrorKind::Dtype, format!("XLA has no element type {dtype}"));
            return Err(at(fault.help("a key is its two words: `key.data()`")));
        };
        if device >= self.devices() {
            let last = self.devices().saturating_sub(1);
            return Err(at(fault(
                ErrorKind::Mesh,
                format!("there is no device {device}: the last one is {last}"),
            )));
        }
        ty.addressable().map_err(at)?;
        if elements.len() != ty.nbytes() {
            let message = format!("{ty} takes {} bytes, and {} are given", ty.nbytes(), elements.len());
            return Err(at(fault(ErrorKind::Shape, message)));
        }
        let inner = self
            .inner
            .put(elements, *kind, shape, device)
            .map_err(|words| said(op, &format!("device {device} took no {ty}"), &words))?;
        count(|t| t.to_devices += 1);
        Ok(DeviceBuffer { inner, dtype, shape: shape.into(), device, client: self.clone() })
    }
    pub(crate) fn same(&self, other: &Client) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

/// The table of the plugin in a file, loaded once.
///
/// # Safety
/// As of [`Client::load`].
unsafe fn loaded(path: &Path) -> Result<Arc<api::Api>, Fault> {
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
        return Err(fault(ErrorKind::Data, format!("{shown} is no file"))
            .help(format!("{PLUGIN} names the plugin's file itself, as `…/pjrt_c_api_cpu_plugin.so`")));
    }
    // a name without a folder is searched for elsewhere by the system's loader
    let whole = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let mut list = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, api)) = list.iter().find(|l| l.0 == whole) {
        return Ok(api.clone());
    }
    // SAFETY: the caller's
    let api = unsafe { api::Api::load(&whole) }.map_err(|why| match why {
        Unusable::NoLibrary(words) => fault(ErrorKind::Data, format!("{shown} cannot be loaded: {words}"))
            .help("name a shared library for this system"),
        Unusable::NoPlugin => {
            fault(ErrorKind::Data, format!("{shown} is no PJRT plugin: it exports no `GetPjrtApi`"))
                .help("jaxlib's own library is none either; wheels of plugins have one, as `…pjrt…plugin.so`")
        }
        Unusable::Version((major, minor), size) => fault(
            ErrorKind::Unsupported,
            format!("{shown} has PJRT C API {major}.{minor} with a table of {size} bytes; known are versions 0.x from 2023 on"),
        )
        .help("use a newer plugin"),
        Unusable::Start(words) => fault(ErrorKind::Device, format!("{shown} does not start: {words}")),
    })?;
    let api = Arc::new(api);
    list.push((whole, api.clone()));
    Ok(api)
}

/// A module that is compiled for several devices of a [`Client`].
#[derive(Debug)]
pub struct Executable {
    inner: api::Executable,
    client: Client,
    devices: usize,
    /// What it says of itself, read when it is asked for.
    known: OnceLock<Option<hlo::Module>>,
}

impl Executable {
    /// How many devices it runs on.
    pub fn devices(&self) -> usize {
        self.devices
    }
    /// Runs it and waits until all is done; threads that run modules of one client take turns. `arguments[d]` is what device d takes, in
    /// order: its blocks of all arguments; the results are in the same form. Buffers of arguments that the module donates are lost.
    ///
    /// An error where the lists are not one for each device, not of one length, hold a buffer of another device or client, or blocks of
    /// other types than the module takes. (Where the plugin does not tell these, it compares sizes in bytes, and the error is in its words.)
    pub fn run(&self, arguments: &[Vec<&DeviceBuffer>]) -> Result<Vec<Vec<DeviceBuffer>>> {
        if let (Some(given), Some(takes)) =
            (arguments.first(), self.known().and_then(|m| m.parameters.as_ref()))
        {
            let op = "pjrt::Executable::run";
            if given.len() != takes.len() {
                let takes = crate::diagnostic::counted(takes.len(), "argument");
                let message = format!("the module takes {takes}, and {} are given", given.len());
                return Err(refused(op, fault(ErrorKind::Data, message)));
            }
            for (k, (b, (dtype, shape))) in given.iter().zip(takes).enumerate() {
                if (b.dtype, &b.shape) != (*dtype, shape) {
                    let kind = if b.dtype == *dtype { ErrorKind::Shape } else { ErrorKind::Dtype };
                    let (given, wanted) = (b.dtype.of(&b.shape), dtype.of(shape));
                    let message =
                        format!("argument {k} is {given}; on each device the module takes {wanted}");
                    return Err(Error::at(fault(kind, message), op, vec![given.to_string()], None));
                }
            }
        }
        self.run_keeping(arguments, &[])
    }
    /// The collectives that XLA's compiler made, in the order of its module; one in a loop is one. `None` where the plugin does not tell.
    ///
    /// ```
    /// use atmesh::pjrt::Client;
    /// # if std::env::var_os("ATMESH_PJRT_PLUGIN").is_none() {
    /// #     return Ok(());
    /// # }
    /// let text = r#"module {
    ///   sdy.mesh @m = <["X"=4]>
    ///   func.func public @main(%x: tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{"X"}]>})
    ///       -> (tensor<8xf32> {sdy.sharding = #sdy.sharding<@m, [{}]>}) {
    ///     return %x : tensor<8xf32>
    ///   }
    /// }"#;
    /// let gather = Client::from_env(4)?.compile(text, 4)?;
    /// let all = gather.collectives().expect("the plugin tells");
    /// assert_eq!(all[0].to_string(), "all-gather float32[8] among 4 devices");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn collectives(&self) -> Option<&[Collective]> {
        self.known().map(|module| &*module.collectives)
    }
    fn known(&self) -> Option<&hlo::Module> {
        let read = || self.inner.optimized().ok().and_then(|(form, code)| hlo::read(&form, &code));
        self.known.get_or_init(read).as_ref()
    }
    /// The same, but buffers of arguments of these numbers stay, also where the module donates them.
    pub(crate) fn run_keeping(
        &self,
        arguments: &[Vec<&DeviceBuffer>],
        kept: &[i64],
    ) -> Result<Vec<Vec<DeviceBuffer>>> {
        let op = "pjrt::Executable::run";
        let refuse = |kind, message: String| Err(refused(op, fault(kind, message)));
        if arguments.len() != self.devices {
            let message =
                format!("arguments of {} devices, but it runs on {}", arguments.len(), self.devices);
            return refuse(ErrorKind::Mesh, message);
        }
        for (d, list) in arguments.iter().enumerate() {
            if list.len() != arguments[0].len() {
                let message =
                    format!("device {d} has {} arguments, device 0 has {}", list.len(), arguments[0].len());
                return refuse(ErrorKind::Data, message);
            }
            for (k, b) in list.iter().enumerate() {
                if !b.client.same(&self.client) {
                    return refuse(
                        ErrorKind::Mesh,
                        format!("argument {k} on device {d} is of another client"),
                    );
                }
                if b.device != d {
                    return refuse(
                        ErrorKind::Mesh,
                        format!("argument {k} of device {d} is on device {}", b.device),
                    );
                }
                let first = arguments[0][k];
                if (b.dtype, &b.shape) != (first.dtype, &first.shape) {
                    let message = format!(
                        "argument {k} is {} on device {d} and {} on device 0",
                        b.dtype.of(&b.shape),
                        first.dtype.of(&first.shape)
                    );
                    return refuse(ErrorKind::Shape, message);
                }
            }
        }
        let inner: Vec<Vec<&api::Buffer>> =
            arguments.iter().map(|list| list.iter().map(|b| &b.inner).collect()).collect();
        let turn = self.client.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let results = self.inner.run(&inner, kept).map_err(|words| said(op, "XLA did not run it", &words))?;
        drop(turn);
        let held = |(device, list): (usize, Vec<api::Buffer>)| {
            if list.len() != self.inner.outputs {
                return Err(said(op, "XLA ran it", &format!("device {device} has {} results", list.len())));
            }
            list.into_iter().map(|b| self.held(device, b)).collect()
        };
        results.into_iter().enumerate().map(held).collect()
    }
    fn held(&self, device: usize, inner: api::Buffer) -> Result<DeviceBuffer> {
        let op = "pjrt::Executable::run";
        let failed = |words: String| said(op, "a result is not known", &words);
        let kind = inner.kind().map_err(failed)?;
        let shape = inner.shape().map_err(failed)?;
        let Some((dtype, _)) = KINDS.iter().find(|k| k.1 == kind) else {
            let message =
                format!("a result is of element type {kind} of the interface, which arrays have not");
            return Err(refused(op, fault(ErrorKind::Dtype, message)));
        };
        Ok(DeviceBuffer { inner, dtype: *dtype, shape: shape.into(), device, client: self.client.clone() })
    }
}

/// A block of elements on a device of a [`Client`]; its memory is given back when it is dropped.
#[derive(Debug)]
pub struct DeviceBuffer {
    inner: api::Buffer,
    dtype: DType,
    shape: Shape,
    device: usize,
    client: Client,
}

impl DeviceBuffer {
    /// Its element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Its sizes.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
    /// The number of its device.
    pub fn device(&self) -> usize {
        self.device
    }
    /// Its elements, row-major in the machine's order of bytes. An error where they were donated.
    pub fn read(&self) -> Result<Vec<u8>> {
        let len = self.dtype.of(&self.shape).nbytes();
        let mut bytes =
            crate::runtime::room(len).map_err(|fault| refused("pjrt::DeviceBuffer::read", fault))?;
        bytes.resize(len, 0);
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }
    /// The same, into a slice of as many bytes.
    pub fn read_into(&self, to: &mut [u8]) -> Result<()> {
        let op = "pjrt::DeviceBuffer::read";
        let ty = self.dtype.of(&self.shape);
        if to.len() != ty.nbytes() {
            let message = format!("{ty} takes {} bytes, and there is room for {}", ty.nbytes(), to.len());
            return Err(Error::at(fault(ErrorKind::Shape, message), op, vec![ty.to_string()], None));
        }
        if to.is_empty() {
            return Ok(());
        }
        self.inner.read(to).map_err(|words| said(op, &format!("{ty} cannot be read"), &words))?;
        count(|t| t.from_devices += 1);
        Ok(())
    }
}
