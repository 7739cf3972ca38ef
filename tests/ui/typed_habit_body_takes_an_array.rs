//~ error[E0599]: no method named `relu` found for tuple
//~ x.0.relu()
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: T![f32; 8@Data, 16]) {
    let _ = Pod.shard_map((x,), P![Data, _], |x| x.relu());
    //~ fix: let _ = Pod.shard_map((x,), P![Data, _], |x| x.0.relu());
}
