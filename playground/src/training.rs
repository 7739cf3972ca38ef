//! Optimizers and schedules.

use crate::error::ErrorResponse;
use crate::eval::{Eval, Interp};
use crate::methods::Args;
use crate::tree::Arrays;
use crate::value::Value;
use atmesh::optim::{self, Adam, OptState, Optimizer, Schedule, Sgd, WeightDecay};
use std::rc::Rc;

/// The names of the functions.
const NAMES: &[&str] = &[
    "optim::sgd",
    "optim::adam",
    "optim::adamw",
    "optim::sgd_with",
    "optim::adam_with",
    "optim::adamw_with",
    "optim::chain",
    "optim::clip_by_global_norm",
    "optim::constant_schedule",
    "optim::linear_schedule",
    "optim::cosine_decay_schedule",
    "optim::warmup_cosine_decay_schedule",
    "Sgd::default",
    "Adam::default",
    "WeightDecay::new",
];

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
    let schedule = |s: Schedule| Value::Schedule(Rc::new(s));
    let made = match name {
        "optim::sgd" => optimizer(optim::sgd(rate(args)?)),
        "optim::adam" => optimizer(optim::adam(rate(args)?)),
        "optim::adamw" => optimizer(optim::adamw(rate(args)?)),
        "optim::sgd_with" => optimizer(optim::sgd_with(rate(args)?, sgd(args)?)),
        "optim::adam_with" => optimizer(optim::adam_with(rate(args)?, adam(args)?)),
        "optim::adamw_with" => optimizer(optim::adamw_with(rate(args)?, adam(args)?, decay(args)?)),
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
        "optim::constant_schedule" => schedule(optim::constant_schedule(args.float()?)),
        "optim::linear_schedule" => {
            schedule(optim::linear_schedule(args.float()?, args.float()?, args.number()?))
        }
        "optim::cosine_decay_schedule" => {
            schedule(optim::cosine_decay_schedule(args.float()?, args.number()?, args.float()?))
        }
        "optim::warmup_cosine_decay_schedule" => {
            let (init, peak) = (args.float()?, args.float()?);
            let (warmup, steps) = (args.number()?, args.number()?);
            schedule(optim::warmup_cosine_decay_schedule(init, peak, warmup, steps, args.float()?))
        }
        "WeightDecay::new" => Value::record("WeightDecay", [("rate", args.any("a rate")?.clone())]),
        _ => Value::record(name.split("::").next().unwrap_or(name), []),
    };
    args.end()?;
    Ok(Some(made))
}

fn rate(args: &mut Args<'_>) -> Result<Schedule, ErrorResponse> {
    match args.any("a learning rate")?.inner() {
        Value::Schedule(s) => Ok((**s).clone()),
        Value::Float(x, _) => Ok((*x).into()),
        other => Err(args.wrong("a learning rate or a schedule", other)),
    }
}

/// Returns the settings of a struct of options, in order.
fn settings(args: &mut Args<'_>, name: &str) -> Result<Vec<(String, Value)>, ErrorResponse> {
    match args.any("options")?.inner() {
        Value::Struct(record) if &*record.name == name => {
            Ok(record.fields.iter().map(|f| (f.0.to_string(), f.1.clone())).collect())
        }
        other => Err(args.wrong("options", other)),
    }
}

fn sgd(args: &mut Args<'_>) -> Result<Sgd, ErrorResponse> {
    let mut options = Sgd::default();
    for (name, value) in settings(args, "Sgd")? {
        let values = [value];
        options = match name.as_str() {
            "momentum" => options.momentum(Args::new("momentum", &values).float()?),
            "nesterov" => options.nesterov(),
            _ => return Err(syntax_error!("`Sgd` has no option `{name}` here")),
        };
    }
    Ok(options)
}

fn adam(args: &mut Args<'_>) -> Result<Adam, ErrorResponse> {
    let mut options = Adam::default();
    for (name, value) in settings(args, "Adam")? {
        let values = [value];
        let mut args = Args::new("Adam", &values);
        options = match name.as_str() {
            "b1" => options.b1(args.float()?),
            "b2" => options.b2(args.float()?),
            "eps" => options.eps(args.float()?),
            "mu_dtype" => options.mu_dtype(args.dtype()?),
            _ => return Err(syntax_error!("`Adam` has no option `{name}` here")),
        };
    }
    Ok(options)
}

fn decay(args: &mut Args<'_>) -> Result<WeightDecay, ErrorResponse> {
    let values: Vec<Value> = match args.any("a weight decay")?.inner() {
        Value::Struct(record) => record.fields.iter().map(|f| f.1.clone()).collect(),
        other => vec![other.clone()],
    };
    if values.len() > 1 {
        return Err(syntax_error!("a mask of the weight decay is not part of the playground"));
    }
    Ok(WeightDecay::new(Args::new("WeightDecay", &values).float()?))
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
        (Value::Schedule(s), "at") => Value::Array(s.at(args.operand()?)),
        _ => return Err(crate::objects::no_method(of, name).into()),
    })
}

fn state(args: &mut Args<'_>) -> Result<OptState, ErrorResponse> {
    match args.any("the state of the optimizer")?.inner() {
        Value::State(state) => Ok(state.clone()),
        other => Err(args.wrong("the state of the optimizer", other)),
    }
}

/// Returns true for structs of options, whose methods add a setting.
pub(crate) fn is_options(name: &str) -> bool {
    matches!(name, "Sgd" | "Adam" | "WeightDecay")
}
