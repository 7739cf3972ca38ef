//~ `grad` needs one number to differentiate, but the function returns
//~ expected one number, or a tuple of one and more to return: `(loss, more)`
use atmesh::prelude::*;
fn main() {
    let g = grad(Array::from(1.0f32), |x| vec![x]);
}
