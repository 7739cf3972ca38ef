//~ a named size is a type: its name begins with a capital
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
dim!(batch = 8);
