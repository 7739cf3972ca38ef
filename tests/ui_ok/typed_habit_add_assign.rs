use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn right(mut x: T![f32; 8@Data, 16], y: &T![f32; 8@Data, 16]) {
    x += y;
}
