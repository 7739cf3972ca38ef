//! What gradients of weights communicate, split among the devices that share the batch: each is summed once, and scattered to where it
//! is wanted.

use Kind::{AllReduce, ReduceScatter};
use atmesh::prelude::*;
use atmesh::{Collectives, Kind, einsum_to};

/// The sums among what is communicated, with the bytes that the busiest device receives.
fn sums(c: &Collectives) -> Vec<(Kind, u64)> {
    let sum = |k: Kind| matches!(k, AllReduce | ReduceScatter);
    c.iter().filter(|c| sum(c.kind)).map(|c| (c.kind, c.bytes)).collect()
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
        // 2048 bytes: 7/8 of them to make the blocks of 8 devices, 1/8 to bring the two of `data` together
        let got = sums(lowered.collectives());
        assert_eq!(got, [(ReduceScatter, 2048)], "form {form}\n{}", lowered.collectives());
        let values = g.call((&w, &x))?;
        assert!(values.allclose_by(&plain, 1e-4, 1e-3)?, "form {form}: {values}");
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
    // each device's block of a gradient that is whole over `data` has 8 · 4 numbers
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
        assert!(values.allclose_by(&plain, 1e-4, 1e-4)?, "{out}: {values}");
    }
    Ok(())
}
