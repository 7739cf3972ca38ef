//~ a norm: its scale or bias would change the type of the result from `(TDim<Num<4>, X>, TDim<Num<8>>)` to `(TDim<Num<4>, X>, TDim<Num<8>, Y>)`
//~ give it the last dims of the normalized array
use atmesh::typed::{nn, prelude::*};
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 4@X, 8], bias: &T![f32; 8@Y]) {
    let _ = nn::layer_norm(x, 1.0, bias);
    //~ fix: let _ = nn::layer_norm(x, 1.0, bias.reshard(P![_]));
}
