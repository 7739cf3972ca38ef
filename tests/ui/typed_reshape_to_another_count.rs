//~ reshape: arrays of shape `(TDim<Num<8>>, TDim<Num<16>>)` and `(TDim<Num<8>>, TDim<Num<4>>, TDim<Num<5>>)` have different numbers of elements
//~ `Num<128>` elements cannot become `Num<160>` elements
//~ the product of the sizes stays the same
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong(a: &T![f32; 8, 16]) -> T![f32; 8, 4, 5] {
    a.reshape::<S![8, 4, 5]>()
}
