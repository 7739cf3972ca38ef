//~ expected a typed array of `f32` or a number of type `f32`, found `
//~ an `Array` becomes a typed one by `x.typed::<T![f32; 8@X, 16]>()?`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16], y: &atmesh::Array) -> atmesh::Result<()> {
    let _ = x + y;
    //~ fix: let _ = x + y.typed::<T![f32; 8@Data, 16]>()?;
    Ok(())
}
