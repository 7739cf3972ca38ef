//~ a dim of size `D` is not `H` times `K`
//~ a generic function has a bound: `D: ProductIs<H, K>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
dim!(Batch);
dim!(Seq);
dim!(Embed = 64);
fn main() {}
fn wrong<D: Size, H: Size, K: Size>(a: &T![f32; 4, D]) -> T![f32; 4, H, K] {
//~ fix: fn right<D: ProductIs<H, K>, H: Size, K: Size>(a: &T![f32; 4, D]) -> T![f32; 4, H, K] {
    a.split_dim::<H, K, _>(D1)
}
