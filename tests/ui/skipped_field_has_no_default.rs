//~ `Mode: std::default::Default` is not satisfied
//~ mode: Mode, ^^^^
use atmesh::prelude::*;
#[derive(Clone, PartialEq, Debug)]
enum Mode {
    Fast,
}
#[derive(Clone, Tree)]
struct Layer {
    w: Array,
    #[tree(skip)]
    mode: Mode,
}
fn main() {}
