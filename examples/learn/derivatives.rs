use atmesh::ShardMap;
use atmesh::prelude::*;
use atmesh::{WhileOptions, while_loop_with};

fn main() -> Result<()> {
    println!("== grad");
    gradient()?;
    println!("== table");
    table()?;
    println!("== together");
    together()?;
    println!("== parallel");
    parallel()?;
    println!("== pull");
    pull()?;
    println!("== rules");
    rules()?;
    println!("== bounded");
    bounded()?;
    println!("== checkpoint");
    checkpointed()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

// ANCHOR: grad
fn gradient() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);
    let f = |x: &Array| x.square().sum(..);
    let g = grad(&x, |x| f(&x));
    println!("{} → {}: {g}", type_of(&x), type_of(&g));
    let value = jit(f);
    let slope = jit(|x: &Array| grad(x, |x| f(&x)));
    println!("the value: {}", value.lower(&x)?.collectives());
    println!("the gradient: {}", slope.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: grad

// ANCHOR: table
/// Prints what a linear function of blocks communicates, forward and in its derivative.
fn forward_and_back(what: &str, f: ShardMap<'_, Array, Array>, x: &Array) -> Result<()> {
    let kinds = |c: &atmesh::Collectives| match c.is_empty() {
        true => "nothing".to_string(),
        false => c.iter().map(|c| c.kind.name()).collect::<Vec<_>>().join(", "),
    };
    let y = f.call(x)?;
    let back = jit(|x: &Array, ct: &Array| vjp(x, |x| f.call(x)).1.call(ct));
    let forward = kinds(f.lower(x)?.collectives());
    println!("{what:26} forward: {forward:14} backward: {}", kinds(back.lower((x, &y))?.collectives()));
    Ok(())
}

fn table() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let split = Array::arange(0.0..16.0f32).put(&mesh, p!["X"]);
    let copied = Array::arange(0.0..4.0f32).put(&mesh, p![]);
    let on = |i: Spec, o: Spec, f: fn(&Array) -> Array| shard_map(&mesh, i, o, f);
    forward_and_back("psum", on(p!["X"], p![], |x| x.psum("X")), &split)?;
    forward_and_back("a replicated argument", on(p![], p!["X"], |x| x.pvary("X")), &copied)?;
    forward_and_back("all_gather", on(p!["X"], p!["X"], |x| x.all_gather("X", CollectiveDim::tiled(0))), &split)?;
    forward_and_back(
        "all_gather, invarying",
        on(p!["X"], p![], |x| x.all_gather("X", CollectiveDim::tiled(0).invarying())),
        &split,
    )?;
    forward_and_back(
        "psum_scatter",
        on(p!["X"], p!["X"], |x| x.psum_scatter("X", CollectiveDim::tiled(0))),
        &split,
    )?;
    forward_and_back(
        "all_to_all",
        on(p!["X"], p!["X"], |x| x.all_to_all("X", AllToAll::split(0).concat(0))),
        &split,
    )?;
    forward_and_back("ppermute", on(p!["X"], p!["X"], |x| x.ppermute("X", Permutation::ring(1))), &split)
}
// ANCHOR_END: table

// ANCHOR: together
fn together() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);
    let factor = Array::from(2.0f32).put(&mesh, p![]);
    let f = |(x, factor): (Array, Array)| (x * factor).sum(..);
    let (value, (by_x, by_factor)) = value_and_grad((&x, &factor), f);
    println!("{value}; {} and {}: {by_factor}", type_of(&by_x), type_of(&by_factor));
    Ok(())
}
// ANCHOR_END: together

// ANCHOR: parallel
/// Finds the one all-reduce of data parallelism: it sums the gradient of the shared weights.
fn parallel() -> Result<()> {
    let mesh = Mesh::new([("data", 8)])?;
    let x = Key::new(0).normal([64, 32]).put(&mesh, p!["data", _]);
    let w = Key::new(1).normal([32, 16]).put(&mesh, p![]);
    let step = jit(|w: &Array, x: &Array| w - 0.1 * grad(w, |w| x.dot(w).square().sum(..)));
    println!("{}", step.lower((&w, &x))?.collectives());
    Ok(())
}
// ANCHOR_END: parallel

// ANCHOR: pull
fn pull() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..4.0f32).put(&mesh, p!["X"]);
    let (y, back) = vjp(&x, |x| x.square());
    println!(
        "{y}; a row of the Jacobian: {}",
        back.call(Array::from([0.0f32, 0.0, 1.0, 0.0]).put(&mesh, p!["X"]))
    );
    let (y, dy) = jvp(&x, Array::from([0.0f32, 0.0, 1.0, 0.0]).put(&mesh, p!["X"]), |x| x.square());
    println!("{y}; a column: {dy}");
    Ok(())
}
// ANCHOR_END: pull

// ANCHOR: rules
/// The identity, whose gradient is at most 1 in each element.
fn clip_gradient(x: &Array) -> Array {
    custom_vjp(x, |x| (x, ()), |(), ct| ct.clamp(-1.0, 1.0))
}

fn rules() -> Result<()> {
    let x = Array::from([3.0f32, 0.25, -2.0]);
    println!("without a rule: {}", grad(&x, |x| x.square().sum(..)));
    println!("with a rule: {}", grad(&x, |x| clip_gradient(&x).square().sum(..)));
    // sqrt, whose slope at 0 is 0 instead of infinite
    let sqrt = |x: &Array| {
        custom_jvp(
            x,
            |x| x.sqrt(),
            |x, dx| {
                let y = x.sqrt();
                let slope = y.gt(0.0).select(0.5 / &y, 0.0);
                (y, dx * slope)
            },
        )
    };
    println!("sqrt: {}", grad(Array::from([0.0f32, 4.0]), |x| sqrt(&x).sum(..)));
    Ok(())
}
// ANCHOR_END: rules

// ANCHOR: bounded
fn bounded() -> Result<()> {
    let options = WhileOptions::default().max_steps(100);
    // doubles until the number is at least 100: seven times
    let double = |x: &Array| while_loop_with(x, |x| x.lt(100.0), |x| x * 2.0, options);
    println!("the gradient: {}", grad(Array::from(1.0f32), |x| double(&x)));
    Ok(())
}
// ANCHOR_END: bounded

// ANCHOR: checkpoint
fn checkpointed() -> Result<()> {
    let x = Key::new(0).normal([256, 256]);
    let layer = |x: &Array| (0..4).fold(x.clone(), |x, _| x.sin().exp().sin());
    let kept = jit(|x: &Array| grad(x, |x| layer(&layer(&x)).sum(..)));
    let again =
        jit(|x: &Array| grad(x, |x| checkpoint(checkpoint(&x, |x| layer(&x)), |x| layer(&x)).sum(..)));
    println!("kept: peak {} bytes", kept.lower(&x)?.collectives().peak_bytes());
    println!("computed again: peak {} bytes", again.lower(&x)?.collectives().peak_bytes());
    println!("the same: {}", kept.call(&x)?.allclose(&again.call(&x)?)?);
    Ok(())
}
// ANCHOR_END: checkpoint

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..4.0f32).put(&mesh, p!["X"]);
    let f = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| x * x.ppermute("X", Permutation::ring(1)));
    // y_i = x_i x_{i-1}: the derivative with respect to x_i is x_{i-1} + x_{i+1}.
    println!("{}", grad(&x, |x| f.call(&x).map(|y| y.sum(..))));
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let mesh = Mesh::new([("model", 4)])?;
    let x = Array::ones([16, 32]).put(&mesh, p![]);
    let (up, down) =
        (Array::ones([32, 64]).put(&mesh, p![_, "model"]), Array::ones([64, 32]).put(&mesh, p!["model", _]));
    let loss = |x: &Array, up: &Array, down: &Array| x.dot(up).relu().dot_to(down, p![]).square().sum(..);
    let g =
        jit(|x: &Array, up: &Array, down: &Array| grad((x, up, down), |(x, up, down)| loss(&x, &up, &down)));
    println!("{}", g.lower((&x, &up, &down))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    let x = Array::from([1.0f32, 2.0]);
    if let Err(e) = grad(&x, |x| x.square()).ty() {
        println!("{e}");
    }
    println!("{}", grad(&x, |x| x.square().sum(..)));
    Ok(())
}
// ANCHOR_END: mistake

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::new([("data", 2), ("model", 4)])?;
    let x = F32.array_type([512, 64]).on(&mesh, p!["data", _]);
    let w = F32.array_type([64, 32]).on(&mesh, p![_, "model"]);
    let step = jit(|w: &Array, x: &Array| grad(w, |w| x.dot(w).square().sum(..)));
    println!("{}", step.lower((w, x))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise3
