//! Branches and loops that devices choose differently.
//!
//! The gradient by a value that all devices share is the sum of what each device's branch
//! contributes.

use crate::error_checks::Unquoted as _;
use crate::{X, mesh};
use atmesh::prelude::*;
use atmesh::{ErrorKind, PcastTo, type_of};

fn row(n: usize) -> Mesh {
    Mesh::new([("X", n)]).unwrap()
}
fn near(got: &Array, want: &[f64], what: &str) {
    let got = got.astype(F64).to_vec::<f64>().unwrap_or_else(|e| panic!("{what}: {e}"));
    let alike =
        got.len() == want.len() && got.iter().zip(want).all(|(a, b)| (a - b).abs() < 1e-4 * (1.0 + b.abs()));
    assert!(alike, "{what}: {got:?}, not {want:?}");
}
fn first() -> Array {
    axis_index("X").eq(0)
}

/// Checks the value and the gradient of a body that maps one scalar to the sum over devices.
fn check(what: &str, value: f64, slope: f64, f: &dyn Fn(&Array) -> Array) -> Result<()> {
    let mesh = row(4);
    let w = Array::from(1.0f32).put(&mesh, p![]);
    for engine in [Lockstep, Threads, EngineKind::Reference] {
        let y = |w: &Array| shard_map(&mesh, p![], p![], |w: &Array| f(w)).engine(engine).call(w);
        near(&y(&w)?, &[value], what);
        let outside = jit(|w: &Array| grad(w, |w| y(&w))).engine(engine);
        near(&outside.call(&w)?, &[slope], what);
        let inside = shard_map(&mesh, p![], p![], |w: &Array| grad(w, |w| f(&w))).engine(engine);
        near(&inside.call(&w)?, &[slope], what);
        let eager = shard_map(&mesh, p![], p![], |w: &Array| f(w)).engine(engine);
        near(&grad(&w, |w| eager.call(&w)), &[slope], what);
    }
    Ok(())
}

#[test]
fn the_gradient_sums_over_devices() -> Result<()> {
    check("cond", 11.0, 11.0, &|w| cond(first(), || w * 2.0, || w * 3.0).psum("X"))?;
    check("switch", 14.0, 14.0, &|w| {
        let branches: [&dyn Fn() -> Array; 4] = [&|| w * 2.0, &|| w * 3.0, &|| w * 4.0, &|| w * 5.0];
        switch(axis_index("X"), &branches).psum("X")
    })?;
    check("casts in the branches", 11.0, 11.0, &|w| {
        cond(first(), || w.pvary("X") * 2.0, || w.pvary("X") * 3.0).psum("X")
    })?;
    check("a cast before them", 11.0, 11.0, &|w| {
        let w = w.pvary("X");
        cond(first(), || &w * 2.0, || &w * 3.0).psum("X")
    })?;
    check("a branch that does not read it", 2.0, 2.0, &|w| {
        cond(first(), || w * 2.0, || Array::from(0.0f32)).psum("X")
    })?;
    check("a branch in a branch", 9.0, 9.0, &|w| {
        let second = || axis_index("X").eq(1);
        let inner = || cond(second(), || w * 3.0, || w * 2.0);
        cond(first(), || (w * 2.0).pvary("X"), inner).psum("X")
    })?;
    check("a branch in a uniform branch", 11.0, 11.0, &|w| {
        cond(w.gt(0.0), || cond(first(), || w * 2.0, || w * 3.0).psum("X"), || w.clone())
    })?;
    check("in a checkpoint", 11.0, 11.0, &|w| {
        checkpoint(w, |w| cond(first(), || &w * 2.0, || &w * 3.0)).psum("X")
    })?;
    check("in a jitted function", 11.0, 11.0, &|w| {
        jit(|w: &Array| cond(first(), || w * 2.0, || w * 3.0)).call(w).unwrap().psum("X")
    })?;
    check("a scan in the branches", 2.0 + 3.0, 16.0 + 3.0, &|w| {
        let powers = |n: usize| {
            let options = atmesh::ScanOptions::default().length(n);
            atmesh::scan_with(Array::from(1.0f32), (), |c, ()| (&c * w, ()), options).0
        };
        cond(first(), || powers(8) * 2.0, || powers(1)).psum("X")
    })
}

#[test]
fn inside_loops() -> Result<()> {
    let branch = |w: &Array| cond(first(), || w * 2.0, || w * 3.0);
    check("scan", 22.0, 22.0, &|w| {
        let xs = Array::ones([2]);
        scan(Array::from(0.0f32).pvary("X"), xs, |c, x| (c + branch(w) * x, ())).0.psum("X")
    })?;
    check("fori_loop", 33.0, 33.0, &|w| {
        fori_loop(0..3, Array::from(0.0f32).pvary("X"), |_, c| c + branch(w)).psum("X")
    })?;
    check("vmap", 22.0, 22.0, &|w| vmap(Array::ones([2]), |x: Array| branch(w) * x).sum(..).psum("X"))?;
    let mesh = row(2);
    let f = shard_map(&mesh, p![], p!["X"], |w: &Array| {
        let step = |_, c: Array| cond(first(), || &c * w, || &c + w);
        fori_loop(0..3, w.pvary("X"), step).expand_dims(0)
    });
    near(&f.call(2.0f32)?, &[16.0, 8.0], "powers and multiples");
    near(&grad(2.0f32, |w: Array| f.call(&w).map(|y| y.sum(..))), &[36.0], "their slopes");
    Ok(())
}

/// Branches that save values for the backward pass, also values that depend on constants only.
#[test]
fn branches_with_residuals() -> Result<()> {
    let (e, c) = (1.0f64.exp(), 1.0f64.cos());
    check("sin and exp", 1.0f64.sin() + 3.0 * e, c + 3.0 * e, &|w| {
        cond(first(), || w.sin(), || w.exp()).psum("X")
    })?;
    let of = |x: f64| x.sin();
    check("constants", of(1.0) + 3.0 * of(2.0), of(1.0) + 3.0 * of(2.0), &|w| {
        let constant = |n: i32| Array::arange(n..n + 1).astype(F32).sin().sum(..);
        cond(first(), || w * constant(1), || w * constant(2)).psum("X")
    })?;
    let mesh = row(2);
    let f = shard_map(&mesh, p![], p!["X"], |x: &Array| {
        checkpoint(x, |x: Array| cond(first(), || x.sin(), || x.exp())).expand_dims(0)
    });
    let want = 0.5f64.cos() + 0.5f64.exp();
    near(&grad(0.5f32, |x: Array| f.call(&x).map(|y| y.sum(..))), &[want], "recomputed");
    Ok(())
}

/// A layer that one device skips.
#[test]
fn a_skipped_layer() -> Result<()> {
    let mesh = row(4);
    let w = Array::from(1.0f32).put(&mesh, p![]);
    let x = Array::from([1.0f32, 10.0, 100.0, 1000.0]).put(&mesh, p!["X"]);
    let f = |w: &Array, x: &Array| {
        let body = |w: &Array, x: &Array| {
            let x = x.squeeze(0);
            cond(axis_index("X").ne(0), || &x * w, || &x * 0.0).psum("X")
        };
        shard_map(&mesh, (p![], p!["X"]), p![], body).call((w, x))
    };
    near(&f(&w, &x)?, &[1110.0], "value");
    near(&jit(|w: &Array, x: &Array| grad(w, |w| f(&w, x))).call((&w, &x))?, &[1110.0], "gradient");
    Ok(())
}

#[test]
fn chosen_by_the_block_itself() -> Result<()> {
    let f = shard_map(&row(2), (p![], p!["X"]), p!["X"], |w: &Array, x: &Array| {
        cond(x.sum(..).gt(0.0), || w * x, || -2.0 * w * x)
    });
    let (w, x) = (Array::from([5.0f32, 7.0]), Array::from([[1.0f32, 2.0], [-3.0, -4.0]]));
    near(&grad(&w, |w: Array| f.call((&w, &x)).map(|y| y.sum(..))), &[7.0, 10.0], "gradient");
    Ok(())
}

#[test]
fn an_index_beyond_the_last_branch() -> Result<()> {
    let f = shard_map(&row(4), p![], p!["X"], |x: &Array| {
        switch(axis_index("X"), &[&|| x.clone(), &|| x * x, &|| 3.0 * x]).expand_dims(0)
    });
    near(&f.call(2.0f32)?, &[2.0, 4.0, 6.0, 6.0], "values");
    near(&grad(2.0f32, |x: Array| f.call(&x).map(|y| y.sum(..))), &[11.0], "gradient");
    Ok(())
}

/// A loss that differs between devices: its gradient is that of the sum.
#[test]
fn a_loss_that_varies() -> Result<()> {
    let f = shard_map(&row(2), p![], p![], |x: &Array| {
        grad(x, |x: Array| cond(first(), || 2.0 * &x, || 3.0 * &x))
    });
    near(&f.call(2.0f32)?, &[5.0], "gradient");
    Ok(())
}

#[test]
fn forward_and_second_derivatives() -> Result<()> {
    let f = shard_map(&row(2), p![], p!["X"], |x: &Array| {
        let (value, tangent) = jvp(x, 1.0f32, |x: Array| cond(first(), || x.powi(2), || x.powi(3)));
        stack([value, tangent], 0)
    });
    near(&f.call(2.0f32)?, &[4.0, 4.0, 8.0, 12.0], "values and tangents");
    let f = shard_map(&row(2), p![], p![], |x: &Array| {
        grad(x, |x: Array| grad(&x, |x: Array| cond(first(), || x.powi(3), || x.powi(4)).psum("X")))
    });
    near(&f.call(2.0f32)?, &[6.0 * 2.0 + 12.0 * 4.0], "second derivative");
    Ok(())
}

/// Two manual axes, and a region over one of them.
#[test]
fn over_one_of_two_axes() -> Result<()> {
    let mesh = mesh();
    let w = Array::from(1.0f32).put(&mesh, p![]);
    for engine in [Lockstep, Threads] {
        let f = shard_map(&mesh, p![], p![], |w: &Array| {
            let k = axis_index("Y").astype(F32) + 1.0;
            cond(first(), || w * &k, || w * 10.0 * &k).psum(["X", "Y"])
        })
        .engine(engine);
        near(&f.call(&w)?, &[33.0], "two axes");
        near(&grad(&w, |w| f.call(&w)), &[33.0], "gradient over two axes");
        let g = shard_map(&mesh, p![], p![], |w: &Array| cond(first(), || w * 2.0, || w * 3.0).psum("X"))
            .over(X)
            .engine(engine);
        near(&g.call(&w)?, &[5.0], "over X");
        near(&grad(&w, |w| g.call(&w)), &[5.0], "gradient over X");
    }
    Ok(())
}

/// A reduced value becomes varying in branches that devices choose differently.
#[test]
fn reduced_values_in_branches() -> Result<()> {
    let mesh = row(4);
    let r = Array::from(1.0f32).put(&mesh, p![; R: X]);
    let choose = |r: &Array| cond(first(), || r + r, || r.clone());
    let refused = shard_map(&mesh, p![; R: X], p![; R: X], |r: &Array| {
        let y = choose(r);
        assert_eq!(type_of(&y), "float32[]{V:X}");
        y
    });
    assert_eq!(refused.call(&r).map(drop).map_err(|e| e.kind()), Err(ErrorKind::Varying));
    let f = shard_map(&mesh, p![; R: X], p!["X"], |r: &Array| choose(r).reshape([1]));
    near(&f.call(&r)?, &[2.0, 1.0, 1.0, 1.0], "blocks");
    let slope = grad(&r, |r| f.call(&r).map(|y| y.sum(..)));
    assert_eq!(type_of(&slope), "float32[]{U:X}");
    near(&slope.reshard(p![]), &[5.0], "gradient");
    Ok(())
}

/// Partial values in such branches are refused.
#[test]
fn partial_values_in_branches() -> Result<()> {
    let mesh = row(2);
    let u = Array::from(1.0f32).put(&mesh, p![; U: X]);
    let v = Array::from([1.0f32, 2.0]).put(&mesh, p![X]);
    let read = shard_map(&mesh, p![; U: X], p![; U: X], |u: &Array| cond(first(), || u + u, || u.clone()));
    let made = shard_map(&mesh, p![X], p![; U: X], |v: &Array| {
        cond(first(), || v.pcast("X", PcastTo::Unreduced), || v.pcast("X", PcastTo::Unreduced))
    });
    for e in [read.call(&u).unwrap_err(), made.call(&v).unwrap_err()] {
        assert_eq!(e.kind(), ErrorKind::Varying, "{e}");
        let e = e.unquoted();
        assert!(e.contains("unreduced over X") && e.contains(".psum(\"X\")"), "{e}");
    }
    let summed = shard_map(&mesh, p![; U: X], p![], |u: &Array| {
        let u = u.psum("X");
        cond(first(), || &u + &u, || u.clone()).psum("X")
    });
    near(&summed.call(&u)?, &[3.0], "summed first");
    Ok(())
}

/// Loops that devices leave at different steps, in branches and around them.
#[test]
fn while_loops_in_branches() -> Result<()> {
    let f = shard_map(&row(2), p![], p!["X"], |w: &Array| {
        let double = |limit: f32| while_loop(w, |w: &Array| w.lt(limit), |w: Array| w * 2.0);
        cond(first(), || double(10.0), || double(100.0)).expand_dims(0)
    });
    near(&f.call(3.0f32)?, &[12.0, 192.0], "loops in branches");
    let (_, slope) = jvp(3.0f32, 1.0f32, |w: Array| f.call(&w));
    near(&slope, &[4.0, 64.0], "their tangents");
    Ok(())
}
