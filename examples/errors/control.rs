//! Errors of tracing, loops and branches, derivatives, and `vmap`.
use crate::{fixed, rejected};
use atmesh::prelude::*;

pub(crate) fn errors() -> Result<()> {
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;

    // ANCHOR: all
    let many = jit(|x: &Array| {
        let a = x.reshape([3, 3]);
        let b = x + Array::arange(0..8);
        (a, b)
    });
    rejected("all errors of a program at once", many.call(Array::ones([8])))?;
    // ANCHOR_END: all

    // ANCHOR: through
    let deep = jit(|x: &Array| {
        let wrong = x.reshape([3, 3]);
        let y = cond(x.sum(..).gt(0.0), || wrong.sin(), || x.dot(Array::ones([3])));
        let z = fori_loop(0..3, &y, |_, y| y * 2.0);
        (wrong + z, grad(x, |x| (x + Array::arange(0..8)).sum(..)))
    });
    rejected("first causes, through branches, loops and derivatives", deep.call(Array::ones([8])))?;
    // ANCHOR_END: through

    // ANCHOR: poisoned
    let bad = Array::ones([4]).dot(Array::ones([3]));
    let worse = (bad.sin() * 2.0).sum(..);
    println!("== a value that carries an error: its shape, its element type, its print");
    println!("{}\n{}\n{worse}\n", worse.shape().is_err(), worse.dtype().is_err());
    // ANCHOR_END: poisoned

    // ANCHOR: traced
    let peeked = jit(|x: &Array| {
        let first = x.to_vec::<f32>()?[0];
        Ok(x * first)
    });
    rejected("the data of a traced value", peeked.call(Array::ones([2])))?;
    // ANCHOR_END: traced

    // ANCHOR: kept
    let kept = std::cell::RefCell::new(None);
    let keeps = jit(|x: &Array| {
        *kept.borrow_mut() = Some(x.clone());
        2.0 * x
    });
    let y = keeps.call(Array::ones([2]))?;
    let later = kept.take().expect("it was traced");
    rejected("a traced value kept after its trace", (later + y).ty())?;
    // ANCHOR_END: kept

    // ANCHOR: carry
    let looped = fori_loop(0..3, Array::ones([4]), |_, x| concat([&x, &x], 0));
    rejected("a loop's carry that changes its shape", looped.ty())?;
    let steps = Array::ones([8]).put(&mesh, p!["X"]);
    let looped = fori_loop(0..3, Array::zeros([8]), |_, x| x + &steps);
    rejected("a loop's carry that changes its sharding", looped.ty())?;
    fixed(fori_loop(0..3, Array::zeros([8]).put(&mesh, p!["X"]), |_, x| x + &steps))?;
    // ANCHOR_END: carry

    // ANCHOR: cond
    let x = Array::ones([8]).put(&mesh, p!["X"]);
    let either = cond(true, || x.clone(), || x.reshard(p!["Y"]));
    rejected("branches whose results differ", either.ty())?;
    fixed(cond(true, || x.clone(), || x.reshard(p!["Y"]).reshard(p!["X"])))?;
    rejected("a condition with many elements", cond(x.gt(0.0), || x.clone(), || 2.0 * &x).ty())?;
    fixed(cond(x.gt(0.0).all(..), || x.clone(), || 2.0 * &x))?;
    // ANCHOR_END: cond

    // ANCHOR: scan
    let (a, b) = (Array::ones([4]), Array::ones([3]));
    let (sum, _) = scan(Array::zeros([]), (&a, &b), |c, (a, b)| (c + &a * b, a));
    rejected("a scan over lengths that differ", sum.ty())?;
    let (sum, _) = scan(Array::zeros([]), &x, |c, x| (c + &x, x));
    rejected("a scan along a dimension that is split", sum.ty())?;
    fixed(scan(Array::zeros([]), x.reshard(p![_]), |c, x| (c + &x, x)).0)?;
    // ANCHOR_END: scan

    // ANCHOR: grad
    let x = Array::ones([8]).put(&mesh, p!["X"]);
    rejected("the gradient of a non-scalar", grad(&x, |x| 2.0 * x).ty())?;
    fixed(grad(&x, |x| (2.0 * x).sum(..)))?;
    rejected("the gradient by an integer", grad(&Array::arange(0..4), |n| n.sum(..).astype(F32)).ty())?;
    let (_, back) = vjp(&x, |x| x.sin());
    rejected("a cotangent of another type", back.call(Array::ones([8]).put(&mesh, p!["Y"])).ty())?;
    fixed(back.call(Array::ones([8]).put(&mesh, p!["X"])))?;
    // ANCHOR_END: grad

    // ANCHOR: vmap
    rejected("examples of different number", vmap((&a, &b), |(a, b)| a + b).ty())?;
    let whole = Array::ones([8]).put(&mesh, p![]);
    rejected("examples that are split differently", vmap((&x, &whole), |(a, b)| a + b).ty())?;
    fixed(vmap((&x, whole.reshard(p!["X"])), |(a, b)| a + b))?;
    rejected("a dimension that examples do not have", vmap(Array::ones([]), |a| a + 1.0).ty())?;
    // ANCHOR_END: vmap

    // ANCHOR: arguments
    let two = jit(|x: &Array, y: &Array| x + y);
    let compiled = two.lower((&a, &a))?.compile()?;
    rejected("arguments of other types than it was compiled for", compiled.call((&a, Array::arange(0..3))))?;
    let placed = jit(|x: &Vec<Array>| &x[0] + &x[1]).on(&mesh).in_specs(vec![p!["X"]]);
    rejected("fewer specs than arrays", placed.call(vec![a.clone(), a.clone()]))?;
    let placed = jit(|x: &Vec<Array>| &x[0] + &x[1]).on(&mesh).in_specs(p!["X"]);
    fixed(placed.call(vec![a.clone(), a.clone()])?)?;
    // ANCHOR_END: arguments
    Ok(())
}
