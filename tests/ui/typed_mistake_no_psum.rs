//~ this output still varies over mesh axis `Data`, which its out spec does not mention
//~ reduce it first (`.psum(Data)`), or name `Data` in the out spec of a dim
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: T![f32; 8@Data, 16]) {
    let _ = Pod.shard_map((x,), P![_], |(x,)| x.sum(D0));
    //~ fix: let _ = Pod.shard_map((x,), P![_], |(x,)| x.sum(D0).psum(Data));
}
