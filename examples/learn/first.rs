use atmesh::prelude::*;

// ANCHOR: first
fn main() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?; // four devices in a row
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]); // two elements on each device
    println!("{}\n{}", type_of(&x), x.visualize());

    let f = jit(|x: &Array| (x * x).sum(..));
    println!("the sum of squares: {}", f.call(&x)?);
    println!("{}", f.lower(&x)?.collectives());
    // ANCHOR_END: first

    println!("== shards");
    // ANCHOR: shards
    for shard in x.shards()? {
        println!("{} holds {:?}: {}", shard.device, shard.index, shard.data);
    }
    // ANCHOR_END: shards

    println!("== replicated");
    // ANCHOR: replicated
    let y = x.put(&mesh, p![_]);
    println!("{}\n{}", type_of(&y), y.visualize());
    println!("{}", f.lower(&y)?.collectives());
    // ANCHOR_END: replicated

    println!("== error");
    // ANCHOR: error
    if let Err(e) = Array::arange(0..6).put(&mesh, p!["X"]).ty() {
        println!("{e}");
    }
    // ANCHOR_END: error

    println!("== conflict");
    // ANCHOR: conflict
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let (a, b) = (Array::arange(0..4).put(&mesh, p!["X"]), Array::arange(0..4).put(&mesh, p!["Y"]));
    if let Err(e) = (&a + &b).ty() {
        println!("{e}");
    }
    println!("{}", type_of(&a + b.reshard(p!["X"])));
    // ANCHOR_END: conflict

    println!("== exercise1");
    // ANCHOR: exercise1
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..12.0f32).put(&mesh, p!["X"]);
    println!("{}: {} numbers per device", type_of(&x), x.shards()?[0].data.size()?);
    // ANCHOR_END: exercise1

    println!("== exercise2");
    // ANCHOR: exercise2
    let largest = jit(|x: &Array| x.max(..));
    println!("the greatest: {}\n{}", largest.call(&x)?, largest.lower(&x)?.collectives());
    let scaled = jit(|x: &Array| 2.0 * x + 1.0);
    println!("{}", scaled.lower(&x)?.collectives());
    // ANCHOR_END: exercise2
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let sum = Array::arange(0..8) + Array::arange(0..6); // no panic here
    let twice = 2 * sum;
    println!("{}", twice.ty().is_err());
    Ok(())
}
// ANCHOR_END: exercise3
