//! Conversion of arrays from and to host data: `Vec`, slices, ndarray arrays and shards.
//!
//! Methods that return host data return the error that the array carries, if any. Traced values and
//! donated arrays have no data, which is an error too.

use super::sharding::{abstract_mesh_error, placed_type};
use super::{Array, prims};
use crate::api::trace::{apply1, poison};
use crate::core::sharding::{Block, blocks_unchecked, check_unreduced_dtype};
use crate::core::{
    ArrayType, Axes, DType, Element, Error, Fault, Result, Shape, Sharding, SourceLocation, types::with_dtype,
};
use crate::exec::runtime::parallel_copy::{
    all_pairs, block_runs, to_contiguous, to_f64_vec, to_vec, write_runs,
};
use crate::exec::runtime::{ArrayData, Buffer, check_available};
use crate::ir::{ops::elementwise::broadcast_shapes, program::CallSite};
use ndarray::{ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};
use std::ops::{Deref, Range};
use std::panic::Location;
use std::sync::Arc;

/// Creates an array from elements in row-major order.
#[track_caller]
fn from_elements<T: Element>(shape: Shape, data: &[T]) -> Array {
    concrete_from(T::DTYPE.array_type(&shape), || ArrayData::from_elements(shape, data))
}
/// Creates a concrete array on no mesh from the data that `numbers` returns.
#[track_caller]
fn concrete_from(ty: ArrayType, numbers: impl FnOnce() -> Result<ArrayData, Fault>) -> Array {
    // even if a dimension is empty, the product of the others may overflow
    match ty.check_addressable().and_then(|()| numbers()) {
        Ok(slab) => Array::concrete(slab, ty, None),
        Err(fault) => poison(Error::new(fault, "from", vec![ty.to_string()], Some(Location::caller()))),
    }
}

conversions! { Array:
    [T: Element] T => |x| from_elements(Shape::scalar(), &[x]);
    [T: Element] Vec<T> => |x| from_elements([x.len()].into(), &x);
    [T: Element] &[T] => |x| from_elements([x.len()].into(), x);
    [T: Element, const N: usize] [T; N] => |x| from_elements([N].into(), &x);
    [T: Element, const N: usize, const M: usize] [[T; M]; N]
        => |x| from_elements([N, M].into(), x.as_flattened());
}
/// Collects the elements into an array of rank 1.
impl<T: Element> FromIterator<T> for Array {
    fn from_iter<I: IntoIterator<Item = T>>(all: I) -> Array {
        Array::from(all.into_iter().collect::<Vec<T>>())
    }
}
/// Converts with [`Array::to_vec`].
impl<T: Element> TryFrom<&Array> for Vec<T> {
    type Error = Error;
    #[track_caller]
    fn try_from(x: &Array) -> Result<Vec<T>> {
        x.to_vec()
    }
}
/// Converts with [`Array::to_ndarray`].
impl<T: Element> TryFrom<&Array> for ArrayD<T> {
    type Error = Error;
    #[track_caller]
    fn try_from(x: &Array) -> Result<ArrayD<T>> {
        x.to_ndarray()
    }
}
/// Copies an ndarray array of any strides, in row-major order.
impl<T: Element, S: Data<Elem = T>, D: Dimension> From<ArrayBase<S, D>> for Array {
    #[track_caller]
    fn from(x: ArrayBase<S, D>) -> Array {
        let shape: Shape = x.shape().into();
        match x.as_slice() {
            Some(data) => from_elements(shape, data),
            None => concrete_from(T::DTYPE.array_type(&shape), || to_contiguous(x.view())),
        }
    }
}
/// Copies a borrowed ndarray array of any strides, in row-major order.
impl<T: Element, S: Data<Elem = T>, D: Dimension> From<&ArrayBase<S, D>> for Array {
    #[track_caller]
    fn from(x: &ArrayBase<S, D>) -> Array {
        x.view().into()
    }
}

/// A zero-copy view of an array's data on the host, in row-major order.
///
/// It dereferences to a slice; [`HostView::array`] returns an ndarray view.
#[derive(Clone, Debug)]
pub struct HostView<T> {
    data: ArrayData,
    element: std::marker::PhantomData<T>,
}
impl<T: Element> HostView<T> {
    /// Returns the data as an ndarray view.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.view::<i32>()?.array().sum(), 10);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn array(&self) -> ArrayViewD<'_, T> {
        ArrayViewD::from_shape(IxDyn(self.data.shape()), self).expect("array data has the size of its shape")
    }
}
impl<T: Element> Deref for HostView<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.data.elements()
    }
}

/// # Host data
impl Array {
    /// Returns the global array in row-major order; an unreduced array is summed.
    pub(crate) fn host_data(&self, op: &'static str, location: SourceLocation) -> Result<ArrayData> {
        let slab = self.reduced_data(op, location)?;
        slab.contiguous().map_err(|fault| self.memory_error(fault, op, location))?;
        Ok(slab)
    }
    /// Returns the global array like [`Array::host_data`], without keeping a copy that has to be
    /// made.
    #[cfg(feature = "safetensors")]
    pub(crate) fn host_data_once(&self, op: &'static str, location: SourceLocation) -> Result<ArrayData> {
        let slab = self.reduced_data(op, location)?;
        slab.contiguous_once().map_err(|fault| self.memory_error(fault, op, location))
    }
    /// Returns the data of the global array, maybe as a view; an unreduced array is summed.
    fn reduced_data(&self, op: &'static str, location: SourceLocation) -> Result<ArrayData> {
        let mut slab = self.array_data(op, location)?;
        let ty = self.type_ref().map_err(Error::clone)?;
        if let (2.., Some(mesh)) = (slab.num_partials(), &ty.mesh) {
            let spec = ty.spec.unreduced(Axes::none());
            slab = apply1(prims::reshard(mesh, spec), &[self.into()], CallSite::new(op, location))
                .array_data(op, location)?;
        }
        Ok(slab)
    }
    /// Returns the error that there is not enough memory for the array's data.
    fn memory_error(&self, fault: Fault, op: &str, location: SourceLocation) -> Error {
        Error::new(fault, op, self.type_ref().map(|ty| ty.to_string()).into_iter().collect(), Some(location))
    }
    /// Returns the global array in row-major order, if its element type is `T`.
    fn typed_host_data<T: Element>(&self, op: &'static str, location: SourceLocation) -> Result<ArrayData> {
        let ty = self.ty()?;
        if ty.dtype != T::DTYPE {
            let fault = fault!(Dtype, "the array is {}, not {}", ty.dtype, T::DTYPE);
            let fault = match ty.dtype {
                DType::Key => fault.help("a key's two words: `key.data()`"),
                _ => fault.help(format!("convert it first: `.astype({:?})`", T::DTYPE)),
            };
            return Err(Error::new(fault, op, vec![ty.to_string()], Some(location)));
        }
        self.host_data(op, location)
    }
    /// Returns the elements in row-major order.
    ///
    /// It is an error if the element type is not `T`, or if the array carries an error, is traced
    /// or was donated.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// assert_eq!(x.to_vec::<i32>()?, [1, 2, 3, 4]);
    /// assert!(x.to_vec::<f32>().is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn to_vec<T: Element>(&self) -> Result<Vec<T>> {
        let location = Location::caller();
        let slab = self.typed_host_data::<T>("to_vec", location)?;
        to_vec(slab.elements()).map_err(|fault| self.memory_error(fault, "to_vec", location))
    }
    /// Copies the data into an ndarray array.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::arange(0..6).reshape([2, 3]).to_ndarray::<i32>()?;
    /// assert_eq!((x.shape(), x[[1, 2]]), (&[2, 3][..], 5));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[doc(alias("device_get", "full_tensor", "numpy"))]
    #[track_caller]
    pub fn to_ndarray<T: Element>(&self) -> Result<ArrayD<T>> {
        let location = Location::caller();
        let slab = self.typed_host_data::<T>("to_ndarray", location)?;
        let data = to_vec(slab.elements());
        let data = data.map_err(|fault| self.memory_error(fault, "to_ndarray", location))?;
        Ok(ArrayD::from_shape_vec(IxDyn(slab.shape()), data).expect("array data has the size of its shape"))
    }
    /// Returns a zero-copy view of the data, as a slice and an ndarray view.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// let view = x.view::<i32>()?;
    /// assert_eq!(view.array()[[1, 0]], 3);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn view<T: Element>(&self) -> Result<HostView<T>> {
        let slab = self.typed_host_data::<T>("view", Location::caller())?;
        Ok(HostView { data: slab, element: std::marker::PhantomData })
    }
    /// Returns the element of an array of size 1.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).sum(..).item::<i32>()?, 6);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn item<T: Element>(&self) -> Result<T> {
        let location = Location::caller();
        let slab = self.typed_host_data::<T>("item", location)?;
        match slab.elements() {
            [x] => Ok(*x),
            all => {
                let fault = fault!(Shape, "`item` of an array of {} elements", all.len())
                    .help("`to_vec` gives all of them");
                Err(Error::new(fault, "item", vec![self.ty()?.to_string()], Some(location)))
            }
        }
    }
    /// Returns the element type, or the error that the array carries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::from([1u8]).dtype()?, U8);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn dtype(&self) -> Result<DType> {
        self.type_ref().map(|t| t.dtype).map_err(Error::clone)
    }
    /// Returns the number of elements, or the error that the array carries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::ones([4, 2]);
    /// assert_eq!((x.size()?, x.nbytes()?), (8, 32));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn size(&self) -> Result<usize> {
        self.type_ref().map(|t| t.shape.num_elements()).map_err(Error::clone)
    }
    /// Returns the size of the global array in bytes, or the error that the array carries.
    pub fn nbytes(&self) -> Result<usize> {
        self.type_ref().map(ArrayType::nbytes).map_err(Error::clone)
    }
    /// Returns true if |a − b| ≤ 1e-8 + 1e-5·|b| for all elements; shapes broadcast.
    ///
    /// NaN is not close to anything.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 2.0]);
    /// assert!(x.allclose(&(&x + 1e-6))? && !x.allclose(&(&x + 1e-3))?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn allclose(&self, other: &Array) -> Result<bool> {
        self.allclose_with(other, 1e-5, 1e-8)
    }
    /// Returns true if |a − b| ≤ atol + rtol·|b| for all elements; shapes broadcast.
    ///
    /// NaN is not close to anything.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([1.0f32, 2.0]);
    /// assert!(x.allclose_with(&(&x * 1.1), 0.2, 0.0)?);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    #[doc(alias = "allclose")]
    pub fn allclose_with(&self, other: &Array, rtol: f64, atol: f64) -> Result<bool> {
        let location = Location::caller();
        let complex = |x: &Array| x.type_ref().is_ok_and(|ty| ty.dtype.is_complex());
        if complex(self) || complex(other) {
            return self.allclose_complex(other, [rtol, atol], location);
        }
        let (a, b) = (self.to_f64_ndarray(location)?, other.to_f64_ndarray(location)?);
        let (ta, tb) = (self.ty()?, other.ty()?);
        let shape = broadcast_shapes([(0, &*ta.shape), (1, &*tb.shape)])
            .map_err(|f| Error::new(f, "allclose", vec![ta.to_string(), tb.to_string()], Some(location)))?;
        let whole = "broadcasting was checked";
        let (a, b) = (a.broadcast(IxDyn(&shape)).expect(whole), b.broadcast(IxDyn(&shape)).expect(whole));
        let close = |a: &f64, b: &f64| a == b || b.is_finite() && (a - b).abs() <= atol + rtol * b.abs();
        Ok(all_pairs(a, b, close))
    }
    /// Returns the data converted to float64.
    fn to_f64_ndarray(&self, location: SourceLocation) -> Result<ArrayD<f64>> {
        let slab = self.host_data("allclose", location)?;
        let data = with_dtype!(self.dtype()?, T => to_f64_vec(slab.elements::<T>(), T::to_f64));
        let data = data.map_err(|fault| self.memory_error(fault, "allclose", location))?;
        Ok(ArrayD::from_shape_vec(IxDyn(slab.shape()), data).expect("array data has the size of its shape"))
    }
    /// Assembles an array from the shards of all devices.
    ///
    /// `pieces[k]` is the shard of the k-th device of the mesh, and has the shape of that device's
    /// block. Replicas of a block must be equal. A missing shard, or one of the wrong shape or
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
        let (given, devices) = (pieces.len(), sharding.mesh.size());
        if given > devices {
            let fault = fault!(Data, "there are {given} pieces, but {} has {devices} devices", sharding.mesh)
                .help("give one piece for each device, in the mesh's order");
            return Err(Error::new(fault, "from_shards", Vec::new(), Some(location)));
        }
        assemble("from_shards", shape.into(), sharding, location, |k, _| Ok(pieces.get(k).cloned()))
    }
    /// Creates an array block by block: `f` maps the index ranges of a block to its data.
    ///
    /// `f` is called once for each distinct block; devices that hold replicas share it.
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
        let mut made: Vec<(Vec<Range<usize>>, Array)> = Vec::new();
        assemble("from_fn", shape.into(), sharding, location, |_, index| {
            if let Some((_, known)) = made.iter().find(|m| m.0 == index) {
                return Ok(Some(known.clone()));
            }
            let piece = f(index).into().ready()?;
            made.push((index.to_vec(), piece.clone()));
            Ok(Some(piece))
        })
    }
}

/// Allocates a buffer for `copies` arrays of this type, if the memory is there.
fn allocate_copies(ty: &ArrayType, copies: usize) -> Result<Buffer, Fault> {
    let bytes = ty.nbytes().saturating_mul(copies);
    ty.check_addressable()?;
    check_available(bytes)?;
    Buffer::allocate(bytes)
}

/// Assembles an array from one shard per device.
///
/// `piece` returns the shard at a mesh position with this index range, or `None` if it is missing.
fn assemble(
    op: &str,
    shape: Shape,
    sharding: &Sharding,
    location: SourceLocation,
    mut piece: impl FnMut(usize, &[Range<usize>]) -> Result<Option<Array>>,
) -> Result<Array> {
    let reject = |fault: Fault| {
        let help = "give one piece per device, with the shape and index range that `shards()` of such an array shows";
        Error::new(fault.help(help), op, Vec::new(), Some(location))
    };
    let mesh = &sharding.mesh;
    let error = |fault| Error::new(fault, op, vec![shape.to_string()], Some(location));
    if mesh.is_abstract() {
        return Err(error(abstract_mesh_error(mesh)));
    }
    let sharding = Sharding::try_new(mesh, sharding.spec, &shape).map_err(error)?;
    let unreduced = sharding.spec.unreduced_axes();
    let copies: usize = unreduced.iter().map(|a| mesh.extent(a)).product();
    let mut target: Option<(DType, Buffer)> = None;
    for (position, Block { index, replica, .. }) in
        blocks_unchecked(&sharding, &shape).into_iter().enumerate()
    {
        let name = match mesh.devices().get(position) {
            Some(device) => format!("device {device}"),
            None => format!("device {position}"),
        };
        let wrong = |why: String| reject(fault!(Data, "the piece of {name} {why}"));
        let Some(data) = piece(position, &index)? else {
            return Err(wrong(format!("is missing: it holds {index:?} of {shape}")));
        };
        let slab = data.array_data(op, location)?;
        let ty = data.ty()?;
        let local: Shape = index.iter().map(Range::len).collect();
        if ty.shape != local {
            return Err(wrong(format!(
                "has shape {}, but it holds {index:?} of {shape}: shape {local}",
                ty.shape
            )));
        }
        let size = ty.dtype.size();
        check_unreduced_dtype(sharding.spec, ty.dtype)
            .map_err(|f| Error::new(f, op, vec![ty.to_string()], Some(location)))?;
        let (dtype, buffer) = match &mut target {
            Some(target) => target,
            empty => {
                let whole = ty.dtype.array_type(&shape);
                empty.insert((ty.dtype, allocate_copies(&whole, copies).map_err(error)?))
            }
        };
        if *dtype != ty.dtype {
            return Err(wrong(format!("is {}, those before are {dtype}", ty.dtype)));
        }
        let copy = mesh.rank_along(unreduced, &mesh.coordinates(position));
        let base = copy * shape.num_elements() * size;
        let (run, starts) = block_runs(&shape, &index, size);
        let from = slab.contiguous().map_err(error)?;
        // SAFETY: the shard has the block's shape (checked above), so its runs are disjoint and
        // within `buffer`, which no other code uses. With `replica > 0` they are initialized,
        // because an earlier position, with replica 0, has the same block.
        let same = unsafe {
            let from = std::slice::from_raw_parts(from.as_ptr(), slab.nbytes());
            write_runs(from, run, buffer.as_mut_ptr().add(base), &starts, replica > 0)
        };
        if !same {
            return Err(wrong(format!(
                "differs from that of another device that holds the same block, {index:?}"
            )));
        }
    }
    let (dtype, buffer) =
        target.ok_or_else(|| reject(fault!(Data, "a mesh without devices holds no pieces")))?;
    let slab = ArrayData::new(dtype.storage(), shape.clone(), copies, Arc::new(buffer));
    let mut ty = placed_type(dtype, &shape, &sharding);
    ty.spec = ty.spec.padded(shape.rank());
    Ok(Array::concrete(slab, ty, Some(sharding)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::runtime::parallel_copy::extract_block;
    use crate::{Mesh, p};

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
