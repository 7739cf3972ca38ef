//~ after `@` comes a mesh axis
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
type Wrong = T![f32; 8@];
