use atmesh::nd::ArrayView1;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== wrong");
    wrong()?;
    println!("== look");
    look()?;
    println!("== far");
    far()?;
    println!("== nan");
    nan()?;
    println!("== hang");
    hang()?;
    println!("== why");
    why()?;
    println!("== memory");
    memory()?;
    println!("== exercise1");
    exercise_1()
}

// ANCHOR: wrong
/// Divides by the maximum.
fn scaled(x: &Array) -> Array {
    x / x.max(..)
}

fn wrong() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::from([1.0f32, 2.0, 3.0, 8.0]).put(&mesh, p!["X"]);
    let by_hand = shard_map(&mesh, p!["X"], p!["X"], scaled);
    println!("global     {}\nper device {}", scaled(&x), by_hand.call(&x)?);
    Ok(())
}
// ANCHOR_END: wrong

// ANCHOR: look
fn look() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let x = Array::from([1.0f32, 2.0, 3.0, 8.0]).put(&mesh, p!["X"]);
    let fixed = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        let here = x.max(..);
        debug_print!("the maximum of a block: {}", here);
        x / here.pmax("X")
    });
    println!("{}", fixed.call(&x)?);
    Ok(())
}
// ANCHOR_END: look

// ANCHOR: far
fn far() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let a = Array::arange(0..4).put(&mesh, p!["X"]);
    let b = Array::arange(0..4).put(&mesh, p!["Y"]);
    let sum = &a + &b; // the cause
    let scaled = 3 * sum - 1;
    if let Err(e) = scaled.sum(..).item::<i32>() {
        println!("{e}"); // found here
    }
    Ok(())
}
// ANCHOR_END: far

// ANCHOR: nan
/// Returns an error that names the value if an element of it is not finite.
fn checked(name: &str, x: Array) -> Result<Array> {
    match x.is_finite().all(..).item::<bool>()? {
        true => Ok(x),
        false => Err(atmesh::Error::other(format!("{name} has an infinite element, or a NaN: {x}"))),
    }
}

fn nan() -> Result<()> {
    let steps = || {
        let x = checked("x", Array::from([0.0f32, 1.0]))?;
        let y = checked("log x", x.log())?;
        checked("x log x", x * y)
    };
    println!("{}", steps().err().map(|e| e.to_string()).unwrap_or_default());
    Ok(())
}
// ANCHOR_END: nan

// ANCHOR: hang
fn hang() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let swap = spmd(&mesh, p!["X"], p!["X"], |dev: &Device, x: ArrayView1<f32>| {
        let other = dev.neighbor_periodic("X", 1)?;
        let received = dev.recv(other)?; // each device waits for a message
        dev.send(other, &x)?; // that is sent only afterwards
        Ok::<atmesh::nd::Array1<f32>, _>(received)
    });
    if let Err(e) = swap.call(Array::arange(0.0..4.0f32)) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: hang

// ANCHOR: why
fn why() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let x = Array::ones([64, 64]).put(&mesh, p!["X", _]);
    let f = jit(|x: &Array| (x + x.t()).sum(..));
    println!("{}", f.lower(&x)?.collectives());
    println!("{}", f.explain(&x, 0)?);
    Ok(())
}
// ANCHOR_END: why

// ANCHOR: memory
fn memory() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = F32.array_type([4096, 1024]).on(&mesh, p!["X", _]);
    let products = jit(|x: &Array| x.dot(x.reshard(p![_, _]).t()).square().sum(1));
    println!("{}", products.lower(x)?.memory());
    Ok(())
}
// ANCHOR_END: memory

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let x = Array::from([0.0f32, 1.0]);
    let entropy = |x: &Array| x.gt(0).select(x * x.log(), 0.0);
    println!("{} {}", entropy(&x), grad(&x, |x| entropy(&x).sum(..)));
    let safe = |x: &Array| {
        let is_positive = x.gt(0);
        let inside = is_positive.select(x, 1.0);
        is_positive.select(&inside * inside.log(), 0.0)
    };
    println!("{} {}", safe(&x), grad(&x, |x| safe(&x).sum(..)));
    Ok(())
}
// ANCHOR_END: exercise1
