//! Hints about placement other than shardings: dimensions left open, and limits on implicit
//! resharding.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{CollectiveKind, ImplicitReshard, vmap};

fn spec(x: &Array) -> Result<Spec> {
    Ok(x.sharding()?.map_or(p![], |s| s.spec))
}

#[test]
fn an_open_dimension_stays_as_it_comes() -> Result<()> {
    let mesh = Mesh::auto([("X", 2), ("Y", 2)])?;
    let plain = Key::new(1).normal([8, 4]);
    for (placed, asked, comes) in [
        (p![_, "Y"], p!["X", "?"], p!["X", "Y"]),
        (p![_, "Y"], p!["X", _], p!["X", _]),
        (p!["X", "Y"], p!["?", _], p!["X", _]),
        (p!["X", "Y"], p!["?", "?"], p!["X", "Y"]),
        (p![_, _], p!["?", "Y"], p![_, "Y"]),
        (p![("X", "Y"), _], p![("X", "?"), _], p![("X", "Y"), _]),
    ] {
        let f = jit(move |x: &Array| (x * 2.0).constrain(asked));
        let y = f.call(&plain.put(&mesh, placed))?;
        assert_eq!(spec(&y)?, comes, "{placed} asked for {asked}");
        assert_eq!(y.to_vec::<f32>()?, (&plain * 2.0).to_vec::<f32>()?);
        // A batch adds a leading dimension, which is open in any case.
        let stacked = stack([&plain, &plain], 0);
        let each = jit(move |x: &Array| vmap(x, |x: Array| (x * 2.0).constrain(asked)));
        assert!(each.call(&stacked.put(&mesh, p![]))?.allclose_with(&(&stacked * 2.0), 0.0, 0.0)?);
    }
    Ok(())
}

#[test]
fn over_explicit_axes_an_open_dimension_is_not_asserted() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let x = Array::ones([8, 4]).put(&mesh, p![("X", "Y"), _]);
    for holds in [p!["?", _], p![("X", "?"), _], p!["?", "?"], p![("X", "Y"), "?"]] {
        assert!(x.constrain(holds).ty().is_ok(), "{holds}");
    }
    for fails in [p!["X", _], p![("Y", "?"), _], p!["?", "Y"]] {
        assert!(x.constrain(fails).ty().is_err(), "{fails}");
    }
    Ok(())
}

#[test]
fn only_constraints_leave_dimensions_open() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::ones([8, 4]);
    let on = x.put(&mesh, p!["X", _]);
    for rejected in [x.put(&mesh, p!["?", _]).ty(), on.reshard(p!["?", _]).ty(), on.sum_to(1, p!["?"]).ty()] {
        let error = rejected.expect_err("it is no constraint").unquoted();
        assert!(error.contains("leaves a dimension open, which only a constraint may"), "{error}");
    }
    let error = Mesh::new([("?", 2)]).expect_err("no axis is named so").unquoted();
    assert!(error.contains("is not a name for an axis"), "{error}");
    Ok(())
}

#[test]
fn what_moves_unasked_is_rejected_beyond_a_limit() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let (x, w) = (Array::ones([64, 16]).put(&mesh, p!["X", _]), Array::ones([16, 8]).put(&mesh, p!["X", _]));
    let layer = |x: &Array, w: &Array| x.dot(w);
    let gathered = 16 * 8 * 4 * 3 / 4;
    assert_eq!(jit(layer).lower((&x, &w))?.collectives().bytes(), gathered);
    // At the limit it is allowed, and below the limit it is an error, also in a plain call.
    let f = |moves| jit(layer).implicit_reshard(moves);
    for ok in [ImplicitReshard::Allow, ImplicitReshard::Warn(0), ImplicitReshard::Deny(gathered)] {
        assert!(f(ok).call((&x, &w)).is_ok() && f(ok).lower((&x, &w)).is_ok(), "{ok:?}");
    }
    let deny = f(ImplicitReshard::Deny(gathered - 1));
    for error in [deny.call((&x, &w)).err(), deny.lower((&x, &w)).err()] {
        let text = error.expect("more bytes than allowed").to_string();
        assert!(
            text.contains("which the program does not ask for")
                && text.contains("tests/sharding/open_dims.rs:"),
            "{text}"
        );
        assert!(text.contains(&format!("Deny({gathered})")), "{text}");
    }
    // The suggestion of the help.
    let said = jit(|x: &Array, w: &Array| x.dot(w.reshard(p![]))).implicit_reshard(ImplicitReshard::Deny(0));
    assert!(said.call((&x, &w)).is_ok());
    // If a product is computed directly in the sharding that a reshard requests, the movement
    // counts as requested.
    let wide = (Array::ones([64, 16]).put(&mesh, p![_, "X"]), Array::ones([16, 256]).put(&mesh, p!["X", _]));
    let made = jit(|x: &Array, w: &Array| x.dot_to(w, p![_, _]).reshard(p!["X", _]));
    let report = made.lower((&wide.0, &wide.1))?.collectives().clone();
    assert!(
        report.iter().any(|c| c.kind == CollectiveKind::AllGather) && report.iter().all(|c| c.requested),
        "{report}"
    );
    assert!(made.implicit_reshard(ImplicitReshard::Deny(0)).lower((&wide.0, &wide.1)).is_ok(), "{report}");
    // Sums and halos are part of an operation, not implicit resharding.
    let sums = jit(|x: &Array| (x.sum(0), x.roll(1, 0))).implicit_reshard(ImplicitReshard::Deny(0));
    assert!(sums.call(&x).is_ok());
    // A reshard in a loop is requested, also if its operand is loop-invariant and it is hoisted.
    for constant in [false, true] {
        let inside = jit(move |x: &Array, w: &Array| {
            let v = if constant { w.sin() } else { w.clone() };
            fori_loop(0..3, x, |_, h: Array| h.dot(v.reshard(p![])).dot(w.reshard(p![]).t()).tanh())
        });
        let all = inside.lower((&x, &w))?.collectives().clone();
        assert!(!all.is_empty() && all.iter().all(|c| c.requested && c.count == 1), "{all}");
        assert!(inside.implicit_reshard(ImplicitReshard::Deny(0)).call((&x, &w)).is_ok(), "{all}");
    }
    // Each iteration of a loop counts.
    let carried = |x: &Array, w: &Array| {
        fori_loop(0..3, x, |_, h: Array| h.dot(w.sin()).dot(w.reshard(p![]).t()).tanh())
    };
    let all = jit(carried).lower((&x, &w))?.collectives().bytes();
    assert!(jit(carried).implicit_reshard(ImplicitReshard::Deny(all)).lower((&x, &w)).is_ok());
    Ok(())
}

/// Gradients of microbatches, added up in a loop. The sum starts as unsharded zeros: if it is
/// constrained, or if it updates the weights, it is sharded like them, and each iteration scatters
/// its gradient. The user need not state that two values have equal shardings.
#[test]
fn a_sum_that_begins_as_zeros_is_sharded_as_what_reads_it() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let types =
        || (F32.array_type([64, 32]).on(&mesh, p!["X"]), F32.array_type([4, 256, 64]).on(&mesh, p![_, "X"]));
    let sum = |w: &Array, pieces: &Array| {
        let add = |sum: Array, x: Array| (sum + grad(w, |w| x.dot(&w).tanh().sum(..)), ());
        scan(w.zeros_like(), pieces, add).0
    };
    let (gradient, gathered) = (64 * 32 * 4 * 7 / 8, 64 * 32 * 4 * 7 / 8);
    let constrained = jit(move |w: &Array, x: &Array| sum(w, x).constrain(p!["X"]));
    let updated = jit(move |w: &Array, x: &Array| {
        let g = sum(w, x);
        (w - 0.1 * &g, g)
    });
    for all in [constrained.lower(types())?.collectives(), updated.lower(types())?.collectives()] {
        assert_eq!(all.bytes(), gathered + 4 * gradient, "{all}");
        assert!(all.iter().any(|c| c.kind == CollectiveKind::ReduceScatter && c.count == 4), "{all}");
    }
    // Alone it is replicated, which is the default for unconstrained results. It is then summed over
    // devices once, after the loop.
    let alone = jit(sum).lower(types())?;
    assert_eq!(alone.collectives().bytes(), gathered + 2 * gradient, "{}", alone.collectives());
    Ok(())
}

/// The reference removes axes from results that are not divisible, and parts of axes from all
/// results. Our results keep the sharding in which they were computed, and nothing is gathered for
/// them. A part of an axis has no name in a spec, so a dimension that is sharded over one is
/// unsharded here too.
#[test]
fn results_that_do_not_divide_come_back_as_they_were_computed() -> Result<()> {
    let (eight, grid) = (Mesh::auto([("X", 8)])?, Mesh::auto([("X", 4), ("Y", 2)])?);
    let (x, w) = (Key::new(2).normal([8]), Key::new(3).normal([8, 16]));
    let count = |all: &atmesh::Collectives, kind| all.iter().filter(|c| c.kind == kind).count();
    let check = |f: &dyn Fn(&Array) -> Array, plain: &Array, on: Array, comes: Spec| -> Result<_> {
        let f = jit(|x: &Array| f(x));
        let y = f.call(&on)?;
        assert_eq!(spec(&y)?, comes);
        assert!(y.allclose_with(&f.call(plain)?, 0.0, 0.0)?);
        Ok(f.lower(&on)?.collectives().clone())
    };
    // 7 differences over 8 devices, 10 rows over 4, and 6 elements over 4 (rows 23, 24 and 44 of
    // the worked examples).
    let steps = |x: &Array| x.slice(ix![1..]) - x.slice(ix![..7]);
    let all = check(&steps, &x, x.put(&eight, p!["X"]), p!["X"])?;
    assert_eq!((all.bytes(), count(&all, CollectiveKind::AllGather)), (4, 0), "{all}");
    let pad = |w: &Array| w.pad(0.0, [(1, 1, 0), (0, 0, 0)]) * 2.0;
    let all = check(&pad, &w, w.put(&grid, p!["X", "Y"]), p!["X", "Y"])?;
    assert_eq!((all.bytes(), count(&all, CollectiveKind::AllGather)), (64, 0), "{all}");
    let six = Key::new(4).normal([6]);
    let all = check(&Array::sin, &six, six.put(&grid, p!["X"]), p!["X"])?;
    assert!(all.is_empty(), "{all}");
    // A single row is read in full, and its result is sharded (row 32).
    let all = check(&|x| x.sort(0), &x, x.put(&eight, p!["X"]), p!["X"])?;
    assert_eq!((all.bytes(), count(&all, CollectiveKind::AllGather)), (28, 1), "{all}");
    // Each dimension is sharded over a part of X (row 14).
    let all = check(&|x| x.reshape([2, 4]), &x, x.put(&grid, p!["X"]), p![_, _])?;
    assert_eq!((all.bytes(), count(&all, CollectiveKind::AllGather)), (24, 1), "{all}");
    Ok(())
}
