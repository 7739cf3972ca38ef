//~ expected `Typed<f32, (TDim<Num<8>, Data>, TDim<Num<16>>)>`, found `Array`
//~ .into()
use atmesh::prelude::*;
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(pod: &Mesh) {
    let _x: T![f32; 8@Data, 16] = Array::ones([8, 16]).put(pod, p!["Data"]);
    //~ fix: let _x: T![f32; 8@Data, 16] = Array::ones([8, 16]).put(pod, p!["Data"]).into();
}
