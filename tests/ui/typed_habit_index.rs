//~ a typed array has no `x[..]`: the type of what `{integer}` picks is not stated
//~ `x.slice::<N![0], N![1], _>(D0)`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8, 16]) {
    let _ = x[0];
    //~ fix: let _ = x.slice::<N![0], N![1], _>(D0);
}
