//~ a traced function returns arrays, but this one returns `&str`
use atmesh::prelude::*;
fn main() {
    let y = cond(true, || "yes", || "no");
}
