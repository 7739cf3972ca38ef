//! Programs within programs: equations in order, and the operations with bodies.

use super::case::{Env, axes, spec};
use super::ops::{self, Val};
use atmesh::{
    Array, Axes, Axis, AxisType, CheckpointPolicy, Error, Inferred, Mesh, Result, ScanOptions, Spec, smap,
};
use serde_json::Value;

/// Traces equations in order, up to the first error.
pub(crate) fn equations(env: &mut Env, body: &Value) -> Result<()> {
    for e in body.as_array().into_iter().flatten() {
        let outs: Vec<&str> = e["out"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let first = outs.first().copied().unwrap_or("");
        let results = equation(env, e, outs.len()).inspect_err(|error| env.rejected(first, error))?;
        for r in &results {
            if let Val::Array(a) = r {
                a.ty().inspect_err(|error| env.rejected(first, error))?;
            }
        }
        if results.len() != outs.len() {
            return Err(env.missing(format!(
                "{} has {} results, {} wanted",
                e["op"],
                results.len(),
                outs.len()
            )));
        }
        for (name, value) in outs.iter().zip(results) {
            env.bind(name, value);
        }
    }
    Ok(())
}

fn manual(mesh: &Mesh, axis: Axis) -> bool {
    mesh.axis_type(axis) == Some(AxisType::Manual)
}

/// Returns the results of a program.
pub(crate) fn results(env: &Env, returns: &Value) -> Result<Vec<Array>> {
    let names = returns.as_array().into_iter().flatten().filter_map(Value::as_str);
    names.map(|n| Ok(lookup(env, n)?.array())).collect()
}

fn lookup(env: &Env, name: &str) -> Result<Val> {
    env.names.get(name).cloned().ok_or_else(|| env.missing(format!("no value {name}")))
}

/// Runs a nested program: binds its arguments to these values, traces its equations, and returns
/// its results.
fn program(env: &Env, mesh: Mesh, body: &Value, args: &[Array]) -> Result<Vec<Array>> {
    let mut inner = env.inside(mesh);
    let names = body["args"].as_array().into_iter().flatten().filter_map(Value::as_str);
    for (name, value) in names.zip(args) {
        inner.bind(name, Val::Array(value.clone()));
    }
    equations(&mut inner, &body["body"])?;
    results(&inner, &body["returns"])
}

/// Returns the policy of a checkpoint. Names that no value of the body has are left out, since an
/// unknown name is an error here.
fn policy(policy: &Value, body: &Value) -> CheckpointPolicy {
    let named = |name: &str| {
        let equations = body["body"].as_array().into_iter().flatten();
        equations.into_iter().any(|e| e["op"] == "checkpoint_name" && e["params"]["name"] == name)
    };
    match policy.as_str() {
        Some("everything_saveable") => CheckpointPolicy::SaveAll,
        Some("dots_saveable") => CheckpointPolicy::SaveDots,
        Some("dots_with_no_batch_dims_saveable") => CheckpointPolicy::SaveDotsWithoutBatchDims,
        _ => match policy["names"].as_array() {
            Some(names) => {
                let names = names.iter().filter_map(Value::as_str).filter(|name| named(name));
                CheckpointPolicy::named(names)
            }
            None => CheckpointPolicy::SaveNothing,
        },
    }
}

/// A nested program of one of the equations below.
type Body<'a> = &'a dyn Fn(&[Array]) -> Result<Vec<Array>>;

/// Returns the Jacobians or Hessians of a program with one result, by the arguments `wrt`.
fn jacobians(env: &Env, op: &str, arrays: &[Array], wrt: &[usize], run: Body<'_>) -> Vec<Array> {
    let result = |args: &[Array]| -> Result<Array> {
        run(args)?.into_iter().next().ok_or_else(|| env.missing("a program without returns"))
    };
    if op == "hessian" {
        let pairs = wrt.iter().flat_map(|i| wrt.iter().map(move |j| (*i, *j)));
        let second = |(i, j): (usize, usize)| {
            atmesh::jacfwd(&arrays[j], |x| {
                let mut args = arrays.to_vec();
                args[j] = x;
                let at = args[i].clone();
                atmesh::grad(at, |x| {
                    let mut args = args.clone();
                    args[i] = x;
                    result(&args)
                })
            })
        };
        return pairs.map(second).collect();
    }
    let at: Vec<Array> = wrt.iter().map(|i| arrays[*i].clone()).collect();
    let f = |at: Vec<Array>| {
        let mut args = arrays.to_vec();
        for (i, a) in wrt.iter().zip(at) {
            args[*i] = a;
        }
        result(&args)
    };
    if op == "jacfwd" { atmesh::jacfwd(at, f) } else { atmesh::jacrev(at, f) }
}

/// Runs a program that has a derivative rule.
fn custom_rule(here: &Mesh, env: &Env, e: &Value, arrays: Vec<Array>, run: Body<'_>) -> Vec<Array> {
    let part = |name: &str, args: &[Array]| program(env, here.clone(), &e[name], args);
    let n = e["body"]["returns"].as_array().map_or(0, Vec::len);
    let split = |mut all: Vec<Array>| {
        let rest = all.split_off(n.min(all.len()));
        (all, rest)
    };
    if e["op"] == "custom_jvp" {
        let rule = |args: Vec<Array>, tangents: Vec<Array>| -> Result<(Vec<Array>, Vec<Array>)> {
            Ok(split(part("rule", &[args, tangents].concat())?))
        };
        return atmesh::custom_jvp(arrays, |args: Vec<Array>| run(&args), rule);
    }
    let forward = |args: Vec<Array>| -> Result<(Vec<Array>, Vec<Array>)> { Ok(split(part("fwd", &args)?)) };
    let backward =
        |kept: Vec<Array>, cts: Vec<Array>| -> Result<Vec<Array>> { part("bwd", &[kept, cts].concat()) };
    atmesh::custom_vjp_with(arrays, |args: Vec<Array>| run(&args), forward, backward)
}

fn equation(env: &Env, e: &Value, outs: usize) -> Result<Vec<Val>> {
    let op = e["op"].as_str().unwrap_or("");
    let ins: Vec<Val> = (e["in"].as_array().into_iter().flatten())
        .map(|i| match i {
            Value::String(name) => lookup(env, name),
            lit => Ok(Val::Lit(ops::scalar(&lit["lit"]))),
        })
        .collect::<Result<_>>()?;
    let params = &e["params"];
    if e.get("body").is_none() && e.get("branches").is_none() {
        return ops::apply(env, op, &ins, params);
    }
    let body = &e["body"];
    let arrays: Vec<Array> = ins.iter().map(Val::array).collect();
    let here = env.mesh.clone();
    let run = |args: &[Array]| program(env, here.clone(), body, args);
    let specs = |v: &Value| -> Vec<Spec> { v.as_array().into_iter().flatten().map(spec).collect() };
    let results: Vec<Array> = match op {
        "jit" => atmesh::jit(|args: &Vec<Array>| run(args)).call(&arrays)?,
        "fori_loop" => {
            let carries = arrays[2..].to_vec();
            atmesh::fori_loop(ins[0].term()..ins[1].term(), carries, |i, carries: Vec<Array>| {
                let args: Vec<Array> = [i].into_iter().chain(carries).collect();
                run(&args)
            })
        }
        "while_loop" => {
            let cond = |carries: &Vec<Array>| match program(env, here.clone(), &e["cond"], carries) {
                Ok(mut results) if !results.is_empty() => results.swap_remove(0),
                Ok(_) => Array::from(false),
                Err(error) => ops::failed(&error),
            };
            atmesh::while_loop(arrays, cond, |carries: Vec<Array>| run(&carries))
        }
        "scan" => {
            let n = params["num_carry"].as_u64().unwrap_or(0) as usize;
            let mut options = ScanOptions::default();
            options.length = params["length"].as_u64().map(|n| n as usize);
            options.reverse = params["reverse"].as_bool().unwrap_or(false);
            let (carries, xs) = (arrays[..n].to_vec(), arrays[n..].to_vec());
            let body = |carries: Vec<Array>, xs: Vec<Array>| -> Result<(Vec<Array>, Vec<Array>)> {
                let args: Vec<Array> = carries.into_iter().chain(xs).collect();
                let mut carries = run(&args)?;
                let ys = carries.split_off(n.min(carries.len()));
                Ok((carries, ys))
            };
            let (carries, ys) = atmesh::scan_with(carries, xs, body, options);
            carries.into_iter().chain(ys).collect()
        }
        "associative_scan" => {
            let d = params.get("axis").and_then(Value::as_i64).unwrap_or(0) as i32;
            let both = |a: Vec<Array>, b: Vec<Array>| run(&[a, b].concat());
            match params["reverse"].as_bool() {
                Some(true) => atmesh::associative_scan_reverse(arrays, d, both),
                _ => atmesh::associative_scan(arrays, d, both),
            }
        }
        "cond" => {
            let operands = &arrays[1..];
            let branch = |k: usize| program(env, here.clone(), &e["branches"][k], operands);
            atmesh::cond(&arrays[0], || branch(0), || branch(1))
        }
        "switch" => {
            let operands = &arrays[1..];
            let count = e["branches"].as_array().map_or(0, Vec::len);
            let branch = |k: usize| program(env, here.clone(), &e["branches"][k], operands);
            let branches: Vec<_> = (0..count).map(|k| move || branch(k)).collect();
            let branches: Vec<&dyn Fn() -> Result<Vec<Array>>> = branches.iter().map(|b| b as _).collect();
            atmesh::switch(&arrays[0], &branches)
        }
        "shard_map" => {
            let over = match &params["axis_names"] {
                Value::Null => here.axis_names().iter().copied().filter(|a| !manual(&here, *a)).collect(),
                names => axes(names),
            };
            // If the axes are wrong, the equation is rejected and its body is not run.
            let inside = here.with_axis_types(&over, AxisType::Manual).unwrap_or_else(|_| here.clone());
            let run = |args: &Vec<Array>| program(env, inside.clone(), body, args);
            let out_specs = specs(&params["out_specs"]);
            let f = match &params["in_specs"] {
                Value::Null => atmesh::shard_map(&here, Inferred, out_specs, run),
                list => atmesh::shard_map(&here, specs(list), out_specs, run),
            };
            let f = if params["axis_names"].is_null() { f } else { f.over(&over) };
            let f = if params["check_vma"].as_bool() == Some(false) { f.unchecked() } else { f };
            f.call(&arrays)?
        }
        "smap" => {
            // A shard_map over one axis; each entry is the dimension that the axis shards.
            let axis = axes(&params["axis_name"]).iter().next().expect("an axis");
            let dims = |v: &Value| -> Vec<Option<i32>> {
                let dim = |d: &Value| d.as_i64().map(|d| d as i32);
                v.as_array().into_iter().flatten().map(dim).collect()
            };
            let inside = here.with_axis_types(axis, AxisType::Manual).unwrap_or_else(|_| here.clone());
            let run = |args: &Vec<Array>| program(env, inside.clone(), body, args);
            let out_dims = dims(&params["out_axes"]);
            match &params["in_axes"] {
                Value::Array(_) => {
                    smap(&here, axis, dims(&params["in_axes"]), out_dims, run).call(&arrays)?
                }
                _ => smap(&here, axis, Inferred, out_dims, run).call(&arrays)?,
            }
        }
        "auto_axes" | "explicit_axes" => {
            let (from, to, which) = match op {
                "auto_axes" => (AxisType::Explicit, AxisType::Auto, "out_sharding"),
                _ => (AxisType::Auto, AxisType::Explicit, "in_sharding"),
            };
            let over: Axes = match params.get("axes") {
                None | Some(Value::Null) => here.axes_of(from).into(),
                Some(names) => axes(names),
            };
            // If the axes are wrong, the equation is rejected and its body is not run.
            let inside = here.with_axis_types(&over, to).unwrap_or_else(|_| here.clone());
            let run = |args: Vec<Array>| program(env, inside.clone(), body, &args);
            let specs = specs(&params[which]);
            match op {
                "auto_axes" => atmesh::auto_axes_over(over, arrays, specs, run),
                _ => atmesh::explicit_axes_over(over, arrays, specs, run),
            }
        }
        "checkpoint" => {
            atmesh::checkpoint_with(arrays, policy(&params["policy"], body), |args: Vec<Array>| run(&args))
        }
        "grad" | "value_and_grad" => {
            let wrt = ops::sizes(&params["wrt"]);
            let at: Vec<Array> = wrt.iter().map(|i| arrays[*i].clone()).collect();
            let loss = |at: Vec<Array>| {
                let mut args = arrays.clone();
                for (i, a) in wrt.iter().zip(at) {
                    args[*i] = a;
                }
                run(&args)?.into_iter().next().ok_or_else(|| env.missing("a loss without returns"))
            };
            if op == "grad" {
                atmesh::grad(at, loss)
            } else {
                let (value, grads) = atmesh::value_and_grad(at, loss);
                [value].into_iter().chain(grads).collect()
            }
        }
        "vjp" => {
            let n = body["args"].as_array().map_or(0, Vec::len);
            let (at, cotangents) = (arrays[..n].to_vec(), arrays[n..].to_vec());
            let (values, pull) = atmesh::vjp(at, |args: Vec<Array>| run(&args));
            values.into_iter().chain(pull.call(cotangents)).collect()
        }
        "jvp" => {
            let n = arrays.len() / 2;
            let (at, tangents) = (arrays[..n].to_vec(), arrays[n..].to_vec());
            let (values, tangents) = atmesh::jvp(at, tangents, |args: Vec<Array>| run(&args));
            values.into_iter().chain(tangents).collect()
        }
        "linearize" => {
            let n = arrays.len() / 2;
            let (at, tangents) = (arrays[..n].to_vec(), arrays[n..].to_vec());
            let (values, push) = atmesh::linearize(at, |args: Vec<Array>| run(&args));
            values.into_iter().chain(push.call(tangents)).collect()
        }
        "jacfwd" | "jacrev" | "hessian" => jacobians(env, op, &arrays, &ops::sizes(&params["wrt"]), &run),
        "custom_vjp" | "custom_jvp" => custom_rule(&here, env, e, arrays, &run),
        other => return Err(env.missing(other)),
    };
    // An empty tree could not be built: its error is in the trace.
    if results.is_empty() && outs > 0 {
        env.found.borrow_mut().emptied.get_or_insert(e["out"][0].as_str().unwrap_or("").into());
        return Err(Error::other("a body was rejected"));
    }
    Ok(results.into_iter().map(Val::Array).collect())
}
