//~ that must be used
//~ operations return new arrays
#![deny(unused_must_use)]
use atmesh::prelude::*;
fn main() {
    let x = Array::from(1.0f32);
    x.sin();
}
