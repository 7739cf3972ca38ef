//~ consider giving this closure parameter an explicit type
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = atmesh::jit(|x| x.relu()).call(x);
    //~ fix: let _ = atmesh::jit(|x: T![f32; 8@Data, 16]| x.relu()).call(x);
}
