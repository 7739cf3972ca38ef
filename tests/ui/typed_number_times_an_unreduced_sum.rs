//~ a number cannot scale a value with the sets
//~ make the sum first: `.reshard(P![..])`
//~ or scale before the sum: multiply an operand of the product or of the sum by the number
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(u: &T![f32; 8; U: X]) {
    let _ = u * 2.0;
}
