//! Logical axes: names of a model's dimensions in specs.
//!
//! Error messages are in `tests/golden/training/errors.txt`, which `scripts/bless training` writes.

use crate::error_checks::{Unquoted, well};
use crate::layouts::compare_with_golden;
use atmesh::prelude::*;
use std::fmt::Write;

/// Adds the rules of the tests: a name for one axis, for several, and for none.
fn named(mesh: &Mesh) -> Result<Mesh> {
    mesh.with_logical_axes([("batch", "data"), ("heads", "model"), ("mlp", "model")])?
        .with_logical_axes([("embed", ())])?
        .with_logical_axes([("tokens", ("data", "model"))])
}

fn grid(axis_types: [AxisType; 2]) -> Result<Mesh> {
    named(&Mesh::with_types([("data", 2, axis_types[0]), ("model", 4, axis_types[1])])?)
}

/// A mesh of explicit axes, one of auto axes, and one of both.
fn grids() -> Result<[Mesh; 3]> {
    use AxisType::{Auto, Explicit};
    Ok([grid([Explicit, Explicit])?, grid([Auto, Auto])?, grid([Explicit, Auto])?])
}

#[test]
fn names_stand_for_one_axis_several_or_none() -> Result<()> {
    let [mesh, ..] = grids()?;
    let x = Array::arange(0..64).reshape([8, 8]);
    let of = |spec| type_of(x.put(&mesh, spec)).to_string();
    assert_eq!(of(p!["batch", "mlp"]), "int32[8@data,8@model]");
    assert_eq!(of(p!["tokens", "embed"]), "int32[8@(data,model),8]");
    assert_eq!(of(p!["batch", "model"]), "int32[8@data,8@model]");
    assert_eq!(of(p![("mlp", "batch")]), "int32[8@(model,data),8]");
    assert_eq!(of(p![("embed", "batch"), "embed"]), "int32[8@data,8]");
    let names = mesh.logical_axes().map(|(name, axes)| format!("{name} {axes}")).collect::<Vec<_>>();
    assert_eq!(names, ["batch data", "embed ()", "heads model", "mlp model", "tokens (data,model)"]);
    Ok(())
}

#[test]
fn a_later_rule_replaces_an_earlier_one() -> Result<()> {
    let plain = Mesh::new([("data", 2), ("model", 4)])?;
    let mesh = named(&plain)?.with_logical_axes([("mlp", ())])?;
    assert_eq!(mesh.resolve(p!["batch", "mlp"])?, p!["data", _]);
    assert_ne!(mesh, named(&plain)?);
    assert_eq!(mesh.with_logical_axes([("mlp", "model")])?, named(&plain)?);
    assert_eq!(plain.with_logical_axes::<&str, Axes>([])?, plain);
    Ok(())
}

/// The name of a request, the request, and the spec in mesh axes that its result has.
type Request = (&'static str, fn(&Array) -> Array, Spec);

/// Requests in logical axes, each with the spec in mesh axes that the result has.
fn requests() -> Vec<Request> {
    let both = p!["data", "model"];
    vec![
        ("reshard", |x| x.reshard(p!["batch", "mlp"]), both),
        ("dot_to", |x| x.dot_to(x.t(), p!["batch", "heads"]), both),
        ("einsum_to", |x| einsum_to("ab,cb->ca", [x, x], p!["mlp", "batch"]), p!["model", "data"]),
        ("einsum_to of three", |x| einsum_to("ab,bc,cd->ad", [x, x, x], p!["batch", "mlp"]), both),
        ("einsum_to of one", |x| einsum_to("ab->ba", [x], p!["batch", "mlp"]), both),
        ("sum_to", |x| x.sum_to(1, p!["tokens"]), p![("data", "model")]),
        ("reshape_to", |x| x.reshape_to([64], p!["tokens"]), p![("data", "model")]),
        ("take_to", |x| x.take_to(&Array::from([1, 0, 3, 5]), 0, p!["batch", "mlp"]), both),
        ("one_hot_to", |x| x.slice(ix![.., 0]).astype(I32).one_hot_to(4, p!["batch", "mlp"]), both),
        ("full_like_to", |x| x.full_like_to(7, p!["batch", "mlp"]), both),
        ("broadcast_as", |x| x.slice(ix![0]).broadcast_as([4, 8], p!["batch", "mlp"]), both),
        ("segment_sum_to", |x| x.segment_sum_to(&Array::arange(0..8), 8, p!["batch", "mlp"]), both),
        ("get", |x| x.at(ix![..4, 2..6]).out_sharding(p!["batch", "mlp"]).get(), both),
        ("get by an index", |x| x.at(ix![3]).out_sharding(p!["tokens"]).get(), p![("data", "model")]),
        ("set", |x| x.at(ix![&Array::from([0, 2])]).out_sharding(p!["batch", "mlp"]).set(1.0), both),
        ("tril_to", |x| x.tril_to(0, p!["batch", "mlp"]), both),
        ("tensordot_to", |x| x.tensordot_to(x, 1, p!["batch", "mlp"]), both),
        ("kron_to", |x| x.kron_to(x, p!["batch", "mlp"]), both),
        ("cov_to", |x| x.cov_to(p!["batch", "mlp"]), both),
        (
            "conv_with groups",
            |x| {
                let (x, w) = (x.reshape([2, 4, 8]), Array::ones([4, 2, 1]));
                x.conv_with(&w, ConvOptions::default().groups(2).out_sharding(p!["batch", _, "mlp"]))
            },
            p!["data", _, "model"],
        ),
        ("matmul_with", |x| x.matmul_with(x, DotOptions::default().out_sharding(p!["batch", "mlp"])), both),
        (
            "max_pool_with",
            |x| x.max_pool_with([2, 2], WindowOptions::default().out_sharding(p!["batch", "mlp"])),
            both,
        ),
    ]
}

#[test]
fn a_request_follows_the_type_of_each_axis() -> Result<()> {
    let x = Array::arange(0.0..64.0f32).reshape([8, 8]);
    for mesh in grids()? {
        let explicit = |spec: Spec| spec.filter_axes(|a| mesh.axis_type(a) == Some(AxisType::Explicit));
        for (name, f, spec) in requests() {
            let expected = f(&x.put(
                &Mesh::new([("one", 1)])?
                    .with_logical_axes(["batch", "heads", "mlp", "embed", "tokens"].map(|name| (name, ())))?,
                p![],
            ))
            .to_vec::<f32>()?;
            for (how, y) in [
                ("eager", f(&x.put(&mesh, p![_, _]))),
                ("jit", jit(|x: &Array| f(&(x * 1.0))).call(x.put(&mesh, p![_, _]))?),
            ] {
                let of = format!("{name}, {how}, {mesh}");
                let sharding = y.sharding().unwrap_or_else(|e| panic!("{of}: {e}")).expect("it is on a mesh");
                assert_eq!(sharding.spec, spec, "{of}");
                assert_eq!(y.ty()?.spec, explicit(spec), "{of}");
                assert_eq!(y.to_vec::<f32>()?, expected, "{of}");
            }
        }
    }
    Ok(())
}

#[test]
fn types_and_creation_use_names() -> Result<()> {
    for mesh in grids()? {
        let of = |ty: ArrayType| ty.on(&mesh, p!["batch", "mlp"]);
        for x in [Array::zeros(of(F32.array_type([4, 8]))), Key::new(0).normal(of(F32.array_type([4, 8])))] {
            assert_eq!(x.sharding()?.map(|s| s.spec), Some(p!["data", "model"]), "{mesh}");
        }
    }
    let mesh = named(&Mesh::without_devices([("data", 2), ("model", 1 << 15)])?)?;
    let types = (
        F32.array_type([64, 256]).on(&mesh, p!["batch", "embed"]),
        F32.array_type([256, 1 << 16]).on(&mesh, p!["embed", "mlp"]),
    );
    assert_eq!(types.1.to_string(), "float32[256,65536@model]");
    let f = jit(|x: &Array, w: &Array| x.dot(w).sum_to(1, p!["batch"]));
    assert_collectives!(f.lower(types)?, AllReduce("model") x 1);
    Ok(())
}

#[test]
fn sets_use_names() -> Result<()> {
    let [explicit, auto, _] = grids()?;
    let x = Array::arange(0.0..16.0f32).reshape([4, 4]);
    let rows = |mesh: &Mesh| x.put(mesh, p!["batch", _]);
    let partial = rows(&explicit).sum_to(0, p![_; U: "batch"]);
    assert_eq!(type_of(&partial), "float32[4]{U:data}");
    let total = |mesh: &Mesh| rows(mesh).sum_to(0, p!["mlp"; U: "batch"]).reshard(p!["mlp"]);
    assert_eq!(total(&explicit).to_vec::<f32>()?, [24.0, 28.0, 32.0, 36.0]);
    assert_eq!(total(&auto).to_vec::<f32>()?, [24.0, 28.0, 32.0, 36.0]);
    assert_eq!(type_of(x.put(&explicit, p![_, "mlp"; R: "batch"])), "float32[4,4@model]{R:data}");
    assert_eq!(type_of(x.put(&explicit, p![_, "mlp"; R: "embed"])), "float32[4,4@model]");
    // over auto axes a set has no meaning
    let reduced = x.put(&auto, p![]).reshard(p![_, "mlp"; R: "batch"]);
    assert_eq!(reduced.sharding()?.map(|s| s.spec), Some(p![_, "model"]));
    Ok(())
}

#[test]
fn constraints_use_names() -> Result<()> {
    let x = Array::ones([4, 8]);
    let [explicit, auto, mixed] = grids()?;
    let is = |a: Array| Ok::<_, atmesh::Error>(a.sharding()?.map(|s| s.spec));
    let spec = p!["batch", "mlp"];
    assert_eq!(is(x.put(&auto, p![]).constrain(spec))?, Some(p!["data", "model"]));
    assert_eq!(is(x.put(&auto, p!["batch", "mlp"]).constrain(p!["batch", "?"]))?, Some(p!["data", "model"]));
    assert_eq!(is(x.put(&mixed, p!["batch"]).constrain(spec))?, Some(p!["data", "model"]));
    assert_eq!(is(x.put(&explicit, spec).constrain(spec))?, Some(p!["data", "model"]));
    for (mesh, at) in [(&explicit, p!["batch"]), (&mixed, p![_, _])] {
        let error = x.put(mesh, at).constrain(spec).ty().unwrap_err().unquoted();
        assert!(error.contains(r#"`x.reshard(p!["batch", "mlp"])`"#), "{error}");
    }
    Ok(())
}

#[test]
fn an_auto_axis_that_is_named_itself_is_still_rejected() -> Result<()> {
    for mesh in [grid([AxisType::Auto; 2])?, grid([AxisType::Explicit, AxisType::Auto])?] {
        let x = Array::ones([8, 8]).put(&mesh, p![]);
        for spec in [p![_, "model"], p!["batch", "model"]] {
            for y in [x.dot_to(&x, spec), x.reshard(spec)] {
                let error = y.ty().unwrap_err().unquoted();
                assert!(error.contains("names model, which is auto"), "{error}");
            }
        }
    }
    Ok(())
}

#[test]
fn transformed_functions_use_names() -> Result<()> {
    let model = |x: &Array, w: &Array| {
        let layer = |h: Array, _: Array| {
            let h = h.dot_to(w, p!["batch", "embed"]).tanh().reshard(p!["batch", "embed"]);
            (h.clone(), h.sum_to(1, p!["batch"]))
        };
        let (h, sums) = scan(x, Array::zeros([3]), layer);
        let h = cond(sums.sum(..).gt(0.0), || h.reshard(p!["batch", "embed"]), || &h * 2.0);
        vmap(&h, |row| (row * 2.0).reshard(p!["embed"])).square().sum(..)
    };
    let (x, w) = (Key::new(1).normal([8, 8]), Key::new(2).normal([8, 8]) * 0.1);
    let step = jit(|x: &Array, w: &Array| value_and_grad(w, |w| model(x, &w)));
    let mut all: Vec<Vec<f32>> = Vec::new();
    for mesh in grids()? {
        let (x, w) = (x.put(&mesh, p!["batch", "embed"]), w.put(&mesh, p!["embed", "embed"]));
        let (value, g) = step.call((&x, &w))?;
        all.push([value.to_vec::<f32>()?, g.to_vec()?].concat());
    }
    for other in &all[1..] {
        let near = all[0].iter().zip(other).all(|(a, b)| (a - b).abs() <= 1e-5 * a.abs().max(1.0));
        assert!(near, "{:?}\n{other:?}", all[0]);
    }
    Ok(())
}

#[test]
fn meshes_that_differ_in_names_share_no_program() -> Result<()> {
    let plain = Mesh::new([("data", 2), ("model", 4)])?;
    let layouts = ["data", "model"].map(|axis| plain.with_logical_axes([("batch", axis)]));
    let f = jit(|x: &Array| (x * 2.0).reshard(p!["batch"]));
    let x = Array::arange(0.0..8.0f32);
    for _ in 0..2 {
        for (mesh, axis) in layouts.iter().zip(["data", "model"]) {
            let mesh = mesh.as_ref().map_err(Clone::clone)?;
            let x = x.put(mesh, p![_]);
            assert_eq!(type_of(f.call(&x)?).to_string(), format!("float32[8@{axis}]"));
            // eager operations have a cache of their own
            assert_eq!(
                type_of((&x + 1.0).reshape_to([8], p!["batch"])).to_string(),
                format!("float32[8@{axis}]")
            );
        }
    }
    let [a, b] = layouts.map(|mesh| x.put(&mesh.unwrap(), p![_]));
    let error = (a + b).ty().unwrap_err().unquoted();
    assert!(error.contains("Mesh(data: 2, model: 4; batch = data)"), "{error}");
    assert!(error.contains("Mesh(data: 2, model: 4; batch = model)"), "{error}");
    Ok(())
}

#[test]
fn boundaries_use_names() -> Result<()> {
    let x = Array::arange(0.0..32.0f32).reshape([8, 4]);
    for mesh in grids()? {
        let f = shard_map(&mesh, p!["batch", "mlp"], p!["batch"], |x: &Array| {
            assert_eq!(x.shape().unwrap(), [4, 1]);
            x.sum(1).psum("model")
        });
        let on = x.put(&mesh, p!["batch", "mlp"]);
        assert_eq!(f.call(&on)?.to_vec::<f32>()?, x.sum(1).to_vec::<f32>()?, "{mesh}");
        let doubled = jit(|x: &Array| x * 2.0).on(&mesh).in_specs(p!["batch", _]).out_specs(p![_, "mlp"]);
        let y = doubled.call(&x)?;
        assert_eq!(y.sharding()?.map(|s| s.spec), Some(p![_, "model"]), "{mesh}");
    }
    let [explicit, auto, _] = grids()?;
    let native = spmd(&explicit, p!["batch"], p!["batch"], |_: &Device, x: atmesh::nd::ArrayView1<f32>| {
        Ok(x.to_owned())
    });
    let v = Array::arange(0.0..8.0f32);
    assert_eq!(native.call(&v)?.to_vec::<f32>()?, v.to_vec::<f32>()?);
    let y = auto_axes(x.put(&explicit, p!["batch"]), p!["mlp", "batch"], |x| x * 2.0);
    assert_eq!(type_of(y), "float32[8@model,4@data]");
    let y = explicit_axes(x.put(&auto, p![]), p!["batch", "mlp"], |x| {
        assert_eq!(type_of(&x), "float32[8@data,4@model]");
        x.sum_to(1, p!["batch"])
    });
    assert_eq!(y.to_vec::<f32>()?, x.sum(1).to_vec::<f32>()?);
    Ok(())
}

#[test]
fn a_gradient_arrives_in_storage() -> Result<()> {
    let line = |explicit: bool| {
        let mesh = if explicit { Mesh::new([("x", 8)]) } else { Mesh::auto([("x", 8)]) };
        mesh?.with_logical_axes([("batch", "x")])?.with_logical_axes([("embed", ()), ("mlp", ())])
    };
    let (x, w) = (Key::new(1).normal([16, 8]), Key::new(2).normal([8, 32]));
    let loss = |x: &Array, w: Array| {
        let w = w.to_compute(p!["embed", "mlp"; R: "batch"]);
        // the weight is used twice, and its gradient is summed once
        let h = x.dot_to(&w, p!["batch", "mlp"]).tanh();
        h.dot_to(w.t(), p!["batch", "embed"]).square().mean(..)
    };
    let g = jit(|x: &Array, w: &Array| grad(w, |w| loss(x, w)));
    let expected = g.call((&x, &w));
    assert!(expected.is_err(), "names need a mesh");
    let mut all: Vec<Vec<f32>> = Vec::new();
    for explicit in [true, false] {
        let fsdp = line(explicit)?.with_storage_axes([("embed", "x")])?;
        for mesh in [line(explicit)?, fsdp] {
            let x = x.put(&mesh, p!["batch", "embed"]);
            let w = w.put_stored(&mesh, p!["embed", "mlp"]);
            let y = g.call((&x, &w))?;
            assert_eq!(y.ty()?, w.ty()?);
            all.push(y.to_vec::<f32>()?);
        }
    }
    for other in &all[1..] {
        assert!(all[0].iter().zip(other).all(|(a, b)| (a - b).abs() < 1e-6), "{:?}\n{other:?}", all[0]);
    }
    let (dp, fsdp) = (line(true)?, line(true)?.with_storage_axes([("embed", "x")])?);
    let types = |mesh: &Mesh| {
        let x = F32.array_type([16, 8]).on(mesh, p!["batch", "embed"]);
        (x, F32.array_type([8, 32]).stored_on(mesh, p!["embed", "mlp"]))
    };
    assert_collectives!(g.lower(types(&dp))?, AllReduce("x") x 1);
    assert_collectives!(g.lower(types(&fsdp))?, AllGather("x") x 1, ReduceScatter("x") x 1);
    Ok(())
}

#[test]
fn optimizer_state_can_be_sharded_alone() -> Result<()> {
    // ZeRO-1: weights are stored whole, the state of the optimizer in parts
    let mesh =
        Mesh::new([("x", 8)])?.with_logical_axes([("batch", "x")])?.with_logical_axes([("embed", ())])?;
    let mesh = mesh.with_storage_axes([("embed", "x")])?;
    let w = Key::new(2).normal([16]).put(&mesh, p!["embed"]);
    let momentum = Array::zeros([16]).put_stored(&mesh, p!["embed"]);
    let x = Key::new(1).normal([8, 16]).put(&mesh, p!["batch", "embed"]);
    let step = jit(|w: &Array, m: &Array, x: &Array| {
        let g = grad(w, |w| (x * w.to_compute(p!["embed"; R: "batch"])).square().sum(..));
        let m = m * 0.9 + g.to_storage(p!["embed"]);
        (w - 0.1 * m.reshard(p!["embed"]), m)
    });
    let (w, m) = step.call((&w, &momentum, &x))?;
    assert_eq!(
        (type_of(&w).to_string(), type_of(&m).to_string()),
        ("float32[16]".into(), "float32[16@x]".into())
    );
    Ok(())
}

/// Appends the message of an error and its helps to the golden text.
fn report(text: &mut String, what: &str, error: atmesh::Error) {
    writeln!(text, "## {what}").unwrap();
    for d in well(error).diagnostics() {
        writeln!(text, "{}: {}", d.op, d.fault.message).unwrap();
        d.fault.help.iter().for_each(|help| writeln!(text, "    help: {help}").unwrap());
    }
}

#[test]
fn errors_list_what_exists_and_propose_a_fix() -> Result<()> {
    let [mesh, auto, _] = grids()?;
    let x = Array::ones([8, 8]).put(&mesh, p!["batch", _]);
    let y = Array::ones([8, 8]).put(&auto, p![]);
    let mut text = String::new();
    let mut add = |what: &str, error: Option<atmesh::Error>| {
        report(&mut text, what, error.unwrap_or_else(|| panic!("{what} is no error")));
    };
    add("a typo", x.reshard(p!["batch", "head"]).ty().err());
    add("a typo in a result", x.dot_to(&x, p!["bach", "heads"]).ty().err());
    add("a typo over auto axes", y.constrain(p!["Batch"]).ty().err());
    add("a missing name", x.reshard(p!["batch", "vocab"]).ty().err());
    add("a missing name in a type", Array::zeros(F32.array_type([8]).on(&mesh, p!["seq"])).ty().err());
    add("two names of one axis", x.dot_to(&x, p!["heads", "mlp"]).ty().err());
    add("two names of one axis, in storage", x.to_storage(p!["heads", "mlp"]).ty().err());
    add("one name twice", x.put(&mesh, p!["batch", "batch"]).ty().err());
    add("a name and its axis", y.dot_to(&y, p!["model", "heads"]).ty().err());
    add("a name in a dimension and in a set", x.reshard(p!["batch", _; R: "tokens"]).ty().err());
    add("a size that does not divide", Array::ones([7]).put(&mesh, p!["batch"]).ty().err());
    add("too many entries", x.reshard(p!["batch", "embed", "embed"]).ty().err());
    add("a logical axis in a collective", {
        shard_map(&mesh, p!["batch"], p![], |x: &Array| x.psum("batch")).call(&x).err()
    });
    add("no mesh", Array::ones([8]).reshard(p!["batch"]).ty().err());
    let rules = |rules: &[(&'static str, &'static str)]| mesh.with_logical_axes(rules.iter().copied()).err();
    add("the name of an axis", rules(&[("model", "data")]));
    add("a rule for an unknown axis", rules(&[("seq", "modl")]));
    add("a rule for a logical axis", rules(&[("seq", "batch")]));
    add("a name that is listed twice", rules(&[("seq", "data"), ("seq", "model")]));
    add("a name that cannot be printed", rules(&[("a b", "data")]));
    add("an axis twice in a rule", mesh.with_logical_axes([("seq", ("data", "data"))]).err());
    add("storage of an unknown name", mesh.with_storage_axes([("vocab", "data")]).err());
    compare_with_golden("errors", &text);
    Ok(())
}
