use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()?;
    println!("== exercise4");
    exercise_4()?;
    println!("== exercise5");
    exercise_5()?;
    println!("== exercise6");
    exercise_6()
}

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 3), ("Z", 4)])?;
    println!("{} devices; number 17 is at {:?}", mesh.size(), mesh.coordinates(17));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    println!("CPU 5 is at {:?}", mesh.coordinates(5));
    // Each block of the array holds the id of its device.
    println!("{}", Array::arange(0..8).reshape([2, 4]).put(&mesh, p!["X", "Y"]));
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let d = atmesh::devices(6)?;
    let snake = Mesh::of_devices(&[d[0], d[1], d[2], d[5], d[4], d[3]], [("X", 2), ("Y", 3)])?;
    println!("{}", Array::arange(0..6).reshape([2, 3]).put(&snake, p!["X", "Y"]).visualize());
    Ok(())
}
// ANCHOR_END: exercise3

// ANCHOR: exercise4
fn exercise_4() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    for spec in [p!["X", "Y"], p![("X", "Y"), _], p!["Y", _]] {
        let a = Array::ones([16, 8]).put(&mesh, spec);
        println!("{}: {} bytes per device", type_of(&a), a.shards()?[0].data.nbytes()?);
    }
    Ok(())
}
// ANCHOR_END: exercise4

// ANCHOR: exercise5
fn exercise_5() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let a = Array::arange(0..16).reshape([8, 2]).put(&mesh, p![("Y", "X"), _]);
    let shard = &a.shards()?[1];
    println!("{}: {} holds {:?}", type_of(&a), shard.device, shard.index);
    Ok(())
}
// ANCHOR_END: exercise5

// ANCHOR: exercise6
fn exercise_6() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let shards = Array::ones([8, 4]).put(&mesh, p!["X", _]).shards()?;
    println!("{} blocks, {} of them originals", shards.len(), shards.iter().filter(|s| s.replica == 0).count());
    Ok(())
}
// ANCHOR_END: exercise6
