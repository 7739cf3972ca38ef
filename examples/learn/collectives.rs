use atmesh::Lowered;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== gather");
    all_gather()?;
    println!("== reduce");
    all_reduce()?;
    println!("== scatter");
    reduce_scatter()?;
    println!("== identity");
    identity()?;
    println!("== to_all");
    all_to_all()?;
    println!("== permute");
    permute()?;
    println!("== halo");
    halo()?;
    println!("== exchange");
    exchange()?;
    println!("== ring");
    ring()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: show
/// Prints the block of each device before and after, and the collectives.
fn show(program: Lowered<Array, Array>, x: &Array) -> Result<()> {
    for c in program.collectives() {
        println!("{} over {}: {} bytes per device, {} messages", c.kind, c.axes, c.bytes_per_device, c.messages);
    }
    let y = program.compile()?.call(x)?;
    println!("{} → {}", type_of(x), type_of(&y));
    for (before, after) in x.shards()?.iter().zip(y.shards()?) {
        println!("{}: {} → {}", before.device, before.data, after.data);
    }
    Ok(())
}

fn mesh() -> Result<Mesh> {
    Mesh::new([("i", 4)])
}
fn short() -> Result<Array> {
    Ok(Array::from([3, 9, 5, 2]).put(&mesh()?, p!["i"]))
}
fn long() -> Result<Array> {
    let digits = vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1, 2];
    Ok(Array::from(digits).put(&mesh()?, p!["i"]))
}
// ANCHOR_END: show

// ANCHOR: gather
fn all_gather() -> Result<()> {
    let x = short()?;
    // Global view: a sharded array is resharded to be replicated.
    show(jit(|x: &Array| x.reshard(p![])).lower(&x)?, &x)?;
    // Per-device view: every device gathers the blocks of all devices.
    let by_hand =
        shard_map(&mesh()?, p!["i"], p![], |x: &Array| x.all_gather("i", CollectiveDim::tiled(0).invarying()));
    show(by_hand.lower(&x)?, &x)
}
// ANCHOR_END: gather

// ANCHOR: reduce
fn all_reduce() -> Result<()> {
    let x = long()?;
    let by_hand = shard_map(&mesh()?, p!["i"], p![], |x: &Array| x.psum("i"));
    show(by_hand.lower(&x)?, &x)?;
    // Global view: a sum over a sharded dimension.
    let table = x.reshape([4, 4]);
    show(jit(|x: &Array| x.sum(0)).lower(&table)?, &table)
}
// ANCHOR_END: reduce

// ANCHOR: scatter
fn reduce_scatter() -> Result<()> {
    let x = long()?;
    let by_hand = shard_map(&mesh()?, p!["i"], p!["i"], |x: &Array| x.psum_scatter("i", CollectiveDim::tiled(0)));
    show(by_hand.lower(&x)?, &x)?;
    let table = x.reshape([4, 4]);
    show(jit(|x: &Array| x.sum_to(0, p!["i"])).lower(&table)?, &table)
}
// ANCHOR_END: scatter

// ANCHOR: identity
fn identity() -> Result<()> {
    let x = Array::ones([4, 64]).put(&mesh()?, p!["i", _]);
    let at_once = jit(|x: &Array| x.sum_to(0, p![]));
    let in_two = jit(|x: &Array| x.sum_to(0, p!["i"]).reshard(p![]));
    for program in [at_once.lower(&x)?, in_two.lower(&x)?] {
        let all = program.collectives();
        let parts: Vec<String> = all.iter().map(|c| format!("{} {}", c.kind, c.bytes_per_device)).collect();
        println!("{} = {} bytes per device", parts.join(" + "), all.bytes());
    }
    Ok(())
}
// ANCHOR_END: identity

// ANCHOR: to_all
fn all_to_all() -> Result<()> {
    let x = long()?;
    let by_hand =
        shard_map(&mesh()?, p!["i"], p!["i"], |x: &Array| x.all_to_all("i", AllToAll::split(0).concat(0)));
    show(by_hand.lower(&x)?, &x)?;
    // Global view: rows are sharded, and columns are to be sharded instead.
    let table = x.reshape([4, 4]);
    show(jit(|x: &Array| x.reshard(p![_, "i"])).lower(&table)?, &table)
}
// ANCHOR_END: to_all

// ANCHOR: permute
fn permute() -> Result<()> {
    let x = short()?;
    let on = |how: Permutation| {
        shard_map(&mesh().expect("4 devices"), p!["i"], p!["i"], move |x: &Array| {
            x.ppermute("i", how.clone())
        })
    };
    show(on(Permutation::ring(1)).lower(&x)?, &x)?; // the last device sends to the first
    show(on(Permutation::shift(1)).lower(&x)?, &x) // the first one gets zeros
}
// ANCHOR_END: permute

// ANCHOR: halo
fn halo() -> Result<()> {
    let x = Array::from(vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 1, 2])
        .put(&Mesh::auto([("i", 4)])?, p!["i"]);
    // Adds its right neighbour to each element.
    show(jit(|x: &Array| x.slice(ix![..-1]) + x.slice(ix![1..])).lower(&x)?, &x)
}
// ANCHOR_END: halo

// ANCHOR: exchange
fn exchange() -> Result<()> {
    let x = Array::arange(0..12).put(&Mesh::auto([("i", 4)])?, p!["i"]);
    // Concatenates x with itself: blocks of 3 become blocks of 6.
    show(jit(|x: &Array| concat([x, x], 0)).lower(&x)?, &x)
}
// ANCHOR_END: exchange

// ANCHOR: ring
/// An all-gather on a ring: in each step every device passes on the block that it last received.
fn ring() -> Result<()> {
    let n = 4;
    let gather = shard_map(&mesh()?, p!["i"], p![_, "i"], |x: &Array| {
        let (mut block, mut have) = (x.clone(), vec![x.clone()]);
        for _ in 1..n {
            block = block.ppermute("i", Permutation::ring(1));
            have.push(block.clone());
        }
        stack(&have, 0) // row k is the block that arrived in step k
    });
    let x = short()?;
    let lowered = gather.lower(&x)?;
    for c in lowered.collectives() {
        println!("{} over {}: {} bytes per device, {} messages", c.kind, c.axes, c.bytes_per_device, c.messages);
    }
    println!("{}", gather.call(&x)?);
    Ok(())
}
// ANCHOR_END: ring

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let x = long()?;
    let largest = shard_map(&mesh()?, p!["i"], p![], |x: &Array| x.max(..).pmax("i"));
    println!("{}", largest.call(&x)?);
    for c in largest.lower(&x)?.collectives() {
        println!("{}: {} bytes per device", c.kind, c.bytes_per_device);
    }
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let x = long()?;
    let twice = shard_map(&mesh()?, p!["i"], p!["i"], |x: &Array| {
        let swap = || AllToAll::split(0).concat(0);
        x.all_to_all("i", swap()).all_to_all("i", swap())
    });
    println!("the same: {}", twice.call(&x)?.allclose(&x)?);
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let prefix = shard_map(&mesh()?, p!["i"], p!["i"], |x: &Array| {
        // After the first step each device has a sum of 2 devices, after the second a sum of 4.
        let x = x + x.ppermute("i", Permutation::shift(1));
        &x + x.ppermute("i", Permutation::shift(2))
    });
    let x = short()?;
    println!("{} → {}", x, prefix.call(&x)?);
    Ok(())
}
// ANCHOR_END: exercise3

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let x = Array::arange(0..8).put(&Mesh::new([("i", 4)])?, p!["i"]);
    if let Err(e) = x.psum("i").ty() {
        println!("{e}");
    }
    println!("{}", x.reshape([4, 2]).sum(0)); // the global program: a sum over a dimension
    Ok(())
}
// ANCHOR_END: mistake
