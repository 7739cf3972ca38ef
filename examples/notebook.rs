//! Sharded arrays, the three modes, one layer in each mode, and a training loop.
use atmesh::prelude::*;
use std::collections::BTreeMap;

fn main() -> Result<()> {
    data_sharding()?;
    automatic()?;
    explicit()?;
    manual()?;
    layer_three_ways()?;
    training()
}

// ANCHOR: data
fn data_sharding() -> Result<()> {
    println!("{:?}", atmesh::devices(8)?);
    let a = Array::arange(0.0..32.0f32).reshape([4, 8]);
    println!("{:?}\n{}", a.devices()?, a.visualize()); // one device

    let mesh = Mesh::new([("x", 2), ("y", 4)])?;
    let a = a.put(&mesh, p!["x", "y"]);
    println!("{}\n{}", type_of(&a), a.visualize());
    for shard in a.shards()? {
        println!("{} {:?} {}", shard.device, shard.index, shard.data);
    }
    Ok(())
}
// ANCHOR_END: data

// ANCHOR: auto
fn f_elementwise(x: &Array) -> Array {
    2.0 * x.sin() + 1.0
}

fn automatic() -> Result<()> {
    let mesh = Mesh::auto([("x", 2), ("y", 4)])?;
    let a = Array::arange(0.0..32.0f32).reshape([4, 8]).put(&mesh, p!["x", "y"]);

    let result = jit(f_elementwise).call(&a)?;
    println!("Shardings match: {}", a.sharding()? == result.sharding()?);

    let f_contract = jit(|x: &Array| x.sum(0));
    println!("{}", f_contract.call(&a)?.visualize());

    // By default the result is replicated over x; a constraint asks for another sharding.
    let f_contract_2 = jit(|x: &Array| x.sum(0).constrain(p![("x", "y")]));
    let result = f_contract_2.call(&a)?;
    println!("{}\n{result}", result.visualize());
    Ok(())
}
// ANCHOR_END: auto

// ANCHOR: explicit
axes!(X, Y); // a typo in X is a compile error

fn explicit() -> Result<()> {
    let f = jit(|a: &Array| {
        println!("array type: {}", type_of(a)); // printed while tracing
        2 * a
    });
    println!("{}", f.call(Array::arange(0..8))?);

    let mesh = Mesh::new([(X, 2), (Y, 4)])?;
    let a = Array::arange(0..8).reshape([4, 2]);
    println!("a type: {}", type_of(&a));
    println!("a_sharded type: {}", type_of(a.put(&mesh, p![X, _])));

    let a0 = Array::arange(0..4).reshape([4, 1]).put(&mesh, p![X, _]);
    let a1 = Array::arange(0..8).reshape([1, 8]).put(&mesh, p![_, Y]);
    let add = jit(|a: &Array, b: &Array| {
        let ans = a + b;
        println!("a sharding: {}", type_of(a));
        println!("b sharding: {}", type_of(b));
        println!("ans sharding: {}", type_of(&ans));
        ans
    });
    let sum = add.call((&a0, &a1))?;
    println!("{sum}");

    // An error is a value: it is reported when the type or the data is asked for.
    let bad = (a0.reshape([4]) + Array::arange(0..4).put(&mesh, p![Y])) * 2;
    if let Err(e) = bad.ty() {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: explicit

// ANCHOR: manual
fn manual() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let a = Array::arange(0.0..32.0f32);
    println!("global: {}", type_of(&a));

    let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        println!("on a device: {}", type_of(x));
        f_elementwise(x)
    });
    println!("{}", f.call(&a)?);

    // Each device sums its own block.
    let a = Array::arange(0..32);
    let sums = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x.sum(Dims::keep(..)));
    println!("{}", sums.call(&a)?);

    // `psum` adds up the sums of all devices.
    let total = shard_map(&mesh, p!["X"], p![], |x: &Array| x.sum(..).psum("X"));
    println!("{}", total.call(&a)?);
    Ok(())
}
// ANCHOR_END: manual

// ANCHOR: layer
fn layer(x: &Array, w: &Array, b: &Array) -> Array {
    (x.dot(w) + b).logistic()
}

fn layer_three_ways() -> Result<()> {
    let [_, xk, wk, bk] = Key::new(1701).split();
    let (x, w, b) = (xk.normal([32]), wk.normal([32, 4]), bk.normal([4]));

    // Auto: shard the input, and the partitioner chooses the rest.
    let mesh = Mesh::auto([("X", 8)])?;
    let y = jit(layer).call((x.put(&mesh, p!["X"]), w.put(&mesh, p![]), &b))?;
    println!("auto: {y}");

    // Alternatively, constrain the inputs inside the function.
    let constrained =
        jit(|x: &Array, w: &Array, b: &Array| layer(&x.constrain(p!["X"]), &w.constrain(p!["X", _]), b));
    println!("constrained: {}", constrained.on(&mesh).call((&x, &w, &b))?);

    // Explicit: the same function; the shardings are in the types.
    let mesh = Mesh::new([("X", 8)])?;
    let (xs, ws) = (x.put(&mesh, p!["X"]), w.put(&mesh, p![]));
    let typed = jit(|x: &Array, w: &Array, b: &Array| {
        println!("x sharding: {}", type_of(x));
        println!("W sharding: {}", type_of(w));
        println!("b sharding: {}", type_of(b));
        let out = layer(x, w, b);
        println!("out sharding: {}", type_of(&out));
        out
    });
    println!("explicit: {}", typed.call((&xs, &ws, &b))?);
    let lowered = typed.lower((&xs, &ws, &b))?;
    println!("{}", lowered.collectives()); // kind, bytes, source line
    assert_collectives!(lowered, AllReduce("X") x 1);

    // Manual: each device multiplies its blocks, then `psum` adds the results.
    let specs = (p!["X"], p!["X", _], p![_]);
    let by_hand =
        shard_map(&mesh, specs, p![_], |x: &Array, w: &Array, b: &Array| (x.dot(w).psum("X") + b).logistic());
    println!("manual: {}", jit(by_hand).call((&x, &w, &b))?);
    Ok(())
}
// ANCHOR_END: layer

// ANCHOR: training
type Params = BTreeMap<&'static str, Array>;

fn training() -> Result<()> {
    const LEARNING_RATE: f64 = 0.01;
    let (batch, dim) = (128 * 8, 32);
    let mesh = Mesh::auto([("X", 8)])?;
    let data = p!["X", _];

    let [xk, wk] = Key::new(1701).split();
    let x = xk.normal([batch, dim]);
    let w_true = wk.normal([dim, 1]);
    let y = x.dot(&w_true).gt(0).astype(F32);
    let (x, y) = (x.put(&mesh, data), y.put(&mesh, data));

    let params = BTreeMap::from([("w", Array::zeros([dim, 1])), ("b", Array::zeros([1]))]);
    let mut params = tree::put(&params, &mesh, p![]);

    let train_step = jit(|p: &Params, x: &Array, y: &Array| {
        let (loss, grads) = value_and_grad(p, |p| {
            let logits = x.dot(&p["w"]) + &p["b"];
            (logits.logistic() - y).square().mean(..)
        });
        (loss, tree::map2(p, &grads, |p, g| p - LEARNING_RATE * g))
    })
    .in_specs((p![], data, data));
    println!("{}", train_step.lower((&params, &x, &y))?.collectives());

    for step in 0..100 {
        let (loss, next) = train_step.call((&params, &x, &y))?;
        params = next;
        if step % 10 == 0 {
            println!("step {step}: loss {:.6}", loss.item::<f32>()?);
        }
    }
    let guesses = (x.dot(&params["w"]) + &params["b"]).gt(0).astype(F32);
    let right = guesses.eq(&y).astype(F32).mean(..).item::<f32>()?;
    println!("{:.1} % of the labels are right", 100.0 * right);
    Ok(())
}
// ANCHOR_END: training
