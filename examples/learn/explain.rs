use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== bias");
    bias()?;
    println!("== fixed");
    fixed()?;
    println!("== loop");
    in_a_loop()?;
    println!("== nothing");
    nothing_better()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: bias
fn layer(x: &Array, w: &Array, b: &Array) -> Array {
    (x.dot(w) + b).gelu()
}

fn bias() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 8)])?.with_auto(["data"])?;
    let x = F32.array_type([4096, 512]).on(&mesh, p!["data", _]);
    let w = F32.array_type([512, 512]).on(&mesh, p![]);
    let b = F32.array_type([512]).on(&mesh, p!["data"]);
    let f = jit(layer);
    println!("{}", f.lower((x.clone(), w.clone(), b.clone()))?.collectives());
    println!("{}", f.explain((x, w, b), 0)?);
    Ok(())
}
// ANCHOR_END: bias

// ANCHOR: fixed
fn fixed() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 8)])?.with_auto(["data"])?;
    let x = F32.array_type([4096, 512]).on(&mesh, p!["data", _]);
    let (w, b) = (F32.array_type([512, 512]).on(&mesh, p![]), F32.array_type([512]).on(&mesh, p![]));
    println!("{} bytes", jit(layer).lower((x, w, b))?.collectives().bytes());
    Ok(())
}
// ANCHOR_END: fixed

// ANCHOR: loop
fn in_a_loop() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let w = F32.array_type([512, 512]).on(&mesh, p!["X", _]);
    let x = F32.array_type([512]).on(&mesh, p![]);
    let f = jit(|w: &Array, x: &Array| fori_loop(0..100, x, |_, x| w.reshard(p![]).dot(&x).tanh()));
    println!("{}", f.lower((w.clone(), x.clone()))?.collectives());
    println!("{}", f.explain((w, x), 0)?);
    Ok(())
}
// ANCHOR_END: loop

// ANCHOR: nothing
fn nothing_better() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?.with_auto(["X"])?;
    let x = F32.array_type([512, 512]).on(&mesh, p!["X", _]);
    println!("{}", jit(|x: &Array| x + x.t()).explain(x, 0)?);
    Ok(())
}
// ANCHOR_END: nothing

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let x = F32.array_type([512]).on(&mesh, p!["X"]);
    if let Err(e) = jit(|x: &Array| 2.0 * x).explain(x, 0) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let x = F32.array_type([512, 64]).on(&mesh, p!["X", _]);
    let f = jit(|x: &Array| (x - x.mean(0)).square().mean(0));
    println!("{}", f.lower(x)?.collectives());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let x = F32.array_type([512, 64]).on(&mesh, p!["X", _]);
    let f = jit(|x: &Array| x.sum(0));
    println!("{}", f.explain(x, 0)?);
    Ok(())
}
// ANCHOR_END: exercise2
