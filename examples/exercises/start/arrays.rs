//! Arrays and communication.
use super::gap;
use atmesh::prelude::*;

// ANCHOR: fewest_bytes
pub(super) fn fewest_bytes() -> Result<Spec> {
    let spec: Spec = gap()?; // write p![…]
    Ok(spec)
}
// ANCHOR_END: fewest_bytes

// ANCHOR: first_row
pub(super) fn first_row() -> Result<u64> {
    let row = gap()?;
    Ok(row)
}
// ANCHOR_END: first_row

// ANCHOR: normalized
pub(super) fn normalized(x: &Array) -> Result<Array> {
    let norms: Array = gap()?; // float32[64@X,1]
    Ok(x / norms)
}
// ANCHOR_END: normalized

// ANCHOR: padded_mean
pub(super) fn padded_mean(mesh: &Mesh, x: &Array) -> Result<Array> {
    let sharded: Array = gap::<Array>()?.put(mesh, p!["X"]);
    Ok(sharded.sum(..) / 10.0)
}
// ANCHOR_END: padded_mean

// ANCHOR: column_sums
pub(super) fn column_sums(x: &Array) -> Result<Array> {
    let spec: Spec = gap()?;
    Ok(x.sum_to(0, spec))
}
// ANCHOR_END: column_sums

// ANCHOR: turned
pub(super) fn turned(x: &Array) -> Result<Array> {
    let spec: Spec = gap()?;
    Ok(x.reshard(spec))
}
// ANCHOR_END: turned

// ANCHOR: two_layers
pub(super) fn two_layers(x: &Array, up: &Array, down: &Array) -> Result<Array> {
    let (first, second): (Spec, Spec) = gap()?;
    let (up, down) = (up.reshard(first), down.reshard(second));
    Ok(x.dot(up).relu().dot_to(down, p![]))
}
// ANCHOR_END: two_layers

// ANCHOR: gram
pub(super) fn gram(x: &Array) -> Result<Array> {
    let spec: Spec = gap()?;
    Ok(x.t().dot_to(x, spec))
}
// ANCHOR_END: gram

// ANCHOR: gathered_bytes
pub(super) fn gathered_bytes() -> Result<u64> {
    let bytes = gap()?;
    Ok(bytes)
}
// ANCHOR_END: gathered_bytes
