//! Functions of the crate, by name.

mod create;

use crate::error::ErrorResponse;
use crate::eval::{Eval, Interp};
use crate::methods::{Args, METHODS};
use crate::tree::specs;
use crate::value::{Record, Value};
use atmesh::{Array, CollectiveDim, Dims, Error, Key, Permutation, Sharding, VmapOptions};
use std::rc::Rc;

/// The names of the functions, in addition to the transformations.
const FUNCTIONS: &[&str] = &[
    "einsum",
    "einsum_to",
    "concat",
    "stack",
    "axis_index",
    "axis_size",
    "type_of",
    "devices",
    "Dims::keep",
    "CollectiveDim::tiled",
    "CollectiveDim::stacked",
    "AllToAll::split",
    "Permutation::ring",
    "Permutation::shift",
    "Mesh::new",
    "Mesh::auto",
    "Mesh::with_types",
    "Mesh::of_devices",
    "Mesh::without_devices",
    "Array::zeros",
    "Array::ones",
    "Array::full",
    "Array::iota",
    "Array::arange",
    "Array::arange_of",
    "Array::eye",
    "Array::from",
    "Key::new",
    "Key::from_array",
    "Sharding::new",
    "Error::other",
    "Vec::new",
    "Vec::with_capacity",
    "Vec::from",
    "String::new",
    "String::from",
    "Static",
    "Arc::new",
    "Rc::new",
    "Box::new",
    "VmapOptions::default",
    "ScanOptions::default",
    "CheckpointPolicy::named",
    "ImplicitReshard::Deny",
    "tree::put",
    "tree::leaves",
    "tree::zeros_like",
    "tree::cast",
    "debug_print",
    "rejected",
    "section",
    "figure",
    "communication",
    "ones",
    "named_scope",
    "meshgrid",
    "std::iter::repeat_n",
    "EngineKind::from_args",
    "Array::from_fn",
    "tree::put_stored",
    "tree::to_compute",
    "IndexOptions::default",
    "ArrayType::parse",
    "Cell::new",
    "RefCell::new",
    "Mutex::new",
    "BTreeMap::from",
    "BTreeMap::new",
    "fixed",
];
/// The functions of `nn`, by their last name, with the kinds of their arguments.
macro_rules! networks { ($($name:ident: $($path:ident)::+ ($($kind:ident),*);)*) => {
    const NETWORKS: &[&str] = &[$(stringify!($name)),*];
    #[track_caller]
    fn network(name: &str, args: &mut Args<'_>) -> Result<Option<Array>, ErrorResponse> {
        Ok(Some(match name {
            $(stringify!($name) => {
                let made = $($path)::+($(args.$kind()?),*);
                args.end()?;
                made
            })*
            _ => return Ok(None),
        }))
    }
} }
networks! {
    embed: atmesh::nn::embed(array, array);
    layer_norm: atmesh::nn::layer_norm(array, operand, operand);
    rms_norm: atmesh::nn::rms_norm(array, operand);
    dropout: atmesh::nn::dropout(key, float, array);
    softmax_cross_entropy_with_integer_labels: atmesh::nn::softmax_cross_entropy_with_integer_labels(array, array);
    normal: atmesh::nn::init::normal(key, array_type, float);
    uniform: atmesh::nn::init::uniform(key, array_type, float);
    he_normal: atmesh::nn::init::he_normal(key, array_type);
}
/// Paths that are values.
const CONSTANTS: &[&str] = &[
    "Explicit",
    "Auto",
    "Manual",
    "Same",
    "Valid",
    "Clip",
    "Fill",
    "Inferred",
    "NewAxis",
    "Ellipsis",
    "Lockstep",
    "Threads",
    "EngineKind",
    "AxisType",
    "Padding",
    "IndexMode",
    "CheckpointPolicy",
    "ImplicitReshard",
    "CollectiveKind",
    "Phase",
    "MemoryClass",
    "ConvolveMode",
    "PadMode",
    "ErrorKind",
    "AllReduce",
    "AllGather",
    "ReduceScatter",
    "Halo",
    "PermuteData",
    "DType",
];

/// Returns a name without the modules of the crate and of the standard library before it.
fn short(name: &str) -> &str {
    let modules = ["std::sync::", "std::rc::", "std::cell::", "std::collections::"];
    let name = modules.iter().find_map(|m| name.strip_prefix(m)).unwrap_or(name);
    name.strip_prefix("prelude::").unwrap_or(name)
}
fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// Returns true for a function of the crate.
pub(crate) fn is_function(name: &str) -> bool {
    let name = short(name);
    let plain = matches!(last(name), "normal" | "uniform") && !name.contains("init::");
    let network = NETWORKS.contains(&last(name)) && !plain;
    FUNCTIONS.contains(&name) || crate::transform::NAMES.contains(&name) || network
}

/// Returns true for a path that is a value here: a function, a method or a variant.
pub(crate) fn is_known(name: &str) -> bool {
    let name = short(name);
    let first = name.split("::").next().unwrap_or(name);
    let method = name.contains("::")
        && matches!(
            first,
            "Array"
                | "f32"
                | "f64"
                | "i32"
                | "i64"
                | "u64"
                | "usize"
                | "String"
                | "str"
                | "Vec"
                | "Option"
                | "Result"
                | "Key"
                | "ToString"
        );
    is_function(name) || CONSTANTS.contains(&first) || method || matches!(first, "Some" | "Ok" | "Err")
}

/// Evaluates `name(values)`.
#[track_caller]
pub(crate) fn function(interp: &Rc<Interp>, name: &str, generics: Option<&str>, values: &[Value]) -> Eval {
    let name = short(name);
    if let Some(made) = crate::transform::transform(interp, name, values)? {
        return Ok(made);
    }
    let args = &mut Args::new(name, values);
    if let Some(made) = network(last(name), args)? {
        return Ok(Value::Array(made));
    }
    if let Some(made) = scaffolding(interp, name, values)? {
        return Ok(made);
    }
    let made = match name.split_once("::").map_or("", |n| n.0) {
        "Mesh" => create::mesh(name, args)?,
        "Array" => create::new_array(name, args)?,
        "Vec" | "String" | "Arc" | "Rc" | "Box" | "std" | "Cell" | "RefCell" | "Mutex" | "BTreeMap" => {
            standard(name, args)?
        }
        _ => other(name, args)?,
    };
    let _ = generics;
    args.end()?;
    Ok(made)
}

fn standard(name: &str, args: &mut Args<'_>) -> Result<Value, ErrorResponse> {
    Ok(match name {
        "Vec::new" => Value::list([]),
        "Vec::with_capacity" => {
            args.any("a capacity")?;
            Value::list([])
        }
        "String::new" => Value::text(""),
        "Cell::new" | "RefCell::new" | "Mutex::new" => {
            Value::Cell(Rc::new(std::cell::RefCell::new(args.any("a value")?.clone())))
        }
        "BTreeMap::new" => Value::record("Map", []),
        "BTreeMap::from" => {
            let pairs = crate::library::iterate(args.any("pairs")?)?;
            let mut fields = Vec::new();
            for pair in &pairs {
                let (key, value) = (crate::eval::field(pair, "0")?, crate::eval::field(pair, "1")?);
                fields.push((crate::format::plain(&key).into(), value));
            }
            fields.sort_by(|a: &(crate::syntax::Name, Value), b| a.0.cmp(&b.0));
            Value::Struct(Rc::new(Record { name: "Map".into(), fields }))
        }
        "std::iter::repeat_n" => {
            let value = args.any("a value")?.clone();
            Value::list((0..args.number::<usize>()?.min(1 << 20)).map(|_| value.clone()))
        }
        _ => args.any("a value")?.clone(),
    })
}

#[track_caller]
fn other(name: &str, args: &mut Args<'_>) -> Result<Value, ErrorResponse> {
    Ok(match name {
        "einsum" => Value::Array(atmesh::einsum(args.text()?, args.arrays()?)),
        "einsum_to" => Value::Array(atmesh::einsum_to(args.text()?, args.arrays()?, args.spec()?)),
        "concat" => Value::Array(atmesh::concat(args.arrays()?, args.number()?)),
        "stack" => Value::Array(atmesh::stack(args.arrays()?, args.number()?)),
        "axis_index" => Value::Array(atmesh::axis_index(args.axes()?)),
        "axis_size" => Value::result(atmesh::axis_size(args.axes()?).map(Value::count)),
        "type_of" => Value::text(crate::format::type_text(args.any("a value")?)),
        "devices" => {
            let n: usize = args.number()?;
            Value::result(atmesh::devices(n.min(4096)).map(|d| Value::list(d.into_iter().map(Value::Device))))
        }
        "Dims::keep" => Value::Dims(Dims::keep(args.dims()?)),
        "CollectiveDim::tiled" => Value::Gather(CollectiveDim::tiled(args.number()?)),
        "CollectiveDim::stacked" => Value::Gather(CollectiveDim::stacked(args.number()?)),
        "AllToAll::split" => Value::Split(args.number()?),
        "Permutation::ring" => Value::Permutation(Permutation::ring(args.number()?)),
        "Permutation::shift" => Value::Permutation(Permutation::shift(args.number()?)),
        "Key::new" => Value::Key(Key::new(args.number()?)),
        "Key::from_array" => Value::Key(Key::from_array(args.array()?.clone())),
        "Sharding::new" => {
            let (mesh, spec, shape) = (args.mesh()?, args.spec()?, args.sizes()?);
            Value::result(Sharding::new(&mesh, spec, &shape).map(Value::Sharding))
        }
        "Error::other" => Value::Error(Error::other(args.text()?)),
        "Static" => Value::record("Static", [("0", args.any("a value")?.clone())]),
        "VmapOptions::default" => Value::Vmap(Rc::new(VmapOptions::default())),
        "ScanOptions::default" => Value::record("ScanOptions", []),
        "ImplicitReshard::Deny" => Value::record("Deny", [("bytes", args.any("a number of bytes")?.clone())]),
        "CheckpointPolicy::named" => {
            let Value::List(list) = args.any("names")?.inner() else {
                return Err(syntax_error!("names are a list"));
            };
            let fields = list.iter().map(|v| ("name".into(), v.clone())).collect();
            Value::Struct(Rc::new(Record { name: "CheckpointPolicy".into(), fields }))
        }
        "tree::put" => {
            let (tree, mesh) = (args.tree()?, args.mesh()?);
            atmesh::tree::put(&tree, &mesh, specs(args.any("specs")?)?).value()
        }
        "tree::put_stored" => {
            let (tree, mesh) = (args.tree()?, args.mesh()?);
            atmesh::tree::put_stored(&tree, &mesh, specs(args.any("specs")?)?).value()
        }
        "tree::to_compute" => atmesh::tree::to_compute(&args.tree()?, specs(args.any("specs")?)?).value(),
        "IndexOptions::default" => Value::record("IndexOptions", []),
        "EngineKind::from_args" => Value::result(Ok(Value::Path("Lockstep".into()))),
        "ArrayType::parse" => {
            let text = args.text()?;
            Value::result(atmesh::ArrayType::parse(text, &args.mesh()?).map(Value::Type))
        }
        "tree::leaves" => Value::arrays(atmesh::tree::leaves(&args.tree()?)),
        "tree::zeros_like" => atmesh::tree::zeros_like(&args.tree()?).value(),
        "tree::cast" => atmesh::tree::cast(&args.tree()?, args.dtype()?).value(),
        "debug_print" => {
            let template = args.text()?;
            atmesh::debug_print_values(template, &args.arrays()?);
            Value::Unit
        }
        _ => return Err(unknown("function", name)),
    })
}

/// Evaluates the helpers with which the book's programs print sections, errors and figures.
#[track_caller]
fn scaffolding(interp: &Rc<Interp>, name: &str, values: &[Value]) -> Eval<Option<Value>> {
    let args = &mut Args::new(name, values);
    Ok(Some(match name {
        "section" | "figure" => Value::result(Ok(Value::Unit)),
        "ones" => {
            let Some(Value::Mesh(mesh)) = interp.book_mesh() else { return Ok(None) };
            Value::Array(Array::ones(args.sizes()?).put(&mesh, args.spec()?))
        }
        "communication" => {
            let report = crate::objects::report(args.any("a report")?)?;
            Value::text(crate::objects::communication(&report))
        }
        "rejected" => {
            let value = values.last().cloned().unwrap_or(Value::Unit);
            let name = if let [Value::Text(name), _] = values { Some(name) } else { None };
            let error = match value {
                Value::Result(Err(e)) | Value::Error(e) => Some(e),
                Value::Array(x) => x.ty().err(),
                _ => None,
            };
            match error {
                Some(e) => {
                    let text = interp.error_text(&e);
                    let text = match name {
                        Some(name) => format!("== {name}\n{text}\n\n"),
                        None => format!("\n{text}\n\n"),
                    };
                    interp.print(&text, interp.position())?;
                    Value::result(Ok(Value::Unit))
                }
                None => Value::result(Err(Error::other("this was to be rejected"))),
            }
        }
        "fixed" => {
            let ty = args.array()?.ty();
            if let Ok(ty) = &ty {
                interp.print(&format!("fixed: {ty}\n\n"), interp.position())?;
            }
            Value::result(ty.map(|_| Value::Unit))
        }
        "named_scope" => {
            let name = crate::format::plain(args.any("a name")?);
            let f = args.function("of the scope")?;
            return atmesh::named_scope(name, || interp.apply(f, Vec::new())).map(Some);
        }
        "Array::from_fn" => {
            let (shape, sharding) = (args.sizes()?, args.sharding()?);
            let f = args.function("of the ranges of a block")?;
            return create::from_fn(interp, shape, &sharding, f).map(Some);
        }
        _ => return Ok(None),
    }))
}

/// Returns the error for an unknown name, which suggests the most similar known name.
pub(crate) fn unknown(what: &str, name: &str) -> ErrorResponse {
    if let Some(refusal) = crate::refuse::name(name) {
        return refusal;
    }
    let names: Vec<&str> = match what {
        "method" => METHODS.to_vec(),
        _ => FUNCTIONS.iter().chain(crate::transform::NAMES).chain(NETWORKS).copied().collect(),
    };
    let mut response = ErrorResponse::unknown(format!("the playground knows no {what} `{name}`"));
    if what == "function" {
        response = response.missing();
    }
    let near = names.iter().map(|n| (distance(name, n), *n)).min();
    match near {
        Some((d, near)) if d <= 2 => response.help(format!("there is `{near}`"), None),
        _ => response
            .help("it runs natively: this page has the parts of the crate that programs use most", None),
    }
}

/// Returns the edit distance: the number of insertions, deletions and substitutions.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.chars().count()).collect();
    for (i, x) in a.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = i + 1;
        for (j, y) in b.chars().enumerate() {
            let other = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = other.min(row[j] + 1).min(row[j + 1] + 1);
        }
    }
    row.last().copied().unwrap_or(0)
}
