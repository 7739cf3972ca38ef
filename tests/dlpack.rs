//! DLPack: an imported tensor is read in place and released once, an exported tensor shares the
//! array's memory, and bad tensors are errors.

mod error_checks;

use atmesh::dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice, DLDeviceType, DLManagedTensor};
use atmesh::dlpark::metadata::Dynamic;
use atmesh::dlpark::versioned::Dlpack;
use atmesh::dlpark::{DlpackFlags, Managed, ManagedTensorBase};
use atmesh::prelude::*;
use atmesh::{Complex, Element, ErrorKind};
use error_checks::Unquoted as _;
use std::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A buffer of another library, which counts how often it is released.
struct Theirs<T> {
    numbers: Vec<T>,
    back: Arc<AtomicUsize>,
}
impl<T> Drop for Theirs<T> {
    fn drop(&mut self) {
        self.back.fetch_add(1, Relaxed);
    }
}

/// Returns a tensor of another library whose first element is at byte `offset`.
fn tensor<M: ManagedTensorBase, T: Send + 'static>(
    numbers: Vec<T>,
    dtype: DLDataType,
    shape: &[i64],
    strides: &[i64],
    offset: u64,
    back: &Arc<AtomicUsize>,
) -> Managed<M> {
    let theirs = Box::new(Theirs { numbers, back: back.clone() });
    let start = theirs.numbers.as_ptr().cast_mut().cast::<c_void>();
    let mut made = Dynamic::new(shape, strides).initialize_as::<M>(theirs).unwrap();
    made.set_data(start).set_dtype(dtype).set_device(DLDevice::CPU).set_byte_offset(offset);
    // SAFETY: the shapes and strides in these tests are within the buffer, or are rejected.
    unsafe { made.finish() }
}
fn ints(numbers: Vec<i32>, shape: &[i64], strides: &[i64], offset: u64) -> Dlpack {
    tensor(numbers, DLDataType::I32, shape, strides, offset, &Arc::default())
}
fn taken(tensor: Dlpack) -> Result<Array> {
    // SAFETY: no code writes to the buffers of these tensors.
    unsafe { Array::from_dlpack(tensor) }
}
fn start(tensor: &Dlpack) -> *const c_void {
    tensor.validate().unwrap().data_ptr()
}

#[test]
fn what_is_row_major_stays_where_it_is_and_is_given_back_once() {
    let back = Arc::new(AtomicUsize::new(0));
    let lent: Dlpack = tensor((0..6).collect(), DLDataType::I32, &[2, 3], &[3, 1], 0, &back);
    let at = start(&lent);
    let x = taken(lent).unwrap();
    assert_eq!(x.to_string(), "[[0 1 2]\n [3 4 5]]");
    assert_eq!(x.view::<i32>().unwrap().as_ptr().cast(), at);
    // Other arrays share the memory, on meshes too.
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let (flat, put) = (x.reshape([6]), x.put(&mesh, p!["X"]));
    assert_eq!(type_of(&put), "int32[2@X,3]");
    assert_eq!(put.view::<i32>().unwrap().as_ptr().cast(), at);
    drop((x, put));
    assert_eq!((flat.sum(..).item::<i32>().unwrap(), back.load(Relaxed)), (15, 0));
    drop(flat);
    assert_eq!(back.load(Relaxed), 1);
}

/// The program in the book.
#[test]
fn an_array_is_lent_and_taken() -> Result<()> {
    // ANCHOR: share
    let x = Array::from([[1.0f32, 2.0], [3.0, 4.0]]);
    // To another library, which drops the tensor when it is done with it.
    let tensor = x.to_dlpack()?;

    // From another library.
    // SAFETY: no code writes to these elements, which belong to an array.
    let y = unsafe { Array::from_dlpack(tensor) }?;
    assert_eq!(y.view::<f32>()?.as_ptr(), x.view::<f32>()?.as_ptr());
    // ANCHOR_END: share
    Ok(())
}

#[test]
fn what_is_lent_is_never_written() {
    let back = Arc::new(AtomicUsize::new(0));
    let numbers: Arc<[i32]> = (0..1000).collect();
    let lent: Dlpack = {
        let owner = Box::new((numbers.clone(), Theirs { numbers: Vec::<u8>::new(), back: back.clone() }));
        let mut made = Dynamic::compact(&[1000][..]).initialize(owner).unwrap();
        made.set_data(numbers.as_ptr().cast_mut().cast())
            .set_dtype(DLDataType::I32)
            .set_device(DLDevice::CPU);
        // SAFETY: the tensor owns a handle to its buffer.
        unsafe { made.finish() }
    };
    let double = jit(|x: &Array| x * 2).donate(0);
    let y = double.call(taken(lent).unwrap()).unwrap();
    assert!(numbers.iter().copied().eq(0..1000) && y.to_vec::<i32>().unwrap()[1] == 2);
    drop(y);
    assert_eq!(back.load(Relaxed), 1);
}

#[test]
fn other_layouts_are_copied_in_row_major_order() {
    let six = || (0..6).collect::<Vec<i32>>();
    for (shape, strides, first, numbers) in [
        (&[3i64, 2][..], &[1i64, 3][..], 0, vec![0, 3, 1, 4, 2, 5]),
        (&[6], &[-1], 5, vec![5, 4, 3, 2, 1, 0]),
        (&[2, 3], &[-3, 1], 3, vec![3, 4, 5, 0, 1, 2]),
        (&[3], &[2], 1, vec![1, 3, 5]),
        (&[2, 3], &[0, 2], 0, vec![0, 2, 4, 0, 2, 4]),
        (&[2, 2], &[3, 1], 1, vec![1, 2, 4, 5]),
        (&[2, 1, 3], &[3, 77, 1], 0, vec![0, 1, 2, 3, 4, 5]),
        (&[], &[], 4, vec![4]),
        (&[0, 3], &[3, 1], 0, vec![]),
    ] {
        let x = taken(ints(six(), shape, strides, first * 4)).unwrap();
        let sizes: Vec<usize> = shape.iter().map(|n| *n as usize).collect();
        assert_eq!(*x.ty().unwrap().shape, *sizes);
        assert_eq!(x.to_vec::<i32>().unwrap(), numbers, "{shape:?} by {strides:?}");
    }
    // The array is large enough for several cores.
    let n = 1500;
    let x = taken(ints((0..n * n).collect(), &[n.into(), n.into()], &[1, n.into()], 0)).unwrap();
    let transposed = Array::arange(0..n * n).reshape([n as usize; 2]).t();
    assert!(x.to_vec::<i32>().unwrap() == transposed.to_vec::<i32>().unwrap());
}

#[test]
fn numbers_that_are_not_aligned_are_copied() {
    let bytes: Vec<u8> = [0; 3].into_iter().chain((1..5i32).flat_map(i32::to_ne_bytes)).collect();
    for k in 0..4 {
        let mut shifted = vec![0; k];
        shifted.extend(&bytes);
        let lent: Dlpack = tensor(shifted, DLDataType::I32, &[4], &[1], k as u64 + 3, &Arc::default());
        assert_eq!(taken(lent).unwrap().to_vec::<i32>().unwrap(), [1, 2, 3, 4]);
    }
}

/// Complex numbers of 16 bytes at multiples of 8 bytes are copied, since kernels move words of 16.
#[test]
fn complex_numbers_at_half_of_their_size_are_copied() {
    let parts: Vec<f64> = (0..70).map(f64::from).collect();
    let complex = DLDataType { code: DLDataTypeCode::COMPLEX, bits: 128, lanes: 1 };
    for offset in [0, 8] {
        let lent: Dlpack = tensor(parts.clone(), complex, &[34], &[1], offset, &Arc::default());
        let (from, x) = (start(&lent).addr() + offset as usize, taken(lent).unwrap());
        let at = x.view::<Complex<f64>>().unwrap().as_ptr().addr();
        assert_eq!(at == from, from.is_multiple_of(16), "a copy only if it is not aligned");
        let y = jit(|x: &Array| x.take(&Array::from([33, 0, 5]), 0)).call(&x).unwrap();
        let first = (offset / 8) as f64;
        assert_eq!(y.real().to_vec::<f64>().unwrap(), [66.0 + first, first, 10.0 + first]);
    }
}

#[test]
fn the_older_form_is_read() {
    let back = Arc::new(AtomicUsize::new(0));
    let lent: Managed<DLManagedTensor> = tensor(vec![1.5f64, 2.5], DLDataType::F64, &[2], &[1], 0, &back);
    // SAFETY: no code writes to the elements.
    let x = unsafe { Array::from_dlpack(lent) }.unwrap();
    assert_eq!(x.to_vec::<f64>().unwrap(), [1.5, 2.5]);
    drop(x);
    assert_eq!(back.load(Relaxed), 1);
}

#[test]
fn what_goes_out_is_the_arrays_memory_and_outlives_the_array() {
    let x = Array::arange(0..6).reshape([2, 3]);
    let at = x.view::<i32>().unwrap().as_ptr().cast();
    let out = x.to_dlpack().unwrap();
    drop(x);
    assert_eq!(out.flags(), DlpackFlags::READ_ONLY);
    let seen = out.validate_export().unwrap();
    assert_eq!((seen.shape(), seen.strides(), seen.data_ptr()), (&[2, 3][..], Some(&[3, 1][..]), at));
    assert_eq!((seen.device(), seen.byte_offset()), (DLDevice::CPU, 0));
    // SAFETY: the tensor was exported from a live array.
    assert_eq!(unsafe { seen.cpu_slice::<i32>() }.unwrap(), [0, 1, 2, 3, 4, 5]);
}

#[test]
fn sharded_and_unreduced_arrays_go_out_whole() {
    let mesh = Mesh::new([("X", 2), ("Y", 2)]).unwrap();
    let x = Array::arange(0..8).reshape([4, 2]);
    let there = x.put(&mesh, p!["Y", "X"]);
    let sums = there.sum_to(0, p!["X"; U: "Y"]);
    for (array, plain) in [(&there, &x), (&sums, &x.sum(0))] {
        let again = taken(array.to_dlpack().unwrap()).unwrap();
        assert_eq!(again.ty().unwrap(), plain.ty().unwrap());
        assert_eq!(again.to_vec::<i32>().unwrap(), plain.to_vec::<i32>().unwrap());
    }
    // A permutation of blocks is copied into order first.
    let turned = x.t();
    assert_eq!(taken(turned.to_dlpack().unwrap()).unwrap().to_string(), turned.to_string());
}

#[test]
fn every_element_type_goes_out_and_comes_in() {
    fn there_and_back<T: Element>(bits: u8, code: DLDataTypeCode) {
        for shape in [&[2, 3][..], &[], &[2, 0], &[6]] {
            let n: usize = shape.iter().product();
            let x = Array::arange(0..n as i32).reshape(shape).astype(T::DTYPE);
            let out = x.to_dlpack().unwrap();
            assert_eq!(out.validate().unwrap().dtype(), DLDataType::scalar(code, bits));
            let again = taken(out).unwrap();
            assert_eq!(again.ty().unwrap(), x.ty().unwrap());
            assert_eq!(again.to_string(), x.to_string());
        }
    }
    there_and_back::<bool>(8, DLDataTypeCode::BOOL);
    there_and_back::<i8>(8, DLDataTypeCode::INT);
    there_and_back::<i16>(16, DLDataTypeCode::INT);
    there_and_back::<i32>(32, DLDataTypeCode::INT);
    there_and_back::<i64>(64, DLDataTypeCode::INT);
    there_and_back::<u8>(8, DLDataTypeCode::UINT);
    there_and_back::<u16>(16, DLDataTypeCode::UINT);
    there_and_back::<u32>(32, DLDataTypeCode::UINT);
    there_and_back::<u64>(64, DLDataTypeCode::UINT);
    there_and_back::<half::f16>(16, DLDataTypeCode::FLOAT);
    there_and_back::<half::bf16>(16, DLDataTypeCode::BFLOAT);
    there_and_back::<f32>(32, DLDataTypeCode::FLOAT);
    there_and_back::<f64>(64, DLDataTypeCode::FLOAT);
    there_and_back::<Complex<f32>>(64, DLDataTypeCode::COMPLEX);
    there_and_back::<Complex<f64>>(128, DLDataTypeCode::COMPLEX);
}

#[test]
fn what_cannot_come_in_is_an_error() {
    let rejected = |tensor: Dlpack, kind: ErrorKind, expected: &str| {
        let error = taken(tensor).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        let text = error.unquoted();
        assert!(
            text.contains(expected) && text.contains("from_dlpack") && text.contains("dlpack.rs"),
            "{text}"
        );
    };
    let four = |dtype| tensor(vec![2u8; 16], dtype, &[4], &[1], 0, &Arc::default());
    rejected(four(DLDataType::F8E4M3), ErrorKind::Dtype, "code 8, 8 bits and 1 lanes");
    rejected(four(DLDataType::new(DLDataTypeCode::FLOAT, 16, 2)), ErrorKind::Dtype, "2 lanes");
    rejected(four(DLDataType::BOOL), ErrorKind::Data, "neither true nor false");
    rejected(ints(vec![0], &[-1], &[1], 0), ErrorKind::Data, "negative");
    rejected(ints(vec![0], &[3, 3], &[1 << 61, 1], 0), ErrorKind::Data, "exceed the address space");
    rejected(ints(vec![0], &[1 << 40, 1 << 40], &[0, 0], 0), ErrorKind::Data, "overflows");
    let made = |data: *mut c_void, device: DLDevice| -> Dlpack {
        let mut made = Dynamic::compact(&[1][..]).initialize(Box::new(())).unwrap();
        made.set_data(data).set_dtype(DLDataType::I32).set_device(device);
        // SAFETY: the tensor is rejected before it is read.
        unsafe { made.finish() }
    };
    rejected(made(std::ptr::null_mut(), DLDevice::CPU), ErrorKind::Data, "null");
    let gpu = DLDevice { device_type: DLDeviceType::CUDA, device_id: 3 };
    rejected(made(std::ptr::dangling_mut(), gpu), ErrorKind::Data, "type 2 and index 3");
}

#[test]
fn what_cannot_go_out_is_an_error() {
    let error_text = |x: &Array| x.to_dlpack().err().unwrap().to_string();
    let key = Key::new(7);
    assert!(error_text(key.array()).contains("key.data()"));
    assert_eq!(taken(key.data().to_dlpack().unwrap()).unwrap().to_string(), key.data().to_string());
    assert!(error_text(&Array::ones([2]).reshape([3])).contains("reshape"));
    let traced = jit(|x: &Array| {
        assert!(error_text(x).contains("to_dlpack"));
        x + 1
    });
    assert!(traced.call(Array::from([1])).is_ok());
}
