//! The user's call: it travels with the operations that are applied for it, so that their errors are told in its terms from the start.

use crate::diagnostic::{Diagnostic, Error, Fault, Place, Spot};
use crate::types::ArrayType;
use std::panic::Location;

/// A call of the user's: which operation, on which line, and how what is applied for it relates to what the user wrote.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// The method or function, as the user knows it.
    pub op: &'static str,
    /// The user's line.
    pub place: Place,
    /// How the call is written with the sharding of its result, which is in the place of `{}`.
    twin: Option<Twin<'a>>,
    result: Made<'a>,
    /// The user's operands as printed, and which of them the applied ones are; `None`: they are the same.
    operands: Option<(Told<'a>, &'a [Source<'a>])>,
}

/// How a call is written with the sharding of its result.
#[derive(Clone, Copy)]
enum Twin<'a> {
    Text(&'a str),
    /// Written for an error only.
    Made(&'a dyn Fn() -> String),
}

impl Twin<'_> {
    fn text(self) -> String {
        match self {
            Twin::Text(text) => text.into(),
            Twin::Made(write) => write(),
        }
    }
}

/// Prints the user's operands, for an error only.
type Told<'a> = &'a dyn Fn() -> Vec<String>;

/// What an applied operation makes of the call's result.
#[derive(Clone, Copy)]
enum Made<'a> {
    /// The result, or something with the same dimensions.
    Result,
    /// The result with its dimensions in another order: each one's place in the result.
    Turned(&'a [usize]),
    /// A value on the way to the result.
    Step,
}

/// What an applied operand is to the user.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// The number of the user's operand.
    pub number: usize,
    /// Its type; `None`: that of the applied operand.
    pub ty: Option<&'a ArrayType>,
    /// The user's dimension of each dimension of the applied operand; `None`: they are the same.
    pub dims: Option<&'a [usize]>,
}

impl<'a> Call<'a> {
    /// A call of `op` on this line that applies an operation to its own operands.
    pub fn new(op: &'static str, place: Place) -> Call<'static> {
        Call { op, place, twin: None, result: Made::Result, operands: None }
    }
    /// A call of `op` on the caller's line.
    #[track_caller]
    pub fn here(op: &'static str) -> Call<'static> {
        Call::new(op, Location::caller())
    }
    /// The same, which can also be written so that it says the sharding of its result: `x.dot_to(&w, {})`.
    pub fn twin(self, twin: &'a str) -> Call<'a> {
        Call { twin: Some(Twin::Text(twin)), ..self }
    }
    /// The same, where what is written depends on the call's arguments.
    pub fn twin_by(self, write: &'a dyn Fn() -> String) -> Call<'a> {
        Call { twin: Some(Twin::Made(write)), ..self }
    }
    /// The same, for an operation whose k-th result dimension is the `order[k]`-th of the call's.
    pub fn turned(self, order: &'a [usize]) -> Call<'a> {
        let result = if let Made::Step = self.result { Made::Step } else { Made::Turned(order) };
        Call { result, ..self }
    }
    /// The same, for an operation on the way to the call's result.
    pub fn step(self) -> Call<'a> {
        Call { result: Made::Step, ..self }
    }
    /// The same, for an operation whose operands are these of the user's, which print as `told` says.
    pub fn on(self, told: &'a dyn Fn() -> Vec<String>, sources: &'a [Source<'a>]) -> Call<'a> {
        Call { operands: Some((told, sources)), ..self }
    }
    /// What the k-th applied operand is to the user, where that is not itself.
    pub(super) fn source(&self, k: usize) -> Option<&Source<'a>> {
        self.operands?.1.get(k)
    }
    /// Whether the user's operands are others than those applied.
    pub(crate) fn tells_operands(&self) -> bool {
        self.operands.is_some()
    }
    /// The error of this fault, found in the applied operands: what it says of the result is said of the call's.
    pub fn error(&self, mut fault: Fault, applied: impl FnOnce() -> Vec<String>) -> Error {
        match self.result {
            Made::Result => {}
            Made::Turned(order) => {
                for (_, out) in &mut fault.choices {
                    let mut dims = out.dims().to_vec();
                    if order.len() == dims.len() {
                        for (entry, to) in out.dims().iter().zip(order) {
                            dims[*to] = entry.clone();
                        }
                    }
                    *out = out.with_dims(dims);
                }
            }
            Made::Step if fault.choices.is_empty() => {}
            Made::Step => {
                fault.choices.clear();
                let to = self.written("p![…]");
                fault = fault.help(format!("give the sharding of the result: `{to}`"));
            }
        }
        let operands = match self.operands {
            None => applied(),
            Some((told, sources)) => {
                let known = |(k, spot): (usize, Spot)| Some((sources.get(k)?.number, sources[k].spot(spot)));
                fault.marks = fault.marks.into_iter().filter_map(known).collect();
                told()
            }
        };
        let twin = self.twin.map(Twin::text);
        Error::from(Diagnostic {
            fault,
            op: self.op.into(),
            operands,
            place: Some(self.place),
            related: Vec::new(),
            twin,
        })
    }
    fn written(&self, out: &str) -> String {
        self.twin.map_or_else(|| format!("{}_to(…, {out})", self.op), |twin| twin.text().replace("{}", out))
    }
    /// The error, with this operation and line where it has none.
    pub fn locate(&self, error: Error) -> Error {
        error.located(self.op, self.place)
    }
}

impl Source<'_> {
    /// The part of the user's operand that a part of the applied one is.
    fn spot(&self, spot: Spot) -> Spot {
        match (spot, self.dims) {
            (Spot::Dim(d), Some(dims)) => Spot::Dim(dims[d]),
            _ => spot,
        }
    }
}
