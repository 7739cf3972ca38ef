//! Exchanges host arrays with other libraries of the process through DLPack.
//!
//! An exported array shares its buffer with the consumer; the buffer lives as long as either side
//! holds it. An imported tensor that is row-major and aligned is wrapped as a borrowed buffer over
//! the owner's memory: the memory is never written, and is released when the last array that uses
//! it is dropped. Tensors of other layouts are copied.

use super::Array;
use crate::core::{DType, Error, ErrorKind, Fault, Result, Shape};
use crate::exec::runtime::parallel_copy::for_each_run;
use crate::exec::runtime::{ArrayData, Buffer, check_available};
use crate::kernels;
use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType};
use dlpark::metadata::Dynamic;
use dlpark::versioned::Dlpack;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, TensorRef};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

/// The element types that DLPack and this crate share, with their DLPack encoding.
const DLPACK_DTYPES: [(DType, DLDataType); 15] = [
    (DType::Bool, DLDataType::BOOL),
    (DType::I8, DLDataType::I8),
    (DType::I16, DLDataType::I16),
    (DType::I32, DLDataType::I32),
    (DType::I64, DLDataType::I64),
    (DType::U8, DLDataType::U8),
    (DType::U16, DLDataType::U16),
    (DType::U32, DLDataType::U32),
    (DType::U64, DLDataType::U64),
    (DType::F16, DLDataType::F16),
    (DType::BF16, DLDataType::BF16),
    (DType::F32, DLDataType::F32),
    (DType::F64, DLDataType::F64),
    (DType::C64, DLDataType::C64),
    (DType::C128, DLDataType::C128),
];

const TO_DLPACK: &str = "to_dlpack";
const FROM_DLPACK: &str = "from_dlpack";

/// # Other libraries
impl Array {
    /// Exports the array as a DLPack tensor on the CPU, for another library of this process.
    ///
    /// The tensor holds the global array in row-major order, whatever its sharding; an unreduced
    /// array is summed first. Data that is already contiguous is not copied. The tensor keeps its
    /// memory alive, and is marked read-only because arrays share buffers. This method requires the
    /// feature `dlpack`.
    ///
    /// A key array is an error (`ErrorKind::Dtype`): export its words, `key.data()`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// let tensor = x.to_dlpack()?;
    /// let seen = tensor.validate().map_err(atmesh::Error::other)?;
    /// assert_eq!((seen.shape(), seen.data_ptr()),
    ///     (&[2, 2][..], x.view::<i32>()?.as_ptr().cast()));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn to_dlpack(&self) -> Result<Dlpack> {
        let location = Location::caller();
        let ty = self.ty()?;
        let error = |fault| Error::new(fault, TO_DLPACK, vec![ty.to_string()], Some(location));
        let Some((_, dtype)) = DLPACK_DTYPES.iter().find(|t| t.0 == ty.dtype) else {
            let fault = fault!(Dtype, "{} is not an element type of DLPack", ty.dtype);
            return Err(error(fault.help("export the key's two words: `key.data()`")));
        };
        let slab = self.host_data(TO_DLPACK, location)?;
        let bytes = slab.bytes().map_err(error)?;
        let start = if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr() };
        let shape = slab.shape().to_vec();
        let made = Dynamic::compact(shape).initialize(Box::new(slab));
        let mut made = made.map_err(|why| error(data_error(why)))?;
        made.set_data(start.cast_mut().cast()).set_dtype(*dtype).set_device(DLDevice::CPU);
        made.set_flags(DlpackFlags::READ_ONLY).map_err(|why| error(data_error(why)))?;
        // SAFETY: `start` points to the contiguous value of `slab`, which the tensor owns, and
        // which is never written while a handle to it exists; dtype, shape and the read-only flag
        // were set above.
        Ok(unsafe { made.finish() })
    }
    /// Imports a DLPack tensor of either protocol version, as an array on no mesh.
    ///
    /// A row-major tensor that is aligned to the size of an element is not copied: the array reads
    /// the owner's memory, never writes to it, and releases it when the last array that uses it is
    /// dropped. Other layouts (transposed, strided, reversed) are copied to row-major order. This
    /// method requires the feature `dlpack`.
    ///
    /// Tensors outside of host memory and unsupported element types are errors.
    ///
    /// # Safety
    ///
    /// The tensor's pointer, shape and strides must describe memory that is readable from any
    /// thread. Nothing may write to this memory while an array uses it: if its owner may, copy the
    /// tensor first (`x.copy()` in NumPy).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let tensor = Array::from([1, 2, 3, 4]).to_dlpack()?;
    /// // SAFETY: the tensor shares an array's buffer, which is never written
    /// let x = unsafe { Array::from_dlpack(tensor) }?;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// assert_eq!(type_of(&x.put(&mesh, p!["X"])), "int32[4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_dlpack<M: ManagedTensorBase>(tensor: Managed<M>) -> Result<Array> {
        let location = Location::caller();
        // SAFETY: `tensor` describes memory that is readable from any thread and not written
        // (caller contract of `from_dlpack`).
        let taken = unsafe { import(tensor) };
        taken.map_err(|fault| Error::new(fault, FROM_DLPACK, Vec::new(), Some(location)))
    }
}

/// Returns a data error with this message.
fn data_error(why: impl ToString) -> Fault {
    Fault::new(ErrorKind::Data, why.to_string())
}

/// Imports a tensor, without copying if its layout and alignment allow it.
///
/// # Safety
/// The contract of [`Array::from_dlpack`] applies.
unsafe fn import<M: ManagedTensorBase>(tensor: Managed<M>) -> Result<Array, Fault> {
    let seen = tensor.validate().map_err(data_error)?;
    let dtype = host_type(&seen)?;
    let shape: Result<Vec<usize>, _> = seen.shape().iter().map(|n| usize::try_from(*n)).collect();
    let shape: Shape = shape.map_err(data_error)?.into();
    let ty = dtype.array_type(shape.clone());
    ty.check_addressable()?;
    let layout = DlpackLayout::from_tensor(&seen, &shape, dtype.size())?;
    // SAFETY: the pointer and the byte offset of `tensor` describe readable memory (caller contract
    // of `import`).
    let start = unsafe { seen.offset_bytes_ptr() }.map_err(data_error)?;
    // (kernels read complex128 as words of 16 bytes, which need more alignment than its parts)
    let aligned = start.addr().is_multiple_of(dtype.size());
    let buffer = match NonNull::new(start.cast_mut()) {
        Some(start) if layout.is_contiguous() && aligned && ty.nbytes() > 0 => {
            // SAFETY: the layout is contiguous, so `start` points to `nbytes` bytes that are
            // readable from any thread and not written until the tensor is released (caller
            // contract of `import`); the buffer owns the tensor.
            unsafe { Buffer::borrowed(start, ty.nbytes(), tensor.into_deleter()) }
        }
        // SAFETY: every element that the layout addresses is readable from any thread, and is not
        // written (caller contract of `import`); the elements have `ty.nbytes()` bytes in total.
        _ => unsafe { layout.copy_contiguous(start, ty.nbytes()) }?,
    };
    let slab = ArrayData::new(dtype, shape, 1, Arc::new(buffer));
    if dtype == DType::Bool && slab.bytes()?.iter().any(|b| *b > 1) {
        return Err(data_error("a bool in the tensor is neither true nor false"));
    }
    Ok(Array::concrete(slab, ty, None))
}

/// Returns the element type of a tensor; tensors outside of host memory are errors.
fn host_type(seen: &TensorRef<'_>) -> Result<DType, Fault> {
    let (device, dtype) = (seen.device(), seen.dtype());
    if device.device_type != DLDeviceType::CPU {
        let at = format!("type {} and index {}", device.device_type.0, device.device_id);
        return Err(data_error(format!("the tensor is on a device of {at}, not in host memory"))
            .help("copy it to the host first, as `x.cpu()` does in PyTorch"));
    }
    let known = DLPACK_DTYPES.iter().find(|t| t.1 == dtype).map(|t| t.0);
    known.ok_or_else(|| {
        let of = format!("code {}, {} bits and {} lanes", dtype.code.0, dtype.bits, dtype.lanes);
        fault!(Dtype, "arrays do not support the DLPack element type {of}")
            .help("convert the tensor first, as `x.astype(\"float32\")` does in NumPy")
    })
}

/// The strided layout of a tensor, relative to its first element.
struct DlpackLayout {
    /// The size of the contiguous innermost block, in bytes.
    run_bytes: usize,
    /// The outer dimensions, in order: size, and stride in bytes.
    outer_dims: Vec<(usize, isize)>,
}

/// The first element of a tensor, as a pointer that threads may share.
struct SharedPtr(*const u8);
// SAFETY: only `copy_contiguous` shares the pointer. Threads only read through it, and the memory
// is readable from any thread and not written meanwhile (caller contract of `copy_contiguous`).
unsafe impl Sync for SharedPtr {}

impl DlpackLayout {
    /// Computes the layout of a tensor; strides that overflow the address space are an error.
    fn from_tensor(seen: &TensorRef<'_>, shape: &[usize], size: usize) -> Result<DlpackLayout, Fault> {
        if shape.contains(&0) {
            return Ok(DlpackLayout { run_bytes: 0, outer_dims: Vec::new() });
        }
        let far = || data_error("the tensor's strides exceed the address space");
        let strides = seen.strides_or_compact().map_err(data_error)?;
        let (mut run, mut steps, mut reach) = (size, Vec::new(), size);
        for (n, stride) in shape.iter().zip(strides.iter()).rev().filter(|(n, _)| **n > 1) {
            let step = isize::try_from(*stride).ok().and_then(|s| s.checked_mul(size as isize));
            let step = step.ok_or_else(far)?;
            if steps.is_empty() && usize::try_from(step) == Ok(run) {
                run *= n;
            } else {
                steps.insert(0, (*n, step));
            }
            let most = step.unsigned_abs().checked_mul(n - 1).and_then(|most| most.checked_add(reach));
            reach = most.filter(|reach| isize::try_from(*reach).is_ok()).ok_or_else(far)?;
        }
        Ok(DlpackLayout { run_bytes: run, outer_dims: steps })
    }
    /// Returns true if all elements are contiguous in row-major order.
    fn is_contiguous(&self) -> bool {
        self.outer_dims.is_empty()
    }
    /// Copies the elements into a new buffer, in row-major order.
    ///
    /// # Safety
    /// Every element that the layout addresses from `start` must be readable from any thread, and
    /// must not be written during the call. The elements must be `bytes` bytes in total.
    unsafe fn copy_contiguous(&self, start: *const u8, bytes: usize) -> Result<Buffer, Fault> {
        check_available(bytes)?;
        let (mut buffer, start) = (Buffer::allocate(bytes)?, &SharedPtr(start));
        for_each_run(&mut buffer, self.run_bytes, |k, to| {
            let (mut rest, mut at) = (k, 0);
            for (n, step) in self.outer_dims.iter().rev() {
                at += (rest % n) as isize * step;
                rest /= n;
            }
            // SAFETY: the source block has `run_bytes` bytes, which are readable from this thread
            // (caller contract), and so has `to`, which is a mutable borrow of the new buffer.
            unsafe { kernels::copy(self.run_bytes, to.as_mut_ptr().cast(), start.0.offset(at), false) }
        });
        Ok(buffer)
    }
}
