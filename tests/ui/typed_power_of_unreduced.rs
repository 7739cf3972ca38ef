//~ `powi` needs a value, not a sum over a mesh axis that has not been made
//~ make the sum first, by `reshard` to a plain spec: `x.reshard(P![_, _])`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8; U: X]) {
    let _ = x.powi(2);
    //~ fix: let _ = x.reshard(P![_]).powi(2);
}
