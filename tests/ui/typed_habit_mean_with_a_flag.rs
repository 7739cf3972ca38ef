//~ this method takes 1 argument but 2 arguments were supplied
//~ mean Float T, CompleteFor<op::mean>; // the dim kept: x.mean(keep(D1))
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) {
    let _ = x.mean(D1, true);
    //~ fix: let _ = x.mean(keep(D1));
}
