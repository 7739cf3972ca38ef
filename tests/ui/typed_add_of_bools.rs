//~ `+`, `-`, `*`, `/` and `%` are not defined for arrays of `bool`
//~ convert first: `.convert::<i32>()`; arrays of `bool` have `&`, `|` and `^`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![bool; 4, 3], b: &T![bool; 4, 3]) {
    let _ = a + b;
    //~ fix: let _ = a | b;
}
