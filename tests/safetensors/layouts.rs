//! Checkpoints of one transformer under seven layouts, with explicit and with auto axes: each is
//! resumed under the same layout and under the next one.

use crate::Scratch;
use crate::transformer::{Transformer, batch, dims, init, layouts, loss};
use atmesh::optim::{self, OptState, Optimizer};
use atmesh::prelude::*;
use atmesh::tree::Checkpoints;

fn optimizer() -> Optimizer {
    optim::chain([optim::clip_by_global_norm(1.0), optim::adamw(1e-3)])
}

type Training = (Transformer, OptState);

fn train_step((m, s): Training, ids: &Array, next: &Array) -> (Training, Array) {
    let (loss, g) = value_and_grad(&m, |m| loss(&m, ids, next));
    (optimizer().step(&m, &g, &s), loss)
}

/// Returns the state before the first step, placed as the mesh says.
fn start(mesh: &Mesh) -> Result<Training> {
    let m = tree::put_stored(&init(1), mesh, dims(1));
    let s = optimizer().init(&m)?;
    Ok((m, s))
}

/// The second loss after the restored step also depends on the restored moments.
#[test]
fn a_checkpoint_of_each_layout_resumes_under_the_next() -> Result<()> {
    let folder = Scratch::new("layouts");
    let mut saves = Checkpoints::new(&folder)?;
    let step = jit(train_step).donate(0);
    let run = |mesh: &Mesh, mut training: Training| -> Result<(Training, [f32; 2])> {
        let ([ids, next], mut losses) = (batch(mesh, 8, 16), [0.0; 2]);
        for found in &mut losses {
            let (after, loss) = step.call((training, &ids, &next))?;
            (training, *found) = (after, loss.item()?);
        }
        Ok((training, losses))
    };
    let mut all = Vec::new();
    for explicit in [true, false] {
        let mode = if explicit { "explicit" } else { "auto" };
        all.extend(layouts(explicit)?.into_iter().map(|(name, mesh)| (format!("{name}, {mode}"), mesh)));
    }
    for (i, (name, mesh)) in all.iter().enumerate() {
        let (training, _) = run(mesh, start(mesh)?)?;
        saves.save(i as u64, &training)?;
        let (_, losses) = run(mesh, training)?;
        let same = saves.restore_step(i as u64, start(mesh)?)?.tree;
        assert_eq!(run(mesh, same)?.1, losses, "{name}");
        let (other, mesh) = &all[(i + 1) % all.len()];
        let resumed = saves.restore_step(i as u64, start(mesh)?)?.tree;
        for (a, b) in run(mesh, resumed)?.1.iter().zip(losses) {
            assert!((a - b).abs() < 1e-6, "{name}, resumed under {other}: {a} instead of {b}");
        }
    }
    Ok(())
}
