use atmesh::nd::ArrayView1;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== modes");
    modes()?;
    println!("== auto");
    auto()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()
}

/// Prints the type of a result, and what its program moves.
fn row(mode: &str, program: atmesh::Lowered<Array, Array>, y: Array) {
    println!("{mode:9} {:14} {} bytes", type_of(&y).to_string(), program.collectives().bytes());
}

// ANCHOR: modes
fn unit(x: &Array) -> Array {
    x / x.square().sum(..).sqrt()
}

// ANCHOR_END: modes

fn modes() -> Result<()> {
    let x = Key::new(0).normal([64]);
    // ANCHOR: modes
    let (auto, mesh) = (Mesh::auto([("X", 8)])?, Mesh::new([("X", 8)])?);
    let global = jit(unit); // auto and explicit: the program of one device
    let by_hand = jit(shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        x / x.square().sum(..).psum("X").sqrt()
    }));
    let native = spmd(&mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<f32>| {
        let squares = dev.psum_scalar(x.iter().map(|v| v * v).sum::<f32>(), "X")?;
        Ok(x.mapv(|v| v / squares.sqrt()))
    });
    // ANCHOR_END: modes
    let (a, e) = (x.put(&auto, p!["X"]), x.put(&mesh, p!["X"]));
    row("auto", global.lower(&a)?, global.call(&a)?);
    row("explicit", global.lower(&e)?, global.call(&e)?);
    row("manual", by_hand.lower(&e)?, by_hand.call(&e)?);
    let y = native.call(&e)?;
    println!("{:9} {}", "native", type_of(&y));
    let right = unit(&x);
    let same = [global.call(&a)?, global.call(&e)?, by_hand.call(&e)?, y];
    let same = same.iter().map(|y| y.allclose(&right)).collect::<Result<Vec<_>>>()?;
    println!("all agree: {}", same.iter().all(|is_same| *is_same));
    Ok(())
}

// ANCHOR: auto
fn auto() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let x = F32.array_type([1024, 512]).on(&mesh, p![_, "X"]);
    let f = jit(|x: &Array, w: &Array| x.dot(w));
    for spec in [p!["X", _], p![_, "X"]] {
        let w = F32.array_type([512, 256]).on(&mesh, spec);
        println!("w over {spec}: {} bytes", f.lower((x.clone(), w))?.collectives().bytes());
    }
    Ok(())
}
// ANCHOR_END: auto

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Array::ones([1024, 512]).put(&mesh, p![_, "X"]);
    let w = Array::ones([512, 256]).put(&mesh, p!["X", _]);
    if let Err(e) = x.dot(w).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    use atmesh::AxisType::{Auto, Explicit};
    let mesh = Mesh::with_types([("data", 2, Explicit), ("model", 4, Auto)])?;
    let x = Array::ones([16, 32]).put(&mesh, p!["data", _]);
    let w = Array::ones([32, 64]).put(&mesh, p![]).constrain(p![_, "model"]);
    println!("{}", type_of(x.dot(w)));
    Ok(())
}
// ANCHOR_END: exercise1
