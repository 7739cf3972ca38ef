//! Sums over devices that the iterations of a loop add up: they are added once, after the loop.

use atmesh::prelude::*;
use atmesh::{Collective, CollectiveKind, CollectiveKind::AllReduce, checkpoint, einsum_to};

/// The number of iterations.
const STEPS: usize = 6;
/// The number of columns.
const COLUMNS: usize = 4;

/// The meshes on which each program runs. All have an axis `data`.
fn meshes() -> Result<[(&'static str, Mesh); 3]> {
    Ok([
        ("explicit", Mesh::new([("data", 8)])?),
        ("auto", Mesh::auto([("data", 8)])?),
        ("two axes", Mesh::new([("data", 4), ("model", 2)])?),
    ])
}

/// Integers from −2 to 2, so that sums in any order have the same bits.
fn integers<const N: usize>(seed: u64, shape: [usize; N]) -> Array {
    Key::new(seed).randint(I32.array_type(shape), -2..3).astype(F32)
}

/// The product of a batch with itself, summed over the batch.
fn product(x: &Array) -> Array {
    einsum_to("bi,bj->ij", [x, x], p![_, _])
}

/// Checks the result of `f` on each mesh, and the number of all-reduces that remain in its loops.
///
/// The arguments are a square matrix, which is replicated, and a batch for each step, sharded over
/// `data`.
fn check(name: &str, f: fn(&Array, &Array) -> Array, remaining: usize) -> Result<()> {
    check_steps(name, f, STEPS, remaining)
}

fn check_steps(name: &str, f: fn(&Array, &Array) -> Array, steps: usize, remaining: usize) -> Result<()> {
    let (w, xs) = (integers(0, [COLUMNS, COLUMNS]), integers(1, [steps, 16, COLUMNS]));
    let expected = f(&w, &xs).to_vec::<f32>()?;
    for (mode, mesh) in meshes()? {
        let (w, xs) = (w.put(&mesh, p![_, _]), xs.put(&mesh, p![_, "data"]));
        let step = jit(f);
        let lowered = step.lower((&w, &xs))?;
        let in_loop = |c: &&Collective| c.kind == AllReduce && (c.count > 1 || c.per_iteration);
        let found = lowered.collectives().iter().filter(in_loop).count();
        assert_eq!(found, remaining, "{name}, {mode}:\n{}", lowered.collectives());
        assert_eq!(step.call((&w, &xs))?.to_vec::<f32>()?, expected, "{name}, {mode}");
    }
    Ok(())
}

#[test]
fn sums_of_products_leave_loops() -> Result<()> {
    check("sum", |w, xs| scan(w, xs, |c, x| (c + product(&x), ())).0, 0)?;
    check("difference", |w, xs| scan(w, xs, |c, x| (product(&x) - c, ())).0, 0)?;
    check("transposed", |w, xs| scan(w, xs, |c, x| (c.t() + product(&x).t() * 2.0, ())).0, 0)?;
    check("halved", |w, xs| scan(w, xs, |c, x| (c * 0.5 + product(&x), ())).0, 0)?;
    check("two sums", |w, xs| scan(w, xs, |c, x| (c + product(&x) + product(&(x * 2.0)), ())).0, 0)?;
    check("sum of rows", |w, xs| scan(w.sum(0), xs, |c, x| (c + x.sum(0), ())).0, 0)?;
    let integers = |w: &Array, xs: &Array| {
        let (w, xs) = (w.astype(I32), xs.astype(I32));
        scan(w, xs, |c, x| (c + product(&x), ())).0.astype(F32)
    };
    check("integers", integers, 0)?;
    let checkpointed =
        |w: &Array, xs: &Array| scan(w, xs, |c, x| (c + checkpoint(x, |x: Array| product(&x)), ())).0;
    check("checkpoint", checkpointed, 0)?;
    check_steps("no iteration", |w, xs| scan(w, xs, |c, x| (c + product(&x), ())).0, 0, 0)
}

#[test]
fn sums_leave_nested_loops_and_while_loops() -> Result<()> {
    let nested = |w: &Array, xs: &Array| {
        let xs = xs.reshape([2, STEPS / 2, 16, COLUMNS]);
        scan(w, xs, |c, xs| (scan(c, xs, |c, x| (c + product(&x), ())).0, ())).0
    };
    check("nested", nested, 0)?;
    let added = |w: &Array, xs: &Array| {
        let xs = xs.reshape([2, STEPS / 2, 16, COLUMNS]);
        let zero = || Array::zeros([COLUMNS, COLUMNS]);
        scan(w, xs, |c, xs| (c + scan(zero(), xs, |c, x| (c + product(&x), ())).0, ())).0
    };
    check("nested, added", added, 0)?;
    let until = |w: &Array, xs: &Array| {
        let start = (w, Array::from(0));
        while_loop(
            start,
            |(_, k)| k.lt(3),
            |(c, k)| (c + product(&(xs.slice(ix![0]) + k.astype(F32))), k + 1),
        )
        .0
    };
    check("while", until, 0)
}

#[test]
fn gradients_of_shared_weights_are_summed_once() -> Result<()> {
    let plain =
        |w: &Array, xs: &Array| grad(w, |w| scan(xs.slice(ix![0]), xs, |h, x| (h + x.dot(&w), ())).0.sum(..));
    check("gradient", plain, 0)?;
    let saved = |w: &Array, xs: &Array| {
        let step = |w: Array, h: Array, x: Array| h * 0.5 + x.dot(&w);
        let run = |w: &Array| {
            let h = xs.slice(ix![0]);
            scan(h, xs, |h, x| (checkpoint((w, h, x), |(w, h, x)| step(w, h, x)), ())).0.sum(..)
        };
        grad(w, |w| run(&w))
    };
    check("gradient with checkpoints", saved, 0)
}

#[test]
fn sums_that_the_loop_reads_stay_in_it() -> Result<()> {
    check("clipped", |w, xs| scan(w, xs, |c, x| ((c + product(&x)).maximum(0.0), ())).0, 1)?;
    check("stacked", |w, xs| scan(w, xs, |c, x| (&c + product(&x), c)).1.sum(0), 1)?;
    let read = |w: &Array, xs: &Array| scan((w, w), xs, |(c, d), x| ((&c + product(&x), d + c), ())).0.1;
    check("read by another carry", read, 1)?;
    let tested = |w: &Array, xs: &Array| {
        let more = |(c, k): &(Array, Array)| (c.sum(..).lt(1e6).astype(I32) * k.lt(3).astype(I32)).gt(0);
        while_loop((w, Array::from(0)), more, |(c, k)| {
            (c + product(&(xs.slice(ix![0]) + k.astype(F32))), k + 1)
        })
        .0
    };
    check("read by a condition", tested, 1)
}

/// A recurrent network, whose weights each step reads: one sum for each weight, not for each step.
#[test]
fn a_recurrent_network_sums_each_gradient_once() -> Result<()> {
    let cell = |(w, u): (&Array, &Array), h: Array, x: Array| (h.dot(w) + x.dot(u)).tanh();
    let (k, steps) = (Key::new(3), 64);
    let (w, u) = (k.fold_in(0).normal([32, 32]) * 0.1, k.fold_in(1).normal([2, 32]) * 0.1);
    let xs = k.fold_in(2).normal([steps, 32, 2]);
    let loss = |w: &Array, u: &Array, xs: &Array| {
        let h = xs.slice(ix![0, .., ..1]) * Array::zeros([32]);
        scan(h, xs, |h, x| (cell((w, u), h, x), ())).0.square().sum(..)
    };
    let step = |w: &Array, u: &Array, xs: &Array| grad((w, u), |(w, u)| loss(&w, &u, xs));
    let (dw, du) = step(&w, &u, &xs);
    for mesh in [Mesh::new([("data", 8)])?, Mesh::auto([("data", 8)])?] {
        let (w, u) = (w.put(&mesh, p![_, _]), u.put(&mesh, p![_, _]));
        let xs = xs.put(&mesh, p![_, "data"]);
        let f = jit(step);
        let lowered = f.lower((&w, &u, &xs))?;
        let sums: Vec<(CollectiveKind, u64, u64)> =
            lowered.collectives().iter().map(|c| (c.kind, c.bytes_per_device, c.count)).collect();
        // 7/8 of each gradient is received twice: for the sum of a block, and to gather the blocks
        assert_eq!(sums, [(AllReduce, 7168, 1), (AllReduce, 448, 1)], "{}", lowered.collectives());
        let (a, b) = f.call((&w, &u, &xs))?;
        assert!(a.allclose_with(&dw, 1e-4, 1e-4)? && b.allclose_with(&du, 1e-4, 1e-4)?);
    }
    Ok(())
}
