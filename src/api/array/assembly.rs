//! Assembles arrays from the blocks of devices.

use super::Array;
use super::sharding::{abstract_mesh_error, check_even, placed_type};
use crate::api::trace::input_placement;
use crate::core::sharding::{Block, blocks_unchecked, check_unreduced_dtype};
use crate::core::{ArrayType, DType, DeviceId, Error, Fault, Mesh, Result, Shape, Sharding, SourceLocation};
use crate::exec::runtime::parallel_copy::{block_runs, write_runs};
use crate::exec::runtime::{
    ArrayData, Buffer, ProcessDevices, check_available, compares_replicas, process_devices, stable_hash,
};
use std::ops::Range;
use std::sync::Arc;

/// Returns the shape of a block.
pub(super) fn local_shape(index: &[Range<usize>]) -> Shape {
    index.iter().map(Range::len).collect()
}

/// Iterates over the devices of this process, in mesh order.
pub(super) fn own_devices(mesh: &Mesh) -> impl Iterator<Item = &DeviceId> {
    mesh.devices().iter().filter(|device| device.is_local())
}

/// Allocates a buffer for `copies` arrays of this type, if the memory is there.
fn allocate_copies(ty: &ArrayType, copies: usize) -> Result<Buffer, Fault> {
    let bytes = ty.nbytes().saturating_mul(copies);
    ty.check_addressable()?;
    check_available(bytes)?;
    Buffer::allocate(bytes)
}

/// The array that is assembled from pieces, and the call that assembles it.
struct Assembly<'a> {
    op: &'a str,
    location: SourceLocation,
    shape: &'a Shape,
    sharding: &'a Sharding,
}

impl Assembly<'_> {
    fn error(&self, fault: Fault) -> Error {
        Error::new(fault, self.op, vec![self.shape.to_string()], Some(self.location))
    }
    /// Returns the error that the piece at a position of the mesh is wrong.
    fn reject(&self, position: usize, why: &str) -> Error {
        let name = match self.sharding.mesh.devices().get(position) {
            Some(device) => format!("device {device}"),
            None => format!("device {position}"),
        };
        let help = "give one piece per device, with the shape and index range that `shards()` of such an array shows";
        let fault = fault!(Data, "the piece of {name} {why}").help(help);
        Error::new(fault, self.op, Vec::new(), Some(self.location))
    }
    /// Checks the piece at a position of the mesh, and returns its data and element type.
    ///
    /// `before` is the element type of the pieces before it.
    fn check(
        &self,
        position: usize,
        index: &[Range<usize>],
        piece: Option<Array>,
        before: Option<DType>,
    ) -> Result<(ArrayData, DType)> {
        let shape = self.shape;
        let Some(data) = piece else {
            return Err(self.reject(position, &format!("is missing: it holds {index:?} of {shape}")));
        };
        let slab = data.array_data(self.op, self.location)?;
        let ty = data.ty()?;
        let local = local_shape(index);
        if ty.shape != local {
            let why = format!("has shape {}, but it holds {index:?} of {shape}: shape {local}", ty.shape);
            return Err(self.reject(position, &why));
        }
        check_unreduced_dtype(self.sharding.spec, ty.dtype)
            .map_err(|f| Error::new(f, self.op, vec![ty.to_string()], Some(self.location)))?;
        match before {
            Some(dtype) if dtype != ty.dtype => {
                Err(self.reject(position, &format!("is {}, those before are {dtype}", ty.dtype)))
            }
            _ => Ok((slab, ty.dtype)),
        }
    }
    /// Returns the array of these elements.
    fn array(&self, slab: ArrayData, dtype: DType) -> Array {
        let mut ty = placed_type(dtype, self.shape, self.sharding);
        ty.spec = ty.spec.padded(self.shape.rank());
        Array::concrete(slab, ty, Some(self.sharding.clone()))
    }
    fn replica_error(&self, position: usize, index: &[Range<usize>]) -> Error {
        let why = format!("differs from that of another device that holds the same block, {index:?}");
        self.reject(position, &why)
    }
}

/// Assembles an array from one shard per device of this process.
///
/// `piece` returns the shard of the k-th of these devices, which has this index range, or `None` if
/// it is missing.
pub(super) fn assemble(
    op: &str,
    shape: Shape,
    sharding: &Sharding,
    location: SourceLocation,
    piece: impl FnMut(usize, &[Range<usize>]) -> Result<Option<Array>>,
) -> Result<Array> {
    let mesh = &sharding.mesh;
    let error = |fault| Error::new(fault, op, vec![shape.to_string()], Some(location));
    if mesh.is_abstract() {
        return Err(error(abstract_mesh_error(mesh)));
    }
    let sharding = Sharding::try_new(mesh, sharding.spec, &shape).map_err(error)?;
    let assembly = Assembly { op, location, shape: &shape, sharding: &sharding };
    match process_devices() {
        Some(devices) => assemble_on_devices(&assembly, devices, piece),
        None => assemble_here(&assembly, piece),
    }
}

/// Assembles an array in the memory of this process.
fn assemble_here(
    assembly: &Assembly<'_>,
    mut piece: impl FnMut(usize, &[Range<usize>]) -> Result<Option<Array>>,
) -> Result<Array> {
    let Assembly { shape, sharding, .. } = *assembly;
    let mesh = &sharding.mesh;
    let unreduced = sharding.spec.unreduced_axes();
    let copies: usize = unreduced.iter().map(|a| mesh.extent(a)).product();
    let mut target: Option<(DType, Buffer)> = None;
    for (position, Block { index, replica, .. }) in blocks_unchecked(sharding, shape).into_iter().enumerate()
    {
        let given = piece(position, &index)?;
        let before = target.as_ref().map(|target| target.0);
        let (slab, dtype) = assembly.check(position, &index, given, before)?;
        let size = dtype.size();
        let (_, buffer) = match &mut target {
            Some(target) => target,
            empty => {
                let whole = dtype.array_type(shape);
                empty.insert((dtype, allocate_copies(&whole, copies).map_err(|fault| assembly.error(fault))?))
            }
        };
        let copy = mesh.rank_along(unreduced, &mesh.coordinates(position));
        let base = copy * shape.num_elements() * size;
        let (run, starts) = block_runs(shape, &index, size);
        let from = slab.contiguous().map_err(|fault| assembly.error(fault))?;
        // SAFETY: the shard has the block's shape (checked above), so its runs are disjoint and
        // within `buffer`, which no other code uses. With `replica > 0` they are initialized,
        // because an earlier position, with replica 0, has the same block.
        let same = unsafe {
            let from = std::slice::from_raw_parts(from.as_ptr(), slab.nbytes());
            write_runs(from, run, buffer.as_mut_ptr().add(base), &starts, replica > 0)
        };
        if !same {
            return Err(assembly.replica_error(position, &index));
        }
    }
    let Some((dtype, buffer)) = target else {
        return Err(assembly.error(fault!(Data, "a mesh without devices holds no pieces")));
    };
    let slab = ArrayData::new(dtype.storage(), shape.clone(), copies, Arc::new(buffer));
    Ok(assembly.array(slab, dtype))
}

/// Assembles an array of several processes from the pieces of this one, in the memory of its
/// devices.
fn assemble_on_devices(
    assembly: &Assembly<'_>,
    devices: &dyn ProcessDevices,
    mut piece: impl FnMut(usize, &[Range<usize>]) -> Result<Option<Array>>,
) -> Result<Array> {
    let Assembly { shape, sharding, .. } = *assembly;
    check_even(sharding, shape).map_err(|fault| assembly.error(fault))?;
    if !sharding.spec.unreduced_axes().is_empty() {
        let fault = fault!(Unsupported, "{} is unreduced, and there are several processes", sharding.spec)
            .help("assemble the partial values along a new dimension that is sharded, and sum over it");
        return Err(assembly.error(fault));
    }
    let blocks = blocks_unchecked(sharding, shape);
    let own = devices.own();
    let Some(first) = own.first() else {
        return Err(assembly.error(fault!(Data, "a process without devices holds no pieces")));
    };
    let given = piece(0, &blocks[*first].index)?;
    let (data, dtype) = assembly.check(*first, &blocks[*first].index, given, None)?;
    let mut next = Some(data);
    let mut seen: Vec<(usize, ArrayData)> = Vec::new();
    let (mut number, mut hashes) = (0, Vec::new());
    let ty = placed_type(dtype, shape, sharding);
    let at = input_placement(shape.rank(), Some(sharding));
    let slab = devices.place(&ty, &at, &mut |position, index| {
        let data = match next.take() {
            Some(data) => data,
            None => assembly.check(position, index, piece(number, index)?, Some(dtype))?.0,
        };
        number += 1;
        if compares_replicas() {
            hashes.extend(stable_hash(data.bytes()?));
        }
        // replicas of a block on devices of this process must be equal
        match seen.iter().find(|(other, _)| blocks[*other].index == index) {
            Some((_, same)) if same.bytes()? != data.bytes()? => {
                return Err(assembly.replica_error(position, index));
            }
            Some(_) => {}
            None if own.iter().any(|d| *d > position && blocks[*d].index == index) => {
                seen.push((position, data.clone()));
            }
            None => {}
        }
        Ok(data)
    });
    let slab = slab.map_err(|e| e.with_location(assembly.op, assembly.location))?;
    if compares_replicas() {
        let all = devices.exchange(assembly.op, &hashes, assembly.location)?.concat();
        // devices are numbered process by process
        for (position, (block, hash)) in blocks.iter().zip(all.chunks(8)).enumerate() {
            let earlier = blocks[..position].iter().position(|other| other.index == block.index);
            if earlier.is_some_and(|other| all[other * 8..][..8] != *hash) {
                return Err(assembly.replica_error(position, &block.index));
            }
        }
    }
    Ok(assembly.array(slab, dtype))
}
