//! x
use atmesh::prelude::*;
use atmesh::*;
#[test]
fn heat() -> Result<()> {
    let mesh = Mesh::auto([("X", 8)])?;
    let x = Array::ones([102]).put(&mesh, p!["X"]);
    let l = jit(|u: &Array| {
        let a = u.slice(ix![2..102]);
        let b = u.slice(ix![1..101]);
        let c = u.slice(ix![0..100]);
        let mid = &b + &((&(&a - &(&b * 2.0)) + &c) * 0.1);
        concat([u.slice(ix![0..1]), mid, u.slice(ix![101..102])], 0)
    })
    .lower(&x)?;
    println!("{}", l.program());
    println!("{}", l.spmd());
    println!("{}", l.collectives());
    Ok(())
}
