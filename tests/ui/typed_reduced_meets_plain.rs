//~ the operands vary, or are unreduced or reduced, over other mesh axes: `GlobalSets<(ReducedSum<Data>, Invariant)>` on the left and `()` on the right
//~ `.reshard(P![..; R: X])` makes a plain array reduced
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8; R: Data], y: &T![f32; 8]) {
    let _ = x * y;
    //~ fix: let _ = x * y.reshard(P![_; R: Data]);
}
