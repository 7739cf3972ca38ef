//! Arrays and communication.
use atmesh::prelude::*;

// ANCHOR: fewest_bytes
pub(super) fn fewest_bytes() -> Result<Spec> {
    Ok(p![("X", "Y"), _]) // all eight devices split dimension 0
}
// ANCHOR_END: fewest_bytes

// ANCHOR: first_row
pub(super) fn first_row() -> Result<u64> {
    // CPU 5 is at X = 1, Y = 1. Y is major: its block is 1·2 + 1 = 3, and a block has two rows.
    Ok(6)
}
// ANCHOR_END: first_row

// ANCHOR: normalized
pub(super) fn normalized(x: &Array) -> Result<Array> {
    Ok(x / x.square().sum(Dims::keep(1)).sqrt())
}
// ANCHOR_END: normalized

// ANCHOR: padded_mean
pub(super) fn padded_mean(mesh: &Mesh, x: &Array) -> Result<Array> {
    let sharded = x.pad(0.0, [(0, 2, 0)]).put(mesh, p!["X"]); // zeros do not change the sum
    Ok(sharded.sum(..) / 10.0)
}
// ANCHOR_END: padded_mean

// ANCHOR: column_sums
pub(super) fn column_sums(x: &Array) -> Result<Array> {
    Ok(x.sum_to(0, p!["X"]))
}
// ANCHOR_END: column_sums

// ANCHOR: turned
pub(super) fn turned(x: &Array) -> Result<Array> {
    Ok(x.reshard(p![_, "X"]))
}
// ANCHOR_END: turned

// ANCHOR: two_layers
/// Columns, then rows: the second product contracts the dimension that the first one leaves sharded.
/// Slicing a replicated array needs no communication.
pub(super) fn two_layers(x: &Array, up: &Array, down: &Array) -> Result<Array> {
    let (up, down) = (up.reshard(p![_, "X"]), down.reshard(p!["X", _]));
    Ok(x.dot(up).relu().dot_to(down, p![]))
}
// ANCHOR_END: two_layers

// ANCHOR: gram
pub(super) fn gram(x: &Array) -> Result<Array> {
    Ok(x.t().dot_to(x, p!["X", _]))
}
// ANCHOR_END: gram

// ANCHOR: gathered_bytes
pub(super) fn gathered_bytes() -> Result<u64> {
    Ok(7 * 1024 * 256 * 4 / 8) // seven of the eight blocks: its own block is there already
}
// ANCHOR_END: gathered_bytes
