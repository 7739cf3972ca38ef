//! Compiled modules, their runs, and blocks of elements on devices.

use super::{BUFFER_TYPES, Client, XlaCollective, api, fault, hlo, op_error, plugin_error, update_transfers};
use crate::core::{DType, Error, ErrorKind, Result, Shape, SourceLocation};
use std::panic::Location;
use std::sync::{Arc, OnceLock, PoisonError};

/// A module that is compiled for several devices of a [`Client`].
#[derive(Debug)]
pub struct LoadedExecutable {
    pub(super) inner: Arc<api::RawExecutable>,
    pub(super) client: Client,
    /// The name in messages of several processes.
    pub(super) name: String,
    pub(super) devices: usize,
    /// The indices of the devices of this process.
    pub(super) own: Vec<usize>,
    /// The data read from the compiled module, once it has been requested.
    pub(super) hlo_module: OnceLock<Option<hlo::HloModule>>,
    pub(super) result_types: OnceLock<ResultTypes>,
}

impl LoadedExecutable {
    /// Returns the number of devices that the module runs on.
    pub fn devices(&self) -> usize {
        self.devices
    }
    /// Returns the indices of those of them that this process owns.
    pub fn own_devices(&self) -> &[usize] {
        &self.own
    }
    /// Returns the number of results of the module on each device.
    pub(crate) fn num_results(&self) -> usize {
        self.inner.outputs
    }
    /// Runs the module and waits until it is complete.
    ///
    /// `arguments[d]` has the blocks of all arguments for device `d` of this process, in order; the
    /// results have the same form. Buffers of arguments that the module donates lose their
    /// contents. Threads that run modules of one client run them one after another.
    ///
    /// # Errors
    /// There is not one list per device, the lists differ in length, a buffer belongs to another
    /// device or client, or a block's type differs from that of the module's parameter. (If the
    /// plugin does not report the parameters, it compares sizes in bytes, and the error is its
    /// message.)
    #[track_caller]
    pub fn run(&self, arguments: &[Vec<&DeviceBuffer>]) -> Result<Vec<Vec<DeviceBuffer>>> {
        self.check_arguments(arguments)?;
        self.run_lists(arguments, Location::caller())
    }
    /// Runs the module for the user's call at `location`, with lists that are known to fit.
    pub(super) fn run_lists(
        &self,
        arguments: &[Vec<&DeviceBuffer>],
        location: SourceLocation,
    ) -> Result<Vec<Vec<DeviceBuffer>>> {
        let mut results: Vec<Vec<DeviceBuffer>> =
            self.own.iter().map(|_| Vec::with_capacity(self.inner.outputs)).collect();
        let given = arguments.first().map_or(0, Vec::len);
        self.run_with(given, &|d, k| arguments[d][k], &[], location, &mut |d, buffer| {
            results[d].push(buffer);
            Ok(())
        })?;
        Ok(results)
    }
    /// Returns an error if the module does not take these blocks.
    fn check_arguments(&self, arguments: &[Vec<&DeviceBuffer>]) -> Result<()> {
        let op = "pjrt::LoadedExecutable::run";
        let reject = |kind, message: String| Err(op_error(op, fault(kind, message)));
        if arguments.len() != self.own.len() {
            let message =
                format!("arguments of {} devices, but it runs on {}", arguments.len(), self.own.len());
            return reject(ErrorKind::Mesh, message);
        }
        let takes = self.hlo_module().and_then(|m| m.parameters.as_ref());
        for (&d, list) in self.own.iter().zip(arguments) {
            if let Some(takes) = takes.filter(|takes| takes.len() != list.len()) {
                let takes = crate::core::diagnostic::pluralize(takes.len(), "argument");
                let message = format!("the module takes {takes}, and {} are given", list.len());
                return reject(ErrorKind::Data, message);
            }
            if list.len() != arguments[0].len() {
                let message =
                    format!("device {d} has {} arguments, device 0 has {}", list.len(), arguments[0].len());
                return reject(ErrorKind::Data, message);
            }
            for (k, b) in list.iter().enumerate() {
                if !b.client.is_same(&self.client) {
                    let message = format!("argument {k} on device {d} is of another client");
                    return reject(ErrorKind::Mesh, message);
                }
                if b.device != d {
                    let message = format!("argument {k} of device {d} is on device {}", b.device);
                    return reject(ErrorKind::Mesh, message);
                }
                let takes = takes.map(|takes| (takes[k].0, &takes[k].1));
                self.check_block(k, b, takes, arguments[0][k])?;
            }
        }
        Ok(())
    }
    /// Returns an error if argument `k` has another type than the module's parameter, which is
    /// `takes` if the plugin reports it, or than the argument on the first device.
    fn check_block(
        &self,
        k: usize,
        b: &DeviceBuffer,
        takes: Option<(DType, &Shape)>,
        first: &DeviceBuffer,
    ) -> Result<()> {
        let op = "pjrt::LoadedExecutable::run";
        if let Some((dtype, shape)) = takes.filter(|takes| *takes != (b.dtype, &b.shape)) {
            let kind = if b.dtype == dtype { ErrorKind::Shape } else { ErrorKind::Dtype };
            let (given, wanted) = (b.dtype.array_type(&b.shape), dtype.array_type(shape));
            let message = format!("argument {k} is {given}; on each device the module takes {wanted}");
            return Err(Error::new(fault(kind, message), op, vec![given.to_string()], None));
        }
        if (b.dtype, &b.shape) != (first.dtype, &first.shape) {
            let message = format!(
                "argument {k} is {} on device {} and {} on device 0",
                b.dtype.array_type(&b.shape),
                b.device,
                first.dtype.array_type(&first.shape)
            );
            return Err(op_error(op, fault(ErrorKind::Shape, message)));
        }
        Ok(())
    }
    /// Returns the collectives of the compiled module, in order; one in a loop counts once.
    ///
    /// Returns `None` if the plugin does not return the optimised module.
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
    /// let all = gather.collectives().expect("a plugin that returns the optimised module");
    /// assert_eq!(all[0].to_string(), "all-gather float32[8] among 4 devices");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn collectives(&self) -> Option<&[XlaCollective]> {
        self.hlo_module().map(|module| &*module.collectives)
    }
    fn hlo_module(&self) -> Option<&hlo::HloModule> {
        let read = || self.inner.optimized().ok().and_then(|(form, code)| hlo::read(&form, &code));
        self.hlo_module.get_or_init(read).as_ref()
    }
    /// Runs the module for the user's call at `location`. It passes the results to `result`, each
    /// with the position of its device: the first result of all devices, then the second one.
    ///
    /// `argument(d, k)` is the argument `k` of `given` on the device at position `d` among those of
    /// this process: a block on that device, of the type that the module takes, which is not
    /// checked again. The arguments with the indices `kept` are not donated.
    pub(crate) fn run_with<'a>(
        &self,
        given: usize,
        argument: &dyn Fn(usize, usize) -> &'a DeviceBuffer,
        kept: &[i64],
        location: SourceLocation,
        result: &mut dyn FnMut(usize, DeviceBuffer) -> Result<()>,
    ) -> Result<()> {
        let op = "pjrt::LoadedExecutable::run";
        let mut turn = self.client.run_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let call = self.client.begin_run(&self.name, location)?;
        let mut made = 0;
        let done = self.inner.run(
            (self.own.len(), given),
            &|d, k| &argument(d, k).inner,
            kept,
            &mut turn,
            &mut |d, buffer| {
                let (dtype, shape) = self.result_type(made / self.own.len(), &buffer)?;
                made += 1;
                let (device, client) = (self.own[d], self.client.clone());
                result(d, DeviceBuffer { inner: buffer, dtype, shape, device, client })
                    .map_err(RunFailure::Ours)
            },
        );
        drop((call, turn));
        done.map_err(|failure| match failure {
            RunFailure::Ours(error) => error,
            RunFailure::Plugin(words) => {
                self.client.explain(plugin_error(op, "XLA did not run it", &words), op, location)
            }
        })
    }
    /// Returns the type of result `k`, which the plugin reports for the first buffer of it.
    fn result_type(&self, k: usize, buffer: &api::RawBuffer) -> Result<(DType, Shape), RunFailure> {
        let known = |types: &ResultTypes| types[k].get().cloned();
        if let Some(found) = self.result_types.get().and_then(known) {
            return Ok(found);
        }
        let op = "pjrt::LoadedExecutable::run";
        let failed =
            |words: String| RunFailure::Ours(plugin_error(op, "the type of a result cannot be read", &words));
        let kind = buffer.kind().map_err(failed)?;
        let shape: Shape = buffer.shape().map_err(failed)?.into();
        let Some((dtype, _)) = BUFFER_TYPES.iter().find(|k| k.1 == kind) else {
            let message = format!(
                "a result has element type {kind} of the PJRT interface, which atmesh does not support"
            );
            return Err(RunFailure::Ours(op_error(op, fault(ErrorKind::Dtype, message))));
        };
        let types = self.result_types.get_or_init(|| vec![OnceLock::new(); self.inner.outputs].into());
        Ok(types[k].get_or_init(|| (*dtype, shape)).clone())
    }
}

/// The types of a module's results, once a run has returned them.
pub(super) type ResultTypes = Box<[OnceLock<(DType, Shape)>]>;

/// The reason why a run ended without results.
enum RunFailure {
    /// The plugin's message.
    Plugin(String),
    Ours(Error),
}

conversions! { RunFailure: [] String => |words| RunFailure::Plugin(words); }

/// A block of elements on a device of a [`Client`]. Its memory is freed when it is dropped.
#[derive(Debug)]
pub struct DeviceBuffer {
    pub(super) inner: api::RawBuffer,
    pub(super) dtype: DType,
    pub(super) shape: Shape,
    pub(super) device: usize,
    pub(super) client: Client,
}

impl DeviceBuffer {
    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Returns the shape.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }
    /// Returns the index of the device.
    pub fn device(&self) -> usize {
        self.device
    }
    /// Copies the elements to the host, in row-major order and in the machine's byte order.
    ///
    /// Returns an error if the block has been donated.
    pub fn read(&self) -> Result<Vec<u8>> {
        let len = self.dtype.array_type(&self.shape).nbytes();
        let mut bytes = crate::exec::runtime::try_vec_with_capacity(len)
            .map_err(|fault| op_error("pjrt::DeviceBuffer::read", fault))?;
        bytes.resize(len, 0);
        self.read_into(&mut bytes)?;
        Ok(bytes)
    }
    /// Copies the elements to a slice, which must have exactly their size in bytes.
    ///
    /// The order is that of [`read`](DeviceBuffer::read).
    pub fn read_into(&self, to: &mut [u8]) -> Result<()> {
        let op = "pjrt::DeviceBuffer::read";
        let ty = self.dtype.array_type(&self.shape);
        if to.len() != ty.nbytes() {
            let message = format!("{ty} takes {} bytes, but the slice has {}", ty.nbytes(), to.len());
            return Err(Error::new(fault(ErrorKind::Shape, message), op, vec![ty.to_string()], None));
        }
        if to.is_empty() {
            return Ok(());
        }
        self.inner.read(to).map_err(|words| plugin_error(op, &format!("{ty} cannot be read"), &words))?;
        update_transfers(|t| t.from_devices += 1);
        Ok(())
    }
}
