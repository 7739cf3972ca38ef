//! A variational autoencoder, ported from PyTorch's example by the book's pages on PyTorch, layers and
//! optimizers, with the losses that PyTorch 2 prints for the same weights and noise.

use atmesh::optim::{self, OptState};
use atmesh::{nn, prelude::*};

#[derive(Clone, Tree)]
struct Linear<T = Array> {
    w: T, // as in PyTorch: [features out, features in]
    b: T,
}

impl Linear {
    fn apply(&self, x: &Array) -> Array {
        x.dot(self.w.t()) + &self.b
    }
}

#[derive(Clone, Tree)]
struct Vae<T = Array> {
    fc1: Linear<T>,
    fc21: Linear<T>,
    fc22: Linear<T>,
    fc3: Linear<T>,
    fc4: Linear<T>,
}

/// Returns the sum of the reconstruction's cross entropy, and the divergence of the code from normal.
fn loss(vae: &Vae, x: &Array, noise: &Array) -> Array {
    let h = vae.fc1.apply(x).relu();
    let (mean, log_var) = (vae.fc21.apply(&h), vae.fc22.apply(&h));
    let code = &mean + noise * (0.5 * &log_var).exp();
    let logits = vae.fc4.apply(&vae.fc3.apply(&code).relu());
    let cross_entropy = nn::sigmoid_binary_cross_entropy(&logits, x).sum(..);
    let divergence = -0.5 * (1.0 + &log_var - mean.square() - log_var.exp()).sum(..);
    cross_entropy + divergence
}

/// The numbers of the PyTorch program: half of `sin(0.7 k + phase)`.
fn wave<const RANK: usize>(shape: [usize; RANK], phase: f64) -> Array {
    let k = Array::arange(0..shape.iter().product::<usize>() as i32).astype(F64);
    0.5 * (0.7 * k + phase).sin().reshape(shape)
}

fn linear(out: usize, from: usize, phase: f64) -> Linear {
    Linear { w: wave([out, from], phase), b: wave([out], phase + 0.5) }
}

fn start() -> (Vae, Array, Array) {
    let vae = Vae {
        fc1: linear(12, 16, 0.0),
        fc21: linear(3, 12, 1.0),
        fc22: linear(3, 12, 2.0),
        fc3: linear(12, 3, 3.0),
        fc4: linear(16, 12, 4.0),
    };
    (vae, wave([8, 16], 9.0) + 0.5, 2.0 * wave([8, 3], 11.0))
}

/// Trains on these arrays, and returns each loss.
fn losses(vae: Vae, x: &Array, noise: &Array) -> Result<Vec<f64>> {
    let opt = optim::adam(1e-2);
    let step = jit(|vae: &Vae, state: &OptState| {
        let (loss, g) = value_and_grad(vae, |vae| loss(&vae, x, noise));
        let (vae, state) = opt.step(vae, &g, state);
        (vae, state, loss)
    });
    let (mut vae, mut state) = (vae.clone(), opt.init(&vae)?);
    let mut losses = Vec::new();
    for _ in 0..20 {
        let loss;
        (vae, state, loss) = step.call((&vae, &state))?;
        losses.push(loss.item::<f64>()?);
    }
    Ok(losses)
}

/// PyTorch's losses before steps 1, 10 and 20, in float64.
const TORCH: [(usize, f64); 3] = [(0, 135.6141511472058), (9, 93.99103773270329), (19, 88.76425627391104)];

#[test]
fn it_trains_as_in_pytorch() -> Result<()> {
    let (vae, x, noise) = start();
    let found = losses(vae, &x, &noise)?;
    for (step, loss) in TORCH {
        assert!((found[step] - loss).abs() < 1e-6 * loss, "step {step}: {} and {loss}", found[step]);
    }
    Ok(())
}

/// `DistributedDataParallel`: the batch is split over four devices, the parameters are replicated.
#[test]
fn it_trains_the_same_with_a_split_batch() -> Result<()> {
    let (vae, x, noise) = start();
    let mesh = Mesh::new([("data", 4)])?;
    let vae = tree::put(&vae, &mesh, p![]);
    let found = losses(vae, &x.put(&mesh, p!["data"]), &noise.put(&mesh, p!["data"]))?;
    for (step, loss) in TORCH {
        assert!((found[step] - loss).abs() < 1e-6 * loss, "step {step}: {} and {loss}", found[step]);
    }
    Ok(())
}
