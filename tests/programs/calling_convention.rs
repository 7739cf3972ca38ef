//! The forms in which functions take closures and arguments: "Closures and arguments" on the crate's
//! page. What does not compile is in `tests/ui`: `closure_*.rs`, `arguments_*.rs`.

use atmesh::prelude::*;
use atmesh::{
    CheckpointPolicy, ScanOptions, VmapOptions, associative_scan, auto_axes_over, checkpoint_with,
    explicit_axes_over, map, scan_with, vmap_with,
};

/// A struct of arrays, which is passed by value and by reference.
#[derive(Clone, Tree)]
struct Layer<T = Array> {
    w: T,
    b: T,
}

fn array(x: &[f32]) -> Array {
    Array::from(x.to_vec())
}
fn floats(x: &Array) -> Vec<f32> {
    x.to_vec().unwrap()
}
/// A loss of a tree by value: every function takes it.
fn loss((w, b): (Array, Array)) -> Array {
    (w * b).sum(..)
}
/// The same loss of references: `jit` and `shard_map` take it, others within a closure.
fn loss_of_references(w: &Array, b: &Array) -> Array {
    (w * b).sum(..)
}

#[test]
fn one_closure_by_value_serves_every_function() {
    let (w, b) = (array(&[1.0, 2.0]), array(&[3.0, 4.0]));
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let parts = |(w, b): (Array, Array)| (w * b).sum(..).psum("X");

    assert_eq!(floats(&jit(loss).call((&w, &b)).unwrap()), [11.0]);
    assert_eq!(floats(&shard_map(&mesh, p!["X"], p![], parts).call((&w, &b)).unwrap()), [11.0]);
    assert_eq!(floats(&grad((&w, &b), loss).0), [3.0, 4.0]);
    let (value, (gw, gb)) = value_and_grad((&w, &b), loss);
    assert_eq!((floats(&value), floats(&gw), floats(&gb)), (vec![11.0], vec![3.0, 4.0], vec![1.0, 2.0]));
    assert_eq!(floats(&jvp((&w, &b), (&w, &b), loss).1), [22.0]);
    assert_eq!(floats(&vjp((&w, &b), loss).1.call(2.0).0), [6.0, 8.0]);
    assert_eq!(floats(&checkpoint((&w, &b), loss)), [11.0]);
    assert_eq!(floats(&checkpoint_with((&w, &b), CheckpointPolicy::SaveAll, loss)), [11.0]);
    assert_eq!(floats(&vmap((&w, &b), loss)), [3.0, 8.0]);
    assert_eq!(floats(&vmap_with((&w, &b), loss, VmapOptions::default())), [3.0, 8.0]);
    assert_eq!(floats(&map((&w, &b), loss)), [3.0, 8.0]);

    let on = (w.put(&mesh, p!["X"]), b.put(&mesh, p!["X"]));
    assert_eq!(floats(&auto_axes(&on, p![], loss)), [11.0]);
    assert_eq!(floats(&auto_axes_over("X", &on, p![], loss)), [11.0]);
    let auto = Mesh::auto([("X", 2)]).unwrap();
    let on = (w.put(&auto, p!["X"]), b.put(&auto, p!["X"]));
    assert_eq!(floats(&explicit_axes(&on, p!["X"], loss)), [11.0]);
    assert_eq!(floats(&explicit_axes_over("X", &on, p!["X"], loss)), [11.0]);
}

#[test]
fn a_closure_by_value_may_name_its_type_or_leave_it_out() {
    let x = array(&[1.0, 2.0]);
    let square = |x: Array| x.square().sum(..);
    assert_eq!(floats(&grad(&x, square)), [2.0, 4.0]);
    let borrowed: &dyn Fn(Array) -> Array = &square;
    assert_eq!(floats(&grad(&x, borrowed)), [2.0, 4.0]);
    assert_eq!(floats(&grad(&x, |x| x.square().sum(..))), [2.0, 4.0]);
    assert_eq!(floats(&jit(square).call(&x).unwrap()), [5.0]);
    assert_eq!(floats(&vmap(&x, square)), [1.0, 4.0]);
    let boxed: Box<dyn Fn(Array) -> Array> = Box::new(square);
    assert_eq!(floats(&grad(&x, &boxed)), [2.0, 4.0]);
    assert_eq!(floats(&jit(boxed).call(&x).unwrap()), [5.0]);
}

#[test]
fn jit_and_shard_map_take_parameters_by_value_by_reference_and_mixed() {
    let (w, b) = (array(&[1.0, 2.0]), array(&[3.0, 4.0]));
    let mesh = Mesh::new([("X", 2)]).unwrap();
    macro_rules! each { ($($f:expr,)*) => {$(
        assert_eq!(floats(&jit($f).call((&w, &b)).unwrap()), [4.0, 6.0]);
        assert_eq!(floats(&shard_map(&mesh, p!["X"], p!["X"], $f).call((&w, &b)).unwrap()), [4.0, 6.0]);
    )*} }
    each! {
        |w: &Array, b: &Array| w + b,
        |w: Array, b: Array| w + b,
        |w: &Array, b: Array| w + b,
        |w: Array, b: &Array| w + b,
        |(w, b): (Array, Array)| w + b,
        |(w, b): (&Array, &Array)| w + b,
        |(w, b): (&Array, Array)| w + b,
        |(w, b): &(Array, Array)| w + b,
    }
}

#[test]
fn functions_of_references_are_called_within_a_closure() {
    let (w, b) = (array(&[1.0, 2.0]), array(&[3.0, 4.0]));
    assert_eq!(floats(&jit(loss_of_references).call((&w, &b)).unwrap()), [11.0]);
    assert_eq!(floats(&grad((&w, &b), |(w, b)| loss_of_references(&w, &b)).0), [3.0, 4.0]);
    assert_eq!(floats(&vmap((&w, &b), |(w, b)| loss_of_references(&w, &b))), [3.0, 8.0]);
    // a traced function in a closure by value, with the arguments by value
    let f = jit(loss_of_references);
    assert_eq!(floats(&grad((&w, &b), |at| f.call(at)).0), [3.0, 4.0]);
    assert_eq!(floats(&vmap((&w, &b), |at| f.call(at))), [3.0, 8.0]);
}

#[test]
fn loops_take_carry_and_element_by_value() {
    let (x, zero) = (array(&[1.0, 2.0]), array(&[0.0, 0.0]));
    let rows = stack([&x, &x], 0);
    let step = |c: Array, x: Array| (&c + x, c);
    for (carry, ys) in [
        scan(&zero, &rows, step),
        scan(zero.clone(), rows.clone(), step),
        scan(&zero, rows.clone(), |c, x| (&c + x, c)),
        scan_with(zero.clone(), &rows, step, ScanOptions::default()),
    ] {
        assert_eq!((floats(&carry), floats(&ys)), (vec![2.0, 4.0], vec![0.0, 0.0, 1.0, 2.0]));
    }
    for at in [fori_loop(0..2, &x, |_, x| x * 2.0), fori_loop(0..2, x.clone(), |_: Array, x: Array| x * 2.0)]
    {
        assert_eq!(floats(&at), [4.0, 8.0]);
    }
    // the condition borrows the carry, which the body takes
    let (n, y) = while_loop((0i32, x.clone()), |(n, _)| n.lt(2), |(n, x)| (n + 1, x * 2.0));
    assert_eq!((n.item::<i32>().unwrap(), floats(&y)), (2, vec![4.0, 8.0]));
    let sums = |a: Array, b: Array| a + b;
    assert_eq!(floats(&associative_scan(&x, 0, sums)), [1.0, 3.0]);
    assert_eq!(floats(&associative_scan(x, 0, sums)), [1.0, 3.0]);
}

/// Calls `$f` with every mix of values and references, and compares with `$want`.
macro_rules! every_mix {
    ($f:expr, $x:expr, $y:expr, $want:expr) => {{
        let (f, x, y, want) = ($f, &$x, &$y, $want);
        assert_eq!(f.call((x, y)).map(|z| floats(&z))?, want);
        assert_eq!(f.call((x.clone(), y)).map(|z| floats(&z))?, want);
        assert_eq!(f.call((x, y.clone())).map(|z| floats(&z))?, want);
        assert_eq!(f.call((x.clone(), y.clone())).map(|z| floats(&z))?, want);
        assert_eq!(f.call(&(x.clone(), y.clone())).map(|z| floats(&z))?, want);
    }};
}

#[test]
fn calls_take_arguments_by_value_by_reference_and_mixed() -> Result<()> {
    let (w, b) = (array(&[1.0, 2.0]), array(&[3.0, 4.0]));
    let mesh = Mesh::new([("X", 2)])?;
    let f = jit(|w: &Array, b: &Array| w + b);
    every_mix!(&f, w, b, [4.0, 6.0]);
    every_mix!(shard_map(&mesh, p!["X"], p!["X"], |w: Array, b: &Array| w + b), w, b, [4.0, 6.0]);
    every_mix!(f.lower((w.clone(), &b))?.compile()?, w, b, [4.0, 6.0]);
    let code = spmd(&mesh, p!["X"], p!["X"], |_: &Device, w: &[f32], b: &[f32]| Ok(vec![w[0] + b[0]]));
    every_mix!(code, w, b, [4.0, 6.0]);

    let text = f.trace((&w, &b))?.to_string();
    for traced in [f.trace((w.clone(), &b))?, f.trace((&w, b.clone()))?, f.trace((w.clone(), b.clone()))?] {
        assert_eq!(traced.to_string(), text);
    }
    let text = f.lower((&w, &b))?.to_string();
    assert_eq!(f.lower((w.clone(), b.clone()))?.to_string(), text);
    Ok(())
}

#[test]
fn trees_scalars_and_types_are_passed_by_value_and_by_reference() -> Result<()> {
    let layer = Layer { w: array(&[1.0, 2.0]), b: array(&[3.0, 4.0]) };
    let x = array(&[1.0, 1.0]);
    let f = jit(|l: &Layer, x: Array| &l.w * x + &l.b);
    every_mix!(&f, layer, x, [4.0, 6.0]);
    let list = jit(|all: &Vec<Array>, n: Array| &all[0] * n);
    every_mix!(&list, vec![x.clone()], array(&[2.0]), [2.0, 2.0]);

    let (n, scale) = (3, jit(|x: &Array, n: &Array| x * n));
    let whole = Array::from([1, 2]);
    for y in [scale.call((&whole, n))?, scale.call((&whole, &n))?, scale.call((whole.clone(), &n))?] {
        assert_eq!(y.to_vec::<i32>()?, [3, 6]);
    }
    let (layer, x) = (Layer { w: F32.array_type([2]), b: F32.array_type([2]) }, F32.array_type([2]));
    assert_eq!(f.trace((layer.clone(), x.clone()))?.to_string(), f.trace((layer, &x))?.to_string());
    Ok(())
}

#[test]
fn points_are_passed_by_value_by_reference_and_mixed() {
    let (w, b) = (array(&[1.0, 2.0]), array(&[3.0, 4.0]));
    macro_rules! each { ($($at:expr,)*) => {$(
        assert_eq!(floats(&grad($at, |(w, b)| (w * b).sum(..)).0), [3.0, 4.0]);
        assert_eq!(floats(&value_and_grad($at, loss).0), [11.0]);
        assert_eq!(floats(&vmap($at, |(w, b)| w * b)), [3.0, 8.0]);
    )*} }
    each! { (&w, &b), (w.clone(), &b), (&w, b.clone()), (w.clone(), b.clone()), &(w.clone(), b.clone()), }
    let layer = Layer { w, b };
    let by_reference = grad(&layer, |l| (&l.w * &l.b).sum(..));
    let by_value = grad(layer, |l: Layer| (l.w * l.b).sum(..));
    assert_eq!(floats(&by_reference.b), floats(&by_value.b));
}

#[test]
fn a_donated_argument_is_reused_by_value_as_by_reference() -> Result<()> {
    let step = jit(|w: &Array, g: &Array| w - 0.5 * g).donate(0);
    let (w, g) = (array(&[1.0, 2.0]), array(&[1.0, 1.0]));
    let at = w.view::<f32>()?.as_ptr();
    let next = step.call((w, &g))?; // `w` cannot be used any more: rustc says so
    assert_eq!(next.view::<f32>()?.as_ptr(), at);
    let last = step.call((&next, &g))?;
    assert_eq!(last.view::<f32>()?.as_ptr(), at);
    assert!(next.to_vec::<f32>().is_err()); // here it is an error at run time
    assert_eq!(floats(&last), [0.0, 1.0]);

    // another handle keeps the memory
    let kept = last.clone();
    let at = kept.view::<f32>()?.as_ptr();
    let all = jit(|w: &Array| w + 1.0).call(last)?;
    assert_eq!((floats(&kept), floats(&all)), (vec![0.0, 1.0], vec![1.0, 2.0]));
    assert_ne!(all.view::<f32>()?.as_ptr(), at);
    Ok(())
}

#[cfg(feature = "typed")]
#[test]
fn typed_functions_take_arguments_by_value_and_by_reference() -> Result<()> {
    use atmesh::typed::prelude::*;
    use atmesh::typed::{scan, vmap};
    mesh! { struct Pod { X: 2 } }
    let pod = Pod::mesh()?;
    let (x, w) = (<T![f32; 4@X, 3]>::ones(&pod), <T![f32; 3]>::ones(&pod));
    for y in [
        Pod.shard_map((&x, &w), P![X, _], |(x, w)| &x + &w.broadcast_to::<S![2, 3]>()),
        Pod.shard_map((x.clone(), &w), P![X, _], |(x, w)| &x + &w.broadcast_to::<S![2, 3]>()),
        Pod.shard_map((x.clone(), w.clone()), P![X, _], |(x, w)| &x + &w.broadcast_to::<S![2, 3]>()),
    ] {
        assert_eq!(y.to_vec()?, [2.0; 12]);
    }
    for y in [vmap(&x, |row| row.sin()), vmap(x.clone(), |row| row.sin())] {
        assert_eq!(y.to_vec()?, [1.0f32.sin(); 12]);
    }
    let zero = <T![f32; 4@X]>::zeros(&pod);
    let rows = <T![f32; 3, 4@X]>::ones(&pod);
    for (total, _) in
        [scan(&zero, &rows, |c, x| (&c + &x, x)), scan(zero.clone(), rows.clone(), |c, x| (&c + &x, x))]
    {
        assert_eq!(total.to_vec()?, [3.0; 4]);
    }
    Ok(())
}
