//~ arrays have no default value, since they belong to a mesh
//~ help: fill the fields with `Typed::zeros(&pod)`
use atmesh::prelude::*;
use atmesh::typed::prelude::*;

mesh! { struct Pod { X: 2 } }

#[derive(Tree)]
#[tree(derive(Clone, Default))]
struct Mlp<D: Size, H: Size> {
    up: T![f32; D, H@X],
}
fn main() {
    let f = jit(|mlp: &Mlp<N![4], N![8]>| mlp.up.sum(..));
}
