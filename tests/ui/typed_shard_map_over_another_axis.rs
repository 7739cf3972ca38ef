//~ `Y` is not an axis of the mesh `PartialRegion<Pod, (X, Invariant)>`
//~ in a `shard_map` over some axes, `PartialRegion<Pod, (X, Invariant)>` is `Pod.over(X)`
//~ a dim `TDim<Num<8>, (Y, X)>` cannot be cut into blocks over `PartialRegion<Pod, (X, Invariant)>`
//~ `reshard` the array first, with the manual axes in front
//~ a `shard_map` cannot be over `(X, X)`
//~ expected axes of the mesh, each once, at most three: `X`, `(X, Y)`

use atmesh::typed::prelude::*;

mesh! { struct Pod { X: 2, Y: 4 } }

fn spec(x: T![f32; 8@X, 16]) {
    let _ = Pod.over(X).shard_map((x,), P![X, Y], |(x,)| x);
}
fn position(x: T![i32; 8@X]) {
    let _ = Pod.over(X).shard_map((x, ThisDevice), P![X], |(x, device)| x + device.axis_index(Y));
}
fn order(x: T![f32; 8@(Y, X)]) {
    let _ = Pod.over(X).shard_map((x,), P![X], |(x,)| x);
}
fn twice() {
    let _ = Pod.over((X, X));
}

fn main() {}
