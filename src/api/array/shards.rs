//! Arrays as the blocks that devices hold.
//!
//! In a program of several processes, each process has the blocks of its devices, and no
//! function of this file waits for another process.

use super::Array;
use super::assembly::{assemble, local_shape, own_devices};
use crate::api::trace::Repr;
use crate::core::mesh::default_device;
use crate::core::sharding::{Block, blocks_unchecked};
use crate::core::{DeviceId, Error, Fault, Result, Shape, Sharding, SourceLocation};
use crate::exec::runtime::parallel_copy::extract_block;
use crate::exec::runtime::{ArrayData, Buffer, process_devices};
use std::ops::Range;
use std::panic::Location;
use std::sync::Arc;

/// The block of an array that one device holds.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let shards = Array::arange(0..4).put(&mesh, p!["X"]).shards()?;
/// assert_eq!((shards[1].device.id(), shards[1].index[0].clone()), (1, 2..4));
/// assert_eq!(shards[1].data.to_vec::<i32>()?, [2, 3]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Shard {
    /// The device.
    pub device: DeviceId,
    /// The index range of the block in each dimension of the array.
    pub index: Vec<std::ops::Range<usize>>,
    /// The index of this replica: the number of earlier devices that hold the same block.
    pub replica: usize,
    /// The block, as an array on no mesh.
    pub data: Array,
}

/// The block of an array on a device of this process. Its elements are copied when they are read.
pub(crate) struct OwnBlock {
    /// The device.
    pub(crate) device: DeviceId,
    /// The position of the device in the mesh.
    pub(crate) position: usize,
    /// The index range of the block in each dimension of the array.
    pub(crate) index: Vec<Range<usize>>,
    /// The number of earlier devices, of all processes, that hold the same block.
    pub(crate) replica: usize,
    /// The array.
    value: ArrayData,
    /// The index of the partial value that the device has; 0 unless the array is unreduced.
    partial: usize,
}

impl OwnBlock {
    /// Copies the elements of the block.
    pub(crate) fn data(&self) -> Result<ArrayData, Fault> {
        let Some(foreign) = self.value.foreign().filter(|_| process_devices().is_some()) else {
            return extract_block(&self.value, self.partial, &self.index);
        };
        // the devices hold the sum of an unreduced array, which is its first partial value
        if self.partial == 0 {
            return foreign.block(self.position);
        }
        let shape: Shape = self.index.iter().map(Range::len).collect();
        let bytes = shape.num_elements() * self.value.dtype().size();
        let mut zeros = Buffer::allocate(bytes)?;
        zeros.fill_zeros();
        Ok(ArrayData::new(self.value.dtype(), shape, 1, Arc::new(zeros)))
    }
}

/// # Shards
impl Array {
    /// Returns the block that each device holds, in mesh order.
    ///
    /// If there are several processes, these are the devices of this process.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let a = Array::arange(0..4).put(&mesh, p!["X"]);
    /// let shards = a.shards()?;
    /// assert_eq!(shards[1].index, [2..4]);
    /// assert_eq!(shards[1].data.to_vec::<i32>()?, [2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("addressable_shards", "to_local"))]
    #[track_caller]
    pub fn shards(&self) -> Result<Vec<Shard>> {
        let location = Location::caller();
        let ty = self.ty()?;
        let shard = |block: OwnBlock| {
            let data = block
                .data()
                .map_err(|fault| Error::new(fault, "shards", vec![ty.to_string()], Some(location)))?;
            let data = Array::concrete(data, ty.dtype.array_type(local_shape(&block.index)), None);
            Ok(Shard { device: block.device, index: block.index, replica: block.replica, data })
        };
        self.own_blocks("shards", location)?.into_iter().map(shard).collect()
    }
    /// Returns the blocks of the devices of this process, in mesh order; the array itself if it is
    /// on no mesh.
    pub(crate) fn own_blocks(&self, op: &str, location: SourceLocation) -> Result<Vec<OwnBlock>> {
        let value = self.array_data(op, location)?;
        let ty = self.type_ref().map_err(Error::clone)?;
        let Some(sharding) = self.sharding()? else {
            let index = ty.shape.iter().map(|n| 0..*n).collect();
            let device = default_device();
            return Ok(vec![OwnBlock { device, position: 0, index, replica: 0, value, partial: 0 }]);
        };
        let mesh = &sharding.mesh;
        let blocks = blocks_unchecked(&sharding, &ty.shape).into_iter().enumerate();
        let own = blocks.zip(mesh.devices()).filter(|(_, device)| device.is_local());
        let block = |((position, Block { index, replica }), device): (_, &DeviceId)| {
            // the partial values of an unreduced array are indexed by the coordinates along its
            // axes
            let partial = mesh.rank_along(sharding.spec.unreduced_axes(), &mesh.coordinates(position));
            OwnBlock { device: *device, position, index, replica, value: value.clone(), partial }
        };
        Ok(own.map(block).collect())
    }
    /// Returns true if the devices of this process hold all elements, so that no other process
    /// takes part when they are read.
    ///
    /// If there is one process, this is true for all arrays. See
    /// [`distributed`](crate::distributed).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// assert!(Array::arange(0..4).put(&mesh, p!["X"]).is_local()?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("is_fully_addressable", "is_fully_replicated"))]
    #[track_caller]
    pub fn is_local(&self) -> Result<bool> {
        match self.repr() {
            Repr::Traced(t) => Ok(process_devices().is_none() || t.value.ty.mesh.is_none()),
            _ => Ok(self.array_data("is_local", Location::caller())?.is_local()),
        }
    }
    /// Assembles an array from the shards of all devices.
    ///
    /// `pieces[k]` is the shard of the k-th device of the mesh, and has the shape of that device's
    /// block. If there are several processes, each passes the shards of its devices. Replicas
    /// of a block must be equal. A missing shard, or one of the wrong shape or
    /// element type, is an error.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let sharding = Sharding::new(&mesh, p!["X"], &[4])?;
    /// let x = Array::from_shards([4], &sharding, [Array::from([1, 2]), Array::from([3, 4])])?;
    /// assert_eq!(type_of(&x), "int32[4@X]");
    /// assert!(Array::from_shards([4], &sharding, [Array::from([1, 2])]).is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("make_array_from_single_device_arrays", "from_local"))]
    #[track_caller]
    pub fn from_shards<A: Into<Array>>(
        shape: impl Into<Shape>,
        sharding: &Sharding,
        pieces: impl IntoIterator<Item = A>,
    ) -> Result<Array> {
        let location = Location::caller();
        let pieces: Vec<Array> = pieces.into_iter().map(Into::into).collect();
        let (given, devices) = (pieces.len(), own_devices(&sharding.mesh).count());
        if given > devices && !sharding.mesh.is_abstract() {
            let whose = if process_devices().is_some() { " of this process" } else { "" };
            let fault =
                fault!(Data, "there are {given} pieces, but {} has {devices} devices{whose}", sharding.mesh)
                    .help("give one piece for each device, in the mesh's order");
            return Err(Error::new(fault, "from_shards", Vec::new(), Some(location)));
        }
        assemble("from_shards", shape.into(), sharding, location, |k, _| Ok(pieces.get(k).cloned()))
    }
    /// Creates an array block by block: `f` maps the index ranges of a block to its data.
    ///
    /// `f` is called once for each distinct block; devices that hold replicas share it. If there
    /// are several processes, each calls it for the blocks of its devices only.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let sharding = Sharding::new(&mesh, p!["X"], &[8])?;
    /// let x = Array::from_fn([8], &sharding,
    ///     |index| Array::arange(index[0].start as i32..index[0].end as i32))?;
    /// assert_eq!(x.to_vec::<i32>()?, [0, 1, 2, 3, 4, 5, 6, 7]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias = "make_array_from_callback")]
    #[track_caller]
    pub fn from_fn<A: Into<Array>>(
        shape: impl Into<Shape>,
        sharding: &Sharding,
        mut f: impl FnMut(&[Range<usize>]) -> A,
    ) -> Result<Array> {
        let location = Location::caller();
        Array::from_blocks_at("from_fn", shape.into(), sharding, location, |index| f(index).into().ready())
    }
    /// Assembles an array from the part of it that each process holds.
    ///
    /// `local` has the elements on the devices of this process, which [`Sharding::local_index`]
    /// locates in the array of this shape. Each process passes its own part, for example the rows
    /// that it has read, and holds no other.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 4)])?;
    /// let sharding = Sharding::new(&mesh, p!["X"], &[8])?;
    /// // 0..8 in one process, 4..8 in the last of two
    /// let rows = sharding.local_index(&[8])?[0].clone();
    /// let local = Array::arange(rows.start as i32..rows.end as i32);
    /// let x = Array::from_process_local_data([8], &sharding, local)?;
    /// assert_eq!(type_of(&x), "int32[8@X]");
    /// assert_eq!(x.to_vec::<i32>()?, [0, 1, 2, 3, 4, 5, 6, 7]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    ///
    /// # Errors
    /// `local` has another shape than the part of this process, or the blocks of this process do
    /// not form a box.
    #[doc(alias("make_array_from_process_local_data", "host_local_array_to_global_array"))]
    #[track_caller]
    pub fn from_process_local_data<A: Into<Array>>(
        shape: impl Into<Shape>,
        sharding: &Sharding,
        local: A,
    ) -> Result<Array> {
        let (op, location, shape) = ("from_process_local_data", Location::caller(), shape.into());
        let local = local.into();
        let (data, ty) = (local.array_data(op, location)?, local.ty()?);
        let error = |fault| Error::new(fault, op, vec![ty.to_string()], Some(location));
        let held = sharding.try_local_index(&shape).map_err(error)?;
        if ty.shape != local_shape(&held) {
            let fault = fault!(
                Shape,
                "this process holds {held:?} of {shape}, of shape {}, and the local part has shape {}",
                local_shape(&held),
                ty.shape
            );
            return Err(error(match ty.shape == shape {
                true => fault.help(format!(
                    "place an array that each process has whole: `x.put(&mesh, {})`",
                    sharding.spec
                )),
                false => fault.help("give the elements at the index ranges `sharding.local_index(&shape)`"),
            }));
        }
        Array::from_blocks_at(op, shape, sharding, location, |index| {
            let within = index.iter().zip(&held).map(|(r, held)| r.start - held.start..r.end - held.start);
            let block = extract_block(&data, 0, &within.collect::<Vec<_>>()).map_err(error)?;
            Ok(Array::concrete(block, ty.dtype.array_type(local_shape(index)), None))
        })
    }
    /// Implements [`Array::from_fn`], for the operation `op`.
    pub(crate) fn from_blocks_at(
        op: &str,
        shape: Shape,
        sharding: &Sharding,
        location: SourceLocation,
        mut f: impl FnMut(&[Range<usize>]) -> Result<Array>,
    ) -> Result<Array> {
        let mut made: Vec<(Vec<Range<usize>>, Array)> = Vec::new();
        assemble(op, shape, sharding, location, |_, index| {
            if let Some((_, known)) = made.iter().find(|m| m.0 == index) {
                return Ok(Some(known.clone()));
            }
            let piece = f(index)?;
            made.push((index.to_vec(), piece.clone()));
            Ok(Some(piece))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::{DType, Mesh};
    use crate::p;
    use ndarray::ArrayD;

    /// Every block of a small array is cut out and assembled again, for several shardings.
    #[test]
    fn blocks_are_cut_out_and_put_together() {
        let mesh = Mesh::new([("x", 2), ("y", 3)]).unwrap();
        let x = Array::from(ArrayD::from_shape_vec(&[4, 3, 2][..], (0..24).collect::<Vec<i16>>()).unwrap());
        let full = x.array_data("test", Location::caller()).unwrap();
        for spec in [p![], p!["x"], p![_, "y"], p!["x", "y"], p![_, "y", "x"], p![_, _, "x"]] {
            let sharding = Sharding::new(&mesh, spec, &[4, 3, 2]).unwrap();
            let piece = |index: &[Range<usize>]| {
                let cut = extract_block(&full, 0, index).unwrap();
                let ty = DType::I16.array_type(cut.shape());
                Array::concrete(cut, ty, None)
            };
            let again = Array::from_fn([4, 3, 2], &sharding, piece).unwrap();
            assert_eq!(again.to_vec::<i16>().unwrap(), x.to_vec::<i16>().unwrap(), "{spec}");
        }
    }
}
