use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let x = F32.array_type([8]).on(&mesh, p!["X"]);
    let bend = |x: &Array| x.slice(ix![..-2]) - 2.0 * x.slice(ix![1..-1]) + x.slice(ix![2..]);
    let lowered = jit(bend).lower(x)?;
    println!("{lowered}\n{}", lowered.collectives());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let differences = |x: &Array| x.slice(ix![1..]) - x.slice(ix![..-1]);
    for spec in [p!["X"], p![]] {
        println!("{}", jit(differences).lower(F32.array_type([8]).on(&mesh, spec))?.collectives());
    }
    Ok(())
}
// ANCHOR_END: exercise2
