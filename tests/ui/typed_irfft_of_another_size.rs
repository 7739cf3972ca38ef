//~ irfft: `Num<5>` inputs do not give `Num<6>` samples
//~ n samples have n / 2 + 1 results, rounded down
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(a: &T![f32; 5]) {
    let _ = a.fft(D0).irfft::<N![6], _>(D0);
}
