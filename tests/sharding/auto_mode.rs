//! Auto mode: compares the shardings that the reference's compiler chose for results with ours.

use crate::error_checks::Unquoted as _;
use crate::soak::{part, runs_all};
use atmesh::array::{DimIndex, Index};
use atmesh::mesh::AxisType;
use atmesh::partition::partition;
use atmesh::prelude::*;
use atmesh::program::{Input, Placement};
use atmesh::propagate::propagate;
use atmesh::sharding::sub_axes::{from_axes, num_shards};
use atmesh::tree::Args;
use atmesh::{Axes, Error, Key, ScanOptions, concat, grad, scan_with};
use serde_json::Value;
use std::collections::BTreeMap;

type Env = BTreeMap<String, Array>;

fn texts(v: &Value) -> Vec<&str> {
    v.as_array().unwrap().iter().map(|s| s.as_str().unwrap()).collect()
}
fn sizes(v: &Value) -> Vec<usize> {
    v.as_array().unwrap().iter().map(|n| n.as_u64().unwrap() as usize).collect()
}
fn spec(v: &Value) -> Spec {
    let axes = |e: &Value| match e {
        Value::Null => Axes::none(),
        Value::String(a) => Axes::from(a.as_str()),
        several => texts(several).into_iter().map(Axis::from).collect(),
    };
    Spec::from_dims(v.as_array().unwrap().iter().map(axes).collect())
}

/// Traces equations by name. Returns `None` if an operation is not covered by these cases.
fn trace(body: &Value, env: &mut Env, mesh: &Mesh) -> Option<()> {
    for e in body.as_array().unwrap() {
        let inputs = e["in"].as_array().unwrap();
        let number = |v: &Value| v["lit"].as_f64().map(|x| Array::from(x as f32));
        let read = |v: &Value| v.as_str().map_or_else(|| number(v), |n| env.get(n).cloned());
        let ins: Vec<Array> = inputs.iter().filter_map(read).collect();
        let (p, x) = (&e["params"], &ins[..]);
        let axis = |name: &str| p[name].as_i64().unwrap() as i32;
        let axes = |name: &str| sizes(&p[name]);
        let out = match e["op"].as_str().unwrap() {
            "add" => &x[0] + &x[1],
            "mul" => &x[0] * &x[1],
            "sin" => x[0].sin(),
            "cos" => x[0].cos(),
            "tanh" => x[0].tanh(),
            "matmul" => x[0].matmul(&x[1]),
            "einsum" => einsum(p["subscripts"].as_str().unwrap(), &ins),
            "concatenate" => concat(&ins, axis("dimension")),
            "slice" => {
                let ends = sizes(&p["start"]).into_iter().zip(sizes(&p["limit"]));
                x[0].slice(Index::from(
                    ends.map(|(a, b)| DimIndex::from(a as i32..b as i32)).collect::<Vec<_>>(),
                ))
            }
            "reduce_sum" => x[0].sum(axes("axes")),
            "reshape" => x[0].reshape(sizes(&p["new_sizes"])),
            "transpose" => x[0].transpose(axes("permutation")),
            "roll" => x[0].roll(p["shift"].as_i64().unwrap(), axis("axis")),
            "argmax" => x[0].argmax(axis("axis")),
            "softmax" => x[0].softmax(axis("axis")),
            "with_sharding_constraint" => x[0].constrain_on(mesh, spec(&p["spec"])),
            "scan" => {
                let mut options = ScanOptions::default();
                options.length = p["length"].as_u64().map(|n| n as usize);
                let (inner, outer) = (&e["body"], env.clone());
                let body = |c: Array, ()| {
                    let mut env = outer.clone();
                    env.insert(texts(&inner["args"])[0].into(), c);
                    trace(&inner["body"], &mut env, mesh).ok_or_else(|| Error::other(NOT_COVERED))?;
                    Ok::<_, Error>((env[texts(&inner["returns"])[0]].clone(), ()))
                };
                let carried = scan_with(ins[0].clone(), (), body, options);
                carried.0
            }
            "square" => x[0].square(),
            // A key has no sharding: the samplers refer to it by name.
            "random_key" => continue,
            "random_normal" => {
                let key = &e["in"][0];
                let made = body.as_array().unwrap().iter().find(|k| k["out"][0] == *key).unwrap();
                Key::new(made["params"]["seed"].as_u64().unwrap()).normal(sizes(&p["shape"]))
            }
            "grad" => {
                let (inner, outer, wrt) = (&e["body"], env.clone(), sizes(&p["wrt"]));
                let at: Vec<Array> = wrt.iter().map(|k| ins[*k].clone()).collect();
                let gradients = grad(at, |at: Vec<Array>| {
                    let mut env = outer.clone();
                    env.extend(texts(&inner["args"]).into_iter().map(String::from).zip(ins.iter().cloned()));
                    for (k, x) in wrt.iter().zip(at) {
                        env.insert(texts(&inner["args"])[*k].into(), x);
                    }
                    trace(&inner["body"], &mut env, mesh).ok_or_else(|| Error::other(NOT_COVERED))?;
                    Ok::<_, Error>(env[texts(&inner["returns"])[0]].clone())
                });
                env.extend(texts(&e["out"]).into_iter().map(String::from).zip(gradients));
                continue;
            }
            _ => return None,
        };
        env.insert(texts(&e["out"])[0].into(), out);
    }
    Some(())
}

/// Returns true if `chosen` is the spec that a function reports for a result: whole axes that
/// divide the dimension.
fn shown(mesh: &Mesh, at: &Placement, shape: &[usize], chosen: Spec) -> bool {
    let splits = |spec: Spec| {
        spec.padded(shape.len()).dims().iter().map(|d| from_axes(mesh, d.iter())).collect::<Vec<_>>()
    };
    let names = mesh.axis_names();
    at.dims.iter().zip(shape).zip(splits(chosen)).all(|((dim_axes, n), chosen)| {
        // Find the longest list of axes that is a prefix of these sub-axes and divides the size.
        let mut axes: Vec<Axis> = Vec::new();
        while let Some(next) = names.iter().find(|a| {
            let longer = from_axes(mesh, axes.iter().copied().chain([**a]));
            let last = longer.len().wrapping_sub(1);
            let begins = longer.iter().zip(dim_axes).enumerate().all(|(i, (l, d))| {
                l == d || i == last && l.stride * l.size == d.stride * d.size && d.size % l.size == 0
            });
            !axes.contains(a)
                && mesh.axis_size(**a).unwrap() > 1
                && begins
                && longer.len() <= dim_axes.len()
                && n % num_shards(&longer) == 0
        }) {
            axes.push(*next);
        }
        from_axes(mesh, axes) == chosen
    })
}

/// A case: its mesh, the types and shardings of its arguments, and its program.
struct Case {
    json: Value,
    mesh: Mesh,
}

impl Case {
    fn all() -> Vec<Case> {
        let path = format!("{}/tests/conformance/auto_shardings.jsonl", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let case = |line: &str| {
            let json: Value = serde_json::from_str(line).unwrap();
            let axes = json["mesh"]["axes"].as_array().unwrap().iter().zip(texts(&json["mesh"]["types"]));
            let mesh = Mesh::with_types(axes.map(|(a, t)| {
                let ty = if t == "auto" { AxisType::Auto } else { AxisType::Explicit };
                (a[0].as_str().unwrap(), a[1].as_u64().unwrap() as usize, ty)
            }));
            Case { mesh: mesh.unwrap(), json }
        };
        text.lines().skip(1).map(case).collect()
    }
    fn id(&self) -> &str {
        self.json["id"].as_str().unwrap()
    }
    /// Returns the name, the type and the sharding of each argument.
    fn args(&self) -> Vec<(String, ArrayType, Spec)> {
        let arg = |a: &Value| {
            let ty = ArrayType::parse(a["type"].as_str().unwrap(), &self.mesh).unwrap();
            let at = if a["spec"].is_null() { ty.spec } else { spec(&a["spec"]) };
            (a["name"].as_str().unwrap().to_string(), ty, at)
        };
        self.json["args"].as_array().unwrap().iter().map(arg).collect()
    }
    /// Runs the program on `mesh`, which is the mesh of the case or one with a single device.
    fn run(&self, inputs: &[Array], mesh: &Mesh) -> Result<Vec<Array>> {
        let names = self.args().into_iter().map(|a| a.0);
        let mut env: Env = names.zip(inputs.iter().cloned()).collect();
        trace(&self.json["body"], &mut env, mesh).ok_or_else(|| Error::other(NOT_COVERED))?;
        Ok(texts(&self.json["returns"]).into_iter().map(|r| env[r].clone()).collect())
    }
}

const NOT_COVERED: &str = "not covered";

/// The results whose sharding differs from the reference's choice, with the reason. None of them
/// communicates more than with the reference's choice.
const DIFFER: [(&str, &str); 3] = [
    ("auto/0012", "a slice of 7 by 14 out of 16 by 16 keeps its operand's axes: blocks may be uneven"),
    ("auto/0087", "an auto axis is appended to the explicit one of its dimension"),
    ("auto/0102", "an auto axis is appended to the explicit one of its dimension"),
];

#[test]
fn results_lie_as_the_reference_chose() {
    let (mut same, mut left_out, mut differ) = (0, 0, Vec::new());
    for case in Case::all() {
        let args: Vec<Array> =
            case.args().into_iter().map(|(_, ty, at)| ty.on(&case.mesh, at).into_tree()).collect();
        let f = jit(|inputs: &Vec<Array>| case.run(inputs, &case.mesh));
        let traced = match f.trace(&args) {
            Ok(t) => t,
            Err(e) if e.unquoted().contains(NOT_COVERED) => {
                left_out += 1;
                continue;
            }
            Err(e) => panic!("{}: {e}", case.id()),
        };
        let communicated = |wanted: &[Option<Placement>]| {
            let placed = propagate(traced.program(), wanted).unwrap();
            let bytes = partition(&placed).unwrap().collectives.bytes();
            (placed, bytes)
        };
        let (placed, ours) = communicated(&[]);
        let (mut theirs, mut alike) = (Vec::new(), true);
        for (k, chosen) in case.json["chosen"].as_array().unwrap().iter().enumerate() {
            let Input::Var(v) = placed.outputs[k] else { panic!("{}: a number", case.id()) };
            let info = &placed.vars[v.index()];
            let at = info.placement.as_ref().unwrap();
            if shown(&case.mesh, at, &info.ty.shape, spec(chosen)) {
                same += 1;
            } else {
                alike = false;
                println!("{} result {k}: {} chosen {chosen}, ours {:?}", case.id(), info.ty, at.dims);
            }
            let axes = spec(chosen).padded(info.ty.rank());
            let dims = axes.dims().iter().map(|d| from_axes(&case.mesh, d.iter())).collect();
            theirs.push(Some(Placement { dims, ..at.clone() }));
        }
        if !alike {
            let theirs = communicated(&theirs).1;
            println!("{}: {ours} bytes, with the reference's choice {theirs}", case.id());
            assert!(ours <= theirs, "{}: {ours} bytes, with the reference's choice {theirs}", case.id());
            differ.push(case.id().to_string());
        }
    }
    println!("{same} as chosen, {left_out} cases left out");
    assert!(same > 135, "{same} as chosen, {left_out} cases left out");
    assert_eq!(differ, DIFFER.map(|d| d.0));
}

/// The elements equal those on one device, however auto axes are used.
#[test]
fn numbers_do_not_depend_on_where_values_are_placed() {
    let mut ran = 0;
    for case in Case::all() {
        let data = |(_, ty, _): &(String, ArrayType, Spec)| {
            let n = ty.shape.iter().product::<usize>();
            match ty.dtype {
                I32 => Array::from((0..n).map(|i| (i * 3 % 4) as i32).collect::<Vec<_>>()),
                _ => Array::from((0..n).map(|i| ((i * 7919 % 101) as f32 - 50.0) / 64.0).collect::<Vec<_>>()),
            }
            .reshape(&ty.shape)
        };
        let args = case.args();
        let plain: Vec<Array> = args.iter().map(data).collect();
        let split: Vec<Array> = plain.iter().zip(&args).map(|(x, a)| x.put(&case.mesh, a.2)).collect();
        let f = jit(|inputs: &Vec<Array>| case.run(inputs, &case.mesh));
        let got = match f.call(&split) {
            Ok(got) => got,
            Err(e) if e.unquoted().contains(NOT_COVERED) => continue,
            Err(e) => panic!("{}: {e}", case.id()),
        };
        // The same case on one device: the axes keep their names and have size 1.
        let ones = case.mesh.axis_names().iter().zip(case.mesh.axis_types()).map(|(a, t)| (*a, 1, *t));
        let one = Mesh::with_types(ones).unwrap();
        let alone: Vec<Array> = plain.iter().zip(&args).map(|(x, a)| x.put(&one, a.2)).collect();
        let g = jit(|inputs: &Vec<Array>| case.run(inputs, &one));
        for (got, want) in got.iter().zip(g.call(&alone).unwrap_or_else(|e| panic!("{}: {e}", case.id()))) {
            let close = match want.dtype().unwrap() {
                I32 => got.to_vec::<i32>().unwrap() == want.to_vec::<i32>().unwrap(),
                _ => {
                    let (got, want) = (got.to_vec::<f32>().unwrap(), want.to_vec::<f32>().unwrap());
                    got.len() == want.len()
                        && got.iter().zip(&want).all(|(g, w)| (g - w).abs() <= 1e-4 + 1e-4 * w.abs())
                }
            };
            assert!(close, "{}:\n{got}\n{want}", case.id());
        }
        ran += 1;
    }
    assert!(ran > 110, "only {ran} cases ran");
}

/// Dimensions that are not divisible by the axes have blocks of different sizes, some of them
/// empty. Reductions count every element exactly once.
#[test]
fn uneven_blocks_are_folded_once() -> Result<()> {
    let mesh = Mesh::auto([("X", 4), ("Y", 2)])?;
    let near = |a: &Array, b: &Array, what: &str| {
        let same = a.astype(F64).allclose_with(&b.astype(F64), 1e-5, 1e-6);
        assert!(same.unwrap(), "{what}: {a}\nis not\n{b}");
    };
    type Fold = fn(&Array, i32) -> Array;
    let exact: [(&str, Fold); 6] = [
        ("max", |x, d| x.max(d)),
        ("min", |x, d| x.min(d)),
        ("argmax", |x, d| x.argmax(d)),
        ("argmin", |x, d| x.argmin(d)),
        ("any", |x, d| x.gt(1.5).any(d)),
        ("all", |x, d| x.gt(-1.5).all(d)),
    ];
    let summed: [(&str, Fold); 7] = [
        ("sum", |x, d| x.sum(d)),
        ("prod", |x, d| x.prod(d)),
        ("mean", |x, d| x.mean(d)),
        ("std", |x, d| x.std_ddof(d, 1)),
        ("logsumexp", |x, d| x.logsumexp(d)),
        ("softmax", |x, d| x.softmax(d)),
        ("log_softmax", |x, d| x.log_softmax(d)),
    ];
    // 5 elements over 4 devices give blocks of 2, 2, 1 and 0; 9 elements give 3, 3, 3 and 0.
    let specs = [p!["X", _], p![_, "X"], p!["X", "Y"], p!["Y", "X"], p![("X", "Y"), _], p![_, ("Y", "X")]];
    for (k, (rows, columns)) in [(5, 3), (3, 7), (9, 5), (1, 2)].into_iter().enumerate() {
        let x = Key::new(rows as u64).normal([rows, columns]);
        // The maximum and the minimum are at the end, where blocks are short.
        let x = x.at(ix![-1, -1]).set(9.0).at(ix![-1, 0]).set(-9.0);
        // each size runs with a part of the shardings, and the next size with others
        let first = if runs_all() { 0 } else { k % 4 };
        for spec in part(specs.into_iter().skip(first), 4) {
            let placed = x.put(&mesh, spec);
            for d in 0..2 {
                for (name, f) in &exact {
                    let what = format!("{name} along {d} of [{rows},{columns}] by {spec}");
                    let want = f(&x, d).astype(F64).to_vec::<f64>()?;
                    let at = |engine| jit(|x: &Array| f(x, d)).engine(engine).call(&placed);
                    for engine in [EngineKind::Lockstep, EngineKind::Threads] {
                        assert_eq!(at(engine)?.astype(F64).to_vec::<f64>()?, want, "{what}");
                    }
                }
                for (name, f) in &summed {
                    let what = format!("{name} along {d} of [{rows},{columns}] by {spec}");
                    let want = f(&x, d);
                    let at = |engine| jit(|x: &Array| f(x, d)).engine(engine).call(&placed);
                    let (one, other) = (at(EngineKind::Lockstep)?, at(EngineKind::Threads)?);
                    assert_eq!(one.shape()?, want.shape()?, "{what}");
                    if rows > 1 || *name != "std" {
                        near(&one, &want, &what);
                    }
                    let bits = |x: &Array| {
                        x.to_vec::<f32>().map(|v| v.iter().map(|x| x.to_bits()).collect::<Vec<_>>())
                    };
                    assert_eq!(bits(&one)?, bits(&other)?, "{what}: the engines differ");
                    let grads = jit(|x: &Array| grad(x, |x| (f(&x, d) * 1.5).sum(..))).call(&placed)?;
                    if rows > 1 && columns > 1 && *name != "std" {
                        near(
                            &grads,
                            &grad(&x, |x| (f(&x, d) * 1.5).sum(..)),
                            &format!("the slope of {what}"),
                        );
                    }
                }
            }
        }
    }
    Ok(())
}
