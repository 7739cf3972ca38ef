//~ dim `TDim<Num<4>, X>` is sharded, and must be unsharded here
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(xs: &T![f32; 4@X, 8], x: T![f32; 8]) {
    let _ = typed::scan(x, xs, |x, y| (x + y, ()));
}
