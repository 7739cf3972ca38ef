//! Answers a question: traces and lowers the program, draws its arrays, and may run it.

use crate::error::ErrorResponse;
use crate::eval::{Interp, Stop};
use crate::fixit;
use crate::placement;
use crate::syntax;
use crate::tree::Arrays;
use crate::value::{Scope, Value, array};
use crate::whole::{self, Source};
use atmesh::tree::SpecTree;
use atmesh::{
    Args, Array, ArrayType, Axes, Axis, AxisType, Collectives, DType, Error, Mesh, Picture, Result, Spec,
    Traced, jit,
};
use serde_json::{Value as Json, json};
use std::cell::RefCell;

/// The limits of programs that are run, of pictures and of meshes.
const RUN_DEVICES: usize = 64;
const RUN_ELEMENTS: usize = 4096;
const RUN_BYTES: u64 = 1 << 20;
const DRAWN_DEVICES: usize = 1024;
const MAX_DEVICES: usize = 1 << 20;
const MAX_AXES: usize = 8;
const SIDE_PX: f64 = 200.0;

/// The text fields of the page.
struct Fields<'a> {
    mesh: &'a str,
    operands: &'a str,
    program: &'a str,
    target: &'a str,
}

/// Returns the answer to a question; both are JSON.
pub(crate) fn answer(question: &str) -> Json {
    let question: Json = serde_json::from_str(question).unwrap_or_default();
    let field = |name: &str| question.get(name).and_then(Json::as_str).unwrap_or_default();
    let fields = Fields {
        mesh: field("mesh"),
        operands: field("operands"),
        program: field("program"),
        target: field("target"),
    };
    // a whole program, of the book or pasted, says itself what it takes and what it shows
    if let Some(shown) = question.get("source").and_then(Json::as_str) {
        let context = question.get("context").and_then(Json::as_array);
        return whole::answer(&Source {
            before: field("before").into(),
            shown,
            after: field("after"),
            context: context.into_iter().flatten().filter_map(Json::as_str).collect(),
        });
    }
    let run = question.get("run").and_then(Json::as_bool).unwrap_or_default();
    answered(&fields, run).unwrap_or_else(|response| {
        let text = match response.field() {
            "mesh" => fields.mesh,
            "operands" => fields.operands,
            "target" => fields.target,
            _ => fields.program,
        };
        json!({ "error": response.json(text) })
    })
}

fn answered(fields: &Fields<'_>, run: bool) -> Result<Json, ErrorResponse> {
    let mesh = mesh(fields.mesh).map_err(|r| r.within("mesh"))?;
    let operands = operands(fields.operands, &mesh).map_err(|r| r.within("operands"))?;
    let program = syntax::parse(fields.program)?;
    let target = match fields.target.trim() {
        "" => None,
        text => Some(syntax::spec(text).map_err(|e| ErrorResponse::syntax(e).within("target"))?),
    };
    let first_error = RefCell::new(None);
    let body = |arrays: &[&Array]| -> Result<Array> {
        let interp = Interp::new(fields.program, 0..0, true, Some(mesh.clone()));
        let mut scope = Scope::default();
        for (o, x) in operands.iter().zip(arrays) {
            scope.bind(o.name.as_str().into(), Value::Array((*x).clone()));
        }
        let value = match interp.program(&program, &scope) {
            Ok(Value::Unit) => {
                Err(syntax_error!("the program has no result: its last line is an expression"))
            }
            Ok(value) => array(&value),
            Err(Stop::Return(value)) => array(&value),
            Err(Stop::Error(r)) => Err(r),
            Err(_) => Err(syntax_error!("`break` is outside of a loop")),
        };
        let made = value.and_then(|x| match target {
            Some(spec) => placement::at(x, spec, &mesh),
            None => Ok(x),
        });
        made.map_err(|r| {
            first_error.borrow_mut().get_or_insert(r);
            Error::other("rejected")
        })
    };
    let made = traced(&operands, &mesh, &body, run);
    match (first_error.borrow_mut().take(), made) {
        (Some(r), _) => Err(r),
        (None, Err(e)) => Err(fixit::without_source(&e)),
        (None, Ok(made)) => Ok(described(&mesh, &operands, made)),
    }
}

/// Parses a mesh such as `X=2, Y=4 auto`; it is abstract if it has many devices.
fn mesh(text: &str) -> Result<Mesh, ErrorResponse> {
    let (mut axes, mut auto): (Vec<(&str, usize)>, Axes) = (Vec::new(), Axes::none());
    for part in text.split([',', ';', '\n']).map(str::trim).filter(|p| !p.is_empty()) {
        let Some((name, size)) = part.split_once(['=', ':']) else {
            return Err(syntax_error!("`{part}` is no axis: write its name and size, like X=4"));
        };
        let size = match size.trim().strip_suffix("auto") {
            Some(size) => {
                auto.push(Axis::from(name.trim()));
                size
            }
            None => size,
        };
        let size: usize = size.trim().parse().map_err(|_| syntax_error!("`{}` is no size", size.trim()))?;
        axes.push((name.trim(), size));
    }
    let devices = axes.iter().try_fold(1usize, |n, a| n.checked_mul(a.1)).filter(|n| *n <= MAX_DEVICES);
    let Some(devices) = devices.filter(|_| axes.len() <= MAX_AXES) else {
        return Err(syntax_error!("a mesh has at most {MAX_DEVICES} devices and {MAX_AXES} axes here"));
    };
    let made = if devices <= RUN_DEVICES { Mesh::new(axes) } else { Mesh::without_devices(axes) };
    made.and_then(|m| if auto.is_empty() { Ok(m) } else { m.with_auto(auto) })
        .map_err(|e| fixit::without_source(&e))
}

/// An operand of the program.
struct Operand {
    name: String,
    ty: ArrayType,
    /// The sharding over all axes, including auto axes.
    spec: Spec,
}

/// Parses lines such as `name: type`, or `name: type over [X,_]` for auto axes.
fn operands(text: &str, mesh: &Mesh) -> Result<Vec<Operand>, ErrorResponse> {
    let mut operands = Vec::new();
    for line in text.lines().flat_map(|l| l.split(';')).map(str::trim).filter(|l| !l.is_empty()) {
        let Some((name, ty)) = line.split_once(':') else {
            return Err(syntax_error!(
                "`{line}` is no operand: write a name and a type, like x: float32[8@X,4]"
            ));
        };
        let (ty, over) = placement::split(ty)?;
        let ty = ArrayType::parse(ty.trim(), mesh).map_err(|e| fixit::without_source(&e))?;
        let spec = placement::joined(&ty, over, mesh)?;
        operands.push(Operand { name: name.trim().to_string(), ty, spec });
    }
    match operands.len() {
        1..=6 => Ok(operands),
        n => Err(syntax_error!("a program has one to six operands here, not {n}")),
    }
}

/// The results of compiling, and maybe running, a program.
struct Made {
    ty: ArrayType,
    program: String,
    spmd: String,
    report: Collectives,
    values: Option<Result<Vec<Json>, String>>,
    moves: Option<String>,
}

/// Traces and lowers `body` with operands of these types, and runs it if requested and small.
fn traced(
    operands: &[Operand],
    mesh: &Mesh,
    body: &dyn Fn(&[&Array]) -> Result<Array>,
    run: bool,
) -> Result<Made> {
    let auto = !mesh.axes_of(AxisType::Auto).is_empty();
    // types do not show auto axes: an operand without a mesh is placed by the specs
    let bare = |o: &Operand| if auto { o.ty.dtype.array_type(o.ty.shape.clone()) } else { o.ty.clone() };
    let types: Vec<ArrayType> = operands.iter().map(bare).collect();
    let types = &types[..];
    // the operands are one tree, as those of whole programs are: this needs the code of `jit` once
    let tree = |list: Vec<Arrays>| match <[Arrays; 1]>::try_from(list) {
        Ok([one]) => one,
        Err(list) => Arrays::Tuple(list),
    };
    let f = |args: Arrays| -> Result<Arrays> {
        let list = match args {
            Arrays::Tuple(list) => list,
            one => vec![one],
        };
        let arrays: Vec<&Array> = list.iter().filter_map(Arrays::as_array).collect();
        body(&arrays).map(Arrays::Array)
    };
    let specs: Vec<SpecTree> = operands.iter().map(|o| SpecTree::One(o.spec)).collect();
    let specs = match <[SpecTree; 1]>::try_from(specs) {
        Ok([one]) => one,
        Err(list) => SpecTree::Node(list.into_iter().enumerate().map(|(i, s)| (i.to_string(), s)).collect()),
    };
    let mut f = jit(f);
    if auto {
        f = f.on(mesh).in_specs(specs);
    }
    let mut made =
        lowered(f.trace(tree(types.iter().map(|t| Arrays::Array(t.clone().into_tree())).collect()))?, auto)?;
    if !run {
        return Ok(made);
    }
    if let Some(why) = too_large(types, &made) {
        made.values = Some(Err(why));
        return Ok(made);
    }
    let values = types.iter().map(|ty| data(ty).map(Arrays::Array)).collect::<Result<Vec<_>>>()?;
    if let ([ty], false) = (types, auto) {
        // show which device received what, if the program is small and only moves and sums data
        let one = jit(|a: &Array| body(&[a]));
        made.moves = data(ty).and_then(|x| one.data_movement(&x)).ok().map(|m| m.to_svg("what moves"));
    }
    let result = f.call(tree(values)).and_then(|y| match &y {
        Arrays::Array(y) => shards(y),
        _ => Err(Error::other("a program without a result")),
    });
    made.values = Some(result.map_err(|e| e.to_string()));
    Ok(made)
}

/// Lowers a traced program; with `auto`, the listing is that of the placed program.
fn lowered(traced: Traced<Arrays, Arrays>, auto: bool) -> Result<Made> {
    let ty = traced
        .program()
        .output_types()
        .first()
        .cloned()
        .ok_or_else(|| Error::other("a program without a result"))?;
    let mut program = listing(&traced.to_string());
    let lowered = traced.lower()?;
    if auto {
        program = listing(&lowered.program().to_string());
    }
    let (spmd, report) = (listing(&lowered.spmd().to_string()), lowered.collectives().clone());
    Ok(Made { ty, program, spmd, report, values: None, moves: None })
}

/// Removes the source locations of operations from a listing.
/// They are in this crate and not in the reader's program.
fn listing(text: &str) -> String {
    let lines = text.lines().map(|line| match line.rsplit_once("playground/src/") {
        Some((before, _)) => before.trim_end().trim_end_matches("//").trim_end(),
        None => line,
    });
    lines.fold(String::new(), |all, line| all + line + "\n")
}

/// Returns the reason why a program is not run here, if there is one.
fn too_large(types: &[ArrayType], made: &Made) -> Option<String> {
    let abstract_mesh = made.ty.mesh.as_ref().is_some_and(Mesh::is_abstract);
    let elements =
        types.iter().chain([&made.ty]).map(|t| t.shape.iter().product::<usize>()).max().unwrap_or(0);
    if abstract_mesh {
        return Some(format!(
            "the mesh has more than {RUN_DEVICES} devices: it is abstract, and gives types and reports only"
        ));
    }
    let message = format!("values are computed for arrays of at most {RUN_ELEMENTS} elements");
    (elements > RUN_ELEMENTS || made.report.peak_bytes() > RUN_BYTES).then_some(message)
}

/// Returns 0, 1, 2, … as an array of this type.
fn data(ty: &ArrayType) -> Result<Array> {
    let numbers = Array::iota(DType::I32.array_type([ty.shape.iter().product::<usize>()]), 0);
    let array = numbers.reshape(ty.shape.clone()).astype(ty.dtype);
    match &ty.mesh {
        Some(mesh) => Ok(array.put(mesh, ty.spec)),
        None => Ok(array),
    }
}

/// Returns the block of each device.
fn shards(y: &Array) -> Result<Vec<Json>> {
    let each = y.shards()?.into_iter().map(|s| {
        let part: Vec<String> = s.index.iter().map(|r| format!("{}..{}", r.start, r.end)).collect();
        json!({ "device": s.device.to_string(), "part": format!("[{}]", part.join(", ")), "data": s.data.to_string() })
    });
    Ok(each.collect())
}

fn picture(ty: &ArrayType, spec: Spec, mesh: &Mesh) -> Json {
    let drawn = match placement::sharding(ty, spec, mesh).filter(|_| spec != ty.spec) {
        Some(sharding) => Picture::new(ty.shape.clone(), &sharding),
        None => Picture::from_type(ty),
    };
    if mesh.size() <= DRAWN_DEVICES { drawn.to_svg_sized(SIDE_PX).into() } else { Json::Null }
}

/// Returns the fields of the answer.
fn described(mesh: &Mesh, operands: &[Operand], made: Made) -> Json {
    let over = |ty: &ArrayType, spec: Spec| match spec == ty.spec {
        true => ty.to_string(),
        false => format!("{ty}, sharded as {spec}"),
    };
    let typed = |name: &str, ty: &ArrayType, spec: Spec| json!({ "name": name, "type": over(ty, spec), "picture": picture(ty, spec, mesh), "bytes_per_device": bytes(ty, spec, mesh) });
    let operands: Vec<_> = operands.iter().map(|o| typed(&o.name, &o.ty, o.spec)).collect();
    let spec = placement::of_result(&made.program)
        .and_then(|over| placement::joined(&made.ty, Some(over), mesh).ok());
    let spec = spec.unwrap_or(made.ty.spec);
    let row = |c: &atmesh::Collective| {
        json!({
            "kind": c.kind.name(), "axes": c.axes.to_string(), "bytes": c.bytes_per_device, "total": c.total_bytes, "exact": c.exact,
            "times": c.count, "operation": c.op, "reason": c.reason,
        })
    };
    let collectives: Vec<_> = made.report.iter().map(row).collect();
    let values = match made.values {
        Some(Ok(values)) => json!({ "values": values }),
        Some(Err(why)) => json!({ "values_error": why }),
        None => json!({}),
    };
    let mut answer = json!({
        "mesh": mesh.to_string(), "devices": mesh.size(), "abstract": mesh.is_abstract(),
        "operands": operands, "result": typed("result", &made.ty, spec),
        "collectives": collectives, "peak_bytes": made.report.peak_bytes(),
        "program": made.program, "spmd": made.spmd, "moves": made.moves,
    });
    if let (Some(answer), Json::Object(values)) = (answer.as_object_mut(), values) {
        answer.extend(values);
    }
    answer
}

/// Returns the size in bytes of the first device's block.
/// Over auto axes, the size of a dimension need not be divisible by the number of shards.
fn bytes(ty: &ArrayType, spec: Spec, mesh: &Mesh) -> u64 {
    let parts = |d: usize| {
        spec.padded(ty.shape.len()).dim(d).iter().map(|a| mesh.axis_size(*a).unwrap_or(1)).product::<usize>()
    };
    let elements = ty.shape.iter().enumerate().map(|(d, n)| n.div_ceil(parts(d).max(1)) as u64);
    elements.fold(ty.dtype.size() as u64, u64::saturating_mul)
}
