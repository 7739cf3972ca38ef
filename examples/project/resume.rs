use crate::data::data;
use crate::fsdp::fsdp;
use crate::model::*;
use atmesh::prelude::*;
use std::path::Path;

pub(crate) fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("project-{}", std::process::id()));
    println!("== train");
    losses(&folder)?;
    println!("== files");
    files(&folder)?;
    println!("== error");
    error(&folder)?;
    std::fs::remove_dir_all(folder).map_err(atmesh::Error::other)
}

/// Trains up to a step, from the newest saved one on.
fn resume(folder: &Path, mesh: &Mesh, steps: u64) -> Result<()> {
    let (text, mut m) = (Text::read()?, start(mesh));
    let mut state = optimizer().init(&m)?;
    // ANCHOR: run
    let mut saves = tree::Checkpoints::new(folder)?.every(4).keep(2);
    let mut first = 0;
    if let Some(found) = saves.restore((&m, &state))? {
        (first, (m, state)) = (found.step, found.tree);
    }
    let step = jit(step).donate([0, 1]);
    for i in first..steps {
        let [ids, next] = text.batch(i as usize, SMALL, mesh);
        let loss;
        (loss, m, state) = step.call((m, state, ids, next))?;
        println!("step {i}: loss {:.4}, up: {}", loss.item::<f32>()?, type_of(&m.layers.up));
        saves.save(i + 1, (&m, &state))?; // every 4 steps
    }
    saves.wait()
    // ANCHOR_END: run
}

// ANCHOR: train
fn losses(folder: &Path) -> Result<()> {
    resume(folder, &data()?, 4)?;
    resume(folder, &fsdp()?, 6)?;
    println!("without interruption: {:.4}", train(step, 6, &data()?)?[5]);
    Ok(())
}
// ANCHOR_END: train

// ANCHOR: files
fn files(folder: &Path) -> Result<()> {
    let saves = tree::Checkpoints::new(folder)?;
    println!("saved steps: {:?}", saves.steps()?);
    let files = std::fs::read_dir(saves.path(4)?).map_err(atmesh::Error::other)?;
    let mut names = files.map(|f| Ok(f.map_err(atmesh::Error::other)?.file_name())).collect::<Result<Vec<_>>>()?;
    names.sort();
    println!("{names:?}");
    Ok(())
}
// ANCHOR_END: files

// ANCHOR: error
fn error(folder: &Path) -> Result<()> {
    let wider = gpt(Sizes { embed: 64, ..SMALL }, |shape, _| Array::zeros(shape));
    let state = optimizer().init(&wider)?;
    if let Err(e) = tree::Checkpoints::new(folder)?.restore((&wider, &state)) {
        println!("{}", first(&e, folder));
    }
    Ok(())
}
// ANCHOR_END: error

/// Returns the first of several errors, with a short name for the folder.
fn first(e: &atmesh::Error, folder: &Path) -> String {
    let text = e.to_string().replace(&folder.display().to_string(), "runs");
    text.split("\n\n").next().unwrap_or_default().to_string()
}
