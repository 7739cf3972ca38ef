//~ `&str` cannot be passed as an array or a tree of arrays
use atmesh::prelude::*;
fn main() {
    let g = grad("point", |x| x);
}
