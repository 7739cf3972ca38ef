//~ expected `#[tree(skip)]`
use atmesh::prelude::*;
#[derive(Clone, Tree)]
struct Layer {
    w: Array,
    #[tree(ignore)]
    rate: f32,
}
fn main() {}
