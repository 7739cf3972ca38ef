//! Evaluates programs: applies each operation to the crate's own arrays.
//!
//! Numbers, texts, lists and control flow are those of Rust. Every other value is one of the crate.

mod call;
mod flow;
pub(crate) mod operator;
mod pattern;

use crate::error::ErrorResponse;
use crate::fixit;
use crate::format;
use crate::lines::{Call, at_line};
use crate::syntax::{Block, Function, Kind, Node, Program};
use crate::value::{Closure, Record, Scope, Value};
use atmesh::{Array, Error, Mesh};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::ops::Range;
use std::rc::Rc;

/// The reason why evaluation leaves an expression.
pub(crate) enum Stop {
    Error(ErrorResponse),
    Return(Box<Value>),
    Break,
    Continue,
}
impl From<ErrorResponse> for Stop {
    fn from(response: ErrorResponse) -> Stop {
        Stop::Error(response)
    }
}

/// The result of evaluating an expression.
pub(crate) type Eval<T = Value> = Result<T, Stop>;

/// The limits of a run: steps, calls inside calls, and bytes printed.
const MAX_STEPS: u64 = 4_000_000;
const MAX_CALL_DEPTH: usize = 40;
const MAX_PRINTED_BYTES: usize = 1 << 18;

/// An error of an array, and the operation that made it.
pub(crate) struct Origin {
    text: String,
    response: ErrorResponse,
}

/// The state of evaluating a program.
pub(crate) struct Interp {
    pub(crate) text: String,
    /// The part of the text whose output is kept; empty if all of it is.
    pub(crate) shown: Range<usize>,
    /// Whether an array that carries an error ends the program at once.
    pub(crate) strict: bool,
    /// The mesh of the page's field, by the name `mesh`.
    pub(crate) mesh: Option<Mesh>,
    functions: RefCell<HashMap<String, Rc<Function>>>,
    pub(crate) printed: RefCell<String>,
    steps: Cell<u64>,
    calls: Cell<usize>,
    /// Whether the program's `main` runs.
    main: Cell<bool>,
    /// Whether a statement of the part that is shown runs, or a function that it calls.
    inside: Cell<bool>,
    /// The depth of derivatives of derivatives.
    pub(crate) derivatives: Cell<usize>,
    /// The position of the call that is evaluated, in bytes.
    position: Cell<usize>,
    /// The number of keys that `let [a, b] = key.split()` wants.
    pub(crate) wanted: Cell<usize>,
    /// The first error in a closure that the crate calls.
    failed: RefCell<Option<ErrorResponse>>,
    origins: RefCell<Vec<Origin>>,
    /// The placed arrays of the statements that are shown, by name.
    pub(crate) pictures: RefCell<Vec<(String, Array)>>,
}

impl Interp {
    /// Returns the state before a program.
    pub(crate) fn new(text: &str, shown: Range<usize>, strict: bool, mesh: Option<Mesh>) -> Rc<Interp> {
        Rc::new(Interp {
            text: text.into(),
            shown,
            strict,
            mesh,
            functions: RefCell::default(),
            printed: RefCell::default(),
            steps: Cell::new(0),
            calls: Cell::new(0),
            main: Cell::new(false),
            inside: Cell::new(false),
            derivatives: Cell::new(0),
            position: Cell::new(0),
            wanted: Cell::new(2),
            failed: RefCell::default(),
            origins: RefCell::default(),
            pictures: RefCell::default(),
        })
    }
    /// Evaluates the statements of a program; the result is that of its last expression.
    pub(crate) fn program(self: &Rc<Self>, program: &Program, scope: &Scope) -> Eval {
        self.define(&program.block, None);
        let mut scope = scope.clone();
        let value = self.statements(&program.block, &mut scope)?;
        // the chapters of the book's examples have other names for it
        let main = ["main", "chapter", "errors"].iter().find_map(|name| self.function(name));
        let Some(main) = main.filter(|f| f.params.is_empty()) else { return Ok(value) };
        self.main.set(true);
        self.call_function(&main, &scope, Vec::new())
    }
    /// Returns the value of `node` with these names in scope.
    pub(crate) fn value(self: &Rc<Self>, node: &Node, scope: &Scope) -> Eval {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > MAX_STEPS {
            let say = format!("the program takes more than {MAX_STEPS} steps here");
            let response =
                ErrorResponse::refused(say).help("run it natively, or make its loops shorter", None);
            return Err(response.at(node.from, node.to).into());
        }
        self.kind(node, scope).map_err(|stop| match stop {
            Stop::Error(r) => Stop::Error(r.at(node.from, node.to)),
            other => other,
        })
    }
    fn kind(self: &Rc<Self>, node: &Node, scope: &Scope) -> Eval {
        Ok(match &node.kind {
            Kind::Int(n, ty) => Value::Int(*n, *ty),
            Kind::Float(x, ty) => Value::Float(*x, *ty),
            Kind::Bool(b) => Value::Bool(*b),
            Kind::Char(c) => Value::Char(*c),
            Kind::Text(text) => Value::Text(text.clone()),
            Kind::Spec(text) => Value::Spec(self.spec(text, scope)?),
            Kind::Name(name, generics) => self.name(name, generics.as_deref(), scope)?,
            Kind::Index(entries) => self.index(entries, scope)?,
            Kind::Tuple(list) if list.is_empty() => Value::Unit,
            Kind::Tuple(list) => Value::Tuple(Rc::new(self.values(list, scope)?)),
            Kind::List(list) => Value::List(Rc::new(self.values(list, scope)?)),
            Kind::Repeat(value, n) => {
                let (value, n) = (self.value(value, scope)?, self.value(n, scope)?);
                let n = crate::library::whole(&n)?;
                if n > 1 << 20 {
                    return Err(syntax_error!("a list of {n} entries is too long here").into());
                }
                Value::list((0..n).map(|_| value.clone()))
            }
            Kind::Struct(name, fields, base) => self.record(name, fields, base.as_deref(), scope)?,
            Kind::Unary(op, of) => {
                let x = self.value(of, scope)?;
                self.checked(operator::unary(*op, &x)?, node, &[of])?
            }
            Kind::Binary(op, a, b) => self.binary(op, a, b, node, scope)?,
            Kind::Assign(op, place, value) => self.assign(*op, place, value, scope)?,
            Kind::Range(start, end, through) => {
                let bound = |b: &Option<Box<Node>>| match b {
                    Some(b) => self.value(b, scope),
                    None => Ok(Value::Unit),
                };
                Value::Range(Rc::new((bound(start)?, bound(end)?, *through)))
            }
            Kind::Call(callee, args) => self.call(callee, args, node, scope)?,
            Kind::Method(call) => self.method(call, node, scope)?,
            Kind::Field(of, name) => field(&self.value(of, scope)?, name)?,
            Kind::Element(of, at) => {
                let (of, at) = (self.value(of, scope)?, self.value(at, scope)?);
                crate::library::element(&of, &at)?
            }
            Kind::Try(of) => self.question(self.value(of, scope)?)?,
            Kind::Cast(of, ty) => operator::cast(&self.value(of, scope)?, ty)?,
            Kind::Closure(function) => {
                Value::Closure(Rc::new(Closure { function: function.clone(), scope: scope.clone() }))
            }
            Kind::Block(block) => self.block(block, scope)?,
            Kind::Let(..) => {
                return Err(syntax_error!("`let` is a condition of `if` or `while` here").into());
            }
            Kind::If(..) | Kind::Match(..) => self.branch(node, scope)?,
            Kind::For(..) | Kind::While(..) | Kind::Loop(_) => self.repeat(node, scope)?,
            Kind::Return(value) => {
                let value = value.as_ref().map(|v| self.value(v, scope)).transpose()?;
                return Err(Stop::Return(Box::new(value.unwrap_or(Value::Unit))));
            }
            Kind::Break => return Err(Stop::Break),
            Kind::Continue => return Err(Stop::Continue),
            Kind::Macro(name, args) => self.macro_call(name, args, node, scope)?,
        })
    }
    pub(crate) fn values(self: &Rc<Self>, nodes: &[Node], scope: &Scope) -> Eval<Vec<Value>> {
        nodes.iter().map(|n| self.value(n, scope)).collect()
    }
    /// Evaluates a spec, in which names may be constants.
    fn spec(&self, text: &str, scope: &Scope) -> Eval<atmesh::Spec> {
        let mut out = String::new();
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let word = rest.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(rest.len());
            if c == '"' {
                let end = rest[1..].find('"').map_or(rest.len(), |n| n + 2);
                out += &rest[..end];
                rest = &rest[end..];
            } else if word > 0 {
                match scope.find(&rest[..word]).map(|v| v.value.borrow().clone()) {
                    Some(Value::Text(axis)) => out += &format!("\"{axis}\""),
                    _ => out += &rest[..word],
                }
                rest = &rest[word..];
            } else {
                out.push(c);
                rest = &rest[c.len_utf8()..];
            }
        }
        Ok(crate::syntax::spec(&out).map_err(ErrorResponse::syntax)?)
    }
    fn record(
        self: &Rc<Self>,
        name: &crate::syntax::Name,
        fields: &[(crate::syntax::Name, Node)],
        base: Option<&Node>,
        scope: &Scope,
    ) -> Eval {
        let mut made: Vec<(crate::syntax::Name, Value)> = Vec::new();
        for (field, node) in fields {
            made.push((field.clone(), self.value(node, scope)?));
        }
        if let Some(base) = base {
            let Value::Struct(rest) = self.value(base, scope)? else {
                return Err(syntax_error!("the base of a struct is a struct").at(base.from, base.to).into());
            };
            // the order of the fields is that of the base
            let field = |(n, v): &(crate::syntax::Name, Value)| {
                let new = made.iter().find(|m| m.0 == *n);
                (n.clone(), new.map_or_else(|| v.clone(), |m| m.1.clone()))
            };
            let fields = rest.fields.iter().map(field).collect();
            return Ok(Value::Struct(Rc::new(Record { name: rest.name.clone(), fields })));
        }
        let name = if &**name == "Self" { "Self".into() } else { name.clone() };
        Ok(Value::Struct(Rc::new(Record { name, fields: made })))
    }
    /// Evaluates `value?`: the value in `Ok` or `Some`, or leaves the function.
    fn question(&self, value: Value) -> Eval {
        match value {
            Value::Result(Ok(v)) | Value::Option(Some(v)) => Ok((*v).clone()),
            Value::Result(Err(e)) => Err(Stop::Return(Box::new(Value::Result(Err(e))))),
            Value::Option(None) => Err(Stop::Return(Box::new(Value::Option(None)))),
            // the fields of the page allow `?` after any expression
            Value::Array(x) if !self.strict => match x.ty() {
                Ok(_) => Ok(Value::Array(x)),
                Err(e) => Err(Stop::Return(Box::new(Value::Result(Err(e))))),
            },
            other => Ok(other),
        }
    }
    /// Runs a function of the crate at the line of `node`.
    pub(crate) fn run(self: &Rc<Self>, node: &Node, call: Call<'_>) -> Eval {
        let position = self.position.replace(node.to);
        let (value, printed) = atmesh::runtime::capture_prints(|| at_line(self.line(node.to), call));
        self.print(&printed, node.from)?;
        self.position.set(position);
        if let Some(response) = self.failed.borrow_mut().take() {
            return Err(response.into());
        }
        value
    }
    /// Returns the value, and notes where an array that carries an error was made.
    fn checked(&self, value: Value, node: &Node, operands: &[&Node]) -> Eval {
        let error = match &value {
            Value::Array(x) => x.ty().err(),
            Value::Result(Err(e)) => Some(e.clone()),
            _ => None,
        };
        let Some(e) = error else { return Ok(value) };
        if self.strict {
            return Err(fixit::error_response(&e, &self.text, node, operands).into());
        }
        let text = e.to_string();
        let mut origins = self.origins.borrow_mut();
        if !origins.iter().any(|o| o.text == text) {
            let response = fixit::error_response(&e, &self.text, node, operands);
            origins.push(Origin { text, response });
        }
        Ok(value)
    }
    /// Returns an error of the crate as one of the program, with the place where it was made.
    pub(crate) fn response(&self, e: &Error) -> ErrorResponse {
        let text = e.to_string();
        let origins = self.origins.borrow();
        found(&origins, &text).map_or_else(|| fixit::without_source(e), |o| o.response.clone())
    }
    /// Returns an error as the crate prints it, with the lines of this program.
    pub(crate) fn error_text(&self, e: &Error) -> String {
        let text = e.to_string();
        let origins = self.origins.borrow();
        match found(&origins, &text) {
            Some(origin) => origin.response.as_printed(&text, &self.text),
            None => crate::lines::located(&text),
        }
    }
    /// Keeps the first error of a closure that the crate calls, and returns one for the crate.
    pub(crate) fn stash(&self, stop: Stop) -> Error {
        if let Stop::Error(response) = stop {
            self.failed.borrow_mut().get_or_insert(response);
        }
        Error::other("rejected")
    }
    /// Returns the line of a position, counted from the part that is shown; 0 outside of it.
    fn line(&self, at: usize) -> usize {
        let inside = self.shown.is_empty() || (self.shown.start <= at && at <= self.shown.end);
        let before = self.text.get(self.shown.start..at.max(self.shown.start)).unwrap_or_default();
        if inside { before.matches('\n').count() + 1 } else { 0 }
    }
    /// Returns the position of the call that is evaluated.
    pub(crate) fn position(&self) -> usize {
        self.position.get()
    }
    /// Returns the mesh of the book's rules, which its helper `ones` places arrays on.
    pub(crate) fn book_mesh(&self) -> Option<Value> {
        let made = Mesh::new([("X", 2), ("Y", 4)]);
        made.ok().map(Value::Mesh)
    }
    /// Prints a text, if the line that prints is shown.
    pub(crate) fn print(&self, text: &str, at: usize) -> Eval<()> {
        if !self.shown.is_empty() && !self.inside.get() && !self.shown.contains(&at) {
            return Ok(());
        }
        let mut printed = self.printed.borrow_mut();
        if printed.len() + text.len() > MAX_PRINTED_BYTES {
            return Err(syntax_error!("the program prints more than {MAX_PRINTED_BYTES} bytes").into());
        }
        *printed += text;
        Ok(())
    }
    /// Formats the arguments of a macro like `println!`.
    fn formatted(self: &Rc<Self>, args: &[Node], scope: &Scope) -> Eval<String> {
        let Some((first, rest)) = args.split_first() else { return Ok(String::new()) };
        let Kind::Text(template) = &first.kind else {
            return Err(syntax_error!("a text with `{{}}` for each value is expected")
                .at(first.from, first.to)
                .into());
        };
        let (mut values, mut named) = (Vec::new(), Vec::new());
        for arg in rest {
            match &arg.kind {
                Kind::Assign(None, name, value) => {
                    let Kind::Name(name, _) = &name.kind else {
                        return Err(syntax_error!("a name is expected").at(name.from, name.to).into());
                    };
                    named.push((name.clone(), self.value(value, scope)?));
                }
                _ => values.push(self.value(arg, scope)?),
            }
        }
        let find = |name: &str| match named.iter().find(|n| &*n.0 == name) {
            Some((_, value)) => Ok(value.clone()),
            None => self.name(name, None, scope),
        };
        format::format(self, template, &values, &find)
    }
    /// Evaluates a block.
    pub(crate) fn block(self: &Rc<Self>, block: &Rc<Block>, scope: &Scope) -> Eval {
        self.statements(block, &mut scope.clone())
    }
}

/// Returns the origin of an error: the one with its text, or with its first line.
fn found<'o>(origins: &'o [Origin], text: &str) -> Option<&'o Origin> {
    let first = text.lines().next();
    let same = origins.iter().find(|o| o.text == text);
    same.or_else(|| origins.iter().find(|o| o.text.lines().next() == first))
}

/// Returns a field of a struct, or an element of a tuple.
pub(crate) fn field(of: &Value, name: &str) -> Result<Value, ErrorResponse> {
    match of.inner() {
        Value::Struct(record) => {
            let found = record.fields.iter().find(|f| &*f.0 == name);
            let missing = || {
                let names: Vec<_> = record.fields.iter().map(|f| format!("`{}`", f.0)).collect();
                syntax_error!("`{}` has no field `{name}`: it has {}", record.name, names.join(", "))
            };
            found.map(|f| f.1.clone()).ok_or_else(missing)
        }
        Value::Tuple(list) | Value::List(list) => {
            let found = name.parse::<usize>().ok().and_then(|i| list.get(i));
            found.cloned().ok_or_else(|| syntax_error!("{} has no entry `{name}`", of.what()))
        }
        other => crate::objects::field(other, name).ok_or_else(|| {
            let response = ErrorResponse::unknown(format!("{} has no field `{name}` here", other.what()));
            response.help("run it natively, or compose it of what is here", None)
        }),
    }
}
