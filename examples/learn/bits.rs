use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== meshes");
    meshes()?;
    println!("== engines");
    engines()
}

// ANCHOR: meshes
fn meshes() -> Result<()> {
    let x = Key::new(0).normal([1000]);
    for devices in [1, 2, 8] {
        let mesh = Mesh::new([("X", devices)])?;
        let split = x.put(&mesh, p!["X"]);
        let same = split.exp().array_equal(&x.exp())?;
        println!("{devices} devices: exp has the same bits: {same}; the sum is {}", split.sum(..));
    }
    Ok(())
}
// ANCHOR_END: meshes

// ANCHOR: engines
fn engines() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Key::new(0).normal([1000]).put(&mesh, p!["X"]);
    let f = |x: &Array| (x.exp() * 1.7).sum(..);
    let compiled = [jit(f).engine(Lockstep).call(&x)?, jit(f).engine(Threads).call(&x)?];
    println!("{} {}", compiled[0].array_equal(&f(&x))?, compiled[1].array_equal(&f(&x))?);
    Ok(())
}
// ANCHOR_END: engines
