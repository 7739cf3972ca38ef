//! A neural network learns the motion of a spiral from trajectories: a differential equation whose
//! right side is a network, solved by Runge-Kutta steps in a loop. Data parallelism over 4 devices.
use atmesh::nn;
use atmesh::optim::{self, OptState};
use atmesh::prelude::*;

const STEPS: usize = 10;

// ANCHOR: model
#[derive(Clone, Tree)]
struct Field<W = Array> {
    up: W,
    bias: W,
    down: W,
}
impl Field {
    fn velocity(&self, x: &Array) -> Array {
        (x.dot(&self.up) + &self.bias).tanh().dot(&self.down)
    }
}

/// One step of the classical Runge-Kutta method.
fn runge_kutta(velocity: impl Fn(&Array) -> Array, x: &Array, h: f64) -> Array {
    let k1 = velocity(x);
    let k2 = velocity(&(x + 0.5 * h * &k1));
    let k3 = velocity(&(x + 0.5 * h * &k2));
    let k4 = velocity(&(x + h * &k3));
    x + h / 6.0 * (k1 + 2.0 * k2 + 2.0 * k3 + k4)
}

/// The positions after each step: `[steps, batch, 2]`.
fn trajectory(velocity: impl Fn(&Array) -> Array, x: &Array) -> Array {
    let step = |x: Array, ()| {
        let x = runge_kutta(&velocity, &x, 0.2);
        (x.clone(), x)
    };
    scan_with(x, (), step, ScanOptions::default().length(STEPS)).1
}

fn step(net: &Field, state: &OptState, x: &Array, seen: &Array) -> (Field, OptState, Array) {
    let (loss, g) = value_and_grad(net, |net| (trajectory(|x| net.velocity(x), x) - seen).square().mean(..));
    let (net, state) = optim::adam(0.03).step(net, &g, state);
    (net, state, loss)
}
// ANCHOR_END: model

/// Trains on a number of devices. Returns the losses.
fn train(devices: usize, steps: usize) -> Result<Vec<f32>> {
    let mesh = Mesh::new([("data", devices)])?.with_logical_axes([("batch", "data")])?;
    let [a, b, c] = Key::new(0).split();
    let net = Field {
        up: nn::init::lecun_normal(&a, [2, 32]),
        bias: Array::zeros([32]),
        down: nn::init::normal(&b, [32, 2], 0.1),
    };
    let mut net = tree::put(&net, &mesh, p![]);
    let x = (1.5 * c.normal([32, 2])).put(&mesh, p!["batch"]);
    let spiral = Array::from([[-0.1f32, 2.0], [-2.0, -0.1]]).put(&mesh, p![]);
    let seen = trajectory(|x| x.dot(&spiral), &x);

    let (mut state, mut losses, step) = (optim::adam(0.03).init(&net)?, Vec::new(), jit(step));
    if devices > 1 {
        println!("{}", step.lower((&net, &state, &x, &seen))?.collectives());
    }
    for _ in 0..steps {
        let loss;
        (net, state, loss) = step.call((&net, &state, &x, &seen))?;
        losses.push(loss.item::<f32>()?);
    }
    if devices > 1 {
        let begin = Array::from([[1.0f32, 0.0]]).put(&mesh, p![]);
        let end = |x: Array| x.slice(ix![-1, 0]);
        let learned = end(trajectory(|x| net.velocity(x), &begin));
        println!(
            "from (1, 0) to {learned:.2}, the truth is {:.2}",
            end(trajectory(|x| x.dot(&spiral), &begin))
        );
    }
    Ok(losses)
}

fn main() -> Result<()> {
    let losses = train(4, 81)?;
    for i in (0..=80).step_by(20) {
        println!("step {i}: loss {:.4}", losses[i]);
    }
    assert!(losses[80] < 0.02 * losses[0]);
    let one = train(1, 4)?;
    let same = one.iter().zip(&losses).all(|(a, b)| (a - b).abs() < 1e-4);
    println!("on one device, the same losses: {same}");
    Ok(())
}
