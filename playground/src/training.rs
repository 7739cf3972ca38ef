//! Optimizers and schedules.

use crate::error::ErrorResponse;
use crate::eval::{Eval, Interp};
use crate::methods::Args;
use crate::tree::Arrays;
use crate::value::Value;
use atmesh::optim::{self, OptState, Optimizer, Schedule};
use std::rc::Rc;

/// The names of the functions.
const NAMES: &[&str] =
    &["optim::sgd", "optim::adam", "optim::adamw", "optim::chain", "optim::clip_by_global_norm"];

/// Returns true for a function of this file, with or without its module.
pub(crate) fn is_function(name: &str) -> bool {
    full(name).is_some()
}

fn full(name: &str) -> Option<&'static str> {
    let bare = name.strip_prefix("optim::").unwrap_or(name);
    NAMES.iter().copied().find(|n| n.strip_prefix("optim::").unwrap_or(n) == bare)
}

/// Evaluates a function of this file; `None` if `name` is another one.
#[track_caller]
pub(crate) fn function(_: &Rc<Interp>, name: &str, values: &[Value]) -> Eval<Option<Value>> {
    let Some(name) = full(name) else { return Ok(None) };
    let args = &mut Args::new(name, values);
    let optimizer = |o: Optimizer| Value::Optimizer(Rc::new(o));
    let made = match name {
        "optim::sgd" => optimizer(optim::sgd(rate(args)?)),
        "optim::adam" => optimizer(optim::adam(rate(args)?)),
        "optim::adamw" => optimizer(optim::adamw(rate(args)?)),
        "optim::chain" => {
            let Value::List(list) = args.any("a list of optimizers")?.inner() else {
                return Err(syntax_error!("`chain` takes a list of optimizers").into());
            };
            let each = list.iter().map(|v| match v {
                Value::Optimizer(o) => Ok((**o).clone()),
                other => Err(args.wrong("a list of optimizers", other)),
            });
            optimizer(optim::chain(each.collect::<Result<Vec<_>, _>>()?))
        }
        "optim::clip_by_global_norm" => optimizer(optim::clip_by_global_norm(args.float()?)),
        _ => return Ok(None),
    };
    args.end()?;
    Ok(Some(made))
}

fn rate(args: &mut Args<'_>) -> Result<Schedule, ErrorResponse> {
    match args.any("a learning rate")?.inner() {
        Value::Float(x, _) => Ok((*x).into()),
        other => Err(args.wrong("a learning rate or a schedule", other)),
    }
}

/// Evaluates a method of an optimizer or a schedule.
#[track_caller]
pub(crate) fn method(of: &Value, name: &str, values: &[Value]) -> Eval {
    let args = &mut Args::new(name, values);
    Ok(match (of.inner(), name) {
        (Value::Optimizer(o), "init") => {
            Value::result(o.init(&args.tree()?).map(|s| Arrays::State(s).value()))
        }
        (Value::Optimizer(o), "step") => {
            let (params, grads) = (args.tree()?, args.tree()?);
            let state = state(args)?;
            let (params, state) = o.step(&params, &grads, &state);
            Value::tuple([params.value(), Value::State(state)])
        }
        (Value::Optimizer(o), "update") => {
            let grads = args.tree()?;
            let state = state(args)?;
            let (updates, state) = o.update(&grads, &state, &args.tree()?);
            Value::tuple([updates.value(), Value::State(state)])
        }
        (Value::Optimizer(o), "then") => match args.any("an optimizer")?.inner() {
            Value::Optimizer(next) => Value::Optimizer(Rc::new((**o).clone().then((**next).clone()))),
            other => return Err(args.wrong("an optimizer", other).into()),
        },
        (Value::Optimizer(o), "shard_slots") => {
            Value::Optimizer(Rc::new((**o).clone().shard_slots(args.axes()?)))
        }
        _ => return Err(crate::objects::no_method(of, name).into()),
    })
}

fn state(args: &mut Args<'_>) -> Result<OptState, ErrorResponse> {
    match args.any("the state of the optimizer")?.inner() {
        Value::State(state) => Ok(state.clone()),
        other => Err(args.wrong("the state of the optimizer", other)),
    }
}
