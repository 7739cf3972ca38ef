//~ a collective over `&str` needs a value that varies over each of these mesh axes; this one varies over `(Data, Invariant)`
//~ mesh axes are types: `psum(X)`, not `psum("X")`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: T![f32; 8@Data, 16]) {
    let _ = Pod.shard_map((x,), P![_, _], |(x,)| x.psum("Data"));
    //~ fix: let _ = Pod.shard_map((x,), P![_, _], |(x,)| x.psum(Data));
}
