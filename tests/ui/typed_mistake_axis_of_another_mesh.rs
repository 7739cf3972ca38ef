//~ elementwise op: dim `TDim<Num<8>, Data>` on the left and dim `TDim<Num<8>, other::Data>` on the right are sharded over different mesh axes
//~ axes of two meshes never go together, whatever their names: `put` both arrays on one mesh
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
mod other {
    use atmesh::typed::prelude::*;
    mesh! { pub struct Old { Data: 4 } }
}
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16], y: &T![f32; 8@other::Data, 16], pod: &atmesh::Mesh) -> atmesh::Result<()> {
    let _ = x * y;
    //~ fix: let _ = x * y.then::<T![f32; 8@Data, 16]>(|y| y.put(pod, atmesh::p!["Data"]))?;
    Ok(())
}
