use atmesh::nn;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== first");
    first()?;
    println!("== bias");
    bias()?;
    println!("== sum");
    sum()?;
    println!("== pairs");
    pairs()?;
    println!("== heads");
    heads()?;
    println!("== step");
    step()?;
    println!("== scatter");
    scatter()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

// ANCHOR: first
fn mesh() -> Result<Mesh> {
    Mesh::new([("data", 2), ("model", 4)])
}

fn first() -> Result<()> {
    let x = Key::new(0).normal([256, 32]).put(&mesh()?, p!["data", _]);
    let up = Key::new(1).normal([32, 64]).put(&mesh()?, p![_, "model"]);
    println!("{} · {} → {}", type_of(&x), type_of(&up), type_of(x.dot(&up)));
    Ok(())
}
// ANCHOR_END: first

fn operands() -> Result<(Array, Array, Array)> {
    let x = Key::new(0).normal([256, 32]).put(&mesh()?, p!["data", _]);
    let up = Key::new(1).normal([32, 64]).put(&mesh()?, p![_, "model"]);
    let down = Key::new(2).normal([64, 8]).put(&mesh()?, p!["model", _]);
    Ok((x, up, down))
}

// ANCHOR: bias
fn bias() -> Result<()> {
    let (x, up, _) = operands()?;
    let wrong = Array::zeros([64]).put(&mesh()?, p!["data"]);
    if let Err(e) = (x.dot(&up) + wrong).ty() {
        println!("{e}");
    }
    let bias = Array::zeros([64]).put(&mesh()?, p!["model"]);
    println!("{}", type_of((x.dot(&up) + bias).tanh()));
    Ok(())
}
// ANCHOR_END: bias

// ANCHOR: sum
fn sum() -> Result<()> {
    let (x, up, down) = operands()?;
    let hidden = x.dot(&up).tanh();
    if let Err(e) = hidden.dot(&down).ty() {
        println!("{e}");
    }
    println!("{}", type_of(hidden.dot_to(&down, p!["data", _])));
    Ok(())
}
// ANCHOR_END: sum

// ANCHOR: pairs
fn pairs() -> Result<()> {
    let (x, up, down) = operands()?;
    let codes = x.dot(&up).tanh().dot_to(&down, p!["data", _]); // [256@data, 8]
    if let Err(e) = codes.dot(codes.t()).ty() {
        println!("{e}");
    }
    println!("{}", type_of(codes.dot(codes.reshard(p![]).t())));
    Ok(())
}
// ANCHOR_END: pairs

// ANCHOR: heads
fn heads() -> Result<()> {
    let (x, up, _) = operands()?;
    let hidden = x.dot(&up); // [256@data, 64@model]
    if let Err(e) = hidden.reshape([256, 2, 32]).ty() {
        println!("{e}");
    }
    println!("{}", type_of(hidden.reshape([256, 8, 8])));
    Ok(())
}
// ANCHOR_END: heads

// ANCHOR: step
fn loss(up: &Array, down: &Array, x: &Array, labels: &Array) -> Array {
    let logits = x.dot(up).tanh().dot_to(down, p!["data", _]);
    nn::softmax_cross_entropy_with_integer_labels(&logits, labels).mean(..)
}

fn step() -> Result<()> {
    let (x, up, down) = operands()?;
    let labels = Key::new(3).randint([256], 0..8).put(&mesh()?, p!["data"]);
    let step = jit(|up: &Array, down: &Array, x: &Array, labels: &Array| {
        grad((up, down), |(up, down)| loss(&up, &down, x, labels))
    });
    println!("{}", type_of(&step.call((&up, &down, &x, &labels))?));
    println!("{}", step.lower((&up, &down, &x, &labels))?.collectives());
    Ok(())
}
// ANCHOR_END: step

// ANCHOR: scatter
fn scatter() -> Result<()> {
    let (x, up, down) = operands()?;
    for spec in [p!["data", _], p!["data", "model"]] {
        let f = jit(move |x: &Array, up: &Array, down: &Array| x.dot(up).tanh().dot_to(down, spec));
        let report = f.lower((&x, &up, &down))?;
        println!("{}: {} bytes", type_of(f.call((&x, &up, &down))?), report.collectives().bytes());
    }
    Ok(())
}
// ANCHOR_END: scatter

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let (x, up, down) = operands()?;
    let hidden = x.dot(&up).tanh();
    println!("{}", type_of(hidden.dot(down.reshard(p![]))));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let (x, up, _) = operands()?;
    let f = jit(|x: &Array, up: &Array| x.dot(up).softmax(1));
    println!("{}", type_of(f.call((&x, &up))?));
    println!("{}", f.lower((&x, &up))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise2
