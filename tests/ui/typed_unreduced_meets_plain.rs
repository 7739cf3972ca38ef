//~ the operands vary, or are unreduced or reduced, over other mesh axes
//~ outside: `.reshard(P![..])` makes an unreduced sum
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8; U: X], b: &T![f32; 8]) {
    let _ = a.add(b);
}
