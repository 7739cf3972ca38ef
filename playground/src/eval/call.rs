//! Names, calls of functions and methods, and macros.

use super::{Eval, Interp, MAX_CALL_DEPTH, Stop, operator};
use crate::error::ErrorResponse;
use crate::lines::Call;
use crate::syntax::{Function, IndexEntry, Kind, MethodCall, Node};
use crate::value::{Closure, Record, Scope, Value};
use atmesh::DType;
use std::rc::Rc;

impl Interp {
    /// Returns the value of a name or path.
    pub(super) fn name(self: &Rc<Self>, name: &str, generics: Option<&str>, scope: &Scope) -> Eval {
        if let Some(variable) = scope.find(name) {
            return Ok(variable.value.borrow().clone());
        }
        if let Some(function) = self.function(name) {
            return Ok(Value::Closure(Rc::new(Closure { function, scope: self.globals(scope) })));
        }
        if let ("mesh", Some(mesh)) = (name, &self.mesh) {
            return Ok(Value::Mesh(mesh.clone()));
        }
        if name == "None" {
            return Ok(Value::Option(None));
        }
        if let Some(number) = crate::library::constant(name) {
            return Ok(number);
        }
        let short = name.strip_prefix("DType::").unwrap_or(name);
        if short.starts_with(|c: char| c.is_ascii_uppercase())
            && let Ok(dtype) = short.to_lowercase().parse::<DType>()
        {
            return Ok(Value::DType(dtype));
        }
        if crate::functions::is_known(name) {
            // the element type of `to_vec::<f32>` matters for functions too
            let name = generics.map_or_else(|| name.into(), |g| format!("{name}::<{g}>").into());
            return Ok(Value::Path(name));
        }
        Err(self.unknown_name(name, scope).into())
    }
    fn unknown_name(&self, name: &str, scope: &Scope) -> ErrorResponse {
        if let Some(refusal) = crate::refuse::name(name) {
            return refusal;
        }
        if name.contains("::") || scope.names().is_empty() {
            return crate::functions::unknown("function", name).missing();
        }
        let mut known: Vec<_> = scope.names().iter().map(|(n, _)| format!("`{n}`")).collect();
        known.reverse();
        known.dedup();
        let help = format!("names are those of the operands and of `let`: {}", known.join(", "));
        syntax_error!("there is no `{name}` here").help(help, None).missing()
    }
    /// Returns the names that a function of the program sees: constants.
    fn globals(&self, scope: &Scope) -> Scope {
        // a function cannot name variables of another one; to let it do so does no harm
        scope.clone()
    }
    /// Evaluates `callee(args)`.
    pub(super) fn call(self: &Rc<Self>, callee: &Node, args: &[Node], node: &Node, scope: &Scope) -> Eval {
        let Kind::Name(name, generics) = &callee.kind else {
            let f = self.value(callee, scope)?;
            return self.apply(&f, self.values(args, scope)?);
        };
        let local = scope.find(name).is_some() || self.function(name).is_some();
        if local {
            let f = self.name(name, None, scope)?;
            let values = self.values(args, scope)?;
            let value = self.apply(&f, values)?;
            return Ok(value);
        }
        if let Some(refusal) = crate::refuse::name(name) {
            return Err(refusal.at(callee.from, callee.to).into());
        }
        let values = self.values(args, scope)?;
        if let Some(made) = self.constructor(name, &values) {
            return Ok(made);
        }
        let operands: Vec<&Node> = match args.iter().map(|a| &a.kind).find(|k| matches!(k, Kind::List(_))) {
            Some(Kind::List(list)) => list.iter().collect(),
            _ => args.iter().collect(),
        };
        let value = self.run(node, Call::function(self, name, generics.as_deref(), &values))?;
        self.checked(value, node, &operands)
    }
    /// Evaluates `Some(x)`, `Ok(x)` and structs without names of fields.
    fn constructor(&self, name: &str, values: &[Value]) -> Option<Value> {
        match (name, values) {
            ("Some", [v]) => Some(Value::some(v.clone())),
            ("Ok", [v]) => Some(Value::result(Ok(v.clone()))),
            ("Err", [Value::Error(e)]) => Some(Value::result(Err(e.clone()))),
            _ if !name.contains("::")
                && name.starts_with(char::is_uppercase)
                && !crate::functions::is_known(name) =>
            {
                let fields =
                    values.iter().enumerate().map(|(k, v)| (k.to_string().into(), v.clone())).collect();
                Some(Value::Struct(Rc::new(Record { name: name.into(), fields })))
            }
            _ => None,
        }
    }
    /// Evaluates `x.f(args)`.
    pub(super) fn method(self: &Rc<Self>, call: &MethodCall, node: &Node, scope: &Scope) -> Eval {
        let name = call.name.as_str();
        if crate::library::is_mutating(name) && is_place(&call.of) {
            let of = self.value(&call.of, scope)?;
            if matches!(of, Value::List(_) | Value::Text(_) | Value::Option(_)) {
                let args = self.values(&call.args, scope)?;
                let mut result = Value::Unit;
                self.modify(&call.of, scope, &mut |value| {
                    result = crate::library::mutate(self, value, name, &args)?;
                    Ok(())
                })?;
                return Ok(result);
            }
        }
        let of = self.value(&call.of, scope)?;
        // the field of a struct may hold a function
        let args = self.values(&call.args, scope)?;
        if let Some(f) = self.user_method(&of, name) {
            let mut all = vec![of];
            all.extend(args);
            return self.call_function(&f, scope, all);
        }
        if let Some(value) = crate::library::method(self, &of, name, call.generics.as_deref(), &args)? {
            return Ok(value);
        }
        let operands: Vec<&Node> = std::iter::once(&call.of).chain(&call.args).collect();
        let call = Call::method(self, &of, name, call.generics.as_deref(), &args);
        let value = self.run(node, call)?;
        self.checked(value, node, &operands)
    }
    fn user_method(&self, of: &Value, name: &str) -> Option<Rc<Function>> {
        let Value::Struct(record) = of.inner() else { return None };
        if let Some(f) = self.function(&format!("{}::{name}", record.name)) {
            return Some(f);
        }
        let functions = self.functions.borrow();
        let suffix = format!("::{name}");
        functions
            .iter()
            .find(|(n, _)| n.ends_with(&suffix) && &*record.name == "Self")
            .map(|(_, f)| f.clone())
    }
    /// Applies a function to values.
    pub(crate) fn apply(self: &Rc<Self>, f: &Value, args: Vec<Value>) -> Eval {
        match f.inner() {
            Value::Closure(closure) => self.call_function(&closure.function, &closure.scope, args),
            Value::Path(path) => {
                let (name, generics) = match path.split_once("::<") {
                    Some((name, generics)) => (name, Some(generics.trim_end_matches('>'))),
                    None => (&**path, None),
                };
                if let Some(made) = self.constructor(name, &args) {
                    return Ok(made);
                }
                if crate::functions::is_function(name) {
                    return crate::functions::function(self, name, generics, &args);
                }
                let short = name.rsplit("::").next().unwrap_or(name);
                let Some((of, rest)) = args.split_first() else {
                    return Err(crate::functions::unknown("function", name).into());
                };
                match crate::library::method(self, of, short, generics, rest)? {
                    Some(value) => Ok(value),
                    None => crate::objects::method(self, of, short, generics, rest),
                }
            }
            other => Err(syntax_error!(
                "{} is not a function: a compiled function is called by `.call(..)`",
                other.what()
            )
            .into()),
        }
    }
    /// Calls a function of the program.
    pub(super) fn call_function(self: &Rc<Self>, f: &Rc<Function>, scope: &Scope, args: Vec<Value>) -> Eval {
        if f.params.len() != args.len() {
            let say = format!("{} has {} parameters, and is given {}", f.name, f.params.len(), args.len());
            return Err(ErrorResponse::syntax(say).at(f.body.from, f.body.to).into());
        }
        if self.calls.get() >= MAX_CALL_DEPTH {
            let say =
                format!("more than {MAX_CALL_DEPTH} functions and closures are called one inside another");
            return Err(ErrorResponse::syntax(say).at(f.body.from, f.body.to).into());
        }
        let mut inner = scope.clone();
        for ((pattern, ty), value) in f.params.iter().zip(args) {
            let value = operator::typed(value, ty.as_deref());
            if !self.bind(pattern, &value, &mut inner)? {
                return Err(syntax_error!("{} does not fit the parameter of {}", value.what(), f.name).into());
            }
        }
        self.calls.set(self.calls.get() + 1);
        let value = self.value(&f.body, &inner);
        self.calls.set(self.calls.get() - 1);
        match value {
            Ok(value) => Ok(operator::typed(value, f.result.as_deref())),
            Err(Stop::Return(value)) => Ok(operator::typed(*value, f.result.as_deref())),
            Err(Stop::Break | Stop::Continue) => Ok(Value::Unit),
            Err(other) => Err(other),
        }
    }
    /// Evaluates `a op b`.
    pub(super) fn binary(
        self: &Rc<Self>,
        op: &'static str,
        a: &Node,
        b: &Node,
        node: &Node,
        scope: &Scope,
    ) -> Eval {
        let x = self.value(a, scope)?;
        if let ("&&" | "||", Value::Bool(left)) = (op, &x) {
            return if *left == (op == "||") { Ok(x) } else { self.value(b, scope) };
        }
        let y = self.value(b, scope)?;
        let value = self.run(a, Call::binary(self, op, &x, &y))?;
        self.checked(value, node, &[a, b])
    }
    /// Evaluates `ix![..]`.
    pub(super) fn index(self: &Rc<Self>, entries: &[IndexEntry], scope: &Scope) -> Eval {
        let mut list = Vec::new();
        for entry in entries {
            let value = self.value(&entry.value, scope)?;
            let step = entry.step.as_ref().map(|s| self.value(s, scope)).transpose()?;
            list.push(
                crate::indexing::entry(&value, step.as_ref())
                    .map_err(|r| r.at(entry.value.from, entry.value.to))?,
            );
        }
        Ok(crate::indexing::index(list)?)
    }
    /// Evaluates a macro.
    pub(super) fn macro_call(self: &Rc<Self>, name: &str, args: &[Node], node: &Node, scope: &Scope) -> Eval {
        match name {
            "println" | "print" | "eprintln" => {
                let mut text = self.formatted(args, scope)?;
                if name != "print" {
                    text.push('\n');
                }
                self.print(&text, node.from)?;
                Ok(Value::Unit)
            }
            "format" => Ok(Value::text(self.formatted(args, scope)?)),
            "panic" | "unreachable" | "todo" => {
                Err(syntax_error!("the program panics: {}", self.formatted(args, scope)?).into())
            }
            "assert" | "debug_assert" => match self.condition(&args[0], &mut scope.clone())? {
                true => Ok(Value::Unit),
                false => Err(syntax_error!("the assertion fails").into()),
            },
            "assert_eq" | "assert_ne" => self.assert_equal(name, args, scope),
            "write" | "writeln" => {
                let mut text = self.formatted(&args[1..], scope)?;
                if name == "writeln" {
                    text.push('\n');
                }
                let more = [Value::text(text)];
                self.modify(&args[0], scope, &mut |value| {
                    crate::library::mutate(self, value, "push_str", &more)?;
                    Ok(())
                })?;
                Ok(Value::result(Ok(Value::Unit)))
            }
            "einsum" => {
                Err(crate::refuse::name("einsum!").unwrap_or_else(|| syntax_error!("`einsum!`")).into())
            }
            "rule" | "rejected" => self.rule(name, args, node, scope),
            "assert_collectives" => self.assert_collectives(args, scope),
            "debug_print" => {
                let values = self.values(&args[1.min(args.len())..], scope)?;
                let Some(Kind::Text(template)) = args.first().map(|a| &a.kind) else {
                    return Err(syntax_error!("a text is expected").into());
                };
                let text = Value::Text(template.clone());
                self.run(node, Call::function(self, "debug_print", None, &[text, Value::list(values)]))
            }
            _ => Err(crate::refuse::name(&format!("{name}!"))
                .unwrap_or_else(|| crate::functions::unknown("macro", &format!("{name}!")).missing())
                .into()),
        }
    }
    fn assert_equal(self: &Rc<Self>, name: &str, args: &[Node], scope: &Scope) -> Eval {
        let [a, b, ..] = args else { return Err(syntax_error!("{name}! takes two values").into()) };
        let (x, y) = (self.value(a, scope)?, self.value(b, scope)?);
        if operator::equal(&x, &y) == (name == "assert_eq") {
            return Ok(Value::Unit);
        }
        let (x, y) = (crate::format::debug(self, &x)?, crate::format::debug(self, &y)?);
        Err(syntax_error!("the assertion fails: left is {x}, right is {y}").into())
    }
    /// Evaluates the book's `rule!(f; a, b)`: prints the types and the communication of a program.
    fn rule(self: &Rc<Self>, name: &str, args: &[Node], node: &Node, scope: &Scope) -> Eval {
        let [text, _, operands @ ..] = args else { return Ok(Value::Unit) };
        let Kind::Text(text) = &text.kind else { return Ok(Value::Unit) };
        let values = self.values(operands, scope)?;
        let this = self.clone();
        let Some(body) = args.get(1) else { return Ok(Value::Unit) };
        let names: Vec<crate::syntax::Name> = operands
            .iter()
            .filter_map(|o| match &o.kind {
                Kind::Name(name, _) => Some(name.clone()),
                _ => None,
            })
            .collect();
        let f = |list: Vec<Value>| {
            let mut inner = scope.clone();
            for (name, value) in names.iter().zip(list) {
                inner.bind(name.clone(), value);
            }
            this.value(body, &inner)
        };
        let (lowered, result) = crate::transform::lowered(self, &values, &f)?;
        let output = match (name, lowered, result) {
            ("rejected", Err(e), _) | (_, Err(e), _) => format!("\n{}\n\n", self.error_text(&e)),
            (_, Ok(report), Some(result)) => {
                let types: Vec<String> = values.iter().map(crate::format::type_text).collect();
                let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
                let exchanged = crate::objects::communication(&report);
                format!(
                    "{text}: {} → {}\n    {exchanged}\n",
                    types.join(", "),
                    crate::format::type_text(&result)
                )
            }
            (_, Ok(_), None) => String::new(),
        };
        self.print(&output, node.from)?;
        Ok(Value::Unit)
    }
    /// Evaluates `assert_collectives!(lowered, AllReduce("X") x 1)`.
    fn assert_collectives(self: &Rc<Self>, args: &[Node], scope: &Scope) -> Eval {
        let (Some(value), Some(Kind::Text(wanted))) = (args.first(), args.get(1).map(|a| &a.kind)) else {
            return Ok(Value::Unit);
        };
        let value = self.value(value, scope)?;
        let report = crate::objects::report(&value)?;
        crate::objects::assert_collectives(&report, wanted)?;
        Ok(Value::Unit)
    }
}

fn is_place(node: &Node) -> bool {
    match &node.kind {
        Kind::Name(..) => true,
        Kind::Field(of, _) | Kind::Element(of, _) => is_place(of),
        _ => false,
    }
}
