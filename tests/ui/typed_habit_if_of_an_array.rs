//~ expected `bool`, found `Typed<bool, (TDim<Num<8>, Data>, TDim<Num<16>>)>`
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 16]) -> atmesh::Result<()> {
    if x.gt(0.0) {}
    //~ fix: if x.gt(0.0).any(..).item()? {}
    Ok(())
}
