//~ the carry of a loop keeps its type, but the body takes `Typed<f32, (TDim<Num<8>, Data>, TDim<Num<16>>)>` and returns `Typed<f32, (TDim<Num<8>>, TDim<Num<16>>)>`
//~ restore the type at the end of the body: `.reshard(P![..])`
use atmesh::typed::{prelude::*, scan};
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(h: T![f32; 8@Data, 16], xs: T![f32; 5, 8@Data, 16]) {
    let _ = scan(h, &xs, |h, x| (h.reshard(P![_, _]), h + x));
    //~ fix: let _ = scan(h, &xs, |h, x| (h.reshard(P![Data, _]), h + x));
}
