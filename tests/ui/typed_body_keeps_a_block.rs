//~ the body of a `shard_map` captures a value that it could change
//~ captures a `RefCell`, a `Cell`, an `Rc` or another value that threads cannot share
//~ blocks leave it as results only, by an out spec

use atmesh::typed::prelude::*;
use std::cell::RefCell;

mesh! { struct Pod { X: 2, Y: 4 } }

fn body(x: T![f32; 8@X]) {
    let kept = RefCell::new(None);
    let _ = Pod.shard_map((x,), P![X], |(x,)| {
        *kept.borrow_mut() = Some(x.clone());
        x
    });
}

fn main() {}
