//! Gathers: the blocks of all devices of all processes, as bytes on each process.

use super::{Client, DeviceBuffer, LoadedExecutable, api, op_error};
use crate::core::{DType, Result, Shape, SourceLocation};
use crate::xla::stablehlo::tensor;
use std::panic::Location;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The modules that gather, by the type of a block.
///
/// They do not hold their client, which holds this list.
#[derive(Debug, Default)]
pub(super) struct GatherModules(Mutex<Vec<(DType, Shape, Arc<api::RawExecutable>)>>);

impl Client {
    /// Returns the elements of the blocks of all devices, device by device, in row-major order.
    ///
    /// `blocks` are those of this process's devices, in their order; all blocks have one type, with
    /// at least one dimension. If there are several processes, all of them call it, and each
    /// receives the blocks of all.
    ///
    /// ```
    /// use atmesh::pjrt::Client;
    /// use atmesh::prelude::*;
    /// # if std::env::var_os("ATMESH_PJRT_PLUGIN").is_none() {
    /// #     return Ok(());
    /// # }
    /// let client = Client::from_env(2)?;
    /// let blocks = [client.put(&[1, 2], U8, &[2], 0)?, client.put(&[3, 4], U8, &[2], 1)?];
    /// assert_eq!(client.gather(&blocks)?, [1, 2, 3, 4]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// There is not one block for each device of this process, or they differ in type; or another
    /// process is gone, or makes another call.
    #[track_caller]
    pub fn gather(&self, blocks: &[DeviceBuffer]) -> Result<Vec<u8>> {
        self.gather_at(blocks, Location::caller())
    }
    /// Gathers like [`gather`](Client::gather), for the user's call at `location`.
    pub(crate) fn gather_at(&self, blocks: &[DeviceBuffer], location: SourceLocation) -> Result<Vec<u8>> {
        let op = "pjrt::Client::gather";
        let own = self.own_devices();
        if blocks.is_empty()
            || own.len() != blocks.len()
            || own.iter().zip(blocks).any(|(d, b)| b.device != *d)
        {
            let message = "there must be one block for each device of this process, in order";
            return Err(op_error(op, fault!(Mesh, "{message}")));
        }
        let (dtype, shape) = (blocks[0].dtype, &blocks[0].shape);
        if let Some(other) = blocks.iter().find(|b| (b.dtype, &b.shape) != (dtype, shape)) {
            let (a, b) = (dtype.array_type(shape), other.dtype.array_type(&other.shape));
            return Err(op_error(op, fault!(Shape, "blocks of the types {a} and {b} cannot be gathered")));
        }
        if shape.is_empty() {
            let fault = fault!(Shape, "blocks without dimensions cannot be gathered");
            return Err(op_error(op, fault.help("read one of them: `blocks[0].read()`")));
        }
        if !self.inner.has_processes() || shape.num_elements() == 0 {
            let all: Vec<Vec<u8>> = blocks.iter().map(DeviceBuffer::read).collect::<Result<_>>()?;
            return Ok(all.concat());
        }
        let module = self.gather_module(dtype, shape, location)?;
        let lists: Vec<Vec<&DeviceBuffer>> = blocks.iter().map(|block| vec![block]).collect();
        let results = module.run_lists(&lists, location)?;
        match results.first().and_then(|list| list.first()) {
            Some(all) => all.read(),
            None => Err(op_error(op, fault!(Device, "the plugin returned no result"))),
        }
    }
    /// Returns the module that gathers blocks of this type.
    fn gather_module(
        &self,
        dtype: DType,
        shape: &Shape,
        location: SourceLocation,
    ) -> Result<LoadedExecutable> {
        let name = format!("a read of blocks {}", dtype.array_type(shape));
        let known = |list: &Vec<(DType, Shape, Arc<api::RawExecutable>)>| {
            list.iter().find(|(d, s, _)| (*d, s) == (dtype, shape)).map(|(.., inner)| inner.clone())
        };
        let lock = || self.gathers.0.lock().unwrap_or_else(PoisonError::into_inner);
        let devices = self.devices();
        if let Some(inner) = known(&lock()) {
            let own = self.inner.own.clone();
            let (hlo_module, result_types) = (OnceLock::new(), OnceLock::new());
            let client = self.clone();
            return Ok(LoadedExecutable { inner, client, name, devices, own, hlo_module, result_types });
        }
        let module = self.compile_at(&gather_text(dtype, shape, devices), devices, location)?;
        lock().push((dtype, shape.clone(), module.inner.clone()));
        Ok(LoadedExecutable { name, ..module })
    }
}

/// Returns the text of a module whose argument is sharded over all devices along its first
/// dimension, and whose result is the whole argument on each device.
fn gather_text(dtype: DType, shape: &Shape, devices: usize) -> String {
    let (first, rest) = shape.split_first().unwrap_or((&1, &[]));
    let full: Vec<usize> = [first * devices].into_iter().chain(rest.iter().copied()).collect();
    let full = tensor(dtype, &full);
    let open = vec!["{}"; rest.len()];
    let dims = |first: &str| [&[first], &open[..]].concat().join(", ");
    let (sharded, whole) = (dims("{\"d\"}"), dims("{}"));
    format!(
        "module {{\n  sdy.mesh @m = <[\"d\"={devices}]>\n  \
         func.func public @main(%x: {full} {{sdy.sharding = #sdy.sharding<@m, [{sharded}]>}})\n      \
         -> ({full} {{sdy.sharding = #sdy.sharding<@m, [{whole}]>}}) {{\n    \
         return %x : {full}\n  }}\n}}\n"
    )
}
