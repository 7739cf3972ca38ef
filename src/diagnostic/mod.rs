//! Errors as values: what is wrong with what, where the user wrote it, and what to write instead.
//!
//! A rule that refuses returns a [`Fault`]; whoever knows the op, its operands and the user's line makes a
//! [`Diagnostic`] of it; one or several of these are an [`Error`]. Rendering is in `render`.

mod cursor;
mod render;
pub(crate) mod terminal;

pub(crate) use cursor::Cursor;

use crate::axes::Spec;
use annotate_snippets::Renderer;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// The place in the user's source that asked for an operation.
pub type Place = &'static Location<'static>;

/// What kind of mistake an [`Error`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Ranks, sizes, axes out of range, divisibility.
    Shape,
    /// Element types.
    Dtype,
    /// Ambiguous or conflicting shardings.
    Sharding,
    /// A spec that names an unknown axis, one axis twice, or an axis of a kind it may not name; two meshes.
    Mesh,
    /// Varying or invariant over manual axes.
    Vma,
    /// Text that is not in the type language, or no name of what it should name.
    Syntax,
    /// A traced value used where numbers are needed, or outside its trace.
    Trace,
    /// An argument used after it was donated.
    Donated,
    /// Trees of different structure.
    Tree,
    /// A device failed: it panicked, returned an error, or ended early.
    Device,
    /// Devices called different collectives, or wait for one another.
    Mismatch,
    /// Host data: pieces that are missing or of the wrong shape, files.
    Data,
    /// Not built, or not offered: the program is sound, and no other way of writing it is at fault.
    Unsupported,
    /// A run of device code that another device ended: what that one told is the cause.
    Stopped,
    /// A fault of atmesh itself. Please report it.
    Internal,
    /// What the user's own code returned.
    Other,
}

impl ErrorKind {
    /// The word for this kind, as the conformance cases write it.
    pub fn name(self) -> &'static str {
        match self {
            ErrorKind::Shape => "shape",
            ErrorKind::Dtype => "dtype",
            ErrorKind::Sharding => "sharding",
            ErrorKind::Mesh => "mesh",
            ErrorKind::Vma => "vma",
            ErrorKind::Syntax => "syntax",
            ErrorKind::Trace => "trace",
            ErrorKind::Donated => "donated",
            ErrorKind::Tree => "tree",
            ErrorKind::Device => "device",
            ErrorKind::Mismatch => "mismatch",
            ErrorKind::Data => "data",
            ErrorKind::Unsupported => "unsupported",
            ErrorKind::Stopped => "stopped",
            ErrorKind::Internal => "internal",
            ErrorKind::Other => "other",
        }
    }
}

/// A refusal by a rule that does not know who asked: the kind, what is wrong, and what to write instead.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Fault {
    /// What kind of mistake it is.
    pub kind: ErrorKind,
    /// What is wrong with what, in one sentence.
    pub message: String,
    /// How the result may be asked to be sharded, where the rules leave it open: in a word, and as a spec.
    pub choices: Vec<(String, Spec)>,
    /// What to write instead; each entry is one way.
    pub help: Vec<String>,
    /// What is at fault in the printed operand types: operand number and part.
    pub marks: Vec<(usize, Spot)>,
}

/// A part of a printed type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Spot {
    /// A dimension: `8@X`.
    Dim(usize),
    /// The element type: `float32`.
    Dtype,
    /// What it varies, is unreduced and reduced over: `{U:X}`.
    Sets,
}

/// A number of things, as sentences have it: `1 entry`, `3 entries`.
pub(crate) fn counted(n: usize, what: &str) -> String {
    match (n, what.strip_suffix('y')) {
        (1, _) => format!("1 {what}"),
        (_, Some(stem)) => format!("{n} {stem}ies"),
        _ => format!("{n} {what}s"),
    }
}

impl Fault {
    /// A fault of this kind with this message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Fault {
        Fault { kind, message: message.into(), choices: Vec::new(), help: Vec::new(), marks: Vec::new() }
    }
    /// The same, with one more way to mend it.
    pub fn help(mut self, help: impl Into<String>) -> Fault {
        self.help.push(help.into());
        self
    }
    /// The same, with one more sharding that the result may be asked for.
    pub fn choice(mut self, what: impl Into<String>, out: Spec) -> Fault {
        self.choices.push((what.into(), out));
        self
    }
    /// The same, with dimension `dim` of operand `operand` marked.
    pub fn dim(self, operand: usize, dim: usize) -> Fault {
        self.mark(operand, Spot::Dim(dim))
    }
    /// The same, with a part of operand `operand` marked.
    pub fn mark(mut self, operand: usize, part: Spot) -> Fault {
        self.marks.push((operand, part));
        self
    }
}

/// One mistake of the user's program, with everything needed to explain it.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Diagnostic {
    /// Kind, sentence, mends, and dimensions at fault.
    pub fault: Fault,
    /// The operation, as the user knows it.
    pub op: String,
    /// Operand types as printed.
    pub operands: Vec<String>,
    /// The user's line.
    pub place: Option<Place>,
    /// Further lines of the user's that matter (where it was donated, where the loop began), with a word on each.
    pub related: Vec<(Place, String)>,
    /// How the call is written with the sharding of its result, which is in the place of `{}`: `x.dot_to(&w, {})`.
    pub twin: Option<String>,
}

/// One or several diagnostics. `Display` and `Debug` both render them with the source line.
#[derive(Clone)]
pub struct Error(Arc<Vec<Diagnostic>>);

/// A result whose error is atmesh's own.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// The error of one operation at the user's `place`.
    pub fn at(fault: Fault, op: impl Into<String>, operands: Vec<String>, place: Option<Place>) -> Error {
        Error::from(Diagnostic { fault, op: op.into(), operands, place, related: Vec::new(), twin: None })
    }
    /// An error of the user's own code, for `?` on foreign results: `.map_err(Error::other)?`.
    pub fn other(error: impl fmt::Display) -> Error {
        Error::at(Fault::new(ErrorKind::Other, error.to_string()), "", Vec::new(), None)
    }
    /// An error that no program may meet: something of atmesh's own does not hold.
    pub(crate) fn internal(what: impl fmt::Display) -> Error {
        let fault = Fault::new(ErrorKind::Internal, what.to_string());
        fault.help("this is a fault of atmesh, not of the program: please report it").into()
    }
    /// All diagnostics of these, in order.
    pub fn all(errors: impl IntoIterator<Item = Error>) -> Error {
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
    /// The same with one more of the user's lines, and what happened there.
    pub fn related(self, place: Place, what: impl Into<String>) -> Error {
        let mut list = Vec::clone(&self.0);
        if let Some(d) = list.first_mut() {
            d.related.push((place, what.into()));
        }
        Error(Arc::new(list))
    }
    /// The same, with this operation and line where it has none yet.
    pub(crate) fn located(self, op: &str, place: Place) -> Error {
        if self.0.iter().all(|d| d.place.is_some()) {
            return self;
        }
        let list = self.0.iter().map(|d| match d.place {
            Some(_) => d.clone(),
            None => Diagnostic { op: op.into(), place: Some(place), ..d.clone() },
        });
        Error(Arc::new(list.collect()))
    }
    /// The kind of the first diagnostic.
    pub fn kind(&self) -> ErrorKind {
        self.0.first().map_or(ErrorKind::Other, |d| d.fault.kind)
    }
    /// As printed, with colours for a terminal.
    pub fn colored(&self) -> String {
        render::render(&self.0, &Renderer::styled(), None)
    }
    /// All diagnostics, in the order the operations were traced.
    pub fn diagnostics(&self) -> &[Diagnostic] {
        &self.0
    }
}

impl From<Diagnostic> for Error {
    fn from(d: Diagnostic) -> Error {
        Error(Arc::new(vec![d]))
    }
}
impl From<Fault> for Error {
    fn from(fault: Fault) -> Error {
        Error::at(fault, "", Vec::new(), None)
    }
}
impl From<std::convert::Infallible> for Error {
    fn from(e: std::convert::Infallible) -> Error {
        match e {}
    }
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
/// As printed, since this is what Rust shows of an error that `main` returns and of one that is unwrapped: with colours where stderr is a
/// terminal that has them (`NO_COLOR` and `CLICOLOR_FORCE` decide otherwise), and sentences wrapped to its width.
impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // `main` writes this before the first line
        let width = terminal::stderr().map(|w| w.saturating_sub("Error: ".len()));
        match anstream::AutoStream::choice(&std::io::stderr()) {
            anstream::ColorChoice::Always | anstream::ColorChoice::AlwaysAnsi => {
                f.write_str(&render::render(&self.0, &Renderer::styled(), width))
            }
            _ => f.write_str(&render::render(&self.0, &Renderer::plain(), width)),
        }
    }
}
