//! The typed layer: compiled programs return the types that they state, and these agree with the
//! dynamic layer.
// These tests are about the types.
#![allow(clippy::type_complexity)]

mod sizes;

use crate::error_checks::Unquoted as _;
use atmesh::prelude::*;
use atmesh::typed::rules::broadcast::ZipOf;
use atmesh::typed::rules::dot::MatmulOf;
use atmesh::typed::{self, prelude::*};
use atmesh::{Compiled, Jit, value_and_grad, vjp};
use static_assertions::{
    assert_eq_align, assert_eq_size, assert_impl_all, assert_not_impl_any, assert_type_eq_all,
};

mesh! { struct Pod { X: 2, Y: 4 } }
mesh! { struct Late { Data("data"): ?, Model("model"): 4 } }
dim!(Batch);
dim!(Embed = 16);

assert_type_eq_all!(MatmulOf<S![8@X, 16], S![16, 32@Y]>, S![8@X, 32@Y]);
assert_type_eq_all!(ZipOf<S![8, 16@Y], S![16@Y]>, S![8, 16@Y]);
type F = T![f32; 8@X, 16];
assert_impl_all!(F: Send, Sync, Clone, Tree, TypedArray);
assert_impl_all!(Array: Send, Sync);
assert_impl_all!(Mesh: Send, Sync);
assert_impl_all!(Compiled<F, F>: Send, Sync);
// A tracing function is bound to its thread.
assert_not_impl_any!(Jit<'static, F, F>: Send, Sync);
// A device's handle stays on its thread: references obtained from it cannot leave.
assert_not_impl_any!(Device: Sync);
assert_not_impl_any!(&Device: Send);
// Sizes copied from an error message are valid sizes.
assert_type_eq_all!(T![f32; typed::size::Num<8>@X, typed::size::K<4, 96>], T![f32; 8@X, 4096]);
assert_eq_size!(F, Array, usize);
assert_eq_align!(F, Array);

fn mlp<B: Size, D: Size, H: Size>(
    x: &T![f32; B@X, D],
    up: &T![f32; D, H@Y],
    down: &T![f32; H@Y, D],
) -> T![f32; B@X, D] {
    x.matmul(up).relu().matmul_to(down, P![=, _]) + x
}

#[derive(Tree)]
#[tree(derive(Clone))]
struct Mlp<D: Size, H: Size> {
    up: T![f32; D, H@Y],
    down: T![f32; H@Y, D],
}
impl<D: Size, H: Size> Mlp<D, H> {
    fn apply<B: Size>(&self, x: &T![f32; B@X, D]) -> T![f32; B@X, D] {
        mlp(x, &self.up, &self.down)
    }
}

fn pod() -> MeshOf<Pod> {
    Pod::mesh().unwrap()
}
fn model() -> Mlp<Embed, N![32]> {
    Mlp { up: Typed::full(&pod(), 0.01), down: Typed::full(&pod(), 0.02) }
}
use atmesh::typed::Typed;

#[test]
fn a_generic_layer_runs_at_once_and_under_jit() {
    let x = <T![f32; 8@X, Embed]>::ones(&pod());
    let now = model().apply(&x);
    assert_eq!(type_of(&now), "float32[8@X,16]");
    let step = jit(|m: &Mlp<Embed, N![32]>, x: &T![f32; 8@X, Embed]| m.apply(x));
    let then = step.call((&model(), &x)).unwrap();
    assert_eq!(now.to_vec().unwrap(), then.to_vec().unwrap());
    assert!((now.to_vec().unwrap()[0] - (1.0 + 32.0 * 0.16 * 0.02)).abs() < 1e-5);
}

#[test]
fn derivatives_have_the_types_of_what_they_are_of() {
    let x = <T![f32; 8@X, Embed]>::ones(&pod());
    let (loss, grads) = value_and_grad(model(), |m| m.apply(&x).sum(..));
    let _: T![f32;] = loss;
    assert_eq!(type_of(&grads), "{up: float32[16,32@Y], down: float32[32@Y,16]}");
    let g: T![f32; 8@X, Embed] = grad(&x, |x| model().apply(&x).square().sum(..));
    assert!(g.to_vec().unwrap().iter().all(|v| v.is_finite()));
    let (y, pull) = vjp(&x, |x| x.sum(D0));
    let back: T![f32; 8@X, Embed] = pull.call(y.ones_like());
    assert_eq!(back.to_vec().unwrap(), vec![1.0; 128]);
}

#[test]
fn control_flow_keeps_types() {
    let x = <T![f32; 8@X]>::ones(&pod());
    let y: T![f32; 8@X] = fori_loop(0..3, x.clone(), |_, x| &x * 2.0);
    assert_eq!(y.to_vec().unwrap(), vec![8.0; 8]);
    let z: T![f32; 8@X] = cond(y.sum(..).gt(&x.sum(..)), || &x + &y, || x.clone());
    assert_eq!(z.to_vec().unwrap(), vec![9.0; 8]);
    let rows = <T![f32; 5, 8@X]>::ones(&pod());
    let (last, sums) = typed::scan(x.zeros_like(), &rows, |c, r| (&c + &r, &c + &r));
    let (_, sums): (T![f32; 8@X], T![f32; 5, 8@X]) = (last, sums);
    assert_eq!(sums.to_vec().unwrap()[32], 5.0);
}

#[test]
fn the_door_names_both_types_and_the_dim() {
    let x = Array::ones([8, 16]).put(&pod(), p!["X"]);
    assert!(x.typed::<T![f32; 8@X, ?]>().is_ok());
    assert!(x.typed::<T![f32; Batch@X, Embed]>().is_ok());
    for (error, kind) in [
        (x.typed::<T![f32; 8@Y, 16]>().err(), "sharding"),
        (x.typed::<T![f32; 8@X, 17]>().err(), "shape"),
        (x.typed::<T![f32; 8@X]>().err(), "shape"),
        (x.typed::<T![i32; 8@X, 16]>().err(), "dtype"),
        (x.typed::<T![f32; 8@X, 16; U: Y]>().err(), "sharding"),
        (x.typed::<T![f32; 8@X, 16; V: Y]>().err(), "varying"),
    ] {
        let error = error.expect("rejected");
        assert_eq!(error.kind().name(), kind, "{error}");
        assert!(error.unquoted().contains("float32[8@X,16]"), "{error}");
    }
    let wide = Mesh::new([("X", 4)]).unwrap();
    let x = Array::ones([8, 16]).put(&wide, p!["X"]);
    let error = x.typed::<T![f32; 8@X, 16]>().expect_err("another mesh");
    assert!(error.unquoted().contains("on `Pod` (Mesh(X: 2, Y: 4)): the array is on Mesh(X: 4"), "{error}");
    assert!(Array::ones([4]).reshape([5]).typed::<T![f32; 5]>().is_err(), "the array's own error");
}

#[test]
fn a_typed_array_is_on_the_mesh_of_its_axes() {
    // the axis that shards the array agrees, the others do not: in name, order and number
    for axes in [vec![("X", 2), ("Z", 3)], vec![("Y", 4), ("X", 2)], vec![("X", 2)]] {
        let odd = Mesh::new(axes).unwrap();
        let x = Array::ones([8]).put(&odd, p!["X"]);
        let error = x.typed::<T![f32; 8@X]>().expect_err("another mesh").unquoted();
        assert!(error.contains(&format!("on `Pod` (Mesh(X: 2, Y: 4)): the array is on {odd}")), "{error}");
        assert!(error.contains("`.put(&Pod::mesh()?, ..)`"), "{error}");
        assert!(odd.typed::<Pod>().is_err());
        let sum = Array::ones([8, 16]).put(&odd, p![_, "X"]).typed::<T![f32; 8; U: X]>();
        assert!(sum.is_err());
        // types of unsharded arrays name no mesh: where two meshes meet, the operation is an error
        let unsharded = Array::ones([8]).put(&odd, p![]).typed::<T![f32; 8]>().unwrap();
        let met = (<T![f32; 8@X]>::ones(&pod()) + &unsharded).to_vec().unwrap_err();
        assert!(met.unquoted().contains("must be on one mesh"), "{met}");
        let met = (<T![f32; 8]>::ones(&pod()) + &unsharded).to_vec().unwrap_err();
        assert!(met.unquoted().contains("must be on one mesh"), "{met}");
    }
    let same = Mesh::new([("X", 2), ("Y", 4)]).unwrap().typed::<Pod>().unwrap();
    assert_eq!(same, pod());
    assert_eq!(format!("{same} {same:?}"), format!("{0} {0:?}", same.clone().untyped()));
}

#[test]
fn what_changes_a_leafs_type_is_an_error_not_a_wrong_type() {
    let x = <T![f32; 8@X, 16]>::ones(&pod());
    let y = tree::map(&x, |a| a.sum(1));
    assert!(y.untyped().ty().is_err());
}

#[test]
fn late_sizes() {
    let late = Late::with_sizes(&[2, 4]).unwrap();
    assert!(Late::with_sizes(&[2, 2]).is_err() && Late::with_sizes(&[2]).is_err() && Late::mesh().is_err());
    let x = <T![f32; 8@Data, 16@Model]>::ones(&late);
    assert_eq!(type_of(&x), "float32[8@data,16@model]");
    let y: T![f32; 8@Data, 16] = Late.shard_map((x,), P![Data, _], |(x,)| {
        assert_eq!(type_of(&x), "float32[4,4]{V:(data,model)}");
        x.all_gather(Model, D1).psum(Model)
    });
    assert_eq!(y.to_vec().unwrap(), vec![4.0; 128]);
}

#[test]
fn collectives() {
    let x = <T![f32; 8@X, 16@Y]>::iota(&pod(), D0);
    let y: T![f32; 8@(X, Y), 16] = Pod.shard_map((x.clone(),), P![(X, Y), _], |(x,)| {
        let x: T![f32; 4, 4; V: (X, Y)] = x;
        let y: T![f32; 1, 16; V: (Y, X)] = x.all_to_all(Y, D0, D1);
        y
    });
    assert_eq!(y.to_vec().unwrap(), x.to_vec().unwrap());
    let w = <T![f32; 16@X, 8]>::ones(&pod());
    let z: T![f32; 8@X, 8] = Pod.shard_map((w,), P![X, _], |(w,)| {
        let w: T![f32; 4, 8; V: X] = w.psum_scatter(X, D0);
        w
    });
    assert_eq!(z.to_vec().unwrap(), vec![2.0; 64]);
    let (a, b): (T![i32; 8@X], T![f32; 8]) = Pod.shard_map(
        (<T![i32; 8@X]>::ones(&pod()), <T![f32; 8]>::ones(&pod()), ThisDevice),
        (P![X], P![_]),
        |(a, b, device)| {
            let me: T![i32;; V: X] = device.axis_index(X);
            let zero: T![f32; 8; in Pod] = Typed::zeros(&device);
            (&a.ppermute(X, [(0, 1), (1, 0)]) + &me, &b + &zero)
        },
    );
    assert_eq!(a.to_vec().unwrap(), [1, 1, 1, 1, 2, 2, 2, 2]);
    assert_eq!(b.to_vec().unwrap(), [1.0; 8]);
}

#[derive(Blocks, Clone, Tree)]
struct Layer<W, B> {
    w: W,
    b: B,
}
#[derive(Blocks, Clone, Tree)]
struct Net<A, L>(A, L);

#[test]
fn structs_enter_and_leave_blocks() {
    let layer =
        |n: f32| Layer { w: <T![f32; 8, 16@Y]>::full(&pod(), n), b: <T![f32; 16@Y]>::full(&pod(), 10.0 * n) };
    let net = Net(<T![f32; 4@X]>::ones(&pod()), (layer(1.0), layer(2.0)));
    let specs = Net(P![X], (Layer { w: P![Y, _], b: P![_] }, Layer { w: P![_, Y], b: P![Y] }));
    let out = Pod.shard_map(
        (net, [layer(3.0), layer(4.0)]),
        (specs, Layer { w: P![_, Y], b: P![Y] }),
        |(n, more)| {
            let Net(first, (one, two)) = n;
            let [three, four] = more;
            let turned: T![f32; 2, 16; V: Y] = one.w.all_to_all(Y, D0, D1);
            let sum = Layer { w: &three.w - &four.w, b: three.b.maximum(&four.b) };
            (Net(first, (Layer { w: turned, b: one.b.psum(Y) }, two)), sum)
        },
    );
    assert_eq!(
        type_of(&out.0),
        "(float32[4@X], ({w: float32[8@Y,16], b: float32[4]}, {w: float32[8,16@Y], b: float32[16@Y]}))"
    );
    let (Net(_, (one, two)), sum) = out;
    assert_eq!((one.b.to_vec().unwrap(), two.b.to_vec().unwrap()), (vec![40.0; 4], vec![20.0; 16]));
    assert_eq!((sum.w.to_vec().unwrap(), sum.b.to_vec().unwrap()), (vec![-1.0; 128], vec![40.0; 16]));
    // An error in one leaf does not affect the others.
    let bad = Layer { w: <T![f32; 8, 16@Y]>::ones(&pod()), b: tree::map(&layer(1.0).b, |b| b.sum(0)) };
    let out = Pod.shard_map((bad,), Layer { w: P![_, Y], b: P![Y] }, |(l,)| l);
    assert!(out.b.untyped().ty().is_err());
}

#[test]
fn collectives_over_several_axes() {
    let x = <T![i32; 16@(X, Y)]>::iota(&pod(), D0);
    let (all, sum) = Pod.shard_map((x,), (P![(X, Y)], P![(Y, X)]), |(x,)| {
        let all: T![i32; 16; V: (X, Y)] = x.all_gather((X, Y), D0);
        let turned: T![i32; 16; V: (X, Y)] = x.all_gather((Y, X), D0);
        let sum: T![i32; 2; V: (X, Y)] = all.psum_scatter((Y, X), D0);
        (&all - &turned, sum)
    });
    let all = all.to_vec().unwrap();
    assert_eq!(all[..8], [0, 0, -6, -6, 2, 2, -4, -4], "major axes come first");
    assert_eq!(sum.to_vec().unwrap(), (0..16).map(|i| 8 * i).collect::<Vec<_>>());
    let x = <T![i32; 8@(X, Y), 8]>::iota(&pod(), D1);
    let turned: T![i32; 8, 8@(X, Y)] =
        Pod.shard_map((x.clone(),), P![_, (X, Y)], |(x,)| x.all_to_all((X, Y), D1, D0));
    assert_eq!(turned.to_vec().unwrap(), x.to_vec().unwrap());
}

#[test]
fn unreduced_sums() {
    let (x, w) = (<T![f32; 8, 16@X]>::ones(&pod()), <T![f32; 16@X, 4]>::ones(&pod()));
    let z: T![f32; 8, 4; U: X] = x.matmul_to(&w, P![_, _; U: X]);
    let two: T![f32; 8, 4; U: X] = &z + &z;
    let r: T![f32; 8, 4; R: X] = <T![f32; 8, 4]>::full(&pod(), 3.0).reshard(P![_, _; R: X]);
    let six: T![f32; 8, 4; U: X] = two.mul(&r);
    let made: T![f32; 8@X, 4] = six.reshard(P![X, _]);
    assert_eq!(made.to_vec().unwrap(), vec![96.0; 32]);
}

#[test]
fn moves() {
    let x = <T![f32; 8@X, 12]>::iota(&pod(), D1);
    let t: T![f32; 12, 8@X] = x.t();
    let e: T![f32; 8@X, ~, 12] = x.expand_dims(D1);
    let m: T![f32; 8@X, 12] = e.squeeze(D1) - x.max(keep(D1)) + t.transpose((D1, D0));
    let s: T![f32; 8@X, 12] = m.softmax(D1);
    let d: T![f32; 8@X, 3, 4] = s.split_dim::<N![3], N![4], _>(D1);
    let b: T![f32; 8@X, 12] = d.merge_dims(D1);
    assert_eq!(b.to_vec().unwrap(), s.to_vec().unwrap());
    let (l, r): (T![f32; 8@X, 4], T![f32; 8@X, 8]) = b.split::<N![4], N![8], _>(D1);
    let j: T![f32; 8@X, 12] = l.concat(&r, D1);
    assert_eq!(j.to_vec().unwrap(), s.to_vec().unwrap());
    let c: T![f32; 8@X, 2] = j.slice::<N![1], N![3], _>(D1);
    let f: T![f32; 2, 8@X, 2] = c.broadcast_to::<S![2, 8@X, 2]>();
    assert_eq!(type_of(f.flip(D0)), "float32[2,8@X,2]");
    let y: T![f32; 8@X, 3, 4] = x.then(|x| x.reshape([8, 3, 4])).unwrap();
    let p: T![f32; 3, 4] = einsum!("abc->bc", y);
    let q: T![f32; 8@X] = einsum!("abc,bc->a", y, p);
    let z: T![f32; 12] = p.reshape::<S![12]>();
    assert_eq!((type_of(q), type_of(z)), (type_of(x.sum(D1)), type_of(x.sum(D0))));
    let i: T![i32; 8@X] = x.argmax(D1);
    assert_eq!(i.to_vec().unwrap(), [11; 8]);
    let h: T![bool; 8@X] = i.gt(&(&i - 1));
    assert!(h.to_vec().unwrap().iter().all(|b| *b));
}

#[test]
fn order_and_running_sums() {
    let x = <T![i32; 8@X, 6]>::iota(&pod(), D1).flip(D1);
    let sorted: T![i32; 8@X, 6] = x.sort(D1);
    let places: T![i32; 8@X, 6] = x.argsort(D1);
    assert_eq!(&sorted.to_vec().unwrap()[..6], [0, 1, 2, 3, 4, 5]);
    assert_eq!(&places.to_vec().unwrap()[..6], [5, 4, 3, 2, 1, 0]);
    assert_eq!(&sorted.cumsum(D1).to_vec().unwrap()[..6], [0, 1, 3, 6, 10, 15]);
    assert_eq!(&(&sorted + 1).cumprod(D1).to_vec().unwrap()[..6], [1, 2, 6, 24, 120, 720]);
    assert_eq!(&x.cummax(D1).to_vec().unwrap()[..6], [5; 6]);
    assert_eq!(x.cummin(D1).to_vec().unwrap(), x.to_vec().unwrap());
    let logs: T![f32; 8@X, 6] = x.convert::<f32>().cumlogsumexp(D1);
    assert!((logs.to_vec().unwrap()[1] - (5f32.exp() + 4f32.exp()).ln()).abs() < 1e-5);
    let (top, at): (T![i32; 8@X, 2], T![i32; 8@X, 2]) = x.top_k::<N![2], _>(D1);
    assert_eq!(
        (top.to_vec().unwrap()[..2].to_vec(), at.to_vec().unwrap()[..2].to_vec()),
        (vec![5, 4], vec![0, 1])
    );
    // A shift along a sharded dim exchanges the ends of blocks.
    let rows = <T![i32; 8@X]>::iota(&pod(), D0);
    assert_eq!(rows.roll(1, D0).to_vec().unwrap(), [7, 0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(rows.shift(-2, D0, 9).to_vec().unwrap(), [2, 3, 4, 5, 6, 7, 9, 9]);
    let wide: T![i32; 8@X, 9] = x.pad::<N![1], N![2], _>(D1, 7);
    assert_eq!(&wide.to_vec().unwrap()[..9], [7, 5, 4, 3, 2, 1, 0, 7, 7]);
    let two: T![i32; 8@X, 2, 6] = x.stack(&sorted, D1);
    assert_eq!(&two.to_vec().unwrap()[..12], [5, 4, 3, 2, 1, 0, 0, 1, 2, 3, 4, 5]);
    let tiled: T![i32; 8@X, 12] = x.tile::<N![2], _>(D1);
    assert_eq!(tiled.to_vec().unwrap()[..12], [5, 4, 3, 2, 1, 0, 5, 4, 3, 2, 1, 0]);
    let columns: T![i32; 8@X, 3] = rows.expand_dims(D1).tile::<N![3], _>(D1);
    assert_eq!(columns.to_vec().unwrap()[3..6], [1; 3]);
    let row = <T![i32; 6]>::ones(&pod());
    let total: T![i32; 8] = sorted.reshard(P![_, X]).dot_to(&row.reshard(P![X]), P![_]);
    assert_eq!(total.to_vec().unwrap(), [15; 8]);
    let ids = <T![i32; 3]>::full(&pod(), -1);
    let last: T![i32; 8@X, 3] = x.take(&ids, D1);
    assert_eq!(last.to_vec().unwrap(), [0; 24]);
    let hot: T![f32; 8@X, 8] = rows.one_hot::<N![8]>();
    assert_eq!(hot.sum(..).item().unwrap(), 8.0);
}

#[test]
fn sums_over_several_axes() {
    let x = <T![f32; 8@X, 16@Y]>::ones(&pod());
    let (all, most): (T![f32;], T![f32;]) = Pod.shard_map((x,), (P![], P![]), |(x,)| {
        let part: T![f32;; V: (X, Y)] = x.sum(..);
        (part.psum((X, Y)), part.pmax((Y, X)))
    });
    assert_eq!((all.item().unwrap(), most.item().unwrap()), (128.0, 16.0));
}

#[test]
fn branches_loops_and_examples_keep_types() {
    let x = <T![f32; 8@X, 16]>::ones(&pod());
    let y: T![f32; 8@X, 16] = while_loop(x.clone(), |x| x.max(..).lt(100.0), |x| x * 3.0);
    assert_eq!(y.to_vec().unwrap(), [243.0; 128]);
    let which = <T![i32;]>::full(&pod(), 1);
    let z: T![f32; 8@X, 16] = switch(which, &[&|| x.clone(), &|| &x + &y]);
    assert_eq!(z.to_vec().unwrap(), [244.0; 128]);
    let w = <T![f32; 16, 4@Y]>::ones(&pod());
    let rows: T![f32; 8@X, 4@Y] = typed::vmap(&z, |row| row.matmul(&w));
    assert_eq!(rows.to_vec().unwrap(), z.matmul(&w).to_vec().unwrap());
}

#[test]
fn all_kept_dims_and_sizes_are_those_of_the_dynamic_layer() -> Result<()> {
    let pod = Pod::mesh()?;
    let x = <T![f32; 4@X, 3, 8@Y]>::iota(&pod, D2) * 0.37 + 1.1;
    let bits = |x: Array| x.to_vec::<f32>().map(|x| x.into_iter().map(f32::to_bits).collect::<Vec<_>>());
    let untyped = x.as_untyped();
    let mean: T![f32; ~, ~, ~] = x.mean(keep((D0, D1, D2)));
    assert_eq!(bits(mean.untyped())?, bits(untyped.mean(Dims::keep([0, 1, 2])))?);
    let var: T![f32; 4@X, ~, ~] = x.var(keep((D1, D2)));
    assert_eq!(bits(var.untyped())?, bits(untyped.var(Dims::keep([1, 2])))?);
    let five: T![f32; 4@X, ~, 3, ~, 8@Y] = x.expand_dims(D1).expand_dims(D3);
    let all: T![f32; ~, ~, ~, ~, ~] = five.sum(keep(..));
    assert_eq!(bits(all.untyped())?, bits(untyped.sum(..))?);
    let turned: T![f32; 8@Y, 4@X, 3] = x.transpose((D2, D0, D1));
    assert_eq!(bits(turned.clone().untyped())?, bits(untyped.transpose([2, 0, 1]))?);
    assert_eq!(turned.shape()?, [8, 4, 3]);
    let back: T![f32; 4@X, 3, 8@Y] = untyped.clone().into();
    assert_eq!(bits(back.untyped())?, bits(untyped.clone())?);
    let wrong: T![f32; 4@Y, 3, 8@X] = untyped.clone().into();
    let error = wrong.sum(..).item().unwrap_err().unquoted();
    assert!(error.contains("the array is float32[4@X,3,8@Y], but the type is float32[4@Y,3,8@X]"), "{error}");
    Ok(())
}
