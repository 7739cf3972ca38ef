use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== program");
    program()?;
    println!("== forward");
    forward()?;
    println!("== backward");
    backward()?;
    println!("== conflict");
    conflict()?;
    println!("== pin");
    pin()?;
    println!("== forbid");
    forbid()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: program
/// Applies a network of two layers, which is five equations.
fn network(x: &Array, up: &Array, down: &Array) -> Array {
    let h = x.dot(up); // [16,32] · [32,64]
    let h = h.relu();
    let y = h.dot(down); // [16,64] · [64,32]
    let y = y.exp();
    y / 2.0
}

// ANCHOR_END: program

fn operands(mesh: &Mesh, specs: [Spec; 3]) -> (Array, Array, Array) {
    let [x, up, down] = specs;
    let ones = |shape: [usize; 2], spec| Array::ones(shape).put(mesh, spec);
    (ones([16, 32], x), ones([32, 64], up), ones([64, 32], down))
}

fn program() -> Result<()> {
    let mesh = Mesh::auto([("data", 2), ("model", 4)])?;
    // ANCHOR: program
    let traced = jit(network).trace(operands(&mesh, [p![], p![], p![]]))?;
    println!("{traced}");
    // ANCHOR_END: program
    Ok(())
}

// ANCHOR: forward
fn forward() -> Result<()> {
    let mesh = Mesh::auto([("data", 2), ("model", 4)])?;
    for (what, specs) in [
        ("rows of x", [p!["data", _], p![], p![]]),
        ("and columns of up", [p!["data", _], p![_, "model"], p![]]),
        ("and rows of down", [p!["data", _], p![_, "model"], p!["model", _]]),
    ] {
        println!("-- split: {what}");
        let lowered = jit(network).lower(operands(&mesh, specs))?;
        println!("{}{}", lowered.program(), lowered.collectives());
    }
    Ok(())
}
// ANCHOR_END: forward

// ANCHOR: backward
fn backward() -> Result<()> {
    let mesh = Mesh::auto([("data", 2), ("model", 4)])?;
    // No operand is constrained, but the result is: its sharding propagates backwards.
    let f =
        jit(|x: &Array, up: &Array, down: &Array| network(x, up, down).constrain(p!["data", _])).on(&mesh);
    let lowered = f.lower((Array::ones([16, 32]), Array::ones([32, 64]), Array::ones([64, 32])))?;
    println!("{}{}", lowered.program(), lowered.collectives());
    Ok(())
}
// ANCHOR_END: backward

// ANCHOR: conflict
fn conflict() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let rows = Array::ones([8, 8]).put(&mesh, p!["X", _]);
    let columns = Array::ones([8, 8]).put(&mesh, p![_, "X"]);
    let lowered = jit(|a: &Array, b: &Array| (a + b).exp()).lower((&rows, &columns))?;
    println!("{}{}", lowered.program(), lowered.collectives());
    Ok(())
}
// ANCHOR_END: conflict

// ANCHOR: pin
fn pin() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let rows = Array::ones([8, 8]).put(&mesh, p!["X", _]);
    let columns = Array::ones([8, 8]).put(&mesh, p![_, "X"]);
    let lowered = jit(|a: &Array, b: &Array| (a + b).constrain(p![_, "X"]).exp()).lower((&rows, &columns))?;
    println!("{}{}", lowered.program(), lowered.collectives());
    Ok(())
}
// ANCHOR_END: pin

// ANCHOR: forbid
fn forbid() -> Result<()> {
    // With explicit axes, the decision that auto mode makes silently is an error.
    let mesh = Mesh::new([("X", 4)])?;
    let rows = Array::ones([8, 8]).put(&mesh, p!["X", _]);
    let columns = Array::ones([8, 8]).put(&mesh, p![_, "X"]);
    if let Err(e) = (&rows + &columns).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: forbid

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::auto([("data", 2), ("model", 4)])?;
    let specs = [p!["data", _], p![_, "model"], p!["model", _]];
    let lowered = jit(network).lower(operands(&mesh, specs))?;
    assert_collectives!(lowered, AllReduce("model") x 1);
    println!("{}", jit(network).call(operands(&mesh, specs))?.sharding()?.expect("it is on a mesh"));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::auto([("X", 4)])?;
    let x = Array::ones([8, 8]).put(&mesh, p!["X", _]);
    let f = jit(|x: &Array| x.sum(0));
    println!("{}", f.call(&x)?.sharding()?.expect("it is on a mesh"));
    let f = jit(|x: &Array| x.sum(0).constrain(p!["X"]));
    println!("{}", f.call(&x)?.sharding()?.expect("it is on a mesh"));
    println!("{}", f.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let mesh = Mesh::auto([("data", 2), ("model", 4)])?;
    let x = Array::ones([8, 16]).put(&mesh, p!["data", _]);
    if let Err(e) = x.dot(Array::ones([16, 4])).constrain(p!["batch", _]).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake
