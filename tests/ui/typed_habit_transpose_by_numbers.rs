//~ `{integer}` is not a dim number
//~ expected `D0`, `D1`
//~ dims and ranges are types: `x.transpose((D1, D0))`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.transpose((1, 0));
    //~ fix: let _ = x.transpose((D1, D0));
}
