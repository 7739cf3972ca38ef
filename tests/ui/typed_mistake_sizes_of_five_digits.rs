//~ elementwise op: dim `TDim<K<11, 8>>` on the left and dim `TDim<K<11, 80>>` on the right have different sizes
//~ give both dims one size, or insert a dim that repeats
//~ numbers from 1000 on are printed in groups of three digits
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 11008], y: &T![f32; 11080]) {
    let _ = x + y;
    //~ fix: let _ = x + y.slice::<N![0], N![11008], _>(D0);
}
