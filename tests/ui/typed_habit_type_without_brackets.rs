//~ missing angle brackets in associated item path
//~ <T![f32; 8@Data, 16]>::ones(pod)
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(pod: &atmesh::Mesh) {
    let _ = T![f32; 8@Data, 16]::ones(pod);
    //~ fix: let _ = <T![f32; 8@Data, 16]>::ones(pod);
}
