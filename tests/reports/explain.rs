//! Explanations of collectives: the chain of operations is the program's, and each suggestion saves
//! what it promises once it is applied.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::{CollectiveKind, Collectives, Explanation};

fn mesh() -> Result<Mesh> {
    Mesh::without_devices([("data", 4), ("model", 8)])
}

/// Returns the position of the first collective of a kind.
fn first(all: &Collectives, kind: CollectiveKind) -> usize {
    all.iter().position(|c| c.kind == kind).unwrap_or_else(|| panic!("no {kind} in\n{all}"))
}

/// Returns the best suggestion, and asserts that it is this one.
fn best<'a>(why: &'a Explanation, what: &str) -> &'a atmesh::Suggestion {
    let best = why.suggestions.first().unwrap_or_else(|| panic!("no change: {why}"));
    assert!(best.edit.starts_with(what), "{why}");
    best
}

#[test]
fn a_gather_leads_back_to_an_argument_and_goes_with_its_sharding() -> Result<()> {
    let mesh = mesh()?;
    let layer = |x: &Array, w: &Array| {
        let scaled = w.sin().t();
        x.dot(scaled.reshard(p![]))
    };
    let x = || F32.array_type([4096, 64]).on(&mesh, p!["data", _]);
    let w = |spec| F32.array_type([64, 64]).on(&mesh, spec);
    let f = jit(layer);
    let lowered = f.lower((x(), w(p!["model", _])))?;
    let i = first(lowered.collectives(), CollectiveKind::AllGather);
    let why = f.explain((x(), w(p!["model", _])), i)?;
    assert_eq!(why.chain[0], "argument 1, f32[64@model,64], is sharded over model along dimension 0");
    assert!(why.chain[1].starts_with("the result of sin at tests/reports/explain.rs:"), "{why}");
    assert!(why.chain.last().is_some_and(|s| s.contains("reshard asks for the value unsharded")), "{why}");
    let change = best(&why, "shard argument 1 as `p![_, _]`");
    assert_eq!((change.collective_bytes, change.bytes), (0, 0), "{why}");
    // The suggestion is applied.
    let followed = f.lower((x(), w(p![])))?;
    assert!(followed.collectives().is_empty(), "{}", followed.collectives());
    assert_eq!(followed.collectives().peak_bytes(), change.peak_bytes);
    // Without the function, the explanation is the same, but has no suggestions.
    assert_eq!(lowered.explain(i)?.chain, why.chain);
    Ok(())
}

#[test]
fn a_gradient_that_is_summed_on_all_devices_had_better_be_scattered() -> Result<()> {
    let mesh = mesh()?;
    let (x, w) =
        (|| F32.array_type([512, 64]).on(&mesh, p!["data", _]), || F32.array_type([64, 32]).on(&mesh, p![]));
    let gradient = |x: &Array, w: &Array| grad(w, |w| x.dot(w).square().sum(..));
    let f = jit(gradient);
    let all = f.lower((x(), w()))?;
    let sum = all.collectives().iter().position(|c| c.bytes_per_device > 1000).expect("the gradient's sum");
    let why = f.explain((x(), w()), sum)?;
    assert_eq!(why.collective.kind, CollectiveKind::AllReduce);
    assert!(
        why.chain[0].starts_with("argument 0, f32[512@data,64], is sharded over data along dimension 0"),
        "{why}"
    );
    let change = best(&why, "write `.reshard(p![");
    assert!(change.edit.ends_with("after result 0"), "{why}");
    // Half of the bytes: the sum is only scattered.
    assert_eq!(change.collective_bytes * 2, why.collective.bytes_per_device, "{why}");
    let followed = jit(|x: &Array, w: &Array| gradient(x, w).reshard(p!["data", _])).lower((x(), w()))?;
    assert_eq!(followed.collectives().bytes(), change.bytes, "{why}\n{}", followed.collectives());
    Ok(())
}

/// Over auto axes the suggestion is a constraint on an intermediate value. The partitioner does not
/// move it by itself, since it is read at dynamic indices.
#[test]
fn a_constraint_on_a_value_between_is_found_and_comes_true() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let (x, w) = (
        || F32.array_type([512, 256]).on(&mesh, p![_, "X"]),
        || F32.array_type([256, 64]).on(&mesh, p!["X", _]),
    );
    let places = Array::arange(0..64) * 5 % 64;
    let f = jit(|x: &Array, w: &Array| x.dot(w).take(&places, 1).sum(1));
    let lowered = f.lower((x(), w()))?;
    let i = first(lowered.collectives(), CollectiveKind::AllReduce);
    let why = f.explain((x(), w()), i)?;
    let written = "write `.constrain(p![\"X\", _])` after dot_general at tests/reports/explain.rs:";
    let change =
        why.suggestions.iter().find(|c| c.edit.starts_with(written)).expect("a constraint that helps");
    assert_eq!(2 * change.collective_bytes, why.collective.bytes_per_device, "{why}");
    let followed = jit(|x: &Array, w: &Array| x.dot(w).constrain(p!["X", _]).take(&places, 1).sum(1));
    let followed = followed.lower((x(), w()))?;
    assert_eq!(followed.collectives().bytes(), change.bytes, "{why}\n{}", followed.collectives());
    Ok(())
}

#[test]
fn in_a_loop_the_chain_leads_out_of_it() -> Result<()> {
    let mesh = mesh()?;
    let stack =
        |x: &Array, ws: &Array| scan(x, ws, |h: Array, w: Array| (h.dot(w.reshard(p![])).tanh(), ())).0;
    let (x, ws) = (
        F32.array_type([512, 64]).on(&mesh, p!["data"]),
        F32.array_type([6, 64, 64]).on(&mesh, p![_, _, "model"]),
    );
    let f = jit(stack);
    let lowered = f.lower((x, ws))?;
    let why = lowered.explain(first(lowered.collectives(), CollectiveKind::AllGather))?;
    assert_eq!(why.collective.count, 6);
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
    let x = || F32.array_type([512]).on(&mesh, p!["data"]);
    let why = f.explain(x(), 0)?;
    // If the value were unsharded, each device would sum all of it: that moves nothing, but
    // computes four times as much.
    assert!(why.suggestions.is_empty() && why.tried > 0, "{why}");
    assert!(why.to_string().ends_with("none of them moves fewer bytes\n"), "{why}");
    let error = f.explain(x(), 1).expect_err("there is one").unquoted();
    assert!(error.contains("collective 1 is asked for, but there are 1"), "{error}");
    assert!(f.lower(x())?.explain(7).is_err());
    Ok(())
}

/// Returns a loop over a carry, written in one of three ways.
fn stepped(how: &str, x: &Array, step: impl Fn(Array) -> Array) -> Array {
    match how {
        "fori_loop" => fori_loop(0..5, x, |_, h: Array| step(h)),
        "while_loop" => while_loop(x, |h: &Array| h.max(..).lt(9.0), |h: Array| step(h)),
        _ => scan(x, Array::arange(0..5), |h: Array, _: Array| (step(h), ())).0,
    }
}
const LOOPS: [&str; 3] = ["fori_loop", "while_loop", "scan"];

/// A loop-invariant value is moved once, before the loop: the chain says so, names the consumer,
/// and goes back to the argument.
#[test]
fn what_is_taken_out_of_a_loop_is_said_to_be() -> Result<()> {
    let mesh = mesh()?;
    let x = || F32.array_type([512, 64]).on(&mesh, p!["data"]);
    let w = |spec| F32.array_type([64, 64]).on(&mesh, spec);
    for how in LOOPS {
        // Requested inside the loop, for a value that is computed outside.
        let f = jit(move |x: &Array, w: &Array| {
            let v = w.sin();
            stepped(how, x, |h| h.dot(v.reshard(p![])).tanh())
        });
        let lowered = f.lower((x(), w(p!["model", _])))?;
        let i = first(lowered.collectives(), CollectiveKind::AllGather);
        let why = f.explain((x(), w(p!["model", _])), i)?;
        assert_eq!(why.collective.count, 1, "{why}");
        assert_eq!(why.chain[0], "argument 1, f32[64@model,64], is sharded over model along dimension 0");
        let said = |what: &str| why.chain.iter().any(|s| s.contains(what));
        assert!(said("reshard at tests/reports/explain.rs:") && said(" asks for its result"), "{how}: {why}");
        assert!(said("the same at each step of the loop at tests/reports/explain.rs:"), "{how}: {why}");
        let change = best(&why, "shard argument 1 as `p![_, _]`");
        assert_eq!(change.collective_bytes, 0, "{why}");
        let followed = f.lower((x(), w(p![])))?;
        assert_eq!(followed.collectives().bytes(), change.bytes, "{why}\n{}", followed.collectives());
        assert!(
            !followed.collectives().iter().any(|c| c.kind == CollectiveKind::AllGather),
            "{}",
            followed.collectives()
        );
    }
    Ok(())
}

/// Over auto axes nothing is requested: the product inside reads the whole value. The effect of a
/// suggestion is stated for this collective alone, not for the other collectives of the same
/// operation.
#[test]
fn one_of_several_collectives_of_an_operation_is_explained() -> Result<()> {
    let mesh = Mesh::auto([("data", 4), ("model", 8)])?;
    let types =
        || (F32.array_type([512, 64]).on(&mesh, p!["data"]), F32.array_type([64, 64]).on(&mesh, p!["model"]));
    for how in LOOPS {
        let f = jit(move |x: &Array, w: &Array| stepped(how, x, |h| h.dot(w).tanh()));
        let lowered = f.lower(types())?;
        let all = lowered.collectives();
        assert!(all.iter().filter(|c| c.op == "dot_general").count() > 1, "{all}");
        for i in 0..all.len() {
            let why = f.explain(types(), i)?;
            let c = &why.collective;
            let hoisted = c.kind == CollectiveKind::AllGather && c.count == 1 && c.op == "dot_general";
            let explains_hoisting =
                why.chain.iter().any(|s| s.contains("the same at each step of the loop at"));
            assert_eq!(explains_hoisting, hoisted, "{how}: {why}");
            for change in &why.suggestions {
                assert!(
                    change.collective_bytes < c.bytes_per_device * c.count,
                    "more than it has: {how}: {why}"
                );
            }
        }
    }
    Ok(())
}

/// A halo of coefficients, and a sum of weights, are also computed before the loop.
#[test]
fn halos_and_sums_before_a_loop_are_explained() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 4)])?;
    let types =
        || (F32.array_type([512, 64]).on(&mesh, p!["data"]), F32.array_type([512, 64]).on(&mesh, p!["data"]));
    for how in LOOPS {
        let f = jit(move |x: &Array, w: &Array| stepped(how, x, |h| h + w.roll(1, 0) * w + w.sum(0)));
        let lowered = f.lower(types())?;
        for kind in [CollectiveKind::Halo, CollectiveKind::AllReduce] {
            let all = lowered.collectives();
            let i = all.iter().position(|c| c.kind == kind && c.bytes_per_device > 100);
            let why = lowered.explain(i.unwrap_or_else(|| panic!("{how}: no {kind} in\n{all}")))?;
            assert_eq!(why.chain[0], "argument 1, f32[512@data,64], is sharded over data along dimension 0");
            assert!(why.chain.iter().any(|s| s.contains("the same at each step of the loop at")), "{why}");
        }
        // A value that depends on the carry is not hoisted.
        let carried = jit(move |x: &Array, _: &Array| stepped(how, x, |h| &h + h.roll(1, 0)));
        let lowered = carried.lower(types())?;
        let why = lowered.explain(first(lowered.collectives(), CollectiveKind::Halo))?;
        assert!(!why.to_string().contains("the same at each step"), "{why}");
    }
    Ok(())
}

/// The result's sharding is requested by the operation: the chain says so, and other shardings are
/// tried instead.
#[test]
fn a_sharding_that_is_asked_for_the_result_is_named_and_another_tried() -> Result<()> {
    let mesh = mesh()?;
    let (x, w) = (
        || F32.array_type([512, 64]).on(&mesh, p!["data"]),
        || F32.array_type([64, 64]).on(&mesh, p![_, "model"]),
    );
    type Two = fn(&Array, &Array, Spec) -> Array;
    let products: [(&str, Two); 5] = [
        ("einsum_to", |x, w, out| einsum_to("bk,kn->bn", [x, w], out)),
        ("dot_to", |x, w, out| x.dot_to(w, out)),
        ("matmul_to", |x, w, out| x.matmul_to(w, out)),
        // As an intermediate value, and in a loop.
        ("einsum_to", |x, w, out| einsum_to("bk,kn->bn", [x, w], out).tanh().max(1)),
        ("dot_to", |x, w, out| {
            fori_loop(0..3, x, |_, h: Array| &h + h.dot_to(w, out).sum_to(1, p!["data"]).expand_dims(1))
        }),
    ];
    for (k, (_, product)) in products.into_iter().enumerate() {
        let asked = p!["data", _];
        let f = jit(move |x: &Array, w: &Array| product(x, w, asked));
        let lowered = f.lower((x(), w()))?;
        let i = first(lowered.collectives(), CollectiveKind::AllGather);
        let why = f.explain((x(), w()), i)?;
        let said = "dot_general at tests/reports/explain.rs:";
        let last = why.chain.iter().find(|s| s.contains("asked for its result as `p![\"data\", _]`"));
        assert!(last.is_some_and(|s| s.starts_with(said)), "{k}: {why}");
        if k == 4 {
            continue;
        }
        let written = "instead of `p![\"data\", _]`";
        let change = why.suggestions.iter().find(|c| c.edit.ends_with(written) && c.collective_bytes == 0);
        let change = change.unwrap_or_else(|| panic!("{k}: no other sharding of the result: {why}"));
        assert!(change.edit.starts_with("ask dot_general at tests/reports/explain.rs:"), "{why}");
        assert!(change.edit.contains("for `p![\"data\", \"model\"]`"), "{why}");
        // The suggestion is applied.
        let followed =
            jit(move |x: &Array, w: &Array| product(x, w, p!["data", "model"])).lower((x(), w()))?;
        let all = followed.collectives();
        assert_eq!((all.bytes(), all.peak_bytes()), (change.bytes, change.peak_bytes), "{k}: {why}\n{all}");
        assert!(!all.iter().any(|c| c.kind == CollectiveKind::AllGather && c.op == "dot_general"), "{all}");
    }
    Ok(())
}

/// If a sum is requested replicated, it may be cheaper to request it scattered.
#[test]
fn a_sum_that_is_asked_for_whole_may_be_asked_for_scattered() -> Result<()> {
    let mesh = mesh()?;
    let x = || F32.array_type([4096, 64]).on(&mesh, p!["data"]);
    let sum = |x: &Array, out| x.sum_to(0, out).square();
    let f = jit(move |x: &Array| sum(x, p![_]));
    let why = f.explain(x(), first(f.lower(x())?.collectives(), CollectiveKind::AllReduce))?;
    let change =
        why.suggestions.iter().find(|c| c.edit.starts_with("ask reduce_sum at tests/reports/explain.rs:"));
    let change = change.unwrap_or_else(|| panic!("no other sharding of the result: {why}"));
    assert!(change.edit.ends_with("for `p![\"data\"]`, instead of `p![_]`"), "{why}");
    let followed = jit(move |x: &Array| sum(x, p!["data"])).lower(x())?;
    assert_eq!(followed.collectives().bytes(), change.bytes, "{why}\n{}", followed.collectives());
    Ok(())
}

#[test]
fn what_is_compared_is_not_called_a_sum() -> Result<()> {
    let mesh = mesh()?;
    let lowered =
        jit(|x: &Array| (x.max(..), x.sum(..))).lower(F32.array_type([512]).on(&mesh, p!["data"]))?;
    for (i, c) in lowered.collectives().iter().enumerate() {
        let text = lowered.explain(i)?.to_string();
        assert_eq!(text.contains("is a partial sum"), c.op == "reduce_sum", "{text}");
    }
    Ok(())
}
