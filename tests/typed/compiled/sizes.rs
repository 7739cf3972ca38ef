//! Sizes that are computed: reshapes, slices, and joins of several arrays give the same bits as
//! their untyped twins.

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::typed::shape::Shape as _;
use atmesh::typed::size::SizeProduct;
use atmesh::typed::{self, prelude::*};
use atmesh::{Element, concat, ix};

mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 16);

fn iota<A: TypedArray>() -> (A, Array) {
    let mesh = Pod::mesh().unwrap();
    let sizes: Vec<usize> = A::Shape::DIMS.iter().map(|d| d.size.unwrap_or(3)).collect();
    let count = sizes.iter().product::<usize>();
    let spec =
        Spec::from_dims(A::Shape::DIMS.iter().map(|d| d.axes.iter().map(|a| a.0.into()).collect()).collect());
    let x = Array::arange(0..count as i32).astype(DType::F32).reshape(sizes).put(&mesh, spec);
    (x.typed().unwrap(), x)
}
#[track_caller]
fn agree<T: Element + PartialEq + std::fmt::Debug, S, V>(typed: Typed<T, S, V>, untyped: Array) {
    assert_eq!(type_of(typed.as_untyped()), type_of(&untyped));
    assert_eq!(typed.to_vec().unwrap(), untyped.to_vec::<T>().unwrap());
}

#[test]
fn reshapes_take_sizes_from_the_operand() {
    let (x, u) = iota::<T![f32; 4, 6]>();
    agree(x.reshape::<S![2, 3, 4]>(), u.reshape([2, 3, 4]));
    agree(x.reshape::<S![24]>(), u.reshape([24]));
    let (x, u) = iota::<T![f32; Batch, 6]>();
    let split: T![f32; Batch, 2, 3] = x.reshape();
    agree(split, u.reshape([3, 2, 3]));
    // the names keep their sizes at other positions
    let moved: T![f32; 6, Batch] = x.reshape();
    agree(moved, u.reshape([6, 3]));
    let (x, u) = iota::<T![f32; Batch, Embed, 2]>();
    let moved: T![f32; 4, Batch, 8] = x.reshape();
    agree(moved, u.reshape([4, 3, 8]));
}

#[test]
fn open_sizes_are_compared_at_run_time() {
    let (x, u) = iota::<T![f32; 4, 6]>();
    let open: T![f32; ?, 8] = x.reshape();
    agree(open.clone(), u.reshape([3, 8]));
    let back: T![f32; 4, 6] = open.reshape();
    agree(back, u.clone());
    let split: T![f32; ?, 2, 4] = open.reshape();
    agree(split, u.reshape([3, 2, 4]));
    // 24 elements are not 25, and not a multiple of 7
    let wrong: T![f32; 5, 5] = open.reshape();
    assert!(wrong.to_vec().unwrap_err().unquoted().contains("reshape"));
    let wrong: T![f32; ?, 7] = open.reshape();
    assert!(wrong.to_vec().unwrap_err().unquoted().contains("reshape"));
    let wrong: T![f32; ?, ?] = x.reshape();
    let said = wrong.to_vec().unwrap_err().unquoted();
    assert!(
        said.contains("several sizes of float32[?,?] are not known from those of float32[4,6]"),
        "{said}"
    );
}

#[test]
fn factors_of_named_sizes() {
    let (x, u) = iota::<T![f32; 8@X, Embed]>();
    let heads: T![f32; 8@X, 2, 8] = x.split_dim::<N![2], N![8], _>(D1);
    agree(heads, u.reshape_to([8, 2, 8], p!["X"]));
    let (x, u) = iota::<T![f32; Batch, Seq, 2]>();
    let tokens: T![f32; SizeProduct<Batch, Seq>, 2] = x.merge_dims(D0);
    agree(tokens.clone(), u.reshape([9, 2]));
    // both sizes are known only as their product
    let back: T![f32; Batch, Seq, 2] = tokens.split_dim::<Batch, Seq, _>(D0);
    assert!(back.to_vec().unwrap_err().unquoted().contains("the sizes Batch and Seq are not known"));
    let wide: T![f32; Batch, SizeProduct<Seq, N![2]>] = x.merge_dims(D1);
    let back: T![f32; Batch, Seq, 2] = wide.split_dim::<Seq, N![2], _>(D1);
    agree(back, u.clone());
    // the size of `Batch` is also that of another dim
    let (x, u) = iota::<T![f32; Batch, Batch, 4]>();
    let merged: T![f32; Batch, SizeProduct<Batch, N![4]>] = x.merge_dims(D1);
    let back: T![f32; Batch, Batch, 4] = merged.split_dim::<Batch, N![4], _>(D1);
    agree(back, u);
}

#[test]
fn slices_and_pads_of_sharded_dims() {
    let (x, u) = iota::<T![f32; 8@X, 12@Y]>();
    let inner: T![f32; 6@X, 4@Y] = x.slice::<N![1], N![7], _>(D0).slice::<N![3], N![7], _>(D1);
    agree(inner, u.slice(ix![1..7, 3..7]));
    let strided: T![f32; 4@X, 4@Y] =
        x.slice_by::<N![1], N![8], N![2], _>(D0).slice_by::<N![0], N![12], N![3], _>(D1);
    agree(strided, u.slice(ix![1..8;2, ..;3]));
    let wide: T![f32; 10@X, 16@Y] = x.pad::<N![0], N![2], _>(D0, 7.0).pad::<N![3], N![1], _>(D1, 5.0);
    agree(wide, u.pad(7.0, [(0, 2, 0), (0, 0, 0)]).pad(5.0, [(0, 0, 0), (3, 1, 0)]));
    let empty: T![f32; 0@X, 12@Y] = x.slice::<N![3], N![3], _>(D0);
    agree(empty, u.slice(ix![3..3]));
}

#[test]
fn several_arrays() {
    let (x, u) = iota::<T![f32; 8@X, 2]>();
    let (y, v) = iota::<T![f32; 8@X, 3]>();
    let joined: T![f32; 8@X, 7] = typed::concat((&x, &y, &x), D1);
    agree(joined.clone(), concat([&u, &v, &u], 1));
    let long: T![f32; 64@X, 2] = typed::concat((&x, &x, &x, &x, &x, &x, &x, &x), D0);
    agree(long, concat([&u; 8], 0));
    let (a, b, c) = joined.split_into::<(N![2], N![3], N![2]), _>(D1);
    let (a, b): (T![f32; 8@X, 2], T![f32; 8@X, 3]) = (a, b);
    agree(a, u.clone());
    agree(b, v);
    agree(c, u.clone());
    let (a, b, c, d) = x.split_into::<(N![2], N![2], N![0], N![4]), _>(D0);
    let parts = u.split([2, 2, 0, 4], 0);
    agree(a, parts[0].clone());
    agree(b, parts[1].clone());
    agree(c, parts[2].clone());
    agree(d, parts[3].clone());
}

fn split_heads<B: Size, D: ProductIs<H, K>, H: Size, K: Size>(x: &T![f32; B@X, D]) -> T![f32; B@X, H, K] {
    x.split_dim::<H, K, _>(D1)
}
fn with_row<A: AddSize<N![1], Out = C>, C: Size>(x: &T![f32; A, 4], row: &T![f32; 1, 4]) -> T![f32; C, 4] {
    x.concat(row, D0)
}
#[test]
fn generic_functions_state_what_they_need() {
    let (x, u) = iota::<T![f32; 8@X, Embed]>();
    let heads: T![f32; 8@X, 2, 8] = split_heads(&x);
    agree(heads, u.reshape_to([8, 2, 8], p!["X"]));
    let (x, u) = iota::<T![f32; 2, 4]>();
    let (row, r) = iota::<T![f32; 1, 4]>();
    agree(with_row(&x, &row), concat([&u, &r], 0));
}
