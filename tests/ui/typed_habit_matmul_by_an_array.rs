//~ expected a typed array, found `atmesh::Array`
//~ an `Array` becomes a typed one by `x.typed::<T![f32; 8@X, 16]>()?`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16], w: &atmesh::Array) -> atmesh::Result<()> {
    let _ = x.matmul(w);
    //~ fix: let _ = x.matmul(&w.typed::<T![f32; 16, 4]>()?);
    Ok(())
}
