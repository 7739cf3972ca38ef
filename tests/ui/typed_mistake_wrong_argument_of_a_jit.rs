//~ the function takes `Typed<f32, (TDim<Num<8>, Data>, TDim<Num<16>>)>`, but it is called with `(&Typed<f32, (TDim<Num<8>, Model>, TDim<Num<16>>)>,)`
//~ pass an array of the type that the function takes: `.reshard(P![..])`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Model, 16]) {
    let _ = atmesh::jit(|x: &T![f32; 8@Data, 16]| x.relu()).call((x,));
    //~ fix: let _ = atmesh::jit(|x: &T![f32; 8@Data, 16]| x.relu()).call(x.reshard(P![Data, _]));
}
