//~ Array` cannot be an end of a range in `ix!`
//~ expected an integer
//~ a window that starts at an array has a size: `ix![&start..; size]`
use atmesh::prelude::*;
fn main() {
    let x = Array::from([1, 2, 3]);
    let i = Array::from(1);
    let _ = x.slice(ix![&i..]);
}
