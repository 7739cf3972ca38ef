//! Every operation of `../OPS.md` without a body, by the methods of `Array` (or, for operations
//! that are primitives, by these).

use super::case::{Env, axes, spec};
use super::check::numbers;
use super::indexing::indexing;
use super::linalg::linalg;
use super::lines::lines;
use atmesh::array::{Dims, Term};

use atmesh::ops::dot_general::DotGeneral;
use atmesh::ops::elementwise::{Binary, Bitcast, Clamp, Convert, Select};
use atmesh::ops::indexing::{DynamicSlice, DynamicUpdateSlice};
use atmesh::ops::reduce::{Reduce, Reduction};
use atmesh::ops::shape::{ExpandDims, Rev, Squeeze, Transpose};
use atmesh::ops::sharding::Copy;
use atmesh::ops::slicing::{Concatenate, Pad, Slice, UpdateSlice};
use atmesh::program::{Prim, Primitive};
use atmesh::sharding::check_spec;
use atmesh::{
    AllToAll, Array, ArrayType, AxisGroups, AxisType, CollectiveDim, ConvOptions, DType, Error, Key, Operand,
    Padding, PcastTo, RaggedRows, Result, Scalar, Spec, Tree, WindowOptions, axis_index, axis_size, einsum,
    einsum_to, grad, stack,
};
use serde_json::Value;
use std::panic::Location;
use std::sync::Arc;

/// A value in a case's program: an array, or a scalar that takes the element type of the other
/// operand.
#[derive(Clone)]
pub(crate) enum Val {
    Array(Array),
    Lit(Scalar),
}

impl Val {
    pub(crate) fn term(&self) -> Term {
        match self {
            Val::Array(a) => a.term(),
            Val::Lit(x) => x.term(),
        }
    }
    /// Converts it to an array: a scalar alone is float32, int32 or bool.
    pub(crate) fn array(&self) -> Array {
        match self {
            Val::Array(a) => a.clone(),
            Val::Lit(Scalar::Bool(b)) => Array::from(*b),
            Val::Lit(Scalar::Int(i)) => Array::from(*i as i32),
            Val::Lit(x @ (Scalar::Float(_) | Scalar::Complex(..))) => Array::from(x.to_f32()),
        }
    }
    pub(crate) fn type_text(&self) -> String {
        match self {
            Val::Array(a) => atmesh::type_of(a).to_string(),
            lit => atmesh::type_of(lit.array()).to_string(),
        }
    }
}

/// Parses a scalar of a case.
pub(crate) fn scalar(v: &Value) -> Scalar {
    match v {
        Value::Bool(b) => Scalar::Bool(*b),
        Value::Number(n) if n.is_f64() => Scalar::Float(n.as_f64().unwrap_or(0.0)),
        Value::String(_) => Scalar::Float(numbers::float(v)),
        other => Scalar::Int(numbers::int(other)),
    }
}

/// Parses a list of sizes, or a single size.
pub(crate) fn sizes(v: &Value) -> Vec<usize> {
    match v {
        Value::Array(list) => list.iter().map(|n| numbers::int(n) as usize).collect(),
        Value::Number(_) => vec![numbers::int(v) as usize],
        _ => Vec::new(),
    }
}

/// Returns an array that carries an error.
pub(crate) fn failed(error: &Error) -> Array {
    Array::filled_with(error)
}

/// Parses dimensions in numpy's convention: null for all, a number, or a list.
fn dims(v: &Value) -> Dims {
    match v {
        Value::Number(n) => Dims::from(n.as_i64().unwrap_or(0)),
        Value::Array(list) => Dims::from(list.iter().map(|n| n.as_i64().unwrap_or(0)).collect::<Vec<i64>>()),
        _ => Dims::from(..),
    }
}

pub(crate) fn prim(prim: impl Primitive, ins: &[Val]) -> Array {
    let terms: Vec<Term> = ins.iter().map(Val::term).collect();
    let prim: Prim = Arc::new(prim);
    Array::apply(prim, &terms).swap_remove(0)
}

/// Applies a binary function whose left operand may be a scalar.
fn binary(op: &str, a: &Val, b: &Val) -> Option<Array> {
    let (x, y) = match (a, b) {
        (Val::Lit(_), Val::Array(y)) => {
            // A scalar on the left swaps the operands.
            let x = a.term();
            return Some(match op {
                "add" => y + x,
                "mul" => y * x,
                "max" => y.maximum(x),
                "min" => y.minimum(x),
                "and" => y & x,
                "or" => y | x,
                "xor" => y ^ x,
                "eq" => y.eq(x),
                "ne" => y.ne(x),
                "lt" => y.gt(x),
                "le" => y.ge(x),
                "gt" => y.lt(x),
                "ge" => y.le(x),
                _ => {
                    let Val::Lit(number) = a else { return None };
                    return binary(op, &Val::Array(y.full_like(*number)), b);
                }
            });
        }
        (a, b) => (a.array(), b.term()),
    };
    Some(match op {
        "add" => x + y,
        "sub" => x - y,
        "mul" => x * y,
        "div" => x / y,
        "rem" => x % y,
        "max" => x.maximum(y),
        "min" => x.minimum(y),
        "pow" => x.pow(y),
        "atan2" => x.atan2(y),
        "complex" => x.complex(y),
        "nextafter" => x.nextafter(y),
        "and" => x & y,
        "or" => x | y,
        "xor" => x ^ y,
        "eq" => x.eq(y),
        "ne" => x.ne(y),
        "lt" => x.lt(y),
        "le" => x.le(y),
        "gt" => x.gt(y),
        "ge" => x.ge(y),
        "shift_left" => x.shift_left(y),
        "shift_right_logical" => x.shift_right_logical(y),
        "shift_right_arithmetic" => x.shift_right_arithmetic(y),
        // Other operations are found by the names that programs print.
        _ => {
            let f = Binary::ALL.iter().find(|f| f.name() == op)?;
            Array::apply(Arc::new(*f), &[Term::from(&x), y]).swap_remove(0)
        }
    })
}

/// The methods of the table of scalar functions, by name.
macro_rules! scalar_methods {
    ([] methods { $($(#[$doc:meta])* $v:ident $name:ident $takes:ident: $row:expr;)* } $($rest:tt)*) => {
        fn scalar_method(op: &str, x: &Array) -> Option<Array> {
            Some(match op {
                $(stringify!($name) => x.$name(),)*
                _ => return None,
            })
        }
    };
}
atmesh::scalar_functions!(scalar_methods);

fn unary(op: &str, x: &Array, p: &Value) -> Option<Array> {
    Some(match op {
        "neg" => -x,
        "not" => !x,
        "real" => x.real(),
        "imag" => x.imag(),
        "conj" => x.conj(),
        "angle" => x.angle(),
        "square" => x.square(),
        "reciprocal" => x.reciprocal(),
        "stop_gradient" => x.stop_gradient(),
        "checkpoint_name" => x.checkpoint_name(p["name"].as_str().unwrap_or("")),
        "relu" => x.relu(),
        "silu" => x.silu(),
        "softplus" => x.softplus(),
        "gelu" if p["approximate"].as_bool() == Some(false) => x.gelu_exact(),
        "gelu" => x.gelu(),
        "integer_pow" => x.powi(numbers::int(&p["y"]) as i32),
        "is_finite" => x.is_finite(),
        _ => return scalar_method(op, x),
    })
}

/// Applies a reduction or a function derived from one, by numpy's name.
fn reduction(op: &str, x: &Array, p: &Value) -> Option<Array> {
    let over = || {
        if p["keepdims"].as_bool() == Some(true) { Dims::keep(dims(&p["axis"])) } else { dims(&p["axis"]) }
    };
    let one = || numbers::int(&p["axis"]) as i32;
    Some(match op {
        "sum" => x.sum(over()),
        "prod" => x.prod(over()),
        "mean" => x.mean(over()),
        "var" => x.var(over()),
        "std" => x.std(over()),
        "any" => x.any(over()),
        "all" => x.all(over()),
        "amax" => x.max(over()),
        "amin" => x.min(over()),
        "logsumexp" => x.logsumexp(over()),
        "softmax" => x.softmax(over()),
        "log_softmax" => x.log_softmax(over()),
        "argmax" => x.argmax(one()),
        "argmin" => x.argmin(one()),
        _ => {
            let kind = match op {
                "reduce_sum" => Reduction::Sum,
                "reduce_max" => Reduction::Max,
                "reduce_min" => Reduction::Min,
                "reduce_prod" => Reduction::Prod,
                "reduce_and" => Reduction::And,
                "reduce_or" => Reduction::Or,
                _ => return None,
            };
            prim(Reduce::new(kind, &sizes(&p["axes"]), out(p)), &[Val::Array(x.clone())])
        }
    })
}

pub(crate) fn out(p: &Value) -> Option<Spec> {
    p.get("out_sharding").filter(|v| !v.is_null()).map(spec)
}

fn dtype(p: &Value, default: DType) -> DType {
    p["dtype"].as_str().and_then(DType::from_name).unwrap_or(default)
}

/// Parses the type of a new array: `shape`, `dtype`, `out_sharding`.
fn new_type(env: &Env, p: &Value, shape: Vec<usize>, default: DType) -> Result<ArrayType> {
    let ty = dtype(p, default).array_type(shape);
    match out(p) {
        // `on` accepts auto axes too, which an out_sharding must not name.
        Some(spec) => {
            let spec = check_spec(&env.mesh, spec, ty.rank(), &[AxisType::Explicit])
                .map_err(|fault| Error::new(fault, "of", Vec::new(), Some(Location::caller())))?;
            Ok(ty.on(&env.mesh, spec))
        }
        None => Ok(ty),
    }
}

fn random(env: &Env, op: &str, ins: &[Val], p: &Value) -> Result<Option<Array>> {
    if op == "random_key" {
        return Ok(Some(Key::new(numbers::int(&p["seed"]) as u64).array().clone()));
    }
    let Some(first) = ins.first() else { return Ok(None) };
    let key = Key::from_array(first.array());
    let ty = |default| new_type(env, p, sizes(&p["shape"]), default);
    let or = |name: &str, default: f64| p.get(name).map_or(default, numbers::float);
    Ok(Some(match op {
        "random_split" => key.split_array(sizes(&p["num"])),
        "random_fold_in" => key.fold_in(ins[1].term()).array().clone(),
        "random_key_data" => key.data(),
        "random_wrap_key_data" => Key::from_data(&first.array()).array().clone(),
        "random_bits" => key.bits(ty(DType::U32)?),
        "random_uniform" => key.uniform_in(ty(DType::F32)?, or("minval", 0.0)..or("maxval", 1.0)),
        "random_normal" => key.normal(ty(DType::F32)?),
        "random_truncated_normal" => {
            key.truncated_normal(ty(DType::F32)?, or("lower", 0.0), or("upper", 0.0))
        }
        "random_exponential" => key.exponential(ty(DType::F32)?),
        "random_gumbel" => key.gumbel(ty(DType::F32)?),
        "random_bernoulli" => key.bernoulli(ty(DType::F32)?, or("p", 0.5)),
        "random_randint" => {
            let range = numbers::int(&p["minval"]) as i64..numbers::int(&p["maxval"]) as i64;
            key.randint(ty(DType::I32)?, range)
        }
        "random_permutation" => {
            let axis = p.get("axis").map_or(0, |a| numbers::int(a) as i32);
            key.permutation(&ins[1].array(), axis)
        }
        "random_categorical" => {
            let axis = p.get("axis").map_or(-1, |a| numbers::int(a) as i32);
            key.categorical(&ins[1].array(), axis)
        }
        _ => return Ok(None),
    }))
}

fn creation(env: &Env, op: &str, p: &Value) -> Result<Option<Array>> {
    let shape = || new_type(env, p, sizes(&p["shape"]), DType::F32);
    let or = |name: &str, default: f64| p.get(name).filter(|v| !v.is_null()).map_or(default, numbers::float);
    Ok(Some(match op {
        "full" => {
            let ty = shape()?;
            // Its value is converted.
            let value = scalar(&p["value"]);
            let value = match ty.dtype {
                DType::Bool => Scalar::Bool(value.to_f64() != 0.0),
                d if d.is_integer() => Scalar::Int(value.to_i128()),
                _ => value,
            };
            Array::full(ty, value)
        }
        "zeros" => Array::zeros(shape()?),
        "ones" => Array::ones(shape()?),
        "iota" => Array::iota(shape()?, numbers::int(&p["dimension"]) as usize),
        "arange" => {
            let (start, stop, step) = (or("start", 0.0), or("stop", 0.0), or("step", 1.0));
            let n = ((stop - start) / step).ceil().max(0.0) as usize;
            let ty = new_type(env, p, vec![n], DType::I32)?;
            let whole = ty.dtype.is_integer();
            let number = |x: f64| if whole { Scalar::Int(x as i128) } else { Scalar::Float(x) };
            Array::arange_of(ty, number(start), number(step))
        }
        "eye" => {
            let n = numbers::int(&p["n"]) as usize;
            let m = p.get("m").filter(|m| !m.is_null()).map_or(n, |m| numbers::int(m) as usize);
            Array::eye(new_type(env, p, vec![n, m], DType::F32)?, or("k", 0.0) as i64)
        }
        "linspace" => {
            let endpoint = p["endpoint"].as_bool().unwrap_or(true);
            Array::linspace(or("start", 0.0), or("stop", 0.0), or("num", 50.0) as usize, endpoint)
        }
        _ => return Ok(None),
    }))
}

fn windows(op: &str, ins: &[Val], p: &Value) -> Option<Array> {
    let list = |name: &str| p.get(name).map(sizes);
    let mut how = WindowOptions::default();
    (how.strides, how.base_dilation, how.dilation) =
        (list("strides"), list("base_dilation"), list("window_dilation"));
    how.padding = padding(&p["padding"]);
    let window = sizes(&p["window"]);
    let x = ins.first()?.array();
    Some(match op {
        "reduce_window_sum" => x.window_sum_with(window, how),
        "reduce_window_prod" => x.window_prod_with(window, how),
        "reduce_window_max" => x.window_max_with(window, how),
        "reduce_window_min" => x.window_min_with(window, how),
        "reduce_window_and" => x.window_and_with(window, how),
        "reduce_window_or" => x.window_or_with(window, how),
        _ => return None,
    })
}

fn product(op: &str, ins: &[Val], p: &Value) -> Option<Array> {
    let a = || ins[0].array();
    let b = || ins[1].array();
    Some(match (op, out(p)) {
        ("matmul", None) => a().matmul(b()),
        ("matmul", Some(spec)) => a().matmul_to(b(), spec),
        ("dot_general", to) => {
            let lists = |v: &Value| [sizes(&v[0]), sizes(&v[1])];
            let preferred = p["preferred_element_type"].as_str().and_then(DType::from_name);
            let (contracting, batch) = (lists(&p["contracting"]), lists(&p["batch"]));
            prim(
                DotGeneral {
                    contracting,
                    batch,
                    out_sharding: to,
                    accum_dtype: preferred,
                    ..DotGeneral::default()
                },
                ins,
            )
        }
        ("ragged_dot", None) => a().ragged_dot(b(), ins.get(2)?.array()),
        // the derivative of a product by the matrices
        ("ragged_dot_per_group", None) => {
            let (x, y, sizes) = (a(), b(), ins.get(2)?.array());
            let sides = [x.ty().ok()?, y.ty().ok()?];
            let shape = [sizes.shape().ok()?[0], sides[0].shape[1], sides[1].shape[1]];
            let w = Array::zeros(sides[0].dtype.array_type(shape));
            grad(&w, |w| (x.ragged_dot(&w, &sizes) * &y).sum(..))
        }
        ("conv_general_dilated", to) => a().conv_with(b(), conv(p, to)),
        ("einsum", to) => {
            let all: Vec<Array> = ins.iter().map(Val::array).collect();
            let text = p["subscripts"].as_str().unwrap_or("");
            match to {
                None => einsum(text, &all),
                Some(spec) => einsum_to(text, &all, spec),
            }
        }
        _ => return None,
    })
}

/// Parses the options of a convolution.
fn conv(p: &Value, out: Option<Spec>) -> ConvOptions {
    let list = |name: &str| p.get(name).map(sizes);
    let mut how = ConvOptions::default();
    (how.strides, how.base_dilation, how.dilation) =
        (list("strides"), list("lhs_dilation"), list("rhs_dilation"));
    how.padding = padding(&p["padding"]);
    how.layout = p["dimension_numbers"].as_array().map(|names| {
        let name = |k: usize| names[k].as_str().unwrap_or("").to_string();
        [name(0), name(1), name(2)]
    });
    let groups = |name: &str| p.get(name).map_or(1, |n| numbers::int(n) as usize);
    (how.groups, how.batch_groups) = (groups("feature_group_count"), groups("batch_group_count"));
    how.accum_dtype = p["preferred_element_type"].as_str().and_then(DType::from_name);
    how.out_sharding = out;
    how
}

/// Parses the padding of windows: a word, or pairs of integers.
fn padding(v: &Value) -> Padding {
    match v {
        Value::String(word) if word == "SAME" => Padding::Same,
        Value::String(word) if word == "SAME_LOWER" => Padding::SameLower,
        Value::Array(list) => {
            let pair = |w: &Value| (numbers::int(&w[0]) as i64, numbers::int(&w[1]) as i64);
            Padding::Each(list.iter().map(pair).collect())
        }
        _ => Padding::Valid,
    }
}

/// Returns the starts of an update if they are literals, clamped so that the update fits.
fn starts(ins: &[Val], shape: &[usize], sizes: &[usize]) -> Option<Vec<usize>> {
    let fixed = ins.iter().zip(shape).zip(sizes).map(|((i, n), s)| {
        let Val::Lit(i) = i else { return None };
        Some(i.to_i128().clamp(0, n.saturating_sub(*s) as i128) as usize)
    });
    fixed.collect()
}

/// Converts the operands from `first` on to integers, including literals of the case.
fn with_numbers(ins: &[Val], first: usize) -> Vec<Val> {
    let number = |(k, v): (usize, &Val)| if k < first { v.clone() } else { Val::Array(v.array()) };
    ins.iter().enumerate().map(number).collect()
}

fn shapes(op: &str, ins: &[Val], p: &Value) -> Result<Option<Array>> {
    let Some(first) = ins.first() else { return Ok(None) };
    let x = first.array();
    let one = || numbers::int(&p["axis"]) as i32;
    let list = |name: &str| sizes(&p[name]);
    let all = || ins.iter().map(Val::array).collect::<Vec<Array>>();
    Ok(Some(match op {
        "reshape" => match out(p) {
            None => x.reshape(list("new_sizes")),
            Some(spec) => x.reshape_to(list("new_sizes"), spec),
        },
        "trace" => x.trace(0),
        "transpose" => prim(Transpose { permutation: list("permutation") }, ins),
        "squeeze" => prim(Squeeze { dimensions: list("dimensions") }, ins),
        "expand_dims" => prim(ExpandDims { dimensions: list("dimensions") }, ins),
        "rev" => prim(Rev { dimensions: list("dimensions") }, ins),
        "broadcast_in_dim" => match out(p) {
            None => x.broadcast_in_dim(list("shape"), list("broadcast_dimensions")),
            Some(spec) => x.broadcast_in_dim_to(list("shape"), list("broadcast_dimensions"), spec),
        },
        "broadcast_to" => match out(p) {
            None => x.broadcast_to(list("shape")),
            Some(spec) => x.broadcast_as(list("shape"), spec),
        },
        "concatenate" => prim(Concatenate { dimension: numbers::int(&p["dimension"]) as usize }, ins),
        "stack" => stack(all(), one()),
        "tile" => x.tile(list("reps")),
        "roll" => x.roll(numbers::int(&p["shift"]) as i64, one()),
        "tril" => x.tril(p.get("k").map_or(0, |k| numbers::int(k) as i64)),
        "triu" => x.triu(p.get("k").map_or(0, |k| numbers::int(k) as i64)),
        "slice" => {
            let strides = p.get("strides").filter(|s| !s.is_null()).map(sizes);
            let strides = strides.unwrap_or_else(|| vec![1; list("start").len()]);
            prim(Slice { start: list("start"), limit: list("limit"), strides, out_sharding: None }, ins)
        }
        "pad" => {
            let whole =
                |v: &Value| v.as_array().into_iter().flatten().map(|n| numbers::int(n) as i64).collect();
            let (low, high): (Vec<i64>, Vec<i64>) = (whole(&p["low"]), whole(&p["high"]));
            let interior = p.get("interior").filter(|s| !s.is_null()).map(sizes);
            let interior = interior.unwrap_or_else(|| vec![0; low.len()]);
            match &ins[1] {
                Val::Lit(value) => {
                    let value = match (value, x.dtype()?.is_float()) {
                        (Scalar::Int(i), true) => Scalar::Float(*i as f64),
                        (value, _) => *value,
                    };
                    prim(Pad { low, high, interior, value, out_sharding: None }, &ins[..1])
                }
                Val::Array(value) => {
                    let widths = low.into_iter().zip(high).zip(interior).map(|((l, h), i)| (l, h, i));
                    x.pad(value, widths)
                }
            }
        }
        "dynamic_slice" => {
            let sizes = list("slice_sizes");
            let dims = (0..sizes.len()).collect();
            let slice =
                DynamicSlice { sizes: sizes.into(), dims, batch_dims: Vec::new(), out_sharding: None };
            prim(slice, &with_numbers(ins, 1))
        }
        "dynamic_update_slice" => {
            let (ty, part) = (x.ty()?, ins[1].array().ty()?);
            if let Some(start) = starts(&ins[2..], &ty.shape, &part.shape) {
                return Ok(Some(prim(UpdateSlice { start }, &ins[..2])));
            }
            let dims = (0..ty.rank()).collect();
            prim(
                DynamicUpdateSlice { dims, batch_dims: Vec::new(), reducer: None, out_sharding: None },
                &with_numbers(ins, 2),
            )
        }
        "reshard" => x.reshard(spec(&p["spec"])),
        "with_sharding_constraint" => x.constrain(spec(&p["spec"])),
        "full_like" => x.full_like(scalar(&p["value"])),
        "one_hot" => x.one_hot(numbers::int(&p["num_classes"]) as usize).astype(dtype(p, DType::F32)),
        "convert_element_type" => prim(Convert { dtype: dtype(p, DType::F32) }, ins),
        "bitcast_convert_type" => prim(Bitcast { dtype: dtype(p, DType::F32) }, ins),
        "select" => prim(Select, ins),
        "where" => x.select(ins[1].term(), ins[2].term()),
        "clamp" => prim(Clamp, ins),
        "copy" => prim(Copy, ins),
        _ => return Ok(None),
    }))
}

/// Evaluates operations that depend only on axis sizes: these, and sums of scalars.
fn sized(op: &str, ins: &[Val], p: &Value) -> Result<Option<Val>> {
    let over = || axis_size(axes(&p["axis_name"]));
    Ok(match (op, ins.first()) {
        ("axis_size", _) => Some(Val::Lit(over()?.into())),
        ("psum", Some(Val::Lit(Scalar::Float(f)))) => Some(Val::Lit(Scalar::Float(f * over()? as f64))),
        ("psum", Some(Val::Lit(x))) => Some(Val::Lit(Scalar::Int(x.to_i128() * over()? as i128))),
        _ => None,
    })
}

fn collective(op: &str, ins: &[Val], p: &Value) -> Option<Val> {
    let over = axes(&p["axis_name"]);
    let n = |name: &str| p.get(name).map_or(0, |v| numbers::int(v) as i32);
    let how = |dim: i32| {
        if p["tiled"].as_bool() == Some(true) {
            CollectiveDim::tiled(dim)
        } else {
            CollectiveDim::stacked(dim)
        }
    };
    if op == "axis_index" {
        return Some(Val::Array(axis_index(over)));
    }
    let grouped = match p["axis_index_groups"].as_array() {
        Some(groups) => AxisGroups::new(over.clone(), groups.iter().map(sizes)),
        None => (&over).into(),
    };
    let x = ins.first()?.array();
    Some(Val::Array(match op {
        "psum" => x.psum(grouped),
        "pmean" => x.pmean(grouped),
        "pmax" => x.pmax(grouped),
        "pmin" => x.pmin(grouped),
        "all_gather" => {
            let how = how(n("axis"));
            match p["to"].as_str() {
                Some("invarying") => x.all_gather(grouped, how.invarying()),
                Some("reduced") => x.all_gather(grouped, how.reduced()),
                _ => x.all_gather(grouped, how),
            }
        }
        "psum_scatter" => x.psum_scatter(grouped, how(n("scatter_dimension"))),
        "all_to_all" => {
            let cut = AllToAll::split(n("split_axis"));
            let tiled = p["tiled"].as_bool() == Some(true);
            x.all_to_all(
                grouped,
                if tiled { cut.concat(n("concat_axis")) } else { cut.stack(n("concat_axis")) },
            )
        }
        "ppermute" => {
            let pairs = p["perm"]
                .as_array()?
                .iter()
                .map(|v| (numbers::int(&v[0]) as usize, numbers::int(&v[1]) as usize));
            x.ppermute(over, pairs.collect::<Vec<_>>())
        }
        "pshuffle" => x.pshuffle(over, sizes(&p["perm"])),
        "pswapaxes" => x.pswapaxes(grouped, n("axis")),
        "pbroadcast" => x.pbroadcast(over, n("source") as usize),
        "ragged_all_to_all" => {
            let [_, output, vectors @ ..] = ins else { return None };
            let [input_offsets, send_sizes, output_offsets, recv_sizes] = vectors else { return None };
            let rows = RaggedRows {
                input_offsets: input_offsets.array(),
                send_sizes: send_sizes.array(),
                output_offsets: output_offsets.array(),
                recv_sizes: recv_sizes.array(),
            };
            x.ragged_all_to_all(grouped, &output.array(), &rows)
        }
        "pcast" => x.pcast(
            over,
            match p["to"].as_str()? {
                "reduced" => PcastTo::Reduced,
                "unreduced" => PcastTo::Unreduced,
                _ => PcastTo::Varying,
            },
        ),
        _ => return None,
    }))
}

/// Applies an operation: returns its results, or the error that ends the trace.
pub(crate) fn apply(env: &Env, op: &str, ins: &[Val], p: &Value) -> Result<Vec<Val>> {
    let one = |a: Array| Ok(vec![Val::Array(a)]);
    let many = |all: Vec<Array>| -> Result<Vec<Val>> {
        // A rejected operation gives one array that carries the error.
        for a in &all {
            a.ty()?;
        }
        Ok(all.into_iter().map(Val::Array).collect())
    };
    if op == "axis_size" {
        // A scalar cannot carry an error, so the axes are looked up by an operation that can.
        axis_index(axes(&p["axis_name"])).ty()?;
    }
    if let Some(v) = sized(op, ins, p)? {
        return Ok(vec![v]);
    }
    if let Some(v) = collective(op, ins, p) {
        return Ok(vec![v]);
    }
    if let Some(a) = creation(env, op, p)? {
        return one(a);
    }
    if let Some(a) = random(env, op, ins, p)? {
        return one(a);
    }
    match (op, ins) {
        ("unstack", [x]) => return many(x.array().unstack(numbers::int(&p["axis"]) as i32)),
        ("split", [x]) => return many(x.array().split(sizes(&p["sizes"]), numbers::int(&p["axis"]) as i32)),
        ("device_put", [x]) => return one(x.array().put(&env.mesh, spec(&p["spec"]))),
        _ => {}
    }
    if let Some(a) = indexing(op, ins, p)? {
        return one(a);
    }
    if let Some(all) = linalg(op, ins, p) {
        return many(all);
    }
    if let Some(all) = lines(op, ins, p) {
        return many(all);
    }
    if let [a, b] = ins
        && let Some(r) = product(op, ins, p).or_else(|| binary(op, a, b))
    {
        return one(r);
    }
    if let Some(r) = product(op, ins, p) {
        return one(r);
    }
    if let [x] = ins {
        let x = x.array();
        if let Some(r) = unary(op, &x, p).or_else(|| reduction(op, &x, p)).or_else(|| windows(op, ins, p)) {
            return one(r);
        }
    }
    match shapes(op, ins, p)? {
        Some(r) => one(r),
        None => Err(env.missing(op)),
    }
}
