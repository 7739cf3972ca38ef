//! The user's call on whose behalf a method applies primitives.
//!
//! Errors of these primitives name the function, operands and source location of the call.

use crate::core::{ArrayType, Diagnostic, Error, Fault, SourceLocation, TypePart};
use std::panic::Location;

/// A call by the user: its function, source location, and relation to the applied operations.
#[derive(Clone, Copy)]
pub struct CallSite<'a> {
    /// The method or function, as the user knows it.
    pub op: &'static str,
    /// The source location of the call.
    pub location: SourceLocation,
    /// The source text of the call in the form that requests an output sharding; `{}` is its
    /// placeholder.
    /// If it is `None`, help texts show `op_to(…, {})` instead.
    explicit_form: Option<ExplicitForm<'a>>,
    /// The relation of the applied operation's result to the call's result.
    result: ResultRelation<'a>,
    /// The user's operands, if they differ from the applied ones.
    /// A closure prints them, and the list relates each applied operand to one of them.
    operands: Option<(PrintOperands<'a>, &'a [UserOperand<'a>])>,
}

/// The text of a call with an explicit output sharding.
#[derive(Clone, Copy)]
enum ExplicitForm<'a> {
    /// The text itself.
    Text(&'a str),
    /// Text that depends on the call's arguments, written only for an error.
    Lazy(&'a dyn Fn() -> String),
}

impl ExplicitForm<'_> {
    fn text(self) -> String {
        match self {
            ExplicitForm::Text(text) => text.into(),
            ExplicitForm::Lazy(write) => write(),
        }
    }
}

/// A closure that prints the user's operands.
/// It runs only for an error.
type PrintOperands<'a> = &'a dyn Fn() -> Vec<String>;

/// The relation of the applied operation's result to the call's result.
#[derive(Clone, Copy)]
enum ResultRelation<'a> {
    /// The result itself, or a value with the same dimensions.
    Result,
    /// The result with permuted dimensions.
    /// For each of its dimensions, the list has the dimension of the call's result.
    Permuted(&'a [usize]),
    /// An intermediate value on the way to the result.
    Intermediate,
}

/// The user's operand that corresponds to an applied operand.
#[derive(Clone, Copy)]
pub struct UserOperand<'a> {
    /// The index of the user's operand.
    pub index: usize,
    /// The type of the user's operand; `None` if it is that of the applied operand.
    pub ty: Option<&'a ArrayType>,
    /// The user's dimension for each dimension of the applied operand; `None` if identical.
    pub dims: Option<&'a [usize]>,
}

impl<'a> CallSite<'a> {
    /// Creates a call of `op` at `location` that applies an operation to the call's own operands.
    pub fn new(op: &'static str, location: SourceLocation) -> CallSite<'static> {
        CallSite { op, location, explicit_form: None, result: ResultRelation::Result, operands: None }
    }
    /// Creates a call of `op` at the caller's source location.
    #[track_caller]
    pub fn here(op: &'static str) -> CallSite<'static> {
        CallSite::new(op, Location::caller())
    }
    /// Sets the source location.
    pub(crate) fn at(self, location: SourceLocation) -> CallSite<'a> {
        CallSite { location, ..self }
    }
    /// Sets the text of the call with an explicit output sharding: `x.dot_to(&w, {})`.
    pub fn with_explicit_form(self, text: &'a str) -> CallSite<'a> {
        CallSite { explicit_form: Some(ExplicitForm::Text(text)), ..self }
    }
    /// Sets the text with an explicit output sharding, for text that depends on the arguments.
    pub fn with_explicit_form_fn(self, write: &'a dyn Fn() -> String) -> CallSite<'a> {
        CallSite { explicit_form: Some(ExplicitForm::Lazy(write)), ..self }
    }
    /// Declares that the operation permutes the result.
    /// Dimension k of its result is dimension `order[k]` of the call's result.
    pub fn permuted(self, order: &'a [usize]) -> CallSite<'a> {
        let result = if let ResultRelation::Intermediate = self.result {
            ResultRelation::Intermediate
        } else {
            ResultRelation::Permuted(order)
        };
        CallSite { result, ..self }
    }
    /// Declares that the operation computes an intermediate value of the call.
    pub fn intermediate(self) -> CallSite<'a> {
        CallSite { result: ResultRelation::Intermediate, ..self }
    }
    /// Declares the user's operands.
    /// The closure prints them; `sources` relates each applied operand to one of them.
    pub fn with_operands(
        self,
        print_operands: &'a dyn Fn() -> Vec<String>,
        sources: &'a [UserOperand<'a>],
    ) -> CallSite<'a> {
        CallSite { operands: Some((print_operands, sources)), ..self }
    }
    /// Returns the user's operand for the k-th applied operand; `None` if they are identical.
    pub(super) fn user_operand(&self, k: usize) -> Option<&UserOperand<'a>> {
        self.operands?.1.get(k)
    }
    /// Returns true if the user's operands differ from the applied ones.
    pub(crate) fn has_user_operands(&self) -> bool {
        self.operands.is_some()
    }
    /// Turns a fault found in the applied operands into an error about the user's call.
    /// Dimensions of the result are translated to those of the call's result.
    pub fn error(&self, fault: Fault, applied: impl FnOnce() -> Vec<String>) -> Error {
        self.error_in_operands(fault, if self.operands.is_none() { applied() } else { Vec::new() })
    }
    fn error_in_operands(&self, mut fault: Fault, applied: Vec<String>) -> Error {
        match self.result {
            ResultRelation::Result => {}
            ResultRelation::Permuted(order) => {
                for (_, out) in &mut fault.out_shardings {
                    let mut dims = out.dims().to_vec();
                    if order.len() == dims.len() {
                        for (entry, to) in out.dims().iter().zip(order) {
                            dims[*to] = entry.clone();
                        }
                    }
                    *out = out.with_dims(dims);
                }
            }
            ResultRelation::Intermediate if fault.out_shardings.is_empty() => {}
            ResultRelation::Intermediate => {
                fault.out_shardings.clear();
                let to = self.text_with_sharding("p![…]");
                fault = fault.help(format!("give the sharding of the result: `{to}`"));
            }
        }
        let operands = match self.operands {
            None => applied,
            Some((describe, sources)) => {
                let known = |(k, part): (usize, TypePart)| {
                    let source = sources.get(k)?;
                    Some((source.index, source.type_part(part)?))
                };
                fault.highlights = fault.highlights.into_iter().filter_map(known).collect();
                describe()
            }
        };
        let form_text = self.explicit_form.map(ExplicitForm::text);
        Error::from(Diagnostic {
            fault,
            op: self.op.into(),
            operands,
            location: Some(self.location),
            related: Vec::new(),
            explicit_form: form_text,
        })
    }
    fn text_with_sharding(&self, out: &str) -> String {
        self.explicit_form
            .map_or_else(|| format!("{}_to(…, {out})", self.op), |form| form.text().replace("{}", out))
    }
    /// Adds this operation and source location to an error that has none.
    pub fn locate(&self, error: Error) -> Error {
        error.with_location(self.op, self.location)
    }
}

impl UserOperand<'_> {
    /// Translates a part of an applied operand's type to a part of the user's operand's type.
    /// Returns `None` for a dimension that the user's operand does not have.
    fn type_part(&self, part: TypePart) -> Option<TypePart> {
        match (part, self.dims) {
            (TypePart::Dim(d), Some(dims)) => dims.get(d).copied().map(TypePart::Dim),
            (TypePart::Dim(d), None) if self.ty.is_some_and(|ty| d >= ty.rank()) => None,
            _ => Some(part),
        }
    }
}
