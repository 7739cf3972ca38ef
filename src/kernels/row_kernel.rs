//! Row kernels: functions of whole 1-D slices, for sorts, cumulative sums and similar operations.
//!
//! A row kernel needs all elements of a dimension at the same time, so it cannot be expressed as
//! elementwise code. It gets batches of rows (1-D slices, or slices of several dimensions such as
//! matrices) and writes rows. It may say how a row can be sharded over devices ([`RowSharding`]),
//! and how several workers share one long row ([`ParallelRowKernel`]).

use crate::core::diagnostic::{ErrorKind, Fault};
use crate::core::types::{DType, Element, Scalar, Shape, with_dtype};
use ndarray::{ArrayViewD, ArrayViewMutD, IxDyn, ShapeBuilder};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// A function of whole rows: it reads one row of each operand and writes one row of each result.
///
/// A row may have several dimensions. The result of a row depends on the elements of that row only,
/// bit for bit. It does not depend on how many rows are processed together, on the memory layout,
/// or on which results are requested.
///
/// ```
/// use atmesh::program::{RowInput, RowKernel, RowOutput, RowOutputs};
///
/// /// The cumulative maximum.
/// #[derive(Debug)]
/// struct CumMax;
///
/// impl RowKernel for CumMax {
///     fn key(&self) -> String {
///         "cummax".into()
///     }
///     fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
///         let Some(mut y) = outs.take(0) else { return };
///         let (x, mut y) = (ins[0].view::<f64>(), y.view::<f64>());
///         let along = atmesh::nd::Axis(x.ndim() - 1);
///         for (x, mut y) in x.lanes(along).into_iter().zip(y.lanes_mut(along)) {
///             let mut most = f64::NEG_INFINITY;
///             for (x, y) in x.iter().zip(&mut y) {
///                 most = most.max(*x);
///                 *y = most;
///             }
///         }
///     }
///     fn cost(&self, elements: usize) -> f64 {
///         elements as f64
///     }
/// }
///
/// let (x, mut y) = ([1.0, 3.0, 2.0, 5.0, 4.0, 6.0], [0.0; 6]);
/// let out = RowOutput::from_slice(&[2, 3], &mut y);
/// CumMax.run(&[RowInput::from_slice(&[2, 3], &x)], &mut RowOutputs::new([Some(out)]));
/// assert_eq!(y, [1.0, 3.0, 3.0, 5.0, 5.0, 6.0]);
/// ```
pub trait RowKernel: fmt::Debug + Send + Sync + 'static {
    /// Returns the key of the kernel: its name and parameters.
    /// Kernels with equal keys must compute the same function.
    fn key(&self) -> String;
    /// Computes a batch of rows.
    ///
    /// The leading dimensions of each operand and result run over rows, and are equal for all of
    /// them; the others run along the row. A result that is not written is zero. A panic becomes an
    /// error of the program's run.
    fn run(&self, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>);
    /// Returns the element types and row shapes of the results, given those of the operands.
    ///
    /// The default accepts one operand and returns its type. An `Err` describes operands that do
    /// not fit. `run` is called only with operands that this method accepted.
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [x] => Ok(vec![x.clone()]),
            _ => Err(format!("it is a row kernel of one operand, and there are {}", operands.len())),
        }
    }
    /// Returns a rough estimate of the nanoseconds for a row of `elements` elements.
    fn cost(&self, elements: usize) -> f64;
    /// Returns how a row may be split over devices.
    /// Defaults to [`RowSharding::Unsharded`].
    fn sharding(&self, operands: &[DType]) -> RowSharding {
        let _ = operands;
        RowSharding::Unsharded
    }
    /// Returns the kernel that lets several workers share one long row.
    /// It computes the requested results. `None` (the default) leaves each row to one worker.
    fn parallel(
        &self,
        operands: &[DType],
        elements: usize,
        requested: &[bool],
    ) -> Option<Arc<dyn ParallelRowKernel>> {
        let _ = (operands, elements, requested);
        None
    }
}

/// Returns the parallel form of a kernel, or `None` in WebAssembly.
/// WebAssembly has one thread, and a web page should not load code that it cannot use.
pub(crate) fn parallel_unless_wasm(stages: impl ParallelRowKernel) -> Option<Arc<dyn ParallelRowKernel>> {
    if cfg!(target_family = "wasm") {
        return None;
    }
    Some(Arc::new(stages))
}

/// A row kernel that several workers run together on one row, in two passes.
///
/// The positions of the row are split into runs, one per worker. The result must equal that of
/// [`RowKernel::run`] bit for bit, for any split into runs.
pub trait ParallelRowKernel: fmt::Debug + Send + Sync + 'static {
    /// Returns the region of the results that a run of the second pass writes.
    fn second_pass(&self) -> SecondPass {
        SecondPass::Elements
    }
    /// Returns the alignment of runs, in positions.
    /// Runs start at multiples of it, counted from the first position, or from the end of the row
    /// if [`reverse`](ParallelRowKernel::reverse) returns true.
    fn alignment(&self) -> usize {
        1
    }
    /// Returns true if runs are counted from the end of the row.
    fn reverse(&self) -> bool {
        false
    }
    /// Returns the element type and size of a run's scratch buffer, which the first pass writes.
    /// The size is in elements, for a run of the given number of positions.
    fn scratch(&self, num_positions: usize) -> (DType, usize);
    /// Runs the first pass of a run, which writes its scratch buffer.
    /// Operands are whole rows.
    fn run_first_pass(&self, positions: Range<usize>, ins: &[RowInput<'_>], scratch: &mut RowOutput<'_>);
    /// Runs the second pass of a run, which writes its region of the results.
    /// It reads whole operands and the scratch buffers of all runs, in order. `run` is the index of
    /// the run.
    fn run_second_pass(
        &self,
        run: usize,
        positions: Range<usize>,
        ins: &[RowInput<'_>],
        scratch: &[RowInput<'_>],
        outs: &mut RowOutputs<'_>,
    );
}

/// The region of the results that a run of the second pass writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecondPass {
    /// The positions of the run.
    /// Results have as many positions as operands.
    Elements,
    /// The whole row: there is a single run.
    /// Results may have any number of positions.
    FullRow,
    /// The columns of the run.
    ///
    /// The row is a row-major grid, and runs consist of columns of the grid. In the first pass, the
    /// rows of the grid have `operand_columns` positions of an operand; in the second pass, they
    /// have `result_columns` positions of a result. Results have as many positions as operands. A
    /// run is given its columns of a result, row by row.
    Columns {
        /// The number of columns of the operands' grid.
        operand_columns: usize,
        /// The number of columns of the results' grid.
        result_columns: usize,
    },
}

/// Runs a kernel for an engine.
/// A panic of the kernel is rethrown with a [`Fault`] as its payload.
pub(crate) fn run_kernel(kernel: &dyn RowKernel, ins: &[RowInput<'_>], outs: &mut RowOutputs<'_>) {
    catch_panics(kernel, || kernel.run(ins, outs));
}
/// Runs a piece of a kernel's work for an engine.
/// A panic is rethrown with a [`Fault`] that names the kernel as its payload.
pub(crate) fn catch_panics(kernel: &dyn RowKernel, code: impl FnOnce()) {
    let Err(said) = catch_user_panic(code) else { return };
    let text = format!("the row kernel {:?} panicked: {said}", kernel.key());
    resume_unwind(Box::new(Fault::new(ErrorKind::User, text)));
}

/// Runs user code, and returns its panic message if it panics.
/// Faults keep unwinding.
pub(crate) fn catch_user_panic<R>(code: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        if panic.is::<Fault>() {
            resume_unwind(panic);
        }
        let said = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(said), _) => said.clone(),
            (None, Some(said)) => (*said).to_string(),
            (None, None) => "no message".to_string(),
        };
        // do not drop the payload: its destructor may panic too
        std::mem::forget(panic);
        said
    })
}

/// The kinds of sharding that a row kernel supports, where devices hold blocks of a row.
#[derive(Clone, Debug)]
pub enum RowSharding {
    /// The row must be unsharded.
    Unsharded,
    /// A scan: each element depends on the elements before it and itself.
    /// Devices exchange only the totals of their blocks.
    Scan {
        /// The total of a block: a kernel that returns one element for each result.
        totals: Arc<dyn RowKernel>,
        /// The element types of the totals.
        total_dtypes: Vec<DType>,
        /// The exclusive scan of totals: for each block, the combination of the totals before it.
        exclusive_scan: Arc<dyn RowKernel>,
        /// The element type of the exclusive scan.
        carry_dtype: DType,
        /// The scan of a block.
        /// Its operands are a block of each operand, and the block's element of `exclusive_scan` at
        /// the first position along the row.
        block: Arc<dyn RowKernel>,
        /// The neutral element of each operand.
        /// It pads a row whose size is not divisible by the number of shards.
        neutral: Vec<Scalar>,
    },
    /// The k largest elements (in the kernel's order) and their indices.
    /// Devices exchange only the k largest elements of their blocks.
    TopK {
        /// The number of elements.
        k: usize,
        /// The kernel that finds the k largest elements of a block, and their positions in it.
        block: Arc<dyn RowKernel>,
        /// The kernel that selects the result among the candidates of all blocks.
        /// Candidates come with their positions in the row.
        merge: Arc<dyn RowKernel>,
        /// An element that ranks last.
        /// It pads a row whose size is not divisible by the number of shards.
        neutral: Scalar,
    },
    /// A sum: the results of the blocks add up to the result of the row.
    Sum {
        /// The row dimensions of the operands that may be split into blocks.
        /// No result has them.
        dims: Vec<usize>,
    },
}

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
    /// True until the elements are first accessed.
    unwritten: bool,
    lifetime: PhantomData<&'a mut u8>,
}

/// Writes zeros if the elements were never accessed, so that old memory contents are not exposed.
impl Drop for RowOutput<'_> {
    fn drop(&mut self) {
        if self.unwritten {
            with_dtype!(self.dtype, T => drop(self.view::<T>()));
        }
    }
}

/// The results of a row kernel; each is present only if it is requested.
#[derive(Debug)]
pub struct RowOutputs<'a>(Vec<Option<RowOutput<'a>>>);

impl<'a> RowOutputs<'a> {
    /// Creates the list of results, in order; `None` marks a result that is not requested.
    pub fn new(results: impl IntoIterator<Item = Option<RowOutput<'a>>>) -> RowOutputs<'a> {
        RowOutputs(results.into_iter().collect())
    }
    /// Takes result `k`; `None` if it is not requested or was taken before.
    pub fn take(&mut self, k: usize) -> Option<RowOutput<'a>> {
        self.0.get_mut(k)?.take()
    }
}

fn row_major(shape: &[usize]) -> Vec<usize> {
    let mut strides = vec![1; shape.len()];
    for d in (1..shape.len()).rev() {
        strides[d - 1] = strides[d] * shape[d].max(1);
    }
    strides
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
        assert_eq!(shape.iter().product::<usize>(), elements.len(), "{shape:?}");
        let (ptr, strides) = (elements.as_ptr().cast(), row_major(shape));
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
        assert_eq!(shape.iter().product::<usize>(), elements.len(), "{shape:?}");
        let (ptr, strides) = (elements.as_mut_ptr().cast(), row_major(shape));
        RowOutput {
            dtype: T::DTYPE,
            ptr,
            shape: shape.to_vec(),
            strides,
            unwritten: true,
            lifetime: PhantomData,
        }
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
        RowOutput { dtype, ptr, shape, strides, unwritten: true, lifetime: PhantomData }
    }
    /// Creates a batch of rows in scratch memory, in row-major order.
    ///
    /// # Panics
    /// Panics if the memory is too small.
    pub(crate) fn in_scratch(dtype: DType, shape: &[usize], memory: &'a mut [u128]) -> RowOutput<'a> {
        assert!(shape.iter().product::<usize>() * dtype.size() <= size_of_val(memory), "{shape:?}");
        let (ptr, strides) = (memory.as_mut_ptr().cast(), row_major(shape));
        RowOutput { dtype, ptr, shape: shape.to_vec(), strides, unwritten: true, lifetime: PhantomData }
    }
    /// Returns one row, selected by the indices of the leading dimensions.
    /// Its elements are zero unless they are written.
    pub(crate) fn row(&mut self, row_index: &[usize]) -> RowOutput<'_> {
        self.unwritten = false;
        RowOutput {
            dtype: self.dtype,
            ptr: self.ptr.wrapping_add(row_offset(row_index, &self.shape, &self.strides) * self.dtype.size()),
            shape: self.shape[row_index.len()..].to_vec(),
            strides: self.strides[row_index.len()..].to_vec(),
            unwritten: true,
            lifetime: PhantomData,
        }
    }
    /// Returns true if the elements have not been accessed yet.
    pub(crate) fn is_unwritten(&self) -> bool {
        self.unwritten
    }
    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Returns the shape: the dimensions that run over rows, then those along a row.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// Returns a mutable view of the elements, initially zero.
    ///
    /// # Panics
    /// Panics if `T` is not the element type.
    pub fn view<T: Element>(&mut self) -> ArrayViewMutD<'_, T> {
        let mut fresh = self.uninit_view::<T>();
        fresh.fill(MaybeUninit::zeroed());
        // SAFETY: the line above writes every element, and zero bytes are a valid value of each
        // element type.
        unsafe { fresh.assume_init() }
    }
    /// Returns a view of uninitialized elements, all of which the caller must write.
    ///
    /// # Panics
    /// Panics if `T` is not the element type.
    pub(crate) fn uninit_view<T: Element>(&mut self) -> ArrayViewMutD<'_, MaybeUninit<T>> {
        assert_eq!(T::DTYPE, self.dtype);
        self.unwritten = false;
        let shape = IxDyn(&self.shape).strides(IxDyn(&self.strides));
        // SAFETY: `ptr` points to exclusive memory for elements of type `T` at all indices of the
        // shape (by `from_slice` or `in_scratch`, or the caller contract of `from_raw`).
        unsafe { ArrayViewMutD::from_shape_ptr(shape, self.ptr.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    #[should_panic(expected = "F32")]
    fn another_type_is_no_view() {
        RowInput::from_slice(&[1], &[1i32]).view::<f32>();
    }
}
