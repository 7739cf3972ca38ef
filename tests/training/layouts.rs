//! One transformer, written once, under seven layouts with explicit and with auto axes.
//!
//! Four steps (two without a soak) have the same losses under each layout. The collectives are in
//! `tests/golden/training/layouts.txt`, which `scripts/bless training` writes.

use crate::soak::runs_all;
use crate::transformer::{Transformer, batch, dims, init, layouts, loss};
use atmesh::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write;

/// One step of gradient descent: returns the loss and the new parameters.
fn step(m: &Transformer, ids: &Array, next: &Array) -> (Array, Transformer) {
    let (loss, g) = value_and_grad(m, |m| loss(&m, ids, next));
    (loss, tree::map2(m, &g, |w, g| w - 0.3 * g))
}

/// What one layout does: the losses of four steps, the collectives of a step, and sizes in bytes.
struct Outcome {
    losses: Vec<f32>,
    collectives: BTreeMap<String, (u64, u64)>,
    bytes: u64,
    stored: usize,
}

fn run(mesh: &Mesh) -> Result<Outcome> {
    let mut m = tree::put_stored(&init(2), mesh, dims(2));
    let [ids, next] = batch(mesh, 16, 32);
    let shard_bytes = |w: &Array| -> Result<usize> {
        let sharding = w.sharding()?.expect("a stored parameter is on a mesh");
        Ok(sharding.shard_shape(&w.shape()?)?.iter().product::<usize>() * 4)
    };
    let stored = tree::leaves(&m).iter().map(shard_bytes).sum::<Result<usize>>()?;
    let step = jit(step);
    let lowered = step.lower((&m, &ids, &next))?;
    let mut collectives: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    for c in lowered.collectives().iter() {
        let entry = collectives.entry(format!("{} {}", c.kind, c.axes)).or_default();
        entry.0 += c.count;
        entry.1 += c.bytes_per_device * c.count;
    }
    let mut losses = Vec::new();
    for _ in 0..if runs_all() { 4 } else { 2 } {
        let (loss, next_m) = step.call((&m, &ids, &next))?;
        losses.push(loss.item::<f32>()?);
        m = next_m;
    }
    Ok(Outcome { losses, collectives, bytes: lowered.collectives().bytes(), stored })
}

#[test]
fn one_model_under_seven_layouts_and_two_modes() -> Result<()> {
    let mut text = String::new();
    let mut all: Vec<(String, Outcome)> = Vec::new();
    for explicit in [true, false] {
        for (name, mesh) in layouts(explicit)? {
            let mode = if explicit { "explicit" } else { "auto" };
            let outcome = run(&mesh)?;
            let (bytes, stored) = (outcome.bytes, outcome.stored);
            writeln!(text, "{name}, {mode}: {bytes} bytes, parameters of a device: {stored} bytes").unwrap();
            writeln!(text, "    {mesh}").unwrap();
            for (kind, (times, bytes)) in &outcome.collectives {
                writeln!(text, "    {times} x {kind}: {bytes} bytes").unwrap();
            }
            all.push((format!("{name}, {mode}"), outcome));
        }
    }
    let first = all[0].1.losses.clone();
    for (name, outcome) in &all {
        for (a, b) in outcome.losses.iter().zip(&first) {
            assert!((a - b).abs() < 1e-6, "{name}: {:?} instead of {first:?}", outcome.losses);
        }
    }
    compare_with_golden("layouts", &text);
    for mode in ["explicit", "auto"] {
        let of = |name: &str| &all.iter().find(|(n, _)| *n == format!("{name}, {mode}")).unwrap().1;
        let times = |name: &str, kind: &str| {
            let of = of(name).collectives.iter().filter(|(k, _)| k.starts_with(kind));
            of.map(|(_, (times, _))| times).sum::<u64>()
        };
        assert!(times("dp", "all_reduce") <= 15);
        assert_eq!((times("fsdp", "all_gather"), times("fsdp", "reduce_scatter")), (9, 9));
        assert_eq!(of("dp").collectives.len(), 1);
        assert!(of("tp").bytes <= 1_577_016);
        // three times for the state of an optimizer with two moments, and its count
        assert_eq!(3 * of("fsdp").stored + 4, 160_516);
    }
    Ok(())
}

/// Compares with the golden text; `ATMESH_BLESS=1` writes it again.
pub(crate) fn compare_with_golden(name: &str, text: &str) {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/training");
    let path = folder.join(format!("{name}.txt"));
    if std::env::var_os("ATMESH_BLESS").is_some() {
        std::fs::create_dir_all(&folder).expect("the folder can be made");
        std::fs::write(&path, text).expect("the golden file can be written");
    }
    let golden = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(golden == text, "{} differs from:\n{text}", path.display());
}
