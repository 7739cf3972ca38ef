//~ the carry of a loop keeps its type, but the body takes `Typed<f32, (TDim<Num<8>, Data>, TDim<Num<16>>)>` and returns `Typed<f32, (TDim<Num<8>>, TDim<Num<16>, Data>)>`
//~ restore the type at the end of the body: `.reshard(P![..])`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: T![f32; 8@Data, 16]) {
    let _ = atmesh::fori_loop(0..3, x, |_, x: T![f32; 8@Data, 16]| x.reshard(P![_, Data]));
    //~ fix: let _ = atmesh::fori_loop(0..3, x, |_, x: T![f32; 8@Data, 16]| x.reshard(P![_, Data]).reshard(P![Data, _]));
}
