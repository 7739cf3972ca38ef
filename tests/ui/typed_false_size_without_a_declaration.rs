//! Implements a size without `dim!`.
//~ `Two` is not a part of a typed array's type: it is not declared by `mesh!` or `dim!`
//~ declare a size by `dim!(pub Batch)` or `dim!(pub Hidden = 4096)`
use atmesh::typed::{prelude::*, size::Number};
struct Two;
impl Size for Two {
    type Kind = Number;
    const VALUE: Option<usize> = None;
    fn show(f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("two")
    }
}
fn main() {}
