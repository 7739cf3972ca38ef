//~ reshape: the product of the sizes `(B, (Num<6>, ()))` is not known in a generic function
//~ give the function a bound with the shapes before and after: `where S![B, 6]: ReshapesTo<S![B, 2, 3]>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong<B: Size>(a: &T![f32; B, 6]) -> T![f32; B, 2, 3] {
//~ fix: fn right<B: Size>(a: &T![f32; B, 6]) -> T![f32; B, 2, 3] where S![B, 6]: ReshapesTo<S![B, 2, 3]> {
    a.reshape()
}
