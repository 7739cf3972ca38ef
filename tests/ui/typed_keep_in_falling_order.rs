//~ dim numbers come in rising order, each once: `D<2>` before `D<1>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@X, 4, 4, 3]) {
    let _ = x.mean(keep((D0, D2, D1)));
    //~ fix: let _ = x.mean(keep((D0, D1, D2)));
}
