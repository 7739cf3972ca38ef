//~ this method takes 0 arguments but 1 argument was supplied
//~ pub fn reshape<R: UnshardedShape>(&self) -> Typed<T, R, V> // a type: x.reshape::<S![4, 32]>()
use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn wrong(x: &T![f32; 8, 16]) {
    let _ = x.reshape([4, 32]);
    //~ fix: let _ = x.reshape::<S![4, 32]>();
}
