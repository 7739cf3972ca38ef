use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let table = Key::new(0).normal([1024, 64]).put(&mesh, p![_, "X"]);
    let ids = Array::from([3, 700, 5]);
    let lookup = jit(|t: &Array, ids: &Array| t.take(ids, 0));
    println!("{}", type_of(lookup.call((&table, &ids))?));
    println!("{}", lookup.lower((&table, &ids))?.collectives());
    let slope = jit(|t: &Array, ids: &Array| grad(t, |t| t.take(ids, 0).square().sum(..)));
    println!("{}", type_of(slope.call((&table, &ids))?));
    println!("{}", slope.lower((&table, &ids))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let nearest = Key::new(0).randint([4096], 0..4).put(&mesh, p!["X"]);
    let sizes = jit(|nearest: &Array| nearest.ones_like().segment_sum_to(nearest, 4, p![]));
    println!("{}", sizes.lower(&nearest)?.collectives());
    println!("{} points in all", sizes.call(&nearest)?.sum(..));
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let edges = Array::ones([4, 2]);
    let to = Array::from([0.0f32, 2.0, 4.0, 6.0]) / 2.0;
    if let Err(e) = edges.segment_sum(&to, 4).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake
