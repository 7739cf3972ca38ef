//! Typed per-device code: block sizes, varying axes, and replicated outputs that rustc checks.
use atmesh::prelude::*;
use atmesh::typed::prelude::*;

mesh! { struct Ring { X: 4 } }

// ANCHOR: product
/// Multiplies over a sharded dim: each device multiplies its blocks, and `psum` adds the results.
fn product<M: Size, K: Tiles<X>, N: Size>(a: &T![f32; M, K@X], b: &T![f32; K@X, N]) -> T![f32; M, N] {
    Ring.shard_map((a.clone(), b.clone()), P![_, _], |(a, b)| {
        let part = a.matmul(&b); // varies over X
        part.psum(X) // without this it does not compile
    })
}
// ANCHOR_END: product

// ANCHOR: scatter
/// Computes the same product, but each device keeps only its rows of the sum.
fn scattered<M: Tiles<X>, K: Tiles<X>, N: Size>(a: &T![f32; M, K@X], b: &T![f32; K@X, N]) -> T![f32; M@X, N] {
    Ring.shard_map((a.clone(), b.clone()), P![X, _], |(a, b)| a.matmul(&b).psum_scatter(X, D0))
}
// ANCHOR_END: scatter

fn main() -> Result<()> {
    let ring = Ring::mesh()?;
    let a = <T![f32; 8, 16@X]>::iota(&ring, D1);
    let b = <T![f32; 16@X, 2]>::ones(&ring);
    let whole = product(&a, &b);
    println!("{} {}", type_of(&whole), whole.to_vec()?[0]);
    let rows = scattered(&a, &b);
    println!("{} {}", type_of(&rows), rows.to_vec()?[0]);

    // A gathered value is equal on all devices, but its type still says that it varies.
    let gathered: T![f32; 64@X, 8] = Ring.shard_map((a.t(),), P![X, _], |(a,)| {
        let mine: T![f32; 4, 8; V: X] = a;
        let all: T![f32; 16, 8; V: X] = mine.all_gather(X, D0);
        all
    });
    println!("{}", type_of(&gathered));
    Ok(())
}
