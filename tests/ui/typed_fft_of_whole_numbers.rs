//~ elements of type `i32` have no Fourier transform
//~ convert the array first: `.convert::<f32>()`
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![i32; 8@X, 4]) {
    let _ = a.fft(D1);
}
