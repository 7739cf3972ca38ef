//~ `Tree` is derived for structs: an enum is no fixed list of arrays
//~ a plain value in a tree is a field with `#[tree(skip)]`, or `Static(..)`
use atmesh::prelude::*;
#[derive(Clone, Tree)]
enum Activation {
    Relu,
    Scaled(Array),
}
fn main() {}
