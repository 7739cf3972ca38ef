//! Functions that make meshes and arrays.

use super::unknown;
use crate::error::ErrorResponse;
use crate::eval::{Eval, Interp};
use crate::methods::Args;
use crate::syntax::NumType;
use crate::value::Value;
use atmesh::{Array, Axis, AxisType, Mesh, Sharding, nd};
use std::rc::Rc;

pub(super) fn mesh(name: &str, args: &mut Args<'_>) -> Result<Value, ErrorResponse> {
    let devices = match name {
        "Mesh::of_devices" => match args.any("a list of devices")?.inner() {
            Value::List(list) => Some(list.clone()),
            other => return Err(args.wrong("a list of devices", other)),
        },
        _ => None,
    };
    let list = args.any("axes, like [(\"X\", 4)]")?;
    let Value::List(axes) = list.inner() else { return Err(args.wrong("axes, like [(\"X\", 4)],", list)) };
    let (mut sizes, mut types) = (Vec::new(), Vec::new());
    for axis in axes.iter() {
        let parts = match axis {
            Value::Tuple(parts) => parts,
            other => return Err(args.wrong("axes, like [(\"X\", 4)],", other)),
        };
        let (Some(Value::Text(name)), Some(Value::Int(n, _))) = (parts.first(), parts.get(1)) else {
            return Err(syntax_error!("an axis is a name and a size, like (\"X\", 4)"));
        };
        sizes.push((Axis::from(&**name), usize::try_from(*n).unwrap_or(0)));
        let is_auto = parts.get(2).is_some_and(|t| matches!(t, Value::Path(p) if p.ends_with("Auto")));
        types.push(if is_auto { AxisType::Auto } else { AxisType::Explicit });
    }
    let devices_wanted = sizes.iter().try_fold(1usize, |n, a| n.checked_mul(a.1)).unwrap_or(usize::MAX);
    if name != "Mesh::without_devices" && devices_wanted > 1024 {
        let say = format!("a mesh has at most 1024 devices here, not {devices_wanted}");
        let response = ErrorResponse::refused(say);
        return Err(response.help("`Mesh::without_devices` has types and reports at any size", None));
    }
    let made = match (name, devices) {
        ("Mesh::new", _) => Mesh::new(sizes),
        ("Mesh::auto", _) => Mesh::auto(sizes),
        ("Mesh::without_devices", _) => Mesh::without_devices(sizes),
        ("Mesh::of_devices", Some(list)) => {
            let ids: Vec<_> = list
                .iter()
                .filter_map(|v| match v {
                    Value::Device(d) => Some(*d),
                    _ => None,
                })
                .collect();
            Mesh::of_devices(&ids, sizes)
        }
        ("Mesh::with_types", _) => {
            Mesh::with_types(sizes.into_iter().zip(types).map(|((a, n), t)| (a, n, t)))
        }
        _ => return Err(unknown("function", name)),
    };
    Ok(Value::result(made.map(Value::Mesh)))
}

#[track_caller]
pub(super) fn new_array(name: &str, args: &mut Args<'_>) -> Result<Value, ErrorResponse> {
    Ok(Value::Array(match name {
        "Array::zeros" => Array::zeros(args.array_type()?),
        "Array::ones" => Array::ones(args.array_type()?),
        "Array::full" => Array::full(args.array_type()?, args.operand()?),
        "Array::iota" => Array::iota(args.array_type()?, args.number()?),
        "Array::eye" => Array::eye(args.array_type()?, args.number()?),
        "Array::arange_of" => Array::arange_of(args.array_type()?, args.operand()?, args.operand()?),
        "Array::arange" => {
            let (lo, hi) = args.bounds()?;
            arange(&lo, &hi)?
        }
        "Array::from" => crate::literal::array(args.any("numbers")?)?,
        _ => return Err(unknown("function", name)),
    }))
}

#[track_caller]
pub(super) fn arange(lo: &Value, hi: &Value) -> Result<Array, ErrorResponse> {
    let wrong = || syntax_error!("a range of numbers is expected, like 0..8 or 0.0..8.0f32");
    let int = |v: &Value| match v.inner() {
        Value::Int(n, _) => i64::try_from(*n).map_err(|_| wrong()),
        _ => Err(wrong()),
    };
    let float = |v: &Value| match v.inner() {
        Value::Float(x, _) => Ok(*x),
        Value::Int(n, _) => Ok(*n as f64),
        _ => Err(wrong()),
    };
    let ty = |v: &Value| match v.inner() {
        Value::Int(_, ty) | Value::Float(_, ty) => *ty,
        _ => NumType::Open,
    };
    let of = if ty(lo) == NumType::Open { ty(hi) } else { ty(lo) };
    let is_float = matches!(lo.inner(), Value::Float(..)) || matches!(hi.inner(), Value::Float(..));
    let small = |n: i64| i32::try_from(n).map_err(|_| syntax_error!("{n} is too large for an int32"));
    Ok(match (is_float, of) {
        (true, NumType::F32) => Array::arange(float(lo)? as f32..float(hi)? as f32),
        (true, _) => Array::arange(float(lo)?..float(hi)?),
        (_, NumType::I64) => Array::arange(int(lo)?..int(hi)?),
        (_, NumType::Open | NumType::I32) => Array::arange(small(int(lo)?)?..small(int(hi)?)?),
        _ => {
            return Err(syntax_error!("a range of this type is not read here")
                .help("write `0..8` or `0.0..8.0f32`", None));
        }
    })
}

/// Evaluates `Array::from_fn(shape, &sharding, |index| ..)`.
#[track_caller]
pub(super) fn from_fn(interp: &Rc<Interp>, shape: Vec<usize>, sharding: &Sharding, f: &Value) -> Eval {
    let range = |r: &std::ops::Range<usize>| {
        Value::Range(Rc::new((Value::count(r.start), Value::count(r.end), false)))
    };
    let mut failed = None;
    let made = Array::from_fn(shape, sharding, |index: &[std::ops::Range<usize>]| {
        let made = interp.apply(f, vec![Value::list(index.iter().map(range))]);
        match made.and_then(|v| Ok(crate::literal::array(v.inner())?)) {
            Ok(x) => x,
            Err(stop) => {
                failed.get_or_insert(stop);
                Array::from(nd::arr0(0.0f32))
            }
        }
    });
    match failed {
        Some(stop) => Err(stop),
        None => Ok(Value::result(made.map(Value::Array))),
    }
}
