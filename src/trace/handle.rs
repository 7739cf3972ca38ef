//! The handle: what an [`Array`] is.

use crate::diagnostic::{Error, ErrorKind, Fault, Place, Result};
use crate::program::Value;
use crate::runtime::Slab;
use crate::sharding::Sharding;
use crate::trace::Trace;
use crate::types::{ArrayType, Shape};
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard};

/// An array of numbers, a value of a program that is being traced, or the first error in the computation of either.
///
/// One type for all three, so that the same function runs eagerly, under `jit` and `grad`, and in a `shard_map` body. Element type,
/// shape and sharding are known at run time; [`Array::ty`] tells them. Operations never panic: an ill-typed one returns an
/// array that carries the diagnostic, operations on that one keep the first cause, and it comes out at the next `?`. Cloning clones a handle.
///
/// Here is `int32[4@X,2]` on a mesh `X: 2, Y: 4`, and what its sum over the rows is:
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
/// Memory of dropped arrays is kept for the next ones, up to twice what arrays took at most lately, and half of what the machine (or its
/// cgroup) has; [`runtime::trim`](crate::runtime::trim) gives it back.
#[must_use = "operations return new arrays"]
#[derive(Clone)]
pub struct Array(Arc<Repr>);

// A value does not change: an operation that panics makes none. What is behind locks, numbers and traces, is replaced as a whole.
impl std::panic::UnwindSafe for Array {}
impl std::panic::RefUnwindSafe for Array {}

/// The three things that an array can be.
pub(crate) enum Repr {
    /// Numbers.
    Concrete(Concrete),
    /// A value of a trace (which is larger than the others: it is elsewhere, so that arrays of numbers are small).
    Traced(Box<Traced>),
    /// The first cause.
    Poisoned(Error),
}

/// An array of numbers.
pub(crate) struct Concrete {
    /// Shared by all results of one program.
    placed: Arc<Placed>,
    /// The numbers, until they are donated.
    held: Mutex<Held>,
}

/// What an array of numbers is, from outside.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Placed {
    /// The explicit part of its type.
    pub(crate) ty: ArrayType,
    /// Its sharding over explicit and auto axes; `None` for an array on no mesh (on device 0).
    pub(crate) sharding: Option<Sharding>,
}

impl Deref for Concrete {
    type Target = Arc<Placed>;
    fn deref(&self) -> &Arc<Placed> {
        &self.placed
    }
}

/// The numbers of an array.
enum Held {
    Here(Slab),
    /// By this line.
    Donated(Place),
    /// There is a type only.
    Never,
}

/// A value of a trace.
pub(crate) struct Traced {
    pub(crate) trace: Arc<Trace>,
    pub(crate) value: Value,
}

impl Concrete {
    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Whether there is a type only, and never were numbers.
    pub(crate) fn is_type(&self) -> bool {
        matches!(&*self.lock(), Held::Never)
    }
    /// The numbers, or the refusal that names the line which donated them, and who asks: `op`, at `place`.
    pub(crate) fn slab(&self, op: &str, place: Place) -> Result<Slab> {
        match &*self.lock() {
            Held::Here(slab) => Ok(slab.clone()),
            gone => Err(self.gone(gone, op, place)),
        }
    }
    /// Takes the numbers away: the line `place` gives them to a program that may write over them.
    pub(crate) fn donate(&self, place: Place) -> Result<Slab> {
        let mut held = self.lock();
        match std::mem::replace(&mut *held, Held::Donated(place)) {
            Held::Here(slab) => Ok(slab),
            gone => {
                let error = self.gone(&gone, "call", place);
                *held = gone;
                Err(error)
            }
        }
    }
    /// Gives back what whoever calls this has taken by [`Concrete::donate`], and nobody wrote over.
    pub(crate) fn restore(&self, slab: Slab) {
        *self.lock() = Held::Here(slab);
    }
    fn gone(&self, held: &Held, op: &str, place: Place) -> Error {
        let fault = match held {
            Held::Donated(_) => {
                Fault::new(ErrorKind::Donated, "the array was donated: its memory belongs to a result now")
                    .help("use the result in its place, or do not donate this argument")
            }
            _ => Fault::new(ErrorKind::Data, "the array has a type only, no numbers")
                .help("it was made to lower a program: `lower` takes it, `call` does not"),
        };
        let error = Error::at(fault, op, vec![self.ty.to_string()], Some(place));
        match held {
            Held::Donated(donated) => error.related(donated, "donated here"),
            _ => error,
        }
    }
}

impl Array {
    /// An array of numbers.
    pub(crate) fn concrete(slab: Slab, ty: ArrayType, sharding: Option<Sharding>) -> Array {
        Array::placed_as(slab, Arc::new(Placed { ty, sharding }))
    }
    /// An array of numbers that is what others are.
    pub(crate) fn placed_as(slab: Slab, placed: Arc<Placed>) -> Array {
        debug_assert_eq!(slab.dtype(), placed.ty.dtype.storage());
        debug_assert_eq!(slab.shape(), &placed.ty.shape);
        let held = Mutex::new(Held::Here(slab));
        Array(Arc::new(Repr::Concrete(Concrete { placed, held })))
    }
    /// An array without numbers, to lower programs for.
    pub(crate) fn type_only(ty: ArrayType, sharding: Option<Sharding>) -> Array {
        let (placed, held) = (Arc::new(Placed { ty, sharding }), Mutex::new(Held::Never));
        Array(Arc::new(Repr::Concrete(Concrete { placed, held })))
    }
    /// A value of a trace.
    pub(crate) fn traced(trace: Arc<Trace>, value: Value) -> Array {
        Array(Arc::new(Repr::Traced(Box::new(Traced { trace, value }))))
    }
    /// An array that carries an error. Inside a trace use `trace::poison`, which also records it.
    pub(crate) fn poisoned(error: Error) -> Array {
        Array(Arc::new(Repr::Poisoned(error)))
    }
    /// What it is.
    pub(crate) fn repr(&self) -> &Repr {
        &self.0
    }
    /// Whether the two are handles of one value.
    pub(crate) fn same(&self, other: &Array) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
    /// An address that is its own while it lives.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0) as usize
    }
    /// The numbers; `what` and `place` name the caller in the refusal of a traced value.
    pub(crate) fn slab(&self, what: &str, place: Place) -> Result<Slab> {
        match self.repr() {
            Repr::Concrete(c) => c.slab(what, place),
            Repr::Poisoned(e) => Err(e.clone()),
            Repr::Traced(t) => {
                let fault = Fault::new(
                    ErrorKind::Trace,
                    format!("`{what}` needs numbers, but inside a traced function a value has a type only"),
                )
                .help("return it from the traced function and look at the result")
                .help("`debug_print!` prints it when the program runs");
                // one number is mostly asked for to choose by it
                let fault = match t.value.ty.rank() {
                    0 => fault.help("to choose by it: `cond` or `switch` between programs, `x.select(a, b)` between values"),
                    _ => fault,
                };
                Err(Error::at(fault, what, vec![t.value.ty.to_string()], Some(place)))
            }
        }
    }
    /// Its sharding; `None` for an array on no mesh, and for a traced one, whose type says all that is known.
    pub(crate) fn placed(&self) -> Option<&Sharding> {
        match self.repr() {
            Repr::Concrete(c) => c.sharding.as_ref(),
            _ => None,
        }
    }
    /// Its type without a clone.
    pub(crate) fn type_ref(&self) -> Result<&ArrayType, &Error> {
        match self.repr() {
            Repr::Concrete(c) => Ok(&c.ty),
            Repr::Traced(t) => Ok(&t.value.ty),
            Repr::Poisoned(e) => Err(e),
        }
    }
    /// Its type: element type, shape and sharding; or the error that it carries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::arange(0..4).ty()?, I32.of([4]));
    /// assert!((Array::ones([4]) + Array::ones([3])).ty().is_err());
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn ty(&self) -> Result<ArrayType> {
        self.type_ref().cloned().map_err(Error::clone)
    }
    /// The sizes of its dimensions (inside `shard_map`: of one device's block); or the error that it carries.
    ///
    /// ```
    /// use atmesh::prelude::*;
    /// assert_eq!(Array::ones([4, 2]).shape()?, [4, 2]);
    /// # Ok::<(), atmesh::Error>(())
    /// ```
    pub fn shape(&self) -> Result<Shape> {
        self.type_ref().map(|t| t.shape.clone()).map_err(Error::clone)
    }
    /// The array itself, or the error that it carries.
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
