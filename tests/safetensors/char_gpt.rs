//! The example `char_gpt`: its losses are JAX's, and it goes on with the same bits on another mesh.

#[path = "../../examples/char_gpt.rs"]
#[allow(dead_code)]
mod example;

use crate::{Scratch, soak};
use atmesh::display::LineChart;
use atmesh::prelude::*;
use example::{layout, train};

// ANCHOR: jax
/// The losses of JAX and optax at some steps, by `char_gpt_jax.py`.
const JAX: [(u64, f32); 20] = [
    (0, 4.5449),
    (1, 4.5542),
    (2, 4.5499),
    (3, 4.5280),
    (4, 4.4696),
    (5, 4.3567),
    (6, 4.3370),
    (7, 4.2693),
    (25, 3.6435),
    (50, 2.9859),
    (75, 2.9223),
    (100, 2.6257),
    (125, 2.6158),
    (150, 2.7672),
    (175, 2.5787),
    (200, 2.6050),
    (225, 2.5778),
    (250, 2.6661),
    (275, 2.5186),
    (299, 2.4919),
];
// ANCHOR_END: jax

/// The model is saved every 5 steps, so the second run begins 2 steps before the end. A mesh of
/// other axes with 8 blocks of the batch has the same bits; with 4 blocks sums have another order.
#[test]
fn losses_are_those_of_jax_and_go_on_with_the_same_bits() -> Result<()> {
    let (steps, saved) = if soak::runs_all() { (302, 300) } else { (7, 5) };
    let folder = Scratch::new("char_gpt");
    let (_, losses) = train(&folder.0, &layout([("x", 8)])?, steps)?;
    for (step, jax) in JAX.into_iter().filter(|(step, _)| *step < steps) {
        let (at, loss) = losses[step as usize];
        assert!(at == step && (loss - jax).abs() <= 2e-4, "step {step}: {loss}, but JAX's loss is {jax}");
    }
    if soak::runs_all() {
        assert_is_the_picture_of_the_book(&losses[..300]);
    }
    let whole = &losses[saved as usize..];
    let (_, rest) = train(&folder.0, &layout([("x", 2), ("y", 4)])?, steps)?;
    let bits = |losses: &[(u64, f32)]| Vec::from_iter(losses.iter().map(|(step, l)| (*step, l.to_bits())));
    assert_eq!(bits(&rest), bits(whole));
    let tensor = Mesh::new([("data", 2), ("model", 4)])?
        .with_logical_axes([("batch", "data"), ("heads", "model"), ("mlp", "model")])?
        .with_logical_axes([("embed", ()), ("vocab", ())])?;
    let fsdp = layout([("x", 4)])?.with_storage_axes([("embed", "x")])?;
    for mesh in soak::part([tensor, fsdp, layout([("x", 4)])?], 3) {
        let (_, rest) = train(&folder.0, &mesh, steps)?;
        let same = rest.iter().zip(whole).all(|(a, b)| a.0 == b.0 && (a.1 - b.1).abs() <= 1e-5);
        assert!(same && rest.len() == whole.len(), "{mesh}: {rest:?} instead of {whole:?}");
    }
    Ok(())
}

/// Compares with the book's picture, whose points may differ by a pixel; `ATMESH_BLESS=1` writes it.
fn assert_is_the_picture_of_the_book(losses: &[(u64, f32)]) {
    let path = format!("{}/book/src/pictures/char_gpt.svg", env!("CARGO_MANIFEST_DIR"));
    let drawn = LineChart::new("char_gpt: loss by step").line("", losses.iter().copied()).to_svg();
    if std::env::var_os("ATMESH_BLESS").is_some() {
        std::fs::write(&path, &drawn).expect("the picture can be written");
    }
    let kept = std::fs::read_to_string(&path).expect("the book has the picture");
    let numbers = |svg: &str| Vec::from_iter(svg.split([' ', ',', '"']).map(str::parse::<f64>));
    let same = |(a, b): (&_, &_)| match (a, b) {
        (Ok(a), Ok(b)) => f64::abs(a - b) <= 1.0,
        (a, b) => a == b,
    };
    let (drawn, kept) = (numbers(&drawn), numbers(&kept));
    assert!(drawn.len() == kept.len() && drawn.iter().zip(&kept).all(same), "the losses are others");
}
