//! DLPack: numbers that libraries of one process share, without a copy.
//!
//! An array that goes out is lent: whoever takes it reads its memory, which lives as long as either side has it. What comes in is lent to us: a
//! buffer over the other's memory, which is never written and is given back with the last array that has it.

use super::Array;
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::runtime::host::each_run;
use crate::runtime::kernels;
use crate::runtime::{Buffer, Slab, fits};
use crate::types::{DType, Shape, with_dtype};
use dlpark::ffi::{DLDataType, DLDevice, DLDeviceType};
use dlpark::metadata::Dynamic;
use dlpark::versioned::Dlpack;
use dlpark::{DlpackFlags, Managed, ManagedTensorBase, TensorRef};
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::Arc;

/// The element types that both have.
const TYPES: [(DType, DLDataType); 15] = [
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

const TO: &str = "to_dlpack";
const FROM: &str = "from_dlpack";

/// # Other libraries
impl Array {
    /// Its numbers as a DLPack tensor, for another library of this process (feature `dlpack`): on the CPU, row-major, global whatever the
    /// sharding; those of an unreduced array are summed. They are not copied where they are in one piece already. The tensor is marked read-only,
    /// since arrays share their memory, and keeps the memory as long as it lives.
    ///
    /// Keys are refused: a key's two words are `key.data()`.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let x = Array::from([[1, 2], [3, 4]]);
    /// let tensor = x.to_dlpack()?;
    /// let seen = tensor.validate().map_err(atmesh::Error::other)?;
    /// assert_eq!((seen.shape(), seen.data_ptr()), (&[2, 2][..], x.view::<i32>()?.as_ptr().cast()));
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub fn to_dlpack(&self) -> Result<Dlpack> {
        let place = Location::caller();
        let ty = self.ty()?;
        let refused = |fault| Error::at(fault, TO, vec![ty.to_string()], Some(place));
        let Some((_, dtype)) = TYPES.iter().find(|t| t.0 == ty.dtype) else {
            let fault = Fault::new(ErrorKind::Dtype, format!("{} has no form in DLPack", ty.dtype));
            return Err(refused(fault.help("a key's two words have: `key.data()`")));
        };
        let slab = self.numbers(TO, place)?;
        let bytes = slab.bytes().map_err(refused)?;
        let start = if bytes.is_empty() { std::ptr::null() } else { bytes.as_ptr() };
        let shape = slab.shape().to_vec();
        let made = Dynamic::compact(shape).initialize(Box::new(slab));
        let mut made = made.map_err(|why| refused(data(why)))?;
        made.set_data(start.cast_mut().cast()).set_dtype(*dtype).set_device(DLDevice::CPU);
        made.set_flags(DlpackFlags::READ_ONLY).map_err(|why| refused(data(why)))?;
        // SAFETY: the tensor owns a handle on the slab, whose value in one piece begins there and is never written while there is one; it is
        // of this type, row-major, and marked as read-only
        Ok(unsafe { made.finish() })
    }
    /// An array of a DLPack tensor's numbers (feature `dlpack`), of either form of the protocol, on no mesh: [`put`](Array::put) places it.
    /// Numbers that are row-major and aligned to their type stay where they are. The array reads them there, never writes over them, and
    /// gives them back when the last array that has them is dropped. Others (transposed, with steps, reversed) are copied in row-major order.
    ///
    /// What is not in the host's memory is an error, and so are element types that arrays don't have.
    ///
    /// # Safety
    ///
    /// The tensor's pointer, shape and strides describe memory that can be read from any thread. As long as an array has it, nobody writes
    /// there: where its owner may, copy it first (`x.copy()` in NumPy).
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// let tensor = Array::from([1, 2, 3, 4]).to_dlpack()?;
    /// // SAFETY: the numbers are those of an array, which nobody writes
    /// let x = unsafe { Array::from_dlpack(tensor) }?;
    /// let mesh = Mesh::new([("X", 2)])?;
    /// assert_eq!(type_of(&x.put(&mesh, p!["X"])), "int32[4@X]");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    #[track_caller]
    pub unsafe fn from_dlpack<M: ManagedTensorBase>(tensor: Managed<M>) -> Result<Array> {
        let place = Location::caller();
        // SAFETY: the caller's
        let taken = unsafe { taken(tensor) };
        taken.map_err(|fault| Error::at(fault, FROM, Vec::new(), Some(place)))
    }
}

fn data(why: impl ToString) -> Fault {
    Fault::new(ErrorKind::Data, why.to_string())
}

/// # Safety
/// As of [`Array::from_dlpack`].
unsafe fn taken<M: ManagedTensorBase>(tensor: Managed<M>) -> Result<Array, Fault> {
    let seen = tensor.validate().map_err(data)?;
    let dtype = host_type(&seen)?;
    let shape: Result<Vec<usize>, _> = seen.shape().iter().map(|n| usize::try_from(*n)).collect();
    let shape: Shape = shape.map_err(data)?.into();
    let ty = dtype.of(shape.clone());
    ty.addressable()?;
    let layout = Layout::of(&seen, &shape, dtype.size())?;
    // SAFETY: the caller's
    let start = unsafe { seen.offset_bytes_ptr() }.map_err(data)?;
    let aligned = start.addr().is_multiple_of(with_dtype!(dtype, T => align_of::<T>()));
    let buffer = match NonNull::new(start.cast_mut()) {
        Some(start) if layout.dense() && aligned && ty.nbytes() > 0 => {
            // SAFETY: the caller's: the numbers are there, and stay as they are, until the tensor is given back
            unsafe { Buffer::lent(start, ty.nbytes(), tensor.into_deleter()) }
        }
        // SAFETY: the caller's: each element that the layout reaches can be read
        _ => unsafe { layout.copied(start, ty.nbytes()) }?,
    };
    let slab = Slab::new(dtype, shape, 1, Arc::new(buffer));
    if dtype == DType::Bool && slab.bytes()?.iter().any(|b| *b > 1) {
        return Err(data("a bool in the tensor is neither true nor false"));
    }
    Ok(Array::concrete(slab, ty, None))
}

/// Our element type, of a tensor in the host's memory.
fn host_type(seen: &TensorRef<'_>) -> Result<DType, Fault> {
    let (device, dtype) = (seen.device(), seen.dtype());
    if device.device_type != DLDeviceType::CPU {
        let at = format!("type {} and number {}", device.device_type.0, device.device_id);
        return Err(data(format!("the tensor is on a device of {at}, not in memory of the host"))
            .help("copy it to the host before, as `x.cpu()` does in PyTorch"));
    }
    let known = TYPES.iter().find(|t| t.1 == dtype).map(|t| t.0);
    known.ok_or_else(|| {
        let of = format!("code {}, {} bits and {} lanes", dtype.code.0, dtype.bits, dtype.lanes);
        Fault::new(ErrorKind::Dtype, format!("no array has elements of DLPack's {of}"))
            .help("convert the tensor before, as `x.astype(\"float32\")` does in NumPy")
    })
}

/// Where a tensor's elements are, from the first on.
struct Layout {
    /// Bytes of what is row-major in one piece, which the dimensions at the end are.
    run: usize,
    /// The other dimensions: size, and bytes from one to the next.
    steps: Vec<(usize, isize)>,
}

/// Where a tensor begins.
struct Start(*const u8);
// SAFETY: what is there is only read, from any thread, by whoever shares it
unsafe impl Sync for Start {}

impl Layout {
    fn of(seen: &TensorRef<'_>, shape: &[usize], size: usize) -> Result<Layout, Fault> {
        if shape.contains(&0) {
            return Ok(Layout { run: 0, steps: Vec::new() });
        }
        let far = || data("the tensor's strides reach further than memory does");
        let strides = seen.strides_or_compact().map_err(data)?;
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
        Ok(Layout { run, steps })
    }
    /// Whether all elements are row-major in one piece.
    fn dense(&self) -> bool {
        self.steps.is_empty()
    }
    /// A copy of the elements in row-major order.
    ///
    /// # Safety
    /// Each element can be read where the layout says, from `start` on; together they are so many bytes.
    unsafe fn copied(&self, start: *const u8, bytes: usize) -> Result<Buffer, Fault> {
        fits(bytes)?;
        let (mut buffer, start) = (Buffer::asked(bytes)?, &Start(start));
        each_run(&mut buffer, self.run, |k, to| {
            let (mut rest, mut at) = (k, 0);
            for (n, step) in self.steps.iter().rev() {
                at += (rest % n) as isize * step;
                rest /= n;
            }
            // SAFETY: the caller's; the new buffer is no other's memory, and has room for each run
            unsafe { kernels::copy(self.run, to, start.0.offset(at), false) }
        });
        Ok(buffer)
    }
}
