//! Errors as values: the mistake, its source location, and suggested fixes.
//!
//! A rule that finds a mistake returns a [`Fault`]. The caller, which knows the operation, its
//! operands and the user's source location, makes a [`Diagnostic`] of it. An [`Error`] is one or
//! several diagnostics. The module `render` prints them.
//!
//! ```
//! use atmesh::{Array, ErrorKind};
//! let bad = Array::ones([2]) + Array::ones([3]);
//! let error = bad.ty().expect_err("the sizes differ");
//! assert_eq!(error.kind(), ErrorKind::Shape);
//! println!("{error}"); // the message, this line and the operands
//! ```

mod cell;
mod cursor;
mod pass_printer;
mod render;
pub(crate) mod terminal;

pub(crate) use cell::LineLabels;
pub(crate) use cursor::Cursor;
pub(crate) use pass_printer::{PrintedStage, requested_stages};

use crate::core::axes::Spec;
use annotate_snippets::Renderer;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A location in the user's source code.
pub type SourceLocation = &'static Location<'static>;

/// The kind of mistake that an [`Error`] reports.
///
/// ```
/// use atmesh::{Array, ErrorKind};
/// let error = Array::ones([2]).sum(5).ty().expect_err("there is one dimension");
/// assert_eq!(error.kind(), ErrorKind::Shape);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A wrong rank or size, a dimension out of range, or a size that is not divisible.
    Shape,
    /// A wrong element type.
    Dtype,
    /// An ambiguous or conflicting sharding.
    Sharding,
    /// Invalid axes in a spec, or operands on two meshes.
    /// A spec may not name an unknown axis, an axis twice, or an axis of certain types.
    Mesh,
    /// Values that vary over manual axes where they must not, or the reverse.
    Varying,
    /// Text that does not parse as a type or spec, or an unknown name.
    Syntax,
    /// A traced value used where concrete data is needed, or outside of its trace.
    Trace,
    /// A use of an argument after it was donated.
    Donated,
    /// Trees with different structures.
    Tree,
    /// A device failed: it panicked, returned an error, or returned early.
    Device,
    /// Devices that called different collectives, or that wait for one another.
    CollectiveMismatch,
    /// Wrong host data: missing pieces, wrong shapes, unreadable files.
    Data,
    /// A feature that is not compiled in or not implemented.
    /// The program itself is correct.
    Unsupported,
    /// A run of device code that was aborted because another device failed.
    /// The cause is the error of that device.
    Aborted,
    /// A bug in atmesh.
    /// Please report it.
    Internal,
    /// An error that the user's own code returned.
    User,
}

impl ErrorKind {
    /// Returns the code of this kind, as in `error[shape]` and in the conformance cases.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Shape => "shape",
            ErrorKind::Dtype => "dtype",
            ErrorKind::Sharding => "sharding",
            ErrorKind::Mesh => "mesh",
            ErrorKind::Varying => "varying",
            ErrorKind::Syntax => "syntax",
            ErrorKind::Trace => "trace",
            ErrorKind::Donated => "donated",
            ErrorKind::Tree => "tree",
            ErrorKind::Device => "device",
            ErrorKind::CollectiveMismatch => "mismatch",
            ErrorKind::Data => "data",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Aborted => "aborted",
            ErrorKind::Internal => "internal",
            ErrorKind::User => "user",
        }
    }
}

/// An error found by a rule that does not know the user's call.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fault {
    /// The kind of mistake.
    pub kind: ErrorKind,
    /// The error message, in one sentence.
    pub message: String,
    /// Output shardings that would resolve an ambiguity, each with a short label.
    pub out_shardings: Vec<(String, Spec)>,
    /// The suggested fixes.
    /// Each entry is one alternative.
    pub help: Vec<String>,
    /// The parts of the printed operand types to highlight, each with the index of its operand.
    pub highlights: Vec<(usize, TypePart)>,
}

/// A part of a printed type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TypePart {
    /// A dimension, such as `8@X`.
    Dim(usize),
    /// The element type, such as `float32`.
    Dtype,
    /// The varying, unreduced and reduced sets, such as `{U:X}`.
    Sets,
}

/// Returns a number with its noun: `1 entry`, `3 entries`.
pub(crate) fn pluralize(n: usize, noun: &str) -> String {
    match (n, noun.strip_suffix('y')) {
        (1, _) => format!("1 {noun}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        _ => format!("{n} {noun}s"),
    }
}

impl Fault {
    /// Creates a fault of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Fault {
        Fault {
            kind,
            message: message.into(),
            out_shardings: Vec::new(),
            help: Vec::new(),
            highlights: Vec::new(),
        }
    }
    /// Adds a suggested fix.
    pub fn help(mut self, help: impl Into<String>) -> Fault {
        self.help.push(help.into());
        self
    }
    /// Adds an output sharding that the user may request, with its label.
    pub fn out_sharding(mut self, label: impl Into<String>, out: Spec) -> Fault {
        self.out_shardings.push((label.into(), out));
        self
    }
    /// Highlights dimension `dim` of operand `operand`.
    pub fn highlight_dim(self, operand: usize, dim: usize) -> Fault {
        self.highlight(operand, TypePart::Dim(dim))
    }
    /// Highlights a part of the type of operand `operand`.
    pub fn highlight(mut self, operand: usize, part: TypePart) -> Fault {
        self.highlights.push((operand, part));
        self
    }
}

/// One mistake in the user's program, with everything needed to explain it.
///
/// ```
/// use atmesh::prelude::*;
/// let error = Array::ones([2]).dot(Array::ones([3])).ty().expect_err("the sizes differ");
/// let diagnostic = &error.diagnostics()[0];
/// assert_eq!((diagnostic.op.as_str(), diagnostic.operands.len()), ("dot", 2));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// The kind, message, helps and highlighted operand parts.
    pub fault: Fault,
    /// The operation, as the user knows it; empty if there is none.
    pub op: String,
    /// The operand types, as printed.
    pub operands: Vec<String>,
    /// The source location of the user's call, if known.
    pub location: Option<SourceLocation>,
    /// Other source locations that matter, each with a label, such as where the value was donated.
    pub related: Vec<(SourceLocation, String)>,
    /// The text of the call with an explicit output sharding: `x.dot_to(&w, {})`.
    /// `{}` is the placeholder of the spec. `None` if the call has no such form.
    pub explicit_form: Option<String>,
}

/// One or several diagnostics.
/// `Display` and `Debug` both render them with the source line.
///
/// ```
/// use atmesh::{Array, Error, ErrorKind};
/// let error: Error = Array::ones([2]).reshape([3]).ty().expect_err("the sizes differ");
/// assert_eq!(error.kind(), ErrorKind::Shape);
/// assert!(error.to_string().starts_with("error[shape]: reshape"));
/// ```
#[derive(Clone)]
pub struct Error(Arc<Vec<Diagnostic>>);

/// A result whose error type defaults to [`Error`].
///
/// ```
/// use atmesh::prelude::*;
/// fn total(x: &Array) -> Result<f32> {
///     x.sum(..).item()
/// }
/// assert_eq!(total(&Array::ones([3]))?, 3.0);
/// # Ok::<(), atmesh::Error>(())
/// ```
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates the error of one operation at a source location.
    pub fn new(
        fault: Fault,
        op: impl Into<String>,
        operands: Vec<String>,
        location: Option<SourceLocation>,
    ) -> Error {
        Error::from(Diagnostic {
            fault,
            op: op.into(),
            operands,
            location,
            related: Vec::new(),
            explicit_form: None,
        })
    }
    /// Creates an error of the user's own code: `.map_err(Error::other)?`.
    /// It turns a foreign error into one that `?` can return.
    pub fn other(error: impl fmt::Display) -> Error {
        Error::new(Fault::new(ErrorKind::User, error.to_string()), "", Vec::new(), None)
    }
    /// Creates an error for a violated invariant of atmesh.
    /// No program should be able to cause it.
    pub(crate) fn internal(message: impl fmt::Display) -> Error {
        let fault = Fault::new(ErrorKind::Internal, message.to_string());
        fault.help("this is a fault of atmesh, not of the program: please report it").into()
    }
    /// Combines errors into one with all of their diagnostics, in order, without duplicates.
    pub fn combine(errors: impl IntoIterator<Item = Error>) -> Error {
        let mut list: Vec<Diagnostic> = Vec::new();
        for error in errors {
            for d in error.diagnostics() {
                if !list.contains(d) {
                    list.push(d.clone());
                }
            }
        }
        Error(Arc::new(list))
    }
    /// Adds a related source location to the first diagnostic, with a label for it.
    pub fn related(self, location: SourceLocation, label: impl Into<String>) -> Error {
        let mut list = Vec::clone(&self.0);
        if let Some(d) = list.first_mut() {
            d.related.push((location, label.into()));
        }
        Error(Arc::new(list))
    }
    /// Adds this operation and source location to the diagnostics that have none.
    pub(crate) fn with_location(self, op: &str, location: SourceLocation) -> Error {
        if self.0.iter().all(|d| d.location.is_some()) {
            return self;
        }
        let list = self.0.iter().map(|d| match d.location {
            Some(_) => d.clone(),
            None => Diagnostic { op: op.into(), location: Some(location), ..d.clone() },
        });
        Error(Arc::new(list.collect()))
    }
    /// Returns the kind of the first diagnostic.
    pub fn kind(&self) -> ErrorKind {
        self.0.first().map_or(ErrorKind::User, |d| d.fault.kind)
    }
    /// Returns the rendered error with terminal colors.
    pub fn colored(&self) -> String {
        render::render(&self.0, &Renderer::styled(), None)
    }
    /// Returns the diagnostics, in the order in which the operations were traced.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.0
    }
}

conversions! { Error:
    [] Diagnostic => |d| Error(Arc::new(vec![d]));
    [] Fault => |fault| Error::new(fault, "", Vec::new(), None);
    [] std::convert::Infallible => |e| match e {};
}
impl PartialEq for Error {
    fn eq(&self, other: &Error) -> bool {
        self.0 == other.0
    }
}
impl std::error::Error for Error {}
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&render::render(&self.0, &Renderer::plain(), None))
    }
}
/// Renders the error like `Display`, in colors and wrapped where stderr allows it.
///
/// Rust shows the `Debug` form of an error that `main` returns or that is unwrapped. Uses colors if
/// stderr is a terminal that supports them (`NO_COLOR` and `CLICOLOR_FORCE` override this), and
/// wraps sentences to its width.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Rust prints `Error: ` before the `Debug` form of an error that `main` returns
        let width = terminal::stderr().map(|w| w.saturating_sub("Error: ".len()));
        match anstream::AutoStream::choice(&std::io::stderr()) {
            anstream::ColorChoice::Always | anstream::ColorChoice::AlwaysAnsi => {
                f.write_str(&render::render(&self.0, &Renderer::styled(), width))
            }
            _ => f.write_str(&render::render(&self.0, &Renderer::plain(), width)),
        }
    }
}
