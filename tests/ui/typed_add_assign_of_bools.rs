//~ `+`, `-`, `*`, `/` and `%` are not defined for arrays of `bool`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(mut a: T![bool; 4, 3], b: &T![bool; 4, 3]) {
    a += b;
    //~ fix: a |= b;
}
