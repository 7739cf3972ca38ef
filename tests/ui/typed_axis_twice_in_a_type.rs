//~ mesh axis `X` shards two dims of one array; an axis can shard only one
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
type Wrong = T![f32; 8@X, 4@X];
