//~ `Tree` is derived for structs: a union is no fixed list of arrays
use atmesh::prelude::*;
#[derive(Clone, Copy, Tree)]
union Bits {
    x: f32,
    y: u32,
}
fn main() {}
