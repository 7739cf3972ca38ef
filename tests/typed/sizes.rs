//! Sizes that are known only at run time: one name is one size, and only `~` is repeated.
// These tests are about the types.
#![allow(clippy::type_complexity)]

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::typed::{self, prelude::*};

mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);

fn rows<A: TypedArray>(shape: &[usize]) -> A {
    Array::ones(shape.to_vec()).typed().unwrap()
}

/// Checks that a result is an error which contains these texts.
fn fails<T: atmesh::Element, S: typed::shape::Shape>(y: &typed::Typed<T, S>, texts: &[&str]) {
    let error = y.as_untyped().ty().unwrap_err().unquoted();
    for text in texts {
        assert!(error.contains(text), "no {text:?} in {error}");
    }
}

#[test]
fn elementwise_operations_repeat_no_named_dim() {
    type V = T![f32; Batch];
    let (four, one): (V, V) = (rows(&[4]), rows(&[1]));
    let sizes = "dimension 0 of operand 0 has size 4, dimension 0 of operand 1 size 1, but the types \
                 hold the two equal: both are `Batch`";
    let fix = "to repeat operand 1, write `~` instead of `Batch` in its type";
    let texts = |op| [sizes, fix, "float32[4]", "float32[1]", "tests/typed/sizes.rs", op];
    fails(&(&four + &one), &texts("add"));
    fails(&(four.clone() + one.clone()), &texts("add"));
    fails(&four.pow(&one), &texts("pow"));
    fails(&four.maximum(&one), &texts("maximum"));
    fails(&four.lt(one.clone()), &texts("lt"));
    fails(&four.eq(&four).select(&one, &four), &["select", "has size 4", "size 1", "bool[4]"]);
    fails(
        &one.eq(&one).select(&four, &four),
        &["select", "to repeat operand 0, write `~` instead of `Batch`"],
    );
    fails(&(&four - &rows::<V>(&[7])), &["sub", "has size 4", "size 7"]);
    assert!((&four + &rows::<T![f32; ~]>(&[1])).to_vec().is_ok(), "the fix");
    let wide: T![f32; 3, Batch] = rows(&[3, 1]);
    fails(&(&wide * &four), &["mul", "dimension 1 of operand 0 has size 1, dimension 0 of operand 1 size 4"]);
    let (open, more): (T![f32; ?], T![f32; ?]) = (rows(&[1]), rows(&[5]));
    fails(&(&open + &more), &["both are `?`"]);
    assert!((&more + &more).to_vec().is_ok());
}

#[test]
fn products_repeat_no_named_dim() {
    type A = T![f32; Batch, 2, 3];
    type B = T![f32; Batch, 3, 2];
    let (x, w): (A, B) = (rows(&[4, 2, 3]), rows(&[1, 3, 2]));
    fails(&x.matmul(&w), &["matmul", "dimension 0 of operand 0 has size 4, dimension 0 of operand 1 size 1"]);
    fails(&x.matmul_to(&w, P![_, _, _]), &["matmul_to", "both are `Batch`"]);
    fails(&einsum!("bmk,bkn->bmn", x, w), &["einsum", "both are `Batch`", "float32[1,3,2]"]);
    fails(&einsum!("bmk,bkn->mn", x, w), &["einsum", "both are `Batch`"]);
    fails(&einsum!("bmk,bkn->mbn", x, w, P![_, _, _]), &["einsum_to", "both are `Batch`"]);
    let (m, k): (T![f32; 2, Batch], T![f32; Batch]) = (rows(&[2, 4]), rows(&[1]));
    fails(&m.matmul(&k), &["matmul", "dimension 1 of operand 0 has size 4, dimension 0 of operand 1 size 1"]);
    fails(&k.dot(&m.t()), &["dot", "dimension 0 of operand 0 has size 1"]);
    assert!(x.matmul(&rows::<T![f32; ~, 3, 2]>(&[1, 3, 2])).to_vec().is_ok());
}

#[test]
fn a_trace_reports_it_too() {
    type V = T![f32; Batch];
    let f = jit(|x: &T![f32; ?], y: &T![f32; ?]| x + y);
    let (four, one): (T![f32; ?], T![f32; ?]) = (rows(&[4]), rows(&[1]));
    let error = f.call((&four, &one)).unwrap_err().unquoted();
    assert!(error.contains("add") && error.contains("both are `?`"), "{error}");
    let g = grad(&rows::<V>(&[4]), |x| (&x * &rows::<V>(&[1])).sum(..));
    fails(&g, &["mul", "both are `Batch`"]);
}

/// Returns an array of four and one of a single element, which the types call one size.
fn four_and_one() -> (T![f32; Batch], T![f32; Batch]) {
    (rows(&[4]), rows(&[1]))
}
fn total(x: &T![f32; Batch], y: &T![f32; Batch]) -> T![f32;] {
    x.sum(..) + y.sum(..)
}

#[test]
fn one_name_is_one_size_among_the_arguments_of_a_call() {
    let (four, one) = four_and_one();
    let f = jit(|x: &T![f32; Batch], y: &T![f32; Batch]| total(x, y));
    let error = f.call((&four, &one)).unwrap_err().unquoted();
    for text in [
        "jit: dimension 0 of the argument `0` has size 4, dimension 0 of the argument `1` size 1, but the types \
         call both `Batch`: within a call, one name is one size",
        "float32[4], float32[1]",
        "to repeat the argument `1`, write `~` instead of `Batch` in its type",
        "tests/typed/sizes.rs",
    ] {
        assert!(error.contains(text), "no {text:?} in {error}");
    }
    assert_eq!(f.call((&four, &four)).unwrap().item().unwrap(), 8.0);
    assert_eq!(f.call((&one, &one)).unwrap().item().unwrap(), 2.0);
    assert!(f.call((&four, &one)).is_err(), "also after other calls");
    assert!(f.trace((&four, &one)).is_err() && f.lower((&one, &four)).is_err());
    let inside = jit(|x: &T![f32; ?], y: &T![f32; ?]| {
        let of = |x: &T![f32; ?]| x.then::<T![f32; Batch]>(Clone::clone).unwrap();
        jit(|x: &T![f32; Batch], y: &T![f32; Batch]| total(x, y)).call((of(x), of(y)))
    });
    let any = |n| rows::<T![f32; ?]>(&[n]);
    assert!(inside.call((any(3), any(3))).is_ok());
    assert!(inside.call((any(3), any(1))).is_err());
}

#[test]
fn transformed_functions_compare_sizes_too() {
    let (four, one) = four_and_one();
    let both = (four.clone(), one.clone());
    let texts = |op| [op, "of the argument `0` has size 4", "call both `Batch`", "tests/typed/sizes.rs"];
    fails(&grad(&both, |(x, y)| total(&x, &y)).0, &texts("grad"));
    fails(&atmesh::value_and_grad(&both, |(x, y)| total(&x, &y)).0, &texts("value_and_grad"));
    fails(&atmesh::vjp(&both, |(x, y)| total(&x, &y)).0, &texts("vjp"));
    fails(&atmesh::checkpoint(&both, |(x, y)| total(&x, &y)), &texts("checkpoint"));
    let carry = |op| [op, "of the carry `0` has size 4", "call both `Batch`", "tests/typed/sizes.rs"];
    fails(&fori_loop(0..2, &both, |_, (x, y)| (x, y)).0, &carry("fori_loop"));
    fails(&while_loop(&both, |(x, _)| x.sum(..).lt(0.0), |(x, y)| (x, y)).1, &carry("while_loop"));
    let scanned = rows::<T![f32; Batch, 2]>(&[3, 2]);
    let (last, stacked) = typed::scan(&four, &scanned, |x, row: T![f32; 2]| (x, row));
    let texts = ["scan", "dimension 0 of the carry has size 4, dimension 0 of the scanned array size 3"];
    fails(&last, &texts);
    fails(&stacked, &texts);
    let chosen = cond(four.sum(..).gt(0.0), || both.clone(), || both.clone());
    fails(&chosen.0, &["cond", "of the result `0` has size 4", "call both `Batch`"]);
    let (short, long) = (|| rows::<T![f32; Batch]>(&[1]), || rows::<T![f32; Batch]>(&[4]));
    fails(&cond(four.sum(..).gt(0.0), short, long), &["cond", "float32[1]", "float32[4]"]);
}

#[test]
fn blocks_compare_sizes_too() {
    let pod = Pod::mesh().unwrap();
    let on = |n: usize| -> T![f32; Batch@X] { Array::ones([n]).put(&pod, p!["X"]).typed().unwrap() };
    let run = |x: T![f32; Batch@X], y: T![f32; Batch@X]| -> T![f32;] {
        Pod.shard_map((x, y), P![], |(x, y)| (x.sum(..) + y.sum(..)).psum(X))
    };
    assert_eq!(run(on(4), on(4)).item().unwrap(), 8.0);
    let texts =
        ["shard_map", "of the argument `0` has size 4, dimension 0 of the argument `1` size 2", "Batch"];
    fails(&run(on(4), on(2)), &texts);
    let added =
        |x: T![f32; ?@X], y: T![f32; ?@X]| -> T![f32; ?@X] { Pod.shard_map((x, y), P![X], |(x, y)| &x + &y) };
    let any = |n: usize| -> T![f32; ?@X] { Array::ones([n]).put(&pod, p!["X"]).typed().unwrap() };
    fails(&added(any(8), any(2)), &["add", "has size 4", "size 1", "both are `?/X`"]);
}

/// Returns `x.sum(D0)`, whatever the number of rows is.
fn center<B: Size, D: Size>(x: &T![f32; B, D], m: &T![f32; D]) -> T![f32; D] {
    let m = m.broadcast_like(x);
    (x - &m).sum(D0) + m.sum(D0)
}
fn mse<B: Size>(pred: &T![f32; B], y: &T![f32; B]) -> T![f32;] {
    (pred - y).square().mean(..)
}

#[test]
fn generic_functions_agree_for_named_and_for_known_sizes() {
    let m = rows::<T![f32; 2]>(&[2]) * 3.0;
    let known = center(&rows::<T![f32; 4, 2]>(&[4, 2]), &m);
    let named = center(&rows::<T![f32; Batch, 2]>(&[4, 2]), &m);
    assert_eq!((known.to_vec().unwrap(), named.to_vec().unwrap()), (vec![4.0; 2], vec![4.0; 2]));
    let (four, one) = four_and_one();
    fails(&mse(&four, &one), &["sub", "has size 4", "size 1", "both are `Batch`"]);
    assert_eq!(mse(&one, &one).item().unwrap(), 0.0);
}

#[test]
fn arrays_are_broadcast_like_others() {
    let pod = Pod::mesh().unwrap();
    let on = |shape: &[usize], spec| {
        Array::arange(0..shape.iter().product::<usize>() as i32).reshape(shape).astype(F32).put(&pod, spec)
    };
    let x: T![f32; Batch@X, 3, 8@Y] = on(&[4, 3, 8], p!["X", _, "Y"]).typed().unwrap();
    let check = |y: T![f32; Batch@X, 3, 8@Y], of: &Array| {
        assert_eq!(type_of(&y), "float32[4@X,3,8@Y]");
        assert_eq!(y.to_vec().unwrap(), of.broadcast_to([4, 3, 8]).to_vec::<f32>().unwrap());
    };
    let whole = on(&[3, 8], p![]);
    check(whole.typed::<T![f32; 3, 8]>().unwrap().broadcast_like(&x), &whole);
    let alike = on(&[4, 1, 8], p!["X", _, "Y"]);
    check(alike.typed::<T![f32; Batch@X, ~, 8@Y]>().unwrap().broadcast_like(&x), &alike);
    let nowhere = Array::arange(0..8).astype(F32);
    check(nowhere.typed::<T![f32; 8]>().unwrap().broadcast_like(&x), &nowhere);
    check(x.broadcast_like(&x), x.as_untyped());
    let another: T![f32; Batch@X, ~, 8@Y] = on(&[2, 1, 8], p!["X", _, "Y"]).typed().unwrap();
    fails(&another.broadcast_like(&x), &["broadcast_like", "has size 2", "size 4", "both are `Batch`"]);
    let y: T![f32; Batch@X, 3] =
        Pod.shard_map((&x, on(&[3], p![]).typed::<T![f32; 3]>().unwrap()), P![X, _], |(x, row)| {
            row.broadcast_like(&x.sum(D2).psum(Y))
        });
    assert_eq!(type_of(&y), "float32[4@X,3]");
}
