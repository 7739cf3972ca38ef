//! Why a collective is there: the chain is the program's, and what a change promises comes true where it is written.

use atmesh::prelude::*;
use atmesh::{Collectives, Explanation, Kind};

fn mesh() -> Result<Mesh> {
    Mesh::without_devices([("data", 4), ("model", 8)])
}

/// The number of the first collective of a kind.
fn first(all: &Collectives, kind: Kind) -> usize {
    all.iter().position(|c| c.kind == kind).unwrap_or_else(|| panic!("no {kind} in\n{all}"))
}

/// The best change, which is this one.
fn best<'a>(why: &'a Explanation, what: &str) -> &'a atmesh::Change {
    let best = why.changes.first().unwrap_or_else(|| panic!("no change: {why}"));
    assert!(best.what.starts_with(what), "{why}");
    best
}

#[test]
fn a_gather_leads_back_to_an_argument_and_goes_with_its_sharding() -> Result<()> {
    let mesh = mesh()?;
    let layer = |x: &Array, w: &Array| {
        let scaled = w.sin().t();
        x.dot(scaled.reshard(p![]))
    };
    let x = || F32.of([4096, 64]).on(&mesh, p!["data", _]);
    let w = |spec| F32.of([64, 64]).on(&mesh, spec);
    let f = jit(layer);
    let lowered = f.lower((x(), w(p!["model", _])))?;
    let i = first(lowered.collectives(), Kind::AllGather);
    let why = f.explain((x(), w(p!["model", _])), i)?;
    assert_eq!(why.chain[0], "argument 1, f32[64@model,64], is sharded over model along dimension 0");
    assert!(why.chain[1].starts_with("the result of sin at tests/explain.rs:"), "{why}");
    assert!(why.chain.last().is_some_and(|s| s.contains("reshard asks for the value unsharded")), "{why}");
    let change = best(&why, "shard argument 1 as `p![_, _]`");
    assert_eq!((change.own_bytes, change.bytes), (0, 0), "{why}");
    // where it is followed
    let followed = f.lower((x(), w(p![])))?;
    assert!(followed.collectives().is_empty(), "{}", followed.collectives());
    assert_eq!(followed.collectives().peak_bytes(), change.peak_bytes);
    // what is told without the function is the same, without changes
    assert_eq!(lowered.explain(i)?.chain, why.chain);
    Ok(())
}

#[test]
fn a_gradient_that_is_summed_on_all_devices_had_better_be_scattered() -> Result<()> {
    let mesh = mesh()?;
    let (x, w) = (|| F32.of([512, 64]).on(&mesh, p!["data", _]), || F32.of([64, 32]).on(&mesh, p![]));
    let gradient = |x: &Array, w: &Array| grad(w, |w| x.dot(w).square().sum(..));
    let f = jit(gradient);
    let all = f.lower((x(), w()))?;
    let sum = all.collectives().iter().position(|c| c.bytes > 1000).expect("the gradient's sum");
    let why = f.explain((x(), w()), sum)?;
    assert_eq!(why.collective.kind, Kind::AllReduce);
    assert!(
        why.chain[0].starts_with("argument 0, f32[512@data,64], is sharded over data along dimension 0"),
        "{why}"
    );
    let change = best(&why, "write `.reshard(p![");
    assert!(change.what.ends_with("behind result 0"), "{why}");
    // half of the bytes: it is scattered only
    assert_eq!(change.own_bytes * 2, why.collective.bytes, "{why}");
    let followed = jit(|x: &Array, w: &Array| gradient(x, w).reshard(p!["data", _])).lower((x(), w()))?;
    assert_eq!(followed.collectives().bytes(), change.bytes, "{why}\n{}", followed.collectives());
    Ok(())
}

/// Over auto axes the cure is a constraint on a value between (which the partitioner does not move by itself: it is read by whole lines).
#[test]
fn a_constraint_on_a_value_between_is_found_and_comes_true() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let (x, w) = (|| F32.of([512, 256]).on(&mesh, p![_, "X"]), || F32.of([256, 64]).on(&mesh, p!["X", _]));
    let f = jit(|x: &Array, w: &Array| x.dot(w).cumsum(1).sum(1));
    let lowered = f.lower((x(), w()))?;
    let i = first(lowered.collectives(), Kind::AllReduce);
    let why = f.explain((x(), w()), i)?;
    let written = "write `.constrain(p![\"X\", _])` behind dot_general at tests/explain.rs:";
    let change = why.changes.iter().find(|c| c.what.starts_with(written)).expect("a constraint that helps");
    assert_eq!(2 * change.own_bytes, why.collective.bytes, "{why}");
    let followed = jit(|x: &Array, w: &Array| x.dot(w).constrain(p!["X", _]).cumsum(1).sum(1));
    let followed = followed.lower((x(), w()))?;
    assert_eq!(followed.collectives().bytes(), change.bytes, "{why}\n{}", followed.collectives());
    Ok(())
}

#[test]
fn in_a_loop_the_chain_leads_out_of_it() -> Result<()> {
    let mesh = mesh()?;
    let stack =
        |x: &Array, ws: &Array| scan(x, ws, |h: Array, w: Array| (h.dot(w.reshard(p![])).tanh(), ())).0;
    let (x, ws) = (F32.of([512, 64]).on(&mesh, p!["data"]), F32.of([6, 64, 64]).on(&mesh, p![_, _, "model"]));
    let f = jit(stack);
    let lowered = f.lower((x, ws))?;
    let why = lowered.explain(first(lowered.collectives(), Kind::AllGather))?;
    assert_eq!(why.collective.times, 6);
    assert_eq!(
        why.chain[0], "argument 1, f32[6,64,64@model], is sharded over model along dimension 2",
        "{why}"
    );
    assert!(why.to_string().contains("per device, 6 times"), "{why}");
    Ok(())
}

#[test]
fn nothing_is_promised_where_nothing_helps() -> Result<()> {
    let mesh = mesh()?;
    let f = jit(|x: &Array| x.sum(..));
    let x = || F32.of([512]).on(&mesh, p!["data"]);
    let why = f.explain(x(), 0)?;
    // unsharded, each device would sum all of it: that moves nothing, but computes four times as much
    assert!(why.changes.is_empty() && why.tried > 0, "{why}");
    assert!(why.to_string().ends_with("that were tried none moves less\n"), "{why}");
    let error = f.explain(x(), 1).expect_err("there is one").to_string();
    assert!(error.contains("collective 1 is asked for, but there are 1"), "{error}");
    assert!(f.lower(x())?.explain(7).is_err());
    Ok(())
}
