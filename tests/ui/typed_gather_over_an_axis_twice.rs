//~ all_gather/all_to_all: a block's dim `TDim<Num<4>>` cannot be made longer along `(Y, Y)`
//~ name mesh axes, `X` or `(X, Y)`, each once
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 8@X, 4]) {
    let _ = Pod.shard_map((a.clone(),), P![X, _], |(a,)| a.all_gather((Y, Y), D1));
}
