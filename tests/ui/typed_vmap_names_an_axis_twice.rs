//~ a mesh axis would shard two dims of one array: `(TDim<Num<4>, X>, TDim<Num<8>, X>)`
use atmesh::typed::{self, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(xs: &T![f32; 4@X, 3], w: &T![f32; 3, 8@X]) {
    let _ = typed::vmap(xs, |x| x.matmul(w));
}
