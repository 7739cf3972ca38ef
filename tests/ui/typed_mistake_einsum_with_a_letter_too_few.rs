//~ einsum: the subscripts have another number of letters than `(TDim<Num<8>, Data>, TDim<Num<6>>, TDim<Num<16>>)` has dims
//~ write one letter for each dim of the operand
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8@Data, 6, 16], w: &T![f32; 16, 32]) {
    let _ = einsum!("bd,dh->bh", x, w);
    //~ fix: let _ = einsum!("bsd,dh->bsh", x, w);
}
