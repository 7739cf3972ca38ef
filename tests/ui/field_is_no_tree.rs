//~ `f32` is not a tree of arrays
//~ rate: f32, ^^^ not a tree of arrays
//~ trees are `Array`, `Key`, tuples, `Vec`, `Option`, `BTreeMap<String, _>`, and structs with `#[derive(Tree)]`
//~ or mark the field of a struct with `#[tree(skip)]`
use atmesh::prelude::*;
#[derive(Clone, Tree)]
struct Layer {
    w: Array,
    rate: f32,
}
fn main() {}
