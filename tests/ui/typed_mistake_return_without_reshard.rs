//~ expected `Typed<f32, (TDim<Num<8>>, TDim<Num<16>>)>`, found `Typed<f32, (TDim<Num<8>, Data>, TDim<Num<16>>)>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) -> T![f32; 8, 16] {
    x.relu()
    //~ fix: x.relu().reshard(P![_, _])
}
