//! The named scopes that are open on a thread.

use crate::core::SourceLocation;
use crate::ir::program::ScopePath;
use std::cell::{Cell, RefCell};
use std::panic::Location;

/// A named scope that is open on this thread.
struct OpenScope {
    /// The number of traces that were open when the scope was opened.
    traces: usize,
    /// The names of this scope and of those around it in the same trace.
    scope: ScopePath,
    /// The source location of the call.
    location: SourceLocation,
}

thread_local! {
    static SCOPES: RefCell<Vec<OpenScope>> = const { RefCell::new(Vec::new()) };
    static OPEN_TRACES: Cell<usize> = const { Cell::new(0) };
}

/// Counts a trace that this thread opens (1) or closes (-1).
pub(super) fn count_trace(by: isize) {
    // while a thread ends its count no longer exists
    let _ = OPEN_TRACES.try_with(|open| open.set(open.get().saturating_add_signed(by)));
}

/// Closes the innermost scope when it is dropped, also by a panic.
struct CloseOnDrop;

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        // while a thread ends its scopes no longer exist
        let _ = SCOPES.try_with(|open| open.borrow_mut().pop());
    }
}

/// Names the operations that `body` applies, in reports, plans, timelines and the metadata of XLA.
///
/// Layers that are written in a Rust loop have the same source lines; a scope tells them apart.
/// Scopes nest: the operations of an inner scope are in `outer/inner`. The scope ends with `body`,
/// also if it panics. In a derivative, the operations of the backward pass are in
/// `transpose(name)`. A scope names operations of traced functions only: a scope around a call from
/// ordinary code, eager or `jit`ted, names nothing.
///
/// ```
/// use atmesh::prelude::*;
/// let mesh = Mesh::new([("X", 2)])?;
/// let x = Array::ones([4, 8]).put(&mesh, p!["X"]);
/// let w = |key| Key::new(key).normal([8, 8]).put(&mesh, p!["X"]);
/// let ws = vec![w(0), w(1)];
/// let layers = jit(|x: &Array, ws: &Vec<Array>| {
///     ws.iter().enumerate().fold(x.clone(), |x, (k, w)| {
///         named_scope(format!("layer{k}"), || x.dot(w.reshard(p![])).tanh())
///     })
/// });
/// let lowered = layers.lower((&x, &ws))?;
/// let scopes: Vec<String> = lowered.collectives().iter().map(|c| c.scope.to_string()).collect();
/// assert_eq!(scopes, ["layer0", "layer1"]);
/// # Ok::<(), atmesh::Error>(())
/// ```
#[track_caller]
#[doc(alias("scope", "name_stack", "profiler_annotation", "record_function"))]
pub fn named_scope<R>(name: impl AsRef<str>, body: impl FnOnce() -> R) -> R {
    let _close = open_scope(&ScopePath::new(name.as_ref()), Location::caller());
    body()
}

/// Runs a closure of the user's that a call at this location applies to arrays without a trace.
/// Operations without a location in the user's code get that of the call.
pub(crate) fn in_call<R>(location: SourceLocation, body: impl FnOnce() -> R) -> R {
    let _close = open_scope(&ScopePath::default(), location);
    body()
}

fn open_scope(scope: &ScopePath, location: SourceLocation) -> Option<CloseOnDrop> {
    let traces = OPEN_TRACES.try_with(Cell::get).unwrap_or(0);
    let opened = SCOPES.try_with(|open| {
        let mut open = open.borrow_mut();
        let around = open.last().filter(|s| s.traces == traces).map(|s| s.scope.clone());
        open.push(OpenScope { traces, scope: scope.within(&around.unwrap_or_default()), location });
    });
    opened.is_ok().then_some(CloseOnDrop)
}

/// Returns true if a location is in the user's code, not in this crate or in the standard library.
///
/// A function that is passed as a value, as in `xs.iter().map(Array::sin)`, is called by the
/// standard library. If the value is a function pointer, the call has the location of the function.
pub(super) fn is_user_code(location: SourceLocation) -> bool {
    const HERE: &str = file!();
    let file = location.file();
    // all files of this crate have the same path as this one up to its folder `src`
    let own = &HERE[..HERE.len() - "api/trace/scope.rs".len()];
    // the standard library without its sources, and with them
    let standard = ["/rustc/", "/rustlib/src/rust/library/", r"\rustlib\src\rust\library\"];
    !file.starts_with(own) && !standard.iter().any(|library| file.contains(library))
}

/// Returns the innermost scope that was opened while `traces` traces were open, with the source
/// location of its call.
pub(super) fn current_scope(traces: usize) -> Option<(ScopePath, SourceLocation)> {
    let of = |s: &OpenScope| (s.scope.clone(), s.location);
    SCOPES.try_with(|open| open.borrow().iter().rev().find(|s| s.traces == traces).map(of)).ok().flatten()
}
