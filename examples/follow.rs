//! Follows one array through every stage: its type, the traced program, propagated shardings, the
//! per-device program, its collectives, the execution report, and the shards of the results.
use atmesh::prelude::*;

fn main() -> Result<()> {
    // ANCHOR: type
    let mesh = Mesh::auto([("X", 4)])?;
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);
    println!("{} on {}", type_of(&x), x.sharding()?.expect("it was put on a mesh"));
    println!("{}", x.visualize());
    // ANCHOR_END: type

    // ANCHOR: trace
    let steps = jit(|x: &Array| {
        let difference = x.slice(ix![1..]) - x.slice(ix![..-1]);
        let energy = difference.square().sum(..);
        (difference, energy)
    });
    let traced = steps.trace(&x)?;
    println!("{traced}");
    // ANCHOR_END: trace

    // ANCHOR: lower
    let lowered = traced.lower()?;
    println!("{}", lowered.program()); // the same program with all shardings
    println!("{}", lowered.spmd()); // one program that every device runs
    println!("{}", lowered.collectives());
    // ANCHOR_END: lower

    // ANCHOR: run
    let compiled = lowered.compile()?;
    println!("{}", compiled.report());
    let (difference, energy) = compiled.call(&x)?;
    for shard in difference.shards()? {
        println!("{} holds {:?}: {}", shard.device, shard.index, shard.data);
    }
    println!("energy: {energy}");
    // ANCHOR_END: run
    Ok(())
}
