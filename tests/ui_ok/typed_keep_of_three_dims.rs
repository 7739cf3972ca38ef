use atmesh::typed::prelude::*;
mesh! { struct Pod { Data: 2, Model: 4 } }
fn main() {}
fn right(x: &T![f32; 8@Data, 4, 2]) {
    let _: T![f32; ~, ~, ~] = x.mean(keep((D0, D1, D2)));
}
