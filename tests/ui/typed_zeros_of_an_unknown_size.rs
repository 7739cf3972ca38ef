//~ is not known when compiling
//~ Array::zeros(..).typed::<T![..]>()?
use atmesh::typed::prelude::*;
mesh! { struct Pod { X: 2, Y: 4 } }
fn main() {}
fn wrong(pod: &MeshOf<Pod>) {
    let _ = <T![f32; ?]>::zeros(pod);
}
