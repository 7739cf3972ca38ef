//! Tests complete programs: loops, branches, manual regions, mixed meshes, and random ones.

use super::*;

fn bodies(program: &Program) -> Vec<Arc<Program>> {
    let controls = program.equations.iter().filter_map(|e| match &e.op {
        Op::Control(c) => Some(c.bodies().into_iter().cloned().collect::<Vec<_>>()),
        Op::Prim(_) => None,
    });
    controls.flatten().collect()
}

#[test]
fn loops_carry_one_placement() {
    // row 37: c = tanh(c @ w), c [x,-], w [-,y]: y reaches the carry
    let mut r = PropagationTest::new(&M);
    let (c, w, xs) = (r.arg(&[16, 32], p![X]), r.arg(&[32, 32], p![_, Y]), r.arg(&[5, 16, 32], p![_, X]));
    let scanned = r.body(&[&[], &[32, 32], &[16, 32], &[16, 32]], |b, a| {
        let h = b.dot(&a[2], &a[1]);
        let t = b.same(&[&h]);
        let s = b.same(&[&a[3]]);
        vec![t, s]
    });
    let control =
        Control::Loop(Loop { body: scanned, start: 0, length: 5, reverse: false, fixed: 1, carry: 1 });
    let types = vec![r.ty(&[16, 32]), r.ty(&[5, 16, 32])];
    let outs = r.b.control(control, &[w, c, xs], types);
    let mesh = r.mesh.clone();
    let placed = propagate(&r.b.finish(&outs), &[]).unwrap();
    assert_eq!(show(&mesh, &placement(&placed, 0)), "X,Y");
    assert_eq!(show(&mesh, &placement(&placed, 1)), "-,X,-", "the stacked dimension is whole");
    let inner = &bodies(&placed)[0];
    let at = |k: usize| show(&mesh, inner.vars[inner.inputs[k].index()].placement.as_ref().unwrap());
    assert_eq!([at(1), at(2), at(3)], ["-,Y", "X,Y", "X,-"]);
    assert_eq!(show(&mesh, &placement(inner, 0)), "X,Y");
}

#[test]
fn while_loops_branches_and_calls() {
    let mut r = PropagationTest::new(&M);
    let c = r.arg(&[16, 32], p![X, Y]);
    let mesh = r.mesh.clone();
    let step = r.body(&[&[16, 32]], |b, a| vec![b.same(&[&a[0]])]);
    let test = r.body(&[&[16, 32]], |b, a| {
        vec![b.op(toy("ij->", &[('i', 16), ('j', 32)], Priority::Plain), &[&a[0]])]
    });
    let control = Control::While { cond: test, body: step.clone(), cond_fixed: 0, body_fixed: 0 };
    let ty = r.ty(&[16, 32]);
    let out = r.b.control(control, &[c], vec![ty.clone()]);
    // row 38: branches [x,-] and [-,y] give [x,y]
    let (a, b) = (r.arg(&[16, 32], p![X]), r.arg(&[16, 32], p![_, Y]));
    let which = r.body(&[&[16, 32], &[16, 32]], |_, a| vec![a[0].clone()]);
    let other = r.body(&[&[16, 32], &[16, 32]], |_, a| vec![a[1].clone()]);
    let pred = r.b.input(DType::Bool.array_type([]), None);
    let chosen =
        r.b.control(Control::Cond { branches: vec![which, other] }, &[pred, a.clone(), b], vec![ty.clone()]);
    let called = r.b.control(Control::call(step, CheckpointPolicy::SaveAll), &[a], vec![ty]);
    let placed = propagate(&r.b.finish(&[out, chosen, called].concat()), &[]).unwrap();
    let at = |k| show(&mesh, &placement(&placed, k));
    assert_eq!([at(0), at(1), at(2)], ["X,Y", "X,Y", "X,-"]);
    for b in bodies(&placed) {
        assert!(b.vars.iter().all(|v| v.placement.is_some()));
    }
}

#[test]
fn manual_regions_pass_auto_axes_through() {
    let mut r = PropagationTest::new(&M);
    let (a, b) = (r.arg(&[16, 32], p![_, Y]), r.free(&[16, 32]));
    let mesh = r.mesh.clone();
    let manual = mesh.with_axis_types(X, AxisType::Manual).unwrap();
    let mut inner = PropagationTest::on(manual);
    let (u, v) = (inner.free(&[4, 32]), inner.free(&[4, 32]));
    let s = inner.same(&[&u, &v]);
    let control = Control::ShardMap(ShardMapping {
        body: Arc::new(inner.b.finish(&[s])),
        mesh: mesh.clone(),
        axes: Axes::from(X),
        in_specs: vec![p![X], p![X]],
        out_specs: vec![p![X]],
        checked: true,
    });
    let ty = r.ty(&[16, 32]);
    let out = r.b.control(control, &[a, b.clone()], vec![ty]);
    let after = r.same(&[&out[0]]);
    let placed = propagate(&r.b.finish(&[out[0].clone(), after, b]), &[]).unwrap();
    let at = |k| show(&mesh, &placement(&placed, k));
    assert_eq!([at(0), at(1)], ["X,Y", "X,Y"]);
    assert_eq!(at(2), "X,Y", "also from inside to an operand");
    assert_eq!(show(&mesh, &placement(&bodies(&placed)[0], 0)), "-,Y", "inside, of a block");
}

#[test]
fn explicit_axes_are_facts_and_auto_axes_append() {
    let mesh = Mesh::with_types([("X", 2, AxisType::Explicit), ("Y", 4, AxisType::Auto)]).unwrap();
    let typed = |shape: &[usize], spec: Spec| ArrayType {
        spec,
        mesh: Some(mesh.clone()),
        ..DType::F32.array_type(shape)
    };
    let mut r = PropagationTest::on(mesh.clone());
    let lies = |ty: &ArrayType, spec: Spec| Placement {
        dims: from_spec(ty.mesh.as_ref().unwrap(), spec),
        ..Placement::default()
    };
    let (ta, tb) = (typed(&[16, 8], p![X, _]), typed(&[16, 8], p![_, X]));
    let a = r.b.input(ta.clone(), Some(lies(&ta, p![(X, Y), _])));
    let s = r.op(ToyPrimitive { ty: Some(ta.clone()), ..elementwise(&[16, 8], 1) }, &[&a]);
    // the type of the result moves X; Y may follow where it is free
    let t =
        r.op(ToyPrimitive { ty: Some(tb), ..toy("ij->ij", &[('i', 16), ('j', 8)], Priority::Plain) }, &[&s]);
    // the 2 shards over the explicit axis divide 6 rows, 8 shards would not
    let tc = typed(&[6], p![X]);
    let c = r.b.input(typed(&[6], p![_]), Some(lies(&tc, p![Y])));
    let d = r.op(ToyPrimitive { ty: Some(tc), ..elementwise(&[6], 1) }, &[&c]);
    let placed = propagate(&r.b.finish(&[s, t, d]), &[]).unwrap();
    let at = |k| show(&mesh, &placement(&placed, k));
    assert_eq!(at(0), "(X,Y),-");
    assert_eq!(at(1), "-,X", "X may not come back into dimension 0, so nor what is minor to it");
    assert_eq!(at(2), "X");
}

#[test]
fn without_auto_axes_types_say_all() {
    let mesh = Mesh::new([("X", 2), ("Y", 4)]).unwrap();
    let mut r = PropagationTest::on(mesh.clone());
    let ty = ArrayType { spec: p![X, _; U: Y], mesh: Some(mesh.clone()), ..DType::F32.array_type([8, 8]) };
    let a = r.b.input(ty.clone(), None);
    let b = r.op(ToyPrimitive { ty: Some(ty), ..elementwise(&[8, 8], 1) }, &[&a]);
    let placed = propagate(&r.b.finish(&[b]), &[]).unwrap();
    assert_eq!(placement(&placed, 0).dims, from_spec(&mesh, p![X, _]));
    assert_eq!(placement(&placed, 0).partial, from_axes(&mesh, [Y]));
}

#[test]
fn results_lie_as_asked() {
    let mut r = PropagationTest::new(&M);
    let mesh = r.mesh.clone();
    let a = r.arg(&[16, 32], p![X]);
    let s = r.same(&[&a]);
    let lies = |spec| Some(Placement { dims: from_spec(&mesh, spec), partial: SubAxes::new() });
    // the sine itself gets the requested placement; the argument is requested in a different one,
    // so it is copied
    let placed = propagate(&r.b.finish(&[s.clone(), a]), &[lies(p![_, Y]), lies(p![Y, _])]).unwrap();
    assert_eq!(placed.equations.len(), 2, "one copy, of the argument");
    assert_eq!(
        [placement(&placed, 0), placement(&placed, 1)],
        [lies(p![_, Y]).unwrap(), lies(p![Y, _]).unwrap()]
    );
}

#[test]
fn a_constant_is_no_channel_between_its_users() {
    let mut r = PropagationTest::new(&M);
    let (a, b) = (r.arg(&[16, 16], p![X]), r.arg(&[16, 16], p![_, X]));
    let zero = Value::literal(DType::F32, 0.0);
    let k = r.op(toy("->ij", &[('i', 16), ('j', 16)], Priority::Plain), &[&zero]);
    let (u, v) = (r.same(&[&a, &k]), r.same(&[&b, &k]));
    r.want(&u, "X,-");
    r.want(&v, "-,X");
    let (expected, mesh) = (r.want.clone(), r.mesh.clone());
    let outs: Vec<_> = expected.iter().map(|w| w.0.clone()).collect();
    let placed = propagate(&r.b.finish(&outs), &[]).unwrap();
    assert_eq!([show(&mesh, &placement(&placed, 0)), show(&mesh, &placement(&placed, 1))], ["X,-", "-,X"]);
    assert_eq!(placed.equations.len(), 4, "it is made twice:\n{placed}");
}

#[test]
fn meshes_of_other_devices_are_rejected() {
    let mut r = PropagationTest::new(&M);
    let _ = r.free(&[8]);
    let other = Mesh::auto([("X", 2)]).unwrap();
    r.b.input(ArrayType { mesh: Some(other), ..DType::F32.array_type([8]) }, None);
    let e = propagate(&r.b.finish(&[]), &[]).unwrap_err();
    assert!(e.to_string().contains("which has other devices"), "{e}");
}

#[test]
fn long_programs_are_quick_on_any_number_of_devices() {
    let mesh = Mesh::without_devices([("X", 1 << 20), ("Y", 1 << 10)]).unwrap().with_auto([X, Y]).unwrap();
    let mut r = PropagationTest::on(mesh.clone());
    let mut h = r.arg(&[1 << 20, 1 << 10], p![X]);
    for k in 0..500 {
        let w = if k == 7 { r.arg(&[1 << 10, 1 << 10], p![_, Y]) } else { r.free(&[1 << 10, 1 << 10]) };
        let d = r.dot(&h, &w);
        let t = r.same(&[&d]);
        h = r.same(&[&t, &h]);
    }
    let start = std::time::Instant::now();
    let placed = propagate(&r.b.finish(&[h]), &[]).unwrap();
    assert_eq!(show(&mesh, &placement(&placed, 0)), "X,Y");
    assert!(start.elapsed().as_secs() < 20, "{:?}", start.elapsed());
}

#[test]
fn without_a_mesh_every_variable_is_unsharded() {
    // in a typed program without a mesh every variable is placed, replicated
    let mut b = Builder::new();
    let a = b.input(DType::F32.array_type([4]), None);
    let prim: Prim = Arc::new(elementwise(&[4], 1));
    let s = b.emit1(prim, &[a]).unwrap();
    let placed = propagate(&b.finish(&[s]), &[]).unwrap();
    assert_eq!(placement(&placed, 0).dims, vec![SubAxes::new()]);
}

/// Tests random programs over mixed meshes: every value ends with a layout that its type allows.
#[test]
fn random_programs_end_in_layouts() {
    let mut seed = 7_u64;
    let mut next = move |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    for round in 0..200 {
        let kinds = [AxisType::Explicit, AxisType::Auto, AxisType::Auto];
        let mesh = Mesh::with_types(
            [("X", [2, 3, 4][next(3)]), ("Y", 2), ("Z", [2, 6][next(2)])]
                .into_iter()
                .enumerate()
                .map(|(i, (a, n))| (a, n, kinds[(i + round) % 3])),
        )
        .unwrap();
        let mut r = PropagationTest::on(mesh.clone());
        let auto = mesh.axes_of(AxisType::Auto);
        let explicit = mesh.axes_of(AxisType::Explicit)[0];
        // a size that all axes together divide
        const N: usize = 144;
        let mut pool: Vec<Value> = (0..4)
            .map(|_| {
                let mut dims = [Axes::none(), Axes::none()];
                if next(2) == 0 {
                    dims[next(2)].push(explicit);
                }
                let ty = ArrayType { spec: Spec::from_dims(dims.to_vec()), ..r.ty(&[N, N]) };
                auto.iter().for_each(|a| {
                    if next(2) == 0 {
                        dims[next(2)].push(*a);
                    }
                });
                let at = Placement {
                    dims: from_spec(&mesh, Spec::from_dims(dims.to_vec())),
                    partial: SubAxes::new(),
                };
                r.b.input(ty, (next(3) > 0).then_some(at))
            })
            .collect();
        for _ in 0..12 {
            let (a, b) = (pool[next(pool.len())].clone(), pool[next(pool.len())].clone());
            let sizes = [('i', N), ('j', N), ('k', N)];
            let halves = [('i', 4), ('j', 36), ('k', N)];
            let mut op = match next(6) {
                0 => toy("ij,jk->ik", &sizes, Priority::Plain),
                1 => toy("ij,ij->ij", &sizes[..2], Priority::Elementwise),
                2 => toy("ij,~ij->ji", &sizes[..2], Priority::DynamicSlice),
                3 => toy("(ij)k,'i'k->(ij)k", &halves, Priority::Alias),
                4 => toy("ij,+ik->+jk", &sizes, Priority::Plain),
                _ => toy("ij,kj->ki i!", &sizes, Priority::Broadcast),
            };
            let spec = if next(2) == 0 {
                Spec::from_dims(vec![Axes::from(explicit), Axes::none()])
            } else {
                p![_, _]
            };
            op.ty = Some(ArrayType { spec, ..r.ty(&[N, N]) });
            if next(5) == 0 {
                op = ToyPrimitive {
                    pin: Some(ShardingConstraint {
                        mesh: mesh.clone(),
                        spec: Spec::from_dims(vec![Axes::none(), Axes::from(auto[next(2)])]),
                        open_dims: Vec::new(),
                        explicit_only: false,
                    }),
                    ..op
                };
            }
            let inputs = if op.pin.is_some() { vec![&a] } else { vec![&a, &b] };
            let out = r.op(op, &inputs);
            pool.push(out);
        }
        r.check_all(&format!("round {round}"), &pool);
    }
}
