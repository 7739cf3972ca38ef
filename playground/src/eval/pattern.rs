//! Patterns, and assignments to places.

use super::{Eval, Interp, operator};
use crate::syntax::{Kind, Node, Pattern};
use crate::value::{Scope, Value};
use std::rc::Rc;

impl Interp {
    /// Adds the names of a pattern to the scope; false if the value does not fit.
    pub(super) fn bind(self: &Rc<Self>, pattern: &Pattern, value: &Value, scope: &mut Scope) -> Eval<bool> {
        Ok(match pattern {
            Pattern::Any | Pattern::Rest => true,
            Pattern::Name(name) if &**name == "None" => matches!(value, Value::Option(None)),
            Pattern::Name(name) => {
                scope.bind(name.clone(), value.clone());
                true
            }
            Pattern::Bound(name, inner) => {
                let fits = self.bind(inner, value, scope)?;
                scope.bind(name.clone(), value.clone());
                fits
            }
            Pattern::Literal(node) => self.fits_literal(node, value, scope)?,
            Pattern::Tuple(list) | Pattern::List(list) => match value.inner() {
                Value::Tuple(values) | Value::List(values) => self.bind_list(list, values, scope)?,
                Value::Unit => list.is_empty(),
                _ => false,
            },
            Pattern::Call(name, inner) => match (&**name, value) {
                ("Some", Value::Option(Some(v))) | ("Ok", Value::Result(Ok(v))) => {
                    self.bind_list(inner, std::slice::from_ref(v), scope)?
                }
                // in Rust an operation without a `Result` cannot be matched by `Ok`
                ("Err", Value::Result(Err(e))) => self.bind_list(inner, &[Value::Error(e.clone())], scope)?,
                ("Static", Value::Struct(record)) if &*record.name == "Static" => {
                    let values: Vec<Value> = record.fields.iter().map(|f| f.1.clone()).collect();
                    self.bind_list(inner, &values, scope)?
                }
                (name, Value::Struct(record)) if *record.name == *name => {
                    let values: Vec<Value> = record.fields.iter().map(|f| f.1.clone()).collect();
                    self.bind_list(inner, &values, scope)?
                }
                _ => false,
            },
            Pattern::Struct(fields) => {
                for (name, inner) in fields {
                    let field = super::field(value, name)?;
                    if !self.bind(inner, &field, scope)? {
                        return Ok(false);
                    }
                }
                true
            }
            Pattern::Either(all) => {
                for one in all {
                    if self.bind(one, value, scope)? {
                        return Ok(true);
                    }
                }
                false
            }
        })
    }
    fn bind_list(self: &Rc<Self>, list: &[Pattern], values: &[Value], scope: &mut Scope) -> Eval<bool> {
        let rest = list.iter().position(|p| {
            matches!(p, Pattern::Rest)
                || matches!(p, Pattern::Bound(_, inner) if matches!(**inner, Pattern::Rest))
        });
        let Some(rest) = rest else {
            if list.len() != values.len() {
                return Ok(false);
            }
            for (pattern, value) in list.iter().zip(values) {
                if !self.bind(pattern, value, scope)? {
                    return Ok(false);
                }
            }
            return Ok(true);
        };
        let after = list.len() - rest - 1;
        if values.len() < rest + after {
            return Ok(false);
        }
        let end = values.len() - after;
        if let Pattern::Bound(name, _) = &list[rest] {
            scope.bind(name.clone(), Value::list(values[rest..end].iter().cloned()));
        }
        Ok(self.bind_list(&list[..rest], &values[..rest], scope)?
            && self.bind_list(&list[rest + 1..], &values[end..], scope)?)
    }
    fn fits_literal(self: &Rc<Self>, node: &Node, value: &Value, scope: &Scope) -> Eval<bool> {
        let literal = self.value(node, scope)?;
        if let Value::Range(range) = &literal {
            let above = matches!(range.0, Value::Unit)
                || operator::compare(&range.0, value)? != std::cmp::Ordering::Greater;
            let below = match operator::compare(value, &range.1) {
                Ok(order) => {
                    order == std::cmp::Ordering::Less || (range.2 && order == std::cmp::Ordering::Equal)
                }
                Err(_) => matches!(range.1, Value::Unit),
            };
            return Ok(above && below);
        }
        Ok(operator::equal(&literal, value))
    }
    /// Evaluates `place = value` and `place += value`.
    pub(super) fn assign(
        self: &Rc<Self>,
        op: Option<&'static str>,
        place: &Node,
        value: &Node,
        scope: &Scope,
    ) -> Eval {
        // `(a, b) = (b, a)`
        if let (None, Kind::Tuple(places) | Kind::List(places)) = (op, &place.kind) {
            let value = self.value(value, scope)?;
            for (k, place) in places.iter().enumerate() {
                let part = super::field(&value, &k.to_string())?;
                if matches!(&place.kind, Kind::Name(name, _) if &**name == "_") {
                    continue;
                }
                self.modify(place, scope, &mut |old| {
                    *old = part.clone();
                    Ok(())
                })?;
            }
            return Ok(Value::Unit);
        }
        let new = self.value(value, scope)?;
        if matches!(&place.kind, Kind::Name(name, _) if &**name == "_") {
            return Ok(Value::Unit);
        }
        let new = match op {
            Some(op) => {
                let old = self.value(place, scope)?;
                let call = crate::lines::Call::binary(self, op, &old, &new);
                self.run(place, call)?
            }
            None => new,
        };
        self.modify(place, scope, &mut |old| {
            *old = new.clone();
            Ok(())
        })?;
        Ok(Value::Unit)
    }
    /// Changes the value of a place: a name, a field or an element.
    pub(super) fn modify(
        self: &Rc<Self>,
        place: &Node,
        scope: &Scope,
        change: &mut dyn FnMut(&mut Value) -> Eval<()>,
    ) -> Eval<()> {
        match &place.kind {
            Kind::Name(name, _) => match scope.find(name) {
                Some(variable) => {
                    // the change may read the variable
                    let mut value = variable.value.borrow().clone();
                    *variable.value.borrow_mut() = Value::Unit;
                    let changed = change(&mut value);
                    *variable.value.borrow_mut() = value;
                    changed
                }
                None => {
                    Err(syntax_error!("there is no `{name}` here: a new name is written `let {name} = …`")
                        .at(place.from, place.to)
                        .into())
                }
            },
            Kind::Field(of, name) => self.modify(of, scope, &mut |value| {
                let found = match value {
                    Value::Struct(record) => {
                        Rc::make_mut(record).fields.iter_mut().find(|f| f.0 == *name).map(|f| &mut f.1)
                    }
                    Value::Tuple(list) => {
                        name.parse::<usize>().ok().and_then(|i| Rc::make_mut(list).get_mut(i))
                    }
                    _ => None,
                };
                match found {
                    Some(field) => change(field),
                    None => Err(syntax_error!("there is no field `{name}`").into()),
                }
            }),
            Kind::Element(of, at) => {
                let at = crate::library::whole(&self.value(at, scope)?)?;
                self.modify(of, scope, &mut |value| match value {
                    Value::List(list) => match Rc::make_mut(list).get_mut(at) {
                        Some(element) => change(element),
                        None => Err(syntax_error!("the index {at} is out of bounds").into()),
                    },
                    other => Err(syntax_error!("{} has no elements to assign", other.what())
                        .help("arrays are values: `x.at(ix![i]).set(v)` returns a changed one", None)
                        .into()),
                })
            }
            // `*cell.borrow_mut() = value`
            Kind::Method(call) if matches!(call.name.as_str(), "borrow_mut" | "unwrap" | "lock") => {
                match self.value(&call.of, scope)?.inner() {
                    Value::Cell(cell) => change(&mut cell.borrow_mut()),
                    _ => self.modify(&call.of, scope, change),
                }
            }
            Kind::Unary(_, of) | Kind::Try(of) => self.modify(of, scope, change),
            // a temporary value: the change is lost, as in Rust
            _ => {
                let mut value = self.value(place, scope)?;
                change(&mut value)
            }
        }
    }
}
