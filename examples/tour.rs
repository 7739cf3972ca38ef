//! A tour of atmesh: types, modes, halos, training, errors and device code.
//!
//! `cargo run --example tour -- [--engine threads]`
use atmesh::prelude::*;

fn main() -> Result<()> {
    let engine = EngineKind::from_args()?;
    println!("devices: {:?}\nengine: {engine}\n", atmesh::devices(8)?);
    types(engine)?;
    layer_three_ways(engine)?;
    halos(engine)?;
    training(engine)?;
    errors()?;
    threads()
}

/// Shows that shardings are part of the type.
fn types(engine: EngineKind) -> Result<()> {
    println!("== Types say where things are");
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let a = Array::arange(0..8).reshape([4, 2]).put(&mesh, p!["X", _]);
    println!("{}", type_of(&a));
    a.visualize().print();
    println!();
    let column = Array::arange(0..4).reshape([4, 1]).put(&mesh, p!["X", _]);
    let row = Array::arange(0..8).reshape([1, 8]).put(&mesh, p![_, "Y"]);
    let add = jit(|a: &Array, b: &Array| a + b).engine(engine);
    let sum = add.call((&column, &row))?;
    println!("{} + {} = {}\n{sum}\n", type_of(&column), type_of(&row), type_of(&sum));
    Ok(())
}

fn layer(x: &Array, w: &Array, b: &Array) -> Array {
    (x.dot(w) + b).logistic()
}

/// Runs one layer in auto, explicit and manual mode: all give the same result.
fn layer_three_ways(engine: EngineKind) -> Result<()> {
    println!("== One layer, three modes");
    let [_, xk, wk, bk] = Key::new(1701).split();
    let (x, w, b) = (xk.normal([32]), wk.normal([32, 4]), bk.normal([4]));

    let auto = Mesh::auto([("X", 8)])?;
    let y = jit(layer).engine(engine).call((x.put(&auto, p!["X"]), &w, &b))?;
    println!("auto:     {y}");

    let mesh = Mesh::new([("X", 8)])?;
    let f = jit(layer).engine(engine);
    let args = (x.put(&mesh, p!["X"]), w.put(&mesh, p![]), b.clone());
    println!("explicit: {}", f.call(&args)?);

    let specs = (p!["X"], p!["X", _], p![_]);
    let by_hand =
        shard_map(&mesh, specs, p![_], |x: &Array, w: &Array, b: &Array| (x.dot(w).psum("X") + b).logistic());
    println!("manual:   {}", jit(by_hand).engine(engine).call((&x, &w, &b))?);

    let lowered = f.lower(&args)?;
    println!("{}", lowered.collectives());
    assert_collectives!(lowered, AllReduce("X") x 1);
    Ok(())
}

/// Shows that a stencil written as if for one device exchanges only the block edges.
fn halos(engine: EngineKind) -> Result<()> {
    println!("== The heat equation: 102 points on 8 devices");
    let mesh = Mesh::auto([("x", 8)])?;
    let x = Key::new(0).uniform([102]).put(&mesh, p!["x"]);
    let simulate = jit(|x: &Array| {
        fori_loop(0..100, x, |_, x| {
            let inner = 0.5 * x.slice(ix![1..-1]) + 0.25 * x.slice(ix![..-2]) + 0.25 * x.slice(ix![2..]);
            x.at(ix![1..-1]).set(inner)
        })
    })
    .engine(engine);
    println!("{}", simulate.call(&x)?.slice(ix![..6]));
    let lowered = simulate.lower(&x)?;
    println!("{}", lowered.collectives());
    assert_collectives!(lowered, Halo("x") x 1);
    Ok(())
}

/// Trains a model: gradients are sharded like the parameters.
fn training(engine: EngineKind) -> Result<()> {
    println!("== Training, data parallel");
    let mesh = Mesh::new([("X", 8)])?;
    let key = Key::new(1701);
    let x = key.normal([1024, 32]);
    let y = x.dot(key.normal([32, 1])).gt(0).astype(F32);
    let (x, y) = (x.put(&mesh, p!["X", _]), y.put(&mesh, p!["X", _]));
    let mut params = (Array::zeros([32, 1]).put(&mesh, p![]), Array::zeros([1]).put(&mesh, p![]));
    let step = jit(|p: &(Array, Array), x: &Array, y: &Array| {
        let (loss, g) = value_and_grad(p, |(w, b)| ((x.dot(&w) + b).logistic() - y).square().mean(..));
        (loss, tree::map2(p, &g, |p, g| p - 0.01 * g))
    })
    .engine(engine);
    for i in 0..100 {
        let loss;
        (loss, params) = step.call((&params, &x, &y))?;
        if i % 33 == 0 {
            println!("step {i:2}: loss {:.6}", loss.item::<f32>()?);
        }
    }
    println!("w: {}, b: {}\n", type_of(&params.0), type_of(&params.1));
    Ok(())
}

/// Shows that an ambiguous program is an error, whose help says what to write instead.
fn errors() -> Result<()> {
    println!("== An error");
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let a = Array::ones([8, 16]).put(&mesh, p![_, "X"]);
    let b = Array::ones([16, 4]).put(&mesh, p!["X", _]);
    if let Err(e) = a.dot(&b).ty() {
        println!("{e}\n");
    }
    println!("fixed: {}\n", type_of(a.dot_to(&b, p![])));
    Ok(())
}

/// Runs plain Rust on one thread per device, with the same collectives.
fn threads() -> Result<()> {
    println!("== Your own Rust on every device");
    let mesh = Mesh::new([("X", 8)])?;
    let x = Array::arange(0.0..32.0f32).put(&mesh, p!["X"]);
    let sums = spmd(&mesh, p!["X"], p![], |dev: &Device, x: atmesh::nd::ArrayView1<f32>| {
        let mine = atmesh::nd::arr1(&[x.sum()]);
        dev.psum(&mine, "X")
    });
    println!("the sum of 0..32 over 8 threads: {}", sums.call(&x)?);
    Ok(())
}
