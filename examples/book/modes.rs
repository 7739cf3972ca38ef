//! Mixed modes: each mesh axis has its own mode, and a region of a program can change it.

use crate::show::{communication, rejected, section};
use atmesh::prelude::*;
use atmesh::{AxisType, auto_axes_over, explicit_axes_over};

pub(crate) fn chapter() -> Result<()> {
    section("mixed");
    // ANCHOR: mixed
    let mesh = Mesh::with_types([("data", 2, AxisType::Explicit), ("model", 4, AxisType::Auto)])?;
    let x = Key::new(0).normal([8, 16]).put(&mesh, p!["data", _]);
    let w = Key::new(1).normal([16, 32]).put(&mesh, p![_, "model"]);
    println!("{}, {}", type_of(&x), type_of(&w));
    let layer = jit(|x: &Array, w: &Array| {
        let y = x.dot(w);
        println!("traced: {}", type_of(&y));
        y.relu()
    });
    let program = layer.lower((&x, &w))?;
    println!("{}", communication(program.collectives()));
    let y = program.compile()?.call((&x, &w))?;
    println!("{}, {}", type_of(&y), y.sharding()?.expect("it is on a mesh"));
    // ANCHOR_END: mixed

    section("constrain");
    // ANCHOR: constrain
    let pinned = jit(|x: &Array, w: &Array| x.dot(w).constrain(p![_, "model"]).relu());
    println!("{}", pinned.call((&x, &w))?.sharding()?.expect("it is on a mesh"));
    rejected(x.constrain(p!["data"]).ty())?;
    rejected(x.reshard(p!["model", _]).ty())?;
    // ANCHOR_END: constrain

    section("auto");
    // ANCHOR: auto
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let x = Key::new(0).normal([8, 8]).put(&mesh, p!["X", "Y"]);
    rejected(x.dot(&x).ty())?;
    let power = jit(|x: &Array| {
        auto_axes(x, p!["X", "Y"], |x| {
            println!("inside: {}", type_of(&x));
            x.dot(&x).dot(&x)
        })
    });
    let program = power.lower(&x)?;
    println!("{}", communication(program.collectives()));
    let y = program.compile()?.call(&x)?;
    println!("outside: {}", type_of(&y));
    // ANCHOR_END: auto
    let whole = x.reshard(p![]);
    assert!(y.reshard(p![]).allclose(&whole.dot(&whole).dot(&whole))?);

    section("over");
    // ANCHOR: over
    let y = auto_axes_over("Y", &x, p!["X", "Y"], |x| {
        println!("inside: {}", type_of(&x));
        x.exp()
    });
    println!("outside: {}", type_of(&y));
    // ANCHOR_END: over

    section("captures");
    // ANCHOR: captures
    let b = Array::arange(0.0..8.0f32).put(&mesh, p!["Y"]);
    let y = auto_axes(&x, p!["X", _], |x| {
        println!("inside: {}, captured: {}", type_of(&x), type_of(x.sum(0) + &b));
        x + &b
    });
    println!("outside: {}", type_of(&y));
    // ANCHOR_END: captures

    section("grad");
    // ANCHOR: grad
    let loss = |x: &Array| auto_axes(x, p![], |x| x.dot(x.t()).square().sum(..));
    let g = jit(|x: &Array| grad(x, |x| loss(&x)));
    println!("{} → {}", type_of(&x), type_of(g.call(&x)?));
    // ANCHOR_END: grad
    let alone = grad(&whole, |x| x.dot(x.t()).square().sum(..));
    assert!(g.call(&x)?.reshard(p![]).allclose(&alone)?);

    section("explicit");
    // ANCHOR: explicit
    let auto = Mesh::auto([("X", 2), ("Y", 4)])?;
    let x = Key::new(0).normal([8, 8]).put(&auto, p!["X", _]);
    let w = Key::new(1).normal([8, 8]).put(&auto, p![]);
    let f = jit(|x: &Array, w: &Array| {
        let x = x.sin();
        println!("outside: {}", type_of(&x));
        explicit_axes((&x, w), (p!["X", _], p![_, "Y"]), |(x, w)| {
            let y = x.dot(&w);
            println!("inside: {}, {} → {}", type_of(&x), type_of(&w), type_of(&y));
            y
        })
    });
    let y = f.call((&x, &w))?;
    println!("outside: {}, {}", type_of(&y), y.sharding()?.expect("it is on a mesh"));
    // ANCHOR_END: explicit
    assert!(y.allclose(&Key::new(0).normal([8, 8]).sin().dot(Key::new(1).normal([8, 8])))?);

    section("nested");
    // ANCHOR: nested
    let y = auto_axes(Array::ones([8, 8]).put(&mesh, p!["X", "Y"]), p!["X", _], |x| {
        let y = explicit_axes_over("Y", &x, p![_, "Y"], |x| {
            println!("innermost: {}", type_of(&x));
            2.0 * x
        });
        println!("inside: {}", type_of(&y));
        y
    });
    println!("outside: {}", type_of(&y));
    // ANCHOR_END: nested

    section("manual");
    // ANCHOR: manual
    let x = Key::new(0).normal([8, 8]).put(&mesh, p!["X", "Y"]);
    let rows = shard_map(&mesh, p!["X", _], p!["X", _], |x: &Array| {
        println!("inside: {}", type_of(x));
        x / x.square().sum(..).psum("X").sqrt()
    })
    .over("X");
    let f = jit(move |x: &Array| rows.call(2.0 * x.reshard(p!["X", _])));
    println!("outside: {}", type_of(f.call(&x)?));
    // ANCHOR_END: manual

    section("errors");
    // ANCHOR: errors
    rejected(auto_axes(&x, p!["X", "X"], |x| x).ty())?;
    rejected(auto_axes_over("Z", &x, p!["X"], |x| x).ty())?;
    rejected(auto_axes(Array::ones([4]), p![], |x| x).ty())?;
    rejected(explicit_axes(Array::ones([6]).put(&auto, p![]), p!["Y"], |x| x).ty())?;
    // ANCHOR_END: errors

    section("exercise1");
    // ANCHOR: exercise1
    let mesh = Mesh::new([("data", 2), ("model", 4)])?;
    let x = Key::new(0).normal([8, 16]).put(&mesh, p!["data", _]);
    let (up, down) = (Key::new(1).normal([16, 32]), Key::new(2).normal([32, 16]));
    let (up, down) = (up.put(&mesh, p![_, "model"]), down.put(&mesh, p!["model", _]));
    let f = jit(|(x, up, down): &(Array, Array, Array)| {
        auto_axes_over("model", (x, up, down), p!["data", _], |(x, up, down)| {
            println!("inside: {}, {}, {}", type_of(&x), type_of(&up), type_of(&down));
            x.dot(&up).relu().dot(&down)
        })
    });
    let args = (x.clone(), up, down);
    println!("outside: {}", type_of(f.call(&args)?));
    println!("{}", communication(f.lower(&args)?.collectives()));
    // ANCHOR_END: exercise1

    section("exercise2");
    // ANCHOR: exercise2
    let largest = shard_map(&mesh, p!["data", _], p![], |x: &Array| x.max(..).pmax("data"));
    let f = jit(move |x: &Array| largest.call(x).map(|most| x / most));
    println!("{}", communication(f.lower(&x)?.collectives()));
    println!("{}", type_of(f.call(&x)?));
    // ANCHOR_END: exercise2
    Ok(())
}
