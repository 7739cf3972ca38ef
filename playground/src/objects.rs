//! Methods and fields of the crate's values, apart from arrays.

mod reports;

pub(crate) use reports::{assert_collectives, collectives, communication, report};

use crate::error::ErrorResponse;
use crate::eval::{Eval, Interp};
use crate::methods::{self, Args};
use crate::syntax::NumType;
use crate::tree::Arrays;
use crate::value::{Movable, Value};
use atmesh::{AllToAll, Array, ArrayType, Key, Lowered, Mesh, Sharding, VmapOptions};
use std::rc::Rc;

/// Evaluates a method of a value of the crate.
#[track_caller]
pub(crate) fn method(
    interp: &Rc<Interp>,
    of: &Value,
    name: &str,
    generics: Option<&str>,
    values: &[Value],
) -> Eval {
    let args = &mut Args::new(name, values);
    match of.inner() {
        Value::Array(x) => return Ok(array_method(x, name, generics, values)?),
        Value::Key(key) => return Ok(key_method(interp, key, name, args)?),
        Value::Jit(jit) => return jit_method(interp, jit, name, values),
        Value::Mapped(map) => return mapped_method(interp, map, name, values),
        Value::Lowered(lowered) => return Ok(lowered_method(lowered, name)?),
        Value::Traced(traced) => {
            return Ok(match name {
                "lower" => Value::result(traced.take()?.lower().map(|l| Value::Lowered(Movable::new(l)))),
                "program" => Value::record(
                    "Program",
                    [
                        (
                            "text",
                            Value::text(traced.with(|t| crate::lines::located(&t.program().to_string()))?),
                        ),
                        (
                            "types",
                            Value::list(
                                traced.with(|t| t.program().output_types())?.into_iter().map(Value::Type),
                            ),
                        ),
                    ],
                ),
                _ => return Err(no_method(of, name).into()),
            });
        }
        Value::Compiled(compiled) if name == "call" => {
            return Ok(Value::result(compiled.call(Arrays::of(&spread(values))?).map(Arrays::value)));
        }
        Value::Pullback(pull) if name == "call" => {
            return Ok(pull.call(Arrays::of(&spread(values))?).value());
        }
        Value::DType(dtype) if name == "array_type" => {
            return Ok(Value::Type(dtype.array_type(args.sizes()?)));
        }
        Value::Update(update) => {
            let at = (**update).clone();
            match name {
                "out_sharding" => return Ok(Value::Update(Rc::new(at.out_sharding(args.spec()?)))),
                "mode" => match args.any("IndexMode::Clip")? {
                    Value::Path(mode) => {
                        return Ok(Value::Update(Rc::new(at.mode(methods::index_mode(mode)))));
                    }
                    other => return Err(args.wrong("IndexMode::Clip", other).into()),
                },
                _ => {}
            }
            return Ok(Value::Array(match name {
                "set" => at.set(args.operand()?),
                "add" => at.add(args.operand()?),
                "mul" => at.mul(args.operand()?),
                "min" => at.min(args.operand()?),
                "max" => at.max(args.operand()?),
                "get" => at.get(),
                _ => return Err(no_method(of, name).into()),
            }));
        }
        _ => {}
    }
    Ok(small_method(of.inner(), name, args)?)
}

/// Returns the error for an unknown method.
pub(crate) fn no_method(of: &Value, name: &str) -> ErrorResponse {
    crate::refuse::name(name).unwrap_or_else(|| {
        let response = ErrorResponse::unknown(format!("{} has no method `{name}` here", of.what()));
        response.help("run it natively, or compose it of what is here", None)
    })
}

/// Returns several arguments as one tuple.
fn spread(values: &[Value]) -> Value {
    match values {
        [one] => one.clone(),
        _ => Value::tuple(values.iter().cloned()),
    }
}

#[track_caller]
fn array_method(
    x: &Array,
    name: &str,
    generics: Option<&str>,
    values: &[Value],
) -> Result<Value, ErrorResponse> {
    let args = &mut Args::new(name, values);
    Ok(match name {
        "ty" => Value::result(x.ty().map(Value::Type)),
        "dtype" => Value::result(x.dtype().map(Value::DType)),
        "shape" => Value::result(x.shape().map(|s| shape(&s))),
        "rank" => Value::result(x.ty().map(|t| Value::count(t.rank()))),
        "size" => Value::result(x.size().map(Value::count)),
        "nbytes" => Value::result(x.nbytes().map(Value::count)),
        "sharding" => Value::result(x.sharding().map(|s| Value::option(s.map(Value::Sharding)))),
        "devices" => Value::result(x.devices().map(|d| Value::list(d.into_iter().map(Value::Device)))),
        "visualize" => Value::text(x.visualize()),
        "shards" => Value::result(x.shards().map(|list| Value::list(list.into_iter().map(shard)))),
        "to_vec" => Value::result(numbers(x, generics).map(Value::list)),
        "item" => Value::result(x.ty().and_then(|t| match t.rank() {
            0 => Ok(numbers(x, generics)?.into_iter().next().unwrap_or(Value::Unit)),
            _ => x.item::<f32>().map(|_| Value::Unit),
        })),
        "allclose" => Value::result(x.allclose(args.array()?).map(Value::Bool)),
        "allclose_with" => {
            Value::result(x.allclose_with(args.array()?, args.float()?, args.float()?).map(Value::Bool))
        }
        "array_equal" => Value::result(x.array_equal(args.array()?).map(Value::Bool)),
        "clone" | "ready" => Value::Array(x.clone()),
        _ => return methods::method(x, name, values),
    })
}

fn shape(sizes: &[usize]) -> Value {
    Value::list(sizes.iter().map(|n| Value::Int(*n as i128, NumType::Extent)))
}

fn shard(shard: atmesh::Shard) -> Value {
    let range = |r: &std::ops::Range<usize>| {
        Value::Range(Rc::new((Value::count(r.start), Value::count(r.end), false)))
    };
    Value::record(
        "Shard",
        [
            ("device", Value::Device(shard.device)),
            ("index", Value::list(shard.index.iter().map(range))),
            ("replica", Value::count(shard.replica)),
            ("data", Value::Array(shard.data)),
        ],
    )
}

/// Returns the elements of an array, of the type that `to_vec::<T>` asks for, or of its own.
#[track_caller]
fn numbers(x: &Array, asked: Option<&str>) -> atmesh::Result<Vec<Value>> {
    use atmesh::DType;
    macro_rules! by {
        ($t:ty, $n:ident, $kind:ident) => {
            x.to_vec::<$t>()?.into_iter().map(|v| Value::$kind(v.into(), NumType::$n)).collect()
        };
    }
    let asked = asked.and_then(|t| t.parse::<DType>().ok());
    let own = x.dtype()?;
    if let Some(other) = asked.filter(|t| *t != own) {
        // the crate's error for another type
        let wrong = match other {
            DType::F64 => x.to_vec::<f64>().err(),
            DType::I32 => x.to_vec::<i32>().err(),
            DType::I64 => x.to_vec::<i64>().err(),
            DType::U32 => x.to_vec::<u32>().err(),
            DType::Bool => x.to_vec::<bool>().err(),
            _ if own == DType::F32 => x.to_vec::<f64>().err(),
            _ => x.to_vec::<f32>().err(),
        };
        return Err(wrong.unwrap_or_else(|| atmesh::Error::other("another element type")));
    }
    Ok(match own {
        DType::F32 => by!(f32, F32, Float),
        DType::F64 => by!(f64, F64, Float),
        DType::I32 => by!(i32, I32, Int),
        DType::I64 => by!(i64, I64, Int),
        DType::U32 => by!(u32, U32, Int),
        DType::Bool => x.to_vec::<bool>()?.into_iter().map(Value::Bool).collect(),
        // narrow integers, exactly, with the type that is asked for
        DType::U8 | DType::I8 | DType::I16 | DType::U16 | DType::U64 => {
            return numbers(&x.astype(DType::I64), None);
        }
        // others are read as float32 after a conversion, which is exact for 16-bit floats
        _ => return numbers(&x.astype(DType::F32), None),
    })
}

#[track_caller]
fn key_method(
    interp: &Rc<Interp>,
    key: &Key,
    name: &str,
    args: &mut Args<'_>,
) -> Result<Value, ErrorResponse> {
    let made = match name {
        "split" => Value::list(key.split_vec(interp.wanted.get()).into_iter().map(Value::Key)),
        "split_vec" => Value::list(key.split_vec(args.number()?).into_iter().map(Value::Key)),
        "split_array" => Value::Array(key.split_array(args.sizes()?)),
        "fold_in" => Value::Key(key.fold_in(args.operand()?)),
        "normal" => Value::Array(key.normal(args.array_type()?)),
        "uniform" => Value::Array(key.uniform(args.array_type()?)),
        "bernoulli" => Value::Array(key.bernoulli(args.array_type()?, args.float()?)),
        "randint" => {
            let given = args.any("a shape, like [4, 2]")?.inner();
            let (lo, hi) = args.bounds()?;
            let bound = |v: &Value| {
                crate::library::integer(v)
                    .and_then(|n| i64::try_from(n).map_err(|_| syntax_error!("{n} is too large")))
            };
            let range = bound(&lo)?..bound(&hi)?;
            Value::Array(match given {
                Value::Type(ty) => key.randint(ty.clone(), range),
                Value::List(list) => key.randint(args.numbers::<usize>(list)?, range),
                other => return Err(args.wrong("a shape, like [4, 2],", other)),
            })
        }
        "data" => Value::Array(key.data()),
        "array" => Value::Array(key.array().clone()),
        "clone" => Value::Key(key.clone()),
        _ => return Err(no_method(&Value::Key(key.clone()), name)),
    };
    args.end()?;
    Ok(made)
}

#[track_caller]
fn jit_method(interp: &Rc<Interp>, jit: &crate::transform::Compile, name: &str, values: &[Value]) -> Eval {
    Ok(match name {
        "call" => return jit.call(interp, values.to_vec()),
        "lower" | "compile" | "trace" if jit.check_memory().is_err() => {
            jit.check_memory()?;
            Value::Unit
        }
        "trace" => {
            let traced = jit.built(interp)?.trace(Arrays::of(&spread(values))?);
            Value::result(traced.map(|t| Value::Traced(Movable::new(t))))
        }
        "lower" => {
            let lowered = jit.built(interp)?.lower(Arrays::of(&spread(values))?);
            Value::result(lowered.map(|t| Value::Lowered(Movable::new(t))))
        }
        "compile" => {
            let lowered = jit.built(interp)?.lower(Arrays::of(&spread(values))?);
            Value::result(lowered.and_then(|t| Ok(Value::Compiled(Rc::new(t.compile()?)))))
        }
        _ => jit.with(name, values),
    })
}

#[track_caller]
fn mapped_method(interp: &Rc<Interp>, map: &crate::transform::Mapped, name: &str, values: &[Value]) -> Eval {
    Ok(match name {
        "call" => return map.call(interp, values.to_vec()),
        "trace" => {
            let traced = map.built(interp)?.trace(Arrays::of(&spread(values))?);
            Value::result(traced.map(|t| Value::Traced(Movable::new(t))))
        }
        "lower" => {
            let lowered = map.built(interp)?.lower(Arrays::of(&spread(values))?);
            Value::result(lowered.map(|t| Value::Lowered(Movable::new(t))))
        }
        _ => map.with(name, values),
    })
}

fn lowered_method(lowered: &Movable<Lowered<Arrays, Arrays>>, name: &str) -> Result<Value, ErrorResponse> {
    let text = |made: String| Value::text(crate::lines::located(&made));
    Ok(match name {
        "collectives" => Value::Collectives(Rc::new(lowered.with(|l| l.collectives().clone())?)),
        "program" => text(lowered.with(|l| l.program().to_string())?),
        "spmd" => text(lowered.with(|l| l.spmd().to_string())?),
        "compile" => Value::result(lowered.take()?.compile().map(|c| Value::Compiled(Rc::new(c)))),
        _ => return Err(no_method(&Value::Lowered(lowered.clone()), name)),
    })
}

fn small_method(of: &Value, name: &str, args: &mut Args<'_>) -> Result<Value, ErrorResponse> {
    let made = match (of, name) {
        (Value::Collectives(report), _) => match name {
            "len" => Value::count(report.len()),
            "is_empty" => Value::Bool(report.is_empty()),
            "bytes" => Value::Int(report.bytes().into(), NumType::U64),
            "total_bytes" => Value::Int(report.total_bytes().into(), NumType::U64),
            "peak_bytes" => Value::Int(report.peak_bytes().into(), NumType::U64),
            _ => return Err(no_method(of, name)),
        },
        (Value::Mesh(mesh), _) => mesh_method(mesh, name, args)?,
        (Value::Type(ty), _) => type_method(ty, name, args)?,
        (Value::Sharding(s), _) => sharding_method(s, name, args)?,
        (Value::Device(d), "id") => Value::count(d.id()),
        (Value::Device(d), "kind") => Value::text(d.kind()),
        (Value::Device(d), "process") => Value::count(d.process()),
        (Value::Gather(how), "invarying") => Value::Gather(how.invarying()),
        (Value::Gather(how), "reduced") => Value::Gather(how.reduced()),
        (Value::Split(d), "concat") => Value::Exchange(AllToAll::split(*d).concat(args.number()?)),
        (Value::Split(d), "stack") => Value::Exchange(AllToAll::split(*d).stack(args.number()?)),
        (Value::Spec(spec), "unreduced") => Value::Spec(spec.unreduced(args.axes()?)),
        (Value::DType(t), "size") => Value::count(t.size()),
        (Value::DType(t), "name") => Value::text(t),
        (Value::Vmap(options), _) => Value::Vmap(Rc::new(vmap_option((**options).clone(), name, args)?)),
        (Value::Struct(record), "output_types") if &*record.name == "Program" => {
            crate::eval::field(of, "types")?
        }
        (Value::Struct(record), "mode" | "out_sharding") if &*record.name == "IndexOptions" => {
            let mut record = (**record).clone();
            record.fields.push((name.into(), args.any("a value")?.clone()));
            Value::Struct(Rc::new(record))
        }
        (Value::Struct(record), "length" | "reversed") if &*record.name == "ScanOptions" => {
            let mut record = (**record).clone();
            record.fields.push((name.into(), args.more().cloned().unwrap_or(Value::Bool(true))));
            Value::Struct(Rc::new(record))
        }
        _ => return Err(no_method(of, name)),
    };
    args.end()?;
    Ok(made)
}

fn vmap_option(o: VmapOptions, name: &str, args: &mut Args<'_>) -> Result<VmapOptions, ErrorResponse> {
    Ok(match name {
        "axes" => o.axes(args.axes()?),
        _ => {
            let dims = args.any("dimensions")?;
            let dim = |v: &Value| match v.inner() {
                Value::Int(n, _) => i32::try_from(*n).ok(),
                _ => None,
            };
            let list: Option<Vec<Option<i32>>> = match dims {
                Value::Tuple(list) | Value::List(list) => Some(list.iter().map(dim).collect()),
                _ => None,
            };
            match (name, list, dim(dims)) {
                ("in_dims", Some(list), _) => o.in_dims(list),
                ("in_dims", None, Some(d)) => o.in_dims(d),
                ("out_dims", Some(list), _) => o.out_dims(list),
                ("out_dims", None, Some(d)) => o.out_dims(d),
                _ => return Err(syntax_error!("`{name}` is not an option of `vmap_with` here")),
            }
        }
    })
}

fn mesh_method(mesh: &Mesh, name: &str, args: &mut Args<'_>) -> Result<Value, ErrorResponse> {
    let axes = |value: &Value| -> Result<Vec<(atmesh::Axis, atmesh::Axes)>, ErrorResponse> {
        let wrong = || syntax_error!("names and axes are expected, like [(\"batch\", \"data\")]");
        let Value::List(list) = value.inner() else { return Err(wrong()) };
        let one = |v: &Value| match v {
            Value::Tuple(pair) => match &pair[..] {
                [Value::Text(name), to] => {
                    Ok((atmesh::Axis::from(&**name), methods::axes(to).ok_or_else(wrong)?))
                }
                _ => Err(wrong()),
            },
            _ => Err(wrong()),
        };
        list.iter().map(one).collect()
    };
    Ok(match name {
        "size" => Value::count(mesh.size()),
        "axis_names" => Value::list(mesh.axis_names().iter().map(|a| Value::Path(a.to_string().into()))),
        "axis_sizes" => Value::list(mesh.axis_sizes().iter().map(|n| Value::count(*n))),
        "axis_size" => Value::result(mesh.axis_size(args.text()?).map(Value::count)),
        "devices" => Value::list(mesh.devices().iter().map(|d| Value::Device(*d))),
        "coordinates" => Value::list(mesh.coordinates(args.number()?).into_iter().map(Value::count)),
        "is_abstract" => Value::Bool(mesh.is_abstract()),
        "with_auto" => Value::result(mesh.with_auto(args.axes()?).map(Value::Mesh)),
        "with_logical_axes" => {
            Value::result(mesh.with_logical_axes(axes(args.any("axes")?)?).map(Value::Mesh))
        }
        "with_storage_axes" => {
            Value::result(mesh.with_storage_axes(axes(args.any("axes")?)?).map(Value::Mesh))
        }
        "resolve_stored" => Value::result(mesh.resolve_stored(args.spec()?).map(Value::Spec)),
        "resolve" => Value::result(mesh.resolve(args.spec()?).map(Value::Spec)),
        "clone" => Value::Mesh(mesh.clone()),
        _ => return Err(no_method(&Value::Mesh(mesh.clone()), name)),
    })
}

fn type_method(ty: &ArrayType, name: &str, args: &mut Args<'_>) -> Result<Value, ErrorResponse> {
    Ok(match name {
        "on" => Value::Type(ty.clone().on(&args.mesh()?, args.spec()?)),
        "stored_on" => Value::Type(ty.clone().stored_on(&args.mesh()?, args.spec()?)),
        "rank" => Value::count(ty.rank()),
        "short_text" => Value::text(ty.short_text()),
        "nbytes" => Value::count(ty.nbytes()),
        _ => return Err(no_method(&Value::Type(ty.clone()), name)),
    })
}

fn sharding_method(s: &Sharding, name: &str, args: &mut Args<'_>) -> Result<Value, ErrorResponse> {
    Ok(match name {
        "shard_shape" => {
            let made = s.shard_shape(&args.sizes()?);
            Value::result(made.map(|s| shape(&s)))
        }
        "is_equivalent" => match args.any("a sharding")?.inner() {
            Value::Sharding(other) => Value::Bool(s.is_equivalent(other)),
            other => return Err(args.wrong("a sharding", other)),
        },
        "is_replicated" => Value::Bool(s.is_replicated()),
        "explicit" => Value::Spec(s.explicit()),
        _ => return Err(no_method(&Value::Sharding(s.clone()), name)),
    })
}

/// Returns a field of a value of the crate.
pub(crate) fn field(of: &Value, name: &str) -> Option<Value> {
    Some(match (of, name) {
        (Value::Type(ty), "shape") => shape(&ty.shape),
        (Value::Type(ty), "dtype") => Value::DType(ty.dtype),
        (Value::Type(ty), "spec") => Value::Spec(ty.spec),
        (Value::Type(ty), "mesh") => Value::option(ty.mesh.clone().map(Value::Mesh)),
        (Value::Sharding(s), "spec") => Value::Spec(s.spec),
        (Value::Sharding(s), "mesh") => Value::Mesh(s.mesh.clone()),
        (Value::Range(range), "start") => range.0.clone(),
        (Value::Range(range), "end") => range.1.clone(),
        _ => return None,
    })
}
