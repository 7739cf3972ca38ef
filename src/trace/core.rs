//! Traces: where operations on arrays are recorded.
//!
//! An operation belongs to the innermost trace that is open on its thread, or, where an operand comes from a deeper one, to
//! that; with neither it runs at once. Values of outer traces, and numbers, become *captures* of the trace that reads them: further inputs,
//! one for each distinct value. A trace owns the list of its errors, so that an ill-typed operation is reported
//! also where its result was dropped, all of them together at the end of the trace.

use super::{eager, trial};
use crate::diagnostic::{Error, ErrorKind, Fault, Result};
use crate::mesh::Mesh;
use crate::program::{
    Builder, Call, Control, Input, Literal, Placement, Prim, Primitive, Program, Value, Var,
};
use crate::trace::{Array, Repr};
use crate::types::{ArrayType, DType};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

/// An operand of [`apply`].
#[derive(Clone)]
pub(crate) enum Arg {
    /// An array.
    Array(Array),
    /// A number, weak in sharding: it joins any.
    Lit(Literal),
}
impl From<&Array> for Arg {
    fn from(a: &Array) -> Arg {
        Arg::Array(a.clone())
    }
}
impl From<Array> for Arg {
    fn from(a: Array) -> Arg {
        Arg::Array(a)
    }
}
impl From<Literal> for Arg {
    fn from(l: Literal) -> Arg {
        Arg::Lit(l)
    }
}

/// What a value from outside is inside a trace.
pub(crate) type Enter = dyn Fn(&ArrayType) -> Result<ArrayType, Fault> + Send + Sync;

/// A program that is being recorded.
pub(crate) struct Trace {
    parent: Option<Arc<Trace>>,
    depth: usize,
    /// What values from outside are inside, where that is not the same.
    enter: Option<Box<Enter>>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// `None` once the trace has ended.
    builder: Option<Builder>,
    /// What it reads from outside, as values of the parent (or numbers), and what they are inside.
    captures: Vec<(Array, Value)>,
    /// Where in `captures` a value of the parent, or an array of numbers, is.
    known: HashMap<CaptureKey, usize>,
    errors: Vec<Error>,
    /// What `Open::set` said.
    setting: Option<Setting>,
}

#[derive(PartialEq, Eq, Hash)]
enum CaptureKey {
    /// A variable of the parent.
    Var(Var),
    /// An array of numbers, by address: captures keep it alive.
    Address(usize),
}

thread_local! {
    static OPEN: RefCell<Vec<Arc<Trace>>> = const { RefCell::new(Vec::new()) };
}

/// So many traces may be open inside one another: what works on programs recurses, and each level takes stack.
const DEEPEST: usize = 100;

/// The innermost trace that is open on this thread.
pub(crate) fn innermost() -> Option<Arc<Trace>> {
    OPEN.try_with(|open| open.borrow().last().cloned()).ok().flatten()
}

/// Whether a trace is open on this thread.
pub(crate) fn tracing() -> bool {
    OPEN.try_with(|open| !open.borrow().is_empty()).unwrap_or(false)
}

/// The devices that a trace speaks of.
#[derive(Clone)]
pub(crate) struct Setting {
    /// The mesh as its values see it: inside `shard_map` with the manual axes marked.
    pub(crate) mesh: Mesh,
    /// Whether types track what varies over manual axes.
    pub(crate) checked: bool,
}

/// The setting of the innermost trace on this thread that has one; else the mesh of the values recorded so far.
pub(crate) fn setting() -> Option<Setting> {
    let mut at = innermost();
    while let Some(trace) = at {
        let state = trace.lock();
        if let Some(setting) = &state.setting {
            return Some(setting.clone());
        }
        if let Some(mesh) = state.builder.as_ref().and_then(|b| b.program().mesh.clone()) {
            let checked = outer_checked(trace.parent.clone());
            return Some(Setting { mesh, checked });
        }
        drop(state);
        at = trace.parent.clone();
    }
    None
}
fn outer_checked(mut at: Option<Arc<Trace>>) -> bool {
    while let Some(trace) = at {
        if let Some(setting) = &trace.lock().setting {
            return setting.checked;
        }
        at = trace.parent.clone();
    }
    true
}

/// A trace that is open on this thread until this is dropped.
pub(crate) struct Open(Arc<Trace>);

impl Drop for Open {
    fn drop(&mut self) {
        let _ = OPEN.try_with(|open| open.borrow_mut().retain(|t| !Arc::ptr_eq(t, &self.0)));
        self.0.lock().builder = None;
    }
}

/// What a trace recorded.
pub(crate) struct Recorded {
    /// The program; its inputs are those asked for, then the captures.
    pub(crate) program: Program,
    /// What the captures are outside.
    pub(crate) captures: Vec<Array>,
}

impl Open {
    /// A new trace inside the innermost one of this thread.
    pub(crate) fn new() -> Result<Open, Fault> {
        Open::of(None)
    }
    /// A new trace in which values from outside are of another type.
    pub(crate) fn within(enter: Box<Enter>) -> Result<Open, Fault> {
        Open::of(Some(enter))
    }
    fn of(enter: Option<Box<Enter>>) -> Result<Open, Fault> {
        let parent = innermost();
        let state = Mutex::new(State { builder: Some(Builder::new()), ..State::default() });
        let depth = parent.as_ref().map_or(0, |p| p.depth + 1);
        if depth >= DEEPEST {
            let message =
                format!("{DEEPEST} traced functions, branches and loops are open inside one another");
            return Err(Fault::new(ErrorKind::Trace, message).help(
                "call plain Rust functions in place of `jit`ted ones, or make steps of a loop of the levels",
            ));
        }
        let trace = Arc::new(Trace { parent, depth, enter, state });
        // a thread that ends has no list of open traces any more
        OPEN.try_with(|open| open.borrow_mut().push(trace.clone())).map_err(|_| {
            Fault::new(ErrorKind::Trace, "a function is traced while its thread ends").help("trace it before")
        })?;
        Ok(Open(trace))
    }
    /// The mesh of a trace whose inputs may be on none.
    pub(crate) fn on(&self, mesh: &Mesh) {
        if let Some(builder) = &mut self.0.lock().builder {
            builder.on(mesh);
        }
    }
    /// Says which devices the trace speaks of: the body's mesh, and whether types track what varies.
    pub(crate) fn set(&self, setting: Setting) {
        let mut state = self.0.lock();
        if let Some(builder) = &mut state.builder {
            builder.on(&setting.mesh);
        }
        state.setting = Some(setting);
    }
    /// One more input. All inputs are made before the first operation.
    pub(crate) fn input(&self, ty: ArrayType, placement: Option<Placement>) -> Array {
        let mut state = self.0.lock();
        let value = state.builder.as_mut().expect("open while the guard lives").input(ty, placement);
        drop(state);
        Array::traced(self.0.clone(), value)
    }
    /// Ends the trace: its program, or all errors that were made in it.
    pub(crate) fn finish(self, outputs: &[Array]) -> Result<Recorded> {
        let mut values = Vec::with_capacity(outputs.len());
        for out in outputs {
            match self.0.import(out) {
                Ok(v) => values.push(v),
                Err(e) => self.0.record(&e),
            }
        }
        let mut state = self.0.lock();
        let errors = std::mem::take(&mut state.errors);
        if !errors.is_empty() {
            return Err(Error::all(errors));
        }
        let builder = state.builder.take().expect("open while the guard lives");
        let captures = state.captures.drain(..).map(|(outer, _)| outer).collect();
        drop(state);
        Ok(Recorded { program: builder.finish(&values), captures })
    }
    /// Notes an error of the traced closure itself.
    pub(crate) fn fail(&self, error: &Error) {
        self.0.record(error);
    }
}

impl Trace {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
    /// Notes an error, to be reported at the end of the trace.
    fn record(&self, error: &Error) {
        let mut state = self.lock();
        if !state.errors.contains(error) {
            state.errors.push(error.clone());
        }
    }
    /// What `array` is inside this trace.
    fn import(self: &Arc<Trace>, array: &Array) -> Result<Value> {
        let traced = match array.repr() {
            Repr::Poisoned(e) => return Err(e.clone()),
            Repr::Traced(t) if t.value.is_literal() => return Ok(t.value.clone()),
            Repr::Traced(t) if Arc::ptr_eq(&t.trace, self) => {
                return if self.lock().builder.is_some() { Ok(t.value.clone()) } else { Err(kept(&t.value)) };
            }
            Repr::Traced(t) => Some(t),
            Repr::Concrete(_) => None,
        };
        // a value from further out becomes a capture of every trace between
        let outer = match (&self.parent, traced) {
            (Some(parent), _) => Array::traced(parent.clone(), parent.import(array)?),
            (None, Some(t)) if t.trace.lock().builder.is_some() => return Err(elsewhere(&t.value.ty)),
            (None, Some(t)) => return Err(kept(&t.value)),
            (None, None) => array.clone(),
        };
        let (ty, key, placement) = match outer.repr() {
            Repr::Traced(t) => match t.value.input {
                Input::Lit(_) => return Ok(t.value.clone()),
                Input::Var(v) => (&t.value.ty, CaptureKey::Var(v), None),
            },
            Repr::Concrete(c) => (
                &c.ty,
                CaptureKey::Address(outer.address()),
                Some(eager::placement(&c.ty, c.sharding.as_ref())),
            ),
            Repr::Poisoned(e) => return Err(e.clone()),
        };
        let state = self.lock();
        if let Some(at) = state.known.get(&key) {
            return Ok(state.captures[*at].1.clone());
        }
        drop(state);
        let inside = match &self.enter {
            Some(enter) => enter(ty)?,
            None => ty.clone(),
        };
        let mut state = self.lock();
        let Some(builder) = &mut state.builder else { return Err(kept_type(ty)) };
        let value = builder.input(inside, placement);
        let at = state.captures.len();
        state.known.insert(key, at);
        state.captures.push((outer.clone(), value.clone()));
        Ok(value)
    }
}

fn elsewhere(ty: &ArrayType) -> Error {
    let fault = Fault::new(ErrorKind::Trace, "this value is of a trace that is open on another thread")
        .help("use it on the thread that traces, or return it from the traced function and use the result");
    Error::at(fault, "", vec![ty.to_string()], None)
}
fn kept(value: &Value) -> Error {
    kept_type(&value.ty)
}
fn kept_type(ty: &ArrayType) -> Error {
    let fault = Fault::new(
        ErrorKind::Trace,
        "this value was kept after its trace: it belongs to a program that has been recorded",
    )
    .help("return it from the traced function and use the result");
    Error::at(fault, "", vec![ty.to_string()], None)
}

/// The trace that an operation on these belongs to.
fn owner<'a>(inputs: impl Iterator<Item = &'a Array>) -> Option<Arc<Trace>> {
    let mut deepest = innermost();
    for array in inputs {
        if let Repr::Traced(t) = array.repr()
            && !t.value.is_literal()
            && deepest.as_ref().is_none_or(|d| t.trace.depth > d.depth)
        {
            deepest = Some(t.trace.clone());
        }
    }
    deepest
}

/// An array that carries `error`; the innermost open trace will report it.
pub(crate) fn poison(error: Error) -> Array {
    if let Some(trace) = innermost() {
        trace.record(&error);
    }
    Array::poisoned(error)
}

/// Applies a primitive to arrays and numbers: recorded in a trace, or run at once.
///
/// The results are as many as its typing says; where it is refused, or an operand carries an error, one array with the error.
pub(crate) fn apply(prim: Prim, inputs: &[Arg], call: Call<'_>) -> Vec<Array> {
    let trace = owner(arrays(inputs));
    let result = match carried(arrays(inputs)) {
        Some(e) => Err(e),
        None => match &trace {
            Some(trace) => trace.emit(inputs, call, |b, values| b.emit_for(prim.clone(), values, call)),
            None => eager::run(prim, inputs, call).map_err(|e| call.locate(e)),
        },
    };
    result.unwrap_or_else(|error| {
        if let Some(trace) = &trace {
            trace.record(&error);
        }
        vec![Array::poisoned(error)]
    })
}

/// Applies a primitive of one result.
pub(crate) fn apply1(prim: Prim, inputs: &[Arg], call: Call<'_>) -> Array {
    eager::again(&*prim, inputs, call).unwrap_or_else(|| apply(prim, inputs, call).swap_remove(0))
}

/// The same of a primitive that need not be shared where it was run lately.
pub(crate) fn apply1_of(prim: &(impl Primitive + Clone), inputs: &[Arg], call: Call<'_>) -> Array {
    let shared = || apply(Arc::new(prim.clone()), inputs, call).swap_remove(0);
    eager::again(prim, inputs, call).unwrap_or_else(shared)
}

/// Applies a control operation whose result types are known.
pub(crate) fn apply_control(
    control: Control,
    inputs: &[Array],
    types: Vec<ArrayType>,
    call: Call<'_>,
) -> Result<Vec<Array>> {
    build(inputs, call, |b, values| Ok(b.control(control, values, types)))
}

/// Applies operations on arrays: recorded in a trace, or run at once as one program.
pub(crate) fn build(
    inputs: &[Array],
    call: Call<'_>,
    add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Array>> {
    let args: Vec<Arg> = inputs.iter().map(Arg::from).collect();
    if let Some(error) = carried(inputs.iter()) {
        return Err(error);
    }
    match owner(inputs.iter()) {
        Some(trace) => trace.emit(&args, call, add),
        None => eager::run_all(&args, call, add).map_err(|e| call.locate(e)),
    }
}

fn arrays(inputs: &[Arg]) -> impl Iterator<Item = &Array> {
    inputs.iter().filter_map(|i| if let Arg::Array(a) = i { Some(a) } else { None })
}
/// What these carry: of several errors all, in order, each once.
pub(crate) fn carried<'a>(arrays: impl Iterator<Item = &'a Array>) -> Option<Error> {
    let mut errors = arrays.filter_map(|a| a.type_ref().err());
    let first = errors.next()?;
    let others: Vec<&Error> = errors.filter(|e| *e != first).collect();
    if others.is_empty() {
        return Some(first.clone());
    }
    Some(Error::all(std::iter::once(first).chain(others).cloned()))
}

/// Names the equation that made this value, in the trace that it is of.
pub(crate) fn name(array: &Array, name: &str) {
    if let Repr::Traced(t) = array.repr()
        && let Some(builder) = &mut t.trace.lock().builder
    {
        builder.name_of(&t.value, name);
    }
}

impl Trace {
    fn emit(
        self: &Arc<Trace>,
        inputs: &[Arg],
        call: Call<'_>,
        add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Vec<Array>> {
        let values: Vec<Value> = inputs
            .iter()
            .map(|i| match i {
                Arg::Array(a) => self.import(a).map_err(|e| call.locate(e)),
                Arg::Lit(l) => Ok(Value::literal(l.dtype, l.value)),
            })
            .collect::<Result<_>>()?;
        let mut state = self.lock();
        let Some(builder) = &mut state.builder else {
            let ty = values.first().map_or_else(|| DType::F32.of([]), |v| v.ty.clone());
            return Err(call.locate(kept_type(&ty)));
        };
        let mut out = add(builder.at(Some(call.place)), &values)?;
        trial::moved(builder, &mut out)?;
        drop(state);
        Ok(out.into_iter().map(|v| Array::traced(self.clone(), v)).collect())
    }
}
