//~ axis `X` is declared twice
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
mod m { atmesh::typed::mesh! { struct Other { X: 2, X: 4 } } }
