//~ broadcast_to: the size `B` is known only at run time, so an array must give it
//~ take the shape from an array `x` that has it: `.broadcast_like(&x)`
//~ the bound is `B: KnownSize`
use atmesh::typed::prelude::*;
fn main() {}
fn center<B: Size, D: Size>(x: &T![f32; B, D], m: &T![f32; D]) -> T![f32; D] {
    let m = m.broadcast_to::<S![B, D]>();
    (x - &m).sum(D0) + m.sum(D0)
}
