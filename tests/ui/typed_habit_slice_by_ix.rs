//~ `atmesh::array::Index` is not a dim number
//~ `x.slice::<N![0], N![4], _>(D1)` is `ix![.., 0..4]`
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.slice(ix![.., ..;4]);
    //~ fix: let _ = x.slice::<N![0], N![4], _>(D1);
}
