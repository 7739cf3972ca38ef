//~ `Clone` of the generic struct `Mlp` comes from `Tree`, since Rust's own derives cannot read macros such as `T![..]` in it
//~ help: write `#[derive(Tree)] #[tree(derive(Clone))]`, or `#[tree(derive(Clone, Debug))]`
use atmesh::prelude::*;
use atmesh::typed::prelude::*;

mesh! { struct Pod { X: 2 } }

#[derive(Clone, Tree)]
//~ fix: #[derive(Tree)] #[tree(derive(Clone))]
struct Mlp<D: Size, H: Size> {
    up: T![f32; D, H@X],
}
fn main() {}
