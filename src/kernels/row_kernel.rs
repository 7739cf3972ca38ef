//! Row kernels: functions of whole 1-D slices, for sorts, cumulative sums and similar operations.
//!
//! A row kernel needs all elements of a dimension at the same time, so it cannot be expressed as
//! elementwise code. It gets batches of rows (1-D slices, or slices of several dimensions such as
//! matrices) and writes rows. It may say how a row can be sharded over devices ([`RowSharding`]),
//! and how several workers share one long row ([`ParallelRowKernel`]).

mod views;

pub(crate) use views::RawRows;
pub use views::{RowInput, RowOutput, RowOutputs};

use crate::core::{DType, Fault, Scalar, Shape};
use crate::kernels::flush_mode::FlushMode;
use std::cell::Cell;
use std::fmt;
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
    /// Defaults to [`RowSharding::NotSharded`].
    fn sharding(&self, operands: &[DType]) -> RowSharding {
        let _ = operands;
        RowSharding::NotSharded
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
    if cfg!(target_family = "wasm") { None } else { Some(Arc::new(stages)) }
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

/// Runs a kernel for an engine. Results that it does not write are zero.
/// A panic of the kernel is rethrown with a [`Fault`] as its payload.
pub(crate) fn run_kernel(kernel: &dyn RowKernel, ins: &[RowInput<'_>], outs: RowOutputs<'_>) {
    with_outputs(kernel, outs, |outs| kernel.run(ins, outs));
}
/// Runs a piece of a kernel's work, which writes to `outs`, for an engine.
///
/// What the kernel has not accessed is zero afterwards, even if it exchanged or forgot its outputs.
pub(crate) fn with_outputs<'a>(
    kernel: &dyn RowKernel,
    mut outs: RowOutputs<'a>,
    code: impl FnOnce(&mut RowOutputs<'a>),
) {
    let guards = outs.guards();
    catch_panics(kernel, || code(&mut outs));
    drop(outs);
    drop(guards);
}
/// Runs a piece of a kernel's work for an engine.
/// A panic is rethrown with a [`Fault`] that names the kernel as its payload.
/// The kernel may be the user's code, so it runs with subnormal numbers.
pub(crate) fn catch_panics(kernel: &dyn RowKernel, code: impl FnOnce()) {
    let _mark = KernelMark(RUNS_KERNEL.replace(true));
    let _mode = FlushMode::off();
    let Err(message) = catch_user_panic(code) else { return };
    resume_unwind(Box::new(fault!(User, "the row kernel {:?} panicked: {message}", kernel.key())));
}

thread_local! {
    /// True while the thread runs a row kernel.
    static RUNS_KERNEL: Cell<bool> = const { Cell::new(false) };
}

/// Returns true if the calling thread runs a row kernel, which cannot operate on arrays.
pub(crate) fn in_row_kernel() -> bool {
    RUNS_KERNEL.get()
}

/// Restores the mark of the thread when a kernel returns or panics.
struct KernelMark(bool);

impl Drop for KernelMark {
    fn drop(&mut self) {
        RUNS_KERNEL.set(self.0);
    }
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
    NotSharded,
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
    /// One kernel after another, each along one dimension of the row.
    /// Devices exchange blocks, so that the dimension of each kernel is unsharded.
    Separable {
        /// The row dimension of each kernel, and the kernel, in the order in which they run.
        /// All have one operand and one result.
        stages: Vec<(usize, Arc<dyn RowKernel>)>,
    },
    /// A sum: the results of the blocks add up to the result of the row.
    Sum {
        /// The row dimensions of the operands that may be split into blocks.
        /// No result has them.
        dims: Vec<usize>,
    },
}
