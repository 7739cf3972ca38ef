//! Transformations: functions of the crate that take a closure of the program.

mod regions;

use crate::error::ErrorResponse;
use crate::eval::{Eval, Interp};
use crate::methods::Args;
use crate::tree::{Arrays, Pair, specs};
use crate::value::{Value, term};
use atmesh::{Array, CheckpointPolicy, Collectives, Jit, Result, ShardMap, Tree};
use std::cell::OnceCell;
use std::rc::Rc;

/// The names of the transformations.
pub(crate) const NAMES: &[&str] = &[
    "jit",
    "shard_map",
    "grad",
    "value_and_grad",
    "vjp",
    "vmap",
    "vmap_with",
    "map",
    "scan",
    "scan_with",
    "fori_loop",
    "while_loop",
    "cond",
    "checkpoint",
    "checkpoint_with",
    "auto_axes",
    "auto_axes_over",
    "explicit_axes",
    "explicit_axes_over",
    "tree::map",
    "tree::map2",
];

/// The maximum depth of derivatives of derivatives.
const MAX_DERIVATIVES: usize = 5;

/// A function to be compiled, with its settings in order. It is built at its first call.
pub(crate) struct Compile {
    pub(crate) function: Value,
    pub(crate) settings: Vec<(String, Vec<Value>)>,
    built: OnceCell<Jit<'static, Arrays, Arrays>>,
}

/// A function for one block of each operand, with its settings in order.
pub(crate) struct Mapped {
    mesh: atmesh::Mesh,
    ins: Value,
    outs: Value,
    function: Value,
    settings: Vec<(String, Vec<Value>)>,
    built: OnceCell<ShardMap<'static, Arrays, Arrays>>,
}

/// Applies a function of the program to a tree: a tuple is spread over several parameters.
fn applied(interp: &Rc<Interp>, f: &Value, args: Arrays) -> Result<Arrays> {
    let several = match f.inner() {
        Value::Closure(closure) => closure.function.params.len() != 1,
        Value::Mapped(_) | Value::Jit(_) => false,
        _ => matches!(args, Arrays::Tuple(_)),
    };
    let args = match args {
        Arrays::Tuple(list) if several => list.into_iter().map(Arrays::value).collect(),
        one => vec![one.value()],
    };
    called(interp, f, args)
}

/// Applies a function of the program to values, and returns its result as a tree.
fn called(interp: &Rc<Interp>, f: &Value, args: Vec<Value>) -> Result<Arrays> {
    let value = match f.inner() {
        Value::Mapped(map) => map.call(interp, args),
        Value::Jit(jit) => jit.call(interp, args),
        _ => interp.apply(f, args),
    };
    match value {
        Ok(Value::Result(Err(e))) => Err(e),
        Ok(value) => Arrays::of(&value).map_err(|r| interp.stash(r.into())),
        Err(stop) => Err(interp.stash(stop)),
    }
}

/// Returns arguments as one tree: several are a tuple.
fn one_tree(args: Vec<Value>) -> std::result::Result<Arrays, ErrorResponse> {
    let mut args = args;
    match args.len() {
        1 => Arrays::of(&args.remove(0)),
        _ => Arrays::of(&Value::tuple(args)),
    }
}

impl Compile {
    /// Returns the function with another setting.
    pub(crate) fn with(&self, name: &str, args: &[Value]) -> Value {
        let mut settings = self.settings.clone();
        settings.push((name.into(), args.to_vec()));
        Value::Jit(Rc::new(Compile { function: self.function.clone(), settings, built: OnceCell::new() }))
    }
    /// Returns the function of the crate.
    pub(crate) fn built(
        &self,
        interp: &Rc<Interp>,
    ) -> std::result::Result<&Jit<'static, Arrays, Arrays>, ErrorResponse> {
        if let Some(jit) = self.built.get() {
            return Ok(jit);
        }
        let (this, function) = (interp.clone(), self.function.clone());
        let mut made = atmesh::jit(move |args: Arrays| applied(&this, &function, args));
        for (name, values) in &self.settings {
            let args = &mut Args::new(name, values);
            made = match name.as_str() {
                "on" => made.on(&args.mesh()?),
                "in_specs" => made.in_specs(specs(args.any("specs")?)?),
                "out_specs" => made.out_specs(specs(args.any("specs")?)?),
                // all engines give the same bits
                "engine" => continue,
                "donate" if self.arity() == 1 => made.donate(args.number::<usize>()?),
                // the values are the same: see `check_memory`
                "donate" => continue,
                "flush_subnormals" => made.flush_subnormals(args.boolean()?),
                "implicit_reshard" => made.implicit_reshard(args.implicit_reshard()?),
                _ => return Err(syntax_error!("`jit(..)` has no setting `{name}` here")),
            };
            args.end()?;
        }
        Ok(self.built.get_or_init(|| made))
    }
    /// Refuses to lower a function with several arguments of which one is donated: here the
    /// arguments are one tree, so its memory would be counted as if nothing was donated.
    pub(crate) fn check_memory(&self) -> std::result::Result<(), ErrorResponse> {
        if self.arity() == 1 || !self.settings.iter().any(|(name, _)| name == "donate") {
            return Ok(());
        }
        let say = "the memory of a function that donates one of several arguments is not known here";
        Err(ErrorResponse::refused(say).help("leave `.donate(..)` out: the values are the same", None))
    }
    /// Returns the number of parameters.
    fn arity(&self) -> usize {
        match self.function.inner() {
            Value::Closure(closure) => closure.function.params.len(),
            _ => 1,
        }
    }
    #[track_caller]
    pub(crate) fn call(&self, interp: &Rc<Interp>, args: Vec<Value>) -> Eval {
        let args = one_tree(args)?;
        Ok(Value::result(self.built(interp)?.call(args).map(Arrays::value)))
    }
}

impl Mapped {
    /// Returns the function with another setting.
    pub(crate) fn with(&self, name: &str, args: &[Value]) -> Value {
        let mut settings = self.settings.clone();
        settings.push((name.into(), args.to_vec()));
        Value::Mapped(Rc::new(Mapped {
            mesh: self.mesh.clone(),
            ins: self.ins.clone(),
            outs: self.outs.clone(),
            function: self.function.clone(),
            settings,
            built: OnceCell::new(),
        }))
    }
    /// Returns the function of the crate.
    #[track_caller]
    pub(crate) fn built(
        &self,
        interp: &Rc<Interp>,
    ) -> std::result::Result<&ShardMap<'static, Arrays, Arrays>, ErrorResponse> {
        if let Some(map) = self.built.get() {
            return Ok(map);
        }
        let (this, function) = (interp.clone(), self.function.clone());
        let (ins, outs) = (specs(&self.ins)?, specs(&self.outs)?);
        let mut made =
            atmesh::shard_map(&self.mesh, ins, outs, move |args: Arrays| applied(&this, &function, args));
        for (name, values) in &self.settings {
            let args = &mut Args::new(name, values);
            made = match name.as_str() {
                "over" => made.over(args.axes()?),
                "unchecked" => made.unchecked(),
                "engine" => continue,
                _ => return Err(syntax_error!("`shard_map(..)` has no setting `{name}` here")),
            };
        }
        Ok(self.built.get_or_init(|| made))
    }
    #[track_caller]
    pub(crate) fn call(&self, interp: &Rc<Interp>, args: Vec<Value>) -> Eval {
        let args = one_tree(args)?;
        Ok(Value::result(self.built(interp)?.call(args).map(Arrays::value)))
    }
}

/// Lowers the function of a rule, and runs it: the report, and the result if there is one.
pub(crate) fn lowered(
    interp: &Rc<Interp>,
    values: &[Value],
    f: &dyn Fn(Vec<Value>) -> Eval,
) -> Eval<(Result<Collectives>, Option<Value>)> {
    let args = one_tree(values.to_vec())?;
    let several = values.len() != 1;
    let body = |args: Arrays| -> Result<Arrays> {
        let args = match args {
            Arrays::Tuple(list) if several => list.into_iter().map(Arrays::value).collect(),
            one => vec![one.value()],
        };
        match f(args) {
            Ok(Value::Result(Err(e))) => Err(e),
            Ok(value) => Arrays::of(&value).map_err(|r| interp.stash(r.into())),
            Err(stop) => Err(interp.stash(stop)),
        }
    };
    let jit = atmesh::jit(body);
    let lowered = match jit.lower(args.clone()) {
        Ok(lowered) => lowered,
        Err(e) => return Ok((Err(e), None)),
    };
    let report = lowered.collectives().clone();
    let result = jit.call(args).ok().map(Arrays::value);
    Ok((Ok(report), result))
}

/// Evaluates a transformation; `None` if `name` is not one.
#[track_caller]
pub(crate) fn transform(interp: &Rc<Interp>, name: &str, values: &[Value]) -> Eval<Option<Value>> {
    let args = &mut Args::new(name, values);
    let value = match name {
        "jit" => {
            let function = args.function("like `jit(|x: &Array| x.sum(..))`")?.clone();
            Value::Jit(Rc::new(Compile { function, settings: Vec::new(), built: OnceCell::new() }))
        }
        "shard_map" => {
            let mesh = args.mesh()?;
            let (ins, outs) =
                (args.any("specs of the arguments")?.clone(), args.any("specs of the results")?.clone());
            let function = args.function(SHARD_MAP)?.clone();
            let made = Mapped { mesh, ins, outs, function, settings: Vec::new(), built: OnceCell::new() };
            // errors of the specs are those of this call
            made.built(interp)?;
            Value::Mapped(Rc::new(made))
        }
        "tree::map" | "tree::map2" => {
            return regions::trees(interp, name, args).map(Some);
        }
        "grad" | "value_and_grad" | "vjp" => {
            // each one traces what is inside it anew
            let depth = interp.derivatives.get();
            if depth == MAX_DERIVATIVES {
                return Err(syntax_error!(
                    "more than {MAX_DERIVATIVES} derivatives are taken one of another"
                )
                .into());
            }
            interp.derivatives.set(depth + 1);
            let made = derivative(interp, name, args);
            interp.derivatives.set(depth);
            return made.map(Some);
        }
        "scan" | "scan_with" | "fori_loop" | "while_loop" | "cond" => {
            return control(interp, name, args).map(Some);
        }
        _ if NAMES.contains(&name) => return regions::regions(interp, name, args).map(Some),
        _ => return Ok(None),
    };
    args.end()?;
    Ok(Some(value))
}

const SHARD_MAP: &str = "like `shard_map(&mesh, p![\"X\"], p![], |x| x.sum(..).psum(\"X\")).call(&x)`";

#[track_caller]
fn derivative(interp: &Rc<Interp>, name: &str, args: &mut Args<'_>) -> Eval {
    let point = args.tree()?;
    let made = match name {
        "vjp" => {
            let f = args.function("like `vjp(&x, |x| x.sin())`")?;
            let (y, pull) = atmesh::vjp(point, |x: Arrays| applied(interp, f, x));
            Value::tuple([y.value(), Value::Pullback(Rc::new(pull))])
        }
        _ => {
            let f = args.function("like `grad(&w, |w| …)`")?;
            let aux = std::cell::Cell::new(false);
            let body = |x: Arrays| -> Result<Pair> {
                match applied(interp, f, x)? {
                    Arrays::Array(loss) => Ok((loss, Arrays::Tuple(Vec::new()))),
                    other => match other.pair() {
                        Some((Arrays::Array(loss), rest)) => {
                            aux.set(true);
                            Ok((loss, rest))
                        }
                        _ => Err(interp.stash(
                            syntax_error!(
                                "{name} needs one number to differentiate, or a tuple of one and other values"
                            )
                            .help("make one number of an array: `.sum(..)` or `.mean(..)`", None)
                            .into(),
                        )),
                    },
                }
            };
            if name == "grad" {
                let slopes = atmesh::grad(point, body).value();
                args.end()?;
                return Ok(slopes);
            }
            let ((loss, rest), slopes) = atmesh::value_and_grad(point, body);
            let loss = Value::Array(loss);
            let value = if aux.get() { Value::tuple([loss, rest.value()]) } else { loss };
            Value::tuple([value, slopes.value()])
        }
    };
    args.end()?;
    Ok(made)
}

/// Returns the only array of a result.
fn array_of(interp: &Rc<Interp>, made: Result<Arrays>) -> Result<Array> {
    match made? {
        Arrays::Array(x) => Ok(x),
        _ => Err(interp.stash(syntax_error!("one array is expected as the result").into())),
    }
}

#[track_caller]
fn control(interp: &Rc<Interp>, name: &str, args: &mut Args<'_>) -> Eval {
    let made = match name {
        "fori_loop" => {
            let (lo, hi) = args.bounds()?;
            let init = args.tree()?;
            let f = args.function("like `fori_loop(0..10, &x, |i, x| x + i)`")?;
            atmesh::fori_loop(term(&lo)?..term(&hi)?, init, |i: Array, x: Arrays| {
                called(interp, f, vec![Value::Array(i), x.value()])
            })
            .value()
        }
        "while_loop" => {
            let init = args.tree()?;
            let test = args.function("of the condition")?;
            let f = args.function("of the body")?;
            let holds = |x: &Arrays| {
                array_of(interp, called(interp, test, vec![x.clone().value()]))
                    .unwrap_or_else(|e| Array::filled_with(&e))
            };
            atmesh::while_loop(init, |x: &Arrays| holds(x), |x: Arrays| called(interp, f, vec![x.value()]))
                .value()
        }
        "cond" => {
            let pred = args.operand()?;
            let (a, b) = (args.function("of the first branch")?, args.function("of the second branch")?);
            atmesh::cond(pred, || called(interp, a, Vec::new()), || called(interp, b, Vec::new())).value()
        }
        _ => {
            let (init, xs) = (args.tree()?, args.tree()?);
            let f = args.function("like `scan(&init, &xs, |carry, x| (carry + &x, x))`")?;
            let body = |carry: Arrays, x: Arrays| -> Result<(Arrays, Arrays)> {
                let made = called(interp, f, vec![carry.value(), x.value()])?;
                made.pair().ok_or_else(|| {
                    let say = "the body of a `scan` returns a tuple of the next carry and a result";
                    interp.stash(
                        ErrorResponse::syntax(say)
                            .help("a scan without results returns `(carry, ())`", None)
                            .into(),
                    )
                })
            };
            let (carry, rows) = match name {
                "scan_with" => {
                    let options = args.scan_options()?;
                    atmesh::scan_with(init, xs, body, options)
                }
                _ => atmesh::scan(init, xs, body),
            };
            Value::tuple([carry.value(), rows.value()])
        }
    };
    args.end()?;
    Ok(made)
}

/// Returns the policy of this name.
pub(crate) fn policy(name: &str) -> Option<CheckpointPolicy> {
    Some(match name.rsplit("::").next()? {
        "SaveAll" => CheckpointPolicy::SaveAll,
        "SaveNothing" => CheckpointPolicy::SaveNothing,
        "SaveAllButGathers" => CheckpointPolicy::SaveAllButGathers,
        "SaveDots" => CheckpointPolicy::SaveDots,
        _ => return None,
    })
}
