//! The typing rules of explicit mode, one by one, each with an accepted and a rejected program.

use crate::show::section;
use atmesh::prelude::*;

pub(crate) fn chapter() -> Result<()> {
    // ANCHOR: setup
    let mesh = Mesh::new([("X", 2), ("Y", 4)])?;
    let ones = |shape: [usize; 2], spec: Spec| Array::ones(shape).put(&mesh, spec);
    // ANCHOR_END: setup

    section("elementwise");
    // ANCHOR: elementwise
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "Y"]));
    rule!(a + b; a, b => "elementwise-join");
    rule!(a.exp(); a);
    rule!(2.0 * a + 1.0; a);
    rule!(a.lt(b); a, b);
    rule!(a.gt(0.5).select(a, 0.0); a);
    // ANCHOR_END: elementwise

    section("elementwise-error");
    // ANCHOR: elementwise-error
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p!["Y", _]));
    rejected!(a + b; a, b);
    rule!(a + b.reshard(p!["X", _]); a, b);
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "X"]));
    rejected!(a + b; a, b);
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "Y"]));
    rejected!(a.gt(0.5).select(a, b); a, b);
    // ANCHOR_END: elementwise-error

    section("broadcast");
    // ANCHOR: broadcast
    let (column, row) = (ones([8, 1], p!["X", _]), ones([1, 8], p![_, "Y"]));
    rule!(column + row; column, row => "broadcast");
    let (matrix, vector) = (ones([8, 8], p!["X", _]), Array::ones([8]).put(&mesh, p!["Y"]));
    rule!(matrix + vector; matrix, vector);
    rule!(vector.broadcast_to([8, 8]); vector);
    rule!(vector.broadcast_in_dim_to([8, 8], [1], p!["X", "Y"]); vector);
    // ANCHOR_END: broadcast

    section("broadcast-error");
    // ANCHOR: broadcast-error
    let (column, row) = (ones([8, 1], p!["X", _]), ones([1, 8], p![_, "X"]));
    rejected!(column + row; column, row);
    // ANCHOR_END: broadcast-error

    section("reduce");
    // ANCHOR: reduce
    let a = ones([8, 8], p!["X", _]);
    rule!(a.sum(1); a => "reduce-whole");
    rule!(a.sum(0); a => "reduce-split");
    rule!(a.sum_to(0, p!["X"]); a => "reduce-scatter");
    rule!(a.sum(..); a);
    rule!(a.max(Dims::keep(0)); a);
    rule!(a.mean(0); a);
    rule!(a.softmax(1); a);
    rule!(a.softmax(0); a);
    rule!(a.argmax(1); a);
    // ANCHOR_END: reduce

    section("reduce-error");
    // ANCHOR: reduce-error
    rejected!(a.sum_to(0, p![_; U: "Y"]); a);
    // ANCHOR_END: reduce-error

    section("dot-whole");
    // ANCHOR: dot-whole
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "Y"]));
    rule!(a.dot(b); a, b => "dot-whole");
    // ANCHOR_END: dot-whole

    section("dot-one");
    // ANCHOR: dot-one
    let (a, b) = (ones([8, 8], p![_, "X"]), ones([8, 8], p![]));
    rule!(a.dot(b); a, b => "dot-one");
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p!["X", _]));
    rule!(a.dot(b); a, b);
    // ANCHOR_END: dot-one

    section("dot-both");
    // ANCHOR: dot-both
    let (a, b) = (ones([8, 8], p![_, "X"]), ones([8, 8], p!["X", _]));
    rejected!(a.dot(b); a, b);
    rule!(a.dot_to(b, p![]); a, b => "dot-both");
    rule!(a.dot_to(b, p!["X", _]); a, b => "dot-scatter");
    rule!(a.dot_to(b, p![_, _; U: "X"]); a, b => "dot-unreduced");
    // ANCHOR_END: dot-both

    section("dot-same");
    // ANCHOR: dot-same
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "X"]));
    rejected!(a.dot(b); a, b);
    rule!(a.dot(b.reshard(p![])); a, b => "dot-same");
    rule!(a.dot_to(b, p!["X", _]); a, b);
    // ANCHOR_END: dot-same

    section("einsum");
    // ANCHOR: einsum
    let q = Array::ones([4, 8, 16]).put(&mesh, p!["X", _, _]);
    let k = Array::ones([4, 8, 16]).put(&mesh, p!["X", _, _]);
    rule!(einsum("bqd,bkd->bqk", [q, k]); q, k);
    let w = ones([16, 8], p![_, "Y"]);
    rule!(q.matmul(w); q, w);
    rule!(einsum("bqd,df->bfq", [q, w]); q, w);
    let h = Array::ones([4, 8, 16]).put(&mesh, p!["X", _, "Y"]);
    let v = ones([16, 8], p!["Y", _]);
    rule!(einsum_to("bqd,df->bqf", [h, v], p!["X", _, _]); h, v);
    // ANCHOR_END: einsum

    section("einsum-error");
    // ANCHOR: einsum-error
    let k = Array::ones([4, 8, 16]).put(&mesh, p!["Y", _, _]);
    rejected!(einsum("bqd,bkd->bqk", [q, k]); q, k);
    // ANCHOR_END: einsum-error

    section("reshape");
    // ANCHOR: reshape
    let a = Array::ones([64]).put(&mesh, p!["X"]);
    rule!(a.reshape([8, 8]); a => "reshape-split");
    let a = ones([8, 8], p!["X", _]);
    rule!(a.reshape([64]); a => "reshape-merge");
    rule!(a.reshape([2, 4, 8]); a);
    rule!(a.reshape([8, 1, 8]); a);
    let a = Array::ones([8]).put(&mesh, p![("X", "Y")]);
    rule!(a.reshape([2, 4]); a);
    // ANCHOR_END: reshape

    section("reshape-error");
    // ANCHOR: reshape-error
    let a = ones([8, 8], p![_, "Y"]);
    rejected!(a.reshape([64]); a);
    rule!(a.reshape_to([64], p!["Y"]); a => "reshape-to");
    // ANCHOR_END: reshape-error

    section("transpose");
    // ANCHOR: transpose
    let a = ones([8, 4], p!["X", "Y"]);
    rule!(a.t(); a => "transpose");
    rule!(a.expand_dims(0); a);
    let a = Array::ones([8, 1, 4]).put(&mesh, p!["X", _, "Y"]);
    rule!(a.transpose([2, 0, 1]); a);
    rule!(a.squeeze(1); a);
    // ANCHOR_END: transpose

    section("concat");
    // ANCHOR: concat
    let (a, b) = (ones([8, 4], p!["X", _]), ones([8, 4], p!["X", _]));
    rule!(concat([a, b], 1); a, b => "concat-whole");
    rule!(concat([a, b], 0); a, b => "concat-split");
    rule!(stack([a, b], 0); a, b);
    // ANCHOR_END: concat

    section("concat-error");
    // ANCHOR: concat-error
    let b = ones([8, 4], p![]);
    rejected!(concat([a, b], 1); a, b);
    // ANCHOR_END: concat-error

    section("slice");
    // ANCHOR: slice
    let a = ones([8, 8], p!["X", _]);
    rule!(a.slice(ix![.., 1..4]); a);
    rule!(a.slice(ix![.., 0]); a);
    rule!(a.slice(ix![..4]); a => "slice-split");
    rule!(a.slice(ix![..;2]); a);
    rule!(a.pad(0.0, [(0, 0, 0), (1, 1, 0)]); a);
    rule!(a.pad(0.0, [(1, 1, 0), (0, 0, 0)]); a);
    let row = Array::ones([8]).put(&mesh, p!["X"]);
    rule!(a.at(ix![.., 0]).set(row); a, row);
    // ANCHOR_END: slice

    section("slice-error");
    // ANCHOR: slice-error
    rejected!(a.slice(ix![..3]); a);
    rejected!(a.pad(0.0, [(1, 0, 0), (0, 0, 0)]); a);
    // ANCHOR_END: slice-error

    section("creation");
    // ANCHOR: creation
    println!("{}", type_of(Array::zeros([8, 4])));
    println!("{}", type_of(Array::zeros(F32.array_type([8, 4]).on(&mesh, p!["X", "Y"]))));
    println!("{}", type_of(Array::iota(I32.array_type([8, 4]).on(&mesh, p!["X", _]), 0)));
    println!("{}", type_of(Array::eye(F32.array_type([8, 8]).on(&mesh, p!["X", _]), 0)));
    println!("{}", type_of(Key::new(0).normal(F32.array_type([8, 4]).on(&mesh, p!["X", _]))));
    let a = ones([8, 4], p!["X", _]);
    println!("{}", type_of(a.zeros_like()));
    println!("{}", type_of(a.full_like(7)));
    // ANCHOR_END: creation

    section("creation-error");
    // ANCHOR: creation-error
    crate::show::rejected(Array::zeros(F32.array_type([6, 4]).on(&mesh, p!["Y", _])).ty())?;
    // ANCHOR_END: creation-error

    section("reshard");
    // ANCHOR: reshard
    let whole = ones([8, 8], p![]);
    rule!(whole.reshard(p!["X", _]); whole => "reshard-cut");
    let rows = ones([8, 8], p!["X", _]);
    rule!(rows.reshard(p![]); rows => "reshard-gather");
    rule!(rows.reshard(p![_, "X"]); rows => "reshard-turn");
    rule!(rows.reshard(p![("X", "Y"), _]); rows);
    let fine = ones([8, 8], p![("X", "Y"), _]);
    rule!(fine.reshard(p![("Y", "X"), _]); fine);
    let parts = rows.sum_to(0, p![_; U: "X"]);
    rule!(parts.reshard(p![]); parts);
    rule!(parts.reshard(p!["X"]); parts);
    // ANCHOR_END: reshard

    section("reshard-error");
    // ANCHOR: reshard-error
    rejected!(rows.reshard(p!["Z"]); rows);
    // ANCHOR_END: reshard-error

    section("unreduced");
    // ANCHOR: unreduced
    let a = ones([8, 8], p!["X", _]);
    rule!(a.sum_to(0, p![_; U: "X"]); a);
    let parts = a.sum_to(0, p![_; U: "X"]);
    rule!(parts + parts; parts);
    rejected!(parts.exp(); parts);
    // ANCHOR_END: unreduced

    section("exercise1");
    // ANCHOR: exercise1
    let (a, b) = (ones([8, 8], p!["X", "Y"]), ones([8, 8], p!["X", "Y"]));
    rule!(a.sum(0); a);
    rule!(a.slice(ix![.., 2..6]); a);
    rule!(a.reshape([64]); a);
    rejected!(a + b.t(); a, b);
    // ANCHOR_END: exercise1

    section("exercise2");
    // ANCHOR: exercise2
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "X"]));
    rule!(a.dot(b.reshard(p![])); a, b);
    rule!(a.dot_to(b.reshard(p![_, "Y"]), p!["X", "Y"]); a, b);
    // ANCHOR_END: exercise2

    section("exercise3");
    // ANCHOR: exercise3
    let (a, b, c) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "Y"]), ones([8, 8], p!["Y", _]));
    rule!(a + b; a, b);
    rejected!(a + c; a, c);
    rejected!(b + c; b, c);
    // ANCHOR_END: exercise3

    section("exercise4");
    // ANCHOR: exercise4
    let a = ones([8, 8], p!["X", "Y"]);
    rule!(a.sum(1); a);
    rule!(a.sum(..); a);
    rule!(a.sum_to(1, p!["X"; U: "Y"]); a);
    // ANCHOR_END: exercise4

    section("exercise5");
    // ANCHOR: exercise5
    let (x, w, v) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "Y"]), ones([8, 8], p!["Y", _]));
    rule!(x.dot(w); x, w);
    rule!(x.dot(v); x, v);
    let h = x.dot(&w);
    rejected!(h.dot(v); h, v);
    rule!(h.dot_to(v, p!["X", _]); h, v);
    // ANCHOR_END: exercise5

    section("exercise6");
    // ANCHOR: exercise6
    let a = ones([8, 8], p!["X", "Y"]);
    rule!(a.reshape([4, 2, 8]); a);
    rule!(a.reshape([8, 4, 2]); a);
    rejected!(a.reshape([8, 2, 4]); a);
    // ANCHOR_END: exercise6

    section("exercise7");
    // ANCHOR: exercise7
    let (a, b) = (ones([8, 8], p!["X", _]), ones([8, 8], p!["X", _]));
    rule!(stack([a, b], 0); a, b);
    rule!(concat([a, b], 1); a, b);
    rule!(concat([a, b], 0); a, b);
    // ANCHOR_END: exercise7

    section("exercise8");
    // ANCHOR: exercise8
    let a = ones([8, 8], p!["X", _]);
    rule!(a.reshard(p![_, "X"]); a);
    rule!(a.reshard(p!["X", "Y"]); a);
    rule!(a.reshard(p!["Y", _]); a);
    // ANCHOR_END: exercise8

    section("trace");
    // ANCHOR: trace
    let layer = jit(|x: &Array, w: &Array| {
        println!("tracing {} and {}", type_of(x), type_of(w));
        let y = x.dot(w);
        println!("their product is {}", type_of(&y));
        y.relu()
    });
    let (x, w) = (ones([8, 8], p!["X", _]), ones([8, 8], p![_, "Y"]));
    println!("{}", type_of(layer.call((&x, &w))?));
    println!("{}", type_of(layer.call((&x, &w))?));
    // ANCHOR_END: trace
    Ok(())
}
