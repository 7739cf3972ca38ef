//! Cases with nested programs, derivatives and per-device code.

mod regions;

use crate::driver::{Outcome, Stop, axes, differs, fill, mesh, number, primitive, sizes, spec};
use crate::machine::{Held, Machine};
use atmesh::diagnostic::{ErrorKind, Fault};
use atmesh::grad::{jvp_program, vjp_program};
use atmesh::mesh::{Axes, Axis, AxisType};
use atmesh::ops::collective::{
    AllGather, AllGatherTo, AllToAllPrim, AxisIndex, CollectiveGroup, Pbroadcast, Pcast, PcastTo, Ppermute,
    Preduce, PsumScatter,
};
use atmesh::ops::dot_general::DotGeneral;
use atmesh::ops::elementwise::Unary;
use atmesh::ops::reduce::Reduction;
use atmesh::ops::sharding::{Constrain, Reshard};
use atmesh::ops::slicing::UpdateSlice;
use atmesh::program::loop_nest::Reducer;
use atmesh::program::typing::cotangent_type;
use atmesh::program::{
    Builder, CheckpointPolicy, Control, DeviceGroups, Loop, Prim, Program, ShardMapping, Value,
};
use atmesh::types::{ArrayType, DType, Scalar, Shape};
use atmesh::{Error, Mesh, Spec};
use serde_json::Value as Json;
use std::collections::HashMap;
use std::sync::Arc;

/// A program under construction, and its captures from the surrounding one.
struct Scope {
    b: Builder,
    names: HashMap<String, Value>,
    captured: Vec<Value>,
    mesh: Mesh,
    checked: bool,
    /// True if names of the surrounding program may be captured.
    open: bool,
}

struct Reader<'a> {
    scopes: Vec<Scope>,
    expect: &'a Json,
    /// The equation that was found to be wrong.
    at: Option<String>,
}

type Res<T> = Result<T, Stop>;

fn not_here<T>(what: impl Into<String>) -> Res<T> {
    Err(Stop::NotHere(what.into()))
}
fn rejected<T>(kind: ErrorKind, message: impl Into<String>) -> Res<T> {
    Err(Error::from(Fault::new(kind, message)).into())
}
fn list(v: &Json) -> &[Json] {
    v.as_array().map_or(&[], Vec::as_slice)
}
fn text(v: &Json) -> &str {
    v.as_str().unwrap()
}

impl Reader<'_> {
    fn top(&mut self) -> &mut Scope {
        self.scopes.last_mut().unwrap()
    }
    fn lookup(&mut self, name: &str, depth: usize) -> Res<Value> {
        if let Some(v) = self.scopes[depth].names.get(name) {
            return Ok(v.clone());
        }
        if depth == 0 || !self.scopes[depth].open {
            return not_here("a captured name");
        }
        let outer = self.lookup(name, depth - 1)?;
        let scope = &mut self.scopes[depth];
        let inner = if outer.is_literal() {
            outer
        } else {
            scope.captured.push(outer.clone());
            scope.b.input(outer.ty, None)
        };
        scope.names.insert(name.into(), inner.clone());
        Ok(inner)
    }
    fn operands(&mut self, e: &Json) -> Res<Vec<Value>> {
        let op = text(&e["op"]);
        let depth = self.scopes.len() - 1;
        let mut found = Vec::new();
        for v in list(&e["in"]) {
            found.push(match v.as_str() {
                Some(name) => Some(self.lookup(name, depth)?),
                None => None,
            });
        }
        let skip = usize::from(op == "select" || op == "where");
        let beside = found.iter().skip(skip).flatten().find(|v| !v.is_literal()).map(|v| v.ty.dtype);
        let mut all = Vec::new();
        for (k, (v, named)) in list(&e["in"]).iter().zip(found).enumerate() {
            let value = match named {
                // A named scalar takes the element type of the other operand.
                Some(v) if !v.is_literal() => {
                    all.push(v);
                    continue;
                }
                Some(v) => match v.input {
                    atmesh::program::Input::Lit(l) => l.value,
                    atmesh::program::Input::Var(_) => unreachable!(),
                },
                None => number(&v["lit"]),
            };
            let dtype = match (op, k) {
                ("select", 0) => DType::Bool,
                _ => match beside {
                    Some(d) => d,
                    None => return not_here("numbers alone"),
                },
            };
            let fits = match value {
                Scalar::Bool(_) => dtype == DType::Bool,
                Scalar::Int(_) => dtype != DType::Bool,
                Scalar::Float(_) => dtype.is_inexact(),
                Scalar::Complex(..) => dtype.is_complex(),
            };
            if !fits {
                return rejected(ErrorKind::Dtype, format!("{value} is no {dtype}"));
            }
            let value = if dtype.is_float() { Scalar::Float(value.to_f64()) } else { value };
            all.push(Value::literal(dtype, value));
        }
        Ok(all)
    }
    /// Builds equations; the first rejected one is remembered.
    fn equations(&mut self, body: &Json) -> Res<()> {
        for e in list(body) {
            let name = text(&e["out"][0]).to_string();
            let outs = match self.equation(e) {
                Ok(outs) => outs,
                Err(stop) => {
                    self.at.get_or_insert(name);
                    return Err(stop);
                }
            };
            for (name, v) in list(&e["out"]).iter().map(text).zip(outs) {
                self.check_type(name, &v)?;
                self.top().names.insert(name.into(), v);
            }
        }
        Ok(())
    }
    fn check_type(&self, name: &str, v: &Value) -> Res<()> {
        match self.expect["types"][name].as_str() {
            Some(want) if self.expect["at"].is_null() && want != v.ty.to_string() && !v.is_literal() => {
                Err(Stop::NotHere(format!("WRONG {name} is {}, not {want}", v.ty)))
            }
            _ => Ok(()),
        }
    }
    /// Builds a nested program with arguments of these types, and returns it with its captures.
    fn body(
        &mut self,
        body: &Json,
        types: &[ArrayType],
        mesh: Mesh,
        checked: bool,
        open: bool,
    ) -> Res<(Program, Vec<Value>)> {
        let mut b = Builder::new();
        b.set_default_mesh(&mesh);
        let names: HashMap<String, Value> = (list(&body["args"]).iter().zip(types))
            .map(|(name, ty)| (text(name).to_string(), b.input(ty.clone(), None)))
            .collect();
        for (name, v) in &names {
            self.check_type(name, v)?;
        }
        self.scopes.push(Scope { b, names, captured: Vec::new(), mesh, checked, open });
        let done = self.equations(&body["body"]);
        let depth = self.scopes.len() - 1;
        let mut outs = Vec::new();
        if done.is_ok() {
            for name in list(&body["returns"]) {
                outs.push(self.lookup(text(name), depth)?);
            }
        }
        let scope = self.scopes.pop().unwrap();
        done?;
        Ok((scope.b.finish(&outs), scope.captured))
    }
    fn same_mesh_body(&mut self, body: &Json, types: &[ArrayType]) -> Res<(Program, Vec<Value>)> {
        let (mesh, checked) = (self.top().mesh.clone(), self.top().checked);
        self.body(body, types, mesh, checked, true)
    }

    fn equation(&mut self, e: &Json) -> Res<Vec<Value>> {
        let (op, p) = (text(&e["op"]), &e["params"]);
        match op {
            "shard_map" => return self.shard_map(e),
            "jit" | "checkpoint" => {
                let ins = self.operands(e)?;
                let (program, captured) = self.same_mesh_body(&e["body"], &types(&ins))?;
                let outs = program.output_types();
                let policy = match op {
                    "checkpoint" => CheckpointPolicy::SaveNothing,
                    _ => CheckpointPolicy::SaveAll,
                };
                let control = Control::call(Arc::new(program), policy);
                return Ok(self.top().b.control(control, &[ins, captured].concat(), outs));
            }
            "grad" | "value_and_grad" | "vjp" | "jvp" => return self.derivative(e),
            "fori_loop" | "scan" => return self.run_loop(e),
            "auto_axes" | "explicit_axes" => return not_here(op),
            "while_loop" => {
                let ins = self.operands(e)?;
                if ins.iter().any(Value::is_literal) {
                    return not_here("a number as a carry");
                }
                let (cond, c) = self.same_mesh_body(&e["cond"], &types(&ins))?;
                let (body, d) = self.same_mesh_body(&e["body"], &types(&ins))?;
                let differs = |(a, b): (&ArrayType, &Value)| a.to_string() != b.ty.to_string();
                if !c.is_empty()
                    || !d.is_empty()
                    || body.output_types().iter().zip(&ins).any(differs)
                    || cond.output_types()[0].to_string() != "bool[]"
                {
                    return not_here("rejected or capturing while loops");
                }
                let outs = body.output_types();
                let control =
                    Control::While { cond: cond.into(), body: body.into(), cond_fixed: 0, body_fixed: 0 };
                return Ok(self.top().b.control(control, &ins, outs));
            }
            "cond" | "switch" => {
                let ins = self.operands(e)?;
                let mut branches = Vec::new();
                let mut all: Vec<Value> = Vec::new();
                for body in list(&e["branches"]) {
                    let (program, captured) = self.same_mesh_body(body, &types(&ins[1..]))?;
                    if !captured.is_empty() {
                        return not_here("a captured name in a branch");
                    }
                    branches.push(Arc::new(program));
                }
                let outs: Vec<_> = branches.iter().map(|b| b.output_types()).collect();
                if outs
                    .windows(2)
                    .any(|w| w[0].iter().zip(&w[1]).any(|(a, b)| a.to_string() != b.to_string()))
                {
                    return not_here("branches of different types");
                }
                all.extend(ins);
                return Ok(self.top().b.control(Control::Cond { branches }, &all, outs[0].clone()));
            }
            _ => {}
        }
        let ins = self.operands(e)?;
        if let Some(outs) = self.collective(op, p, &ins)? {
            return Ok(outs);
        }
        if let Some(out) = self.composite(op, p, &ins)? {
            return Ok(vec![out]);
        }
        let mesh = self.top().mesh.clone();
        let prim: Option<Prim> = match op {
            "device_put" => Some(Arc::new(Reshard::new(mesh.clone(), spec(&p["spec"]).unwrap())) as Prim),
            "with_sharding_constraint" => {
                Some(Arc::new(Constrain::new(mesh.clone(), spec(&p["spec"]).unwrap())) as Prim)
            }
            "dynamic_update_slice" => {
                let starts: Option<Vec<usize>> =
                    list(&e["in"])[2..].iter().map(|v| v["lit"].as_u64().map(|n| n as usize)).collect();
                let Some(start) = starts else { return not_here("a dynamic start") };
                if ins[0].ty.spec != ins[1].ty.spec {
                    return not_here("an update that is sharded otherwise");
                }
                let start = start.iter().enumerate().map(|(d, s)| {
                    (*s).min(
                        ins[0]
                            .ty
                            .shape
                            .get(d)
                            .copied()
                            .unwrap_or(0)
                            .saturating_sub(ins[1].ty.shape.get(d).copied().unwrap_or(0)),
                    )
                });
                let prim = UpdateSlice { start: start.collect() };
                return Ok(vec![self.top().b.emit1(Arc::new(prim), &ins[..2])?]);
            }
            "pad" if e["in"][1].is_string() => return not_here("pad with a variable"),
            _ => {
                let beside = ins.first().map(|v| v.ty.dtype);
                primitive(e, beside, &mesh)
            }
        };
        let Some(prim) = prim else { return not_here(op) };
        let auto = |a: Axis| mesh.axis_type(a) == Some(AxisType::Auto);
        if op == "reshard" && spec(&p["spec"]).unwrap().all_axes().any(auto) {
            return not_here("reshard over auto axes, which the array layer rejects");
        }
        let ins = if op == "pad" { &ins[..1] } else { &ins[..] };
        Ok(self.top().b.emit(prim, ins)?)
    }

    /// Builds operations that consist of several primitives, as in the reference.
    fn composite(&mut self, op: &str, p: &Json, ins: &[Value]) -> Res<Option<Value>> {
        let Some(x) = ins.first().filter(|x| x.ty.dtype == DType::F32) else { return Ok(None) };
        let rank = x.ty.rank();
        let count = |d: i64| if d < 0 { (d + rank as i64) as usize } else { d as usize };
        let over: Vec<usize> = match &p["axis"] {
            Json::Null => (0..rank).collect(),
            Json::Array(list) => list.iter().map(|d| count(d.as_i64().unwrap())).collect(),
            d => vec![count(d.as_i64().unwrap())],
        };
        let keep = p["keepdims"].as_bool().unwrap_or(false);
        if over.iter().any(|d| *d >= rank) {
            return Ok(None);
        }
        let b = &mut self.top().b;
        Ok(Some(match op {
            "sum" | "mean" => {
                let n: usize = over.iter().map(|d| x.ty.shape[*d]).product();
                let mut y = b.reduce_sum(x, &over, None)?;
                y = if keep { b.expand_dims(&y, &over)? } else { y };
                if op == "mean" { b.mul_scalar(&y, 1.0 / n as f64)? } else { y }
            }
            "softmax" | "logsumexp" => {
                let top = b.reduce(Reduction::Max, x, &over)?;
                let top = b.unary(Unary::StopGradient, &top)?;
                let top = b.expand_dims(&top, &over)?;
                let y = b.sub(x, &top)?;
                let y = b.exp(&y)?;
                let sum = b.reduce_sum(&y, &over, None)?;
                if op == "softmax" {
                    let sum = b.expand_dims(&sum, &over)?;
                    b.div(&y, &sum)?
                } else {
                    let log = b.log(&sum)?;
                    let top = b.squeeze(&top, &over)?;
                    let y = b.add(&log, &top)?;
                    if keep { b.expand_dims(&y, &over)? } else { y }
                }
            }
            "matmul" if rank == 2 && ins[1].ty.rank() == 2 => {
                let prim = DotGeneral { out_sharding: spec(&p["out_sharding"]), ..DotGeneral::matmul() };
                b.emit1(Arc::new(prim), ins)?
            }
            _ => return Ok(None),
        }))
    }

    fn collective(&mut self, op: &str, p: &Json, ins: &[Value]) -> Res<Option<Vec<Value>>> {
        let (mesh, checked) = (self.top().mesh.clone(), self.top().checked);
        let mut named = axes(&p["axis_name"]);
        if op == "ppermute" {
            let mut order: Vec<Axis> = named.iter().collect();
            order.sort_by_key(|a| mesh.find(*a));
            named = order.into();
        }
        let mut along = CollectiveGroup::new(mesh.clone(), named, checked);
        along.groups = p["axis_index_groups"].as_array().map(|groups| {
            let group = |g: &Json| {
                g.as_array().into_iter().flatten().map(|i| i.as_i64().unwrap_or(-1) as usize).collect()
            };
            DeviceGroups::new(groups.iter().map(group).collect())
        });
        let dim = |v: &Json, rank: usize| {
            let d = v.as_i64().unwrap_or(0);
            if d < 0 { (d + rank as i64) as usize } else { d as usize }
        };
        let rank = ins.first().map_or(0, |v| v.ty.rank());
        let tiled = p["tiled"].as_bool().unwrap_or(false);
        let b = &mut self.top().b;
        let one = |b: &mut Builder, prim: Prim, ins: &[Value]| -> Res<Option<Vec<Value>>> {
            Ok(Some(vec![b.emit1(prim, ins)?]))
        };
        let sum = |combine| Arc::new(Preduce { group: along.clone(), reducer: combine });
        match op {
            "psum" | "pmean" => {
                let mut x = ins[0].clone();
                if x.is_literal() {
                    return not_here("the sum of a number");
                }
                if x.ty.dtype == DType::Bool {
                    x = b.convert(&x, DType::I32)?;
                }
                if op == "pmean" && !x.ty.dtype.is_float() {
                    x = b.convert(&x, DType::F32)?;
                }
                let y = b.emit1(sum(Reducer::Add), &[x])?;
                Ok(Some(vec![if op == "pmean" { b.mul_scalar(&y, 1.0 / along.size() as f64)? } else { y }]))
            }
            "pmax" => one(b, sum(Reducer::Max), ins),
            "pmin" => one(b, sum(Reducer::Min), ins),
            "all_gather" => {
                let to = match p["to"].as_str().unwrap_or("varying") {
                    "varying" => AllGatherTo::Varying,
                    "invarying" => AllGatherTo::Invarying,
                    _ => AllGatherTo::Reduced,
                };
                let dim = dim(&p["axis"], if tiled { rank } else { rank + 1 });
                one(b, Arc::new(AllGather { group: along, dim, tiled, to }), ins)
            }
            "psum_scatter" => {
                let dim = dim(&p["scatter_dimension"], rank);
                one(b, Arc::new(PsumScatter { group: along, dim, tiled }), ins)
            }
            "all_to_all" => {
                let (split, concat) = (dim(&p["split_axis"], rank), dim(&p["concat_axis"], rank));
                one(
                    b,
                    Arc::new(AllToAllPrim { group: along, split_dim: split, concat_dim: concat, tiled }),
                    ins,
                )
            }
            "pshuffle" => {
                let pairs: Vec<_> = sizes(&p["perm"]).into_iter().zip(0..).collect();
                one(b, Arc::new(Ppermute { group: along, pairs }), ins)
            }
            "pswapaxes" => {
                let d = dim(&p["axis"], rank);
                let prim = AllToAllPrim { group: along, split_dim: d, concat_dim: d, tiled: false };
                one(b, Arc::new(prim), ins)
            }
            "pbroadcast" => {
                let source = p["source"].as_i64().unwrap_or(-1) as usize;
                one(b, Arc::new(Pbroadcast { group: along, source }), ins)
            }
            "ppermute" => {
                let pairs = list(&p["perm"]).iter().map(|v| (sizes(v)[0], sizes(v)[1])).collect();
                one(b, Arc::new(Ppermute { group: along, pairs }), ins)
            }
            "axis_index" => one(b, Arc::new(AxisIndex { group: along }), &[]),
            "axis_size" => {
                // The names are checked like those of any collective.
                b.emit1(Arc::new(AxisIndex { group: along.clone() }), &[])?;
                Ok(Some(vec![Value::literal(DType::I32, along.size())]))
            }
            "pcast" => {
                let to = match text(&p["to"]) {
                    "varying" => PcastTo::Varying,
                    "reduced" => PcastTo::Reduced,
                    "unreduced" => PcastTo::Unreduced,
                    other => return not_here(other),
                };
                one(b, Arc::new(Pcast { group: along, to }), ins)
            }
            _ => Ok(None),
        }
    }
}

fn types(values: &[Value]) -> Vec<ArrayType> {
    values.iter().map(|v| v.ty.clone()).collect()
}

/// Compares the types and values of a case with the expected ones.
pub(crate) fn check(case: &Json) -> Outcome {
    let mesh = mesh(case);
    let mut b = Builder::new();
    b.set_default_mesh(&mesh);
    let (mut names, mut inputs) = (HashMap::new(), Vec::new());
    for a in list(&case["args"]) {
        let ty = ArrayType::parse(text(&a["type"]), &mesh).unwrap();
        inputs.push(Held::from_data(fill(&a["data"], &ty)));
        names.insert(text(&a["name"]).to_string(), b.input(ty, None));
    }
    let expect = &case["expect"];
    let scope = Scope { b, names, captured: Vec::new(), mesh: mesh.clone(), checked: true, open: false };
    let mut reader = Reader { scopes: vec![scope], expect, at: None };
    match reader.equations(&case["body"]) {
        Ok(()) if expect["at"].is_string() => {
            return Outcome::Failed(format!("not rejected: {expect}"));
        }
        Ok(()) => {}
        Err(Stop::NotHere(why)) if why.starts_with("WRONG") => return Outcome::Failed(why),
        Err(Stop::NotHere(why)) => return Outcome::Skipped(why),
        Err(Stop::Rejected(error)) => {
            let right = expect["at"] == *reader.at.unwrap()
                && expect["error"] == crate::kinds::case_name(error.kind());
            return if right {
                Outcome::Passed
            } else {
                Outcome::Failed(format!(
                    "{error}\nexpected {}",
                    expect.to_string().chars().take(300).collect::<String>()
                ))
            };
        }
    }
    let mut scope = reader.scopes.pop().unwrap();
    let returns: Vec<Value> = list(&case["returns"]).iter().map(|n| scope.names[text(n)].clone()).collect();
    let program = std::mem::take(&mut scope.b).finish(&returns);
    let results = Machine { mesh }.run(&program, &inputs);
    let tol = case["tol"].as_f64().unwrap_or(1e-5);
    for ((got, want), v) in results.iter().zip(list(&expect["values"])).zip(&returns) {
        if let Some(why) = differs(got.at(0), want, v.ty.dtype, tol.max(2e-5)) {
            return Outcome::Failed(format!("{}: {why}\n{program}", v.ty));
        }
    }
    Outcome::Passed
}
