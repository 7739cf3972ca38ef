//~ write a range with two dots, and its step after a semicolon: `ix![1..-1, ..;2]`
use atmesh::prelude::*;
fn main() {
    let x = Array::from([1, 2, 3]);
    let _ = x.slice(ix![1:-1]);
}
