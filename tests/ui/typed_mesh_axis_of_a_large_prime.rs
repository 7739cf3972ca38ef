//~ an axis size in types has prime factors up to 13: write `?` for others
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
mod m { atmesh::typed::mesh! { struct Other { X: 34 } } }
