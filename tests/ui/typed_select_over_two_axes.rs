//~ select: dim `TDim<Num<8>, Y>` of one operand and dim `TDim<Num<8>, X>` of another are sharded differently
//~ reshard
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(mask: &T![bool; 8@Y], x: &T![f32; 8@X]) {
    let _ = mask.select(x, 0.0);
    //~ fix: let _ = mask.reshard(P![X]).select(x, 0.0);
}
