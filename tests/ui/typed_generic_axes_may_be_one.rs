//~ say that two of them differ: `A: MeshAxis + DistinctAxis<B>`
//~ a mesh axis would shard two dims of one array
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong<A: MeshAxis, B: MeshAxis>(a: &T![f32; 8@A, 4], b: &T![f32; 8, 4@B]) {
    let _ = a.add(b);
}
