//~ `{integer}` does not say how to shard a tree
//~ expected `p![..]`, or a tuple, `Vec` or struct of them
use atmesh::prelude::*;
fn main() {
    let f = jit(|x: &Array| x + 1).in_specs(0);
}
