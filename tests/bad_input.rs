//! Bad input of any kind is an error that flows or an `Err`, never a panic.

use atmesh::prelude::*;
use atmesh::{Error, ErrorKind, ScanOptions, Tree, checkpoint, jvp, scan_with, tree, vjp};

/// A result with plain values among its arrays.
#[derive(Clone, Debug, Tree)]
struct Found {
    at: Array,
    all: Vec<Array>,
    #[tree(skip)]
    name: String,
}
type Mixed = (Found, Static<u32>);

fn found(x: &Array) -> Mixed {
    (Found { at: x.clone(), all: vec![x + 1, x + 2], name: "it".into() }, Static(7))
}
fn poisoned<T: Tree>(what: &str, x: &T, kind: ErrorKind) {
    for leaf in tree::leaves(x) {
        let error = leaf.ty().expect_err(what);
        assert_eq!(error.kind(), kind, "{what}: {error}");
    }
}

/// Closures that fail before they return: plain values are defaults, lists are empty.
#[test]
fn closures_that_fail_before_they_return() {
    let x = &Array::from([1.0f32, 2.0]);
    let fails = |x: &Array| -> Result<Mixed> {
        let y = x.dot(Array::ones([3]));
        y.ty()?; // refused here
        Ok(found(&y))
    };
    let check = |what: &str, got: &Mixed| {
        poisoned(what, got, ErrorKind::Shape);
        assert_eq!((got.0.name.as_str(), got.0.all.len(), got.1.0), ("", 0, 0), "{what}");
    };
    check("cond", &cond(true, || fails(x), || fails(x)));
    check("switch", &switch(0, &[&|| fails(x)]));
    check("vmap", &vmap(Array::ones([2, 2]), |x| fails(&x)));
    check("checkpoint", &checkpoint(x, |x| fails(&x)));
    check("vjp", &vjp(x, |x| fails(&x)).0);
    let (y, dy) = jvp(x, x, |x| fails(&x));
    check("jvp", &y);
    check("jvp", &dy);
    let loss = |x: Array| fails(&x).map(|found| (x.sum(..), found));
    let ((loss_value, aux), g) = value_and_grad(x, loss);
    poisoned("value_and_grad", &(loss_value, g), ErrorKind::Shape);
    check("value_and_grad", &aux);
    poisoned("grad", &grad(x, loss), ErrorKind::Shape);
    let mesh = Mesh::new([("X", 2)]).unwrap();
    check("auto_axes", &auto_axes(x.put(&mesh, p!["X"]), p![], |x| fails(&x)));
    let auto = Mesh::auto([("X", 2)]).unwrap();
    check("explicit_axes", &explicit_axes(x.put(&auto, p![]), p![], |x| fails(&x)));
    let options = ScanOptions { length: Some(2), ..ScanOptions::default() };
    let (carry, ys) = scan_with(options, x, (), |x, ()| fails(&x).map(|f| (x, f)));
    poisoned("scan", &carry, ErrorKind::Shape);
    check("scan", &ys);
    // carries are like the first ones
    let first = found(x);
    let looped = fori_loop(0..3, &first, |_, (f, _)| fails(&f.at));
    poisoned("fori_loop", &looped, ErrorKind::Shape);
    assert_eq!((looped.0.name.as_str(), looped.0.all.len(), looped.1.0), ("it", 2, 7));
    let looped = while_loop(&first, |(f, _)| f.at.sum(..).lt(9.0), |(f, _)| fails(&f.at));
    poisoned("while_loop", &looped, ErrorKind::Shape);
    // whoever asks gets an Err
    assert!(jit(move |x: &Array| fails(x)).call(x).is_err());
    assert!(jit(move |x: &Array| cond(true, || fails(x), || fails(x))).call(x).is_err());
    assert!(shard_map(&mesh, p!["X"], p![], move |x: &Array| fails(x)).call(x.put(&mesh, p!["X"])).is_err());
}

/// Closures that return ill-typed arrays: the results are like what they returned.
#[test]
fn closures_that_return_errors() {
    let x = &Array::from([1.0f32, 2.0]);
    let ill = |x: &Array| found(&x.dot(Array::ones([3])));
    let check = |what: &str, got: &Mixed| {
        poisoned(what, got, ErrorKind::Shape);
        assert_eq!((got.0.name.as_str(), got.0.all.len(), got.1.0), ("it", 2, 7), "{what}");
    };
    check("cond", &cond(true, || ill(x), || ill(x)));
    check("vmap", &vmap(Array::ones([2, 2]), |x| ill(&x)));
    check("checkpoint", &checkpoint(x, |x| ill(&x)));
    let (y, pull) = vjp(x, |x| ill(&x));
    check("vjp", &y);
    poisoned("pullback", &pull.call(y), ErrorKind::Shape);
    check("jvp", &jvp(x, x, |x| ill(&x)).1);
    check("value_and_grad", &value_and_grad(x, |x| (x.sum(..), ill(&x))).0.1);
    let mesh = Mesh::new([("X", 2)]).unwrap();
    check("auto_axes", &auto_axes(x.put(&mesh, p!["X"]), p![], |x| ill(&x)));
    // refused after the closure was traced
    let ty = Array::ones([2]);
    let refused = cond(true, || found(x), || found(&(&ty + &x.astype(I32)).astype(I32)));
    assert!(tree::leaves(&refused).iter().all(|a| a.ty().is_err()));
    assert_eq!(refused.0.all.len(), 2);
    let options = ScanOptions { length: Some(2), ..ScanOptions::default() };
    let (_, ys) = scan_with(options, x, (), |x, ()| (x.sum(..), found(&x)));
    poisoned("scan", &ys, ErrorKind::Shape);
    assert_eq!(ys.0.all.len(), 2);
}

/// An error that flows into one of them comes out of it.
#[test]
fn errors_flow_through_closures() {
    let bad = &Array::ones([2]).dot(Array::ones([3]));
    let first: Error = bad.ty().unwrap_err();
    let told = |x: Array| assert_eq!(x.ty().unwrap_err(), first);
    told(grad(bad, |x| x.sum(..)));
    told(vmap(bad, |x| x));
    told(cond(true, || bad.clone(), || bad.clone()));
    told(cond(bad, || Array::ones([1]), || Array::ones([1])));
    told(fori_loop(0..2, bad, |_, x| x));
    told(while_loop(bad, |x| x.sum(..).gt(0.0), |x| x));
    told(scan(bad, Array::ones([2]), |c, x| (c, x)).0);
    told(scan(Array::ones([2]), bad, |c, x| (c, x)).1);
    told(checkpoint(bad, |x| x));
    told(jvp(bad, bad, |x| x).0);
    told(vjp(bad, |x| x).1.call(Array::ones([2])));
}
