//! Partial (unreduced) values: sums over devices that are delayed until you ask for them.

use crate::show::{communication, figure, section};
use atmesh::prelude::*;

pub(crate) fn chapter() -> Result<()> {
    section("meaning");
    // ANCHOR: meaning
    let mesh = Mesh::new([("X", 2)])?;
    let a = Array::arange(0.0..8.0f32).reshape([2, 4]).put(&mesh, p![_, "X"]);
    let b = Array::ones([4, 3]).put(&mesh, p!["X", _]);
    let parts = a.dot_to(&b, p![_, _; U: "X"]);
    println!("{}", type_of(&parts));
    for shard in parts.shards()? {
        println!("{} {:?}\n{}", shard.device, shard.index, shard.data);
    }
    println!("{}", parts.visualize());
    let whole = parts.reshard(p![]);
    println!("{}\n{whole}", type_of(&whole));
    // ANCHOR_END: meaning
    figure("unreduced-finish", &[("parts", &parts)], "parts.reshard(p![])", &[("whole", &whole)], "")?;

    section("make");
    // ANCHOR: make
    let x = Array::ones([4, 6]).put(&mesh, p!["X", _]);
    rule!(x.sum_to(0, p![_; U: "X"]); x);
    let (q, w) = (Array::ones([4, 6]).put(&mesh, p![_, "X"]), Array::ones([6, 2]).put(&mesh, p!["X", _]));
    rule!(q.dot_to(w, p![_, _; U: "X"]); q, w);
    let v = Array::arange(0.0..4.0f32).put(&mesh, p![]);
    rule!(v.reshard(p![_; U: "X"]); v);
    for shard in v.reshard(p![_; U: "X"]).shards()? {
        println!("{} {}", shard.device, shard.data);
    }
    let s = v.reshard(p!["X"]);
    rule!(s.reshard(p![_; U: "X"]); s);
    println!("{}", s.reshard(p![_; U: "X"]));
    for shard in s.reshard(p![_; U: "X"]).shards()? {
        println!("{} {}", shard.device, shard.data);
    }
    // ANCHOR_END: make

    section("finish");
    // ANCHOR: finish
    let u = v.reshard(p![_; U: "X"]);
    rule!(u.reshard(p![]); u);
    rule!(u.reshard(p!["X"]); u);
    // ANCHOR_END: finish

    section("linear");
    // ANCHOR: linear
    let t = (2.0 * &v).reshard(p![_; U: "X"]);
    rule!(t + u; t, u);
    rule!(t - u; t, u);
    rule!(-u; u);
    rule!(u.reshape([2, 2]); u);
    rule!(u.sum(..); u);
    rule!(u.slice(ix![1..3]); u);
    rule!(concat([u, u], 0); u);
    let r = v.reshard(p![_; R: "X"]);
    rule!(u * r; u, r);
    // ANCHOR_END: linear

    section("error");
    // ANCHOR: error
    rejected!(u.exp(); u);
    rejected!(u * u; u);
    rejected!(u + v; u, v);
    rejected!(u + 1.0; u);
    rejected!(3.0 * u; u);
    let three = Array::from(3.0f32).put(&mesh, p![; R: "X"]);
    rule!(three * u; three, u);
    // ANCHOR_END: error

    section("why");
    // ANCHOR: why
    let summands = parts.shards()?.iter().map(|s| s.data.square()).collect::<Vec<_>>();
    println!("the sum of the squares\n{}", &summands[0] + &summands[1]);
    println!("the square of the sum\n{}", whole.square());
    // ANCHOR_END: why

    section("later");
    // ANCHOR: later
    let twice = jit(|a: &Array, b: &Array| a.dot_to(b, p![]) + a.dot_to(2.0 * b, p![]));
    println!("summed at once: {}", communication(twice.lower((&a, &b))?.collectives()));
    let once = jit(|a: &Array, b: &Array| {
        let u = p![_, _; U: "X"];
        (a.dot_to(b, u) + a.dot_to(2.0 * b, u)).reshard(p![])
    });
    println!("summed at the end: {}", communication(once.lower((&a, &b))?.collectives()));
    assert_eq!(once.call((&a, &b))?.to_vec::<f32>()?, twice.call((&a, &b))?.to_vec::<f32>()?);
    // ANCHOR_END: later

    section("reduced");
    // ANCHOR: reduced
    let x = Array::ones([8, 4]).put(&mesh, p!["X", _]);
    let w = Array::ones([4, 2]).put(&mesh, p![]);
    let loss = |x: &Array, w: &Array| x.dot(w).square().sum(..);
    let g = jit(|x: &Array, w: &Array| grad(w, |w| loss(x, &w)));
    println!("{} → {}", type_of(&w), type_of(g.call((&x, &w))?));
    println!("    {}", communication(g.lower((&x, &w))?.collectives()));
    let w = w.reshard(p![; R: "X"]);
    println!("{} → {}", type_of(&w), type_of(g.call((&x, &w))?));
    println!("    {}", communication(g.lower((&x, &w))?.collectives()));
    // ANCHOR_END: reduced

    section("factor");
    // ANCHOR: factor
    let activation = Array::ones([8, 4]).put(&mesh, p!["X", _]);
    let scale = Array::ones([4]).put(&mesh, p![_; R: "X"]);
    rule!(activation * scale; activation, scale);
    let g = grad(&scale, |scale| (&activation * scale).sum(..));
    println!("{} → {}", type_of(&scale), type_of(&g));
    // ANCHOR_END: factor

    section("accumulate");
    // ANCHOR: accumulate
    let batches: Vec<Array> = (0..4).map(|k| Key::new(k).normal([8, 4]).put(&mesh, p!["X", _])).collect();
    let w = Array::ones([4, 2]).put(&mesh, p![]);
    let step = jit(|batches: &Vec<Array>, w: &Array| {
        let w = w.reshard(p![; R: "X"]);
        let gs = batches.iter().map(|x| grad(&w, |w| loss(x, &w)));
        let sum = gs.reduce(|a, b| a + b).expect("there are batches");
        println!("the sum of gradients is {}", type_of(&sum));
        sum.reshard(p![])
    });
    let lowered = step.lower((&batches, &w))?;
    println!("{}", communication(lowered.collectives()));
    assert_collectives!(lowered, AllReduce("X") x 1);
    // ANCHOR_END: accumulate

    section("cotangents");
    // ANCHOR: cotangents
    let specs = [p!["X"], p![_], p![_; R: "X"], p![_; U: "X"]];
    for spec in specs {
        let x = Array::ones([4]).put(&mesh, spec);
        let g = grad(&x, |x| (&x + &x).reshard(p![]).sum(..));
        println!("{:15} → {}", type_of(&x).to_string(), type_of(&g));
    }
    // ANCHOR_END: cotangents

    section("read");
    // ANCHOR: read
    println!("{}: {u}", type_of(&u));
    // ANCHOR_END: read
    Ok(())
}
