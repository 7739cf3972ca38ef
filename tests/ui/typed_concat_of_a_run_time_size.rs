//~ the sum of the sizes `Seq` and `Num<1>` is not known when compiling
//~ for sizes that are known only at run time state the result: `x.then::<T![..]>(|x| ..)`
use atmesh::typed::{concat, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; 8@X, Seq], b: &T![f32; 8@X, 1]) {
    let _ = a.concat(b, D1);
    //~ fix: let _ = a.then::<T![f32; 8@X, ?]>(|a| atmesh::concat([a, b.as_untyped()], 1));
}
