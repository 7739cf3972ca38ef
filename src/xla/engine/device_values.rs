//! The values of programs that XLA runs: blocks on the devices of a plugin.

use crate::core::{
    ArrayType, DType, ErrorKind, Fault, Result, Scalar, ScalarElement, Shape, SourceLocation, SubAxis,
    sharding::sub_axes::num_shards, types::with_dtype,
};
use crate::exec::runtime::parallel_copy::{extract_block, write_block};
use crate::exec::runtime::{
    ArrayData, BlockFn, Buffer, ForeignValue, ProcessDevices, check_available, register_process_devices,
};
use crate::ir::program::Placement;
use crate::xla::pjrt::{Client, DeviceBuffer};
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The client of several processes, if this one has joined others.
static CLUSTER_CLIENT: OnceLock<Client> = OnceLock::new();

/// Makes all programs on meshes run on the devices of this client, which several processes share.
pub(crate) fn use_cluster_client(client: &Client, processes: usize) {
    // a process joins once
    let _ = CLUSTER_CLIENT.set(client.clone());
    register_process_devices(SharedDevices { client: client.clone(), processes });
}

/// The clients of this process alone.
static CLIENTS: Mutex<Vec<Client>> = Mutex::new(Vec::new());

/// Returns an error if this process has run a program on the plugin alone, so that it cannot share
/// its devices with other processes.
pub(crate) fn check_no_client() -> Result<()> {
    if CLIENTS.lock().unwrap_or_else(PoisonError::into_inner).is_empty() {
        return Ok(());
    }
    let fault = fault!(Device, "this process has run a program on XLA before it joins the others");
    Err(fault.help("call `distributed::init` before the first program").into())
}

/// Returns a client with at least this many devices.
/// All programs share the clients that exist already.
pub(super) fn client(devices: usize) -> Result<Client> {
    if let Some(client) = CLUSTER_CLIENT.get() {
        return Ok(client.clone());
    }
    let mut clients = CLIENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(client) = clients.iter().find(|c| c.devices() >= devices) {
        return Ok(client.clone());
    }
    let client = Client::from_env(devices)?;
    clients.push(client.clone());
    Ok(client)
}

/// The layout of an argument or a result: its type, and the block that each device holds.
#[derive(Debug)]
pub(super) struct BoundaryLayout {
    pub(super) ty: ArrayType,
    /// The block of each device, of all processes.
    pub(super) blocks: Vec<Vec<Range<usize>>>,
    /// The indices of the devices of this process.
    pub(super) own: Vec<usize>,
    /// The number of partial values outside the module. Inside the module, the value is their sum.
    pub(super) num_partials: usize,
}

impl BoundaryLayout {
    pub(super) fn new(
        ty: &ArrayType,
        at: Option<&Placement>,
        devices: usize,
        own: &[usize],
    ) -> BoundaryLayout {
        let dim = |d: usize, n: usize, position: usize| {
            let sub_axes: &[SubAxis] =
                at.and_then(|at| at.dims.get(d)).map_or(&[], |digits| digits.as_slice());
            let rank = sub_axes.iter().fold(0, |r, a| r * a.size + a.index_of(position));
            // uneven shardings were rejected when the module was written
            let size = n / num_shards(sub_axes);
            rank * size..(rank + 1) * size
        };
        let block = |position| ty.shape.iter().enumerate().map(|(d, n)| dim(d, *n, position)).collect();
        BoundaryLayout {
            blocks: (0..devices).map(block).collect(),
            own: own.to_vec(),
            num_partials: at.map_or(1, |at| num_shards(&at.partial)),
            ty: ty.clone(),
        }
    }
    /// Returns the element type and shape of a block inside the module.
    /// A PRNG key is a pair of 32-bit words, which is also its layout in memory.
    fn block_type(&self, block: &[Range<usize>]) -> (DType, Shape) {
        let sizes = block.iter().map(Range::len);
        match self.ty.dtype {
            DType::Key => (DType::U32, sizes.chain([2]).collect()),
            dtype => (dtype, sizes.collect()),
        }
    }
    /// Returns true if a block on a device has the type of this block.
    fn is_block_type(&self, index: &[Range<usize>], block: &DeviceBuffer) -> bool {
        let is_key = self.ty.dtype == DType::Key;
        let dtype = if is_key { DType::U32 } else { self.ty.dtype };
        block.dtype() == dtype
            && block.shape().iter().copied().eq(index.iter().map(Range::len).chain(is_key.then_some(2)))
    }
    /// Iterates over the devices of this process, each with its block.
    fn own_blocks(&self) -> impl Iterator<Item = (usize, &Vec<Range<usize>>)> {
        self.own.iter().map(|device| (*device, &self.blocks[*device]))
    }
    /// Returns true if the devices of this process hold all elements.
    fn is_local(&self) -> bool {
        self.own.len() == self.blocks.len()
            || self.blocks.iter().all(|block| self.own_blocks().any(|(_, own)| own == block))
    }
    /// Copies the block of each device of this process to that device.
    pub(super) fn copy_to_devices(&self, client: &Client, slab: &ArrayData) -> Result<Vec<DeviceBuffer>> {
        let full = if slab.num_partials() > 1 { sum_partials(slab)? } else { slab.clone() };
        let mut cut: Vec<(usize, ArrayData)> = Vec::new();
        let mut made = Vec::new();
        for (device, index) in self.own_blocks() {
            let known = cut.iter().find(|(other, _)| self.blocks[*other] == *index);
            let block = match known {
                Some((_, block)) => block.clone(),
                None => extract_block(&full, 0, index)?,
            };
            let (dtype, shape) = self.block_type(index);
            made.push(client.put(block.bytes()?, dtype, &shape, device)?);
            cut.push((device, block));
        }
        Ok(made)
    }
    /// Returns true if `other` has the same blocks on the same devices.
    ///
    /// The number of partial values does not matter, since the module has their sum.
    pub(super) fn has_blocks_of(&self, other: &BoundaryLayout) -> bool {
        self.blocks == other.blocks && self.ty.dtype == other.ty.dtype && self.ty.shape == other.ty.shape
    }
    /// Returns an error if the types of the blocks on the devices differ from this layout.
    fn check(&self, made: &[DeviceBuffer]) -> Result<()> {
        for ((device, index), block) in self.own_blocks().zip(made) {
            if !self.is_block_type(index, block) {
                let (dtype, shape) = self.block_type(index);
                let (has, wanted) = (block.dtype().array_type(block.shape()), dtype.array_type(&shape));
                let message =
                    format!("the plugin returned {has} on device {device}, but the program needs {wanted}");
                return Err(Fault::new(ErrorKind::Device, message).into());
            }
        }
        Ok(())
    }
    /// Copies the blocks from the devices and assembles them into one buffer.
    ///
    /// # Errors
    /// The devices of this process do not hold all elements.
    fn copy_from_devices(&self, made: &[DeviceBuffer]) -> Result<Buffer> {
        if !self.is_local() {
            let fault = fault!(Device, "this process holds only some blocks of {}", self.ty);
            return Err(fault.help("gather it in all processes: `x.process_allgather()`").into());
        }
        let (storage, shape) = (self.ty.dtype.storage(), &self.ty.shape);
        let one = shape.num_elements() * storage.size();
        check_available(one.saturating_mul(self.num_partials))?;
        // if the value is unreduced, the first partial value is the sum, and the others are zero
        let mut buffer = match self.num_partials {
            1 => Buffer::allocate(one)?,
            num_partials => Buffer::zeroed(one * num_partials)?,
        };
        let mut written: Vec<&Vec<Range<usize>>> = Vec::new();
        for ((_, index), block) in self.own_blocks().zip(made) {
            if !written.contains(&index) {
                write_block(&block.read()?, shape, index, storage.size(), &mut buffer);
                written.push(index);
            }
        }
        Ok(buffer)
    }
    /// Wraps the blocks as an array whose data stay on the devices.
    pub(super) fn into_value(
        self: &Arc<BoundaryLayout>,
        client: &Client,
        blocks: Vec<DeviceBuffer>,
    ) -> Result<ArrayData> {
        let (storage, shape) = (self.ty.dtype.storage(), self.ty.shape.clone());
        if shape.num_elements() == 0 {
            // XLA shards some empty arrays and leaves others unsharded
            return Ok(ArrayData::new(storage, shape, self.num_partials, Arc::new(Buffer::allocate(0)?)));
        }
        self.check(&blocks)?;
        let value = DeviceResident { layout: self.clone(), client: client.clone(), blocks };
        Ok(ArrayData::from_foreign(storage, shape, self.num_partials, value))
    }
}

/// A result whose blocks are on the devices.
#[derive(Debug)]
pub(super) struct DeviceResident {
    pub(super) layout: Arc<BoundaryLayout>,
    pub(super) client: Client,
    /// The blocks, one for each device of this process.
    pub(super) blocks: Vec<DeviceBuffer>,
}

/// Returns true if a value's blocks are on the devices of a plugin.
pub(super) fn is_device_resident(value: &ArrayData) -> bool {
    value.foreign_as::<DeviceResident>().is_some()
}

impl ForeignValue for DeviceResident {
    fn fetch(&self) -> Result<Buffer, Fault> {
        self.layout.copy_from_devices(&self.blocks).map_err(|e| e.diagnostics()[0].fault.clone())
    }
    fn is_local(&self) -> bool {
        self.layout.is_local()
    }
    fn has_blocks_of(&self, ty: &ArrayType, at: &Placement) -> bool {
        let layout = &self.layout;
        layout.has_blocks_of(&BoundaryLayout::new(ty, Some(at), layout.blocks.len(), &layout.own))
    }
    fn block(&self, position: usize) -> Result<ArrayData, Fault> {
        let layout = &self.layout;
        let Some(k) = layout.own.iter().position(|device| *device == position) else {
            return Err(fault!(Device, "device {position} is not one of this process"));
        };
        let (storage, index) = (layout.ty.dtype.storage(), &layout.blocks[position]);
        let shape: Shape = index.iter().map(Range::len).collect();
        let mut buffer = Buffer::allocate(shape.num_elements() * storage.size())?;
        let read = self.blocks[k].read_into(buffer.fill_zeros());
        read.map_err(|e| e.diagnostics()[0].fault.clone())?;
        Ok(ArrayData::new(storage, shape, 1, Arc::new(buffer)))
    }
}

/// The devices of a client of several processes.
struct SharedDevices {
    client: Client,
    processes: usize,
}

impl ProcessDevices for SharedDevices {
    fn processes(&self) -> usize {
        self.processes
    }
    fn own(&self) -> &[usize] {
        self.client.own_devices()
    }
    fn place(&self, ty: &ArrayType, at: &Placement, block: &mut BlockFn<'_>) -> Result<ArrayData> {
        let client = &self.client;
        let layout = Arc::new(BoundaryLayout::new(ty, Some(at), client.devices(), client.own_devices()));
        let mut made = Vec::new();
        for (device, index) in layout.own_blocks() {
            let data = block(device, index)?;
            if ty.shape.num_elements() == 0 {
                continue;
            }
            let (dtype, shape) = layout.block_type(index);
            made.push(client.put(data.bytes()?, dtype, &shape, device)?);
        }
        layout.into_value(client, made)
    }
    fn check_equal(&self, what: &str, bytes: &[u8], location: SourceLocation) -> Result<()> {
        self.client.check_equal(what, bytes, location)
    }
    fn exchange(&self, what: &str, bytes: &[u8], location: SourceLocation) -> Result<Vec<Vec<u8>>> {
        (0..self.processes).map(|process| self.client.broadcast(what, (process, bytes), location)).collect()
    }
}

/// Returns the sum of a value's partial values.
fn sum_partials(slab: &ArrayData) -> Result<ArrayData, Fault> {
    let n = slab.shape().num_elements();
    with_dtype!(slab.dtype(), T => {
        let all = slab.elements::<T>();
        let sum = |k: usize| {
            let partials = (0..slab.num_partials()).map(|part| all[part * n + k].to_scalar());
            T::from_scalar(match slab.dtype().is_inexact() {
                true => Scalar::from(partials.map(Scalar::to_c128).sum::<num_complex::Complex<f64>>()),
                false => Scalar::Int(partials.fold(0, |sum: i128, x| sum.wrapping_add(x.to_i128()))),
            })
        };
        let sums: Vec<T> = (0..n).map(sum).collect();
        ArrayData::from_elements(slab.shape().clone(), &sums)
    })
}
