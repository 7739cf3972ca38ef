//~ are not typed arrays that can be joined
//~ expected a tuple of two to eight references: `(&a, &b, &c)`
use atmesh::typed::{concat, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: T![f32; 8, 6], b: T![f32; 8, 6]) {
    let _ = concat((a, b), D1);
    //~ fix: let _ = concat((&a, &b), D1);
}
