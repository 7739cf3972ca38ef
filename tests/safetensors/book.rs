//! The programs of the book's page "Data in and out".

use crate::Scratch;
use atmesh::prelude::*;
use std::path::Path;

// ANCHOR: train
/// Trains up to a step, starting from the newest one that is saved.
fn train(folder: &Path, mesh: &Mesh, steps: u64) -> Result<Array> {
    let step = jit(|w: &Array, batch: &Array| w - 0.1 * (w - batch)).donate(0);
    let mut saves = tree::Checkpoints::new(folder)?.every(10).keep(3);
    let (mut w, mut offset, mut first) = (Array::zeros([8]).put(mesh, p!["X"]), 0, 0);
    if let Some(found) = saves.restore(&w)? {
        offset = found.value("offset")?;
        (w, first) = (found.tree, found.step);
    }
    for n in first + 1..=steps {
        let batch = Array::arange(offset..offset + 8).astype(F32).put(mesh, p!["X"]);
        w = step.call((w, batch))?;
        offset += 8;
        saves.save_with(n, &w, [("offset", offset)])?; // every 10 steps; returns at once
    }
    saves.wait()?; // the last save is complete
    Ok(w)
}
// ANCHOR_END: train

/// A run that is interrupted and goes on with half of the devices has the same bits.
#[test]
fn an_interrupted_run_has_the_same_bits() -> Result<()> {
    let [a, b] = ["book-a", "book-b"].map(Scratch::new);
    let (eight, four) = (Mesh::new([("X", 8)])?, Mesh::new([("X", 4)])?);
    let whole = train(&a.0, &eight, 40)?;
    let interrupted = train(&b.0, &eight, 25)?;
    let resumed = train(&b.0, &four, 40)?;
    assert_ne!(interrupted.to_vec::<f32>()?, whole.to_vec::<f32>()?);
    assert_eq!(resumed.to_vec::<f32>()?, whole.to_vec::<f32>()?);
    assert_eq!(tree::Checkpoints::new(&b)?.steps()?, [20, 30, 40]);
    Ok(())
}
