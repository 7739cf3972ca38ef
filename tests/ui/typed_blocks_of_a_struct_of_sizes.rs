//~ `Blocks`: the type of field `up` must be a type parameter of `Mlp`, since inside of `shard_map` it is another one
//~ or pass the fields as a tuple
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
#[derive(Blocks)]
struct Mlp<D, H> {
    up: T![f32; D, H@Y],
}
fn main() {}
