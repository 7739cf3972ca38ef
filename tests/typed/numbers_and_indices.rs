//! Typed numbers, reductions, masks and index arrays give the bits and types of the untyped methods.
// These tests are about the types.
#![allow(clippy::type_complexity)]

use crate::error_checks::Unquoted as _;
use atmesh::PcastTo;
use atmesh::array::DimIndex;
use atmesh::prelude::*;
use atmesh::typed::{prelude::*, sets};
use std::fmt::Debug;

mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Rows);

fn pod() -> MeshOf<Pod> {
    Pod::mesh().unwrap()
}
/// Requires the type and the bits of the untyped result.
#[track_caller]
fn same<A: TypedArray<Elem: Debug>>(typed: &A, untyped: &Array) {
    let typed = typed.as_untyped();
    assert_eq!(type_of(typed).to_string(), type_of(untyped).to_string());
    // `Debug` tells NaN and -0 from other numbers
    let text = |x: &Array| format!("{:?}", x.to_vec::<A::Elem>().unwrap());
    assert_eq!(text(typed), text(untyped));
}
/// Numbers of both signs, as a typed array.
fn wave<T: Float>() -> T![T; 8@X, 4@Y, 6] {
    let (a, b) = (<T![f32; 8@X, 4@Y, 6]>::iota(&pod(), D0), <T![f32; 8@X, 4@Y, 6]>::iota(&pod(), D2));
    (a * 1.7 + b * 0.9).sin().convert()
}

fn numbers<T: Float + Debug>() {
    let x = wave::<T>();
    let u = x.as_untyped();
    same(&(&x * 0.1 + 1e-5 - 2), &(u * 0.1 + 1e-5 - 2));
    same(&(&x / 3 % T::from_f64(0.3)), &(u / 3 % 0.3f64));
    same(&x.maximum(0.25).minimum(T::ONE), &u.maximum(0.25).minimum(1.0));
    same(&x.gt(0.1), &u.gt(0.1));
    same(&x.abs().pow(0.5), &u.abs().pow(0.5));
    same(&x.clamp(-0.5, 1), &u.clamp(-0.5, 1));
    same(&(2 - &x), &(2 - u));
    same(&x.shift(1, D0, 0.5), &u.shift(1, 0, 0.5));
    same(&x.pad::<N![1], N![2], _>(D2, -1), &u.pad(-1, [(0, 0, 0), (0, 0, 0), (1, 2, 0)]));
    let mut y = x.clone();
    y += &x;
    y *= 0.5;
    y -= T::ONE;
    y /= x.sum(keep(D1)) + 3.0;
    same(&y, &(((u + u) * 0.5 - 1.0) / (u.sum(Dims::keep(1)) + 3.0)));
}
#[test]
fn numbers_of_every_type() {
    numbers::<f16>();
    numbers::<bf16>();
    numbers::<f32>();
    numbers::<f64>();
    let half = wave::<bf16>();
    same(&(0.3 * &half), &(0.3 * half.as_untyped()));
    let n = <T![u8; 8@X]>::iota(&pod(), D0);
    let u = n.as_untyped();
    same(&((((1 + &n) * 3) & 6) | 64), &((((1 + u) * 3) & 6) | 64));
    same(&n.shift_left(2).eq(4), &u.shift_left(2).eq(4));
    let wide = <T![i64; 8@X]>::iota(&pod(), D0);
    same(&(&wide * 5_000_000_000), &(wide.as_untyped() * 5_000_000_000i64));
    same(&(&wide + i64::ONE - i64::ZERO), &(wide.as_untyped() + 1));
    // a scalar array joins arrays of any shape
    let rate = <T![f32;]>::full(&pod(), 0.3);
    let x = wave::<f32>();
    same(&(&x * rate.as_number()), &(x.as_untyped() * rate.as_untyped()));
}

#[test]
fn reductions_over_any_dims() {
    let x = wave::<f32>().split_dim::<N![2], N![3], _>(D2).expand_dims(D0);
    let u = x.as_untyped();
    let a: T![f32; 2] = x.sum((D0, D1, D2, D4));
    same(&a, &u.sum([0, 1, 2, 4]));
    let b: T![f32; ~, ~, 4@Y, ~, ~] = x.mean(keep((D0, D1, D3, D4)));
    same(&b, &u.mean(Dims::keep([0, 1, 3, 4])));
    same(&x.max((D1, D2, D3)), &u.max([1, 2, 3]));
    same(&x.min(keep((D0, D1, D2))), &u.min(Dims::keep([0, 1, 2])));
    same(&x.var(keep(..)), &u.var(Dims::keep(..)));
    same(&x.logsumexp((D3, D4)), &u.logsumexp([3, 4]));
    same(&x.argmax(..), &u.argmax(..));
    same(&x.argmin(keep(D1)), &u.argmin(Dims::keep(1)));
    same(&x.argmin(keep(..)), &u.argmin(Dims::keep(..)));
    same(&x.argmax(D2), &u.argmax(2));
    let holes = x.gt(0.5).select(f32::NAN, &x);
    let v = holes.as_untyped();
    same(&holes.count_nonzero((D1, D2)), &v.count_nonzero([1, 2]));
    same(&holes.nansum(D1), &v.nansum(1));
    same(&holes.nanprod(D1), &v.nanprod(1));
    same(&holes.nanmax((D1, D2)), &v.nanmax([1, 2]));
    same(&holes.nanmin(D4), &v.nanmin(4));
    same(&holes.nanmean(..), &v.nanmean(..));
    same(&holes.nanvar(keep(D1)), &v.nanvar(Dims::keep(1)));
    same(&holes.nanstd(D1), &v.nanstd(1));
    same(&x.norm((D3, D4)), &u.norm([3, 4]));
    same(&x.var_ddof(D1, 1), &u.var_ddof(1, 1));
    same(&x.std_ddof((D1, D2), 1), &u.std_ddof([1, 2], 1));
}

#[test]
fn along_a_dim() {
    let x = wave::<f32>();
    let u = x.as_untyped();
    same(&x.cumsum_reverse(D2), &u.cumsum_reverse(2));
    same(&x.cumprod_reverse(D2), &u.cumprod_reverse(2));
    same(&x.cummax_reverse(D2), &u.cummax_reverse(2));
    same(&x.cummin_reverse(D2), &u.cummin_reverse(2));
    same(&x.cumlogsumexp_reverse(D2), &u.cumlogsumexp_reverse(2));
    let median: T![f32; 8@X, 4@Y] = x.median(D2);
    same(&median, &u.median(2));
    same(&x.quantile(0.3, D2), &u.quantile(0.3, 2));
    same(&x.isclose(&(&x + 1e-9)), &u.isclose(u + 1e-9));
    same(&x.isclose(0), &u.isclose(0));
    same(&(&x * 9).rint().floor_divide(2).remainder(3), &(u * 9).rint().floor_divide(2).remainder(3));
    let odd = x.log() / 0;
    let v = odd.as_untyped();
    same(&odd.is_nan(), &v.is_nan());
    same(&odd.is_inf(), &v.is_inf());
    same(&odd.is_finite(), &v.is_finite());
    same(&odd.nan_to_num(), &v.nan_to_num());
}

#[test]
fn masks() {
    let x = wave::<f32>();
    let square: T![f32; 8@X, 4@Y, 6, 6] = x.expand_dims(D2) * <T![f32; 6, ~]>::ones(&pod());
    let u = square.as_untyped();
    same(&square.tril(-1), &u.tril(-1));
    same(&square.triu(1), &u.triu(1));
    let rows = wave::<f32>().reshard(P![_, X, _]);
    same(&rows.tril(0), &rows.as_untyped().tril(0));
    let causal = <T![bool; 6, 6]>::ones(&pod()).tril(0);
    let mask = causal.as_untyped();
    same(&causal.select(&square, -1e9), &mask.select(u, -1e9));
    same(&causal.select(0.5, &square), &mask.select(0.5, u));
    let half: T![bf16; 6, 6] = causal.select(0.1, 0.7);
    same(&half, &mask.select(Array::from(bf16::from_f32(0.1)), 0.7));
    // the condition has more dims than a value, which is sharded otherwise
    let positive = square.gt(0.0);
    let row = <T![f32; 4@Y, ~, 6]>::iota(&pod(), D2);
    let chosen: T![f32; 8@X, 4@Y, 6, 6] = positive.select(&row, x.expand_dims(D2));
    same(&chosen, &positive.as_untyped().select(row.as_untyped(), x.as_untyped().expand_dims(2)));
}

#[test]
fn takes() {
    let table = wave::<f32>().reshard(P![_, Y, X]);
    let u = table.as_untyped();
    let ids = <T![i32; 3, 2]>::iota(&pod(), D0) * 3;
    let some: T![f32; 3, 2, 4@Y, 6@X] = table.take(&ids, D0);
    same(&some, &u.take(ids.as_untyped(), 0));
    let one: T![f32; 4@Y, 6@X] = table.take(&<T![u8;]>::full(&pod(), 5), D0);
    same(&one, &u.take(&Array::from(5u8), 0));
    // indices beyond both ends, sharded like the batch, into a sharded dim
    let far = <T![i64; 8@X, 3]>::iota(&pod(), D0) * 3 - 10;
    let x = wave::<f32>();
    let taken: T![f32; 8@X, 3, 4@Y, 6] = x.take_to(&far, D0, P![=, =, =, =]);
    same(&taken, &x.as_untyped().take_to(far.as_untyped(), 0, p!["X", _, "Y"]));
}

#[test]
fn takes_along_a_dim() {
    let x = wave::<f32>();
    let u = x.as_untyped();
    let ids = <T![i32; 8@X, 4@Y, 2]>::iota(&pod(), D1) * 3 - 4;
    let i = ids.as_untyped();
    let some: T![f32; 8@X, 4@Y, 2] = x.take_along_axis(&ids, D2);
    same(&some, &u.take_along_axis(i, 2));
    // of size 1: along the dim, along another one, and in the array
    let last = <T![i32; 8@X, ~, ~]>::full(&pod(), -1);
    let one: T![f32; 8@X, 4@Y, ~] = x.take_along_axis(&last, D2);
    same(&one, &u.take_along_axis(last.as_untyped(), 2));
    let many = <T![i32; 8@X, 5, 2]>::iota(&pod(), D0);
    let thin: T![f32; 8@X, ~, 6] = x.max(keep(D1));
    let spread: T![f32; 8@X, 5, 2] = thin.take_along_axis(&many, D2);
    same(&spread, &thin.as_untyped().take_along_axis(many.as_untyped(), 2));
    // along a sharded dim
    let rows = <T![i32; 2, 4, 6@X]>::iota(&pod(), D2);
    let first: T![f32; 2, 4@Y, 6@X] = x.take_along_axis_to(&rows, D0, P![=, =, X]);
    same(&first, &u.take_along_axis_to(rows.as_untyped(), 0, p![_, "Y", "X"]));
}

#[test]
fn updates() {
    let x = wave::<f32>().reshard(P![_, Y, _]);
    let u = x.as_untyped();
    let ids = <T![i32; 5]>::iota(&pod(), D0) * 3 - 2;
    let i = ids.as_untyped();
    let index = || vec![DimIndex::from(i), (..).into(), (..).into()].into();
    let full = x.take(&ids, D0) * 2;
    let unsharded = <T![f32; 4, 6]>::iota(&pod(), D1);
    let rows = <T![f32; 5, ~, 6]>::iota(&pod(), D0);
    same(&x.at(&ids, D0).get(), &u.at(index()).get());
    same(&x.at(&ids, D0).set(&full), &u.at(index()).set(full.as_untyped()));
    same(&x.at(&ids, D0).add(&unsharded), &u.at(index()).add(unsharded.as_untyped()));
    same(&x.at(&ids, D0).mul(&rows), &u.at(index()).mul(rows.as_untyped()));
    same(&x.at(&ids, D0).min(0.1), &u.at(index()).min(0.1));
    same(&x.at(&ids, D0).max(0), &u.at(index()).max(0));
    // repeated indices, two dims of them, in the middle
    let pairs = <T![u32; 2, 2]>::iota(&pod(), D1);
    let along: T![f32; 8@X, 6, 4] = wave::<f32>().reshard(P![X, _, _]).transpose((D0, D2, D1));
    let index = vec![(..).into(), DimIndex::from(pairs.as_untyped()), (..).into()];
    same(&along.at(&pairs, D1).add(1), &along.as_untyped().at(index.into()).add(1));
    // one index along a sharded dim
    let one = <T![i32;]>::full(&pod(), 5);
    let index = vec![(..).into(), DimIndex::from(one.as_untyped()), (..).into()];
    let column = x.transpose((D0, D2, D1)).reshard(P![_, X, _]);
    same(&column.at(&one, D1).add(2), &column.as_untyped().at(index.into()).add(2));
    let hot: T![f32; 8@X, 16@Y] = <T![i32; 8@X]>::iota(&pod(), D0).one_hot_to::<N![16], _>(P![=, Y]);
    same(&hot, &Array::arange(0..8).put(&pod(), p!["X"]).one_hot_to(16, p!["X", "Y"]));
}

#[test]
fn sizes_that_are_known_only_at_run_time_are_not_repeated() {
    let rows = |n: usize| Array::ones([n, 3]).put(&pod(), p![]).typed::<T![f32; Rows, 3]>().unwrap();
    let ids = |n: usize| Array::zeros(I32.array_type([n, 1])).put(&pod(), p![]).typed().unwrap();
    let wrong = |x: &Array| {
        let error = x.ty().unwrap_err().unquoted();
        assert!(error.contains("the types hold the two equal: both are `Rows`"), "{error}");
    };
    let good: T![i32; Rows, 1] = ids(4);
    assert!(rows(4).take_along_axis(&good, D1).as_untyped().ty().is_ok());
    let one: T![i32; Rows, 1] = ids(1);
    wrong(rows(4).take_along_axis(&one, D1).as_untyped());
    wrong(rows(4).take_along_axis_to(&one, D1, P![=, =]).as_untyped());
    wrong(rows(4).gt(0.0).select(&rows(4), &rows(1)).as_untyped());
    wrong(rows(4).gt(0.0).select(0.0, &rows(1)).as_untyped());
    let number = <T![i32;]>::zeros(&pod());
    wrong(rows(4).t().at(&number, D0).add(rows(1).sum(D1)).as_untyped());
    let mut x = rows(4);
    x += rows(1);
    wrong(x.as_untyped());
}

#[test]
fn in_a_body() {
    let (x, ids) = (wave::<f32>(), <T![i32; 8@X]>::iota(&pod(), D0) % 4);
    let (y, picked): (T![f32; 8@X, 4@Y, 6], T![f32; 8@X, 6]) = Pod.shard_map(
        (x.clone(), ids.clone(), <T![f32; 4, 6]>::ones(&pod()).tril(0)),
        (P![X, Y, _], P![X, _]),
        |(x, ids, table)| {
            let rows: T![f32; 4, 6; V: X] = table.take(&ids, D0);
            let small: T![bool; 4, 1, 6; V: (X, Y)] = x.lt(0.5);
            let x: T![f32; 4, 1, 6; V: (X, Y)] = small.select(&x * 0.5 - 1, 0.25).clamp(-2, 2);
            let counted: T![f32; 4, 6; V: X] = table.at(&ids, D0).add(&rows).tril(0);
            (x, counted)
        },
    );
    let (u, i) = (x.as_untyped(), ids.as_untyped());
    same(&y, &u.lt(0.5).select(u * 0.5 - 1, 0.25).clamp(-2, 2));
    let table = Array::ones([4, 6]).tril(0);
    let part = |k: i32| {
        let ids = i.reshard(p![]).slice(ix![4 * k..4 * k + 4]);
        table.at(ix![&ids]).add(table.take(&ids, 0)).tril(0).to_vec::<f32>().unwrap()
    };
    assert_eq!(picked.to_vec().unwrap(), [part(0), part(1)].concat());
}

#[test]
fn numbers_join_reduced_values() {
    let x = <T![f32; 8, 4]>::iota(&pod(), D0);
    let r: T![f32; 8, 4; R: X] = x.reshard(P![_, _; R: X]);
    let u = r.as_untyped();
    same(&((&r + 1) * 0.5).maximum(2), &((u + 1) * 0.5).maximum(2));
    same(&(1.0 - r.clamp(1, 3) / 2), &(1.0 - u.clamp(1, 3) / 2));
    same(&r.gt(2.0), &u.gt(2.0));
    let _: T![f32; 8, 4] = Pod.shard_map((x,), P![_, _], |(x,)| {
        type Reduced = Typed<f32, S![8, 4], (sets::ReducedSum<X>, sets::Invariant)>;
        let r: Reduced = x.then::<Reduced>(|x| x.pcast("X", PcastTo::Reduced)).unwrap();
        let sum: Reduced = (&r + 1).maximum(2).minimum(5) / 2 - 3.0;
        sum.as_untyped().ty().unwrap();
        r.lt(1).as_untyped().ty().unwrap();
        r.clamp(0, 1).as_untyped().ty().unwrap();
        x
    });
}
