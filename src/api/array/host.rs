//! Conversion of arrays from and to host data: `Vec`, slices, ndarray arrays and shards.
//!
//! Methods that return host data return the error that the array carries, if any. Traced values and
//! donated arrays have no data, which is an error too.

use super::{Array, prims};
use crate::api::trace::{apply1, poison};
use crate::core::{
    ArrayType, Axes, DType, Element, Error, Fault, Result, Shape, SourceLocation, types::with_dtype,
};
use crate::exec::runtime::parallel_copy::{all_pairs, to_contiguous, to_f64_vec, to_vec};
use crate::exec::runtime::{ArrayData, process_devices};
use crate::ir::{ops::elementwise::broadcast_shapes, program::CallSite};
use ndarray::{ArrayBase, ArrayD, ArrayViewD, Data, Dimension, IxDyn};
use std::ops::Deref;
use std::panic::Location;

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
    pub(crate) fn host_data_once(&self, op: &'static str, location: SourceLocation) -> Result<ArrayData> {
        let slab = self.reduced_data(op, location)?;
        slab.contiguous_once().map_err(|fault| self.memory_error(fault, op, location))
    }
    /// Returns the data of the global array, maybe as a view; an unreduced array is summed.
    fn reduced_data(&self, op: &'static str, location: SourceLocation) -> Result<ArrayData> {
        let slab = self.array_data(op, location)?;
        let ty = self.type_ref().map_err(Error::clone)?;
        let call = CallSite::new(op, location);
        let summed = match &ty.mesh {
            // a program gathers it, in which all processes take part
            Some(mesh) if process_devices().is_some() && (!slab.is_local() || slab.num_partials() > 1) => {
                self.replicate(mesh, call)
            }
            Some(mesh) if slab.num_partials() > 1 => {
                apply1(prims::reshard(mesh, ty.spec.unreduced(Axes::none())), &[self.into()], call)
            }
            _ => return Ok(slab),
        };
        summed.array_data(op, location)
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
    /// Returns the array as one on no mesh that each process holds whole.
    ///
    /// If there are several processes, all of them call it. Each can then compute with the array
    /// alone, also by operations that do not run on several processes
    /// ([`distributed`](crate::distributed)). With one process, it copies nothing.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// let x = Array::arange(0..4).put(&mesh, p!["X"]).process_allgather();
    /// assert!(x.sharding()?.is_none());
    /// assert_eq!(x.to_vec::<i32>()?, [0, 1, 2, 3]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn process_allgather(&self) -> Array {
        let location = Location::caller();
        let Ok(ty) = self.type_ref() else { return self.clone() };
        match self.host_data_once("process_allgather", location) {
            Ok(slab) => Array::concrete(slab, ty.dtype.array_type(&ty.shape), None),
            Err(error) => poison(error),
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
}
