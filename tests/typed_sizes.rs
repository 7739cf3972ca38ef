//! Sizes that are known only at run time: one name is one size, and only `~` is repeated.
#![cfg(feature = "typed")]
// These tests are about the types.
#![allow(clippy::type_complexity)]

mod error_checks;

use atmesh::prelude::*;
use atmesh::typed::{self, prelude::*};
use error_checks::Unquoted as _;

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
    let texts = |op| [sizes, fix, "float32[4]", "float32[1]", "tests/typed_sizes.rs", op];
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
