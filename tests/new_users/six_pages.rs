//! A training step of two layers on 2 × 4 devices, from the first six pages of the book alone: it
//! uses only what "First program" and "A network in ten minutes" explain.

use atmesh::nn::init;
use atmesh::prelude::*;

#[derive(Clone, Tree)]
struct Net<T = Array> {
    up: T,
    bias: T,
    down: T,
}

fn loss(net: &Net, x: &Array, y: &Array) -> Array {
    let hidden = (x.dot(&net.up) + &net.bias).tanh();
    (hidden.dot_to(&net.down, p!["data", _]) - y).square().mean(..)
}

fn step(net: &Net, x: &Array, y: &Array) -> (Array, Net) {
    let (loss, g) = value_and_grad(net, |net| loss(&net, x, y));
    (loss, tree::map2(net, &g, |w, g| w - 0.2 * g))
}

/// Trains to compute the sine on a mesh of this shape; returns the losses.
fn train(data: usize, model: usize) -> Result<Vec<f32>> {
    let mesh = Mesh::new([("data", data), ("model", model)])?;
    let [a, b, c] = Key::new(4).split();
    let mut net = Net {
        up: init::he_normal(&a, [8, 32]).put(&mesh, p![_, "model"]),
        bias: Array::zeros([32]).put(&mesh, p!["model"]),
        down: init::he_normal(&b, [32, 8]).put(&mesh, p!["model", _]),
    };
    let x = c.normal([1024, 8]).put(&mesh, p!["data", _]);
    let y = x.sin();
    let step = jit(step);
    let mut losses = Vec::new();
    for _ in 0..60 {
        let (loss, next) = step.call((&net, &x, &y))?;
        net = next;
        losses.push(loss.item::<f32>()?);
    }
    Ok(losses)
}

#[test]
fn a_network_trains_on_two_by_four_devices() -> Result<()> {
    let (one, eight) = (train(1, 1)?, train(2, 4)?);
    assert!(one.iter().zip(&eight).all(|(a, b)| (a - b).abs() < 1e-4), "{one:?}\n{eight:?}");
    assert!(eight[59] < 0.3 * eight[0], "{} and {}", eight[0], eight[59]);
    Ok(())
}

/// Only sums: of activations over `model`, of gradients over `data`.
#[test]
fn its_step_gathers_nothing() -> Result<()> {
    let mesh = Mesh::without_devices([("data", 2), ("model", 4)])?;
    let net = Net {
        up: F32.array_type([8, 32]).on(&mesh, p![_, "model"]),
        bias: F32.array_type([32]).on(&mesh, p!["model"]),
        down: F32.array_type([32, 8]).on(&mesh, p!["model", _]),
    };
    let x = F32.array_type([1024, 8]).on(&mesh, p!["data", _]);
    let lowered = jit(step).lower((net, x.clone(), x))?;
    for row in lowered.collectives() {
        assert_eq!(row.kind, atmesh::CollectiveKind::AllReduce, "{}", lowered.collectives());
    }
    Ok(())
}
