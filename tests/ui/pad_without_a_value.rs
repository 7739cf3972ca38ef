//~ cannot be an operand of an array
//~ expected `Array`, `&Array` or a number
use atmesh::prelude::*;
fn main() {
    let y = Array::ones([8]).pad([(1, 1)]);
}
