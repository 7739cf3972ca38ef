//~ the carry of a loop keeps its type
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: T![f32; 8@X]) -> T![f32; 8@X] {
    atmesh::fori_loop(0..3, x, |_, x| x.reshard(P![_]))
}
