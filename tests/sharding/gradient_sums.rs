//! Gradients of weights that are sharded over the devices of the batch: each is summed once, and
//! scattered to its sharding.

use crate::error_checks::Unquoted as _;
use CollectiveKind::{AllReduce, ReduceScatter};
use atmesh::prelude::*;
use atmesh::{CollectiveKind, Collectives, einsum_to};

/// Returns the reductions among the collectives, with the bytes that the busiest device receives.
fn sums(c: &Collectives) -> Vec<(CollectiveKind, u64)> {
    let sum = |k: CollectiveKind| matches!(k, AllReduce | ReduceScatter);
    c.iter().filter(|c| sum(c.kind)).map(|c| (c.kind, c.bytes_per_device)).collect()
}

#[test]
fn a_fully_sharded_gradient_is_scattered_in_every_form() -> Result<()> {
    let mesh = Mesh::new([("data", 2), ("fsdp", 4)])?;
    let [a, b] = Key::new(0).split();
    let (x, w) = (a.normal([64, 32]), b.normal([32, 16]));
    let plain = grad(&w, |w: Array| x.dot(&w).square().sum(..));
    let (x, w) = (x.put(&mesh, p![("data", "fsdp")]), w.put(&mesh, p!["fsdp"]));
    for form in 0..6 {
        let g = jit(|w: &Array, x: &Array| {
            grad(w, |w: Array| {
                let reduced = w.reshard(p![; R: ("data", "fsdp")]);
                let y = match form {
                    0 => x.dot(w.reshard(p![])),
                    1 => x.dot(reduced),
                    2 => einsum("de,bd->be", [&reduced, x]),
                    3 => einsum("de,bd->eb", [&reduced, x]),
                    4 => einsum("de,bd->eb", [&reduced, x]).t(),
                    _ => x.dot(w.reshard(p![; R: "fsdp"])),
                };
                y.square().sum(..)
            })
        });
        let lowered = g.lower((&w, &x))?;
        // 2048 bytes: 7/8 of them to build the blocks of 8 devices, 1/8 to combine the two blocks
        // of `data`.
        let got = sums(lowered.collectives());
        assert_eq!(got, [(ReduceScatter, 2048)], "form {form}\n{}", lowered.collectives());
        let values = g.call((&w, &x))?;
        assert!(values.allclose_with(&plain, 1e-4, 1e-3)?, "form {form}: {values}");
    }
    Ok(())
}

#[test]
fn a_gradient_through_a_split_sequence_is_summed_once() -> Result<()> {
    let mesh = Mesh::new([("data", 2), ("tensor", 2)])?;
    let [a, b, c] = Key::new(0).split();
    let (x, w, t) = (a.normal([4, 8, 16]), b.normal([16, 4]), c.normal([4, 8, 4]));
    let plain = grad(&w, |w: Array| (einsum("bsf,fd->bsd", [&x, &w]) * &t).sum(..));
    let x = x.put(&mesh, p!["data", _, "tensor"]);
    // If a gradient is unsharded over `data`, each device's block has 8 · 4 elements.
    for (stored, used, out, want) in [
        (p!["tensor", "data"], p!["tensor"; R: "data"], p!["data", "tensor"], (ReduceScatter, 64)),
        (p!["tensor", "data"], p!["tensor"; R: "data"], p!["data"], (ReduceScatter, 64)),
        (p!["tensor", "data"], p!["tensor"], p!["data", "tensor"], (ReduceScatter, 64)),
        (p!["tensor"], p!["tensor"; R: "data"], p!["data", "tensor"], (AllReduce, 128)),
    ] {
        let (w, t) = (w.put(&mesh, stored), t.put(&mesh, out));
        let g = jit(|w: &Array, x: &Array, t: &Array| {
            grad(w, |w: Array| (einsum_to("bsf,fd->bsd", [x, &w.reshard(used)], out) * t).sum(..))
        });
        let lowered = g.lower((&w, &x, &t))?;
        assert_eq!(sums(lowered.collectives()), [want], "{out}\n{}", lowered.collectives());
        let values = g.call((&w, &x, &t))?;
        assert!(values.allclose_with(&plain, 1e-4, 1e-4)?, "{out}: {values}");
    }
    Ok(())
}

type OfTwo = fn(&Array, &Array) -> Array;

/// Functions of an activation and of a factor with fewer dimensions.
const FACTORS: [(&str, OfTwo); 10] = [
    ("mul", |x, g| x * g),
    ("mul, the factor first", |x, g| g * x),
    ("add", |x, g| x + g),
    ("sub", |x, g| g - x),
    ("div", |x, g| x / g),
    ("div, by the activation", |x, g| g / x),
    ("max", |x, g| x.maximum(g)),
    ("pow", |x, g| x.pow(g)),
    ("hypot", |x, g| x.hypot(g)),
    ("select", |x, g| x.gt(1.0).select(x, g)),
];

/// If a factor is reduced over the axes that shard the dimensions that it lacks, each device
/// combines it with its own block, as in `einsum`: nothing is gathered, and the gradient of the
/// factor is summed where the program says so.
#[test]
fn a_factor_may_be_reduced_over_what_splits_the_dimensions_that_it_lacks() -> Result<()> {
    let mesh = Mesh::new([("data", 2), ("tensor", 2)])?;
    let [a, b, c] = Key::new(3).split();
    let (x, t) = (a.uniform([4, 6, 8]) + 0.5, c.normal([4, 6, 8]));
    let spec = p!["data", "tensor", _];
    let (sx, st) = (x.put(&mesh, spec), t.put(&mesh, spec));
    for (name, f) in FACTORS {
        for shape in [vec![8], vec![1, 8], vec![1, 1, 8], vec![6, 8]] {
            let g = b.uniform(shape.clone()) + 0.5;
            let (px, pg) = grad((&x, &g), |(x, g)| (f(&x, &g) * &t).sum(..));
            // A factor with the sequence dimension lacks only the batch dimension.
            let split = shape.len() == 2 && shape[0] == 6;
            let own = if split { p!["tensor", _] } else { Spec::replicated(shape.len()) };
            let over: &[&str] = if split { &["data"] } else { &["data", "tensor"] };
            let sg = g.put(&mesh, own);
            let reduced = |g: &Array| {
                g.reshard(own.reduced(over.iter().map(|a| Axis::from(*a)).collect::<atmesh::Axes>()))
            };
            let y = f(&sx, &reduced(&sg));
            assert!(y.ty()?.to_string().contains("[4@data,6@tensor,8]"), "{name}: {}", y.ty()?);
            assert!(y.allclose_with(&f(&x, &g), 1e-6, 1e-6)?, "{name}: {y}");
            let both = jit(|x: &Array, g: &Array, t: &Array| {
                grad((x, g), |(x, g)| (f(&x, &reduced(&g)) * t).sum(..))
            });
            let lowered = both.lower((&sx, &sg, &st))?;
            // Only the factor's gradient moves, once.
            let all = lowered.collectives();
            assert!(all.iter().all(|c| c.kind == AllReduce) && all.len() == 1, "{name} {shape:?}\n{all}");
            let (gx, gg) = both.call((&sx, &sg, &st))?;
            assert!(gx.allclose_with(&px, 1e-4, 1e-5)?, "{name} {shape:?}: {gx}");
            assert!(gg.allclose_with(&pg, 1e-4, 1e-5)?, "{name} {shape:?}: {gg} {pg}");
        }
    }
    Ok(())
}

/// A factor that is reduced over an axis that shards no dimension of the other operand, or one that
/// both have, is still an error. Each suggested fix is accepted, and none gathers the activation.
#[test]
fn other_factors_that_are_reduced_are_rejected_with_fixits_that_gather_nothing() -> Result<()> {
    let mesh = Mesh::new([("data", 2), ("tensor", 2)])?;
    let x = Array::ones([4, 8]).put(&mesh, p!["data", _]);
    let g = Array::ones([8]).put(&mesh, p![; R: "tensor"]);
    let error = (&x * &g).ty().expect_err("nothing is split over tensor").unquoted();
    let fixits = [
        "reshard operand 0: `.reshard(p![\"data\", _; R: \"tensor\"])`",
        "reshard operand 1: `.reshard(p![_])`",
    ];
    assert!(fixits.iter().all(|m| error.contains(m)), "{error}");
    assert!(
        (x.reshard(p!["data", _; R: "tensor"]) * &g).ty().is_ok() && (&x * g.reshard(p![_])).ty().is_ok()
    );
    // Reduced over both: only one fix gathers nothing.
    let g = Array::ones([4, 8]).put(&mesh, p![_, _; R: "data"]);
    let error = (&x * &g).ty().expect_err("both have the dimension").unquoted();
    assert!(error.contains("reshard operand 1") && !error.contains("reshard operand 0"), "{error}");
    assert!((&x * g.reshard(p![_, _])).ty().is_ok());
    Ok(())
}

/// Prints stay in order; a loop without prints does not wait for prints, wherever it is written.
#[test]
fn sums_are_one_exchange_whether_a_loop_is_written_before_or_behind_a_print() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let x = Array::ones([8, 6]).put(&mesh, p!["X"]);
    let bytes = |behind: bool| -> Result<u64> {
        let f = jit(move |x: &Array| {
            let looped = || fori_loop(0..3, x.clone(), |_, c: Array| c.tanh() * 0.5);
            let before = (!behind).then(looped);
            cond(x.sum(..).gt(0.0), || debug_print!("{}", x.slice(ix![0, 0])), || ());
            before.unwrap_or_else(looped).sum(..)
        });
        Ok(f.lower(&x)?.collectives().bytes())
    };
    assert_eq!(bytes(false)?, bytes(true)?);
    Ok(())
}
