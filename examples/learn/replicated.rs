use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== copies");
    copies()?;
    println!("== update");
    update()?;
    println!("== moves");
    moves()?;
    println!("== price");
    price()?;
    println!("== error");
    error()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: copies
fn copies() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let w = Array::from([1.0f32, 2.0]).put(&mesh, p![]);
    println!("{}\n{}", type_of(&w), w.visualize());
    for shard in w.shards()? {
        println!("{} holds {}, copy {}", shard.device, shard.data, shard.replica);
    }
    Ok(())
}
// ANCHOR_END: copies

// ANCHOR: update
fn update() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let w = Array::from([1.0f32, 2.0]).put(&mesh, p![]);
    let x = Key::new(0).normal([8, 2]).put(&mesh, p!["X"]);
    let step = jit(|w: &Array, x: &Array| w - 0.1 * grad(w, |w| x.dot(w).square().mean(..)));
    let next = step.call((&w, &x))?;
    let copies: Vec<Vec<f32>> = next.shards()?.iter().map(|s| s.data.to_vec()).collect::<Result<_>>()?;
    println!("{}, all equal: {}", type_of(&next), copies.iter().all(|copy| *copy == copies[0]));
    println!("{}", step.lower((&w, &x))?.collectives());
    Ok(())
}
// ANCHOR_END: update

// ANCHOR: moves
fn moves() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let whole = F32.array_type([1024]).on(&mesh, p![]);
    let split = F32.array_type([1024]).on(&mesh, p!["X"]);
    let (cut, gather) = (jit(|x: &Array| x.reshard(p!["X"])), jit(|x: &Array| x.reshard(p![])));
    println!("replicated to split: {} bytes", cut.lower(whole)?.collectives().bytes());
    println!("split to replicated: {} bytes", gather.lower(split)?.collectives().bytes());
    Ok(())
}
// ANCHOR_END: moves

// ANCHOR: price
fn price() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 64)])?;
    let step = jit(|w: &Array, g: &Array| w - 0.1 * g);
    for spec in [p![], p!["X", _]] {
        let w = || F32.array_type([8192, 8192]).on(&mesh, spec);
        let lowered = step.lower((w(), w()))?;
        println!("{spec}: {} MiB per device", lowered.collectives().peak_bytes() >> 20);
    }
    Ok(())
}
// ANCHOR_END: price

// ANCHOR: error
fn error() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let own = shard_map(&mesh, p!["X"], p![], |x: &Array| x.mean(..));
    if let Err(e) = own.call(Array::arange(0.0..8.0f32).put(&mesh, p!["X"])) {
        println!("{e}");
    }
    let shared = shard_map(&mesh, p!["X"], p![], |x: &Array| x.mean(..).pmean("X"));
    println!("{}", shared.call(Array::arange(0.0..8.0f32).put(&mesh, p!["X"]))?);
    Ok(())
}
// ANCHOR_END: error

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = Array::zeros([8, 8]).put(&mesh, p!["X", _]);
    let copies = x.shards()?.iter().filter(|s| s.replica > 0).count();
    println!("{}: {copies} of {} blocks are copies", type_of(&x), mesh.size());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let (w, x) = (Array::ones([8]).put(&mesh, p![]), Array::ones([8]).put(&mesh, p!["X"]));
    println!("{}", type_of(w + x));
    Ok(())
}
// ANCHOR_END: exercise2
