//~ missing angle brackets in associated item path
//~ <T![f32; 8@Data, 16]>::ones(pod)
//~ no typed array can be created on `atmesh::Mesh`
//~ a `Mesh` becomes a typed one by `mesh.typed::<Pod>()?`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(pod: &atmesh::Mesh) -> atmesh::Result<()> {
    let _ = T![f32; 8@Data, 16]::ones(pod);
    //~ fix: let _ = <T![f32; 8@Data, 16]>::ones(&pod.typed::<Pod>()?);
    Ok(())
}
