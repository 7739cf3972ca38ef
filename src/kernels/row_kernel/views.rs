//! The batches of rows that a row kernel reads and writes, as views of memory.

use crate::core::{DType, Element};
use ndarray::{ArrayViewD, ArrayViewMutD, IxDyn, ShapeBuilder};
use num_complex::Complex;
use std::cell::Cell;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::rc::Rc;

/// A batch of rows that a kernel reads.
#[derive(Debug)]
pub struct RowInput<'a> {
    dtype: DType,
    ptr: *const u8,
    shape: Vec<usize>,
    /// The strides, in elements; none is negative.
    strides: Vec<usize>,
    lifetime: PhantomData<&'a u8>,
}

/// A batch of rows that a kernel writes.
#[derive(Debug)]
pub struct RowOutput<'a> {
    dtype: DType,
    ptr: *mut u8,
    shape: Vec<usize>,
    /// The strides, in elements; none is negative, and no two indices share an element.
    strides: Vec<usize>,
    /// True until the elements are first accessed. Shared by all handles.
    unwritten: Rc<Cell<bool>>,
    lifetime: PhantomData<&'a mut u8>,
}

/// Writes zeros if the elements were never accessed, so that old memory contents are not exposed.
impl Drop for RowOutput<'_> {
    fn drop(&mut self) {
        self.zero_if_unwritten();
    }
}

/// The address of a batch of rows.
///
/// There is an element at each index of the batch's shape with these strides.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RawRows<'a> {
    /// The address of the first element.
    pub(crate) ptr: *mut u8,
    /// The strides, in elements.
    pub(crate) strides: &'a [usize],
}

/// The results of a row kernel; each is present only if it is requested.
#[derive(Debug)]
pub struct RowOutputs<'a>(Vec<Option<RowOutput<'a>>>);

impl<'a> RowOutputs<'a> {
    /// Creates the list of results, in order; `None` marks a result that is not requested.
    pub fn new(results: impl IntoIterator<Item = Option<RowOutput<'a>>>) -> RowOutputs<'a> {
        RowOutputs(results.into_iter().collect())
    }
    /// Returns a second handle to each result, which writes zeros after the kernel if needed.
    pub(super) fn guards(&self) -> Vec<RowOutput<'a>> {
        self.0.iter().flatten().map(RowOutput::guard).collect()
    }
    /// Takes result `k`; `None` if it is not requested or was taken before.
    pub fn take(&mut self, k: usize) -> Option<RowOutput<'a>> {
        self.0.get_mut(k)?.take()
    }
}

/// Returns the number of elements of a shape, and its row-major strides.
///
/// # Panics
/// Panics if the offsets of elements would overflow. A size of 0 does not make up for others.
fn row_major(shape: &[usize]) -> (usize, Vec<usize>) {
    let mut strides = vec![1; shape.len()];
    let mut all: usize = 1;
    for (d, n) in shape.iter().enumerate().rev() {
        strides[d] = all;
        let next = all.checked_mul((*n).max(1)).filter(|n| isize::try_from(*n).is_ok());
        let Some(next) = next else { panic!("{shape:?} has more elements than can be addressed") };
        all = next;
    }
    (shape.iter().product(), strides)
}

/// Returns the offset of a row, in elements.
///
/// # Panics
/// Panics if there is no such row.
fn row_offset(over: &[usize], shape: &[usize], strides: &[usize]) -> usize {
    assert!(over.len() <= shape.len() && over.iter().zip(shape).all(|(i, n)| i < n), "{over:?} of {shape:?}");
    over.iter().zip(strides).map(|(i, s)| i * s).sum()
}

impl<'a> RowInput<'a> {
    /// Creates a batch of rows from elements in row-major order.
    ///
    /// # Panics
    /// Panics if the number of elements differs from that of the shape.
    pub fn from_slice<T: Element>(shape: &[usize], elements: &'a [T]) -> RowInput<'a> {
        let (n, strides) = row_major(shape);
        assert_eq!(n, elements.len(), "{shape:?}");
        let ptr = elements.as_ptr().cast();
        RowInput { dtype: T::DTYPE, ptr, shape: shape.to_vec(), strides, lifetime: PhantomData }
    }
    /// Creates a batch of rows from raw memory.
    ///
    /// # Safety
    /// For all of `'a`, `ptr` must point to initialized elements of type `dtype` at every index of
    /// `shape` and `strides`, and these must not be written.
    pub(crate) unsafe fn from_raw(
        dtype: DType,
        ptr: *const u8,
        shape: Vec<usize>,
        strides: Vec<usize>,
    ) -> RowInput<'a> {
        RowInput { dtype, ptr, shape, strides, lifetime: PhantomData }
    }
    /// Returns one row, selected by the indices of the leading dimensions.
    /// The row has only the given row dimensions, at index 0 of the other ones.
    pub(crate) fn row(&self, row_index: &[usize], dims: &[usize]) -> RowInput<'a> {
        let (shape, strides) = (&self.shape[row_index.len()..], &self.strides[row_index.len()..]);
        RowInput {
            dtype: self.dtype,
            ptr: self.ptr.wrapping_add(row_offset(row_index, &self.shape, &self.strides) * self.dtype.size()),
            shape: dims.iter().map(|d| shape[*d]).collect(),
            strides: dims.iter().map(|d| strides[*d]).collect(),
            lifetime: PhantomData,
        }
    }
    /// Returns the address and strides, to be read only.
    pub(crate) fn raw(&self) -> RawRows<'_> {
        RawRows { ptr: self.ptr.cast_mut(), strides: &self.strides }
    }
    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Returns the shape: the dimensions that run over rows, then those along a row.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Returns a view of the elements.
    ///
    /// # Panics
    /// Panics if `T` is not the element type.
    pub fn view<T: Element>(&self) -> ArrayViewD<'a, T> {
        assert_eq!(T::DTYPE, self.dtype);
        let shape = IxDyn(&self.shape).strides(IxDyn(&self.strides));
        // SAFETY: `ptr` points to elements of type `T` at all indices of the shape for `'a` (by
        // `from_slice`, or the caller contract of `from_raw`).
        unsafe { ArrayViewD::from_shape_ptr(shape, self.ptr.cast()) }
    }
}

impl<'a> RowOutput<'a> {
    /// Creates a batch of rows to be written to `elements`, in row-major order.
    ///
    /// # Panics
    /// Panics if the number of elements differs from that of the shape.
    pub fn from_slice<T: Element>(shape: &[usize], elements: &'a mut [T]) -> RowOutput<'a> {
        let (n, strides) = row_major(shape);
        assert_eq!(n, elements.len(), "{shape:?}");
        // SAFETY: there is an element at every index, and the slice is borrowed for `'a`
        unsafe { RowOutput::from_raw(T::DTYPE, elements.as_mut_ptr().cast(), shape.to_vec(), strides) }
    }
    /// Creates a batch of rows to be written to raw memory, which may be uninitialized.
    ///
    /// # Safety
    /// For all of `'a`, `ptr` must point to memory for elements of type `dtype` at every index of
    /// `shape` and `strides`. No two indices may share an element, and no other code may access
    /// them.
    pub(crate) unsafe fn from_raw(
        dtype: DType,
        ptr: *mut u8,
        shape: Vec<usize>,
        strides: Vec<usize>,
    ) -> RowOutput<'a> {
        RowOutput { dtype, ptr, shape, strides, unwritten: Rc::new(Cell::new(true)), lifetime: PhantomData }
    }
    /// Creates a batch of rows in scratch memory, in row-major order.
    ///
    /// # Panics
    /// Panics if the memory is too small.
    pub(crate) fn in_scratch(dtype: DType, shape: &[usize], memory: &'a mut [u128]) -> RowOutput<'a> {
        let (n, strides) = row_major(shape);
        assert!(n <= size_of_val(memory) / dtype.size(), "{shape:?}");
        // SAFETY: there is memory for every element, and it is borrowed for `'a`
        unsafe { RowOutput::from_raw(dtype, memory.as_mut_ptr().cast(), shape.to_vec(), strides) }
    }
    /// Returns one row, selected by the indices of the leading dimensions.
    /// Its elements are zero unless they are written.
    pub(crate) fn row(&mut self, row_index: &[usize]) -> RowOutput<'_> {
        self.unwritten.set(false);
        RowOutput {
            dtype: self.dtype,
            ptr: self.ptr.wrapping_add(row_offset(row_index, &self.shape, &self.strides) * self.dtype.size()),
            shape: self.shape[row_index.len()..].to_vec(),
            strides: self.strides[row_index.len()..].to_vec(),
            unwritten: Rc::new(Cell::new(true)),
            lifetime: PhantomData,
        }
    }
    /// Returns a flag that is true as long as the elements have not been accessed.
    pub(crate) fn unwritten_flag(&self) -> Rc<Cell<bool>> {
        self.unwritten.clone()
    }
    /// Returns a second handle to the output, whose drop writes zeros if no handle was accessed.
    ///
    /// Safe code may forget a handle, so an engine keeps one for each that it gives to a kernel. It
    /// must not use it before the kernel has returned.
    fn guard(&self) -> RowOutput<'a> {
        RowOutput {
            dtype: self.dtype,
            ptr: self.ptr,
            shape: self.shape.clone(),
            strides: self.strides.clone(),
            unwritten: self.unwritten.clone(),
            lifetime: PhantomData,
        }
    }
    /// Writes zeros if the elements were never accessed, so that old memory contents are not
    /// exposed.
    fn zero_if_unwritten(&mut self) {
        if self.unwritten.get() {
            // zero bytes are zeros of any type, so this is compiled for each size only
            let dtype = self.dtype;
            self.dtype = match dtype.size() {
                1 => DType::U8,
                2 => DType::U16,
                4 => DType::U32,
                8 => DType::C64,
                _ => DType::C128,
            };
            match self.dtype {
                DType::U8 => drop(self.view::<u8>()),
                DType::U16 => drop(self.view::<u16>()),
                DType::U32 => drop(self.view::<u32>()),
                DType::C64 => drop(self.view::<Complex<f32>>()),
                _ => drop(self.view::<Complex<f64>>()),
            }
            self.dtype = dtype;
        }
    }
    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Returns the shape: the dimensions that run over rows, then those along a row.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Returns a mutable view of the elements, which are zero until they are first written.
    ///
    /// # Panics
    /// Panics if `T` is not the element type.
    pub fn view<T: Element>(&mut self) -> ArrayViewMutD<'_, T> {
        let first = self.unwritten.get();
        let mut view = self.uninit_view::<T>();
        if first {
            view.fill(MaybeUninit::zeroed());
        }
        // SAFETY: every element is written by the first view: here, or by the caller of
        // `uninit_view` (its contract). Zero bytes are a valid value of each element type.
        unsafe { view.assume_init() }
    }
    /// Returns the address and strides of uninitialized elements, all of which the caller must
    /// write.
    pub(crate) fn raw_uninit(&mut self) -> RawRows<'_> {
        self.unwritten.set(false);
        RawRows { ptr: self.ptr, strides: &self.strides }
    }
    /// Returns a view of uninitialized elements, all of which the caller must write.
    ///
    /// # Panics
    /// Panics if `T` is not the element type.
    pub(crate) fn uninit_view<T: Element>(&mut self) -> ArrayViewMutD<'_, MaybeUninit<T>> {
        assert_eq!(T::DTYPE, self.dtype);
        self.unwritten.set(false);
        let shape = IxDyn(&self.shape).strides(IxDyn(&self.strides));
        // SAFETY: `ptr` points to exclusive memory for elements of type `T` at all indices of the
        // shape (by `from_slice` or `in_scratch`, or the caller contract of `from_raw`).
        unsafe { ArrayViewMutD::from_shape_ptr(shape, self.ptr.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernels::row_kernel::{RowKernel, run_kernel};
    use std::panic::catch_unwind;

    #[test]
    fn views_have_the_strides_of_what_they_were_made_of() {
        let x = [1, 2, 3, 4, 5, 6i32];
        assert_eq!(RowInput::from_slice(&[2, 3], &x).view::<i32>()[[1, 0]], 4);
        let mut y = [7i32; 6];
        let mut out = RowOutput::from_slice(&[3, 2], &mut y);
        assert_eq!((out.shape(), out.dtype()), (&[3, 2][..], DType::I32));
        out.view::<i32>()[[2, 0]] = 1;
        drop(out);
        assert_eq!(y, [0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn what_nobody_writes_is_zeros() {
        let (mut y, mut z) = ([7i16; 4], [7i16; 4]);
        let mut outs = RowOutputs::new([
            Some(RowOutput::from_slice(&[4], &mut y)),
            Some(RowOutput::from_slice(&[2, 2], &mut z)),
        ]);
        drop(outs.take(0));
        drop(outs);
        assert_eq!((y, z), ([0; 4], [0; 4]));
    }

    /// A later view shows what an earlier one wrote.
    #[test]
    fn views_keep_what_is_written() {
        let mut y = [7i32; 3];
        let mut out = RowOutput::from_slice(&[3], &mut y);
        (0..3).for_each(|i| out.view::<i32>()[[i]] += i as i32 + 1);
        drop(out);
        assert_eq!(y, [1, 2, 3]);
    }

    #[derive(Debug)]
    struct Forgets;
    impl RowKernel for Forgets {
        fn key(&self) -> String {
            "forgets".into()
        }
        fn run(&self, _: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
            std::mem::forget(outs.take(0));
            std::mem::forget(std::mem::replace(outs, RowOutputs::new([])));
        }
        fn cost(&self, _: usize) -> f64 {
            1.0
        }
    }

    #[test]
    fn forgotten_outputs_are_zeros() {
        let (mut y, mut z) = ([7i16; 4], [true; 4]);
        let outs =
            [Some(RowOutput::from_slice(&[4], &mut y)), None, Some(RowOutput::from_slice(&[2, 2], &mut z))];
        run_kernel(&Forgets, &[], RowOutputs::new(outs));
        assert_eq!((y, z), ([0; 4], [false; 4]));
    }

    /// A shape whose number of elements wraps to 0 is not that of an empty slice.
    #[test]
    fn sizes_that_overflow_panic() {
        for shape in [&[1 << 32, 1 << 32][..], &[0, 1 << 32, 1 << 32], &[1 << 63, 2]] {
            assert!(catch_unwind(|| RowInput::from_slice::<u64>(shape, &[])).is_err());
            assert!(catch_unwind(|| drop(RowOutput::from_slice::<u64>(shape, &mut []))).is_err());
        }
        assert_eq!(RowInput::from_slice::<u64>(&[0, 1 << 32], &[]).view::<u64>().len(), 0);
    }

    #[test]
    #[should_panic(expected = "F32")]
    fn another_type_is_no_view() {
        RowInput::from_slice(&[1], &[1i32]).view::<f32>();
    }
}
