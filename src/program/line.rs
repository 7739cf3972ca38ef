//! Functions of whole lines: sorts, running sums, and whatever else needs all of a dimension at once.

use crate::diagnostic::{ErrorKind, Fault};
use crate::types::{DType, Element, Scalar, Shape, with_dtype};
use ndarray::{ArrayViewD, ArrayViewMutD, IxDyn, ShapeBuilder};
use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

/// A function of whole lines: of each operand one line (or several dimensions of it) goes in, of each result one comes out.
///
/// What comes out of a line depends on that line alone, bit by bit: however many lines come with it, in whatever order of memory, and
/// whichever of the results are asked for.
///
/// ```
/// use atmesh::program::{In, Line, Out, Outs};
///
/// /// The greatest number so far.
/// #[derive(Debug)]
/// struct Greatest;
///
/// impl Line for Greatest {
///     fn key(&self) -> String {
///         "greatest".into()
///     }
///     fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>) {
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
/// let out = Out::of(&[2, 3], &mut y);
/// Greatest.run(&[In::of(&[2, 3], &x)], &mut Outs::new([Some(out)]));
/// assert_eq!(y, [1.0, 3.0, 3.0, 5.0, 5.0, 6.0]);
/// ```
pub trait Line: fmt::Debug + Send + Sync + 'static {
    /// What it is, name and parameters: equal keys are equal functions.
    fn key(&self) -> String;
    /// Computes some lines. Of each operand and result the first dimensions run over lines, alike in all of them, the others along one.
    /// A result that is not written is zeros. Where it panics the program's run is an error that says so.
    fn run(&self, ins: &[In<'_>], outs: &mut Outs<'_>);
    /// The results' element types and sizes along a line, of operands of these: as the operand, where there is one. What does not fit is told; `run` is
    /// called with what does, and for no other results.
    fn shapes(&self, operands: &[(DType, Shape)]) -> Result<Vec<(DType, Shape)>, String> {
        match operands {
            [x] => Ok(vec![x.clone()]),
            _ => Err(format!("it is a function of lines of one operand, and there are {}", operands.len())),
        }
    }
    /// Nanoseconds that a line of so many elements takes, roughly.
    fn cost(&self, elements: usize) -> f64;
    /// How a line of operands of these element types may be cut among devices that hold blocks of it.
    fn cut(&self, operands: &[DType]) -> Cut {
        let _ = operands;
        Cut::Whole
    }
    /// How several workers compute one long line of such operands together, of which these results are asked for; nothing: one of
    /// them computes it.
    fn stages(&self, operands: &[DType], elements: usize, asked: &[bool]) -> Option<Arc<dyn Stages>> {
        let _ = (operands, elements, asked);
        None
    }
}

/// For [`Line::stages`]: none on WebAssembly, which has one thread, so that a page does not load them.
pub(crate) fn staged(stages: impl Stages) -> Option<Arc<dyn Stages>> {
    if cfg!(target_family = "wasm") {
        return None;
    }
    Some(Arc::new(stages))
}

/// A function of lines as several workers compute one line together, in two stages. The line's places are cut into runs, and each
/// worker has a run. What comes out is what [`Line::run`] makes, bit by bit, whatever the runs are.
pub trait Stages: fmt::Debug + Send + Sync + 'static {
    /// What the runs of the second stage make.
    fn made(&self) -> Made {
        Made::Places
    }
    /// Runs begin at multiples of this, counted from the first place, or from behind the last one.
    fn step(&self) -> usize {
        1
    }
    /// Whether runs are counted from the last place on.
    fn reverse(&self) -> bool {
        false
    }
    /// What the first stage leaves of a run of so many places: elements of a type.
    fn room(&self, places: usize) -> (DType, usize);
    /// The first stage of a run: what it leaves for the second. Operands are whole lines.
    fn first(&self, places: Range<usize>, ins: &[In<'_>], room: &mut Out<'_>);
    /// The second stage of a run, which is number `run`: its part of the results, of whole operands and of what the first stage left of
    /// all runs, in order.
    fn then(&self, run: usize, places: Range<usize>, ins: &[In<'_>], rooms: &[In<'_>], outs: &mut Outs<'_>);
}

/// What the runs of a second stage make of the results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Made {
    /// The places that the run has. Results have as many places as operands.
    Places,
    /// All: there is one run, of the whole line. Results have any number of places.
    All,
    /// Columns. A line is a grid, row by row, and runs are of its columns: in the first stage in rows of `first` places of an operand, in the second in
    /// rows of `then` places of a result. Results have as many places as operands; of each, a run has its columns, row by row.
    Columns {
        /// The columns of operands.
        first: usize,
        /// The columns of results.
        then: usize,
    },
}

/// Computes some lines, for an engine: where the function panics, what unwinds is a fault to tell of.
pub(crate) fn run(of: &dyn Line, ins: &[In<'_>], outs: &mut Outs<'_>) {
    caught(of, || of.run(ins, outs));
}
/// The same of a part of that.
pub(crate) fn caught(of: &dyn Line, part: impl FnOnce()) {
    let Err(said) = guarded(part) else { return };
    let text = format!("the function of lines {:?} panicked: {said}", of.key());
    resume_unwind(Box::new(Fault::new(ErrorKind::Other, text)));
}

/// Runs code of the user's: where it panics, what it said. Faults go on.
pub(crate) fn guarded<R>(code: impl FnOnce() -> R) -> Result<R, String> {
    catch_unwind(AssertUnwindSafe(code)).map_err(|panic| {
        if panic.is::<Fault>() {
            resume_unwind(panic);
        }
        let said = match (panic.downcast_ref::<String>(), panic.downcast_ref::<&str>()) {
            (Some(said), _) => said.clone(),
            (None, Some(said)) => (*said).to_string(),
            (None, None) => "no message".to_string(),
        };
        // not dropped: that may panic too
        std::mem::forget(panic);
        said
    })
}

/// How a line may be cut among devices that hold blocks of it.
#[derive(Clone, Debug)]
pub enum Cut {
    /// Not at all.
    Whole,
    /// Each element of the result goes by all elements up to its own: devices tell each other what their blocks add up to, and no more.
    Scan {
        /// What a block adds up to: one element of each result.
        totals: Arc<dyn Line>,
        /// The element types of these.
        told: Vec<DType>,
        /// Of lines of totals, what those before each one make together, itself left out.
        before: Arc<dyn Line>,
        /// The element type of that.
        state: DType,
        /// Of a block of each operand and what `before` made for it (at its first place along the line): its part of the result.
        block: Arc<dyn Line>,
        /// Of each operand an element that changes nothing: it is beyond the end of a line that is not divisible.
        neutral: Vec<Scalar>,
    },
    /// The result is k of the elements, and their places: devices tell each other the k of their blocks.
    Best {
        /// How many.
        k: usize,
        /// Of a block that many of its elements, and their places in it.
        block: Arc<dyn Line>,
        /// Of the candidates of all blocks, and their places in the line, those of the result.
        of: Arc<dyn Line>,
        /// An element that is behind all others: it is beyond the end of a line that is not divisible.
        neutral: Scalar,
    },
    /// Results are sums: what the function makes of blocks adds up to what it makes of the whole.
    Sum {
        /// Of the dimensions along a line of the operands those that may be cut into blocks. No result has them.
        over: Vec<usize>,
    },
}

/// Lines that are read.
#[derive(Debug)]
pub struct In<'a> {
    dtype: DType,
    at: *const u8,
    shape: Vec<usize>,
    /// In elements, none negative.
    strides: Vec<usize>,
    life: PhantomData<&'a u8>,
}

/// Lines that are made.
#[derive(Debug)]
pub struct Out<'a> {
    dtype: DType,
    at: *mut u8,
    shape: Vec<usize>,
    /// In elements, none negative; no two indices are one element.
    strides: Vec<usize>,
    /// Whether nobody has asked for its elements yet.
    unwritten: bool,
    life: PhantomData<&'a mut u8>,
}

/// What nobody wrote is zeros, and not what was in the memory before.
impl Drop for Out<'_> {
    fn drop(&mut self) {
        if self.unwritten {
            with_dtype!(self.dtype, T => drop(self.view::<T>()));
        }
    }
}

/// The results that are asked for.
#[derive(Debug)]
pub struct Outs<'a>(Vec<Option<Out<'a>>>);

impl<'a> Outs<'a> {
    /// The results in order; `None` is not asked for.
    pub fn new(list: impl IntoIterator<Item = Option<Out<'a>>>) -> Outs<'a> {
        Outs(list.into_iter().collect())
    }
    /// Result `k`, if it is asked for and was not taken before.
    pub fn take(&mut self, k: usize) -> Option<Out<'a>> {
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

/// Where a line begins, in elements.
///
/// # Panics
/// If there is no such line.
fn offset(over: &[usize], shape: &[usize], strides: &[usize]) -> usize {
    assert!(over.len() <= shape.len() && over.iter().zip(shape).all(|(i, n)| i < n), "{over:?} of {shape:?}");
    over.iter().zip(strides).map(|(i, s)| i * s).sum()
}

impl<'a> In<'a> {
    /// Elements in row-major order.
    ///
    /// # Panics
    /// If they are not as many as the shape says.
    pub fn of<T: Element>(shape: &[usize], elements: &'a [T]) -> In<'a> {
        assert_eq!(shape.iter().product::<usize>(), elements.len(), "{shape:?}");
        let (at, strides) = (elements.as_ptr().cast(), row_major(shape));
        In { dtype: T::DTYPE, at, shape: shape.to_vec(), strides, life: PhantomData }
    }
    /// Elements in memory.
    ///
    /// # Safety
    /// There are elements of this type at all indices of the shape, for as long as `'a`; nobody writes them meanwhile.
    pub(crate) unsafe fn at(dtype: DType, at: *const u8, shape: Vec<usize>, strides: Vec<usize>) -> In<'a> {
        In { dtype, at, shape, strides, life: PhantomData }
    }
    /// One line: at this place over lines, with these of the dimensions along it, the others at their beginning.
    pub(crate) fn line(&self, over: &[usize], along: &[usize]) -> In<'a> {
        let (shape, strides) = (&self.shape[over.len()..], &self.strides[over.len()..]);
        In {
            dtype: self.dtype,
            at: self.at.wrapping_add(offset(over, &self.shape, &self.strides) * self.dtype.size()),
            shape: along.iter().map(|d| shape[*d]).collect(),
            strides: along.iter().map(|d| strides[*d]).collect(),
            life: PhantomData,
        }
    }
    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Sizes: over lines first, then along one.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// The elements.
    ///
    /// # Panics
    /// If they are of another type.
    pub fn view<T: Element>(&self) -> ArrayViewD<'a, T> {
        assert_eq!(T::DTYPE, self.dtype);
        let shape = IxDyn(&self.shape).strides(IxDyn(&self.strides));
        // SAFETY: whoever made this says that the elements are there, and of this type
        unsafe { ArrayViewD::from_shape_ptr(shape, self.at.cast()) }
    }
}

impl<'a> Out<'a> {
    /// Room for elements in row-major order.
    ///
    /// # Panics
    /// If there is not as much as the shape says.
    pub fn of<T: Element>(shape: &[usize], elements: &'a mut [T]) -> Out<'a> {
        assert_eq!(shape.iter().product::<usize>(), elements.len(), "{shape:?}");
        let (at, strides) = (elements.as_mut_ptr().cast(), row_major(shape));
        Out { dtype: T::DTYPE, at, shape: shape.to_vec(), strides, unwritten: true, life: PhantomData }
    }
    /// Room in memory, which nobody has written yet.
    ///
    /// # Safety
    /// There is room for elements of this type at all indices of the shape, each its own, for as long as `'a`; nobody else reads or
    /// writes it meanwhile.
    pub(crate) unsafe fn at(dtype: DType, at: *mut u8, shape: Vec<usize>, strides: Vec<usize>) -> Out<'a> {
        Out { dtype, at, shape, strides, unwritten: true, life: PhantomData }
    }
    /// Room within this memory, in row-major order.
    ///
    /// # Panics
    /// If it is too small.
    pub(crate) fn within(dtype: DType, shape: &[usize], room: &'a mut [u128]) -> Out<'a> {
        assert!(shape.iter().product::<usize>() * dtype.size() <= size_of_val(room), "{shape:?}");
        let (at, strides) = (room.as_mut_ptr().cast(), row_major(shape));
        Out { dtype, at, shape: shape.to_vec(), strides, unwritten: true, life: PhantomData }
    }
    /// One line: at this place over lines. It is written, or zeros.
    pub(crate) fn line(&mut self, over: &[usize]) -> Out<'_> {
        self.unwritten = false;
        Out {
            dtype: self.dtype,
            at: self.at.wrapping_add(offset(over, &self.shape, &self.strides) * self.dtype.size()),
            shape: self.shape[over.len()..].to_vec(),
            strides: self.strides[over.len()..].to_vec(),
            unwritten: true,
            life: PhantomData,
        }
    }
    /// Whether nobody has asked for its elements yet.
    pub(crate) fn unwritten(&self) -> bool {
        self.unwritten
    }
    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }
    /// Sizes: over lines first, then along one.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// The elements, zeros at first.
    ///
    /// # Panics
    /// If they are of another type.
    pub fn view<T: Element>(&mut self) -> ArrayViewMutD<'_, T> {
        let mut fresh = self.fresh::<T>();
        fresh.fill(MaybeUninit::zeroed());
        // SAFETY: all are written, and zero bytes are an element of each type
        unsafe { fresh.assume_init() }
    }
    /// The elements, which nobody has written yet: write all of them.
    ///
    /// # Panics
    /// If they are of another type.
    pub(crate) fn fresh<T: Element>(&mut self) -> ArrayViewMutD<'_, MaybeUninit<T>> {
        assert_eq!(T::DTYPE, self.dtype);
        self.unwritten = false;
        let shape = IxDyn(&self.shape).strides(IxDyn(&self.strides));
        // SAFETY: whoever made this says that there is room for elements of this type, for us alone
        unsafe { ArrayViewMutD::from_shape_ptr(shape, self.at.cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn views_have_the_strides_of_what_they_were_made_of() {
        let x = [1, 2, 3, 4, 5, 6i32];
        assert_eq!(In::of(&[2, 3], &x).view::<i32>()[[1, 0]], 4);
        let mut y = [7i32; 6];
        let mut out = Out::of(&[3, 2], &mut y);
        assert_eq!((out.shape(), out.dtype()), (&[3, 2][..], DType::I32));
        out.view::<i32>()[[2, 0]] = 1;
        drop(out);
        assert_eq!(y, [0, 0, 0, 0, 1, 0]);
    }

    #[test]
    fn what_nobody_writes_is_zeros() {
        let (mut y, mut z) = ([7i16; 4], [7i16; 4]);
        let mut outs = Outs::new([Some(Out::of(&[4], &mut y)), Some(Out::of(&[2, 2], &mut z))]);
        drop(outs.take(0));
        drop(outs);
        assert_eq!((y, z), ([0; 4], [0; 4]));
    }

    #[test]
    #[should_panic(expected = "F32")]
    fn another_type_is_no_view() {
        In::of(&[1], &[1i32]).view::<f32>();
    }
}
