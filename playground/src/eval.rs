//! Evaluates a program: applies each operation to arrays that are being traced.
//!
//! An error is reported with the part of the text that caused it.

use crate::error::ErrorResponse;
use crate::fixit;
use crate::methods;
use crate::syntax::{Kind, Node};
use atmesh::{
    AllToAll, Array, CollectiveDim, DType, Dims, Mesh, Permutation, Scalar, Spec, Term, grad, shard_map,
};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The value of an expression.
#[derive(Clone)]
pub(crate) enum Value<'a> {
    Array(Array),
    Number(Scalar),
    Text(String),
    Spec(Spec),
    DType(DType),
    Dims(Dims),
    All,
    List(Vec<Value<'a>>),
    Mesh,
    Gather(CollectiveDim),
    Split(i32),
    Exchange(AllToAll),
    Permutation(Permutation),
    Closure(Rc<Closure<'a>>),
    Mapped(Rc<Mapped<'a>>),
}

/// A closure of the program, with the names in its scope.
pub(crate) struct Closure<'a> {
    params: &'a [String],
    body: &'a Node,
    scope: Scope<'a>,
}

/// A call of `shard_map(&mesh, in_specs, out_specs, closure)`.
pub(crate) struct Mapped<'a> {
    ins: Value<'a>,
    out: Spec,
    body: Rc<Closure<'a>>,
}

/// The names in scope and their values; later ones hide earlier ones.
pub(crate) type Scope<'a> = Vec<(String, Value<'a>)>;

/// The state of evaluating a program.
pub(crate) struct Eval<'a> {
    pub(crate) text: &'a str,
    pub(crate) mesh: &'a Mesh,
    /// The depth of nested closure calls.
    pub(crate) calls: Cell<usize>,
}

/// The maximum depth of nested closure calls, which bounds the cost of nested derivatives.
const MAX_CALL_DEPTH: usize = 6;

impl<'a> Eval<'a> {
    /// Returns the value of `node` with these names in scope.
    pub(crate) fn value(&self, node: &'a Node, scope: &Scope<'a>) -> Result<Value<'a>, ErrorResponse> {
        let value = self.kind(node, scope).map_err(|r| r.at(node.from, node.to))?;
        Ok(value)
    }
    fn kind(&self, node: &'a Node, scope: &Scope<'a>) -> Result<Value<'a>, ErrorResponse> {
        Ok(match &node.kind {
            Kind::Number(x) => Value::Number(*x),
            Kind::Text(text) => Value::Text(text.clone()),
            Kind::Spec(spec) => Value::Spec(*spec),
            Kind::All => Value::All,
            Kind::Name(name) => self.name(name, scope)?,
            Kind::List(list) => Value::List(self.values(list, scope)?),
            Kind::Closure(params, body) => {
                Value::Closure(Rc::new(Closure { params, body, scope: scope.clone() }))
            }
            Kind::Block(lets, result) => {
                let mut scope = scope.clone();
                for (name, node) in lets {
                    let value = self.value(node, &scope)?;
                    scope.push((name.clone(), value));
                }
                self.value(result, &scope)?
            }
            Kind::Unary(op, of) => match (op, self.value(of, scope)?) {
                ('-', Value::Array(x)) => self.checked(-x, node, &[of])?,
                ('!', Value::Array(x)) => self.checked(!x, node, &[of])?,
                ('-', Value::Number(Scalar::Int(x))) => Value::Number(Scalar::Int(-x)),
                ('-', Value::Number(Scalar::Float(x))) => Value::Number(Scalar::Float(-x)),
                (_, other) => {
                    return Err(syntax_error!("`{op}` is not defined for {}", other.what()));
                }
            },
            Kind::Binary(op, a, b) => {
                let (x, y) = (self.value(a, scope)?, self.value(b, scope)?);
                methods::binary(op, x, y).and_then(|v| self.result(v, node, &[a, b]))?
            }
            Kind::Method { of, name, args, .. } => {
                let object = self.value(of, scope)?;
                let values = self.values(args, scope)?;
                if let (Value::Mapped(mapped), "call") = (&object, name.as_str()) {
                    let values = match <[Value<'a>; 1]>::try_from(values) {
                        Ok([Value::List(list)]) => list,
                        Ok(one) => one.into(),
                        Err(several) => several,
                    };
                    return self.mapped(mapped, values).and_then(|v| self.result(v, node, &[]));
                }
                let operands: Vec<&Node> = std::iter::once(&**of).chain(args).collect();
                methods::method(&object, name, &values).and_then(|v| self.result(v, node, &operands))?
            }
            Kind::Call(name, args) => {
                let values = self.values(args, scope)?;
                let operands: Vec<&Node> =
                    match args.iter().map(|a| &a.kind).find(|k| matches!(k, Kind::List(_))) {
                        Some(Kind::List(list)) => list.iter().collect(),
                        _ => args.iter().collect(),
                    };
                let value = match (name.as_str(), values.as_slice()) {
                    ("grad", [Value::Array(at), Value::Closure(f)]) => Value::Array(self.grad(at, f)?),
                    ("grad", _) => {
                        return Err(ErrorResponse::syntax(
                            "grad takes an array and a closure: `grad(&w, |w| …)`",
                        ));
                    }
                    ("shard_map", [Value::Mesh, ins, Value::Spec(out), Value::Closure(f)]) => {
                        Value::Mapped(Rc::new(Mapped { ins: ins.clone(), out: *out, body: f.clone() }))
                    }
                    ("shard_map", _) => {
                        let say = "shard_map takes the mesh, specs, a spec and a closure";
                        return Err(ErrorResponse::syntax(say).help(
                            "like `shard_map(&mesh, p![\"X\"], p![], |x| x.sum(..).psum(\"X\")).call(&x)`",
                            None,
                        ));
                    }
                    (_, values) => methods::function(name, values)?,
                };
                self.result(value, node, &operands)?
            }
        })
    }
    fn values(&self, nodes: &'a [Node], scope: &Scope<'a>) -> Result<Vec<Value<'a>>, ErrorResponse> {
        nodes.iter().map(|n| self.value(n, scope)).collect()
    }
    fn name(&self, name: &str, scope: &Scope<'a>) -> Result<Value<'a>, ErrorResponse> {
        if let Some((_, value)) = scope.iter().rev().find(|(n, _)| n == name) {
            return Ok(value.clone());
        }
        let short = name.strip_prefix("DType::").unwrap_or(name);
        let upper = short.starts_with(|c: char| c.is_ascii_uppercase());
        match name {
            "mesh" => return Ok(Value::Mesh),
            "true" | "false" => return Ok(Value::Number(Scalar::Bool(name == "true"))),
            _ if upper => {
                if let Ok(dtype) = short.to_lowercase().parse::<DType>() {
                    return Ok(Value::DType(dtype));
                }
            }
            _ => {}
        }
        let known: Vec<_> = scope.iter().map(|(n, _)| format!("`{n}`")).collect();
        Err(syntax_error!("there is no `{name}` here")
            .help(format!("names are those of the operands and of `let`: {}", known.join(", ")), None))
    }
    /// Returns the value, or an error with its part of the text if it is an array that carries one.
    fn result(&self, value: Value<'a>, node: &Node, operands: &[&Node]) -> Result<Value<'a>, ErrorResponse> {
        match value {
            Value::Array(x) => self.checked(x, node, operands),
            other => Ok(other),
        }
    }
    fn checked(&self, x: Array, node: &Node, operands: &[&Node]) -> Result<Value<'a>, ErrorResponse> {
        match x.ty() {
            Ok(_) => Ok(Value::Array(x)),
            Err(e) => Err(fixit::error_response(&e, self.text, node, operands)),
        }
    }
    /// Applies a closure of the program to arrays.
    fn apply(&self, f: &Closure<'a>, args: &[Array]) -> Result<Array, ErrorResponse> {
        if f.params.len() != args.len() {
            let say = format!("the closure has {} parameters, and is given {}", f.params.len(), args.len());
            return Err(ErrorResponse::syntax(say).at(f.body.from, f.body.to));
        }
        if self.calls.get() == MAX_CALL_DEPTH {
            let say = format!("more than {MAX_CALL_DEPTH} closures are called one inside another");
            return Err(ErrorResponse::syntax(say).at(f.body.from, f.body.to));
        }
        self.calls.set(self.calls.get() + 1);
        let value = self.body(f, args);
        self.calls.set(self.calls.get() - 1);
        value
    }
    fn body(&self, f: &Closure<'a>, args: &[Array]) -> Result<Array, ErrorResponse> {
        let named = f.params.iter().cloned().zip(args.iter().cloned().map(Value::Array));
        let scope = f.scope.iter().cloned().chain(named).collect();
        match self.value(f.body, &scope)? {
            Value::Array(x) => Ok(x),
            other => {
                let say = format!("the closure's result is {}, not an array", other.what());
                Err(ErrorResponse::syntax(say).at(f.body.from, f.body.to))
            }
        }
    }
    fn grad(&self, at: &Array, f: &Closure<'a>) -> Result<Array, ErrorResponse> {
        let first_error = RefCell::new(None);
        let g = grad(at, |x: Array| {
            self.apply(f, std::slice::from_ref(&x)).unwrap_or_else(|r| {
                first_error.borrow_mut().get_or_insert(r);
                x.sum(..)
            })
        });
        first_error.into_inner().map_or(Ok(g), Err)
    }
    fn mapped(&self, mapped: &Mapped<'a>, args: Vec<Value<'a>>) -> Result<Value<'a>, ErrorResponse> {
        let arrays: Vec<Array> = args.iter().map(methods::array).collect::<Result<_, _>>()?;
        let ins: Vec<Spec> = match &mapped.ins {
            Value::Spec(spec) => vec![*spec; arrays.len()],
            Value::List(list) => list.iter().map(methods::spec).collect::<Result<_, _>>()?,
            other => return Err(syntax_error!("in_specs are specs, not {}", other.what())),
        };
        let first_error = RefCell::new(None);
        let f = shard_map(self.mesh, ins, mapped.out, |xs: &Vec<Array>| {
            self.apply(&mapped.body, xs).unwrap_or_else(|r| {
                first_error.borrow_mut().get_or_insert(r);
                Array::from(0.0f32)
            })
        });
        let out = f.call(arrays);
        if let Some(r) = first_error.borrow_mut().take() {
            return Err(r);
        }
        out.map(Value::Array).map_err(|e| fixit::without_source(&e))
    }
}

impl Value<'_> {
    /// Returns the kind of the value in words.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Value::Array(_) => "an array",
            Value::Number(_) => "a number",
            Value::Text(_) => "a text",
            Value::Spec(_) => "a spec",
            Value::DType(_) => "an element type",
            Value::Dims(_) => "dimensions",
            Value::All => "`..`",
            Value::List(_) => "a list",
            Value::Mesh => "the mesh",
            Value::Gather(_) | Value::Split(_) | Value::Exchange(_) => "how blocks are put together",
            Value::Permutation(_) => "a permutation",
            Value::Closure(_) => "a closure",
            Value::Mapped(_) => "a function over the mesh",
        }
    }
}

/// Converts an array or a number to an operand of an operation.
pub(crate) fn term(value: &Value<'_>) -> Result<Term, ErrorResponse> {
    match value {
        Value::Array(x) => Ok(Term::from(x)),
        Value::Number(x) => Ok(Term::Number(*x)),
        other => Err(syntax_error!("an array or a number is expected, not {}", other.what())),
    }
}
