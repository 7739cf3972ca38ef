//~ mesh axis `X` splits two dims of one array; an axis can split only one
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
type Wrong = T![f32; 8@X, 4@X];
