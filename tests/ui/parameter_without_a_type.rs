//~ where a closure's parameter has no type yet, write it out: `|x: &Array|`
use atmesh::prelude::*;
fn main() {
    let f = jit(|x| x + 1.0);
}
