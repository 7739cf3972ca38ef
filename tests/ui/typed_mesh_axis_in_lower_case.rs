//~ a mesh axis is a type: its name begins with a capital
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
mesh! { struct Other { data: 2 } }
