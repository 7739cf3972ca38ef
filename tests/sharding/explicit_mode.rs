//! Explicit mode has the algorithms of auto mode: operations that move as little, and errors whose
//! help names them.

use crate::error_checks::Unquoted as _;
use atmesh::nd::ArrayView1;
use atmesh::prelude::*;
use atmesh::{jvp, vjp};

fn text_of(x: &Array) -> String {
    x.ty().expect_err("it is rejected").unquoted()
}

/// Contracted dimensions that are sharded over the same axes in two orders. (The error asked for
/// the sharding that was already requested.)
#[test]
fn products_over_axes_in_two_orders() -> Result<()> {
    let mesh = Mesh::new([("a", 2), ("b", 2)])?;
    let m = Array::arange(0..16).reshape([4, 4]);
    let (l, r) = (m.put(&mesh, p![_, ("a", "b")]), m.put(&mesh, p![("b", "a"), _]));
    let to = p![_, _; U: ("a", "b")];
    let text = text_of(&l.dot_to(&r, to));
    assert!(!text.contains("it is unreduced over"), "{text}");
    assert!(
        text.contains("in the same order") && text.contains(r#"`.reshard(p![("a", "b"), _])`"#),
        "{text}"
    );
    // both helps are accepted
    let wanted = m.dot(&m).to_vec::<i32>()?;
    for (l, r) in [(l.reshard(p![_, ("b", "a")]), r.clone()), (l.clone(), r.reshard(p![("a", "b"), _]))] {
        let y = l.dot_to(&r, to);
        assert_eq!(y.ty()?.to_string(), "int32[4,4]{U:(a,b)}");
        assert_eq!(y.reshard(p![]).to_vec::<i32>()?, wanted);
    }
    Ok(())
}

/// An update at indices that are sharded as the array is: the result's sharding is the first way
/// out, and it works.
#[test]
fn updates_where_everything_is_sharded() -> Result<()> {
    let mesh = Mesh::new([("d", 2)])?;
    let put = |x: Array| x.put(&mesh, p!["d"]);
    let (x, i, v) =
        (put(Array::zeros([8])), put(Array::arange(0..8).flip(0)), put(Array::arange(1.0..9.0f32)));
    let text = text_of(&x.at(ix![&i]).set(&v));
    assert!(!text.contains("over ()"), "{text}");
    assert!(text.contains(r#".out_sharding(p!["d"]).set("#), "{text}");
    let y = x.at(ix![&i]).out_sharding(p!["d"]).set(&v);
    assert_eq!(y.ty()?.to_string(), "float32[8@d]");
    assert_eq!(y.to_vec::<f32>()?, [8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0, 1.0]);
    // the same where the value is unsharded: the indices are named as the user wrote them
    let whole = v.reshard(p![_]);
    let text = text_of(&x.at(ix![&i]).add(&whole));
    assert!(!text.contains("p![_, _]"), "{text}");
    assert!(text.contains("int32[8@d]") && text.contains(r#".out_sharding(p!["d"]).add("#), "{text}");
    assert_eq!(x.at(ix![&i]).out_sharding(p!["d"]).add(&whole).to_vec::<f32>()?, y.to_vec::<f32>()?);
    Ok(())
}

/// `spmd` cuts arrays into equal blocks whatever the type of the axis is, so that an auto axis is no
/// way out.
#[test]
fn spmd_over_uneven_dimensions() -> Result<()> {
    for mesh in [Mesh::auto([("d", 4)])?, Mesh::new([("d", 4)])?] {
        let f = spmd(&mesh, p!["d"], p!["d"], |_: &Device, x: ArrayView1<i32>| Ok(x.mapv(|v| 2 * v)));
        let text = f.call(Array::arange(0..10)).unwrap_err().unquoted();
        assert!(!text.contains("make the axis auto"), "{text}");
        assert!(text.contains("nearest multiples of 4: 8 and 12"), "{text}");
        assert_eq!(f.call(Array::arange(0..8))?.to_vec::<i32>()?, [0, 2, 4, 6, 8, 10, 12, 14]);
    }
    Ok(())
}

/// Branches that vary over different axes: the help names the cast of each branch.
#[test]
fn branches_that_vary_over_different_axes() -> Result<()> {
    let mesh = Mesh::new([("a", 2), ("b", 2)])?;
    let x = Array::arange(0.0..4.0f32);
    let specs = (p!["a"], p!["b"]);
    let f = shard_map(&mesh, specs, p![("a", "b")], |x: &Array, y: &Array| {
        cond(true, || x.clone(), || y.clone())
    });
    let text = f.call((&x, &x)).unwrap_err().unquoted();
    let help =
        "`.pvary(\"b\")` on the result where it holds, and `.pvary(\"a\")` on the result where it does not";
    assert!(text.contains(help), "{text}");
    let f = shard_map(&mesh, specs, p![("a", "b")], |x: &Array, y: &Array| {
        cond(true, || x.pvary("b"), || y.pvary("a"))
    });
    assert_eq!(f.call((&x, &x))?.to_vec::<f32>()?, [0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0]);
    // a branch that needs no cast is not named
    let f = shard_map(&mesh, specs, p![("a", "b")], |x: &Array, y: &Array| {
        switch(1, &[&|| x.clone(), &|| x + y, &|| y.clone()])
    });
    let text = f.call((&x, &x)).unwrap_err().unquoted();
    assert!(text.contains("of branch 0, and") && !text.contains("the result of branch 1"), "{text}");
    Ok(())
}

/// A tangent that varies at a value that does not: the value can be made to vary.
#[test]
fn tangents_and_cotangents_that_vary() -> Result<()> {
    let mesh = Mesh::new([("d", 2)])?;
    let at = Array::from([1.0f32]);
    let f = shard_map(&mesh, p!["d"], p!["d"], |t: &Array| jvp(&at, t, |x: Array| x.square()).1);
    let text = f.call(Array::ones([2])).unwrap_err().unquoted();
    assert!(text.contains("make the value vary too: `.pvary(\"d\")` on it"), "{text}");
    let f = shard_map(&mesh, p!["d"], p!["d"], |t: &Array| jvp(at.pvary("d"), t, |x: Array| x.square()).1);
    assert_eq!(f.call(Array::ones([2]))?.to_vec::<f32>()?, [2.0, 2.0]);

    let f = shard_map(&mesh, p!["d"], p![], |t: &Array| vjp(&at, |x: Array| x.square()).1.call(t));
    let text = f.call(Array::ones([2])).unwrap_err().unquoted();
    assert!(text.contains("make the function's result vary too: `.pvary(\"d\")` on it"), "{text}");
    let f = shard_map(&mesh, p!["d"], p![], |t: &Array| vjp(&at, |x: Array| x.square().pvary("d")).1.call(t));
    assert_eq!(f.call(Array::ones([2]))?.to_vec::<f32>()?, [4.0]);
    Ok(())
}

/// Operations along a sharded dimension: the first help is a region of auto axes, which moves less
/// than the gather that the second one asks for.
#[test]
fn operations_along_a_sharded_dimension() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let values = || Array::arange(0..1 << 13).astype(F32).sin().reshape([8, 1 << 10]);
    let x = values().put(&mesh, p![_, "X"]);
    let first_help = |y: &Array| {
        let error = y.ty().expect_err("it is rejected");
        let helps = error.diagnostics()[0].fault.help.clone();
        assert!(helps[1].contains("`.reshard(p![_, _])`"), "{error}");
        helps[0].clone()
    };
    let bytes = |f: &dyn Fn(&Array) -> Array| -> Result<u64> {
        Ok(jit(|x: &Array| f(x)).lower(&x)?.collectives().total_bytes())
    };
    let gathered = bytes(&|x| x.reshard(p![_, _]))?;

    let help = first_help(&x.top_k(5, 1).0);
    assert!(help.ends_with("`auto_axes(&x, p![_, _], |x| x.top_k(5, 1))`"), "{help}");
    let island = |x: &Array| auto_axes(x, p![_, _], |x| x.top_k(5, 1)).0;
    assert_eq!(island(&x).to_vec::<f32>()?, values().top_k(5, 1).0.to_vec::<f32>()?);
    assert!(bytes(&island)? * 10 < gathered, "{} of {gathered}", bytes(&island)?);

    let help = first_help(&x.cumsum(-1));
    assert!(help.ends_with("`auto_axes(&x, p![_, \"X\"], |x| x.cumsum(-1))`"), "{help}");
    let island = |x: &Array| auto_axes(x, p![_, "X"], |x| x.cumsum(-1));
    assert!(island(&x).reshard(p![]).allclose_with(&values().cumsum(-1), 1e-3, 1e-3)?);
    assert!(bytes(&island)? * 10 < gathered, "{} of {gathered}", bytes(&island)?);

    let help = first_help(&x.sort(1));
    assert!(help.ends_with("`auto_axes(&x, p![_, \"X\"], |x| x.sort(1))`"), "{help}");
    let island = |x: &Array| auto_axes(x, p![_, "X"], |x| x.sort(1));
    assert_eq!(island(&x).to_vec::<f32>()?, values().sort(1).to_vec::<f32>()?);

    let help = first_help(&x.median(1));
    assert!(help.ends_with("`auto_axes(&x, p![_], |x| x.median(1))`"), "{help}");
    let island = |x: &Array| auto_axes(x, p![_], |x| x.median(1));
    assert_eq!(island(&x).to_vec::<f32>()?, values().median(1).to_vec::<f32>()?);

    let tall = values().reshape([1 << 10, 8]).put(&mesh, p!["X", _]);
    let help = first_help(&tall.qr(false).0);
    assert!(help.ends_with("`auto_axes(&x, (p![\"X\", _], p![_, _]), |x| x.qr(false))`"), "{help}");
    let (q, r) = auto_axes(&tall, (p!["X", _], p![_, _]), |x| x.qr(false));
    assert_eq!((type_of(&q), type_of(&r)), (type_of(&tall), type_of(values().slice(ix![.., 0..8]))));
    Ok(())
}

/// Returns the bytes of an all-to-all of an array of this size over 8 devices, per device.
fn exchange_bytes(bytes: usize) -> u64 {
    (bytes / 8 / 8 * 7) as u64
}

/// A transform over several dimensions exchanges a sharded one by all-to-alls, and gathers nothing.
/// The bits are those of the unsharded transform.
#[test]
fn transforms_over_a_sharded_dimension() -> Result<()> {
    let values = Array::arange(0..64 * 48).astype(F32).sin().reshape([64, 48]);
    let z = values.astype(C64);
    let half = z.slice(ix![.., 0..25]);
    type Transform = fn(&Array) -> Array;
    let transforms: [(Transform, &Array, &str); 5] = [
        (|x| x.fftn(2), &z, "complex64[64@X,48]"),
        (|x| x.ifftn(2), &z, "complex64[64@X,48]"),
        (|x| x.rfftn(2), &values, "complex64[64@X,25]"),
        (|x| x.irfftn(2, 48), &half, "float32[64@X,48]"),
        (|x| (x.fftn(2) * 0.5).ifftn(2), &z, "complex64[64@X,48]"),
    ];
    let mesh = Mesh::new([("X", 8)])?;
    for (f, x, ty) in transforms {
        let put = x.put(&mesh, p!["X", _]);
        let y = f(&put);
        assert_eq!(type_of(&y), ty);
        assert_eq!(bits(&y.reshard(p![_, _]))?, bits(&f(x))?, "{ty}");
        let lowered = jit(move |x: &Array| f(x)).lower(&put)?;
        let moved = lowered.collectives();
        assert_eq!(moved.count(atmesh::CollectiveKind::AllGather, "X"), 0, "{moved}");
    }
    // the last dimension is sharded
    let y = z.put(&mesh, p![_, "X"]).fftn(2);
    assert_eq!(type_of(&y), "complex64[64,48@X]");
    assert_eq!(bits(&y.reshard(p![_, _]))?, bits(&z.fftn(2))?);
    // on auto axes, and over two axes
    let mesh = Mesh::auto([("X", 2), ("Y", 4)])?;
    for spec in [p!["X", _], p!["X", "Y"], p![("X", "Y"), _], p![_, "Y"]] {
        let y = jit(|x: &Array| x.fftn(2)).call(z.put(&mesh, spec))?;
        assert_eq!(bits(&y)?, bits(&z.fftn(2))?, "{spec}");
    }
    Ok(())
}

fn bits(x: &Array) -> Result<Vec<u32>> {
    let parts = match x.ty()?.dtype {
        C64 => [x.real().to_vec::<f32>()?, x.imag().to_vec::<f32>()?].concat(),
        _ => x.to_vec::<f32>()?,
    };
    Ok(parts.into_iter().map(f32::to_bits).collect())
}

/// A transform of 1024² complex numbers over 8 devices moves one all-to-all if the other dimension
/// of the result is sharded, and two if the type stays. (It moved 7,340,032 bytes.)
#[test]
fn the_bytes_of_a_transform() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Array::zeros(C64.array_type([1024, 1024])).put(&mesh, p!["X", _]);
    let one = exchange_bytes(1024 * 1024 * 8);
    assert_eq!(one, 917_504);
    let bytes = |f: fn(&Array) -> Array| -> Result<u64> {
        Ok(jit(move |x: &Array| f(x)).lower(&x)?.collectives().total_bytes() / 8)
    };
    assert_eq!(bytes(|x| x.fftn(2).reshard(p![_, "X"]))?, one);
    assert_eq!(bytes(|x| x.fftn(2))?, 2 * one);
    Ok(())
}

/// Rolls of sharded dimensions are halo exchanges, which are fused as on auto axes.
#[test]
fn rolls_are_halo_exchanges() -> Result<()> {
    let values = Array::arange(0..64 * 64).astype(F32).reshape([64, 64]);
    let meshes = [Mesh::auto([("y", 2), ("x", 4)])?, Mesh::new([("y", 2), ("x", 4)])?];
    type Rolls = fn(&Array) -> Array;
    let programs: [Rolls; 4] = [
        |x| x.roll(1, 0),
        |x| x.roll(-3, 1),
        |x| x.roll(1, 0).roll(1, 1) + x.roll(-1, 0).roll(1, 1),
        |x| x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) - 4.0 * x,
    ];
    for f in programs {
        let found = meshes.each_ref().map(|mesh| {
            let x = values.put(mesh, p!["y", "x"]);
            let program = jit(move |x: &Array| f(x)).lower(&x).unwrap();
            assert_eq!(f(&x).to_vec::<f32>().unwrap(), f(&values).to_vec::<f32>().unwrap());
            let moved = program.collectives();
            let kinds: Vec<String> = moved.iter().map(|c| c.kind.name().to_string()).collect();
            (moved.total_bytes(), kinds)
        });
        assert_eq!(found[0], found[1], "auto and explicit");
    }
    // a roll is linear: unreduced values roll, and the gradient rolls back
    let x = values.put(&meshes[1], p!["y"]);
    let weights = x.sin();
    let g = grad(&x, |x| (x.roll(5, 0) * &weights).sum(..));
    assert_eq!(type_of(&g), type_of(&x));
    assert_eq!(g.to_vec::<f32>()?, weights.roll(-5, 0).to_vec::<f32>()?);
    Ok(())
}
