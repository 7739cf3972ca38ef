use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn right(x: &T![f32; 8@Data, 16]) {
    let _: T![f32; 8@Data, 16] = x * 2;
}
