//! Equations with nested programs: derivatives, loops, and shard_map.

use super::*;

impl Reader<'_> {
    pub(super) fn derivative(&mut self, e: &Json) -> Res<Vec<Value>> {
        let (op, p) = (text(&e["op"]), &e["params"]);
        let all = self.operands(e)?;
        let n = list(&e["body"]["args"]).len();
        let (args, rest) = all.split_at(n);
        let (program, captured) = self.same_mesh_body(&e["body"], &types(args))?;
        let ins = [args, &captured].concat();
        let outs = program.outputs.len();
        let b = &mut self.top().b;
        if op == "jvp" {
            if args
                .iter()
                .zip(rest)
                .any(|(x, t)| x.ty.to_string() != t.ty.to_string() || !x.ty.dtype.is_float())
            {
                return not_here("tangents of another type");
            }
            let active: Vec<bool> = (0..ins.len()).map(|i| i < n).collect();
            let jvp = jvp_program(&program, &active)?;
            let types = program.output_types();
            let mut all = b.inline(&jvp.program, &[&ins[..], rest].concat());
            let mut tans = all.split_off(outs).into_iter();
            for (has, ty) in jvp.tangents.iter().zip(&types) {
                all.push(if *has { tans.next().unwrap() } else { b.zeros(ty)? });
            }
            return Ok(all);
        }
        let wrt = if op == "vjp" { (0..n).collect() } else { sizes(&p["wrt"]) };
        let out_types = program.output_types();
        let cts = if op == "vjp" {
            for (ct, ty) in rest.iter().zip(&out_types) {
                if ct.ty.to_string() != cotangent_type(ty).to_string() {
                    return not_here("cotangents of another type");
                }
            }
            rest.to_vec()
        } else {
            if out_types[0].rank() != 0 || !out_types[0].dtype.is_float() {
                return not_here("a loss that is not a numeric type");
            }
            let one = Value::literal(out_types[0].dtype, Scalar::Float(1.0));
            vec![b.fit_cotangent(&one, &out_types[0])?]
        };
        let vjp = vjp_program(&program, &wrt)?;
        let mut values = b.inline(&vjp.forward, &ins);
        let mut operands = values.split_off(outs);
        operands.extend(cts.into_iter().zip(&vjp.depends).filter(|c| *c.1).map(|c| c.0));
        let back = b.inline(&vjp.backward, &operands);
        Ok(match op {
            "grad" => back,
            _ => values.into_iter().chain(back).collect(),
        })
    }

    pub(super) fn run_loop(&mut self, e: &Json) -> Res<Vec<Value>> {
        let (op, p) = (text(&e["op"]), &e["params"]);
        let ins = self.operands(e)?;
        let index = DType::I32.array_type([]);
        let (start, length, carry, reverse) = if op == "fori_loop" {
            let bound = |k: usize| e["in"][k]["lit"].as_i64();
            let (Some(lo), Some(hi)) = (bound(0), bound(1)) else { return not_here("dynamic bounds") };
            (lo, (hi - lo).max(0) as usize, ins.len() - 2, false)
        } else {
            let carry = p["num_carry"].as_u64().unwrap() as usize;
            let given = p["length"].as_u64().map(|n| n as usize);
            let lead = |v: &Value| if v.ty.rank() == 0 { None } else { Some(v.ty.shape[0]) };
            let Some(length) = given.or_else(|| ins.get(carry).and_then(lead)) else {
                return not_here("rejected scans");
            };
            if ins[carry..].iter().any(|v| lead(v) != Some(length) || !v.ty.spec.dim(0).is_empty()) {
                return not_here("rejected scans");
            }
            (0, length, carry, p["reverse"].as_bool().unwrap_or(false))
        };
        let ins = if op == "fori_loop" { ins[2..].to_vec() } else { ins };
        if ins.iter().any(Value::is_literal) {
            return not_here("a number as a carry");
        }
        let slice = |ty: &ArrayType| {
            let dims = ty.spec.dims()[1..].to_vec();
            ArrayType { shape: Shape::from(&ty.shape[1..]), spec: ty.spec.with_dims(dims), ..ty.clone() }
        };
        let mut args = if op == "fori_loop" { vec![index.clone()] } else { Vec::new() };
        args.extend(ins.iter().enumerate().map(|(k, v)| if k < carry { v.ty.clone() } else { slice(&v.ty) }));
        let (mut program, captured) = self.same_mesh_body(&e["body"], &args)?;
        let outs = program.output_types();
        if outs.iter().zip(&ins[..carry]).any(|(a, b)| a.to_string() != b.ty.to_string()) {
            return not_here("carries of another type");
        }
        // The loop index, the captures, then the arguments.
        let mut inputs = program.inputs.clone();
        let fixed = inputs.split_off(args.len());
        let step = if op == "fori_loop" {
            inputs.remove(0)
        } else {
            let v = atmesh::program::Var(program.vars.len() as u32);
            program.vars.push(atmesh::program::VarInfo { ty: index, placement: None });
            v
        };
        program.inputs = [vec![step], fixed, inputs].concat();
        let stacked = outs[carry..].iter().map(|ty| {
            let mut shape = ty.shape.to_vec();
            shape.insert(0, length);
            let dims = std::iter::once(Axes::none()).chain(ty.spec.dims().iter().cloned()).collect();
            ArrayType { shape: shape.into(), spec: ty.spec.with_dims(dims), ..ty.clone() }
        });
        let results = outs[..carry].iter().cloned().chain(stacked).collect();
        let control = Loop { body: Arc::new(program), start, length, reverse, fixed: captured.len(), carry };
        Ok(self.top().b.control(Control::Loop(control), &[captured, ins].concat(), results))
    }

    pub(super) fn shard_map(&mut self, e: &Json) -> Res<Vec<Value>> {
        let p = &e["params"];
        let ins = self.operands(e)?;
        if ins.iter().any(Value::is_literal) {
            return not_here("a number given to shard_map");
        }
        let outer = self.top().mesh.clone();
        let manual = |a: &Axis| outer.axis_type(*a) == Some(AxisType::Manual);
        let over: Axes = if p["axis_names"].is_null() {
            outer.axis_names().iter().copied().filter(|a| !manual(a)).collect()
        } else {
            list(&p["axis_names"]).iter().map(|a| Axis::from(text(a))).collect()
        };
        let checked = p["check_vma"].as_bool().unwrap_or(true);
        let error = self.expect["at"] == e["out"][0];
        if error || over.iter().any(|a| outer.find(a).is_none()) {
            return not_here("errors of shard_map");
        }
        let given: Vec<Spec> = if p["in_specs"].is_null() {
            ins.iter().map(|v| v.ty.spec.filter_axes(|a| over.contains(a))).collect()
        } else {
            list(&p["in_specs"]).iter().map(|s| spec(s).unwrap()).collect()
        };
        let full = |s: Spec, rank: usize| s.padded(rank);
        let in_specs: Vec<Spec> = given.iter().zip(&ins).map(|(s, v)| full(*s, v.ty.rank())).collect();
        let mesh = outer.with_axis_types(&over, AxisType::Manual).unwrap();
        let order = |axes: Vec<Axis>| -> Axes {
            let mut axes = axes;
            axes.sort_by_key(|a| mesh.find(*a));
            axes.dedup();
            axes.into()
        };
        let mut values = Vec::new();
        let mut blocks = Vec::new();
        for (v, s) in ins.iter().zip(&in_specs) {
            let explicit = |a: Axis| outer.axis_type(a) == Some(AxisType::Explicit);
            // Over manual axes, the value is placed as the spec says.
            let dims = (0..v.ty.rank())
                .map(|d| {
                    s.dim(d)
                        .iter()
                        .copied()
                        .filter(|a| explicit(*a))
                        .chain(v.ty.spec.dim(d).iter().copied().filter(|a| !over.contains(*a)))
                        .collect()
                })
                .collect();
            let want =
                ArrayType { mesh: Some(outer.clone()), spec: v.ty.spec.with_dims(dims), ..v.ty.clone() };
            let b = &mut self.top().b;
            values.push(b.reshard_to(v, &want)?);
            let shape: Shape = (v.ty.shape.iter().enumerate())
                .map(|(d, n)| n / s.dim(d).iter().map(|a| mesh.axis_size(*a).unwrap()).product::<usize>())
                .collect();
            let rest = want.spec.filter_axes(|a| !over.contains(a));
            let named: Vec<Axis> = s.dims().iter().flat_map(Axes::iter).collect();
            blocks.push(ArrayType {
                dtype: v.ty.dtype,
                shape,
                mesh: Some(mesh.clone()),
                spec: if checked {
                    rest.unreduced(s.unreduced_axes()).reduced(s.reduced_axes())
                } else {
                    rest
                },
                varying: if checked {
                    order(v.ty.varying.iter().chain(named).collect())
                } else {
                    v.ty.varying.clone()
                },
            });
        }
        let (program, captured) = self.body(&e["body"], &blocks, mesh.clone(), checked, false)?;
        assert!(captured.is_empty());
        let given: Vec<Spec> = list(&p["out_specs"]).iter().map(|s| spec(s).unwrap()).collect();
        let types = program.output_types();
        let out_specs: Vec<Spec> = given.iter().zip(&types).map(|(s, t)| full(*s, t.rank())).collect();
        // Results are cast as their spec says.
        let mut b = Builder::new();
        b.set_default_mesh(&mesh);
        let args: Vec<Value> = blocks.iter().map(|t| b.input(t.clone(), None)).collect();
        let mut outs = b.inline(&program, &args);
        for (v, s) in outs.iter_mut().zip(&out_specs) {
            if checked {
                let named = s.dims().iter().flat_map(Axes::iter);
                let lacks: Vec<Axis> = named.filter(|a| !v.ty.varying.contains(*a)).collect();
                *v = b.pcast(v, &mesh, lacks, PcastTo::Varying)?;
                let parts: Vec<Axis> =
                    s.unreduced_axes().iter().filter(|a| v.ty.varying.contains(*a)).collect();
                *v = b.pcast(v, &mesh, parts, PcastTo::Unreduced)?;
            }
        }
        let program = b.finish(&outs);
        let results: Vec<ArrayType> = (program.output_types().iter().zip(&out_specs))
            .map(|(t, s)| {
                let shown = |a: &Axis| outer.axis_type(*a) == Some(AxisType::Explicit);
                let dims = (0..t.rank()).map(|d| {
                    s.dim(d).iter().copied().filter(shown).chain(t.spec.dim(d).iter().copied()).collect()
                });
                ArrayType {
                    dtype: t.dtype,
                    shape: (t.shape.iter().enumerate())
                        .map(|(d, n)| {
                            n * s.dim(d).iter().map(|a| mesh.axis_size(*a).unwrap()).product::<usize>()
                        })
                        .collect(),
                    mesh: Some(outer.clone()),
                    spec: Spec::from_dims(dims.collect())
                        .unreduced(s.unreduced_axes())
                        .reduced(s.reduced_axes())
                        .in_order(&outer),
                    varying: t.varying.iter().filter(|a| !over.contains(*a)).collect(),
                }
            })
            .collect();
        let mapping =
            ShardMapping { body: Arc::new(program), mesh: outer, axes: over, in_specs, out_specs, checked };
        Ok(self.top().b.control(Control::ShardMap(mapping), &values, results))
    }
}
