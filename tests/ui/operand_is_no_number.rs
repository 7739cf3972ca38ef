//~ `&str` cannot be an operand of an array
//~ expected `Array`, `&Array` or a number
use atmesh::prelude::*;
fn main() {
    let y = Array::from(1).pow("2");
}
