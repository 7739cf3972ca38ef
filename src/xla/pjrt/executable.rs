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
        if let (Some(given), Some(takes)) =
            (arguments.first(), self.hlo_module().and_then(|m| m.parameters.as_ref()))
        {
            let op = "pjrt::LoadedExecutable::run";
            if given.len() != takes.len() {
                let takes = crate::core::diagnostic::pluralize(takes.len(), "argument");
                let message = format!("the module takes {takes}, and {} are given", given.len());
                return Err(op_error(op, fault(ErrorKind::Data, message)));
            }
            for (k, (b, (dtype, shape))) in given.iter().zip(takes).enumerate() {
                if (b.dtype, &b.shape) != (*dtype, shape) {
                    let kind = if b.dtype == *dtype { ErrorKind::Shape } else { ErrorKind::Dtype };
                    let (given, wanted) = (b.dtype.array_type(&b.shape), dtype.array_type(shape));
                    let message =
                        format!("argument {k} is {given}; on each device the module takes {wanted}");
                    return Err(Error::new(fault(kind, message), op, vec![given.to_string()], None));
                }
            }
        }
        self.run_without_donating(arguments, &[], Location::caller())
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
    /// Runs the module for the user's call at `location`, but does not donate the arguments with
    /// the indices `kept`.
    pub(crate) fn run_without_donating(
        &self,
        arguments: &[Vec<&DeviceBuffer>],
        kept: &[i64],
        location: SourceLocation,
    ) -> Result<Vec<Vec<DeviceBuffer>>> {
        let op = "pjrt::LoadedExecutable::run";
        let reject = |kind, message: String| Err(op_error(op, fault(kind, message)));
        if arguments.len() != self.own.len() {
            let message =
                format!("arguments of {} devices, but it runs on {}", arguments.len(), self.own.len());
            return reject(ErrorKind::Mesh, message);
        }
        for (&d, list) in self.own.iter().zip(arguments) {
            if list.len() != arguments[0].len() {
                let message =
                    format!("device {d} has {} arguments, device 0 has {}", list.len(), arguments[0].len());
                return reject(ErrorKind::Data, message);
            }
            for (k, b) in list.iter().enumerate() {
                if !b.client.is_same(&self.client) {
                    return reject(
                        ErrorKind::Mesh,
                        format!("argument {k} on device {d} is of another client"),
                    );
                }
                if b.device != d {
                    return reject(
                        ErrorKind::Mesh,
                        format!("argument {k} of device {d} is on device {}", b.device),
                    );
                }
                let first = arguments[0][k];
                if (b.dtype, &b.shape) != (first.dtype, &first.shape) {
                    let message = format!(
                        "argument {k} is {} on device {d} and {} on device 0",
                        b.dtype.array_type(&b.shape),
                        first.dtype.array_type(&first.shape)
                    );
                    return reject(ErrorKind::Shape, message);
                }
            }
        }
        let inner: Vec<Vec<&api::RawBuffer>> =
            arguments.iter().map(|list| list.iter().map(|b| &b.inner).collect()).collect();
        let turn = self.client.run_lock.lock().unwrap_or_else(PoisonError::into_inner);
        let call = self.client.begin_run(&self.name, location)?;
        let results = self.inner.run(&inner, kept).map_err(|words| {
            self.client.explain(plugin_error(op, "XLA did not run it", &words), op, location)
        })?;
        drop((call, turn));
        let held = |(&device, list): (&usize, Vec<api::RawBuffer>)| {
            if list.len() != self.inner.outputs {
                return Err(plugin_error(
                    op,
                    "XLA ran it",
                    &format!("device {device} has {} results", list.len()),
                ));
            }
            list.into_iter().map(|b| self.wrap_result(device, b)).collect()
        };
        self.own.iter().zip(results).map(held).collect()
    }
    fn wrap_result(&self, device: usize, inner: api::RawBuffer) -> Result<DeviceBuffer> {
        let op = "pjrt::LoadedExecutable::run";
        let failed = |words: String| plugin_error(op, "the type of a result cannot be read", &words);
        let kind = inner.kind().map_err(failed)?;
        let shape = inner.shape().map_err(failed)?;
        let Some((dtype, _)) = BUFFER_TYPES.iter().find(|k| k.1 == kind) else {
            let message = format!(
                "a result has element type {kind} of the PJRT interface, which atmesh does not support"
            );
            return Err(op_error(op, fault(ErrorKind::Dtype, message)));
        };
        Ok(DeviceBuffer { inner, dtype: *dtype, shape: shape.into(), device, client: self.client.clone() })
    }
}

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
