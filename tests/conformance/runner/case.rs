//! The three kinds of cases.

use super::check::{self, numbers};
use super::error_checks::flaw;
use super::kinds::case_name;
use super::ops::{self, Val};
use super::{Failure, nested};
use atmesh::program::Program;
use atmesh::{
    Array, ArrayType, Axes, AxisType, DType, EngineKind, Error, Mesh, Scalar, Shape, Sharding, Spec, jit,
};
use half::{bf16, f16};
use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeMap;

/// The state while a case's program is traced.
pub(crate) struct Env<'a> {
    /// The mesh as seen by the program at this point.
    pub mesh: Mesh,
    /// The values by name.
    pub names: BTreeMap<String, Val>,
    /// The findings of the trace.
    pub found: &'a RefCell<Found>,
}

/// The findings of a trace: types by name, and the innermost error.
#[derive(Default)]
pub(crate) struct Found {
    pub types: BTreeMap<String, String>,
    /// The name of the rejected equation, the kind of its error, and the full text.
    pub rejected: Option<(String, String, String)>,
    /// The equation whose number of results could not be determined: its error becomes the error of
    /// the trace.
    pub emptied: Option<String>,
    /// A fault in the presentation of an error.
    pub flaw: Option<String>,
    /// An operation that is not implemented, or a case that cannot be read.
    pub missing: Option<String>,
}

impl Env<'_> {
    /// Returns a nested environment for the names of a nested program, on another mesh.
    pub(crate) fn inside(&self, mesh: Mesh) -> Env<'_> {
        Env { mesh, names: self.names.clone(), found: self.found }
    }
    pub(crate) fn bind(&mut self, name: &str, value: Val) {
        self.found.borrow_mut().types.entry(name.into()).or_insert_with(|| value.type_text());
        self.names.insert(name.into(), value);
    }
    /// Records that something is not implemented; returns an error that ends the trace.
    pub(crate) fn missing(&self, what: impl Into<String>) -> Error {
        let what = what.into();
        self.found.borrow_mut().missing.get_or_insert(what.clone());
        Error::other(what)
    }
    /// Records that the equation binding `name` was rejected; inner errors come first.
    pub(crate) fn rejected(&self, name: &str, error: &Error) {
        if self.found.borrow().emptied.is_some() {
            return;
        }
        let kind = case_name(error.kind()).to_string();
        if let Some(flaw) = flaw(error) {
            self.found.borrow_mut().flaw.get_or_insert(flaw);
        }
        self.found.borrow_mut().rejected.get_or_insert((name.into(), kind, format!("{error}")));
    }
}

/// Parses the mesh of a case.
pub(crate) fn mesh(v: &Value) -> Result<Mesh, String> {
    let axes = v["axes"].as_array().ok_or("no axes")?;
    let types = v["types"].as_array().ok_or("no types")?;
    let axes = axes.iter().zip(types).map(|(a, t)| {
        let ty = match t.as_str() {
            Some("auto") => AxisType::Auto,
            Some("manual") => AxisType::Manual,
            _ => AxisType::Explicit,
        };
        (a[0].as_str().unwrap_or(""), a[1].as_u64().unwrap_or(0) as usize, ty)
    });
    Mesh::with_types(axes).map_err(|e| format!("{e}"))
}

/// Parses one axis or several.
pub(crate) fn axes(v: &Value) -> Axes {
    match v {
        Value::String(a) => Axes::from(a.as_str()),
        Value::Array(list) => list.iter().filter_map(Value::as_str).map(Into::into).collect(),
        _ => Axes::none(),
    }
}

/// Parses a PartitionSpec: a list, or an object with the reduced and unreduced axes.
pub(crate) fn spec(v: &Value) -> Spec {
    match v {
        Value::Array(entries) => Spec::from_dims(entries.iter().map(axes).collect()),
        Value::Object(o) => {
            let set = |name: &str| o.get(name).map(axes).unwrap_or_default();
            let dims = o.get("spec").map_or_else(|| Spec::from_dims(Vec::new()), spec);
            dims.unreduced(set("unreduced")).reduced(set("reduced"))
        }
        _ => Spec::from_dims(Vec::new()),
    }
}

/// Returns an argument: the data that its rule generates, placed on the mesh.
fn argument(arg: &Value, mesh: &Mesh) -> Result<Array, Failure> {
    let text = arg["type"].as_str().ok_or("an argument without type")?;
    let ty = ArrayType::parse(text, mesh).map_err(|e| format!("type {text}: {e}"))?;
    let spec = match arg.get("spec") {
        Some(s) => spec(s).unreduced(ty.spec.unreduced_axes()).reduced(ty.spec.reduced_axes()),
        None => ty.spec,
    };
    let whole = data(&arg["data"], ty.dtype, &ty.shape)?;
    Ok(whole.put(mesh, spec))
}

fn data(rule: &Value, dtype: DType, shape: &Shape) -> Result<Array, String> {
    if dtype.is_complex() {
        // The parts are pairs in a list, or a real array with an extra last dimension of 2.
        let flat = match rule["list"].as_array() {
            Some(pairs) => {
                serde_json::json!({ "list": pairs.iter().filter_map(Value::as_array).flatten().collect::<Vec<_>>() })
            }
            None => rule.clone(),
        };
        let both = data(&flat, dtype.real(), &shape.iter().copied().chain([2]).collect())?;
        let part = |k: i64| both.slice(atmesh::ix![atmesh::Ellipsis, k]);
        return Ok(part(0).complex(part(1)));
    }
    let n = shape.num_elements();
    let float = |v: &Value| numbers::float(v);
    let of_floats = |xs: Vec<f64>| -> Result<Array, String> {
        let ints = || xs.iter().map(|x| *x as i128).collect::<Vec<i128>>();
        array_from(dtype, shape, &xs, &ints())
    };
    if let Some(list) = rule["list"].as_array() {
        let floats: Vec<f64> = list.iter().map(float).collect();
        let ints: Vec<i128> = list.iter().map(numbers::int).collect();
        return array_from(dtype, shape, &floats, &ints);
    }
    if let Some(iota) = rule["iota"].as_array() {
        let (start, step) = (float(&iota[0]), float(&iota[1]));
        return of_floats((0..n).map(|i| start + step * i as f64).collect());
    }
    if let Some(s) = rule["hash"].as_u64() {
        let hash = |i: u64| -> u32 {
            let h = (i.wrapping_mul(2654435761).wrapping_add(s * 40503 + 12345) & 0xffff_ffff) as u32;
            let h = (h ^ (h >> 15)).wrapping_mul(2246822519);
            h ^ (h >> 13)
        };
        let all = (0..n as u64).map(hash);
        return match dtype {
            d if d.is_float() => of_floats(all.map(|h| f64::from(h) / 4294967296.0 * 2.0 - 1.0).collect()),
            DType::Bool => of_floats(all.map(|h| f64::from(h % 2)).collect()),
            _ => of_floats(all.map(|h| f64::from(h % 17)).collect()),
        };
    }
    Err(format!("data {rule} is none that is known"))
}

/// Returns an array of these floats or, for integer types, of these integers, which wrap.
fn array_from(dtype: DType, shape: &Shape, floats: &[f64], ints: &[i128]) -> Result<Array, String> {
    macro_rules! int {
        ($t:ty) => {
            Array::from(ints.iter().map(|x| *x as $t).collect::<Vec<$t>>())
        };
    }
    let flat = match dtype {
        DType::Bool => Array::from(floats.iter().map(|x| *x != 0.0).collect::<Vec<bool>>()),
        DType::I8 => int!(i8),
        DType::I16 => int!(i16),
        DType::I32 => int!(i32),
        DType::I64 => int!(i64),
        DType::U8 => int!(u8),
        DType::U16 => int!(u16),
        DType::U32 => int!(u32),
        DType::U64 => int!(u64),
        DType::F16 => Array::from(floats.iter().map(|x| Scalar::Float(*x).to_f16()).collect::<Vec<f16>>()),
        DType::BF16 => Array::from(floats.iter().map(|x| Scalar::Float(*x).to_bf16()).collect::<Vec<bf16>>()),
        DType::F32 => Array::from(floats.iter().map(|x| *x as f32).collect::<Vec<f32>>()),
        DType::F64 => Array::from(floats.to_vec()),
        other => return Err(format!("arguments of type {other}")),
    };
    Ok(flat.reshape(shape))
}

/// Returns the results of a program case, ignoring what it expects.
pub(crate) fn results(case: &Value, engine: EngineKind) -> Result<Vec<Array>, String> {
    let mesh = mesh(&case["mesh"])?;
    let args = case["args"].as_array().ok_or("no args")?;
    let values = args.iter().map(|a| argument(a, &mesh)).collect::<Result<Vec<_>, _>>();
    let values = values.map_err(|e| format!("{e:?}"))?;
    let found = RefCell::new(Found::default());
    let f = jit(|inputs: &Vec<Array>| -> atmesh::Result<Vec<Array>> {
        let mut env = Env { mesh: mesh.clone(), names: BTreeMap::new(), found: &found };
        for (arg, input) in args.iter().zip(inputs) {
            env.names.insert(arg["name"].as_str().unwrap_or("").into(), Val::Array(input.clone()));
        }
        nested::equations(&mut env, &case["body"])?;
        nested::results(&env, &case["returns"])
    });
    let results = f.on(&mesh).engine(engine).call(&values).map_err(|e| format!("{e}"))?;
    for (name, x) in case["returns"].as_array().into_iter().flatten().zip(&results) {
        check::shards(name.as_str().unwrap_or(""), x)?;
    }
    Ok(results)
}

/// Runs a program case. `seen` receives the trace of an accepted case, and returns whether to
/// execute it.
pub(crate) fn program(
    case: &Value,
    engine: EngineKind,
    seen: &mut dyn FnMut(&Program) -> bool,
) -> Result<(), Failure> {
    let mesh = mesh(&case["mesh"])?;
    let args = case["args"].as_array().ok_or("no args")?;
    let names: Vec<&str> = args.iter().filter_map(|a| a["name"].as_str()).collect();
    let values: Vec<Array> = args.iter().map(|a| argument(a, &mesh)).collect::<Result<_, _>>()?;
    let expect = &case["expect"];
    for (arg, value) in args.iter().zip(&values) {
        if let Err(e) = value.ty() {
            return Err(format!("argument {}: {e}", arg["name"]).into());
        }
    }
    let found = RefCell::new(Found::default());
    let f = jit(|inputs: &Vec<Array>| -> atmesh::Result<Vec<Array>> {
        // The program may be traced again for a later stage; the last trace counts.
        *found.borrow_mut() = Found::default();
        let mut env = Env { mesh: mesh.clone(), names: BTreeMap::new(), found: &found };
        for (name, input) in names.iter().zip(inputs) {
            env.names.insert(name.to_string(), Val::Array(input.clone()));
        }
        nested::equations(&mut env, &case["body"])?;
        nested::results(&env, &case["returns"])
    });
    let f = f.on(&mesh).engine(engine);
    let outcome = f.trace(&values);
    // A case that the reference rejects needlessly may be accepted, with these values and any
    // sharding.
    let welcome = case.get("welcome").filter(|_| outcome.is_ok() && found.borrow().rejected.is_none());
    let expect = welcome.unwrap_or(expect);
    {
        let found = found.borrow();
        if let Some(what) = &found.missing {
            return Err(Failure::Unbuilt(what.clone()));
        }
        let flaw = found.flaw.clone().or_else(|| outcome.as_ref().err().and_then(flaw));
        if let Some(flaw) = flaw {
            return Err(flaw.into());
        }
        let emptied = match (&found.rejected, &found.emptied, &outcome) {
            (None, Some(name), Err(e)) => {
                Some((name.clone(), case_name(e.kind()).to_string(), format!("{e}")))
            }
            _ => None,
        };
        check::error(expect, found.rejected.as_ref().or(emptied.as_ref()), outcome.as_ref().err())?;
        if expect.get("error").is_some() {
            return Ok(());
        }
        let whole: BTreeMap<String, String> =
            found.types.iter().map(|(name, ty)| (name.clone(), check::unsharded(ty))).collect();
        check::types(&expect["types"], if welcome.is_some() { &whole } else { &found.types })?;
    }
    let traced = outcome.map_err(|e| format!("{e}"))?;
    if !seen(traced.program()) {
        return Ok(());
    }
    // Call it as users do: an equal program that ran before is not compiled again.
    let results = f.call(&values).map_err(|e| format!("did not run: {e}"))?;
    let tol = case["tol"].as_f64().unwrap_or(1e-5);
    let wanted = expect["values"].as_array().ok_or("no values")?;
    let returns = case["returns"].as_array().ok_or("no returns")?;
    if results.len() != wanted.len() {
        return Err(format!("{} results, {} wanted", results.len(), wanted.len()).into());
    }
    for (k, ((name, got), want)) in returns.iter().zip(&results).zip(wanted).enumerate() {
        let name = name.as_str().unwrap_or("");
        if let Some(text) = expect["types"][name].as_str() {
            let got = atmesh::type_of(got).to_string();
            let got = if welcome.is_some() { check::unsharded(&got) } else { got };
            if got != text {
                return Err(format!("result {name} has type {got}, wanted {text}").into());
            }
        }
        check::values(name, got, want, tol, case["up_to_sign"][k].as_str())?;
        check::shards(name, got)?;
    }
    Ok(())
}

/// Runs a residuals case: compares the types of the values that a checkpoint saves.
pub(crate) fn residuals(case: &Value) -> Result<(), Failure> {
    let mesh = mesh(&case["mesh"])?;
    let args = case["args"].as_array().ok_or("no args")?;
    let names: Vec<&str> = args.iter().filter_map(|a| a["name"].as_str()).collect();
    let values: Vec<Array> = args.iter().map(|a| argument(a, &mesh)).collect::<Result<_, _>>()?;
    let (found, saved) = (RefCell::new(Found::default()), RefCell::new(Vec::new()));
    let program = |inputs: Vec<Array>| -> atmesh::Result<Vec<Array>> {
        let mut env = Env { mesh: mesh.clone(), names: BTreeMap::new(), found: &found };
        for (name, input) in names.iter().zip(&inputs) {
            env.names.insert(name.to_string(), Val::Array(input.clone()));
        }
        nested::equations(&mut env, &case["body"])?;
        nested::results(&env, &case["returns"])
    };
    let f = jit(|inputs: &Vec<Array>| {
        let (values, pullback) = atmesh::vjp(inputs, program);
        *saved.borrow_mut() = pullback.residuals();
        values
    });
    let outcome = f.on(&mesh).trace(&values);
    if let Some(what) = &found.borrow().missing {
        return Err(Failure::Unbuilt(what.clone()));
    }
    outcome.map_err(|e| format!("{e}"))?;
    let mut got: Vec<String> = saved.borrow().iter().map(ToString::to_string).collect();
    let wanted = case["expect"]["residuals"].as_array().ok_or("no residuals")?;
    let mut want: Vec<&str> = wanted.iter().filter_map(Value::as_str).collect();
    got.sort_unstable();
    want.sort_unstable();
    if got == want { Ok(()) } else { Err(format!("saves {got:?}, wanted {want:?}").into()) }
}

/// Runs a layout case.
pub(crate) fn layout(case: &Value) -> Result<(), String> {
    let mesh = mesh(&case["mesh"])?;
    let shape: Shape = ops::sizes(&case["shape"]).into();
    let expect = &case["expect"];
    let held = Sharding::new(&mesh, spec(&case["spec"]), &shape)
        .and_then(|sharding| Ok((sharding.shard_shape(&shape)?, sharding)));
    let (local, sharding) = match (held, expect["error"].as_str()) {
        (Err(fault), Some(kind)) if case_name(fault.kind()) == kind => return Ok(()),
        (Err(fault), want) => return Err(format!("rejected ({}), wanted {want:?}", case_name(fault.kind()))),
        (Ok(_), Some(kind)) => return Err(format!("accepted, wanted an error of kind {kind}")),
        (Ok(held), None) => held,
    };
    let want: Shape = ops::sizes(&expect["shard_shape"]).into();
    if local != want {
        return Err(format!("shard shape {local}, wanted {want}"));
    }
    let wanted = expect["shards"].as_array().ok_or("no shards")?;
    let blocks = atmesh::sharding::blocks(&sharding, &shape).map_err(|e| format!("{e}"))?;
    if blocks.len() != wanted.len() {
        return Err(format!("{} shards, wanted {}", blocks.len(), wanted.len()));
    }
    for (i, (got, want)) in blocks.iter().zip(wanted).enumerate() {
        let index: Vec<Value> = got.index.iter().map(|r| serde_json::json!([r.start, r.end])).collect();
        if Value::from(index.clone()) != want["index"] || want["replica"].as_u64() != Some(got.replica as u64)
        {
            return Err(format!("device {i}: {index:?} replica {}, wanted {want}", got.replica));
        }
    }
    Ok(())
}

/// Runs a type case.
pub(crate) fn ty(case: &Value) -> Result<(), String> {
    let mut mesh = mesh(&case["mesh"])?;
    let text = case["text"].as_str().ok_or("no text")?;
    let expect = &case["expect"];
    // An axis over which values vary is a manual axis.
    let varying = axes(&expect["varying"]);
    if !varying.is_empty() {
        mesh = mesh.with_axis_types(&varying, AxisType::Manual).map_err(|e| format!("{e}"))?;
    }
    let got = match (ArrayType::parse(text, &mesh), expect["error"].as_str()) {
        (Err(e), Some(kind)) if case_name(e.kind()) == kind => return Ok(()),
        (Err(e), want) => return Err(format!("rejected ({}), wanted {want:?}: {e}", case_name(e.kind()))),
        (Ok(t), Some(kind)) => return Err(format!("read as {t}, wanted an error of kind {kind}")),
        (Ok(t), None) => t,
    };
    let same = |what: &str, got: String, want: String| {
        if got == want { Ok(()) } else { Err(format!("{what} is {got}, wanted {want}")) }
    };
    let want_shape: Shape = ops::sizes(&expect["shape"]).into();
    same("dtype", got.dtype.name().into(), expect["dtype"].as_str().unwrap_or("").into())?;
    same("shape", got.shape.to_string(), want_shape.to_string())?;
    let want_spec =
        spec(&expect["spec"]).unreduced(axes(&expect["unreduced"])).reduced(axes(&expect["reduced"]));
    same("spec", got.spec.to_string(), want_spec.padded(got.rank()).in_order(&mesh).to_string())?;
    same("varying", got.varying.to_string(), varying.to_string())?;
    same("print", got.to_string(), expect["print"].as_str().unwrap_or(text).into())?;
    same("short", got.short_text(), expect["short"].as_str().unwrap_or("").into())
}
