use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== unrolled");
    unrolled()?;
    println!("== carry");
    carry()?;
    println!("== scan");
    scanned()?;
    println!("== while");
    until()?;
    println!("== branches");
    branches()?;
    println!("== collectives");
    collectives()?;
    println!("== error");
    rejected()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()?;
    println!("== exercise3");
    exercise_3()
}

fn unrolled() -> Result<()> {
    // ANCHOR: unrolled
    let step = |x: &Array| 0.5 * x + 1.0;
    // A Rust loop runs while the function is traced: each of its steps becomes equations.
    let rust = jit(|x: &Array| (0..100).fold(x.clone(), |x, _| step(&x)));
    // A `fori_loop` is one equation.
    let traced = jit(|x: &Array| fori_loop(0..100, x, |_, x| step(&x)));
    let x = Array::zeros([4]);
    let lines = |program: String| program.lines().count();
    println!(
        "{} lines and {} lines",
        lines(rust.trace(&x)?.to_string()),
        lines(traced.trace(&x)?.to_string())
    );
    println!("{} {}", rust.call(&x)?, traced.call(&x)?);
    // ANCHOR_END: unrolled
    Ok(())
}

// ANCHOR: carry
/// A carry is any tree of arrays. Its types, including shardings, are the same at every step.
fn carry() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([8]).put(&mesh, p!["X"]);
    // The power method: the carry is a vector and a scalar.
    let m = Key::new(0).uniform([8, 8]).put(&mesh, p!["X", _]);
    let f = jit(|m: &Array, x: &Array| {
        fori_loop(0..50, (x, 0.0f32), |_, (x, _)| {
            let y = m.dot(x.reshard(p![])); // rows of m are sharded, so y is sharded like x
            let length = y.square().sum(..).sqrt();
            (&y / &length, length)
        })
    });
    let (vector, value) = f.call((&m, &x))?;
    println!("{}, largest eigenvalue {value:.4}", type_of(&vector));
    println!("{}", f.lower((&m, &x))?.collectives());
    Ok(())
}
// ANCHOR_END: carry

// ANCHOR: scan
/// Runs one layer per slice of stacked weights; the results of the steps are stacked.
fn scanned() -> Result<()> {
    let mesh = Mesh::new([("X", 2)])?;
    let weights = Key::new(0).normal([6, 8, 8]).put(&mesh, p![_, _, "X"]); // six layers
    let x = Array::ones([8]).put(&mesh, p![]);
    let f = jit(|x: &Array, weights: &Array| {
        scan(x, weights, |x, w| {
            let y = x.dot(w).tanh(); // 8@X
            let norm = y.square().sum(..);
            (y.reshard(p![]), norm)
        })
    });
    let (last, norms) = f.call((&x, &weights))?;
    println!("{} and {}: {}", type_of(&last), type_of(&norms), norms);
    println!("{}", f.lower((&x, &weights))?.collectives());
    Ok(())
}
// ANCHOR_END: scan

// ANCHOR: while
fn until() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(1.0..9.0f32).put(&mesh, p!["X"]);
    let f =
        jit(|x: &Array| while_loop((x, 0), |(x, _)| x.square().sum(..).gt(1.0), |(x, n)| (x / 2.0, n + 1)));
    let (x, n) = f.call(&x)?;
    println!("{n} halvings: {x}");
    // In `shard_map`, a loop without collectives may take a different number of steps per device.
    let collatz = shard_map(&mesh, p!["X"], p!["X"], |x: &Array| {
        let (_, n) = while_loop(
            (x.clone(), Array::from([0]).pvary("X")),
            |(x, _)| x.ne(1).all(..),
            |(x, n)| ((&x % 2).eq(0).select(&x / 2, 3 * &x + 1), n + 1),
        );
        n
    });
    println!("steps to 1 on each device: {}", collatz.call(Array::from([6, 7, 8, 9]).put(&mesh, p!["X"]))?);
    Ok(())
}
// ANCHOR_END: while

// ANCHOR: branches
fn branches() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);
    let f = jit(|x: &Array, which: &Array| {
        let clipped = cond(x.max(..).gt(5.0), || x.clamp(0.0, 5.0), || x.clone());
        switch(which, &[&|| clipped.clone(), &|| -&clipped, &|| 2.0 * &clipped])
    });
    for which in 0..3 {
        println!("{}", f.call((&x, which))?);
    }
    Ok(())
}
// ANCHOR_END: branches

// ANCHOR: collectives
fn collectives() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::arange(0.0..8.0f32).put(&mesh, p!["X"]);
    // The loop only adds to `sum`.
    let adds = jit(|x: &Array| {
        let (_, sum) = fori_loop(0..10, (x, 0.0f32), |_, (x, sum)| (0.5 * &x, sum + x.sum(..)));
        sum
    });
    // Each step reads the sum of the step before.
    let reads = jit(|x: &Array| {
        let (_, sum) = fori_loop(0..10, (x, 0.0f32), |_, (x, sum)| (0.5 * &x + 0.01 * sum, x.sum(..)));
        sum
    });
    println!("{}", adds.lower(&x)?.collectives());
    println!("{}", reads.lower(&x)?.collectives());
    println!("{} {}", adds.call(&x)?, reads.call(&x)?);
    Ok(())
}
// ANCHOR_END: collectives

// ANCHOR: error
fn rejected() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([8]).put(&mesh, p!["X"]);
    let changes = jit(|x: &Array| fori_loop(0..3, x, |_, x| x.reshard(p![])));
    if let Err(e) = changes.call(&x) {
        println!("{e}");
    }
    let over_split = jit(|x: &Array| scan(0.0f32, x, |s, x| (s + &x, x)));
    if let Err(e) = over_split.call(&x) {
        println!("{e}");
    }
    Ok(())
}
// ANCHOR_END: error

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let a = (Key::new(0).uniform([8, 8]) + 8.0 * Array::eye([8, 8], 0)).put(&mesh, p!["X", _]);
    let b = Array::ones([8]).put(&mesh, p!["X"]);
    // Jacobi iteration: x ← x + (b - a x) / diagonal, until the residual is small.
    let solve = jit(|a: &Array, b: &Array| {
        let diagonal = (a * Array::eye([8, 8], 0)).sum(1);
        let rest = |x: &Array| b - a.dot(x.reshard(p![]));
        while_loop(0.0 * b, |x| rest(x).square().sum(..).gt(1e-10), |x| &x + rest(&x) / &diagonal)
    });
    let x = solve.call((&a, &b))?;
    println!("{}; solved: {}", type_of(&x), a.dot(x.reshard(p![])).allclose_with(&b, 1e-4, 1e-4)?);
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    let (_, sums) = scan(Array::from(0), Array::from([3, 1, 4, 1, 5]), |s, x| (&s + &x, &s + &x));
    println!("{sums}");
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: exercise3
fn exercise_3() -> Result<()> {
    let mesh = Mesh::new([("X", 4)])?;
    let x = Array::ones([8]).put(&mesh, p!["X"]);
    let whole = fori_loop(0..3, Array::zeros([8]).put(&mesh, p![]), |_, sum| sum + &x);
    println!("{}", whole.ty().is_err());
    println!("{}", type_of(fori_loop(0..3, x.zeros_like(), |_, sum| sum + &x)));
    Ok(())
}
// ANCHOR_END: exercise3
