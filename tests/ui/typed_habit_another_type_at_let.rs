//~ expected `32`, found `16`
//~ expected struct `Typed<_, (TDim<_, _>, TDim<Num<32>>)>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _y: T![f32; 8@Data, 32] = x.relu();
    //~ fix: let _y: T![f32; 8@Data, 16] = x.relu();
}
