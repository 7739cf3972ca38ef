//! Rules that do not fit: each error names the rule, the argument, both types, the user's line and
//! the fix.

use atmesh::prelude::*;
use expect_test::{ExpectFile, expect_file};

/// Compares the error that the gradient carries with the expected text.
fn refused(gradient: &Array, want: ExpectFile) {
    let error = gradient.ty().expect_err("the rule does not fit");
    want.assert_eq(&format!("{error}"));
}

#[test]
fn the_shape_of_a_cotangent() {
    let w = Array::ones(F32.array_type([2, 3]));
    let g = grad(&w, |w| custom_vjp(&w, |w| (w.sum(1), ()), |(), ct| ct).sum(..));
    refused(&g, expect_file!["../../golden/custom_rules/shape.txt"]);
}

#[test]
fn the_element_type_of_a_cotangent() {
    let w = Array::ones(F32.array_type([2, 3]));
    let g = grad(&w, |w| custom_vjp(&w, |w| (w.sin(), w), |w, ct| (ct * w.cos()).astype(F64)).sum(..));
    refused(&g, expect_file!["../../golden/custom_rules/dtype.txt"]);
}

#[test]
fn the_unreduced_axes_of_a_cotangent() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let (x, w) = (Array::ones([4, 3]).put(&mesh, p!["X"]), Array::ones([3]).put(&mesh, p![_; R: "X"]));
    let predict = |w: Array| {
        custom_vjp(
            (&x, w),
            |(x, w)| (x.dot(&w), x),
            |x, ct| {
                let ct = ct.expand_dims(1);
                (&ct * &x, (ct * x).sum(0))
            },
        )
    };
    let g = grad(&w, |w| predict(w).sum(..));
    refused(&g, expect_file!["../../golden/custom_rules/unreduced.txt"]);
}

#[test]
fn the_varying_axes_of_a_cotangent() {
    let mesh = Mesh::new([("X", 2)]).unwrap();
    let (x, w) = (Array::ones([4]).put(&mesh, p!["X"]), Array::from(2.0f32).put(&mesh, p![]));
    let body = |x: &Array, w: &Array| {
        custom_vjp((x, w), |(x, w)| (&x * &w, (x, w)), |(x, w), ct| (&ct * w, (ct * x).sum(..)))
    };
    let mapped = atmesh::shard_map(&mesh, (p!["X"], p![]), p!["X"], body);
    let g = grad(&w, |w| mapped.call((&x, &w)).map(|y| y.sum(..)));
    refused(&g, expect_file!["../../golden/custom_rules/varying.txt"]);
}

#[test]
fn the_structure_of_a_cotangent() {
    let w = vec![Array::from(1.0f32), Array::from(2.0f32)];
    let g = grad(&w, |w| custom_vjp(&w, |w| (&w[0] * &w[1], ()), |(), ct| vec![ct]));
    refused(&g[0], expect_file!["../../golden/custom_rules/structure.txt"]);
}

#[test]
fn captured_values_and_rules_that_are_not_linear() {
    let (x, w) = (Array::from(1.0f32), Array::from(2.0f32));
    let g = grad(&w, |w| custom_vjp(&x, |x| (&x * &w, ()), |(), ct| ct));
    refused(&g, expect_file!["../../golden/custom_rules/captured.txt"]);
    let g = grad(&x, |x| custom_jvp(&x, |x| x.sin(), |x, dx| (x.sin(), dx.square())));
    refused(&g, expect_file!["../../golden/custom_rules/nonlinear.txt"]);
}

#[test]
fn a_while_loop_without_a_maximum() {
    let x = Array::from(1.0f32);
    let g = grad(&x, |x| while_loop(&x, |x| x.lt(9.0), |x| x * 2.0));
    refused(&g, expect_file!["../../golden/custom_rules/while_loop.txt"]);
}
