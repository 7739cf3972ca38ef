use atmesh::Lowered;
use atmesh::prelude::*;

fn main() -> Result<()> {
    println!("== three");
    three()?;
    println!("== batch");
    batch()?;
    println!("== island");
    island()?;
    println!("== over");
    over()?;
    println!("== mistake");
    mistake()?;
    println!("== exercise1");
    exercise_1()?;
    println!("== exercise2");
    exercise_2()
}

type Operands = (Array, Array, Array);

// ANCHOR: three
fn layer(x: &Array, w: &Array, b: &Array) -> Array {
    (x.dot(w) + b).logistic()
}

// ANCHOR_END: three

fn three() -> Result<()> {
    let [xk, wk, bk] = Key::new(1701).split();
    let (x, w, b) = (xk.normal([16, 32]), wk.normal([32, 16]), bk.normal([16]));
    // ANCHOR: three
    let (xs, ws) = (p![_, "X"], p!["X", _]); // the contracted dimension is sharded
    // ANCHOR_END: three
    let place = |mesh: &Mesh| (x.put(mesh, xs), w.put(mesh, ws), b.put(mesh, p![]));

    // ANCHOR: three
    let auto = Mesh::auto([("X", 8)])?;
    let by_partitioner = jit(layer);
    let mesh = Mesh::new([("X", 8)])?;
    let by_types = jit(|x: &Array, w: &Array, b: &Array| (x.dot_to(w, p![]) + b).logistic());
    let by_hand = jit(shard_map(&mesh, (xs, ws, p![]), p![], |x: &Array, w: &Array, b: &Array| {
        (x.dot(w).psum("X") + b).logistic()
    }));
    // ANCHOR_END: three

    println!("{:9} {:24} {:11} {:>6} {:>6}", "mode", "result", "collective", "bytes", "peak");
    let row = |mode: &str, program: Lowered<Operands, Array>, y: Array| -> Result<()> {
        let all = program.collectives();
        let kinds: Vec<&str> = all.iter().map(|c| c.kind.name()).collect();
        println!(
            "{mode:9} {:24} {:11} {:6} {:6}",
            type_of(&y).to_string(),
            kinds.join(", "),
            all.bytes(),
            all.peak_bytes()
        );
        assert!(y.allclose(&layer(&x, &w, &b))?);
        Ok(())
    };
    let args = place(&auto);
    row("auto", by_partitioner.lower(&args)?, by_partitioner.call(&args)?)?;
    let args = place(&mesh);
    row("explicit", by_types.lower(&args)?, by_types.call(&args)?)?;
    row("manual", by_hand.lower(&args)?, by_hand.call(&args)?)
}

// ANCHOR: batch
fn batch() -> Result<()> {
    use atmesh::AxisType::{Auto, Explicit};
    // Types track the batch; the partitioner chooses how the weights are sharded.
    let mesh = Mesh::with_types([("data", 2, Explicit), ("model", 4, Auto)])?;
    let x = Array::ones([16, 32]).put(&mesh, p!["data", _]);
    let w = Array::ones([32, 64]).put(&mesh, p![]).constrain(p![_, "model"]);
    let y = jit(|x: &Array, w: &Array| x.dot(w).relu()).call((&x, &w))?;
    println!("{} · {} → {}", type_of(&x), type_of(&w), type_of(&y));
    println!("{}", y.sharding()?.expect("it is on a mesh"));
    Ok(())
}
// ANCHOR_END: batch

// ANCHOR: island
fn island() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 2)])?;
    let x = Array::arange(0.0..16.0f32).reshape([4, 4]).put(&mesh, p!["X", "Y"]);
    // x · xᵀ is a type error, because X would shard both dimensions; here auto mode decides.
    let f = jit(|x: &Array| {
        let gram = auto_axes(x, p!["X", _], |x| x.dot(x.t()));
        gram / 2.0
    });
    println!("{}", type_of(f.call(&x)?));
    println!("{}", f.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: island

// ANCHOR: over
fn over() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = Key::new(0).normal([8, 8]).put(&mesh, p!["X", "Y"]);
    // Manual over X; Y stays explicit, and appears in the types of the body.
    let centred = shard_map(&mesh, p!["X", _], p!["X", _], |x: &Array| {
        println!("inside: {}", type_of(x));
        x - x.sum(0).psum("X") / 8.0
    })
    .over("X");
    let y = centred.call(&x)?;
    println!(
        "outside: {}; columns sum to 0: {}",
        type_of(&y),
        y.sum(0).allclose_with(&Array::zeros([8]), 0.0, 1e-5)?
    );
    Ok(())
}
// ANCHOR_END: over

// ANCHOR: exercise1
fn exercise_1() -> Result<()> {
    let mesh = Mesh::new([("X", 8)])?;
    let (x, w) = (Array::ones([64, 32]).put(&mesh, p![_, "X"]), Array::ones([32, 16]).put(&mesh, p!["X", _]));
    let half = jit(|x: &Array, w: &Array| x.dot_to(w, p!["X", _]).logistic());
    println!("{}", type_of(half.call((&x, &w))?));
    println!("{}", half.lower((&x, &w))?.collectives());
    Ok(())
}
// ANCHOR_END: exercise1

// ANCHOR: exercise2
fn exercise_2() -> Result<()> {
    // Rows by hand, columns by types: the program sums over X, the typing rules sum over Y.
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = Array::arange(0..64).astype(F32).reshape([8, 8]).put(&mesh, p!["X", "Y"]);
    let norm = shard_map(&mesh, p!["X", _], p![], |x: &Array| x.square().sum(..).psum("X").sqrt()).over("X");
    let f = jit(norm);
    println!("{} {}", f.call(&x)?, x.norm(..));
    println!("{}", f.lower(&x)?.collectives());
    Ok(())
}
// ANCHOR_END: exercise2

// ANCHOR: mistake
fn mistake() -> Result<()> {
    use atmesh::AxisType::{Auto, Explicit};
    let mesh = Mesh::with_types([("data", 2, Explicit), ("model", 4, Auto)])?;
    let x = Array::ones([16, 32]).put(&mesh, p!["data", _]);
    if let Err(e) = x.constrain(p![_, "data"]).ty() {
        println!("{e}");
    }
    println!("{}", type_of(x.constrain(p![_, "model"])));
    Ok(())
}
// ANCHOR_END: mistake
