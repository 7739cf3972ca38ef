//~ does not name dims of `(TDim<Num<4>, X>, TDim<Num<2>>)` to reduce over
//~ expected `D1`, several in rising order, as `(D0, D1)`, `..` for all dims, or `keep(..)` of these
use atmesh::typed::prelude::*;

mesh! { struct Pod { X: 2 } }

fn total(x: &T![f32; 4@X, 2]) -> T![f32; 2] {
    x.sum(0)
}

fn main() {}
