//! The values of programs.

use crate::error::ErrorResponse;
use crate::syntax::{Function, Name, NumType};
use crate::transform::{Compile, Mapped};
use crate::tree::Arrays;
use atmesh::{
    AllToAll, Array, ArrayType, CollectiveDim, Collectives, Compiled, DType, DeviceId, Dims, Error, Key,
    Lowered, Mesh, Permutation, Pullback, Scalar, Sharding, Spec, Term, Traced, VmapOptions,
};
use std::cell::RefCell;
use std::rc::Rc;

/// The value of an expression.
#[derive(Clone)]
pub(crate) enum Value {
    Unit,
    Bool(bool),
    Int(i128, NumType),
    Float(f64, NumType),
    Char(char),
    Text(Name),
    Array(Array),
    Key(Key),
    List(Rc<Vec<Value>>),
    Tuple(Rc<Vec<Value>>),
    Struct(Rc<Record>),
    /// A range: its start, its end, and whether the end is part of it. `Unit` stands for no bound.
    Range(Rc<(Value, Value, bool)>),
    Option(Option<Rc<Value>>),
    Result(Result<Rc<Value>, Error>),
    Error(Error),
    Mesh(Mesh),
    Spec(Spec),
    Sharding(Sharding),
    DType(DType),
    Type(ArrayType),
    Dims(Dims),
    Device(DeviceId),
    Closure(Rc<Closure>),
    /// A function of the crate, by its path: `Array::ones`.
    Path(Name),
    Jit(Rc<Compile>),
    Mapped(Rc<Mapped>),
    Traced(Movable<Traced<Arrays, Arrays>>),
    Lowered(Movable<Lowered<Arrays, Arrays>>),
    Compiled(Rc<Compiled<Arrays, Arrays>>),
    Collectives(Rc<Collectives>),
    Pullback(Rc<Pullback<Arrays, Arrays>>),
    Gather(CollectiveDim),
    Split(i32),
    Exchange(AllToAll),
    Permutation(Permutation),
    Vmap(Rc<VmapOptions>),
    /// `x.at(ix![..])`.
    Update(Rc<atmesh::array::IndexUpdate>),
    Index(Rc<atmesh::array::Index>),
    /// A `Cell`, `RefCell` or `Mutex`.
    Cell(Rc<RefCell<Value>>),
}

/// A value of the crate that one of its methods consumes.
pub(crate) struct Movable<T>(Rc<RefCell<Option<T>>>);
impl<T> Clone for Movable<T> {
    fn clone(&self) -> Movable<T> {
        Movable(self.0.clone())
    }
}
impl<T> Movable<T> {
    pub(crate) fn new(value: T) -> Movable<T> {
        Movable(Rc::new(RefCell::new(Some(value))))
    }
    /// Applies a function to the value.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&T) -> R) -> Result<R, ErrorResponse> {
        let moved = || syntax_error!("the value was moved by `lower` or `compile` before");
        self.0.borrow().as_ref().map(f).ok_or_else(moved)
    }
    /// Takes the value out.
    pub(crate) fn take(&self) -> Result<T, ErrorResponse> {
        self.0
            .borrow_mut()
            .take()
            .ok_or_else(|| syntax_error!("the value was moved by `lower` or `compile` before"))
    }
}

/// A struct, by the name of its type, with its fields.
#[derive(Clone)]
pub(crate) struct Record {
    pub(crate) name: Name,
    pub(crate) fields: Vec<(Name, Value)>,
}

/// A function of the program, with the names that it captured.
pub(crate) struct Closure {
    pub(crate) function: Rc<Function>,
    pub(crate) scope: Scope,
}

/// The names in scope: a list whose head is the last `let`.
///
/// A closure keeps the list that it was written in, so that later names do not hide earlier ones
/// in it.
#[derive(Clone, Default)]
pub(crate) struct Scope(Option<Rc<Variable>>);

pub(crate) struct Variable {
    name: Name,
    pub(crate) value: RefCell<Value>,
    next: Scope,
}

impl Scope {
    /// Adds a name.
    pub(crate) fn bind(&mut self, name: Name, value: Value) {
        let next = self.clone();
        self.0 = Some(Rc::new(Variable { name, value: RefCell::new(value), next }));
    }
    /// Returns the variable of a name.
    pub(crate) fn find(&self, name: &str) -> Option<&Variable> {
        let mut at = self.0.as_deref();
        while let Some(variable) = at {
            if &*variable.name == name {
                return Some(variable);
            }
            at = variable.next.0.as_deref();
        }
        None
    }
    /// Returns the names, the last one first.
    pub(crate) fn names(&self) -> Vec<(Name, Value)> {
        let (mut list, mut at) = (Vec::new(), self.0.as_deref());
        while let Some(variable) = at {
            list.push((variable.name.clone(), variable.value.borrow().clone()));
            at = variable.next.0.as_deref();
        }
        list
    }
}

impl Value {
    /// Returns a text.
    pub(crate) fn text(text: impl ToString) -> Value {
        Value::Text(text.to_string().into())
    }
    /// Returns a list.
    pub(crate) fn list(list: impl IntoIterator<Item = Value>) -> Value {
        Value::List(Rc::new(list.into_iter().collect()))
    }
    /// Returns a tuple.
    pub(crate) fn tuple(list: impl IntoIterator<Item = Value>) -> Value {
        Value::Tuple(Rc::new(list.into_iter().collect()))
    }
    /// Returns a list of arrays.
    pub(crate) fn arrays(list: impl IntoIterator<Item = Array>) -> Value {
        Value::list(list.into_iter().map(Value::Array))
    }
    /// Returns a count.
    pub(crate) fn count(n: usize) -> Value {
        Value::Int(n as i128, NumType::Usize)
    }
    pub(crate) fn some(value: Value) -> Value {
        Value::Option(Some(Rc::new(value)))
    }
    pub(crate) fn option(value: Option<Value>) -> Value {
        Value::Option(value.map(Rc::new))
    }
    /// Returns a `Result` of the crate.
    pub(crate) fn result(result: Result<Value, Error>) -> Value {
        Value::Result(result.map(Rc::new))
    }
    /// Returns a struct.
    pub(crate) fn record<'n>(name: &str, fields: impl IntoIterator<Item = (&'n str, Value)>) -> Value {
        let fields = fields.into_iter().map(|(n, v)| (n.into(), v)).collect();
        Value::Struct(Rc::new(Record { name: name.into(), fields }))
    }
    /// Returns the value in `Ok` or `Some`, or the value itself.
    pub(crate) fn inner(&self) -> &Value {
        match self {
            Value::Result(Ok(v)) | Value::Option(Some(v)) => v.inner(),
            other => other,
        }
    }
    /// Returns the kind of the value in words.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Value::Unit => "`()`",
            Value::Bool(_) => "a bool",
            Value::Int(..) | Value::Float(..) => "a number",
            Value::Char(_) => "a character",
            Value::Text(_) => "a text",
            Value::Array(_) => "an array",
            Value::Key(_) => "a key",
            Value::List(_) => "a list",
            Value::Tuple(_) => "a tuple",
            Value::Struct(_) => "a struct",
            Value::Range(_) => "a range",
            Value::Option(_) => "an `Option`",
            Value::Result(_) => "a `Result`",
            Value::Error(_) => "an error",
            Value::Mesh(_) => "the mesh",
            Value::Spec(_) => "a spec",
            Value::Sharding(_) => "a sharding",
            Value::DType(_) => "an element type",
            Value::Type(_) => "a type of arrays",
            Value::Dims(_) => "dimensions",
            Value::Device(_) => "a device",
            Value::Closure(_) | Value::Path(_) => "a function",
            Value::Jit(_) => "a compiled function",
            Value::Mapped(_) => "a function over the mesh",
            Value::Traced(_) => "a traced function",
            Value::Lowered(_) => "a lowered function",
            Value::Compiled(_) => "a compiled function",
            Value::Collectives(_) => "a report",
            Value::Pullback(_) => "a pullback",
            Value::Gather(_) | Value::Split(_) | Value::Exchange(_) => "how blocks are put together",
            Value::Permutation(_) => "a permutation",
            Value::Vmap(_) => "options",
            Value::Update(_) => "an indexed array",
            Value::Index(_) => "an index",
            Value::Cell(_) => "a cell",
        }
    }
}

/// Converts a number to a scalar; `None` if the value is not a number.
pub(crate) fn scalar(value: &Value) -> Option<Scalar> {
    match value.inner() {
        Value::Int(n, _) => Some(Scalar::Int(*n)),
        Value::Float(x, _) => Some(Scalar::Float(*x)),
        Value::Bool(b) => Some(Scalar::Bool(*b)),
        _ => None,
    }
}

/// Converts an array or a number to an operand of an operation.
pub(crate) fn term(value: &Value) -> Result<Term, ErrorResponse> {
    match value.inner() {
        Value::Array(x) => Ok(Term::from(x)),
        other => match scalar(other) {
            Some(x) => Ok(Term::Number(x)),
            None => Err(syntax_error!("an array or a number is expected, not {}", other.what())),
        },
    }
}

/// Returns the value as an array, or an error if it is something else.
pub(crate) fn array(value: &Value) -> Result<Array, ErrorResponse> {
    match value.inner() {
        Value::Array(x) => Ok(x.clone()),
        Value::Result(Err(e)) => Err(crate::fixit::without_source(e)),
        other => Err(syntax_error!("an array is expected, not {}", other.what())),
    }
}

/// Returns the value as a spec, or an error if it is something else.
pub(crate) fn spec(value: &Value) -> Result<Spec, ErrorResponse> {
    match value.inner() {
        Value::Spec(spec) => Ok(*spec),
        other => Err(syntax_error!("a spec, like p![\"X\", _], is expected, not {}", other.what())),
    }
}
