//! The [`Array`] handle: concrete data, traced value or error, and access to its type and data.
//!
//! The state of a [`Trace`] is here too, since traces and arrays refer to each other.

use crate::core::{
    ArrayType, Axes, Error, Fault, Mesh, Result, Shape, Sharding, SourceLocation, SubAxes, sharding::sub_axes,
};
use crate::exec::runtime::ArrayData;
use crate::ir::program::{Builder, Placement, Value, Var};
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

/// A multi-dimensional array: concrete data, a value of a program being traced, or an error.
///
/// One type covers all three, so the same function runs eagerly, under `jit` and `grad`, and in a
/// `shard_map` body. Element type, shape and sharding are known at run time; [`Array::ty`] returns
/// them. Operations never panic: an ill-typed one returns an array that carries the diagnostic.
/// Operations on that array keep the first error, which the next `?` returns. Cloning clones the
/// handle, not the data.
///
/// This is an `int32[4@X,2]` on a mesh `X: 2, Y: 4`, and its sum over the rows:
///
#[cfg_attr(doc, doc = picture!("array"))]
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
/// let x = Array::arange(0..8).reshape([4, 2]).put(&mesh, p!["X", _]);
/// assert_eq!(type_of(&x), "int32[4@X,2]"); // each half of the rows is on 4 devices
/// assert_eq!(type_of(&(&x * 2)), "int32[4@X,2]");
/// assert_eq!(type_of(&x.sum(0)), "int32[2]"); // an all-reduce over X
/// assert_eq!(x.sum(0).to_vec::<i32>()?, [12, 16]);
/// # Ok::<(), atmesh::Error>(())
/// ```
///
/// The memory of dropped arrays is kept for new ones: up to twice the recent peak use, and at most
/// half of the memory of the machine (or its cgroup). [`runtime::trim`](crate::exec::runtime::trim)
/// returns it to the system.
#[must_use = "operations return new arrays"]
#[derive(Clone)]
pub struct Array(Arc<Repr>);

// A value is immutable: an operation that panics produces none. Mutable state (data, traces) is in
// locks and is replaced as a unit.
impl std::panic::UnwindSafe for Array {}
impl std::panic::RefUnwindSafe for Array {}

/// The three kinds of array.
pub(crate) enum Repr {
    /// An array with data.
    Concrete(Concrete),
    /// A value of a trace.
    /// It is boxed because it is larger than the others, so that concrete handles stay small.
    Traced(Box<TracedValue>),
    /// The first error in the computation of this array.
    Poisoned(Error),
}

/// An array with data.
pub(crate) struct Concrete {
    /// The type and sharding, shared by equal results of one program.
    placed_type: Arc<PlacedType>,
    /// The data, until it is donated.
    data: Mutex<DataState>,
}

/// The type and sharding of a concrete array.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct PlacedType {
    /// The type: element type, shape, and the sharding over explicit axes.
    pub(crate) ty: ArrayType,
    /// The sharding over explicit and auto axes. `None` if the array is unplaced: its data is on
    /// device 0.
    pub(crate) sharding: Option<Sharding>,
}

impl Deref for Concrete {
    type Target = Arc<PlacedType>;
    fn deref(&self) -> &Arc<PlacedType> {
        &self.placed_type
    }
}

/// The state of a concrete array's data.
enum DataState {
    /// The data is available.
    Available(ArrayData),
    /// Donated at this source location.
    Donated(SourceLocation),
    /// The array has a type only and never had data.
    TypeOnly,
}

/// A value of a trace.
pub(crate) struct TracedValue {
    /// The trace that recorded the value.
    pub(crate) trace: Arc<Trace>,
    /// The value in that trace's program.
    pub(crate) value: Value,
}

/// A function that maps the type of a captured value to its type inside a trace.
pub(crate) type CaptureTypeFn = dyn Fn(&ArrayType) -> Result<ArrayType, Fault> + Send + Sync;

/// A program that is being recorded.
pub(crate) struct Trace {
    /// The enclosing trace.
    pub(super) parent: Option<Arc<Trace>>,
    /// The number of enclosing traces.
    pub(super) depth: usize,
    /// The source location of the call that opened the trace, if known.
    pub(super) location: Option<SourceLocation>,
    /// The function that maps the types of captured values. `None` if captures keep their types.
    pub(super) capture_type: Option<Box<CaptureTypeFn>>,
    pub(super) state: Mutex<TraceState>,
}

#[derive(Default)]
pub(super) struct TraceState {
    /// The program so far. `None` once the trace has ended.
    pub(super) builder: Option<Builder>,
    /// The captures: each outer value, concrete or of the parent trace, and its input.
    pub(super) captures: Vec<(Array, Value)>,
    /// The index in `captures` of each captured value.
    pub(super) capture_index: HashMap<CaptureKey, usize>,
    /// The errors recorded so far.
    pub(super) errors: Vec<Error>,
    /// The mesh and mode that [`OpenTrace::set`] declared. `None` if it has not been called.
    pub(super) setting: Option<Setting>,
}

#[derive(PartialEq, Eq, Hash)]
pub(super) enum CaptureKey {
    /// A variable of the parent.
    Var(Var),
    /// The address of a concrete array; `captures` keeps the array alive.
    Address(usize),
}

/// The devices that a trace describes.
#[derive(Clone)]
pub(crate) struct Setting {
    /// The mesh as values of the trace see it; inside `shard_map` it has the manual axes marked.
    pub(crate) mesh: Mesh,
    /// The manual axes of unchecked regions. Types do not track the values that vary over them.
    pub(crate) untracked: Axes,
}

impl Trace {
    pub(super) fn lock(&self) -> MutexGuard<'_, TraceState> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

/// Returns the placement of a program's input of this rank and sharding.
pub(crate) fn input_placement(rank: usize, sharding: Option<&Sharding>) -> Placement {
    let Some(s) = sharding else {
        return Placement { dims: vec![SubAxes::new(); rank], partial: SubAxes::new() };
    };
    Placement {
        dims: sub_axes::from_spec(&s.mesh, s.spec.padded(rank)),
        partial: sub_axes::from_axes(&s.mesh, s.spec.unreduced_axes().iter()),
    }
}

impl Concrete {
    fn lock(&self) -> MutexGuard<'_, DataState> {
        self.data.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Returns true if the array has a type only and never had data.
    pub(crate) fn is_type_only(&self) -> bool {
        matches!(&*self.lock(), DataState::TypeOnly)
    }
    /// Returns the data. If it was donated, the error names the source line that donated it, and
    /// the reader: `op` at `place`.
    pub(crate) fn array_data(&self, op: &str, location: SourceLocation) -> Result<ArrayData> {
        match &*self.lock() {
            DataState::Available(slab) => Ok(slab.clone()),
            gone => Err(self.missing_data_error(gone, op, location)),
        }
    }
    /// Takes the data out of the array: the call at `place` donates it to a program that may
    /// overwrite it.
    pub(crate) fn donate(&self, location: SourceLocation) -> Result<ArrayData> {
        let mut held = self.lock();
        match std::mem::replace(&mut *held, DataState::Donated(location)) {
            DataState::Available(slab) => Ok(slab),
            gone => {
                let error = self.missing_data_error(&gone, "call", location);
                *held = gone;
                Err(error)
            }
        }
    }
    /// Restores data that the caller took by [`Concrete::donate`] and that was not overwritten.
    pub(crate) fn restore(&self, slab: ArrayData) {
        *self.lock() = DataState::Available(slab);
    }
    fn missing_data_error(&self, held: &DataState, op: &str, location: SourceLocation) -> Error {
        let fault = match held {
            DataState::Donated(_) => {
                fault!(Donated, "the array was donated: its memory belongs to a result now")
                    .help("use the result instead, or do not donate this argument")
            }
            _ => fault!(Data, "the array has a type only, no data")
                .help("it was made to lower a program: `lower` takes it, `call` does not"),
        };
        let error = Error::new(fault, op, vec![self.ty.to_string()], Some(location));
        match held {
            DataState::Donated(donated) => error.related(donated, "donated here"),
            _ => error,
        }
    }
}

impl Array {
    /// Creates an array with data.
    pub(crate) fn concrete(slab: ArrayData, ty: ArrayType, sharding: Option<Sharding>) -> Array {
        Array::with_placed_type(slab, Arc::new(PlacedType { ty, sharding }))
    }
    /// Creates an array with data, and with a type and sharding that other arrays share.
    pub(crate) fn with_placed_type(slab: ArrayData, placed: Arc<PlacedType>) -> Array {
        debug_assert_eq!(slab.dtype(), placed.ty.dtype.storage());
        debug_assert_eq!(slab.shape(), &placed.ty.shape);
        let held = Mutex::new(DataState::Available(slab));
        Array(Arc::new(Repr::Concrete(Concrete { placed_type: placed, data: held })))
    }
    /// Creates an array without data, as an argument for tracing and lowering.
    pub(crate) fn type_only(ty: ArrayType, sharding: Option<Sharding>) -> Array {
        let (placed, held) = (Arc::new(PlacedType { ty, sharding }), Mutex::new(DataState::TypeOnly));
        Array(Arc::new(Repr::Concrete(Concrete { placed_type: placed, data: held })))
    }
    /// Creates a handle for a traced value.
    pub(crate) fn traced(trace: Arc<Trace>, value: Value) -> Array {
        Array(Arc::new(Repr::Traced(Box::new(TracedValue { trace, value }))))
    }
    /// Creates an array that carries an error.
    /// Inside a trace use `trace::poison`, which also records the error.
    pub(crate) fn poisoned(error: Error) -> Array {
        Array(Arc::new(Repr::Poisoned(error)))
    }
    /// Returns the contents of the handle.
    pub(crate) fn repr(&self) -> &Repr {
        &self.0
    }
    /// Returns true if both are handles of the same value.
    pub(crate) fn is_same_handle(&self, other: &Array) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
    /// Returns a handle with its own hold on the data: donating this array does not end it.
    pub(crate) fn snapshot_at(&self, location: SourceLocation) -> Array {
        match self.repr() {
            Repr::Concrete(c) if !c.is_type_only() => match c.array_data("tree::snapshot", location) {
                Ok(data) => Array::with_placed_type(data, (**c).clone()),
                Err(error) => Array::poisoned(error),
            },
            _ => self.clone(),
        }
    }
    /// Returns an address that is unique while the array lives.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
    /// Returns the data. `what` and `place` name the caller in the error for a traced value.
    pub(crate) fn array_data(&self, what: &str, location: SourceLocation) -> Result<ArrayData> {
        match self.repr() {
            Repr::Concrete(c) => c.array_data(what, location),
            Repr::Poisoned(e) => Err(e.clone()),
            Repr::Traced(t) => {
                let fault = fault!(
                    Trace,
                    "`{what}` needs concrete data, but inside a traced function a value has a type only"
                )
                .help("return it from the traced function and look at the result")
                .help("`debug_print!` prints it when the program runs");
                // a scalar is usually read to branch on it, or to repeat by it
                let ty = &t.value.ty;
                let fault = match ty.rank() {
                    0 => fault.help("to choose by it: `cond` or `switch` between programs, `x.select(a, b)` between values"),
                    _ => fault,
                };
                let fault = match ty.rank() == 0 && ty.dtype.is_integer() {
                    true => fault.help("to repeat by it: `fori_loop(Array::from(0)..n, init, body)`"),
                    false => fault,
                };
                Err(Error::new(fault, what, vec![t.value.ty.to_string()], Some(location)))
            }
        }
    }
    /// Returns the sharding of a concrete array. `None` if it is unplaced, or traced: only the type
    /// of a traced value is known.
    pub(crate) fn concrete_sharding(&self) -> Option<&Sharding> {
        match self.repr() {
            Repr::Concrete(c) => c.sharding.as_ref(),
            _ => None,
        }
    }
    /// Returns the type without cloning it, or the error that the array carries.
    pub(crate) fn type_ref(&self) -> Result<&ArrayType, &Error> {
        match self.repr() {
            Repr::Concrete(c) => Ok(&c.ty),
            Repr::Traced(t) => Ok(&t.value.ty),
            Repr::Poisoned(e) => Err(e),
        }
    }
    /// Returns the type: element type, shape and sharding; or the error that the array carries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).ty()?, I32.array_type([4]));
    /// assert!((Array::ones([4]) + Array::ones([3])).ty().is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn ty(&self) -> Result<ArrayType> {
        self.type_ref().cloned().map_err(Error::clone)
    }
    /// Returns the shape, or the error that the array carries.
    ///
    /// Inside `shard_map` it is the shape of one device's block.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([4, 2]).shape()?, [4, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn shape(&self) -> Result<Shape> {
        self.type_ref().map(|t| t.shape.clone()).map_err(Error::clone)
    }
    /// Returns the array itself, or the error that it carries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert!(Array::ones([4]).reshape([5]).sin().ready().is_err(), "reshape's error");
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn ready(self) -> Result<Array> {
        match self.repr() {
            Repr::Poisoned(e) => Err(e.clone()),
            _ => Ok(self),
        }
    }
}
