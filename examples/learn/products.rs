use atmesh::Lowered;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== blocks");
    blocks()?;
    println!("== case1");
    case_1()?;
    println!("== case2");
    case_2()?;
    println!("== case3");
    case_3()?;
    println!("== case4");
    case_4()?;
    println!("== crossover");
    crossover()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: operands
fn operands() -> (Array, Array) {
    let a = Array::arange(0.0..16.0f32).reshape([4, 4]);
    let b = Array::arange(16.0..32.0f32).reshape([4, 4]);
    (a, b)
}

fn moved<I: Tree, O: Tree>(program: &Lowered<I, O>) -> String {
    let all: Vec<String> = program
        .collectives()
        .iter()
        .map(|c| format!("{} over {}, {} bytes per device", c.kind, c.axes, c.bytes_per_device))
        .collect();
    if all.is_empty() { "no communication".into() } else { all.join("; ") }
}
// ANCHOR_END: operands

// ANCHOR: blocks
fn blocks() -> Result<()> {
    let (a, b) = operands();
    let block = |m: &Array, i: i64, j: i64| m.slice(ix![2 * i..2 * i + 2, 2 * j..2 * j + 2]);
    let c = |i, j| block(&a, i, 0).dot(block(&b, 0, j)) + block(&a, i, 1).dot(block(&b, 1, j));
    let by_blocks = concat([concat([c(0, 0), c(0, 1)], 1), concat([c(1, 0), c(1, 1)], 1)], 0);
    println!("{by_blocks}\nthe same as the product: {}", by_blocks.allclose(&a.dot(&b))?);
    Ok(())
}
// ANCHOR_END: blocks

// ANCHOR: case1
fn case_1() -> Result<()> {
    let mesh = Mesh::new([("x", 2), ("y", 2)])?;
    let (a, b) = operands();
    let dot = jit(|a: &Array, b: &Array| a.dot(b));
    for (left, right) in [(p![], p![]), (p!["x", _], p![]), (p![], p![_, "y"]), (p!["x", _], p![_, "y"])] {
        let (a, b) = (a.put(&mesh, left), b.put(&mesh, right));
        let c = dot.call((&a, &b))?;
        println!("{} · {} → {}: {}", type_of(&a), type_of(&b), type_of(&c), moved(&dot.lower((&a, &b))?));
    }
    Ok(())
}
// ANCHOR_END: case1

// ANCHOR: case2
fn case_2() -> Result<()> {
    let mesh = Mesh::new([("x", 2)])?;
    let (a, b) = operands();
    let (a, b) = (a.put(&mesh, p![_, "x"]), b.put(&mesh, p![]));
    let dot = jit(|a: &Array, b: &Array| a.dot(b));
    println!("{} · {} → {}", type_of(&a), type_of(&b), type_of(dot.call((&a, &b))?));
    println!("{}", moved(&dot.lower((&a, &b))?));
    Ok(())
}
// ANCHOR_END: case2

// ANCHOR: case3
fn case_3() -> Result<()> {
    let mesh = Mesh::new([("x", 2)])?;
    let (a, b) = operands();
    let (a, b) = (a.put(&mesh, p![_, "x"]), b.put(&mesh, p!["x", _]));
    if let Err(e) = a.dot(&b).ty() {
        println!("{e}");
    }
    // The part of the product that each device can compute alone.
    let parts = a.dot_to(&b, p![_, _; U: "x"]);
    for shard in parts.shards()? {
        println!("{} has the partial product\n{}", shard.device, shard.data);
    }
    for out in [p![], p!["x", _], p![_, _; U: "x"]] {
        let dot = jit(move |a: &Array, b: &Array| a.dot_to(b, out));
        println!("→ {}: {}", type_of(dot.call((&a, &b))?), moved(&dot.lower((&a, &b))?));
    }
    Ok(())
}
// ANCHOR_END: case3

// ANCHOR: case4
fn case_4() -> Result<()> {
    let mesh = Mesh::new([("x", 2)])?;
    let (a, b) = operands();
    let (a, b) = (a.put(&mesh, p!["x", _]), b.put(&mesh, p![_, "x"]));
    if let Err(e) = a.dot(&b).ty() {
        println!("{e}");
    }
    for out in [p!["x", _], p![_, "x"], p![]] {
        let dot = jit(move |a: &Array, b: &Array| a.dot_to(b, out));
        println!("→ {}: {}", type_of(dot.call((&a, &b))?), moved(&dot.lower((&a, &b))?));
    }
    Ok(())
}
// ANCHOR_END: case4

// ANCHOR: crossover
/// Compares gathering `a` in a[64, k@X] · b[k, 32] with summing partial products, for several k.
fn crossover() -> Result<()> {
    let mesh = Mesh::without_devices([("X", 8)])?;
    let dot = jit(|a: &Array, b: &Array| a.dot(b));
    let (rows, columns) = (64, 32);
    for k in [16, 32, 48, 64, 128, 512] {
        let a = F32.array_type([rows, k]).on(&mesh, p![_, "X"]);
        let b = F32.array_type([k, columns]).on(&mesh, p![]);
        let (gather, sum) = (4 * rows * k * 7 / 8, 2 * 4 * rows * columns * 7 / 8);
        println!("k = {k:3}: a gather moves {gather:5}, a sum {sum:5}: {}", moved(&dot.lower((a, b))?));
    }
    Ok(())
}
// ANCHOR_END: crossover

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("x", 2), ("y", 2)])?;
    let (a, b) = operands();
    let (a, b) = (a.put(&mesh, p!["x", "y"]), b.put(&mesh, p!["y", _]));
    let dot = jit(|a: &Array, b: &Array| a.dot_to(b, p!["x", _]));
    println!("{}: {}", type_of(dot.call((&a, &b))?), moved(&dot.lower((&a, &b))?));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    // Columns, then rows: the first product is case 1, the second case 3, with one sum for both.
    let mesh = Mesh::new([("model", 4)])?;
    let x = Array::ones([16, 32]).put(&mesh, p![]);
    let (up, down) =
        (Array::ones([32, 64]).put(&mesh, p![_, "model"]), Array::ones([64, 32]).put(&mesh, p!["model", _]));
    let block = jit(|x: &Array, up: &Array, down: &Array| x.dot(up).relu().dot_to(down, p![]));
    assert_collectives!(block.lower((&x, &up, &down))?, AllReduce("model") x 1);
    println!("{}", moved(&block.lower((&x, &up, &down))?));
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    // All that moves has as many rows as A, 64 or 640, so the choice changes at the same k.
    let mesh = Mesh::without_devices([("X", 8)])?;
    let dot = jit(|a: &Array, b: &Array| a.dot(b));
    for rows in [64, 640] {
        for k in [32, 48] {
            let (a, b) = (F32.array_type([rows, k]).on(&mesh, p![_, "X"]), F32.array_type([k, 32]).on(&mesh, p![]));
            println!("{rows} rows, k = {k}: {}", moved(&dot.lower((a, b))?));
        }
    }
    Ok(())
}
// ANCHOR_END: exercise3
