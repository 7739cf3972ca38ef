//~ split: the sizes of the pieces add up to `Num<7>`, but the dim has size `Num<16>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.split::<N![2], N![5], _>(D1);
    //~ fix: let _ = x.split::<N![2], N![14], _>(D1);
}
