//~ the function of an `associative_scan` combines two trees into one of their type: it takes two `Typed<f32, (TDim<Num<8>>, TDim<Num<4>, Data>)>` and returns `Typed<f32, (TDim<Num<8>>, TDim<Num<4>>)>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8, 4@Data]) {
    let _ = atmesh::associative_scan(x, 0, |a, b| (a + b).reshard(P![_, _]));
    //~ fix: let _ = atmesh::associative_scan(x, 0, |a, b| (a + b).reshard(P![_, Data]));
}
