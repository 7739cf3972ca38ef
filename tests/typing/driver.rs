//! Cases of the conformance files as programs of primitives.

use crate::evaluate::{Data, evaluate};
use crate::kinds::case_name;
use crate::scalar::convert;
use atmesh::diagnostic::{ErrorKind, Fault};
use atmesh::mesh::{Axes, AxisType};
use atmesh::ops::creation::{Full, Iota};
use atmesh::ops::dot_general::DotGeneral;
use atmesh::ops::elementwise::{Binary, Bitcast, Clamp, Convert, Select, Unary};
use atmesh::ops::random::{RandomBits, RandomFoldIn, RandomKeyData, RandomSplit};
use atmesh::ops::reduce::{Reduce, Reduction};
use atmesh::ops::shape::{BroadcastInDim, ExpandDims, Reshape, Rev, Squeeze, Transpose};
use atmesh::ops::sharding::Reshard;
use atmesh::ops::slicing::{Concatenate, Pad, Slice};
use atmesh::program::{Builder, Prim, Primitive as _, Value};
use atmesh::types::{ArrayType, DType, Scalar, Shape};
use atmesh::{Error, Mesh, Spec};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::Arc;

/// The outcome of a case.
pub(crate) enum Outcome {
    Passed,
    Failed(String),
    /// The case has an operation that is not a primitive here.
    Skipped(String),
}

pub(crate) enum Stop {
    Rejected(Error),
    NotHere(String),
}
impl From<Error> for Stop {
    fn from(e: Error) -> Stop {
        Stop::Rejected(e)
    }
}

pub(crate) fn mesh(case: &Json) -> Mesh {
    let (axes, types) = (&case["mesh"]["axes"], &case["mesh"]["types"]);
    let axes = axes.as_array().unwrap().iter().zip(types.as_array().unwrap());
    Mesh::with_types(axes.map(|(a, t)| {
        let ty = if t == "explicit" { AxisType::Explicit } else { AxisType::Auto };
        (a[0].as_str().unwrap(), a[1].as_u64().unwrap() as usize, ty)
    }))
    .unwrap()
}
pub(crate) fn axes(v: &Json) -> Axes {
    match v {
        Json::Null => Axes::none(),
        Json::String(a) => Axes::from(a.as_str()),
        several => several.as_array().unwrap().iter().map(|a| a.as_str().unwrap().into()).collect(),
    }
}
pub(crate) fn spec(v: &Json) -> Option<Spec> {
    let list = if v.is_object() { &v["spec"] } else { v };
    let dims = list.as_array()?.iter().map(axes).collect();
    Some(Spec::from_dims(dims).unreduced(axes(&v["unreduced"])).reduced(axes(&v["reduced"])))
}
pub(crate) fn sizes(v: &Json) -> Vec<usize> {
    match v {
        Json::Array(list) => list.iter().map(|n| n.as_i64().unwrap() as usize).collect(),
        Json::Null => Vec::new(),
        n => vec![n.as_i64().unwrap() as usize],
    }
}
fn dtype(p: &Json, default: DType) -> DType {
    p["dtype"].as_str().map_or(default, |d| DType::from_name(d).unwrap())
}
fn snake(f: &Unary) -> &'static str {
    f.name()
}

/// Returns the elements that an input's `data` describes.
pub(crate) fn fill(data: &Json, ty: &ArrayType) -> Data {
    let n = ty.shape.num_elements();
    if let Some(list) = data["list"].as_array() {
        return list.iter().map(|v| convert(number(v), ty.dtype)).collect();
    }
    if let Some(iota) = data["iota"].as_array() {
        let (start, step) = (iota[0].as_f64().unwrap(), iota[1].as_f64().unwrap());
        return (0..n)
            .map(|i| {
                let x = start + step * i as f64;
                if ty.dtype.is_float() {
                    convert(Scalar::Float(x), ty.dtype)
                } else {
                    convert(Scalar::Int(x as i128), ty.dtype)
                }
            })
            .collect();
    }
    let s = data["hash"].as_u64().unwrap();
    (0..n as u64)
        .map(|i| {
            let mut h = (i * 2_654_435_761 + s * 40_503 + 12_345) % (1 << 32);
            h ^= h >> 15;
            h = h * 2_246_822_519 % (1 << 32);
            h ^= h >> 13;
            let x = match ty.dtype {
                DType::Bool => Scalar::Bool(h % 2 == 1),
                d if d.is_float() => Scalar::Float(h as f64 / 4_294_967_296.0 * 2.0 - 1.0),
                _ => Scalar::Int(i128::from(h % 17)),
            };
            convert(x, ty.dtype)
        })
        .collect()
}
pub(crate) fn number(v: &Json) -> Scalar {
    match v {
        Json::Bool(b) => Scalar::Bool(*b),
        Json::String(s) => Scalar::Float(s.parse().unwrap()),
        v => v.as_i64().map_or_else(|| Scalar::Float(v.as_f64().unwrap()), |i| Scalar::Int(i.into())),
    }
}

/// Returns the primitive of an equation, given the element type of its first operand.
pub(crate) fn primitive(e: &Json, beside: Option<DType>, mesh: &Mesh) -> Option<Prim> {
    let (op, p) = (e["op"].as_str()?, &e["params"]);
    let out = spec(&p["out_sharding"]);
    let created = |dtype: DType, shape: &Json| {
        let shape = Shape::from(sizes(shape));
        let spec = out.unwrap_or(Spec::replicated(shape.rank()));
        ArrayType { mesh: Some(mesh.clone()), spec, ..dtype.array_type(shape) }
    };
    if let Some(f) = Unary::PLAIN.iter().find(|f| snake(f) == op) {
        return Some(Arc::new(*f));
    }
    if let Some(f) = Binary::ALL.iter().find(|f| f.name() == op) {
        return Some(Arc::new(*f));
    }
    let pair = |v: &Json| [sizes(&v[0]), sizes(&v[1])];
    let reduction = match op {
        "reduce_sum" => Some(Reduction::Sum),
        "reduce_max" => Some(Reduction::Max),
        "reduce_min" => Some(Reduction::Min),
        "reduce_prod" => Some(Reduction::Prod),
        "reduce_and" => Some(Reduction::And),
        "reduce_or" => Some(Reduction::Or),
        _ => None,
    };
    if let Some(kind) = reduction {
        return Some(Arc::new(Reduce::new(kind, &sizes(&p["axes"]), out)));
    }
    Some(match op {
        "gelu" => Arc::new(Unary::Gelu { approximate: p["approximate"].as_bool().unwrap_or(true) }),
        "integer_pow" => Arc::new(Unary::IntegerPow(p["y"].as_i64().unwrap() as i32)),
        "select" => Arc::new(Select),
        "clamp" => Arc::new(Clamp),
        "convert_element_type" => Arc::new(Convert { dtype: dtype(p, DType::F32) }),
        "bitcast_convert_type" => Arc::new(Bitcast { dtype: dtype(p, DType::F32) }),
        "dot_general" => Arc::new(DotGeneral {
            contracting: pair(&p["contracting"]),
            batch: pair(&p["batch"]),
            out_sharding: out,
            accum_dtype: p["preferred_element_type"].as_str().map(|d| DType::from_name(d).unwrap()),
            ..DotGeneral::default()
        }),
        "full" | "zeros" | "ones" => {
            let ty = created(dtype(p, DType::F32), &p["shape"]);
            let value = match op {
                "zeros" => Scalar::zero(ty.dtype),
                "ones" => Scalar::one(ty.dtype),
                _ => convert(number(&p["value"]), ty.dtype),
            };
            Arc::new(Full { ty, value })
        }
        "iota" => Arc::new(Iota {
            ty: created(dtype(p, DType::F32), &p["shape"]),
            dimension: p["dimension"].as_u64().unwrap() as usize,
        }),
        "random_key" => {
            let seed = p["seed"].as_u64().unwrap();
            Arc::new(Full { ty: DType::Key.array_type([]), value: Scalar::Int(i128::from(seed) << 32) })
        }
        "random_split" => Arc::new(RandomSplit { ty: created(DType::Key, &p["num"]), num_key_dims: 0 }),
        "random_fold_in" => Arc::new(RandomFoldIn),
        "random_key_data" => Arc::new(RandomKeyData),
        "transpose" => Arc::new(Transpose { permutation: sizes(&p["permutation"]) }),
        "reshape" => Arc::new(Reshape { new_sizes: sizes(&p["new_sizes"]).into(), out_sharding: out }),
        "squeeze" => Arc::new(Squeeze { dimensions: sizes(&p["dimensions"]) }),
        "expand_dims" => Arc::new(ExpandDims { dimensions: sizes(&p["dimensions"]) }),
        "rev" => Arc::new(Rev { dimensions: sizes(&p["dimensions"]) }),
        "broadcast_in_dim" => Arc::new(BroadcastInDim {
            shape: sizes(&p["shape"]).into(),
            broadcast_dimensions: sizes(&p["broadcast_dimensions"]),
            out_sharding: out,
        }),
        "concatenate" => Arc::new(Concatenate { dimension: p["dimension"].as_i64().unwrap() as usize }),
        "slice" => {
            let (start, limit) = (sizes(&p["start"]), sizes(&p["limit"]));
            let strides = if p["strides"].is_null() { vec![1; start.len()] } else { sizes(&p["strides"]) };
            Arc::new(Slice { start, limit, strides, out_sharding: out })
        }
        "pad" => {
            let list =
                |v: &Json| v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect::<Vec<_>>();
            let (low, high) = (list(&p["low"]), list(&p["high"]));
            let interior = if p["interior"].is_null() { vec![0; low.len()] } else { sizes(&p["interior"]) };
            let value = convert(number(&e["in"][1]["lit"]), beside?);
            Arc::new(Pad { low, high, interior, value, out_sharding: out })
        }
        "reshard" => Arc::new(Reshard::new(mesh.clone(), spec(&p["spec"]).unwrap())),
        "random_bits" => {
            Arc::new(RandomBits { ty: created(dtype(p, DType::U32), &p["shape"]), num_key_dims: 0 })
        }
        _ => return None,
    })
}

/// Returns the operands: a literal takes the element type of the other operand.
fn operands(e: &Json, known: &HashMap<String, Value>) -> Result<Vec<Value>, Stop> {
    let op = e["op"].as_str().unwrap();
    let named = |v: &Json| v.as_str().map(|n| known[n].clone());
    let ins = e["in"].as_array().unwrap();
    let ins = if op == "pad" { &ins[..1] } else { &ins[..] };
    let skip = usize::from(op == "select");
    let beside = ins.iter().skip(skip).find_map(named).map(|v| v.ty.dtype);
    ins.iter()
        .enumerate()
        .map(|(k, v)| {
            if let Some(v) = named(v) {
                return Ok(v);
            }
            let lit = &v["lit"];
            let value = number(lit);
            let dtype = match (op, k) {
                ("random_fold_in", _) => DType::I32,
                ("select", 0) => DType::Bool,
                _ => beside.ok_or_else(|| Stop::NotHere("numbers alone".into()))?,
            };
            let fits = match value {
                Scalar::Bool(_) => dtype == DType::Bool,
                Scalar::Int(_) => dtype != DType::Bool,
                Scalar::Float(_) => dtype.is_inexact(),
                Scalar::Complex(..) => dtype.is_complex(),
            };
            if !fits {
                return Err(Error::from(Fault::new(ErrorKind::Dtype, format!("{lit} is no {dtype}"))).into());
            }
            let value = if dtype.is_float() { Scalar::Float(value.to_f64()) } else { value };
            Ok(Value::literal(dtype, value))
        })
        .collect()
}

/// Compares the types and values of a case with the expected ones.
pub(crate) fn check(case: &Json) -> Outcome {
    let mesh = mesh(case);
    let mut b = Builder::new();
    b.set_default_mesh(&mesh);
    let (mut known, mut inputs) = (HashMap::new(), Vec::new());
    for a in case["args"].as_array().unwrap() {
        let ty = ArrayType::parse(a["type"].as_str().unwrap(), &mesh).unwrap();
        inputs.push(fill(&a["data"], &ty));
        known.insert(a["name"].as_str().unwrap().to_string(), b.input(ty, None));
    }
    let expect = &case["expect"];
    for e in case["body"].as_array().unwrap() {
        let (op, name) = (e["op"].as_str().unwrap(), e["out"][0].as_str().unwrap());
        let beside = e["in"][0].as_str().map(|n| known[n].ty.dtype);
        let nested = e.get("body").is_some() || e.get("branches").is_some();
        let arg = match op {
            "argmax" => Some(Reduction::Max),
            "argmin" => Some(Reduction::Min),
            _ => None,
        };
        let prim = if nested { None } else { primitive(e, beside, &mesh) };
        let typed = operands(e, &known).and_then(|ins| match (prim, arg) {
            (Some(prim), _) => Ok(b.emit(prim, &ins)?),
            (None, Some(kind)) => {
                let axis = e["params"]["axis"].as_i64().unwrap() as usize;
                Ok(vec![b.arg_extreme(kind, &ins[0], axis)?])
            }
            (None, None) => Err(Stop::NotHere(op.into())),
        });
        match typed {
            Ok(values) => {
                if expect["at"] == name {
                    return Outcome::Failed(format!("{name} is {}, not rejected", values[0].ty));
                }
                for (name, v) in e["out"].as_array().unwrap().iter().zip(values) {
                    let name = name.as_str().unwrap();
                    if let Some(want) = expect["types"][name].as_str()
                        && want != v.ty.to_string()
                    {
                        return Outcome::Failed(format!("{name} is {}, not {want}", v.ty));
                    }
                    known.insert(name.to_string(), v);
                }
            }
            Err(Stop::NotHere(why)) => return Outcome::Skipped(why),
            Err(Stop::Rejected(error)) => {
                let right = expect["at"] == name && expect["error"] == case_name(error.kind());
                return if right {
                    Outcome::Passed
                } else {
                    Outcome::Failed(format!("{error}\nexpected {expect}"))
                };
            }
        }
    }
    let returns: Vec<Value> =
        case["returns"].as_array().unwrap().iter().map(|n| known[n.as_str().unwrap()].clone()).collect();
    let results = evaluate(&b.finish(&returns), &inputs);
    let tol = case["tol"].as_f64().unwrap_or(1e-5);
    for ((got, want), v) in results.iter().zip(expect["values"].as_array().unwrap()).zip(&returns) {
        if let Some(why) = differs(got, want, v.ty.dtype, tol) {
            return Outcome::Failed(format!("{}: {why}", v.ty));
        }
    }
    Outcome::Passed
}

pub(crate) fn differs(got: &Data, want: &Json, dtype: DType, tol: f64) -> Option<String> {
    let want: Vec<Scalar> = want.as_array().unwrap().iter().map(number).collect();
    let words = |x: &Scalar| {
        let x = x.to_i128();
        [Scalar::Int(x & 0xffff_ffff), Scalar::Int(x >> 32)]
    };
    let got: Data = if dtype == DType::Key { got.iter().flat_map(words).collect() } else { got.clone() };
    if got.len() != want.len() {
        return Some(format!("{} elements, not {}", got.len(), want.len()));
    }
    let near = |(g, w): (&Scalar, &Scalar)| {
        if !dtype.is_float() {
            return g.to_i128() == w.to_i128();
        }
        let (g, w) = (g.to_f64(), w.to_f64());
        g == w || g.is_nan() && w.is_nan() || (g - w).abs() <= tol + tol * w.abs()
    };
    let i = got.iter().zip(&want).position(|p| !near(p))?;
    Some(format!("element {i} is {}, not {}", got[i], want[i]))
}
