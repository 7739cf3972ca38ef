//~ `Layer<Typed<
//~ cannot be cut into blocks over the mesh `Pod`
//~ a struct whose fields' types are its parameters derives `Blocks`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
struct Layer<W> {
    w: W,
}
fn main() {}
fn wrong(layer: Layer<T![f32; 8@X]>) {
    let _ = Pod.shard_map((layer,), P![X], |(layer,)| layer.w);
}
