use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== keys");
    keys()?;
    println!("== reused");
    reused()?;
    println!("== meshes");
    meshes()?;
    println!("== dropout");
    dropout()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: keys
fn keys() -> Result<()> {
    let key = Key::new(42);
    println!("{}", key.uniform([3]));
    println!("{}", key.uniform([3])); // the same key, the same elements
    let [a, b] = key.split(); // two keys, independent of each other and of the first
    println!("{}\n{}", a.uniform([3]), b.normal([3]));
    for step in 0..2 {
        println!("step {step}: {}", key.fold_in(step).randint([4], 0..10)); // one key per step
    }
    Ok(())
}
// ANCHOR_END: keys

// ANCHOR: reused
fn reused() -> Result<()> {
    let key = Key::new(0);
    // A bug: both arrays have the same elements.
    let (w, v) = (key.normal([4]), key.normal([4]));
    println!("the same: {}", w.allclose(&v)?);
    let [wk, vk] = key.split();
    println!("the same: {}", wk.normal([4]).allclose(&vk.normal([4]))?);
    Ok(())
}
// ANCHOR_END: reused

// ANCHOR: meshes
/// Random elements depend on their position in the array, not on the device.
fn meshes() -> Result<()> {
    let one = Key::new(7).normal([8, 8]);
    for n in [2, 4, 8] {
        let mesh = Mesh::new([("X", n)])?;
        let make = jit(|scale: &Array| scale * Key::new(7).normal(F32.array_type([8, 8]).on(&mesh, p!["X", _])));
        let x = make.call(Array::from(1.0f32).put(&mesh, p![]))?;
        let report = make.lower(Array::from(1.0f32).put(&mesh, p![]))?;
        println!(
            "{}: the same as on one device: {}, {} collectives",
            type_of(&x),
            x.allclose(&one)?,
            report.collectives().len()
        );
    }
    Ok(())
}
// ANCHOR_END: meshes

// ANCHOR: dropout
fn dropout() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([16]).put(&mesh, p!["X"]);
    let key = Key::new(3);
    // Global view: one mask for the array, on any mesh.
    println!("{}", key.bernoulli([16], 0.5).put(&mesh, p!["X"]).select(&x, 0.0));
    // Per-device view: all devices have the same captured key, so all draw the same mask.
    let same = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| key.bernoulli([4], 0.5).select(x, 0.0));
    println!("{}", same.call(&x)?);
    // Fold in the device's index to get different masks.
    let own = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        key.fold_in(axis_index("X")).bernoulli([4], 0.5).select(x, 0.0)
    });
    println!("{}", own.call(&x)?);
    Ok(())
}
// ANCHOR_END: dropout

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let estimate = shard_map(&mesh, p![], p![], |n: &Array| {
        let [a, b] = Key::new(0).fold_in(axis_index("X")).split();
        let (x, y) = (a.uniform([10_000]), b.uniform([10_000]));
        let inside = (x.square() + y.square()).lt(1.0).astype(F32).sum(..);
        4.0 * inside.psum("X") / n
    });
    println!("{:.3}", estimate.call(80_000.0f32)?);
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let (walk, path) = scan(Array::from(0), Array::arange(0..8), |at, step| {
        let up = Key::new(5).fold_in(&step).bernoulli([], 0.5);
        let at = &at + up.select(1, -1);
        (at.clone(), at)
    });
    println!("{path}, at the end {walk}");
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let key = Key::new(42);
    let without = (0..3).map(|step| key.fold_in(step).uniform([])).next_back().expect("three steps");
    println!("{}", without.allclose(&key.fold_in(2).uniform([]))?);
    Ok(())
}
// ANCHOR_END: exercise3
