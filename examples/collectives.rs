//! Meshes, shardings, the four cases of a sharded product, and the effect of each collective.
//!
//! `cargo run --example collectives -- [--engine threads]`
use atmesh::prelude::*;

fn main() -> Result<()> {
    let engine = EngineKind::from_args()?;
    println!("engine: {engine}");
    let mesh = Mesh::new([("x", 2), ("y", 2)])?;
    println!("{mesh} {:?}", mesh.devices());

    shardings(&mesh)?;
    case_1_nothing_to_do(&mesh)?;
    case_2_all_gather(&mesh, engine)?;
    case_3_all_reduce(&mesh, engine)?;
    case_4_gather_one(&mesh, engine)?;
    collectives(engine)
}

// ANCHOR: shardings
fn shardings(mesh: &Mesh) -> Result<()> {
    let matrix = Array::ones([8192, 8192]);
    println!("Matrix shape: {:?}, {} MB", matrix.shape()?, matrix.nbytes()? >> 20);
    for spec in [p!["x", "y"], p!["y", "x"], p!["x", _], p![_, "y"], p![("x", "y"), _], p![]] {
        println!("{spec}\n{}", matrix.put(mesh, spec).visualize());
    }
    for shard in matrix.put(mesh, p!["x", "y"]).shards()? {
        println!("{} {:?} {:?}", shard.device, shard.index, shard.data.shape()?);
    }
    Ok(())
}
// ANCHOR_END: shardings

fn operands() -> (Array, Array) {
    let a = Array::arange(0.0..16.0f32).reshape([4, 4]);
    let b = Array::arange(16.0..32.0f32).reshape([4, 4]);
    (a, b)
}

// ANCHOR: case1
// A[I@x, J] · B[J, K@y] → C[I@x, K@y]: no communication
fn case_1_nothing_to_do(mesh: &Mesh) -> Result<()> {
    let (a, b) = operands();
    let c = a.put(mesh, p!["x", _]).dot(b.put(mesh, p![_, "y"]));
    println!("Case 1: {}\n{}", type_of(&c), c.visualize());
    println!("Correct result: {}", c.allclose(&a.dot(&b))?);
    Ok(())
}
// ANCHOR_END: case1

// ANCHOR: case2
// A[I, J@x] · B[J, K]: gather A, then multiply.
fn case_2_all_gather(mesh: &Mesh, engine: EngineKind) -> Result<()> {
    let (a, b) = operands();
    let whole = a.dot(&b);
    let (a, b) = (a.put(mesh, p![_, "x"]), b.put(mesh, p![]));
    for shard in a.shards()?.iter().step_by(2) {
        println!("{} has columns {:?}:\n{}", shard.device, shard.index[1], shard.data);
    }
    let f = shard_map(mesh, (p![_, "x"], p![]), p![], |a: &Array, b: &Array| {
        println!("Before all-gather: {}", type_of(a));
        let whole = a.all_gather("x", CollectiveDim::tiled(1).invarying());
        println!("After all-gather: {}", type_of(&whole));
        whole.dot(b)
    });
    let c = jit(f).engine(engine).call((&a, &b))?;
    println!("Case 2: {}\n{}{}", type_of(&c), c.visualize(), c.slice(ix![..2, ..2]));
    println!("Correct result: {}", c.allclose(&whole)?);
    Ok(())
}
// ANCHOR_END: case2

// ANCHOR: case3
// A[I, J@x] · B[J@x, K]: multiply, then sum over the devices.
fn case_3_all_reduce(mesh: &Mesh, engine: EngineKind) -> Result<()> {
    let (a, b) = operands();
    let whole = a.dot(&b);
    let (a, b) = (a.put(mesh, p![_, "x"]), b.put(mesh, p!["x", _]));

    // Explicit mode does not guess which result is wanted: this is an error.
    if let Err(e) = a.dot(&b).ty() {
        println!("{e}");
    }
    // State the result: replicated, scattered over the rows, or left unreduced.
    let c = a.dot_to(&b, p![]);
    let scattered = a.dot_to(&b, p!["x", _]);
    let parts = a.dot_to(&b, p![_, _; U: "x"]);
    println!("Case 3: {} {} {}", type_of(&c), type_of(&scattered), type_of(&parts));
    println!("Correct result: {} {}", c.allclose(&whole)?, parts.reshard(p![]).allclose(&whole)?);

    // The same by hand, in per-device code.
    let f = shard_map(mesh, (p![_, "x"], p!["x", _]), p![], |a: &Array, b: &Array| {
        println!("Local blocks: A={} B={}", type_of(a), type_of(b));
        let parts = a.dot(b);
        println!("Partial result: {}", type_of(&parts));
        let full = parts.psum("x");
        println!("After all-reduce: {}", type_of(&full));
        full
    });
    println!("{}", jit(f).engine(engine).call((&a, &b))?.slice(ix![..2, ..2]));
    Ok(())
}
// ANCHOR_END: case3

// ANCHOR: case4
// A[I@x, J] · B[J, K@x]: one axis cannot shard two dimensions of the result.
fn case_4_gather_one(mesh: &Mesh, engine: EngineKind) -> Result<()> {
    let (a, b) = operands();
    let whole = a.dot(&b);
    let (a, b) = (a.put(mesh, p!["x", _]), b.put(mesh, p![_, "x"]));
    if let Err(e) = a.dot(&b).ty() {
        println!("{e}");
    }
    let rows = a.dot(b.reshard(p![]));
    let columns = a.reshard(p![]).dot(&b);
    println!("Case 4: {} {}", type_of(&rows), type_of(&columns));

    let specs = (p!["x", _], p![_, "x"]);
    let gather_b = shard_map(mesh, specs, p!["x", _], |a: &Array, b: &Array| {
        a.dot(b.all_gather("x", CollectiveDim::tiled(1)))
    });
    let gather_a = shard_map(mesh, specs, p![_, "x"], |a: &Array, b: &Array| {
        a.all_gather("x", CollectiveDim::tiled(0)).dot(b)
    });
    let c = jit(gather_b).engine(engine).call((&a, &b))?;
    println!("{}\nCorrect result: {}", c.visualize(), c.allclose(&whole)?);
    let c = jit(gather_a).engine(engine).call((&a, &b))?;
    println!("{}\nAlso correct: {}", c.visualize(), c.allclose(&whole)?);

    // The partitioner inserts the same all-gather.
    let lowered = jit(|a: &Array, b: &Array| a.dot_to(b, p!["x", _])).lower((&a, &b))?;
    println!("{}", lowered.collectives());
    Ok(())
}
// ANCHOR_END: case4

// ANCHOR: each
fn collectives(engine: EngineKind) -> Result<()> {
    let mesh = Mesh::new([("i", 4)])?;
    let short = Array::from([3, 9, 5, 2]);
    let long = Array::from(vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1, 2]);
    let run = |name: &str, x: &Array, out: Spec, op: fn(&Array) -> Array| {
        println!("--- {name}");
        let y = jit(shard_map(&mesh, p!["i"], out, shown(op))).engine(engine).call(x)?;
        println!("FINAL RESULT:\n{y}");
        Ok(())
    };
    run("all_gather", &short, p!["i"], |x| x.all_gather("i", CollectiveDim::tiled(0)))?;
    run("psum", &long, p![], |x| x.psum("i"))?;
    run("psum_scatter", &long, p!["i"], |x| x.psum_scatter("i", CollectiveDim::tiled(0)))?;
    run("all_to_all", &long, p!["i"], |x| x.all_to_all("i", AllToAll::split(0).concat(0)))?;
    run("ppermute", &short, p!["i"], |x| x.ppermute("i", Permutation::ring(1)))
}

// Prints the blocks of all devices before and after, in device order, when the program runs.
fn shown(f: impl Fn(&Array) -> Array) -> impl Fn(&Array) -> Array {
    move |x| {
        debug_print!("BEFORE:\n{}", x);
        let y = f(x);
        debug_print!("AFTER:\n{}", y);
        y
    }
}
// ANCHOR_END: each
