use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== mistake_big_sin");
    mistake_big_sin()?;
    println!("== mistake_notebook");
    mistake_notebook()?;
    println!("== mistake_collectives");
    mistake_collectives()?;
    println!("== exercise1");
    exercise_1()
}

// ANCHOR: mistake_big_sin
fn mistake_big_sin() -> Result<()> {
    let [two, four] = [2, 4].map(|n| Mesh::new([("x", n)]));
    let x = Array::arange(0.0..8.0f32).put(&two?, p!["x"]);
    let y = Array::ones([8]).put(&four?, p!["x"]);
    if let Err(e) = (x.sin() + y).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake_big_sin

// ANCHOR: mistake_notebook
fn mistake_notebook() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let x = Array::ones([16, 32]).put(&mesh, p![_, "X"]);
    let w = Array::ones([32, 16]).put(&mesh, p!["X", _]);
    if let Err(e) = x.dot(w).logistic().ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake_notebook

// ANCHOR: mistake_collectives
fn mistake_collectives() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let a = Array::ones([4, 4]).put(&mesh, p!["X", _]);
    let b = Array::ones([4, 4]).put(&mesh, p![_, "X"]);
    if let Err(e) = a.dot(b).ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: mistake_collectives

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let f = jit(|x: &Array| x.sin().sum(..));
    for devices in [8, 2] {
        let x = Array::arange(0.0..8.0f32).put(&Mesh::new([("x", devices)])?, p!["x"]);
        println!("{}: {:.4}", type_of(&x), f.call(&x)?.item::<f32>()?);
    }
    Ok(())
}
// ANCHOR_END: exercise1
