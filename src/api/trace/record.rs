//! Traces: recording the operations that user code applies to arrays.
//!
//! An operation belongs to the innermost trace open on its thread, or, if an operand comes from a
//! deeper trace, to that one. If there is no such trace, it runs eagerly. A trace that reads a
//! value of an outer trace, or a concrete array, adds it to its *captures*: further inputs of the
//! program, one for each distinct value.
//!
//! A trace owns the list of its errors. An ill-typed operation is therefore reported even if its
//! result is never used, and all errors of a trace are reported together when it ends.

use super::handle::{CaptureKey, CaptureTypeFn, Setting, Trace, TraceState, input_placement};
use super::scope::{count_trace, current_scope, is_user_code};
use super::{device_code::runs_device_code, eager, operand::ArrayOrLiteral, what_if};
use crate::api::trace::{Array, Repr};
use crate::core::{ArrayType, Axes, DType, Error, ErrorKind, Fault, Mesh, Result, SourceLocation};
use crate::exec::engine::EngineKind;
use crate::ir::program::{Builder, CallSite, Control, Input, Placement, Prim, Primitive, Program, Value};
use std::cell::RefCell;
use std::sync::{Arc, Mutex};

thread_local! {
    static OPEN: RefCell<Vec<Arc<Trace>>> = const { RefCell::new(Vec::new()) };
}

/// The maximum depth of nested open traces. It limits the recursion of passes over nested programs,
/// which uses stack at each level.
const MAX_TRACE_DEPTH: usize = 100;

/// Returns the innermost trace that is open on this thread.
pub(crate) fn innermost() -> Option<Arc<Trace>> {
    OPEN.try_with(|open| open.borrow().last().cloned()).ok().flatten()
}

/// Returns true if a trace is open on this thread.
pub(crate) fn tracing() -> bool {
    OPEN.try_with(|open| !open.borrow().is_empty()).unwrap_or(false)
}

/// Returns the setting of the innermost trace on this thread that has one.
///
/// A trace without a declared setting uses the mesh of the values recorded so far.
pub(crate) fn setting() -> Option<Setting> {
    let mut at = innermost();
    while let Some(trace) = at {
        let state = trace.lock();
        if let Some(setting) = &state.setting {
            return Some(setting.clone());
        }
        if let Some(mesh) = state.builder.as_ref().and_then(|b| b.program().mesh.clone()) {
            return Some(Setting { mesh, untracked: outer_untracked(trace.parent.clone()) });
        }
        drop(state);
        at = trace.parent.clone();
    }
    None
}
fn outer_untracked(mut at: Option<Arc<Trace>>) -> Axes {
    while let Some(trace) = at {
        if let Some(setting) = &trace.lock().setting {
            return setting.untracked.clone();
        }
        at = trace.parent.clone();
    }
    Axes::none()
}

/// A guard that keeps a trace open on this thread until it is dropped.
pub(crate) struct OpenTrace(Arc<Trace>);

impl Drop for OpenTrace {
    fn drop(&mut self) {
        let _ = OPEN.try_with(|open| open.borrow_mut().retain(|t| !Arc::ptr_eq(t, &self.0)));
        count_trace(-1);
        self.0.lock().builder = None;
    }
}

/// The result of recording a trace.
pub(crate) struct RecordedProgram {
    /// The program. Its inputs are the declared ones, then the captures.
    pub(crate) program: Program,
    /// The outer values that are passed for the captures.
    pub(crate) captures: Vec<Array>,
}

impl OpenTrace {
    /// Opens a new trace inside the innermost one of this thread.
    /// `location` is that of the user's call.
    pub(crate) fn new(location: Option<SourceLocation>) -> Result<OpenTrace, Fault> {
        OpenTrace::start(location, None)
    }
    /// Opens a new trace, in which `enter` maps the types of captured values.
    pub(crate) fn with_capture_type(
        location: Option<SourceLocation>,
        enter: Box<CaptureTypeFn>,
    ) -> Result<OpenTrace, Fault> {
        OpenTrace::start(location, Some(enter))
    }
    fn start(
        location: Option<SourceLocation>,
        enter: Option<Box<CaptureTypeFn>>,
    ) -> Result<OpenTrace, Fault> {
        let parent = innermost();
        let state = Mutex::new(TraceState { builder: Some(Builder::new()), ..TraceState::default() });
        let depth = parent.as_ref().map_or(0, |p| p.depth + 1);
        if depth >= MAX_TRACE_DEPTH {
            let message =
                format!("{MAX_TRACE_DEPTH} traced functions, branches and loops are open inside one another");
            return Err(Fault::new(ErrorKind::Trace, message).help(
                "call plain Rust functions instead of `jit`ted ones, or turn the recursion into a loop",
            ));
        }
        let trace = Arc::new(Trace { parent, depth, location, capture_type: enter, state });
        // the thread-local list no longer exists while its thread ends
        OPEN.try_with(|open| open.borrow_mut().push(trace.clone())).map_err(|_| {
            fault!(Trace, "a function is traced while its thread ends").help("trace it before")
        })?;
        count_trace(1);
        Ok(OpenTrace(trace))
    }
    /// Sets the mesh of a trace whose inputs may be unplaced.
    pub(crate) fn set_mesh(&self, mesh: &Mesh) {
        if let Some(builder) = &mut self.0.lock().builder {
            builder.set_default_mesh(mesh);
        }
    }
    /// Declares the mesh of the traced body, and the axes that types do not track.
    pub(crate) fn set(&self, setting: Setting) {
        let mut state = self.0.lock();
        if let Some(builder) = &mut state.builder {
            builder.set_default_mesh(&setting.mesh);
        }
        state.setting = Some(setting);
    }
    /// Adds an input. All inputs are added before the first operation.
    pub(crate) fn input(&self, ty: ArrayType, placement: Option<Placement>) -> Array {
        let mut state = self.0.lock();
        let value = state.builder.as_mut().expect("open while the guard lives").input(ty, placement);
        drop(state);
        Array::traced(self.0.clone(), value)
    }
    /// Ends the trace. Returns its program, or all errors recorded in it.
    pub(crate) fn finish(self, outputs: &[Array]) -> Result<RecordedProgram> {
        let mut values = Vec::with_capacity(outputs.len());
        for out in outputs {
            match self.0.import(out) {
                Ok(v) => values.push(v),
                Err(e) => self.0.record_error(&e),
            }
        }
        let mut state = self.0.lock();
        let errors = std::mem::take(&mut state.errors);
        if !errors.is_empty() {
            return Err(Error::combine(errors));
        }
        let builder = state.builder.take().expect("open while the guard lives");
        let captures = state.captures.drain(..).map(|(outer, _)| outer).collect();
        drop(state);
        Ok(RecordedProgram { program: builder.finish(&values), captures })
    }
    /// Records an error returned by the traced closure itself.
    pub(crate) fn fail(&self, error: &Error) {
        self.0.record_error(error);
    }
}

impl Trace {
    /// Records an error, to be reported when the trace ends.
    fn record_error(&self, error: &Error) {
        let mut state = self.lock();
        if !state.errors.contains(error) {
            state.errors.push(error.clone());
        }
    }
    /// Returns the value that stands for `array` inside this trace, capturing it if necessary.
    fn import(self: &Arc<Trace>, array: &Array) -> Result<Value> {
        let traced = match array.repr() {
            Repr::Poisoned(e) => return Err(e.clone()),
            Repr::Traced(t) if t.value.is_literal() => return Ok(t.value.clone()),
            Repr::Traced(t) if Arc::ptr_eq(&t.trace, self) => {
                return if self.lock().builder.is_some() {
                    Ok(t.value.clone())
                } else {
                    Err(stale_value_error(&t.value))
                };
            }
            Repr::Traced(t) => Some(t),
            Repr::Concrete(_) => None,
        };
        // a value of a trace further out becomes a capture of every trace in between
        let outer = match (&self.parent, traced) {
            (Some(parent), _) => Array::traced(parent.clone(), parent.import(array)?),
            (None, Some(t)) if t.trace.lock().builder.is_some() => {
                return Err(wrong_thread_error(&t.value.ty));
            }
            (None, Some(t)) => return Err(stale_value_error(&t.value)),
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
                Some(input_placement(c.ty.rank(), c.sharding.as_ref())),
            ),
            Repr::Poisoned(e) => return Err(e.clone()),
        };
        let state = self.lock();
        if let Some(at) = state.capture_index.get(&key) {
            return Ok(state.captures[*at].1.clone());
        }
        drop(state);
        let inside = match &self.capture_type {
            Some(enter) => enter(ty)?,
            None => ty.clone(),
        };
        let mut state = self.lock();
        let Some(builder) = &mut state.builder else { return Err(stale_type_error(ty)) };
        let value = builder.input(inside, placement);
        let at = state.captures.len();
        state.capture_index.insert(key, at);
        state.captures.push((outer.clone(), value.clone()));
        Ok(value)
    }
}

/// Returns the type that an array has for operations of the innermost trace, which may differ from
/// its own type if it is captured.
pub(crate) fn type_here(array: &Array) -> Result<ArrayType> {
    let mut ty = array.ty()?;
    let own = match array.repr() {
        Repr::Traced(t) => Some(&t.trace),
        _ => None,
    };
    let mut entered = Vec::new();
    let mut at = innermost();
    while let Some(trace) = at.filter(|t| own.is_none_or(|own| !Arc::ptr_eq(own, t))) {
        at = trace.parent.clone();
        entered.push(trace);
    }
    for enter in entered.iter().rev().filter_map(|t| t.capture_type.as_ref()) {
        ty = enter(&ty)?;
    }
    Ok(ty)
}

fn wrong_thread_error(ty: &ArrayType) -> Error {
    let fault = fault!(Trace, "this value belongs to a trace that is open on another thread")
        .help("use it on the thread that traces, or return it from the traced function and use the result");
    Error::new(fault, "", vec![ty.to_string()], None)
}
fn stale_value_error(value: &Value) -> Error {
    stale_type_error(&value.ty)
}
fn stale_type_error(ty: &ArrayType) -> Error {
    let fault =
        fault!(Trace, "this value was kept after its trace ended: its program has already been recorded")
            .help("return it from the traced function and use the result");
    Error::new(fault, "", vec![ty.to_string()], None)
}

/// Returns the trace that an operation on these arrays belongs to; `None` if it runs eagerly.
fn owning_trace<'a>(inputs: impl Iterator<Item = &'a Array>) -> Option<Arc<Trace>> {
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

/// Returns an array that carries `error`, and records the error in the innermost open trace.
pub(crate) fn poison(error: Error) -> Array {
    let error = super::composite::restate(error);
    if let Some(trace) = innermost() {
        trace.record_error(&error);
    }
    Array::poisoned(error)
}

/// Returns this location if it is in the user's code, and otherwise that of the innermost call,
/// scope or trace that is.
#[cfg(feature = "typed")]
pub(crate) fn user_location(location: SourceLocation) -> SourceLocation {
    match innermost() {
        Some(trace) => trace.user_location(location),
        None if is_user_code(location) => location,
        None => current_scope(0).map(|s| s.1).filter(|l| is_user_code(l)).unwrap_or(location),
    }
}

/// Applies a primitive to arrays and literals: recorded in a trace, or run eagerly.
///
/// Returns one array for each result of the primitive. If the operation is ill-typed, or an operand
/// carries an error, returns one array that carries the error.
pub(crate) fn apply(prim: Prim, inputs: &[ArrayOrLiteral], call: CallSite<'_>) -> Vec<Array> {
    let trace = owning_trace(arrays(inputs));
    let call = trace.as_ref().map_or(call, |t| t.in_user_code(call));
    let result = match carried_errors(arrays(inputs)) {
        Some(e) => Err(e),
        None => match &trace {
            Some(trace) => trace.emit(inputs, call, |b, values| b.apply_for(&prim, values, call)),
            None => eager::run(prim, inputs, call).map_err(|e| call.locate(e)),
        },
    };
    result.unwrap_or_else(|error| {
        let error = super::composite::restate(error);
        if let Some(trace) = &trace {
            trace.record_error(&error);
        }
        vec![Array::poisoned(error)]
    })
}

/// Applies a primitive with one result.
pub(crate) fn apply1(prim: Prim, inputs: &[ArrayOrLiteral], call: CallSite<'_>) -> Array {
    run_recent(&*prim, inputs, call).unwrap_or_else(|| apply(prim, inputs, call).swap_remove(0))
}

/// Applies a borrowed primitive with one result; it is cloned only if this thread has not run it
/// recently.
pub(crate) fn apply1_ref(
    prim: &(impl Primitive + Clone),
    inputs: &[ArrayOrLiteral],
    call: CallSite<'_>,
) -> Array {
    let shared = || apply(Arc::new(prim.clone()), inputs, call).swap_remove(0);
    run_recent(prim, inputs, call).unwrap_or_else(shared)
}

/// Runs a primitive outside of any trace, if this thread ran it recently on operands of the same
/// types. Returns `None` in every other case.
fn run_recent(prim: &dyn Primitive, inputs: &[ArrayOrLiteral], call: CallSite<'_>) -> Option<Array> {
    if tracing() { None } else { eager::run_recent(prim, inputs, call) }
}

/// Applies a control operation whose result types are given.
pub(crate) fn apply_control(
    control: Control,
    inputs: &[Array],
    types: Vec<ArrayType>,
    call: CallSite<'_>,
) -> Result<Vec<Array>> {
    build(inputs, call, |b, values| Ok(b.control(control, values, types)))
}

/// Applies the operations that `add` builds: recorded in a trace, or run eagerly as one program.
pub(crate) fn build(
    inputs: &[Array],
    call: CallSite<'_>,
    add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
) -> Result<Vec<Array>> {
    let args: Vec<ArrayOrLiteral> = inputs.iter().map(ArrayOrLiteral::from).collect();
    if let Some(error) = carried_errors(inputs.iter()) {
        return Err(error);
    }
    match owning_trace(inputs.iter()) {
        Some(trace) => trace.emit(&args, trace.in_user_code(call), add),
        None => eager::run_as_program(&args, call, add).map_err(|e| call.locate(e)),
    }
}

/// Runs the operations that `f` applies to a concrete array as one program, outside of any trace.
///
/// Returns `None` if that is not possible, or if an operation is rejected. The caller then applies
/// the operations one by one.
pub(crate) fn run_fused(x: &Array, call: CallSite<'_>, f: impl FnOnce(&Array) -> Array) -> Option<Array> {
    let (Repr::Concrete(_), Ok(ty)) = (x.repr(), x.type_ref()) else { return None };
    if tracing() || runs_device_code() || EngineKind::default() == EngineKind::Xla {
        return None;
    }
    let open = OpenTrace::new(Some(call.location)).ok()?;
    let placement = input_placement(ty.rank(), x.concrete_sharding());
    let made = f(&open.input(ty.clone(), Some(placement)));
    let RecordedProgram { program, captures } = open.finish(&[made]).ok()?;
    if !captures.is_empty() {
        return None;
    }
    eager::run_program(program, &[x.into()], call).ok()?.pop()
}

fn arrays(inputs: &[ArrayOrLiteral]) -> impl Iterator<Item = &Array> {
    inputs.iter().filter_map(|i| if let ArrayOrLiteral::Array(a) = i { Some(a) } else { None })
}
/// Returns the errors that these arrays carry, combined: each distinct error once, in order.
pub(crate) fn carried_errors<'a>(arrays: impl Iterator<Item = &'a Array>) -> Option<Error> {
    let mut errors = arrays.filter_map(|a| a.type_ref().err());
    let first = errors.next()?;
    let others: Vec<&Error> = errors.filter(|e| *e != first).collect();
    if others.is_empty() {
        return Some(first.clone());
    }
    Some(Error::combine(std::iter::once(first).chain(others).cloned()))
}

/// Names the equation that computed this value, in the trace that the value belongs to.
pub(crate) fn name_equation(array: &Array, name: &str) {
    if let Repr::Traced(t) = array.repr()
        && let Some(builder) = &mut t.trace.lock().builder
    {
        builder.name_value(&t.value, name);
    }
}

impl Trace {
    /// Returns the call with a source location in the user's code.
    fn in_user_code<'a>(&self, call: CallSite<'a>) -> CallSite<'a> {
        call.at(self.user_location(call.location))
    }
    /// Returns this location if it is in the user's code.
    ///
    /// A call without such a location, such as that of a method that is passed as a value, gets the
    /// location of the innermost scope or trace that has one.
    fn user_location(&self, location: SourceLocation) -> SourceLocation {
        if is_user_code(location) {
            return location;
        }
        if let Some(location) = super::composite::location().filter(|l| is_user_code(l)) {
            return location;
        }
        let around = std::iter::successors(Some(self), |trace| trace.parent.as_deref());
        let mut locations =
            around.flat_map(|trace| [current_scope(trace.depth + 1).map(|s| s.1), trace.location]).flatten();
        locations.find(|l| is_user_code(l)).unwrap_or(location)
    }
    fn emit(
        self: &Arc<Trace>,
        inputs: &[ArrayOrLiteral],
        call: CallSite<'_>,
        add: impl FnOnce(&mut Builder, &[Value]) -> Result<Vec<Value>>,
    ) -> Result<Vec<Array>> {
        let values: Vec<Value> = inputs
            .iter()
            .map(|i| match i {
                ArrayOrLiteral::Array(a) => self.import(a).map_err(|e| call.locate(e)),
                ArrayOrLiteral::Lit(l) => Ok(Value::literal(l.dtype, l.value)),
            })
            .collect::<Result<_>>()?;
        let mut state = self.lock();
        let Some(builder) = &mut state.builder else {
            let ty = values.first().map_or_else(|| DType::F32.array_type([]), |v| v.ty.clone());
            return Err(call.locate(stale_type_error(&ty)));
        };
        let scope = current_scope(self.depth + 1).map(|s| s.0).unwrap_or_default();
        let mut out = add(builder.set_location(Some(call.location)).set_scope(scope), &values)?;
        what_if::apply_trial(builder, &mut out)?;
        drop(state);
        Ok(out.into_iter().map(|v| Array::traced(self.clone(), v)).collect())
    }
}
