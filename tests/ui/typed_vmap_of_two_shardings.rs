//~ vmap: the mapped dims are `TDim<Num<4>, X>` and `TDim<Num<4>>`, and must be the same
//~ `reshard` one of the arguments
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(xs: &T![f32; 4@X, 3], ys: &T![f32; 4, 3]) {
    let _ = typed::vmap((xs, ys), |(x, y)| x + y);
}
