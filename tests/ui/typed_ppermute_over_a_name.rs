//~ `&str` is not an axis of the mesh of this block, which varies over `(Data, Invariant)`
//~ mesh axes are types: `ppermute(X, ..)`, not `ppermute("X", ..)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: T![f32; 8@Data]) {
    let _ = Pod.shard_map(x, P![Data], |x| x.ppermute("Data", [(0, 1)]));
    //~ fix: let _ = Pod.shard_map(x, P![Data], |x| x.ppermute(Data, [(0, 1)]));
}
