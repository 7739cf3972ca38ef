//~ `grad` needs one number to differentiate, but the function returns
//~ expected `Array` (a scalar) or `(Array, more)`
use atmesh::prelude::*;
fn main() {
    let g = grad(Array::from(1.0f32), |x| vec![x]);
}
