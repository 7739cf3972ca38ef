//! Partial values at the boundaries of the type system: per-device code, other meshes, auto axes,
//! and the host.

use crate::{X, Y, error_checks, mesh, near, placed_pair, read};
use atmesh::mesh::AxisType;
use atmesh::prelude::*;
use atmesh::{ErrorKind, PcastTo, type_of};

fn rejected<T>(got: Result<T>, what: &str) {
    match got {
        Ok(_) => panic!("{what} is accepted"),
        Err(e) => {
            let e = error_checks::well(e);
            assert!(
                matches!(e.kind(), ErrorKind::Sharding | ErrorKind::Varying | ErrorKind::Mesh),
                "{what}: {e}"
            )
        }
    }
}

fn check(got: &Array, want: &Array, what: &str) -> Result<()> {
    let (got, want, ty) = (read(got)?, read(want)?, type_of(got).to_string());
    assert!(near(&got, &want, F32), "{what}: {ty} {got:?}, not {want:?}");
    Ok(())
}

/// In a checked region, the type of a partial value says that it is one.
#[test]
fn per_device_code_of_parts() -> Result<()> {
    let mesh = mesh();
    let (u, whole) = placed_pair(&mesh, &[4, 4], F32, p![; U: X], 1)?;
    let (r, factor) = placed_pair(&mesh, &[4, 4], F32, p![; R: X], 2)?;
    for engine in [Lockstep, Threads] {
        let run =
            |f: fn(&Array) -> Array, out: Spec| shard_map(&mesh, p![; U: X], out, f).engine(engine).call(&u);
        check(&run(|u| u.psum("X"), p![])?, &whole, "summed")?;
        check(&run(|u| (u + u).psum("X").cos(), p![])?, &(&whole * 2.0).cos(), "a function of the sum")?;
        check(&run(|u| u.t(), p![; U: X])?, &whole.t(), "parts stay")?;
        check(&run(|u| u.psum_scatter("X", CollectiveDim::tiled(0)), p!["X"])?, &whole, "scattered")?;
        rejected(run(|u| u.cos(), p![; U: X]), "a function of parts");
        rejected(run(|u| u.cos(), p![]), "a function of parts as one value");
        rejected(run(|u| u.clone(), p![]), "parts as one value");
        rejected(run(|u| u.pmax("X"), p![]), "the greatest part");
        rejected(run(|u| u.all_gather("X", CollectiveDim::stacked(0)), p![]), "all parts");
        rejected(run(|u| u.ppermute("X", Permutation::ring(1)), p!["X"]), "another device's part");
        rejected(run(|u| u * axis_index("X").astype(F32), p!["X"]), "parts that vary");
        rejected(run(|u| u.pcast("X", PcastTo::Varying), p!["X"]), "parts as blocks");
        let product = shard_map(&mesh, (p![; U: X], p![; R: X]), p![; U: X], |u: &Array, r: &Array| u * r);
        check(&product.engine(engine).call((&u, &r))?, &(&whole * &factor), "times reduced")?;
    }
    Ok(())
}

/// In an unchecked region the type would not say so: partial values cannot enter it.
#[test]
fn unchecked_code_takes_no_parts() -> Result<()> {
    let mesh = mesh();
    let (u, _) = placed_pair(&mesh, &[4, 4], F32, p![; U: X], 1)?;
    let (v, whole) = placed_pair(&mesh, &[4, 4], F32, p!["X"], 2)?;
    let (r, factor) = placed_pair(&mesh, &[2, 4], F32, p![; R: X], 3)?;
    for engine in [Lockstep, Threads] {
        let with = |f: fn(&Array) -> Array, ins: Spec, out: Spec| {
            shard_map(&mesh, ins, out, f).unchecked().engine(engine)
        };
        rejected(with(|u| u.cos(), p![; U: X], p![]).call(&u), "a function of parts");
        rejected(with(|u| u.psum("X"), p![; U: X], p![]).call(&u), "the sum of parts");
        let inferred = shard_map(&mesh, Inferred, p![], |u: &Array| u.psum("X")).unchecked().engine(engine);
        rejected(inferred.call(&u), "parts by their own type");
        let captured =
            shard_map(&mesh, p!["X"], p!["X"], |v: &Array| v + u.slice(ix![..2])).unchecked().engine(engine);
        rejected(captured.call(&v), "captured parts");
        // Results may be unreduced: the devices' values are the partial values.
        let total = whole.slice(ix![..2]) + whole.slice(ix![2..]);
        check(&with(|v| v.clone(), p!["X"], p![; U: X]).call(&v)?, &total, "blocks as parts")?;
        let times = |r: &Array, v: &Array| {
            shard_map(&mesh, (p![; R: X], p!["X"]), p!["X"], |r: &Array, v: &Array| r * v)
                .unchecked()
                .engine(engine)
                .call((r, v))
                .unwrap()
        };
        let slope = jit(|r: &Array, v: &Array| grad(r, |r| times(&r, v).sum(..))).call((&r, &v))?;
        check(&slope, &total, "the slope by a reduced value")?;
        let _ = &factor;
    }
    rejected(
        shard_map(&mesh, p!["X"], p![; U: X], |v: &Array| v.gt(0.0)).unchecked().call(&v),
        "truths as parts",
    );
    Ok(())
}

/// Regions over some axes only, and nested regions.
#[test]
fn nested_regions_of_parts() -> Result<()> {
    let mesh = mesh();
    let (u, whole) = placed_pair(&mesh, &[4, 4], F32, p![; U: X], 1)?;
    let (s, other) = placed_pair(&mesh, &[4, 4], F32, p![_, "Y"], 2)?;
    // Captured partial values are partial inside, too.
    let f = |s: &Array| {
        shard_map(&mesh, p![_, "Y"], p![_, "Y"], |s: &Array| s + u.psum("X").slice(ix![.., ..2])).call(s)
    };
    let want = |y: usize| other.split([2, 2], 1).swap_remove(y) + whole.slice(ix![.., ..2]);
    check(&f(&s)?, &concat([want(0), want(1)], 1), "captured parts")?;
    let bad =
        |s: &Array| shard_map(&mesh, p![_, "Y"], p![_, "Y"], |s: &Array| s + u.slice(ix![.., ..2])).call(s);
    rejected(bad(&s), "captured parts beside a block");
    // Manual over Y only: X stays unchanged.
    let g = shard_map(&mesh, p![], p![], |x: &Array| x + x).over("Y").call(&u);
    if let Ok(g) = g {
        check(&g, &(&whole * 2.0), "parts over an axis that is not manual")?;
    }
    let h = shard_map(&mesh, p![], p![], |x: &Array| x.cos()).over("Y").call(&u);
    rejected(h, "a function of parts over an axis that is not manual");
    Ok(())
}

/// Other meshes over the same devices, and axes of other types.
#[test]
fn parts_on_other_meshes() -> Result<()> {
    let mesh = mesh();
    let other = Mesh::new([("A", 4)])?;
    let (u, whole) = placed_pair(&mesh, &[4, 4], F32, p![; U: X], 1)?;
    for engine in [Lockstep, Threads] {
        let on = |f: &dyn Fn(&Array) -> Array| jit(|u: &Array| f(u)).engine(engine).call(&u);
        check(&on(&|u| u.put(&other, p!["A"]).cos())?, &whole.cos(), "put on another mesh")?;
        check(&on(&|u| u.put(&other, p![; U: "A"]))?, &whole, "parts on another mesh")?;
        check(&on(&|u| u.put(&other, p![; U: "A"]).put(&mesh, p!["Y"; U: "X"]))?, &whole, "there and back")?;
        rejected(on(&|u| u + u.put(&other, p![])), "two meshes");
    }
    check(&u.put(&other, p![; U: "A"]), &whole, "at once")?;
    let mixed = Mesh::with_types([("X", 2, AxisType::Explicit), ("Y", 2, AxisType::Auto)])?;
    let (u, whole) = placed_pair(&mixed, &[4, 4], F32, p![; U: X], 1)?;
    let (s, other) = placed_pair(&mixed, &[4, 4], F32, p![X, Y], 2)?;
    for engine in [Lockstep, Threads] {
        let on = |f: &dyn Fn(&Array, &Array) -> Array| {
            jit(|u: &Array, s: &Array| f(u, s)).engine(engine).call((&u, &s))
        };
        check(&on(&|u, s| u + s.sum_to(0, p![; U: X]))?, &(&whole + other.sum(0)), "parts beside auto axes")?;
        check(&on(&|u, _| u.constrain(p!["Y"]).t())?, &whole.t(), "constrained")?;
        check(
            &on(&|u, _| u.constrain(p!["Y"]).reshard(p![X]).cos())?,
            &whole.cos(),
            "constrained, scattered",
        )?;
        check(&on(&|u, s| s.t().dot_to(s, p![; U: X]) - u)?, &(other.t().dot(&other) - &whole), "products")?;
        let rest = Mesh::auto([("B", 4)])?;
        check(&on(&|u, _| u.constrain_on(&rest, p!["B"]).t())?, &whole.t(), "constrained by another mesh")?;
        rejected(on(&|u, _| u.cos()), "a function");
        rejected(on(&|u, s| u + s), "plus whole");
    }
    Ok(())
}

/// The host sees sums; a device sees its partial value.
#[test]
fn parts_on_the_host() -> Result<()> {
    let mesh = mesh();
    let (u, whole) = placed_pair(&mesh, &[2, 2], F32, p![; U: X], 1)?;
    assert_eq!(u.to_vec::<f32>()?, whole.to_vec::<f32>()?);
    assert_eq!(u.view::<f32>()?[..], whole.view::<f32>()?[..]);
    assert_eq!(u.to_ndarray::<f32>()?, whole.to_ndarray::<f32>()?);
    assert_eq!(u.to_string(), whole.to_string());
    assert!(u.allclose(&whole)? && whole.allclose(&u)?);
    let one = u.slice(ix![0, 1]);
    assert_eq!(type_of(&one), "float32[]{U:X}");
    assert_eq!(one.item::<f32>()?, whole.slice(ix![0, 1]).item::<f32>()?);
    let parts: Vec<Array> = u.shards()?.into_iter().map(|s| s.data).collect();
    check(&(&parts[0] + &parts[2]), &whole, "the shards along X")?;
    assert_eq!(parts[0].to_vec::<f32>()?, parts[1].to_vec::<f32>()?);
    let file = std::env::temp_dir().join(format!("atmesh-{}.npy", std::process::id()));
    u.save_npy(&file)?;
    let back = Array::load_npy(&file);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(back?.to_vec::<f32>()?, whole.to_vec::<f32>()?);
    for dtype in [Bool, I32] {
        let x = whole.astype(dtype);
        let placed = x.put(&mesh, p![; U: X]);
        if dtype == Bool {
            rejected(placed.ready(), "truths as parts");
        } else {
            assert_eq!(placed.to_vec::<i32>()?, x.to_vec::<i32>()?);
        }
    }
    assert_eq!(Array::ones(F32.array_type([2]).on(&mesh, p![; U: X])).to_vec::<f32>()?, [1.0, 1.0]);
    rejected(Array::iota(I32.array_type([2]).on(&mesh, p![; U: X]), 0).ready(), "numbers as parts");
    rejected(Key::new(1).normal(F32.array_type([2]).on(&mesh, p![; U: X])).ready(), "random parts");
    assert_eq!(Array::zeros(F32.array_type([2]).on(&mesh, p![; U: X])).to_vec::<f32>()?, [0.0, 0.0]);
    Ok(())
}

/// Tangents and cotangents with another type than their values are errors, or count once.
#[test]
fn derivatives_of_parts_take_no_numbers() -> Result<()> {
    let mesh = mesh();
    let (r, whole) = placed_pair(&mesh, &[4], F32, p![; R: X], 1)?;
    let (u, _) = placed_pair(&mesh, &[4], F32, p![; U: X], 2)?;
    let (p, plain) = placed_pair(&mesh, &[], F32, p![], 3)?;
    for (name, ct) in [("a number", Array::from(1.0f32)), ("a whole", p.clone())] {
        let (_, pull) = vjp(&r, |r| (&r * &r).sum(..));
        match pull.call(&ct).ready() {
            Ok(got) => check(
                &got,
                &(&whole * 2.0 * if name == "a whole" { plain.clone() } else { 1.0f32.into() }),
                name,
            )?,
            Err(e) => assert!(matches!(error_checks::well(e.clone()).kind(), ErrorKind::Sharding), "{e}"),
        }
    }
    rejected(jvp(&u, Array::ones([4]), |u| &u + &u).1.ready(), "a tangent of numbers");
    rejected(jvp(&u, r.clone(), |u| &u + &u).1.ready(), "a reduced tangent");
    Ok(())
}
